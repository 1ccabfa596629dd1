"""What the page asks for, as functions from what its fields hold to the HTML that it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from rosewood.data.tasks import Task
from rosewood.errors import RosewoodError, RunError
from rosewood.playground.arms import Arms
from rosewood.playground.duel import duel
from rosewood.playground.page import answers_html, attack_html, notice_html
from rosewood.playground.sentence import ask, typed
from rosewood.playground.served import ServedRun

QUERIES = 500
MOST_QUERIES = 5000
PATIENCE = 10
"""Seconds to wait for the batch that is under way."""


@dataclass(frozen=True)
class Playground:
    """The runs, the attacks and the examples of a page; an error becomes a notice on it."""

    task: Task
    runs: Sequence[ServedRun]
    arms: Arms
    samples: Sequence[list[str]] = ()
    ended: Event = field(default_factory=Event)
    _turn: Lock = field(default_factory=Lock)  # the models serve one person at a time

    def answer(self, *texts: str) -> str:
        """What every run says of the texts."""
        try:
            with self._turn:
                return answers_html(ask(self.runs, typed(self.task, texts)), self.task.labels)
        except RosewoodError as error:
            return notice_html(str(error))

    def attack(
        self,
        texts: Sequence[str],
        field: str,
        attack: str,
        lexicon: str,
        label: str,
        queries: int | None,
        progress: Callable[[float, str], object],
    ) -> str:
        """The words that break the runs; `progress` takes a share and a sentence."""
        budget = max(1, min(int(queries or QUERIES), MOST_QUERIES))  # an emptied field is none
        order = [run.name for run in self.runs]

        def tell(run: str, scored: int) -> None:
            if self.ended.is_set():
                raise RunError("The playground has been stopped.")
            share = (order.index(run) + min(1.0, scored / budget)) / len(order)
            progress(share, f"{run}: {scored} of at most {budget} queries")

        try:
            found = typed(self.task, texts)
            progress(0.0, f"{attack}: getting ready")
            chosen, resources = self.arms.take(attack, lexicon)
            right = self.task.labels.index(label) if label in self.task.labels else None
            with self._turn:
                rounds = duel(self.runs, found, field, chosen, resources, right, budget, tell)
            return attack_html(rounds, self.task.labels, field, budget)
        except RosewoodError as error:
            return notice_html(str(error))

    def stop(self) -> None:
        """End an attack that is under way and let none begin: torch at work in a thread would crash the exit."""
        self.ended.set()
        self._turn.acquire(timeout=PATIENCE)  # and kept
