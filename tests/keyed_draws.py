"""Random numbers of perturbations that depend on the example and on how often it was asked for, and on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rosewood.tensors import draws


@contextmanager
def keyed_draws() -> Iterator[None]:
    """Key `draws.uniform` and `draws.normal`, like the dropout of keyed_dropout."""
    state: dict[str, Any] = {"rows": [], "calls": 0}

    def generators(batch: Any) -> list[torch.Generator]:
        rows = [row.numpy().tobytes() for row in batch["input_ids"]]
        state["calls"] = state["calls"] + 1 if rows == state["rows"] else 0
        state["rows"] = rows
        keys = [hashlib.blake2b(row + bytes([state["calls"]]), digest_size=7).digest() for row in rows]
        return [torch.Generator().manual_seed(int.from_bytes(key)) for key in keys]

    def drawn(function: Any) -> Any:
        def draw(batch: Any, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.stack([function(shape, generator=g, dtype=torch.float64) for g in generators(batch)]).to(dtype)

        return draw

    ordinary = draws.uniform, draws.normal
    draws.uniform, draws.normal = drawn(torch.rand), drawn(torch.randn)
    try:
        yield
    finally:
        draws.uniform, draws.normal = ordinary
