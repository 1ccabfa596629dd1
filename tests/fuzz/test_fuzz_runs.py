"""Run directories whose files are damaged or made up: refused in our words, or usable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from junk import mutated, only_our_errors, scarred
from rosewood.cli.evaluate import evaluate_one
from rosewood.comparison.table import render
from rosewood.models.averaging import average
from rosewood.results import Average, AveragedRun, Evaluation, Metrics, MissingSet, RunInfo, SetResult
from rosewood.training.run import resume_run
from tiny_text import save_tiny_checkpoint

RUN = RunInfo(
    recipe="vanilla",
    task="own",
    model="nowhere",
    seed=0,
    data_dir=None,
    fingerprints={"train": "0" * 16},
    train_size=None,
    validation_size=10,
    max_length=16,
    training_arguments={"learning_rate": 1e-4, "num_train_epochs": 1.0},
    command="rosewood train",
    status="interrupted",
)
EVALUATION = Evaluation(
    model="m",
    task="own",
    size=None,
    seed=0,
    max_length=16,
    typo_rate=0.3,
    sets=[
        SetResult(name="test", role="clean", examples=5, accuracy=0.8, interval=(0.4, 1.0), ece=0.1, brier=0.1, nll=1)
    ],
    missing=[MissingSet(name="x", role="shift", reason="gone")],
)
METRICS = Metrics(steps=1, epochs=1.0, train_loss=0.5, validation_accuracy=0.5, validation_loss=0.7)
AVERAGE = Average(
    runs=[AveragedRun(run="a", recipe="vanilla", seed=0, weight=1.0)], pretrained=None, pretrained_share=0.0
)
RESULTS = [RUN, EVALUATION, METRICS, AVERAGE]
TASK = """
name: own
title: Own
text: [text]
labels: ["0", "1"]
splits:
  train: {folder: {file: films.csv}}
  test: {folder: {file: films.csv}}
"""


def plain(result: Any) -> dict[str, Any]:
    return json.loads(result.model_dump_json())


def test_results(profile: settings, tmp_path: Path) -> None:
    file = tmp_path / "result.json"

    def documents(result: Any) -> st.SearchStrategy[tuple[Any, bytes]]:
        good = plain(result)
        damaged = scarred(json.dumps(good).encode())
        return st.tuples(st.just(type(result)), st.one_of(mutated(good).map(lambda d: json.dumps(d).encode()), damaged))

    @profile
    @given(st.sampled_from(RESULTS).flatmap(documents))
    def check(document: tuple[Any, bytes]) -> None:
        kind, data = document
        file.write_bytes(data)
        with only_our_errors():
            loaded = kind.load(file)
            loaded.save(file)
            assert kind.load(file).model_dump_json() == loaded.model_dump_json()
            if kind is Evaluation:
                render({"a": loaded})

    check()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "films.csv").write_text("text,label\n" + "".join(f"film {i},{i % 2}\n" for i in range(8)))
    (tmp_path / "run" / "task.yaml").write_text(TASK.replace("films.csv", str(tmp_path / "films.csv")))
    (tmp_path / "run" / "recipe.yaml").write_text("objective: cross_entropy\n")
    return tmp_path / "run"


def test_runs_to_resume_or_evaluate(profile: settings, run: Path) -> None:
    """No model is ever found under these names, so that nothing is trained or evaluated."""

    @profile
    @given(mutated(plain(RUN)), st.sampled_from(["interrupted", "finished"]))
    def check(info: Any, status: str) -> None:
        if isinstance(info.get("status"), str):
            info["status"] = status
        (run / "run.json").write_text(json.dumps(info))
        with only_our_errors():
            resume_run(run)
        with only_our_errors():
            evaluate_one(str(run), None, None, None, 8, 0.3, 0)

    check()


def test_runs_to_average(profile: settings, run: Path) -> None:
    save_tiny_checkpoint(run / "model")
    good = {name: (run / "model" / name).read_bytes() for name in ("config.json", "model.safetensors")}
    finished = json.dumps(plain(RUN) | {"status": "finished"}).encode()
    (run / "run.json").write_bytes(finished)

    @profile
    @given(st.sampled_from(list(good)), st.data())
    def check(name: str, data: st.DataObject) -> None:
        config = mutated(json.loads(good["config.json"])).map(lambda document: json.dumps(document).encode())
        draw = config if name == "config.json" and data.draw(st.booleans()) else scarred(good[name][:4000])
        (run / "model" / name).write_bytes(data.draw(draw))
        with only_our_errors():
            average([run, run], run.parent / "average")
        (run / "model" / name).write_bytes(good[name])
        if (run.parent / "average").exists():
            (run.parent / "average").rename(run.parent / f"average-{len(list(run.parent.iterdir()))}")

    check()
