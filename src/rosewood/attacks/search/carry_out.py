"""Carries a campaign out: block after block, in one process or many, in one go or after a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from tqdm import tqdm

from rosewood.attacks.search.campaign import Campaign
from rosewood.attacks.search.journal import Journal
from rosewood.attacks.search.outcome import REPORT, load_outcome, save_outcome
from rosewood.attacks.search.summary import summarize
from rosewood.attacks.search.workers import run_blocks
from rosewood.errors import RunError
from rosewood.locks import held
from rosewood.processes import from_all, is_first, rank, share_of
from rosewood.results import AttackResult, FinishedBlock

Blocks = Mapping[int, FinishedBlock]


def carry_out(campaign: Campaign, folder: Path | None = None, jobs: int = 1, progress: bool = True) -> AttackResult:
    """Run all blocks that the folder does not hold yet, and put everything together.

    In a torch.distributed program all processes must call it; they share the blocks, and all get the whole result.
    """
    _check_jobs(jobs, campaign)
    known = _known(campaign, folder)
    if known:
        return known
    with held(folder) if folder and is_first() else nullcontext():
        # Whoever had the folder until now may have finished.
        return _known(campaign, folder) or _carry_out(campaign, folder, jobs, progress)


def _known(campaign: Campaign, folder: Path | None) -> AttackResult | None:
    known = next((result for result in from_all(folder and finished(campaign, folder)) if result), None)
    return known and _judged(known, campaign, folder)


def _carry_out(campaign: Campaign, folder: Path | None, jobs: int, progress: bool) -> AttackResult:
    journal = Journal(folder, campaign.fingerprint, rank()) if folder else None
    if journal:
        journal.begin()  # also on hosts that do not share the folder
    done = _merged(from_all(journal.read() if journal else {}))
    todo = share_of([number for number in range(len(campaign.blocks)) if number not in done])
    began = time.monotonic() - max((block.seconds for block in done.values()), default=0.0)
    deadline = None if campaign.max_seconds is None else began + campaign.max_seconds
    before = sum(len(block.examples) for block in done.values())
    with tqdm(
        total=before + sum(len(campaign.blocks[number]) for number in todo),
        initial=before,
        desc=campaign.attack.name,
        unit="example",
        disable=None if progress and is_first() else True,  # None: on a terminal only
    ) as bar:
        for number, examples in run_blocks(campaign, todo, jobs, deadline, bar.update):
            if not examples:  # time was up before it began
                continue
            seconds = time.monotonic() - began
            done[number] = FinishedBlock(
                fingerprint=campaign.fingerprint, number=number, seconds=seconds, examples=examples
            )
            if journal:
                journal.append(done[number])
    result = _result(campaign, _merged(from_all(done)), time.monotonic() - began)
    if folder and journal:
        if is_first():
            save_outcome(result, folder)
        from_all(None)  # nobody forgets what the first process has not written yet
        journal.remove()
    return result


def finished(campaign: Campaign, folder: Path) -> AttackResult | None:
    """The result in the folder, if there is one; it must be of this campaign."""
    if not (folder / REPORT).exists():
        return None
    result = load_outcome(folder)
    if result.fingerprint != campaign.fingerprint:
        raise RunError(
            f"{folder} holds the result of an attack with other settings, another model or other data: "
            "choose another folder, or delete this one."
        )
    return result


def _judged(result: AttackResult, campaign: Campaign, folder: Path | None) -> AttackResult:
    """A finished result under the share of words that this campaign asks for, which needs no new search."""
    if result.summary.min_changeable == campaign.min_changeable:
        return result
    summary = result.summary.model_copy(update={"min_changeable": campaign.min_changeable})
    result = result.model_copy(update={"summary": summary})
    if folder and is_first():
        save_outcome(result, folder)
    return result


def _check_jobs(jobs: int, campaign: Campaign) -> None:
    if jobs < 1:
        raise RunError(f"jobs must be at least 1, got {jobs}")
    device = campaign.model.device
    if jobs > 1 and device.type != "cpu":
        raise RunError(
            f"jobs share the CPUs of a machine, and the model is on {device}: for several devices start one process "
            "for each, with torchrun or accelerate launch"
        )


def _merged(parts: list[Blocks]) -> dict[int, FinishedBlock]:
    return {number: block for part in parts for number, block in part.items()}


def _result(campaign: Campaign, done: Blocks, seconds: float) -> AttackResult:
    examples = sorted((each for block in done.values() for each in block.examples), key=lambda example: example.row)
    if not examples:
        raise RunError(f"no example was scored within max_seconds {campaign.max_seconds}: allow more time.")
    lexicon = campaign.resources.lexicon
    return AttackResult(
        model=campaign.model.name_or_path or type(campaign.model).__name__,
        fingerprint=campaign.fingerprint,
        lexicon_name=None if lexicon is None else lexicon.known_as,
        test_file=campaign.test_file,
        seconds=seconds,
        summary=summarize(examples, len(campaign.texts) - len(examples), campaign.min_changeable),
        examples=examples,
        **campaign.facts,
    )
