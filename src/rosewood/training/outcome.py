"""What a finished run leaves behind: its metrics, its model, and perhaps an adapter."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers.trainer import TRAINING_ARGS_NAME

from rosewood.models.adapters import readme
from rosewood.results import Metrics
from rosewood.results.durable import staged, staged_path
from rosewood.tensors.distributed import is_first
from rosewood.training.callbacks import ATTACKED, METRIC
from rosewood.training.checkpoint import explained
from rosewood.training.health import MAJORITY, guesses
from rosewood.training.trainer import RobustTrainer


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
