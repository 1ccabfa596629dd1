"""A folder appears whole or not at all."""

from pathlib import Path

import pytest

from rosewood.results.files import UNFINISHED, staged


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "model"
    with staged(place) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_text("new")
        assert not place.exists()
    assert (place / "deep" / "weights").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    (place / "weights").write_text("old")
    with pytest.raises(KeyboardInterrupt), staged(place) as folder:
        (folder / "weights").write_text("half")
        raise KeyboardInterrupt
    assert (place / "weights").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_process_left_is_cleared_and_what_was_there_replaced(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    (place / "older").write_text("old")
    (tmp_path / UNFINISHED / "model").mkdir(parents=True)
    (tmp_path / UNFINISHED / "model" / "half").write_text("half")
    with staged(place) as folder:
        (folder / "weights").write_text("new")
    assert [path.name for path in place.iterdir()] == ["weights"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
