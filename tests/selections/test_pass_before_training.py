"""A custom loss is divided by the items of its own step also in the pass before training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rosewood.models.parameters import SquaredGradients
from slow_methods import PaddedData
from tiny import Recording, arguments, tiny_bert
from tiny_tasks import TASKS, TokenData

ACCUMULATION = {"one": 1, "accumulated": 3}
DATA = 22  # the last batch is smaller than the others, and the last step has fewer batches
Loss = Callable[..., Tensor]


def summed(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
    """What the model's own loss is, as a compute_loss_func has to write it."""
    logits = outputs["logits"]
    total = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum")
    assert num_items_in_batch is not None
    return total / num_items_in_batch


def importances(recipe: str, model: Any, data: Any, loss: Loss | None, directory: Path, **settings: Any) -> Tensor:
    """The sums of squared gradients after the pass before training."""
    found: list[Tensor] = []
    plain = SquaredGradients.add_pass

    def kept(self: SquaredGradients, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        found.append(self.sums.whole.clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SquaredGradients, "add_pass", kept)
        trainer = Recording(
            model=model,
            args=arguments(directory, max_steps=2, **settings),
            train_dataset=data,
            recipe=recipe,
            compute_loss_func=loss,
        )
        trainer.train()
    (sums,) = found
    assert sums.count_nonzero() > 0.5 * len(sums)
    return sums


@pytest.mark.parametrize("accumulation", ACCUMULATION.values(), ids=ACCUMULATION.keys())
@pytest.mark.parametrize("recipe", ["child-tuning-d", "roast"])
@pytest.mark.parametrize("task", ["classification", "tokens"])
def test_a_custom_loss_gives_the_importances_of_the_same_loss(
    task: str, recipe: str, accumulation: int, tmp_path: Path
) -> None:
    tokens = task == "tokens"
    model = TASKS["tokens"].model if tokens else tiny_bert
    data = (TokenData if tokens else PaddedData)(size=DATA)
    own, custom = (
        importances(recipe, model(), data, loss, tmp_path, gradient_accumulation_steps=accumulation)
        for loss in (None, summed)
    )
    torch.testing.assert_close(custom, own, rtol=1e-9, atol=0)


def test_the_size_of_the_step_is_that_of_training_again_afterwards(tmp_path: Path) -> None:
    """Else the first training step would be scaled by the last step of the pass."""
    weights = []
    for loss in (None, summed):
        trainer = Recording(
            model=tiny_bert(),
            args=arguments(tmp_path, max_steps=3, gradient_accumulation_steps=2, optim="sgd", learning_rate=0.1),
            train_dataset=PaddedData(size=DATA),
            recipe="child-tuning-d",
            compute_loss_func=loss,
        )
        trainer.train()
        weights.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-9)
