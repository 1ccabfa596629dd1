"""What holds for every defence, found through the registry: a new file is tested the day it appears."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer as Backend
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast, pipeline

from rosewood.attacks.runner.api import attack
from rosewood.defences.runner.wrap import wrap
from rosewood.errors import RunError
from rosewood.evaluation.evaluate import evaluate
from rosewood.evaluation.predict import checkpoint_fingerprint
from rosewood.models.defended import forwards_of
from rosewood.models.names import model_fingerprint
from rosewood.models.open import load_classifier
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, sentences
from tiny_defences import KINDS, logits, wrapped

Model, Tokenizer = BertForSequenceClassification, PreTrainedTokenizerFast
each = pytest.mark.parametrize("kind", KINDS)
ROWS = [(text,) for text in [*sentences(9), "", "Good,  film!\u200b", "caf\u00e9 \U0001f600"]]
PAIRS = list(zip(sentences(5, seed=3), sentences(5, seed=4), strict=True))


@each
def test_the_answer_to_a_text_does_not_depend_on_its_batch(kind: str, model: Model, tokenizer: Tokenizer) -> None:
    defended = wrapped(model, tokenizer, kind)
    whole = logits(defended, defended.tokenizer, ROWS)
    alone = logits(defended, defended.tokenizer, ROWS, batch_size=1)
    backwards = logits(defended, defended.tokenizer, ROWS[::-1], batch_size=5)[::-1]
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(alone, whole, atol=1e-4)
    np.testing.assert_allclose(backwards, whole, atol=1e-4)


@each
def test_the_classifier_inside_may_call_its_padding_anything(kind: str, model: Model, tokenizer: Tokenizer) -> None:
    expected = wrapped(model, tokenizer, kind)
    backend = tokenizer.backend_tokenizer.to_str().replace("[PAD]", "<pad>")
    other = PreTrainedTokenizerFast(
        tokenizer_object=Backend.from_str(backend), **{**tokenizer.special_tokens_map, "pad_token": "<pad>"}
    )
    defended = wrapped(model, other, kind)
    np.testing.assert_array_equal(
        logits(defended, defended.tokenizer, ROWS), logits(expected, expected.tokenizer, ROWS)
    )


@each
def test_a_wrapped_model_comes_back_from_disk(kind: str, model: Model, tokenizer: Tokenizer, tmp_path: Path) -> None:
    defended = wrapped(model, tokenizer, kind)
    defended.save_pretrained(tmp_path)
    again, own = load_classifier(str(tmp_path))
    for rows in (ROWS, PAIRS):
        expected = logits(defended, defended.tokenizer, rows)
        np.testing.assert_allclose(logits(again, own, rows), expected, atol=1e-5)
    assert (
        model_fingerprint(again, own)
        == model_fingerprint(defended, defended.tokenizer)
        != model_fingerprint(model, tokenizer)
    )
    assert checkpoint_fingerprint(again, own) != checkpoint_fingerprint(model, tokenizer)
    assert not [file for file in tmp_path.rglob("*") if file.suffix in (".bin", ".pt", ".pkl")]
    np.testing.assert_array_equal(  # the classifier inside is a checkpoint of its own
        logits(*load_classifier(str(tmp_path / "model")), ROWS), logits(model, tokenizer, ROWS)
    )


@each
def test_it_can_be_sent_to_another_process(kind: str, model: Model, tokenizer: Tokenizer) -> None:
    defended = wrapped(model, tokenizer, kind)
    other = pickle.loads(pickle.dumps(defended))
    np.testing.assert_array_equal(logits(other, other.tokenizer, ROWS), logits(defended, defended.tokenizer, ROWS))


@each
def test_it_works_in_a_pipeline(kind: str, model: Model, tokenizer: Tokenizer, tmp_path: Path) -> None:
    defended = wrapped(model, tokenizer, kind)
    texts = [text for (text,) in ROWS if text]
    expected = logits(defended, defended.tokenizer, [(text,) for text in texts]).argmax(axis=1)
    names = [defended.config.id2label[label] for label in expected]
    told = pipeline("text-classification", model=defended, tokenizer=defended.tokenizer)
    assert [answer["label"] for answer in told(texts)] == names
    assert [answer["label"] for answer in told(texts, batch_size=4)] == names
    defended.save_pretrained(tmp_path)
    assert pipeline("text-classification", model=str(tmp_path))(texts[0])[0]["label"] == names[0]
    assert told({"text": PAIRS[0][0], "text_pair": PAIRS[0][1]})["label"] in defended.config.id2label.values()


@each
def test_the_text_is_cut_where_the_classifier_reads_it(kind: str, model: Model, tokenizer: Tokenizer) -> None:
    defended = wrapped(model, tokenizer, kind)
    text = " ".join(sentences(30))
    with torch.inference_mode():
        whole, cut = (
            defended(**defended.tokenizer([text], truncation=True, max_length=length, return_tensors="pt")).logits
            for length in (128, 4)
        )
    assert defended(**defended.tokenizer([text], return_tensors="pt")).logits.equal(whole)
    assert cut.shape == whole.shape


@each
def test_it_is_evaluated_and_attacked_like_any_model(kind: str, model: Model, tokenizer: Tokenizer) -> None:
    defended = wrapped(model, tokenizer, kind)
    texts = sentences(8)
    labels = logits(defended, defended.tokenizer, [(text,) for text in texts]).argmax(axis=1).tolist()
    data = Dataset.from_dict({"text": texts, "label": [min(label, 1) for label in labels]})
    found = evaluate(defended, defended.tokenizer, data, size=8, typo_rate=0.3)
    assert found.forwards == forwards_of(defended) == defended.defence.forwards()
    result = attack(defended, defended.tokenizer, data, "typos", max_queries=20, progress=False)
    assert result.forwards == defended.defence.forwards()
    assert result.summary.examples == 8
    with pytest.raises(RunError, match="needs gradients"):
        attack(defended, defended.tokenizer, data, "gradient", lexicon=Lexicon.of(ENTRIES), progress=False)


def test_what_cannot_be_wrapped_is_refused(model: Model, tokenizer: Tokenizer) -> None:
    defended = wrap(model, tokenizer, "smoothed:delete", copies=2)
    with pytest.raises(RunError, match="has a defence already, smoothed:delete"):
        wrap(defended, tokenizer)
    with pytest.raises(RunError, match="need a lexicon"):
        wrap(model, tokenizer, "smoothed:substitute")
    with pytest.raises(RunError, match="got 3"):
        wrap(model, tokenizer, 3)  # type: ignore[arg-type]
    model.config.problem_type = "multi_label_classification"
    with pytest.raises(RunError, match="several labels"):
        wrap(model, tokenizer)
