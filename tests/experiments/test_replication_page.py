"""The page of the replication says which settings were used, whose choice they are, and what is left open."""

from __future__ import annotations

import runpy
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from rosewood.evaluation.statistics import t_interval
from rosewood.experiments.grid import cells_of
from rosewood.results import CellResult, ComparedCell, ComparedFigure, Comparison, Evaluation, Moment, SetResult
from rosewood.results.experiment import CellState
from tiny_experiment import tiny_experiment

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent.parent / "benchmarks" / "replication_page.py"))
PAGE, DIFFERENCES = SCRIPT["page"], SCRIPT["_differences"]
SEEDS = (0, 1, 2)


def figure(label: str, on: str, name: str, values: dict[int, float], published: float | None = None) -> ComparedFigure:
    return ComparedFigure(
        model="minilm", on=on, label=label, figure=name, values=values, mean=fmean(values.values()), deviation=None,
        interval=None, published=published,
    )  # fmt: skip


def save(folder: Path, work: Path, recipes: list[Any], figures: list[ComparedFigure]) -> Path:
    """The results of an experiment on the task tiny, with its cells' settings, and no run."""
    cells = cells_of(tiny_experiment(work, recipes=recipes, seeds=[0], attacks=[], baseline=None))
    for cell in cells:
        cell.save(folder / cell.name)
    known = [
        ComparedCell(
            name=each.name, label=each.label, task="tiny", model=each.model, seed=each.seed, state="interrupted"
        )
        for each in cells
    ]
    Comparison(experiment="x", baseline=None, figures=figures, cells=known).save(folder / "results.json")
    return folder


def result(label: str, task: str, accuracy: float) -> CellResult:
    """A cell that was measured once, at its end, on its clean set."""
    right = SetResult(name=task, role="clean", accuracy=accuracy, examples=100, interval=(0, 1), ece=0, brier=0, nll=0)
    measured = Evaluation(
        model="m", task=task, seed=0, sets=[right], size=None, max_length=16, typo_rate=None, missing=[]
    )
    end = Moment(step=9, validation_accuracy=0.7, distance=None, step_seconds=None, evaluation=measured)
    return CellResult(
        fingerprint=label + task, label=label, task=task, model="m", seed=0, steps=9, validation_accuracy=0.7,
        training_seconds=None, data={}, evaluation=measured, moments=[end],
    )  # fmt: skip


def rose(label: str, rate: float, share: float) -> dict[str, Any]:
    return {
        "recipe": "rose-second",
        "label": label,
        "set": {"selection.keep_quantile": share},
        "training": {"learning_rate": rate},
    }


def vanilla(label: str, rate: float) -> dict[str, Any]:
    return {"recipe": "vanilla", "label": label, "training": {"learning_rate": rate}}


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    tried = {"vanilla a": 0.7, "vanilla b": 0.8, "vanilla a twice": 0.9, "rose a": 0.75, "rose b": 0.6}
    recipes = [
        vanilla("vanilla a", 1e-4), vanilla("vanilla b", 2e-4), vanilla("vanilla a twice", 1e-4),
        rose("rose a", 3e-4, 0.4), rose("rose b", 1e-4, 0.7),
    ]  # fmt: skip
    figures = [figure(label, "tiny", "validation", {0: value}) for label, value in tried.items()]
    return save(tmp_path / "pilot", tmp_path, recipes, figures)


def test_settings_are_those_of_the_pilot_or_it_says_which_are_not(tmp_path: Path, pilot: Path) -> None:
    smart = {"recipe": "smart", "training": {"learning_rate": 2e-4}}
    good = [vanilla("vanilla", 2e-4), smart, rose("rose-second", 3e-4, 0.4)]
    found = PAGE(pilot, save(tmp_path / "good", tmp_path, good, []))
    assert "All are what the pilot found." in found
    assert "| vanilla | 0.0002 |" in found and "| rose-second | 0.0003, 0.4 |" in found
    assert "**80.0**" in found and "**75.0**" in found, "the best of each family, and not the longer run"
    bad = [vanilla("vanilla", 1e-4), smart, rose("rose-second", 3e-4, 0.7)]
    found = PAGE(pilot, save(tmp_path / "bad", tmp_path, bad, []))
    assert "**Not what the pilot found: vanilla on tiny, rose-second on tiny.**" in found
    assert "**No pilot has chosen these.**" in PAGE(tmp_path / "none", tmp_path / "good")


def test_differences_are_of_equal_seeds_and_finished_tasks_and_have_intervals(tmp_path: Path) -> None:
    gains, none = {0: 0.02, 1: 0.05, 2: 0.11}, dict.fromkeys(SEEDS, 0.0)
    figures = [
        figure(
            label,
            "glue-adv",
            prefix + task,
            {seed: 0.5 + seed / 10 + place / 100 + gain[seed] for seed in SEEDS},
            0.2 if label == "vanilla" else paper,
        )
        for place, (task, paper) in enumerate((("sst2", 0.3), ("qqp", 0.4)))
        for prefix, change in (("", none), ("advglue_", gains))
        for label, gain in (("vanilla", none), ("rose-second", change))
    ]
    for label, value in (("vanilla", 0.1), ("rose-second", 0.9)):  # the third seed has not been run
        figures += [figure(label, "glue-adv", name, {0: value, 1: value}) for name in ("rte", "advglue_rte")]

    def differences(**states: CellState) -> str:
        cells = [
            ComparedCell(name=task, label="vanilla", task=task, model="minilm", seed=0, state=state)
            for task, state in states.items()
        ]
        cells.append(cells[0].model_copy(update={"label": "rose-second", "name": "rose"}))
        Comparison(experiment="x", baseline=None, figures=figures, cells=cells).save(tmp_path / "results.json")
        for each in cells:
            result(each.label, each.task, 0.9 if each.label == "vanilla" else 0.8).save(
                tmp_path / each.name / "result.json"
            )
        return str(DIFFERENCES(tmp_path))

    found = differences(sst2="finished", qqp="finished", rte="interrupted")
    low, high = t_interval([100 * each for each in gains.values()])
    row = f"| rose-second | 3 | +0.0 (+0.0 to +0.0) | +6.0 ({low:+.1f} to {high:+.1f}) | +15.0 |"
    assert "**Mean over sst2, qqp**" in found and "**rte**" not in found and row in found.replace("-0.0", "+0.0")
    assert differences(sst2="interrupted") == "No task is finished yet."
    learnt, rte = differences(sst2="finished", rte="finished").split("**rte**")
    assert "**sst2**" in learnt and "| +10.0 |" in learnt and "| unknown |" not in learnt, "rte is by itself"
    assert "| unknown |" in rte.split("At matched accuracy")[0], "the paper's figures on it are not known"
    found = differences(sst2="finished")
    assert "| rose-second | 0 | -10.0 | - |" in found.split("At matched accuracy")[1]
