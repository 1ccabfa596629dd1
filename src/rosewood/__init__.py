"""Fine-tune language models so that they stay right when text is attacked, shifted or noisy, and show by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rosewood.config.registry import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:  # for type checkers and editors; `_HOMES` has the same names
    from rosewood.attacks.runner.api import attack, robust_accuracy
    from rosewood.attacks.runner.report import load_attack
    from rosewood.config.settings import AttackSettings, RunSettings
    from rosewood.data.embedded import embedded_model
    from rosewood.data.loading import load_split
    from rosewood.data.suites import Suite, load_suite
    from rosewood.data.tasks import Task, load_task
    from rosewood.defences.runner.certify import certify
    from rosewood.defences.runner.wrap import wrap
    from rosewood.errors import DataError, ExperimentError, RecipeError, RosewoodError, RunError
    from rosewood.evaluation.evaluate import evaluate
    from rosewood.experiments.compare import compare
    from rosewood.experiments.gate import gate
    from rosewood.experiments.harden.harden import harden
    from rosewood.experiments.tuning.tune import tune
    from rosewood.models.open import open_run
    from rosewood.recipe import Recipe, load_recipe
    from rosewood.training.trainer import RobustTrainer
    from rosewood.words.alignment import with_substitutes
    from rosewood.words.changes import with_changes
    from rosewood.words.constraints import Substituting
    from rosewood.words.lexicon import Lexicon

# Imported on first use, so that `import rosewood` and `rosewood --help` are quick.
_HOMES = {
    "AttackSettings": "rosewood.config.settings",
    "DataError": "rosewood.errors",
    "ExperimentError": "rosewood.errors",
    "Lexicon": "rosewood.words.lexicon",
    "Recipe": "rosewood.recipe",
    "RecipeError": "rosewood.errors",
    "RobustTrainer": "rosewood.training.trainer",
    "RosewoodError": "rosewood.errors",
    "RunError": "rosewood.errors",
    "RunSettings": "rosewood.config.settings",
    "Substituting": "rosewood.words.constraints",
    "Suite": "rosewood.data.suites",
    "Task": "rosewood.data.tasks",
    "attack": "rosewood.attacks.runner.api",
    "certify": "rosewood.defences.runner.certify",
    "compare": "rosewood.experiments.compare",
    "embedded_model": "rosewood.data.embedded",
    "evaluate": "rosewood.evaluation.evaluate",
    "gate": "rosewood.experiments.gate",
    "harden": "rosewood.experiments.harden.harden",
    "load_attack": "rosewood.attacks.runner.report",
    "load_recipe": "rosewood.recipe",
    "load_split": "rosewood.data.loading",
    "load_suite": "rosewood.data.suites",
    "load_task": "rosewood.data.tasks",
    "open_run": "rosewood.models.open",
    "robust_accuracy": "rosewood.attacks.runner.api",
    "tune": "rosewood.experiments.tuning.tune",
    "with_changes": "rosewood.words.changes",
    "with_substitutes": "rosewood.words.alignment",
    "wrap": "rosewood.defences.runner.wrap",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
