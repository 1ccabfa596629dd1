"""Noise in texts: slips of the finger, one small mistake in a word; contractions; and seeded noise of whole texts.

Letters are what a reader takes for one: a letter and its combining marks stay together in every script. Keys are those
of the keyboard that has most of the word's letters. A slip may leave a word as it is where it has no way to change it:
swapping in "aaaa", no key beside "字".

The same row of a data set gets the same noise in every run and batch. Strength is the share of the words (or other
places) that a noise may touch and does: 0 touches none, 1 all. With all noises but typos, what a weaker noise touches
is touched in the same way by a stronger one of the same seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

import regex

from rosewood.errors import DataError, closest
from rosewood.words.text import BETWEEN_SPACES, WORD, Words, with_case_of

if TYPE_CHECKING:
    from datasets import Dataset

Slip = Callable[[str, Random, int], str]

Keyboard = dict[str, str]
"""Letter -> the letters on the keys that touch its own."""

_ROWS = (  # US, Russian, Ukrainian, Greek, Hebrew, Arabic
    ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    ("йцукенгшщзхї", "фівапролджє", "ячсмитьбю"),
    (" ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
    ("  קראטוןםפ", "שדגכעיחלךף", "זסבהנמצתץ"),
    ("ضصثقفغعهخحجد", "شسيبلاتنمكط", "ئءؤرىةوزظ"),
)


def swap(word: str, rng: Random, first: int = 1) -> str:
    """Two neighbouring letters change places."""
    letters = letters_of(word)
    places = range(first, len(letters) - 1)
    if places:
        at = rng.choice(places)
        letters[at : at + 2] = letters[at + 1], letters[at]
    return "".join(letters)


def drop(word: str, rng: Random, first: int = 1) -> str:
    """A letter is missing."""
    letters = letters_of(word)
    places = range(first, len(letters))
    if places:
        del letters[rng.choice(places)]
    return "".join(letters)


def insert(word: str, rng: Random, first: int = 1) -> str:
    """There is a letter too many: one of the alphabet, or, in scripts whose keyboards we do not know, of the word."""
    letters = letters_of(word)
    places = range(first, len(letters) + 1)
    if places:
        at = rng.choice(places)
        letters.insert(at, _cased(rng.choice(sorted(_keyboard(letters)) or letters), word))
    return "".join(letters)


def neighbour_key(word: str, rng: Random, first: int = 1) -> str:
    """A letter is the one beside it on the keyboard."""
    letters = letters_of(word)
    places = range(first, len(letters))
    if places:
        at = rng.choice(places)
        if near := _keyboard(letters).get(letters[at].lower()):
            letters[at] = _cased(rng.choice(near), letters[at])
    return "".join(letters)


def homoglyph(word: str, rng: Random, first: int = 1) -> str:
    """A letter is another one that looks the same."""
    return _exchanged(word, rng, first, HOMOGLYPHS)


def look_alike(word: str, rng: Random, first: int = 1) -> str:
    """A letter is a digit or sign that looks like it."""
    return _exchanged(word, rng, first, LOOK_ALIKES)


def space(word: str, rng: Random, first: int = 1) -> str:
    """A space is within the word."""
    letters = letters_of(word)
    places = range(max(1, first), len(letters))
    if places:
        letters.insert(rng.choice(places), " ")
    return "".join(letters)


def double(word: str, rng: Random, first: int = 1) -> str:
    """A letter is there twice."""
    letters = letters_of(word)
    places = range(first, len(letters))
    if places:
        at = rng.choice(places)
        letters.insert(at, letters[at])
    return "".join(letters)


def recase(word: str, rng: Random, first: int = 0) -> str:
    """The word is in capitals, in small letters, or in a mixture of both; all of it, since no letter is lost."""
    mixture = "".join(rng.choice((letter.upper(), letter.lower())) for letter in word)
    return rng.choice([other for other in (word.upper(), word.lower(), mixture) if other != word] or [word])


def invisible(word: str, rng: Random, first: int = 1) -> str:
    """There is a character in the word that takes no place on the screen."""
    letters = letters_of(word)
    places = range(first, len(letters))
    if places:
        letters.insert(rng.choice(places), rng.choice(INVISIBLE))
    return "".join(letters)


def inside(slip: Slip) -> Slip:
    """The same slip where the last letter stays, too."""

    def kept(word: str, rng: Random, first: int = 1) -> str:
        *others, last = letters_of(word)
        return slip("".join(others), rng, first) + last

    return kept


def _exchanged(word: str, rng: Random, first: int, table: Mapping[str, str]) -> str:
    letters = letters_of(word)
    places = [at for at in range(first, len(letters)) if letters[at] in table]
    if places:
        at = rng.choice(places)
        letters[at] = table[letters[at]]
    return "".join(letters)


def neighbours(letter: str) -> str:
    """The letters on the keys that touch a letter's own; none where no keyboard here has it.

    Example:
        >>> sorted(neighbours("q"))
        ['a', 'w']
    """
    return _keyboard([letter]).get(letter, "")


def letters_of(word: str) -> list[str]:
    """What a reader takes for letters, each with its marks."""
    return regex.findall(r"\X", word)


def _keyboard(letters: Sequence[str]) -> Keyboard:
    """The first of the keyboards with most of the letters; an empty one if none has any."""
    best = max(KEYBOARDS, key=lambda keys: sum(letter.lower() in keys for letter in letters))
    return best if any(letter.lower() in best for letter in letters) else {}


def _cased(letter: str, like: str) -> str:
    return letter.upper() if like.isupper() else letter


def _neighbours(rows: Sequence[str]) -> Keyboard:
    # Rows are shifted by about half a key, so a key touches columns 0 and 1 above, -1 and 0 below.
    touching = [(0, -1), (0, 1), (-1, 0), (-1, 1), (1, -1), (1, 0)]
    keys = {(row, column): key for row, line in enumerate(rows) for column, key in enumerate(line) if key != " "}
    return {
        key: "".join(keys.get((row + down, column + right), "") for down, right in touching)
        for (row, column), key in keys.items()
    }


KEYBOARDS = [_neighbours(rows) for rows in _ROWS]
_LATIN_CYRILLIC = dict(zip("aceiopsxyABCEHIKMOPSTXY", "асеіорѕхуАВСЕНІКМОРЅТХУ", strict=True))
_GREEK_LATIN = dict(zip("αγικνορυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ayikvopuABEZHIKMNOPTYX", strict=True))
# Latin letters have Cyrillic doubles, Cyrillic and Greek ones Latin doubles.
HOMOGLYPHS = _LATIN_CYRILLIC | {other: latin for latin, other in _LATIN_CYRILLIC.items()} | _GREEK_LATIN
LOOK_ALIKES = {"a": "@", "l": "1", "o": "0"}
INVISIBLE = "\u200b\u200c\u200d\u2060\u00ad"
"""Zero-width space, non-joiner, joiner and word joiner, and the soft hyphen."""
SLIPS: dict[str, Slip] = {
    slip.__name__: slip for slip in (swap, drop, insert, double, neighbour_key, recase, homoglyph, invisible)
}
"""All of them by name."""


class Misspelling:
    """Gives each word the same misspelt forms wherever it occurs, some of each kind of slip.

    Args:
        kinds: Which slips: `swap`, `drop`, `insert`, `double`, `neighbour_key`, `recase`, `homoglyph`, `invisible`.
            All of them by default.
        forms: How many forms a word gets at most; forms that come out alike count once.
        min_letters: Shorter words stay as they are.
        seed: Another seed, other forms.

    Example:
        >>> Misspelling(["drop"], forms=2).surface(["a", "film"])
        [(), ('fil', 'flm')]
    """

    def __init__(
        self, kinds: Sequence[str] = tuple(SLIPS), forms: int = 16, min_letters: int = 3, seed: int = 0
    ) -> None:
        @lru_cache(maxsize=1_000_000)
        def misspelt(word: str) -> tuple[str, ...]:
            if sum(map(str.isalpha, word)) < min_letters:
                return ()
            rng = Random(f"{seed} {word}")
            found = dict.fromkeys(SLIPS[kinds[i % len(kinds)]](word, rng, 1) for i in range(forms))
            found.pop(word, None)
            return tuple(found)

        self._misspelt = misspelt

    def surface(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        """The misspelt forms of each word of a text."""
        return [self._misspelt(word) for word in words]


Noise = Callable[[str, float, Random], str]

# A word of at least four letters and the sentence marks around it. Anything else between two spaces
# ("don't", "B2B", "well-known", a link, a mention) is left alone.
_WORD = regex.compile(r"""([("'“‘]*)((?:\p{L}\p{M}*+){4,})([)"'”’.,;:!?…]*)""")

_MARKS = r"""[.,;:!?…"“”()]"""
# A mark alone, with the space before it; a mark before or after a word; the end of a word without one.
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
    return type(dataset).from_dict(columns, features=dataset.features)


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


_ENDINGS = {
    ("n't", " not"): "is are was were do does did has have had would could should must need",
    ("'s", " is"): "it that there here he she what who where how",
    ("'re", " are"): "you we they",
    ("'ve", " have"): "i you we they would could should",
    ("'ll", " will"): "i you he she it we they that there",
}
_IRREGULAR = {
    "i'm": "i am",
    "let's": "let us",
    "can't": "cannot",
    "won't": "will not",
    "shan't": "shall not",
}
LONG_FORMS = _IRREGULAR | {
    word + short: word + long for (short, long), words in _ENDINGS.items() for word in words.split()
}
_OTHER_FORMS = LONG_FORMS | {long: short for short, long in LONG_FORMS.items()} | {"can not": "can't"}


def _written(forms: Iterable[str]) -> Iterator[str]:
    # Not re.IGNORECASE, by which "ſ" and "İ" are also "s" and "i".
    for form in forms:
        yield from (form, form[0].upper() + form[1:], form.upper())


def _pattern() -> re.Pattern[str]:
    # Corpora that are split into tokens write "does n't" and "it 's".
    short = "|".join(re.sub(r"(?i)(n?'\w+)$", r"\\s?\1", form).replace("'", "['’]") for form in _written(LONG_FORMS))
    long = "|".join(form.replace(" ", r"\s") for form in _written([*LONG_FORMS.values(), "can not"]))
    # "It's been" is short for "it has been"; "that is what it is." cannot be shortened at its end.
    return re.compile(rf"\b(?:(?:{short})\b(?!(?<=[sS])\s(?:been|got|had)\b)|(?:{long})\b(?=\s\w))")


CONTRACTION = _pattern()
"""Matches a contraction, or what can be contracted."""


def other_form(found: str) -> str:
    """The long form of a contraction that `CONTRACTION` found, or the contraction of a long form."""
    tokens = re.sub(r"\s", " ", found.lower().replace("’", "'"))
    return with_case_of(_OTHER_FORMS[re.sub(r" (?=n?')", "", tokens)], found)
