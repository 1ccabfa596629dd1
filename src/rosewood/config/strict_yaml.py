"""YAML from strangers: plain data only, no key twice, and bounded in size, also once its aliases are written out.

Whatever is wrong with a text is a `yaml.YAMLError`; with a file, an error that says what was expected. Values of
`--set PATH=VALUE` are read as YAML too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rosewood.errors import RecipeError, RosewoodError

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
