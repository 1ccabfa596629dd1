"""history.jsonl as curves: every number, thinned by means, and no line that a crash cut short."""

import json
from pathlib import Path

import pytest

from rosewood.errors import RunError
from rosewood.results.run import training_history


def write(path: Path, lines: list[dict], end: str = "") -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + end)
    return path


def test_every_single_number_is_a_curve_loss_terms_first(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "epoch": 0, "grad_norm": 2, "terms": {"ce": 0.5}, "first_risk": [1, 2]},
        {"step": 2, "epoch": 0, "grad_norm": "inf", "terms": {"ce": "nan"}, "skipped": True},
        {"step": 3, "epoch": 1, "grad_norm": 1, "terms": {"ce": 0.25}, "kept_share": 0.6},
    ]
    found = training_history(write(tmp_path / "history.jsonl", lines, end='{"step": 4, "ter'))
    assert list(found) == ["ce", "grad_norm", "kept_share"]
    assert found["ce"] == ([1, 3], [0.5, 0.25]) and found["kept_share"] == ([3], [0.6])


def test_long_trainings_are_means_of_equal_shares(tmp_path: Path) -> None:
    path = write(tmp_path / "history.jsonl", [{"step": step, "terms": {"ce": step}} for step in range(1, 1001)])
    curve = training_history(path, points=10)["ce"]
    assert len(curve.steps) == 10 and curve.values == curve.steps == [50.5 + 100 * place for place in range(10)]


def test_no_file_is_no_curve_and_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    assert training_history(tmp_path / "none.jsonl") == {}
    (tmp_path / "history.jsonl").write_text('{"step": 1}\n[]\n{"step": 2}\n')
    with pytest.raises(RunError, match=r"line 2 of .*history\.jsonl is not a step of a training"):
        training_history(tmp_path / "history.jsonl")
