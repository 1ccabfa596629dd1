"""What the words of a text may be changed to, as tokens, so that training changes texts without a tokenizer.

A changed text is put together from the tokens of its words: the tokens of a changed word are replaced by those of its
new form, which may be more or fewer. The result is what the tokenizer makes of the changed text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from rosewood.words.alignment import Aligner, Offsets, Rows, Surface, changed_field, shift_of, with_column
from rosewood.words.text import WORD

KEYS = ("start", "stop", "choices", "lengths", "tokens", "room")


def column_of(perturbation: str) -> str:
    """The column, and the entry of a batch, that a perturbation of words reads."""
    return f"{perturbation}_changes"


def with_changes(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    perturbation: str,
    surface: Surface,
    fields: Sequence[str],
    field: str | None = None,
    *,
    max_length: int = 128,
    choices: int = 8,
    unknown: bool = False,
    pattern: str = WORD,
) -> Dataset:
    """Add to tokenized texts what their words may be changed to.

    Args:
        dataset: Tokenized texts that still have the texts, in `fields`.
        tokenizer: The fast tokenizer that made the tokens.
        perturbation: The name of the perturbation that is to change the words: `substitution` or `typing`.
        surface: From the words of a text to what may replace each of them.
        fields: The text columns, one or two.
        field: Whose words are changed; by default the last.
        max_length: At how many tokens the texts were cut; a change that would make a text longer is not made.
        choices: How many changes a word has at most.
        unknown: Whether a changed word may have tokens that the model does not know.
        pattern: What counts as a word, as a regular expression without groups.

    Returns:
        The data set with one more column.

    Raises:
        DataError: The tokens are not those of the texts, or the tokenizer cannot say which tokens a word has.

    Example:
        `with_changes(data, tokenizer, "substitution", Substituting(lexicon).surface, ["text"])`
    """
    which = changed_field(dataset, tokenizer, fields, field)
    aligner = Aligner(tokenizer, surface, choices + 1, pattern=pattern, unknown=unknown)

    def changes(text: str, ids: Sequence[int], offsets: Offsets) -> dict[str, Any]:
        return packed(list(aligner.choices(text, ids, offsets)), max_length - len(ids))

    return with_column(dataset, tokenizer, column_of(perturbation), changes, fields, which, max_length)


def packed(found: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]], room: int) -> dict[str, np.ndarray]:
    """A row of the column: the places of each word and the tokens of its choices; `room` is for more tokens."""
    flat = [choice for _, choices in found for choice in choices]
    columns = {
        "start": [places[0] for places, _ in found],
        "stop": [places[-1] + 1 for places, _ in found],
        "choices": [len(choices) for _, choices in found],
        "lengths": [len(choice) for choice in flat],
        "tokens": [token for choice in flat for token in choice],
        "room": [room],
    }
    return {name: np.array(values, dtype=np.int32) for name, values in columns.items()}


def collate_changes(columns: list[dict[str, np.ndarray]], examples: Rows, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """The changes of a batch, words, choices and tokens of all rows in a row.

    Of each word `row`, `start` and `stop` (places in the batch, row by row), `first` (its first choice) and `choices`
    (how many); of each choice `word`, `begin` (its first token) and `lengths`; `tokens`; and `room` of each row.
    """
    length = ids.shape[1]
    joined = {key: np.concatenate([one[key] for one in columns]).astype(np.int64) for key in KEYS}
    row = np.repeat(np.arange(len(columns)), [len(one["start"]) for one in columns])
    moved = np.array([number * length + shift_of(examples[number], ids[number]) for number in range(len(columns))])
    arrays = {
        "row": row,
        "start": joined["start"] + moved[row],
        "stop": joined["stop"] + moved[row],
        "first": joined["choices"].cumsum() - joined["choices"],
        "choices": joined["choices"],
        "word": np.repeat(np.arange(len(row)), joined["choices"]),
        "begin": joined["lengths"].cumsum() - joined["lengths"],
        "lengths": joined["lengths"],
        "tokens": joined["tokens"],
        "room": joined["room"],
    }
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
