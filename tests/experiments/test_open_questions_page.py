"""The page of the open questions tells what was run, and means over seeds at every moment."""

from __future__ import annotations

import runpy
from pathlib import Path

from rosewood.evaluation.statistics import t_interval
from rosewood.results import ComparedCell, ComparedFigure, Comparison
from rosewood.results.experiment import CellState

PAGE = runpy.run_path(str(Path(__file__).parent.parent.parent / "benchmarks" / "open_questions_page.py"))["page"]


def save(folder: Path, states: list[CellState]) -> Path:
    folder.mkdir(parents=True)
    cells = [
        ComparedCell(name=f"a-{seed}", label="a", task="sst2", model="minilm", seed=seed, state=state)
        for seed, state in enumerate(states)
    ]
    Comparison(experiment="x", baseline=None, figures=[], cells=cells).save(folder / "results.json")
    (folder / "table.md").write_text("# Its own title\n\nits tables\n", encoding="utf-8")
    return folder


def section(page: str, words: str) -> str:
    return next(part for part in page.split("\n## ") if part.startswith(words))


def test_a_question_that_has_not_been_run_says_so(tmp_path: Path) -> None:
    assert PAGE(tmp_path).count("Not run yet.") == 4


def test_tables_stand_under_the_question_with_the_number_of_runs(tmp_path: Path) -> None:
    save(tmp_path / "question-word-level-small", ["interrupted", "interrupted"])
    found = section(PAGE(tmp_path), "Embeddings or words")
    assert "0 of 2 runs are finished: [open-question-word-level.json](open-question-word-level.json) and" in found
    assert "its tables" in found
    assert "Its own title" not in found


def test_figures_over_time_are_means_over_seeds_in_the_order_of_steps(tmp_path: Path) -> None:
    folder = save(tmp_path / "question-duration-small", ["interrupted"])
    (folder / "moments.csv").write_text(
        "model,task,label,seed,step,figure,value\n"
        "minilm,sst2,a,0,100,test,0.5\nminilm,sst2,a,1,100,test,0.7\nminilm,sst2,a,0,20,test,0.4\n"
        "minilm,sst2,a,0,20,distance,0.0123\nminilm,sst2,b,0,100,distance,0.02\n",
        encoding="utf-8",
    )
    found = section(PAGE(tmp_path), "Robustness, distance and worst group")
    assert "| after steps | 20 | 100 |\n| --- | ---: | ---: |\n| a | 40.0 | 60.0 ±14.1 |\n| b | - | - |" in found
    assert "| a | 1.2 | - |\n| b | - | 2.0 |" in found


def test_differences_are_of_equal_seeds(tmp_path: Path) -> None:
    folder = save(tmp_path / "question-duration-small", ["interrupted"])
    accuracies = {"roast": {0: 0.8, 1: 0.82, 2: 0.9}, "vanilla": {0: 0.7, 1: 0.76}}
    figures = [
        ComparedFigure(
            model="minilm", on="sst2", label=label, figure=name, values=values, mean=0.5, deviation=None, interval=None
        )
        for label, values in accuracies.items()
        for name in ("test", "worst group test")
    ]
    Comparison(experiment="x", baseline=None, figures=figures, cells=[]).save(folder / "results.json")
    low, high = t_interval([10.0, 6.0])
    found = section(PAGE(tmp_path), "Robustness, distance and worst group")
    assert "| difference | test |\n" in found, "worst groups are not compared"
    assert f"| roast − vanilla | +8.0 ({low:+.1f} to {high:+.1f}) |" in found
    assert "| advembed − vanilla | - |" in found
