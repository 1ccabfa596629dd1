"""What the model says of candidates, on a scale that its confidence cannot hide.

Attacks compare *values*. By default a value is the margin, the logit of the right class less the highest other one, in
units in which the original text has CLEAN_VALUE. Multiplying all logits of a model by a positive number changes no
prediction, and it changes no value either: a model gains nothing by being sure of itself. (Probabilities of a sure
model are all 1 to the last digit, and a search among them is blind.) A margin also has the sign of the prediction, with
any number of classes: below 0 the model is wrong. Where an attack's paper weighs words or parents by probabilities,
ours takes `chances`, which are the values between 0 and 1.

The same text scores a little differently in another batch: about 2e-6 in a logit of MiniLM in float32. Substitutes that
the model cannot tell apart (two unknown words) tie exactly, and without a rule the noise of the batch would choose. So
values within `near`, a small part of the largest logit of the example so far (its distance from the mean of all
classes), are equal, and the first one wins. What is left is a difference that happens to lie at the edge: about as rare
as the noise is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

Floats = NDArray[np.float64]
Measure = Literal["margin", "probability", "raw-margin"]
"""What an attack lowers: the margin on the scale of the original text; the log-odds of the right class, in the order of
its probability; or the margin as it is."""
CLEAN_VALUE = 3.0
"""The value of the original text: a probability of 0.95 for two classes, what fine-tuned models have."""
NEAR = 1e-5
"""The part of the largest logit, less their mean, within which scores are equal."""
NEAR_IN_BFLOAT16 = 2.0**-8
"""The same where logits have eight bits; whether candidates within a few times that are wrong, float32 must say."""
DOUBTFUL = 4.0


class Scores:
    """What the model says of some candidates; `label` is the right class, `refusal` the output of a guard, if any."""

    def __init__(
        self,
        logits: Floats,
        label: int,
        measure: Measure = "margin",
        unit: float = 1.0,
        near: float = NEAR,
        slopes: Sequence[Floats] = (),
        refusal: int | None = None,
        doubt: float = -np.inf,
    ) -> None:
        self.logits = logits  # (candidates, classes)
        self._doubt = doubt
        self.measure = measure
        self.near = near
        self.slopes = [np.asarray(each / unit) for each in slopes]
        """What each edit would add to the value of its candidate, to first order, where a question asked for it."""
        self._label = label
        self._unit = unit
        self._safe = [label] if refusal is None else [label, refusal]

    def __len__(self) -> int:
        return len(self.logits)

    @cached_property
    def values(self) -> Floats:
        """What an attack lowers, `(candidates,)`; without bounds, so that nothing is hidden."""
        others = np.delete(self.logits, self._safe, axis=1)
        highest = logsumexp(others, axis=1) if self.measure == "probability" else others.max(axis=1)
        return np.asarray((self.logits[:, self._safe].max(axis=1) - highest) / self._unit)

    @property
    def chances(self) -> Floats:
        """The values as shares from 0 to 1, `(candidates,)`; if the measure is probability, that of the right class."""
        return np.asarray(expit(self.values))

    @cached_property
    def probabilities(self) -> Floats:
        """Class probabilities, as the model gives them, `(candidates, classes)`."""
        return np.asarray(softmax(self.logits, axis=1))

    @cached_property
    def predictions(self) -> NDArray[np.int64]:
        """The most probable class, `(candidates,)`; a tie goes to the first."""
        return self.logits.argmax(axis=1)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Whether the model is wrong, `(candidates,)`; a guard that calls the text suspicious is not.

        Values below `doubt` count as wrong too: whoever asks in half precision has them confirmed.
        """
        return ~np.isin(self.predictions, self._safe) | (self.values < self._doubt)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the answer is the right label, `(candidates,)`."""
        return self.predictions == self._label


class Scale:
    """Makes scores of the logits of one example; the original text, which is scored first, sets the unit."""

    def __init__(self, measure: Measure, label: int, refusal: int | None = None, near: float = NEAR) -> None:
        self._refusal = refusal
        self._near = near
        self._measure = measure
        self._label = label
        self._unit: float | None = None
        self._largest = 0.0

    def scores(self, logits: Floats, slopes: Sequence[Floats] = ()) -> Scores:
        """Logits `(candidates, classes)`, and slopes of the margin in logits, on the scale of the example."""
        # What is added to all logits changes nothing; but eight bits are eight bits of the logit as it is.
        size = logits - logits.mean(axis=1, keepdims=True) if self._near == NEAR else logits
        self._largest = max(self._largest, float(np.abs(size).max(initial=0.0)))
        if self._unit is None:
            self._unit = self._unit_of(logits)
        near = self._near * self._largest / self._unit
        doubt = -np.inf if self._near == NEAR else DOUBTFUL * near
        return Scores(logits, self._label, self._measure, self._unit, near, slopes, self._refusal, doubt)

    def _unit_of(self, clean: Floats) -> float:
        if self._measure != "margin":
            return 1.0
        margin = float(Scores(clean, self._label).values[0])
        # Not below the noise; all logits may be 0.
        return max(margin, self._near * self._largest) / CLEAN_VALUE or 1.0


def first_lowest(values: Floats, near: float) -> int:
    """The first index whose value is the lowest, or near it."""
    return int(np.argmax(values <= values.min() + near))


def highest_first(values: Floats, near: float) -> NDArray[np.int64]:
    """All indices, highest value first; a value near the next higher one counts as equal, and equals keep their order.

    Rounding would cut between equal values that lie at the edge of a step.
    """
    order = np.argsort(-values, kind="stable")
    steps = np.zeros(len(values), dtype=np.int64)
    steps[order[1:]] = np.cumsum(-np.diff(values[order]) > near)
    return np.argsort(steps, kind="stable")


def lower(value: float, than: float, near: float) -> bool:
    """Whether a value is lower, and not only near."""
    return value < than - near
