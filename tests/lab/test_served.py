"""Which runs can be compared, and what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rosewood.errors import RunError
from rosewood.lab.playground.served_runs import ServedRun, common_task, names_of
from tiny_attack import sentences
from tiny_playground import tiny_model, tiny_served, tiny_task
from tiny_text import tiny_tokenizer


def test_names_are_short_where_that_tells_runs_apart() -> None:
    assert names_of(["runs/vanilla", "runs/rose/"]) == ["vanilla", "rose"]
    assert names_of(["a/rose", "b/rose", "b/vanilla"]) == ["a/rose", "b/rose", "vanilla"]
    with pytest.raises(RunError, match=r"^a/rose is named twice: name each run once$"):
        names_of(["a/rose", "a/rose"])


def test_runs_of_one_task_share_it() -> None:
    task = tiny_task()
    assert common_task({"a": task, "b": tiny_task()}) == task


@pytest.mark.parametrize(
    ("other", "described"),
    [
        (tiny_task(name="other"), "task other (text: negative, positive)"),
        (tiny_task(labels=("negative", "neutral", "positive")), "task made-up (text: negative, neutral, positive)"),
        (tiny_task(labels=("positive", "negative")), "task made-up (text: positive, negative)"),
        (tiny_task(fields=("premise", "hypothesis")), "task made-up (premise, hypothesis: negative, positive)"),
    ],
)
def test_runs_of_different_tasks_are_refused(other: object, described: str) -> None:
    with pytest.raises(RunError) as refusal:
        common_task({"runs/a": tiny_task(), "runs/b": other})  # type: ignore[dict-item]
    assert str(refusal.value) == (
        "runs can be compared only if they answer the same question: runs/a is of task made-up (text: negative, "
        f"positive), runs/b of {described}. Serve them apart, or name one task for all of them with --task"
    )


def test_a_model_of_other_labels_is_refused() -> None:
    with pytest.raises(RunError, match="the model's labels are cat, dog, the task's are negative, positive"):
        ServedRun.of("x", tiny_model(0, ("cat", "dog")), tiny_tokenizer(), tiny_task(), 64)


def test_probabilities_are_those_of_the_model_in_the_order_of_the_task() -> None:
    texts = sentences(5)
    model, tokenizer = tiny_model(1), tiny_tokenizer()
    turned = ServedRun.of("x", model, tokenizer, tiny_task(labels=("positive", "negative")), 64)
    assert not model.training
    with torch.no_grad():
        expected = torch.stack([model(**tokenizer(text, return_tensors="pt")).logits[0] for text in texts]).softmax(1)
    found = turned.probabilities([(text,) for text in texts])
    np.testing.assert_allclose(found, expected.numpy()[:, ::-1], atol=1e-6)
    assert len({round(float(row[0]), 3) for row in found}) > 1


def test_two_tiny_runs_differ() -> None:
    one, two = (run.probabilities([(text,) for text in sentences(20)]) for run in tiny_served(tiny_task()))
    assert 0 < (one.argmax(1) != two.argmax(1)).sum() < 20
