"""Flooding against plain transcriptions, with a given level and with one that the gradients find."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from replay import replay, same_weights
from rosewood.errors import RecipeError
from rosewood.objectives.flooding import Accordance, Flooding
from rosewood.protocol import Feedback, Progress
from rosewood.recipe import load_recipe
from tiny import TinyData, tiny_bert, trained, weights

SETTINGS = {"per_device_train_batch_size": 4, "weight_decay": 0.0, "learning_rate": 0.01}


def test_training_goes_up_wherever_the_loss_is_below_the_level(tmp_path: Path) -> None:
    level = 0.68
    trainer = trained(load_recipe("flooding", {"objective.level": level}), tmp_path, max_steps=8, **SETTINGS)
    model, below = tiny_bert(), []

    def backward(batch: dict[str, Tensor], step: int, micro_batch: int) -> None:
        loss = model(**batch).loss
        below.append(bool(loss < level))
        (-loss if loss < level else loss).backward()

    same_weights(trainer.model, replay(trainer, model, backward), 1e-10)
    assert any(below) and not all(below)


def test_the_level_is_the_mean_loss_of_the_first_epoch_whose_gradients_disagree(tmp_path: Path) -> None:
    data = TinyData(12)  # three batches an epoch
    trainer = trained("flooding:accordance", tmp_path, data=data, max_steps=24, **(SETTINGS | {"learning_rate": 0.1}))
    model = tiny_bert()
    level: list[float] = []
    losses: list[float] = []
    cosines: list[float] = []
    last: list[Tensor] = []

    def backward(batch: dict[str, Tensor], step: int, micro_batch: int) -> None:
        if step and step % 3 == 0:
            if not level and sum(cosines) <= 0:
                level.append(sum(losses) / 3)
            losses.clear()
            cosines.clear()
        loss = model(**batch).loss
        (abs(loss - level[0]) if level else loss).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        losses.append(float(loss.detach()))
        cosines.extend([float(torch.nn.functional.cosine_similarity(gradient, each, 0)) for each in last])
        last[:] = [gradient.clone()]

    same_weights(trainer.model, replay(trainer, model, backward), 1e-8)
    assert level, "the gradients of a model that learns nothing disagree some time"


def test_a_level_is_kept_and_the_gradient_let_go() -> None:
    finder = Accordance(Flooding(level="accordance"))
    gradient, loss = torch.tensor([3.0, 4.0]), torch.tensor(0.5)
    for sign in (1.0, -1.0, 1.0):
        finder._measure({"w": sign * gradient}, loss)
    assert finder._sums.tolist() == pytest.approx([-2.0, 1.5, 3.0])
    finder._measure({"w": torch.tensor([torch.inf, 0.0])}, loss)
    assert finder._sums.tolist() == pytest.approx([-2.0, 1.5, 3.0]), "a step that is not finite counts nothing"
    finder._end_epoch(1)
    assert finder._level == 0.5 and not finder._last
    again = Accordance(Flooding(level="accordance"))
    again.load_state_dict(finder.state_dict())
    assert (again._level, again._epoch) == (0.5, 1)


def test_agreeing_gradients_leave_training_plain() -> None:
    finder = Accordance(Flooding(level="accordance"))
    for _ in range(3):
        finder._measure({"w": torch.tensor([3.0, 4.0])}, torch.tensor(0.5))
    finder._end_epoch(1)
    assert finder._level != finder._level and finder._sums.tolist() == [0, 0, 0]


@pytest.mark.parametrize("save", [2, 5])
def test_resumed_is_uninterrupted(save: int, tmp_path: Path) -> None:
    settings = {"save_strategy": "steps", "save_steps": save, "data": TinyData(12), "max_steps": 12, **SETTINGS}
    settings["learning_rate"] = 0.1
    whole = trained("flooding:accordance", tmp_path, model=tiny_bert(dtype=torch.float32), **settings)
    other = tiny_bert(dtype=torch.float32, seed=7)
    last = str(tmp_path / f"checkpoint-{save}")
    resumed = trained("flooding:accordance", tmp_path, model=other, resume=last, **settings)
    expected = weights(whole.model)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(resumed.model).items())


def test_rose_reads_the_same_gradient_whether_or_not_the_level_is_being_looked_for(tmp_path: Path) -> None:
    """Before any level is found, the recipe is plain fine-tuning with ROSE."""
    found = [
        weights(trained(recipe, tmp_path, max_steps=4).model)
        for recipe in (
            load_recipe("rose-second"),
            load_recipe("rose-second", {"objective": {"name": "flooding", "level": "accordance"}}),
        )
    ]
    for name, weight in found[0].items():
        torch.testing.assert_close(weight, found[1][name], rtol=0, atol=1e-12)


def test_what_is_said_and_refused() -> None:
    lines = load_recipe("flooding").objective.explain(None)  # type: ignore[arg-type]
    assert lines == ["ce = |CE(f(x), y) - 0.1| + 0.1"]
    with pytest.raises(RecipeError, match=r"objective\.level"):
        load_recipe("flooding", {"objective.level": -1})
    with pytest.raises(RecipeError, match=r"objective\.level"):
        load_recipe("flooding", {"objective.level": "automatic"})


def test_the_minimiser_gives_back_what_the_objective_yields() -> None:
    """The engine sends gradients into the generator; a finder without a level asks for them alone."""

    class Fixed:
        loss, logits = torch.tensor(0.3, requires_grad=True), torch.zeros(2, 2)

    passes = Accordance(Flooding(level="accordance")).run(lambda batch, model=None: Fixed(), {}, None, Progress(0, 4))
    assert next(passes).isolated
    with pytest.raises(StopIteration):
        passes.send(Feedback([], {"w": torch.ones(2)}))
