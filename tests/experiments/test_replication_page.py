"""The page of the replication says which settings were used, whose choice they are, and what is left open."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from replication_page import keep, keep_pilot, page
from scipy.stats import ttest_1samp

from rosewood.comparison.statistics import t_interval
from rosewood.results import (
    CellResult,
    ComparedCell,
    ComparedFigure,
    Comparison,
    Evaluation,
    MatchedMoment,
    Moment,
    SetResult,
)
from rosewood.results.experiment import CellState
from tiny_experiment import write_experiment

DOCS = Path(__file__).parent.parent.parent / "docs"
SEEDS = (0, 1, 2)


def figure(label: str, on: str, name: str, values: dict[int, float], published: float | None = None) -> ComparedFigure:
    return ComparedFigure(
        model="minilm", on=on, label=label, figure=name, values=values, mean=fmean(values.values()), deviation=None,
        interval=None, published=published,
    )  # fmt: skip


def experiment(folder: Path, name: str, recipes: list[Any]) -> None:
    write_experiment(folder, recipes=recipes, seeds=[0], attacks=[], baseline=None).rename(folder / name)


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
    """A folder with a pilot, as a file and as results."""
    tried = {"vanilla a": 0.7, "vanilla b": 0.8, "vanilla a twice": 0.9, "rose a": 0.75, "rose b": 0.6}
    recipes = [
        vanilla("vanilla a", 1e-4), vanilla("vanilla b", 2e-4), vanilla("vanilla a twice", 1e-4),
        rose("rose a", 3e-4, 0.4), rose("rose b", 1e-4, 0.7),
    ]  # fmt: skip
    experiment(tmp_path, "replication-pilot.yaml", recipes)
    figures = [figure(label, "tiny", "validation", {0: value}) for label, value in tried.items()]
    Comparison(experiment="x", baseline=None, figures=figures, cells=[]).save(tmp_path / "replication-pilot.json")
    return tmp_path


def test_settings_are_those_of_the_pilot_or_it_says_which_are_not(pilot: Path) -> None:
    smart = {"recipe": "smart", "training": {"learning_rate": 2e-4}}
    experiment(pilot, "replication.yaml", [vanilla("vanilla", 1e-4), smart, rose("rose-second", 3e-4, 0.7)])
    assert "**Not what the pilot found: vanilla on tiny, rose-second on tiny.**" in page(pilot, pilot)
    experiment(pilot, "replication.yaml", [vanilla("vanilla", 2e-4), smart, rose("rose-second", 3e-4, 0.4)])
    found = page(pilot, pilot)
    assert "All are what the pilot found." in found
    assert "| vanilla | 0.0002 |" in found and "| rose-second | 0.0003, 0.4 |" in found
    assert "**80.0**" in found and "**75.0**" in found, "the best of each family, and not the longer run"
    assert "**No pilot has chosen these.**" in page(pilot / "none", pilot)


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

    def differences(name: str, **states: CellState) -> str:
        cells = [
            ComparedCell(name=task, label="vanilla", task=task, model="minilm", seed=0, state=state)
            for task, state in states.items()
        ]
        cells.append(cells[0].model_copy(update={"label": "rose-second", "name": "rose"}))
        results, docs = tmp_path / name / "results", tmp_path / name / "docs"
        Comparison(experiment="x", baseline=None, figures=figures, cells=cells).save(results / "results.json")
        for each in cells:
            result(each.label, each.task, 0.9 if each.label == "vanilla" else 0.8).save(
                results / each.name / "result.json"
            )
        keep(results, docs)
        return page(docs).split("## Differences from vanilla")[1].split("## The tables")[0]

    found = differences("two tasks", sst2="finished", qqp="finished", rte="interrupted")
    low, high = t_interval([100 * each for each in gains.values()])
    p = ttest_1samp(list(gains.values()), 0).pvalue  # one method: nothing to adjust for
    row = f"| rose-second | 3 | +0.0 (+0.0 to +0.0) | +6.0 ({low:+.1f} to {high:+.1f}) | {p:.2f} | +15.0 |"
    assert "**Mean over sst2, qqp**" in found and "**rte**" not in found and row in found
    assert differences("none", sst2="interrupted").strip() == "No task is finished yet."
    learnt, rte = differences("rte", sst2="finished", rte="finished").split("**rte**")
    assert "**sst2**" in learnt and "| +10.0 |" in learnt and "| unknown |" not in learnt, "rte is by itself"
    assert "| unknown |" in rte.split("At matched accuracy")[0], "the paper's figures on it are not known"
    found = differences("one task", sst2="finished")
    assert "| rose-second | 0 | -10.0 | - |" in found.split("At matched accuracy")[1]


def test_what_was_kept_of_other_tasks_stays(tmp_path: Path) -> None:
    def run(name: str, sst2: CellState, rte: CellState) -> None:
        results = tmp_path / name
        cells = [
            ComparedCell(name=f"{label}-{task}", label=label, task=task, model="minilm", seed=0, state=state)
            for task, state in (("sst2", sst2), ("rte", rte))
            for label in ("vanilla", "rose-second")
        ]
        finished = [each for each in cells if each.state == "finished"]
        figures = [
            figure(each.label, "glue-adv", prefix + each.task, {0: 0.5})
            for each in finished
            for prefix in ("", "advglue_")
        ]
        Comparison(experiment="x", baseline=None, figures=figures, cells=cells).save(results / "results.json")
        for each in finished:
            result(each.label, each.task, 0.9 if each.label == "vanilla" else 0.8).save(
                results / each.name / "result.json"
            )
        keep(results, tmp_path / "docs")

    run("first", "finished", "waiting")
    first = page(tmp_path / "docs")
    assert "2 of 4 runs are finished." in first and "**On rte, after equal steps**" not in first
    run("second", "waiting", "finished")
    both = page(tmp_path / "docs")
    assert "4 of 4 runs are finished." in both
    assert both.count("| rose-second | 0 | -10.0 | - |") == 2, "pairs of the first, whose cells are not there any more"
    assert "| method | sst2 | rte |" in both.split("## Seconds")[1]


def test_results_of_other_cells_and_fewer_runs_of_a_pilot_change_nothing(tmp_path: Path) -> None:
    def write(folder: str, name: str, *states: CellState) -> None:
        cells = [
            ComparedCell(name=f"{name}{place}", label="vanilla", task=f"t{place}", model="minilm", seed=0, state=state)
            for place, state in enumerate(states)
        ]
        for each in cells:
            result("vanilla", each.task, 0.9).save(tmp_path / folder / each.name / "result.json")
        Comparison(experiment="x", baseline=None, figures=[], cells=cells).save(tmp_path / folder / "results.json")

    docs = tmp_path / "docs"
    write("first", "a", "finished", "finished")
    keep(tmp_path / "first", docs)
    keep_pilot(tmp_path / "first", docs)
    before = {file.name: file.read_bytes() for file in docs.iterdir()}
    write("other", "b", "finished", "finished")
    with pytest.raises(SystemExit, match="settings or data have changed"):
        keep(tmp_path / "other", docs)
    write("fewer", "c", "finished", "waiting")
    keep_pilot(tmp_path / "fewer", docs)
    assert {file.name: file.read_bytes() for file in docs.iterdir()} == before
    keep_pilot(tmp_path / "other", docs)
    assert {file.name for file in docs.iterdir() if file.read_bytes() != before[file.name]} == {
        "replication-pilot.json"
    }


def test_tables_have_deviations_stars_the_papers_figures_and_the_moments_of_a_match(tmp_path: Path) -> None:
    ours = figure("smart", "glue-adv", "sst2", {0: 0.7, 1: 0.8}, published=0.95)
    ours = ours.model_copy(update={"deviation": 0.07, "p": 0.001, "p_adjusted": 0.04})
    names = ("advglue_sst2", "worst group sst2", "gap sst2", "mean", "drop")
    figures = [ours, *(figure("smart", "glue-adv", name, {0: 0.4, 1: 0.5}) for name in names)]
    moments = [
        MatchedMoment(
            model="minilm", task=task, label="smart", seed=seed, level=0.6, step=step, steps=90,
            validation_accuracy=0.62,
        )
        for task, step in (("sst2", 30), ("qqp", 80))
        for seed in (0, 1)
    ]  # fmt: skip
    cells = [ComparedCell(name="c", label="smart", task="sst2", model="minilm", seed=0, state="finished")]
    early = [each.model_copy(update={"published": None, "p_adjusted": 0.05}) for each in figures]
    Comparison(
        experiment="x", baseline=None, figures=figures, cells=cells, matched=moments, matched_figures=early
    ).save(tmp_path / "replication.json")
    tables = page(tmp_path).split("## The tables")[1]
    assert "| method | seeds | mean | drop |\n| --- | ---: | ---: | ---: |\n| smart | 2 | 45.0 | 45.0 |" in tables
    _, at_end, at_match = tables.split("**On sst2, ")
    assert "| method | seeds | test rows | paper | AdvGLUE | worst group | gap |" in at_end
    assert "| smart | 2 | 75.0 ±7.0* | 95.0 | 45.0 | 45.0 | 45.0 |" in at_end
    assert "| method | seeds | level | validation | steps | test rows | AdvGLUE | worst group | gap |" in at_match
    assert "| smart | 2 | 60.0 | 62.0 | 30 | 75.0 ±7.0 | 45.0 | 45.0 | 45.0 |" in at_match


def test_the_page_is_what_its_files_say() -> None:
    assert (DOCS / "replication.md").read_text(encoding="utf-8") == page(DOCS)
