"""From a time budget and measured costs to a race: successive halving in which all candidates get the same time.

In each stage the better half goes on, and every stage doubles the training of those in it. A cheap recipe takes more
steps in the same time. The plan is made once, before the first candidate trains, and written down: what is measured
later makes the race shorter at most, never different.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil, isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from rosewood.errors import ExperimentError
from rosewood.experiments.harden.stage import NOISE
from rosewood.results import Costs, Schedule
from rosewood.results.files import write_whole
from rosewood.training.callbacks import StepTimes
from rosewood.training.run import Plan, start_run

USED = 0.9
"""The share of the budget that is planned; the rest is for what takes longer than it did when it was measured."""
HARDER = 1.5
"""How much longer attacks take on a hardened model: they end early only where they succeed."""
FINALISTS = 2
LEAST_STEPS = 4
"""Optimiser steps of a candidate's first stage, at least."""
FEWEST_ROWS, MOST_ATTACKED, MOST_TEST, MOST_MIXTURES = 50, 300, 500, 6
TEST_SHARE, MEASURING_SHARE, TRAINING_SHARE = 0.2, 0.3, 0.4
"""Shares of the remaining time: for the test rows, for attacks on held-out rows, and at least for training. If attacks
take too long for that, fewer candidates race."""
CLEAN_PER_ATTACKED = 5
"""Test rows that are read without an attack, and under each noise, for one that is attacked."""
MOST_EPOCHS = 10
CLOCK, BEAT = "clock.json", 5.0
"""Where the time that was spent is written down, and the seconds between one time and the next."""
TIMED_STEPS = 3
_BUDGET = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


@dataclass
class Stopwatch:
    """How long things take; tests replace it by one that counts."""

    before: float = 0.0
    """Seconds that earlier starts of the same hardening have spent."""
    began: float = field(default_factory=time.monotonic)

    def spent(self, output: Path) -> float:
        """Seconds since the first start, without those between one start and the next."""
        return self.before + time.monotonic() - self.began

    def step(self, plan: Plan, candidate: str) -> float:
        """Seconds of an optimiser step, from a few real ones."""
        ends = StepTimes()
        rows = (TIMED_STEPS + 1) * plan.training_arguments()["per_device_train_batch_size"]
        arguments = plan.arguments | {"max_steps": TIMED_STEPS + 1}
        with TemporaryDirectory() as folder:
            start_run(
                plan.model_copy(update={"arguments": arguments, "train_size": min(rows, plan.train_size or rows)}),
                Path(folder) / "run",
                callbacks=[ends],
            )
        return ends.seconds()

    def of(self, what: str, seconds: float) -> float:
        """Seconds of a row, or until work begins, as they were measured; `what` is the field of `Costs`."""
        return seconds


@contextmanager
def ticking(watch: Stopwatch, output: Path, identity: str) -> Iterator[None]:
    """Write down every few seconds what has been spent, so that a kill in a long stage loses none of the count."""
    ended = Event()

    def beat() -> None:
        with suppress(OSError):  # a file that comes or goes, a full disk: the next beat counts it
            write_whole(output / CLOCK, json.dumps({"identity": identity, "spent": round(watch.spent(output), 3)}))

    def beats() -> None:
        while not ended.wait(BEAT):
            beat()

    clock = Thread(target=beats, daemon=True)
    clock.start()
    try:
        yield
    finally:
        ended.set()
        clock.join()
        beat()


def counted(output: Path, identity: str) -> float:
    """Seconds that earlier starts of the same hardening have spent, until the last beat of their clock."""
    try:
        found = json.loads((output / CLOCK).read_text(encoding="utf-8"))
        return float(found["spent"]) if found["identity"] == identity else 0.0
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def seconds_of(budget: str | float) -> float:
    """A time such as `2h`, `90m`, `1h30m` or `300`, in seconds.

    >>> seconds_of("1h30m"), seconds_of("45s"), seconds_of(300)
    (5400.0, 45.0, 300.0)
    """
    found = _BUDGET.fullmatch(str(budget).replace(" ", "").lower())
    value = found and sum(
        float(part) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True) if part is not None
    )
    if not value or not isfinite(value):
        raise ExperimentError(f"a budget is a time such as 2h, 90m, 1h30m or 300 (seconds), got {budget!r}")
    return float(value)


def halved(entrants: int) -> list[int]:
    """How many candidates are in each stage.

    >>> halved(6), halved(3), halved(2), halved(1)
    ([6, 3, 2], [3, 2], [2, 1], [1])
    """
    found = [entrants]
    while found[-1] > (FINALISTS if entrants > FINALISTS else 1):
        found.append(max(FINALISTS if entrants > FINALISTS else 1, ceil(found[-1] / 2)))
    return found


def shares(stages: int) -> list[float]:
    """The part of its whole training that a candidate has had at the end of each stage.

    >>> shares(3)
    [0.25, 0.5, 1.0]
    """
    return [0.5 ** (stages - 1 - stage) for stage in range(stages)]


def planned(
    budget: float,
    spent: float,
    costs: Costs,
    entrants: Sequence[str],
    rows: dict[str, int],
    around: int,
    untrained: int,
    attacks: int = 1,
) -> Schedule:
    """The race that fits the time that is left.

    Args:
        budget: Seconds for everything.
        spent: Seconds that are gone.
        costs: What things were measured to take.
        entrants: The candidates that are trained, the most promising first; the last are left out if time is short.
        rows: How many there are: `choosing`, and `steps`, the steps of one pass over the training rows.
        around: Defences that are put around the model as it is, before anything is trained.
        untrained: Candidates that could be made of the finalists without training.
        attacks: How often test rows are attacked.

    Raises:
        ExperimentError: not even one candidate fits.
    """
    left = USED * budget - spent
    most = min(untrained, MOST_MIXTURES)
    races = [(count, mixtures) for count in range(len(entrants), 0, -1) for mixtures in range(most, 0, -1)]
    # What is made without training costs little: one at least, if it fits.
    plans = [(*race, TRAINING_SHARE) for race in (*races, (1, 0))]
    for count, mixtures, share in [*plans, (1, 1, 0.0), (1, 0, 0.0)]:
        found = _fitting(left, costs, list(entrants[:count]), rows, around, mixtures, share, attacks)
        if found is not None:
            return found
    least = _least(costs, entrants[0], around, attacks)
    raise ExperimentError(
        f"the budget is too short: {budget:.0f} s, of which {spent:.0f} s are spent, and one candidate takes about "
        f"{least:.0f} s more. Give --budget {ceil((spent + least) / USED / 60)}m or more, fewer threats, "
        "or fewer tokens per text (--max-length)"
    )


def _fitting(
    left: float,
    costs: Costs,
    entrants: list[str],
    rows: dict[str, int],
    around: int,
    mixtures: int,
    share: float,
    attacks: int,
) -> Schedule | None:
    keep, parts = halved(len(entrants)), shares(len(halved(len(entrants))))
    row = HARDER * max(costs.attacked_row, 1e-9)
    measurements = 1 + around + sum(keep) + mixtures
    test_rows = _between(FEWEST_ROWS, TEST_SHARE * left / (2 * attacks * row), MOST_TEST)
    fewest, most = (min(bound, rows["choosing"]) for bound in (FEWEST_ROWS, MOST_ATTACKED))
    attacked = _between(fewest, MEASURING_SHARE * left / (measurements * row), most)
    fixed = measurements * measurement_seconds(costs, rows["choosing"], attacked)
    fixed += judging_seconds(costs, test_rows, attacks)
    trainings = sum(count * (part - before) for count, part, before in zip(keep, parts, [0.0, *parts], strict=False))
    whole = max(0.0, left - fixed) / trainings  # seconds of training for a finalist
    limit = MOST_EPOCHS * rows["steps"]
    steps = {
        name: [round(part * min(limit, whole / max(costs.steps[name], 1e-9))) for part in parts] for name in entrants
    }
    is_short = left - fixed < share * left and any(each[-1] < limit for each in steps.values())
    if is_short or any(each[0] < min(LEAST_STEPS, limit) for each in steps.values()):
        return None
    training = trainings * max(costs.steps[name] * each[-1] for name, each in steps.items())
    return Schedule(
        entrants=entrants,
        keep=keep,
        steps=steps,
        clean_rows=rows["choosing"],
        attacked_rows=attacked,
        mixtures=mixtures,
        test_rows=test_rows,
        seconds=fixed + training,
    )


def measurement_seconds(costs: Costs, clean_rows: int, attacked_rows: int) -> float:
    """The time to measure one candidate on held-out rows, from start to end."""
    return costs.begin + clean_rows * costs.clean_row + attacked_rows * costs.attacked_row * HARDER


def stage_seconds(schedule: Schedule, costs: Costs, stage: int, count: int) -> float:
    """The time of a stage, counted from 1, with so many candidates; in stage 0 nothing is trained."""
    measuring = count * measurement_seconds(costs, schedule.clean_rows, schedule.attacked_rows)
    if stage == 0:
        return measuring
    parts = [0.0, *shares(len(schedule.keep))]
    whole = max(costs.steps[name] * steps[-1] for name, steps in schedule.steps.items())
    return measuring + count * whole * (parts[stage] - parts[stage - 1])


def judging_seconds(costs: Costs, rows: int, attacks: int = 1) -> float:
    """The time to measure the start and the winner on test rows, noise included."""
    clean = CLEAN_PER_ATTACKED * (1 + len(NOISE.kinds))
    return 2 * (costs.begin + rows * (attacks * costs.attacked_row * HARDER + clean * costs.clean_row))


def judged_within(costs: Costs, seconds: float, attacks: int = 1) -> int:
    """The test rows on which the start and the winner can be measured in so many seconds."""
    begin = judging_seconds(costs, 0)
    row = judging_seconds(costs, 1, attacks) - begin
    return _between(FEWEST_ROWS, (seconds - begin) / max(row, 1e-9), MOST_TEST)


def _least(costs: Costs, entrant: str, around: int, attacks: int) -> float:
    measuring = (2 + around) * measurement_seconds(costs, FEWEST_ROWS, FEWEST_ROWS)
    return measuring + LEAST_STEPS * costs.steps[entrant] + judging_seconds(costs, FEWEST_ROWS, attacks)


def _between(low: int, value: float, high: int) -> int:
    return int(max(low, min(value, high)))
