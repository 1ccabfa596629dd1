"""What a search is after: accuracy, accuracy under an attack, or a weighted mean of both."""

from __future__ import annotations

from dataclasses import dataclass

from rosewood.errors import ExperimentError, closest

OBJECTIVES = ("clean", "robust", "mean")


@dataclass(frozen=True)
class Goal:
    """The figure to be raised; `clean_weight` is the share of clean accuracy in a mean.

    A mean is of accuracies on the same examples, those that are attacked: clean accuracy on others would add the
    difference between two samples. A model at guessing cannot be misled, so that its robust accuracy counts as nothing.
    """

    objective: str = "clean"
    attack: str | None = None
    clean_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ExperimentError(f"unknown objective {self.objective!r}: {closest(self.objective, [*OBJECTIVES])}")
        if self.objective == "clean" and self.attack is not None:
            raise ExperimentError("the objective clean knows no attack: choose --objective robust or mean")
        if self.objective != "clean" and self.attack is None:
            raise ExperimentError(f"the objective {self.objective} needs an attack: --attack typos, or --attack pwws")
        if not 0 < self.clean_weight < 1:
            raise ExperimentError(f"clean_weight must lie between 0 and 1, got {self.clean_weight:g}")

    def value(self, clean: float, attacked: float | None, robust: float | None, guessing: bool | None) -> float:
        """The figure, from accuracy on all examples, and on those that are attacked without the attack and under it."""
        if self.objective == "clean":
            return clean
        assert robust is not None  # every evaluation of such a search is followed by the attack
        if guessing:
            return 0.0
        if self.objective == "robust":
            return robust
        assert attacked is not None
        return self.clean_weight * attacked + (1 - self.clean_weight) * robust
