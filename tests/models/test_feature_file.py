"""Vectors in a file: found again, dropped if they are not the ones that were written."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rosewood.models.features import FeatureFile

KEYS = [bytes([i]) * 16 for i in range(5)]
VECTORS = np.arange(10, dtype=np.float32).reshape(5, 2)


def filled(path: Path | None, count: int = 5) -> FeatureFile:
    file = FeatureFile(path, 2, torch.float32)
    for i in range(count):
        file.add(KEYS[i : i + 1], VECTORS[i : i + 1])
    return file


@pytest.mark.parametrize("place", ["disk", "nowhere"])
def test_what_is_added_is_found(place: str, tmp_path: Path) -> None:
    file = filled(tmp_path / "deep" / "file.bin" if place == "disk" else None)
    assert KEYS[3] in file
    assert b"?" * 16 not in file
    assert file.vectors([KEYS[3], KEYS[0], KEYS[3]]).tolist() == [[6, 7], [0, 1], [6, 7]]
    file.add([KEYS[0], b"?" * 16, b"?" * 16], -np.ones((3, 2), np.float32))
    assert file.vectors([KEYS[0], b"?" * 16]).tolist() == [[0, 1], [-1, -1]], "what is known stays"
    assert file.state_dict()["rows"] == 6


def test_a_checkpoint_knows_how_far_the_file_went(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    early = filled(path, 2)
    state = early.state_dict()
    early.add(KEYS[2:], VECTORS[2:])
    later = FeatureFile(path, 2, torch.float32)
    later.load_state_dict(state)
    assert [key in later for key in KEYS] == [True, True, False, False, False]
    later.add(KEYS[4:], VECTORS[4:])
    assert later.vectors([KEYS[1], KEYS[4]]).tolist() == [[2, 3], [8, 9]]
    assert path.stat().st_size == 3 * (16 + 8)


def test_a_new_run_starts_with_none(tmp_path: Path) -> None:
    filled(tmp_path / "file.bin")
    assert filled(tmp_path / "file.bin", 1).state_dict()["rows"] == 1
    assert (tmp_path / "file.bin").stat().st_size == 16 + 8


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 5 * 24])
def test_other_bytes_are_dropped(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    state = filled(path).state_dict()
    path.write_bytes(damage)
    file = FeatureFile(path, 2, torch.float32)
    file.load_state_dict(state)
    assert not any(key in file for key in KEYS)
    assert path.read_bytes() == damage, "untouched until something is added"
    file.add(KEYS[:1], VECTORS[:1])
    assert path.stat().st_size == 24


def test_another_width_is_dropped(tmp_path: Path) -> None:
    state = filled(tmp_path / "file.bin").state_dict()
    file = FeatureFile(tmp_path / "file.bin", 3, torch.float32)
    file.load_state_dict(state)
    assert KEYS[0] not in file


def test_double_precision_is_kept() -> None:
    file = FeatureFile(None, 1, torch.float64)
    file.add(KEYS[:1], np.array([[1 / 3]]))
    assert file.vectors(KEYS[:1]).item() == 1 / 3
