"""What a search maximises (accuracy, robust accuracy, or both), and the held-out training data it looks at."""

from __future__ import annotations

from dataclasses import dataclass

from rosewood.data.tasks import Carve, Split, Task
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


SHARE = 0.1


def held_out(task: Task) -> Task:
    """The task with `train` and a `validation` that is carved from it, and nothing else.

    Where a task carves its validation data from its training data, that stays. Where it has validation data of its
    own, they are left for the final run, and a tenth of the training data replaces them.
    """
    train, own = task.split("train"), task.splits.get("validation")
    if train.carve is not None:
        raise ExperimentError(f"the training data of task {task.name} are carved from another split: nothing is left")
    taken = task.carved_from("train")
    if taken is not None and (own is None or own.carve != taken):
        other = next(name for name, split in task.splits.items() if split.carve == taken)
        raise ExperimentError(
            f"task {task.name} carves its split {other} from the training data, so that none can be held out without "
            f"touching it: put {other} into a file of its own"
        )
    rule = taken or Carve.model_validate({"from": "train", "share": SHARE})
    splits = {"train": train, "validation": Split(role="validation", carve=rule)}
    return task.model_copy(update={"splits": splits})
