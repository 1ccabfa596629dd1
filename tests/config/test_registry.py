"""A contract for every component, found through the registry: a new file is tested the day it appears."""

import dataclasses
import importlib
import inspect
from pathlib import Path

import pytest

from rosewood.config.registry import FAMILIES, component, component_names
from rosewood.config.strict_yaml import checked_settings
from rosewood.errors import RecipeError
from rosewood.protocol import Component
from rosewood.selections.rose import Rose

EVERY = [(family, name) for family in FAMILIES for name in component_names(family)]
each = pytest.mark.parametrize(("family", "name"), EVERY, ids=lambda part: part)


@each
def test_a_component_is_a_documented_frozen_dataclass(family: str, name: str) -> None:
    cls = component(family, name)
    assert issubclass(cls, Component)
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "the docstring that dataclass makes up is none"
    module = importlib.import_module(cls.__module__)
    assert module.__doc__
    assert module.__doc__.strip().endswith(".")


@each
def test_a_component_is_found_by_its_file(family: str, name: str) -> None:
    cls = component(family, name)
    assert Path(inspect.getfile(cls)).stem == name
    assert inspect.getfile(cls).endswith(f"{FAMILIES[family].rsplit('.', 1)[-1]}/{name}.py")
    own = inspect.getsource(cls)
    assert f"class {cls.__name__}(" in own


@each
def test_settings_are_typed_checked_and_compared(family: str, name: str) -> None:
    cls = component(family, name)
    required = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    assert not required, "a component works out of the box"
    one, two = cls(), cls()
    assert one == two
    assert one.name == name
    assert checked_settings(cls, one.settings()) == (one.settings(), [])
    ((setting, problem),) = checked_settings(cls, {"no_such_setting": 1})[1]
    assert setting == "no_such_setting"
    assert "no such setting" in problem or "has no settings" in problem
    hash(one)


@each
def test_a_wrong_setting_is_refused_when_the_component_is_made(family: str, name: str) -> None:
    cls = component(family, name)
    for field in dataclasses.fields(cls):
        with pytest.raises(RecipeError, match=rf"^{cls.__name__}\.{field.name}: .*, got <object"):
            cls(**{field.name: object()})


def test_every_wrong_setting_is_named() -> None:
    with pytest.raises(RecipeError) as error:
        Rose(order="third", gamma=2)  # type: ignore[arg-type]
    assert str(error.value).splitlines() == [
        "Rose.order: input should be 'first', 'second' or 'ensemble', got 'third'",
        "Rose.gamma: input should be less than 1, got 2",
    ]
    assert Rose(first_quantiles=[0, 0.5]).first_quantiles == (0.0, 0.5)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="input should be 'first'"):
        dataclasses.replace(Rose(), order="third")  # type: ignore[arg-type]


def test_every_family_lists_what_stands_in_its_folder() -> None:
    for family, package in FAMILIES.items():
        folder = Path(importlib.import_module(package).__file__ or "").parent
        files = sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")
        assert component_names(family) == files


def test_unknown_names_answer_with_the_closest() -> None:
    with pytest.raises(RecipeError, match=r"unknown selection 'ros': did you mean rose or roast\?.*Known: .*rose"):
        component("selection", "ros")


def test_a_file_defines_exactly_one_component(monkeypatch: pytest.MonkeyPatch) -> None:
    from rosewood.selections import everything, rose

    monkeypatch.delattr(everything, "Everything")
    with pytest.raises(RecipeError, match=r"must define exactly one component, it defines 0"):
        component("selection", "everything")
    assert component("selection", "rose") is rose.Rose
