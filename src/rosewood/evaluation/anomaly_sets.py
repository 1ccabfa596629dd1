"""Which texts a model was not made for: how well its own scores tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from numpy.typing import ArrayLike

from rosewood.evaluation.anomalies import Mahalanobis, detection, energy, max_softmax
from rosewood.evaluation.predict import Answers
from rosewood.evaluation.sets import LoadedSet
from rosewood.results import AnomalyResult, MissingSet

Score = Callable[[LoadedSet], ArrayLike]


def telling_sets(loaded: Sequence[LoadedSet], inside: Sequence[str]) -> list[LoadedSet]:
    """The sets that it takes: first the inside set, then anomalies, then the reference; none if a side is missing."""
    at_hand = {each.planned.name: each for each in loaded}
    within = next((at_hand[name] for name in inside if name in at_hand), None)
    outside = _with_role(loaded, "anomaly")
    if within is None or not outside:
        return []
    return [within, *outside, *_with_role(loaded, "reference")]


def untold_sets(loaded: Sequence[LoadedSet], inside: Sequence[str]) -> list[MissingSet]:
    """The anomalies at hand that nothing is available to be told from."""
    if telling_sets(loaded, inside):
        return []
    reason = f"what it is to be told from is missing: {', '.join(inside) or 'the suite names nothing as inside'}"
    return [MissingSet(name=each.planned.name, role="anomaly", reason=reason) for each in _with_role(loaded, "anomaly")]


def anomaly_results(telling: Sequence[LoadedSet], answers: Answers) -> list[AnomalyResult]:
    """Every anomaly set by every score."""
    if not telling:
        return []
    within, outside = telling[0], _with_role(telling, "anomaly")
    results = []
    for name, score in _scores(telling, answers).items():
        expected = score(within)
        for each in outside:
            figures = detection(expected, score(each))._asdict()
            results.append(
                AnomalyResult(
                    name=each.planned.name,
                    inside=within.planned.name,
                    score=name,
                    examples=len(each.rows),
                    source=each.source,
                    data=each.fingerprint,
                    **figures,
                )
            )
    return results


def _scores(telling: Sequence[LoadedSet], answers: Answers) -> dict[str, Score]:
    scores: dict[str, Score] = {
        "max_softmax": lambda each: max_softmax(answers.logits(each.questions)),
        "energy": lambda each: energy(answers.logits(each.questions)),
    }
    references = _with_role(telling, "reference")
    if references:
        fitted = Mahalanobis.fit(answers.features(references[0].questions), references[0].labels)
        scores["mahalanobis"] = lambda each: fitted.scores(answers.features(each.questions))
    return scores


def _with_role(sets: Sequence[LoadedSet], role: str) -> list[LoadedSet]:
    return [each for each in sets if each.planned.role == role]
