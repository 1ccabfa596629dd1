"""Features are what the last layer multiplies, whatever the architecture."""

from collections.abc import Callable

import pytest
import torch
from transformers import (
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from rosewood.errors import RunError
from rosewood.models.features import HeadInputs, output_layer

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def models() -> dict[str, Callable[[], PreTrainedModel]]:
    gpt = GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2, pad_token_id=0, num_labels=3)
    roberta = RobertaConfig(vocab_size=60, pad_token_id=0, num_labels=3, **SIZES)
    return {
        "gpt2": lambda: GPT2ForSequenceClassification(gpt),
        "roberta": lambda: RobertaForSequenceClassification(roberta),
    }


@pytest.mark.parametrize("name", models())
def test_features_times_weight_are_the_logits(name: str) -> None:
    model = models()[name]().eval()
    batch = {
        "input_ids": torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    }
    with torch.no_grad(), HeadInputs(model) as head:
        logits = model(**batch).logits
        layer = output_layer(model)
        again = torch.nn.functional.linear(torch.from_numpy(head.latest()), layer.weight, layer.bias)
    torch.testing.assert_close(again, logits)


def test_hooks_are_gone_afterwards_and_inactive_ones_never_there(
    make_model: Callable[..., BertForSequenceClassification], tokenizer: PreTrainedTokenizerFast
) -> None:
    model = make_model()
    with HeadInputs(model):
        assert model._forward_pre_hooks and output_layer(model)._forward_pre_hooks
    assert not model._forward_pre_hooks and not output_layer(model)._forward_pre_hooks
    with HeadInputs(model, active=False):
        assert not model._forward_pre_hooks


def test_a_model_without_such_a_layer(make_model: Callable[..., BertForSequenceClassification]) -> None:
    model = make_model()
    model.config.num_labels = 7
    with pytest.raises(RunError, match="no linear layer with 7 outputs"):
        output_layer(model)
