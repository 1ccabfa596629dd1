"""A run: one recipe on one task with one seed, in a directory that tells all about it.

model/         the fine-tuned model and its tokenizer, as save_pretrained writes them; a LoRA adapter is merged into it
adapter/       the LoRA adapter by itself, as PEFT writes it, if there is one
recipe.yaml    the resolved recipe
task.yaml      the resolved task
run.json       versions, seed, data fingerprints, time, peak memory, status
metrics.json   how training ended
history.jsonl  one line per optimiser step
dynamics/      what was watched in some of them, if anything was
checkpoints/   only while the run is unfinished
"""

from __future__ import annotations

import os
import re
import shutil
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from datasets import Dataset
from transformers import TrainerCallback
from transformers.trainer_utils import TrainOutput

from rosewood.config.settings import RunSettings
from rosewood.data.loading import fingerprint, load_split
from rosewood.data.tasks import load_task
from rosewood.errors import RunError
from rosewood.models.modes import has_bfloat16
from rosewood.models.open import outline_of
from rosewood.models.origin import origin_of
from rosewood.recipe import deciding, load_recipe
from rosewood.results import RunInfo
from rosewood.results.files import write_whole
from rosewood.results.run import typed_command
from rosewood.results.work_folder import LOCK, clear, held
from rosewood.tensors.shards import is_first
from rosewood.training.assembly import SettingError, assembled, naming_arguments, peak_memory, save_outcome, unchecked
from rosewood.training.callbacks import Interrupted, SaveAndStop, TrainingProgress, check_report_to
from rosewood.training.checkpoint import NoGoodCheckpointError, checkpoints, refuse_links
from rosewood.training.plan import DEFAULTS, Plan, WordChanges, in_order_of_outputs
from rosewood.training.trainer import RobustTrainer


class Settled(NamedTuple):
    """A plan with what its checkpoint decides, the order of labels and the pre-trained model, and what to say of it."""

    plan: Plan
    remark: str


def settled(plan: Plan) -> Settled:
    """Look at the checkpoint that a run starts from, and settle what depends on it."""
    check_report_to(plan.report_to)
    start = outline_of(plan.model, plan.trust_remote_code == plan.model)
    plan, chose_rate = in_order_of_outputs(plan, start), not plan.has_rate
    plan = plan.with_rate_for(start.config)
    trusted = plan.pretrained is not None and plan.trust_remote_code == plan.pretrained
    origin = origin_of(plan.model, start, plan.pretrained, trusted)
    remark = ""
    if start.has_head:
        outputs = "a new head" if plan.new_head else f"the outputs {', '.join(plan.task.labels)}"
        remark = f"{plan.model} is a classifier. It is trained further with {outputs}. "
    if start.has_head or plan.pretrained is not None:
        remark += f"Pre-trained model: {origin.name} ({origin.why}). "
    if chose_rate:
        remark += f"Learning rate {plan.arguments['learning_rate']:g}, the default for a model of this size. "
    precision = plan.precision
    if precision == "auto":
        precision = "bfloat16" if has_bfloat16() else "float32"
        remark += f"Precision {precision}: this machine has {'' if has_bfloat16() else 'no '}kernels for bfloat16. "
    return Settled(plan.model_copy(update={"pretrained": origin.name, "precision": precision}), remark.strip())


def check_run(plan: Plan) -> None:
    """Refuse whatever start_run would refuse: settings, data, model, or what they are together."""
    plan = settled(plan).plan
    words = WordChanges.of(plan.recipe, plan.select_by, plan.data_dir)
    with TemporaryDirectory() as folder:
        assembled(plan, _load_data(plan), words, Path(folder))


def start_run(
    plan: Plan,
    output: Path,
    overwrite: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
) -> RunInfo:
    """Train from the beginning; `overwrite` replaces an existing run, once all settings are good."""
    if is_first():
        _check_room(output, overwrite)
    plan = settled(plan).plan
    with _alone(output):
        return _start(plan, output, overwrite, callbacks)


def _start(plan: Plan, output: Path, overwrite: bool, callbacks: Sequence[TrainerCallback]) -> RunInfo:
    if is_first():
        _check_room(output, overwrite)  # somebody may have been here before we had it to ourselves
    data, words = _load_data(plan), WordChanges.of(plan.recipe, plan.select_by, plan.data_dir)
    had_checkpoints = (output / "checkpoints").exists()
    try:
        trainer = assembled(plan, data, words, output, callbacks)
    except BaseException:
        if not had_checkpoints and is_first():  # the trainer makes the folder; an older run may need what is in it
            shutil.rmtree(output / "checkpoints", ignore_errors=True)
        raise
    info = _describe(plan, data, words)
    if is_first():
        clear(output)
        info.save(output / "run.json")
        plan.recipe.save(output / "recipe.yaml")
        write_whole(output / "task.yaml", plan.task.to_yaml())  # in the order that _has_begun knows
    try:
        return _train(trainer, info, output)
    except SettingError:
        if not checkpoints(output / "checkpoints") and is_first():  # nothing to go on from
            shutil.rmtree(output, ignore_errors=True)
        raise


def resume_run(
    output: Path,
    trust_remote_code: str | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    data_dir: str | None = None,
) -> RunInfo:
    """Continue an interrupted run from its last checkpoint, with the settings it was started with.

    Its data may lie in another folder now, as long as they are the same.
    """
    RunInfo.load(output / "run.json")  # before a folder is made that is none
    with _alone(output):
        return _resume(output, trust_remote_code, callbacks, data_dir)


def _resume(
    output: Path,
    trust_remote_code: str | None,
    callbacks: Sequence[TrainerCallback],
    data_dir: str | None,
) -> RunInfo:
    info = RunInfo.load(output / "run.json")
    if data_dir is not None:
        info = info.model_copy(update={"data_dir": str(Path(data_dir).resolve())})
    refuse_links(output)
    if info.status == "finished":
        raise RunError(f"{output} holds a finished run; there is nothing to resume")
    if not _has_begun(output):
        raise RunError(f"{output} was stopped before its first step: start it again without --resume")
    plan = Plan(
        recipe=load_recipe(output / "recipe.yaml"),
        task=load_task(output / "task.yaml"),
        arguments=info.training_arguments,
        trust_remote_code=trust_remote_code,
        **dict(info.only(RunSettings)) | {"pretrained": info.pretrained or info.model},
    )
    data, words = _same_data(plan, info, output)
    trainer = assembled(plan, data, words, output, callbacks)
    return _train(trainer, info, output, resume=True)


def finish_run(plan: Plan, output: Path, callbacks: Sequence[TrainerCallback] = ()) -> RunInfo:
    """Start the run, continue it, or leave it as it is: whatever it takes for it to be finished."""
    with _alone(output):
        return _finish(plan, output, callbacks)


def _finish(plan: Plan, output: Path, callbacks: Sequence[TrainerCallback]) -> RunInfo:
    if not (output / "run.json").exists() or not _has_begun(output):
        return start_run(plan, output, callbacks=callbacks)
    info = RunInfo.load(output / "run.json")
    # The data count by their fingerprints; the labels are in the task, in the order of the outputs.
    settings = {name: value for name, value in _settings(plan).items() if name not in ("data_dir", "labels")}
    if plan.pretrained is None:  # whichever it found
        del settings["pretrained"]
    if plan.precision == "auto":  # what its machine had
        del settings["precision"]
    if not plan.has_rate:  # it took the one for its model
        settings["training_arguments"] = info.training_arguments | settings["training_arguments"]
    differing = [name for name, value in settings.items() if getattr(info, name) != value]
    if deciding(load_recipe(output / "recipe.yaml").to_dict()) != deciding(plan.recipe.to_dict()):
        differing.append("recipe")
    if differing:
        raise RunError(f"{output} holds a run with another {' and '.join(differing)}: choose another --output")
    if info.status == "finished":
        if info.data_dir != _settings(plan)["data_dir"]:
            labels = load_task(output / "task.yaml").labels  # in the order of the model's outputs
            task = plan.task.model_copy(update={"labels": labels})
            _same_data(plan.model_copy(update={"task": task}), info, output)
        return info
    return resume_run(output, trust_remote_code=plan.trust_remote_code, callbacks=callbacks, data_dir=plan.data_dir)


def _alone(output: Path) -> AbstractContextManager[None]:
    """The folder belongs to these processes; the first has the lock for all."""
    return held(output) if is_first() else nullcontext()


def _has_begun(output: Path) -> bool:
    """Whether there is more than what a run leaves that is killed before it trains, with a file half written."""
    half_written = re.compile(r"\.(run\.json|recipe\.yaml|task\.yaml)\.\d+\.tmp")
    files = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    whole = {name for name in files if name != LOCK and not half_written.fullmatch(name)}
    return whole not in (set(), {"run.json"}, {"run.json", "recipe.yaml"})


def _check_room(output: Path, overwrite: bool) -> None:
    check_writable(output)
    if not output.exists():
        return
    begun = not output.is_dir() or _has_begun(output)
    if begun and not (output / "run.json").exists():
        raise RunError(f"{output} exists and is not a run of Rosewood: choose another --output")
    if (output / "run.json").exists():
        status = RunInfo.load(output / "run.json").status  # some other program may write a run.json too
        if begun and not overwrite:
            if status != "finished":
                with _alone(output):  # whoever works in it is the better answer
                    pass
            advice = "choose another --output" if status == "finished" else "continue it with --resume"
            raise RunError(f"{output} already holds a run ({status}): {advice}, or replace it with --overwrite")


def check_writable(output: Path) -> None:
    """Refuse a place where no folder can be made, or nothing written into it."""
    try:
        if output.is_symlink():
            raise RunError(f"{output} is a link: name the folder that it points to")
        nearest = next(folder for folder in (output, *output.resolve().parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise RunError(f"{output} cannot be written: {nearest} is not a folder that you may write to")
        with TemporaryDirectory(dir=nearest, prefix=".rosewood-"):
            pass  # some file systems, such as /proc, promise more than they keep
    except (OSError, ValueError, RuntimeError) as error:
        raise RunError(f"{str(output)!r} cannot be written: {error}. Choose another --output.") from None


def _load_data(plan: Plan) -> dict[str, Dataset]:
    data = {"train": load_split(plan.task, "train", plan.data_dir, plan.train_size, plan.seed, multi_label=True)}
    if "validation" in plan.task.splits:
        data["validation"] = load_split(
            plan.task, "validation", plan.data_dir, plan.validation_size, seed=0, multi_label=True
        )
    elif plan.early_stopping is not None or plan.select_by is not None:
        what = "early stopping" if plan.early_stopping is not None else "selecting the best epoch"
        raise RunError(f"{what} needs a validation split, which task {plan.task.name} does not have")
    return data


def _same_data(plan: Plan, info: RunInfo, output: Path) -> tuple[dict[str, Dataset], WordChanges | None]:
    """The data that a run was started with, or an error if they are not what they were."""
    data, words = _load_data(plan), WordChanges.of(plan.recipe, plan.select_by, plan.data_dir)
    found = _fingerprints(data, words)
    changed = [name for name, value in found.items() if value != info.fingerprints.get(name)]
    if changed:
        raise RunError(
            f"the {' and '.join(changed)} data has changed since {output} was started: restore it, or start a new run"
        )
    return data, words


def _fingerprints(data: dict[str, Dataset], words: WordChanges | None) -> dict[str, str]:
    """Hashes of all that a run learns from."""
    found = {split: fingerprint(rows) for split, rows in data.items()}
    return found if words is None or words.lexicon is None else found | {"lexicon": words.lexicon.fingerprint}


def _describe(plan: Plan, data: dict[str, Dataset], words: WordChanges | None) -> RunInfo:
    return RunInfo(
        **_settings(plan),
        fingerprints=_fingerprints(data, words),
        examples={split: len(rows) for split, rows in data.items()},
        command=typed_command(),
    )


def _settings(plan: Plan) -> dict[str, Any]:
    """The settings of a plan as run.json keeps them."""
    return dict(plan.only(RunSettings)) | {
        "recipe": plan.recipe.name,
        "task": plan.task.name,
        "model": _lasting(plan.model),
        "pretrained": None if plan.pretrained in (None, plan.model) else _lasting(plan.pretrained),
        "data_dir": None if plan.data_dir is None else str(Path(plan.data_dir).resolve()),
        "training_arguments": plan.training_arguments(),
    }


def _lasting(model: str) -> str:
    """The name of a model that means the same in every folder."""
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def _train(trainer: RobustTrainer, info: RunInfo, output: Path, resume: bool = False) -> RunInfo:
    info = info.model_copy(update={"status": "running"})
    if is_first():
        info.save(output / "run.json")
    began = time.monotonic()
    status = "interrupted"
    try:
        with naming_arguments(unchecked(info.training_arguments), has_begun=lambda: _went_well(trainer)):
            result = _resumed(trainer, output) if resume else trainer.train()
        save_outcome(trainer, result.metrics["train_loss"], output)
        status = "finished"
    finally:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, SaveAndStop | TrainingProgress):
                callback.close()
        seconds = (info.seconds or 0.0) + time.monotonic() - began
        info = info.model_copy(
            update={"status": status, "seconds": round(seconds, 3), "peak_memory_bytes": peak_memory()}
        )
        # Without room for the status, an unfinished run keeps the old one, and its own error is the one to tell.
        with nullcontext() if status == "finished" else suppress(RunError):
            if is_first():
                info.save(output / "run.json")
    if is_first():
        shutil.rmtree(output / "checkpoints", ignore_errors=True)
    return info


def _went_well(trainer: RobustTrainer) -> bool:
    """Whether the first step, and the first validation if there is any, are done."""
    validated = trainer.eval_dataset is None or any("eval_loss" in entry for entry in trainer.state.log_history)
    return trainer.state.global_step > 0 and validated


def _resumed(trainer: RobustTrainer, output: Path) -> TrainOutput:
    """Train from the last good checkpoint or, without one, again: it leads to the same weights, only later."""
    try:
        return trainer.train(resume_from_checkpoint=True)
    except NoGoodCheckpointError as error:
        warnings.warn(f"{error}; starting again from the beginning", stacklevel=2)
    if is_first():
        shutil.rmtree(output / "checkpoints", ignore_errors=True)
    return trainer.train()


__all__ = ["DEFAULTS", "Interrupted", "Plan", "check_run", "check_writable", "finish_run", "resume_run", "start_run"]
