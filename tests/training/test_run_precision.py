"""--precision: what a run multiplies its matrices in, and what `auto` finds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rosewood.cli import main
from rosewood.config.settings import RunSettings
from rosewood.data.loading import task_from_files
from rosewood.errors import RunError
from rosewood.models import modes
from rosewood.recipe import load_recipe
from rosewood.results import RunInfo
from rosewood.training import run
from rosewood.training.assembly import training_arguments
from rosewood.training.run import Plan, finish_run, settled
from tiny_text import save_tiny_checkpoint


def plan_with(tmp_path: Path, **settings: object) -> Plan:
    file = tmp_path / "train.csv"
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i)},{i % 2}" for i in range(16)]
    file.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return Plan.model_validate(
        {
            "recipe": load_recipe("vanilla"),
            "task": task_from_files(file, file, text_columns=["text"], label_column="label"),
            "model": str(save_tiny_checkpoint(tmp_path / "tiny")),
            "max_length": 16,
            "validation_size": 4,
            "arguments": {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 1e-3},
            **settings,
        }
    )


@pytest.mark.parametrize(("there", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_takes_what_the_hardware_has(
    there: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "has_bfloat16", lambda: there)
    found = settled(plan_with(tmp_path, precision="auto"))
    assert found.plan.precision == expected and f"Precision {expected}" in found.remark
    assert training_arguments(found.plan, tmp_path, False).bf16 is there
    assert "Precision" not in settled(plan_with(tmp_path)).remark


def test_the_default_in_python_is_float32(tmp_path: Path) -> None:
    assert not training_arguments(plan_with(tmp_path), tmp_path, False).bf16


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "bfloat16"),
        (["--precision", "float32"], "float32"),
        (["--set", "training.bf16=false"], "float32"),
    ],
)
def test_the_command_takes_what_the_hardware_has_unless_told(
    options: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "has_bfloat16", lambda: True)
    plan = plan_with(tmp_path)
    words = [
        "train",
        "--train-file",
        str(tmp_path / "train.csv"),
        "--model",
        plan.model,
        "--output",
        str(tmp_path / "run"),
    ]
    words += ["--max-length", "16", "--set", "training.max_steps=1", "--learning-rate", "1e-3", *options]
    monkeypatch.setattr("sys.argv", ["rosewood", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    info = RunInfo.load(tmp_path / "run" / "run.json")
    assert info.precision == expected
    assert info.only(RunSettings).words()[-2:] == ["--precision", expected]


def test_a_run_in_bfloat16_trains_and_is_finished_under_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish_run(plan_with(tmp_path, precision="bfloat16"), tmp_path / "run")
    assert RunInfo.load(tmp_path / "run" / "run.json").precision == "bfloat16"
    monkeypatch.setattr(run, "has_bfloat16", lambda: False)
    assert finish_run(plan_with(tmp_path, precision="auto"), tmp_path / "run").precision == "bfloat16"
    with pytest.raises(RunError, match="another precision"):
        finish_run(plan_with(tmp_path), tmp_path / "run")


def test_saying_it_twice_is_refused(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, precision="bfloat16", arguments={"fp16": True})
    with pytest.raises(RunError, match=r"training\.fp16 \(use --precision\)"):
        training_arguments(plan, tmp_path, False)


def test_processors_are_asked_for_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, expected in (({"avx2": True, "avx512_bf16": False}, False), ({"amx_bf16": True}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        assert modes.has_bfloat16(torch.device("cpu")) is expected


def test_a_build_for_gpus_on_a_machine_without_one_asks_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    for there in (True, False):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda there=there: {"avx512_bf16": there})
        assert modes.has_bfloat16() is there
