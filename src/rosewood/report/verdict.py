"""The comparison in one sentence, and what it leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rosewood.comparison.attacks import UNDER
from rosewood.comparison.compare import judged_over_seeds, one_line
from rosewood.comparison.runs import untested_note
from rosewood.comparison.significance import (
    LEVEL,
    by_kind,
    figures_by_method,
    over_seeds,
    paired_tests,
    untested_over_seeds,
)
from rosewood.comparison.table import MEANS, percent
from rosewood.report.figures.evaluation import role_accuracies
from rosewood.report.subject import Subject
from rosewood.results import Role
from rosewood.results.evaluation import is_guessing

Found = Mapping[str, Sequence[str]]
"""Method -> what it differs from the baseline on."""
_KINDS: dict[Role, str] = {"clean": "clean", "shift": "shifted", "adversarial": "adversarial", "noise": "noisy"}


@dataclass(frozen=True)
class Verdict:
    """What the tests say, and what a reader must know beside it."""

    shown: str
    untested: str
    """What was not tested, and why; the tables of the comparison say it too."""
    remarks: Sequence[str]

    @property
    def sentence(self) -> str:
        """What the tests say, and what was not tested."""
        return f"{self.shown} {self.untested}".strip()


def verdict(subject: Subject) -> Verdict:
    """What the comparison shows, by its tests and no further."""
    return Verdict(*_by_tests(subject), list(_remarks(subject)))


def _by_tests(subject: Subject) -> tuple[str, str]:
    """What the tests say, and what was not tested."""
    others = [method for method in subject.methods if method != subject.baseline]
    if len(subject.methods) == 1:
        return f"{right_on(subject, *subject.methods)}; there is no other method here to compare it with.", ""
    if subject.baseline is None:
        return f"{_listed(others)} are shown side by side; without --baseline no difference between them is tested.", ""
    if judged_over_seeds(subject.by_method):
        return _over_seeds(subject, subject.baseline, others)
    return _on_examples(subject, subject.baseline, others)


def at_guessing(subject: Subject) -> list[str]:
    """The methods with a run that has not learnt its task, in words."""
    found = []
    for method, evaluations in subject.methods.items():
        tasks = dict.fromkeys(each.task for each in evaluations if is_guessing(each))
        runs = sum(map(is_guessing, evaluations))
        if tasks:
            some = "" if runs == len(evaluations) else f" in {runs} of {len(evaluations)} runs"
            found.append(f"{method} is at guessing{some} ({', '.join(tasks)})")
    return found


def right_on(subject: Subject, method: str) -> str:
    """On how much of each kind of text a method is right."""
    by_role: dict[Role, dict[str, list[float]]] = {}
    for evaluation in subject.methods[method]:
        for role, accuracy in role_accuracies(evaluation):
            by_role.setdefault(role, {}).setdefault(evaluation.task, []).append(accuracy.value)
    shares = [
        f"{percent(fmean(map(fmean, tasks.values())))}\u00a0% of {_KINDS[role]}" for role, tasks in by_role.items()
    ]
    return f"{method} is right on {_listed(shares)} text" if shares else f"{method} was evaluated on no labelled text"


def _over_seeds(subject: Subject, baseline: str, others: Sequence[str]) -> tuple[str, str]:
    values = figures_by_method(subject.by_method)
    tests = over_seeds(values, baseline)
    untested = untested_note(untested_over_seeds(values, baseline), others)
    if not tests:
        return f"No difference from {baseline} can be tested.", untested
    # The table's tests are one-tailed; that a method is worse is the other tail, adjusted on its own.
    worse = over_seeds(values, baseline, worse=True)
    better_on: dict[str, list[str]] = {}
    worse_on: dict[str, list[str]] = {}
    for (method, column), test in tests.items():
        name = one_line(MEANS.get(column, column))
        if test.adjusted < LEVEL:
            better_on.setdefault(method, []).append(name)
        if worse[method, column].adjusted < LEVEL:
            worse_on.setdefault(method, []).append(name)
    words = f"{_tests(len(tests), 'one-tailed ')} over seeds in either direction"
    tested = [method for method in others if any(method == each for each, _ in tests)]
    return _in_words(baseline, tested, better_on, worse_on, words), untested


def _on_examples(subject: Subject, baseline: str, others: Sequence[str]) -> tuple[str, str]:
    found, missing = paired_tests(subject.by_method, baseline)
    untested = untested_note(missing, others)
    if not found:
        return f"No difference from {baseline} can be tested.", untested
    better_on: dict[str, list[str]] = {}
    worse_on: dict[str, list[str]] = {}
    for each in found:
        if each.adjusted < LEVEL:
            place = better_on if each.change.difference > 0 else worse_on
            place.setdefault(each.method, []).append(each.set)
    tested = [method for method in others if any(method == each.method for each in found)]
    words = f"{_tests(len(found))} on the same examples"
    kinds = f", by kind: {by_kind(found)}"
    return _in_words(baseline, tested, better_on, worse_on, words, kinds), untested


def _tests(number: int, sort: str = "") -> str:
    return f"{number} {sort}{'test' if number == 1 else 'tests'}"


def _in_words(baseline: str, others: Sequence[str], better: Found, worse: Found, tests: str, kinds: str = "") -> str:
    level = f"p < {LEVEL} after Holm's adjustment"
    if not better and not worse:
        who = f"{others[0]} cannot" if len(others) == 1 else "No method can"
        return f"{who} be shown to differ from {baseline}: none of {tests} has {level}{kinds}."
    parts = []
    for method in others:
        signs = [f"better than {baseline} {_where(better[method])}"] if method in better else []
        signs += [f"worse{'' if signs else f' than {baseline}'} {_where(worse[method])}"] if method in worse else []
        if signs:
            parts.append(f"{method} is {' and '.join(signs)}")
    rest = [method for method in others if method not in better and method not in worse]
    if rest:
        parts.append(f"{_listed(rest)} cannot be shown to differ from it")
    return f"{'; '.join(parts)} ({level} of {tests}{kinds})."


def _remarks(subject: Subject) -> Iterable[str]:
    for words in at_guessing(subject):
        yield f"{words}: it has not learnt the task, and what it keeps under noise or attack is not robustness."
    if len(subject.methods) > 1 and not judged_over_seeds(subject.by_method):
        yield "One seed each: another seed could change the picture."
    first = subject.runs[0].evaluated.evaluation
    if first.size is not None:
        yield f"At most {first.size:,} examples of each set were taken."
    lacking = {each.name for run in subject.runs for each in run.evaluated.evaluation.missing if each.counted}
    if lacking:
        yield f"{len(lacking)} {'set is' if len(lacking) == 1 else 'sets are'} missing: {_listed(sorted(lacking))}."


def _where(names: Sequence[str]) -> str:
    """On some sets, and under some attacks."""
    sets = [name for name in names if not name.startswith(UNDER)]
    attacks = [name.removeprefix(UNDER) for name in names if name.startswith(UNDER)]
    on = [f"on {_listed(sets)}"] if sets else []
    return " and ".join([*on, *([f"{UNDER}{_listed(attacks)}"] if attacks else [])])


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
