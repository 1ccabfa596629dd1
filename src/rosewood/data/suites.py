"""A suite is one YAML file: the sets that robustness is measured on, and what each of them is measured for."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rosewood.config import strict_yaml
from rosewood.config.registry import files_in
from rosewood.config.strict_yaml import StrictModel
from rosewood.data.tasks import (
    EmbeddedSource,
    FolderSource,
    HubSource,
    NoiseRule,
    Split,
    Task,
    file_of,
    load_task,
    validated,
)
from rosewood.errors import DataError

Role = Literal["reference", "clean", "shift", "adversarial", "anomaly"]
Place = Literal["folder", "hub", "embedded"]
INSIDE, OUTSIDE = "inside", "outside"
_FOLDER = Path(__file__).parent / "suites"


class SuiteSet(StrictModel):
    """One set: up to three sources, or a split of a task, or the reason why nobody can load it.

    Roles: `reference` is training text, from which word frequencies and the features of each class are taken;
    `anomaly` is text that the model was not made for, without labels.
    """

    role: Role
    title: str
    folder: FolderSource | None = None
    hub: HubSource | None = None
    embedded: EmbeddedSource | None = None
    task: str | None = None
    split: str | None = None
    absent: str | None = None
    text: list[str] | None = Field(default=None, min_length=1, max_length=2)
    """Its text columns, where they are not those of the suite."""
    labels: list[str] | None = Field(default=None, min_length=2)
    """Its labels, where they are not those of the suite: each is one of them, or merges several."""
    examples: dict[Place, Annotated[int, Field(gt=0)]] = {}
    """How many rows it has, by where they come from."""
    sample: Annotated[int, Field(gt=0)] | None = None
    """A seeded sample of this size is enough."""
    max_length: Annotated[int, Field(gt=0)] | None = None
    """Tokens of a text (or pair) that the model sees, where they are not those of the suite."""
    groups: list[str] = []
    """Columns whose values are groups, such as the method that made a row."""
    counted: bool = True
    """Whether it belongs to the published suite, and so to its averages."""
    note: str = ""

    @model_validator(mode="after")
    def _has_one_origin(self) -> "SuiteSet":
        given = [bool(self.folder or self.hub or self.embedded), self.task is not None, self.absent is not None]
        if sum(given) != 1:
            raise ValueError("needs either a source (folder, hub, embedded), or a task, or the reason why it is absent")
        if (self.task is None) != (self.split is None):
            raise ValueError("task and split belong together")
        return self


class SuiteNoise(NoiseRule):
    """Noise on one of the sets."""

    of: str


class Suite(StrictModel):
    """The sets that robustness is measured on, such as those of RoAST or ROSE.

    Example:
        >>> len(load_suite("reviews").sets) > 1
        True
    """

    name: str
    title: str
    text: list[str] = Field(default=[], max_length=2)
    labels: list[str] = []
    merge: dict[str, list[str]] = {}
    """A label of some sets -> the labels of the suite that it means, such as not_entailment."""
    replace: dict[str, str] = {}
    max_length: Annotated[int, Field(gt=0)] = 128
    sets: dict[str, SuiteSet] = Field(min_length=1)
    inside: list[str] = []
    """The sets that anomalies are compared with: the first that is available."""
    noise: SuiteNoise | None = None
    notes: list[str] = []

    @property
    def tasks(self) -> list[str]:
        """The tasks of its sets; a model is measured on those of its own."""
        return list(dict.fromkeys(each.task for each in self.sets.values() if each.task is not None))

    @model_validator(mode="after")
    def _consistent(self) -> "Suite":
        problems = [f"inside names {name!r}, which is not a set" for name in self.inside if name not in self.sets]
        if self.noise and self.noise.of not in self.sets:
            problems.append(f"noise is put on {self.noise.of!r}, which is not a set")
        known = set(self.labels)
        problems += [
            f"merge: {label} means {part!r}, which is not a label"
            for label, parts in self.merge.items()
            for part in parts
            if part not in known
        ]
        for name, each in self.sets.items():
            if each.task is None and name in ("train", "validation", "test"):
                problems.append(f"set {name}: splits of tasks have this name; choose another, such as the data's")
            if each.task is None and each.absent is None and not (each.text or self.text):
                problems.append(f"set {name}: no text columns, neither its own nor the suite's")
            problems += [
                f"set {name}: its label {label!r} is neither one of the suite nor merged from them"
                for label in each.labels or []
                if label not in known and label not in self.merge
            ]
            stood_for = [part for label in each.labels or [] for part in self.merge.get(label, [label])]
            if each.labels and sorted(stood_for) != sorted(self.labels):
                problems.append(f"set {name}: its labels must mean each label of the suite once")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def task_of(self, name: str) -> tuple[Task, str]:
        """A set as a split of a task: what `load_split` takes."""
        each = self.sets[name]
        if each.task is not None and each.split is not None:
            return load_task(each.task), each.split
        sources = {place: getattr(each, place) for place in ("folder", "hub", "embedded")}
        if each.role == "anomaly":
            sources = {place: _unlabelled(source) for place, source in sources.items()}
        task = Task(
            name=self.name,
            title=each.title,
            text=each.text or self.text,
            labels=[INSIDE, OUTSIDE] if each.role == "anomaly" else each.labels or self.labels,
            replace=self.replace,
            splits={name: Split(role="shift", **sources)},
        )
        return task, name


def _unlabelled(source: FolderSource | HubSource | EmbeddedSource | None) -> Any:
    """Whatever the source calls a label has no meaning here."""
    return source and source.model_copy(update={"every_label": OUTSIDE})


def suite_names() -> list[str]:
    """The names of the suites that come with Rosewood, or with packages that extend it."""
    return sorted(files_in(_FOLDER))


def load_suite(name: str | Path) -> Suite:
    """Load a suite by its name or by the path of its YAML file.

    Relative paths in a file of your own are relative to it; where there is no such file, to the data folder.

    Args:
        name: the name of a shipped suite (`rosewood list suites`), or a path that ends in .yaml.

    Returns:
        The suite: the sets that robustness is measured on. Nothing is loaded yet.

    Raises:
        DataError: there is no such suite, or its file says something else than a suite does.

    Example:
        >>> load_suite("reviews").name
        'reviews'
    """
    path = file_of(name, "suite", _FOLDER)
    suite = validated(Suite, strict_yaml.read(path, "a suite", DataError), "suite", str(path))
    if path.parent == _FOLDER:
        return suite
    sets = {
        key: each.model_copy(update={"folder": each.folder and each.folder.beside(path.parent)})
        for key, each in suite.sets.items()
    }
    return suite.model_copy(update={"sets": sets})
