"""Data of the user's own, from a file or from memory, as the test split of a task with the labels of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import datasets
from transformers import PretrainedConfig

from rosewood.data.examples import has_lists, listed_labels
from rosewood.data.files import ENDINGS, RawTable, label_column_of, read_file, text_columns_of
from rosewood.data.loading import refuse_fractions
from rosewood.data.tasks import EVERY_NOISE, FolderSource, MemorySource, Split, Task, label_key
from rosewood.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    Rows: TypeAlias = datasets.Dataset | pd.DataFrame | Sequence[Mapping[str, Any]]

TEST = "test"


def is_data_file(name: object) -> bool:
    """Whether a name is that of a data file, by its ending; tasks and suites end in .yaml or have no ending."""
    return isinstance(name, str | Path) and Path(name).suffix.lower() in ENDINGS


def own_task(
    data: Rows | str | Path,
    config: PretrainedConfig,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
) -> Task:
    """A task whose only split, `test`, is the given data, and whose labels are the outputs of a model.

    Labels of the data are names of outputs, in any case, or their numbers from 0. A `ClassLabel` column of a Dataset
    brings the names along. Where labels are lists, it is a multi-label task.
    """
    path = Path(data).resolve() if isinstance(data, str | Path) else None
    table = read_file(path) if path is not None else rows_table(cast("Rows", data))
    label = label_column_of(table, label_column)
    names = _class_names(data, label)
    texts = text_columns_of(table, label, text_columns, texts_before_label=names is not None)
    if names is not None:
        table = _with_names(table, label, names)
    outputs = cast(dict[int, str], config.id2label)
    labels = names or [outputs[number] for number in range(len(outputs))]
    several = names is None and has_lists(table.columns[label])
    settings: dict[str, Any] = {
        "columns": {} if label == "label" else {label: "label"},
        "label_values": {} if names else _label_values(table, label, labels, several),
    }
    folder = FolderSource(file=str(path), **settings) if path else None
    memory = None if path else MemorySource(table=table, **settings)
    return Task(
        name=path.stem if path else "own rows",
        title=table.name,
        text=list(texts),
        labels=list(labels),
        multi_label=several,
        noise=EVERY_NOISE,
        splits={TEST: Split(role="test", folder=folder, memory=memory)},
    )


def rows_table(data: Rows) -> RawTable:
    """Rows in memory as a table."""
    if isinstance(data, datasets.Dataset):
        columns = {name: data[name][:] for name in data.column_names}
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # a DataFrame; pandas need not be imported to say so
        columns = _frame_columns(data)
    elif isinstance(data, Sequence) and not isinstance(data, str):
        bad = next((i for i, row in enumerate(data) if not isinstance(row, Mapping)), None)
        if bad is not None:
            raise DataError(f"row {bad} of the data is {type(data[bad]).__name__}, expected a dict of column to value")
        names = dict.fromkeys(name for row in data for name in row)
        columns = {str(name): [row.get(name) for row in data] for name in names}
    else:
        raise DataError(
            f"data of type {type(data).__name__} cannot be read: expected a datasets.Dataset, a pandas DataFrame or a "
            "list of dicts, such as [{'text': 'a fine film', 'label': 'positive'}]"
        )
    rows = len(next(iter(columns.values()), []))
    if not rows:
        raise DataError("the data have no rows: expected at least one")
    return RawTable("rows in memory", columns, range(rows), unit="row")


def _frame_columns(frame: Any) -> dict[str, list[Any]]:
    repeated = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
    if repeated:
        raise DataError(f"the DataFrame has duplicate column names: {', '.join(repeated)}; rename one of each")
    values = frame.astype(object).where(frame.notna(), None)
    return {str(name): values[name].tolist() for name in frame.columns}


def _class_names(data: object, label: str) -> list[str] | None:
    feature = data.features[label] if isinstance(data, datasets.Dataset) else None
    return list(feature.names) if isinstance(feature, datasets.ClassLabel) else None


def _with_names(table: RawTable, label: str, names: Sequence[str]) -> RawTable:
    values = [
        names[value] if value is not None and 0 <= value < len(names) else value for value in table.columns[label]
    ]
    return RawTable(table.name, {**table.columns, label: values}, table.places, table.unit)


def _label_values(table: RawTable, column: str, names: Sequence[str], several: bool) -> dict[str, str]:
    """Raw label -> output of the model: by name where all labels are names, or else by number.

    Empty where neither fits, so that what is wrong shows with the row that it is in.
    """
    values = table.columns[column]
    keys = listed_labels(values) if several else list(dict.fromkeys(map(label_key, values)))
    folded = {name.casefold(): name for name in names}
    if all(key.casefold() in folded for key in keys if key):
        return {key: folded[key.casefold()] for key in keys if key} | {name: name for name in names}
    refuse_fractions(keys, f"{table.name}, column {column!r}")
    numbers = {str(number): name for number, name in enumerate(names)}
    if all(key in numbers for key in keys if key):
        return numbers
    if all(name == f"LABEL_{number}" for number, name in enumerate(names)):
        shown = ", ".join(keys[:10])
        raise DataError(
            f"{table.name}: the labels are {shown}, and the outputs of the model have no names to compare them with. "
            "Say which output is which: --labels with the names in the order of the outputs, in Python "
            "model.config.id2label."
        )
    return {}
