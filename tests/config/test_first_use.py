"""Public names that are imported on first use."""

import importlib
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import rosewood
from rosewood import RosewoodError
from rosewood.config.registry import FAMILIES, component, component_names

PACKAGES = [
    "rosewood",
    "rosewood.experiments",
    "rosewood.lab",
    "rosewood.models",
    "rosewood.report",
    "rosewood.report.figures",
    "rosewood.words",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_found_at_its_home(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) == set(module._HOMES)
    for name in module.__all__:
        found = getattr(module, name)
        assert found is getattr(importlib.import_module(module._HOMES[name]), name)
        assert found.__module__.startswith("rosewood.")


@pytest.mark.parametrize("package", PACKAGES)
def test_dir_lists_the_public_names(package: str) -> None:
    module = importlib.import_module(package)
    names = [name for name in dir(module) if not name.startswith("__")]
    assert names == sorted(module.__all__)


def test_the_version_and_the_types_are_those_of_the_package() -> None:
    assert rosewood.__version__ == version("rosewood")
    assert "__version__" in dir(rosewood)
    assert (Path(rosewood.__file__).parent / "py.typed").is_file()


def test_an_unknown_name_is_an_ordinary_mistake() -> None:
    with pytest.raises(ImportError, match="cannot import name 'RobustTrainr'"):
        from rosewood import RobustTrainr  # noqa: F401
    with pytest.raises(AttributeError, match=r"module 'rosewood\.report\.figures' has no attribute 'landscape_of'"):
        _ = importlib.import_module("rosewood.report.figures").landscape_of


@pytest.mark.parametrize("family", FAMILIES)
def test_component_classes_are_imported_from_their_package(family: str) -> None:
    package = importlib.import_module(FAMILIES[family])
    names = {component(family, name).__name__ for name in component_names(family)}
    assert names <= set(dir(package))
    for name in names:
        assert getattr(package, name).__name__ == name
    for wrong in ("NoSuchThing", name.lower() + "x", f"{name}s"):
        with pytest.raises(AttributeError, match=f"has no attribute '{wrong}'"):
            getattr(package, wrong)


def test_the_components_of_the_page_are_imported_as_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "rosewood.selections" in code]
    exec(code, {})


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "load_task": (lambda: rosewood.load_task(5), "expected the name of a task or the path of its YAML file, got int"),
    "load_suite": (lambda: rosewood.load_suite(None), "expected the name of a suite .*, got NoneType"),
    "load_recipe": (lambda: rosewood.load_recipe(None), "expected a recipe's name, .*, got NoneType"),
    "compare": (lambda: rosewood.compare(5), "expected an Experiment or the path of its YAML file, got int"),
    "tune": (lambda: rosewood.tune("learning_rate"), "search: expected a mapping .*, got 'learning_rate'"),
    "with_substitutes": (
        lambda: rosewood.with_substitutes(["good"], None, None, ["text"]),
        r"expected a datasets.Dataset of tokenized texts, got list",
    ),
}


@pytest.mark.parametrize(("call", "words"), WRONG.values(), ids=WRONG.keys())
def test_values_of_the_wrong_type_are_refused_with_a_sentence(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(RosewoodError, match=words):
        call()
