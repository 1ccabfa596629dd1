"""The map of the code in CONTRIBUTING.md names files that exist."""

import re
from pathlib import Path

import rosewood
from test_layers import HEIGHT

ROOT = Path(rosewood.__file__).parent
PAGE = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_file_of_the_map_exists() -> None:
    _, _, after = PAGE.partition("## What happens in a command")
    rows = [line for line in after.partition("\n## ")[0].splitlines() if "→" in line]
    assert len(rows) >= 6
    for row in rows:
        files = re.findall(r"`([\w/]+\.py)`", row)
        assert 2 <= len(files) <= 10, f"at most ten files in order: {row[:40]}"
        assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_folder_is_explained() -> None:
    _, _, after = PAGE.partition("## How the code is laid out")
    explained = set(re.findall(r"`(\w+)/`", after.partition("\n## ")[0]))
    assert {folder.name for folder in ROOT.iterdir() if (folder / "__init__.py").is_file()} <= explained


def test_folders_are_listed_from_the_top_down() -> None:
    """In the order that the test of layers holds: a folder may import those in the rows below it."""
    _, _, after = PAGE.partition("## How the code is laid out")
    rows = [line.split("|")[1] for line in after.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    parts = [re.findall(r"`(\w+)(?:/|\.py)`", row) for row in rows]
    heights = [max(HEIGHT[part] for part in row) for row in parts]
    assert len(heights) > 10
    assert heights == sorted(heights, reverse=True), dict(zip(map(tuple, parts), heights, strict=True))
