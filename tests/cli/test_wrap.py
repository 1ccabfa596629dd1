"""rosewood wrap, from a run to its evaluation, attack and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from reported_runs import attack_result, attacked_example
from rosewood.attacks.runner.report import save_outcome
from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task
from rosewood.defences.guarded import detection
from rosewood.models.defended import Defended
from rosewood.models.open import load_classifier
from rosewood.results import AttackReport, RunInfo
from rosewood.words.lexicon import word_codes, word_counts
from tiny_runs import run_info
from tiny_text import save_tiny_checkpoint

Rosewood = Callable[..., str]
TASK = """
name: films
title: films
text: [text]
labels: [bad, good]
splits:
  train: {folder: {file: films.csv}}
  test: {folder: {file: films.csv}}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    save_tiny_checkpoint(folder / "model", ("bad", "good"))
    rows = [
        f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{chr(97 + i // 26)},{('bad', 'good')[i % 2]}"
        for i in range(40)
    ]
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (folder / "task.yaml").write_text(TASK)
    run_info(task="films", data_dir=str(tmp_path), command="rosewood train --output run").save(folder / "run.json")
    return folder


def test_a_wrapped_run_is_a_run(rosewood: Rosewood, run: Path, tmp_path: Path) -> None:
    output = tmp_path / "smoothed"
    printed = rosewood("wrap", run, "--with", "smoothed:mask", "--copies", 5, "--output", output)
    assert "An answer costs 5 forward passes." in printed
    assert f"Next: rosewood evaluate {output}" in printed
    assert RunInfo.load(output / "run.json").recipe == "vanilla+smoothed:mask"
    evaluated = rosewood("evaluate", run, output, "--typo-rate", "0.3")
    assert "×5" in evaluated and "so many passes of the network" in " ".join(evaluated.split())
    assert json.loads((output / "evaluation.json").read_text())["forwards"] == 5
    attacked = rosewood("attack", output, "--attack", "typos", "--examples", 10, "--max-queries", 20)
    assert "×5" in attacked and "so many passes of the network" in " ".join(attacked.split())
    drawn = rosewood("attack", output, "--attack", "typos", "--examples", 10, "--max-queries", 20, "--draws", 3)
    assert "×15" in drawn  # three draws of five copies
    reports = [AttackReport.load(path) for path in (output / "attacks").glob("*/attack.json")]
    assert sorted((each.draws, each.forwards) for each in reports) == [(1, 5), (3, 15)]
    rosewood("report", output, "--output", tmp_path / "report.html")
    assert "vanilla+smoothed:mask" in (tmp_path / "report.html").read_text()
    rosewood("card", output, "--output", tmp_path / "card.md")
    for file, folder in (("report.html", f"{tmp_path}/"), ("card.md", "")):  # a card tells nothing of this machine
        lines = (tmp_path / file).read_text().splitlines()
        first = next(place for place, line in enumerate(lines) if line.endswith("rosewood train --output run"))
        wrap = f"rosewood wrap {folder}run --with smoothed:mask --copies 5 --output {folder}smoothed"
        assert lines[first + 1] == wrap, file
        assert lines[first + 2].startswith(f"rosewood evaluate {folder}smoothed "), file
    assert "import rosewood.models.defended" in (tmp_path / "card.md").read_text()


def test_a_checkpoint_is_wrapped_after_own_training_data(rosewood: Rosewood, tmp_path: Path) -> None:
    checkpoint, output = save_tiny_checkpoint(tmp_path / "checkpoint", ("bad", "good")), tmp_path / "wrapped"
    train = tmp_path / "train.csv"
    rows = "review,verdict\n" + "".join(
        f"a wonderful film {number},good\na terrible film {number},bad\n" for number in range(20)
    )
    train.write_text(rows, encoding="utf-8")
    words = ("wrap", checkpoint, "--with", "corrected", "--output", output)
    assert "--train-file" in rosewood(*words, code=1)
    columns = ("--text-column", "review", "--label-column", "verdict")
    assert "give one of them" in rosewood(*words, "--train-file", train, *columns, "--task", "sst2", code=1)
    assert "--test-file FILE" in rosewood(*words, "--train-file", train, *columns)
    assert "wonderful" in (output / "defence.json").read_text(encoding="utf-8")


def test_a_wrapped_checkpoint_is_a_checkpoint(rosewood: Rosewood, tmp_path: Path) -> None:
    checkpoint, output = save_tiny_checkpoint(tmp_path / "checkpoint"), tmp_path / "wrapped"
    words = tmp_path / "words.json"
    words.write_text(json.dumps({"good": ["fine"]}))
    lexicon = ("--lexicon", words, "--set", "copies=3")
    printed = rosewood("wrap", checkpoint, "--with", "smoothed:substitute", *lexicon, "--output", output)
    assert f"rosewood evaluate {output} --task TASK" in printed
    films = tmp_path / "films.csv"
    films.write_text("text,label\ngood film,LABEL_1\nbad film,LABEL_0\n")
    assert "×3" in rosewood("evaluate", output, "--test-file", films)
    rosewood("report", output, "--output", tmp_path / "report.html")
    assert f"rosewood wrap {checkpoint} --with smoothed:substitute" in (tmp_path / "report.html").read_text()


def test_front_ends_are_chained_and_read_what_the_run_was_trained_on(
    rosewood: Rosewood, run: Path, tmp_path: Path
) -> None:
    run_info(task="films", data_dir=str(tmp_path), train_size=20, seed=3).save(run / "run.json")
    lexicon, output = {"good": ("fine", "great"), "bad": ("poor",)}, tmp_path / "both"
    (tmp_path / "words.json").write_text(json.dumps(lexicon))
    options = ("--lexicon", tmp_path / "words.json", "--set", "min_letters=4", "--set", "stop_words=false")
    printed = rosewood("wrap", run, "--with", "corrected+encoded", *options, "--output", output)
    assert "The model with corrected+encoded around it" in printed and "An answer costs 1 forward pass." in printed
    model, _ = load_classifier(str(output / "model"))
    assert isinstance(model, Defended)
    corrected, encoded = model.learnt["parts"]
    texts = load_split(load_task(run / "task.yaml"), "train", tmp_path, 20, 3)["text"][:]
    assert corrected["words"] == word_counts(texts)
    assert encoded["codes"] == word_codes(lexicon, word_counts(texts), ENGLISH_STOP_WORDS)
    assert model.defence.of[0].min_letters == 4
    assert "×" not in rosewood("evaluate", run, output, "--typo-rate", "0.3")
    rosewood("attack", output, "--attack", "typos", "--examples", 4, "--max-queries", 20)
    rosewood("report", output, "--output", tmp_path / "report.html")
    assert "--with corrected+encoded" in (tmp_path / "report.html").read_text()
    wrong = ("--set", "copies=3", *options[:2], "--output", tmp_path / "x")
    assert "no part of corrected+encoded has a setting 'copies'" in rosewood(
        "wrap", run, "--with", "corrected+encoded", *wrong, code=1
    )
    assert "put it last" in rosewood(
        "wrap", run, "--with", "smoothed:mask+corrected", "--output", tmp_path / "x", code=1
    )


def test_mistakes_are_named(rosewood: Rosewood, run: Path, tmp_path: Path) -> None:
    output = tmp_path / "x"
    assert "did you mean smoothed" in rosewood("wrap", run, "--with", "smooth", "-o", output, code=1)
    assert "'mask', 'delete'" in rosewood("wrap", run, "--with", "smoothed:swap", "-o", output, code=1)
    assert "no such setting" in rosewood("wrap", run, "--with", "smoothed", "--set", "size=3", "-o", output, code=1)
    assert "exists already" in rosewood("wrap", run, "--with", "smoothed", "-o", tmp_path, code=1)
    assert not output.exists()


def test_defences_are_listed(rosewood: Rosewood) -> None:
    printed = rosewood("list", "defences")
    assert "smoothed:mask" in printed and "smoothed:dropout" in printed and "copies=50" in printed


def test_certificates_stand_in_the_report(rosewood: Rosewood, run: Path, tmp_path: Path) -> None:
    words = ("certify", run, "--with", "delete", "--examples", 6, "--copies", 40, "--confidence", 0.9)
    printed = " ".join(rosewood(*words).split())
    assert "Certified accuracy in %, by the number of edits" in printed and "words inserted" in printed
    assert "with 90 % confidence" in printed and "×140 passes" in printed
    assert rosewood(*words) == rosewood(*words)  # from its folder
    rosewood("evaluate", run, "--typo-rate", 0)
    rosewood("report", run, "--output", tmp_path / "report.html")
    assert "Certificates" in (tmp_path / "report.html").read_text()


def test_a_guard_is_checked_on_texts_that_broke_the_run_without_it(
    rosewood: Rosewood, run: Path, tmp_path: Path
) -> None:
    wrap = ("wrap", run, "--with", "guarded:energy", "--output")
    printed = " ".join(rosewood(*wrap, tmp_path / "early").split())
    assert f"not known yet: attack the model without it, rosewood attack {run} --attack pwws" in printed
    example = attacked_example(0, True, "").model_copy(
        update={"texts": {"text": "good film aa"}, "adversarial": "qqq film aa"}
    )
    result = attack_result(1, count=1).model_copy(update={"examples": [example]})
    save_outcome(result, run / "attacks" / "typos-test-1")
    printed = rosewood(*wrap, tmp_path / "guarded")
    model = load_classifier(str(tmp_path / "guarded" / "model"))[0]
    assert isinstance(model, Defended)
    found = detection(model, ["good film aa"], ["qqq film aa"])
    row = next(line for line in printed.splitlines() if "typos-test-1" in line)
    assert f"{found.auroc:.3f}" in row and f"{100 * found.caught:.1f} %" in row
    assert f"rosewood attack {tmp_path / 'guarded'} --attack pwws" in " ".join(printed.split())


def test_a_second_wrapper_is_refused_in_words_that_are_no_emoji(rosewood: Rosewood, run: Path, tmp_path: Path) -> None:
    rosewood("wrap", run, "--with", "smoothed:mask", "--output", tmp_path / "smoothed")
    printed = rosewood("wrap", tmp_path / "smoothed", "--with", "corrected", "--output", tmp_path / "x", code=1)
    assert "has a defence already, smoothed:mask: wrap the run that it was made from" in printed
