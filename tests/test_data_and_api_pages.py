"""docs/data.md and docs/api.md leave nothing out."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

import rosewood
from rosewood import load_suite, load_task
from rosewood.data.suites import suite_names
from rosewood.data.tasks import task_names
from rosewood.words.lexicon import COUNTER_FITTED, FILES

DOCS = Path(__file__).parent.parent / "docs"
DATA = (DOCS / "data.md").read_text(encoding="utf-8")
API = (DOCS / "api.md").read_text(encoding="utf-8")


def files() -> set[str]:
    splits = [split for name in task_names() for split in load_task(name).splits.values()]
    sets = [each for name in suite_names() for each in load_suite(name).sets.values()]
    return {each.folder.file for each in [*splits, *sets] if each.folder} | {FILES, COUNTER_FITTED}


@pytest.mark.parametrize("file", sorted(files()))
def test_every_file_of_the_data_folder_is_described(file: str) -> None:
    named = set(DATA.replace("**", "").split("`")[1::2])
    path = PurePosixPath(file)
    assert f"{path.parent}/" in DATA
    assert any(each == file or fnmatch(PurePosixPath(each).name, path.name) for each in named)


@pytest.mark.parametrize("name", rosewood.__all__)
def test_every_exported_name_is_explained(name: str) -> None:
    assert f"| `{name}` | " in API
