"""A pytest fixture for gates: pytest finds it where Rosewood is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rosewood.experiments.gate import Gate


@pytest.fixture
def rosewood_gate() -> Callable[..., Gate]:
    """Fails the test where a run does not meet requirements.

    Example:
        def test_the_model_is_robust(rosewood_gate):
            rosewood_gate("runs/rose", "clean>=0.85", "typos>=0.40")
    """

    def check(run: str | Path, *requirements: str, suite: str | None = None) -> Gate:
        from rosewood.experiments.gate import gate

        found = gate(run, requirements, suite)
        if not found.passed:
            pytest.fail(found.markdown(), pytrace=False)
        return found

    return check
