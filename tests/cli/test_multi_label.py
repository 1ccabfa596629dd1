"""A multi-label task from its own file to the report, and what refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

from cli.conftest import Rosewood
from rosewood import attack, evaluate
from rosewood.errors import DataError, RunError
from rosewood.results import AttackReport, Evaluation
from rosewood.results.evaluation import is_guessing
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

WORDS = {"comedy": "good", "drama": "film"}


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Texts whose labels a model can learn from single words."""
    path = tmp_path / "films.jsonl"
    rows = []
    for i in range(120):
        labels = [label for place, label in enumerate(WORDS) if i >> place & 1]
        words = [*(WORDS[each] for each in labels), chr(97 + i % 26), chr(97 + i // 5)]
        rows.append({"text": " ".join(words), "label": labels})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture
def run(rosewood: Rosewood, films: Path, tmp_path: Path) -> Path:
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint")
    output = tmp_path / "run"
    rosewood(
        *("train", "--recipe", "r-drop", "--model", checkpoint, "--train-file", films, "--test-file", films),
        *("--max-length", 16, "--epochs", 12, "--batch-size", 8, "--learning-rate", "3e-3", "--output", output),
        "--new-head",
    )
    return output


def test_from_a_file_to_a_report(rosewood: Rosewood, run: Path, films: Path, tmp_path: Path) -> None:
    config = json.loads((run / "model" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification" and list(config["label2id"]) == ["comedy", "drama"]
    assert json.loads((run / "metrics.json").read_text())["validation_accuracy"] > 0.5
    printed = rosewood("evaluate", run, "--by-class")
    assert "macro F1" in printed and "Classes" in printed and "Confusion" not in printed
    clean = Evaluation.load(run / "evaluation.json").sets[0]
    table = pq.read_table(run / "predictions-task-films.parquet").to_pylist()
    rows = [row for row in table if row["set"] == "test"]
    logits = np.array([row["logits"] for row in rows])
    truth = np.array([[label in json.loads(row["label"]) for label in WORDS] for row in rows])
    assert clean.accuracy == ((logits > 0) == truth).all(axis=1).mean() > 0.6
    assert clean.macro_f1 == pytest.approx(f1_score(truth, logits > 0, average="macro"))
    assert clean.micro_f1 == pytest.approx(f1_score(truth, logits > 0, average="micro"))
    chances = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert clean.nll == pytest.approx(-np.log(np.where(truth, chances, 1 - chances)).mean(), abs=1e-9)
    rosewood("table", run)
    rosewood("report", run, "--output", tmp_path / "report.html")
    assert "Classes" in (tmp_path / "report.html").read_text()
    printed = rosewood("attack", run, "--attack", "typos", "--examples", 40, "--show", 2)
    assert "[comedy" in printed or "[drama" in printed
    (folder,) = (run / "attacks").iterdir()
    assert AttackReport.load(folder / "attack.json").label_names == ["comedy", "drama"]
    rosewood("report", run, "--output", tmp_path / "report.html", "--overwrite")
    assert "Texts that broke under typos" in (tmp_path / "report.html").read_text()
    rosewood("evaluate", run, "--test-file", films)
    assert Evaluation.load(run / "evaluation.json").sets[0].accuracy == clean.accuracy


def test_what_needs_one_label_says_so(rosewood: Rosewood, run: Path, films: Path, tmp_path: Path) -> None:
    assert "attack it with rosewood attack" in rosewood("evaluate", run, "--attack", "typos", code=1)
    assert "need one label per text" in rosewood("landscape", run, "--output", tmp_path / "l", code=1)
    words = ("train", "--model", tmp_path / "checkpoint", "--train-file", films, "--output", tmp_path / "other")
    other_order = rosewood(*words, "--labels", "drama,comedy", code=1)
    assert "with several labels per text both must have one order" in other_order
    words = (*words, "--new-head")
    assert "--class-weights needs one" in rosewood(*words, "--class-weights", "balanced", code=1)
    assert "--select-by needs one" in rosewood(*words, "--select-by", "typos", code=1)
    assert "several labels at once" in rosewood(*words, "--recipe", "informative", code=1)
    assert not (tmp_path / "other").exists()


def test_labels_and_model_must_be_of_one_kind(films: Path) -> None:
    tokenizer, rows = tiny_tokenizer(), [{"text": "good", "label": ["comedy"]}]
    single, several = (tiny_classifier(tuple(WORDS)) for _ in range(2))
    single.config.problem_type = "single_label_classification"
    several.config.problem_type = "multi_label_classification"
    with pytest.raises(RunError, match="the labels of own rows are lists, and the model gives every text one label"):
        evaluate(single, tokenizer, rows)
    with pytest.raises(RunError, match=r"the model is for several labels per text .* has one label per text"):
        evaluate(several, tokenizer, [{"text": "good", "label": "comedy"}])
    assert evaluate(several, tokenizer, rows, typo_rate=0).multi_label
    with pytest.raises(RunError, match=r"the labels are lists such as .* and the model gives every text one label"):
        attack(single, tokenizer, rows, "typos")
    with pytest.raises(DataError, match="the model is for several labels per text: expected a 0 or 1 for each of 2"):
        attack(several, tokenizer, [{"text": "good", "label": "comedy"}], "typos")


def test_a_model_that_never_gives_a_label_is_marked(rosewood: Rosewood, tmp_path: Path) -> None:
    """It is right on every text without a label, whatever is done to the text."""
    model = tiny_classifier(tuple(WORDS))
    model.config.problem_type = "multi_label_classification"
    model.classifier.weight.data.zero_()
    model.classifier.bias.data.fill_(-5)
    silent, own = tmp_path / "silent", tmp_path / "own.jsonl"
    model.save_pretrained(silent)
    tiny_tokenizer().save_pretrained(silent)
    labels = [[], [], [], ["comedy"], ["comedy", "drama"]]
    own.write_text("\n".join(json.dumps({"text": f"film {chr(97 + i)}", "label": labels[i % 5]}) for i in range(20)))
    assert "at guessing" in rosewood("evaluate", silent, "--test-file", own)
    found = Evaluation.load(silent / "evaluation.json")
    assert (found.sets[0].accuracy, found.sets[0].majority) == (0.6, 0.6) and is_guessing(found)
    assert "‡: at guessing" in rosewood("table", silent)
    assert "‡" in rosewood("attack", silent, "--attack", "typos", "--test-file", own, "--show", 0)
    (folder,) = (silent / "attacks").iterdir()
    assert AttackReport.load(folder / "attack.json").summary.majority == 0.6
