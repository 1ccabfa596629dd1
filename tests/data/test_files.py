"""Every broken file is refused with its name, its line, what was expected and what came."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rosewood.data.files import read_file
from rosewood.errors import DataError

Write = Callable[[str, Any], Path]


def message(path: Path, key: str | None = None) -> str:
    with pytest.raises(DataError) as caught:
        read_file(path, key)
    return str(caught.value)


BROKEN = {
    "empty csv": ("a.csv", "", "{path}: the file is empty, expected at least one row of data"),
    "empty json": ("a.json", "", "{path}: the file is empty, expected at least one row of data"),
    "only a header": ("a.tsv", "text\tlabel\n", "{path}: the file is empty, expected at least one row of data"),
    "not UTF-8": (
        "a.csv",
        b"text,label\nfine,1\ncaf\xe9,0\n",
        "{path}, line 3: expected UTF-8 text, got byte 0xe9 at offset 21; save the file as UTF-8",
    ),
    "ragged CSV": (
        "a.csv",
        "text,label\none,1\ntwo, with a comma,0\n",
        "{path}, line 3: expected 2 columns (text, label), got 3; a text with a comma must be in double quotes",
    ),
    "ragged row after a quoted line break": (
        "a.csv",
        'text,label\r\n"one\r\ntwo\nthree",1\r\n\r\nshort\r\n',
        "{path}, line 6: expected 2 columns (text, label), got 1; a text with a comma must be in double quotes",
    ),
    "ragged TSV": (
        "a.tsv",
        "text\tlabel\none\t1\ntwo\tparts\t0\n",
        "{path}, line 3: expected 2 columns (text, label), got 3; "
        "TSV is read without quoting, so a text cannot contain a tab",
    ),
    "open quote": (
        "a.csv",
        'text,label\nfine,1\n"never closed,0\nmore,1\n',
        "{path}, line 3: not valid CSV (unexpected end of data); check the double quotes",
    ),
    "duplicate columns": (
        "a.csv",
        "text,label,text\na,1,b\n",
        "{path}, line 1: duplicate column names: 'text'; rename one of each",
    ),
    "duplicate keys": (
        "a.jsonl",
        '{"text": "a", "label": 1}\n{"text": "a", "text": "b"}\n',
        "{path}, line 2: duplicate column names: 'text'; rename one of each",
    ),
    "invalid JSON line": (
        "a.jsonl",
        '{"text": "a"}\n\n{"text": oops}\n',
        "{path}, line 3: not valid JSON (Expecting value, column 10)",
    ),
    "JSON line that is no object": (
        "a.jsonl",
        '{"text": "a"}\n["b"]\n',
        "{path}, line 2: expected a JSON object, got a list",
    ),
    "JSON Lines called JSON": (
        "a.json",
        '{"text": "a"}\n{"text": "b"}\n',
        "{path}, line 2: not valid JSON (Extra data, column 1); a file with one object per line must end in .jsonl",
    ),
    "JSON that is no list": (
        "a.json",
        '{"text": "a"}',
        "{path}: expected a list of objects, got an object; a file with one object per line must end in .jsonl",
    ),
    "JSON item that is no object": (
        "a.json",
        '[{"text": "a"}, 3]',
        "{path}, item 2: expected a JSON object, got a number",
    ),
    "unknown ending": (
        "a.doc",
        "text",
        "{path}: unknown file ending '.doc', expected one of .csv, .tsv, .jsonl, .json, .parquet, .txt",
    ),
}


@pytest.mark.parametrize(("name", "content", "expected"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_named_with_its_line(write: Write, name: str, content: Any, expected: str) -> None:
    path = write(name, content)
    assert message(path) == expected.format(path=path)


def test_missing_file(tmp_path: Path) -> None:
    assert message(tmp_path / "a.csv") == f"{tmp_path / 'a.csv'}: no such file"


def test_parquet_that_is_none(write: Write) -> None:
    path = write("a.parquet", "text,label\n")
    assert message(path).startswith(f"{path}: not a Parquet file (")


def test_key_of_a_json_file(write: Write) -> None:
    path = write("a.json", '{"sst2": [{"text": "a"}, {"text": "b", "method": "typo"}], "rte": []}')
    table = read_file(path, "sst2")
    assert table.columns == {"text": ["a", "b"], "method": [None, "typo"]}
    assert table.at(1) == f"{path}, key sst2, item 2"
    assert message(path, "sst") == f"{path}: no key 'sst'; did you mean sst2? Known: rte, sst2."
    assert re.search("can only be read from a .json file", message(write("a.csv", "a\nb\n"), "sst2"))


def test_tsv_is_read_without_quoting(write: Write) -> None:
    path = write("a.tsv", 'text\tlabel\r\n"an open quote\t1\r\nit \'s "fine"\u2028here\t0')
    assert read_file(path).columns == {"text": ['"an open quote', 'it \'s "fine"\u2028here'], "label": ["1", "0"]}


def test_csv_follows_the_standard_quoting_and_keeps_line_breaks(write: Write) -> None:
    path = write("a.csv", '\ufefftext,label\n"he said ""no"",\r\ntwice",1\nplain,0\n')
    table = read_file(path)
    assert table.columns == {"text": ['he said "no",\r\ntwice', "plain"], "label": ["1", "0"]}
    assert list(table.places) == [2, 4]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_of_a_spreadsheet_that_writes_no_commas(write: Write, separator: str) -> None:
    rows = [["text", "label"], ["one, two", "1"], [f'"three{separator} four"', "0"]]
    path = write("a.csv", "".join(f"{separator.join(row)}\n" for row in rows))
    assert read_file(path).columns == {"text": ["one, two", f"three{separator} four"], "label": ["1", "0"]}
    table = read_file(write("b.csv", '"a;b",label\nfine; really,1\n'))
    assert table.columns == {"a;b": ["fine; really"], "label": ["1"]}
    with pytest.raises(DataError, match=r"line 2: expected 2 columns .* got 3; a text with a semicolon must be in"):
        read_file(write("c.csv", "text;label\none; two;1\n"))


def test_csv_field_may_be_long(write: Write) -> None:
    import csv

    before = csv.field_size_limit()
    assert len(read_file(write("a.csv", f"text,label\n{'x' * 200_000},1\n")).columns["text"][0]) == 200_000
    assert csv.field_size_limit() == before
