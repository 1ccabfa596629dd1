"""Ranges and choices: what they mean, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rosewood.errors import ExperimentError
from rosewood.experiments.tuning.search import Choice, Range, parse_search, read_search, space_of
from rosewood.recipe import load_recipe


@pytest.mark.parametrize(
    ("recipe", "name", "given", "expected"),
    [
        ("vanilla", "learning_rate", "1e-5..1e-3:log", Range(1e-5, 1e-3, log=True)),
        ("rose-first", "selection.keep_quantile", "0.3..0.9", Range(0.3, 0.9)),
        ("vanilla", "training.weight_decay", "0..1", Range(0, 1)),
        ("vanilla", "training.per_device_train_batch_size", "8..64:log", Range(8, 64, log=True, whole=True)),
        ("vanilla", "training.weight_decay", "0,1e-2,0.1", Choice((0, 0.01, 0.1))),
        ("vanilla", "training.lr_scheduler_type", ["linear", "cosine"], Choice(("linear", "cosine"))),
        ("mixout", "anchors.0.probability", "0.1,0.9", Choice((0.1, 0.9))),
    ],
)
def test_what_a_search_means(recipe: str, name: str, given: Any, expected: Any) -> None:
    assert list(space_of({name: given}, load_recipe(recipe)).values()) == [expected]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({}, "there is nothing to search"),
        ({"learning_rate": "1e-3..1e-5"}, "learning_rate: the range 1e-3..1e-5 is empty"),
        ({"learning_rate": "0.5..0.5"}, "is empty"),
        ({"learning_rate": "-1..1:log"}, "learning_rate: a logarithmic range begins above 0, got -1"),
        ({"learning_rate": "1..2:lgo"}, "only :log is allowed, got :lgo"),
        ({"learning_rate": "a..b"}, "expected a number at each end of the range, got 'a'"),
        ({"learning_rate": "nan..1"}, "expected a number at each end of the range, got 'nan'"),
        ({"learning_rate": "0.1"}, "two values or more, got '0.1'; fix one value with --set"),
        ({"learning_rate": [[1], [2]]}, r"choices are single values, got \[1\]"),
        ({"learning_rate": "-1..1"}, "greater than or equal to 0, got -1"),
        ({"selection.keep_quantil": "0.1..0.9"}, "no such setting; did you mean selection.keep_quantile"),
        ({"learning_rat": "0.1..0.9"}, "learning_rat: no such setting; did you mean learning_rate"),
        ({"title": "a,b"}, "title: no such setting"),
        ({"training.learning_rat": "0.1..0.9"}, "did you mean learning_rate"),
        ({"selection.keep_quantile": "0.1..1.7"}, "selection.keep_quantile.*got 1.7"),
        (
            {"learning_rate": "0.1..0.9", "training.learning_rate": "1,2"},
            "training.learning_rate is there more than once",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(search: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        space_of(search, load_recipe("rose-first"))


def test_all_problems_come_at_once() -> None:
    with pytest.raises(ExperimentError) as raised:
        space_of(
            {
                "selection.order": "first,thrid",
                "learning_rate": "-1..3",
                "titel": "a,b",
                "training.weight_decay": "2..1",
            },
            load_recipe("rose-first"),
        )
    assert str(raised.value).count("\n- ") == 4


def test_an_anchor_is_suggested_by_its_path() -> None:
    with pytest.raises(
        ExperimentError, match=r"anchor\.probability: no such setting; did you mean anchors\.0\.probability"
    ):
        space_of({"anchor.probability": "0.1..0.9"}, load_recipe("mixout"))


def test_settings_may_belong_to_a_part_that_is_searched_too() -> None:
    found = space_of({"selection": "rose,everything", "selection.order": "first,second"}, load_recipe("vanilla"))
    assert found == {"selection": Choice(("rose", "everything")), "selection.order": Choice(("first", "second"))}


def test_assignments_and_files(tmp_path: Path) -> None:
    assert parse_search(["learning_rate = 1e-5..1e-3:log"]) == {"learning_rate": "1e-5..1e-3:log"}
    for wrong in ("learning_rate", "=1..2", "learning_rate="):
        with pytest.raises(ExperimentError, match=r"--search expects SETTING=LOW\.\.HIGH"):
            parse_search([wrong])
    with pytest.raises(ExperimentError, match="more than once"):
        parse_search(["a=1..2", "a=1..3"])
    file = tmp_path / "space.yaml"
    file.write_text("learning_rate: 1e-5..1e-3:log\nanchors.0.probability: [0.1, 0.9]\n")
    assert read_search(file) == {"learning_rate": "1e-5..1e-3:log", "anchors.0.probability": [0.1, 0.9]}
    file.write_text("- learning_rate")
    with pytest.raises(ExperimentError, match="must map settings"):
        read_search(file)
    with pytest.raises(ExperimentError, match="no such file, expected the YAML file of a search space"):
        read_search(tmp_path / "none.yaml")
