"""Odd training arguments: each is refused in one sentence that names it, or training runs with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from transformers import TrainingArguments

from cli.conftest import Rosewood, rosewood  # noqa: F401  a fixture
from rosewood.config.strict_yaml import parse_overrides
from rosewood.data.loading import task_from_files
from rosewood.errors import RosewoodError
from rosewood.recipe import load_recipe
from rosewood.training.plan import Plan
from rosewood.training.run import start_run
from tiny_text import save_tiny_checkpoint

# Each once ended in a traceback: while arguments are built, the Trainer is, before the first step, in it, or after it.
REFUSED = {
    "save_strategy": "best",
    "torch_compile_backend": "zzz",
    "torch_compile_mode": "zzz",
    "use_liger_kernel": "true",
    "batch_eval_metrics": "true",
    "lr_scheduler_kwargs": "{a: 1}",
    "lr_scheduler_type": "cosine_with_min_lr",
    "optim_args": "zzz",
    "eval_accumulation_steps": "0",
    "metric_for_best_model": "zzz",
    "neftune_noise_alpha": "-1",
    "log_level": "zzz",
    "per_device_train_batch_size": "100000000000000000000",
    "max_steps": "100000000000000000000",
    "tf32": "true",
    "dataloader_persistent_workers": "true",
}
# They start other processes, compile for minutes, call other machines, or change settings of the whole process.
ELSEWHERE = ("ddp", "deepspeed", "fsdp", "parallelism", "accelerator", "local_rank", "full_", "torch_compile", "debug")
ELSEWHERE += ("dataloader_num", "dataloader_persistent", "dataloader_prefetch")
NUMBERS = ("0", "-1", "1", "0.5", "7", "1e308", "100000000000000000000")


def odd_values(hint: Any) -> Iterator[str]:
    kinds = str(hint)
    if "int" in kinds or "float" in kinds:
        yield from NUMBERS
    if "bool" in kinds:
        yield from ("true", "false")
    yield from ("zzz", '""', "{}", "{a: 1}", "[]", "[a]", "null")
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            yield from (str(member.value) for member in kind)


def odd_settings() -> list[tuple[str, str]]:
    hints = get_type_hints(TrainingArguments)
    names = [name for name in hints if not name.startswith(("_", *ELSEWHERE))]
    return [(name, value) for name in names for value in dict.fromkeys(odd_values(hints[name]))]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "films.csv"
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i)},{i % 2}" for i in range(20)]
    file.write_text("\n".join(["text,label", *rows]) + "\n")
    return file


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def trained(films: Path, checkpoint: Path, tmp_path: Path) -> Callable[..., str | None]:
    """Trains two steps and validates; what was said against the settings, or None."""
    task = task_from_files(films, text_columns=["text"])

    def train(*settings: str) -> str | None:
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)  # of the settings before
        try:
            recipe = load_recipe("vanilla", parse_overrides(["training.max_steps=2", *settings]))
            start_run(Plan(recipe=recipe, task=task, model=str(checkpoint), max_length=16), run)
        except RosewoodError as error:
            assert not run.exists(), "a run that cannot begin leaves nothing behind"
            return str(error)
        return None

    return train


@pytest.mark.parametrize(("name", "value"), REFUSED.items())
def test_what_the_trainer_refuses_is_our_error_with_its_name(
    trained: Callable[..., str | None], name: str, value: str
) -> None:
    said = trained(f"training.{name}={value}")
    assert said is not None
    (sentence,) = [line for line in said.splitlines() if line.startswith((f"training.{name}", "recipe vanilla"))]
    assert f"training.{name}" in sentence


@pytest.mark.parametrize("optimiser", ["adamw_8bit", "galore_adamw", "lomo", "schedule_free_adamw", "adamw_torch_4bit"])
def test_an_optimiser_without_its_package(trained: Callable[..., str | None], optimiser: str) -> None:
    said = trained(f"training.optim={optimiser}")
    assert said is not None and said.startswith(f"training.optim={optimiser} cannot be used: ")
    assert "install" in said and "\n" not in said


def test_the_command_ends_with_a_sentence_and_an_exit_code(
    rosewood: Rosewood,  # noqa: F811
    films: Path,
    checkpoint: Path,
    tmp_path: Path,
) -> None:
    words = ("train", "--model", checkpoint, "--train-file", films, "--max-length", "16")
    refused = "training.lr_scheduler_kwargs={'a': 1} cannot be used"
    said = rosewood(*words, "--output", tmp_path / "run", "--set", "training.lr_scheduler_kwargs={a: 1}", code=1)
    assert said.splitlines()[-1].startswith(f"Error: {refused}") and "Traceback" not in said
    said = rosewood(*words, "--output", "/proc/x", code=1)
    assert "cannot be written" in said and "Choose another --output" in said
    said = rosewood(*words, "--output", tmp_path / "run", "--batch-size", 10**20, code=1)
    assert "training.per_device_train_batch_size: expected a number of at most 2,147,483,647" in said
    said = rosewood(*words, "--output", tmp_path / "run", "--seed", 10**20, code=2)
    assert "--seed" in said
    words = (*words, "--recipe", "freelb", "--output", tmp_path / "run")
    said = rosewood(*words, "--set", "perturbation.radius=1e308", code=1)
    assert "perturbation.radius: expected a number of at most 3.4e+38, got 1e+308" in said


@pytest.mark.slow
def test_every_odd_value_of_every_training_argument(trained: Callable[..., str | None]) -> None:
    for name, value in odd_settings():
        if name != "max_steps":
            said = trained(f"training.{name}={value}")
            assert said is None or name in said, f"training.{name}={value}: {said}"


def test_odd_values_are_those_that_a_file_can_hold() -> None:
    settings = odd_settings()
    assert len({name for name, _ in settings}) > 80
    assert all(yaml.safe_load(value) != "" or value == '""' for _, value in settings)


def test_a_defect_of_ours_keeps_its_traceback(
    trained: Callable[..., str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the error comes up inside torch, which our code called in the wrong way."""
    from torch.nn import functional

    from rosewood.training.engine import Engine

    def misses_a_name(*_: Any) -> Any:
        raise TypeError("passes() takes 3 positional arguments")

    def calls_torch_wrongly(*_: Any) -> Any:
        import torch

        return functional.cross_entropy(torch.zeros(2, 2), torch.zeros(3, dtype=torch.long))

    for defect in (misses_a_name, calls_torch_wrongly):
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "micro_batch", defect)
            with pytest.raises((TypeError, ValueError)):
                trained("training.gradient_checkpointing=true", "training.neftune_noise_alpha=1")
