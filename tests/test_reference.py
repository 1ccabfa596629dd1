"""The reference: public functions say what they take, give and refuse, and their examples run."""

import doctest
import inspect
from types import ModuleType

import pytest

import rosewood
from rosewood.config.registry import import_module

PUBLIC = [name for name in rosewood.__all__ if not name.endswith("Error")]
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(rosewood, name))]
MODULES = sorted({getattr(rosewood, name).__module__ for name in PUBLIC} | {"rosewood.optim"})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes_gives_and_refuses(name: str) -> None:
    function = getattr(rosewood, name)
    page = inspect.getdoc(function) or ""
    for part in ("Args:", "Returns:", "Raises:"):
        assert f"\n{part}" in page, f"rosewood.{name} has no {part}"
    described = page.partition("\nArgs:")[2].partition("\nReturns:")[0]
    for argument in inspect.signature(function).parameters.values():
        if argument.kind is not inspect.Parameter.VAR_KEYWORD:
            assert f"{argument.name}:" in described, f"rosewood.{name} does not describe {argument.name}"


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name: str) -> None:
    module: ModuleType = import_module(name)
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert not found.failed


def test_there_are_examples() -> None:
    examples = [each for name in MODULES for each in doctest.DocTestFinder().find(import_module(name)) if each.examples]
    assert len(examples) >= 6
