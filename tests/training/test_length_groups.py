"""Batches of similar length whose order is a function of seed and epoch."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from rosewood.training.sampling import LengthGroupedSampler
from rosewood.training.trainer import RobustTrainer
from tiny import arguments, tiny_bert


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=120),
    batch=st.integers(1, 9),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 3),
)
def test_every_example_once_and_the_longest_batch_first(lengths: list[int], batch: int, seed: int, epoch: int) -> None:
    sampler = LengthGroupedSampler(lengths, batch, seed)
    sampler.set_epoch(epoch)
    order = list(sampler)
    assert sorted(order) == list(range(len(lengths)))
    assert len(sampler) == len(lengths)
    again = LengthGroupedSampler(lengths, batch, seed)
    again.set_epoch(epoch)
    torch.rand(3)
    assert list(again) == order
    full = [order[i : i + batch] for i in range(0, len(order) - batch + 1, batch)]
    longest = [max(lengths[i] for i in group) for group in full]
    assert not longest or longest[0] == max(longest)


def test_epochs_and_seeds_differ_and_lengths_are_near() -> None:
    lengths = torch.randint(1, 100, (256,), generator=torch.Generator().manual_seed(0)).tolist()
    sampler = LengthGroupedSampler(lengths, 8, seed=0)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(LengthGroupedSampler(lengths, 8, seed=1)) != first
    spread = [max(group) - min(group) for group in zip(*[iter(lengths[i] for i in first)] * 8, strict=True)]
    assert sum(spread) / len(spread) < 10, "batches of random order would span about 80"


@pytest.mark.parametrize(("seed", "data_seed", "expected"), [(3, None, 3), (3, 4, 4), (3, 0, 0)])
def test_the_trainer_passes_the_data_seed(seed: int, data_seed: int | None, expected: int, tmp_path: Path) -> None:
    data = Dataset.from_dict({"length": list(range(40)), "labels": [0] * 40})
    args = arguments(tmp_path, train_sampling_strategy="group_by_length", seed=seed, data_seed=data_seed)
    trainer = RobustTrainer(model=tiny_bert(), args=args, train_dataset=data)
    assert list(trainer._get_train_sampler()) == list(LengthGroupedSampler(data["length"], 4, expected))
