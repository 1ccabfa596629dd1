"""Evaluated runs: which of them may stand in one table, and which are seeds of one method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rosewood import strict_yaml
from rosewood.attacks.search.outcome import REPORT, load_outcome
from rosewood.errors import RunError
from rosewood.evaluation.result_files import load_evaluation, predictions_path
from rosewood.recipe import deciding
from rosewood.results import AttackedExample, AttackReport, Evaluation, RunInfo


class KeptAttack(NamedTuple):
    """A finished attack on a run, and the folder that holds it."""

    folder: Path
    report: AttackReport

    def examples(self) -> list[AttackedExample]:
        """What was done to each example; read when asked for, as there may be very many."""
        return load_outcome(self.folder).examples


def kept_attacks(run: Path) -> list[KeptAttack]:
    """What `rosewood attack` has left in the folder of a run."""
    return [KeptAttack(each.parent, AttackReport.load(each)) for each in sorted(run.glob(f"attacks/*/{REPORT}"))]


class EvaluatedRun(NamedTuple):
    """One run: its folder, what it was trained with and on, and its evaluation."""

    folder: Path
    method: str
    seed: int | None
    evaluation: Evaluation
    training: Mapping[str, Any] = {}
    """All that two seeds of one method share."""
    inconsistency: Mapping[int, float] = {}
    """First steps -> the share of predictions that differed between two dropout passes while it trained."""
    attacks: Sequence[KeptAttack] = ()

    @property
    def predictions(self) -> Path:
        """The file with its prediction of every example."""
        return predictions_path(self.folder, self.evaluation.suite, self.evaluation.task)


def load_runs(folders: Sequence[str | Path], suite: str | None = None) -> list[EvaluatedRun]:
    """The evaluations of runs on a suite, or their latest; runs of the same recipe are the same method."""
    if not folders:
        raise RunError("a table needs at least one run.")
    runs = [_load(Path(folder), suite) for folder in folders]
    check_comparable(runs)
    return runs


def check_comparable(runs: Sequence[EvaluatedRun]) -> None:
    """Runs stand in one table only if they were evaluated alike, on the same data."""
    suites = sorted({run.evaluation.suite or run.evaluation.task for run in runs})
    if len(suites) > 1:
        raise RunError(
            f"runs are compared on one suite or task; the latest evaluations are on {', '.join(suites)}. "
            "Choose with --suite, or evaluate all on the same one."
        )
    for run in runs:
        if differing := _settings(runs[0].evaluation, run.evaluation):
            raise RunError(
                f"{runs[0].folder} and {run.folder} were not evaluated alike: {differing}. Evaluate both with the same "
                "options."
            )
        first = next(each for each in runs if each.evaluation.task == run.evaluation.task)
        other = sorted(_data(run.evaluation) ^ _data(first.evaluation))
        if other:
            raise RunError(
                f"{first.folder} and {run.folder} were not evaluated on the same data of {other[0][0]}, so that their "
                "means do not compare: evaluate both again."
            )


def by_method(runs: Sequence[EvaluatedRun]) -> dict[str, list[EvaluatedRun]]:
    methods: dict[str, list[EvaluatedRun]] = {}
    for run in runs:
        same = methods.setdefault(run.method, [])
        for other in same:
            if other.evaluation.task == run.evaluation.task:
                _check_seeds(other, run)
        same.append(run)
    return methods


def _check_seeds(one: EvaluatedRun, other: EvaluatedRun) -> None:
    """Two runs of a method on a task must be two seeds of it, for their deviation to mean something."""
    if one.seed == other.seed:
        raise RunError(f"{one.folder} and {other.folder} are both {one.method} with seed {one.seed}: leave out one.")
    names = {*one.training, *other.training}
    differing = sorted(name for name in names if one.training.get(name) != other.training.get(name))
    if differing:
        raise RunError(
            f"{one.folder} and {other.folder} are both {one.method} but differ in more than the seed "
            f"({', '.join(differing)}), so that they have no mean: leave out one."
        )


def _load(folder: Path, suite: str | None) -> EvaluatedRun:
    evaluation = load_evaluation(folder, suite)
    if not (folder / "run.json").exists():
        return EvaluatedRun(folder, folder.name, None, evaluation, attacks=kept_attacks(folder))
    info = RunInfo.load(folder / "run.json")
    training = {name: getattr(info, name) for name in ("model", "train_size", "max_length", "lora", "class_weights")}
    recipe = folder / "recipe.yaml"
    training |= info.training_arguments | {"recipe.yaml": _recipe(recipe) if recipe.exists() else None}
    return EvaluatedRun(folder, info.recipe, info.seed, evaluation, training, attacks=kept_attacks(folder))


def _settings(one: Evaluation, other: Evaluation) -> str:
    """The settings of two evaluations that differ, and how; none if all are equal."""
    first, second = (
        {
            "examples of each set": "all" if each.size is None else f"at most {each.size}",
            "seed": str(each.seed),
            "tokens per text": str(each.max_length or "as each set says"),
        }
        for each in (one, other)
    )
    return "; ".join(f"{what}: {value} and {second[what]}" for what, value in first.items() if value != second[what])


def _data(evaluation: Evaluation) -> set[tuple[str, str]]:
    sets = {(each.name, each.data) for each in evaluation.sets}
    return sets | {(each.name, each.data) for each in evaluation.anomalies}


def _recipe(path: Path) -> Any:
    """What decides the figures: runs of two versions may describe one recipe in other words."""
    try:
        plain = strict_yaml.read(path)
    except (OSError, yaml.YAMLError) as error:
        raise RunError(f"cannot read {path}: {error}. Restore it, or leave out the run.") from error
    if not isinstance(plain, dict):
        raise RunError(
            f"{path} is not a recipe: expected a mapping, got a {type(plain).__name__}. "
            "Restore it, or leave out the run."
        )
    return deciding(plain)
