"""Methods against a baseline, over seeds and on the same examples: what is better by more than chance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rosewood.comparison.attack_tables import UNDER, Attacked, attacked, is_of_a_task
from rosewood.comparison.runs import AT_GUESSING, EVERYTHING, NO_ATTACK, UNSEEN, EvaluatedRun, Untested, shared_tasks
from rosewood.comparison.statistics import (
    SHARE,
    PairedDifference,
    glue_aggregates,
    holm,
    mcnemar,
    mean_and_deviation,
    paired_difference,
    seed_interval,
    welch,
)
from rosewood.comparison.table import MEANS, has_noise_curves
from rosewood.errors import RunError
from rosewood.evaluation.files import correct_by_set
from rosewood.evaluation.measure import ROLES
from rosewood.results import Evaluation, Role
from rosewood.results.evaluation import is_guessing
from rosewood.results.grid import Grid

GAP, WORST_GROUP, _INCONSISTENT = "gap\n", "worst group\n", "\ninconsistent until "
SUMMARIES = ("mean", "drop")
"""ROSE's columns over the tasks of a suite: the mean of all accuracies, and the mean drop from clean to adversarial."""


class Figure(NamedTuple):
    """A figure of one run, its 95 % interval if it is an accuracy, and what speaks against a test of it."""

    value: float
    interval: tuple[float, float] | None = None
    guessing: bool = False
    unseen: bool = False
    """Whether it belongs to a noise that changes no token: then it is the figure of the clean set again."""


Figures = Mapping[str, Mapping[str, Mapping[int | None, Figure]]]
"""Method -> column -> seed -> its figure."""


def mean_of(figures: Sequence[Figure], bounds: tuple[float, float] = SHARE) -> Figure:
    """The mean over seeds with its 95 % interval, if there is one; the figure of a single run as it is."""
    if len(figures) == 1:
        return figures[0]
    values = [each.value for each in figures]
    guessing = any(each.guessing for each in figures)
    return Figure(mean_and_deviation(values)[0], seed_interval(values, bounds), guessing)


def bounds_of(column: str) -> tuple[float, float]:
    """What the figures of a column can be: differences of shares may be negative."""
    return (-1.0, 1.0) if column == "drop" or column.startswith(GAP) else SHARE


def figures_by_method(methods: Mapping[str, Sequence[EvaluatedRun]]) -> Figures:
    """All figures of some methods; a suite over several tasks has columns for each, and their summaries."""
    found: dict[str, dict[str, dict[int | None, Figure]]] = {method: {} for method in methods}
    for method, runs in methods.items():
        for run in runs:
            for column, figure in figures_of_run(run):
                found[method].setdefault(column, {})[run.seed] = figure
    for each in attacked([run for runs in methods.values() for run in runs]):
        if not each.summary.attacked:
            continue
        summary = each.summary
        guessing = is_guessing(each.run.evaluation)
        figure = Figure(summary.robust_accuracy, summary.robust_interval, guessing)
        found[each.run.method].setdefault(each.column, {})[each.run.seed] = figure
    for method, seeds in shared_tasks(methods).by_seed.items():
        for seed, evaluations in seeds.items():
            for column, figure in _summaries(evaluations):
                found[method].setdefault(column, {})[seed] = figure
    return found


def _summaries(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, Figure]]:
    """Mean and drop over the tasks of a suite that have both clean and adversarial sets."""
    both = [each for each in evaluations if is_summarised(each)]
    if both:
        sides = ({each.task: _accuracy(each, role) for each in both} for role in _SIDES)
        yield from zip(SUMMARIES, map(Figure, glue_aggregates(*sides)), strict=True)


_SIDES: tuple[Role, Role] = ("clean", "adversarial")


def is_summarised(evaluation: Evaluation) -> bool:
    """Whether it is of one task of a suite over several, and has both sides of mean and drop."""
    return is_of_a_task(evaluation) and set(_SIDES) <= {each.role for each in evaluation.sets}


def _accuracy(evaluation: Evaluation, role: Role) -> float:
    return float(np.mean([each.accuracy for each in evaluation.sets if each.role == role]))


def figures_of_run(run: EvaluatedRun) -> Iterator[tuple[str, Figure]]:
    """The figures of its evaluation without attacks, and how often dropout changed its predictions in training."""
    yield from _without_attacks(run.evaluation)
    for steps, share in run.inconsistency.items():
        yield f"{run.evaluation.task}{_INCONSISTENT}{steps}", Figure(share)


def figures_of(evaluation: Evaluation) -> Iterator[tuple[str, Figure]]:
    """The figures of an evaluation that a table of methods shows, by column."""
    yield from _without_attacks(evaluation)
    for attack in (each for each in evaluation.attacks if each.summary.attacked):
        of = evaluation.task if is_of_a_task(evaluation) else attack.of
        robust = attack.summary
        yield (
            f"{UNDER}{attack.attack}\n{of}",
            Figure(robust.robust_accuracy, robust.robust_interval, is_guessing(evaluation)),
        )


def _without_attacks(evaluation: Evaluation) -> Iterator[tuple[str, Figure]]:
    guessing = is_guessing(evaluation)
    if evaluation.suite is None or is_of_a_task(evaluation):
        curves = has_noise_curves(evaluation)  # then their mean is shown
        sets = [each for each in evaluation.sets if not (curves and each.noise)]
        yield from ((each.name, Figure(each.accuracy, each.interval, guessing, each.unseen)) for each in sets)
        noise = next((each for each in evaluation.means if each.name == "noise"), None)
        if curves and noise is not None:
            yield noise.name, Figure(noise.value, noise.interval, guessing)
    else:
        means = [each for each in evaluation.means if each.name in MEANS]
        yield from ((each.name, Figure(each.value, each.interval, guessing)) for each in means)
    clean = next((each for each in evaluation.sets if each.role == "clean"), None)
    if clean is not None and clean.worst is not None and clean.gap is not None:
        yield f"{WORST_GROUP}{clean.name}", Figure(clean.worst.accuracy, clean.worst.interval, guessing)
        yield f"{GAP}{clean.name}", Figure(clean.gap, guessing=guessing)


def lower_is_better(column: str) -> bool:
    return column in ("ece", "held_out_ece", "drop")


class OverSeeds(NamedTuple):
    """The p-value of a test over seeds, as it is and adjusted for all tests of its family."""

    p: float
    adjusted: float


def over_seeds(values: Figures, baseline: str, worse: bool = False) -> dict[tuple[str, str], OverSeeds]:
    """Method and column -> whether its figure is better than the baseline's, or worse.

    Two families are adjusted, each for all of its tests: the summaries over tasks, and the figures that they summarise.
    Worst groups and gaps are left out: they are chosen or derived from what is tested, and would only dilute it.
    Dropout inconsistency is neither good nor bad. Runs at guessing are not tested: robust is what they look, not what
    they are.
    """
    families: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for method, columns in values.items():
        for column, ours in columns.items():
            theirs = values[baseline].get(column, {})
            if method == baseline or not _is_tested(column) or why_untested(ours, theirs):
                continue
            sign = -1 if lower_is_better(column) != worse else 1
            p = welch(*([sign * each.value for each in side.values()] for side in (ours, theirs)))
            if p is not None:
                families[column in SUMMARIES][json.dumps([method, column])] = p
    return {
        tuple(json.loads(name)): OverSeeds(tests[name], adjusted)
        for tests in families.values()
        for name, adjusted in holm(tests).items()
    }


def why_untested(ours: Mapping[int | None, Figure], theirs: Mapping[int | None, Figure]) -> str:
    """Why figures of two methods have no test over seeds; empty if nothing speaks against one."""
    if any(each.guessing for side in (ours, theirs) for each in side.values()):
        return AT_GUESSING
    if all(each.unseen for side in (ours, theirs) for each in side.values()):
        return UNSEEN
    if min(len(ours), len(theirs)) < 2:
        return "both methods need two seeds or more"
    constant = all(len({each.value for each in side.values()}) == 1 for side in (ours, theirs))
    return "the same in all seeds" if constant else ""


def untested_over_seeds(values: Figures, baseline: str) -> list[Untested]:
    """What could have been tested over seeds and was not."""
    found = []
    for method, columns in values.items():
        whys = {
            " ".join(MEANS.get(column, column).split()): why_untested(ours, values[baseline].get(column, {}))
            for column, ours in columns.items()
            if method != baseline and _is_tested(column)
        }
        alike = len(whys) > 1 and len(set(whys.values())) == 1
        reasons = {EVERYTHING: next(iter(whys.values()))} if alike else whys
        found += [Untested(method, what, why) for what, why in reasons.items() if why]
    if not any(column.startswith(UNDER) for columns in values.values() for column in columns):
        found += [Untested(method, *NO_ATTACK) for method in values if method != baseline]
    return found


def _is_tested(column: str) -> bool:
    return not column.startswith((GAP, WORST_GROUP)) and _INCONSISTENT not in column


Correct = NDArray[np.bool_]
Kind = Literal["set", "attack", "noise"]
"""What a test is about. The tests of one kind are a family: a dozen noises do not weaken the test of an attack."""
KINDS: tuple[Kind, ...] = ("set", "attack", "noise")


class Difference(NamedTuple):
    """A run against the baseline's of the same seed, on the same examples of one set, noise or attack."""

    method: str
    seed: int | None
    kind: Kind
    set: str
    change: PairedDifference
    p: float
    adjusted: float
    """For all differences of this kind, of all methods and seeds."""


class PairedTests(NamedTuple):
    """The differences that were tested, and what was not."""

    differences: list[Difference]
    untested: list[Untested]


def _counterpart(run: EvaluatedRun, baseline: Sequence[EvaluatedRun]) -> EvaluatedRun | None:
    """The baseline's run of the same seed and task; a checkpoint has no seed, and is compared with a single run."""
    alike = [each for each in baseline if each.evaluation.task == run.evaluation.task]
    if len(alike) == 1 and None in (run.seed, alike[0].seed):
        return alike[0]
    return next((each for each in alike if each.seed == run.seed), None)


def paired_tests(methods: Mapping[str, Sequence[EvaluatedRun]], baseline: str) -> PairedTests:
    """McNemar's test for each run, set, noise and attack that the baseline's run of the same seed has too."""
    everyone = [run for runs in methods.values() for run in runs]
    by_run: dict[int, dict[str, Attacked]] = {id(run): {} for run in everyone}
    for each in attacked(everyone):
        by_run[id(each.run)][f"under {each.title}"] = each
    found: list[Difference] = []
    untested: list[Untested] = []
    for run in everyone:
        if run.method == baseline:
            continue
        other = _counterpart(run, methods[baseline])
        if other is None:
            why = f"{baseline} has no run with the same seed on {run.evaluation.task}"
            untested.append(Untested(run.method, EVERYTHING, why))
        elif is_guessing(run.evaluation) or is_guessing(other.evaluation):
            untested.append(Untested(run.method, EVERYTHING, AT_GUESSING))
        else:
            for kind, what, pair in [*_on_sets(run, other), *_under_attack(by_run[id(run)], by_run[id(other)])]:
                if isinstance(pair, str):
                    untested.append(Untested(run.method, what, pair))
                else:
                    p = mcnemar(*pair)
                    change = paired_difference(*pair)
                    found.append(Difference(run.method, run.seed, kind, what, change, p, adjusted=p))
    if not any(by_run.values()):
        untested += [Untested(method, *NO_ATTACK) for method in methods if method != baseline]
    return PairedTests([each for kind in KINDS for each in _adjusted(found, kind)], untested)


def _adjusted(found: Sequence[Difference], kind: Kind) -> list[Difference]:
    """Those of a kind, each adjusted for the number of them."""
    family = [each for each in found if each.kind == kind]
    adjusted = holm({str(place): each.p for place, each in enumerate(family)})
    return [each._replace(adjusted=adjusted[str(place)]) for place, each in enumerate(family)]


def _on_sets(run: EvaluatedRun, other: EvaluatedRun) -> Iterator[tuple[Kind, str, Pair]]:
    theirs = {each.name: each for each in other.evaluation.sets}
    sets = [each for each in run.evaluation.sets if each.role in ROLES]
    kept = run.predictions.exists() and other.predictions.exists()
    correct, before = (_correct(run), _correct(other)) if kept else ({}, {})
    for each in sets:
        counterpart = theirs.get(each.name)
        pair: Pair
        if not kept:
            pair = "the predictions were not kept: repeat rosewood evaluate RUN"
        elif counterpart is None or counterpart.data != each.data:
            pair = "not on the same examples"
        elif each.unseen and counterpart.unseen:
            pair = UNSEEN
        else:
            pair = correct[each.name], before[each.name]
        yield ("noise", each.name.replace("_", " "), pair) if each.role == "noise" else ("set", each.name, pair)


def _under_attack(ours: Mapping[str, Attacked], theirs: Mapping[str, Attacked]) -> Iterator[tuple[Kind, str, Pair]]:
    for title in dict.fromkeys([*ours, *theirs]):
        both = [side[title] for side in (ours, theirs) if title in side]
        alike = len(both) == 2
        yield (
            "attack",
            title,
            _outcomes(both) if alike else "the two runs were not attacked alike: attack both with one command",
        )


def _outcomes(both: Sequence[Attacked]) -> Pair:
    rows = []
    for each in both:
        if each.kept is None:
            return "rosewood evaluate keeps no attacked texts: use rosewood attack"
        if not each.summary.attacked:
            return "the attack could change too few words"
        if each.summary.left_out or each.summary.counts.get("out_of_time"):
            return "it ran out of time"
        rows.append({example.row: example.status in ("robust", "out_of_queries") for example in each.kept.examples()})
    first, second = rows
    if first.keys() != second.keys():
        return "not on the same examples"
    return np.array(list(first.values())), np.array([second[row] for row in first])


def _correct(run: EvaluatedRun) -> dict[str, Correct]:
    """Which examples of each set a run had right, as its evaluation says."""
    correct = correct_by_set(run.predictions)
    for each in run.evaluation.sets:
        found = correct.get(each.name, np.zeros(0, dtype=bool))
        if len(found) != each.examples or found.mean() != each.accuracy:
            raise RunError(f"{run.predictions} is not of the same evaluation as {run.folder}: evaluate the run again.")
    return correct


LEVEL = 0.05


def paired_tables(tests: PairedTests, baseline: str) -> list[Grid]:
    """A table for each method, narrow enough for a terminal; what holds for all is below the last."""
    found = [_of_method(each, tests, baseline) for each in dict.fromkeys(each.method for each in tests.differences)]
    caption = (
        "Points of accuracy, their interval by Newcombe's method for pairs. p: McNemar's exact test, two-sided. Holm: "
        f"adjusted for the number of tests of the same kind ({by_kind(tests.differences)}). *: below {LEVEL}."
    )
    return [*found[:-1], *(replace(last, caption=caption) for last in found[-1:])]


def by_kind(differences: Sequence[Difference]) -> str:
    """How many tests there are of each kind."""
    places = {"set": "on sets", "attack": "under attack", "noise": "under noise"}
    numbers = {kind: sum(each.kind == kind for each in differences) for kind in KINDS}
    return ", ".join(f"{number} {places[kind]}" for kind, number in numbers.items() if number)


def _of_method(method: str, tests: PairedTests, baseline: str) -> Grid:
    differences = [each for each in tests.differences if each.method == method]
    several = len({each.seed for each in differences}) > 1
    return Grid(
        f"{method} against {baseline}, on the same examples",
        [*(["seed"] if several else []), "text", "points", "95 % interval", "p", "p (Holm)"],
        [[*([str(each.seed)] if several else []), *_difference_row(each)] for each in differences],
        texts=1 + several,
    )


def _difference_row(each: Difference) -> list[str]:
    interval = f"{100 * each.change.low:+.1f} to {100 * each.change.high:+.1f}"
    adjusted = _shown(each.adjusted) + ("*" if each.adjusted < LEVEL else "")
    return [each.set, f"{100 * each.change.difference:+.1f}", interval, _shown(each.p), adjusted]


def _shown(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


Pair = tuple[Correct, Correct] | str
"""Which examples the two runs have right, or why that cannot be said."""
