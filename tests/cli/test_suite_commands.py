"""Suites, labels and tables on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from cli.conftest import Rosewood
from rosewood.evaluation.files import save_evaluation
from rosewood.results import Evaluation
from tiny_runs import run_info
from tiny_suite import tiny_suite, write_files
from tiny_text import tiny_classifier, tiny_tokenizer


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    raw = tiny_suite().model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    file.write_text(yaml.safe_dump(raw, sort_keys=False))
    return file


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "vanilla-0"
    tiny_classifier(("negative", "positive")).save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    run_info("vanilla").save(folder / "run.json")
    return folder


def test_a_suite_from_a_run_to_a_table(
    rosewood: Rosewood, run: Path, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_files(tmp_path)
    monkeypatch.chdir(tmp_path)  # a short name of the run leaves room for the columns
    printed = rosewood(
        "evaluate", run.name, "--suite", suite, "--data-dir", data, "--group", "method", "--attack", "typos"
    )
    assert "Robustness on the suite tiny" in printed
    assert "1 of 2 sets" in printed
    assert "missing archived: it is in an archive" in printed
    evaluation = Evaluation.load(run / "evaluation.json")
    assert evaluation.suite == "tiny" and len(evaluation.attacks) == 1
    assert (run / "predictions-tiny.parquet").exists() and (run / "cache").exists()
    second = tmp_path / "rose-0"
    shutil.copytree(run, second)
    run_info("rose").save(second / "run.json")
    printed = rosewood("table", run, second, "--baseline", "vanilla")
    said = "Not tested: rose (one of the two is at guessing)."
    assert " ".join(printed.split()).count(said) == 1, "nobody has trained them, and once is enough to say so"
    for each in (run, second):
        _learn(each)
    printed = rosewood("table", run, second, "--baseline", "vanilla")
    assert "rose against vanilla, on the same examples" in printed and "at guessing" not in printed
    assert rosewood("table", run, second, "--baseline", "vanilla", "--suite", "tiny") == printed
    assert rosewood("table", run, second, "--format", "markdown").startswith("**Robustness on the suite tiny**")
    assert r"\begin{tabular}" in rosewood("table", run, "--format", "latex")


def _learn(run: Path) -> None:
    """Leave out how often each label is there, so that nobody can tell the model from one that learnt."""
    found = Evaluation.load(run / "evaluation.json")
    sets = [each.model_copy(update={"groups": []}) for each in found.sets]
    save_evaluation(found.model_copy(update={"sets": sets}), run)


def test_a_checkpoint_without_names_is_told_them(rosewood: Rosewood, suite: Path, tmp_path: Path) -> None:
    data, folder = write_files(tmp_path), tmp_path / "checkpoint"
    tiny_classifier().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    asked = ("evaluate", folder, "--suite", suite, "--data-dir", data)
    assert "the outputs of the model have no names" in rosewood(*asked, code=1)
    said = rosewood(*asked, "--labels", "a,b,c", code=1)
    assert "--labels: expected 2 names, one for each output of the model, got 3: a, b, c" in said
    assert "the model's labels are a, b" in rosewood(*asked, "--labels", "a,b", code=1)
    output = tmp_path / "results"
    rosewood(*asked, "--labels", "positive, negative", "--output", output)
    assert Evaluation.load(output / "evaluation.json").labels == {"negative": "negative", "positive": "positive"}
    assert "--output is the folder of one checkpoint" in rosewood(
        "evaluate", folder, folder, "--suite", suite, "--output", output, code=1
    )


def test_a_folder_that_is_no_run_is_refused_before_the_others_are_evaluated(
    rosewood: Rosewood, run: Path, suite: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert "is neither a run (no run.json) nor a checkpoint (no config.json)" in rosewood(
        "evaluate", run, tmp_path / "empty", "--suite", suite, code=1
    )
    assert not (run / "evaluation.json").exists()


def test_an_unknown_suite_is_refused_before_any_work(rosewood: Rosewood, run: Path) -> None:
    assert "unknown suite 'sentimental': did you mean sentiment" in rosewood(
        "evaluate", run, "--suite", "sentimental", code=1
    )


def test_suites_are_listed(rosewood: Rosewood) -> None:
    printed = rosewood("list", "suites")
    assert all(name in printed for name in ("sentiment", "entailment", "glue-adv", "reviews"))
