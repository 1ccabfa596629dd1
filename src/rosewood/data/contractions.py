"""English contractions and their long forms, each found in a text and turned into the other.

Left out: "'d" (had or would) and "ain't", whose long forms depend on the sentence, and "'s" after other words than
these few, where it mostly marks a possessor.
"""

import re
from collections.abc import Iterable, Iterator

from rosewood.data.words import with_case_of

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
