"""What run.json says about how a run was started can be typed again."""

from __future__ import annotations

import sys

import pytest

from rosewood.results.run import PACKAGE, typed_command


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/usr/bin/rosewood", "train", "--output", "my run"], "rosewood train --output 'my run'"),
        ([str(PACKAGE / "__main__.py"), "train"], "rosewood train"),
        (
            [str(PACKAGE / "experiments" / "engines" / "worker.py"), "cell"],
            "python -m rosewood.experiments.engines.worker cell",
        ),
        (["sweep.py", "vanilla"], "python sweep.py vanilla"),
        (["-c", "whatever"], ""),
        ([""], ""),
    ],
    ids=["command", "module", "cell of an experiment", "script", "words", "live session"],
)
def test_the_command_is_the_one_that_was_given(argv: list[str], command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert typed_command() == command
