"""Seeded text noise for evaluation: the same row gets the same noise in every run and batch."""

import re
from collections.abc import Callable, Sequence
from random import Random
from string import ascii_lowercase

from datasets import Dataset

from rosewood.errors import DataError, closest

Noise = Callable[[str, float, Random], str]

# A word of at least four letters and the sentence marks around it. Anything else between two spaces
# ("don't", "B2B", "well-known", a link, a mention) is left alone.
_WORD = re.compile(r"""([("'“‘]*)([^\W\d_]{4,})([)"'”’.,;:!?…]*)""")

_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


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
    mistyped = (slip(word, rng) for slip in rng.sample(_SLIPS, k=len(_SLIPS)))
    return next(other for other in mistyped if other != word)


def _swap(word: str, rng: Random) -> str:
    at = rng.randrange(1, len(word) - 1)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _drop(word: str, rng: Random) -> str:
    at = rng.randrange(1, len(word))
    return word[:at] + word[at + 1 :]


def _insert(word: str, rng: Random) -> str:
    at = rng.randrange(1, len(word) + 1)
    return word[:at] + _cased(rng.choice(ascii_lowercase), word) + word[at:]


def _neighbour_key(word: str, rng: Random) -> str:
    at = rng.randrange(1, len(word))
    near = _NEIGHBOURS.get(word[at].lower())
    return word[:at] + _cased(rng.choice(near), word[at]) + word[at + 1 :] if near else word


def _cased(letter: str, like: str) -> str:
    return letter.upper() if like.isupper() else letter


def _neighbours() -> dict[str, str]:
    # Rows are shifted by about half a key, so a key touches columns 0 and 1 above, -1 and 0 below.
    touching = [(0, -1), (0, 1), (-1, 0), (-1, 1), (1, -1), (1, 0)]
    keys = {(row, column): key for row, line in enumerate(_KEYBOARD) for column, key in enumerate(line)}
    return {
        key: "".join(keys.get((row + down, column + right), "") for down, right in touching)
        for (row, column), key in keys.items()
    }


_NEIGHBOURS = _neighbours()
_SLIPS = (_swap, _drop, _insert, _neighbour_key)
