"""Whether an edit keeps the meaning, as far as figures can tell: a record of each edit, and which edits pass a filter.

Most published attacks change what a text says (Hauser et al., "BERT is Robust!", 2021; Morris et al., "Reevaluating
Adversarial Examples in Natural Language", 2020), and a model that follows the new meaning is then not wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rosewood.attacks.runner.example import Resources
from rosewood.config.attack_texts import MeaningFilter
from rosewood.results import AttackedExample, FilteredAccuracy
from rosewood.tensors.statistics import wilson_interval
from rosewood.words.constraints import similarities


def edit_quality(example: AttackedExample, field: str, resources: Resources) -> dict[str, Any]:
    """What there is to say of the edit of a broken example, as entries of its record."""
    assert example.adversarial is not None
    texts = [example.texts[field], example.adversarial]
    found: dict[str, Any] = {"words_share": changed_share(example)}
    if resources.encoder is not None:
        found["similarity"] = float(similarities(resources.encoder, texts)[0])
    if resources.causal_lm is not None:
        before, after = resources.causal_lm.surprise(texts)
        found["perplexity_ratio"] = float(np.exp(after - before))
    if resources.antonyms:
        found["antonyms"] = [
            (change.before, new)
            for change in example.changes
            for new in change.after.split()
            if frozenset((change.before.lower(), new.lower())) in resources.antonyms
        ]
    return found


def changed_share(example: AttackedExample) -> float:
    """Of the words of a text, those that changed."""
    return min(1.0, len(example.changes) / max(1, example.words))


def verdicts(example: AttackedExample, conditions: MeaningFilter) -> dict[str, bool | None]:
    """Whether an edit satisfies each condition; None where its record does not tell."""
    share, alike, ratio = changed_share(example), example.similarity, example.perplexity_ratio
    found: dict[str, bool | None] = {}
    if conditions.words is not None:
        found["words"] = share <= conditions.words
    if conditions.similarity is not None:
        found["similarity"] = None if alike is None else alike >= conditions.similarity
    if conditions.fluency is not None:
        found["fluency"] = None if ratio is None else ratio <= conditions.fluency
    if not conditions.antonyms:
        found["antonyms"] = None if example.antonyms is None else not example.antonyms
    return found


def filtered(examples: Sequence[AttackedExample], conditions: MeaningFilter) -> FilteredAccuracy | None:
    """The robust accuracy where only edits count that satisfy the conditions; None if there are none."""
    if conditions == MeaningFilter():
        return None
    told = [verdicts(example, conditions) for example in examples if example.status == "broken"]
    passed = sum(all(verdict is not False for verdict in each.values()) for each in told)
    counts, total = Counter(example.status for example in examples), len(examples)
    robust = counts["robust"] + counts["out_of_queries"] + counts["broken"] - passed
    at_most = robust + counts["out_of_time"]
    return FilteredAccuracy(
        conditions=conditions,
        passed=passed,
        failed=dict(Counter(name for each in told for name, verdict in each.items() if verdict is False)),
        unknown=sorted({name for each in told for name, verdict in each.items() if verdict is None}),
        robust_accuracy=robust / total,
        robust_accuracy_at_most=at_most / total,
        robust_interval=(wilson_interval(robust, total)[0], wilson_interval(at_most, total)[1]),
    )


def in_words(conditions: MeaningFilter) -> str:
    """The conditions of a filter, as a caption names them."""
    parts = []
    if conditions.words is not None:
        parts.append(f"at most {100 * conditions.words:g} % of the words change")
    if conditions.similarity is not None:
        parts.append(f"the cosine is at least {conditions.similarity:g}")
    if conditions.fluency is not None:
        parts.append(f"the perplexity is at most {conditions.fluency:g} times the original's")
    if not conditions.antonyms:
        parts.append("no word is replaced by a known antonym")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
