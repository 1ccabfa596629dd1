"""An experiment is one YAML file: which recipes, tasks, models and seeds, and how each is trained and measured."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from rosewood.attacks.runner.protocols import load_protocol
from rosewood.config import strict_yaml
from rosewood.config.settings import AttackSettings, Lora, SharedRunSettings, problem_of
from rosewood.config.strict_yaml import StrictModel
from rosewood.errors import ExperimentError, closest

Positive = Annotated[int, Field(gt=0)]


class _Named(NamedTuple):
    """A name alone means a mapping with that name."""

    field: str

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        given = BeforeValidator(lambda raw: {self.field: raw} if isinstance(raw, str) else raw, str | kind)
        return given.__get_pydantic_core_schema__(kind, handler)


class WrapChoice(StrictModel):
    """A defence around the trained model, as `rosewood wrap` puts it there."""

    defence: str = Field(alias="with")
    """One of `rosewood list defences`, such as smoothed:mask, or a chain: corrected+encoded."""
    changes: dict[str, Any] = Field(default={}, alias="set")
    lexicon: str | None = None


class RecipeChoice(StrictModel):
    """A recipe by name, NAME:VARIANT or file, with settings changed as by `--set`, and what the tables call it."""

    recipe: str
    label: str = ""
    changes: dict[str, Any] = Field(default={}, alias="set")
    training: dict[str, Any] = {}
    """Training arguments of this recipe alone; they win over those of the task and of the experiment."""
    wrap: Annotated[WrapChoice, _Named("with")] | None = None
    """A defence around the trained model: it is then the whole that is evaluated and attacked."""

    @property
    def name(self) -> str:
        """The label, which is the recipe's own name, with the defence around it, unless one is given."""
        return self.label or (self.recipe if self.wrap is None else f"{self.wrap.defence} around {self.recipe}")


class EvaluationChoice(StrictModel):
    """What a trained model is measured on: a suite, or the evaluation sets of its task (or some of them)."""

    suite: str | None = None
    sets: list[str] | None = None
    size: Annotated[int, Field(ge=2)] | None = None
    typo_rate: Annotated[float, Field(ge=0, le=1)] | None = 0.3
    """Typos in this share of the words; null: the noise that the task names."""
    batch_size: Positive = 64
    # Left out where it is empty, so that cells that do not know it keep their fingerprint.
    at_steps: list[Positive] = Field(default=[], exclude_if=lambda steps: not steps)
    """Optimiser steps after which the run is measured too, beside its end."""
    inconsistent_until: list[Positive] = Field(default=[], exclude_if=lambda steps: not steps)
    """How often two dropout passes of a step disagree is recorded, and shown for so many first steps."""


class AttackChoice(StrictModel, AttackSettings):
    """An attack on every trained model, on the same examples of the task's test (or else validation) split."""

    attack: str = ""
    """One of `rosewood list attacks`; by default the first of the protocol."""
    label: str = ""
    examples: Positive = 100
    changes: dict[str, Any] = Field(default={}, alias="set")
    lexicon: str | None = None
    protocol: str | None = None
    """One of `rosewood list protocols`, or a YAML file: how a paper attacks. What is said beside it is a deviation."""
    deviations: list[str] = []
    """Where the attack departs from its protocol; found by itself."""
    masked_lm: str | None = None
    """A masked language model for `bert-attack` and `bae`."""
    causal_lm: str | None = None
    """A causal language model for the constraint `fluency`."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without settings at their default, but for two, so that a new one leaves the fingerprints of cells alone."""
        left_out = AttackSettings.model_fields.keys() - self.changed_settings().keys() - {"max_queries", "batch_size"}
        left_out |= {name for name in ("protocol", "deviations", "masked_lm", "causal_lm") if not getattr(self, name)}
        return {name: value for name, value in dump(self).items() if name not in left_out}

    def changed_settings(self) -> dict[str, Any]:
        """The settings of the search that are not at their default."""
        return self.only(AttackSettings).changed()

    @property
    def name(self) -> str:
        """The label, which is the attack's own name unless one is given."""
        names = [self.attack, *([f"({self.protocol})"] if self.attack and self.protocol else [self.protocol or ""])]
        return self.label or " ".join(filter(None, names))

    def on(self, task: str | None) -> AttackChoice:
        """The attack on a task, with all that its protocol says."""
        if self.protocol is None:
            return self
        protocol = load_protocol(self.protocol)
        names = self.model_fields_set - {"label", "protocol", "deviations", "causal_lm"}
        given = {AttackChoice.model_fields[name].alias or name: getattr(self, name) for name in names}
        found = protocol.resolve(given, task)
        shared = {"label": self.name, "protocol": protocol.name, "causal_lm": self.causal_lm}
        return AttackChoice.model_validate({**found.values, **shared, "deviations": found.deviations})

    @model_validator(mode="after")
    def _says_how(self) -> AttackChoice:
        if not self.attack and self.protocol is None:
            raise ValueError("an attack needs its name, `attack`, or a `protocol`")
        return self


class RunChoice(StrictModel, SharedRunSettings):
    """Settings of a run; those of a task win over those of the experiment. An empty one (null) is not given."""

    training: dict[str, Any] = {}
    evaluation: EvaluationChoice | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_empty_settings(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        return {
            name: each for name, each in raw.items() if each is not None or name not in SharedRunSettings.model_fields
        }

    def run_settings(self) -> dict[str, Any]:
        """The given settings of a run, without `lora`."""
        return {name: value for name, value in self.given(SharedRunSettings).items() if name != "lora"}


class TaskChoice(RunChoice):
    """A task by name or file, with settings of its own; `recipes` and `attacks` replace what their labels mean."""

    task: str
    recipes: dict[str, Annotated[RecipeChoice, _Named("recipe")]] = {}
    attacks: dict[str, Annotated[AttackChoice, _Named("attack")]] = {}


class Experiment(RunChoice):
    """Everything that an experiment file says."""

    # Without a name it has that of its file.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema["required"].remove("name"))

    name: str = Field(min_length=1)
    title: str = ""
    recipes: list[Annotated[RecipeChoice, _Named("recipe")]] = Field(min_length=1)
    tasks: list[Annotated[TaskChoice, _Named("task")]] = Field(min_length=1)
    models: list[str] = Field(default=["minilm"], min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default=[0], min_length=1)
    attacks: list[Annotated[AttackChoice, _Named("attack")]] = []
    baseline: str | None = None
    """The label of the recipe that the others are compared with."""
    published: dict[str, dict[str, dict[str, float | None]]] = {}
    """Label -> task (or suite) -> figure -> what a paper reports, in %; null where it is not known."""
    notes: list[str] = []

    def with_recipes(self, labels: Collection[str]) -> Experiment:
        """The experiment with the recipes of these labels alone; without labels the whole."""
        known = [choice.name for choice in self.recipes]
        if unknown := [label for label in labels if label not in known]:
            raise ExperimentError(f"experiment {self.name} has no recipe {unknown[0]!r}: {closest(unknown[0], known)}")
        if not labels:
            return self
        tasks = [
            task.model_copy(update={"recipes": {name: each for name, each in task.recipes.items() if name in labels}})
            for task in self.tasks
        ]
        changed: dict[str, Any] = {
            "recipes": [choice for choice in self.recipes if choice.name in labels],
            "tasks": tasks,
            "baseline": self.baseline if self.baseline in labels else None,
            "published": {label: figures for label, figures in self.published.items() if label in labels},
        }
        return self.model_copy(update=changed)


def read_experiment(path: str | Path) -> Experiment:
    """Read an experiment file; an error lists all that is wrong with its form."""
    if not isinstance(path, str | Path):
        raise ExperimentError(f"expected an Experiment or the path of its YAML file, got {type(path).__name__}")
    path = Path(path)
    raw = strict_yaml.read(path, "an experiment", ExperimentError)
    return build_experiment({"name": path.stem, **raw} if isinstance(raw, dict) else raw, str(path))


def build_experiment(raw: Any, where: str) -> Experiment:
    """Check an experiment, from a file or made in Python; an error lists all that is wrong with its form."""
    try:
        return Experiment.model_validate(raw)
    except ValidationError as error:
        raise problems_of(where, [problem_of(found, _KINDS) for found in error.errors()]) from None


def problems_of(where: str, problems: list[str]) -> ExperimentError:
    """One error for everything that is wrong with an experiment."""
    unique = list(dict.fromkeys(problems))
    if len(unique) == 1:
        return ExperimentError(f"{where}: {unique[0]}")
    return ExperimentError("\n".join([f"{where} has {len(unique)} problems:", *(f"- {each}" for each in unique)]))


_KINDS: dict[str, type[BaseModel]] = {
    "": Experiment,
    "recipes": RecipeChoice,
    "wrap": WrapChoice,
    "tasks": TaskChoice,
    "attacks": AttackChoice,
    "evaluation": EvaluationChoice,
    "lora": Lora,
}
