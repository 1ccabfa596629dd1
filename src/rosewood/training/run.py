"""A run: one recipe on one task with one seed, in a directory that tells all about it.

model/         the fine-tuned model and its tokenizer, as save_pretrained writes them; a LoRA adapter is merged into it
adapter/       the LoRA adapter by itself, as PEFT writes it, if there is one
recipe.yaml    the resolved recipe
task.yaml      the resolved task
run.json       versions, seed, data fingerprints, time, peak memory, status
metrics.json   how training ended
history.jsonl  one line per optimiser step
checkpoints/   only while the run is unfinished
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import yaml
from datasets import Dataset
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    EvalPrediction,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import TrainOutput
from transformers.training_args import ParallelMode
from transformers.utils.logging import disable_progress_bar

from rosewood.attacks.search.prepare import choose_attack
from rosewood.data.loading import fingerprint, load_split
from rosewood.data.tasks import Task, load_task
from rosewood.data.tokenize import tokenize
from rosewood.durable import staged, staged_path
from rosewood.errors import RunError
from rosewood.processes import is_first
from rosewood.recipe import Recipe, load_recipe
from rosewood.results import Lora, Metrics, RunInfo
from rosewood.training.checkpoint import NoGoodCheckpointError
from rosewood.training.full_disk import explained
from rosewood.training.interruption import Interrupted, SaveAndStop
from rosewood.training.pretrained import load_pretrained
from rosewood.training.progress import TrainingProgress
from rosewood.training.robust_validation import METRIC, RobustValidation
from rosewood.training.substitution import Substitution
from rosewood.training.trainer import RobustTrainer
from rosewood.training.untrusted import refuse_links
from rosewood.training_settings import check_training

DEFAULTS: dict[str, Any] = {
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "lr_scheduler_type": "linear",
    "train_sampling_strategy": "group_by_length",
}
LORA_DEFAULTS: dict[str, Any] = {"learning_rate": 1e-3}  # an adapter starts from nothing and has further to go


@dataclass(frozen=True)
class Plan:
    """Everything that decides what a run computes."""

    recipe: Recipe
    task: Task
    model: str = "minilm"
    data_dir: str | None = None
    train_size: int | None = None
    validation_size: int = 1000
    max_length: int = 128
    seed: int = 0
    early_stopping: int | None = None
    select_by: str | None = None
    select_examples: int = 100
    max_skipped_steps: int = 10
    lora: Lora | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: str | None = None  # the model whose own code may run; never taken from a file

    def training_arguments(self) -> dict[str, Any]:
        """Defaults, then what the recipe's paper says, then what the user says."""
        defaults = DEFAULTS if self.lora is None else DEFAULTS | LORA_DEFAULTS
        return defaults | dict(self.recipe.training) | self.arguments


def start_run(plan: Plan, output: Path, overwrite: bool = False, minutes_per_checkpoint: float = 5.0) -> RunInfo:
    """Train from the beginning; an existing run is only replaced if told to, and only once all settings are good."""
    if is_first():
        _check_room(output, overwrite)
    data, words = _load_data(plan), Substitution.of(plan.recipe, plan.select_by, plan.data_dir)
    existed, had_checkpoints = output.exists(), (output / "checkpoints").exists()
    try:
        trainer = _trainer(plan, data, words, output, minutes_per_checkpoint)
    except BaseException:
        if not had_checkpoints and is_first():  # the trainer makes the folder; an older run may need what is in it
            shutil.rmtree(output / "checkpoints" if existed else output, ignore_errors=True)
        raise
    if is_first():
        if existed:
            shutil.rmtree(output)
        output.mkdir(parents=True, exist_ok=True)
        plan.recipe.save(output / "recipe.yaml")
        (output / "task.yaml").write_text(_task_yaml(plan.task), encoding="utf-8")
    return _train(trainer, _describe(plan, data, words), output)


def resume_run(output: Path, minutes_per_checkpoint: float = 5.0, trust_remote_code: str | None = None) -> RunInfo:
    """Continue an interrupted run from its last checkpoint, with the settings it was started with."""
    info = RunInfo.load(output / "run.json")
    refuse_links(output)
    if info.status == "finished":
        raise RunError(f"{output} holds a finished run; there is nothing to resume")
    plan = Plan(
        recipe=load_recipe(output / "recipe.yaml"),
        task=load_task(output / "task.yaml"),
        model=info.model,
        data_dir=info.data_dir,
        train_size=info.train_size,
        validation_size=info.validation_size,
        max_length=info.max_length,
        seed=info.seed,
        early_stopping=info.early_stopping,
        select_by=info.select_by,
        select_examples=info.select_examples,
        max_skipped_steps=info.max_skipped_steps,
        lora=info.lora,
        arguments=info.training_arguments,
        trust_remote_code=trust_remote_code,
    )
    data, words = _load_data(plan), Substitution.of(plan.recipe, plan.select_by, plan.data_dir)
    found = _fingerprints(data, words)
    changed = [name for name, value in found.items() if value != info.fingerprints.get(name)]
    if changed:
        raise RunError(
            f"the {' and '.join(changed)} data has changed since {output} was started: restore it, or start a new run"
        )
    return _train(_trainer(plan, data, words, output, minutes_per_checkpoint), info, output, resume=True)


def finish_run(plan: Plan, output: Path) -> RunInfo:
    """Start the run, continue it, or leave it as it is: whatever it takes for it to be finished."""
    if not (output / "run.json").exists():
        return start_run(plan, output)
    info = RunInfo.load(output / "run.json")
    differing = [name for name, value in _settings(plan).items() if getattr(info, name) != value]
    if load_recipe(output / "recipe.yaml") != plan.recipe:
        differing.append("recipe")
    if differing:
        raise RunError(f"{output} holds a run with another {' and '.join(differing)}: choose another --output")
    return info if info.status == "finished" else resume_run(output)


def _check_room(output: Path, overwrite: bool) -> None:
    _check_writable(output)
    holds_nothing = output.is_dir() and not any(path.is_file() for path in output.rglob("*"))
    if not output.exists() or holds_nothing:  # folders without files are what a run killed at its start leaves
        return
    if not (output / "run.json").exists():
        raise RunError(f"{output} exists and is not a run of Rosewood: choose another --output")
    status = RunInfo.load(output / "run.json").status  # some other program may write a run.json too
    if not overwrite:
        advice = "choose another --output" if status == "finished" else "continue it with --resume"
        raise RunError(f"{output} already holds a run ({status}): {advice}, or replace it with --overwrite")


def _check_writable(output: Path) -> None:
    try:
        if output.is_symlink():
            raise RunError(f"{output} is a link: name the folder that it points to")
        nearest = next(folder for folder in (output, *output.resolve().parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise RunError(f"{output} cannot be written: {nearest} is not a folder that you may write to")
    except (OSError, ValueError, RuntimeError) as error:
        raise RunError(f"{str(output)!r} cannot be written: {error}. Choose another --output.") from None


def _load_data(plan: Plan) -> dict[str, Dataset]:
    data = {"train": load_split(plan.task, "train", plan.data_dir, plan.train_size, plan.seed)}
    if "validation" in plan.task.splits:
        data["validation"] = load_split(plan.task, "validation", plan.data_dir, plan.validation_size, seed=0)
    elif plan.early_stopping is not None or plan.select_by is not None:
        what = "early stopping" if plan.early_stopping is not None else "selecting the best epoch"
        raise RunError(f"{what} needs a validation split, which task {plan.task.name} does not have")
    return data


def _fingerprints(data: dict[str, Dataset], words: Substitution | None) -> dict[str, str]:
    """Hashes of all that a run learns from."""
    found = {split: fingerprint(rows) for split, rows in data.items()}
    return found if words is None else found | {"lexicon": words.lexicon.fingerprint}


def _describe(plan: Plan, data: dict[str, Dataset], words: Substitution | None) -> RunInfo:
    return RunInfo(
        **_settings(plan),
        fingerprints=_fingerprints(data, words),
        command=shlex.join(["rosewood", *sys.argv[1:]]),
    )


def _settings(plan: Plan) -> dict[str, Any]:
    """The settings of a plan as run.json keeps them."""
    return {
        "recipe": plan.recipe.name,
        "task": plan.task.name,
        "model": str(Path(plan.model).resolve()) if Path(plan.model).is_dir() else plan.model,
        "seed": plan.seed,
        "data_dir": None if plan.data_dir is None else str(Path(plan.data_dir).resolve()),
        "train_size": plan.train_size,
        "validation_size": plan.validation_size,
        "max_length": plan.max_length,
        "early_stopping": plan.early_stopping,
        "select_by": plan.select_by,
        "select_examples": plan.select_examples,
        "max_skipped_steps": plan.max_skipped_steps,
        "lora": plan.lora,
        "training_arguments": plan.training_arguments(),
    }


def _task_yaml(task: Task) -> str:
    plain = task.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def _trainer(
    plan: Plan, data: dict[str, Dataset], words: Substitution | None, output: Path, minutes: float
) -> RobustTrainer:
    disable_progress_bar()  # transformers' own bars, for loading and saving, say nothing at this size
    trusted = plan.trust_remote_code == plan.model
    model, tokenizer = load_pretrained(plan.model, plan.task, plan.seed, trusted, plan.lora)
    if plan.recipe.attention_mask == "absent":  # a property of the model from now on, saved with its tokenizer
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
    encoded = {split: tokenize(rows, plan.task, tokenizer, plan.max_length) for split, rows in data.items()}
    if words is not None:
        encoded["train"] = words.aligned(encoded["train"], data["train"], plan.task, tokenizer, plan.max_length)
    choosing: list[TrainerCallback] = []
    if plan.select_by is not None:
        lexicon = None if words is None else words.lexicon
        field = None if words is None or words.hull is None else words.hull.field
        attack = (choose_attack(plan.select_by), lexicon, field, plan.select_examples, plan.max_length)
        choosing.append(RobustValidation(data["validation"], tokenizer, *attack))
    if plan.early_stopping is not None:  # looks at what robust validation adds
        choosing.append(EarlyStoppingCallback(plan.early_stopping))
    arguments = _arguments(plan, output, has_validation="validation" in data)
    if arguments.fsdp and arguments.parallel_mode != ParallelMode.DISTRIBUTED:
        raise RunError(
            "training.fsdp divides a model over several processes, and this is one alone: start it with "
            "torchrun --nproc_per_node 2 -m rosewood train ..., or leave training.fsdp out"
        )
    if arguments.fsdp and plan.select_by is not None:
        raise RunError(
            "--select-by gives each process examples of its own to attack, and training.fsdp divides the model over "
            "all of them: leave one of the two out"
        )
    trainer = RobustTrainer(
        model=model,
        args=arguments,
        recipe=plan.recipe,
        history_file=output / "history.jsonl",
        max_skipped_steps=plan.max_skipped_steps,
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("validation"),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=_accuracy,
        callbacks=[SaveAndStop(minutes), *choosing, TrainingProgress(plan.recipe.name)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _train(trainer: RobustTrainer, info: RunInfo, output: Path, resume: bool = False) -> RunInfo:
    info = info.model_copy(update={"status": "running"})
    if is_first():
        info.save(output / "run.json")
    began = time.monotonic()
    status = "interrupted"
    try:
        result = _resumed(trainer, output) if resume else trainer.train()
        _save_outcome(trainer, result.metrics["train_loss"], output)
        status = "finished"
    finally:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, SaveAndStop | TrainingProgress):
                callback.close()
        seconds = (info.seconds or 0.0) + time.monotonic() - began
        info = info.model_copy(
            update={"status": status, "seconds": round(seconds, 3), "peak_memory_bytes": _peak_memory()}
        )
        # Without room for the status, an unfinished run keeps the old one, and its own error is the one to tell.
        with nullcontext() if status == "finished" else suppress(RunError):
            if is_first():
                info.save(output / "run.json")
    if is_first():
        shutil.rmtree(output / "checkpoints", ignore_errors=True)
    return info


def _resumed(trainer: RobustTrainer, output: Path) -> TrainOutput:
    """Train from the last good checkpoint or, without one, again: it leads to the same weights, only later."""
    try:
        return trainer.train(resume_from_checkpoint=True)
    except NoGoodCheckpointError as error:
        warnings.warn(f"{error}; starting again from the beginning", stacklevel=2)
    if is_first():
        shutil.rmtree(output / "checkpoints", ignore_errors=True)
    return trainer.train()


def _arguments(plan: Plan, output: Path, has_validation: bool) -> TrainingArguments:
    settings = check_training(plan.training_arguments())
    if has_validation:
        settings = {"eval_strategy": "epoch"} | settings
    if plan.early_stopping is not None or plan.select_by is not None:
        settings |= {
            "save_strategy": "epoch",
            "load_best_model_at_end": True,
            "metric_for_best_model": "accuracy" if plan.select_by is None else METRIC,
            "greater_is_better": True,
        }
    defaults: dict[str, Any] = {"save_strategy": "no", "save_total_limit": 2, "logging_steps": 10}
    defaults["dataloader_pin_memory"] = torch.cuda.is_available()
    defaults["use_cpu"] = not torch.accelerator.is_available()  # several processes without one meet only if told
    taken = {"output_dir": "--output", "seed": "--seed"}
    clash = [f"training.{name} (use {option})" for name, option in taken.items() if name in settings]
    if clash:
        raise RunError(f"a run sets these itself: {', '.join(clash)}")
    # A whole path, since a checkpoint remembers the best one by it, and a run may be resumed from another folder.
    fixed = {
        "output_dir": str(output.resolve() / "checkpoints"),
        "seed": plan.seed,
        "report_to": "none",
        "disable_tqdm": True,
    }
    try:
        return TrainingArguments(**(defaults | settings | fixed))
    except Exception as error:  # transformers checks as it goes, and says so with whatever comes up
        raise RunError(f"the training arguments cannot be used: {error}") from error


def _accuracy(prediction: EvalPrediction) -> dict[str, float]:
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return {"accuracy": float((np.argmax(logits, axis=-1) == prediction.label_ids).mean())}


def _save_outcome(trainer: RobustTrainer, train_loss: float, output: Path) -> None:
    final = _last_evaluation(trainer)
    metrics = Metrics(
        steps=trainer.state.global_step,
        epochs=trainer.state.epoch or 0.0,
        train_loss=train_loss,
        validation_accuracy=final.get("eval_accuracy"),
        validation_loss=final.get("eval_loss"),
        robust_validation_accuracy=final.get(METRIC),
    )
    if is_first():
        metrics.save(output / "metrics.json")
    if hasattr(trainer.model, "merge_and_unload"):
        _save_model(trainer, output, "adapter")
        trainer.model = trainer.model.merge_and_unload()
    _save_model(trainer, output, "model")


def _save_model(trainer: RobustTrainer, output: Path, what: str) -> None:
    place, size = output / what, trainer.model.get_memory_footprint
    with (
        explained(f"the {what}", place, size, output / "checkpoints"),
        staged(place) if trainer.args.should_save else nullcontext(),
    ):
        trainer.save_model(str(staged_path(place)))
        if trainer.args.should_save:  # an adapter does not keep the names of the labels by itself
            trainer.model.config.save_pretrained(staged_path(place))
            (staged_path(place) / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle; run.json says the same


def _last_evaluation(trainer: RobustTrainer) -> dict[str, Any]:
    """Validation of the weights that are kept: those of the last step, unless better ones were loaded since."""
    if trainer.eval_dataset is None:
        return {}
    loaded = trainer.args.load_best_model_at_end and trainer.state.best_model_checkpoint is not None
    kept = trainer.state.best_global_step if loaded else trainer.state.global_step
    seen = [entry for entry in trainer.state.log_history if "eval_loss" in entry and entry["step"] == kept]
    return seen[-1] if seen else trainer.evaluate()


def _peak_memory() -> int:
    """The most memory this process has held, in bytes, on the host and on the GPU."""
    if sys.platform == "win32":
        host = psutil.Process().memory_info().peak_wset
    else:
        import resource

        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return host + (torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0)


__all__ = ["DEFAULTS", "Interrupted", "Plan", "finish_run", "resume_run", "start_run"]
