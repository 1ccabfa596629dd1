"""Which outputs count, against loops over single predictions."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.utils.data import default_collate

from rosewood.models.modes import Predictions
from rosewood.protocol import Output
from rosewood.tensors.divergences import symmetric_kl
from tiny import TinyData, tiny_bert
from tiny_tasks import TASKS, Task, language_model, text_predictions, token_classifier, token_predictions

ROWS = 6
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())


def some(data: Any, rows: range = range(ROWS)) -> dict[str, Tensor]:
    return default_collate([data[i] for i in rows])


def passed(model: Any, batch: dict[str, Tensor]) -> Output:
    found = model(**batch)
    return Predictions(model).of(found.loss, found.logits, batch)


@every_task
def test_loss_and_divergence_are_means_over_the_same_predictions(task: Task) -> None:
    model, batch = task.model().train(), some(task.data())
    torch.manual_seed(1)
    first, second = passed(model, batch), passed(model, batch)
    torch.manual_seed(1)
    logits = [model(**batch).logits for _ in range(2)]
    losses, divergences = task.losses(logits[0], batch), task.divergences(*logits, batch)
    assert len(losses) == len(divergences) == first.prediction_count() == Predictions(model).count(batch) > 0
    torch.testing.assert_close(first.loss, torch.stack(losses).mean(), rtol=task.tolerance, atol=0)
    expected = torch.stack(divergences).mean()
    assert expected > 1e-6
    torch.testing.assert_close(symmetric_kl(first.predictions(), second.predictions()), expected, rtol=1e-7, atol=0)


def counts(rows: Iterator[tuple[int, int, int]], output: Output) -> bool:
    """Whether the counted positions are exactly these."""
    assert output.counted is not None
    return {(row, position) for row, position, _ in rows} == set(map(tuple, output.counted.nonzero().tolist()))


def test_positions() -> None:
    data = TASKS["tokens"].data(), TASKS["text"].data()
    assert counts(token_predictions(some(data[0])), passed(token_classifier(), some(data[0])))
    assert counts(text_predictions(some(data[1])), passed(language_model(), some(data[1])))
    assert passed(tiny_bert(), some(TinyData())).counted is None


def test_padding_that_has_a_label_diverges_from_nothing() -> None:
    """The first word of a text that is padded on the left is predicted from padding, and counted by the loss."""
    model = language_model().train()
    ids = torch.tensor([[0, 0, 7, 8, 9], [5, 6, 7, 8, 9]])
    labels = ids.masked_fill(ids == 0, -100)
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}
    first, second = passed(model, batch), passed(model, batch)
    places = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert list(map(tuple, first.counted.nonzero().tolist())) == places  # type: ignore[union-attr]
    single = [
        symmetric_kl(first.logits[row, at][None], second.logits[row, at][None])
        for row, at in places
        if (row, at) != (0, 1)
    ]
    assert min(single) > 1e-6
    expected = torch.stack(single).sum() / len(places)
    torch.testing.assert_close(symmetric_kl(first.predictions(), second.predictions()), expected)


def test_what_stands_at_positions_that_do_not_count_changes_nothing() -> None:
    batch = some(TASKS["tokens"].data())
    logits = torch.randn(2, *batch["labels"].shape, 3)
    reader, loss = Predictions(token_classifier()), torch.ones(())
    values = []
    for noise in (0.0, 5.0):
        disturbed = logits + noise * torch.randn_like(logits) * (batch["labels"] == -100).unsqueeze(-1)
        first, second = (reader.of(loss, z, batch) for z in disturbed)
        values.append(symmetric_kl(first.predictions(), second.predictions()))
    assert torch.equal(*values)


def test_a_batch_in_which_nothing_counts_adds_nothing() -> None:
    model = language_model()
    batch = some(TASKS["text"].data(), range(3, 4))
    batch["labels"][:] = -100
    assert torch.isnan(model(**batch).loss)
    output = passed(model, batch)
    divergence = symmetric_kl(output.predictions(), passed(model, batch).predictions())
    (output.loss + divergence).backward()
    assert output.loss == divergence == output.prediction_count() == 0
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)


def test_labels_of_a_decoder_are_not_shifted_and_know_no_padding_of_the_input() -> None:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    model = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=50, decoder_start_token_id=0, **sizes))
    batch = {
        "input_ids": torch.tensor([[5, 6, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 0, 0]]),
        "labels": torch.tensor([[7, 8, 9, -100]]),
    }
    output = passed(model, batch)
    assert output.counted is not None
    assert output.counted.tolist() == [[True, True, True, False]]
    assert torch.equal(output.predictions(), output.logits[0, :3])


@pytest.mark.parametrize(
    ("labels", "logits"),
    [
        (None, torch.randn(2, 3)),
        (torch.tensor([0, 1]), torch.randn(2, 3)),
        (torch.tensor([[0], [1]]), torch.randn(2, 3)),
        (torch.tensor([0.5, 1.5]), torch.randn(2, 1)),
        (torch.tensor([0, 1]), None),
    ],
    ids=["no labels", "classes", "classes in a column", "numbers", "no logits"],
)
def test_otherwise_every_example_counts(labels: Tensor | None, logits: Any) -> None:
    batch = {"input_ids": torch.ones(2, 4), "labels": labels} if labels is not None else {"input_ids": torch.ones(2, 4)}
    reader = Predictions(tiny_bert())
    output = reader.of(torch.ones(()), logits, batch)
    assert output.predictions() is logits
    assert reader.count(batch) == 2
