"""Suites are refused with all their problems, and every set of the shipped ones is what its file says."""

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from data.conftest import needs_reviews
from rosewood.data.loading import load_split
from rosewood.data.suites import load_suite, suite_names
from rosewood.errors import AbsentError, DataError
from rosewood.evaluation.sets import plan_of_suite
from tiny_suite import tiny_suite, write_files

# What the data folder does not have: only on the Hub, or in the archive of RoAST's authors.
ABSENT = {
    "sentiment": {"yelp", "amazon", "textfooler_bert", "textfooler_roberta", "mnli_mm"},
    "entailment": {
        *("mnli_mm", "diagnostics", "hans", "nq_nli", "fever_nli", "wanli", "textfooler_m", "textfooler_mm"),
    },
    "glue-adv": set(),
    "reviews": set(),
}


def test_the_shipped_suites() -> None:
    assert suite_names() == sorted(ABSENT)
    with pytest.raises(DataError, match="unknown suite 'sentimnt': did you mean sentiment"):
        load_suite("sentimnt")
    with pytest.raises(DataError, match="no such file, expected the YAML file of a suite"):
        load_suite("none.yaml")


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_every_set_says_where_it_comes_from_and_how_many_rows_there_are(name: str) -> None:
    suite = load_suite(name)
    assert [suite.name, *(each.title for each in suite.sets.values())]
    for set_name, each in suite.sets.items():
        places = {place for place in ("folder", "hub", "embedded") if getattr(each, place)}
        if each.task is None:
            assert set(each.examples) == places, set_name
        assert each.title and (each.role != "clean" or each.counted)
    for task in suite.tasks or [None]:
        plan = plan_of_suite(suite, task)
        assert "clean" in {each.role for each in plan.sets}
        assert all(plan.members(label) for each in plan.sets if each.role != "anomaly" for label in each.labels)


def test_what_is_not_official_says_so() -> None:
    suite = load_suite("entailment")
    assert not suite.sets["hans_regenerated"].counted
    assert "never to be reported as HANS" in suite.sets["hans_regenerated"].note
    assert suite.sets["hans"].folder is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"inside": ["nowhere"]}, "inside names 'nowhere', which is not a set"),
        ({"noise": {"of": "nowhere", "kinds": ["typos"], "strengths": [0.1]}}, "noise is put on 'nowhere'"),
        ({"merge": {"other": ["neutral"]}}, "merge: other means 'neutral', which is not a label"),
        ({"text": []}, "set training: no text columns"),
        ({"sets": {"held_out": {"role": "clean", "title": "x"}}}, "needs either a source"),
        (
            {"sets": {"test": {"role": "clean", "title": "x", "absent": "gone"}}},
            "set test: splits of tasks have this name",
        ),
        (
            {"sets": {"held_out": {"role": "clean", "title": "x", "absent": "gone", "labels": ["a", "positive"]}}},
            "its label 'a' is neither one of the suite nor merged from them",
        ),
        (
            {
                "merge": {"all": ["negative", "positive"]},
                "sets": {"held_out": {"role": "clean", "title": "x", "absent": "gone", "labels": ["all", "positive"]}},
            },
            "its labels must mean each label of the suite once",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        tiny_suite(**changes)


def test_a_bad_file_lists_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: bad\ntitle: Bad\nsets: {}\nspeed: 3\n")
    with pytest.raises(DataError, match=r"bad\.yaml is not a valid suite:\n  sets: .*\n  speed: Extra"):
        load_suite(path)


def test_anomalies_need_no_labels_and_several_files_are_one_set(tmp_path: Path) -> None:
    suite = tiny_suite()
    task, split = suite.task_of("recipes")
    loaded = load_split(task, split, write_files(tmp_path))
    assert set(loaded["label"][:]) == {1} and task.labels == ["inside", "outside"]
    several = tiny_suite(
        sets={"held_out": {"role": "clean", "title": "x", "folder": {"file": "[bp]*.jsonl"}}},
    )
    loaded = load_split(*several.task_of("held_out"), tmp_path)
    assert loaded["file"][:] == ["books"] * 40 + ["poems"] * 30
    with pytest.raises(AbsentError, match=r"nothing-\*\.jsonl: no such file"):
        load_split(
            *tiny_suite(
                sets={"held_out": {"role": "clean", "title": "x", "folder": {"file": "nothing-*.jsonl"}}}
            ).task_of("held_out"),
            tmp_path,
        )


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("ROSEWOOD_DATA"), reason="ROSEWOOD_DATA names no data folder")
@pytest.mark.parametrize("name", sorted(set(ABSENT) - {"reviews"}))
def test_every_set_loads_from_the_folder_or_is_known_to_be_absent(name: str) -> None:
    suite = load_suite(name)
    missing = set()
    for set_name, each in suite.sets.items():
        if each.absent is not None:
            missing.add(set_name)
            continue
        task, split = suite.task_of(set_name)
        try:
            loaded = load_split(task, split)
        except AbsentError:
            missing.add(set_name)
            continue
        assert len(loaded) == each.examples["folder"], set_name
        assert set(each.groups) <= set(loaded.column_names)
        if each.role != "anomaly":
            assert set(loaded["label"][:]) == set(range(len(task.labels)))
    assert missing == ABSENT[name]


@needs_reviews
def test_the_embedded_suite_needs_nothing_else() -> None:
    suite = load_suite("reviews")
    for name, each in suite.sets.items():
        assert len(load_split(*suite.task_of(name))) == each.examples["embedded"], name
