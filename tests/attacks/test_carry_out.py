"""An attack gives the same file whoever runs it: one process or two, in one go or killed on the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import distributed
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from held_elsewhere import held_elsewhere
from rosewood import robust_accuracy
from rosewood.attacks.genetic import Genetic
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner import execute
from rosewood.attacks.runner.api import attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.report import load_attack
from rosewood.attacks.typos import Typos
from rosewood.errors import RunError
from rosewood.results import AttackResult, FinishedBlock
from rosewood.results.work_folder import HeldError, Journal
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES
from tiny_text import tiny_classifier, tiny_tokenizer
from two_processes import in_two_processes

Run = Callable[..., AttackResult]
GENETIC = Genetic(population=4, generations=2, min_log_ratio=None)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty examples are eight blocks."""
    monkeypatch.setattr(Attack, "examples_together", 4)
    monkeypatch.setattr(Genetic, "examples_together", 4)


@pytest.fixture
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that need not import everything again."""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(execute.multiprocessing, "get_context", lambda _: context)


def examples(folder: Path) -> bytes:
    return (folder / "examples.jsonl").read_bytes()


def lengths(texts: Sequence[str]) -> np.ndarray:
    """An encoder of sorts."""
    return np.array([[len(text), len(set(text)), 1.0] for text in texts])


def in_a_child(function: Callable[[], Any]) -> int:
    """How a process that does this, and nothing else, ends."""
    child = os.fork()
    if not child:
        try:
            function()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("method", [Pwws(), GENETIC, Typos()], ids=lambda method: method.name)
@pytest.mark.parametrize("half_a_line", [False, True], ids=["between blocks", "within a line"])
def test_an_attack_killed_again_and_again_gives_the_same_file(
    method: Attack,
    half_a_line: bool,
    model: BertForSequenceClassification,
    single: Dataset,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = run(model, single, method, folder=tmp_path / "whole", encoder=lengths)
    append = Journal.append
    written = 0

    def die_after_two(journal: Journal, block: FinishedBlock) -> None:
        nonlocal written
        written += 1
        if written <= 2:
            append(journal, block)
            return
        if half_a_line:
            with journal._path.open("ab") as file:
                file.write(block.model_dump_json().encode()[:100])
        os.kill(os.getpid(), signal.SIGKILL)

    folder = tmp_path / "killed"
    for kills in (1, 2, 3):
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "append", die_after_two)
            ended = in_a_child(lambda: run(model, single, method, folder=folder, encoder=lengths))
        assert ended == -signal.SIGKILL
        lines = [line for file in folder.glob("journal-*") for line in file.read_text().split("\n")[:-1]]
        assert len(lines) == 2 * kills
    assert not (folder / "attack.json").exists()
    resumed = run(model, single, method, folder=folder, encoder=lengths)
    assert examples(folder) == examples(tmp_path / "whole")
    assert resumed.summary == whole.summary and resumed.examples == whole.examples
    assert {path.name for path in folder.iterdir()} == {"attack.json", "examples.jsonl"}
    assert load_attack(folder) == resumed


def test_only_what_is_missing_is_run(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append

    def stop_at_the_third(journal: Journal, block: FinishedBlock) -> None:
        append(journal, block)
        if len(journal.read()) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            run(model, single, Pwws(), folder=tmp_path)
    queries: list[int] = []
    model.register_forward_pre_hook(lambda _, __, batch: queries.append(len(batch["input_ids"])), with_kwargs=True)
    before = sum(
        example["queries"]
        for line in (tmp_path / "journal-0-0.jsonl").read_text().splitlines()
        for example in json.loads(line)["examples"]
    )
    result = run(model, single, Pwws(), folder=tmp_path)
    assert before > 0 and sum(queries) == sum(example.queries for example in result.examples) - before
    queries.clear()
    assert run(model, single, Pwws(), folder=tmp_path) == result  # read, not run
    assert not queries


def test_another_attack_is_refused_in_the_same_folder(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    run(model, single, Typos(), folder=tmp_path)
    (tmp_path / "attack.json").rename(tmp_path / "kept.json")
    block = FinishedBlock(fingerprint="other", number=0, seconds=1.0, examples=[])
    Journal(tmp_path, "other").append(block)
    with pytest.raises(RunError, match="holds an attack with other settings, another model or other data"):
        run(model, single, Typos(), folder=tmp_path)
    (tmp_path / "journal-0-0.jsonl").unlink()
    (tmp_path / "kept.json").rename(tmp_path / "attack.json")
    others: list[tuple[Any, Dataset, Attack, dict[str, Any]]] = [
        (model, single, Typos(tries=3), {}),
        (model, single.select(range(20)), Typos(), {}),
        (model, single, Typos(), {"seed": 1}),
        (model, single, Typos(), {"max_queries": 5}),
        (model, single, Typos(), {"max_seconds": 5.0}),
        (model, single, Typos(), {"encoder": lengths}),
        (model, single, Pwws(), {}),
    ]
    for other, data, method, settings in others:
        with pytest.raises(RunError, match="holds the result of an attack with other settings"):
            run(other, data, method, folder=tmp_path, **settings)
    torch.nn.init.zeros_(model.classifier.weight)
    with pytest.raises(RunError, match="another model"):
        run(model, single, Typos(), folder=tmp_path)


def test_a_damaged_journal_is_named(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "journal-0-0.jsonl").write_text("{}\n")
    with pytest.raises(
        RunError, match=r"journal-0-0\.jsonl is damaged: delete it, and its examples are attacked again"
    ):
        run(model, single, Typos(), folder=tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*/file/here: Not a directory"):
        run(model, single, Typos(), folder=tmp_path / "file" / "here")


def test_a_folder_that_another_process_attacks_in_is_refused_before_any_work(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    expected = run(model, single, Typos(), folder=tmp_path / "free")
    with held_elsewhere(tmp_path / "folder") as number:
        running = model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
        with pytest.raises(HeldError, match=f"process {number} on "):
            run(model, single, Typos(), folder=tmp_path / "folder")
        running.remove()
    assert run(model, single, Typos(), folder=tmp_path / "folder").examples == expected.examples
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {"attack.json", "examples.jsonl"}


def test_time_spent_before_a_crash_counts(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Journal.append

    def much_later(journal: Journal, block: FinishedBlock) -> None:
        append(journal, block.model_copy(update={"seconds": 1e6}))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", much_later)
        with pytest.raises(KeyboardInterrupt):
            run(model, single, Typos(), folder=tmp_path, max_seconds=1e6)
    summary = run(model, single, Typos(), folder=tmp_path, max_seconds=1e6).summary
    assert (summary.examples, summary.left_out) == (4, 26)


@pytest.mark.usefixtures("forking")
@pytest.mark.parametrize("method", [Pwws(), GENETIC], ids=lambda method: method.name)
def test_two_jobs_give_the_same_file(
    method: Attack, model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    run(model, single, method, folder=tmp_path / "one", encoder=lengths)
    run(model, single, method, folder=tmp_path / "two", encoder=lengths, jobs=2)
    assert examples(tmp_path / "one") == examples(tmp_path / "two")
    assert not list((tmp_path / "two").glob("journal-*"))


@pytest.mark.slow
def test_two_spawned_jobs_give_the_same_file(
    model: BertForSequenceClassification, single: Dataset, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    lexicon = Lexicon.of(ENTRIES)
    for jobs in (1, 2):
        folder = tmp_path / str(jobs)
        attack(model, tokenizer, single, Pwws(), lexicon=lexicon, folder=folder, jobs=jobs, progress=False)
    assert examples(tmp_path / "1") == examples(tmp_path / "2")


@pytest.mark.usefixtures("forking")
def test_what_goes_wrong_in_a_job_is_said(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"a process of the attack ended with exit code 7\. Finished work is kept"):
        run(model, single, Pwws(), folder=tmp_path, jobs=2, encoder=lambda_free(os._exit, 7))
    with pytest.raises(RunError, match=r"exit code -9 \(out of memory\?\)"):
        run(model, single, Pwws(), folder=tmp_path, jobs=2, encoder=lambda_free(os.kill, 0, signal.SIGKILL))
    torch.nn.init.constant_(model.classifier.weight, torch.nan)
    with pytest.raises(RunError, match="the model gives scores that are not finite numbers"):
        run(model, single, Pwws(), jobs=2)
    with pytest.raises(RunError, match=r"cannot be sent to other processes: .*lambda.*\. Define .* or take jobs=1"):
        run(model, single, Pwws(), jobs=2, encoder=lambda texts: lengths(texts))
    with pytest.raises(RunError, match="jobs must be at least 1, got 0"):
        run(model, single, Pwws(), jobs=0)
    with pytest.raises(RunError, match=r"the model is on meta: for several devices start one process for each"):
        attack(tiny_classifier().to("meta"), tiny_tokenizer(), single, Typos(), jobs=2)


class lambda_free:  # noqa: N801  a function that can be sent to another process
    """Ends the process in which somebody compares texts."""

    fingerprint = "fatal"

    def __init__(self, deed: Callable[..., Any], *args: int) -> None:
        self.deed, self.args = deed, args

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.deed(*(each or os.getpid() for each in self.args))
        raise AssertionError


def shared(rank: int, folder: Path) -> list[str]:
    distributed.init_process_group("gloo")
    Attack.examples_together = 4  # type: ignore[misc]  # in this process too: a batch decides the last digits
    model, tokenizer = tiny_classifier(), tiny_tokenizer()
    data = Dataset.from_json(str(folder / "data.jsonl"))
    made = [
        attack(model, tokenizer, data, Pwws(), lexicon=Lexicon.of(ENTRIES), folder=folder / "two", progress=False)
        for _ in range(2)  # the second time from the folder
    ]
    assert made[0] == made[1] or made[0].examples == made[1].examples
    return [example.model_dump_json() for example in made[1].examples]


def test_two_processes_of_one_program_give_the_same_file(
    model: BertForSequenceClassification, single: Dataset, run: Run, tmp_path: Path
) -> None:
    run(model, single, Pwws(), folder=tmp_path / "one")
    single.to_json(tmp_path / "data.jsonl")
    first, second = in_two_processes(shared, tmp_path, tmp_path)
    assert first == second == examples(tmp_path / "one").decode().splitlines()
    assert examples(tmp_path / "two") == examples(tmp_path / "one")
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"attack.json", "examples.jsonl"}


def test_records_are_aligned_and_compared(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    result = run(model, single, Pwws(), encoder=lengths)
    broken = [example for example in result.examples if example.status == "broken"]
    for example in result.examples:
        if example not in broken:
            assert example.aligned == [] and example.similarity is None
            continue
        assert "".join(before for before, _ in example.aligned) == example.texts["text"]
        assert "".join(after for _, after in example.aligned) == example.adversarial
        changed = [(before, after) for before, after in example.aligned if before != after]
        assert changed == [(change.before, change.after) for change in example.changes]
        one, two = lengths([example.texts["text"], example.adversarial or ""])
        assert example.similarity == pytest.approx(one @ two / np.linalg.norm(one) / np.linalg.norm(two))
    assert result.summary.similarity == pytest.approx(np.mean([example.similarity for example in broken]))
    assert run(model, single, Pwws()).summary.similarity is None


def test_a_quick_estimate(model: BertForSequenceClassification, tokenizer: Any, single: Dataset) -> None:
    few = robust_accuracy(model, tokenizer, single, examples=10, progress=False)
    assert few.examples == 10 and few.robust_interval[0] <= few.robust_accuracy <= few.robust_interval[1]
    same = [few, robust_accuracy(model, tokenizer, single, examples=10, seed=0, seconds=1000, progress=False)]
    assert same[0] == same[1]
    everything = robust_accuracy(model, tokenizer, single, examples=1000, progress=False)
    assert everything == attack(model, tokenizer, single, "typos", progress=False).summary
    with pytest.raises(RunError, match="examples must be at least 1, got 0"):
        robust_accuracy(model, tokenizer, single, examples=0)
