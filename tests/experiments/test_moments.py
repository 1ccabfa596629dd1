"""Runs measured as they train: nothing changes for them, and nothing depends on when they were stopped."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import load_file

from launcher import child
from rosewood.errors import ExperimentError
from rosewood.experiments.compare import compare
from rosewood.experiments.engines.local import LocalEngine
from rosewood.experiments.grid import cells_of
from rosewood.experiments.run_cell import load_moments
from rosewood.results import CellResult, Comparison
from tiny_experiment import InThisProcess, tiny_experiment, write_data

QUIET = Console(quiet=True)
MOMENTS = {"sets": ["test"], "at_steps": [3, 6]}
FILES = ("results.json", "table.md", "table.tex", "table.csv", "moments.csv")


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.whole = folder, write_data(folder / "data"), folder / "whole"

    def compare(self, output: Path, engine: Any = None, **changes: Any) -> Comparison:
        settings: dict[str, Any] = {"evaluation": MOMENTS, "attacks": [], "recipes": ["vanilla", "rose-second"]}
        experiment = tiny_experiment(self.folder, **settings | changes)
        return compare(experiment, output, self.data, engine or InThisProcess(), QUIET)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("moments"))
    place.compare(place.whole)
    return place


def tables(output: Path) -> list[bytes]:
    return [(output / name).read_bytes() for name in FILES]


def test_every_cell_has_its_moments_and_the_end(place: Place) -> None:
    for path in place.whole.glob("*/result.json"):
        result = CellResult.load(path)
        assert [moment.step for moment in result.moments] == [3, 6, 10]
        distances = [moment.distance for moment in result.moments]
        assert all(distance is not None and distance > 0 for distance in distances)
        assert result.moments[-1].evaluation.sets == result.evaluation.sets
        assert result.moments[-1].validation_accuracy == result.validation_accuracy
        assert [moment.step_seconds is not None for moment in result.moments] == [True, True, False]


def test_the_report_has_the_tables_at_matched_accuracy(place: Place) -> None:
    page = (place.whole / "report.html").read_text()
    after = page.partition("<bdi>At matched clean accuracy</bdi></h2>")[2].partition("</section>")[0]
    assert '<p class="lead">All of the above, the verdict included, is of the ends of training' in after
    assert '<p class="over"><bdi>Robustness on tiny at matched clean accuracy</bdi></p>' in after
    assert '<p class="over"><bdi>Moments of matched clean accuracy</bdi></p>' in after


def test_training_is_the_same_with_and_without_moments(place: Place, tmp_path: Path) -> None:
    place.compare(tmp_path / "plain", seeds=[0], recipes=["vanilla"], evaluation={"sets": ["test"]})
    (plain,) = (tmp_path / "plain").glob("*/run/model/model.safetensors")
    (watched,) = place.whole.glob("vanilla-*-seed0-*/run/model/model.safetensors")
    one, other = load_file(plain), load_file(watched)
    assert all(one[name].equal(other[name]) for name in one | other)


def test_a_moment_is_what_a_run_stopped_there_would_be(place: Place, tmp_path: Path) -> None:
    """Under a constant learning rate, a run of fewer steps is the beginning of a longer one."""
    common = {"seeds": [0], "recipes": ["vanilla"]}
    training = {"per_device_train_batch_size": 4, "lr_scheduler_type": "constant", "eval_strategy": "no"}
    place.compare(tmp_path / "long", **common, training=training | {"max_steps": 10})
    place.compare(tmp_path / "short", **common, training=training | {"max_steps": 6}, evaluation={"sets": ["test"]})
    (long,) = map(CellResult.load, (tmp_path / "long").glob("*/result.json"))
    (short,) = map(CellResult.load, (tmp_path / "short").glob("*/result.json"))
    assert long.moments[1].evaluation.sets == short.evaluation.sets
    assert long.moments[1].evaluation.checkpoint == short.evaluation.checkpoint
    assert long.moments[1].validation_accuracy == short.validation_accuracy


def test_moments_csv_has_every_figure_of_every_moment(place: Place) -> None:
    rows = list(csv.DictReader((place.whole / "moments.csv").open()))
    assert len({(row["label"], row["seed"], row["step"]) for row in rows}) == 2 * 2 * 3
    assert {"validation", "distance", "test", "typos", "worst group test"} <= {row["figure"] for row in rows}


def run_experiment(place: Place, output: Path) -> None:
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        place.compare(output)


@pytest.mark.slow
def test_killed_after_a_moment_it_ends_with_the_same_tables(place: Place, tmp_path: Path) -> None:
    """The moment is between two checkpoints, so that the run passes it a second time."""
    output, moment = tmp_path / "killed", "step-000003.json"
    process = child(run_experiment, place, output)
    process.start()
    while process.is_alive() and not list(output.glob(f"rose-second-*/run/moments/{moment}")):
        time.sleep(0.001)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    (run, *_) = [path.parents[1] for path in output.glob(f"rose-second-*/run/moments/{moment}")]
    before = load_moments(run)
    place.compare(output)
    assert load_moments(run)[: len(before)] == before, "what was measured is not measured again"
    assert tables(output) == tables(place.whole)


def test_a_moment_that_was_lost_is_measured_again_and_is_the_same(place: Place, tmp_path: Path) -> None:
    (whole,) = place.whole.glob("rose-second-*-seed0-*")
    place.compare(tmp_path / "again", seeds=[0], recipes=["rose-second"], baseline=None)
    (again,) = (tmp_path / "again").glob("rose-second-*-seed0-*")
    same = {"evaluation": {"created"}, "step_seconds": True}
    assert [each.model_dump(exclude=same) for each in load_moments(again / "run")] == [  # type: ignore[arg-type]
        each.model_dump(exclude=same)
        for each in load_moments(whole / "run")  # type: ignore[arg-type]
    ]


@pytest.mark.slow
def test_figures_do_not_depend_on_jobs(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for jobs in (1, 2):
        place.compare(tmp_path / str(jobs), LocalEngine(jobs), seeds=[0])
    assert tables(tmp_path / "1") == tables(tmp_path / "2")


def test_an_adapter_has_moments_too(place: Place, tmp_path: Path) -> None:
    place.compare(tmp_path / "lora", seeds=[0], recipes=["vanilla"], lora={"rank": 2, "alpha": 4})
    (result,) = map(CellResult.load, (tmp_path / "lora").glob("*/result.json"))
    assert [(moment.step, moment.distance) for moment in result.moments] == [(3, None), (6, None), (10, None)]


def test_what_cannot_be_measured_is_refused_at_once(place: Place, tmp_path: Path) -> None:
    experiment = tiny_experiment(place.folder, evaluation={"at_steps": [3, 10]}, early_stopping=1)
    with pytest.raises(ExperimentError) as caught:
        cells_of(experiment, place.data)
    assert "early_stopping and select_by keep the weights of some epoch" in str(caught.value)
    assert (
        "evaluation.at_steps: vanilla on tiny trains for 10 steps and is measured at its end anyway; expected smaller "
        "numbers, got 10"
    ) in str(caught.value)
    task = (place.folder / "task.yaml").read_text()
    shutil.copytree(place.folder / "checkpoint", tmp_path / "checkpoint")
    bare = tiny_experiment(tmp_path, evaluation={"at_steps": [3]})
    (tmp_path / "task.yaml").write_text(task.replace("  validation:\n    folder:\n      file: validation.jsonl\n", ""))
    with pytest.raises(ExperimentError, match="task tiny has no validation split"):
        cells_of(bare, place.data)


def test_without_moments_a_fingerprint_is_what_it_was(tmp_path: Path) -> None:
    """Cells of experiments that know nothing of moments stay finished."""
    cell = cells_of(tiny_experiment(tmp_path))[0]
    assert "at_steps" not in cell.model_dump_json() and "inconsistent_until" not in cell.model_dump_json()
