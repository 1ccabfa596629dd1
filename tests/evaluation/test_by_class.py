"""Figures of single labels are those of scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score

from rosewood.comparison.runs import EvaluatedRun
from rosewood.comparison.table import class_grids
from rosewood.evaluation.evaluate import evaluate
from rosewood.evaluation.measure import by_class, confusion
from rosewood.report.sections import Table
from rosewood.report.sections.evaluation import classes_section
from rosewood.report.subject import subject_of
from tiny_attack import sentences
from tiny_text import tiny_classifier, tiny_tokenizer

NAMES = ["a", "b", "c", "never"]


@pytest.mark.parametrize("seed", range(5))
def test_one_label_a_text(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, predicted = rng.choice(3, 40, p=[0.8, 0.15, 0.05]), rng.choice(3, 40)
    single = np.eye(4, dtype=bool)
    found = by_class(single[truth], single[predicted], NAMES)
    for each, number in zip(found.classes[:3], range(3), strict=True):
        options = {"labels": [number], "average": None, "zero_division": 0}
        assert each.recall == (recall_score(truth, predicted, **options)[0] if (truth == number).any() else None)
        assert each.precision == pytest.approx(precision_score(truth, predicted, **options)[0])
        assert each.f1 == pytest.approx(f1_score(truth, predicted, **options)[0])
        assert (each.examples, each.predicted) == ((truth == number).sum(), (predicted == number).sum())
    assert (found.classes[3].precision, found.classes[3].recall, found.classes[3].f1) == (None, None, None)
    assert found.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert confusion(truth, predicted, 4) == confusion_matrix(truth, predicted, labels=range(4)).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_several_labels_a_text(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, predicted = rng.random((30, 3)) < (0.5, 0.2, 0.8), rng.random((30, 3)) < 0.5
    found = by_class(truth, predicted, NAMES[:3])
    options = {"zero_division": np.nan}
    assert [each.f1 for each in found.classes] == pytest.approx(f1_score(truth, predicted, average=None, **options))
    assert found.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro", **options))
    assert found.micro_f1 == pytest.approx(f1_score(truth, predicted, average="micro", **options))


def test_nothing_at_all() -> None:
    found = by_class(np.zeros((3, 2)), np.zeros((3, 2)), ["a", "b"])
    assert (found.macro_f1, found.micro_f1) == (None, None)


def test_tables_and_report_show_them() -> None:
    labels = ["ham", "spam", "spam"] * 4
    rows = [{"text": text, "label": label} for text, label in zip(sentences(12), labels, strict=True)]
    found = evaluate(tiny_classifier(("ham", "spam")), tiny_tokenizer(), rows, typo_rate=0)
    (clean,) = found.sets
    assert [sum(counts) for counts in clean.confusion] == [4, 8] == [each.examples for each in clean.classes]
    assert clean.accuracy == (clean.confusion[0][0] + clean.confusion[1][1]) / 12
    classes, matrix = class_grids({"mine": found})
    assert [row[:3] for row in classes.rows] == [
        ["test", "ham", "4"],
        ["test", "spam", "8"],
        ["test", "macro F1", "12"],
    ]
    assert matrix.title == "Confusion of mine on test"
    assert matrix.rows == [["ham", *map(str, clean.confusion[0])], ["spam", *map(str, clean.confusion[1])]]
    shown = classes_section(subject_of([EvaluatedRun(Path("mine"), "vanilla", 0, found)]))
    assert shown is not None and [type(part) for part in shown.parts] == [Table, Table]
    before = clean.model_copy(update={"classes": [], "confusion": [], "macro_f1": None})
    old = found.model_copy(update={"sets": [before]})  # as an older version wrote it
    assert class_grids({"mine": old}) == []
    assert classes_section(subject_of([EvaluatedRun(Path("mine"), "vanilla", 0, old)])) is None
