"""Repeats a recorded training run with plain torch: own loss, torch's AdamW, linear decay."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tiny import Recording

Batch = dict[str, Tensor]


def replay(
    trainer: Recording,
    model: nn.Module,
    backward: Callable[[Batch, int, int], None],
    before_step: Callable[[], None] = lambda: None,
    after_step: Callable[[int], None] = lambda step: None,
    accumulation: int = 1,
) -> nn.Module:
    """Train `model` on the micro-batches of `trainer`, with the random state that each of them began with.

    `backward(batch, step, micro_batch)` adds to the gradients, `before_step()` may too, once an optimiser step.
    """
    model.train()
    plain = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    decayed = [p for n, p in model.named_parameters() if not ("bias" in n or "LayerNorm" in n)]
    args = trainer.args
    betas = (args.adam_beta1, args.adam_beta2)
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], lr=1.0, betas=betas)
    for group, decay in zip(optimizer.param_groups, (args.weight_decay, 0.0), strict=True):
        group.update(eps=args.adam_epsilon, weight_decay=decay)
    steps = len(trainer.micro_batches) // accumulation
    for step in range(steps):
        for micro_batch in range(accumulation):
            state, batch = trainer.micro_batches[step * accumulation + micro_batch]
            torch.set_rng_state(state)
            backward(batch, step, micro_batch)
        before_step()
        nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * (steps - step) / steps
        optimizer.step()
        optimizer.zero_grad()
        after_step(step)
    return model


def same_weights(found: nn.Module, expected: nn.Module, tolerance: float = 1e-9) -> None:
    theirs = dict(expected.named_parameters())
    for name, weight in found.named_parameters():
        torch.testing.assert_close(
            weight, theirs[name], rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
        )
