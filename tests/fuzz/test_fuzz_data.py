"""Data files and tasks that nobody would write: refused in our words, or usable."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from junk import SCALARS, TEXTS, VALUES, mutated, only_our_errors, scarred
from rosewood.data.files import read_file
from rosewood.data.loading import load_split, source_identity, task_from_files
from rosewood.data.tasks import Task, build_task, load_task, task_names

ENDINGS = ("csv", "tsv", "json", "jsonl", "parquet")
ROWS: list[dict[str, Any]] = [{"text": f"film {i} ünd “so”", "label": i % 2, "source": [i, None]} for i in range(12)]
TASKS = [
    yaml.safe_load(yaml.safe_dump(load_task(name).model_dump(mode="json", by_alias=True))) for name in task_names()
]


def parquet(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def good(ending: str) -> bytes:
    if ending == "parquet":
        return parquet({name: [row[name] for row in ROWS] for name in ROWS[0]})
    if ending == "json":
        return json.dumps(ROWS).encode()
    if ending == "jsonl":
        return "\n".join(map(json.dumps, ROWS)).encode()
    comma = {"csv": ",", "tsv": "\t"}[ending]
    return "\n".join(
        [comma.join(ROWS[0]), *(comma.join([row["text"], str(row["label"]), "x"]) for row in ROWS)]
    ).encode()


GOOD = {ending: good(ending) for ending in ENDINGS}
JUNK = st.one_of(
    st.binary(max_size=60),
    TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [
            b"\xef\xbb\xbf" + GOOD["csv"],
            GOOD["csv"].decode().encode("utf-16"),
            GOOD["csv"].replace(b"\n", b"\r"),
            gzip.compress(GOOD["csv"]),
            gzip.compress(GOOD["csv"])[:20],
            b"[" * 20_000,
            b'{"text":' * 20_000,
            b'[{"text": "a", "label": ' + b"9" * 5000 + b"}]",
            b'{"text": "a", "label": 1' + b"0" * 400 + b"}",
            b"text,label\n" + b'"' * 999,
            b"PAR1PAR1",
            b"\x00" * 50,
        ]
    ),
)
CELLS = st.one_of(st.none(), SCALARS, st.sampled_from(["good", "bad", 0, 1, "0", "1.5", True]))
TABLES = st.lists(
    st.one_of(VALUES, st.fixed_dictionaries({"text": st.one_of(TEXTS, CELLS), "label": CELLS}), mutated(ROWS[0])),
    max_size=8,
)


def load(file: Path, **columns: Any) -> None:
    with only_our_errors():
        read_file(file)
    with only_our_errors():
        task_from_files(file, file, test_file=file, text_columns=columns.pop("text_columns", ["text"]), **columns)


def test_the_same_files_undamaged(tmp_path: Path) -> None:
    for ending, data in GOOD.items():
        file = tmp_path / f"rows.{ending}"
        file.write_bytes(data)
        assert len(read_file(file)) == len(ROWS)
        assert task_from_files(file, file, test_file=file, text_columns=["text"]).labels == ["0", "1"]


def test_damaged_files(profile: settings, tmp_path: Path) -> None:
    @profile
    @given(st.sampled_from(ENDINGS), st.data())
    def check(ending: str, data: st.DataObject) -> None:
        file = tmp_path / f"rows.{ending}"
        file.write_bytes(data.draw(st.one_of(scarred(GOOD[ending]), JUNK)))
        load(file)

    check()


def test_rows_of_any_kind(profile: settings, tmp_path: Path) -> None:
    @profile
    @given(TABLES, st.booleans())
    def check(rows: list[Any], one_a_line: bool) -> None:
        file = tmp_path / ("rows.jsonl" if one_a_line else "rows.json")
        file.write_text("\n".join(map(json.dumps, rows)) if one_a_line else json.dumps(rows))
        load(file)

    check()


def test_lines_of_any_kind(profile: settings, tmp_path: Path) -> None:
    lines = st.lists(
        st.lists(st.one_of(TEXTS, st.sampled_from(["text", "label", "0", "1", '"'])), max_size=4), max_size=8
    )

    @profile
    @given(lines, st.booleans(), st.booleans())
    def check(body: list[list[str]], tabs: bool, headed: bool) -> None:
        file, sign = tmp_path / f"rows.{'tsv' if tabs else 'csv'}", "\t" if tabs else ","
        text = "\n".join(sign.join(line) for line in ([["text", "label"]] if headed else []) + body)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        load(file)

    check()


def test_parquet_of_any_type(profile: settings, tmp_path: Path) -> None:
    types = st.sampled_from(
        [
            *(
                pa.string(),
                pa.binary(),
                pa.int64(),
                pa.float64(),
                pa.bool_(),
                pa.null(),
                pa.date32(),
                pa.timestamp("ns"),
            ),
            *(pa.timestamp("s"), pa.duration("ns"), pa.decimal128(20, 2), pa.list_(pa.string()), pa.large_string()),
            *(pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8()), pa.dictionary(pa.int8(), pa.string())),
            *(pa.time64("ns"), pa.float16(), pa.uint64(), pa.string_view()),
        ]
    )
    raw = st.binary(min_size=16, max_size=16)

    @profile
    @given(types, types, raw, st.integers(1, 4))
    def check(text: pa.DataType, label: pa.DataType, noise: bytes, rows: int) -> None:
        file = tmp_path / "rows.parquet"
        try:
            file.write_bytes(parquet({"text": array(text, noise, rows), "label": array(label, noise, rows)}))
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            return  # no such file can be written
        load(file)

    check()


def array(kind: pa.DataType, noise: bytes, rows: int) -> pa.Array:
    """Values of any type; numbers and times are whatever the bytes happen to mean."""
    width = getattr(kind, "bit_width", 0) if pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) else 0
    if width:
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(noise * rows * 2)])
    if kind == pa.string():  # also those that are no UTF-8
        return pa.array([noise[i:] for i in range(rows)], pa.binary()).view(pa.string())
    return pa.nulls(rows, kind)


def test_tasks(profile: settings, tmp_path: Path) -> None:
    for ending, data in GOOD.items():
        (tmp_path / f"rows.{ending}").write_bytes(data)
    own = {
        "name": "own",
        "title": "Own",
        "text": ["text"],
        "labels": ["bad", "good"],
        "splits": {
            "train": {"folder": {"file": "rows.csv", "label_values": {0: "bad", 1: "good"}}},
            "validation": {"carve": {"from": "train", "share": 0.2}},
            "test": {"folder": {"file": "rows.json", "label_values": {0: "bad", 1: "good"}, "drop_labels": []}},
        },
        "replace": {"film": "movie"},
    }
    file = tmp_path / "made-up.yaml"

    @profile
    @given(st.one_of(mutated(own), st.sampled_from(TASKS).flatmap(mutated)))
    def check(raw: Any) -> None:
        with only_our_errors():
            build_task(raw, "made up")
        file.write_text(yaml.safe_dump(raw, allow_unicode=True), encoding="utf-8")
        with only_our_errors():
            use(load_task(file), tmp_path)

    check()


def use(task: Task, folder: Path) -> None:
    for name in task.splits:
        split = task.split(name)
        source = task.split(split.carve.source) if split.carve else split
        if source.folder:  # the others would ask the Hub, or read all reviews
            with only_our_errors():
                if source_identity(task, name, folder) != "absent":
                    load_split(task, name, folder, size=5)


def test_task_files(profile: settings, tmp_path: Path) -> None:
    file = tmp_path / "made-up.yaml"

    @profile
    @given(st.one_of(st.sampled_from(TASKS).flatmap(lambda raw: scarred(yaml.safe_dump(raw).encode())), JUNK))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        with only_our_errors():
            load_task(file)

    check()


def test_names_of_files_and_columns(profile: settings, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "rows.csv").write_bytes(GOOD["csv"])
    names = st.one_of(
        TEXTS, st.sampled_from(["rows.csv", "folder.csv", ".", "rows.pkl", "rows.csv/x.csv", "x" * 5000 + ".csv"])
    )
    columns = st.one_of(TEXTS, st.sampled_from(["text", "label", "source"]))

    @profile
    @given(names, names, st.lists(columns, max_size=3), columns)
    def check(train: str, test: str, texts: list[str], label: str) -> None:
        with only_our_errors():
            task_from_files(train, test_file=test, text_columns=texts, label_column=label)
        with only_our_errors():
            load_task(train)

    check()
