"""Gradient checkpointing changes memory and time, nothing else: every recipe gives the same weights, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from every_recipe import every_recipe
from tiny import Recording, TinyData, differing, tiny_bert, trained, weights


def run(name: str, directory: Path, **settings: Any) -> tuple[Recording, int]:
    """A trained recipe with ordinary dropout, and how often its first layer's first linear module ran."""
    model, calls = tiny_bert(), []
    inner: nn.Module = model.bert.encoder.layer[0].attention.self.query
    inner.register_forward_hook(lambda *_: calls.append(1))
    torch.manual_seed(0)
    return trained(name, directory, model=model, data=TinyData(16), max_steps=3, **settings), len(calls)


@pytest.mark.parametrize("name", every_recipe("advweight:sam"))
def test_checkpointing_gives_the_same_weights(name: str, tmp_path: Path) -> None:
    plain, once = run(name, tmp_path)
    saving, again = run(name, tmp_path, gradient_checkpointing=True)
    assert again > once, "a checkpointed layer runs again in the backward"
    assert plain.masks == saving.masks
    assert not list(differing(weights(plain.model), weights(saving.model)))
