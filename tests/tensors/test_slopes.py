"""Gradients that survive half precision."""

import torch

from rosewood.tensors.gradients import slopes

TENSOR = torch.tensor([1.0, 2.0, -3.0], requires_grad=True)


def half_loss(size: float) -> torch.Tensor:
    """A loss whose gradient passes through fp16 on its way to the tensor, as `size` times (1, 2, 3)."""
    return (TENSOR.half() * torch.tensor([1.0, 2.0, 3.0]).half()).float().sum() * size


def scaled(loss: torch.Tensor) -> torch.Tensor:
    return loss * 2.0**16


def test_small_gradients_need_a_scale() -> None:
    assert slopes(half_loss(2.0**-26), [TENSOR])[0].tolist() == [0.0, 0.0, 0.0]
    assert slopes(half_loss(2.0**-26), [TENSOR], scaled)[0].tolist() == [2.0**-26, 2.0**-25, 3 * 2.0**-26]


def test_large_gradients_are_taken_with_a_smaller_one() -> None:
    assert slopes(half_loss(2.0**10), [TENSOR])[0].tolist() == [2.0**10, 2.0**11, 3 * 2.0**10]
    assert slopes(half_loss(2.0**10), [TENSOR], scaled)[0].tolist() == [2.0**10, 2.0**11, 3 * 2.0**10]


def test_what_overflows_without_any_scale_stays_infinite() -> None:
    assert not slopes(half_loss(2.0**15), [TENSOR], scaled)[0].isfinite().all()


def test_what_the_loss_does_not_depend_on_is_zero() -> None:
    other = torch.ones(2, requires_grad=True)
    for scale in (None, scaled):
        assert slopes(half_loss(1.0), [TENSOR, other], scale)[1].tolist() == [0.0, 0.0]
