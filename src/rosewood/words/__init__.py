"""Words of a text and what may replace them: lexicons, constraints, alignment with tokens, typos, noise.

These names can be imported from here: `from rosewood.words import Fluent, Lexicon, Substituting`.
"""

from rosewood.config.registry import on_first_use

_HOMES = {
    "Fluent": "rosewood.words.constraints",
    "Lexicon": "rosewood.words.lexicon",
    "Misspelling": "rosewood.words.noise",
    "SameMeaning": "rosewood.words.constraints",
    "SamePartOfSpeech": "rosewood.words.constraints",
    "SentenceEncoder": "rosewood.words.language_models",
    "Substituting": "rosewood.words.constraints",
    "Trigram": "rosewood.words.language_models",
    "attack_space": "rosewood.words.constraints",
    "with_substitutes": "rosewood.words.alignment",
    "without_stop_words": "rosewood.words.constraints",
}
__all__ = list(_HOMES)

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
