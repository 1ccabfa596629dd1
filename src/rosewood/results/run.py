"""Runs: how a model was trained or averaged, enough to repeat it."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions, now

Status = Literal["running", "interrupted", "finished"]


class Lora(ResultPart):
    """A LoRA adapter: W0 + alpha / rank B A in every target layer, with dropout before A."""

    rank: Annotated[int, Field(gt=0)]
    alpha: Annotated[int, Field(gt=0)]
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: list[str] = ["all-linear"]


class RunInfo(ResultFile):
    """What `run.json` says of a training run: enough to repeat it."""

    recipe: str
    task: str
    model: str
    new_head: bool = False  # in place of the trained one that the model had
    pretrained: str | None = None  # what anchors tie it to, where that is not the model itself
    seed: int
    data_dir: str | None
    fingerprints: dict[str, str]  # split -> fingerprint of its data
    train_size: Count | None  # None: all there is
    validation_size: Count  # at most
    examples: dict[str, Count] = {}  # split -> how many there were; none in runs of older versions
    max_length: Annotated[int, Field(ge=4)]  # below, a text has hardly room for its special tokens
    early_stopping: Count | None = None
    select_by: str | None = None  # the attack under which the best epoch is chosen; None: plain accuracy
    select_examples: Count = 100
    max_skipped_steps: Count = 10
    watch: list[Literal["masks", "drift", "inconsistency"]] = []  # see `rosewood.dynamics.record`
    watch_every: Annotated[int, Field(gt=0)] = 10
    lora: Lora | None = None  # None: every weight is trained
    class_weights: Literal["balanced"] | dict[str, float] | None = None  # as given; None: all rows count alike
    training_arguments: dict[str, Any]
    command: str
    versions: dict[str, str] = Field(default_factory=installed_versions)
    status: Status = "running"
    started: AwareDatetime = Field(default_factory=now)
    seconds: Annotated[float, Field(ge=0)] | None = None  # known once the run has ended
    peak_memory_bytes: Count | None = None


class Metrics(ResultFile):
    """What `metrics.json` says of a finished training."""

    steps: Count
    epochs: float
    train_loss: float
    validation_accuracy: Share | None
    validation_loss: float | None
    robust_validation_accuracy: Share | None = None  # where an attack chose the epoch
    attacked_validation_accuracy: Share | None = None  # without the attack, on the examples that it was tried on
    validation_majority: Share | None = None  # the share of the most frequent label
    at_guessing: bool | None = None  # whether the validation accuracy is not above that share


class AveragedRun(ResultPart):
    """A run, or a checkpoint of another library, whose weights went into an average, and its share among them."""

    run: str
    recipe: str
    seed: int | None  # None of a checkpoint, which does not say it
    weight: Share


class Average(ResultFile):
    """What `average.json` says of a model that was not trained but averaged."""

    created: AwareDatetime = Field(default_factory=now)
    runs: list[AveragedRun]
    pretrained: str | None  # the pre-trained model that was mixed in, if one was
    pretrained_share: Share
