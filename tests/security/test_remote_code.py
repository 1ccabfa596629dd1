"""The code that comes with a checkpoint runs only if the user names the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rosewood.cli import app, evaluate, train  # noqa: F401  they add their commands
from rosewood.cli.evaluate import evaluate_one
from rosewood.data.tasks import load_task
from rosewood.errors import RunError
from rosewood.models.open import load_classifier, load_pretrained
from tiny_text import save_tiny_checkpoint

CODE = """
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification
Path({marker!r}).touch()
class Config(BertConfig):
    model_type = "homemade"
class Classifier(BertForSequenceClassification):
    config_class = Config
"""


@pytest.fixture
def homemade(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of a kind that transformers does not know, with the code that would make it known."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = save_tiny_checkpoint(tmp_path / "homemade")
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "code.Config", "AutoModelForSequenceClassification": "code.Classifier"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "homemade", "auto_map": names}))
    (folder / "code.py").write_text(CODE.format(marker=str(marker)))
    return folder


def test_training_names_the_way_out_and_runs_nothing(homemade: Path, marker: Path) -> None:
    with pytest.raises(RunError) as error:
        load_pretrained(str(homemade), load_task("reviews"), seed=0)
    assert "it comes with code of its own" in str(error.value)
    assert f"--trust-remote-code {homemade}" in str(error.value)
    assert not marker.exists()


def test_evaluation_names_the_way_out_and_runs_nothing(homemade: Path, marker: Path) -> None:
    with pytest.raises(RunError, match="--trust-remote-code"):
        evaluate_one(str(homemade), "reviews", None, 4, 8, 0.3, 0)
    assert not marker.exists()


def test_code_for_the_tokenizer_is_code_too(tmp_path: Path, marker: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": [None, "code.Mine"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "code.py").write_text(CODE.format(marker=str(marker)))
    for load in (lambda: load_pretrained(str(folder), load_task("reviews"), 0), lambda: load_classifier(str(folder))):
        try:
            load()  # transformers may do without the code, or not
        except RunError as error:
            assert "--trust-remote-code" in str(error)
        assert not marker.exists()


def test_a_named_checkpoint_is_trusted(homemade: Path, marker: Path) -> None:
    model, _ = load_pretrained(str(homemade), load_task("reviews"), seed=0, trust_remote_code=True)
    assert type(model).__name__ == "Classifier"
    assert marker.exists()


def test_trusting_another_checkpoint_is_not_trusting_this_one(homemade: Path, marker: Path, tmp_path: Path) -> None:
    films = tmp_path / "films.csv"
    films.write_text("text,label\n" + "".join(f"film {i},{i % 2}\n" for i in range(8)))
    words = ["train", "--model", homemade, "--train-file", films, "--output", tmp_path / "run"]
    result = CliRunner().invoke(app, [*map(str, words), "--trust-remote-code", "minilm"])
    assert isinstance(result.exception, RunError)
    assert f"--trust-remote-code {homemade}" in str(result.exception)
    result = CliRunner().invoke(app, ["evaluate", str(homemade), "--task", "reviews", "--trust-remote-code", "minilm"])
    assert isinstance(result.exception, RunError)
    assert not marker.exists()
    assert not (tmp_path / "run").exists()
