"""YAML from strangers: no code, no explosion, no key twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rosewood.config import strict_yaml
from rosewood.config.strict_yaml import parse_overrides
from rosewood.data.tasks import load_task
from rosewood.errors import DataError, RecipeError
from rosewood.recipe import load_recipe

TAGS = [
    "!!python/object/apply:os.mkdir ['{marker}']",
    "!!python/object/new:os.mkdir ['{marker}']",
    "!!python/name:os.mkdir",
    "!!python/module:os",
    "!!python/object:rosewood.recipe.Recipe {{}}",
    "!unknown x",
]
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
BAD = {
    LAUGHS: "more than 50,000 values, aliases written out",
    "a: &a [*a]": "nested more than 50 levels deep",
    "[" * 5000: "nested more than 50 levels deep",
    "{a: " * 100 + "}" * 100: "nested more than 50 levels deep",
    "a: 1\nb: 2\na: 3": "line 1: the key 'a' is there more than once",
    "- " * 5000: "nested more than 50 levels deep",
    "a: 2024-99-99": "holds a value that cannot be read",
    "a: " + "9" * 5000: "holds a value that cannot be read",
    "? [1, 2]\n: 3": "",
    "a: \x07": "",
}


@pytest.mark.parametrize(("text", "expected"), BAD.items(), ids=[text[:12] for text in BAD])
def test_bad_texts(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(yaml.YAMLError) as error:
        strict_yaml.parse(text)
    assert expected in str(error.value)
    assert len(str(error.value)) < 1000
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError, match=r"bad\.yaml cannot be read as YAML"):
        load_recipe(file)
    with pytest.raises(DataError, match=r"bad\.yaml cannot be read as YAML"):
        load_task(file)
    with pytest.raises(RecipeError, match="--set selection"):
        parse_overrides([f"selection={text}"])


@pytest.mark.parametrize("tag", TAGS)
def test_tags_that_would_build_objects(tag: str, tmp_path: Path) -> None:
    marker = tmp_path / "CODE-HAS-RUN"
    text = f"name: {tag.format(marker=marker)}"
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError, match="could not determine a constructor for the tag"):
        load_recipe(file)
    with pytest.raises(DataError, match="could not determine a constructor for the tag"):
        load_task(file)
    with pytest.raises(RecipeError, match="could not determine a constructor for the tag"):
        parse_overrides([f"selection={tag.format(marker=marker)}"])
    assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &x {b: 1}\nc: *x\nd: {<<: *x, b: 2}", {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 2}}),
        ("", None),
        ("a: [1, 2.5, no, ~, '3']", {"a": [1, 2.5, False, None, "3"]}),
    ],
)
def test_ordinary_texts(text: str, expected: Any) -> None:
    assert strict_yaml.parse(text) == expected


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: \xc3\xbc\n")
    assert strict_yaml.read(file, "a task", DataError) == {"a": "ü"}
    file.write_bytes(b"a: \xff\n")
    with pytest.raises(DataError, match=r"x.yaml cannot be read as YAML: expected UTF-8 text, got 0xff at 3"):
        strict_yaml.read(file, "a task", DataError)
    file.write_bytes(b"# \xc3\xbc\n" * 100_000)
    with pytest.raises(DataError, match="longer than 256,000"):
        strict_yaml.read(file, "a task", DataError)
    with pytest.raises(DataError, match="directory"):
        strict_yaml.read(tmp_path, "a task", DataError)
    with pytest.raises(DataError, match=r"none: no such file, expected the YAML file of a task"):
        strict_yaml.read(tmp_path / "none", "a task", DataError)
