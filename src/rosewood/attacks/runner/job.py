"""A job: an attack, a model and examples in blocks, run so that the model always works on full batches."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.constraints import Constraint
from rosewood.attacks.runner.example import Answers, Asked, Attempt, Resources, key
from rosewood.attacks.runner.meaning import edit_quality
from rosewood.attacks.runner.slopes import Point, Sloped, Slopes
from rosewood.config.settings import AttackSettings
from rosewood.models.modes import evaluating
from rosewood.models.names import model_fingerprint, resource_fingerprint
from rosewood.models.scoring import Scorer
from rosewood.results import AttackedExample, AttackStatus, TestFile
from rosewood.results.files import fingerprint_of
from rosewood.words.text import Words

# Enough pending texts to sort by length, few enough that the first examples are done early.
BATCHES_AHEAD = 16


@dataclass
class _Active:
    attempt: Attempt
    questions: Generator[Asked, Answers, AttackStatus]
    pending: Asked


def run(
    attempts: Iterable[Attempt], scorer: Scorer, columns: Sequence[int], deadline: float | None = None
) -> Iterator[AttackedExample]:
    """Records of the attempts in the order in which they end.

    New attempts begin whenever the pending questions do not fill the batches ahead. `columns` are the model's outputs
    in the order of the labels. After the deadline (of time.monotonic) attempts under way end as out of time; those
    whose own text was not even scored, and those not begun, give no record.
    """
    if deadline is not None and time.monotonic() > deadline:
        return
    waiting = iter(attempts)
    model = Answering(scorer, columns)
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

    def __init__(self, scorer: Scorer, columns: Sequence[int]) -> None:
        self.scorer, self.columns = scorer, list(columns)

    def answers(self, asked: Asked, deadline: float | None = None) -> Answers | None:
        """Answers in the order of what was asked; None if time ran out."""
        found: list[tuple[float, ...] | Sloped] = [()] * len(asked)
        for numbers, part in self._parts(asked):
            for number, answer in zip(numbers, part, strict=True):
                found[number] = answer
            if deadline is not None and time.monotonic() > deadline:
                return None
        return found

    def _parts(self, asked: Asked) -> Iterator[tuple[list[int], Iterable[tuple[float, ...] | Sloped]]]:
        """Batch by batch, which of the questions it answers, and how."""
        rows = {i: one for i, one in enumerate(asked) if not isinstance(one, Point)}
        points = {i: one for i, one in enumerate(asked) if isinstance(one, Point)}
        of_rows, of_points = list(rows), list(points)
        for batch in self.scorer.batches(list(rows.values())):
            yield [of_rows[each] for each in batch.rows], map(tuple, batch.logits[:, self.columns].tolist())
        if points:
            for numbers, sloped in self._slopes.batches(list(points.values())):
                yield [of_points[each] for each in numbers], sloped

    @cached_property
    def _slopes(self) -> Slopes:
        return Slopes(self.scorer, self.columns)


# Raised when attacks of the same settings come to search otherwise: their results do not compare. 1: probabilities
# rounded to five decimals; 2: margins.
SEARCHES = 2
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
    labels: list[int]
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
            "searches": SEARCHES,
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
        """Equal for campaigns of equal outcome; the batch size, which can change no more than a tie, is no part."""
        model = model_fingerprint(self.model, self.tokenizer)
        tagger = resource_fingerprint(self.resources.tagger)
        return fingerprint_of([self.facts, tagger, model])

    def records(self, rows: Sequence[int], deadline: float | None) -> Iterator[AttackedExample]:
        """What becomes of some examples that run together, in the order in which they end."""
        scorer = Scorer(self.model, self.tokenizer, self.max_length, self.settings.batch_size)
        with evaluating(self.model):
            for example in run(self._attempts(rows, scorer), scorer, self.columns, deadline):
                yield self._compared(example)

    def _attempts(self, rows: Sequence[int], scorer: Scorer) -> Iterator[Attempt]:
        for row in rows:
            texts = self.texts[row]
            end = scorer.visible(tuple(texts.values()), list(texts).index(self.field))
            words = Words.split(texts[self.field], self.attack.word_pattern(), self.tokenizer.all_special_tokens, end)
            yield Attempt(
                self.attack, row, texts, self.field, words, self.labels[row], self.resources, self.settings.seed,
                self._max_queries(len(words.words)), self.refusal, self.constraints,
            )  # fmt: skip

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
