"""The figures of an attack, from the records of its examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from rosewood.guessing import majority_share
from rosewood.intervals import wilson_interval
from rosewood.results import AttackedExample, AttackSummary


def summarize(examples: Sequence[AttackedExample], left_out: int = 0, min_changeable: float = 0.0) -> AttackSummary:
    """Count and average; `left_out` examples were never begun."""
    counts = Counter(example.status for example in examples)
    total, broken = len(examples), counts["broken"]
    unbroken = counts["robust"] + counts["out_of_queries"]
    attacked = [example for example in examples if example.status != "wrong"]
    shares = [len(example.changes) / example.words for example in examples if example.status == "broken"]
    words = [(example.changeable, example.words) for example in attacked if example.changeable is not None]
    similarities = [example.similarity for example in examples if example.similarity is not None]
    return AttackSummary(
        examples=total,
        left_out=left_out,
        counts=dict(counts),
        clean_accuracy=len(attacked) / total,
        clean_interval=wilson_interval(len(attacked), total),
        majority=majority_share(example.label for example in examples),
        robust_accuracy=unbroken / total,
        robust_accuracy_at_most=(unbroken + counts["out_of_time"]) / total,
        robust_interval=(
            wilson_interval(unbroken, total)[0],
            wilson_interval(unbroken + counts["out_of_time"], total)[1],
        ),
        success_rate=broken / (broken + unbroken) if broken + unbroken else None,
        changed_words=fmean(shares) if shares else None,
        changeable_words=sum(some for some, _ in words) / max(1, sum(all_ for _, all_ in words)) if words else None,
        min_changeable=min_changeable,
        similarity=fmean(similarities) if similarities else None,
        mean_queries=fmean(example.queries for example in attacked) if attacked else None,
    )
