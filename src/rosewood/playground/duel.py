"""One sentence under attack, run by run: the words that make a run change its mind, and whether others keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

from datasets import ClassLabel, Dataset, Features, Value
from transformers import PreTrainedModel

from rosewood.attacks.search.prepare import prepare
from rosewood.attacks.search.resources import Resources
from rosewood.playground.sentence import Answer, ask
from rosewood.playground.served import ServedRun
from rosewood.protocol import Attack
from rosewood.results import AttackedExample

Stand = Literal["falls", "holds", "wrong before"]
Tell = Callable[[str, int], None]
"""Told of every batch: the run that is attacked, and how many texts it has scored by then."""


class Reply(NamedTuple):
    """What a run says of words that were found against one of them."""

    answer: Answer
    stand: Stand


class Round(NamedTuple):
    """The attack on one run, and what all of them say of the words that it found."""

    run: str
    example: AttackedExample
    replies: list[Reply]

    def those_that(self, stand: Stand) -> list[str]:
        return [reply.answer.run for reply in self.replies if reply.stand == stand]

    @property
    def tells_apart(self) -> bool:
        """Whether the words break one run and not another."""
        return bool(self.those_that("falls") and self.those_that("holds"))


def duel(
    runs: Sequence[ServedRun],
    texts: Mapping[str, str],
    field: str,
    attack: Attack,
    resources: Resources,
    label: int | None = None,
    max_queries: int = 500,
    tell: Tell = lambda run, queries: None,
) -> list[Round]:
    """Attack every run on the same texts, then show each run what broke another.

    Without a label every run is held to what it says of the texts as they are.
    """
    before = ask(runs, texts)
    right = [answer.prediction if label is None else label for answer in before]
    rounds = []
    for run, own in zip(runs, right, strict=True):
        features = Features(dict.fromkeys(texts, Value("string")) | {"label": ClassLabel(names=run.labels)})
        data = Dataset.from_dict({name: [text] for name, text in texts.items()} | {"label": [own]}, features)
        campaign = prepare(
            run.model, run.tokenizer, data, attack, resources, field, max_length=run.max_length, max_queries=max_queries
        )
        with _counting(run.model, partial(tell, run.name)):
            (example,) = campaign.records([0], None)
        rounds.append(Round(run.name, example, _replies(runs, texts, field, example, before, right)))
    return rounds


def _replies(
    runs: Sequence[ServedRun],
    texts: Mapping[str, str],
    field: str,
    example: AttackedExample,
    before: Sequence[Answer],
    right: Sequence[int],
) -> list[Reply]:
    if example.adversarial is None:
        return []
    after = ask(runs, {**texts, field: example.adversarial})
    return [Reply(new, _stand(old, new, own)) for old, new, own in zip(before, after, right, strict=True)]


def _stand(before: Answer, after: Answer, right: int) -> Stand:
    if before.prediction != right:
        return "wrong before"
    return "holds" if after.prediction == right else "falls"


@contextmanager
def _counting(model: PreTrainedModel, tell: Callable[[int], None]) -> Iterator[None]:
    """Say how many texts the model has scored, batch by batch: a search knows its end only when it is there."""
    seen = 0

    def count(_module: Any, _arguments: Any, named: Mapping[str, Any]) -> None:
        nonlocal seen
        seen += len(named["input_ids"])
        tell(seen)

    hook = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()
