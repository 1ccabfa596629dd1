"""What a component says of itself, without torch: importing that takes longer than reading the answer.

While components are only described, empty objects take the place of torch and of other libraries that compute.
Components are then imported, built and asked, but cannot compute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from rosewood.cli import app, examples
from rosewood.config.registry import extensions
from rosewood.errors import RosewoodError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rosewood.recipe import Recipe

LIBRARIES = ("torch", "transformers", "datasets", "accelerate", "peft", "scipy", "sklearn")


class StandIn:
    """Takes the place of a class or a function that is only named, inherited from, or used as a decorator."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self  # @torch.no_grad() leaves a function alone

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __getitem__ = __or__


class _Module(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # a package, so that it may have modules below it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Finder(MetaPathFinder, Loader):
    """Finds the libraries and everything below them."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.partition(".")[0] in LIBRARIES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Import what describes recipes without the libraries; where these are imported already, they are used."""
    if any(name in sys.modules for name in LIBRARIES):
        yield
        return
    finder, before = _Finder(), set(sys.modules)
    sys.meta_path.insert(0, finder)
    outside = {name.partition(".")[0] for name in extensions()}
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("rosewood", *LIBRARIES, *outside):
                _forget(name)


def _forget(name: str) -> None:
    """Nobody must find a component that cannot compute, neither as a module nor in the package it belongs to."""
    del sys.modules[name]
    package, _, own = name.rpartition(".")
    vars(sys.modules.get(package, ModuleType(package))).pop(own, None)


def check_recipe(name: str, overrides: Mapping[str, Any]) -> None:
    """Refuse a recipe that is not there, or that has wrong settings, before the libraries are imported.

    A component from elsewhere may need them to be built. It is then checked when they are there.
    """
    with stand_ins():
        from rosewood.recipe import load_recipe

        try:
            load_recipe(name, overrides, check_training=False)
        except RosewoodError:
            raise
        except Exception:
            return


@app.command()
def explain(
    recipe: str = typer.Argument(help="A recipe of `rosewood list recipes`, NAME:VARIANT, or a YAML file."),
    assignments: list[str] = typer.Option([], "--set", help="Change one setting: selection.keep_quantile=0.7."),
) -> None:
    """Print the resolved recipe: formulas, cost, memory, and where it deviates from paper or official code."""
    from rosewood.cli.explain import stand_ins
    from rosewood.config.strict_yaml import parse_overrides

    overrides = parse_overrides(assignments)
    # Training arguments of the user's are checked with transformers itself.
    own = recipe.endswith((".yaml", ".yml")) or any(name.startswith("training") for name in overrides)
    with nullcontext() if own else stand_ins():
        from rosewood.recipe import load_recipe

        _print(load_recipe(recipe, overrides, check_training=own), Console(highlight=False, emoji=False))


def _print(resolved: Recipe, console: Console) -> None:
    console.print(f"[bold]{escape(resolved.title)}[/]  {escape(resolved.summary)}")
    if resolved.citation:
        console.print(escape(resolved.citation), style="dim")
    stages = resolved.all_stages()
    for i, stage in enumerate(stages):
        console.print()
        if len(stages) > 1:
            console.print(f"[bold]Stage {i + 1}[/], {stage.share:.0%} of the steps")
        for part in stage.components():
            console.print(f"[bold]{part.name}[/]")
            for line in part.explain(stage) or ["nothing to compute"]:
                console.print(f"  {escape(line)}")
    memory = resolved.memory() or "nothing to speak of"
    console.print(f"\n[bold]Cost[/] {resolved.cost()} a step (plain fine-tuning: F+B); extra memory: {memory}")
    if resolved.deviations:
        console.print("\n[bold]Deviations and choices[/]")
        for deviation in resolved.deviations:
            console.print(f"- {escape(deviation)}")
    if resolved.variants:
        console.print(f"\n[bold]Variants[/] {', '.join(resolved.variants)}")
    console.print("\n[bold]Settings[/]")
    plain = resolved.to_dict()
    shown = {key: plain[key] for key in plain if key not in _SHOWN_ABOVE}
    console.print(
        Syntax(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), "yaml", background_color="default")
    )


_SHOWN_ABOVE = ("name", "title", "summary", "citation", "deviations", "variants", "vanilla_when")


FileKind = Literal["task", "suite", "experiment"]


@app.command(
    epilog=examples(
        "rosewood schema task > task.schema.json, and as the first line of a task file:",
        "# yaml-language-server: $schema=task.schema.json",
    )
)
def schema(kind: FileKind = typer.Argument(help="Which kind of file.")) -> None:
    """Print the JSON Schema of a kind of file, with which editors check and complete such files."""
    print(schema_text(kind), end="")


def schema_text(kind: FileKind) -> str:
    """The JSON Schema of a kind of file, as `schemas/` has it."""
    from rosewood.data.suites import Suite
    from rosewood.data.tasks import Task
    from rosewood.experiments.experiment import Experiment

    models: dict[str, type[BaseModel]] = {"task": Task, "suite": Suite, "experiment": Experiment}
    dialect: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema = models[kind].model_json_schema()
    for each in (schema, *schema["$defs"].values()):
        if "description" in each:
            each["description"] = each["description"].partition("\n\nExample:")[0]  # editors show no examples in Python
    return json.dumps(dialect | schema, indent=2, ensure_ascii=False) + "\n"
