"""The sets that a model is evaluated on: planned from a suite or a task, then loaded; and why others are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import Dataset

from rosewood.data.loading import fingerprint, load_split, origin
from rosewood.data.suites import Suite
from rosewood.data.tasks import NoiseRule, Task
from rosewood.errors import AbsentError, DataError, RunError, closest
from rosewood.evaluation.predict import TextQuery
from rosewood.models.scoring import DEFAULT_LENGTH, Row
from rosewood.results import AppliedNoise, MissingSet, Role
from rosewood.words.noise import NOISES, noisy


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


@dataclass(frozen=True)
class LoadedSet:
    """The examples of one set."""

    planned: PlannedSet
    rows: Sequence[Row]
    labels: Sequence[Any]
    """The number of each example's label; where there may be several, a 0 or 1 for each."""
    columns: Mapping[str, Sequence[Any]]
    source: str
    fingerprint: str
    max_length: int
    noiseless: Sequence[Row] | None = None
    """The texts before the noise, where there is one."""

    @cached_property
    def questions(self) -> list[TextQuery]:
        """The texts of each example, and how much of them the model sees."""
        return [TextQuery(row, self.max_length) for row in self.rows]


def load_sets(
    plan: EvaluationPlan,
    data_dir: str | Path | None,
    size: int | None,
    seed: int,
    groups: Sequence[str] = (),
    max_length: int | None = None,
    longest: int = DEFAULT_LENGTH,
) -> tuple[list[LoadedSet], list[MissingSet]]:
    """Load every set of the plan; `groups` are columns by which the user wants to see it, beside the plan's own.

    The plan's text lengths end at `longest`, the most that the model can read, and give way to `max_length`.
    A set that is not available is listed as missing; data that are there and cannot be used are an error.
    """
    loaded, missing, seen = [], [], set[str]()
    sources: dict[tuple[str, int | None], Dataset] = {}  # loaded once for all kinds and strengths of noise
    for planned in plan.sets:
        try:
            if planned.noise is None:
                dataset, noiseless = load_planned(planned, data_dir, size, seed, plan.multi_label), None
            else:
                key = (planned.noise.of, planned.sample)
                sources[key] = sources.get(key) or load_planned(planned, data_dir, size, seed, plan.multi_label)
                noiseless = sources[key]
                dataset = _with_noise(noiseless, planned, planned.noise, seed)
        except AbsentError as error:
            missing.append(MissingSet(name=planned.name, role=planned.role, reason=str(error), counted=planned.counted))
            continue
        seen.update(dataset.column_names)
        length = max_length or min(planned.max_length or plan.max_length, longest)
        found = _loaded(planned, dataset, _origin(planned, data_dir), groups, length)
        loaded.append(found if noiseless is None else replace(found, noiseless=_rows(planned, noiseless)))
    unknown = [name for name in groups if loaded and name not in seen]
    if unknown:
        raise DataError(f"no set has a column {unknown[0]!r} to group by: {closest(unknown[0], sorted(seen))}")
    return loaded, missing


def _origin(planned: PlannedSet, data_dir: str | Path | None) -> str:
    assert planned.task is not None
    return origin(planned.task, planned.split, data_dir)


def load_planned(
    planned: PlannedSet, data_dir: str | Path | None, size: int | None, seed: int, multi_label: bool = False
) -> Dataset:
    """The rows of a set without its noise: at most `size` of them, and no more than the set's own sample."""
    if planned.task is None:
        raise AbsentError(planned.absent or f"there is no source for {planned.name}")
    size = min((limit for limit in (size, planned.sample) if limit is not None), default=None)
    return load_split(planned.task, planned.split, data_dir, size, seed, multi_label)


def reference_texts(plan: EvaluationPlan, data_dir: str | Path | None) -> list[str] | None:
    """Every text of the reference set, however few of its rows are evaluated; None if it is not available."""
    reference = next((each for each in plan.sets if each.role == "reference"), None)
    if reference is None or reference.task is None:
        return None
    try:
        rows = load_planned(replace(reference, sample=None), data_dir, None, seed=0)
    except AbsentError:
        return None
    return [text for field in reference.task.text for text in rows[field][:]]


def _with_noise(dataset: Dataset, planned: PlannedSet, noise: AppliedNoise, seed: int) -> Dataset:
    assert planned.task is not None
    return noisy(dataset, planned.task.text, noise.kind, noise.strength, seed)


def _loaded(planned: PlannedSet, dataset: Dataset, source: str, groups: Sequence[str], max_length: int) -> LoadedSet:
    assert planned.task is not None
    columns = [name for name in dict.fromkeys([*planned.groups, *groups]) if name in dataset.column_names]
    return LoadedSet(
        planned=planned,
        rows=_rows(planned, dataset),
        labels=dataset["label"][:],
        columns={name: dataset[name][:] for name in columns},
        source=source,
        fingerprint=fingerprint(dataset),
        max_length=max_length,
    )


def _rows(planned: PlannedSet, dataset: Dataset) -> list[Row]:
    assert planned.task is not None
    return list(zip(*(dataset[field][:] for field in planned.task.text), strict=True))


TYPO_RATE = 0.3
_ROLES: dict[str, Role] = {"test": "clean", "shift": "shift", "adversarial": "adversarial"}
