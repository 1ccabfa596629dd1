"""A classifier as an ONNX file: the same scores, the same outcome of attacks, on the command line too."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from rosewood import attack, open_run
from rosewood.cli import main
from rosewood.errors import RunError
from rosewood.models import onnx
from rosewood.models.modes import evaluating
from rosewood.models.names import model_fingerprint
from rosewood.models.scoring import Scorer
from tiny_attack import predicted, sentences
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx") / "exported"
    assert onnx.export_onnx(tiny_classifier(), tiny_tokenizer(), folder) < 1e-4
    return folder


def scores(model: object, tokenizer: PreTrainedTokenizerBase, texts: list[tuple[str, ...]], size: int) -> np.ndarray:
    found = np.empty((len(texts), 2))
    with evaluating(model):
        for rows, logits in Scorer(model, tokenizer, 32, size).batches(texts):
            found[rows] = logits
    return found


def test_scores_agree_for_any_number_and_length_of_texts(exported: Path) -> None:
    opened = open_run(exported)
    texts = [(text,) for text in sentences(9)]
    texts += [(one, other) for one, other in zip(sentences(4), sentences(4, seed=2), strict=True)]
    single, pairs = texts[:9], texts[9:]
    for rows in (single, pairs, single[:1]):
        expected = scores(tiny_classifier(), tiny_tokenizer(), rows, 4)
        np.testing.assert_allclose(scores(opened.model, opened.tokenizer, rows, 4), expected, atol=1e-4)
        assert np.ptp(expected) > 0.1 or len(rows) == 1, "scores that differ, so that agreeing means something"


def test_an_attack_has_the_same_outcome(exported: Path) -> None:
    model, tokenizer, opened = tiny_classifier(), tiny_tokenizer(), open_run(exported)
    texts = sentences(6)
    rows = [
        {"text": text, "label": label} for text, label in zip(texts, predicted(model, tokenizer, texts), strict=True)
    ]
    one = attack(model, tokenizer, rows, "typos", progress=False)
    other = attack(opened.model, opened.tokenizer, rows, "typos", progress=False)
    assert [(each.status, each.adversarial, each.queries) for each in one.examples] == [
        (each.status, each.adversarial, each.queries) for each in other.examples
    ]
    assert one.summary.robust_accuracy == other.summary.robust_accuracy


def test_what_cannot_be_attacked_by_gradients_says_so(exported: Path) -> None:
    opened = open_run(exported)
    rows = [{"text": text, "label": 0} for text in sentences(2)]
    with pytest.raises(RunError):
        attack(opened.model, opened.tokenizer, rows, "gradient", progress=False)


def test_it_travels_to_other_processes_and_has_a_fingerprint(exported: Path, tmp_path: Path) -> None:
    opened = open_run(exported)
    again = pickle.loads(pickle.dumps(opened.model))
    assert model_fingerprint(again, opened.tokenizer) == model_fingerprint(opened.model, opened.tokenizer)
    other = tiny_classifier()
    other.classifier.bias.data += 1
    onnx.export_onnx(other, tiny_tokenizer(), tmp_path)
    assert model_fingerprint(open_run(tmp_path).model, opened.tokenizer) != model_fingerprint(
        opened.model, opened.tokenizer
    )


def test_a_file_with_other_scores_is_refused(exported: Path) -> None:
    model = tiny_classifier()
    model.classifier.bias.data[0] += 1
    with pytest.raises(RunError, match="gives other scores than the model: a logit differs by 1"):
        onnx._difference(model, onnx.OnnxClassifier.from_pretrained(exported), tiny_tokenizer())


def test_a_missing_package_is_named(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(RunError, match=r"needs onnxruntime: pip install 'rosewood\[onnx\]'"):
        open_run(exported)


def test_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, output = save_tiny_checkpoint(tmp_path / "checkpoint"), tmp_path / "exported"

    def rosewood(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["rosewood", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out + printed.err

    code, printed = rosewood("export", checkpoint, "--output", output)
    assert code == 0 and "gives the same scores" in printed
    assert {"model.onnx", "config.json", "tokenizer.json"} <= {path.name for path in output.iterdir()}
    assert rosewood("export", checkpoint, "--output", output) == (1, f"Error: {output} exists: choose a new folder\n")
