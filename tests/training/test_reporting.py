"""--report-to: the callbacks of transformers' integrations, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerCallback

from rosewood.config.settings import RunSettings
from rosewood.data.loading import task_from_files
from rosewood.errors import RunError
from rosewood.recipe import load_recipe
from rosewood.training import callbacks
from rosewood.training.run import Plan, start_run
from tiny_text import save_tiny_checkpoint


class Seen(TrainerCallback):
    """What an integration is handed."""

    def __init__(self) -> None:
        self.logging_dir: str | None = None
        self.logs: list[dict[str, Any]] = []
        self.run_name: str | None = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.run_name = args.run_name
        self.logs.append(dict(logs))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Seen]:
    """Two integrations that are installed, and no other."""
    made: dict[str, Seen] = {}
    monkeypatch.setattr(
        callbacks.integrations, "get_available_reporting_integrations", lambda: ["tensorboard", "wandb"]
    )
    for name in ("tensorboard", "wandb"):
        monkeypatch.setitem(
            callbacks.integrations.INTEGRATION_TO_CALLBACK, name, lambda name=name: made.setdefault(name, Seen())
        )
    return made


def test_a_run_sends_its_figures(seen: dict[str, Seen], tmp_path: Path) -> None:
    file = tmp_path / "films.csv"
    rows = [f"{'good' if i % 2 else 'bad'} film {i},{i % 2}" for i in range(40)]
    file.write_text("\n".join(["text,label", *rows]))
    plan = Plan(
        recipe=load_recipe("vanilla"),
        task=task_from_files(file, text_columns=["text"]),
        model=str(save_tiny_checkpoint(tmp_path / "checkpoint")),
        max_length=16,
        report_to="tensorboard, wandb",
        arguments={"max_steps": 4, "logging_steps": 2},
    )
    info = start_run(plan, tmp_path / "run")
    assert info.report_to == ["tensorboard", "wandb"], "a resumed run goes on with it"
    assert set(seen) == {"tensorboard", "wandb"}
    for each in seen.values():
        assert [logs["loss_ce"] for logs in each.logs if "loss_ce" in logs]
        assert each.run_name == "run"
    assert seen["tensorboard"].logging_dir == str(tmp_path / "run" / "tensorboard"), "not with the checkpoints"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["trackio"], "--report-to trackio needs a package that is not installed: pip install trackio"),
        (["comet_ml"], "pip install comet-ml"),
        (["wandb", "weights"], "--report-to weights: there is no such integration"),
    ],
)
def test_what_is_missing_is_named(seen: dict[str, Seen], names: list[str], message: str) -> None:
    with pytest.raises(RunError, match=message):
        callbacks.check_report_to(names)


def test_it_is_off_by_default() -> None:
    assert RunSettings().report_to == []
