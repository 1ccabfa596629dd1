"""Dropout, noise, dropped tokens, cut spans and moved weights: what they change, and what they leave alone."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from rosewood.errors import RecipeError
from rosewood.perturbations.hidden_cut import HiddenCut, HiddenCutter, cut_span
from rosewood.perturbations.noise import Noise, NoiseMaker
from rosewood.perturbations.token_drop import TokenDrop, TokenDropper
from rosewood.perturbations.weight_ascent import WeightAscender, WeightAscent
from rosewood.protocol import Output, Run
from rosewood.recipe import load_recipe
from slow_methods import WORDS, PaddedData
from tiny import differing, tiny_bert, weights

BATCH = default_collate([PaddedData()[i] for i in range(6)])
REAL = BATCH["attention_mask"].bool()
NOTHING = Output(torch.zeros(()), torch.zeros(6, 2))


def caller(model: Any) -> Any:
    def call(batch: Any, other: Any = None) -> Output:
        found = model(**batch)
        return Output(found.loss, found.logits)

    return call


def watched(model: Any, perturber: Any) -> tuple[Tensor, Tensor]:
    """What the encoder is given without and with the perturbation."""
    seen: list[Tensor] = []
    forward = model.bert.encoder.forward

    def looking(hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(hidden.detach().clone())
        return forward(hidden, *args, **kwargs)

    model.bert.encoder.forward = looking
    model(**BATCH)
    perturber.view(caller(model), BATCH, NOTHING)
    assert model.bert.encoder.forward is looking, "a forward that was replaced before is put back"
    return seen[0], seen[1]


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_noise_has_its_size(distribution: Any) -> None:
    model = tiny_bert(dropout=0.0).train()
    maker = NoiseMaker(Noise(distribution=distribution, radius=1e-3), model)
    before, after = watched(model, maker)
    noise = (after - before) / 1e-3
    if distribution == "uniform":
        assert noise.abs().max() <= 1
        assert abs(noise.abs().mean() - 0.5) < 0.05
    else:
        assert abs(noise.std() - 1) < 0.1
    assert abs(noise.mean()) < 0.1


def test_noise_of_size_zero_is_the_clean_pass() -> None:
    model = tiny_bert(dropout=0.0).train()
    clean = model(**BATCH).logits
    for at in ("encoder", "words"):
        maker = NoiseMaker(Noise(radius=0.0, at=at), model)  # type: ignore[arg-type]
        assert torch.equal(maker.view(caller(model), BATCH, NOTHING).logits, clean)


@pytest.mark.parametrize("through", [False, True])
def test_noise_lets_embeddings_learn_only_if_told(through: bool) -> None:
    model = tiny_bert(dropout=0.0).train()
    NoiseMaker(Noise(through_embeddings=through), model).view(caller(model), BATCH, NOTHING).loss.backward()
    assert (model.bert.embeddings.word_embeddings.weight.grad is not None) == through
    assert model.classifier.weight.grad is not None


def test_dropped_tokens_are_zero_and_the_others_untouched() -> None:
    model = tiny_bert(dropout=0.0).train()
    before, after = watched(model, TokenDropper(TokenDrop(probability=0.4), model))
    dropped = (after == 0).all(2)
    assert torch.equal(after[~dropped], before[~dropped])
    assert not (dropped & ~REAL).any()
    assert 0.2 < dropped[REAL].double().mean() < 0.6


def test_spared_tokens_are_never_dropped() -> None:
    model = tiny_bert(dropout=0.0).train()
    spared = BATCH["input_ids"][:, 0].tolist()
    settings = TokenDrop(probability=0.99, spared_token_ids=tuple(spared))
    _, after = watched(model, TokenDropper(settings, model))
    kept = torch.isin(BATCH["input_ids"], torch.tensor(spared))
    assert not (after == 0).all(2)[kept].any()
    assert (after == 0).all(2)[REAL & ~kept].double().mean() > 0.8


def spans(ratio: float, share: float, draws: int = 200) -> Tensor:
    """Cut tokens for many draws, `(draws, batch, tokens)`; token j of every sentence receives attention 8 - j."""
    attention = torch.ones(6, 2, 8, 8, dtype=torch.float64) * torch.arange(8, 0, -1)
    return torch.stack([cut_span(attention, REAL, torch.full((6,), i / draws), ratio, share) for i in range(draws)])


def test_spans_have_their_length_and_start_among_the_most_attended() -> None:
    cut = spans(ratio=0.4, share=0.4)
    lengths = REAL.sum(1).tolist()
    for i, length in enumerate(lengths):
        starts, span = max(int(0.4 * length), 1), max(int(0.4 * length), 1)
        found = {tuple(row.nonzero().flatten().tolist()) for row in cut[:, i]}
        # The most attended tokens are the first ones.
        assert found == {tuple(range(start, min(start + span, length))) for start in range(starts)}
    assert not cut[:, ~REAL].any()


def test_spans_end_with_the_sentence() -> None:
    attention = torch.ones(6, 2, 8, 8, dtype=torch.float64) * torch.arange(1, 9)  # the last token gets most
    cut = cut_span(attention, REAL, torch.zeros(6), 0.9, 0.4)
    assert torch.equal(cut.sum(1), torch.ones(6, dtype=torch.long))
    assert all(cut[i, length - 1] for i, length in enumerate(REAL.sum(1).tolist()))


def test_starts_are_uniform_over_the_most_attended() -> None:
    attention = torch.rand(1, 2, 8, 8, dtype=torch.float64).expand(4000, -1, -1, -1)
    real = torch.ones(4000, 8, dtype=torch.bool)
    cut = cut_span(attention, real, torch.rand(4000), 0.1, 0.4)
    shares = cut.double().mean(0)
    top = attention[0].sum((0, 1)).topk(3).indices
    torch.testing.assert_close(shares[top], torch.full((3,), 1 / 3).double(), rtol=0.1, atol=0)
    assert shares.sum() == pytest.approx(1)


def test_padding_on_the_left_and_attention_from_padding_do_not_matter() -> None:
    attention = torch.rand(6, 2, 8, 8, dtype=torch.float64)
    draw = torch.rand(6)
    expected = cut_span(attention, REAL, draw, 0.4, 0.4)
    disturbed = attention + 100 * (~REAL)[:, None, :, None] * torch.rand(6, 1, 8, 8)
    assert torch.equal(cut_span(disturbed, REAL, draw, 0.4, 0.4), expected)
    mirrored = torch.zeros_like(attention)
    left = REAL.flip(1)
    for i, length in enumerate(REAL.sum(1).tolist()):
        mirrored[i, :, 8 - length :, 8 - length :] = attention[i, :, :length, :length]
    found = cut_span(mirrored, left, draw, 0.4, 0.4)
    for i, length in enumerate(REAL.sum(1).tolist()):
        assert torch.equal(found[i, 8 - length :], expected[i, :length])


def test_hidden_cut_switches_to_eager_attention() -> None:
    model: Any = tiny_bert(dropout=0.0)
    model.set_attn_implementation("sdpa")
    cutter = HiddenCutter(HiddenCut(cut_ratio=0.5), model)
    assert model.config._attn_implementation == "eager"
    clean = caller(model)(BATCH)
    assert not torch.equal(cutter.view(caller(model), BATCH, clean).logits, clean.logits)


def ascender(model: nn.Module, rho: float = 0.05) -> WeightAscender:
    return WeightAscender(WeightAscent(rho=rho), Run(model, 1, load_recipe("advweight").all_stages()[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_come_back_to_the_same_bits(dtype: torch.dtype) -> None:
    model = tiny_bert(dtype=dtype)
    before = weights(model)
    gradients = {name: torch.randn_like(weight) for name, weight in before.items()}
    with pytest.raises(KeyboardInterrupt), ascender(model, 0.5).ascended(gradients):
        moved = set(differing(before, weights(model)))
        raise KeyboardInterrupt
    assert moved == set(before) - {WORDS}
    assert not list(differing(before, weights(model)))


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_the_step_has_length_rho_whatever_the_gradient(factor: float) -> None:
    model = tiny_bert()
    before = weights(model)
    gradients = {name: torch.randn_like(weight) * factor for name, weight in before.items()}
    with ascender(model, 0.3).ascended(gradients):
        step = {name: weight - before[name] for name, weight in weights(model).items()}
    length = sum(float((part**2).sum()) for part in step.values()) ** 0.5
    assert length == pytest.approx(0.3, rel=1e-6)
    name = "classifier.weight"
    cosine = torch.nn.functional.cosine_similarity(step[name].flatten(), gradients[name].flatten(), 0)
    assert cosine == pytest.approx(1)


def test_frozen_weights_do_not_ascend() -> None:
    model = tiny_bert()
    model.bert.encoder.layer[0].requires_grad_(False)
    before = weights(model)
    gradients = {name: torch.ones_like(p) for name, p in model.named_parameters() if p.requires_grad}
    with ascender(model).ascended(gradients):
        assert not [name for name in differing(before, weights(model)) if ".layer.0." in name]


@pytest.mark.parametrize("recipe", ["r-drop", "r-drop+rose-second"])
def test_a_model_without_dropout_is_refused(recipe: str) -> None:
    with pytest.raises(RecipeError, match="perturbation dropout compares two passes that differ by dropout only, and"):
        load_recipe(recipe).check_model(tiny_bert(dropout=0.0))


@pytest.mark.parametrize("recipe", ["advembed", "r3f", "worddrop", "hiddencut", "freelb"])
def test_a_model_without_the_place_is_refused(recipe: str) -> None:
    with pytest.raises(RecipeError, match=r"perturbation \w+ changes"):
        load_recipe(recipe).check_model(nn.Linear(2, 2))
