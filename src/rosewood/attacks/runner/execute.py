"""Execute a job block by block, in one process or several, in one go or after a crash: the result is the same."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from rosewood.attacks.runner.job import Campaign
from rosewood.attacks.runner.report import REPORT, load_attack, save_outcome, summarize
from rosewood.config.settings import AttackSettings
from rosewood.errors import RosewoodError, RunError
from rosewood.models.defended import forwards_of
from rosewood.results import AttackedExample, AttackResult, AttackSummary, FinishedBlock
from rosewood.results.work_folder import Journal, held
from rosewood.tensors.shards import from_all, is_first, rank, share_of

Tick = Callable[[], object]
"""Called whenever an example is over."""


class Block(NamedTuple):
    """A block and what became of its examples; time may have run out before all, or any, were begun."""

    number: int
    examples: list[AttackedExample]


def run_blocks(
    campaign: Campaign, numbers: Sequence[int], jobs: int, deadline: float | None, tick: Tick
) -> Iterator[Block]:
    """Run the blocks of these numbers in so many processes; they come in the order in which they end."""
    jobs = min(jobs, len(numbers))
    if jobs > 1:
        return _in_processes(campaign, numbers, jobs, deadline, tick)
    return (run_block(campaign, number, deadline, tick) for number in numbers)


def run_block(campaign: Campaign, number: int, deadline: float | None, tick: Tick) -> Block:
    """Run one block in this process."""
    examples = []
    for example in campaign.records(campaign.blocks[number], deadline):
        examples.append(example)
        tick()
    return Block(number, examples)


def _in_processes(
    campaign: Campaign, numbers: Sequence[int], jobs: int, deadline: float | None, tick: Tick
) -> Iterator[Block]:
    context = multiprocessing.get_context("spawn")
    results, taken = context.Queue(), context.Value("q", 0)
    threads = max(1, torch.get_num_threads() // jobs)
    # As plain bytes: torch would send tensors through shared memory, of which containers often have little.
    sent = packed(campaign)
    workers = [
        context.Process(target=_work, args=(sent, numbers, taken, deadline, threads, results), daemon=True)
        for _ in range(jobs)
    ]
    try:
        for worker in workers:
            worker.start()
        missing = len(numbers)
        while missing:
            message = _next(results, workers)
            if isinstance(message, RosewoodError):
                raise message
            if isinstance(message, Block):
                missing -= 1
                yield message
            else:
                tick()
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()


def packed(campaign: Campaign) -> bytes:
    """The campaign as bytes, for another process."""
    try:
        return pickle.dumps(campaign)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise RunError(
            f"the attack, or something it was given, cannot be sent to other processes: {error}. "
            "Define functions and classes at the top of a module, or take jobs=1."
        ) from None


def _next(results: Any, workers: Sequence[Any]) -> Any:
    while True:
        # Asked before the queue: what a process put there before it ended is then found.
        ended = [worker.exitcode for worker in workers if worker.exitcode]
        try:
            return results.get(timeout=0 if ended else 1)
        except Empty:
            if ended:
                raise RunError(
                    f"a process of the attack ended with exit code {ended[0]}"
                    f"{' (out of memory?)' if ended[0] == -signal.SIGKILL else ''}. Finished work is kept: "
                    "run the same command again to continue, perhaps with fewer jobs."
                ) from None


def _work(sent: bytes, numbers: Sequence[int], taken: Any, deadline: float | None, threads: int, results: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    campaign: Campaign = pickle.loads(sent)
    while True:
        with taken.get_lock():
            place, taken.value = taken.value, taken.value + 1
        if place >= len(numbers):
            return
        try:
            results.put(run_block(campaign, numbers[place], deadline, lambda: results.put(None)))
        except RosewoodError as error:
            results.put(error)
            return


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


Blocks = Mapping[int, FinishedBlock]


Engine = Callable[["Campaign", Sequence[int], float | None, Tick], Iterator[Block]]
"""Runs the blocks of some numbers of a campaign until a deadline, and ticks for each example."""


def carry_out(
    campaign: Campaign,
    folder: Path | None = None,
    jobs: int = 1,
    progress: bool = True,
    engine: Engine | None = None,
) -> AttackResult:
    """Run all blocks that the folder does not hold yet, in so many processes or on another engine, and join them.

    In a torch.distributed program all processes must call it; they share the blocks, and all get the whole result.
    """
    _check_jobs(jobs, campaign)
    known = _known(campaign, folder)
    if known:
        return known
    with held(folder) if folder and is_first() else nullcontext():
        # Whoever had the folder until now may have finished.
        return _known(campaign, folder) or _carry_out(campaign, folder, jobs, progress, engine)


def _known(campaign: Campaign, folder: Path | None) -> AttackResult | None:
    known = next((result for result in from_all(folder and finished(campaign, folder)) if result), None)
    return known and _judged(known, campaign, folder)


def _carry_out(
    campaign: Campaign, folder: Path | None, jobs: int, progress: bool, engine: Engine | None
) -> AttackResult:
    journal = Journal(folder, campaign.fingerprint, rank()) if folder else None
    if journal:
        journal.begin()  # also on hosts that do not share the folder
    done = _merged(from_all(journal.read() if journal else {}))
    todo = share_of([number for number in range(len(campaign.blocks)) if number not in done])
    began = time.monotonic() - max((block.seconds for block in done.values()), default=0.0)
    deadline = None if campaign.settings.max_seconds is None else began + campaign.settings.max_seconds
    before = sum(len(block.examples) for block in done.values())
    with tqdm(
        total=before + sum(len(campaign.blocks[number]) for number in todo),
        initial=before,
        desc=campaign.attack.name,
        unit="example",
        disable=None if progress and is_first() else True,  # None: on a terminal only
    ) as bar:
        blocks = (
            engine(campaign, todo, deadline, bar.update)
            if engine
            else run_blocks(campaign, todo, jobs, deadline, bar.update)
        )
        for number, examples in blocks:
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
    result = load_attack(folder)
    if result.fingerprint != campaign.fingerprint:
        raise RunError(
            f"{folder} holds the result of an attack with other settings, another model or other data: "
            "choose another folder, or delete this one."
        )
    return result


def _judged(result: AttackResult, campaign: Campaign, folder: Path | None) -> AttackResult:
    """A finished result, judged as this campaign asks for, which needs no new search."""
    summary = _summary(result.examples, campaign)
    if summary == result.summary:
        return result
    asked = {name: getattr(campaign.settings, name) for name in ("min_changeable", "meaning_filter")}
    result = result.model_copy(update={"summary": summary, **asked})
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


def _summary(examples: Sequence[AttackedExample], campaign: Campaign) -> AttackSummary:
    settings = campaign.settings
    return summarize(examples, len(campaign.texts) - len(examples), settings.min_changeable, settings.meaning_filter)


def _result(campaign: Campaign, done: Blocks, seconds: float) -> AttackResult:
    examples = sorted((each for block in done.values() for each in block.examples), key=lambda example: example.row)
    if not examples:
        raise RunError(f"no example was scored within max_seconds {campaign.settings.max_seconds}: allow more time.")
    lexicon = campaign.resources.lexicon
    return AttackResult(
        model=campaign.model.name_or_path or type(campaign.model).__name__,
        fingerprint=campaign.fingerprint,
        lexicon_name=None if lexicon is None else lexicon.known_as,
        test_file=campaign.test_file,
        label_names=list(campaign.label_names),
        forwards=forwards_of(campaign.model) * campaign.settings.draws,
        seconds=seconds,
        summary=_summary(examples, campaign),
        examples=examples,
        **dict(campaign.settings.only(AttackSettings)) | campaign.facts,
    )
