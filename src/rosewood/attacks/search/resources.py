"""What an attack may consult beside the model: things that are no settings, because they are not plain values."""

from __future__ import annotations

from dataclasses import dataclass

from rosewood.data.constraints import Encoder, LanguageModel, Tagger
from rosewood.data.lexicon import Lexicon


@dataclass(frozen=True)
class Resources:
    """Everything an attack was given."""

    lexicon: Lexicon | None = None
    language_model: LanguageModel | None = None
    tagger: Tagger | None = None
    encoder: Encoder | None = None
