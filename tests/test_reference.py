"""The reference: public functions say what they take, give and refuse, and their examples run."""

import doctest
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rosewood
from reported_runs import write_run
from rosewood.config.registry import import_module
from tiny_text import tiny_classifier, tiny_tokenizer

PACKAGES = ("attacks", "selections", "objectives", "perturbations", "anchors", "defences", "models", "experiments")
PACKAGES += ("report", "report.figures", "lab", "words")
PUBLIC = [name for name in rosewood.__all__ if not name.endswith("Error")]


def everything_public() -> dict[str, Any]:
    """What `import rosewood` offers, and what its packages do, by full name."""
    found = {f"rosewood.{name}": getattr(rosewood, name) for name in rosewood.__all__}
    for place in PACKAGES:
        package = import_module(f"rosewood.{place}")
        names = [name for name in getattr(package, "__all__", dir(package)) if not name.startswith("_")]
        found |= {f"rosewood.{place}.{name}": getattr(package, name) for name in names}
    return found


EVERYTHING = everything_public()
FUNCTIONS = [name for name, found in EVERYTHING.items() if inspect.isfunction(found)]
CLASSES = [name for name, found in EVERYTHING.items() if inspect.isclass(found)]
DOCUMENTED = [*FUNCTIONS, *(f"rosewood.{name}" for name in PUBLIC)]
MODULES = sorted({EVERYTHING[name].__module__ for name in DOCUMENTED} | {"rosewood.optim"})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_says_what_it_takes_gives_and_refuses(name: str) -> None:
    function = EVERYTHING[name]
    page, signature = inspect.getdoc(function) or "", inspect.signature(function)
    gives = [] if signature.return_annotation in (None, "None") else ["Returns:"]
    refuses = ["Raises:"] if "raise " in inspect.getsource(function) or name.count(".") == 1 else []
    for part in ("Args:", *gives, *refuses):
        assert f"\n{part}" in page, f"{name} has no {part}"
    described = page.partition("\nArgs:")[2].partition("\nReturns:")[0]
    for argument in signature.parameters.values():
        if argument.kind is not inspect.Parameter.VAR_KEYWORD:
            assert f"{argument.name}:" in described, f"{name} does not describe {argument.name}"


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_says_what_it_is(name: str) -> None:
    own = vars(EVERYTHING[name]).get("__doc__") or ""
    made_by_dataclass = own.startswith(f"{EVERYTHING[name].__name__}(")
    assert own and not made_by_dataclass, f"{name} has no docstring"


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model and its tokenizer, and the folder of a run, `runs/rose`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/rose").mkdir(parents=True)
    write_run(tmp_path / "runs/rose", "rose-ensemble")
    given = {"model": tiny_classifier(("negative", "positive")).eval(), "tokenizer": tiny_tokenizer()}
    module: ModuleType = import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert not doctest.testmod(module, extraglobs=given, optionflags=flags).failed


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_function_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(EVERYTHING[name]) or ""), f"{name} has no example"
