"""The teacher that follows the model: its recursion, its term, and what a checkpoint keeps of it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from replay import Batch, replay, same_weights
from rosewood.anchors.bregman import Bregman, BregmanTether
from rosewood.protocol import Output, Pass, Progress, Run
from rosewood.recipe import Recipe, build_recipe, load_recipe
from tiny import TinyData, differing, tiny_bert, trained, weights


def recipe(**settings: Any) -> Recipe:
    return build_recipe({"name": "bregman", "anchors": [{"name": "bregman"} | settings]})


def slow_symmetric_kl(p: Tensor, q: Tensor) -> Tensor:
    p, q = log_softmax(p, -1), log_softmax(q, -1)
    return ((p.exp() * (p - q)).sum(-1) + (q.exp() * (q - p)).sum(-1)).mean()


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_training_run(mode: str, accumulation: int, tmp_path: Path) -> None:
    settings = {"weight": 5.0, "early_decay": 0.5, "late_decay": 0.9, "early_share": 0.3, "teacher_mode": mode}
    data = TinyData(size=4 * accumulation * 10)
    trainer = trained(recipe(**settings), tmp_path, data=data, gradient_accumulation_steps=accumulation)
    model, teacher = tiny_bert(), tiny_bert()
    teacher.train(mode == "train")

    def backward(batch: Batch, step: int, micro_batch: int) -> None:
        output = model(**batch)
        with torch.no_grad():
            target = teacher(**batch).logits
        ((output.loss + 5.0 * slow_symmetric_kl(output.logits, target)) / accumulation).backward()

    def follow(step: int) -> None:
        decay = 0.5 if step < 3 else 0.9  # ten steps, of which 30 % are early
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
                slow.copy_(decay * slow + (1 - decay) * fast)

    replay(trainer, model, backward, after_step=follow, accumulation=accumulation)
    same_weights(trainer.model, model)
    assert trainer._engine is not None
    found = trainer._engine.state_dict()
    for name, average in teacher.named_parameters():
        torch.testing.assert_close(found[f"anchor0.{name}"], average.detach(), rtol=0, atol=1e-9)


def started(model: nn.Module, **settings: Any) -> BregmanTether:
    return Bregman(**settings).start(Run(model, 10, load_recipe("vanilla").all_stages()[0]))


def test_at_the_start_the_term_is_zero_without_dropout_and_no_gradient_reaches_the_teacher() -> None:
    model = tiny_bert(dropout=0.0).train()
    tether = started(model)
    batch = {key: value[None] for key, value in TinyData()[0].items()}

    def call(batch: Any, model: nn.Module | None = None) -> Output:
        output = (model or student)(**batch)
        return Output(output.loss, output.logits)

    student = model
    (term,) = tether.terms(call, batch, Pass([], [call(batch)]), Progress(0, 10))
    assert term.value.item() == 0
    with torch.no_grad():
        model.classifier.weight[0].add_(1.0)  # of one class: a shift of all changes no probability
    (term,) = tether.terms(call, batch, Pass([], [call(batch)]), Progress(0, 10))
    assert term.value.item() > 1e-6
    term.value.backward()
    assert model.classifier.weight.grad is not None
    assert all(average.grad is None and not average.requires_grad for average in tether._averages.values())
    assert all(module.training for module in model.modules())


def test_the_teacher_stays_behind() -> None:
    model = tiny_bert()
    tether = started(model, early_decay=0.5, late_decay=0.75, early_share=0.2)
    before = {name: tensor.clone() for name, tensor in tether.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    moved = []
    for step in range(4):
        tether.after_step(Progress(step, 10))
        moved.append(float((tether.state_dict()["classifier.bias"] - before["classifier.bias"])[0]))
    # Steps 0 and 1 are early: the gap of 1 halves twice, then shrinks by a quarter.
    assert moved == pytest.approx([0.5, 0.75, 1 - 0.25 * 0.75, 1 - 0.25 * 0.75**2])


def test_the_teacher_has_its_own_weights_under_autocast(tmp_path: Path) -> None:
    """accelerate replaces a model's forward under mixed precision; the copy must not call the original's."""
    model = tiny_bert(dropout=0.0, dtype=torch.float32)
    settings = {"weight": 0.0, "early_decay": 0.999, "late_decay": 0.999}
    trainer = trained(recipe(**settings), tmp_path, model=model, bf16=True, max_steps=10, logging_steps=10)
    assert trainer.state.log_history[0]["loss_bregman"] > 0


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    built = recipe(weight=5.0)
    whole = trained(built, tmp_path, save_strategy="steps", save_steps=5)
    # Other weights, so that teacher and student can only come from the checkpoint.
    resumed = trained(built, tmp_path, model=tiny_bert(seed=7), resume=str(tmp_path / "checkpoint-5"))
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert whole._engine is not None
    assert resumed._engine is not None
    mine, theirs = whole._engine.state_dict(), resumed._engine.state_dict()
    assert not list(differing(mine, theirs))


def test_frozen_parameters_are_not_averaged(tmp_path: Path) -> None:
    model = tiny_bert()
    model.bert.embeddings.requires_grad_(False)
    assert not any("embeddings" in name for name in started(model).state_dict())
