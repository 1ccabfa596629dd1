"""From the plan of a run to the trainer that carries it out, and from the trainer to the files that a run leaves.

What transformers refuses about a training argument becomes an error of ours, with the argument's name. Only the
libraries' own refusals are translated. An error that our code raises, or that comes of how our code calls a library, is
a defect of Rosewood and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import psutil
import torch
from datasets import Dataset
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    EvalPrediction,
    TrainerCallback,
    TrainingArguments,
    get_scheduler,
)
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_callback import PrinterCallback
from transformers.training_args import ParallelMode
from transformers.utils.logging import disable_progress_bar

from rosewood.attacks.runner.api import choose_attack
from rosewood.config.strict_yaml import RANGES, check_training
from rosewood.data.examples import tokenize
from rosewood.dynamics import WATCHES
from rosewood.dynamics.record import FOLDER
from rosewood.errors import RosewoodError, RunError
from rosewood.models.adapters import readme
from rosewood.models.names import encoder_weights
from rosewood.models.open import keep_length, load_pretrained
from rosewood.results import Metrics
from rosewood.results.evaluation import majority_share
from rosewood.results.files import staged, staged_path
from rosewood.tensors.shards import is_first
from rosewood.training.callbacks import (
    ATTACKED,
    CHOOSES,
    MAJORITY,
    METRIC,
    RobustValidation,
    SaveAndStop,
    TrainingProgress,
    WarnsOfGuessing,
    guesses,
    guessing_loss,
    reporters,
)
from rosewood.training.checkpoint import explained
from rosewood.training.plan import DEFAULTS, Plan, WordChanges
from rosewood.training.sampling import resolved_weights
from rosewood.training.trainer import RobustTrainer

MEASURED = ("accuracy", "loss")  # on validation data


def assembled(
    plan: Plan,
    data: dict[str, Dataset],
    words: WordChanges | None,
    output: Path,
    callbacks: Sequence[TrainerCallback] = (),
) -> RobustTrainer:
    _check_labels(plan)
    disable_progress_bar()  # transformers' own bars, for loading and saving, say nothing at this size
    trusted = plan.trust_remote_code == plan.model
    model, tokenizer = load_pretrained(plan.model, plan.task, plan.seed, trusted, plan.lora, plan.new_head)
    keep_length(model, tokenizer, plan.max_length)
    if plan.recipe.attention_mask == "absent":  # a property of the model from now on, saved with its tokenizer
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
    encoded = {split: tokenize(rows, plan.task, tokenizer, plan.max_length) for split, rows in data.items()}
    if words is not None:
        train = data["train"]
        encoded["train"] = words.aligned(encoded["train"], train, plan.task, tokenizer, plan.max_length, plan.seed)
    choosing: list[TrainerCallback] = []
    if plan.select_by is not None:
        lexicon = None if words is None else words.lexicon
        field = None if words is None else words.field
        attack = (choose_attack(plan.select_by), lexicon, field, plan.select_examples, plan.max_length)
        choosing.append(RobustValidation(data["validation"], tokenizer, *attack))
    if plan.early_stopping is not None:  # looks at what robust validation adds
        choosing.append(EarlyStoppingCallback(plan.early_stopping))
    arguments = training_arguments(plan, output, has_validation="validation" in data)
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
    weights = None
    if plan.class_weights is not None:
        weights = resolved_weights(plan.class_weights, plan.task.labels, data["train"]["label"][:])
    origin = None
    if plan.recipe.needs_pretrained() and plan.pretrained not in (None, plan.model):
        assert plan.pretrained is not None
        origin = encoder_weights(plan.pretrained, plan.trust_remote_code == plan.pretrained)
    given = plan.given_arguments()
    make_trainer = naming_arguments(unchecked(given))(RobustTrainer)
    trainer = make_trainer(
        model=model,
        pretrained=origin,
        args=arguments,
        recipe=plan.recipe,
        history_file=output / "history.jsonl",
        max_skipped_steps=plan.max_skipped_steps,
        class_weights=weights,
        watches=[WATCHES[name](output / FOLDER, plan.watch_every) for name in plan.watch],
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("validation"),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=_subset_accuracy if plan.task.multi_label else _accuracy,
        callbacks=[
            SaveAndStop(),
            *choosing,
            *callbacks,
            *reporters(plan.report_to, output),
            WarnsOfGuessing(guessing_loss(data["train"]["label"][:], weights), plan.recipe, plan.warn_after),
            TrainingProgress(plan.recipe.name),
        ],
    )
    rehearse(trainer, given)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _check_labels(plan: Plan) -> None:
    """Refuse what needs one label per text where a text has several."""
    asked = {"--class-weights": plan.class_weights, "--select-by": plan.select_by}
    needy = [option for option, value in asked.items() if value is not None]
    if plan.task.multi_label and needy:
        raise RunError(
            f"task {plan.task.name} has several labels per text, and {' and '.join(needy)} needs one: leave it out"
        )


def training_arguments(plan: Plan, output: Path, has_validation: bool) -> TrainingArguments:
    settings = check_training(plan.training_arguments())
    _check_metric(settings.get("metric_for_best_model"))
    if has_validation:
        settings = {"eval_strategy": "epoch"} | settings
    if plan.early_stopping is not None or plan.select_by is not None:
        settings |= {
            "save_strategy": "epoch",
            "load_best_model_at_end": True,
            "metric_for_best_model": "accuracy" if plan.select_by is None else CHOOSES,
            "greater_is_better": True,
        }
    defaults: dict[str, Any] = {"save_strategy": "no", "save_total_limit": 2, "logging_steps": 10}
    defaults["dataloader_pin_memory"] = torch.cuda.is_available()
    defaults["use_cpu"] = not torch.accelerator.is_available()  # needed by several processes on the CPU
    if plan.report_to:
        defaults["run_name"] = output.resolve().name
    taken = {"output_dir": "--output", "seed": "--seed"}
    if plan.precision != "float32":
        taken |= {"bf16": "--precision", "fp16": "--precision"}
    clash = [f"training.{name} (use {option})" for name, option in taken.items() if name in settings]
    if clash:
        raise RunError(f"a run sets these itself: {', '.join(clash)}")
    # A whole path, since a checkpoint remembers the best one by it, and a run may be resumed from another folder.
    fixed = {
        "output_dir": str(output.resolve() / "checkpoints"),
        "seed": plan.seed,
        "report_to": "none",  # --report-to's are built by `reporters`
        "disable_tqdm": True,
    }
    if plan.precision == "bfloat16":
        fixed["bf16"] = True
    return built_arguments(defaults | settings | fixed, plan.given_arguments())


def _check_metric(metric: str | None) -> None:
    """The Trainer looks for the metric by its name only after the first evaluation."""
    if metric is not None and metric.removeprefix("eval_") not in MEASURED:
        raise RunError(f"training.metric_for_best_model: expected {' or '.join(MEASURED)}, got {metric!r}")


def _accuracy(prediction: EvalPrediction) -> dict[str, float]:
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    answers, labels = np.argmax(logits, axis=-1), np.asarray(prediction.label_ids)
    found = {"accuracy": float((answers == labels).mean()), "examples": len(answers)}
    majority = majority_share(labels.tolist())
    return found if majority is None else found | {"majority": majority, "answers": len(np.unique(answers))}


def _subset_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The share of texts with all labels right, and no other."""
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    answers, labels = np.asarray(logits) > 0, np.asarray(prediction.label_ids) > 0.5
    found = {"accuracy": float((answers == labels).all(axis=-1).mean()), "examples": len(answers)}
    majority = majority_share(map(tuple, labels.tolist()))
    return found if majority is None else found | {"majority": majority, "answers": len(np.unique(answers, axis=0))}


# The code that reads training arguments; models and torch's own operations only compute.
READERS = ("transformers.train", "transformers.optimization", "transformers.integrations", "accelerate")
NOT_OF_A_SETTING = (RosewoodError, MemoryError, torch.OutOfMemoryError, OSError)


class SettingError(RunError):
    """A training argument that transformers refuses."""


def built_arguments(settings: Mapping[str, Any], given: Mapping[str, Any]) -> TrainingArguments:
    """The training arguments, or an error that names which of the given ones transformers refuses."""
    try:
        return TrainingArguments(**settings)
    except Exception as error:  # transformers checks as it goes, and says so with whatever comes up
        guilty = {name: value for name, value in given.items() if _is_fine_without(name, settings)}
        raise _refusal(guilty or given, error) from error


def _is_fine_without(name: str, settings: Mapping[str, Any]) -> bool:
    try:
        TrainingArguments(**{key: value for key, value in settings.items() if key != name})
    except Exception:
        return False
    return True


def rehearse(trainer: RobustTrainer, given: Mapping[str, Any]) -> None:
    """Make the optimiser's class and a schedule as training will, to hear now what is wrong with their settings."""
    arguments = trainer.args
    with naming_arguments({name: value for name, value in given.items() if name.startswith("optim")}):
        trainer.get_optimizer_cls_and_kwargs(arguments, trainer.model)
    with naming_arguments({name: value for name, value in given.items() if name.startswith("lr_scheduler")}):
        get_scheduler(
            arguments.lr_scheduler_type,
            torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3),
            num_warmup_steps=0,
            num_training_steps=1,
            scheduler_specific_kwargs=arguments.lr_scheduler_kwargs,  # type: ignore[arg-type]
        )


def unchecked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given training arguments whose values only transformers checks."""
    return {name: value for name, value in given.items() if name not in RANGES and name not in DEFAULTS}


@contextmanager
def naming_arguments(given: Mapping[str, Any], has_begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn what transformers says against the given training arguments into an error that names them.

    Once training has begun well, only an error that itself names one of them counts.
    """
    try:
        yield
    except NOT_OF_A_SETTING:
        raise
    except Exception as error:
        named = {name: value for name, value in given.items() if name in str(error)}
        guilty = named if has_begun() else named or _quoted(given, error) or given
        if not guilty or not _is_from_a_reader(error):
            raise
        raise _refusal(guilty, error) from error


def _quoted(given: Mapping[str, Any], error: Exception) -> dict[str, Any]:
    """The given training arguments whose text the error repeats."""
    texts = {name: value for name, value in given.items() if isinstance(value, str) and value}
    return {name: value for name, value in texts.items() if value.casefold() in str(error).casefold()}


def _is_from_a_reader(error: Exception) -> bool:
    """Whether the code that reads training arguments is nearer to the error than ours."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    known = [name for name in modules if name.startswith((*READERS, "rosewood."))]
    return bool(known) and not known[-1].startswith("rosewood.")


def _refusal(guilty: Mapping[str, Any], error: Exception) -> SettingError:
    settings = " or ".join(f"training.{name}={value}" for name, value in guilty.items()) or "the training arguments"
    said = " ".join(str(error).split()) or type(error).__name__
    return SettingError(f"{settings} cannot be used: {said}")


def save_outcome(trainer: RobustTrainer, train_loss: float, output: Path) -> None:
    final = _last_evaluation(trainer)
    metrics = Metrics(
        steps=trainer.state.global_step,
        epochs=trainer.state.epoch or 0.0,
        train_loss=train_loss,
        validation_accuracy=final.get("eval_accuracy"),
        validation_loss=final.get("eval_loss"),
        robust_validation_accuracy=final.get(METRIC),
        attacked_validation_accuracy=final.get(ATTACKED),
        validation_majority=final.get(MAJORITY),
        at_guessing=guesses(final),
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
            if hasattr(trainer.model, "peft_config"):
                (staged_path(place) / "README.md").write_text(readme(trainer.model, trainer.recipe.name), "utf-8")
            (staged_path(place) / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle; run.json says the same


def _last_evaluation(trainer: RobustTrainer) -> dict[str, Any]:
    """Validation of the weights that are kept: those of the last step, unless better ones were loaded since."""
    if trainer.eval_dataset is None:
        return {}
    loaded = trainer.args.load_best_model_at_end and trainer.state.best_model_checkpoint is not None
    kept = trainer.state.best_global_step if loaded else trainer.state.global_step
    seen = [entry for entry in trainer.state.log_history if "eval_loss" in entry and entry["step"] == kept]
    return seen[-1] if seen else trainer.evaluate()


def peak_memory() -> int:
    """The most memory this process has held, in bytes, on the host and on the GPU."""
    if sys.platform == "win32":
        host = psutil.Process().memory_info().peak_wset
    else:
        import resource

        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return host + (torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0)
