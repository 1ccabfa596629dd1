"""Records of watches are read strictly: whatever is wrong with them is said with file and line."""

from pathlib import Path

import pytest

from rosewood.dynamics import was_watched
from rosewood.dynamics.drift import SeenDrift
from rosewood.dynamics.inconsistency import SeenInconsistency
from rosewood.dynamics.masks import SeenMasks
from rosewood.dynamics.record import read_seen
from rosewood.errors import RunError


def write(run: Path, name: str, *lines: str) -> Path:
    file = run / "dynamics" / f"{name}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_records_are_read_in_order(tmp_path: Path) -> None:
    write(tmp_path, "drift", '{"step": 1, "encoder": 0.5, "layers": {}}', '{"step": 9, "encoder": 1, "layers": {}}')
    assert [(seen.step, seen.encoder) for seen in read_seen(tmp_path, SeenDrift)] == [(1, 0.5), (9, 1.0)]
    assert was_watched(tmp_path) == ["drift"]


def test_an_infinite_ratio_is_read_as_the_history_writes_it(tmp_path: Path) -> None:
    write(tmp_path, "masks", '{"step": 1, "kept": {"layer 0": {"w": 1}}, "second_ratio": {"layer 0": {"w": "inf"}}}')
    seen = read_seen(tmp_path, SeenMasks)[0]
    assert seen.second_ratio == {"layer 0": {"w": float("inf")}}
    assert seen.first_risk is None


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (['{"step": 1, "compared": 4, "differing": 5}'], "line 1 is damaged: .*5 of 4 predictions cannot differ"),
        (['{"step": 0, "compared": 4, "differing": 1}'], "line 1 is damaged: step: .*greater than or equal to 1"),
        (['{"step": 1, "compared": 4, "differing": 1, "x": 1}'], "line 1 is damaged: x: Extra inputs"),
        (['{"step": 1, "compared": 4, "differing": 1}', '{"step": 2, "comp'], "line 2 is damaged: Unterminated string"),
        (['{"step": 2, "compared": 4, "differing": 1}'] * 2, "step 2 comes after step 2"),
        ([], "is empty: no step was recorded"),
    ],
)
def test_damage_is_told(lines: list[str], problem: str, tmp_path: Path) -> None:
    write(tmp_path, "inconsistency", *lines)
    with pytest.raises(RunError, match=problem):
        read_seen(tmp_path, SeenInconsistency)


def test_what_was_not_watched_is_no_mystery(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no record of its drift .* does not exist\): train with --watch drift"):
        read_seen(tmp_path, SeenDrift)
