"""The distance from the pre-trained weights: value, gradient, which parameters, and whole training runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2ForSequenceClassification

from replay import Batch, replay, same_weights
from rosewood.anchors.l2_sp import L2SP, L2SPTether
from rosewood.errors import RecipeError, RunError
from rosewood.protocol import Progress, Run
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, differing, tiny_bert, trained, weights

AT = Progress(0, 1)


def tethered(anchor: L2SP, model: nn.Module, shift: float) -> tuple[L2SPTether, dict[str, Tensor]]:
    """A tether whose model has moved away from where it started."""
    pretrained = weights(model)
    tether = anchor.start(Run(model, 1, load_recipe("wconsol").all_stages()[0], pretrained=pretrained))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(shift * torch.randn_like(parameter))
    return tether, pretrained


def is_matrix(name: str) -> bool:
    """BERT's non-bias, non-LayerNorm parameters, by name."""
    return "bias" not in name and "LayerNorm" not in name


def slow_distance(model: nn.Module, pretrained: dict[str, Tensor], anchor: L2SP) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in model.named_parameters():
        if name.startswith("bert.") and (anchor.parameters == "all" or is_matrix(name)):
            total = total + ((parameter - pretrained[name]) ** 2).sum()
    return total if anchor.norm == "squared" else (1e-10 + total).sqrt()


ANCHORS = [L2SP(norm=norm, parameters=which) for norm in ("squared", "unsquared") for which in ("matrices", "all")]  # type: ignore[arg-type]


@pytest.mark.parametrize("anchor", ANCHORS, ids=str)
def test_value_and_gradient(anchor: L2SP) -> None:
    model = tiny_bert()
    tether, pretrained = tethered(anchor, model, 0.01)
    (term,) = tether.weight_terms(AT)
    expected = slow_distance(model, pretrained, anchor)
    torch.testing.assert_close(term.value, expected, rtol=1e-12, atol=0)
    (3 * term.value).backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    (3 * slow_distance(model, pretrained, anchor)).backward()
    for name, parameter in model.named_parameters():
        assert (found[name] is None) == (parameter.grad is None), name
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-12, atol=0)


def gradient_norm(model: nn.Module) -> float:
    return float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())


@pytest.mark.parametrize("shift", [1e-3, 1.0])
def test_the_gradient_of_the_unsquared_norm_is_as_long_wherever_the_weights_are(shift: float) -> None:
    model = tiny_bert()
    tether, _ = tethered(L2SP(norm="unsquared", parameters="all"), model, shift)
    (term,) = tether.weight_terms(AT)
    (0.005 * term.value).backward()
    assert gradient_norm(model) == pytest.approx(0.005, rel=1e-4)


def test_the_unsquared_norm_is_finite_where_it_starts() -> None:
    model = tiny_bert()
    tether, _ = tethered(L2SP(norm="unsquared"), model, 0.0)
    (term,) = tether.weight_terms(AT)
    assert term.value.item() == pytest.approx(1e-5)
    term.value.backward()
    assert gradient_norm(model) == 0


def test_a_second_step_forgets_the_first() -> None:
    """The buffer is used again: gradients of a step must not change when the next is computed."""
    model = tiny_bert()
    tether, _ = tethered(L2SP(), model, 0.1)
    tether.weight_terms(AT)[0].value.backward()
    weight = model.bert.pooler.dense.weight
    first = weight.grad.clone()
    tether.weight_terms(AT)
    assert torch.equal(weight.grad, first)
    tether.weight_terms(AT)[0].value.backward()
    assert torch.equal(weight.grad, 2 * first)


def test_which_parameters() -> None:
    bert = tiny_bert()
    names = [name for name, _ in bert.named_parameters() if name.startswith("bert.")]
    assert L2SP(parameters="all").names(bert) == names
    assert L2SP(parameters="matrices").names(bert) == [name for name in names if is_matrix(name)]
    bert.bert.embeddings.requires_grad_(False)
    assert not any("embeddings" in name for name in L2SP().names(bert))
    gpt = GPT2ForSequenceClassification(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    assert "score.weight" not in L2SP(parameters="all").names(gpt)
    assert not any(".ln_" in name for name in L2SP().names(gpt))


def test_a_model_without_such_parameters_is_refused(tmp_path: Path) -> None:
    model = tiny_bert()
    model.bert.requires_grad_(False)
    with pytest.raises(RecipeError, match="has no trainable parameter of that kind"):
        RobustTrainer(model=model, args=arguments(tmp_path), recipe="wconsol")


@pytest.mark.parametrize(("recipe", "accumulation"), [("wconsol", 1), ("wconsol", 3), ("ptwd", 1), ("ptwd", 3)])
def test_a_training_run(recipe: str, accumulation: int, tmp_path: Path) -> None:
    built = load_recipe(recipe, {"anchors.0.weight": 0.3})
    data = TinyData(size=4 * accumulation * 6)
    # A key's bias cancels out in the softmax: its gradient is rounding, which Adam's usual epsilon would scale up.
    steps = {"max_steps": 6, "gradient_accumulation_steps": accumulation, "adam_epsilon": 1e-3}
    trainer = trained(built, tmp_path, data=data, **steps)
    model = tiny_bert()
    pretrained = weights(model)
    (anchor,) = built.anchors
    assert isinstance(anchor, L2SP)

    def backward(batch: Batch, step: int, micro_batch: int) -> None:
        (model(**batch).loss / accumulation).backward()

    def penalise() -> None:
        (0.3 * slow_distance(model, pretrained, anchor)).backward()

    same_weights(trainer.model, replay(trainer, model, backward, penalise, accumulation=accumulation))


def logged(recipe: str, directory: Path, weight: float) -> Any:
    return trained(load_recipe(recipe, {"anchors.0.weight": weight}), directory, max_steps=10, logging_steps=10)


def test_the_distance_is_logged_and_kept_small(tmp_path: Path) -> None:
    free, held = (logged("wconsol", tmp_path, weight).state.log_history[0]["loss_l2_sp"] for weight in (0.0, 10.0))
    assert 0 < held < free / 2


@pytest.mark.parametrize("recipe", ["wconsol", "ptwd"])
def test_a_resumed_run_is_the_uninterrupted_one(recipe: str, tmp_path: Path) -> None:
    whole = trained(recipe, tmp_path, save_strategy="steps", save_steps=5)
    checkpoint = str(tmp_path / "checkpoint-5")
    resumed = trained(recipe, tmp_path, resume=checkpoint)
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    with pytest.raises(RunError, match="started from other pre-trained weights"):
        trained(recipe, tmp_path, model=tiny_bert(seed=7), resume=checkpoint)
