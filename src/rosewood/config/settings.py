"""The settings of a run and of an attack: each is declared once, for Python, YAML files and the command line.

A new setting is a new field here. Its type and range are checked wherever it comes from, its docstring is the help of
its option, and it is stored in run.json or attack.json. Files and fingerprints of older versions stay valid as long as
the default means what was done before there was the setting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from rosewood.config.attack_options import MeaningFilter, constraint_text, constraints_in, meaning_filter_in
from rosewood.errors import RosewoodError, RunError, closest

LARGEST_SEED = 2**32 - 1  # of numpy's generators
DATA, TRAINING, LORA, SEARCH = "Data", "Training", "LoRA", "Search"
Kind = TypeVar("Kind", bound="Settings")


@dataclass(frozen=True)
class Option:
    """How the command line shows a setting; name, type, range and help are those of the field."""

    panel: str | None = None
    default: str | None = None
    """What the help says of the default, where it is not a value."""
    metavar: str | None = None
    envvar: str | None = None
    is_text: bool = False
    """Whether the option takes a text, which a validator of the field reads."""
    repeated: str | None = None
    """What an option is called that may be given several times, each time with a text for a part of the value."""


class Settings(BaseModel):
    """Values that do not change, without unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, ser_json_inf_nan="strings")

    @classmethod
    def checked(cls, values: Mapping[str, Any], error: type[RosewoodError] = RunError) -> Self:
        """Build the settings, or raise one error that lists everything that is wrong with them."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as wrong:
            annotations: dict[str, Any] = {name: field.annotation for name, field in cls.model_fields.items()}
            inner = {name: kind for name, kind in annotations.items() if _is_model(kind)}
            raise error("\n".join(problem_of(each, {"": cls, **inner}) for each in wrong.errors())) from None

    def only(self, kind: type[Kind]) -> Kind:
        """The settings of a base class, without what is declared beside them."""
        return kind.model_construct(
            self.model_fields_set & kind.model_fields.keys(),
            **{name: getattr(self, name) for name in kind.model_fields},
        )

    def given(self, kind: type[Settings] | None = None) -> dict[str, Any]:
        """The settings that were given, also where they equal the default, as JSON has them."""
        return self.model_dump(mode="json", include=self.model_fields_set & (kind or type(self)).model_fields.keys())

    def changed(self, always: Collection[str] = ()) -> dict[str, Any]:
        """The settings that are not at their default, and some that a fingerprint has always had, as JSON has them."""
        usual = {name: field.get_default() for name, field in type(self).model_fields.items()}
        return {
            name: value
            for name, value in self.model_dump(mode="json").items()
            if name in always or getattr(self, name) != usual[name]
        }

    def words(self, without: Collection[str] = (), prefix: str = "") -> list[str]:
        """The options of a command line that say what is not at its default."""
        found: list[str] = []
        for name in self.changed():
            if name in without:
                continue
            value, option = getattr(self, name), f"--{prefix}{name.replace('_', '-')}"
            shown = option_of(type(self).model_fields[name])
            if shown.repeated:
                texts = [constraint_text(key, each) for key, each in value.items()]
                found += [word for text in texts for word in (f"--{shown.repeated}", text)]
            elif isinstance(value, Settings):
                found += value.words(prefix=f"{name}-")
            elif isinstance(value, bool):
                found.append(option)
            elif isinstance(value, dict):
                found += [option, ",".join(f"{key}={number:g}" for key, number in value.items())]
            elif isinstance(value, list) and not shown.is_text:
                found += [word for each in value for word in (option, each)]
            else:
                found += [option, ",".join(value) if isinstance(value, list) else str(value)]
        return found


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def option_of(field: FieldInfo) -> Option:
    """How the command line shows a field."""
    return next((each for each in field.metadata if isinstance(each, Option)), Option())


def problem_of(found: Any, kinds: Mapping[str, type[BaseModel]]) -> str:
    """What is wrong with one value, in a sentence; `kinds` are the models of entries by name, "" that of the whole."""
    place = ".".join(map(str, found["loc"])) or "the file"
    where = f"{place}: " if place else ""
    if found["type"] == "extra_forbidden":
        *parents, entry = map(str, found["loc"])
        kind = next((kinds[part] for part in reversed(parents) if part in kinds), kinds[""])
        known = [field.alias or name for name, field in kind.model_fields.items()]
        return f"{where}no such entry; {closest(entry, known)}"
    message = found["msg"].removeprefix("Value error, ")
    got = "" if found["type"] == "missing" else f", got {found['input']!r}"
    return f"{where}{message[0].lower()}{message[1:]}{got}"


class Lora(Settings):
    """A LoRA adapter: W0 + alpha / rank B A in every target layer, with dropout before A."""

    rank: Annotated[int, Field(ge=1), Option(LORA)]
    """Train a LoRA adapter of this rank instead of all weights."""
    alpha: Annotated[int, Field(ge=1), Option(LORA, "twice the rank")] = Field(
        default_factory=lambda given: 2 * given.get("rank", 1)
    )
    """The adapter counts alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1), Option(LORA)] = 0.0
    """Dropout before the adapter."""
    targets: Annotated[list[str], Option(LORA, "all-linear")] = ["all-linear"]
    """Layers that get an adapter, such as query (repeatable)."""


BALANCED: Literal["balanced"] = "balanced"
ClassWeights = Literal["balanced"] | dict[str, float]


def parse_class_weights(text: Any) -> Any:
    """What --class-weights says: `balanced`, or a weight for each label. Anything but text stays as it is."""
    if not isinstance(text, str):
        return text
    if text.strip() == BALANCED:
        return BALANCED
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not equals or not name.strip() or not 0 < weight < float("inf"):
            raise RunError(
                f"--class-weights is {BALANCED!r}, or a number above 0 for each label, such as spam=5,ham=1; got "
                f"{part.strip()!r}"
            )
        found[name.strip()] = weight
    return found


def names_in(text: Any) -> Any:
    """The names that a text has between its commas. Anything but text stays as it is."""
    return [name.strip() for name in text.split(",")] if isinstance(text, str) else text


class SharedRunSettings(Settings):
    """The settings that the runs of an experiment have in common."""

    train_size: Annotated[int | None, Field(ge=2), Option(DATA)] = None
    """Train on a seeded sample of this size."""
    validation_size: Annotated[int, Field(ge=0), Option(DATA)] = 1000
    """Validation examples at most."""
    labels: Annotated[
        list[str] | None, BeforeValidator(names_in), Option(TRAINING, "those in its config.json", is_text=True)
    ] = None
    """Names of a fine-tuned model's outputs in their order, with commas."""
    new_head: Annotated[bool, Option(TRAINING)] = False
    """Give a fine-tuned model a new classification head instead of keeping its own."""
    pretrained: Annotated[
        str | None,
        Option(
            TRAINING,
            "the base model that a fine-tuned --model names, if it is here; or --model itself",
            metavar="MODEL",
        ),
    ] = None
    """What anchors (RIFT, Mixout, L2-SP) and `rosewood average` take as the pre-trained weights."""
    max_length: Annotated[int, Field(ge=4), Option(TRAINING)] = 128
    """Tokens per text."""
    class_weights: Annotated[
        ClassWeights | None, BeforeValidator(parse_class_weights), Option(TRAINING, "all rows alike", is_text=True)
    ] = None
    """Let rows of rare classes count more: balanced, or a number for each label (spam=5,ham=1)."""
    early_stopping: Annotated[int | None, Field(ge=1), Option(TRAINING)] = None
    """Stop after this many epochs without better validation accuracy (--select-by: under attack), keep the best."""
    select_by: Annotated[str | None, Option(TRAINING, "the last epoch, or --early-stopping's", metavar="ATTACK")] = None
    """Keep the epoch that is most accurate under this attack on validation data: pwws, typos."""
    select_examples: Annotated[int, Field(ge=1), Option(TRAINING)] = 100
    """Validation examples that --select-by attacks."""
    precision: Annotated[
        Literal["float32", "bfloat16", "auto"], Option(TRAINING, "auto; in Python and experiments float32")
    ] = "float32"
    """What matrices are multiplied in: auto takes bfloat16 where the hardware has it. Weights stay in float32."""
    warn_after: Annotated[float, Field(gt=0, le=1), Option(TRAINING, "1/3")] = 1 / 3
    """Warn if after this share of the steps the loss is no better than guessing."""
    max_skipped_steps: Annotated[int, Field(ge=0), Option(TRAINING)] = 10
    """Steps in a row that may be skipped because of NaN or infinity before the run ends."""
    watch: Annotated[list[Literal["masks", "drift", "inconsistency"]], Option(TRAINING)] = []
    """Record, without changing training: rosewood dynamics shows it (repeatable)."""
    watch_every: Annotated[int, Field(ge=1), Option(TRAINING)] = 10
    """Record every k-th step."""
    lora: Lora | None = None
    """A LoRA adapter that is trained instead of all weights."""


class RunSettings(SharedRunSettings):
    """Everything beside the recipe, the task and the training arguments that decides what a run computes.

    Example:
        >>> RunSettings(seed=3, class_weights="balanced").class_weights
        'balanced'
    """

    model: Annotated[str, Option(TRAINING)] = "minilm"
    """A folder, a Hub name, or one of `rosewood list models`."""
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED), Option(TRAINING)] = 0
    """Seed of the sample, the new weights, the order of the data and dropout."""
    data_dir: Annotated[
        str | None,
        BeforeValidator(lambda folder: str(folder) if isinstance(folder, Path) else folder),
        Option(DATA, envvar="ROSEWOOD_DATA", metavar="FOLDER"),
    ] = None
    """Folder with the tasks' files."""
    report_to: Annotated[
        list[str], BeforeValidator(names_in), Option(TRAINING, "nowhere", metavar="NAMES", is_text=True)
    ] = []
    """Send figures there while training, with commas: trackio,tensorboard,wandb."""

    def words(self, without: Collection[str] = (), prefix: str = "") -> list[str]:
        """With the precision, always: without it `rosewood train` takes what the hardware has."""
        return [*super().words([*without, "precision"], prefix), "--precision", self.precision]


class TrainingShortcuts(Settings):
    """The training arguments of transformers that have an option of their own; --set training.NAME has all of them."""

    epochs: Annotated[float | None, Field(ge=0.01, serialization_alias="num_train_epochs"), Option(TRAINING, "3")] = (
        None
    )
    """Passes over the training data."""
    learning_rate: Annotated[
        float | None, Field(ge=0), Option(TRAINING, "the recipe's, or by model size (LoRA: 1e-3)")
    ] = None
    """The learning rate of the first step after the warm-up."""
    batch_size: Annotated[
        int | None, Field(ge=1, serialization_alias="per_device_train_batch_size"), Option(TRAINING, "32")
    ] = None
    """Examples per device and step."""
    accumulation_steps: Annotated[
        int | None, Field(ge=1, serialization_alias="gradient_accumulation_steps"), Option(TRAINING, "1")
    ] = None
    """Batches per optimiser step."""

    def arguments(self) -> dict[str, Any]:
        """Those that were given, under the names of transformers."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class AttackSettings(Settings):
    """How an attack is carried out, whichever it is. The first five decide what it finds, and so do new ones.

    Example:
        >>> AttackSettings(constraints="words_share=0.2").constraints
        {'words_share': {'value': 0.2}}
    """

    field: Annotated[str | None, Option(DATA, "the last")] = None
    """The text of a pair to change."""
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED), Option()] = 0
    """Seed of the sample and of the search."""
    max_length: Annotated[int | None, Field(ge=4), Option(DATA, "the run's or tokenizer's")] = None
    """Tokens per text."""
    max_queries: Annotated[int | None, Field(ge=1), Option(SEARCH)] = None
    """Texts that may be scored for one example."""
    max_seconds: Annotated[float | None, Field(gt=0, allow_inf_nan=False), Option(SEARCH)] = None
    """Stop the search after so long, and give bounds."""
    batch_size: Annotated[int, Field(ge=1), Option()] = 64
    """Texts that are scored together."""
    min_changeable: Annotated[float, Field(ge=0, le=1), Option(SEARCH)] = 0.1
    """With a smaller share of words that can change, the table says not attacked."""
    max_queries_per_word: Annotated[int | None, Field(ge=1), Option(SEARCH)] = None
    """Texts that may be scored for one example, for each of its words."""
    max_candidates: Annotated[int | None, Field(ge=1), Option(SEARCH, "all")] = None
    """Words that are tried in the place of a word, nearest first."""
    constraints: Annotated[
        dict[str, Any],
        BeforeValidator(constraints_in, dict[str, Any] | list[str] | str),
        Option(SEARCH, metavar="NAME=VALUE", is_text=True, repeated="constraint"),
    ] = {}
    """What each changed text must satisfy: words_share=0.2, stop_words, part_of_speech, similarity=0.8, fluency=2."""
    meaning_filter: Annotated[
        MeaningFilter,
        BeforeValidator(meaning_filter_in, MeaningFilter | str),
        Option(metavar="CONDITIONS", is_text=True),
    ] = MeaningFilter(words=0.3, similarity=0.8, antonyms=False)
    """The edits that count in the column "filtered": words=0.3,similarity=0.8,fluency=2,antonyms=no; or none."""
    draws: Annotated[int, Field(ge=1), Option(SEARCH)] = 1
    """For a model that answers at random: search by the mean of so many answers, and believe a majority of new ones."""
    precision: Annotated[Literal["float32", "bfloat16", "auto"], Option(SEARCH)] = "float32"
    """Precision of the search (gradient: always float32); auto: bfloat16 if the hardware has it. Float32 confirms."""

    def deciding(self) -> dict[str, Any]:
        """What a fingerprint has of them; a new setting changes it only where it is not at its default."""
        first = ("field", "seed", "max_length", "max_queries", "max_seconds")
        found = self.only(AttackSettings).changed(always=first)
        return {name: value for name, value in found.items() if name not in AFTERWARDS}


AFTERWARDS = ("batch_size", "min_changeable", "meaning_filter")
"""Settings that decide nothing, or only how a finished search is judged."""
