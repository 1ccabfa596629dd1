"""rosewood explain and schema: what exactly a recipe computes, and what files may say."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax

from rosewood.cli import app, examples

if TYPE_CHECKING:
    from pydantic import BaseModel

    from rosewood.recipe import Recipe


@app.command()
def explain(
    recipe: str = typer.Argument(help="A recipe of `rosewood list recipes`, NAME:VARIANT, or a YAML file."),
    assignments: list[str] = typer.Option([], "--set", help="Change one setting: selection.keep_quantile=0.7."),
) -> None:
    """Print the resolved recipe: formulas, cost, memory, and where it deviates from paper or official code."""
    from rosewood.cli.stand_ins import stand_ins
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
    return json.dumps(dialect | models[kind].model_json_schema(), indent=2, ensure_ascii=False) + "\n"
