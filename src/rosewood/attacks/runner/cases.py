"""Cases: rows of data as what is attacked, each with its texts and its goal, and the model's outputs for the labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from datasets import Dataset

from rosewood.attacks.runner.goal import Goal, entities, goal_of
from rosewood.data.files import read_file
from rosewood.data.own import rows_table
from rosewood.errors import DataError, RunError, closest
from rosewood.models.scoring import Scorer, label_columns, output_names
from rosewood.models.token_scoring import TokenScorer

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from rosewood.data.own import Rows

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
            "several labels a text, or give the data one label each"
        )
    if bad:
        raise DataError(f"expected labels from 0 to {count - 1}, got {bad[0]!r}.")


def _check_vectors(labels: Sequence[Any], count: int) -> None:
    bad = [label for label in labels if not isinstance(label, list) or len(label) != count or set(label) - {0, 1}]
    if bad:
        raise DataError(
            f"the model is for several labels a text: expected a 0 or 1 for each of {count}, got {bad[0]!r}"
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
            f"expected a column {' or '.join(map(repr, found or usual))} with the {what} of each text, got "
            f"{', '.join(columns)}"
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
