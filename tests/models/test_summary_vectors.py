"""The vector that sums up a text is the one that the model's own head reads, in every architecture."""

from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from architectures import ARCHITECTURES, EosData, PaddedEosData, t5_encoder
from rosewood.errors import RunError
from rosewood.models.adapters import encoder
from rosewood.models.features import SummaryVectors
from rosewood.protocol import Output
from tiny import tiny_bert
from tiny_lora import tiny_lora


def call_of(model: Any) -> Any:
    def call(batch: Any, other: Any = None) -> Output:
        output = (model if other is None else other)(**batch)
        return Output(output.loss, output.logits)

    return call


@pytest.mark.parametrize("build", [b for b in ARCHITECTURES if b is not t5_encoder], ids=lambda build: build.__name__)
def test_the_token_is_the_one_that_the_head_reads(build: Any) -> None:
    torch.manual_seed(0)
    model: Any = build().eval()
    # XLNet's head takes the very last token: its tokenizer pads on the left.
    data = EosData() if build.__name__ == "xlnet" else PaddedEosData(model)
    batch = default_collate([data[i] for i in range(6)])
    hidden = []

    def see(module: Any, args: Any, output: Any) -> None:
        output.last_hidden_state.retain_grad()
        hidden.append(output.last_hidden_state)

    encoder(model).register_forward_hook(see)
    vectors = SummaryVectors(model, "token")
    output = vectors.watching(call_of(model))(batch)
    output.loss.backward()
    read = hidden[0].grad.abs().sum(-1) > 0
    assert output.features.shape == (6, 16)
    assert read.sum(1).tolist() == [1] * 6
    assert torch.equal(output.features, hidden[0][read])


@pytest.mark.parametrize("build", [tiny_bert, tiny_lora])
def test_the_pooler(build: Any) -> None:
    model: Any = build().eval()
    batch = default_collate([EosData()[i] for i in range(3)])
    vectors = SummaryVectors(model, "pooler")
    watched = vectors.watching(call_of(model))
    expected = encoder(model)(**{key: value for key, value in batch.items() if key != "labels"}).pooler_output
    assert torch.equal(watched(batch).features, expected)
    assert watched(batch, tiny_bert(seed=1)).features is None, "another model is not watched"
    vectors.stop()
    assert watched(batch).features is None


def test_without_a_mask_a_decoder_knows_its_padding() -> None:
    from architectures import gpt2

    model: Any = gpt2().eval()
    data = PaddedEosData(model)
    batch = default_collate([data[i] for i in range(6)])
    watched = SummaryVectors(model, "pooler").watching(call_of(model))
    unmasked = {key: value for key, value in batch.items() if key != "attention_mask"}
    torch.testing.assert_close(watched(batch).features, watched(unmasked).features)


def test_parts_of_a_batch_are_noticed() -> None:
    model = tiny_bert()
    batch = default_collate([EosData()[i] for i in range(4)])
    half = {key: value[:2] for key, value in batch.items()}
    watched = SummaryVectors(model, "token").watching(lambda batch, other=None: call_of(model)(half))
    with pytest.raises(RunError, match="a batch of 4 examples gave features of 2, as with several GPUs in one process"):
        watched(batch)
