"""Two profiles: a quick one that always tries the same examples, and a thorough one for `make test-all`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
QUICK = settings(max_examples=40, derandomize=True, **_COMMON)
THOROUGH = settings(max_examples=1000, **_COMMON)


@pytest.fixture(params=[QUICK, pytest.param(THOROUGH, marks=pytest.mark.slow)], ids=["quick", "thorough"])
def profile(request: pytest.FixtureRequest) -> settings:
    return request.param


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a made-up name makes a command write lands in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
