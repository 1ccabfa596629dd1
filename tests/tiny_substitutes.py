"""Made-up substitutes for token sequences: a word of one token with three of them, and one of two tokens with two.

The same words may change to other words of one, two or three tokens, for perturbations that change the text itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import Dataset

from rosewood.recipe import Recipe, load_recipe
from rosewood.words.alignment import KEYS, SUBSTITUTES, Entry, stretched
from rosewood.words.changes import packed

VOCABULARY = 50  # that of tiny.py, which imports this file


def quick(recipe: Any) -> Recipe:
    """The recipe with two steps up the hull instead of ten: what tests of whole recipes show does not depend on it."""
    loaded = load_recipe(recipe)
    if loaded.perturbation is None or loaded.perturbation.name != "synonym_hull" or loaded.stages:
        return loaded
    return load_recipe(loaded, {"perturbation.steps": 2})


class Substituted(Dataset):
    """Data of token ids, with substitutes beside, or other columns that perturbations of words read."""

    def __init__(self, data: Any, columns: Iterable[str] = (SUBSTITUTES,), room: int = 4) -> None:
        self.data, self.columns, self.room = data, tuple(columns), room

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> dict[str, Any]:
        example = self.data[i]
        real = example["input_ids"][example["attention_mask"].bool()].tolist()
        return {**example, **{column: self._made_up(column, real) for column in self.columns}}

    def _made_up(self, column: str, ids: list[int]) -> dict[str, Any]:
        if column != SUBSTITUTES:
            return packed(made_up_changes(ids, column), self.room)
        entries = made_up(ids)
        return {key: [getattr(entry, key) for entry in entries] for key in KEYS}


def other(token: int, shift: int) -> int:
    return 5 + (token + shift) % (VOCABULARY - 5)


def made_up_changes(ids: list[int], column: str) -> list[tuple[list[int], list[list[int]]]]:
    """What token 1, and tokens 3 and 4 together, may change to, as far as a sequence has them before its last token."""
    shift = len(column)
    sizes = {(1,): (1, 2, 1), (3, 4): (1, 3)}
    return [
        (list(places), [[other(ids[places[0]], shift + 7 * i + j) for j in range(size)] for i, size in enumerate(each)])
        for places, each in sizes.items()
        if len(ids) > places[-1] + 1
    ]


def made_up(ids: list[int]) -> list[Entry]:
    """Substitutes for token 1, and for tokens 3 and 4 together, as far as a sequence has them."""
    entries = [Entry(1, 1, slot - 1, slot, other(ids[1], 7 * slot), 1.0) for slot in (1, 2, 3) if len(ids) > 1]
    if len(ids) < 5:
        return entries
    layers = {3: 0, 4: 0}
    for slot, count in ((1, 1), (2, 3)):
        for place, token, share in stretched([other(ids[3], 11 * slot + j) for j in range(count)], 2):
            entries.append(Entry(3 + place, 3, layers[3 + place], slot, token, share))
            layers[3 + place] += 1
    return entries
