"""Clean against robust accuracy while one setting of a recipe changes (RIFT, Figure 4)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rosewood.comparison.runs import EvaluatedRun, conditions_of, conditions_of_live, identity_of, load_runs
from rosewood.errors import RunError
from rosewood.evaluation.files import LATEST
from rosewood.evaluation.measure import means
from rosewood.recipe import load_recipe
from rosewood.results import AttackReport, AttackSummary, Evaluation, RunInfo


class Accuracy(NamedTuple):
    """An accuracy and its 95 % interval."""

    value: float
    interval: tuple[float, float]


class TradeoffPoint(NamedTuple):
    """One run: the value of its setting, and how right it is without and with an attack."""

    run: str
    recipe: str
    seed: int
    setting: float | str
    clean: Accuracy
    robust: Accuracy


class Tradeoff(NamedTuple):
    """Runs that differ in one setting, in the order of recipe and setting."""

    over: str
    under: str
    points: list[TradeoffPoint]


def tradeoff(runs: Sequence[str | Path], over: str, under: str, suite: str | None = None) -> Tradeoff:
    """Read the runs' accuracies, clean and under an attack, or on a set or role of their evaluation.

    `over` is a setting by its path in the recipe, such as selection.keep_quantile, or a training argument, such as
    training.learning_rate. `under` is an attack that was made on all runs, alike and on the same examples: then the
    clean accuracy is that on these examples too. Or it is the name of a set, or a role such as adversarial.
    """
    folders = [Path(run) for run in runs]
    if not folders:
        raise RunError("a trade-off needs at least one run")
    settings = [setting_of(folder, over) for folder in folders]
    accuracies = _under_attack(folders, under) or _on_sets(folders, under, suite)
    infos = [RunInfo.load(folder / "run.json") for folder in folders]
    points = [
        TradeoffPoint(str(folder), info.recipe, info.seed, setting, *pair)
        for folder, info, setting, pair in zip(folders, infos, settings, accuracies, strict=True)
    ]
    return Tradeoff(over, under, sorted(points, key=lambda point: (point.recipe, _order(point.setting), point.seed)))


def setting_of(run: Path, path: str) -> float | str:
    """The value that a setting had in a run; anything but a number is given as text."""
    node: Any = load_recipe(run / "recipe.yaml").to_dict()
    node["training"] = RunInfo.load(run / "run.json").training_arguments
    for key in path.split("."):
        inner = dict(enumerate(node)) if isinstance(node, list) else node
        place: Any = int(key) if isinstance(node, list) and key.isdigit() else key
        if not isinstance(inner, Mapping) or place not in inner:
            known = ", ".join(map(str, inner)) if isinstance(inner, Mapping) and inner else "nothing"
            raise RunError(f"the recipe of {run} has no setting {path}: where {key!r} is looked for, there is {known}")
        node = inner[place]
    if isinstance(node, Mapping):
        raise RunError(f"{path} is not a single setting: choose one of {', '.join(f'{path}.{key}' for key in node)}")
    return float(node) if isinstance(node, int | float) and not isinstance(node, bool) else json.dumps(node)


def _order(setting: float | str) -> tuple[int, float, str]:
    return (1, 0.0, setting) if isinstance(setting, str) else (0, setting, "")


Pair = tuple[Accuracy, Accuracy]


def _under_attack(runs: Sequence[Path], attack: str) -> list[Pair]:
    """Clean and robust accuracy under an attack that all runs had alike; nothing if no run had it."""
    found = [_summaries(run, attack) for run in runs]
    if not any(found):
        return []
    shared = [key for key in found[0] if all(key in each for each in found)]
    if not shared:
        lacking = [str(run) for run, each in zip(runs, found, strict=True) if not each]
        what = f"{lacking[0]} was not" if lacking else "the settings, budgets or examples differ"
        raise RunError(
            f"the runs were not all attacked alike by {attack} ({what}): give all of them to one command, "
            f"rosewood attack RUN... --attack {attack}"
        )
    best = max(shared, key=lambda key: found[0][key].examples)
    return [_of_attack(each[best]) for each in found]


def _of_attack(summary: AttackSummary) -> Pair:
    clean = Accuracy(summary.clean_accuracy, summary.clean_interval)
    return clean, Accuracy(summary.robust_accuracy, summary.robust_interval)


def _summaries(run: Path, attack: str) -> dict[str, AttackSummary]:
    """The summaries of an attack on a run, by everything that must be equal for them to compare."""
    reports = [AttackReport.load(path) for path in sorted(run.glob("attacks/*/attack.json"))]
    found = {identity_of(conditions_of(each)): each.summary for each in reports if each.attack == attack}
    if (run / LATEST).exists():
        evaluation = Evaluation.load(run / LATEST)
        for live in evaluation.attacks:
            if live.attack == attack:
                found[identity_of(conditions_of_live(live, evaluation))] = live.summary
    return {conditions: summary for conditions, summary in found.items() if summary.attacked}


def _on_sets(runs: Sequence[Path], under: str, suite: str | None) -> list[Pair]:
    return [(_accuracy(run, "clean"), _accuracy(run, under)) for run in load_runs(runs, suite)]


def _accuracy(run: EvaluatedRun, name: str) -> Accuracy:
    evaluation = run.evaluation
    # The first format of evaluations had no means.
    averages = evaluation.means or means(evaluation.sets, [], evaluation.missing)
    known = {each.name: Accuracy(each.value, each.interval) for each in averages if each.interval is not None}
    known |= {each.name: Accuracy(each.accuracy, each.interval) for each in evaluation.sets}
    if name not in known:
        raise RunError(
            f"{run.folder} was neither attacked by {name!r} nor evaluated on a set or role of that name: attack it, or "
            f"choose one of {', '.join(known)}"
        )
    return known[name]
