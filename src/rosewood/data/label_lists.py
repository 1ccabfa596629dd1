"""Several labels a text: lists of label names, or a 0 or 1 for each label."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from rosewood.data.tasks import label_key

Vector = tuple[int, ...]
"""A 1 for each label that a text has, and a 0 for each that it has not."""


def as_list(value: Any) -> list[Any] | None:
    """The labels that a value lists, or None if it is a single label.

    In CSV a list is written as in JSON or Python, in brackets: [0, 1, 1], ["comedy", "drama"] or [].
    """
    if isinstance(value, str):
        text = value.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return None
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple | set | frozenset) else None


def has_lists(values: Iterable[Any]) -> bool:
    """Whether a column of labels has lists."""
    return any(as_list(value) is not None for value in values)


def listed_labels(values: Iterable[Any]) -> list[str]:
    """The labels that the lists of a column name, in the order in which they come; numbers from 0 for 0-1 vectors."""
    lists = [found for value in values if (found := as_list(value)) is not None]
    lengths = {len(each) for each in lists}
    if len(lengths) == 1 and are_vectors(lists, size := lengths.pop()) and size > 1:
        return [str(number) for number in range(size)]
    return list(dict.fromkeys(label_key(each) for found in lists for each in found))


def are_vectors(lists: Sequence[Sequence[Any]], size: int) -> bool:
    """Whether all lists have a 0 or 1 for each of so many labels."""
    return all(
        len(each) == size and all(isinstance(part, int | float) and part in (0, 1) for part in each) for each in lists
    )
