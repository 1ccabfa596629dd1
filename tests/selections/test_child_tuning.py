"""Child-Tuning: Fisher masks against numpy, random masks against their distribution, training against a slow loop."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rosewood.errors import RecipeError
from rosewood.protocol import Output, Progress, Readings, Run
from rosewood.recipe import Recipe, build_recipe, load_recipe
from rosewood.selections.child_tuning import ChildTuning, FisherChild, RandomChild
from tiny import TinyData, arguments, differing, tiny_bert, trained, weights
from zero_mask_oracle import Arrays, Oracle, flat, generator, gradients_of, in_blocks, observed, unflat


def child(variant: str, **settings: Any) -> Recipe:
    return build_recipe({"name": "child", "selection": {"name": "child_tuning", "variant": variant} | settings})


def run_of(model: nn.Module) -> Run:
    return Run(model, 10, load_recipe("vanilla").all_stages()[0])


def readings(model: nn.Module, step: int = 0) -> Readings:
    one = torch.ones(())
    total = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    return Readings({"total": total}, {"total": one}, one, {}, 0.9, Progress(step, 10))


def all_values(masks: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in masks.values])


# F


def drawn(share: float, step: int = 0, size: int = 400_000) -> torch.Tensor:
    model = nn.Linear(size, 1, bias=False)
    selector = ChildTuning("F", share).start(run_of(model))
    masks = selector.masks(readings(model, step))
    assert masks is not None
    torch.testing.assert_close(selector.log()["kept_share"], (all_values(masks) > 0).float().mean())
    return all_values(masks).clone()


@pytest.mark.parametrize("share", [0.3, 0.017, 0.9])
def test_random_masks_keep_their_share_in_every_lane_and_are_unbiased(share: float) -> None:
    mask = drawn(share)
    assert len(mask.unique()) == 2
    assert mask.min() == 0
    assert float(mask.max()) == pytest.approx(1 / share, rel=2e-3)
    # Four weights share a 64-bit number; a bit that is never set would show in one of the four.
    for lane in range(4):
        part = mask[lane::4]
        sigma = (share * (1 - share) / len(part)) ** 0.5
        assert abs(float((part > 0).double().mean()) - share) < 4 * sigma
    assert float(mask.double().mean()) == pytest.approx(1, abs=4 * ((1 - share) / share / len(mask)) ** 0.5)
    neighbours = torch.corrcoef(torch.stack([mask[:-1], mask[1:]]))[0, 1]
    assert abs(float(neighbours)) < 4 / len(mask) ** 0.5


def test_random_masks_depend_on_the_step_and_nothing_else() -> None:
    assert torch.equal(drawn(0.3, step=4), drawn(0.3, step=4))
    both = (drawn(0.3, step=4) > 0) & (drawn(0.3, step=5) > 0)
    assert float(both.double().mean()) == pytest.approx(0.09, abs=0.003)


def test_the_tiniest_share_still_keeps_something() -> None:
    assert float(drawn(1e-7).max()) == 65536


def test_random_masks_cover_everything_or_what_is_named() -> None:
    model = tiny_bert()
    assert RandomChild(ChildTuning("F"), run_of(model))._names == [name for name, _ in model.named_parameters()]
    named = RandomChild(ChildTuning("F", parameters="query"), run_of(model)).masks(readings(model))
    assert named is not None
    assert len(named.names) == 4
    assert all("query" in name for name in named.names)


def test_a_parameter_without_gradient_does_not_disturb_the_others() -> None:
    model = tiny_bert()
    selector = ChildTuning("F").start(run_of(model))
    every = selector.masks(readings(model))
    assert every is not None
    expected = {name: value.clone() for name, value in zip(every.names, every.values, strict=True)}
    less = readings(model)
    del less.gradients["total"]["bert.embeddings.word_embeddings.weight"]  # type: ignore[attr-defined]
    found = selector.masks(less)
    assert found is not None
    assert len(found.names) == len(expected) - 1
    assert all(torch.equal(value, expected[name]) for name, value in zip(found.names, found.values, strict=True))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_f_against_the_slow_loop(accumulation: int, tmp_path: Path) -> None:
    steps, threshold = 8, round(0.3 * 65536)

    def mask(gradient: Arrays, step: int) -> Arrays:
        names = list(gradient)
        size = sum(g.size for g in gradient.values())
        words = torch.empty(-(-size // 4), dtype=torch.int64).random_(
            -(2**63), None, generator=generator("child_tuning", step)
        )
        number = words.numpy().view(np.uint16)[:size].astype(np.int64)
        signed = np.where(number >= 32768, number - 65536, number)
        return unflat((signed + 32768 < threshold) * (65536 / threshold), gradient, names)

    data = TinyData(size=4 * accumulation * steps)
    trainer = observed(child("F"), tmp_path, data=data, max_steps=steps, gradient_accumulation_steps=accumulation)
    assert not trainer.first_pass, "F needs no pass before training"
    Oracle(tiny_bert().train(), steps, mask).follow(trainer, accumulation)


# D


def fisher_by_hand(model: nn.Module, draws: list[Any], names: list[str]) -> np.ndarray:
    fisher = np.zeros(sum(p.numel() for n, p in model.named_parameters() if n in names))
    for draw in draws:
        gradient = gradients_of(model, *draw)
        for name in names:
            norm = np.sqrt((gradient[name] ** 2).sum())
            gradient[name] = gradient[name] * min(1.0, 1.0 / (norm + 1e-6))
        fisher += flat(gradient, names) ** 2 / len(draws)
    return fisher


@pytest.mark.parametrize("share", [0.3, 0.05, 0.5])
def test_d_against_the_slow_loop_and_numpys_percentile(share: float, tmp_path: Path) -> None:
    steps = 8
    # A large head makes gradients above norm 1, so that clipping each tensor matters.
    model, other = tiny_bert(), tiny_bert().train()
    for each in (model, other):
        each.classifier.weight.data.mul_(60)
    trainer = observed(child("D", keep_share=share), tmp_path, model=model, max_steps=steps, data=TinyData(size=22))
    assert [len(step[0]["labels"]) for _, step in trainer.first_pass] == [4, 4, 4, 4, 4, 2]
    names = in_blocks(other)
    fisher = fisher_by_hand(other, trainer.first_pass, names)
    kept = (fisher >= np.percentile(fisher, (1 - share) * 100)).astype(float)
    assert abs(kept.mean() - share) < 2 / len(kept)
    norms = [np.sqrt((g**2).sum()) for g in gradients_of(other, *trainer.first_pass[0]).values()]
    assert min(norms) < 1 < max(norms), "the test should see both kinds of tensors"

    def mask(gradient: Arrays, step: int) -> Arrays:
        return unflat(kept, gradient, names)

    Oracle(other, steps, mask).follow(trainer)


def test_outside_the_child_nothing_but_decay_happens(tmp_path: Path) -> None:
    before = weights(tiny_bert())
    trainer = observed(child("D"), tmp_path, max_steps=5, lr_scheduler_type="constant")
    mask = dict(zip(in_blocks(trainer.model), trainer._engine._run.selector._mask.pieces, strict=True))  # type: ignore[union-attr]
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    parameter = trainer.model.get_parameter(name)
    inside = mask[name] == 1
    outside = mask[name] == 0
    assert 0 < int(outside.sum()) < outside.numel()
    torch.testing.assert_close(parameter.detach()[outside], before[name][outside] * (1 - 1e-5) ** 5)
    assert not trainer.optimizer.state[parameter]["exp_avg"][outside].any()
    assert not trainer.optimizer.state[parameter]["exp_avg_sq"][outside].any()
    assert trainer.optimizer.state[parameter]["exp_avg"][inside].all()


class Quadratic(nn.Module):
    """Weights whose gradients are the rows of the batch themselves."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(size, 1, bias=False)])
        self.unused = nn.Parameter(torch.zeros(3))


def rows(batch: Any, model: nn.Module | None = None) -> Output:
    assert isinstance(model, Quadratic)
    return Output((batch["x"] * model.blocks[0].weight).sum(), torch.zeros(1))


def prepared(model: nn.Module, batches: list[list[float]], **settings: Any) -> FisherChild:
    selector = FisherChild(ChildTuning("D", **settings), run_of(model))
    selector.prepare(rows, [[{"x": torch.tensor([batch])}] for batch in batches])
    return selector


def test_zero_gradients_beyond_the_share_warn_and_keep_everything() -> None:
    with pytest.warns(
        UserWarning, match=r"less than 40% of the candidates had a gradient.*all of them will be updated"
    ):
        selector = prepared(Quadratic(10), [[1.0, 0, 0, 2, 0, 0, 0, 0, 0, 0]], keep_share=0.4)
    assert selector.log()["kept_share"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selector = prepared(Quadratic(10), [[1.0, 0, 0, 2, 0, 0, 0, 0, 0, 0]], keep_share=0.1)
        assert float(selector.log()["kept_share"]) == pytest.approx(0.1)
        prepared(Quadratic(10), [[0.0] * 10], keep_share=1.0)


def test_ties_at_the_threshold_are_all_kept() -> None:
    selector = prepared(Quadratic(5), [[0.1, 0.2, 0.2, 0.2, 0.3]], keep_share=0.5)
    masks = selector.masks(readings(Quadratic(5)))
    assert all_values(masks).tolist() == [0, 1, 1, 1, 1]


def test_an_unused_candidate_counts_as_zero() -> None:
    model = Quadratic(3)
    selector = prepared(model, [[0.1, 0.2, 0.3]], keep_share=0.5, parameters=".")
    assert all_values(selector.masks(readings(model))).tolist() == [0, 0, 0, 1, 1, 1]


# Both


@pytest.mark.parametrize("variant", ["D", "F"])
def test_keeping_everything_is_plain_fine_tuning_bit_for_bit(variant: str, tmp_path: Path) -> None:
    plain = trained("vanilla", tmp_path)
    whole = trained(child(variant, keep_share=1.0), tmp_path)
    assert not list(differing(weights(plain.model), weights(whole.model)))


@pytest.mark.parametrize("variant", ["D", "F"])
def test_resumed_is_uninterrupted(variant: str, tmp_path: Path) -> None:
    recipe = child(variant)
    logs = [tmp_path / "whole.jsonl", tmp_path / "resumed.jsonl"]
    whole = trained(
        recipe, tmp_path, tiny_bert(dtype=torch.float32), history_file=logs[0], save_strategy="steps", save_steps=5
    )
    resumed = trained(
        recipe,
        tmp_path,
        tiny_bert(dtype=torch.float32, seed=7),
        resume=str(tmp_path / "checkpoint-5"),
        history_file=logs[1],
    )
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert logs[0].read_text().splitlines()[5:] == logs[1].read_text().splitlines()


@pytest.mark.parametrize("variant", ["D", "F"])
def test_bf16(variant: str, tmp_path: Path) -> None:
    autocast = trained(child(variant), tmp_path, model=tiny_bert(dtype=torch.float32), bf16=True, max_steps=2)
    assert autocast.state.log_history[-1]["train_loss"] > 0
    pure = trained(child(variant), tmp_path, model=tiny_bert(dtype=torch.bfloat16), max_steps=2)
    assert all(p.dtype == torch.bfloat16 and p.isfinite().all() for p in pure.model.parameters())


def test_the_pass_before_training_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    plain, d = observed("vanilla", tmp_path), observed(child("D"), tmp_path)
    for (state, batch), (other_state, other) in zip(plain.micro_batches, d.micro_batches, strict=True):
        assert torch.equal(state, other_state)
        assert torch.equal(batch["input_ids"], other["input_ids"])


def test_models_without_blocks_are_refused_by_d_only(tmp_path: Path) -> None:
    bag = nn.Sequential(nn.Linear(2, 2))
    assert "nothing to select among" in ChildTuning("D").problems_with(bag)[0]
    assert not ChildTuning("F").problems_with(bag)
    assert not ChildTuning("D", parameters="weight").problems_with(bag)
    assert "matches 'nope'" in ChildTuning("F", parameters="nope").problems_with(bag)[0]


@pytest.mark.parametrize("share", [0, -0.1, 1.1])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(RecipeError, match=r"selection\.keep_share"):
        child("F", keep_share=share)


def test_explanations_and_memory() -> None:
    f, d = child("F", keep_share=0.4), child("D", keep_share=0.25)
    assert f.selection.explain(f.all_stages()[0]) == [
        "in every step M ~ Bernoulli(0.4) for each weight; g' = M g / 0.4"
    ]
    assert "quantile 0.75" in d.selection.explain(d.all_stages()[0])[1]
    assert (f.memory(), d.memory()) == ("mask, random bits", "mask")
    assert str(f.cost()) == str(d.cost()) == "F+B"


def test_published_training_settings_are_accepted(tmp_path: Path) -> None:
    args = arguments(tmp_path, **load_recipe("child-tuning-d:large").training)
    assert (args.get_warmup_steps(100), args.learning_rate, args.max_grad_norm) == (6, 1e-5, 0.0)
