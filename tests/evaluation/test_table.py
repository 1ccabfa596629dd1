"""The table shows every set of every evaluation, the missing ones too."""

import io

import pytest
from rich.console import Console

from rosewood.errors import RunError
from rosewood.evaluation.table import render
from rosewood.results import Evaluation, MissingSet, Role, SetResult


def result(name: str, role: Role, accuracy: float, ece: float = 0.05) -> SetResult:
    interval = (accuracy - 0.03, accuracy + 0.02)
    return SetResult(
        name=name, role=role, examples=100, accuracy=accuracy, interval=interval, ece=ece, brier=0.2, nll=0.4
    )


def evaluation(sets: list[SetResult], missing: list[MissingSet] | None = None, task: str = "sst2") -> Evaluation:
    return Evaluation(
        model="m",
        task=task,
        size=None,
        seed=0,
        max_length=128,
        typo_rate=0.3,
        sets=sets,
        missing=missing or [],
    )


def text(evaluations: dict[str, Evaluation]) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(render(evaluations))
    return console.file.getvalue()  # type: ignore[attr-defined]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]]


def test_rows_columns_and_caption() -> None:
    imdb = MissingSet(name="imdb", role="shift", reason="no file")
    vanilla = evaluation([result("test", "clean", 0.9, ece=0.081), result("typos", "noise", 0.7)], [imdb])
    rose = evaluation([result("test", "clean", 0.912), result("imdb", "shift", 0.85)])
    lines = text({"vanilla": vanilla, "rose [1]": rose}).splitlines()
    assert cells(lines[2]) == ["", "test", "imdb", "typos", "ECE"]
    assert cells(lines[3]) == ["model", "(clean)", "(shift)", "(noise)", "(clean)"]
    assert cells(lines[5]) == ["vanilla", "90.0 ±2.5", "missing", "70.0 ±2.5", "8.1"]
    assert cells(lines[6]) == ["rose [1]", "91.2 ±2.5", "85.0 ±2.5", "missing", "5.0"]
    assert "95 % Wilson interval" in " ".join(" ".join(lines[8:]).split())


def test_without_a_clean_set_its_calibration_is_missing() -> None:
    gone = MissingSet(name="test", role="clean", reason="no file")
    lines = text({"m": evaluation([result("imdb", "shift", 0.5)], [gone])}).splitlines()
    assert cells(lines[5]) == ["m", "missing", "50.0 ±2.5", "missing"]


def test_one_table_is_about_one_task() -> None:
    both = {"a": evaluation([]), "b": evaluation([], task="rte")}
    with pytest.raises(RunError, match="a table compares models on one task; got rte, sst2"):
        render(both)
    with pytest.raises(RunError, match="got no evaluation"):
        render({})
