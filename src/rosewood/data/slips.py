"""Slips of the finger: one small mistake in a word, at a random letter from `first` on.

A slip may leave a word as it is where it has no way to change it: swapping in "aaaa", no key beside "ж".
"""

from collections.abc import Callable
from random import Random
from string import ascii_lowercase

Slip = Callable[[str, Random, int], str]

_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def swap(word: str, rng: Random, first: int = 1) -> str:
    """Two neighbouring letters change places."""
    at = rng.randrange(first, len(word) - 1)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def drop(word: str, rng: Random, first: int = 1) -> str:
    """A letter is missing."""
    at = rng.randrange(first, len(word))
    return word[:at] + word[at + 1 :]


def insert(word: str, rng: Random, first: int = 1) -> str:
    """There is a letter too many."""
    at = rng.randrange(first, len(word) + 1)
    return word[:at] + _cased(rng.choice(ascii_lowercase), word) + word[at:]


def neighbour_key(word: str, rng: Random, first: int = 1) -> str:
    """A letter is the one beside it on the keyboard."""
    at = rng.randrange(first, len(word))
    near = NEIGHBOURS.get(word[at].lower())
    return word[:at] + _cased(rng.choice(near), word[at]) + word[at + 1 :] if near else word


def homoglyph(word: str, rng: Random, first: int = 1) -> str:
    """A letter is another one that looks the same."""
    places = [at for at in range(first, len(word)) if word[at] in HOMOGLYPHS]
    if not places:
        return word
    at = rng.choice(places)
    return word[:at] + HOMOGLYPHS[word[at]] + word[at + 1 :]


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


NEIGHBOURS = _neighbours()
# Latin letters and their Cyrillic doubles.
HOMOGLYPHS = dict(zip("aceiopsxyABCEHIKMOPSTXY", "асеіорѕхуАВСЕНІКМОРЅТХУ", strict=True))
