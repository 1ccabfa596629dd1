"""Models go to the accelerator where there is one, in every command that only reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rosewood.cli.evaluate import evaluate_one
from rosewood.models.modes import accelerated
from tiny_text import save_tiny_checkpoint, tiny_classifier


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that holds shapes alone takes the place of one that this machine may not have."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))


def test_without_an_accelerator_a_model_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    model = tiny_classifier()
    assert accelerated(model) is model and model.device.type == "cpu"


@pytest.mark.usefixtures("accelerator")
def test_with_one_it_moves_there() -> None:
    model = tiny_classifier()
    assert accelerated(model) is model and model.device.type == "meta"


@pytest.mark.usefixtures("accelerator")
def test_evaluation_computes_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    def suite(model: Any, *_: Any, **__: Any) -> None:
        devices.append(model.device.type)

    monkeypatch.setattr("rosewood.evaluation.evaluate.evaluate", suite)
    checkpoint = tmp_path / "model"
    save_tiny_checkpoint(checkpoint)
    evaluate_one(str(checkpoint), "sst2", None, 8, 8, 0.1, 0)
    assert devices == ["meta"]
