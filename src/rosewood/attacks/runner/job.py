"""A job: an attack, a model and examples in blocks, run so that the model always works on full batches."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks import TEXTATTACK
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.cases import Goal
from rosewood.attacks.runner.constraints import Constraint, edit_quality
from rosewood.attacks.runner.example import Answers, Asked, Attempt, Doubt, key
from rosewood.attacks.runner.scores import NEAR, NEAR_IN_BFLOAT16, Floats
from rosewood.attacks.runner.search import Resources
from rosewood.attacks.runner.slopes import Point, Sloped, Slopes
from rosewood.config.settings import AttackSettings
from rosewood.models.defended import Drawn
from rosewood.models.modes import evaluating
from rosewood.models.names import model_fingerprint, resource_fingerprint
from rosewood.models.scoring import Precision, Scorer, TokenScorer, is_for_tokens
from rosewood.results import AttackedExample, AttackStatus, TestFile
from rosewood.results.files import fingerprint_of
from rosewood.words.text import BETWEEN_SPACES, Words

# Enough pending texts to sort by length, few enough that the first examples are done early.
BATCHES_AHEAD = 16


@dataclass
class _Active:
    attempt: Attempt
    questions: Generator[Asked, Answers, AttackStatus]
    pending: Asked


def run(
    attempts: Iterable[Attempt],
    scorer: Scorer,
    columns: Sequence[int],
    deadline: float | None = None,
    judge: Drawn | None = None,
    draws: Drawn | None = None,
) -> Iterator[AttackedExample]:
    """Records of the attempts in the order in which they end.

    New attempts begin whenever the pending questions do not fill the batches ahead. `columns` are the model's outputs
    in the order of the labels. After the deadline (of time.monotonic) attempts under way end as out of time; those
    whose own text was not even scored, and those not begun, give no record. With `draws`, texts are scored by the mean
    of several answers; a `judge` answers doubts.
    """
    if deadline is not None and time.monotonic() > deadline:
        return
    waiting = iter(attempts)
    model = Answering(scorer, columns, judge, draws)
    active: list[_Active] = []
    while True:
        room = BATCHES_AHEAD * scorer.batch_size - sum(len(each.pending) for each in active)
        while room > 0 and (attempt := next(waiting, None)) is not None:
            questions = attempt.questions()
            active.append(_Active(attempt, questions, next(questions)))
            room -= scorer.batch_size  # it asks for one text now, and for many next
        if not active:
            return
        found = model.answers([one for each in active for one in each.pending], deadline)
        if found is None:
            yield from (each.attempt.record("out_of_time") for each in active if each.attempt.queries)
            return
        answers = iter(found)
        for each in active:
            try:
                each.pending = each.questions.send([next(answers) for _ in each.pending])
            except StopIteration as end:
                each.pending = []
                yield each.attempt.record(end.value)
        active = [each for each in active if each.pending]


class Answering:
    """A model that answers what attempts ask; `columns` are its outputs in the order of the labels."""

    def __init__(
        self, scorer: Scorer, columns: Sequence[int], judge: Drawn | None = None, draws: Drawn | None = None
    ) -> None:
        self.scorer, self.columns = scorer, list(columns)
        self._judge, self._draws = judge, draws

    def answers(self, asked: Asked, deadline: float | None = None) -> Answers | None:
        """Answers in the order of what was asked; None if time ran out."""
        found: list[Floats | Sloped] = [_NOTHING] * len(asked)
        for numbers, part in self._parts(asked):
            for number, answer in zip(numbers, part, strict=True):
                found[number] = answer
            if deadline is not None and time.monotonic() > deadline:
                return None
        return found

    def _parts(self, asked: Asked) -> Iterator[tuple[list[int], Iterable[Floats | Sloped]]]:
        """Batch by batch, which of the questions it answers, and how."""
        points = {i: one for i, one in enumerate(asked) if isinstance(one, Point)}
        doubts = {i: one.row for i, one in enumerate(asked) if isinstance(one, Doubt)}
        rows = {i: one for i, one in enumerate(asked) if i not in points and i not in doubts}
        for numbers, answers in self._scored(rows, self._draws or self.scorer):
            yield numbers, answers if self._draws is None else [each.mean(axis=0) for each in answers]
        if doubts:
            assert self._judge is not None
            yield from self._scored(doubts, self._judge)
        if points:
            of_points = list(points)
            for numbers, sloped in self._sloped(list(points.values())):
                yield [of_points[each] for each in numbers], sloped

    def _scored(self, rows: Mapping[int, Any], scorer: Scorer | Drawn) -> Iterator[tuple[list[int], list[Floats]]]:
        numbers = list(rows)
        for batch in scorer.batches(list(rows.values())):
            answers = [np.asarray(each[..., self.columns], dtype=np.float64) for each in batch.logits]
            yield [numbers[each] for each in batch.rows], answers

    def _sloped(self, points: Sequence[Point]) -> Iterator[tuple[list[int], list[Sloped]]]:
        if self._draws is None:
            yield from self._slopes.batches(points)
            return
        for number, point in enumerate(points):  # each with its own random numbers
            with self._draws.seeds(point.row):
                found = self._slopes.at([point] * self._draws.draws)
            answer, slopes = (np.mean([each[i] for each in found], axis=0) for i in (0, 1))
            yield [number], [Sloped(answer, slopes)]

    @cached_property
    def _slopes(self) -> Slopes:
        return Slopes(self.scorer, self.columns)


_NOTHING: Floats = np.zeros(0)


SEARCHES = {"gradient": 5, "worst": 5}
"""Versions of attacks, raised when one comes to search otherwise with the same settings: its results do not compare.

1: probabilities rounded to five decimals; 2: margins; 3: gradient averages its slopes; 4: and corrects them by the
texts that it asked for; 5: and takes back the weakest edits of what breaks the model."""
WITH_BUDGET = 6
"""The version of every search that has a budget of queries: it spends what is left of it on a question that is too
large, and believes what it finds there. Before, it ended there."""


def searches_of(attack: str, settings: AttackSettings) -> int:
    """The version of an attack's search."""
    version = SEARCHES.get(attack, 4)
    bounded = settings.max_queries is not None or settings.max_queries_per_word is not None
    is_ours = attack.partition(":")[0] != TEXTATTACK.removesuffix(":")
    return max(version, WITH_BUDGET) if bounded and is_ours else version


# Examples that are under way when time is up widen the bounds.
TOGETHER_IN_A_HURRY = 8


@dataclass(frozen=True)
class Campaign:
    """What is attacked, and how; it can be sent to another process.

    A block is a few examples that run together. Its outcome depends on nothing outside it, down to the last bit on
    the same machine, so blocks can be run in any order, in any process, today or after a crash.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    attack: Attack
    resources: Resources
    texts: list[dict[str, str]]  # of each example: field -> text
    goals: list[Goal]  # of each example: what is right
    columns: list[int]  # the model's outputs in the order of the labels
    field: str
    max_length: int
    data: str  # fingerprint
    settings: AttackSettings
    constraints: tuple[Constraint, ...] = ()
    task: str | None = None
    split: str | None = None
    test_file: TestFile | None = None
    protocol: str | None = None
    deviations: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()  # in the order of their numbers, where the data have names

    @property
    def refusal(self) -> int | None:
        """Which of the columns is a guard's "suspicious": a text that gets it has not fooled the model."""
        output = getattr(self.model.config, "refusal", None)
        return None if output is None else self.columns.index(output)

    @cached_property
    def blocks(self) -> list[list[int]]:
        """The rows of each block, in an order that is random but for the seed."""
        order = sorted(range(len(self.texts)), key=lambda row: (key(self.settings.seed, self.texts[row]), row))
        size = self.attack.examples_together
        if self.settings.max_seconds is not None:
            size = min(size, TOGETHER_IN_A_HURRY)
        return [order[start : start + size] for start in range(0, len(order), size)]

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What a report says of it beside the figures."""
        facts = {
            "task": self.task,
            "split": self.split,
            "data": self.data,
            "attack": self.attack.name,
            "searches": searches_of(self.attack.name, self.settings),
            "settings": self.attack.settings(),
            "lexicon": resource_fingerprint(self.resources.lexicon),
            "language_model": resource_fingerprint(self.resources.language_model),
            "encoder": resource_fingerprint(self.resources.encoder),
            **self.settings.deciding(),
        }
        if self.resources.masked_lm:  # a key without a value would part attacks from what they were before it existed
            facts["masked_lm"] = resource_fingerprint(self.resources.masked_lm)
        if self.constraints:
            facts["constraints"] = {rule.name: asdict(rule) for rule in self.constraints}
        if self.protocol:
            facts |= {"protocol": self.protocol, "deviations": list(self.deviations)}
        if self.resources.causal_lm:
            facts["causal_lm"] = resource_fingerprint(self.resources.causal_lm)
        return facts

    @cached_property
    def fingerprint(self) -> str:
        """Equal for campaigns of equal outcome; the batch size, which can change no more than a tie, is left out."""
        model = model_fingerprint(self.model, self.tokenizer)
        tagger = resource_fingerprint(self.resources.tagger)
        return fingerprint_of([self.facts, tagger, model])

    def records(self, rows: Sequence[int], deadline: float | None) -> Iterator[AttackedExample]:
        """What becomes of some examples that run together, in the order in which they end."""
        settings = self.settings
        scorer = self.scorer(self.precision)
        drawn = Drawn(scorer, settings.draws, settings.seed) if settings.draws > 1 else None
        judge = Drawn(self.scorer(), settings.draws, settings.seed, first=settings.draws) if self.doubts else None
        with evaluating(self.model):
            for example in run(self._attempts(rows, scorer), scorer, self.columns, deadline, judge, drawn):
                yield self._compared(example)

    def scorer(self, precision: Precision = "float32") -> Scorer:
        """The model as a function from texts, or from words, to logits."""
        kind = TokenScorer if is_for_tokens(self.model) else Scorer
        return kind(self.model, self.tokenizer, self.max_length, self.settings.batch_size, precision)

    @property
    def precision(self) -> Precision:
        """In which the search computes."""
        return "bfloat16" if self.settings.precision == "bfloat16" else "float32"

    @property
    def doubts(self) -> bool:
        """Whether an answer of the search must be confirmed: at random, or in half precision, it may be luck."""
        return self.settings.draws > 1 or self.precision != "float32"

    def _attempts(self, rows: Sequence[int], scorer: Scorer) -> Iterator[Attempt]:
        for row in rows:
            texts = self.texts[row]
            if isinstance(scorer, TokenScorer):
                words = Words.split(texts[self.field], BETWEEN_SPACES)
            else:
                end = scorer.visible(tuple(texts.values()), list(texts).index(self.field))
                special = self.tokenizer.all_special_tokens
                words = Words.split(texts[self.field], self.attack.word_pattern(), special, end)
            yield self._attempt(self.attack, row, words, len(words.words), self.constraints)

    def _attempt(
        self, attack: Attack, row: int, words: Words, count: int, constraints: Sequence[Constraint] = ()
    ) -> Attempt:
        return Attempt(
            attack,
            row,
            self.texts[row],
            self.field,
            words,
            self.goals[row],
            self.resources,
            self.settings.seed,
            self._max_queries(count),
            self.refusal,
            constraints,
            self.doubts,
            NEAR if self.precision == "float32" else NEAR_IN_BFLOAT16,
        )

    def _max_queries(self, words: int) -> int | None:
        """What an example of so many words may ask, its own text included."""
        each = self.settings.max_queries_per_word
        budgets = [self.settings.max_queries, None if each is None else 1 + each * words]
        return min((budget for budget in budgets if budget is not None), default=None)

    def _compared(self, example: AttackedExample) -> AttackedExample:
        """With what there is to say of the edit, if the example is broken."""
        if example.adversarial is None:
            return example
        return example.model_copy(update=edit_quality(example, self.field, self.resources))
