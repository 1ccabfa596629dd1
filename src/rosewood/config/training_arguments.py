"""The training arguments that a recipe may set: their names, types and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from rosewood.errors import RecipeError, closest

# What transformers itself would only notice in the middle of things.
RANGES: dict[str, Any] = {
    **dict.fromkeys(("per_device_train_batch_size", "per_device_eval_batch_size"), Field(ge=1)),
    **dict.fromkeys(("gradient_accumulation_steps", "num_train_epochs"), Field(gt=0)),
    **dict.fromkeys(("learning_rate", "weight_decay", "adam_epsilon", "max_grad_norm", "warmup_steps"), Field(ge=0)),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "label_smoothing_factor"), Field(ge=0, lt=1)),
    **dict.fromkeys(("dataloader_num_workers", "neftune_noise_alpha"), Field(ge=0)),
    **dict.fromkeys(("eval_accumulation_steps",), Field(ge=1)),
    **dict.fromkeys(("max_steps",), Field(ge=-1)),
}
LARGEST = 2**31 - 1  # so that the product of two numbers of steps or examples still is one for torch
FINITE = ConfigDict(allow_inf_nan=False)
# A recipe may come from a stranger and must not decide who gets the model or its figures.
PUBLISHING = ("push_to_hub", "hub_", "report_to", "trackio_")


def check_training(training: Mapping[str, Any]) -> dict[str, Any]:
    """Training arguments from elsewhere, with the types that transformers expects, or all that is wrong with them."""
    problems: list[str] = []
    checked = typed_arguments(training, problems)
    if problems:
        raise RecipeError("the training arguments cannot be used:\n" + "\n".join(f"- {p}" for p in problems))
    return checked


def typed_arguments(training: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The training arguments with the types that transformers expects; YAML 1.1, for one, reads 1e-5 as text."""
    if not training:
        return {}
    from transformers import TrainingArguments

    hints = get_type_hints(TrainingArguments) | {"fsdp": bool | str | None}  # declared as text, meant as a boolean
    checked = {}
    for name, value in training.items():
        if name not in hints:
            problems.append(f"training.{name}: no such training argument; {closest(name, list(hints))}")
            continue
        if name.startswith(PUBLISHING):
            problems.append(f"training.{name}: a recipe cannot send anything anywhere; publish a finished run yourself")
            continue
        try:
            hint: Any = Annotated[hints[name], RANGES[name]] if name in RANGES else hints[name]
            found = checked[name] = TypeAdapter(hint, config=FINITE).validate_python(value)
            if isinstance(found, int) and abs(found) > LARGEST:
                problems.append(f"training.{name}: expected a number of at most {LARGEST:,}, got {value}")
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            quoting = " (YAML reads no, off, yes and on as booleans: quote them)" if isinstance(value, bool) else ""
            problems.append(f"training.{name}: {message[0].lower()}{message[1:]}, got {value!r}{quoting}")
    return checked
