"""What an attack may consult beside the model: things that are no settings, because they are not plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rosewood.data.lexicon import Lexicon


class LanguageModel(Protocol):
    """How likely words are in a row; `rosewood.data.trigram.Trigram` is one."""

    def __contains__(self, word: str) -> bool: ...

    def logp(self, words: Sequence[str]) -> float: ...


Tagger = Callable[[Sequence[str]], Sequence[str]]
"""The part of speech of each word of a sentence, in any tag set; bring your own, such as spaCy's or NLTK's."""
Encoder = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
"""One vector a text, `(texts, dimensions)`; `rosewood.attacks.search.encoder.SentenceEncoder` is one."""


@dataclass(frozen=True)
class Resources:
    """Everything an attack was given."""

    lexicon: Lexicon | None = None
    language_model: LanguageModel | None = None
    tagger: Tagger | None = None
    encoder: Encoder | None = None
