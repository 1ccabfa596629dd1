"""Perplexity of texts, from models that were trained to predict the next word."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rosewood.errors import RunError
from rosewood.words.language_models import CausalLM
from tiny_text import save_tiny_checkpoint, tiny_causal_lm


@pytest.fixture(scope="module")
def causal_lm() -> CausalLM:
    return tiny_causal_lm()


def test_a_token_costs_what_the_model_says(causal_lm: CausalLM) -> None:
    texts = ["good film", "a", "", "a good film " * 5]
    for text, found in zip(texts, causal_lm.surprise(texts), strict=True):
        ids = causal_lm._tokenizer("[CLS]" + text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            chances = causal_lm._model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        costs = [-float(chances[i, token]) for i, token in enumerate(ids[1:])]
        assert found == pytest.approx(np.mean(costs) if costs else 0.0, abs=1e-5)


def test_a_model_from_a_folder(causal_lm: CausalLM, tmp_path: Path) -> None:
    causal_lm._model.save_pretrained(tmp_path / "lm")
    causal_lm._tokenizer.save_pretrained(tmp_path / "lm")
    loaded = CausalLM.load(str(tmp_path / "lm"))
    assert loaded.fingerprint == causal_lm.fingerprint
    np.testing.assert_allclose(loaded.surprise(["a film"]), causal_lm.surprise(["a film"]), rtol=1e-6)


def test_what_is_no_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot load a causal language model from /no/where"):
        CausalLM.load("/no/where")
    classifier = save_tiny_checkpoint(tmp_path / "classifier")
    with pytest.raises(RunError, match="is not a causal language model: it has no weights for"):
        CausalLM.load(str(classifier))
