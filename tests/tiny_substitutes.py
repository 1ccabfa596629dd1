"""Made-up substitutes for token sequences: a word of one token with three of them, and one of two tokens with two."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset

from rosewood.recipe import Recipe, load_recipe
from rosewood.words.alignment import KEYS, SUBSTITUTES, Entry, stretched

VOCABULARY = 50  # that of tiny.py, which imports this file


def quick(recipe: Any) -> Recipe:
    """The recipe with two steps up the hull instead of ten: what tests of whole recipes show does not depend on it."""
    loaded = load_recipe(recipe)
    if loaded.perturbation is None or loaded.perturbation.name != "synonym_hull" or loaded.stages:
        return loaded
    return load_recipe(loaded, {"perturbation.steps": 2})


class Substituted(Dataset):
    """Data of token ids, with substitutes beside."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> dict[str, Any]:
        example = self.data[i]
        real = example["input_ids"][example["attention_mask"].bool()].tolist()
        entries = made_up(real)
        return {**example, SUBSTITUTES: {key: [getattr(entry, key) for entry in entries] for key in KEYS}}


def made_up(ids: list[int]) -> list[Entry]:
    """Substitutes for token 1, and for tokens 3 and 4 together, as far as a sequence has them."""

    def other(token: int, shift: int) -> int:
        return 5 + (token + shift) % (VOCABULARY - 5)

    entries = [Entry(1, 1, slot - 1, slot, other(ids[1], 7 * slot), 1.0) for slot in (1, 2, 3) if len(ids) > 1]
    if len(ids) < 5:
        return entries
    layers = {3: 0, 4: 0}
    for slot, count in ((1, 1), (2, 3)):
        for place, token, share in stretched([other(ids[3], 11 * slot + j) for j in range(count)], 2):
            entries.append(Entry(3 + place, 3, layers[3 + place], slot, token, share))
            layers[3 + place] += 1
    return entries
