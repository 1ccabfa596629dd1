"""The test dropout itself: what it depends on, and what it does not."""

import torch
from torch.utils.data import default_collate

from keyed_dropout import keyed_dropout
from tiny import TinyData, tiny_bert

DATA = TinyData(size=8)
BATCH = default_collate([DATA[i] for i in range(8)])


def part(rows: slice) -> dict[str, torch.Tensor]:
    return {key: value[rows] for key, value in BATCH.items()}


def test_masks_do_not_depend_on_the_batch_nor_on_the_generator() -> None:
    model = tiny_bert().train()
    with keyed_dropout(model):
        whole = model(**BATCH).logits
        torch.rand(17)
        parts = torch.cat([model(**part(slice(i, i + 2))).logits for i in range(0, 8, 2)])
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-12)


def test_passes_in_a_row_differ_and_another_batch_starts_again() -> None:
    model = tiny_bert().train()
    with keyed_dropout(model):
        first, second = model(**BATCH).logits, model(**BATCH).logits
        model(**part(slice(0, 2)))
        again = model(**BATCH).logits
    assert torch.equal(first, again)
    assert (first - second).abs().max() > 1e-3


def test_dropout_happens_at_its_rate_and_the_generator_is_untouched() -> None:
    model = tiny_bert(dropout=0.3).train()
    state = torch.get_rng_state()
    with keyed_dropout(model) as keys:
        keys.start([bytes([i]) for i in range(50)])
        keys.frames = [type("Frame", (), {"name": "here", "calls": 0})()]
        mask = keys.masks(torch.ones(50, 40, 10), 0.3)
    assert torch.equal(state, torch.get_rng_state())
    assert set(mask.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    assert abs((mask == 0).double().mean() - 0.3) < 0.01


def test_every_module_has_its_own_masks() -> None:
    model = tiny_bert(dropout=0.5).train()
    seen = []
    with keyed_dropout(model):
        for layer in model.bert.encoder.layer:
            layer.output.dropout.register_forward_hook(lambda m, args, out: seen.append(out == 0))
        model(**BATCH)
    assert len(seen) == 2
    assert not torch.equal(seen[0], seen[1])


def test_evaluation_has_no_dropout_and_leaving_restores_the_ordinary_one() -> None:
    model = tiny_bert()
    with keyed_dropout(model):
        model.eval()
        assert torch.equal(model(**BATCH).logits, model(**BATCH).logits)
    model.train()
    assert not torch.equal(model(**BATCH).logits, model(**BATCH).logits)
    assert not model.bert._forward_hooks
