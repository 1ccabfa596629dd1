"""English word forms: inflected substitutes ("films" for "movies"), and contractions with their long forms.

Left out of the contractions: "'d" (had or would) and "ain't", whose long forms depend on the sentence, and "'s" after
most words, where it usually marks a possessor.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from rosewood.errors import AbsentError
from rosewood.words.text import with_case_of

BASE = {"NOUN": "NN", "VERB": "VB", "ADJ": "JJ", "ADV": "RB"}
"""Part of speech -> the tag of its base form, in Penn Treebank tags as lemminflect has them."""
Forms = Mapping[str, tuple[str, ...]]
"""Tag -> the spellings of a form, most usual first."""


class Lemma(NamedTuple):
    """A word as a dictionary lists it."""

    word: str
    part: str
    """NOUN, VERB, ADJ or ADV."""


class Synonym(NamedTuple):
    """A word that may replace another of the same part of speech."""

    rank: float
    """The lower the better; comparable over parts of speech."""
    word: str


Synonyms = Mapping[Lemma, Sequence[Synonym]]


def inflected(synonyms: Synonyms, limit: int) -> dict[str, list[str]]:
    """Every form of every lemma, with at most so many synonyms in the same form, best first."""
    found: dict[str, list[Synonym]] = defaultdict(list)
    for lemma, others in synonyms.items():
        for tag, spellings in forms(lemma).items():
            same = [(each.rank, forms(Lemma(each.word, lemma.part)).get(tag, ())) for each in others]
            ranked = [Synonym(rank, theirs[0]) for rank, theirs in same if theirs]
            for spelling in spellings:
                # "put" is the base form first of all, and "film" as a plural is rare.
                if spelling != lemma.word or tag == BASE[lemma.part]:
                    found[spelling] += ranked
    return {word: _best(word, ranked, limit) for word, ranked in sorted(found.items()) if ranked}


def _best(word: str, ranked: Sequence[Synonym], limit: int) -> list[str]:
    ordered = dict.fromkeys(each.word for each in sorted(ranked, key=lambda each: each.rank))
    return [each for each in ordered if each != word][:limit]


@cache
def forms(lemma: Lemma) -> Forms:
    """All forms of a lemma that the dictionary of lemminflect lists; a word it does not know has its base form only."""
    known = _lemminflect().getAllInflections(lemma.word, upos=lemma.part)
    single = {tag: tuple(each for each in spellings if " " not in each) for tag, spellings in known.items()}
    return {**single, BASE[lemma.part]: (lemma.word,)}


def dictionary_version() -> str:
    """The version of lemminflect: another one may know other forms."""
    return str(_lemminflect().__version__)


@cache
def _lemminflect() -> ModuleType:
    try:
        return import_module("lemminflect")
    except ImportError:
        raise AbsentError("the package lemminflect is not installed: pip install rosewood[lexicon]") from None


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
