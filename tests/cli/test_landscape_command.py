"""rosewood landscape and rosewood interpolate, as a person would type them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rosewood.lab.landscape import Interpolation, Landscape
from rosewood.lab.losses import FixedLoss
from tiny_losses import MakeRun, make_run  # noqa: F401  a fixture

Rosewood = Callable[..., str]
QUICK = ("--size", 8, "--points", 5)


def test_landscapes_of_runs_and_of_their_start(rosewood: Rosewood, make_run: MakeRun, tmp_path: Path) -> None:  # noqa: F811
    output = tmp_path / "out"
    words = ("landscape", make_run("vanilla", 1), make_run("rose", 2), "--pretrained", *QUICK, "-o", output)
    printed = rosewood(*words, "--hessian-iterations", 2)
    assert "Sharpness: films, test, 8 examples" in printed
    names = {"contours.html", "surfaces.html", "pre-trained.json", "rose.json", "vanilla.json"}
    assert {path.name for path in output.iterdir()} == names
    start, *runs = (Landscape.load(output / f"{name}.json") for name in ("pre-trained", "vanilla", "rose"))
    assert "untrained head" in start.note and not runs[0].note
    assert runs[0].command.startswith("rosewood ")
    assert all(each.sharpness.top_eigenvalue and each.sharpness.top_eigenvalue.products <= 2 for each in runs)
    for each in (start, *runs):
        assert f"{each.loss:.4f}" in printed
    before = {path: path.read_bytes() for path in output.iterdir()}
    rosewood(*words, "--hessian-iterations", 2)
    assert {path: path.read_bytes() for path in output.iterdir()} == before
    assert "other models, on other data or with other settings" in rosewood(*words, "--radius", 0.1, code=1)


def test_an_interrupted_landscape_says_how_to_go_on(
    rosewood: Rosewood,
    make_run: MakeRun,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure, calls = FixedLoss.measure, 0

    def interrupted(self: FixedLoss) -> Any:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return measure(self)

    monkeypatch.setattr(FixedLoss, "measure", interrupted)
    words = ("landscape", make_run("a", 1), *QUICK, "--hessian-iterations", 0, "-o", tmp_path / "out")
    assert "Finished work is kept. Continue with: rosewood landscape" in rosewood(*words, code=130)
    assert "Sharpness" in rosewood(*words)
    assert calls == 8 + 1 + 4 * 5  # the centre's accuracy again, and the rows that were missing


def test_a_run_in_a_folder_named_pre_trained_is_itself(rosewood: Rosewood, make_run: MakeRun, tmp_path: Path) -> None:  # noqa: F811
    run, output = make_run("pre-trained", 1), tmp_path / "out"
    rosewood("landscape", run, "--pretrained", *QUICK, "--hessian-iterations", 0, "-o", output)
    start, own = sorted((Landscape.load(path) for path in output.glob("*.json")), key=lambda each: not each.note)
    assert start.name == "pre-trained" and own.name.endswith("-pre-trained")
    assert start.losses != own.losses


def test_the_line_between_two_runs(rosewood: Rosewood, make_run: MakeRun, tmp_path: Path) -> None:  # noqa: F811
    first, second = make_run("rose", 1), make_run("vanilla", 2)
    printed = rosewood("interpolate", first, second, *QUICK, "-o", tmp_path / "line")
    line = Interpolation.load(tmp_path / "line" / "interpolation.json")
    assert (line.first, line.second, line.shares) == ("rose", "vanilla", [-0.5, 0.0, 0.5, 1.0, 1.5])
    for place, share in ((1, 0), (3, 1)):
        assert f"share {share}: loss {line.losses[place]:.4f}, accuracy {line.accuracies[place]:.1%}" in printed
    assert "share -0.5" not in printed and "share 1.5" not in printed, "what is beyond the two is no barrier"
    assert ("share 0.5" in printed) == (line.losses[2] > max(line.losses[1], line.losses[3]))
    assert {path.suffix for path in (tmp_path / "line").iterdir()} == {".json", ".html"}


def test_mistakes_are_refused_before_any_work(rosewood: Rosewood, make_run: MakeRun, tmp_path: Path) -> None:  # noqa: F811
    run, output = make_run("a", 1), tmp_path / "out"
    assert "odd number of points" in rosewood("landscape", run, "--points", 8, "-o", output, code=1)
    other = make_run("b", 2, labels=("bad", "good", "so"))
    assert "has other labels" in rosewood("landscape", run, other, *QUICK, "-o", output, code=1)
    assert "has other labels" in rosewood("interpolate", run, other, *QUICK, "-o", output, code=1)
    assert "smaller share to a larger" in rosewood("interpolate", run, other, "--start", 2, "-o", output, code=1)
    assert not output.exists()
