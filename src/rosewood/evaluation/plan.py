"""What a model is to be evaluated on, from a suite or from the evaluation sets of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rosewood.data.suites import Suite
from rosewood.data.tasks import NoiseRule, Task
from rosewood.errors import DataError, RunError
from rosewood.models.scoring import DEFAULT_LENGTH
from rosewood.results import AppliedNoise, Role
from rosewood.words.noise import NOISES

TYPO_RATE = 0.3
_ROLES: dict[str, Role] = {"test": "clean", "shift": "shift", "adversarial": "adversarial"}


@dataclass(frozen=True)
class PlannedSet:
    """A set to evaluate on, before its data are loaded; `absent` says why nobody can load it."""

    name: str
    role: Role
    task: Task | None
    split: str
    labels: Sequence[str]
    absent: str | None = None
    max_length: int | None = None
    sample: int | None = None
    groups: Sequence[str] = ()
    counted: bool = True
    note: str = ""
    noise: AppliedNoise | None = None


@dataclass(frozen=True)
class EvaluationPlan:
    """All sets of an evaluation, and the labels that the model must have."""

    name: str
    suite: str | None
    labels: Sequence[str]
    sets: Sequence[PlannedSet]
    merge: dict[str, list[str]]
    inside: Sequence[str] = ()
    max_length: int = DEFAULT_LENGTH
    multi_label: bool = False

    def members(self, label: str) -> list[int]:
        """The model's labels, by number, that a label of a set means."""
        return [self.labels.index(each) for each in self.merge.get(label, [label])]


def plan_of_task(task: Task, typo_rate: float | None = None) -> EvaluationPlan:
    """The test, shift and adversarial splits of a task, and its test split under noise.

    The noise is that of the task, or typos in 30 % of the words; with `typo_rate` it is typos in that share of them.
    """
    rule = task.noise if typo_rate is None else None
    typo_rate = TYPO_RATE if typo_rate is None and rule is None else typo_rate or 0.0
    if not 0 <= typo_rate <= 1:
        raise RunError(f"typo_rate is a share of words, from 0 to 1; got {typo_rate}.")
    if typo_rate and "typos" in task.splits:
        raise DataError(
            f"task {task.name} has a split called typos, the name of the test set with typos: rename the split."
        )
    sets = [
        PlannedSet(name, _ROLES[split.role], task, name, task.labels)
        for name, split in task.splits.items()
        if split.role in _ROLES
    ]
    clean = "test" if "test" in task.splits else "validation"
    if clean == "validation" and clean in task.splits:
        # Better than nothing, and called by its name: a user's own files often have no test set.
        sets.append(PlannedSet(clean, "clean", task, clean, task.labels))
    if clean in task.splits and typo_rate:
        noise = AppliedNoise(kind="typos", strength=typo_rate, of=clean)
        sets.append(PlannedSet("typos", "noise", task, clean, task.labels, noise=noise))
    if clean in task.splits and rule:
        sets += _noises(rule, next(each for each in sets if each.name == clean), f"task {task.name}")
    if not sets:
        raise DataError(f"task {task.name} has no test, shift or adversarial split: add one to evaluate on.")
    return EvaluationPlan(task.name, None, task.labels, sets, {}, multi_label=task.multi_label)


def plan_of_suite(suite: Suite, task: str | None = None) -> EvaluationPlan:
    """The sets of a suite; of a suite over several tasks, those of one."""
    if suite.tasks:
        suite = _of_one_task(suite, task)
    sets = [_planned(suite, name) for name in suite.sets]
    labels: Sequence[str] = suite.labels or sets[0].labels
    rule = suite.noise
    noises = _noises(rule, next(each for each in sets if each.name == rule.of), f"suite {suite.name}") if rule else []
    return EvaluationPlan(
        name=task if suite.tasks and task else suite.name,
        suite=suite.name,
        labels=labels,
        sets=[*sets, *noises],
        merge=suite.merge,
        inside=suite.inside,
        max_length=suite.max_length,
    )


def _of_one_task(suite: Suite, task: str | None) -> Suite:
    if task not in suite.tasks:
        raise RunError(
            f"the suite {suite.name} measures a model on its own task, one of {', '.join(suite.tasks)}; "
            f"got {task or 'none'}. Name the task of the model with --task."
        )
    return suite.model_copy(update={"sets": {name: each for name, each in suite.sets.items() if each.task == task}})


def _planned(suite: Suite, name: str) -> PlannedSet:
    each = suite.sets[name]
    task, split = (None, name) if each.absent is not None else suite.task_of(name)
    return PlannedSet(
        name=name,
        role=each.role,
        task=task,
        split=split,
        labels=task.labels if task else each.labels or suite.labels,
        absent=each.absent,
        max_length=each.max_length,
        sample=each.sample,
        groups=each.groups,
        counted=each.counted,
        note=each.note,
    )


def _noises(rule: NoiseRule, clean: PlannedSet, where: str) -> list[PlannedSet]:
    unknown = [kind for kind in rule.kinds if kind not in NOISES]
    if unknown:
        raise DataError(f"{where}: unknown noise {', '.join(unknown)}; known: {', '.join(NOISES)}.")
    return [
        replace(
            clean,
            name=f"{kind} {strength:g}",
            role="noise",
            sample=rule.sample,
            noise=AppliedNoise(kind=kind, strength=strength, of=clean.name),
        )
        for kind in rule.kinds
        for strength in rule.strengths
    ]
