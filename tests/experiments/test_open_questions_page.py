"""The page of the open questions tells what was run, and means over seeds at every moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from open_questions_page import PAGE, QUESTIONS, Measured, measured, page

from rosewood.comparison.statistics import t_interval
from rosewood.experiments.tables import moments_csv
from rosewood.results import CellResult, ComparedCell, ComparedFigure, Comparison, Evaluation, Moment, SetResult
from rosewood.results.experiment import CellState


def left(
    states: list[CellState], figures: list[ComparedFigure] | None = None, results: list[CellResult] | None = None
) -> Measured:
    cells = [
        ComparedCell(name=f"a-{seed}", label="a", task="sst2", model="minilm", seed=seed, state=state)
        for seed, state in enumerate(states)
    ]
    return Measured(
        Comparison(experiment="x", baseline=None, figures=figures or [], cells=cells), results or [], "its tables"
    )


def result(label: str, seed: int, moments: Mapping[int, tuple[float, float | None]]) -> CellResult:
    """A cell with an accuracy and a distance at some steps."""

    def evaluation(accuracy: float) -> Evaluation:
        test = SetResult(
            name="test", role="clean", accuracy=accuracy, examples=100, interval=(0, 1), ece=0, brier=0, nll=0
        )
        return Evaluation(
            model="m", task="sst2", seed=0, sets=[test], size=None, max_length=16, typo_rate=None, missing=[]
        )

    found = [
        Moment(step=step, validation_accuracy=0.7, distance=far, step_seconds=None, evaluation=evaluation(accuracy))
        for step, (accuracy, far) in moments.items()
    ]
    return CellResult(
        fingerprint=f"{label}{seed}", label=label, task="sst2", model="minilm", seed=seed, steps=100,
        validation_accuracy=0.7, training_seconds=None, data={}, evaluation=found[-1].evaluation, moments=found,
    )  # fmt: skip


def section(page: str, words: str) -> str:
    return next(part for part in page.split("\n## ") if part.startswith(words))


def test_a_question_that_has_not_been_run_says_so() -> None:
    assert page({}).count("Not run yet.") == 4


def test_tables_stand_under_the_question_with_the_number_of_runs() -> None:
    found = section(page({"word-level": left(["finished", "waiting"])}), "Embeddings or words")
    assert "1 of 2 runs are finished: [open-question-word-level.json](open-question-word-level.json) and" in found
    assert "its tables" in found


def test_figures_over_time_are_means_over_seeds_in_the_order_of_steps() -> None:
    results = [
        result("a", 0, {100: (0.5, None), 20: (0.4, 0.0123)}),
        result("a", 1, {100: (0.7, None)}),
        result("b", 0, {100: (0.9, 0.02)}),
    ]
    found = section(page({"duration": left(["finished"], results=results)}), "Robustness, distance and worst group")
    assert "| after steps | 20 | 100 |\n| --- | ---: | ---: |\n| a | 40.0 | 60.0 ±14.1 |\n| b | - | 90.0 |" in found
    assert "| a | 1.2 | - |\n| b | - | 2.0 |" in found


def test_differences_are_of_equal_seeds() -> None:
    accuracies = {"roast": {0: 0.8, 1: 0.82, 2: 0.9}, "vanilla": {0: 0.7, 1: 0.76}}
    figures = [
        ComparedFigure(
            model="minilm", on="sst2", label=label, figure=name, values=values, mean=0.5, deviation=None, interval=None
        )
        for label, values in accuracies.items()
        for name in ("test", "worst group test")
    ]
    low, high = t_interval([10.0, 6.0])
    found = section(page({"duration": left([], figures)}), "Robustness, distance and worst group")
    assert "| difference | test |\n" in found, "worst groups are not compared"
    assert f"| roast − vanilla | +8.0 ({low:+.1f} to {high:+.1f}) |" in found
    assert "| advembed − vanilla | - |" in found


def test_the_page_is_what_was_kept_of_the_experiments() -> None:
    found = {question: measured(question) for question in QUESTIONS}
    assert PAGE.read_text(encoding="utf-8") == page(found)
    for question, each in found.items():
        kept = Comparison.load(Path(PAGE).with_name(f"open-question-{question}.json"))
        assert each is not None and each.comparison == kept
        moments = Path(PAGE).with_name(f"open-question-{question}-moments.csv").read_text(encoding="utf-8")
        assert moments_csv(each.results) == moments
