"""The work on one candidate in one stage: train it until a step, or make it of others, and measure it.

A process that reads `work.json` needs nothing else, so candidates can be worked on here, in other processes, or on a
cluster. Stopped or killed, the same call goes on where it stood, and comes to the same weights and the same figures.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from datasets import Dataset
from pydantic import BaseModel, ConfigDict
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from rosewood.attacks.runner.api import prepare, provisions
from rosewood.attacks.runner.execute import carry_out
from rosewood.config.settings import AttackSettings
from rosewood.data.loading import load_split
from rosewood.data.tasks import Task
from rosewood.defences.runner.wrap import choose_defence, wrap_run
from rosewood.experiments.harden.candidates import attack_of
from rosewood.experiments.harden.rows import FOLDER, TASK, choosing_task, training_task
from rosewood.models.averaging import average
from rosewood.models.defended import forwards_of
from rosewood.models.modes import accelerated, evaluating
from rosewood.models.open import load_classifier
from rosewood.models.scoring import Scorer, label_columns
from rosewood.recipe import build_recipe
from rosewood.results import Measured, write
from rosewood.training.callbacks import Interrupted
from rosewood.training.checkpoint import PREFIX, damage
from rosewood.training.run import Plan, finish_run

WORK, RUN, MADE, WRAPPED = "work.json", "run", "made", "wrapped"
WITHSTOOD = ("robust", "out_of_queries")


class Work(BaseModel):
    """What a candidate's worker is asked to do, as plain data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    candidate: str
    kind: Literal["ready", "trained", "mixture"]
    output: str
    """The folder of the whole hardening, with the rows."""
    stage: int
    clean_rows: int
    attacked_rows: int
    threats: list[str]
    black_box: bool
    max_length: int
    seed: int
    data_dir: str | None
    lexicon: str | None
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of training, and of the search of attacks."""
    model: str = ""
    """The folder of what is ready, a model or a finished run; what is trained starts from it."""
    pretrained: str = ""
    recipe: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    """Those of `RunSettings` beside model, seed, length, precision and data folder."""
    until: int = 0
    """The step to train to, of `max_steps` in the arguments."""
    defence: str = ""
    """What is put around the model before it is measured."""
    parts: dict[str, float] = {}
    """Of a mixture, the folders of its parts and their shares; a trained run comes first."""
    made_of: list[str] = []
    """The names of the candidates that are mixed, or that were ready."""

    def plan(self) -> Plan:
        """The training run of the candidate, which does not know of stages."""
        return Plan(
            recipe=build_recipe(self.recipe),
            task=training_task(Path(self.output)),
            arguments=self.arguments,
            model=self.model,
            pretrained=self.pretrained,
            max_length=self.max_length,
            seed=self.seed,
            data_dir=self.data_dir,
            precision=self.precision,
            **self.settings,
        )

    def save(self, folder: Path) -> None:
        """Write it where a worker looks for it."""
        write(folder / WORK, self.model_dump_json(indent=2) + "\n")


def result_file(folder: Path, stage: int) -> Path:
    """Where the figures of a stage are."""
    return folder / f"stage-{stage}.json"


def work_on_candidate(folder: Path) -> Measured:
    """Do what `work.json` in a candidate's folder asks for, or what is left of it."""
    work = Work.model_validate_json((folder / WORK).read_text(encoding="utf-8"))
    file = result_file(folder, work.stage)
    if file.exists():
        return Measured.load(file)
    with TemporaryDirectory() as scratch:
        place = made(work, folder)
        if work.defence:
            place = shielded(work, place, Path(scratch) / "wrapped")
        model, tokenizer = load_classifier(str(weights_of(place)))
        found = measured(accelerated(model), tokenizer, work, folder / f"stage-{work.stage}")
    found.save(file)
    return found


def made(work: Work, folder: Path) -> Path:
    """The run, or the folder of the model, trained or put together as far as it was asked for; with no defence yet."""
    if work.kind == "trained":
        return train_until(work.plan(), folder / RUN, work.until)
    if work.kind == "ready":
        return Path(work.model)
    new = folder / MADE
    if not new.exists():
        average(list(work.parts), new, list(work.parts.values()), pretrained=work.pretrained)
    return new


def shielded(work: Work, inside: Path, new: Path) -> Path:
    """A model with the candidate's defence around it, in a new folder."""
    task = str(Path(work.output) / FOLDER / TASK)
    wrap_run(inside, new, choose_defence(work.defence), task=task, data_dir=work.data_dir, lexicon=work.lexicon)
    return new


def weights_of(place: Path) -> Path:
    """The folder of the model itself, of a run or of a checkpoint."""
    return place / "model" if (place / "run.json").exists() else place


class Paused(Interrupted):
    """Training has come to the step that it was asked for, and has saved a checkpoint."""


class _PauseAt(TrainerCallback):
    """Saves after a step and stops, as Ctrl-C does: resumed, the run goes on as if nothing had been."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step >= self._step:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step >= self._step:
            raise Paused


def train_until(plan: Plan, run: Path, step: int) -> Path:
    """Train a run to a step, whether it is begun or not; the run if that ends it, else the checkpoint of that step."""
    if step >= plan.arguments["max_steps"]:
        finish_run(plan, run)
        return run
    checkpoint = run / "checkpoints" / f"{PREFIX}{step}"
    if not checkpoint.exists() or damage(checkpoint):
        with suppress(Paused):
            finish_run(plan, run, [_PauseAt(step)])
    return checkpoint


def measured(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, work: Work, folder: Path) -> Measured:
    """How right a model is on held-out rows, and on how many of them under every threat."""
    task = choosing_task(Path(work.output))
    rows = load_split(task, "test", size=work.clean_rows, seed=work.seed)
    attacked = load_split(task, "test", size=work.attacked_rows, seed=work.seed)
    return Measured(
        candidate=work.candidate,
        stage=work.stage,
        steps=work.until,
        right=right_on(model, tokenizer, rows, task, work.max_length),
        robust=withstood(model, tokenizer, attacked, task, work, folder),
        cost=forwards_of(model),
    )


def right_on(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Dataset, task: Task, max_length: int
) -> list[bool]:
    """Which rows a model has right."""
    columns = label_columns(model.config, task.labels)
    texts = list(zip(*(rows[field][:] for field in task.text), strict=True))
    labels, found = rows["label"][:], [False] * len(rows)
    with evaluating(model):
        for batch in Scorer(model, tokenizer, max_length).batches(texts):
            for row, logits in zip(batch.rows, batch.logits, strict=True):
                # Over all outputs: a guard's "suspicious" is no right answer.
                found[row] = int(logits.argmax()) == columns[labels[row]]
    return found


def withstood(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Dataset, task: Task, work: Work, folder: Path
) -> list[bool]:
    """Which rows a model has right under every threat; later threats see only what earlier ones have left."""
    standing = list(range(len(rows)))
    for threat in work.threats:
        if not standing:
            break
        attack = attack_of(threat, work.black_box)
        campaign = prepare(
            model,
            tokenizer,
            rows.select(standing),
            attack,
            provisions(attack, training_task(Path(work.output)), work.data_dir, work.lexicon),
            AttackSettings(seed=work.seed, max_length=work.max_length, precision=work.precision),
        )
        result = carry_out(campaign, folder / threat.replace(":", "-"), progress=False)
        standing = [standing[example.row] for example in result.examples if example.status in WITHSTOOD]
    kept = set(standing)
    return [row in kept for row in range(len(rows))]
