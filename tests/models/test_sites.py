"""The places where perturbations reach into a model, on the architectures people fine-tune."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.utils.data import default_collate

from architectures import ARCHITECTURES, EosData
from rosewood.errors import RunError
from rosewood.models.modes import DropoutSetting
from rosewood.models.sites import FeedForwards, Place, Site, ffn_problems, real_tokens, site_problems
from tiny import tiny_bert

SITES: list[Place] = ["words", "encoder"]
# What gives the encoder's input; the others have it inside a module that does more.
EMBEDDINGS = {
    "bert": "bert.embeddings",
    "roberta": "roberta.embeddings",
    "distilbert": "distilbert.embeddings",
    "albert": "albert.embeddings",
    "electra": "electra.embeddings_project",
    "deberta": "deberta.embeddings",
    "mpnet": "mpnet.embeddings",
    "gpt2": "transformer.drop",
    "modernbert": "model.embeddings",
    "llama": "model.embed_tokens",
}
FEED_FORWARD = {
    "bert": "bert.encoder.layer.{}.output.dense",
    "roberta": "roberta.encoder.layer.{}.output.dense",
    "distilbert": "distilbert.transformer.layer.{}.ffn.lin2",
    "albert": "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output",
    "electra": "electra.encoder.layer.{}.output.dense",
    "deberta": "deberta.encoder.layer.{}.output.dense",
    "mpnet": "mpnet.encoder.layer.{}.output.dense",
    "xlnet": "transformer.layer.{}.ff.layer_2",
    "gpt2": "transformer.h.{}.mlp.c_proj",
    "t5": "transformer.encoder.block.{}.layer.1.DenseReluDense.wo",
    "t5_encoder": "transformer.encoder.block.{}.layer.1.DenseReluDense.wo",
    "modernbert": "model.layers.{}.mlp.Wo",
    "llama": "model.layers.{}.mlp.down_proj",
}
# The dropout that follows it, where there is one.
FOLLOWING = {
    "bert": "bert.encoder.layer.{}.output.dropout",
    "roberta": "roberta.encoder.layer.{}.output.dropout",
    "distilbert": "distilbert.transformer.layer.{}.ffn.dropout",
    "electra": "electra.encoder.layer.{}.output.dropout",
    "deberta": "deberta.encoder.layer.{}.output.dropout",
    "mpnet": "mpnet.encoder.layer.{}.output.dropout",
    "xlnet": "transformer.layer.{}.ff.dropout",
    "gpt2": "transformer.h.{}.mlp.dropout",
    "t5": "transformer.encoder.block.{}.layer.1.dropout",
    "t5_encoder": "transformer.encoder.block.{}.layer.1.dropout",
}
ROWS, TOKENS, HIDDEN, HEADS = 3, 8, 16, 2

Build = Callable[[], nn.Module]
every_architecture = pytest.mark.parametrize("build", ARCHITECTURES, ids=lambda build: build.__name__)
every_site = pytest.mark.parametrize("site", SITES)


def made(build: Build) -> tuple[Any, dict[str, Tensor]]:
    torch.manual_seed(0)
    model: Any = build()
    model.double().eval().set_attn_implementation("eager")
    data = EosData(per_token=build.__name__ == "t5_encoder")
    return model, default_collate([data[i] for i in range(ROWS)])


def captured(model: nn.Module, name: str, batch: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    seen: list[Tensor] = []
    hook = model.get_submodule(name).register_forward_hook(lambda module, args, output: seen.append(output))
    logits = model(**batch).logits
    hook.remove()
    return seen, logits


@every_site
@every_architecture
def test_adding_zero_changes_no_bit_and_adding_something_changes_the_answer(build: Build, site: Place) -> None:
    model, batch = made(build)
    expected = model(**batch).logits
    shapes = []

    def add(amount: float) -> Callable[[Tensor], Tensor]:
        def change(hidden: Tensor) -> Tensor:
            shapes.append(tuple(hidden.shape))
            # Not the same for every unit: a layer norm would take that out again.
            return hidden + amount * torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view_as(hidden)

        return change

    with Site(site, model).changed(add(0.0)):
        assert torch.equal(model(**batch).logits, expected)
    with Site(site, model).changed(add(1.0)):
        assert (model(**batch).logits - expected).abs().max() > 1e-5
    assert torch.equal(model(**batch).logits, expected), "leaving must leave nothing behind"
    width = shapes[0][2]
    assert shapes == [(ROWS, TOKENS, width)] * 2, "once per forward, the batch first"
    assert width == Site(site, model).width


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_the_encoder_gets_exactly_what_the_embeddings_give(name: str) -> None:
    model, batch = made(next(build for build in ARCHITECTURES if build.__name__ == name))
    seen: list[Tensor] = []
    with Site("encoder", model).changed(lambda hidden: seen.append(hidden) or hidden):  # type: ignore[func-returns-value]
        embeddings, _ = captured(model, EMBEDDINGS[name], batch)
    assert len(seen) == 1
    assert torch.equal(seen[0], embeddings[0])


@every_architecture
def test_words_are_rows_of_the_embedding_matrix(build: Build) -> None:
    model, batch = made(build)
    seen: list[Tensor] = []
    with Site("words", model).changed(lambda hidden: seen.append(hidden) or hidden):  # type: ignore[func-returns-value]
        model(**batch)
    (words,) = seen
    assert torch.equal(words, model.get_input_embeddings().weight[batch["input_ids"]])


@every_architecture
def test_a_change_reaches_its_own_row_and_token(build: Build) -> None:
    """In XLNet the axes are swapped inside; what changes one example must not reach the others."""
    model, batch = made(build)
    expected = model(**batch).logits
    for site in SITES:

        def first_row(hidden: Tensor) -> Tensor:
            noise = torch.zeros_like(hidden)
            noise[0, TOKENS - 1] = torch.linspace(-1, 1, hidden.shape[-1])
            return hidden + noise

        with Site(site, model).changed(first_row):
            found = model(**batch).logits
        torch.testing.assert_close(found[1:], expected[1:], rtol=0, atol=1e-12)
        assert (found[0] - expected[0]).abs().max() > 1e-6


@every_architecture
def test_the_feed_forward_output_of_every_layer(build: Build) -> None:
    model, batch = made(build)
    seen: list[tuple[int, Tensor, Tensor]] = []

    def look(layer: int, output: Tensor, attention: Tensor) -> Tensor:
        seen.append((layer, output, attention))
        return output

    expected = model(**batch).logits
    with FeedForwards(model).changed(look):
        assert torch.equal(model(**batch).logits, expected)
    assert [layer for layer, _, _ in seen] == [0, 1]
    for layer, output, attention in seen:
        outputs, _ = captured(model, FEED_FORWARD[build.__name__].format(layer), batch)
        own = outputs[layer if build.__name__ == "albert" else 0]
        assert torch.equal(output, own.transpose(0, 1) if build.__name__ == "xlnet" else own)
        assert output.shape == (ROWS, TOKENS, HIDDEN)
        assert attention.shape == (ROWS, HEADS, TOKENS, TOKENS)
        torch.testing.assert_close(attention.sum(-1), torch.ones_like(attention.sum(-1)), rtol=0, atol=1e-6)
        assert not attention.requires_grad
    with FeedForwards(model).changed(lambda layer, output, attention: output * 0):
        assert (model(**batch).logits - expected).abs().max() > 1e-6
    assert torch.equal(model(**batch).logits, expected)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5_encoder", "modernbert", "llama", "albert"])
def test_attention_is_what_the_model_reports_when_there_is_no_dropout(name: str) -> None:
    model, batch = made(next(build for build in ARCHITECTURES if build.__name__ == name))
    seen: list[Tensor] = []
    with FeedForwards(model).changed(lambda layer, output, attention: (seen.append(attention), output)[1]):
        reported = model(**batch, output_attentions=True).attentions
    for found, expected in zip(seen, reported, strict=True):
        torch.testing.assert_close(found.to(expected.dtype), expected)


@pytest.mark.parametrize("name", FOLLOWING)
def test_the_dropout_after_the_feed_forward_output_is_left_out_and_no_other(name: str) -> None:
    model, batch = made(next(build for build in ARCHITECTURES if build.__name__ == name))
    followers = {FOLLOWING[name].format(layer) for layer in range(2)}

    def logits(follower: float, other: float, change: Any) -> Tensor:
        DropoutSetting(model, other)
        for place in followers:
            model.get_submodule(place).p = follower
        model.train()
        with FeedForwards(model).changed(change) if change else nullcontext():
            return model(**batch).logits

    def keep(layer: int, output: Tensor, attention: Tensor) -> Tensor:
        return output

    def constant(layer: int, output: Tensor, attention: Tensor) -> Tensor:
        # XLNet has the same dropout before the feed-forward output, too: what comes out must not depend on that.
        return torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)

    assert torch.equal(logits(0.5, 0.0, constant), logits(0.0, 0.0, constant))
    assert not torch.equal(logits(0.5, 0.0, None), logits(0.0, 0.0, None))
    assert not torch.equal(logits(0.0, 0.5, keep), logits(0.0, 0.0, keep))


def cut(layer: int, output: Tensor, attention: Tensor) -> Tensor:
    return output * (attention.sum((1, 2)) > attention.sum((1, 2)).median(1, keepdim=True).values).unsqueeze(-1)


def gradients(model: Any, batch: dict[str, Tensor], run: Callable[[Any, Tensor], AbstractContextManager[None]]) -> Any:
    """Gradients of the weights and of a perturbation; the backward comes after the context was left."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    width = Site("encoder", model).width
    delta = torch.randn(ROWS, TOKENS, width, generator=generator, dtype=torch.float64).requires_grad_()
    with run(model, delta):
        loss = model(**batch).loss
    model.zero_grad()
    loss.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return found | ({} if delta.grad is None else {"delta": delta.grad})


RUNS: dict[str, Callable[[Any, Tensor], AbstractContextManager[None]]] = {
    "encoder": lambda model, delta: Site("encoder", model).changed(lambda hidden: hidden + delta),
    "detached": lambda model, delta: Site("encoder", model).changed(lambda hidden: hidden.detach() + delta),
    "words": lambda model, delta: Site("words", model).changed(lambda hidden: hidden * 2),
    "ffn": lambda model, delta: FeedForwards(model).changed(cut),
}


@pytest.mark.parametrize("run", RUNS)
@every_architecture
def test_gradient_checkpointing_gives_the_same_gradients(build: Build, run: str) -> None:
    model, batch = made(build)
    model.train()
    if not model.supports_gradient_checkpointing:
        pytest.skip(f"{type(model).__name__} has no gradient checkpointing")
    expected = gradients(model, batch, RUNS[run])
    model.gradient_checkpointing_enable()
    found = gradients(model, batch, RUNS[run])
    assert expected.keys() == found.keys()
    assert ("delta" in found) == (run in ("encoder", "detached"))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)
    assert not [block for block in model.modules() if "forward" in vars(block)]


def test_an_albert_of_many_layers_is_changed_once_and_cut_in_every_layer() -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2, "intermediate_size": 32}
    config = hf.AlbertConfig(vocab_size=50, embedding_size=8, num_hidden_groups=1, **sizes)
    config._attn_implementation = "eager"
    model = hf.AlbertForSequenceClassification(config).double().eval()
    batch = default_collate([EosData()[i] for i in range(ROWS)])
    calls, layers = [], []
    with (
        Site("encoder", model).changed(lambda hidden: (calls.append(1), hidden)[1]),
        FeedForwards(model).changed(lambda layer, output, attention: (layers.append(layer), output)[1]),
    ):
        model(**batch)
        model(**batch)
    assert len(calls) == 2
    assert layers == [0, 1, 2, 3, 4] * 2


def test_fused_attention_shows_no_weights() -> None:
    model: Any = tiny_bert().eval()
    model.set_attn_implementation("sdpa")
    batch = default_collate([EosData()[i] for i in range(ROWS)])
    with (
        pytest.raises(RunError, match="needs eager attention"),
        FeedForwards(model).changed(lambda layer, output, attention: output),
    ):
        model(**batch)
    assert "forward" not in vars(model.bert.encoder.layer[0])
    assert not model.bert.encoder.layer[0].output.dense._forward_hooks


def test_the_random_state_is_the_same_after_looking_for_a_site() -> None:
    model = tiny_bert().train()
    before = torch.get_rng_state()
    Site("encoder", model)
    assert torch.equal(torch.get_rng_state(), before)


def test_padding_is_what_the_mask_says() -> None:
    ids = torch.ones(2, 3, dtype=torch.long)
    assert real_tokens({"input_ids": ids}).all()
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert torch.equal(real_tokens({"input_ids": ids, "attention_mask": mask}), mask.bool())


class Bag(nn.Module):
    """Word embeddings and a head, nothing between."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 2)


class NamedBag(Bag):
    def get_input_embeddings(self) -> nn.Module:
        return self.words


def test_models_without_the_place_are_refused_with_a_sentence() -> None:
    assert site_problems(Bag(), "words", "perturbation noise") == [
        "perturbation noise changes embeddings, and Bag has no get_input_embeddings() that would say where they are"
    ]
    assert site_problems(NamedBag(), "words", "perturbation noise") == []
    assert site_problems(NamedBag(), "encoder", "perturbation noise") == [
        "perturbation noise changes the encoder's input, and NamedBag has no repeated blocks (an nn.ModuleList) that "
        "would say where it is: choose a perturbation of the word embeddings (at=words)"
    ]
    assert ffn_problems(Bag(), "perturbation hidden_cut") == [
        "perturbation hidden_cut changes every layer, and Bag has no repeated blocks (an nn.ModuleList)"
    ]
    square = tiny_bert()
    for layer in square.bert.encoder.layer:
        layer.output.dense = nn.Linear(16, 16)
    assert "have no linear module that leads from another size back" in ffn_problems(square, "perturbation x")[0]
    assert ffn_problems(tiny_bert(), "perturbation x") == []
