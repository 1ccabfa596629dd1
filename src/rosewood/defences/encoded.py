"""Every word as the representative of its synonyms, so that replacing a word by a synonym mostly changes nothing.

Synonym encoding: Wang, Jin, Yang and He (2021), "Natural Language Adversarial Defense through Synonym Encoding". The
text that the classifier reads has one word for each cluster of synonyms (`rosewood.words.lexicon`). A classifier loses
accuracy on such texts unless it was trained on them, as the recipe `encoded` does, or on texts with replaced words.

An attacker who knows the clusters is left with words whose substitutes are in other clusters, and with words that the
lexicon does not have. Deviations: synonyms are those of a lexicon, not the neighbours within a distance; words that the
training texts do not have are encoded too, in the official code they are unknown words; what is written is the most
frequent word of a cluster, where the paper has a token of its own for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from rosewood.models.defended import Defence, FrontEnd, Learnt, Material, Shield
from rosewood.models.scoring import Scorer
from rosewood.words.lexicon import encoded, word_codes, word_counts


@dataclass(frozen=True)
class Encoded(Defence):
    """A front end that writes one word for all words of a cluster of synonyms."""

    stop_words: bool = True
    """Whether words such as "the" and "not" are encoded, too."""

    @property
    def reads_all(self) -> bool:
        return True  # so that clusters are those that the recipe `encoded` trained with

    def needs(self) -> dict[str, str]:
        return {
            "texts": "encoded counts the words of training texts: name a run, a task with --task, or --train-file",
            "substitutes": "encoded makes clusters of the words of a lexicon: name one with --lexicon",
        }

    def learn(self, base: Scorer, material: Material) -> Learnt:
        from rosewood.words.constraints import ENGLISH_STOP_WORDS

        counts = word_counts(text for row in material.texts for text in row)
        fixed = frozenset() if self.stop_words else ENGLISH_STOP_WORDS
        return {"codes": word_codes(material.substitutes or {}, counts, fixed)}

    def start(self, learnt: Learnt) -> Shield:
        return Encoding(learnt)


class Encoding(FrontEnd):
    """Writes the codes of words in place of them."""

    def __init__(self, learnt: Learnt) -> None:
        self._codes = learnt["codes"]

    def read(self, text: str) -> str:
        return encoded(text, self._codes)
