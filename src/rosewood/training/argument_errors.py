"""Errors of transformers about a training argument, turned into ours, with the argument's name.

Only the libraries' own refusals are translated. An error that our code raises, or that comes of how our code calls a
library, is a defect of Rosewood and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import torch
from transformers import TrainingArguments, get_scheduler

from rosewood.config.checks import RANGES
from rosewood.errors import RosewoodError, RunError
from rosewood.training.plan import DEFAULTS
from rosewood.training.trainer import RobustTrainer

# The code that reads training arguments; models and torch's own operations only compute.
READERS = ("transformers.train", "transformers.optimization", "transformers.integrations", "accelerate")
NOT_OF_A_SETTING = (RosewoodError, MemoryError, torch.OutOfMemoryError, OSError)


class SettingError(RunError):
    """A training argument that transformers refuses."""


def built_arguments(settings: Mapping[str, Any], given: Mapping[str, Any]) -> TrainingArguments:
    """The training arguments, or an error that names which of the given ones transformers refuses."""
    try:
        return TrainingArguments(**settings)
    except Exception as error:  # transformers checks as it goes, and says so with whatever comes up
        guilty = {name: value for name, value in given.items() if _is_fine_without(name, settings)}
        raise _refusal(guilty or given, error) from error


def _is_fine_without(name: str, settings: Mapping[str, Any]) -> bool:
    try:
        TrainingArguments(**{key: value for key, value in settings.items() if key != name})
    except Exception:
        return False
    return True


def rehearse(trainer: RobustTrainer, given: Mapping[str, Any]) -> None:
    """Make the optimiser's class and a schedule as training will, to hear now what is wrong with their settings."""
    arguments = trainer.args
    with naming_arguments({name: value for name, value in given.items() if name.startswith("optim")}):
        trainer.get_optimizer_cls_and_kwargs(arguments, trainer.model)
    with naming_arguments({name: value for name, value in given.items() if name.startswith("lr_scheduler")}):
        get_scheduler(
            arguments.lr_scheduler_type,
            torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3),
            num_warmup_steps=0,
            num_training_steps=1,
            scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,  # type: ignore[arg-type]
        )


def unchecked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given training arguments whose values only transformers checks."""
    return {name: value for name, value in given.items() if name not in RANGES and name not in DEFAULTS}


@contextmanager
def naming_arguments(given: Mapping[str, Any], has_begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn what transformers says against the given training arguments into an error that names them.

    Once training has begun well, only an error that itself names one of them counts.
    """
    try:
        yield
    except NOT_OF_A_SETTING:
        raise
    except Exception as error:
        named = {name: value for name, value in given.items() if name in str(error)}
        guilty = named if has_begun() else named or _quoted(given, error) or given
        if not guilty or not _is_from_a_reader(error):
            raise
        raise _refusal(guilty, error) from error


def _quoted(given: Mapping[str, Any], error: Exception) -> dict[str, Any]:
    """The given training arguments whose text the error repeats."""
    texts = {name: value for name, value in given.items() if isinstance(value, str) and value}
    return {name: value for name, value in texts.items() if value.casefold() in str(error).casefold()}


def _is_from_a_reader(error: Exception) -> bool:
    """Whether the code that reads training arguments is nearer to the error than ours."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    known = [name for name in modules if name.startswith((*READERS, "rosewood."))]
    return bool(known) and not known[-1].startswith("rosewood.")


def _refusal(guilty: Mapping[str, Any], error: Exception) -> SettingError:
    settings = " or ".join(f"training.{name}={value}" for name, value in guilty.items()) or "the training arguments"
    said = " ".join(str(error).split()) or type(error).__name__
    return SettingError(f"{settings} cannot be used: {said}")
