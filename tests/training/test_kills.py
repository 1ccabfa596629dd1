"""A run that is killed, again and again, ends with the weights of one that was left alone, bit for bit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kills import Moment, Training, kill_again_and_again
from launcher import child
from rosewood.data.loading import task_from_files
from rosewood.errors import RunError
from rosewood.recipe import Recipe, load_recipe, recipe_names
from rosewood.results import RunInfo
from rosewood.training import run
from rosewood.training.checkpoint import checkpoints
from rosewood.training.run import Plan, finish_run, resume_run, start_run
from tiny_text import save_tiny_checkpoint


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{i % 2}" for i in range(60)]
    file = tmp_path_factory.mktemp("data") / "films.csv"
    file.write_text("\n".join(["text,label", *rows]) + "\n")
    return file


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def plan(recipe: str, films: Path, checkpoint: Path, max_steps: int = 40) -> Plan:
    settings = {
        "max_steps": max_steps,
        "save_strategy": "steps",
        "save_steps": 2,
        "per_device_train_batch_size": 4,
        "logging_steps": 5,
        "eval_strategy": "no",
    }
    return Plan(
        recipe=load_recipe(recipe, {"training": settings}),
        task=task_from_files(films, None, text_columns=["text"], label_column="label"),
        model=str(checkpoint),
        max_length=16,
    )


def same_run(first: Path, second: Path) -> None:
    watched = [f"dynamics/{path.name}" for path in (first / "dynamics").glob("*")]
    for file in ("model/model.safetensors", "history.jsonl", "metrics.json", *watched):
        assert (first / file).read_bytes() == (second / file).read_bytes(), f"{file} differs"
    assert json.loads((second / "run.json").read_text())["status"] == "finished"
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}


def start_or_resume(plan: Plan, output: Path) -> None:
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
        if (output / "run.json").exists():
            resume_run(output)
        else:
            start_run(plan, output)


@pytest.mark.parametrize(("owner", "writer"), [(RunInfo, "save"), (Recipe, "save"), (run, "write_whole")])
def test_killed_before_the_first_step(
    owner: Any, writer: str, films: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its first files is missing: the run starts again, nobody has to clean up."""
    settings, output = plan("vanilla", films, checkpoint, max_steps=2), tmp_path / "run"
    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(owner, writer, lambda *_: sys.exit("killed"))
        start_run(settings, output)
    output.mkdir(exist_ok=True)  # which stays empty, and goes, when it is not a real kill
    (output / ".task.yaml.123.tmp").write_text("half a fi")
    assert not (output / "task.yaml").exists()
    stranger = shutil.copytree(output, tmp_path / "stranger")
    (stranger / ".thesis.tmp").write_text("years of work")
    with pytest.raises(RunError, match=r"not a run of Rosewood|already holds a run"):
        start_run(settings, stranger)
    assert (stranger / ".thesis.tmp").exists()
    if (output / "run.json").exists():
        with pytest.raises(RunError, match="start it again without --resume"):
            resume_run(output)
    copy = shutil.copytree(output, tmp_path / "copy")
    assert start_run(settings, output).status == finish_run(settings, copy).status == "finished"
    assert not list(output.glob(".*"))
    for lost in ("task.yaml", "history.jsonl"):  # a run that has lost a file is no run that has not begun
        (output / lost).unlink()
        with pytest.raises(RunError, match="already holds a run"):
            start_run(settings, output)


def test_three_kills(films: Path, checkpoint: Path, tmp_path: Path) -> None:
    """In a fork of a process that has imported everything: a new one takes seconds to start."""
    settings = plan("smart", films, checkpoint).model_copy(
        update={"watch": ["drift", "inconsistency"], "watch_every": 3}
    )
    start_or_resume(settings, tmp_path / "whole")
    killed = tmp_path / "killed"

    def start() -> Training:
        process = child(start_or_resume, settings, killed)
        process.start()
        return Training(process.pid or 0, process.is_alive, lambda: process.join() or process.exitcode)

    kill_again_and_again(start, killed, ["training", "writing", "writing"])
    assert json.loads((killed / "run.json").read_text())["status"] == "running"
    start_or_resume(settings, killed)
    same_run(tmp_path / "whole", killed)
    assert len((killed / "dynamics" / "drift.jsonl").read_text().splitlines()) == 14  # 3, 6, ..., 39 and the last


def keeps_state(name: str) -> bool:
    """Whether a recipe has anything to lose beside weights and optimiser."""
    stages = load_recipe(name).all_stages()
    return len(stages) > 1 or any(stage.selection.name != "everything" or stage.anchors for stage in stages)


STATEFUL = [name for name in recipe_names() if keeps_state(name)]
MOMENTS: list[Moment] = ["training", "writing"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", STATEFUL)
def test_every_recipe_with_state_survives_being_killed_as_a_command(
    recipe: str, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    assert len(STATEFUL) * len(MOMENTS) >= 20
    settings = plan(recipe, films, checkpoint, max_steps=80)
    start_or_resume(settings, tmp_path / "whole")
    killed = tmp_path / "killed"
    settings.recipe.save(tmp_path / "recipe.yaml")
    begin = ["--recipe", tmp_path / "recipe.yaml", "--train-file", films, "--model", checkpoint, "--max-length", "16"]

    def start() -> Training:
        words = ["--resume"] if (killed / "run.json").exists() else begin
        process = subprocess.Popen(
            [sys.executable, "-c", "from rosewood.cli import main; main()", "train", "--output", killed, *words],
            stdout=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
        return Training(process.pid, lambda: process.poll() is None, process.wait)

    kill_again_and_again(start, killed, MOMENTS)
    start_or_resume(settings, killed)
    same_run(tmp_path / "whole", killed)


@pytest.mark.parametrize("problem", ["damaged", "none"])
def test_without_a_good_checkpoint_a_run_starts_again(
    problem: str, films: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = plan("roast", films, checkpoint, max_steps=6)
    start_or_resume(settings, tmp_path / "whole")
    broken = tmp_path / "broken"

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(run, "save_outcome", interrupt)
        start_or_resume(settings, broken)
    for folder in checkpoints(broken / "checkpoints"):
        (folder / "optimizer.pt").write_bytes(b"") if problem == "damaged" else shutil.rmtree(folder)
    reason = r"optimizer\.pt does not have the checksum" if problem == "damaged" else "there is no checkpoint in"
    with pytest.warns(UserWarning, match=f"{reason} .*; starting again from the beginning"):
        start_or_resume(settings, broken)
    same_run(tmp_path / "whole", broken)
