"""rosewood schema: what a task, suite or experiment file may say, for editors."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from rosewood.cli import app

if TYPE_CHECKING:
    from pydantic import BaseModel

EXAMPLES = """
[bold]Example[/]

  rosewood schema task > task.schema.json, and as the first line of a task file:

  # yaml-language-server: $schema=task.schema.json
"""


class FileKind(StrEnum):
    """The files that a user may write."""

    task = "task"
    suite = "suite"
    experiment = "experiment"


@app.command(epilog=EXAMPLES)
def schema(kind: FileKind = typer.Argument(help="Which kind of file.")) -> None:
    """Print the JSON Schema of a kind of file, with which editors check and complete such files."""
    print(schema_text(kind.value), end="")


def schema_text(kind: str) -> str:
    """The JSON Schema of a kind of file, as `schemas/` has it."""
    from rosewood.data.suites import Suite
    from rosewood.data.tasks import Task
    from rosewood.experiments.experiment import Experiment

    models: dict[str, type[BaseModel]] = {"task": Task, "suite": Suite, "experiment": Experiment}
    dialect: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(dialect | models[kind].model_json_schema(), indent=2, ensure_ascii=False) + "\n"
