"""Runs many attempts at once, so that the model always works on full batches."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rosewood.attacks.search.attempt import Attempt
from rosewood.attacks.search.scores import Floats
from rosewood.results import AttackedExample, AttackStatus
from rosewood.scoring import Row, Scorer

# Enough pending texts to sort by length, few enough that the first examples are done early.
BATCHES_AHEAD = 16


@dataclass
class _Active:
    attempt: Attempt
    questions: Generator[list[Row], Sequence[tuple[float, ...]], AttackStatus]
    pending: list[Row]


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
    active: list[_Active] = []
    while True:
        room = BATCHES_AHEAD * scorer.batch_size - sum(len(each.pending) for each in active)
        while room > 0 and (attempt := next(waiting, None)) is not None:
            questions = attempt.questions()
            active.append(_Active(attempt, questions, next(questions)))
            room -= scorer.batch_size  # it asks for one text now, and for many next
        if not active:
            return
        logits = _score([row for each in active for row in each.pending], scorer, columns, deadline)
        if logits is None:
            yield from (each.attempt.record("out_of_time") for each in active if each.attempt.queries)
            return
        answers = iter(map(tuple, logits.tolist()))
        for each in active:
            try:
                each.pending = each.questions.send([next(answers) for _ in each.pending])
            except StopIteration as end:
                each.pending = []
                yield each.attempt.record(end.value)
        active = [each for each in active if each.pending]


def _score(rows: list[Row], scorer: Scorer, columns: Sequence[int], deadline: float | None) -> Floats | None:
    logits = np.empty((len(rows), scorer.classes))
    for batch in scorer.batches(rows):
        logits[batch.rows] = batch.logits
        if deadline is not None and time.monotonic() > deadline:
            return None
    return logits[:, columns]
