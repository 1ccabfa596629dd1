"""The line through two models: its ends are the models, and nothing else fits on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rosewood.errors import RunError
from rosewood.lab import FixedLoss, Interpolation, interpolate
from rosewood.lab.landscape import line_shares
from tiny_losses import films, fixed_loss
from tiny_text import tiny_classifier, tiny_tokenizer

QUICK: dict[str, Any] = {"points": 5, "progress": False}


def test_the_ends_are_the_two_models_exactly() -> None:
    first, second = fixed_loss(1), fixed_loss(2)
    weights = [[w.detach().clone() for w in loss.model.parameters()] for loss in (first, second)]
    ends = [(loss.model.eval(), loss.measure())[1] for loss in (first, second)]
    assert ends[0] != ends[1]
    found = interpolate(first, second, "a", "b", **QUICK)
    assert found.shares == [-0.5, 0.0, 0.5, 1.0, 1.5]
    for place, end in ((1, ends[0]), (3, ends[1])):
        assert (found.losses[place], found.accuracies[place]) == end
    for loss, before in zip((first, second), weights, strict=True):
        assert all(torch.equal(old, new) for old, new in zip(before, loss.model.parameters(), strict=True))


def test_a_point_between_is_the_mean_model() -> None:
    first, second, middle = fixed_loss(1), fixed_loss(2), fixed_loss(3)
    with torch.no_grad():
        for m, a, b in zip(*(loss.model.parameters() for loss in (middle, first, second)), strict=True):
            m.copy_((a.double() + b.double()) / 2)
    found = interpolate(first, second, "a", "b", **QUICK)
    assert found.losses[2] == pytest.approx(middle.model.eval() and middle.measure().loss, abs=1e-6)


def test_the_papers_points_and_the_two_ends() -> None:
    shares = line_shares(51, -0.5, 1.5)
    assert len(shares) == 53 and {0.0, 1.0} <= set(shares)
    assert line_shares(3, 0.25, 0.75) == [0.25, 0.5, 0.75]
    with pytest.raises(RunError, match=r"2 points or more, from a smaller share to a larger; got 1, 0.0 to 1.0"):
        line_shares(1, 0.0, 1.0)


def test_it_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = interpolate(fixed_loss(1), fixed_loss(2), "a", "b", **QUICK, output=tmp_path / "whole.json")
    measure, calls = FixedLoss.measure, 0

    def interrupted(self: FixedLoss) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return measure(self)

    monkeypatch.setattr(FixedLoss, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        interpolate(fixed_loss(1), fixed_loss(2), "a", "b", **QUICK, output=tmp_path / "again.json")
    assert interpolate(fixed_loss(1), fixed_loss(2), "a", "b", **QUICK, output=tmp_path / "again.json") == whole
    assert calls == 3 + 3
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert Interpolation.load(tmp_path / "again.json") == whole
    with pytest.raises(RunError, match="holds results for other models"):
        interpolate(fixed_loss(1), fixed_loss(3), "a", "b", **QUICK, output=tmp_path / "again.json")


def test_what_does_not_fit_is_refused() -> None:
    loss = fixed_loss(1)
    other = FixedLoss(tiny_classifier(("bad", "good")), tiny_tokenizer(), films(6))
    with pytest.raises(RunError, match="one set of examples for both models; a and b were given different ones"):
        interpolate(loss, other, "a", "b", **QUICK)
    wider = fixed_loss(1)
    wider.model.classifier = torch.nn.Linear(16, 3)
    wider.model.config.id2label = {0: "bad", 1: "good", 2: "so"}
    message = r"b cannot be compared with a: it has other labels \(bad, good, so, not bad, good\), and has weights of "
    with pytest.raises(RunError, match=message + r"other shapes \(classifier.weight: \(3, 16\), not \(2, 16\)\)"):
        interpolate(loss, wider, "a", "b", **QUICK)
    counting = fixed_loss(1)
    loss.model.register_buffer("seen", torch.zeros(1))
    counting.model.register_buffer("seen", torch.ones(1))
    with pytest.raises(RunError, match="a and b differ in seen, not a weight"):
        interpolate(loss, counting, "a", "b", **QUICK)
