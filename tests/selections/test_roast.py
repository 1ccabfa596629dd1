"""RoAST's selection: ranks, probabilities and masks against numpy, two epochs of training against a slow loop."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rosewood.errors import RecipeError
from rosewood.protocol import Progress, Readings, Run
from rosewood.recipe import Recipe, build_recipe, load_recipe
from rosewood.selections import roast as module
from rosewood.selections.roast import Roast, RoastSelector, ascending
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights
from zero_mask_oracle import Arrays, Observed, Oracle, flat, generator, gradients_of, in_blocks, observed, unflat


def recipe(**settings: Any) -> Recipe:
    return build_recipe({"name": "selective", "selection": {"name": "roast"} | settings})


class Blocks(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(size, 1, bias=False)])


def at_epoch(epoch: int, gradient: torch.Tensor | None = None, clip: float = 1.0) -> Readings:
    total = {} if gradient is None else {"blocks.0.weight": gradient}
    return Readings({"total": total}, {"total": torch.ones(())}, torch.tensor(clip), {}, 0.9, Progress(0, 1, epoch))


def selector(size: int, sums: torch.Tensor | None = None, **settings: Any) -> RoastSelector:
    made = RoastSelector(Roast(**settings), Run(Blocks(size), 10, load_recipe("vanilla").all_stages()[0]))
    if sums is not None:
        made._importance.sums.whole.copy_(sums)
    return made


def mask_of(size: int, sums: torch.Tensor | None = None, epoch: int = 0, **settings: Any) -> torch.Tensor:
    made = selector(size, sums, **settings)
    masks = made.masks(at_epoch(epoch, torch.zeros(1, size)))
    return masks.values[0][0]


# Ranks and probabilities


def test_ranks_are_a_permutation_and_stable() -> None:
    values = torch.tensor([0.5, 0.0, 0.5, 2.0, 0.0, 0.5])
    order = ascending(values)
    assert order.tolist() == [1, 4, 0, 2, 5, 3]
    many = torch.randn(10_001, dtype=torch.float64).square()
    many[::3] = 0
    order = ascending(many)
    assert torch.equal(order.sort().values, torch.arange(len(many)))
    assert torch.equal(order, torch.from_numpy(np.argsort(many.numpy(), kind="stable")))
    assert torch.equal(order, many.argsort(stable=True))


@pytest.mark.parametrize(("alpha", "beta"), [(0.9, 10.0), (0.6, 1.0)])
def test_probabilities(alpha: float, beta: float) -> None:
    rank = np.linspace(0, 1, 50_001)
    probability = Roast(alpha=alpha, beta=beta).keep_probability(torch.from_numpy(rank)).numpy()
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-2 * beta * (rank - alpha))), rtol=1e-12)
    closed = math.log((1 + math.exp(2 * beta * (1 - alpha))) / (1 + math.exp(-2 * beta * alpha))) / (2 * beta)
    assert probability.mean() == pytest.approx(closed, rel=1e-3)
    assert closed == pytest.approx({0.9: 0.106, 0.6: 0.454}[alpha], abs=5e-4)


def by_hand(importance: np.ndarray, epoch: int, alpha: float = 0.9, beta: float = 10.0) -> np.ndarray:
    """Double argsort, sigmoid, and one uniform number for each rank."""
    n = len(importance)
    position = np.argsort(np.argsort(importance, kind="stable"), kind="stable")
    rank = position / (n - 1)
    assert sorted(position) == list(range(n))
    probability = 1 / (1 + np.exp(-2 * beta * (rank - alpha)))
    uniform = torch.rand(n, dtype=torch.float64, generator=generator("roast", epoch)).numpy()
    return (uniform[position] < probability) / (probability + 1e-12)


@pytest.mark.parametrize("chunk", [7, 1 << 18])
def test_masks_by_double_argsort(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    importance = torch.randn(5000).square()
    importance[100:400] = 0
    for epoch in (0, 3):
        found = mask_of(5000, importance, epoch, alpha=0.6, beta=2.0)
        np.testing.assert_allclose(found.numpy(), by_hand(importance.numpy(), epoch, 0.6, 2.0), rtol=1e-6)


@pytest.mark.parametrize(("alpha", "beta"), [(0.9, 10.0), (0.6, 1.0)])
def test_the_kept_share_is_the_closed_form(alpha: float, beta: float) -> None:
    made = selector(200_000, torch.rand(200_000), alpha=alpha, beta=beta)
    masks = made.masks(at_epoch(0, torch.zeros(1, 200_000)))
    closed = math.log((1 + math.exp(2 * beta * (1 - alpha))) / (1 + math.exp(-2 * beta * alpha))) / (2 * beta)
    log = made.log()
    assert float(log["keep_probability"]) == pytest.approx(closed, rel=1e-4)
    assert float(log["kept_share"]) == pytest.approx(closed, abs=4 * (closed * (1 - closed) / 200_000) ** 0.5)
    assert float(log["kept_share"]) == float((masks.values[0] > 0).double().mean())


def test_the_mean_of_a_mask_is_one() -> None:
    """E[Bernoulli(p) / p] = 1 at every rank: over many epochs, and where p is not too small to be ever drawn."""
    made = selector(400, torch.arange(400.0), alpha=0.6, beta=1.0)
    gradient = torch.zeros(1, 400)
    total = torch.zeros(400, dtype=torch.float64)
    epochs = 400
    for epoch in range(epochs):
        made._importance.sums.whole.copy_(torch.arange(400.0))
        total += made.masks(at_epoch(epoch, gradient)).values[0][0]
    probability = made.settings.keep_probability(torch.linspace(0, 1, 400, dtype=torch.float64))
    sigma = ((1 - probability) / probability / epochs).sqrt()
    assert float(((total / epochs - 1) / sigma).abs().max()) < 4.5
    assert float((total / epochs).mean()) == pytest.approx(1, abs=4 * float(sigma.square().mean().sqrt()) / 20)


def test_a_single_candidate_is_kept() -> None:
    assert mask_of(1, torch.ones(1)).tolist() == [1.0]
    made = selector(1)
    made.masks(at_epoch(0))
    assert made.log()["kept_share"] == made.log()["keep_probability"] == 1


# Epochs, importance, clipping


def test_masks_change_with_the_epoch_only_and_follow_the_epoch_before() -> None:
    made = selector(1000, torch.arange(1000.0), alpha=0.5, beta=50.0)
    first = made.masks(at_epoch(0, torch.arange(1000.0, 0.0, -1)[None])).values[0][0].clone()
    again = made.masks(at_epoch(0, torch.arange(1000.0, 0.0, -1)[None])).values[0][0].clone()
    assert torch.equal(first, again)
    second = made.masks(at_epoch(1, torch.zeros(1, 1000))).values[0][0]
    assert float((first[500:] > 0).float().mean()) > 0.95 > 0.05 > float((first[:500] > 0).float().mean())
    assert float((second[:500] > 0).float().mean()) > 0.95 > 0.05 > float((second[500:] > 0).float().mean())


def test_clipping_is_undone_and_missing_gradients_are_zero() -> None:
    made = selector(3)
    made.masks(at_epoch(0, torch.tensor([[1.0, 2.0, 3.0]]), clip=0.5))
    made.masks(at_epoch(0, torch.tensor([[1.0, 0.0, 0.0]])))
    made.masks(at_epoch(0))
    assert made._importance.sums.whole.tolist() == [5.0, 16.0, 36.0]


def oracle_masks(trainer: Observed, other: nn.Module, epoch_steps: int, mask: Callable[..., np.ndarray]) -> Any:
    """RoAST's rule as a function of gradient and step, fed with the pass before training."""
    names = in_blocks(other)
    importance: np.ndarray = sum(flat(gradients_of(other, *step), names) ** 2 for step in trainer.first_pass)  # type: ignore[assignment]
    current: dict[str, Any] = {"sums": importance / len(trainer.first_pass)}

    def rule(gradient: Arrays, step: int) -> Arrays:
        if step % epoch_steps == 0:
            current["mask"] = mask(current["sums"], step // epoch_steps)
            current["sums"] = np.zeros_like(current["mask"])
        current["sums"] += flat(gradient, names) ** 2 / epoch_steps
        return unflat(current["mask"], gradient, names)

    return rule


@pytest.mark.parametrize(
    ("accumulation", "clip", "alpha", "beta"), [(1, 1.0, 0.9, 10.0), (3, 0.1, 0.6, 1.0), (1, 0.0, 0.6, 1.0)]
)
def test_three_epochs_against_the_slow_loop(
    accumulation: int, clip: float, alpha: float, beta: float, tmp_path: Path
) -> None:
    epoch_steps, steps = 4, 10
    trainer = observed(
        recipe(alpha=alpha, beta=beta),
        tmp_path,
        data=TinyData(size=4 * accumulation * epoch_steps),
        max_steps=steps,
        gradient_accumulation_steps=accumulation,
        max_grad_norm=clip,
    )
    assert [len(batches) for _, batches in trainer.first_pass] == [accumulation] * epoch_steps
    other = tiny_bert().train()
    rule = oracle_masks(trainer, other, epoch_steps, lambda sums, epoch: by_hand(sums, epoch, alpha, beta))
    Oracle(other, steps, rule, clip=clip).follow(trainer, accumulation)


def test_a_last_shorter_step_belongs_to_its_epoch(tmp_path: Path) -> None:
    """10 micro-batches, 4 a step: two full steps and a shorter one an epoch."""
    trainer = observed(recipe(), tmp_path, data=TinyData(size=40), max_steps=6, gradient_accumulation_steps=4)
    seen = [trainer.micro_batches[i : i + 4] for i in (0, 4)] + [trainer.micro_batches[8:10]]
    seen += [trainer.micro_batches[10 + i : 14 + i] for i in (0, 4)] + [trainer.micro_batches[18:20]]
    other = tiny_bert().train()
    oracle = Oracle(other, 6, oracle_masks(trainer, other, 3, by_hand))
    for draws in seen:
        oracle.step(draws)
    expected = weights(other)
    for name, weight in weights(trainer.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-9)


# Ablations


def test_the_hard_threshold_keeps_the_top_exactly_and_is_the_limit_of_the_soft_one() -> None:
    importance = torch.randperm(1000).float()
    hard = mask_of(1000, importance, threshold="hard", alpha=0.9)
    assert hard.unique().tolist() == [0.0, 1.0]
    assert torch.equal(hard > 0, importance >= 900)
    soft = mask_of(1000, importance, beta=1e6, alpha=0.9)
    torch.testing.assert_close(hard, soft)


def test_without_the_scale_a_mask_is_zero_or_one() -> None:
    importance = torch.rand(5000)
    plain, scaled = mask_of(5000, importance, scale=False), mask_of(5000, importance)
    assert plain.unique().tolist() == [0.0, 1.0]
    assert torch.equal(plain > 0, scaled > 0)


def test_the_cap_limits_the_scale() -> None:
    importance = torch.rand(5000)
    capped, scaled = mask_of(5000, importance, scale_cap=5.0), mask_of(5000, importance)
    assert float(scaled.max()) > 5
    torch.testing.assert_close(capped, scaled.clamp(max=5.0))


def test_random_importance_ignores_the_gradients(tmp_path: Path) -> None:
    ordered, reversed_ = torch.arange(5000.0), torch.arange(5000.0).flip(0)
    masks = [mask_of(5000, sums, importance="random") for sums in (ordered, reversed_)]
    assert torch.equal(*masks)
    assert not torch.equal(masks[0], mask_of(5000, ordered, 1, importance="random"))
    kept = masks[0] > 0
    assert float(kept.float().mean()) == pytest.approx(0.106, abs=0.02)
    assert float(ordered[kept].mean()) == pytest.approx(2500, abs=4 * 1444 / int(kept.sum()) ** 0.5)
    trainer = observed(recipe(importance="random"), tmp_path, max_steps=2)
    assert not trainer.first_pass, "nothing to measure before training"


def test_a_random_order_drawn_once_favours_the_same_weights_in_every_epoch() -> None:
    size, sums = 20_000, torch.rand(20_000)
    overlap = {}
    for importance in ("random", "random_once"):
        first, second = (mask_of(size, sums, epoch, importance=importance) > 0 for epoch in (0, 1))
        assert not torch.equal(first, second), "masks are drawn again whatever the order"
        overlap[importance] = float((first & second).sum() / first.sum())
    probability = 1 / (1 + torch.exp(-20 * (torch.linspace(0, 1, size) - 0.9)))
    assert overlap["random"] == pytest.approx(float(probability.mean()), abs=0.03)
    assert overlap["random_once"] == pytest.approx(float(probability.square().mean() / probability.mean()), abs=0.03)


def test_keeping_everything_is_plain_fine_tuning_bit_for_bit(tmp_path: Path) -> None:
    plain = trained("vanilla", tmp_path)
    whole = trained(recipe(threshold="hard", alpha=0.0), tmp_path)
    assert not list(differing(weights(plain.model), weights(whole.model)))


# Resuming, precision, refusals


@pytest.mark.parametrize("checkpoint", [2, 3, 5, 7])
def test_resumed_is_uninterrupted(checkpoint: int, tmp_path: Path) -> None:
    """Three steps an epoch: checkpoints inside the first epoch, between two, and inside later ones."""
    logs = [tmp_path / "whole.jsonl", tmp_path / "resumed.jsonl"]
    settings: dict[str, Any] = {"data": TinyData(size=24), "gradient_accumulation_steps": 2}
    whole = trained(
        recipe(alpha=0.6, beta=1.0),
        tmp_path,
        tiny_bert(dtype=torch.float32),
        history_file=logs[0],
        save_strategy="steps",
        save_steps=checkpoint,
        **settings,
    )
    resumed = trained(
        recipe(alpha=0.6, beta=1.0),
        tmp_path,
        tiny_bert(dtype=torch.float32, seed=7),
        resume=str(tmp_path / f"checkpoint-{checkpoint}"),
        history_file=logs[1],
        **settings,
    )
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert logs[0].read_text().splitlines()[checkpoint:] == logs[1].read_text().splitlines()


def test_bf16(tmp_path: Path) -> None:
    autocast = trained(recipe(), tmp_path, model=tiny_bert(dtype=torch.float32), bf16=True, max_steps=2)
    assert autocast.state.log_history[-1]["train_loss"] > 0
    pure = trained(recipe(), tmp_path, model=tiny_bert(dtype=torch.bfloat16), max_steps=2)
    assert all(p.dtype == torch.bfloat16 and p.isfinite().all() for p in pure.model.parameters())


@pytest.mark.parametrize("wrong", [{"alpha": 1.0}, {"alpha": -0.1}, {"beta": 0}, {"scale_cap": 0.5}])
def test_settings_outside_their_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RecipeError, match=rf"selection\.{next(iter(wrong))}"):
        recipe(**wrong)


def test_a_cap_without_a_scale_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"scale_cap limits a scale that selection\.scale=false does not have"):
        recipe(scale=False, scale_cap=10)
    with pytest.raises(RecipeError, match=r"selection\.threshold=hard does not have"):
        recipe(threshold="hard", scale_cap=10)
    assert "nothing to select among" in Roast().problems_with(nn.Sequential(nn.Linear(2, 2)))[0]


def test_explanations() -> None:
    def lines(**settings: Any) -> str:
        made = recipe(**settings)
        return "\n".join(made.selection.explain(made.all_stages()[0]))

    assert "sigmoid(20 (r - 0.9))" in lines()
    assert "Bernoulli(p) / p, drawn" in lines()
    assert "at most 5" in lines(scale_cap=5)
    assert "Bernoulli(p), drawn" in lines(scale=False)
    assert "M = 1 where r >= 0.9" in lines(threshold="hard")
    assert "random order" in lines(importance="random") and "drawn again every epoch" in lines(importance="random")
    assert "the same in all epochs" in lines(importance="random_once")


# The published recipe and its ablations


def test_the_recipe_is_the_papers_loss(tmp_path: Path) -> None:
    published = load_recipe("roast")
    objective: Any = published.objective
    assert (objective.clean_weight, objective.perturbed_weight) == (0.5, 0.5)
    assert (objective.divergence, objective.divergence_weight, objective.reduction) == ("symmetric", 0.005, "sum")
    assert str(published.cost()) == "3F+X+2B"
    entailment: Any = load_recipe("roast:entailment").selection
    assert (entailment.alpha, entailment.beta) == (0.6, 1.0)
    assert load_recipe("roast:code").objective.perturbed_weight == 0  # type: ignore[attr-defined]


def test_the_official_code_drops_the_last_batch_and_ends_at_a_rate_of_1e_7(tmp_path: Path) -> None:
    recipe = load_recipe("roast:code", {"training.learning_rate": 1e-3})
    fixed = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "max_steps": -1}
    args = arguments(tmp_path, **dict(recipe.training) | fixed)
    trainer = Recording(model=tiny_bert(), args=args, train_dataset=TinyData(size=22), recipe=recipe)
    trainer.train()
    assert [len(batch["labels"]) for _, batch in trainer.micro_batches] == [4] * 10
    assert trainer.lr_scheduler.get_last_lr() == [1e-7, 1e-7]
    assert getattr(trainer.optimizer, "optimizer", trainer.optimizer).form == "hf"


ABLATIONS = [
    "code",
    "without-perturbation",
    "without-selection",
    "without-scale",
    "hard-threshold",
    "random-importance",
    "random-importance-once",
]


def test_every_ablation_trains_differently(tmp_path: Path) -> None:
    ends = {}
    for name in ["roast", *(f"roast:{ablation}" for ablation in ABLATIONS)]:
        trainer = trained(name, tmp_path, data=TinyData(size=12), max_steps=5)
        ends[name] = weights(trainer.model)
        assert all(weight.isfinite().all() for weight in ends[name].values())
    names = list(ends)
    for i, one in enumerate(names):
        for other in names[:i]:
            assert any(differing(ends[one], ends[other])), f"{one} is {other}"


def test_without_perturbation_is_the_selection_on_plain_cross_entropy(tmp_path: Path) -> None:
    ablated, plain = trained("roast:without-perturbation", tmp_path), trained(recipe(), tmp_path)
    assert not list(differing(weights(ablated.model), weights(plain.model)))


def test_the_importance_is_that_of_the_whole_loss(tmp_path: Path) -> None:
    """After an epoch the sums are the squares of what the optimiser would have got, perturbed terms included."""
    sums = {}
    for name in ("roast", "roast:without-perturbation"):
        trainer = trained(name, tmp_path, data=TinyData(size=16), max_steps=3)
        sums[name] = trainer._engine._run.selector._importance.sums.whole  # type: ignore[union-attr,attr-defined]
        assert (sums[name] > 0).double().mean() > 0.9
    assert not torch.allclose(*sums.values())


def test_the_recipe_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": TinyData(size=24), "max_steps": 10}
    model = tiny_bert(dtype=torch.float32)
    whole = trained("roast:entailment", tmp_path, model, save_strategy="steps", save_steps=8, **settings)
    again = trained(
        "roast:entailment",
        tmp_path,
        tiny_bert(dtype=torch.float32, seed=7),
        resume=str(tmp_path / "checkpoint-8"),
        **settings,
    )
    assert not list(differing(weights(whole.model), weights(again.model)))


MEASURE = """
import resource
import torch
from torch import nn
from rosewood.protocol import Progress, Readings, Run
from rosewood.selections.roast import Roast, RoastSelector

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def start(size):
    model = nn.Module()
    model.blocks = nn.ModuleList([nn.Linear(size, 1, bias=False)])
    selector = RoastSelector(Roast(), Run(model, 1, None))
    selector._importance.sums.whole.exponential_()
    selector._mask.whole.fill_(1)
    return selector

one = torch.ones(())
readings = Readings({"total": {}}, {"total": one}, one, {}, 0.9, Progress(0, 1, 0))
start(1000).masks(readings)
n = 10_000_000
selector = start(n)
before = peak()
selector.masks(readings)
print((peak() - before) / 4 / n)
"""


def test_ten_million_ranks_take_less_than_four_floats_each() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    floats = float(done.stdout)
    assert floats < 4, f"{floats:.2f} floats of scratch memory for each candidate"
