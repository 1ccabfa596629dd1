"""The reference: public functions say what they take, give and refuse, and their examples run."""

import doctest
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import rosewood
from reported_runs import write_run
from rosewood.config.registry import import_module
from tiny_text import tiny_classifier, tiny_tokenizer

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
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model and its tokenizer, and the folder of a run, `runs/rose`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/rose").mkdir(parents=True)
    write_run(tmp_path / "runs/rose")
    given = {"model": tiny_classifier(("negative", "positive")).eval(), "tokenizer": tiny_tokenizer()}
    module: ModuleType = import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert not doctest.testmod(module, extraglobs=given, optionflags=flags).failed


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(getattr(rosewood, name)) or ""), f"rosewood.{name} has no example"
