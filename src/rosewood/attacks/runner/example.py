"""One example under attack: its questions to the model, its memory, its budget and its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rosewood.attacks.runner.cases import Goal, Outputs
from rosewood.attacks.runner.constraints import Constraint
from rosewood.attacks.runner.scores import NEAR, Floats, Scale, Scores
from rosewood.attacks.runner.search import Candidate, OutOfQueriesError, Question, Resources, Search, Target
from rosewood.attacks.runner.slopes import BACKWARD, Edit, Point, Sloped
from rosewood.models.scoring import Row
from rosewood.results import AttackedExample, AttackStatus, ChangedWord
from rosewood.words.text import Words

if TYPE_CHECKING:
    from rosewood.attacks.runner.attack import Attack


# Words kept in memory for an example: all candidates of a search on sentences, about 40 MB at worst on documents.
REMEMBERED_WORDS = 2_000_000


class Doubt(NamedTuple):
    """A text whose answer decides a figure: it is asked for again, of new draws, in full precision."""

    row: Row


Asked = Sequence[Row | Point | Doubt]
"""Texts that the model must score, points where slopes are asked for, and texts that must be confirmed."""
Answers = Sequence[Floats | Sloped]
"""For each text, the model's answer in the order of the labels; for each point, what was found there; for each doubt,
the answer of each draw."""


class Known(NamedTuple):
    """What the model says of a candidate."""

    outputs: Outputs
    predicted: tuple[int, ...] = ()


class Verdict(NamedTuple):
    """What is believed of a text: whether it is wrong, and what results say of it."""

    wrong: bool
    prediction: int
    probabilities: list[float]
    predicted: tuple[int, ...] = ()


class _Success(NamedTuple):
    """A text that the model got wrong and that the attack accepts."""

    candidate: Candidate
    outputs: Floats
    asker: str | None


class Attempt:
    """An attack on one example. `questions` yields what is asked of the model and gets the answers."""

    def __init__(
        self,
        attack: Attack,
        row: int,
        texts: dict[str, str],
        field: str,
        words: Words,
        goal: Goal,
        resources: Resources,
        seed: int,
        max_queries: int | None,
        refusal: int | None = None,
        constraints: Sequence[Constraint] = (),
        doubts: bool = False,
        near: float = NEAR,
    ) -> None:
        self.row = row
        self.queries = 0
        self._attack = attack
        self._texts = texts
        self._field = field
        self._words = words
        self._goal = goal
        self._resources = resources
        self._seed = seed
        self._max_queries = max_queries
        self._refusal = refusal
        self._constraints = constraints
        self._doubts = doubts
        self._memory: dict[Candidate, Known] = {}
        self._scale = Scale(attack.measure(), goal.label, refusal, near)
        self._clean = Scores(np.zeros((0, 2)), goal.label)
        self._before: Verdict | None = None
        self._broken_by: tuple[Candidate, Verdict] | None = None
        self._asker: str | None = None
        self._disbelieved: set[Candidate] = set()

    def questions(self) -> Generator[Asked, Answers, AttackStatus]:
        """The protocol of every attack; the subclass of `Attack` writes only the search."""
        original = self._words.words
        target = Target(
            self._words,
            self._goal.label,
            self._clean,
            self._resources,
            generator(self._seed, self._texts),
            self._constraints,
            self._max_queries is not None,
        )
        search = self._attack.search(target) if self._attack.opens else None
        opening = None if search is None else next(search, None)
        is_open = opening is not None and self._affordable(opening) is opening
        self._clean = yield from self._ask(opening if opening is not None and is_open else Question([original]))
        self._before = yield from self._verdict(original, self._clean.logits[0])
        if self._before.prediction != self._goal.label:
            return "wrong"
        if search is None:
            search = self._attack.search(replace(target, clean=self._clean))
            question = next(search, None)
        elif is_open:
            question = _next(search, self._clean)
        else:
            question = opening
        is_cut, spare = False, list[_Success]()
        while question is not None:
            asked = self._affordable(question)
            is_cut |= asked is not question
            if asked is None:
                question = _refused(search)
                continue
            scores = yield from self._ask(asked)
            wrong = np.flatnonzero(scores.wrong).tolist() if asked.moves or asked.trials else ()
            found = [_Success(asked.candidates[i], scores.logits[i], asked.asker) for i in wrong]
            if asked.moves and (yield from self._believed(found, target)):
                return "broken"
            if asked.trials and target.bounded:
                spare = [*found, *spare]
            question = _next(search, scores) if asked is question else None
        # So that a larger budget never breaks less: whatever it asks for beside is one text more that may do.
        if (yield from self._believed(spare, target)):
            return "broken"
        return "out_of_queries" if is_cut else "robust"

    def _believed(self, found: Sequence[_Success], target: Target) -> Generator[Asked, Answers, bool]:
        """Whether one of these is a success, which then is how the example was broken."""
        for candidate, outputs, asker in found:
            if candidate in self._disbelieved or not target.allowed([candidate], last=candidate):
                continue
            verdict = yield from self._verdict(candidate, outputs)
            if verdict.wrong:
                self._asker = asker
                self._broken_by = candidate, verdict
                return True
            self._disbelieved.add(candidate)
        return False

    def _verdict(self, candidate: Candidate, outputs: Floats) -> Generator[Asked, Answers, Verdict]:
        """What is believed of a candidate with these outputs: just that, or what a majority of new answers says."""
        found = [self._memory.get(candidate, Known(tuple(outputs)))]
        if self._doubts:
            (answers,) = yield [Doubt(self._row(candidate))]
            assert not isinstance(answers, Sloped)
            found = [self._known(each) for each in answers]
        scores = Scores(np.array([each.outputs for each in found]), self._goal.label, refusal=self._refusal)
        wrong = 2 * int(scores.wrong.sum()) > len(found)
        agreeing = scores.predictions[scores.wrong] if wrong else scores.predictions
        prediction, _ = Counter(agreeing.tolist()).most_common(1)[0]
        predicted, _ = Counter(each.predicted for each in found).most_common(1)[0]
        return Verdict(wrong, prediction, scores.probabilities.mean(axis=0).tolist(), predicted)

    def record(self, status: AttackStatus) -> AttackedExample:
        """What there is to say once it is over, or was cut off."""
        before = self._before or Verdict(False, int(self._clean.predictions[0]), self._clean.probabilities[0].tolist())
        shared: dict[str, Any] = {
            "row": self.row,
            "status": status,
            "label": self._goal.label,
            "texts": self._texts,
            "prediction": before.prediction,
            "probabilities": before.probabilities,
            "about_words": list(self._goal.words()),
            "expected": list(self._goal.expected()),
            "predicted": list(before.predicted),
            "words": len(self._words.words),
            "changeable": self._attack.changeable(self._words.words, self._resources),
            "queries": self.queries,
        }
        if self._broken_by is None:
            return AttackedExample(**shared)
        candidate, after = self._broken_by
        pairs = zip(self._words.words, candidate, strict=True)
        return AttackedExample(
            **shared,
            broken_by=self._asker,
            adversarial=self._words.join(candidate),
            adversarial_prediction=after.prediction,
            adversarial_probabilities=after.probabilities,
            adversarial_predicted=list(after.predicted),
            changes=[ChangedWord(position=i, before=a, after=b) for i, (a, b) in enumerate(pairs) if a != b],
            aligned=self._words.aligned(candidate),
        )

    def _missing(self, question: Question) -> list[Candidate]:
        memory = self._memory
        return [candidate for candidate in dict.fromkeys(question.candidates) if candidate not in memory]

    def _affordable(self, question: Question) -> Question | None:
        """What the rest of the budget pays for: the question, or its first texts; of slopes all or nothing."""
        if self._max_queries is None:
            return question
        left = self._max_queries - self.queries
        if question.edits is not None:
            return question if (1 + BACKWARD) * len(question.candidates) <= left else None
        beyond = set(self._missing(question)[left:])
        if not beyond:
            return question
        return question._replace(candidates=[each for each in question.candidates if each not in beyond])

    def _ask(self, question: Question) -> Generator[Asked, Answers, Scores]:
        if question.edits is not None:
            return (yield from self._ask_slopes(question.candidates, question.edits))
        missing = self._missing(question)
        answers = (yield [self._row(each) for each in missing]) if missing else ()
        self.queries += len(missing)
        memory = self._memory
        memory |= {
            each: self._known(answer)
            for each, answer in zip(missing, answers, strict=True)
            if not isinstance(answer, Sloped)
        }
        found: Floats = self._clean.logits[:0]
        if question.candidates:
            found = np.array([memory[candidate].outputs for candidate in question.candidates], dtype=np.float64)
        while len(memory) * len(self._words.words) > REMEMBERED_WORDS:
            del memory[next(iter(memory))]
        return self._scale.scores(found)

    def _ask_slopes(
        self, candidates: Sequence[Candidate], edits: Sequence[Sequence[Edit]]
    ) -> Generator[Asked, Answers, Scores]:
        field = list(self._texts).index(self._field)
        found = yield [
            Point(self._text(words), field, words, self._words.spans(words), self._goal, own)
            for words, own in zip(candidates, edits, strict=True)
        ]
        self.queries += (1 + BACKWARD) * len(candidates)
        sloped = [each for each in found if isinstance(each, Sloped)]
        known = [self._known(each.answer) for each in sloped]
        self._memory |= dict(zip(candidates, known, strict=True))
        return self._scale.scores(np.array([each.outputs for each in known]), [each.slopes for each in sloped])

    def _known(self, answer: Floats) -> Known:
        return Known(self._goal.outputs(answer), self._goal.predicted(answer))

    def _row(self, candidate: Candidate) -> Row:
        """What the scorer reads: words, if they have labels of their own, else texts."""
        return candidate if self._goal.words() else self._text(candidate)

    def _text(self, candidate: Candidate) -> Row:
        texts = self._texts | {self._field: self._words.join(candidate)}
        return tuple(texts.values())


def _next(search: Search, scores: Scores) -> Question | None:
    """What a search asks next; None if it is out of ideas."""
    try:
        return search.send(scores)
    except StopIteration:
        return None


def _refused(search: Search) -> Question | None:
    """What a search asks in place of slopes that it cannot have; None if it is at an end."""
    try:
        return search.throw(OutOfQueriesError())
    except (OutOfQueriesError, StopIteration):
        return None


def generator(seed: int, texts: dict[str, str]) -> np.random.Generator:
    """Random numbers that depend on the seed and the texts alone, not on the order or the number of examples."""
    return np.random.default_rng(key(seed, texts))


def key(seed: int, texts: dict[str, str]) -> int:
    """A number that identifies an example under a seed."""
    return int.from_bytes(sha256(repr((seed, *texts.values())).encode()).digest()[:16], "little")
