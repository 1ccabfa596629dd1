"""The ascent of embeddings step by step: where it starts, how far it goes, what it never touches."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from rosewood.errors import RecipeError
from rosewood.perturbations.embedding_ascent import EmbeddingAscender, EmbeddingAscent
from rosewood.protocol import Output
from rosewood.recipe import build_recipe, load_recipe
from slow_methods import PaddedData
from tiny import differing, tiny_bert, trained, weights

BATCH = default_collate([PaddedData()[i] for i in range(6)])
PADDING = BATCH["attention_mask"] == 0
NORMS = ["token", "sentence", "sentence_infinity"]


def ascender(model: nn.Module | None = None, **settings: Any) -> EmbeddingAscender:
    return EmbeddingAscender(EmbeddingAscent(**settings), tiny_bert() if model is None else model)


def caller(model: Any) -> Any:
    def call(batch: Any, other: Any = None) -> Output:
        found = model(**batch)
        return Output(found.loss, found.logits)

    return call


def slope(scale: float = 1.0) -> Tensor:
    return torch.randn(6, 8, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("initial", ["uniform01", "normal", "sentence"])
def test_where_it_starts(initial: str) -> None:
    delta = ascender(initial=initial, initial_size=0.3).initial(BATCH)
    assert delta.shape == (6, 8, 16)
    assert delta.dtype == torch.float64
    assert not delta[PADDING].any()
    real = delta[~PADDING]
    if initial == "uniform01":
        assert 0 <= real.min() < 0.01 < 0.29 < real.max() <= 0.3
    elif initial == "normal":
        assert abs(real.std() - 0.3) < 0.03
    else:
        # U(-1, 1) size / sqrt(length width): the norm of a sentence is at most the size, size / sqrt(3) on average.
        norms = delta.flatten(1).norm(dim=1)
        assert norms.max() <= 0.3
        torch.testing.assert_close(norms.mean(), torch.tensor(0.3 / 3**0.5).double(), rtol=0.1, atol=0)


def test_a_start_of_size_zero_draws_nothing() -> None:
    climber = ascender(initial_size=0.0)
    before = torch.get_rng_state()
    assert not climber.initial(BATCH).any()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_steps_have_their_size_whatever_the_slope(norm: str, scale: float) -> None:
    climber = ascender(norm=norm, step_size=0.2)
    step = climber.climb(torch.zeros(6, 8, 16, dtype=torch.float64), slope(scale), BATCH)
    assert not step[PADDING].any()
    expected = torch.tensor(0.2).double()
    if norm == "token":
        sizes = step.abs().amax(2)[~PADDING]
        expected = expected * (1 if scale > 1e-6 else 0.99)
    elif norm == "sentence":
        sizes = step.flatten(1).norm(dim=1)
    else:
        sizes = step.flatten(1).abs().amax(1)
    torch.testing.assert_close(sizes, expected.expand_as(sizes), rtol=0.02 if scale < 1 else 1e-6, atol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_the_ball_holds_after_every_step(norm: str) -> None:
    climber = ascender(norm=norm, step_size=0.2, radius=0.3)
    delta = climber.initial(BATCH)
    touched = False
    for i in range(5):
        delta = climber.climb(delta, slope() * (i + 1), BATCH)
        size = delta.flatten(1).norm(dim=1) if norm == "sentence" else delta.flatten(1).abs().amax(1)
        assert size.max() <= 0.3 + 1e-12
        touched |= bool(size.max() > 0.3 - 1e-9)
        assert not delta[PADDING].any()
    assert touched


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_an_example_with_a_broken_slope_stays_and_the_others_move(norm: str, bad: float) -> None:
    climber = ascender(norm=norm, initial_size=0.1, radius=0.01)
    start, broken = climber.initial(BATCH), slope()
    broken[2, 1, 3] = bad
    found = climber.climb(start, broken, BATCH)
    assert torch.equal(found[2], start[2])
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(found[others], climber.climb(start, slope(), BATCH)[others])
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("norm", NORMS)
def test_a_flat_place_is_not_left(norm: str) -> None:
    climber = ascender(norm=norm)
    start = climber.initial(BATCH)
    assert torch.equal(climber.climb(start, torch.zeros_like(start), BATCH), start)


def test_a_broken_slope_at_padding_does_not_matter() -> None:
    climber = ascender()
    broken = slope().masked_fill(PADDING.unsqueeze(-1), float("nan"))
    start = climber.initial(BATCH)
    assert torch.equal(climber.climb(start, broken, BATCH), climber.climb(start, slope(), BATCH))


def embedding_gradients(through: bool, at: str) -> dict[str, bool]:
    """Whether the word and the position embeddings get a gradient from the perturbed pass."""
    model = tiny_bert(dropout=0.0).train()
    call = caller(model)
    clean = call(BATCH)
    with torch.no_grad():
        clean = Output(clean.loss.detach(), clean.logits.detach())
    ascender(model, through_embeddings=through, at=at).view(call, BATCH, clean).loss.backward()
    embeddings = model.bert.embeddings
    assert model.bert.encoder.layer[0].output.dense.weight.grad is not None
    parts = {"words": embeddings.word_embeddings, "positions": embeddings.position_embeddings}
    return {name: part.weight.grad is not None for name, part in parts.items()}


def test_what_the_perturbed_pass_teaches() -> None:
    assert embedding_gradients(False, "encoder") == {"words": False, "positions": False}
    assert embedding_gradients(True, "encoder") == {"words": True, "positions": True}
    assert embedding_gradients(False, "words") == {"words": False, "positions": True}
    assert embedding_gradients(True, "words") == {"words": True, "positions": True}


def test_the_ascent_gives_no_weight_a_gradient_and_raises_the_loss() -> None:
    model = tiny_bert(dropout=0.0).train()
    call = caller(model)
    clean = call(BATCH)
    other = ascender(model, step_size=0.5, steps=3).view(call, BATCH, clean)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert other.loss > clean.loss


@pytest.mark.parametrize("at", ["encoder", "words"])
def test_no_perturbation_is_the_clean_pass(at: str) -> None:
    model = tiny_bert(dropout=0.0).train()
    call = caller(model)
    clean = call(BATCH)
    other = ascender(model, steps=0, initial_size=0.0, at=at).view(call, BATCH, clean)
    assert torch.equal(other.logits, clean.logits)


def test_padding_does_not_change_the_perturbation() -> None:
    """Two more columns of padding, the same draws for the tokens: the same logits."""
    model = tiny_bert(dropout=0.0).train()
    call = caller(model)
    pad = nn.functional.pad
    longer = {key: value if key == "labels" else pad(value, (0, 2)) for key, value in BATCH.items()}
    found = []
    for batch in (BATCH, longer):
        climber = ascender(model, initial_size=0.0, norm="sentence")
        found.append(climber.view(call, batch, call(batch)).logits)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)


def test_a_divergence_cannot_be_climbed_from_where_it_is_flat() -> None:
    parts = {"objective": "consistency", "perturbation": {"name": "embedding_ascent", "loss": "kl", "initial_size": 0}}
    with pytest.raises(RecipeError, match=r"loss=kl cannot start there: set perturbation\.initial_size above 0"):
        build_recipe({"name": "x"} | parts)


def test_the_official_code_of_smart_scales_every_token_to_one() -> None:
    """methods of mt-dnn: delta = (delta + eta g) / (max_h |delta + eta g| + 1e-6), token by token."""
    settings = EmbeddingAscent(norm="rescaled_token", step_size=1e-5, initial="normal")
    ascender = EmbeddingAscender(settings, tiny_bert())
    batch = {"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    generator = torch.Generator().manual_seed(0)
    delta = 1e-5 * torch.randn(2, 3, 16, dtype=torch.float64, generator=generator)
    delta[1, 2] = 0
    slope = torch.randn(2, 3, 16, dtype=torch.float64, generator=generator)
    found = ascender.climb(delta, slope, batch)
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        raised = delta[i, j] + 1e-5 * slope[i, j]
        torch.testing.assert_close(found[i, j], raised / (raised.abs().max() + 1e-6), rtol=1e-12, atol=0)
    assert not found[1, 2].any(), "padding stays where it is"


def test_the_official_code_of_smart_climbs_the_gap_between_log_odds() -> None:
    """Its step, written out: the encoder's input plus delta goes in where word vectors do, and is embedded again."""
    settings = load_recipe("smart:mt-dnn").perturbation
    assert isinstance(settings, EmbeddingAscent)
    model = tiny_bert(dropout=0.0).train()
    climber, call = EmbeddingAscender(settings, model), caller(model)
    clean = call(BATCH)
    torch.manual_seed(3)
    start = climber.initial(BATCH)
    embedded = model.bert.embeddings(BATCH["input_ids"]).detach()

    def logits(delta: Tensor) -> Tensor:
        return model(inputs_embeds=embedded + delta, attention_mask=BATCH["attention_mask"]).logits

    def raised(loss: Any) -> Tensor:
        delta = start.clone().requires_grad_()
        p, q = (each.softmax(-1) for each in (clean.logits.detach(), logits(delta)))
        (slope,) = torch.autograd.grad(loss(p, q).sum(), delta)
        higher = (delta + 1e-5 * slope).detach().masked_fill(PADDING.unsqueeze(-1), 0)
        return logits(higher / (higher.abs().amax(2, keepdim=True) + 1e-6))

    def log_odds(share: Tensor) -> Tensor:
        return -(1 / (share.detach() + 1e-6) - 1 + 1e-6).log()

    torch.manual_seed(3)
    found = climber.view(call, BATCH, clean).logits
    torch.testing.assert_close(found, raised(lambda p, q: 2 * q * (log_odds(q) - log_odds(p))), rtol=0, atol=1e-12)
    kl = raised(lambda p, q: q * (q.log() - p.log()))
    assert (found - kl).abs().max() > 1e-9, "another gradient goes elsewhere, by far more than rounding"


def test_the_variant_of_the_official_code_trains(tmp_path: Path) -> None:
    model = tiny_bert()
    before = weights(model)
    trained("smart:mt-dnn", tmp_path, model=model, max_steps=2)
    assert any(differing(before, weights(model)))
