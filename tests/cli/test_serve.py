"""rosewood serve, as a person would type it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rosewood.lab.playground import app
from tiny_playground import tiny_task, write_data, write_lexicon, write_run

Rosewood = Callable[..., str]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [write_run(tmp_path / name, number, tiny_task()) for number, name in enumerate(("plain", "robust"))]


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """The person presses Ctrl-C as soon as the page is there."""
    real = time.sleep

    def pressed(seconds: float) -> None:
        if seconds > 1000:
            raise KeyboardInterrupt
        real(seconds)

    monkeypatch.setattr(time, "sleep", pressed)


def test_a_page_until_ctrl_c(rosewood: Rosewood, runs: list[Path], tmp_path: Path, ctrl_c: None) -> None:
    pytest.importorskip("gradio", reason="gradio is not installed")
    import httpx

    printed = rosewood("serve", *runs, "--lexicon", write_lexicon(tmp_path), "--data-dir", write_data(tmp_path))
    address = re.search(r"The playground is at (http://127\.0\.0\.1:\d+/) until you press Ctrl-C\.", printed)
    assert address is not None and printed.rstrip().endswith("Stopped.") and "Warning" not in printed
    with pytest.raises(httpx.ConnectError):
        httpx.get(address.group(1), trust_env=False)


def test_another_host_is_warned_of(rosewood: Rosewood, runs: list[Path], tmp_path: Path, ctrl_c: None) -> None:
    pytest.importorskip("gradio", reason="gradio is not installed")
    printed = rosewood("serve", runs[0], "--lexicon", write_lexicon(tmp_path), "--host", "0.0.0.0")
    assert re.search(
        r"Warning: with --host 0\.0\.0\.0 everybody who reaches port \d+ of this machine can use these models and its "
        r"processor; there is no password\.",
        printed,
    )


def test_runs_of_different_tasks_are_refused(rosewood: Rosewood, runs: list[Path], tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", 0, tiny_task(labels=("no", "yes"), name="other"))
    printed = rosewood("serve", runs[0], other, code=1)
    assert "runs can be compared only if they answer the same question" in printed
    assert "task made-up (text: negative, positive)" in printed and "task other (text: no, yes)" in printed


def test_a_run_that_is_not_finished_is_refused(rosewood: Rosewood, runs: list[Path], tmp_path: Path) -> None:
    early = write_run(tmp_path / "early", 0, tiny_task(), status="running")
    assert "is not finished (running)" in rosewood("serve", runs[0], early, code=1)
    assert "there is no run or checkpoint" in rosewood("serve", tmp_path / "nowhere", code=1)


def test_gradio_is_asked_for_before_any_model_is_loaded(
    rosewood: Rosewood, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.setattr(app, "start", lambda *_: pytest.fail("started"))
    assert "pip install 'rosewood[playground]'" in rosewood("serve", *runs, code=1)
