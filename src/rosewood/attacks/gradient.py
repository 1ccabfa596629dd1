"""Gradient attack: white-box, one backward pass scores every edit of every word at once.

The slope of an edit, what it would do to the margin to first order, is what HotFlip (Ebrahimi et al., ACL 2018) ranks
letters by; here it ranks whole words of a lexicon, or slips of the finger. Slopes of different words add up, so every
word takes its best edit at once, where that should help. If the model is still right, the gradient is taken there, and
every word may change again, also back. What breaks the model is trimmed: the edits of the steepest slopes that suffice,
found by halving. A text with no more edits than a backward pass is worth is asked for each of them instead.

With a wider beam, a round also goes on from texts in which only the steepest half, quarter, … of the words changed.

Deviations from HotFlip: words and their substitutes may have several tokens (`runner/slopes.py` says how these are
compared); all words change at once; candidates are scored by the model before they are believed; the gradient is the
margin's, which does not vanish where a model is sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import nn

from rosewood.attacks.runner.example import Candidate, Resources, Search, Target, move, probe, slopes
from rosewood.attacks.runner.scores import NEAR, Floats, highest_first
from rosewood.attacks.runner.slopes import BACKWARD, Edit
from rosewood.attacks.runner.substitution import Substitution
from rosewood.attacks.typos import LETTERS_CHANGED
from rosewood.models.defended import Defended
from rosewood.models.sites import site_problems
from rosewood.words.constraints import Surface
from rosewood.words.text import replaced

MIN_LETTERS = 3
"""Shorter words get no slips."""


@dataclass(frozen=True)
class Gradient(Substitution):
    """Word or letter edits, ranked by the gradient with respect to the embeddings."""

    edits: Literal["words", "characters"] = "words"
    """What may replace a word: its substitutes in the lexicon, or the word with a slip of the finger."""
    beam_width: Annotated[int, Field(ge=1)] = 1
    """Texts that each round asks for and goes on from."""
    max_rounds: Annotated[int, Field(ge=1)] = 3
    """Backward passes for each text of the beam, at most."""
    trim: bool = True
    """Change no more words than it takes, as far as a few more queries show."""
    max_words_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the words changed, at most; one word is always allowed."""
    slips: Annotated[int, Field(ge=1)] = 5
    """Slips of each kind that are drawn for a word."""

    def needs(self) -> dict[str, str]:
        return super().needs() if self.edits == "words" else {}

    def problems_with(self, model: nn.Module) -> list[str]:
        if isinstance(model, Defended):
            return [
                "the attack gradient needs gradients, and a model with a defence around it has none: choose an attack "
                "that asks for scores only, such as pwws or typos, or attack the classifier inside"
            ]
        return site_problems(model, "words", "the attack gradient")

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        if self.edits == "words":
            return super().changeable(words, resources)
        return sum(map(_long_enough, words))

    def search(self, target: Target) -> Search:
        original = target.words
        surface = target.allowed_alone(self.surface(target) if self.edits == "words" else self._misspelt(target))
        edits = _edits(original, original, surface)
        if len(edits) <= 1 + BACKWARD:
            if edits:
                yield move([replaced(original, *edit) for edit in edits])
            return
        most = max(1, int(self.max_words_share * len(original)))
        beam, seen = [original], {original}
        for _ in range(self.max_rounds):
            edits_of = [_edits(words, original, surface) for words in beam]
            found = yield slopes(beam, edits_of)
            steps = [
                step
                for words, own, values in zip(beam, edits_of, found.slopes, strict=True)
                for step in self._steps(_Step(words, _steepest(own, values)), target, most)
            ]
            new = list({step.after: step for step in steps if step.after not in seen}.values())
            if not new:
                return
            seen.update(step.after for step in new)
            scores = yield probe([step.after for step in new])
            for i in np.flatnonzero(scores.wrong):
                yield from self._broken(new[i], original, most)
            beam = [new[i].after for i in highest_first(-scores.values, scores.near)[: self.beam_width]]

    def _steps(self, whole: _Step, target: Target, most: int) -> list[_Step]:
        """As many as the beam is wide: all edits of a step, the steepest half of them, a quarter, and so on."""

        def is_allowed(step: _Step) -> bool:
            after = step.after
            return _changed(after, target.words) <= most and bool(target.allowed([after], step.words))

        allowed = whole.cut(len(whole.edits))
        while allowed.edits and not is_allowed(allowed):
            allowed = allowed.cut(len(allowed.edits) - 1)
        sizes = dict.fromkeys(len(allowed.edits) >> i for i in range(self.beam_width))
        return [step for size in sizes if size and is_allowed(step := allowed.cut(size))]

    def _broken(self, step: _Step, original: Candidate, most: int) -> Search:
        """End with the fewest of the steepest edits that break the model, if more edits always help; else with few."""
        enough, too_few = len(step.edits), 0
        while self.trim and enough - too_few > 1:
            middle = (enough + too_few) // 2
            fewer = step.cut(middle).after
            # Without an edit that takes a word back, fewer edits may be more changed words.
            breaks = _changed(fewer, original) <= most and (yield probe([fewer])).wrong[0]
            enough, too_few = (middle, too_few) if breaks else (enough, middle)
        yield move([step.cut(enough).after])

    def _misspelt(self, target: Target) -> Surface:
        rng = Random(int(target.rng.integers(2**63)))
        return [self._slips(word, rng) if _long_enough(word) else () for word in target.words]

    def _slips(self, word: str, rng: Random) -> tuple[str, ...]:
        drawn = dict.fromkeys(slip(word, rng, 1) for slip in LETTERS_CHANGED for _ in range(self.slips))
        return tuple(each for each in drawn if each != word)


class _Step(NamedTuple):
    """Some edits of a text, the steepest first, each of another word."""

    words: Candidate
    edits: Sequence[Edit]

    @property
    def after(self) -> Candidate:
        changed = list(self.words)
        for edit in self.edits:
            changed[edit.at] = edit.word
        return tuple(changed)

    def cut(self, size: int) -> _Step:
        """With so many of the steepest edits only."""
        return _Step(self.words, self.edits[:size])


def _steepest(edits: Sequence[Edit], values: Floats) -> list[Edit]:
    """The best edit of each word that should lower the margin, the steepest first; the best of all if none should."""
    near = NEAR * float(abs(values).max())
    order = highest_first(-values, near)
    best: dict[int, Edit] = {}
    for i in order:
        if values[i] < -near:
            best.setdefault(edits[i].at, edits[i])
    return list(best.values()) or [edits[order[0]]]


def _edits(words: Candidate, original: Candidate, surface: Surface) -> list[Edit]:
    """Every word that could be put in a place now, the original word included."""
    return [
        Edit(at, each)
        for at, found in enumerate(surface)
        if found
        for each in (original[at], *found)
        if each != words[at]
    ]


def _changed(words: Candidate, original: Candidate) -> int:
    return sum(a != b for a, b in zip(words, original, strict=True))


def _long_enough(word: str) -> bool:
    return sum(map(str.isalpha, word)) >= MIN_LETTERS
