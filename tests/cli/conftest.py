"""Commands as a person would type them, in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from rosewood.cli import main

Rosewood = Callable[..., str]


@pytest.fixture
def rosewood(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Rosewood:
    """Types a command, checks its exit code, and returns what it printed."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)

    def run(*words: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["rosewood", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == code, printed.out + printed.err
        return printed.out + printed.err

    return run
