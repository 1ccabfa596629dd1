"""Cells whose trained model gets a defence: the whole is what is evaluated and attacked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rosewood import attack, evaluate
from rosewood.data.loading import load_split
from rosewood.defences.runner.wrap import wrap_run
from rosewood.defences.smoothed import Smoothed
from rosewood.errors import ExperimentError
from rosewood.experiments.cell import TRAINED
from rosewood.experiments.compare import compare
from rosewood.experiments.experiment import RecipeChoice
from rosewood.experiments.grid import cells_of
from rosewood.models.defended import Defended
from rosewood.models.open import open_run
from rosewood.results import AttackReport, CellResult
from tiny_experiment import InThisProcess, tiny_experiment, write_data, write_experiment

QUIET = Console(quiet=True)
SMOOTHED = {"recipe": "vanilla", "wrap": {"with": "smoothed:delete", "set": {"copies": 3}}}
ONE: dict[str, Any] = {"seeds": [0], "baseline": None, "published": {}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wrapped")
    write_experiment(place)
    write_data(place / "data")
    return place


def test_the_whole_is_what_is_measured(place: Path, tmp_path: Path) -> None:
    experiment = tiny_experiment(place, recipes=["vanilla", SMOOTHED], **ONE)
    compare(experiment, tmp_path, place / "data", InThisProcess(), QUIET)
    (plain,) = tmp_path.glob("vanilla-*")
    (wrapped,) = tmp_path.glob("smoothed-delete-around-vanilla-*")
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (plain / "run", wrapped / TRAINED)]
    assert weights[0] == weights[1]

    by_hand = wrap_run(wrapped / TRAINED, tmp_path / "by-hand", Smoothed(by="delete", copies=3))
    result, opened = CellResult.load(wrapped / "result.json"), open_run(wrapped / "run")
    assert result.label == "smoothed:delete around vanilla" and result.training_seconds is not None
    assert result.evaluation.forwards == 3.0
    cell = next(each for each in cells_of(experiment, place / "data") if each.wrap is not None)
    task, choice = cell.built_task(), cell.attacks[0]
    length, data = cell.plan().max_length, place / "data"
    expected = evaluate(by_hand, by_hand.tokenizer, task, data_dir=data, max_length=length, typo_rate=None)
    clean = [next(each for each in found.sets if each.role == "clean") for found in (result.evaluation, expected)]
    assert clean[0].accuracy == clean[1].accuracy and clean[0].nll == pytest.approx(clean[1].nll, abs=1e-6)
    rows = load_split(task, "test", data, choice.examples, choice.seed)
    found = attack(
        by_hand,
        by_hand.tokenizer,
        rows,
        choice.attack,
        max_length=length,
        max_queries=choice.max_queries,
        progress=False,
    )
    (report,) = map(AttackReport.load, wrapped.glob("run/attacks/*/attack.json"))
    assert report.forwards == 3.0 and report.summary.counts == found.summary.counts
    assert isinstance(opened.model, Defended)


def test_the_same_model_is_trained_once(place: Path, tmp_path: Path) -> None:
    recipes = ["vanilla", SMOOTHED, SMOOTHED | {"label": "faster", "training": {"learning_rate": 0.01}}]
    experiment = tiny_experiment(place, recipes=recipes, **ONE)
    compare(experiment, tmp_path, place / "data", InThisProcess(), QUIET)
    folders = [next(tmp_path.glob(f"{name}-*")) for name in ("vanilla", "smoothed", "faster")]
    runs = [folders[0] / "run", *(folder / TRAINED for folder in folders[1:])]
    plain, wrapped, faster = [(run / "run.json").read_bytes() for run in runs]  # it has the seconds of the training
    assert wrapped == plain != faster
    assert not list(runs[1].glob("evaluation*")) and not (runs[1] / "attacks").exists()

    (folders[2] / "cell.json").write_text('{"of": "another version"}')
    shutil.rmtree(runs[0] / "model")  # as of a cell whose results alone were kept
    shutil.rmtree(folders[1])
    experiment = tiny_experiment(place, recipes=recipes[:2], **ONE)
    compare(experiment, tmp_path, place / "data", InThisProcess(), QUIET)
    assert (runs[1] / "run.json").read_bytes() != plain and (runs[1] / "model").exists()


def test_it_goes_on_where_it_was_killed(place: Path, tmp_path: Path) -> None:
    experiment = tiny_experiment(place, recipes=[SMOOTHED], **ONE)
    whole = compare(experiment, tmp_path, place / "data", InThisProcess(), QUIET)
    (result,) = tmp_path.glob("*/result.json")
    result.unlink()
    (tmp_path / result.parent.name / "run" / "evaluation.json").unlink()
    engine = InThisProcess()
    assert compare(experiment, tmp_path, place / "data", engine, QUIET) == whole and len(engine.worked_on) == 1


def test_a_cell_without_a_defence_is_the_same_as_before_there_were_any(place: Path) -> None:
    (cell,) = cells_of(tiny_experiment(place, recipes=["vanilla"], **ONE), place / "data")
    assert "wrap" not in cell.model_dump(by_alias=True)
    (wrapped,) = cells_of(tiny_experiment(place, recipes=[SMOOTHED | {"label": "vanilla"}], **ONE), place / "data")
    assert cell.fingerprint != wrapped.fingerprint and cell.place == wrapped.place


def test_a_name_alone_is_a_defence() -> None:
    choice = RecipeChoice.model_validate({"recipe": "augment", "wrap": "corrected"})
    assert choice.wrap is not None and choice.wrap.defence == "corrected"
    assert choice.name == "corrected around augment"


@pytest.mark.parametrize(
    ("wrap", "says"),
    [
        ("smothed", "did you mean smoothed"),
        ({"with": "smoothed:mask", "set": {"copys": 3}}, "copys"),
        ({"with": "smoothed:mask", "sets": {}}, "sets"),
        ({"with": "encoded", "lexicon": "nothing"}, "nothing"),
    ],
)
def test_mistakes_are_found_before_any_work(place: Path, wrap: Any, says: str) -> None:
    with pytest.raises(ExperimentError, match=says):
        cells_of(tiny_experiment(place, recipes=[{"recipe": "vanilla", "wrap": wrap}], **ONE), place / "data")


def test_moments_of_training_have_no_defence(place: Path) -> None:
    measured = {"at_steps": [1], "sets": ["test"]}
    with pytest.raises(ExperimentError, match="put there after training"):
        cells_of(tiny_experiment(place, recipes=[SMOOTHED], evaluation=measured, **ONE), place / "data")
