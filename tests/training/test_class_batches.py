"""Batches with a say in which classes they hold, whose order is a function of seed and epoch."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from rosewood.errors import RunError
from rosewood.recipe import load_recipe
from rosewood.training.sampling import ClassSampler, class_labels
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, tiny_bert

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=90)


def order_of(
    labels: list[int], kind: Any, batch: int, seed: int = 0, epoch: int = 0, lengths: list[int] | None = None
) -> list[int]:
    sampler = ClassSampler(labels, kind, batch, seed, lengths)
    sampler.set_epoch(epoch)
    assert len(sampler) == len(labels)
    return list(sampler)


@settings(max_examples=60, deadline=None)
@given(LABELS, st.sampled_from(["stratified", "one_class"]), st.integers(1, 9), st.integers(0, 3), st.integers(0, 2))
def test_every_example_once_in_an_order_of_seed_and_epoch(
    labels: list[int], kind: str, batch: int, seed: int, epoch: int
) -> None:
    for lengths in (None, [7 * i % 13 for i in range(len(labels))]):
        order = order_of(labels, kind, batch, seed, epoch, lengths)
        assert sorted(order) == list(range(len(labels)))
        torch.rand(3)
        assert order_of(labels, kind, batch, seed, epoch, lengths) == order


@settings(max_examples=60, deadline=None)
@given(LABELS, st.integers(1, 20))
def test_every_stretch_has_the_proportions_of_the_data(labels: list[int], batch: int) -> None:
    order, counts = order_of(labels, "stratified", batch), Counter(labels)
    for start in range(0, len(order) - batch + 1):
        found = Counter(labels[i] for i in order[start : start + batch])
        for label, count in counts.items():
            share = count / len(labels)
            assert abs(found[label] - batch * share) <= 1 + len(counts) * share


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_equally_frequent_classes_are_equally_frequent_in_every_batch(classes: int) -> None:
    labels = [i % classes for i in range(12 * classes)]
    order = order_of(labels, "stratified", 1)
    for batch in (classes, 4 * classes):
        for start in range(0, len(order), batch):
            assert set(Counter(labels[i] for i in order[start : start + batch]).values()) == {batch // classes}


def test_how_batches_are_cut_makes_no_difference_to_a_stratified_order() -> None:
    labels = [0] * 20 + [1] * 11
    assert order_of(labels, "stratified", 4) == order_of(labels, "stratified", 8)


@settings(max_examples=60, deadline=None)
@given(LABELS, st.integers(1, 9))
def test_one_class_a_batch_and_what_is_left_over_last(labels: list[int], batch: int) -> None:
    order, full = order_of(labels, "one_class", batch), sum(count // batch for count in Counter(labels).values())
    for i in range(full):
        assert len({labels[k] for k in order[i * batch : (i + 1) * batch]}) == 1
    assert len(order) - full * batch == sum(count % batch for count in Counter(labels).values())


@pytest.mark.parametrize("kind", ["stratified", "one_class"])
def test_batches_of_similar_length_hold_the_classes_they_should(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = [i % 3 for i in range(480)]
    lengths = torch.randint(1, 100, (480,), generator=generator).tolist()
    order = order_of(labels, kind, 12, lengths=lengths)
    batches = [order[i : i + 12] for i in range(0, 480, 12)]
    expected = [4, 4, 4] if kind == "stratified" else [12]
    full = [batch for batch in batches if sorted(Counter(labels[i] for i in batch).values()) == expected]
    assert len(full) >= len(batches) - (0 if kind == "stratified" else 1)  # 160 of a class: 13 batches, and 4 left over
    spans = [max(lengths[i] for i in batch) - min(lengths[i] for i in batch) for batch in full]
    assert sum(spans) / len(spans) < 15, "of 98"
    longest = [max(lengths[i] for i in batch) for batch in batches]
    assert longest != sorted(longest, reverse=True), "length does not follow the schedule"
    if kind == "stratified":
        assert longest[0] == max(longest), "running out of memory happens at once"


def test_epochs_and_seeds_differ_and_classes_take_turns() -> None:
    labels = [0] * 64 + [1] * 64
    for kind in ("stratified", "one_class"):
        first = order_of(labels, kind, 8)
        assert order_of(labels, kind, 8, epoch=1) != first
        assert order_of(labels, kind, 8, seed=1) != first
    switches = [labels[first[i]] for i in range(0, 128, 8)]
    assert switches != sorted(switches)


def test_the_trainer_asks_for_it(tmp_path: Path) -> None:
    for data, labels in (
        (TinyData(20), TinyData(20).labels.tolist()),
        (Dataset.from_dict({"input_ids": [[5]] * 6, "label": [0, 1, 1, 0, 2, 2]}), [0, 1, 1, 0, 2, 2]),
    ):
        args = arguments(tmp_path, seed=3, data_seed=4, train_sampling_strategy="group_by_length")
        trainer = RobustTrainer(model=tiny_bert(), args=args, train_dataset=data, recipe="informative")
        assert list(trainer._get_train_sampler()) == order_of(labels, "stratified", 4, seed=4)
        if isinstance(data, Dataset):
            lengths = [3, 1, 2, 5, 4, 6]
            measured = data.add_column("length", lengths)
            trainer = RobustTrainer(model=tiny_bert(), args=args, train_dataset=measured, recipe="informative")
            assert list(trainer._get_train_sampler()) == order_of(labels, "stratified", 4, 4, lengths=lengths)
        mixed = load_recipe("informative", {"anchors.0.batches": "mixed"})
        ordinary = RobustTrainer(model=tiny_bert(), args=arguments(tmp_path), train_dataset=data, recipe=mixed)
        assert not isinstance(ordinary._get_train_sampler(), ClassSampler)


@pytest.mark.parametrize(
    "data",
    [
        Dataset.from_dict({"input_ids": [[5], [6]]}),
        Dataset.from_dict({"labels": [0.5, 1.0]}),
        Dataset.from_dict({"labels": [[0, 1], [1, 0]]}),
        Dataset.from_dict({"labels": [0, -100]}),
        Dataset.from_dict({"labels": [0, 1]}).to_iterable_dataset(),
        [(1, 2)],
        [],
        iter([{"labels": 0}]),
    ],
    ids=["none", "numbers", "several", "unlabelled", "iterable", "tuples", "empty", "iterator"],
)
def test_data_without_a_class_for_each_example(data: Any) -> None:
    with pytest.raises(RunError, match=r"anchor x wants to know the class of every .* or set batches=mixed"):
        class_labels(data, "anchor x")


@pytest.mark.parametrize(
    "data", [[{"labels": torch.tensor(2)}], Dataset.from_dict({"labels": [2]}).with_format("torch")]
)
def test_classes_are_read_from_tensors_too(data: Any) -> None:
    assert class_labels(data, "anchor x").tolist() == [2]
