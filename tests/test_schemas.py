"""The JSON Schemas in schemas/ are current, accept what the commands accept, and refuse what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from rosewood.cli.explain import FileKind, schema_text
from rosewood.config import strict_yaml
from rosewood.config.settings import AttackSettings, SharedRunSettings
from rosewood.data.suites import Suite, SuiteSet
from rosewood.data.tasks import Carve, EmbeddedSource, FolderSource, HubSource, NoiseRule, Split, Task
from rosewood.errors import RosewoodError
from rosewood.experiments.experiment import AttackChoice, EvaluationChoice, Experiment, RecipeChoice, TaskChoice

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
FILES = {
    "task": [*(ROOT / "src/rosewood/data/tasks").glob("*.yaml")],
    "suite": [*(ROOT / "src/rosewood/data/suites").glob("*.yaml")],
    "experiment": [*(ROOT / "experiments").glob("*.yaml")],
}
MODELS = [Task, Split, FolderSource, HubSource, EmbeddedSource, Carve, NoiseRule, Suite, SuiteSet]
HELPED = {*SharedRunSettings.model_fields, *AttackSettings.model_fields}  # `--help` explains them
MODELS += [Experiment, RecipeChoice, TaskChoice, AttackChoice, EvaluationChoice]


def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((ROOT / "schemas" / f"{kind}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("kind", get_args(FileKind))
def test_the_files_are_current(kind: FileKind) -> None:
    """Make them again with `make schemas`."""
    assert (ROOT / "schemas" / f"{kind}.json").read_text(encoding="utf-8") == schema_text(kind)


@pytest.mark.parametrize("path", [pytest.param(p, id=p.name) for paths in FILES.values() for p in paths])
def test_every_shipped_file_fits(path: Path) -> None:
    kind = next(kind for kind, paths in FILES.items() if path in paths)
    raw: Any = strict_yaml.read(path, "one", RosewoodError)
    assert [error.message for error in validator(kind).iter_errors(raw)] == []


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("task", {"name": "a", "title": "A", "text": ["t"], "labels": ["x"], "splits": {"test": {}}}),
        ("task", {"name": "a", "title": "A", "text": ["t"], "labels": ["x", "y"], "splits": {"test": {"fold": {}}}}),
        ("suite", {"name": "a", "title": "A", "sets": {"a": {"role": "pure", "title": "A"}}}),
        ("experiment", {"recipes": ["vanilla"], "tasks": [{"train_size": 10}]}),
        ("experiment", {"recipes": ["vanilla"], "tasks": ["sst2"], "seeds": [-1]}),
    ],
)
def test_mistakes_do_not_fit(kind: str, raw: dict[str, Any]) -> None:
    assert not validator(kind).is_valid(raw)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_page_explains_every_entry(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        if name != "memory" and name not in HELPED:  # which no file can have
            assert f"`{field.alias or name}`" in PAGE, f"{model.__name__}.{name}"


@pytest.mark.parametrize(("kind", "text"), re.findall(r"```yaml\n# a (\w+)\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_fit(kind: str, text: str) -> None:
    raw = strict_yaml.parse(text)
    assert [error.message for error in validator(kind).iter_errors(raw)] == []
    {"task": Task, "suite": Suite, "experiment": Experiment}[kind].model_validate({"name": "a"} | raw)
