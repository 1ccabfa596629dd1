"""The delicate points of ROSE's masks: ties, zeros, infinities, first steps, missing gradients, kept counts."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy
from torch import Tensor

from rosewood.errors import RecipeError
from rosewood.protocol import Progress, Readings, Run
from rosewood.recipe import build_recipe, load_recipe
from rosewood.selections.rose import Rose, RoseSelector
from rosewood.tensors.divergences import symmetric_kl
from rosewood.tensors.shards import stacked_norms
from tiny import tiny_bert

NAMES = ["a", "b", "c", "d", "e"]
INF, NAN = math.inf, math.nan


STAGE = load_recipe("rose-first").all_stages()[0]


class Bag(torch.nn.Module):
    """Named parameters of one element, so that a norm is an absolute value."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        for name in names:
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)))


def selector(names: list[str] = NAMES, **options: Any) -> RoseSelector:
    return Rose(parameters=".", **options).start(Run(Bag(names), 10, STAGE))


def tensors(values: Mapping[str, float]) -> dict[str, Tensor]:
    return {name: torch.tensor([value], dtype=torch.float64) for name, value in values.items()}


def readings(
    ce: Mapping[str, float] | None = None,
    kl: Mapping[str, float] | None = None,
    m: Mapping[str, float] | None = None,
    step: int = 5,
    total: Mapping[str, float] | None = None,
) -> Readings:
    one = torch.ones((), dtype=torch.float64)
    gradients = {"total": tensors(total or ce or dict.fromkeys(kl or {}, 1.0))}
    gradients |= {"ce": tensors(ce)} if ce is not None else {}
    gradients |= {"dropout_kl": tensors(kl)} if kl is not None else {}
    return Readings(gradients, dict.fromkeys(gradients, one), one, tensors(m or {}), 0.9, Progress(step, 10))


def masks(chosen: RoseSelector, seen: Readings) -> dict[str, float]:
    found = chosen.masks(seen)
    assert found is not None
    assert isinstance(found.values, Tensor)
    return dict(zip(found.names, found.values.tolist(), strict=True))


def kept(found: Mapping[str, float]) -> set[str]:
    return {name for name, value in found.items() if value == 1}


# Risks.


def test_first_order_keeps_the_least_sensitive() -> None:
    found = masks(selector(order="first", keep_quantile=0.5), readings(kl={"a": 5, "b": -1, "c": 2, "d": 4, "e": 3}))
    assert kept(found) == {"b", "c", "e"}  # floor(0.5 * 4) + 1


def test_second_order_risk_by_hand() -> None:
    # 0.1 |g| / |m| = 0.1, 1, 2, 0.5, 4 and so r = 0.9, 0, 1, 0.5, 3.
    ce = {"a": 1.0, "b": -10.0, "c": 20.0, "d": 5.0, "e": 40.0}
    found = masks(selector(order="second", keep_quantile=0.5), readings(ce=ce, m=dict.fromkeys(NAMES, -1.0)))
    assert kept(found) == {"b", "d", "a"}


def test_nought_over_nought_is_no_risk_and_poisons_nothing() -> None:
    ce = {"a": 0.0, "b": 10.0, "c": 20.0, "d": 30.0, "e": 40.0}
    momentum = {"a": 0.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}
    found = masks(selector(order="second", keep_quantile=0.3), readings(ce=ce, m=momentum))
    assert kept(found) == {"a", "b"}


def test_something_over_nought_is_an_infinite_risk() -> None:
    ce = {"a": 7.0, "b": 10.0, "c": 20.0, "d": 30.0, "e": 40.0}
    momentum = {"a": 0.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}
    chosen = selector(order="second", keep_quantile=0.8)
    assert kept(masks(chosen, readings(ce=ce, m=momentum))) == {"b", "c", "d", "e"}
    assert chosen.log()["second_risk"][-1] == INF


def test_infinities_do_not_poison_the_threshold() -> None:
    kl = {"a": INF, "b": INF, "c": 1.0, "d": 2.0, "e": 3.0}
    # An interpolated quantile would be infinite (or NaN) from 0.5 on.
    assert kept(masks(selector(order="first", keep_quantile=0.6), readings(kl=kl))) == {"c", "d", "e"}


def test_an_overflow_counts_as_infinite_and_ties_with_infinity() -> None:
    kl = {"a": NAN, "b": INF, "c": 1.0, "d": 2.0, "e": 3.0}
    assert kept(masks(selector(order="first", keep_quantile=0.6), readings(kl=kl))) == {"c", "d", "e"}
    assert kept(masks(selector(order="first", keep_quantile=0.75), readings(kl=kl))) == set(NAMES)
    ce = {"a": NAN, "b": 10.0, "c": 20.0, "d": 30.0, "e": 40.0}
    found = masks(selector(order="second", keep_quantile=0.9), readings(ce=ce, m=dict.fromkeys(NAMES, 1.0)))
    assert kept(found) == {"b", "c", "d", "e"}


def test_nothing_but_overflow_keeps_everything() -> None:
    assert kept(masks(selector(order="first"), readings(kl=dict.fromkeys(NAMES, NAN)))) == set(NAMES)


@pytest.mark.parametrize("quantile", [0.0, 0.3, 1.0])
def test_equal_risks_keep_everything(quantile: float) -> None:
    found = masks(selector(order="first", keep_quantile=quantile), readings(kl=dict.fromkeys(NAMES, 2.0)))
    assert kept(found) == set(NAMES)


def test_risks_tied_at_the_threshold_are_all_kept() -> None:
    found = masks(selector(order="first", keep_quantile=0.0), readings(kl={"a": 1, "b": 1, "c": 1, "d": 2, "e": 3}))
    assert kept(found) == {"a", "b", "c"}


@pytest.mark.parametrize("quantile", [0.0, 0.5, 1.0])
def test_a_single_candidate_always_moves(quantile: float) -> None:
    chosen = selector(["a"], order="ensemble", keep_quantile=quantile)
    assert kept(masks(chosen, readings(ce={"a": 3.0}, kl={"a": 1.0}, m={"a": 1.0}))) == {"a"}


def test_the_divergence_is_symmetric_and_a_mean_over_examples() -> None:
    p, q = torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([[0.5, 0.5], [0.2, 0.8]])
    by_hand = np.mean([entropy(a, b) + entropy(b, a) for a, b in zip(p.numpy(), q.numpy(), strict=True)])
    assert symmetric_kl(p.log(), q.log()).item() == pytest.approx(by_hand, rel=1e-5)
    assert symmetric_kl(q.log(), p.log()).item() == pytest.approx(by_hand, rel=1e-5)
    assert symmetric_kl(p.log().half(), q.log().half()).dtype == torch.float32
    assert symmetric_kl(p.log(), p.log() + 3).item() == pytest.approx(0, abs=1e-6)


# First steps.


def test_first_step_of_each_order() -> None:
    ce, kl = dict.fromkeys(NAMES, 1.0), {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0}
    begin = readings(ce=ce, kl=kl, step=0)
    assert kept(masks(selector(order="second"), begin)) == set(NAMES)
    assert kept(masks(selector(order="first", keep_quantile=0.5), begin)) == {"a", "b", "c"}
    found = masks(selector(order="ensemble", keep_quantile=0.5, gamma=0.3), begin)
    assert found == pytest.approx({"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.7, "e": 0.7})


def test_ensemble_values_and_equal_masks() -> None:
    ce = {"a": 10.0, "b": 20.0, "c": 30.0, "d": 40.0, "e": 50.0}  # r = 0, 1, 2, 3, 4
    m = dict.fromkeys(NAMES, 1.0)
    crossed = masks(
        selector(order="ensemble", keep_quantile=0.5, gamma=0.3),
        readings(ce=ce, kl={"a": 5, "b": 1, "c": 2, "d": 3, "e": 4}, m=m),
    )
    assert crossed == pytest.approx({"a": 0.7, "b": 1.0, "c": 1.0, "d": 0.3, "e": 0.0})
    same = readings(ce=ce, kl={name: value - 10 for name, value in ce.items()}, m=m)
    both, one = (masks(selector(order=order, keep_quantile=0.5), same) for order in ("ensemble", "first"))
    assert both == one


def test_warm_up_moves_everything() -> None:
    chosen = selector(order="first", warmup_steps=3, keep_quantile=0.0)
    kl = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0}
    assert [chosen.masks(readings(kl=kl, step=step)) is None for step in range(5)] == [True] * 3 + [False] * 2
    assert chosen.reads([], Progress(2, 10)) == {}


# Missing gradients.


def test_a_candidate_without_gradient_is_left_out() -> None:
    kl = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    found = masks(selector(order="first", keep_quantile=0.5), readings(kl=kl))
    assert set(found) == {"a", "b", "c", "d"}
    assert kept(found) == {"a", "b"}


def test_a_candidate_that_joins_later_moves_freely() -> None:
    ce = {"a": 1e9, "b": 10.0, "c": 20.0, "d": 30.0, "e": 40.0}
    momentum = {"b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}
    found = masks(selector(order="second", keep_quantile=0.4), readings(ce=ce, m=momentum))
    assert kept(found) == {"a", "b", "c"}


@pytest.mark.parametrize("order", ["first", "second", "ensemble"])
def test_no_candidate_with_a_gradient_is_no_crash(order: str) -> None:
    seen = readings(ce={}, kl={}, total={"elsewhere": 1.0})
    found = selector(order=order).masks(seen)
    assert found is None or not found.names


# Elements.


def test_elements_are_ranked_over_all_candidates_together() -> None:
    model = torch.nn.Module()
    model.a = torch.nn.Parameter(torch.zeros(2, 2))
    model.b = torch.nn.Parameter(torch.zeros(3))
    settings = Rose(order="first", level="element", parameters=".", keep_quantile=0.5)
    chosen = settings.start(Run(model, 10, STAGE))
    kl = {"a": torch.tensor([[1.0, -7.0], [3.0, 5.0]]), "b": torch.tensor([2.0, -4.0, 6.0])}
    total = {name: torch.ones_like(value) for name, value in kl.items()}
    one = torch.ones(())
    seen = Readings({"total": total, "dropout_kl": kl}, {"dropout_kl": one}, one, {}, 0.9, Progress(3, 10))
    found = chosen.masks(seen)
    assert found is not None
    assert found.names == ["a", "b"]
    assert found.values[0].tolist() == [[1, 0], [1, 0]]
    assert found.values[1].tolist() == [1, 1, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_half_precision_tensors_are_not_rounded_to_ties(dtype: torch.dtype) -> None:
    # Two tensors whose norms differ by a thousandth, and one whose square sum overflows half precision.
    near = [torch.full((1000,), 1.0), torch.cat([torch.full((1000,), 1.0), torch.full((2,), 1.0)])]
    small, large = stacked_norms([tensor.to(dtype) for tensor in near]).tolist()
    assert small < large
    assert stacked_norms([torch.full((4096,), 2048.0, dtype=dtype)]).item() == 64 * 2048.0


# Refusals.


@pytest.mark.parametrize("order", ["first", "ensemble"])
def test_no_dropout_is_refused(order: str) -> None:
    recipe = load_recipe(f"rose-{order}")
    with pytest.raises(RecipeError, match=r"no dropout, so its risks would be rounding noise: set selection\.dropout"):
        recipe.check_model(tiny_bert(dropout=0.0))
    recipe.check_model(tiny_bert(dropout=0.1))
    load_recipe(recipe, {"selection.dropout": 0.2}).check_model(tiny_bert(dropout=0.0))
    load_recipe("rose-second").check_model(tiny_bert(dropout=0.0))


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"second_quantiles: the lower quantile 0.5 is above the upper 0.2"):
        load_recipe("rose-second", {"selection.second_quantiles": [0.5, 0.2]})
    with pytest.raises(RecipeError, match=r"selection\.dropout is for the passes of the first-order risk"):
        load_recipe("rose-second", {"selection.dropout": 0.1})


def test_an_objective_without_divergence_cannot_be_the_risk() -> None:
    with pytest.raises(RecipeError, match="reads the divergence of the objective, and cross_entropy has none"):
        load_recipe("rose-first", {"selection.risk_term": "objective"})


@pytest.mark.parametrize(
    ("setting", "value"),
    [("keep_quantile", 1.5), ("gamma", 1.0), ("order", "third"), ("warmup_steps", -1), ("dropout", 0.0)],
)
def test_settings_out_of_range_are_refused(setting: str, value: Any) -> None:
    with pytest.raises(RecipeError, match=rf"selection\.{setting}: "):
        build_recipe({"selection": {"name": "rose", setting: value}})
