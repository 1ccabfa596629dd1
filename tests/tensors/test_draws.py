"""Random numbers of perturbations, and passes that share theirs."""

import torch
from torch.utils.data import default_collate

from rosewood.models.modes import SameDraws
from rosewood.protocol import Output
from rosewood.tensors import draws
from tiny import TinyData, tiny_bert

BATCH = default_collate([TinyData()[i] for i in range(4)])


def test_one_row_an_example_from_the_ordinary_generator() -> None:
    torch.manual_seed(3)
    found = draws.uniform(BATCH, 5, 2, dtype=torch.float64), draws.normal(BATCH, 3)
    torch.manual_seed(3)
    assert torch.equal(found[0], torch.rand(4, 5, 2, dtype=torch.float64))
    assert torch.equal(found[1], torch.randn(4, 3))


def test_replayed_passes_have_the_same_dropout_and_only_the_first_moves_the_generator() -> None:
    model = tiny_bert().train()

    def call(batch: dict, other: object = None) -> Output:
        found = model(**batch)
        return Output(found.loss, found.logits)

    torch.manual_seed(0)
    first = call(BATCH).logits
    after_one = torch.get_rng_state()
    torch.manual_seed(0)
    same = SameDraws(call, BATCH)
    assert torch.equal(same(BATCH).logits, first)
    torch.rand(7)
    between = torch.get_rng_state()
    assert torch.equal(same(BATCH).logits, first)
    assert torch.equal(torch.get_rng_state(), between), "what was drawn in between is not undone"
    torch.set_rng_state(after_one)
    assert not torch.equal(call(BATCH).logits, first)


def test_an_exception_leaves_the_generator_where_it_was() -> None:
    calls = []

    def call(batch: dict, other: object = None) -> Output:
        torch.rand(1)
        calls.append(1)
        if len(calls) == 2:
            raise ValueError
        return Output(torch.zeros(()), torch.zeros(1, 2))

    same = SameDraws(call, BATCH)
    same(BATCH)
    before = torch.get_rng_state()
    try:
        same(BATCH)
    except ValueError:
        assert torch.equal(torch.get_rng_state(), before)
