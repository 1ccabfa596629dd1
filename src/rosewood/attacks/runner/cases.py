"""Cases: rows of data as what is attacked, each with its texts and its goal, and the model's outputs for the labels.

Goals: what a right answer is, for one label per text, several labels per text, or a label per word.

Searches know margins only. So a goal turns what the model answers into outputs of which one, `label`, is right:

- one label per text: the logits of the labels, as they are.
- several labels per text: the answer is right if all labels of the text are predicted and no others (a label is
  predicted where its logit is above 0). The margin is that of the label that is nearest to being wrong.
- a label per word: each named entity is an example of its own. Its type is that of the labels of its words, without the
  prefixes B-, I- and the like, and the answer is right if every word of it is predicted to have that type. The margin
  is that of the word that is nearest to another type, or to none. A changed word keeps its label.

Of the last two, the outputs are two, right and wrong, and their logits are the margin and 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor

from rosewood.attacks.runner.scores import Floats
from rosewood.data.files import read_file
from rosewood.data.own import rows_table
from rosewood.errors import DataError, RunError, closest
from rosewood.models.scoring import Scorer, TokenScorer, label_columns, output_names

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from rosewood.data.own import Rows

Outputs = tuple[float, ...]
RIGHT, WRONG = "right", "wrong"


class Goal:
    """The right answer for one example."""

    label: int = 0

    def outputs(self, answer: Floats) -> Outputs:
        """Logits of which that of `label` should be the highest."""
        return float(self.margin(torch.from_numpy(answer.astype(np.float64)))), 0.0

    def predicted(self, answer: Floats) -> tuple[int, ...]:
        """The numbers of the labels that the model gives, where one output does not tell them."""
        return ()

    def expected(self) -> tuple[int, ...]:
        """The numbers of the labels that it should give."""
        return ()

    def words(self) -> tuple[int, ...]:
        """The words that the answer is about, if not the whole text."""
        return ()

    def margin(self, answer: Tensor) -> Tensor:
        """By how much the answer is right: below 0 it is wrong. It has a gradient."""
        raise NotImplementedError


@dataclass(frozen=True)
class OneLabel(Goal):
    """The answer is the logits of the labels, `(labels,)`."""

    label: int

    def outputs(self, answer: Floats) -> Outputs:
        return tuple(np.asarray(answer).tolist())

    def margin(self, answer: Tensor) -> Tensor:
        others = torch.cat([answer[: self.label], answer[self.label + 1 :]])
        return answer[self.label] - others.max()


@dataclass(frozen=True)
class LabelSet(Goal):
    """The answer is a logit for each label, `(labels,)`."""

    right: tuple[bool, ...]

    def margin(self, answer: Tensor) -> Tensor:
        signs = torch.tensor([1.0 if each else -1.0 for each in self.right], dtype=answer.dtype, device=answer.device)
        return (signs * answer).min()

    def predicted(self, answer: Floats) -> tuple[int, ...]:
        return tuple(np.flatnonzero(answer > 0).tolist())

    def expected(self) -> tuple[int, ...]:
        return tuple(number for number, right in enumerate(self.right) if right)


@dataclass(frozen=True)
class EntityType(Goal):
    """The answer is the logits of the labels for each word, `(words, labels)`; NaN where the model does not see a word.

    An entity that the model does not see at all, because it was left out or cut off, has the margin 0.
    """

    places: tuple[int, ...]
    """The words of the entity."""
    own: tuple[int, ...]
    """Their labels."""
    of_type: tuple[bool, ...]
    """For each label, whether it is one of the entity's type."""

    def margin(self, answer: Tensor) -> Tensor:
        words = answer[list(self.places)]
        words = words[~words[:, 0].isnan()]
        if not len(words):
            return 0 * answer.nan_to_num().sum()
        right = torch.tensor(self.of_type, device=answer.device)
        return (words[:, right].amax(dim=1) - words[:, ~right].amax(dim=1)).min()

    def predicted(self, answer: Floats) -> tuple[int, ...]:
        seen = [answer[at] for at in self.places if not np.isnan(answer[at, 0])]
        return tuple(int(word.argmax()) for word in seen)

    def expected(self) -> tuple[int, ...]:
        return self.own

    def words(self) -> tuple[int, ...]:
        return self.places


OUTSIDE = "o"
_PREFIXES = ("b-", "i-", "e-", "s-", "l-", "u-")


def type_of(label: str) -> str:
    """The type in the name of a label: PER of B-PER."""
    return label[2:] if label[:2].lower() in _PREFIXES else label


def entities(labels: Sequence[int], names: Sequence[str]) -> Iterator[EntityType]:
    """The entities of a text with a label for each word: words in a row of one type, or from a B- on.

    The label O is not an entity. If no label is called O, as with parts of speech, each word is an entity of its own.
    """
    has_outside = any(name.lower() == OUTSIDE for name in names)
    types = [type_of(name) for name in names]
    # A negative label, which losses leave out, is not an entity either.
    kinds = ["" if label < 0 or types[label].lower() == OUTSIDE else types[label] for label in labels]
    start = 0
    while start < len(labels):
        end, kind = start + 1, kinds[start]
        while has_outside and end < len(labels) and kinds[end] == kind and not _begins(names[labels[end]]):
            end += 1
        if kind:
            yield EntityType(tuple(range(start, end)), tuple(labels[start:end]), tuple(each == kind for each in types))
        start = end


def _begins(label: str) -> bool:
    return label[:2].lower() in ("b-", "s-", "u-")


def goal_of(label: Any) -> Goal:
    """The goal of an example with this label: a number, or a 0 or 1 for each label."""
    return OneLabel(label) if isinstance(label, int) else LabelSet(tuple(bool(each) for each in label))


WORDS = "tokens"
"""The field of texts whose words have labels."""
_WORD_COLUMNS = ("tokens", "words")
_WORD_LABEL_COLUMNS = ("ner_tags", "tags", "labels", "label")


class Cases(NamedTuple):
    """Everything that is attacked."""

    fields: list[str]
    texts: list[dict[str, str]]
    goals: list[Goal]
    columns: list[int]
    """The model's outputs in the order of the labels."""
    label_names: tuple[str, ...] = ()


def cases_of(data: Dataset, scorer: Scorer, labels: Sequence[str] = ()) -> Cases:
    """The cases of rows as `load_split` or `word_rows` gives them; `labels` names those of multi-label rows."""
    return _of_words(data, scorer) if isinstance(scorer, TokenScorer) else _of_texts(data, scorer, labels)


def _of_texts(data: Dataset, scorer: Scorer, labels: Sequence[str]) -> Cases:
    names = data.column_names
    if "label" not in names or names.index("label") not in (1, 2):
        raise DataError(
            f"an attack needs one or two columns of text and then `label`, as load_split gives; got {', '.join(names)}"
        )
    if len(data) == 0:
        raise DataError("there is nothing to attack: the data have no rows.")
    config = scorer.model.config
    several = getattr(config, "problem_type", None) == "multi_label_classification"
    if scorer.classes < 2 and not several:
        raise RunError("the model has a single output; attacks need a classifier of two classes or more.")
    feature = data.features["label"]
    columns = list(range(scorer.classes))
    named = labels or output_names(config) if several else getattr(feature, "names", ())
    label_names = tuple(named)
    if label_names:
        columns = label_columns(config, label_names)
        refusal = getattr(config, "refusal", None)
        if refusal is not None and refusal not in columns:
            columns.append(refusal)  # the attack knows the guard
    found = data["label"][:]
    check = _check_vectors if several else _check_numbers
    check(found, len(columns))
    fields = names[: names.index("label")]
    for field in fields:
        for row, text in enumerate(data[field]):
            if not isinstance(text, str):
                raise DataError(f"`{field}` must hold texts; row {row} is {text!r}.")
    texts = [dict(zip(fields, each, strict=True)) for each in zip(*(data[field][:] for field in fields), strict=True)]
    return Cases(fields, texts, [goal_of(label) for label in found], columns, label_names)


def _check_numbers(labels: Sequence[Any], count: int) -> None:
    bad = [label for label in labels if not isinstance(label, int) or not 0 <= label < count]
    if bad and isinstance(bad[0], list):
        raise RunError(
            f"the labels are lists such as {bad[0]!r}, and the model gives every text one label: attack a model for "
            "several labels per text, or give the data one label each"
        )
    if bad:
        raise DataError(f"expected labels from 0 to {count - 1}, got {bad[0]!r}.")


def _check_vectors(labels: Sequence[Any], count: int) -> None:
    bad = [label for label in labels if not isinstance(label, list) or len(label) != count or set(label) - {0, 1}]
    if bad:
        raise DataError(
            f"the model is for several labels per text: expected a 0 or 1 for each of {count}, got {bad[0]!r}"
        )


def word_rows(
    data: Rows | str | Path,
    config: PretrainedConfig,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
) -> Dataset:
    """Rows with a list of words and a label for each, as columns `tokens` and `label`: labels are outputs' numbers."""
    table = read_file(Path(data)) if isinstance(data, str | Path) else rows_table(data)
    words = _column(table.columns, text_columns[0] if text_columns else None, _WORD_COLUMNS, "words")
    labels = _column(table.columns, label_column, _WORD_LABEL_COLUMNS, "labels")
    outputs = output_names(config)
    numbers = {name.casefold(): number for number, name in enumerate(outputs)}
    if isinstance(data, Dataset):
        named = getattr(getattr(data.features[labels], "feature", None), "names", None)
        order = label_columns(config, named) if named else list(range(len(outputs)))
    else:
        order = list(range(len(outputs)))
    rows: dict[str, list[Any]] = {WORDS: [], "label": []}
    for row, (own, given) in enumerate(zip(table.columns[words], table.columns[labels], strict=True)):
        lists = isinstance(own, Sequence) and isinstance(given, Sequence) and not isinstance(own, str)
        if not lists or len(own) != len(given) or not all(isinstance(word, str) and word.strip() for word in own):
            raise DataError(
                f"row {row}: the model has a label for each word, so expected in {words!r} a list of words and in "
                f"{labels!r} as many labels, got {own!r} and {given!r}"
            )
        found = [numbers.get(each.casefold(), len(order)) if isinstance(each, str) else each for each in given]
        bad = next((name for name, number in zip(given, found, strict=True) if not -100 <= number < len(order)), None)
        if bad is not None:
            raise DataError(f"row {row}: the model has no label {bad!r}; {closest(str(bad), outputs)}")
        is_name = [isinstance(each, str) for each in given]
        rows[WORDS].append(["".join(word.split()) for word in own])
        rows["label"].append([n if n < 0 or name else order[n] for n, name in zip(found, is_name, strict=True)])
    return Dataset.from_dict(rows)


def _column(columns: dict[str, list[Any]], asked: str | None, usual: Sequence[str], what: str) -> str:
    found = [asked] if asked is not None else [name for name in usual if name in columns]
    if not found or found[0] not in columns:
        raise DataError(
            f"the model has a label for each word, so expected a column {' or '.join(map(repr, found or usual))} with "
            f"a list of {what} for each text, got {', '.join(columns)}"
        )
    return found[0]


def _of_words(data: Dataset, scorer: TokenScorer) -> Cases:
    names = output_names(scorer.model.config)
    texts: list[dict[str, str]] = []
    goals: list[Goal] = []
    for words, labels in zip(data[WORDS], data["label"], strict=True):
        text = " ".join(words)
        firsts, _ = scorer.first_tokens(tuple(words), text)
        for entity in entities(cast(list[int], labels), names):
            if all(firsts[at] is not None for at in entity.places):  # else it is cut off
                texts.append({WORDS: text})
                goals.append(entity)
    if not goals:
        raise DataError("there is nothing to attack: the data have no words with a label other than O.")
    return Cases([WORDS], texts, goals, list(range(len(names))), tuple(names))
