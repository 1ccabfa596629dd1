"""Parts of speech of English words, by the tagger of TextBlob, whose rules come in its package: no download."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version

from rosewood.errors import AbsentError

UNIVERSAL = {
    "NN": "NOUN",
    "VB": "VERB",
    "MD": "VERB",
    "JJ": "ADJ",
    "RB": "ADV",
    "WR": "ADV",
    "DT": "DET",
    "PD": "DET",
    "WD": "DET",
    "PR": "PRON",
    "WP": "PRON",
    "IN": "ADP",
    "TO": "PRT",
    "RP": "PRT",
    "CC": "CONJ",
    "CD": "NUM",
}
"""The first two letters of a tag of the Penn Treebank -> the universal part of speech."""


class EnglishTagger:
    """Universal parts of speech (NOUN, VERB, ADJ, ...) of the words of a sentence, in their context."""

    @classmethod
    def load(cls) -> EnglishTagger:
        """The tagger; needs rosewood[lexicon].

        Raises:
            AbsentError: TextBlob is not installed.
        """
        try:
            import textblob.en  # noqa: F401
        except ImportError:
            raise AbsentError(
                "parts of speech need TextBlob, which is not installed: pip install rosewood[lexicon]"
            ) from None
        return cls()

    @cached_property
    def fingerprint(self) -> str:
        """Tags are comparable only where it is the same."""
        return f"textblob {version('textblob')}"

    def __call__(self, words: Sequence[str]) -> list[str]:
        from textblob.en import parser  # takes a second, and most attacks need no tags

        return [UNIVERSAL.get(tag.partition("-")[0][:2], "X") for _, tag in parser.find_tags(list(words))]
