"""Two processes on one run: one has it, the other says so and leaves everything as it is."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from held_elsewhere import held_elsewhere
from launcher import child
from rosewood.data.loading import task_from_files
from rosewood.errors import RunError
from rosewood.recipe import load_recipe
from rosewood.results.work_folder import HeldError
from rosewood.training import run
from rosewood.training.run import Plan, resume_run, start_run
from tiny_text import save_tiny_checkpoint


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("plan")
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{i % 2}" for i in range(40)]
    (folder / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    settings = {"max_steps": 8, "save_strategy": "steps", "save_steps": 2, "logging_steps": 3, "eval_strategy": "no"}
    return Plan(
        recipe=load_recipe("vanilla", {"training": settings | {"per_device_train_batch_size": 4}}),
        task=task_from_files(folder / "films.csv", None, text_columns=["text"], label_column="label"),
        model=str(save_tiny_checkpoint(folder / "tiny")),
        max_length=16,
    )


@pytest.fixture(scope="module")
def whole(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    start_run(plan, folder)
    return folder


@pytest.fixture(scope="module")
def unfinished(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped when it had trained and not yet said so."""
    folder = tmp_path_factory.mktemp("unfinished") / "run"

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(run, "save_outcome", interrupt)
        start_run(plan, folder)
    shutil.rmtree(folder / "checkpoints" / "checkpoint-8")
    return folder


def train_at(go: Path, plan: Plan, output: Path, resume: bool, report: Path) -> None:
    """Begin as soon as there is a file, and write down how it ended."""
    report.with_suffix(".ready").touch()
    while not go.exists():
        time.sleep(0.0005)
    try:
        resume_run(output) if resume else start_run(plan, output)
        report.write_text("finished")
    except BaseException as error:
        report.write_text(f"{type(error).__name__}: {error}")


def same(first: Path, second: Path) -> None:
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}
    for file in ("model/model.safetensors", "history.jsonl", "metrics.json"):
        assert (first / file).read_bytes() == (second / file).read_bytes(), f"{file} differs"


@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("resume", [False, True], ids=["fresh", "resumed"])
def test_two_at_the_same_moment(
    resume: bool, rounds: int, plan: Plan, whole: Path, unfinished: Path, tmp_path: Path
) -> None:
    for number in range(rounds):
        place = tmp_path / str(number)
        output = shutil.copytree(unfinished, place / "run") if resume else place / "run"
        place.mkdir(exist_ok=True)
        reports = [place / "0.txt", place / "1.txt"]
        workers = [child(train_at, place / "go", plan, output, resume, report) for report in reports]
        for worker in workers:
            worker.start()
        while not all(report.with_suffix(".ready").exists() for report in reports):
            time.sleep(0.001)
        (place / "go").touch()
        for worker in workers:
            worker.join(300)
        found = sorted(report.read_text() for report in reports)
        # Whoever is so late that the other has ended is refused as ever.
        late = "RunError: .* there is nothing to resume" if resume else "RunError: .* already holds a run"
        assert found[1] == "finished"
        assert re.match(f"HeldError: {output} is in use: process |{late}", found[0]), found[0]
        same(whole, output)
        shutil.rmtree(place)


@pytest.mark.parametrize("command", ["first", "start", "overwrite", "resume"])
def test_a_run_that_somebody_works_on_is_left_alone(command: str, plan: Plan, unfinished: Path, tmp_path: Path) -> None:
    output = tmp_path / "run" if command == "first" else shutil.copytree(unfinished, tmp_path / "run")
    with held_elsewhere(output) as number:
        before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
        with pytest.raises(HeldError, match=f"process {number} on "):
            resume_run(output) if command == "resume" else start_run(plan, output, overwrite=command == "overwrite")
        assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


def test_a_run_that_cannot_start_leaves_nothing_and_a_stranger_is_not_touched(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        resume_run(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    with pytest.raises(RunError, match="not a run of Rosewood"):
        start_run(plan, tmp_path / "thesis")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter"]


def test_a_lock_that_a_killed_process_has_left_is_nothing_of_a_run(plan: Plan, whole: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with held_elsewhere(output):
        pass
    assert [path.name for path in output.iterdir()] == [".lock"]
    start_run(plan, output)
    same(whole, output)
