"""Attack a typed sentence, run by run, with a chosen attack and lexicon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datasets import ClassLabel, Dataset, Features, Value
from transformers import PreTrainedModel

from rosewood.attacks.runner.api import choose_attack, prepare, provisions
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.example import Resources
from rosewood.config.registry import component_names
from rosewood.config.settings import AttackSettings
from rosewood.data.tasks import Task
from rosewood.errors import DataError, closest
from rosewood.lab.playground.runs import Answer, ServedRun, ask
from rosewood.results import AttackedExample
from rosewood.words.lexicon import lexicon_identity, lexicon_names


class Arms:
    """Attacks and lexicons by name; what has been prepared once is kept."""

    def __init__(self, task: Task, data_dir: Path | None, lexicon: str | None = None) -> None:
        self.lexicon = lexicon or lexicon_identity(None, data_dir).split()[0]
        self.lexicons = list(dict.fromkeys([self.lexicon, *lexicon_names()]))
        # A language model would have to be fitted on the training texts, which a playground may do without, and a
        # masked one would have to be named.
        absent = {"language_model", "masked_lm"}
        self.attacks = [name for name in component_names("attack") if not absent & _needs(name).keys()]
        self._task, self._data_dir = task, data_dir
        self._ready: dict[tuple[str, str], tuple[Attack, Resources]] = {}

    def take(self, attack: str, lexicon: str) -> tuple[Attack, Resources]:
        """An attack with all that it needs; what is not available is an AbsentError."""
        # The names come from a browser, and another name of a lexicon would be a file of this machine.
        for name, known in ((attack, self.attacks), (lexicon, self.lexicons)):
            if name not in known:
                raise DataError(f"There is no {name!r} here: {closest(name, known)}")
        if (attack, lexicon) not in self._ready:
            chosen = choose_attack(attack)
            self._ready[attack, lexicon] = chosen, provisions(chosen, self._task, self._data_dir, lexicon)
        return self._ready[attack, lexicon]


def _needs(attack: str) -> dict[str, str]:
    return choose_attack(attack).needs()


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
        settings = AttackSettings(field=field, max_length=run.max_length, max_queries=max_queries)
        campaign = prepare(run.model, run.tokenizer, data, attack, resources, settings)
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
