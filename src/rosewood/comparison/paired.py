"""Methods against a baseline on the same examples: McNemar's test and paired bootstrap, run by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rosewood.comparison.attacks import Attacked, attacked
from rosewood.comparison.runs import AT_GUESSING, EVERYTHING, NO_ATTACK, UNSEEN, EvaluatedRun, Untested
from rosewood.comparison.statistics import PairedBootstrap, holm, mcnemar, paired_bootstrap
from rosewood.errors import RunError
from rosewood.evaluation.files import correct_by_set
from rosewood.evaluation.measure import ROLES
from rosewood.results.grid import Grid
from rosewood.results.guessing import is_guessing

Correct = NDArray[np.bool_]


class Difference(NamedTuple):
    """A run against the baseline's of the same seed, on the same examples of one set, noise or attack."""

    method: str
    seed: int | None
    set: str
    change: PairedBootstrap
    p: float
    adjusted: float
    """For all differences of the table."""


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
            for what, pair in [*_on_sets(run, other), *_under_attack(by_run[id(run)], by_run[id(other)])]:
                if isinstance(pair, str):
                    untested.append(Untested(run.method, what, pair))
                else:
                    p = mcnemar(*pair)
                    change = paired_bootstrap(*pair, run.evaluation.seed)
                    found.append(Difference(run.method, run.seed, what, change, p, adjusted=p))
    if not any(by_run.values()):
        untested += [Untested(method, *NO_ATTACK) for method in methods if method != baseline]
    adjusted = holm({str(place): each.p for place, each in enumerate(found)})
    tested = [each._replace(adjusted=adjusted[str(place)]) for place, each in enumerate(found)]
    return PairedTests(tested, untested)


def _on_sets(run: EvaluatedRun, other: EvaluatedRun) -> Iterator[tuple[str, Pair]]:
    theirs = {each.name: each for each in other.evaluation.sets}
    sets = [each for each in run.evaluation.sets if each.role in ROLES]
    if not (run.predictions.exists() and other.predictions.exists()):
        yield from ((each.name, "predictions of single examples are not kept: rosewood evaluate RUN") for each in sets)
        return
    correct, before = _correct(run), _correct(other)
    for each in sets:
        counterpart = theirs.get(each.name)
        if counterpart is None or counterpart.data != each.data:
            yield each.name, "not on the same examples"
        elif each.unseen and counterpart.unseen:
            yield each.name, UNSEEN
        else:
            yield each.name, (correct[each.name], before[each.name])


def _under_attack(ours: Mapping[str, Attacked], theirs: Mapping[str, Attacked]) -> Iterator[tuple[str, Pair]]:
    for title in dict.fromkeys([*ours, *theirs]):
        both = [side[title] for side in (ours, theirs) if title in side]
        yield title, _outcomes(both) if len(both) == 2 else "not made on both runs alike: give both to one command"


def _outcomes(both: Sequence[Attacked]) -> Pair:
    rows = []
    for each in both:
        if each.kept is None:
            return "single examples are not kept by rosewood evaluate: rosewood attack keeps them"
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


def paired_table(tests: PairedTests, baseline: str) -> Grid:
    return Grid(
        f"Difference from {baseline} on the same examples",
        ["method", "seed", "set", "difference", "95 % interval", "p", "p (Holm)"],
        [_difference_row(each) for each in tests.differences],
        "Accuracy in points, interval by paired bootstrap; p by McNemar's exact test, two-sided; Holm: adjusted for "
        f"all rows; *: below {LEVEL}.",
        texts=3,
    )


def _difference_row(each: Difference) -> list[str]:
    interval = f"{100 * each.change.low:+.1f} to {100 * each.change.high:+.1f}"
    adjusted = _shown(each.adjusted) + ("*" if each.adjusted < LEVEL else "")
    change = f"{100 * each.change.difference:+.1f}"
    seed = "-" if each.seed is None else str(each.seed)
    return [each.method, seed, each.set, change, interval, _shown(each.p), adjusted]


def _shown(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


Pair = tuple[Correct, Correct] | str
"""Which examples the two runs have right, or why that cannot be said."""
