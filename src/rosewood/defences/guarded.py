"""A guard that says "suspicious" in place of a label where a text looks attacked.

Three scores, high for attacked texts:
- *frequency*: FGWS (Mozes et al. 2021). Words that are rare in the training texts become their most frequent synonym;
  the score is what the predicted class loses by that, f(x)_y - f(x')_y. Deviations: synonyms are those of one lexicon
  (the authors': WordNet and the nearest neighbours in GloVe together); below which frequency a word is rare is fixed
  (the authors choose it for each dataset, by the false alarms on validation texts).
- *density*: RDE (Yoo et al. 2022). The features of the last layer are reduced to a few dimensions, and each class gets
  a mean and a covariance that outliers do not move (minimum covariance determinant); the score is the squared
  Mahalanobis distance to the predicted class. Deviations: within a class that orders texts as its density does, but
  classes whose covariances have different determinants are compared by distance, not by likelihood, which has the log
  of the determinant, too; training texts are grouped by the class that the model predicts (the authors': their
  labels); a linear PCA is in place of the kernel PCA, so that what was learnt can be written down without the
  training features.
- *energy* (Liu et al. 2020): minus the log of the sum of the exponentiated logits.

The threshold lets through all but the share `false_alarms` of the training texts that were kept apart for it. The
classifier may know these texts; on new ones there are more false alarms if it was trained on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy.special import logsumexp, softmax
from sklearn.covariance import MinCovDet
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from rosewood.defences.chain import Chained
from rosewood.errors import RunError
from rosewood.models.defended import Defence, Defended, Floats, Learnt, Material, Shield, scored
from rosewood.models.features import HeadInputs
from rosewood.models.scoring import Row, Scorer
from rosewood.words.text import Words, with_case_of

APART = 5
"""Every fifth training text is kept apart for the threshold."""


@dataclass(frozen=True)
class Guarded(Defence):
    """A guard that says "suspicious" in place of a label where a text looks attacked."""

    by: Literal["frequency", "density", "energy"] = "frequency"
    false_alarms: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of clean texts that are called suspicious."""
    rare: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    """Frequency: a word with a smaller share of all words of the training texts is rare."""
    dimensions: Annotated[int, Field(ge=1)] = 50
    """Density: to how many dimensions features are reduced, at most."""
    seed: Annotated[int, Field(ge=0)] = 0

    def needs(self) -> dict[str, str]:
        texts = {"texts": "a guard learns from training texts: name a run, or a task with --task"}
        if self.by != "frequency":
            return texts
        return texts | {"substitutes": "guarded:frequency replaces rare words: name a lexicon with --lexicon"}

    def learn(self, base: Scorer, material: Material) -> Learnt:
        rows = list(material.texts)
        fit, apart = [row for i, row in enumerate(rows) if i % APART], rows[::APART]
        known = _LEARNERS[self.by](self, base, fit, material)
        _, scores = _SCORES[self.by](self, known, apart, base)
        spread = float(np.std(scores)) or 1.0
        return {"known": known, "threshold": float(np.quantile(scores, 1 - self.false_alarms)), "spread": spread}

    def start(self, learnt: Learnt) -> Shield:
        return Guarding(self, learnt)

    def refuses(self) -> bool:
        return True

    def forwards(self) -> float:
        return 2.0 if self.by == "frequency" else 1.0


class Guarding(Shield):
    """Labels, and one more output, which is the highest where the score is above the threshold."""

    def __init__(self, settings: Guarded, learnt: Learnt) -> None:
        self.settings, self.learnt = settings, learnt

    def scores(self, rows: Sequence[Row], base: Scorer) -> tuple[Floats, Floats]:
        """The logits of the classifier, and how suspicious each text is."""
        return _SCORES[self.settings.by](self.settings, self.learnt["known"], rows, base)

    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        logits, scores = self.scores(rows, base)
        above = (scores - self.learnt["threshold"]) / self.learnt["spread"]
        return np.column_stack([logits, logits.max(axis=1) + above])


class GuardDetection(NamedTuple):
    """How well a guard tells attacked texts from clean ones."""

    auroc: float
    false_alarms: float
    """Share of the clean texts that are called suspicious."""
    caught: float
    """Share of the attacked texts that are."""


def detection(model: Defended, clean: Sequence[str | Row], attacked: Sequence[str | Row]) -> GuardDetection:
    """How well a guarded model tells attacked texts from clean ones, whichever attack made them.

    Args:
        model: What `rosewood.wrap(..., "guarded:…")` gives.
        clean: Texts, or pairs of them, that nobody attacked.
        attacked: The results of an attack, such as `adversarial` of the broken examples.

    Returns:
        AUROC, and the shares of both that are called suspicious.

    Raises:
        RunError: The model has no guard, or there are no texts of one kind.

    Example:
        >>> detection(guarded, ["a good film"], ["a g00d film"]).auroc  # doctest: +SKIP
        1.0
    """
    shield = model.shield
    guard = shield.last if isinstance(shield, Chained) else shield
    if not isinstance(guard, Guarding) or not clean or not attacked:
        raise RunError("detection needs a guarded model, clean texts and attacked texts, one of each at least")
    rows: Sequence[Row] = [(text,) if isinstance(text, str) else tuple(text) for text in (*clean, *attacked)]
    scores = guard.scores(shield.written(rows) if isinstance(shield, Chained) else rows, model.base())[1]
    is_attacked = np.arange(len(rows)) >= len(clean)
    flagged = scores > guard.learnt["threshold"]
    return GuardDetection(
        float(roc_auc_score(is_attacked, scores)),
        float(flagged[~is_attacked].mean()),
        float(flagged[is_attacked].mean()),
    )


def _frequencies(settings: Guarded, base: Scorer, rows: Sequence[Row], material: Material) -> dict[str, Any]:
    counts = Counter(word.lower() for row in rows for text in row for word in Words.split(text).words)
    bound = settings.rare * counts.total()
    # Only what can ever be chosen is kept: the most frequent synonym of each word that is rare.
    best = {
        word: max(others, key=lambda other: counts[other])
        for word, others in (material.substitutes or {}).items()
        if others and counts[word] < bound
    }
    return {"replacement": {word: other for word, other in best.items() if counts[other] > counts[word]}}


def _frequency_scores(settings: Guarded, known: Any, rows: Sequence[Row], base: Scorer) -> tuple[Floats, Floats]:
    def usual(text: str) -> str:
        split = Words.split(text)
        found = known["replacement"]
        return split.join(
            [with_case_of(found[low], word) if (low := word.lower()) in found else word for word in split.words]
        )

    both = scored([*rows, *(tuple(map(usual, row)) for row in rows)], base)
    before, after = (softmax(half, axis=1) for half in np.split(both, 2))
    places = np.arange(len(rows)), before.argmax(axis=1)
    return both[: len(rows)], before[places] - after[places]


def _densities(settings: Guarded, base: Scorer, rows: Sequence[Row], material: Material) -> dict[str, Any]:
    logits, features = _features(rows, base)
    classes = logits.argmax(axis=1)
    dimensions = min(settings.dimensions, features.shape[1], len(rows) // 4)
    reduced = PCA(max(1, dimensions), random_state=settings.seed).fit(features)
    points = reduced.transform(features)
    fitted = {}
    for label in range(base.classes):
        own = points[classes == label]
        # For a class with too few texts, all texts decide.
        robust = MinCovDet(random_state=settings.seed).fit(own if len(own) > 2 * points.shape[1] else points)
        fitted[str(label)] = {"mean": robust.location_.tolist(), "precision": robust.precision_.tolist()}
    return {"centre": reduced.mean_.tolist(), "axes": reduced.components_.tolist(), "classes": fitted}


def _density_scores(settings: Guarded, known: Any, rows: Sequence[Row], base: Scorer) -> tuple[Floats, Floats]:
    logits, features = _features(rows, base)
    points = (features - np.array(known["centre"])) @ np.array(known["axes"]).T
    classes, scores = logits.argmax(axis=1), np.empty(len(rows))
    for label, fitted in known["classes"].items():
        own = classes == int(label)
        away = points[own] - np.array(fitted["mean"])
        scores[own] = ((away @ np.array(fitted["precision"])) * away).sum(axis=1)
    return logits, scores


def _features(rows: Sequence[Row], base: Scorer) -> tuple[Floats, Floats]:
    """Logits, and what the last layer sees."""
    logits = np.empty((len(rows), base.classes))
    features: dict[int, Floats] = {}
    with HeadInputs(base.model) as head:
        for batch in base.batches(list(rows)):
            logits[batch.rows] = batch.logits
            features |= dict(zip(batch.rows, head.latest().astype(np.float64), strict=True))
    return logits, np.stack([features[row] for row in range(len(rows))])


def _energies(settings: Guarded, known: Any, rows: Sequence[Row], base: Scorer) -> tuple[Floats, Floats]:
    logits = scored(rows, base)
    return logits, np.asarray(-logsumexp(logits, axis=1))


_LEARNERS: dict[str, Callable[[Guarded, Scorer, Sequence[Row], Material], dict[str, Any]]] = {
    "frequency": _frequencies,
    "density": _densities,
    "energy": lambda settings, base, rows, material: {},
}
_SCORES: dict[str, Callable[[Guarded, Any, Sequence[Row], Scorer], tuple[Floats, Floats]]] = {
    "frequency": _frequency_scores,
    "density": _density_scores,
    "energy": _energies,
}
