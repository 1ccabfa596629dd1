"""Types and ranges: the settings of a component as its dataclass declares them, and training arguments of a recipe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, Required, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic refuses that of typing before Python 3.12

from rosewood.errors import RecipeError, closest

LARGEST_INTEGER, LARGEST_FLOAT = 2**31 - 1, 3.4e38


def checked_settings(component: type, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The settings, converted to the declared types, and what is wrong with any: its name, and why.

    A list becomes the tuple, and a whole number the float, that is declared.
    """
    try:
        values = dict(_declared(component).validate_python(dict(settings)))
    except ValidationError as error:
        known = [field.name for field in fields(component)]
        return {}, [(str(detail["loc"][0]), _described(detail, known)) for detail in error.errors()]
    return values, list(_too_large(values))


def _too_large(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The numbers that a tensor of 32 bits cannot hold; infinity, where it may be declared, can be."""
    for name, value in values.items():
        bound = LARGEST_INTEGER if isinstance(value, int) else LARGEST_FLOAT
        if isinstance(value, int | float) and bound < abs(value) < math.inf:
            yield name, f"expected a number of at most {bound:,}, got {value}"


@cache
def _declared(component: type) -> TypeAdapter[Any]:
    hints = get_type_hints(component, include_extras=True)
    types = {field.name: hints[field.name] for field in fields(component)}
    needed = [field.name for field in fields(component) if field.default is field.default_factory is MISSING]
    declared = TypedDict(component.__name__, types | {name: Required[types[name]] for name in needed}, total=False)  # type: ignore[misc]
    declared.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)  # type: ignore[attr-defined]
    return TypeAdapter(declared)


def _described(detail: Any, known: list[str]) -> str:
    if detail["type"] == "extra_forbidden":
        if not known:
            return "this component has no settings; choose another one first"
        return f"no such setting; {closest(str(detail['loc'][0]), known)}"
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, got {detail['input']!r}"


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
LARGEST = 2**31 - 1  # so that the product of two numbers of steps or examples is still one that torch can hold
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
