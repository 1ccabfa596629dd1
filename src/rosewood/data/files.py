"""Read CSV, TSV, JSON Lines, JSON and Parquet files into tables that know their lines, and find their columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from rosewood.errors import DataError, closest


@dataclass(frozen=True)
class RawTable:
    """Columns of equal length; `places[i]` is the 1-based line (or row, or item) at which row i starts."""

    name: str
    columns: dict[str, list[Any]]
    places: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.places)

    def at(self, index: int) -> str:
        """The place of row `index`, for an error message."""
        return f"{self.name}, {self.unit} {self.places[index]}"

    def take(self, indices: Sequence[int]) -> RawTable:
        """The rows `indices`, in that order."""
        columns = {name: [values[i] for i in indices] for name, values in self.columns.items()}
        return replace(self, columns=columns, places=[self.places[i] for i in indices])

    def problem(self, rows: Sequence[int], message: str) -> DataError:
        """An error about the first of `rows` that says how many others share it."""
        others = len(rows) - 1
        more = f" ({others} more {'row has' if others == 1 else 'rows have'} the same problem)" if others else ""
        return DataError(f"{self.at(rows[0])}: {message}{more}")


# The largest value that a C long holds on every platform; the default of 131,072 rejects long documents.
_FIELD_LIMIT = 2**31 - 1
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}


def read_file(path: Path, key: str | None = None) -> RawTable:
    """Read one file by its ending; `key` names the list to read in a JSON file that holds several."""
    if not is_file(path):
        raise DataError(f"{path}: no such file")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: unknown file ending {path.suffix!r}, expected one of {', '.join(_READERS)}")
    if key is not None and path.suffix.lower() != ".json":
        raise DataError(f"{path}: a key ({key!r}) can only be read from a .json file")
    try:
        table = _read_json(path, key) if key is not None else reader(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(table) == 0:
        raise DataError(f"{path}: the file is empty, expected at least one row of data")
    return table


def is_file(path: Path) -> bool:
    """Whether the path is that of a file; a name that no file can have, because it is too long, is not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def matching_files(path: Path) -> list[Path]:
    """The file, or those that fit the pattern, by name."""
    if is_file(path):
        return [path]
    first = next((place for place, part in enumerate(path.parts) if set("*?[").intersection(part)), None)
    if first is None:
        return []
    try:
        return sorted(filter(is_file, Path(*path.parts[:first]).glob(str(Path(*path.parts[first:])))))
    except (ValueError, OSError):  # what no pattern can be, such as a null byte
        return []


def _read_text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: expected UTF-8 text, got byte 0x{data[error.start]:02x} at offset "
            f"{error.start}; save the file as UTF-8"
        ) from None


def _read_csv(path: Path) -> RawTable:
    text = _read_text(path)
    separator = _separator(text)
    hint = f"a text with a {_SEPARATORS[separator]} must be in double quotes"
    return _from_records(path, list(_csv_records(path, text, separator)), hint)


def _separator(text: str) -> str:
    """What divides the header: a comma, or the semicolon or tab that some spreadsheets write in its place."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    outside_quotes = "".join(header.split('"')[::2])
    return next((each for each in _SEPARATORS if each in outside_quotes), ",")


def _read_tsv(path: Path) -> RawTable:
    # GLUE's files have unbalanced quotes, so a quote is an ordinary character here.
    records = [
        (number, line.removesuffix("\r").split("\t"))
        for number, line in enumerate(_read_text(path).split("\n"), start=1)
        if line.strip("\r")
    ]
    return _from_records(path, records, "TSV is read without quoting, so a text cannot contain a tab")


def _csv_records(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it starts on: quoted fields may span several lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    start = 1
    with _long_fields():
        try:
            for record in reader:
                if record:
                    yield start, record
                start = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{path}, line {start}: not valid CSV ({error}); check the double quotes") from None


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(_FIELD_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _from_records(path: Path, records: list[tuple[int, list[str]]], hint: str) -> RawTable:
    if not records:
        return RawTable(str(path), {}, [])
    (header_line, header), *body = records
    _check_distinct(f"{path}, line {header_line}", header)
    for line, record in body:
        if len(record) != len(header):
            raise DataError(
                f"{path}, line {line}: expected {len(header)} columns ({', '.join(header)}), got {len(record)}; {hint}"
            )
    columns = {name: [record[i] for _, record in body] for i, name in enumerate(header)}
    return RawTable(str(path), columns, [line for line, _ in body])


def _check_distinct(where: str, names: list[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{where}: duplicate column names: {', '.join(map(repr, repeated))}; rename one of each")


def _read_jsonl(path: Path) -> RawTable:
    rows, places = [], []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if line.strip():
            rows.append(_json_object(f"{path}, line {number}", _parse_json(path, line, number)))
            places.append(number)
    return RawTable(str(path), _columns(rows), places)


def _read_json(path: Path, key: str | None = None) -> RawTable:
    text = _read_text(path)
    content: Any = _parse_json(path, text) if text.strip() else []
    name = str(path)
    if key is not None:
        known = list(_json_object(name, content))
        if key not in known:
            raise DataError(f"{path}: no key {key!r}; {closest(key, known)}")
        name, content = f"{path}, key {key}", content[key]
    if not isinstance(content, list):
        raise DataError(
            f"{name}: expected a list of objects, got {_kind(content)}; "
            "a file with one object per line must end in .jsonl"
        )
    rows = [_json_object(f"{name}, item {i}", item) for i, item in enumerate(content, start=1)]
    return RawTable(name, _columns(rows), range(1, len(rows) + 1), unit="item")


def _parse_json(path: Path, text: str, first_line: int = 1) -> Any:
    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            _check_distinct(f"{path}, line {first_line}", [name for name, _ in pairs])
        return found

    try:
        return json.loads(text, object_pairs_hook=distinct)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        hint = "" if path.suffix.lower() == ".jsonl" else "; a file with one object per line must end in .jsonl"
        raise DataError(f"{path}, line {line}: not valid JSON ({error.msg}, column {error.colno}){hint}") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits, lists inside lists without end
        raise DataError(f"{path}, line {first_line}: JSON that cannot be read ({error})") from None


def _json_object(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", dict: "an object", type(None): "null", bool: "a boolean"}
    return names.get(type(value), "a number")


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _read_lines(path: Path) -> RawTable:
    """One text per line, without labels."""
    lines = [(number, line) for number, line in enumerate(_read_text(path).split("\n"), start=1) if line.strip()]
    return RawTable(str(path), {"text": [line for _, line in lines]}, [number for number, _ in lines])


def _read_parquet(path: Path) -> RawTable:
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise DataError(f"{path}: not a Parquet file ({error})") from None
    _check_distinct(str(path), table.column_names)
    columns = {name: _python_values(path, name, table.column(name)) for name in table.column_names}
    return RawTable(str(path), columns, range(1, table.num_rows + 1), unit="row")


def _python_values(path: Path, name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
        # Texts that are no UTF-8, dates after the year 9999: Arrow holds them, Python does not.
        raise DataError(f"{path}, column {name!r}: a {column.type} that cannot be read ({error})") from None
    return values


_READERS: dict[str, Callable[[Path], RawTable]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_lines,
}
ENDINGS = tuple(_READERS)
"""The endings of the files that can be read."""


_CHUNK = 2**22


def file_digest(path: Path) -> str:
    """A hash of the content; read once as long as the file does not change."""
    found = path.stat()
    return _digest(path, found.st_mtime_ns, found.st_size)


@cache
def _digest(path: Path, modified: int, size: int) -> str:
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


_LABEL_COLUMNS = ("label", "labels")


def check_columns(path: Path, found: Sequence[str], text_columns: Sequence[str], label_column: str) -> None:
    """A user's own file has the columns that the options name, or that they name by default."""
    wanted = {**dict.fromkeys(text_columns, "--text-column"), label_column: "--label-column"}
    for column, option in wanted.items():
        if column not in found:
            raise DataError(
                f"{path}: expected a column {column!r}; {closest(column, list(found))} "
                f"Say which column it is with {option} (the same in all files)."
            )


def label_column_of(table: RawTable, asked: str | None = None) -> str:
    """The column with the labels: the one that was asked for, or else `label` or `labels`."""
    found = list(table.columns)
    if asked is not None:
        if asked not in found:
            raise DataError(
                f"{table.name}: expected a column {asked!r} with the labels; {closest(asked, found)} "
                "Say which column it is with --label-column or, in Python, label_column=."
            )
        return asked
    candidates = [name for name in _LABEL_COLUMNS if name in found]
    if len(candidates) != 1:
        what = "there are columns 'label' and 'labels'" if candidates else "expected a column 'label' or 'labels'"
        raise DataError(
            f"{table.name}: {what}, and the columns are {', '.join(found)}: say which one has the labels, with "
            "--label-column or, in Python, label_column="
        )
    return candidates[0]


def text_columns_of(
    table: RawTable, label: str, asked: Sequence[str] | None = None, texts_before_label: bool = False
) -> list[str]:
    """The columns with the texts: those that were asked for, or `text`, or the only one or two that hold text.

    Where the columns before the label are known to be the texts, as in what `load_split` gives, it is those.
    """
    found = list(table.columns)
    if asked:
        unknown = next((name for name in asked if name not in found), None)
        if unknown is not None:
            raise DataError(f"{table.name}: expected a column {unknown!r} with texts; {closest(unknown, found)}")
        if len(asked) > 2:
            raise DataError(f"expected one column of text, or two of pairs; got {', '.join(asked)}")
        return list(asked)
    before = found[: found.index(label)]
    if texts_before_label and len(before) in (1, 2):
        return before
    if "text" in found:
        return ["text"]
    texts = [name for name in found if name != label and any(isinstance(value, str) for value in table.columns[name])]
    if len(texts) not in (1, 2):
        raise DataError(
            f"{table.name}: which columns hold the texts? It has {', '.join(found)}, none of them called 'text': name "
            "them with --text-column (twice for pairs), in Python text_columns="
        )
    return texts
