"""Guessing: what a model is worth that always gives the same answer, and which models are no better.

A model that answers one label whatever it reads is never misled: under noise and attack it keeps all the accuracy that
it has, and looks the most robust of all. So a model counts as robust only if it has learnt the task, that is, if it is
more accurate than the answer "the most frequent label" would be on the same examples: the whole 95 % interval of its
accuracy must lie above the share of that label. Everything that calls a model good asks here first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rosewood.results import AttackSummary, Evaluation, SetResult

MARK = "‡"
MEANING = (
    f"{MARK}: at guessing: its clean accuracy is not above the share of the most frequent label (95 % interval). What "
    "it keeps under attack is not robustness."
)


def majority_share(labels: Iterable[Hashable]) -> float | None:
    """The share of the most frequent label; None where all are the same, so that every right answer is that one."""
    counts = Counter(labels)
    return max(counts.values()) / counts.total() if len(counts) > 1 else None


def at_guessing(interval: tuple[float, float], majority: float | None) -> bool:
    """Whether an accuracy with this 95 % interval is not above the share of the most frequent label."""
    return majority is not None and interval[0] <= majority


def majority_of(result: SetResult) -> float | None:
    """The share of the most frequent label of a set; None if it has one label, or does not say."""
    classes = [each.examples for each in result.groups if each.kind == "class"]
    return max(classes) / result.examples if len(classes) > 1 and sum(classes) == result.examples else None


def guessed_sets(evaluation: Evaluation) -> list[SetResult]:
    """The clean sets of an evaluation on which the model is at guessing."""
    return [each for each in evaluation.sets if each.role == "clean" and at_guessing(each.interval, majority_of(each))]


def is_guessing(evaluation: Evaluation) -> bool:
    """Whether a model is at guessing on all clean sets that can tell; what has none of them is not judged."""
    judged = [each for each in evaluation.sets if each.role == "clean" and majority_of(each) is not None]
    return bool(judged) and len(guessed_sets(evaluation)) == len(judged)


def guesses_before(summary: AttackSummary) -> bool:
    """Whether a model is at guessing on the examples of an attack, before any of them is attacked."""
    return at_guessing(summary.clean_interval, summary.majority)


def marked(name: str, guessing: bool) -> str:
    """The name of a model in a table, marked if it is at guessing."""
    return f"{name} {MARK}" if guessing else name


def described(sets: Sequence[SetResult]) -> str:
    """The accuracies on some sets beside the shares of their most frequent labels."""
    found = []
    for each in sets:
        low, high = (f"{100 * end:.1f}" for end in each.interval)
        share = 100 * (majority_of(each) or 0.0)
        found.append(
            f"{100 * each.accuracy:.1f} % ({low} to {high}) on {each.name}, where the most frequent label is "
            f"{share:.1f} % of the examples"
        )
    return "; ".join(found)
