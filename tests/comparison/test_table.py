"""The table shows every set of every evaluation, the missing ones too."""

import io

import pytest
from rich.console import Console

from reported_runs import LABELS
from reported_runs import evaluation as of_a_suite
from rosewood.comparison.table import grids, render, worst_group
from rosewood.errors import RunError
from rosewood.results import (
    AnomalyResult,
    AppliedNoise,
    Evaluation,
    GroupResult,
    Mean,
    MissingSet,
    Role,
    SetResult,
)
from rosewood.results.grid import Folded, Grid, broken, fold, to_latex, to_markdown


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


def test_the_caption_names_noises_that_change_no_token() -> None:
    case = [AppliedNoise(kind="case", strength=strength, of="test") for strength in (0.1, 0.3)]
    sets = [result(f"case {noise.strength}", "noise", 0.9).model_copy(update={"noise": noise}) for noise in case]
    uncased = [each.model_copy(update={"unseen": True}) for each in sets]
    clean = result("test", "clean", 0.9)
    found = {"cased": evaluation([clean, *sets]), "mixed": evaluation([clean, sets[0], uncased[1]])}
    assert "has no effect" not in text(found)
    said = " ".join(text(found | {"uncased": evaluation([clean, *uncased])}).split())
    assert said.count("Noise of the kind “case” has no effect on uncased: no token changes.") == 1


def test_rows_columns_and_caption() -> None:
    imdb = MissingSet(name="imdb", role="shift", reason="no file")
    vanilla = evaluation([result("test", "clean", 0.9, ece=0.081), result("typos", "noise", 0.7)], [imdb])
    rose = evaluation([result("test", "clean", 0.912), result("imdb", "shift", 0.85)])
    lines = text({"vanilla": vanilla, "rose [1]": rose}).splitlines()
    assert cells(lines[2]) == ["", "test", "imdb", "typos", "ECE", "worst group"]
    assert cells(lines[3]) == ["model", "(clean)", "(shift)", "(noise)", "(clean)", "(clean)"]
    assert cells(lines[5]) == ["vanilla", "90.0 ±2.5", "missing", "70.0 ±2.5", "8.1", "-"]
    assert cells(lines[6]) == ["rose [1]", "91.2 ±2.5", "85.0 ±2.5", "missing", "5.0", "-"]
    assert "95 % Wilson interval" in " ".join(" ".join(lines[8:]).split())


def test_without_a_clean_set_its_calibration_is_missing() -> None:
    gone = MissingSet(name="test", role="clean", reason="no file")
    lines = text({"m": evaluation([result("imdb", "shift", 0.5)], [gone])}).splitlines()
    assert cells(lines[5]) == ["m", "missing", "50.0 ±2.5", "missing", "-"]


def test_one_table_is_about_one_task() -> None:
    both = {"a": evaluation([]), "b": evaluation([], task="rte")}
    with pytest.raises(RunError, match="a table compares models on one task; got rte, sst2"):
        render(both)
    with pytest.raises(RunError, match="got no evaluation"):
        render({})


def suite_evaluation() -> Evaluation:
    worst = GroupResult(kind="length", group="0 to 5 words", examples=30, accuracy=0.6, interval=(0.4, 0.8))
    method = GroupResult(kind="method", group="swap", examples=8, accuracy=0.25, interval=(0.1, 0.6))
    clean = result("sst2", "clean", 0.9).model_copy(update={"worst": worst})
    trick = result("tricks", "adversarial", 0.4).model_copy(update={"groups": [worst, method]})
    extra = result("poems", "shift", 0.7).model_copy(update={"counted": False})
    noises = [
        result(f"typos {strength}", "noise", 0.9 - strength).model_copy(
            update={"noise": AppliedNoise(kind="typos", strength=strength, of="sst2")}
        )
        for strength in (0.1, 0.4)
    ]
    shapes = {"examples": 9, "auroc": 0.8, "aupr": 0.7, "fpr_at_95_tpr": 0.5, "source": "", "data": ""}
    return evaluation([clean, trick, extra, *noises], [MissingSet(name="yelp", role="shift", reason="no")]).model_copy(
        update={
            "suite": "tiny",
            "means": [
                Mean(name="clean", value=0.9, sets=["sst2"], missing=[], interval=(0.87, 0.92)),
                Mean(name="adversarial", value=0.4, sets=["tricks"], missing=["dynasent"]),
            ],
            "anomalies": [AnomalyResult(name="news", inside="sst2", score="energy", **shapes)],
        }
    )


def test_a_suite_has_a_table_for_each_perspective() -> None:
    found = {grid.title: grid for grid in grids({"m": suite_evaluation()})}
    assert list(found) == ["Robustness on the suite tiny", "Sets", "Noise", "Anomalies", "By column"]
    summary = found["Robustness on the suite tiny"]
    shown = dict(zip(summary.header, summary.rows[0], strict=True))
    assert shown["clean"] == "90.0 ±2.5"
    assert shown["adversarial"] == "40.0\n1 of 2 sets"
    assert shown["shift"] == "missing"
    assert shown["worst group\n(clean)"] == "60.0 ±20.0 (−30.0)\nlength: 0 to 5 words"
    assert [row[0] for row in found["Sets"].rows] == [
        "sst2\nclean",
        "poems †\nshift",
        "yelp\nshift",
        "tricks\nadversarial",
    ]
    assert found["Sets"].rows[2] == ["yelp\nshift", "-", "missing", "-"]
    assert found["Noise"].rows == [["typos", "m", "90.0\n±2.5", "80.0\n±2.5", "50.0\n±2.5", "-"]]
    assert found["Anomalies"].rows == [["news", "m", "80.0 / 70.0 / 50.0"]]
    assert found["By column"].rows == [["tricks", "method", "swap", "8", "25.0 ±25.0"]]


def test_the_worst_group_of_20_may_be_better_than_the_mean() -> None:
    # Groups of fewer than 20 examples can hold all errors.
    worst = GroupResult(kind="class", group="a", examples=30, accuracy=0.95, interval=(0.85, 1.0))
    for accuracy, distance in ((0.9, "+5.0"), (0.95, "+0.0"), (0.97, "−2.0")):
        shown = worst_group(result("sst2", "clean", accuracy).model_copy(update={"worst": worst}))
        assert shown == f"95.0 ±7.5 ({distance})\nclass: a"


def test_wide_tables_are_folded_and_lose_nothing() -> None:
    header = ["method", *(f"figure {place}" for place in range(12))]
    grid = Grid("Title", header, [["rose [1]", *(f"{place}.0 ±1" for place in range(12))]] * 2, "Caption.")
    console = Console(file=io.StringIO(), width=60)
    console.print(Folded(grid))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 60
    printed = "\n".join(lines)
    assert all(cell in printed for cell in [*header, *grid.rows[0]]) and "…" not in printed
    assert (printed.count("Title"), printed.count("Caption."), printed.count("method")) == (1, 1, 3)
    assert lines[0].strip() == "Title" and lines[-1].strip() == "Caption."
    assert fold(grid, 1000) == [grid]
    narrow = fold(grid, 1)  # a column that fits nowhere has a table of its own
    assert [len(part.header) for part in narrow] == [2] * 12


def test_long_text_is_broken_and_not_cut() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(Folded(Grid("Failed", ["cell", "why"], [["q" * 60, "Log: " + "x" * 70]], texts=2)))
    printed = console.export_text()
    assert (printed.count("q"), printed.count("x")) == (60, 70) and "…" not in printed


def test_names_of_runs_break_at_slashes_and_hyphens() -> None:
    """As row and as heading; what the lines say together is the name, and no line begins in the middle of a word."""
    name = "experiments/2024/rose-ensemble-sst2-seed0"
    for grid in (
        Grid("Title", ["model", *(f"figure {place}" for place in range(5))], [[name, *["50.0 ±1.0"] * 5]]),
        Grid("Title", ["set", name, name + "1"], [["test", "50.0", "60.0"]]),
    ):
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(Folded(grid))
        printed = console.export_text()
        assert "…" not in printed and max(map(len, printed.splitlines())) <= 80
        pieces = ["experiments/2024/rose-", "ensemble-sst2-seed0"]
        assert all(piece in printed for piece in pieces)
    assert broken(name, 26).split("\n") == pieces
    assert broken("short-name", 26) == "short-name" and broken("x" * 30, 26) == "x" * 30


def test_a_wide_table_is_several_in_markdown() -> None:
    grid = Grid("Title", ["method", *(f"set {place}" for place in range(30))], [["vanilla", *["90.0"] * 30]], "In %.")
    title, *tables, caption = to_markdown(grid).split("\n\n")
    assert (title, caption, len(tables)) == ("**Title**", "In %.", 3)
    assert all(table.startswith("| method | set") and len(table.splitlines()[0]) <= 120 for table in tables)


def test_markdown_and_latex() -> None:
    grid = Grid("A & B", ["name", "clean\n(all)"], [["a|b_c", "90.0 ±2.5*"]], caption="In %.")
    assert to_markdown(grid) == (
        "**A & B**\n\n| name | clean (all) |\n| --- | ---: |\n| a\\|b_c | 90.0 ±2.5* |\n\nIn %."
    )
    latex = to_latex(grid)
    assert r"\caption{A \& B. In \%.}" in latex
    assert r"\begin{tabular}{lr}" in latex
    assert r"a|b\_c & 90.0 $\pm$2.5* \\" in latex


def test_a_model_at_guessing_is_marked_in_every_table() -> None:
    good, bad = of_a_suite(30), of_a_suite(20)
    classes = [GroupResult(kind="class", group=name, examples=20, accuracy=0.5, interval=(0.3, 0.7)) for name in LABELS]

    def told(found: Evaluation) -> Evaluation:
        return found.model_copy(update={"sets": [each.model_copy(update={"groups": classes}) for each in found.sets]})

    first, sets, noise, *_ = grids({"good": told(good), "bad": told(bad)})
    assert [row[0] for row in first.rows] == ["good", "bad ‡"] and "‡: at guessing" in first.caption
    assert "bad ‡" in sets.header and [row[1] for row in noise.rows] == ["good", "bad ‡"]
    assert "guessing" not in grids({"good": told(good)})[0].caption
    cut = [
        each.model_copy(update={"sets": [one.model_copy(update={"max_length": length}) for one in told(each).sets]})
        for each, length in ((good, 64), (bad, 32))
    ]
    sentence = grids({"good": cut[0], "bad": cut[1]})[1].caption
    assert "Tokens after which texts are cut: good 64, bad 32." in sentence, "the mark is for tables"
