"""Made-up data for fuzz tests: values of the wrong kind, mutations of good documents, and what may come of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from rosewood.errors import RosewoodError

TEXTS = st.one_of(
    st.sampled_from(["", " ", "0", "-1", "nan", "1e400", "rose", "name", "..", "../x", "/", "a\0b", "😀", "x" * 300]),
    st.text(max_size=12),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2, 2**31, 2**63, 2**64, 10**30, -(10**30)]),
    st.sampled_from([0.0, -0.0, 0.5, 1.5, 1e-300, 1e308, float("nan"), float("inf"), float("-inf")]),
    TEXTS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@contextmanager
def only_our_errors() -> Iterator[None]:
    """Whatever fails must fail as an error of Rosewood that says something."""
    try:
        yield
    except RosewoodError as error:
        assert str(error).strip()


@st.composite
def mutated(draw: st.DrawFn, document: Any, changes: int = 3) -> Any:
    """A good document with some entries replaced, removed or added, anywhere in it."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, changes))):
        node, keys = document, _keys(document)
        while keys:
            key = draw(st.sampled_from(keys))
            below = _keys(node[key])
            if below and draw(st.integers(0, 3)):
                node, keys = node[key], below
                continue
            _change(draw, node, key)
            break
    return document


def _keys(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node)
    return list(range(len(node))) if isinstance(node, list) else []


def _change(draw: st.DrawFn, node: Any, key: Any) -> None:
    change = draw(st.sampled_from(["replace", "remove", "add", "rename"]))
    if change == "replace":
        node[key] = draw(VALUES)
    elif change == "remove":
        del node[key]
    elif isinstance(node, list):
        node.insert(key, draw(VALUES))
    elif change == "add":
        node[draw(st.one_of(TEXTS, st.integers(), st.none()))] = draw(VALUES)
    else:
        node[draw(TEXTS)] = node.pop(key)


@st.composite
def scarred(draw: st.DrawFn, data: bytes) -> bytes:
    """Good bytes after an accident: cut short, with a piece overwritten, repeated or moved."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 40)))
        accident = draw(st.sampled_from(["cut", "overwrite", "repeat", "drop"]))
        if accident == "cut":
            data = data[:start]
        elif accident == "overwrite":
            data = data[:start] + draw(st.binary(max_size=12)) + data[end:]
        elif accident == "repeat":
            data = data[:end] + data[start:]
        else:
            data = data[:start] + data[end:]
    return data
