"""What comes from strangers: YAML that is plain data, and settings and training arguments of the declared types.

YAML has no key twice, and is bounded in size, also once its aliases are written out. Whatever is wrong with a text is a
`yaml.YAMLError`; with a file, an error that says what was expected. Values of `--set PATH=VALUE` are read as YAML too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Required, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic refuses that of typing before Python 3.12

from rosewood.errors import RecipeError, RosewoodError, closest

MAX_BYTES = 256_000  # fifty times the largest recipe or task
MAX_VALUES = 50_000
MAX_DEPTH = 50


class _Loader(yaml.SafeLoader):
    """The safe loader, which knows no tag that could run code, with limits."""

    def fetch_more_tokens(self) -> None:
        # Before the scanner, which takes the square of the depth, and the parser, which recurses.
        if self.flow_level + len(self.indents) > MAX_DEPTH:
            raise yaml.YAMLError(f"line {self.line + 1}: nested more than {MAX_DEPTH} levels deep")
        super().fetch_more_tokens()

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _count(node, 1, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        repeated = [key for key, times in keys.items() if times > 1]
        if repeated:
            raise yaml.YAMLError(f"{_place(node)} the key {repeated[0]!r} is there more than once, remove one")
        return super().construct_mapping(node, deep)


def _count(node: yaml.Node, depth: int, known: dict[int, int]) -> int:
    """The values that a node means; an alias counts as often as it is used, because every use is read."""
    if id(node) in known:
        return known[id(node)]
    if depth > MAX_DEPTH:  # a node that contains itself ends here too
        raise yaml.YAMLError(f"{_place(node)} nested more than {MAX_DEPTH} levels deep")
    parts = node.value if isinstance(node, yaml.CollectionNode) else []
    inner = [part for entry in parts for part in (entry if isinstance(entry, tuple) else (entry,))]
    total = 1 + sum(_count(part, depth + 1, known) for part in inner)
    if total > MAX_VALUES:
        raise yaml.YAMLError(f"{_place(node)} more than {MAX_VALUES:,} values, aliases written out")
    known[id(node)] = total
    return total


def _place(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}:"


def parse(text: str) -> Any:
    """The plain data that a YAML text holds."""
    try:
        return yaml.load(text, _Loader)
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        # PyYAML passes on what Python says to a date such as 2024-99-99 or to a number of 5,000 digits.
        raise yaml.YAMLError(f"it holds a value that cannot be read: {error}") from None


def read(path: Path, what: str, error: type[RosewoodError]) -> Any:
    """The plain data in the YAML file of something, such as `a task`; if it cannot be read, `error` says why."""
    try:
        return _read(path)
    except FileNotFoundError:
        raise error(f"{path}: no such file, expected the YAML file of {what}") from None
    except (yaml.YAMLError, OSError) as problem:
        raise error(f"{path} cannot be read as YAML: {problem}") from None


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise yaml.YAMLError(f"longer than {MAX_BYTES:,} bytes, which no recipe and no task is")
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"expected UTF-8 text, got {error.object[error.start]:#04x} at {error.start}") from None
    except ValueError as error:  # a name that no file can have
        raise yaml.YAMLError(str(error)) from None


def parse_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """`["selection.keep_quantile=0.7"]` as a mapping; values are read as YAML."""
    overrides = {}
    for assignment in assignments:
        path, sign, value = assignment.partition("=")
        if not sign or not path:
            raise RecipeError(f"--set expects PATH=VALUE, such as selection.keep_quantile=0.7, got {assignment!r}")
        try:
            overrides[path.strip()] = parse(value)
        except yaml.YAMLError as error:
            raise RecipeError(
                f"--set {path.strip()}: {value!r} cannot be read as YAML ({error}); quote text with special signs"
            ) from None
    return overrides


def override(plain: dict[str, Any], path: str, value: Any, defaults: Mapping[str, Any], problems: list[str]) -> None:
    """Set one entry of plain data; a name on the way becomes a mapping with that name."""
    *parents, last = path.split(".")
    node: Any = plain
    place: int | str
    for i, key in enumerate(parents):
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                problems.append(f"--set {path}: {'.'.join(parents[:i])} has {len(node)} entries, counted from 0")
                return
            child, place = node[int(key)], int(key)
        else:
            child, place = node.get(key, defaults.get(key, {})), key
        if isinstance(child, str):
            child = {"name": child}
        if child is None or not isinstance(child, dict | list):
            where = ".".join(parents[: i + 1])
            problems.append(f"--set {path}: the recipe has no {where}: choose one first, --set {where}=NAME")
            return
        node[place] = child
        node = child
    if isinstance(node, list):
        problems.append(f"--set {path}: expected a setting of one entry, such as {'.'.join(parents)}.0.{last}")
        return
    node[last] = value


LARGEST_INTEGER, LARGEST_FLOAT = 2**31 - 1, 3.4e38


class StrictModel(BaseModel):
    """What a file of a user holds: nothing that is not declared, and nothing that changes later."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True, use_attribute_docstrings=True
    )


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
