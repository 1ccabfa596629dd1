"""The work on one candidate in one stage: train it until a step, or make it of others, and measure it.

A process that reads `work.json` needs nothing else, so candidates can be worked on here, in other processes, or on a
cluster. After a stop or a crash, the same call continues, and comes to the same weights and the same figures.

There are three kinds of rows: those that train, those that choose between candidates, and those that judge, once. Rows
that choose are the validation rows, and rows that judge the test rows, of the user or the task. What is missing is
taken from the training rows before anything else, without duplicates and with the same label shares. The files are
written once, so that the same command reads the same rows, and `rosewood train` can read them too.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import yaml
from datasets import Dataset
from pydantic import BaseModel, ConfigDict
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from rosewood.attacks.runner.api import prepare, resources_for
from rosewood.attacks.runner.execute import carry_out
from rosewood.config.settings import AttackSettings
from rosewood.data.files import ENDINGS
from rosewood.data.loading import load_split, task_from_files
from rosewood.data.splitting import distinct, spread, text_keys
from rosewood.data.tasks import NoiseRule, Split, Task, load_task
from rosewood.defences.runner.wrap import choose_defence, wrap_run
from rosewood.errors import DataError
from rosewood.experiments.harden.candidates import attack_of
from rosewood.models.averaging import average
from rosewood.models.defended import forwards_of
from rosewood.models.modes import accelerated, evaluating
from rosewood.models.open import load_classifier
from rosewood.models.scoring import Scorer, label_columns
from rosewood.recipe import build_recipe
from rosewood.results import AttackedExample, CandidateFigures, write
from rosewood.training.callbacks import Interrupted
from rosewood.training.checkpoint import PREFIX, damage
from rosewood.training.run import Plan, finish_run

FOLDER, TASK, CHOOSING = "data", "task.yaml", "choosing"
SHARE, FEWEST, MOST = 0.1, 20, 1000
"""Held-out rows: a share of the training rows, between these numbers."""
NOISE = NoiseRule(kinds=["typos", "keyboard", "dropped_words"], strengths=[0.2], sample=1000)
"""What the start and the winner are measured under on test rows, beside the threats."""


def own_rows(
    train_file: Path,
    eval_file: Path | None,
    test_file: Path | None,
    text_columns: list[str],
    label_column: str,
) -> Task:
    """A task of the user's own files. No row of the test file is read: that happens once, at the end."""
    task = task_from_files(train_file, eval_file, text_columns=text_columns or ["text"], label_column=label_column)
    splits: dict[str, Any] = {name: split for name, split in task.splits.items() if split.carve is None}
    if test_file is not None:
        if not test_file.is_file() or test_file.suffix.lower() not in ENDINGS:
            raise DataError(f"{test_file}: expected a file that ends in {', '.join(ENDINGS)}; check --test-file")
        columns = task.split("train").sources[0].columns
        splits["test"] = Split.model_validate(
            {"role": "test", "folder": {"file": str(test_file.resolve()), "columns": columns}}
        )
    return task.model_copy(update={"splits": splits})


def divide(task: Task, output: Path, data_dir: str | None = None) -> None:
    """Write the rows and their task, unless an earlier start has."""
    folder = output / FOLDER
    if (folder / TASK).exists():
        return
    if "train" not in task.splits:
        raise DataError(f"task {task.name} has no training rows, and hardening trains: name another task")
    if task.multi_label:
        raise DataError(f"task {task.name} has several labels per text, and attacks need one label per text")
    chooses, judges = chooses_and_judges(task)
    whole = task.model_copy(update={"splits": {"train": task.split("train")}})  # whatever else was carved from it
    rows = load_split(whole, "train", data_dir)
    keys = text_keys([rows[field][:] for field in task.text])
    kept = distinct(keys, rows["label"][:])
    order = [kept[place] for place in spread([keys[i] for i in kept], [rows["label"][i] for i in kept], seed=0)]
    part = min(MOST, max(FEWEST, round(SHARE * len(kept))))
    ends = (0 if chooses else part), (0 if chooses else part) + (0 if judges else part)
    if len(order) < 2 * ends[1]:
        raise DataError(
            f"task {task.name} has {len(order)} different training rows, and {ends[1]} of them would be held out: "
            f"hardening needs {2 * ends[1]} or more"
        )
    _write(folder / "train.jsonl", rows.select(sorted(order[ends[1] :])), task)
    chosen = load_split(task, "validation", data_dir, MOST) if chooses else rows.select(sorted(order[: ends[0]]))
    _write(folder / f"{CHOOSING}.jsonl", chosen, task)
    if judges is None:
        _write(folder / "test.jsonl", rows.select(sorted(order[ends[0] : ends[1]])), task)
    splits: dict[str, Any] = {"train": {"folder": {"file": "train.jsonl"}}}
    splits["test"] = {"folder": {"file": "test.jsonl"}} if judges is None else _plain(judges)
    facts = {"name": task.name, "title": task.title, "text": task.text, "labels": task.labels}
    plain = facts | {"replace": task.replace, "notes": task.notes, "noise": NOISE.model_dump(), "splits": splits}
    write(folder / TASK, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))  # last: where it is, all is


def chooses_and_judges(task: Task) -> tuple[Split | None, Split | None]:
    """The task's own rows that choose, and those that judge, where it has them apart from its training rows.

    Those called test judge, or those called validation if there are no others.
    """
    own = {name: task.splits[name] for name in ("validation", "test") if name in task.splits}
    own = {name: split for name, split in own.items() if split.carve is None}
    return (own.get("validation"), own["test"]) if "test" in own else (None, own.get("validation"))


def _write(file: Path, rows: Dataset, task: Task) -> None:
    records = [{field: row[field] for field in task.text} | {"label": task.labels[row["label"]]} for row in rows]
    write(file, "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))


def _plain(split: Split) -> dict[str, Any]:
    return split.model_copy(update={"role": "test"}).model_dump(mode="json", exclude_defaults=True)


def whole_task(output: Path) -> Task:
    """The task with training and test rows."""
    return load_task(output / FOLDER / TASK)


def training_task(output: Path) -> Task:
    """The task with training rows only: whoever trains on it cannot read any other."""
    return _only(whole_task(output), train=whole_task(output).split("train"))


def choosing_task(output: Path) -> Task:
    """The held-out rows, as a test split."""
    split = Split.model_validate(
        {"role": "test", "folder": {"file": str((output / FOLDER).resolve() / f"{CHOOSING}.jsonl")}}
    )
    return _only(whole_task(output), test=split)


def judging_task(output: Path) -> Task:
    """The test rows."""
    return _only(whole_task(output), test=whole_task(output).split("test"))


def _only(task: Task, **splits: Split) -> Task:
    return task.model_copy(update={"splits": splits})


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
    """The precision of training, and of the search of attacks."""
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
    """The folders of the parts of a mixture, and their shares; a trained run comes first."""
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


def work_on_candidate(folder: Path) -> CandidateFigures:
    """Do what `work.json` in a candidate's folder asks for, or what is left of it."""
    work = Work.model_validate_json((folder / WORK).read_text(encoding="utf-8"))
    file = result_file(folder, work.stage)
    if file.exists():
        return CandidateFigures.load(file)
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


def measured(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, work: Work, folder: Path) -> CandidateFigures:
    """How right a model is on held-out rows, and on how many of them under every threat."""
    task = choosing_task(Path(work.output))
    rows = load_split(task, "test", size=work.clean_rows, seed=work.seed)
    attacked = load_split(task, "test", size=work.attacked_rows, seed=work.seed)
    return CandidateFigures(
        candidate=work.candidate,
        stage=work.stage,
        steps=work.until,
        right=correct_rows(model, tokenizer, rows, task, work.max_length),
        robust=robust_rows(model, tokenizer, attacked, task, work, folder),
        cost=forwards_of(model),
    )


def correct_rows(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Dataset, task: Task, max_length: int
) -> list[bool]:
    """Which rows a model has right."""
    columns = label_columns(model.config, task.labels)
    texts = list(zip(*(rows[field][:] for field in task.text), strict=True))
    labels, found = rows["label"][:], [False] * len(rows)
    with evaluating(model):
        for batch in Scorer(model, tokenizer, max_length).batches(texts):
            for row, logits in zip(batch.rows, batch.logits, strict=True):
                # Over all outputs: a guard's "suspicious" is not a right answer.
                found[row] = int(logits.argmax()) == columns[labels[row]]
    return found


def robust_rows(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Dataset, task: Task, work: Work, folder: Path
) -> list[bool]:
    """Which rows a model has right under every threat; later threats see only what earlier ones have left."""
    left = list(range(len(rows)))
    for threat in work.threats:
        if not left:
            break
        examples = attacked(model, tokenizer, rows.select(left), work, threat, folder / threat.replace(":", "-"))
        left = [left[example.row] for example in examples if example.status in WITHSTOOD]
    kept = set(left)
    return [row in kept for row in range(len(rows))]


def attacked(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset,
    work: Work,
    threat: str,
    folder: Path,
    lexicon: str | None = None,
    task: str | None = None,
    split: str | None = None,
) -> list[AttackedExample]:
    """What a threat did to each row; the folder keeps it, with the names of task and split if they are given."""
    attack = attack_of(threat, work.black_box)
    campaign = prepare(
        model,
        tokenizer,
        rows,
        attack,
        resources_for(attack, training_task(Path(work.output)), work.data_dir, lexicon or work.lexicon),
        AttackSettings(seed=work.seed, max_length=work.max_length, precision=work.precision),
        task=task,
        split=split,
    )
    return carry_out(campaign, folder, progress=False).examples
