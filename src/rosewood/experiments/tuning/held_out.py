"""The data of a search: a task's training data, divided in two. No other split can be named, so none can be seen."""

from __future__ import annotations

from rosewood.data.tasks import Carve, Split, Task
from rosewood.errors import ExperimentError

SHARE = 0.1


def held_out(task: Task) -> Task:
    """The task with `train` and a `validation` that is carved from it, and nothing else.

    Where a task carves its validation data from its training data, that stays. Where it has validation data of its
    own, they are left for the final run, and a tenth of the training data stands in for them.
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
