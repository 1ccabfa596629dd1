"""Divides rows by a hash of their text, so that a split depends on nothing but the texts and the seed.

The same rows give the same split on every machine, library version and row order, and a small subset is
part of every larger one with the same seed.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from hashlib import blake2b

Key = tuple[str, ...]


def text_keys(columns: Sequence[Sequence[str]]) -> list[Key]:
    """One key per row: its texts without differences in case and white space."""
    return [tuple(" ".join(text.casefold().split()) for text in row) for row in zip(*columns, strict=True)]


def distinct(keys: Sequence[Key], labels: Sequence[Hashable]) -> list[int]:
    """The first row of every key; none at all where rows of one key carry different labels."""
    seen: dict[Key, set[Hashable]] = defaultdict(set)
    first: dict[Key, int] = {}
    for index, (key, label) in enumerate(zip(keys, labels, strict=True)):
        seen[key].add(label)
        first.setdefault(key, index)
    return [index for key, index in first.items() if len(seen[key]) == 1]


def spread(keys: Sequence[Key], labels: Sequence[Hashable], seed: int) -> list[int]:
    """All rows in a random order of which every beginning has the label shares of the whole."""
    by_label: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for index, (key, label) in enumerate(zip(keys, labels, strict=True)):
        by_label[label].append((_draw(key, seed), index))
    placed = [
        ((rank + 0.5) / len(rows), draw, index)
        for rows in by_label.values()
        for rank, (draw, index) in enumerate(sorted(rows))
    ]
    return [index for _, _, index in sorted(placed)]


def carve(keys: Sequence[Key], labels: Sequence[Hashable], share: float, seed: int) -> list[int]:
    """A stratified share of the rows; the keys must be distinct."""
    return sorted(spread(keys, labels, seed)[: _count(share, len(keys))])


def carve_groups(groups: Sequence[Key], share: float, seed: int) -> list[int]:
    """Whole groups, in random order, until they hold the share of all rows."""
    members: dict[Key, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    wanted, taken = _count(share, len(groups)), list[int]()
    for group in sorted(members, key=lambda group: (_draw(group, seed), group)):
        if len(taken) >= wanted:
            break
        taken += members[group]
    return sorted(taken)


def _count(share: float, rows: int) -> int:
    return max(1, round(share * rows))


def _draw(key: Key, seed: int) -> int:
    digest = blake2b("\0".join([str(seed), *key]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
