"""Seeded text noise for evaluation: the same row gets the same noise in every run and batch."""

import re
from collections.abc import Callable, Sequence
from random import Random

from datasets import Dataset

from rosewood.data.slips import Slip, drop, insert, neighbour_key, swap
from rosewood.errors import DataError, closest

Noise = Callable[[str, float, Random], str]

# A word of at least four letters and the sentence marks around it. Anything else between two spaces
# ("don't", "B2B", "well-known", a link, a mention) is left alone.
_WORD = re.compile(r"""([("'“‘]*)([^\W\d_]{4,})([)"'”’.,;:!?…]*)""")

_SLIPS: tuple[Slip, ...] = (swap, drop, insert, neighbour_key)


def typos(text: str, rate: float, rng: Random) -> str:
    """Mistype each word of at least four letters with probability `rate`, keeping its first letter."""

    def retype(match: re.Match[str]) -> str:
        word = _WORD.fullmatch(match[0])
        if word is None or rng.random() >= rate:
            return match[0]
        return word[1] + _mistype(word[2], rng) + word[3]

    return re.sub(r"\S+", retype, text)


NOISES: dict[str, Noise] = {"typos": typos}


def noisy(dataset: Dataset, fields: Sequence[str], kind: str, strength: float, seed: int) -> Dataset:
    """A copy of the dataset with noise of one kind in its text fields; every other column as it was.

    The noise of a row depends on the seed and the row's index only.
    """
    if kind not in NOISES:
        raise DataError(f"unknown noise: {kind}; {closest(kind, list(NOISES))}")
    if not 0 <= strength <= 1:
        raise DataError(f"noise strength is a share from 0 to 1; got {strength}.")
    noise = NOISES[kind]
    columns = dataset.to_dict()
    rngs = [Random(f"{seed} {index}") for index in range(len(dataset))]
    for field in fields:
        columns[field] = [noise(text, strength, rng) for text, rng in zip(columns[field], rngs, strict=True)]
    return Dataset.from_dict(columns, features=dataset.features)


def _mistype(word: str, rng: Random) -> str:
    # Some slips cannot change some words (swapping in "aaaa", no key beside "ж"); dropping changes all.
    mistyped = (slip(word, rng, 1) for slip in rng.sample(_SLIPS, k=len(_SLIPS)))
    return next(other for other in mistyped if other != word)
