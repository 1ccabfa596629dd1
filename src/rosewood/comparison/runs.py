"""Evaluated runs: which may share a table, which are seeds of one method, and what was not tested."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rosewood.attacks.runner.report import REPORT, load_attack
from rosewood.config import strict_yaml
from rosewood.errors import RunError
from rosewood.evaluation.files import load_evaluation, predictions_path
from rosewood.evaluation.measure import means
from rosewood.recipe import deciding
from rosewood.results import AttackedExample, AttackReport, Evaluation, LiveAttack, MissingSet, RunInfo

REPLAYS = "replays"
"""The folder of a run for texts that were found on other models: apart from attacks on the run itself."""


class KeptAttack(NamedTuple):
    """A finished attack on a run, and the folder that holds it."""

    folder: Path
    report: AttackReport

    def examples(self) -> list[AttackedExample]:
        """What was done to each example; read when asked for, as there may be very many."""
        return load_attack(self.folder).examples


def kept_attacks(run: Path) -> list[KeptAttack]:
    """What `rosewood attack` has left in the folder of a run."""
    return _kept(run, "attacks")


def kept_replays(run: Path) -> list[KeptAttack]:
    """What `rosewood attack --replay` and `--transfer` have left in the folder of a run."""
    return _kept(run, REPLAYS)


def _kept(run: Path, place: str) -> list[KeptAttack]:
    return [KeptAttack(each.parent, AttackReport.load(each)) for each in sorted(run.glob(f"{place}/*/{REPORT}"))]


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
    left_out: str = ""
    """Which sets are not compared because some run lacks them, as a sentence."""

    @property
    def predictions(self) -> Path:
        """The file with its prediction of every example."""
        return predictions_path(self.folder, self.evaluation.suite, self.evaluation.task)


def load_runs(folders: Sequence[str | Path], suite: str | None = None) -> list[EvaluatedRun]:
    """The evaluations of runs on a suite, or their latest, on the sets that all have; `left_out` names the others.

    Runs of the same recipe are the same method.

    Args:
        folders: run directories.
        suite: the suite whose evaluations are read.

    Returns:
        What a table or a report shows, in the order of the folders.

    Raises:
        RunError: a run was not evaluated so, or the runs were not evaluated alike.

    Example:
        >>> load_runs(["runs/rose"])[0].method
        'rose-ensemble'
    """
    if not folders:
        raise RunError("a table needs at least one run.")
    runs = [_load(Path(folder), suite) for folder in folders]
    _check_alike(runs)
    runs = _on_shared_sets(runs)
    check_comparable(runs)
    return runs


def check_comparable(runs: Sequence[EvaluatedRun]) -> None:
    """Runs share a table only if they were evaluated alike, on the same sets of the same data."""
    _check_alike(runs)
    for run in runs:
        first = next(each for each in runs if each.evaluation.task == run.evaluation.task)
        here, there = _data(run.evaluation), _data(first.evaluation)
        for name in sorted(here.keys() ^ there.keys()):
            lacks, has = (run, first) if name in there else (first, run)
            raise RunError(
                f"{lacks.folder} was not evaluated on {name}, and {has.folder} was, so they cannot be compared: "
                "evaluate both again, with the same options."
            )


def _check_alike(runs: Sequence[EvaluatedRun]) -> None:
    """Refuse evaluations on several suites or with other settings, and sets of one name with other rows."""
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
        here, there = _data(run.evaluation), _data(first.evaluation)
        other = sorted(name for name in here.keys() & there.keys() if here[name] != there[name])
        if other:
            raise RunError(
                f"{first.folder} and {run.folder} were evaluated on other rows of {_some(other)}, so they cannot be "
                "compared: evaluate both again."
            )


def _on_shared_sets(runs: Sequence[EvaluatedRun]) -> list[EvaluatedRun]:
    """The runs with those sets alone that all runs on a task have, and means over these."""
    return [_without(run, [each for each in runs if each.evaluation.task == run.evaluation.task]) for run in runs]


def _without(run: EvaluatedRun, beside: Sequence[EvaluatedRun]) -> EvaluatedRun:
    of = {each.folder: set(_data(each.evaluation)) for each in beside}
    shared, every = set.intersection(*of.values()), sorted(set.union(*of.values()))
    left_out = [name for name in every if name not in shared]
    if not left_out:
        return run
    reasons = [
        f"{folder} lacks {_some([name for name in left_out if name not in names])}"
        for folder, names in of.items()
        if not names.issuperset(left_out)
    ]
    evaluate = f"evaluate {'it' if len(reasons) == 1 else 'them'} with the same options{_noise_option(beside)}"
    if not shared:
        raise RunError(f"these runs were evaluated on no common set: {'; '.join(reasons)}: {evaluate}.")
    found = run.evaluation
    roles = {each.name: (each.role, each.counted) for one in beside for each in one.evaluation.sets}
    known = {each.name for each in found.missing}
    missing = [
        *found.missing,
        *(
            MissingSet(name=name, role=role, counted=counted, reason="not all runs were evaluated on it")
            for name, (role, counted) in roles.items()
            if name in left_out and name not in known
        ),
    ]
    sets = [each for each in found.sets if each.name in shared]
    anomalies = [each for each in found.anomalies if each.name in shared]
    changes = {"sets": sets, "anomalies": anomalies, "missing": missing, "means": means(sets, anomalies, missing)}
    return run._replace(
        evaluation=found.model_copy(update=changes),
        left_out=f"Compared on the sets that all runs have; left out: {'; '.join(reasons)} ({evaluate}).",
    )


def _noise_option(runs: Sequence[EvaluatedRun]) -> str:
    rates = {run.evaluation.typo_rate for run in runs}
    if len(rates) < 2:
        return ""
    shown = ("the default" if rate is None else f"{rate:g}" for rate in (run.evaluation.typo_rate for run in runs))
    return f"; --typo-rate was {', '.join(dict.fromkeys(shown))}"


def _some(names: Sequence[str]) -> str:
    """A few names and how many more there are."""
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


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
            f"({', '.join(differing)}), so they cannot be averaged: leave out one."
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
            "tokens per text (--max-length)": str(each.max_length or "as each set says"),
        }
        for each in (one, other)
    )
    return "; ".join(f"{what}: {value} and {second[what]}" for what, value in first.items() if value != second[what])


def _data(evaluation: Evaluation) -> dict[str, str]:
    """Set -> fingerprint of its rows."""
    sets = {each.name: each.data for each in evaluation.sets}
    return sets | {each.name: each.data for each in evaluation.anomalies}


def _recipe(path: Path) -> Any:
    """What decides the figures: runs of two versions may describe one recipe in other words."""
    plain = strict_yaml.read(path, "the run's recipe: restore it, or leave out the run", RunError)
    if not isinstance(plain, dict):
        raise RunError(
            f"{path} is not a recipe: expected a mapping, got a {type(plain).__name__}. "
            "Restore it, or leave out the run."
        )
    return deciding(plain)


class SharedTasks(NamedTuple):
    """What is left of the runs of some methods where each has the same tasks, and so has each of its seeds."""

    tasks: list[str]
    """Those of which every method has runs."""
    other_tasks: list[str]
    by_seed: dict[str, dict[int | None, list[Evaluation]]]
    """Method -> seed that has all of the tasks -> its evaluations on them."""
    incomplete: int
    """Runs on these tasks of seeds that lack some of them."""


def shared_tasks(methods: Mapping[str, Sequence[EvaluatedRun]]) -> SharedTasks:
    """The tasks that all methods have, and the seeds that have all of these tasks."""
    tasks = list(dict.fromkeys(run.evaluation.task for runs in methods.values() for run in runs))
    had = [{run.evaluation.task for run in runs} for runs in methods.values()]
    shared = [task for task in tasks if all(task in each for each in had)]
    by_seed = {method: _by_seed(runs, shared) for method, runs in methods.items()}
    return SharedTasks(
        shared,
        [task for task in tasks if task not in shared],
        {
            method: {seed: each for seed, each in seeds.items() if len(each) == len(shared)}
            for method, seeds in by_seed.items()
        },
        sum(len(each) for seeds in by_seed.values() for each in seeds.values() if len(each) < len(shared)),
    )


def _by_seed(runs: Sequence[EvaluatedRun], tasks: Sequence[str]) -> dict[int | None, list[Evaluation]]:
    """The evaluations of each seed, in the order of the tasks."""
    found: dict[int | None, dict[str, Evaluation]] = {}
    for run in runs:
        if run.evaluation.task in tasks:
            found.setdefault(run.seed, {})[run.evaluation.task] = run.evaluation
    return {seed: [of[task] for task in tasks if task in of] for seed, of in found.items()}


Conditions = Mapping[str, Any]
"""By name, settings of the attack among them."""
_DECIDES_NOTHING = {"model", "fingerprint", "lexicon_name", "versions", "created", "seconds", "summary", "settings"} | {
    "test_file",  # its rows have a fingerprint, `data`
    "label_names",
}


def conditions_of(report: AttackReport) -> Conditions:
    """Those of an attack that was kept."""
    plain = report.model_dump(mode="json", exclude=_DECIDES_NOTHING)
    return plain | {"examples": report.summary.examples} | _attack_settings(report.settings)


def conditions_of_live(live: LiveAttack, evaluation: Evaluation) -> Conditions:
    """Those of an attack in an evaluation, as far as it tells."""
    plain = {
        "attack": live.attack,
        "task": evaluation.task,
        "of": live.of,
        "lexicon": live.lexicon,
        "searches": live.searches,
        "data": [each.data for each in evaluation.sets if each.name == live.of],
        "seed": evaluation.seed,
        "examples": live.summary.examples,
        "protocol": live.protocol,
        "deviations": live.deviations,
    }
    return plain | _attack_settings(live.settings)


def identity_of(conditions: Conditions) -> str:
    """Equal for equal conditions."""
    return json.dumps(conditions, sort_keys=True)


def distinguished(several: Sequence[Conditions]) -> list[str]:
    """For each of some conditions the values that not all of them share."""
    names = dict.fromkeys(name for each in several for name in each)
    differing = [name for name in names if len({identity_of({name: each.get(name)}) for each in several}) > 1]
    return [", ".join(f"{name}={json.dumps(each.get(name))}" for name in differing) for each in several]


def _attack_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {f"settings.{name}": value for name, value in settings.items()}


NO_ATTACK = ("attacks", "none was made: rosewood attack RUN --attack pwws")
AT_GUESSING = "one of the two is at guessing"
UNSEEN = "both models read the same tokens with and without it"
EVERYTHING = "everything"
NAMED = 4
"""So many of the things that share a reason are named, the others counted."""


class Untested(NamedTuple):
    """Something of a method that was not tested against the baseline's."""

    method: str
    what: str
    why: str


def untested_note(untested: Sequence[Untested], methods: Sequence[str]) -> str:
    """All of it in a sentence, by reason; empty if there is nothing. `methods` are those without the baseline."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for each in untested:
        reasons.setdefault(each.why, {}).setdefault(each.what, []).append(each.method)
    parts = []
    for why, found in reasons.items():
        names = list(dict.fromkeys(found.pop(EVERYTHING, [])))
        alike: dict[tuple[str, ...], list[str]] = {}
        for what, those in found.items():
            alike.setdefault(tuple(dict.fromkeys(those)), []).append(what)
        for who, whats in alike.items():
            some = _listed([*whats[:NAMED], *([f"{len(whats) - NAMED} more"] if len(whats) > NAMED else [])])
            names.append(some if set(methods) <= set(who) else f"{some} of {_listed(who)}")
        parts.append(f"{_listed(names)} ({why})")
    return f"Not tested: {'; '.join(parts)}." if parts else ""


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
