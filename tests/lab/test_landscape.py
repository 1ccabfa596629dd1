"""Landscapes against closed forms, against evaluation, and across kills."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from rosewood.errors import RunError
from rosewood.evaluation.metrics import negative_log_likelihood
from rosewood.evaluation.predict import predict
from rosewood.lab import FixedLoss, Landscape, extreme_eigenvalues, loss_landscape
from rosewood.lab.landscape import grid_coordinates, sharpness_table
from rosewood.lab.sharpness import Surface, random_directions
from rosewood.results.work_folder import RowJournal
from tiny_losses import Bowl, films, fixed_loss
from tiny_text import tiny_classifier, tiny_tokenizer

QUICK: dict[str, Any] = {"points": 5, "hessian_iterations": 0, "progress": False}


def bowl(*curvatures: float) -> Bowl:
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(len(curvatures), 6, generator=generator, dtype=torch.float64)
    return Bowl(torch.tensor(curvatures).unsqueeze(1).expand(-1, 6), centre)


def test_a_bowl_in_closed_form() -> None:
    loss = bowl(3.0, 5.0, 11.0)
    found = loss_landscape(loss, "bowl", points=9, radius=0.5, threshold=0.2, hessian_iterations=200, progress=False)  # type: ignore[arg-type]
    first, second = (direction.pieces[0] for direction in random_directions(loss.model))
    curvatures = loss._curvatures
    aa, bb, ab = ((curvatures * x * y).sum().item() for x, y in ((first, first), (second, second), (first, second)))
    for a, row in zip(found.coordinates, found.losses, strict=True):
        for b, value in zip(found.coordinates, row, strict=True):
            assert value == pytest.approx(0.3 + 0.5 * (aa * a * a + 2 * ab * a * b + bb * b * b), rel=1e-9, abs=1e-12)
    assert found.loss == pytest.approx(0.3, abs=1e-15)
    # The mean of a quadratic form over a circle is half its trace; its level set is an ellipse.
    assert found.sharpness.mean_rise == pytest.approx(0.5**2 * (aa + bb) / 4, rel=1e-9)
    assert found.sharpness.basin_area == pytest.approx(2 * math.pi * 0.2 / math.sqrt(aa * bb - ab * ab), rel=1e-9)
    assert found.sharpness.basin_is_cut is False
    top = found.sharpness.top_eigenvalue
    assert top is not None and top.converged
    assert abs(top.value - 11.0) <= top.residual <= 0.01 * 11


@pytest.mark.parametrize("curvatures", [(2.0, 9.0), (-8.0, 1.0, 3.0), (-4.0, -1.0), (-3.0, 5.0), (0.5, 7.0, 0.25)])
def test_both_ends_of_the_spectrum_whatever_the_signs(curvatures: tuple[float, ...]) -> None:
    loss = bowl(*curvatures)
    ends = extreme_eigenvalues(loss.model, loss.shares, iterations=2000, tolerance=1e-6)
    assert all(each.converged for each in ends)
    assert [each.value for each in ends] == pytest.approx([max(curvatures), min(curvatures)], rel=1e-6)
    assert loss.model.weight.grad is None


def test_a_negative_curvature_is_never_called_the_largest() -> None:
    """Where the downward curve is the stronger one and the steps are few, the upward one is found all the same."""
    loss = bowl(-666.7, 20.0, 19.0)
    found = loss_landscape(loss, "m", **QUICK | {"hessian_iterations": 8})
    (row,) = sharpness_table([found]).rows
    positive, negative = row[-2:]
    assert not positive.startswith("-") and negative.startswith("-666.7 ±")
    convex = loss_landscape(bowl(2.0, 9.0), "m", **QUICK | {"hessian_iterations": 50})
    assert sharpness_table([convex]).rows[0][-1] == "none found"


def test_an_eigenvalue_that_has_not_settled_says_so() -> None:
    loss = bowl(2.0, 1.9)
    found, _ = extreme_eigenvalues(loss.model, loss.shares, iterations=2, tolerance=1e-9)
    assert not found.converged and found.products == 2
    assert min(abs(found.value - each) for each in (2.0, 1.9)) <= found.residual


def test_the_top_eigenvalue_of_a_transformer_against_its_whole_hessian() -> None:
    loss = fixed_loss()
    model = loss.model.double()
    head = dict(model.named_parameters())["classifier.weight"]
    for parameter in model.parameters():
        parameter.requires_grad_(parameter is head)

    def head_loss(weight: torch.Tensor) -> torch.Tensor:
        features = torch.cat([model.bert(**inputs).pooler_output for inputs, _ in loss._batches]).detach()
        labels = torch.cat([labels for _, labels in loss._batches])
        return torch.nn.functional.cross_entropy(features @ weight.T + model.classifier.bias, labels)

    model.eval()
    with torch.enable_grad():
        size = head.numel()
        block = torch.autograd.functional.hessian(head_loss, head.detach()).reshape(size, size)
    found, smallest = extreme_eigenvalues(model, loss.shares, iterations=300, tolerance=1e-4)
    assert found.converged and smallest.value <= torch.linalg.eigvalsh(block)[0].item() + smallest.residual
    assert found.value >= torch.linalg.eigvalsh(block)[-1].item() * (1 - 1e-6)  # a block's cannot be larger
    assert [p.requires_grad for p in model.parameters()] == [p is head for p in model.parameters()]


def test_basins_end_at_the_border_and_say_so() -> None:
    coordinates = grid_coordinates(5, 1.0)
    flat = Surface(coordinates, [[0.0] * 5 for _ in range(5)])
    area, cut = flat.basin(0.1)
    assert area == pytest.approx(4, rel=1e-3) and cut  # the whole square, but for its corners' share of 360 rays
    assert flat.mean_rise(1.0) == 0


def test_the_centre_is_the_evaluated_loss() -> None:
    model, tokenizer, data = tiny_classifier(("bad", "good")), tiny_tokenizer(), films(20)
    logits = predict(model, tokenizer, data, ["text"], max_length=16, batch_size=4, progress=False)
    evaluated = negative_log_likelihood(softmax(np.asarray(logits, dtype=np.float64), axis=1), data["label"][:])
    loss = FixedLoss(model, tokenizer, data, max_length=16, batch_size=4)
    found = loss_landscape(loss, "m", **QUICK)
    assert found.loss == pytest.approx(evaluated, abs=1e-6)
    assert found.accuracy == (logits.argmax(-1) == data["label"][:]).mean()
    assert model.training, "the mode is put back"


def test_labels_in_another_order_give_the_same_loss() -> None:
    data, tokenizer = films(), tiny_tokenizer()
    straight, turned = tiny_classifier(("bad", "good")), tiny_classifier(("good", "bad"))
    with torch.no_grad():
        turned.classifier.weight.copy_(straight.classifier.weight.flip(0))
    losses = [FixedLoss(model.eval(), tokenizer, data).measure() for model in (straight, turned)]
    assert losses[0] == pytest.approx(losses[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"points": 6}, "odd number of points, 5 or more, .*; got 6"),
        ({"points": 3}, "got 3"),
        ({"radius": 0.0}, r"radius above 0, .*; got 0\.0"),
    ],
)
def test_grids_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        loss_landscape(fixed_loss(), "m", **(QUICK | settings))


def test_losses_that_are_no_numbers_leave_no_sharpness(tmp_path: Path) -> None:
    loss = bowl(1.0, 2.0)
    loss._curvatures = loss._curvatures * float("inf")
    found = loss_landscape(loss, "m", **QUICK, output=tmp_path / "m.json")  # type: ignore[arg-type]
    assert (found.sharpness.mean_rise, found.sharpness.basin_area, found.sharpness.basin_is_cut) == (None, None, None)
    assert Landscape.load(tmp_path / "m.json").sharpness == found.sharpness


def test_a_killed_landscape_ends_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "whole" / "m.json"
    settings = QUICK | {"hessian_iterations": 3}
    loss_landscape(fixed_loss(), "m", **settings, output=whole)
    append, written = RowJournal.append, 0

    def die_in_the_third(journal: RowJournal, row: int, values: list[float]) -> None:
        nonlocal written
        written += 1
        append(journal, row, values)
        if written == 3:
            assert journal.path is not None
            os.truncate(journal.path, journal.path.stat().st_size - 9)
            os.kill(os.getpid(), signal.SIGKILL)

    killed = tmp_path / "killed" / "m.json"
    with monkeypatch.context() as patched:
        patched.setattr(RowJournal, "append", die_in_the_third)
        child = multiprocessing.get_context("fork").Process(
            target=loss_landscape, args=(fixed_loss(), "m"), kwargs=settings | {"output": killed}
        )
        child.start()
        child.join()
    assert child.exitcode == -signal.SIGKILL and not killed.exists()
    journal = killed.with_suffix(".journal")
    assert [json.loads(line)["row"] for line in journal.read_text().split("\n")[:-1]] == [0, 1]
    computed: list[int] = []

    def noted(journal: RowJournal, row: int, values: list[float]) -> None:
        computed.append(row)
        append(journal, row, values)

    monkeypatch.setattr(RowJournal, "append", noted)
    loss_landscape(fixed_loss(), "m", **settings, output=killed)
    assert computed == [2, 3, 4]
    assert killed.read_bytes() == whole.read_bytes()
    assert not journal.exists()
    assert loss_landscape(fixed_loss(), "m", **settings, output=killed) == Landscape.load(whole)
    assert computed == [2, 3, 4], "a finished one is not computed again"


def test_ctrl_c_leaves_weights_mode_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, measure, calls = fixed_loss(), FixedLoss.measure, 0
    before = [weight.detach().clone() for weight in loss.model.parameters()]

    def interrupted(self: FixedLoss) -> Any:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise KeyboardInterrupt
        return measure(self)

    monkeypatch.setattr(FixedLoss, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loss_landscape(loss, "m", **QUICK, output=tmp_path / "m.json")
    assert all(torch.equal(old, new) for old, new in zip(before, loss.model.parameters(), strict=True))
    assert loss.model.training
    assert len((tmp_path / "m.journal").read_text().splitlines()) == 1


def test_other_settings_or_weights_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    loss_landscape(fixed_loss(), "m", **QUICK, output=path)
    for loss, changes in ((fixed_loss(), {"seed": 1}), (fixed_loss(seed=1), {}), (fixed_loss(max_length=6), {})):
        with pytest.raises(RunError, match=r"m\.json holds results for other models, on other data or with other set"):
            loss_landscape(loss, "m", **QUICK, **changes, output=path)
    path.unlink()
    other = RowJournal(path, "other")
    other.begin()
    other.append(0, [1.0])
    with pytest.raises(RunError, match=r"m\.journal belongs to a computation with other settings"):
        loss_landscape(fixed_loss(), "m", **QUICK, output=path)
    path.with_suffix(".journal").write_text("rubbish\n")
    with pytest.raises(RunError, match=r"m\.journal is damaged: delete it"):
        loss_landscape(fixed_loss(), "m", **QUICK, output=path)


def test_what_could_not_be_kept_or_means_nothing_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = fixed_loss()

    def worked(self: FixedLoss) -> Any:
        raise AssertionError("work began")

    monkeypatch.setattr(FixedLoss, "measure", worked)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*m\.journal: .*\. Choose another --output\."):
        loss_landscape(loss, "m", **QUICK, output=tmp_path / "file" / "m.json")
    for threshold in (0.0, -1.0, float("nan")):
        with pytest.raises(RunError, match=r"expected a threshold above 0"):
            loss_landscape(loss, "m", **(QUICK | {"threshold": threshold}))
