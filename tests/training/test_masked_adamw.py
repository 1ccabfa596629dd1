"""MaskedAdamW against torch.optim.AdamW and against the formula of Algorithm 1, written out."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from rose_oracle import Settings, moved
from rosewood.recipe import load_recipe
from rosewood.training.masked_adamw import MaskedAdamW
from tiny import TinyData, arguments, differing, tiny_bert, trained, weights

SHAPES = [(4, 3), (5,), (2, 2, 2), (1,)]
FORMS: list[Literal["torch", "hf"]] = ["torch", "hf"]
OPTIONS: dict[str, Any] = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3}


def parameters(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in SHAPES]


def gradients(step: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in SHAPES]


def advance(optimizer: torch.optim.Optimizer, ours: list[nn.Parameter], step: int) -> None:
    for parameter, gradient in zip(ours, gradients(step, ours[0].dtype), strict=True):
        parameter.grad = gradient
    optimizer.step()


def slow_step(
    theta: Tensor, m: Tensor, v: Tensor, g: Tensor, mask: float | Tensor, t: int, form: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Lines 8 to 13 of Algorithm 1."""
    b1, b2 = OPTIONS["betas"]
    s = Settings("second", 1, betas=OPTIONS["betas"], epsilon=OPTIONS["eps"], form=form)
    g = mask * g + (1 - mask) * m
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    return moved(theta, m, v, mask, OPTIONS["lr"], OPTIONS["weight_decay"], t, s), m, v


@pytest.mark.parametrize("fused", [True, False, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ones", [{}, 1.0])
def test_nothing_but_ones_is_torch_adamw(fused: bool | None, dtype: torch.dtype, ones: Any) -> None:
    mine, theirs = parameters(dtype), parameters(dtype)
    groups = [{"params": mine[:2]}, {"params": mine[2:], "weight_decay": 0.0}]
    other = [{"params": theirs[:2]}, {"params": theirs[2:], "weight_decay": 0.0}]
    masked = MaskedAdamW(groups, fused=fused, **OPTIONS)
    plain = torch.optim.AdamW(other, fused=fused, **OPTIONS)
    for step in range(20):
        masked.multipliers = dict.fromkeys(mine, ones) if ones else {}
        advance(masked, mine, step)
        advance(plain, theirs, step)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(masked.state[a]["exp_avg"], plain.state[b]["exp_avg"])
        assert torch.equal(masked.state[a]["exp_avg_sq"], plain.state[b]["exp_avg_sq"])


def test_keeping_everything_is_plain_adamw_over_the_whole_engine(tmp_path: Path) -> None:
    """ROSE at keep_quantile 1 against a hand-written loop around torch.optim.AdamW on the same batches."""
    recipe = load_recipe("rose-second", {"selection.keep_quantile": 1.0})
    trainer = trained(recipe, tmp_path, data=TinyData(size=80), max_steps=20, lr_scheduler_type="constant")
    model = tiny_bert().train()
    args = arguments(tmp_path)
    undecayed = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    decayed = [p for n, p in model.named_parameters() if not ("bias" in n or "LayerNorm" in n)]
    plain = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": args.weight_decay}, {"params": undecayed, "weight_decay": 0.0}],
        lr=args.learning_rate,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
        fused=True,
    )
    torch.set_rng_state(trainer.micro_batches[0][0])
    for _, batch in trainer.micro_batches:
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        plain.step()
        model.zero_grad()
    assert not list(differing(weights(trainer.model), weights(model)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("zero", [0.0, 0, torch.zeros(4, 3, dtype=torch.float64)], ids=["float", "int", "tensor"])
def test_zero_freezes_weight_and_momentum(form: Literal["torch", "hf"], zero: Any) -> None:
    mine = parameters()
    optimizer = MaskedAdamW(mine, form=form, **OPTIONS)
    for step in range(3):
        advance(optimizer, mine, step)
    state = optimizer.state[mine[0]]
    weight, m, v = mine[0].detach().clone(), state["exp_avg"].clone(), state["exp_avg_sq"].clone()
    free = mine[1].detach().clone()
    optimizer.multipliers = {mine[0]: zero}
    advance(optimizer, mine, 3)
    assert torch.equal(mine[0], weight)
    assert torch.equal(state["exp_avg"], m)
    torch.testing.assert_close(state["exp_avg_sq"], 0.95 * v + 0.05 * m**2, rtol=1e-14, atol=0)
    assert int(state["step"]) == 4
    assert not torch.equal(mine[1], free)


@pytest.mark.parametrize("form", FORMS)
def test_zero_at_the_first_step_moves_nothing(form: Literal["torch", "hf"]) -> None:
    mine = parameters()
    optimizer = MaskedAdamW(mine, form=form, **OPTIONS)
    optimizer.multipliers = dict.fromkeys(mine, 0.0)
    advance(optimizer, mine, 0)
    for parameter, start in zip(mine, parameters(), strict=True):
        assert torch.equal(parameter, start)
        assert not optimizer.state[parameter]["exp_avg"].any()
        assert not optimizer.state[parameter]["exp_avg_sq"].any()
        assert int(optimizer.state[parameter]["step"]) == 1


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_any_multiplier_against_the_formula(form: Literal["torch", "hf"], fused: bool) -> None:
    """Numbers, elementwise tensors and missing ones, mixed and changing from step to step."""
    mine = parameters()
    optimizer = MaskedAdamW(mine, fused=fused, form=form, **OPTIONS)
    expected = [(p.detach().clone(), torch.zeros_like(p), torch.zeros_like(p)) for p in mine]
    generator = torch.Generator().manual_seed(9)
    for step in range(12):
        fractions = torch.rand(SHAPES[0], generator=generator, dtype=torch.float64)
        bits = torch.randint(0, 2, SHAPES[2], generator=generator).double()
        chosen: list[float | Tensor] = [fractions, [0.0, 0.3, 0.5, 1.0][step % 4], bits, 1.0]
        optimizer.multipliers = dict(zip(mine[:3], chosen[:3], strict=True))
        advance(optimizer, mine, step)
        expected = [
            slow_step(*old, g, mask, step + 1, form)
            for old, g, mask in zip(expected, gradients(step), chosen, strict=True)
        ]
    for parameter, (theta, m, v) in zip(mine, expected, strict=True):
        state = optimizer.state[parameter]
        torch.testing.assert_close(parameter.detach(), theta, rtol=0, atol=1e-12)
        torch.testing.assert_close(state["exp_avg"], m, rtol=0, atol=1e-12)
        torch.testing.assert_close(state["exp_avg_sq"], v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [0.0, 0.3, 0.5, 1.0])
def test_a_number_and_a_constant_tensor_mean_the_same(value: float, form: Literal["torch", "hf"]) -> None:
    runs = []
    for multiplier in (lambda p: value, lambda p: torch.full_like(p, value)):
        mine = parameters()
        optimizer = MaskedAdamW(mine, form=form, **OPTIONS)
        for step in range(4):
            optimizer.multipliers = {p: multiplier(p) for p in mine} if step else {}
            advance(optimizer, mine, step)
        runs.append(mine)
    for a, b in zip(*runs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_a_parameter_without_gradient_stays_out_of_it() -> None:
    mine = parameters()
    optimizer = MaskedAdamW(mine, **OPTIONS)
    optimizer.multipliers = {mine[0]: 0.5}
    for parameter, gradient in list(zip(mine, gradients(0), strict=True))[1:]:
        parameter.grad = gradient
    optimizer.step()
    assert torch.equal(mine[0], parameters()[0])
    assert mine[0] not in optimizer.state


@pytest.mark.parametrize("fused", [True, False])
def test_state_goes_to_torch_and_back(fused: bool) -> None:
    mine, theirs, again = parameters(), parameters(), parameters()
    first = MaskedAdamW(mine, fused=fused, **OPTIONS)
    first.multipliers = {mine[0]: 0.0, mine[1]: 0.5}
    for step in range(3):
        advance(first, mine, step)
    second = torch.optim.AdamW(theirs, fused=fused, **OPTIONS)
    second.load_state_dict(deepcopy(first.state_dict()))  # torch shares tensors otherwise
    third = MaskedAdamW(again, fused=fused, **OPTIONS)
    third.load_state_dict(deepcopy(second.state_dict()))
    for target in (theirs, again):
        for parameter, source in zip(target, mine, strict=True):
            parameter.data.copy_(source)
    first.multipliers = {}
    for step in range(3, 6):
        for optimizer, ours in ((first, mine), (second, theirs), (third, again)):
            advance(optimizer, ours, step)
    for a, b, c in zip(mine, theirs, again, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@pytest.mark.parametrize("fused", [True, False])
def test_a_skipped_step_leaves_everything_alone(fused: bool) -> None:
    """A real GradScaler meets an infinite gradient: the optimiser must not even begin its step."""
    mine = parameters(torch.float32)
    optimizer = MaskedAdamW(mine, fused=fused, **OPTIONS)
    selections = []
    optimizer.register_step_pre_hook(lambda opt, *_: selections.append(len(selections)))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(()))
    advance(optimizer, mine, 0)
    optimizer.multipliers = masks = {mine[0]: 0.5}
    before = [(p.detach().clone(), optimizer.state[p]["exp_avg"].clone()) for p in mine]
    for parameter, gradient in zip(mine, gradients(1, torch.float32), strict=True):
        parameter.grad = gradient
    mine[2].grad = torch.full(SHAPES[2], torch.inf)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4.0
    assert selections == [0]
    assert optimizer.multipliers is masks
    for parameter, (weight, m) in zip(mine, before, strict=True):
        assert torch.equal(parameter, weight)
        assert torch.equal(optimizer.state[parameter]["exp_avg"], m)
        assert int(optimizer.state[parameter]["step"]) == 1


def test_a_closure_runs_with_gradients() -> None:
    mine = parameters()
    optimizer = MaskedAdamW(mine, **OPTIONS)

    def closure() -> float:
        loss = sum((p**2).sum() for p in mine)
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == pytest.approx(float(sum((p.detach() ** 2).sum() for p in parameters())))
    assert all(not torch.equal(a, b) for a, b in zip(mine, parameters(), strict=True))
