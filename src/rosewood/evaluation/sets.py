"""The data of a plan, loaded: every set that is available, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import Dataset

from rosewood.data.loading import fingerprint, load_split, origin
from rosewood.errors import AbsentError, DataError, closest
from rosewood.evaluation.plan import EvaluationPlan, PlannedSet
from rosewood.evaluation.predict import TextQuery
from rosewood.models.scoring import DEFAULT_LENGTH, Row
from rosewood.results import AppliedNoise, MissingSet
from rosewood.words.noise import noisy


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
    noiseless: dict[tuple[str, int | None], Dataset] = {}  # loaded once for all kinds and strengths of noise
    for planned in plan.sets:
        try:
            if planned.noise is None:
                dataset = load_planned(planned, data_dir, size, seed, plan.multi_label)
            else:
                key = (planned.noise.of, planned.sample)
                noiseless[key] = noiseless.get(key) or load_planned(planned, data_dir, size, seed, plan.multi_label)
                dataset = _with_noise(noiseless[key], planned, planned.noise, seed)
        except AbsentError as error:
            missing.append(MissingSet(name=planned.name, role=planned.role, reason=str(error), counted=planned.counted))
            continue
        seen.update(dataset.column_names)
        length = max_length or min(planned.max_length or plan.max_length, longest)
        loaded.append(_loaded(planned, dataset, _origin(planned, data_dir), groups, length))
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
        rows=list(zip(*(dataset[field][:] for field in planned.task.text), strict=True)),
        labels=dataset["label"][:],
        columns={name: dataset[name][:] for name in columns},
        source=source,
        fingerprint=fingerprint(dataset),
        max_length=max_length,
    )
