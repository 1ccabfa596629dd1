"""Weights leave and come home bit for bit, in few buffers, tied ones once."""

import weakref
from typing import Any

import pytest
import torch
from torch import nn

from rosewood.lab import sharpness
from rosewood.lab.landscape import loss_landscape
from rosewood.lab.sharpness import excursion, random_directions
from rosewood.tensors.shards import Flat, flat_like
from tiny_losses import fixed_loss
from tiny_text import tiny_classifier


def state(model: nn.Module) -> list[tuple[int, int, torch.Tensor]]:
    return [(id(weight), weight.data_ptr(), weight.detach().clone()) for weight in model.parameters()]


def same(first: list[Any], second: list[Any]) -> bool:
    return all(a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("end", [None, ValueError, KeyboardInterrupt])
def test_weights_are_home_however_it_ends(end: type[BaseException] | None) -> None:
    model = tiny_classifier()
    before, ways = state(model), random_directions(model)

    def travel() -> None:
        with excursion(model) as trip:
            trip.go(ways, (0.3, -0.1))
            assert not same(before, state(model))
            if end is not None:
                raise end

    if end is None:
        travel()
    else:
        with pytest.raises(end):
            travel()
    assert same(before, state(model))


def test_each_place_is_reached_from_home_and_not_from_the_last() -> None:
    model = tiny_classifier()
    home = [weight.detach().clone() for weight in model.parameters()]
    first, second = random_directions(model)
    with excursion(model) as trip:
        for a, b in ((0.7, 0.1), (-0.2, 0.3), (0.0, 0.0)):
            trip.go([first, second], (a, b))
            expected = [h + a * d + b * e for h, d, e in zip(home, first.pieces, second.pieces, strict=True)]
            torch.testing.assert_close(list(model.parameters()), expected, rtol=1e-5, atol=1e-6)
        assert all(torch.equal(weight, start) for weight, start in zip(model.parameters(), home, strict=True))


class Tied(nn.Module):
    """One matrix under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight


def test_tied_weights_are_moved_once_and_stay_tied() -> None:
    model = Tied()
    home = model.first.weight.detach().clone()
    (direction,) = random_directions(model, 1)
    assert direction.whole.numel() == 9
    with excursion(model) as trip:
        trip.go([direction], [0.5])
        assert model.second.weight is model.first.weight
        torch.testing.assert_close(model.first.weight.detach(), home + 0.5 * direction.pieces[0])
    assert torch.equal(model.second.weight, home)


def test_a_landscape_holds_one_excursion_and_two_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only flat buffers are those that `flat_like` makes: counted while they are alive."""
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def counted(tensors: Any) -> Flat:
        nonlocal most
        made = flat_like(tensors)
        alive.append(weakref.ref(made.whole))
        most = max(most, sum(ref() is not None for ref in alive))
        return made

    monkeypatch.setattr(sharpness, "flat_like", counted)
    loss_landscape(fixed_loss(), "m", points=5, hessian_iterations=2, progress=False)
    assert most == 3
    assert len(alive) == 4  # and the vector of the power iteration, beside which gradient and product stand
