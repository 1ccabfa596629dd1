"""What `rosewood attack` attacks: a run or checkpoint and its data, or other models with texts found before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from rich.console import Console

from rosewood.cli.evaluate import check_run, results_folder, task_of, with_run_columns
from rosewood.cli.train import file_name
from rosewood.config.settings import AttackSettings
from rosewood.errors import DataError, RunError

if TYPE_CHECKING:
    from datasets import Dataset

    from rosewood.attacks.runner.attack import Attack
    from rosewood.attacks.runner.execute import Engine
    from rosewood.attacks.runner.job import Campaign
    from rosewood.attacks.runner.protocols import Protocol, Resolved
    from rosewood.attacks.runner.replay import ReplayCampaign
    from rosewood.attacks.runner.search import Resources
    from rosewood.data.tasks import Task
    from rosewood.models.open import OpenRun
    from rosewood.results import AttackResult, TestFile
    from rosewood.words.constraints import Encoder


EXAMPLES_USUALLY = 1000


@dataclass(frozen=True)
class AttackRequest:
    """What was asked for, whichever the run."""

    given: dict[str, Any]
    protocol: Protocol | None
    task: str | None
    split: str | None
    own: TestFile | None
    labels: list[str] | None
    data_dir: Path | None
    causal_lm: str | None
    length: int | None = None
    """Tokens per text where neither the user nor the protocol says it; None: the run's own."""

    def on(self, task: str | None) -> Resolved:
        """All settings on a task."""
        from rosewood.attacks.runner.protocols import Resolved

        return Resolved(self.given, ()) if self.protocol is None else self.protocol.resolve(self.given, task)

    def folder_of(self, run: OpenRun) -> Path | None:
        """Where the files of tasks are."""
        return self.data_dir or (Path(run.data_dir) if run.data_dir else None)


def target_of(run: str, request: AttackRequest, trusted: Collection[str]) -> tuple[Campaign, list[str]]:
    """The campaign against one run, and the names of its labels; a run knows its task, data folder and text length."""
    from accelerate import PartialState

    from rosewood.attacks.runner.api import choose_attack, prepare
    from rosewood.models.open import open_run
    from rosewood.models.scoring import is_for_tokens, name_outputs

    opened = open_run(run, trusted, words=True)
    if request.labels is not None:
        name_outputs(opened.model, request.labels)
    found = (_words if is_for_tokens(opened.model) else _texts)(opened, request)
    chosen = found.chosen
    settings = chosen.settings()
    attack = choose_attack(chosen.values["attack"], chosen.values["set"])
    resources = _resources(attack, chosen, request.causal_lm, found.task, request.folder_of(opened))
    # Processes of torchrun meet here; the one that is done first waits for the last, which can take hours.
    device = PartialState(timeout=timedelta(weeks=4)).device
    campaign = prepare(
        opened.model.to(device),
        opened.tokenizer,
        found.rows,
        attack,
        resources,
        settings.model_copy(update={"max_length": settings.max_length or request.length or opened.max_length}),
        labels=found.labels,
        task=found.name,
        split=found.split,
        test_file=found.own,
        protocol=None if request.protocol is None else request.protocol.name,
        deviations=chosen.deviations,
    )
    return campaign, list(campaign.label_names)


class TargetData(NamedTuple):
    """The data of an attack, and all settings on them."""

    rows: Dataset
    chosen: Resolved
    name: str
    split: str
    labels: Sequence[str]
    task: Task | None
    """Where training texts come from."""
    own: TestFile | None


def _texts(opened: OpenRun, request: AttackRequest) -> TargetData:
    from rosewood.data.loading import load_split
    from rosewood.data.own import own_task

    is_unknown = request.own is not None and opened.info is None
    known = None if is_unknown else task_of(opened.path, request.task, opened.folder)
    if request.own is None:
        assert known is not None, "a checkpoint needs --task or --test-file"
        task, own = known, None
    else:
        own = with_run_columns(request.own, opened.folder)
        task = own_task(own.file, opened.model.config, own.text_columns, own.label_column)
        own = own.model_copy(update={"file": str(Path(own.file).resolve()), "text_columns": task.text})
    chosen = request.on(None if is_unknown else (known or task).name)
    split = request.split or ("test" if "test" in task.splits else "validation")
    examples = chosen.values.get("examples", EXAMPLES_USUALLY)
    seed = chosen.settings().seed
    rows = load_split(task, split, request.folder_of(opened), examples, seed, multi_label=True)
    return TargetData(rows, chosen, task.name, split, task.labels, known or task, own)


def _words(opened: OpenRun, request: AttackRequest) -> TargetData:
    """Texts with a label for each word; --examples counts the texts, and each of their entities is attacked."""
    from rosewood.attacks.runner.api import attackable, file_of

    own = request.own
    if own is None:
        raise RunError(
            f"{opened.path} has a label for each word, as for named entities: give it texts with --test-file FILE, "
            "JSON Lines or Parquet with lists of words and labels, such as "
            '{"tokens": ["Ada", "left"], "ner_tags": ["B-PER", "O"]}'
        )
    chosen = request.on(None)
    rows = attackable(own.file, opened.model, own.text_columns, own.label_column)
    examples = chosen.values.get("examples", EXAMPLES_USUALLY)
    if len(rows) > examples:
        rows = rows.shuffle(seed=chosen.settings().seed).select(range(examples))
    name = Path(own.file).stem
    return TargetData(rows, chosen, name, "test", (), None, file_of(own.file, rows, own.label_column))


def _resources(
    attack: Attack, chosen: Resolved, causal_lm: str | None, task: Task | None, folder: Path | None
) -> Resources:
    """What the attack needs, and an encoder to compare texts with if there is one."""
    from rosewood.attacks.runner.api import resources_for
    from rosewood.attacks.runner.constraints import constraints_of

    values, rules = chosen.values, constraints_of(chosen.settings())
    found = resources_for(attack, task, folder, values.get("lexicon"), values.get("masked_lm"), causal_lm, rules)
    return found if found.encoder else replace(found, encoder=_encoder())


def _encoder() -> Encoder | None:
    from rosewood.words.language_models import SentenceEncoder

    try:
        return SentenceEncoder.load()
    except DataError:
        return None


@dataclass(frozen=True)
class ReplayRequest:
    """How texts are tried, whichever the run."""

    settings: AttackSettings
    labels: list[str] | None
    output: Path | None
    show: int
    trusted: Collection[str]
    console: Console


def replay_on(runs: Sequence[str], sources: Mapping[Path, str | None], replays: ReplayRequest) -> None:
    """Try what was found in some folders on each of the runs, and print the table "found on, tried on".

    `sources` are the folders, each with the run that its texts were found on, where they are not tried again.
    """
    from rosewood.attacks.runner.report import diff, load_attack
    from rosewood.comparison.attack_tables import transfer_grids
    from rosewood.results import TestFile
    from rosewood.results.grid import Folded

    found = {folder: load_attack(folder) for folder in sources}
    for run in runs:
        check_run(run, None, own=TestFile(file="", text_columns=[]))
    results: dict[str, list[AttackResult]] = {run: [] for run in runs}
    for folder, source in found.items():
        if not source.summary.counts.get("broken"):
            replays.console.print(f"Nothing was broken in {folder}, so there is nothing to try.", markup=False)
            continue
        for run in runs:
            if run == sources[folder]:
                continue
            campaign = _prepare(run, source, replays)
            result = carry_out_and_show(campaign, _folder(run, replays.output, campaign), 1, replays.console)
            results[run].append(result)
            for example in [each for each in result.examples if each.status == "broken"][: replays.show]:
                replays.console.print(diff(example, campaign.label_names), end="\n\n")
    own = {found[folder].fingerprint: run for folder, run in sources.items() if run is not None}
    for grid in transfer_grids(results, own, own):
        Console(quiet=replays.console.quiet).print(Folded(grid))


def _prepare(run: str, source: AttackResult, replays: ReplayRequest) -> ReplayCampaign:
    from accelerate import PartialState

    from rosewood.attacks.runner.replay import prepare_replay
    from rosewood.models.open import open_run
    from rosewood.models.scoring import name_outputs

    opened = open_run(run, replays.trusted, words=True)
    if replays.labels is not None:
        name_outputs(opened.model, replays.labels)
    if opened.info is not None and source.test_file is None and source.task not in (None, opened.info.task):
        raise RunError(
            f"the texts are of the task {source.task}, and {run} was trained on {opened.info.task}: replay them on a "
            "run of the same task"
        )
    device = PartialState(timeout=timedelta(weeks=4)).device
    length = replays.settings.max_length or opened.max_length
    return prepare_replay(
        opened.model.to(device), opened.tokenizer, source, replays.settings.model_copy(update={"max_length": length})
    )


def _folder(run: str, output: Path | None, campaign: ReplayCampaign) -> Path:
    from rosewood.comparison.runs import REPLAYS

    place = results_folder(run)
    inside = Path(REPLAYS) / Path(run).resolve().name if place is None else place / REPLAYS
    name = f"{campaign.attack.settings()['attack']}-{campaign.split}-{campaign.fingerprint[:8]}"
    return (output or inside) / file_name(name)


def carry_out_and_show(
    campaign: Campaign, folder: Path, jobs: int, console: Console, engine: Engine | None = None
) -> AttackResult:
    """Carry a campaign out, or read its result, and say where that is."""
    from rosewood.attacks.runner.execute import carry_out, finished

    if finished(campaign, folder):
        console.print(f"This attack was made before; its result is in {folder}", markup=False)
    try:
        result = carry_out(campaign, folder, jobs, engine=engine)
    except KeyboardInterrupt:
        console.print(f"Interrupted; what is finished is kept in {folder}. Give the same command again to go on.")
        raise typer.Exit(130) from None
    left = f", {result.summary.left_out} not begun in time" if result.summary.left_out else ""
    console.print(
        f"{result.summary.examples} examples in {result.seconds:.0f} s{left}. The result is in {folder}", markup=False
    )
    return result
