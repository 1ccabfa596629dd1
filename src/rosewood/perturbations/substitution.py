"""Words really replaced by substitutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from torch import Tensor

from rosewood.data.examples import quiet
from rosewood.errors import RunError
from rosewood.words.alignment import SUBSTITUTES, Surface
from rosewood.words.changes import WordChange, column_of
from rosewood.words.lexicon import between_codes, encoded, word_codes, word_counts
from rosewood.words.text import Changes, random_picks

if TYPE_CHECKING:
    from datasets import Dataset

    from rosewood.words.lexicon import Lexicon


@dataclass(frozen=True)
class Substitution(WordChange):
    """Replaces words by substitutes of a lexicon, as word substitution attacks do.

    Where synonym_hull mixes the vectors of a word and its substitutes, here the model sees texts that somebody could
    write. `pick` says which words are replaced and by what, see `words.changes`: at random (data augmentation), the
    worst of some random texts, or by the gradient, which is the ranking of A2T (Yoo and Qi, 2021) carried on to the
    choice of the substitute.

    For `rosewood train`, `lexicon` names the substitutes: `counter-fitted`, `wordnet`, `roget` or a JSON file (none:
    counter-fitted where the data folder has it, otherwise roget). `exact_case` looks words up as they are written.
    Without `stop_words`, words such as "the" and "not" stay. A word has at most `choices` substitutes. With `itself` a
    random draw may give the word itself too, as often as any substitute, as in the copies of `smoothed:substitute`.

    With `encoded` all training texts are written as the front end `encoded` writes them, one word for each cluster of
    synonyms, and a word is replaced by what a substitution can make of it then. Frequencies, which decide clusters, are
    those of all training texts. In a recipe with several perturbations, this one must then come first.
    """

    lexicon: str | None = None
    exact_case: bool = False
    stop_words: bool = True
    choices: Annotated[int, Field(ge=1)] = 8
    itself: bool = False
    encoded: bool = False

    def prepare(
        self,
        data: Dataset,
        tokenizer: Any,
        fields: Sequence[str],
        max_length: int,
        lexicon: Lexicon | None = None,
        seed: int = 0,
    ) -> Dataset:
        if self.encoded:
            assert lexicon is not None, "a run with this perturbation has a lexicon"
            data, lexicon = self._encoded(data, tokenizer, fields, max_length, lexicon)
        return super().prepare(data, tokenizer, fields, max_length, lexicon, seed)

    def _encoded(
        self, data: Dataset, tokenizer: Any, fields: Sequence[str], max_length: int, lexicon: Lexicon
    ) -> tuple[Dataset, Lexicon]:
        """The data with encoded texts, and what may replace a word of these."""
        made = [name for name in data.column_names if name == SUBSTITUTES or name.endswith(column_of(""))]
        if made:
            raise RunError(f"substitution with encoded writes other texts than {made[0]} was made for: put it first")
        counts = word_counts(text for field in fields for text in data[field])
        from rosewood.words.constraints import ENGLISH_STOP_WORDS

        codes = word_codes(lexicon.entries, counts, () if self.stop_words else ENGLISH_STOP_WORDS)

        def rewritten(batch: dict[str, list]) -> dict[str, list]:
            texts = {field: [encoded(text, codes) for text in batch[field]] for field in fields}
            found = dict(tokenizer(*texts.values(), truncation=True, max_length=max_length))
            sizes = {"length": [len(ids) for ids in found["input_ids"]]} if "length" in batch else {}
            return texts | found | sizes

        with quiet(len(data)):
            data = data.map(rewritten, batched=True, desc="encode")
        return data, replace(lexicon, entries=between_codes(lexicon.entries, codes, counts))

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
