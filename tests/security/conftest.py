"""A stranger's files: what they would do if anything in them were run."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (str(self.marker), "w")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "CODE-HAS-RUN"


@pytest.fixture
def bomb(marker: Path) -> Iterator[bytes]:
    """A pickle that works, as the fixture makes sure; after the test it must not have been loaded."""
    data = pickle.dumps(Bomb(marker), protocol=2)  # the protocol that torch.load expects
    pickle.loads(data).close()
    assert marker.exists()
    marker.unlink()
    yield data
    assert not marker.exists(), "a pickle of a stranger was loaded"
