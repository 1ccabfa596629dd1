"""Seeded text noise for evaluation: the same row gets the same noise in every run and batch.

Strength is the share of the words (or other places) that a noise may touch and does: 0 touches none, 1 all. With all
noises but typos, what a weaker noise touches is touched in the same way by a stronger one of the same seed.
"""

from collections.abc import Callable, Sequence
from random import Random

import regex
from datasets import Dataset

from rosewood.errors import DataError, closest
from rosewood.words.inflection import CONTRACTION, other_form
from rosewood.words.text import BETWEEN_SPACES, WORD, Words
from rosewood.words.typos import Slip, drop, homoglyph, insert, neighbour_key, recase, swap

Noise = Callable[[str, float, Random], str]

# A word of at least four letters and the sentence marks around it. Anything else between two spaces
# ("don't", "B2B", "well-known", a link, a mention) is left alone.
_WORD = regex.compile(r"""([("'“‘]*)((?:\p{L}\p{M}*+){4,})([)"'”’.,;:!?…]*)""")

_MARKS = r"""[.,;:!?…"“”()]"""
# A mark that stands alone, with the space before it; a mark before or after a word; the end of a word without one.
_MARK_OR_BARE_END = rf" {_MARKS}(?!\S)|(?<!\w){_MARKS}|{_MARKS}(?!\w)|(?<=\w)(?!\S)"

_SLIPS: tuple[Slip, ...] = (swap, drop, insert, neighbour_key)


def typos(text: str, rate: float, rng: Random) -> str:
    """Mistype each word of at least four letters with probability `rate`, keeping its first letter."""

    def retype(match: regex.Match[str]) -> str:
        word = _WORD.fullmatch(match[0])
        if word is None or rng.random() >= rate:
            return match[0]
        return word[1] + _mistype(word[2], rng) + word[3]

    return regex.sub(BETWEEN_SPACES, retype, text)


def keyboard(text: str, strength: float, rng: Random) -> str:
    """In words of at least four letters, hit the key beside that of one letter; the first stays."""

    def slip(token: str) -> str:
        word = _WORD.fullmatch(token)
        return token if word is None else word[1] + neighbour_key(word[2], rng, 1) + word[3]

    return _changed(text, BETWEEN_SPACES, slip, strength, rng)


def case(text: str, strength: float, rng: Random) -> str:
    """Write words in capitals, in small letters, or in a mixture of both."""
    return _changed(text, WORD, lambda word: recase(word, rng), strength, rng)


def punctuation(text: str, strength: float, rng: Random) -> str:
    """Drop the marks at the edges of words, and put others after words that have none.

    Marks inside words and numbers ("don't", "3.5") stay.
    """
    return _changed(text, _MARK_OR_BARE_END, lambda mark: "" if mark else rng.choice(",.;:!?"), strength, rng)


def homoglyphs(text: str, strength: float, rng: Random) -> str:
    """Replace one letter of a word by a letter of another alphabet that looks the same."""
    return _changed(text, WORD, lambda word: homoglyph(word, rng, 0), strength, rng)


def dropped_words(text: str, strength: float, rng: Random) -> str:
    """Leave words out; one word stays, so that no text becomes empty."""
    words = Words.split(text)
    chances = [rng.random() for _ in words.words]
    dropped_below = min(strength, max(chances, default=0))
    return words.join([w if chance >= dropped_below else "" for w, chance in zip(words.words, chances, strict=True)])


def contractions(text: str, strength: float, rng: Random) -> str:
    """Expand English contractions and contract what can be: "don't" becomes "do not", "it is" becomes "it's"."""
    return _changed(text, CONTRACTION, other_form, strength, rng)


NOISES: dict[str, Noise] = {
    noise.__name__: noise for noise in (typos, keyboard, case, punctuation, homoglyphs, dropped_words, contractions)
}


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


def _changed(
    text: str, pattern: str | regex.Pattern[str], change: Callable[[str], str], strength: float, rng: Random
) -> str:
    def replaced(match: regex.Match[str]) -> str:
        # Both are drawn whatever the strength, so that strengths differ in how much is changed and not in how.
        other, chance = change(match[0]), rng.random()
        return other if chance < strength else match[0]

    return (regex.compile(pattern) if isinstance(pattern, str) else pattern).sub(replaced, text)


def _mistype(word: str, rng: Random) -> str:
    # Some slips cannot change some words (swapping in "aaaa", no key beside "ж"); dropping changes all.
    mistyped = (slip(word, rng, 1) for slip in rng.sample(_SLIPS, k=len(_SLIPS)))
    return next(other for other in mistyped if other != word)
