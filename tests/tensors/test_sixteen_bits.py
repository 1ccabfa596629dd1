"""Random 16-bit numbers for many parameters at once."""

import torch

from rosewood.tensors.draws import LEVELS, LOWEST, SixteenBits


def drawn(numbers: SixteenBits, seed: int = 0) -> torch.Tensor:
    return numbers.draw(torch.Generator().manual_seed(seed))


def test_every_lane_reaches_both_ends_of_the_range() -> None:
    numbers = drawn(SixteenBits([torch.empty(400_000)])).int()
    for lane in range(4):
        assert numbers[lane::4].min() < LOWEST + LEVELS // 1000
        assert numbers[lane::4].max() > -LOWEST - LEVELS // 1000


def test_what_is_done_in_place_is_seen_by_every_parameter() -> None:
    numbers = SixteenBits([torch.empty(()), torch.empty(3, 5), torch.empty(7, 2)], [(), (3, 5), (7, 1)])
    row = drawn(numbers)
    assert [tuple(own.shape) for own in numbers.own] == [(), (3, 5), (7, 1)]
    row.lt_(0)
    assert torch.equal(torch.cat([own.flatten() for own in numbers.own]), row)
    assert set(row.tolist()) == {0, 1}


def test_the_generator_alone_decides() -> None:
    numbers = SixteenBits([torch.empty(9)])
    first, again, other = (drawn(numbers, seed).clone() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
