"""Dropout whose masks depend on the example, the module and the pass, and on nothing else.

Ordinary dropout draws from one stream, so its masks depend on how examples are batched and on what was drawn
before; two runs that should be equal then differ by luck. Here every example has its own mask in every module and
in every pass: batch 8 equals 4 x batch 2, and a recipe that runs an additional, unused pass equals one that does not.
How far a text is padded, on the right, makes no difference either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LONGEST = 32  # texts, in tokens


@dataclass
class Frame:
    """A module in the middle of its forward; counts the dropouts that it has applied itself."""

    name: str
    calls: int = 0


@dataclass
class Keys:
    """Which examples are being forwarded, for which time in a row, and in which module."""

    rows: list[bytes] = field(default_factory=list)
    length: int = 0
    passes: int = 0
    frames: list[Frame] = field(default_factory=list)

    def start(self, rows: list[bytes], length: int = 0) -> None:
        self.passes = self.passes + 1 if rows == self.rows else 0
        self.rows, self.length = rows, length
        self.frames = []

    def masks(self, like: Tensor, probability: float) -> Tensor:
        """Inverted-dropout factors, drawn row by row: the first axis of `like` must be the batch."""
        if like.shape[0] != len(self.rows):
            raise AssertionError(f"keyed dropout expects the batch ({len(self.rows)}) first, got {tuple(like.shape)}")
        frame = self.frames[-1]
        place = f"{frame.name}/{frame.calls}/{self.passes}".encode()
        frame.calls += 1
        # Drawn for the longest text and cut, so that a token's mask is the same however long its batch is.
        shape = torch.Size([LONGEST if size == self.length else size for size in like.shape[1:]])
        cut = tuple(slice(size) for size in like.shape[1:])
        draws = [_uniform(row + place, shape)[cut] for row in self.rows]
        return (torch.stack(draws) >= probability).to(like.dtype) / (1 - probability)


def _uniform(key: bytes, shape: torch.Size) -> Tensor:
    seed = int.from_bytes(hashlib.blake2b(key, digest_size=7).digest())
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _rows(inputs: dict[str, Any]) -> tuple[list[bytes], int]:
    """A key for each text without its padding, and how many tokens the padded ones have."""
    main = inputs["input_ids"] if inputs.get("input_ids") is not None else inputs["inputs_embeds"]
    found = [row.detach().numpy().tobytes() for row in main]
    return ([key.rstrip(b"\0") for key in found] if main.dim() == 2 else found), main.shape[1]


@contextmanager
def keyed_dropout(model: nn.Module) -> Iterator[Keys]:
    """Key every dropout of `model`; it must use eager attention, because fused attention drops out of sight.

    The pass index counts how often the same rows have been forwarded in a row. Gradient checkpointing is not
    supported: it runs modules again when the index has moved on.
    """
    keys = Keys()
    ordinary = functional.dropout

    def drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0 or not keys.frames:
            return ordinary(input, p, training, inplace)
        return input * keys.masks(input, p)

    def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keys.start(*_rows(kwargs))

    def enter(name: str) -> Any:
        return lambda module, args: keys.frames.append(Frame(name))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        keys.frames.pop()

    hooks = [model.register_forward_pre_hook(begin, with_kwargs=True)]
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(enter(name)))
        hooks.append(module.register_forward_hook(leave))
    functional.dropout = drop
    try:
        yield keys
    finally:
        functional.dropout = ordinary
        for hook in hooks:
            hook.remove()
