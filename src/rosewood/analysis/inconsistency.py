"""How often two dropout passes disagreed in the first steps of a run (ROSE, Table 4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from rosewood.watched import SeenInconsistency, read_seen

MILESTONES = (200, 600, 2000, 4000)  # of the paper's table


class Inconsistency(NamedTuple):
    """The share of predictions that differed, over all recorded steps up to each."""

    run: str
    steps: list[int]
    shares: list[float]

    def at(self, milestones: Sequence[int] = MILESTONES) -> dict[int, float]:
        """The share over the first N steps, for each N that the run reached, and over all of them."""
        last = self.steps[-1]
        wanted = [*sorted({each for each in milestones if each < last}), last]
        reached = {each: [step for step in self.steps if step <= each] for each in wanted}
        return {each: self.shares[len(steps) - 1] for each, steps in reached.items() if steps}


def read_inconsistency(run: str | Path) -> Inconsistency:
    """The inconsistency that a run recorded; with --watch-every k it is that of every k-th step's batch."""
    records = read_seen(run, SeenInconsistency)
    compared = accumulate(seen.compared for seen in records)
    differing = accumulate(seen.differing for seen in records)
    shares = [some / max(all_, 1) for some, all_ in zip(differing, compared, strict=True)]
    return Inconsistency(Path(run).name, [seen.step for seen in records], shares)
