"""Words really replaced by substitutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from torch import Tensor

from rosewood.perturbations.changed_words.change import WordChange
from rosewood.tensors.splicing import Changes, random_picks
from rosewood.words.alignment import Surface

if TYPE_CHECKING:
    from rosewood.words.lexicon import Lexicon


@dataclass(frozen=True)
class Substitution(WordChange):
    """Replaces words by substitutes of a lexicon, as word substitution attacks do.

    Where synonym_hull mixes the vectors of a word and its substitutes, here the model sees texts that somebody could
    write. `pick` says which words are replaced and by what, see `changed_words`: at random (data augmentation), the
    worst of some random texts, or by the gradient, which is the ranking of A2T (Yoo and Qi, 2021) carried on to the
    choice of the substitute.

    For `rosewood train`, `lexicon` names the substitutes: `counter-fitted`, `wordnet`, `roget` or a JSON file (none:
    counter-fitted where the data folder has it, otherwise roget). `exact_case` looks words up as they are written.
    Without `stop_words`, words such as "the" and "not" stay. A word has at most `choices` substitutes. With `itself` a
    random draw may give the word itself too, as often as any substitute, as in the copies of `smoothed:substitute`.
    """

    lexicon: str | None = None
    exact_case: bool = False
    stop_words: bool = True
    choices: Annotated[int, Field(ge=1)] = 8
    itself: bool = False

    def surface(self, lexicon: Lexicon | None, seed: int, tokenizer: Any) -> Surface:
        # With scikit-learn, which describing a recipe does without.
        from rosewood.words.constraints import Substituting, without_stop_words

        assert lexicon is not None, "a run with this perturbation has a lexicon"
        return Substituting(lexicon, self.exact_case, () if self.stop_words else (without_stop_words,)).surface

    def most(self) -> int:
        return self.choices

    def drawn(self, changes: Changes, share: Tensor, numbers: Tensor) -> Tensor:
        return random_picks(changes, share, numbers, self.itself)

    def preparation(self) -> dict[str, Any]:
        return {name: value for name, value in super().preparation().items() if name != "itself"}
