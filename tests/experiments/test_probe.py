"""A probe from its recipes to its scores: skipped, interrupted, refused, and always the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from sklearn.metrics import matthews_corrcoef

from rosewood.data.control_raising import sentences
from rosewood.data.loading import load_split
from rosewood.data.tasks import build_task, load_task
from rosewood.errors import DataError, ExperimentError, RosewoodError
from rosewood.evaluation.files import predictions_path
from rosewood.experiments.compare import check_features, experiment_of, probe
from rosewood.experiments.engines.local import Event
from rosewood.experiments.grid import cells_of
from rosewood.lab.probing import Probing
from tiny_experiment import InThisProcess
from tiny_probe import FOLDER, TRAINING, write_msgs, write_rows
from tiny_text import save_tiny_encoder

FILES = ("probing.json", "probing.md", "probing.html", "results.json", "table.md")
RECIPES = ("vanilla", "rose-second")


class Place:
    """A model, data, and a finished probe."""

    def __init__(self, folder: Path) -> None:
        self.model, self.data = str(save_tiny_encoder(folder / "model")), write_msgs(folder / "msgs")
        self.whole = folder / "whole"

    def probe(self, output: Path, engine: Any = None, **changes: Any) -> Probing:
        settings: dict[str, Any] = {
            "recipes": RECIPES, "tasks": ["msgs-the"], "seeds": [0, 1], "model": self.model, "data_dir": self.data,
        }  # fmt: skip
        engine = engine or InThisProcess()
        return probe(output=output, training=TRAINING, engine=engine, console=Console(quiet=True), **settings | changes)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("probe"))
    place.probe(place.whole)
    return place


def test_scores_are_those_of_the_predictions(place: Place) -> None:
    probing = Probing.load(place.whole / "probing.json")
    assert [(run.label, run.seed) for run in probing.runs] == [(label, seed) for label in RECIPES for seed in (0, 1)]
    for run in probing.runs:
        (cell,) = place.whole.glob(f"{run.label}-msgs-the-model-seed{run.seed}-*")
        rows = pq.read_table(predictions_path(cell / "run", None, "msgs-the")).to_pylist()
        for name, score in (("disambiguating", run.matthews), ("disambiguating-in-domain", run.matthews_in_domain)):
            told = [(row["label"], row["prediction"]) for row in rows if row["set"] == name]
            assert len(told) == (24 if name == "disambiguating" else 16)
            assert score == pytest.approx(matthews_corrcoef(*zip(*told, strict=True)))
        assert run.ambiguous_accuracy is None
    assert any(run.matthews for run in probing.runs), "answers that are all alike would prove nothing"
    assert "| msgs-the | rose-second | 2 |" in (place.whole / "probing.md").read_text()
    assert (place.whole / "probing.html").stat().st_size > 1_000_000, "it needs no network"


def test_finished_runs_are_skipped(place: Place) -> None:
    engine = InThisProcess()
    before = [(place.whole / name).read_bytes() for name in FILES]
    place.probe(place.whole, engine)
    assert engine.worked_on == [] and [(place.whole / name).read_bytes() for name in FILES] == before


class Stopped(InThisProcess):
    """Ctrl-C in the second cell, after the first has ended."""

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        yield from super().run(folders[:1])
        raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_probe_ends_with_the_same_files(place: Place, tmp_path: Path) -> None:
    output, engine = tmp_path / "interrupted", InThisProcess()
    with pytest.raises(KeyboardInterrupt):
        place.probe(output, Stopped())
    assert not (output / "probing.json").exists()
    place.probe(output, engine)
    assert len(engine.worked_on) == 3
    assert [(output / name).read_bytes() for name in FILES] == [(place.whole / name).read_bytes() for name in FILES]


def test_a_run_that_fails_is_missing_and_the_others_count(place: Place, tmp_path: Path) -> None:
    class BreakingRose(InThisProcess):
        def run(self, folders: Sequence[Path]) -> Iterator[Event]:
            for folder in folders:
                if folder.name.startswith("rose"):
                    yield Event(folder, "started")
                    yield Event(folder, "ended", "its process was ended by SIGKILL")
                else:
                    yield from super().run([folder])

    probing = place.probe(tmp_path / "out", BreakingRose(), seeds=[0])
    assert [run.label for run in probing.runs] == ["vanilla"]
    assert "ended by SIGKILL" in (tmp_path / "out" / "table.md").read_text()


def test_batches_do_not_follow_the_length_that_goes_with_the_label() -> None:
    (cell,) = cells_of(experiment_of(["vanilla"], ["probe-length"], [0], "minilm", {}, None))
    assert cell.plan().training_arguments()["train_sampling_strategy"] == "random"


def refused(place: Place, output: Path, **changes: Any) -> str:
    with pytest.raises(RosewoodError) as caught:
        place.probe(output, **changes)
    assert not output.exists(), "nothing is begun"
    return str(caught.value)


def test_bad_input_is_refused_before_any_work(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    out = tmp_path / "out"
    said = refused(place, out, recipes=["vanila"], tasks=["probe-teh"], model="../x")
    assert said.startswith("experiment probe has 3 problems:") and "did you mean" in said
    assert "expected two labels and the splits train, validation and disambiguating" in refused(
        place, out, tasks=["reviews"], data_dir=None
    )
    assert "the probe: seeds.0: input should be greater than or equal to 0, got -1" in refused(place, out, seeds=[-1])
    assert "more than once" in refused(place, out, seeds=[1, 1])
    assert "no such file (split train of task msgs-length)" in refused(place, out, tasks=["msgs-length"])
    assert "--data-dir" in refused(place, out, data_dir=None)


def test_sets_that_do_not_oppose_the_features_are_refused(place: Place, tmp_path: Path) -> None:
    task, folder = load_task("msgs-the"), write_msgs(tmp_path / "msgs")
    check_features(task, folder)
    write_rows(folder, "test", [*sentences("the", "disambiguating")[:4], *sentences("the", "ambiguous")[:2]])
    with pytest.raises(DataError) as caught:
        check_features(task, folder)
    assert str(caught.value) == (
        "split disambiguating of task msgs-the: expected the label and surface_feature_label to be different in every "
        "row; they are not in 2 of 6, the first being row 5."
    )
    write_rows(folder, "test", sentences("the", "disambiguating")[:1])
    with pytest.raises(DataError, match="expected both labels, got one"):
        check_features(task, folder)
    (folder / FOLDER / "test.jsonl").write_text('{"sentence": "It rains.", "linguistic_feature_label": 1}\n')
    with pytest.raises(DataError, match="expected a column 'surface_feature_label' with 0 or 1, got sentence, label"):
        check_features(task, folder)


def test_a_task_of_three_labels_is_no_probe() -> None:
    raw = load_task("probe-the").model_dump(mode="json", by_alias=True) | {"labels": ["raising", "control", "neither"]}
    with pytest.raises(ExperimentError, match="got the labels raising, control, neither"):
        check_features(build_task(raw, "it"))


@pytest.mark.data
@pytest.mark.parametrize("surface", ["the", "length"])
def test_regenerated_msgs_can_be_probed(surface: str, data_dir: Path) -> None:
    task, folder = load_task(f"msgs-{surface}"), data_dir / "msgs_regenerated"
    check_features(task, folder)
    assert len(load_split(task, "disambiguating", folder)) == {"the": 1178, "length": 838}[surface]


@pytest.fixture
def data_dir() -> Path:
    if not os.environ.get("ROSEWOOD_DATA"):
        pytest.skip("ROSEWOOD_DATA names no data folder")
    return Path(os.environ["ROSEWOOD_DATA"])
