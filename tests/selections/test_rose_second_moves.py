"""What ROSE-Second lets move: the tensors whose gradients are large beside their running average."""

from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from tiny import Recording, TinyData, arguments, tiny_bert


class Beside(Recording):
    """Remembers how large every gradient is beside the optimiser's average of it, right before each step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sizes: list[dict[str, float]] = []

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Optimizer:
        optimizer = super().create_optimizer(*args, **kwargs)
        if not self.sizes:
            optimizer.register_step_pre_hook(self._compare)
        return optimizer

    def _compare(self, optimizer: Optimizer, *_: Any) -> None:
        known = {n: p for n, p in self.model.named_parameters() if p in optimizer.state and p.grad is not None}
        averages = {name: optimizer.state[p]["exp_avg"] for name, p in known.items()}
        self.sizes.append({name: float(p.grad.norm() / averages[name].norm()) for name, p in known.items()})


def test_kept_tensors_have_the_larger_gradients_beside_their_average(tmp_path: Path) -> None:
    steps = 40
    trainer = Beside(
        model=tiny_bert(), args=arguments(tmp_path, max_steps=steps), train_dataset=TinyData(), recipe="rose-second"
    )
    trainer.train()
    assert len(trainer.sizes) == len(trainer.masks) == steps
    for sizes, masks in list(zip(trainer.sizes, trainer.masks, strict=True))[30:]:
        frozen = {name for name, mask in masks.items() if float(torch.as_tensor(mask)) == 0}
        kept = {name for name in sizes if "encoder.layer" in name and "bias" not in name} - frozen
        assert len(kept) > len(frozen) > 4
        assert min(sizes[name] for name in kept) > max(sizes[name] for name in frozen)
        assert max(sizes[name] for name in kept) < 10, "the risk would be lowest at 10, and all are below"
