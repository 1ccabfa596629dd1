"""Fine-tune language models so that they stay right when text is attacked, shifted or noisy, and show by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rosewood.first_use import on_first_use

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rosewood.attacks.search.estimate import robust_accuracy
    from rosewood.attacks.search.run import attack
    from rosewood.data.alignment import with_substitutes
    from rosewood.data.embedded import embedded_model
    from rosewood.data.lexicon import Lexicon
    from rosewood.data.suites import Suite, load_suite
    from rosewood.data.surface import Substituting
    from rosewood.data.tasks import Task, load_task
    from rosewood.errors import DataError, ExperimentError, RecipeError, RosewoodError, RunError
    from rosewood.evaluation.suite import evaluate
    from rosewood.experiments.compare import compare
    from rosewood.experiments.tuning.tune import tune
    from rosewood.recipe import Recipe, load_recipe
    from rosewood.training.trainer import RobustTrainer

# Imported on first use, so that `import rosewood` and `rosewood --help` are quick.
_HOMES = {
    "DataError": "rosewood.errors",
    "ExperimentError": "rosewood.errors",
    "Lexicon": "rosewood.data.lexicon",
    "Recipe": "rosewood.recipe",
    "RecipeError": "rosewood.errors",
    "RobustTrainer": "rosewood.training.trainer",
    "RosewoodError": "rosewood.errors",
    "RunError": "rosewood.errors",
    "Substituting": "rosewood.data.surface",
    "Suite": "rosewood.data.suites",
    "Task": "rosewood.data.tasks",
    "attack": "rosewood.attacks.search.run",
    "compare": "rosewood.experiments.compare",
    "embedded_model": "rosewood.data.embedded",
    "evaluate": "rosewood.evaluation.suite",
    "load_recipe": "rosewood.recipe",
    "load_suite": "rosewood.data.suites",
    "load_task": "rosewood.data.tasks",
    "robust_accuracy": "rosewood.attacks.search.estimate",
    "tune": "rosewood.experiments.tuning.tune",
    "with_substitutes": "rosewood.data.alignment",
}

__all__ = [
    "DataError",
    "ExperimentError",
    "Lexicon",
    "Recipe",
    "RecipeError",
    "RobustTrainer",
    "RosewoodError",
    "RunError",
    "Substituting",
    "Suite",
    "Task",
    "attack",
    "compare",
    "embedded_model",
    "evaluate",
    "load_recipe",
    "load_suite",
    "load_task",
    "robust_accuracy",
    "tune",
    "with_substitutes",
]

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
