"""rosewood evaluate and rosewood attack on a file of the user's own: for a run, and for a checkpoint from elsewhere."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.conftest import Rosewood
from rosewood import attack, evaluate, robust_accuracy
from rosewood.errors import AbsentError, RunError
from rosewood.report.sections.training import _attack, _evaluation
from rosewood.results import AttackReport, Evaluation
from rosewood.words.language_models import SentenceEncoder
from tiny_attack import predicted, sentences
from tiny_runs import run_info
from tiny_text import tiny_classifier, tiny_tokenizer

NAMES = ("ham", "spam")
NOISES = ("typos", "keyboard", "case", "punctuation", "homoglyphs", "dropped_words")


@pytest.fixture(autouse=True)
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> SentenceEncoder:
        raise AbsentError("not installed")

    monkeypatch.setattr(SentenceEncoder, "load", absent)


@pytest.fixture
def rows() -> list[dict[str, str]]:
    """Sentences that the tiny model gets right, but for every tenth."""
    texts = sentences(30)
    right = predicted(tiny_classifier(), tiny_tokenizer(), texts)
    return [
        {"mail": text, "kind": NAMES[1 - y if i % 10 == 0 else y]}
        for i, (text, y) in enumerate(zip(texts, right, strict=True))
    ]


@pytest.fixture
def file(tmp_path: Path, rows: list[dict[str, str]]) -> Path:
    path = tmp_path / "mails.csv"
    with path.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, ["mail", "kind"])
        writer.writeheader()
        writer.writerows(rows)
    return path


def saved(folder: Path, names: tuple[str, ...]) -> Path:
    tiny_classifier(names).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path, file: Path) -> Path:
    """A run that was trained on a file with the same columns."""
    folder = tmp_path / "run"
    saved(folder / "model", NAMES)
    run_info("vanilla").model_copy(update={"max_length": 128}).save(folder / "run.json")
    source = {"folder": {"file": str(file), "columns": {"kind": "label"}}}
    task = {"name": "mails", "title": "M", "text": ["mail"], "labels": list(NAMES), "splits": {"train": source}}
    (folder / "task.yaml").write_text(yaml.safe_dump(task))
    return folder


def test_a_run_knows_the_columns_and_gets_every_noise(rosewood: Rosewood, run: Path, file: Path) -> None:
    printed = rosewood("evaluate", run, "--test-file", file)
    assert "Robustness on mails" in printed and "dropped words" in printed
    evaluation = Evaluation.load(run / "evaluation.json")
    clean = evaluation.sets[0]
    assert (clean.name, clean.role, clean.examples, clean.accuracy) == ("test", "clean", 30, 0.9)
    assert [each.name for each in evaluation.sets[1:]] == [f"{n} {s}" for n in NOISES for s in ("0.1", "0.2", "0.4")]
    assert evaluation.typo_rate is None
    words = list(_evaluation(evaluation))
    again = rosewood("evaluate", run, *words)
    assert again == printed


def test_typos_alone_or_no_noise(rosewood: Rosewood, run: Path, file: Path) -> None:
    rosewood("evaluate", run, "--test-file", file, "--typo-rate", 0.5)
    assert [each.name for each in Evaluation.load(run / "evaluation.json").sets] == ["test", "typos"]
    printed = rosewood("evaluate", run, "--test-file", file, "--typo-rate", 0)
    assert " 1 more set (typos" in printed and "or keep this one elsewhere with --output" in printed
    assert "This replaces" not in rosewood("evaluate", run, "--test-file", file, "--typo-rate", 0)
    assert [each.name for each in Evaluation.load(run / "evaluation.json").sets] == ["test"]


def test_a_checkpoint_from_elsewhere(rosewood: Rosewood, tmp_path: Path, file: Path) -> None:
    folder = saved(tmp_path / "checkpoint", ("LABEL_0", "LABEL_1"))
    asked = ("evaluate", folder, "--test-file", file, "--output", tmp_path / "out")
    assert "expected a column 'label' or 'labels'" in rosewood(*asked, code=1)
    columns = ("--text-column", "mail", "--label-column", "kind")
    assert "have no names to compare them with" in rosewood(*asked, *columns, code=1)
    rosewood(*asked, *columns, "--labels", "ham,spam")
    assert Evaluation.load(tmp_path / "out" / "evaluation.json").sets[0].accuracy == 0.9
    rosewood(*asked, *columns, "--labels", "spam,ham")
    assert Evaluation.load(tmp_path / "out" / "evaluation.json").sets[0].accuracy == pytest.approx(0.1)


def test_a_checkpoint_and_a_run_come_to_one_table(
    rosewood: Rosewood, run: Path, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user has who brings a checkpoint: it is measured in its own folder, at the length of the run."""
    monkeypatch.chdir(tmp_path)
    checkpoint = saved(tmp_path / "checkpoint", ("ham", "spam"))
    columns = ("--test-file", file, "--text-column", "mail", "--label-column", "kind")
    printed = rosewood("evaluate", checkpoint, run, *columns, "--typo-rate", 0)
    assert f"The results are in {checkpoint}, {run}" in printed.replace("\n", "")
    rosewood("attack", checkpoint, run, *columns, "--attack", "typos", "--examples", 6)
    both = [next(folder.glob("attacks/*/attack.json")) for folder in (checkpoint, run)]
    assert len({AttackReport.load(path).max_length for path in both}) == 1
    table = rosewood("table", checkpoint, run, "--baseline", "checkpoint")
    assert "at guessing" in table and "same seed" not in table, "they are paired, and only guessing keeps them apart"
    assert "typos (1)" not in table, "both met the same attack"


def test_an_attack_on_a_file(rosewood: Rosewood, run: Path, tmp_path: Path, file: Path) -> None:
    asked = ("--test-file", file, "--attack", "typos")
    rosewood("attack", run, *asked)
    (report,) = [AttackReport.load(path) for path in run.glob("attacks/*/attack.json")]
    assert report.summary.clean_accuracy == 0.9 and report.field == "mail"
    assert "This attack was made before" in rosewood("attack", run, *_attack(report))
    folder = saved(tmp_path / "checkpoint", ("LABEL_0", "LABEL_1"))
    columns = ("--text-column", "mail", "--label-column", "kind", "--output", tmp_path / "out")
    assert "have no names to compare them with" in rosewood("attack", folder, *asked, *columns, code=1)
    assert "--labels: expected 2 names" in rosewood("attack", folder, *asked, *columns, "--labels", "a,b,c", code=1)
    rosewood("attack", folder, *asked, *columns, "--labels", "ham,spam")
    (other,) = [AttackReport.load(path) for path in (tmp_path / "out").glob("*/attack.json")]
    assert other.summary == report.summary


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--label-column", "kind"), "name columns of a file of your own: add --test-file"),
        (("--test-file", "FILE", "--task", "sst2"), "as are --task and --suite: give one of them"),
        (("--test-file", "FILE", "--text-column", "male"), "did you mean mail"),
        (("--test-file", "FILE", "--label-column", "kinds"), "did you mean kind"),
        (("--test-file", "none.csv"), "none.csv: no such file"),
        (
            ("--test-file", "FILE", "--text-column", "mail", "--text-column", "kind"),
            "was trained on 1 text per example",
        ),
    ],
)
@pytest.mark.parametrize("command", [("evaluate",), ("attack", "--attack", "typos")], ids=["evaluate", "attack"])
def test_what_does_not_fit_is_refused(
    rosewood: Rosewood, run: Path, file: Path, command: tuple[str, ...], words: tuple[str, ...], message: str
) -> None:
    given = [file if word == "FILE" else word for word in words]
    assert message in " ".join(rosewood(*command, run, *given, code=1).split())


def test_python_takes_rows_and_files(rows: list[dict[str, str]], file: Path) -> None:
    model, tokenizer = tiny_classifier(NAMES), tiny_tokenizer()
    columns = {"text_columns": ["mail"], "label_column": "kind"}
    for data in (rows, file, str(file)):
        assert evaluate(model, tokenizer, data, typo_rate=0, **columns).sets[0].accuracy == 0.9
        found = attack(model, tokenizer, data, "typos", progress=False, **columns)
        assert found.summary.clean_accuracy == 0.9
        assert robust_accuracy(model, tokenizer, data, "typos", progress=False, **columns) == found.summary
    renamed = [{"text": row["mail"], "labels": NAMES.index(row["kind"])} for row in rows]
    assert evaluate(model, tokenizer, renamed, typo_rate=0).sets[0].accuracy == 0.9
    assert robust_accuracy(model, tokenizer, renamed, "typos", progress=False) == found.summary


@pytest.mark.parametrize("measure", [evaluate, attack, robust_accuracy])
def test_a_model_by_its_name_is_refused_in_python(measure: Any) -> None:
    rows = [{"text": "a good film", "label": 0}]
    words = () if measure is evaluate else ("typos",)
    with pytest.raises(RunError, match="model: expected a model, got str: load it first, with AutoModelFor"):
        measure("folder/of/a/model", tiny_tokenizer(), rows, *words)
    with pytest.raises(RunError, match="tokenizer: expected a tokenizer, got NoneType"):
        measure(tiny_classifier(), None, rows, *words)
