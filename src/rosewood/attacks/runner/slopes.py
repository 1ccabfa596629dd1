"""Slopes: what each edit of a text would do to the margin, to first order, from one backward pass for all edits.

The slope of replacing a word is the sum over its tokens of (vector of the new token - vector of the old one) times the
gradient of the margin with respect to the old one's vector. A substitute with more or fewer tokens than the word is
stretched evenly over the word's tokens (`words/alignment.py`): a place may hold a mixture, whose vector is the mean.

The gradient is that of the margin, not of a loss: it does not vanish where a model is sure. In an encoder-decoder model
it goes through the encoder only.

Effects: what each edit does to the value of a text, believed from slopes and corrected by the texts that were asked.

Effects of different edits are taken to add up. Before any answer the effect of an edit is a normal variable around its
slope, or around the mean of its slopes at several texts. Slopes are poor: the spread is as wide as the slopes of the
word's edits are large, wider for a steep edit, and never zero, because a model may be flat in the direction of a word
and still depend on it. The value of a text says what the sum of its edits' effects is, but for noise, since effects do
not add up exactly. Given some values, what is believed of the effects is linear regression with a normal prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import BatchEncoding

from rosewood.attacks.runner.cases import Goal
from rosewood.attacks.runner.scores import Floats
from rosewood.errors import RunError
from rosewood.models.scoring import Row, Scorer, TokenScorer
from rosewood.models.sites import Site, word_embedding
from rosewood.words.alignment import Speller, Token, covering, stretched

Covered = Mapping[int, Sequence[Token]]
"""The tokens of each word that has some."""

BACKWARD = 2
"""Forward passes that a backward pass is worth."""


class Edit(NamedTuple):
    """Another word in the place of a word."""

    at: int
    word: str


class Point(NamedTuple):
    """A text of an example, and the edits whose slopes are asked for."""

    row: Row
    field: int  # which of the texts has the words
    words: Sequence[str]
    spans: Sequence[tuple[int, int]]  # of the words
    goal: Goal
    edits: Sequence[Edit]


class Sloped(NamedTuple):
    """What there is to know at a point: the model's answer in the order of the labels, and slopes `(edits,)`."""

    answer: Floats
    slopes: Floats


class Slopes:
    """A model and its tokenizer as a function from points to slopes of the margin."""

    def __init__(self, scorer: Scorer, columns: Sequence[int]) -> None:
        if not scorer.tokenizer.is_fast:
            raise RunError(
                f"a gradient attack needs to know the tokens of each word, and "
                f"{type(scorer.tokenizer).__name__} cannot say: use a fast tokenizer (use_fast=True), or another attack"
            )
        self._scorer, self._columns = scorer, list(columns)
        self._site = Site("words", scorer.model)
        self._vectors = word_embedding(scorer.model)
        self._speller = Speller(scorer.tokenizer)
        self._by_word = isinstance(scorer, TokenScorer)

    def batches(self, points: Sequence[Point]) -> Iterator[tuple[list[int], list[Sloped]]]:
        """Batch by batch: which of the points, and what was found there."""
        order = sorted(range(len(points)), key=lambda number: -sum(map(len, points[number].row)))
        size = self._scorer.batch_size
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            yield numbers, self.at([points[number] for number in numbers])

    def at(self, points: list[Point]) -> list[Sloped]:
        """What there is to know at some points, in one batch."""
        columns = [list(column) for column in zip(*(point.row for point in points), strict=True)]
        scorer = self._scorer
        encoded = scorer.tokenizer(
            *columns,
            truncation=True,
            max_length=scorer.max_length,
            padding=True,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        offsets = encoded.pop("offset_mapping").tolist()
        batch = encoded.to(scorer.model.device)
        covered = []
        for row, point in enumerate(points):
            sides = encoded.sequence_ids(row)
            own = [span if side == point.field else None for span, side in zip(offsets[row], sides, strict=True)]
            covered.append(covering(point.row[point.field], point.spans, own))
        answers, vectors, gradients = self._backward(batch, points, covered)
        if (
            not all(np.isfinite(answer[~np.isnan(answer)]).all() for answer in answers)
            or not gradients.isfinite().all()
        ):
            raise RunError("the model's scores or gradients are not finite numbers; its training has likely diverged.")
        return [
            Sloped(
                answers[row],
                self._slopes(point, batch["input_ids"][row].tolist(), covered[row], vectors[row], gradients[row]),
            )
            for row, point in enumerate(points)
        ]

    def _backward(
        self, batch: BatchEncoding, points: Sequence[Point], covered: Sequence[Covered]
    ) -> tuple[list[Floats], Tensor, Tensor]:
        """The answer at each point; the tokens' vectors and the margin's gradient there, `(points, tokens, size)`."""
        reached: list[Tensor] = []

        def leaf(vectors: Tensor) -> Tensor:
            reached.append(vectors.detach().requires_grad_())
            return reached[0]

        with torch.enable_grad(), self._site.changed(leaf), self._scorer.computing():
            logits: Tensor = self._scorer.model(**batch).logits[..., self._columns].float()
            if self._by_word:
                answers = [
                    _of_words(each, len(p.words), own) for each, p, own in zip(logits, points, covered, strict=True)
                ]
            else:
                answers = list(logits)
            margins = [point.goal.margin(answer) for point, answer in zip(points, answers, strict=True)]
            (gradients,) = torch.autograd.grad(torch.stack(margins).sum(), reached)
        plain = [np.asarray(answer.detach().double().cpu().numpy()) for answer in answers]
        return plain, reached[0].detach(), gradients

    @torch.no_grad()
    def _slopes(
        self, point: Point, ids: list[int], covered: Covered, vectors: Tensor, gradients: Tensor
    ) -> NDArray[np.float64]:
        new: list[tuple[int, int, int, float]] = []  # edit, place, token, share
        base = (vectors * gradients).sum(dim=1).double().cpu().numpy()
        slopes = np.zeros(len(point.edits))
        for at, numbers in _by_word(point.edits).items():
            places = [token.place for token in covered.get(at, ())]
            if not places:  # the model does not see the word
                continue
            slopes[numbers] -= base[places].sum()
            own = tuple(ids[place] for place in places)
            for number, tokens in zip(numbers, self._tokens(point, at, own, numbers), strict=True):
                new += [(number, places[j], token, share) for j, token, share in stretched(tokens, len(places))]
        if new:
            owners, spots, ids_of, shares = (list(column) for column in zip(*new, strict=True))
            vectors_of = self._vectors(torch.tensor(ids_of, device=gradients.device))
            values = (vectors_of * gradients[spots]).sum(dim=1).double().cpu().numpy()
            np.add.at(slopes, owners, np.array(shares) * values)
        return slopes

    def _tokens(self, point: Point, at: int, own: tuple[int, ...], numbers: list[int]) -> Iterator[tuple[int, ...]]:
        """The tokens of the words that these edits put in one place."""
        before = point.row[point.field][: point.spans[at][0]]
        words = [point.edits[number].word for number in numbers]
        for word, tokens in zip(words, self._speller.spell(before, point.words[at], own, words), strict=True):
            yield self._speller.alone(word) if tokens is None else tokens


def _of_words(logits: Tensor, words: int, covered: Covered) -> Tensor:
    """The logits of the first token of each word, `(words, labels)`; NaN where there is none."""
    found = logits.new_full((words, logits.shape[-1]), torch.nan)
    seen = list(covered)
    return found.index_put((torch.tensor(seen, device=logits.device),), logits[[covered[at][0].place for at in seen]])


def _by_word(edits: Sequence[Edit]) -> dict[int, list[int]]:
    """The numbers of the edits of each word."""
    found: dict[int, list[int]] = {}
    for number, edit in enumerate(edits):
        found.setdefault(edit.at, []).append(number)
    return found


# In units in which the original text has CLEAN_VALUE; chosen on training sentences of SST-2.
SPREAD = 0.3
"""The spread of an effect where all slopes are 0."""
STEEPNESS = 0.5
"""What the spread grows with the edit's own slope."""
NOISE = 0.5
"""How far the value of a text is from the sum of effects."""


class Effects:
    """What is believed of the effects of some edits of a text."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._numbers = {edit: number for number, edit in enumerate(edits)}
        self._places = np.array([edit.at for edit in edits], dtype=np.int64)
        self._slopes: list[Floats] = []
        self._texts: list[Floats] = []
        self._changes: list[float] = []

    def sloped(self, slopes: Floats) -> None:
        """Slopes of all edits, at one more text."""
        self._slopes.append(slopes)

    def asked(self, edits: Sequence[Edit], change: float) -> None:
        """The value of the text with these edits, less that of the original."""
        text = np.zeros(len(self._places))
        text[[self._numbers[edit] for edit in edits]] = 1.0
        self._texts.append(text)
        self._changes.append(change)

    def of(self, edits: Sequence[Edit]) -> Floats:
        """The mean of the effect of each of some edits."""
        means, _ = self.believed()
        return means[[self._numbers[edit] for edit in edits]]

    def believed(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each effect."""
        means = np.mean(self._slopes, axis=0)
        squares, counts = np.bincount(self._places, means**2), np.bincount(self._places)
        of_words = np.sqrt(squares / np.maximum(counts, 1))
        variances = (SPREAD + STEEPNESS * abs(means) + of_words[self._places]) ** 2
        if not self._texts:
            return means, np.sqrt(variances)
        texts = np.array(self._texts)
        together = texts * variances  # (texts, edits): covariances
        gains = np.linalg.solve(together @ texts.T + NOISE**2 * np.eye(len(texts)), together)
        missed = np.array(self._changes) - texts @ means
        left = variances - (together * gains).sum(axis=0)
        return means + missed @ gains, np.sqrt(np.maximum(left, 0.0))
