"""Methods against a baseline on the same examples: McNemar's test and paired bootstrap, run by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

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
Kind = Literal["set", "attack", "noise"]
"""What a test is about. The tests of one kind are a family: a dozen noises do not weaken the test of an attack."""
KINDS: tuple[Kind, ...] = ("set", "attack", "noise")


class Difference(NamedTuple):
    """A run against the baseline's of the same seed, on the same examples of one set, noise or attack."""

    method: str
    seed: int | None
    kind: Kind
    set: str
    change: PairedBootstrap
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
                    change = paired_bootstrap(*pair, run.evaluation.seed)
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
        "Points of accuracy, their interval by paired bootstrap. p: McNemar's exact test, two-sided. Holm: adjusted "
        f"for the number of tests of the same kind ({by_kind(tests.differences)}). *: below {LEVEL}."
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
