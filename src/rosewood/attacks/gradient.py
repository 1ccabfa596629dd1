"""Gradient attack: white-box, one backward pass scores every edit of every word at once.

The slope of an edit, what it would do to the margin to first order, is what HotFlip (Ebrahimi et al., ACL 2018) ranks
letters by; here it ranks whole words of a lexicon, or slips of the finger. Every word takes its best edit at once,
where that should help. If the model is still right, the answer corrects what is believed of the effects of the edits
(`runner/slopes.py`), and the text that is best by then is asked for. If that text is known, effects are believed to be
better than expected, by more and more of their spread, until there is a new one. After three such texts, which cost as
much as a gradient, the gradient is taken at the best text that has none, and effects start from the mean of slopes:
a gradient at one end of a long step says little about the other.

What breaks the model is trimmed: the weakest edits are taken back, as many at once as should not matter by what is
believed of their effects, and the model is asked whether it is still wrong; each answer corrects the effects. A text
with no more edits than a backward pass is worth is asked for each of them instead.

Deviations from HotFlip: words and their substitutes may have several tokens (`runner/slopes.py` says how these are
compared); all words change at once; candidates are scored by the model before they are believed, and slopes are
corrected by what it says; the gradient is the margin's, which does not vanish where a model is sure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import nn

from rosewood.attacks.runner.attack import WordSubstitution
from rosewood.attacks.runner.scores import NEAR, Floats, first_lowest, highest_first
from rosewood.attacks.runner.search import Candidate, Resources, Search, Target, move, probe, slopes, trial
from rosewood.attacks.runner.slopes import BACKWARD, Edit, Effects
from rosewood.attacks.typos import LETTERS_CHANGED
from rosewood.models.defended import Defended
from rosewood.models.sites import site_problems
from rosewood.words.constraints import Surface
from rosewood.words.text import replaced

TRIMS = 8
"""Queries for a text with fewer edits, at most."""
OPTIMISM = 0.25
"""By what part of their spread effects are believed to be better, from one text that is known to the next."""
LEVELS = 8
"""How often they may."""
MIN_LETTERS = 3
"""Shorter words get no slips."""


@dataclass(frozen=True)
class Gradient(WordSubstitution):
    """Word or letter edits, ranked by the gradient with respect to the embeddings."""

    opens = True
    exact = True  # effects are estimated from small differences between few answers

    edits: Literal["words", "characters"] = "words"
    """What may replace a word: its substitutes in the lexicon, or the word with a slip of the finger."""
    beam_width: Annotated[int, Field(ge=1)] = 1
    """Texts that are asked for at the same time."""
    max_cost: Annotated[float, Field(gt=0)] = 4.0
    """Passes of rounds, at most, for each text of the beam, in square roots of those of asking for each edit by itself:
    24 where that takes 36, 48 where it takes 144. One round is always made."""
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
                "that asks for scores only, such as pwws, typos or worst, or attack the classifier inside"
            ]
        if not has_gradients(model):
            return [
                f"the attack gradient needs gradients, and {type(model).__name__} has none: choose an attack that asks "
                "for scores only, such as pwws, typos or worst"
            ]
        return site_problems(model, "words", "the attack gradient")

    def changeable(self, words: Sequence[str], resources: Resources) -> int:
        if self.edits == "words":
            return super().changeable(words, resources)
        return sum(map(_long_enough, words))

    def search(self, target: Target) -> Search:
        original = target.words
        surface = target.allowed_alone(self.surface(target) if self.edits == "words" else self._misspelt(target))
        edits = [Edit(at, word) for at, found in enumerate(surface) for word in found]
        if len(edits) <= 1 + BACKWARD:
            if edits:
                yield probe([original])
                yield move([replaced(original, *edit) for edit in edits])
            return
        budget = self.beam_width * self.max_cost * math.sqrt(1 + len(original) + len(edits))
        effects, base, before, spent = Effects(edits), original, 0.0, 0
        seen = {original}
        without: dict[Candidate, float] = {}  # values of texts whose gradient is not known
        while base == original or spent + (1 + BACKWARD) * (1 + self.beam_width) <= budget:
            asked = _edits_of(base, original, surface)
            found = yield slopes([base], [asked])
            spent += 1 + BACKWARD
            if base == original:
                before = float(found.values[0])
            effects.sloped(_from_the_original(edits, dict(zip(asked, found.slopes[0], strict=True)), original))
            for _ in range(1 + BACKWARD):
                new = self._new(edits, effects, seen, target)
                if not new:
                    break
                scores = yield trial([step.after for step in new])
                spent += len(new)
                for step, value, wrong in zip(new, scores.values.tolist(), scores.wrong, strict=True):
                    effects.asked(step.edits, value - before)
                    if wrong:
                        yield from self._broken(step, effects, before, target)
                    seen.add(step.after)
                    without[step.after] = value
            if not without:
                return
            base = list(without)[first_lowest(np.array(list(without.values())), scores.near)]
            del without[base]

    def _new(self, edits: Sequence[Edit], effects: Effects, seen: Collection[Candidate], target: Target) -> list[_Step]:
        """The steps that should do most, as many as the beam is wide, to texts that have not been asked for."""
        means, spreads = effects.believed()
        new: dict[Candidate, _Step] = {}
        for level in range(LEVELS):
            step = self._allowed(_best(target.words, edits, means - OPTIMISM * level * spreads), target)
            if step.edits and step.after not in seen:
                new.setdefault(step.after, step)
            if len(new) == self.beam_width:
                break
        return list(new.values())

    def _allowed(self, step: _Step, target: Target) -> _Step:
        """Without the last edits, as far as bounds and constraints do not allow all."""
        step = step.cut(max(1, int(self.max_words_share * len(target.words))))
        while step.edits and not target.allowed([step.after], target.words):
            step = step.cut(len(step.edits) - 1)
        return step

    def _broken(self, step: _Step, effects: Effects, before: float, target: Target) -> Search:
        """End with fewer edits, as far as a few queries find that they suffice; `before` is the original's value.

        The weakest edits are taken back, as many at once as should not matter. Where they do matter, half as many are
        tried next; a single edit that matters stays.
        """
        edits, needed, most = list(step.edits), set[Edit](), len(step.edits)
        for _ in range(TRIMS if self.trim else 0):
            worth = effects.of(edits)
            weakest = [i for i in highest_first(worth, NEAR).tolist() if edits[i] not in needed]
            without = before + worth.sum() - np.cumsum(worth[weakest])
            size = min(max(int((without < 0).sum()), 1), most, len(weakest), len(edits) - 1)
            if size == 0:
                break
            back = {edits[i] for i in weakest[:size]}
            fewer = [edit for edit in edits if edit not in back]
            suffice = False
            if target.allowed([after := step.with_only(fewer)], target.words):
                scores = yield trial([after])
                effects.asked(fewer, float(scores.values[0]) - before)
                suffice = bool(scores.wrong[0])
            if suffice:
                edits, most = fewer, 2 * size
            elif size == 1:
                needed |= back
            else:
                most = size // 2
        yield move([step.with_only(edits)])

    def _misspelt(self, target: Target) -> Surface:
        rng = Random(int(target.rng.integers(2**63)))
        return [self._slips(word, rng) if _long_enough(word) else () for word in target.words]

    def _slips(self, word: str, rng: Random) -> tuple[str, ...]:
        drawn = dict.fromkeys(slip(word, rng, 1) for slip in LETTERS_CHANGED for _ in range(self.slips))
        return tuple(each for each in drawn if each != word)


class _Step(NamedTuple):
    """Some edits of the original text, the best first, each of another word."""

    words: Candidate
    edits: Sequence[Edit]

    @property
    def after(self) -> Candidate:
        return self.with_only(self.edits)

    def with_only(self, edits: Sequence[Edit]) -> Candidate:
        """The text with these of its edits."""
        changed = list(self.words)
        for edit in edits:
            changed[edit.at] = edit.word
        return tuple(changed)

    def cut(self, size: int) -> _Step:
        """With so many of the best edits only."""
        return _Step(self.words, self.edits[:size])


def has_gradients(model: nn.Module) -> bool:
    """Whether a model can be differentiated: not with a defence around it, nor if it runs outside torch, as ONNX."""
    return not isinstance(model, Defended) and next(model.parameters(), None) is not None


def _best(words: Candidate, edits: Sequence[Edit], values: Floats) -> _Step:
    """The best edit of each word that should lower the margin, the best first; the best of all if none should."""
    near = NEAR * float(abs(values).max())
    order = highest_first(-values, near)
    best: dict[int, int] = {}
    for i in order.tolist():
        if values[i] < -near:
            best.setdefault(edits[i].at, i)
    chosen = list(best.values()) or [int(order[0])]
    return _Step(words, [edits[i] for i in chosen])


def _edits_of(words: Candidate, original: Candidate, surface: Surface) -> list[Edit]:
    """Every word that could be put in a place now, the original word included."""
    return [
        Edit(at, each)
        for at, found in enumerate(surface)
        if found
        for each in (original[at], *found)
        if each != words[at]
    ]


def _from_the_original(edits: Sequence[Edit], slopes: Mapping[Edit, float], original: Candidate) -> Floats:
    """Slopes of edits as steps from the original words, from those as steps from the words that are there now."""
    return np.array([slopes.get(edit, 0.0) - slopes.get(Edit(edit.at, original[edit.at]), 0.0) for edit in edits])


def _long_enough(word: str) -> bool:
    return sum(map(str.isalpha, word)) >= MIN_LETTERS
