"""Replays for `rosewood attack`: texts that were found on one model, tried on others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from rosewood.cli.attack import carry_out_told
from rosewood.cli.evaluate import check_run, name_outputs, results_folder
from rosewood.cli.train import file_name
from rosewood.config.settings import AttackSettings
from rosewood.errors import RunError

if TYPE_CHECKING:
    from rosewood.attacks.runner.replay import ReplayCampaign
    from rosewood.results import AttackResult


@dataclass(frozen=True)
class Tries:
    """How texts are tried, whichever the run."""

    settings: AttackSettings
    labels: list[str] | None
    output: Path | None
    show: int
    trusted: Collection[str]
    console: Console


def replay_on(runs: Sequence[str], sources: Mapping[Path, str | None], tries: Tries) -> None:
    """Try what was found in some folders on each of the runs, and print the table "found on, tried on".

    `sources` are the folders, each with the run that its texts were found on, where they are not tried again.
    """
    from rosewood.attacks.runner.report import diff, load_attack
    from rosewood.comparison.transfer import transfer_grids
    from rosewood.results import TestFile
    from rosewood.results.grid import Folded

    found = {folder: load_attack(folder) for folder in sources}
    for run in runs:
        check_run(run, None, own=TestFile(file="", text_columns=[]))
    results: dict[str, list[AttackResult]] = {run: [] for run in runs}
    for folder, source in found.items():
        if not source.summary.counts.get("broken"):
            tries.console.print(f"Nothing was broken in {folder}, so there is nothing to try.", markup=False)
            continue
        for run in runs:
            if run == sources[folder]:
                continue
            campaign = _prepare(run, source, tries)
            result = carry_out_told(campaign, _folder(run, tries.output, campaign), 1, tries.console)
            results[run].append(result)
            for example in [each for each in result.examples if each.status == "broken"][: tries.show]:
                tries.console.print(diff(example, campaign.label_names), end="\n\n")
    own = {found[folder].fingerprint: run for folder, run in sources.items() if run is not None}
    for grid in transfer_grids(results, own, own):
        Console(quiet=tries.console.quiet).print(Folded(grid))


def _prepare(run: str, source: AttackResult, tries: Tries) -> ReplayCampaign:
    from accelerate import PartialState

    from rosewood.attacks.runner.replay import prepare_replay
    from rosewood.models.open import open_run

    opened = open_run(run, tries.trusted, words=True)
    if tries.labels is not None:
        name_outputs(opened.model, tries.labels)
    if opened.info is not None and source.test_file is None and source.task not in (None, opened.info.task):
        raise RunError(
            f"the texts are of the task {source.task}, and {run} was trained on {opened.info.task}: replay them on a "
            "run of the same task"
        )
    device = PartialState(timeout=timedelta(weeks=4)).device
    length = tries.settings.max_length or opened.max_length
    return prepare_replay(
        opened.model.to(device), opened.tokenizer, source, tries.settings.model_copy(update={"max_length": length})
    )


def _folder(run: str, output: Path | None, campaign: ReplayCampaign) -> Path:
    from rosewood.comparison.runs import REPLAYS

    place = results_folder(run)
    inside = Path(REPLAYS) / Path(run).resolve().name if place is None else place / REPLAYS
    name = f"{campaign.attack.settings()['attack']}-{campaign.split}-{campaign.fingerprint[:8]}"
    return (output or inside) / file_name(name)
