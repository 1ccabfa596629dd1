"""An attack on a Ray cluster leaves the examples that it leaves in one process, byte for byte."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from datasets import Dataset

from rosewood.attacks import Gradient, Pwws
from rosewood.attacks.runner.api import prepare
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.execute import carry_out
from rosewood.attacks.runner.job import Campaign
from rosewood.attacks.runner.search import Resources
from rosewood.config.settings import AttackSettings
from rosewood.errors import RunError
from rosewood.experiments.engines import ray as ray_engine
from rosewood.experiments.engines.ray import RayBlocks, connected
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, predicted, sentences
from tiny_text import tiny_classifier, tiny_tokenizer


def campaign(method: Attack, **settings: float) -> Campaign:
    model, tokenizer, texts = tiny_classifier(), tiny_tokenizer(), sentences(20)
    data = Dataset.from_dict({"text": texts, "label": predicted(model, tokenizer, texts)})
    return prepare(
        model, tokenizer, data, method, Resources(Lexicon.of(ENTRIES)), AttackSettings.checked({"seed": 0, **settings})
    )


@pytest.mark.slow
def test_the_same_examples_as_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attack, "examples_together", 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with connected("local"):
        for method in (Pwws(), Gradient()):
            alone, spread = tmp_path / f"{method.name}-alone", tmp_path / f"{method.name}-spread"
            carry_out(campaign(method), alone, progress=False)
            carry_out(campaign(method), spread, progress=False, engine=RayBlocks(cpus=1).blocks)
            assert (spread / "examples.jsonl").read_bytes() == (alone / "examples.jsonl").read_bytes()
        with pytest.raises(RunError, match="no example was scored within max_seconds"):
            late = campaign(Pwws(), max_seconds=1e-9)
            carry_out(late, progress=False, engine=RayBlocks(cpus=1).blocks)


class Reference(tuple):  # type: ignore[type-arg]
    """A task with what it was given; as in Ray, each is a key of its own."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Here:
    """A cluster of this process alone, whose tasks run when they are given."""

    class exceptions:  # noqa: N801
        RayError = RayTaskError = KeyError

    def __init__(self, room: int = 4) -> None:
        self.room, self.cancelled, self.sent = room, list[int](), 0

    def cluster_resources(self) -> dict[str, int]:
        return {"CPU": self.room}

    def nodes(self) -> list[dict[str, object]]:
        return [{"Alive": True, "Resources": {"CPU": self.room}}]

    def put(self, thing: bytes) -> bytes:
        self.sent += 1
        return thing

    def remote(self, **_: int):  # type: ignore[no-untyped-def]
        def task(function):  # type: ignore[no-untyped-def]
            class Task:
                @staticmethod
                def remote(*given: object) -> Reference:
                    return Reference((function, *given))

            return Task

        return task

    def wait(self, pending: list[object], timeout: float) -> tuple[list[object], list[object]]:
        return pending[-1:], pending[:-1]  # the last one is done first

    def get(self, task: tuple) -> object:  # type: ignore[type-arg]
        function, *given = task
        return function(*given)

    def cancel(self, task: tuple, force: bool) -> None:  # type: ignore[type-arg]
        self.cancelled.append(task[2])


def test_blocks_may_end_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Here()

    @contextmanager
    def here(_: str) -> Iterator[Here]:
        yield cluster

    monkeypatch.setattr(Attack, "examples_together", 4)
    monkeypatch.setattr(ray_engine, "connected", here)
    carry_out(campaign(Pwws()), tmp_path / "alone", progress=False)
    carry_out(campaign(Pwws()), tmp_path / "spread", progress=False, engine=RayBlocks(cpus=1).blocks)
    assert (tmp_path / "spread/examples.jsonl").read_bytes() == (tmp_path / "alone/examples.jsonl").read_bytes()
    assert cluster.sent == 1, "the model is sent once"
    ticks: list[int] = []
    blocks = RayBlocks(cpus=1).blocks(campaign(Pwws()), [0, 1, 2], time.monotonic() + 60, lambda: ticks.append(1))
    assert next(blocks).number == 2 and len(ticks) == 4
    blocks.close()  # type: ignore[attr-defined]
    assert cluster.cancelled == [0, 1]
