"""The commands as a person would type them, in a process of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from patience import wait_until
from tiny_text import save_tiny_checkpoint

Rosewood = Callable[..., str]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Texts whose label a model can learn: the good ones say so."""
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{i % 2}" for i in range(200)]
    file = tmp_path / "films.csv"
    file.write_text("\n".join(["text,label", *rows]) + "\n")
    return file


def training(films: Path, checkpoint: Path, output: Path, *more: object) -> tuple[object, ...]:
    data = ("--train-file", films, "--test-file", films, "--max-length", "16")
    return ("train", "--model", checkpoint, *data, "--output", output, *more)


def test_train_and_evaluate_leave_a_complete_run(
    rosewood: Rosewood, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    printed = rosewood(
        *training(films, checkpoint, run, "--recipe", "rose-ensemble", "--epochs", "2", "--batch-size", "16")
    )
    assert f"Next: rosewood evaluate {run}\n" in printed
    assert "(largest class: 50.0%)" in printed
    assert {path.name for path in run.iterdir()} == {
        *("model", "recipe.yaml", "task.yaml", "run.json", "metrics.json", "history.jsonl")
    }
    assert (run / "model" / "model.safetensors").exists()
    info = json.loads((run / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["recipe"] == "rose-ensemble"
    assert set(info["fingerprints"]) == {"train", "validation"}
    assert info["versions"]["torch"]
    assert info["peak_memory_bytes"] > 0
    steps = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    last = steps[-1]
    assert set(last["terms"]) == {"ce", "dropout_kl"}
    assert {"learning_rate", "grad_norm", "kept_share", "first_risk", "second_risk", "second_ratio"} <= set(last)
    assert len(last["first_risk"]) == 5

    printed = rosewood("evaluate", run)
    assert "Robustness on films" in printed
    evaluation = json.loads((run / "evaluation.json").read_text())
    kinds = ("typos", "keyboard", "case", "punctuation", "homoglyphs", "dropped_words")
    noises = [f"{kind} {strength}" for kind in kinds for strength in (0.1, 0.2, 0.4)]
    assert [each["name"] for each in evaluation["sets"]] == ["test", *noises]
    assert len(list(run.glob("predictions-task-*.parquet"))) == 1


def test_a_finished_run_is_never_overwritten_by_accident(
    rosewood: Rosewood, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    rosewood(*training(films, checkpoint, run, "--epochs", "0.1"))
    before = (run / "run.json").read_text()
    printed = rosewood(*training(films, checkpoint, run, "--epochs", "0.1"), code=1)
    assert "already holds a run (finished): choose another --output, or replace it with --overwrite" in printed
    assert (run / "run.json").read_text() == before
    assert "nothing to resume" in rosewood("train", "--output", run, "--resume", code=1)
    rosewood(*training(films, checkpoint, run, "--epochs", "0.1", "--overwrite"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    assert "is not a run of Rosewood" in rosewood(*training(films, checkpoint, other, "--overwrite"), code=1)
    assert (other / "thesis.tex").read_text() == "years of work"


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def test_ctrl_c_leaves_a_run_that_resumes_to_the_same_weights(
    rosewood: Rosewood, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    settings = ("--recipe", "rose-ensemble", "--epochs", "20", "--batch-size", "16", "--class-weights", "0=1,1=3")
    rosewood(*training(films, checkpoint, tmp_path / "whole", *settings))
    run = tmp_path / "stopped"
    program = [sys.executable, "-c", "from rosewood.cli import main; main()"]
    process = subprocess.Popen(
        [*program, *map(str, training(films, checkpoint, run, *settings))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    history = run / "history.jsonl"
    wait_until(lambda: (history.exists() and history.stat().st_size > 0) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == 130, printed
    assert f"rosewood train --output {run} --resume" in printed.replace("\n", " ").replace("  ", " ")
    info = json.loads((run / "run.json").read_text())
    assert (info["status"], info["class_weights"]) == ("interrupted", {"0": 1.0, "1": 3.0})
    assert "is not finished (interrupted)" in rosewood("evaluate", run, code=1)
    assert "leave out --epochs" in rosewood("train", "--output", run, "--resume", "--epochs", "3", code=1)

    rosewood("train", "--output", run, "--resume")
    assert weights(run) == weights(tmp_path / "whole")
    assert (run / "history.jsonl").read_text() == (tmp_path / "whole" / "history.jsonl").read_text()
    assert not (run / "checkpoints").exists()


def test_bad_settings_and_bad_data_are_refused_before_anything_is_written(
    rosewood: Rosewood, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert "did you mean rose-first" in rosewood(*training(films, checkpoint, run, "--recipe", "rose-frist"), code=1)
    printed = rosewood(
        *training(films, checkpoint, run, "--recipe", "rose-first", "--set", "selection.keep_quantile=7"), code=1
    )
    assert "selection.keep_quantile: input should be less than or equal to 1, got 7" in printed
    assert "PATH=VALUE" in rosewood(*training(films, checkpoint, run, "--set", "selection.keep_quantile"), code=1)
    assert "expected a column 'txt'; did you mean text?" in rosewood(
        *training(films, checkpoint, run, "--text-column", "txt"), code=1
    )
    assert "there is no run or checkpoint" in rosewood(*training(films, tmp_path / "nowhere", run), code=1)
    (tmp_path / "empty").mkdir()
    assert "cannot be loaded" in rosewood(*training(films, tmp_path / "empty", run), code=1)
    assert "optim=adafactor" in rosewood(
        *training(films, checkpoint, run, "--recipe", "rose-second", "--set", "training.optim=adafactor"), code=1
    )
    assert not run.exists()
    films.write_text("text,label\nfine,1\nalso fine,1\n")
    assert "'1'" in rosewood(*training(films, checkpoint, run), code=1)
    assert not run.exists()
    assert "both name the data" in rosewood("train", "--task", "reviews", "--train-file", films, code=1)
    assert "needs --train-file" in rosewood("train", "--eval-file", films, code=1)


def test_lists_and_help(rosewood: Rosewood) -> None:
    listed = rosewood("list", "recipes")
    assert all(name in listed for name in ("vanilla", "rose-first", "rose-second", "rose-ensemble"))
    assert listed.count("Jiang") == 7  # ROSE alone and with R-Drop, three times each, and SMART; not what no paper has
    assert "suites" in rosewood("list", "--help").split("Options")[0]
    assert "sst2" in rosewood("list", "tasks")
    assert "minilm" in rosewood("list", "models")
    assert "Examples" in rosewood("train", "--help")
    assert rosewood("--version").startswith("rosewood ")


def test_a_failed_overwrite_keeps_what_was_there(
    rosewood: Rosewood, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    rosewood(*training(films, checkpoint, run, "--epochs", "0.1"))
    kept = run / "checkpoints" / "checkpoint-1"
    kept.mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    rosewood(*training(films, tmp_path / "empty", run, "--overwrite"), code=1)
    assert kept.exists()
    assert (run / "model" / "model.safetensors").exists()


def test_settings_that_a_run_owns_are_refused(
    rosewood: Rosewood, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    printed = rosewood(*training(films, checkpoint, tmp_path / "run", "--set", "training.seed=7"), code=1)
    assert "training.seed (use --seed)" in printed


def test_without_a_test_file_the_validation_data_is_evaluated(
    rosewood: Rosewood, films: Path, checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ("train", "--model", checkpoint, "--train-file", films, "--output", run, "--epochs", "0.1")
    hint = f"Next: rosewood evaluate {run}\nThat measures on the validation data; --test-file FILE names "
    assert hint in rosewood(*words, "--max-length", "16")
    assert "validation" in rosewood("evaluate", run)
    assert "there is no run or checkpoint" in rosewood("evaluate", run, tmp_path / "none", code=1)
