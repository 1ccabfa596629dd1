"""The runs of the playground: what each says of a sentence, sentences to begin with, and attacks on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from datasets import ClassLabel, Dataset, Features, Value
from numpy.typing import NDArray
from scipy.special import softmax
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.runner.api import choose_attack, prepare, resources_for
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.search import Resources
from rosewood.config.registry import component_names
from rosewood.config.settings import AttackSettings
from rosewood.data.loading import load_split, needs_hub
from rosewood.data.tasks import Task
from rosewood.errors import DataError, RunError, closest
from rosewood.evaluation.predict import TextQuery, answer
from rosewood.models.scoring import Row, Scorer, label_columns
from rosewood.results import AttackedExample
from rosewood.words.lexicon import lexicon_identity, lexicon_names

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ServedRun:
    """A model under the name that the page gives it."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: list[str]
    columns: list[int]  # the model's outputs in the order of the labels
    max_length: int

    @classmethod
    def of(
        cls, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task, max_length: int
    ) -> ServedRun:
        """Checks that the model is one of the task, and takes it out of training."""
        if task.multi_label:
            raise RunError(f"{name} is for several labels per text, and the playground shows one: serve other runs")
        Scorer(model, tokenizer, max_length)  # refuses what cannot be scored
        return cls(name, model.eval(), tokenizer, task.labels, label_columns(model.config, task.labels), max_length)

    def probabilities(self, texts: Sequence[Row]) -> Floats:
        """Class probabilities in the order of the labels, `(texts, classes)`."""
        questions = [TextQuery(row, self.max_length) for row in texts]
        logits = answer(self.model, self.tokenizer, questions, progress=False).logits(questions)
        return np.asarray(softmax(logits[:, self.columns].astype(np.float64), axis=1))

    def read(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Field -> how many of its characters reach the model."""
        scorer, row = Scorer(self.model, self.tokenizer, self.max_length), tuple(texts.values())
        return {field: scorer.visible(row, place) for place, field in enumerate(texts)}


def names_of(runs: Sequence[str]) -> list[str]:
    """The last part of each path, or the whole of it where two end alike."""
    if len(set(runs)) < len(runs):
        twice = next(run for run in runs if runs.count(run) > 1)
        raise RunError(f"{twice} is named twice: name each run once")
    short = [Path(run).resolve().name for run in runs]
    return [run if short.count(name) > 1 else name for run, name in zip(runs, short, strict=True)]


def common_task(tasks: Mapping[str, Task]) -> Task:
    """The task that all runs share; only then do their answers compare."""
    first, task = next(iter(tasks.items()))
    for run, other in tasks.items():
        if _question(other) != _question(task):
            raise RunError(
                f"runs can be compared only if they answer the same question: {first} is of {_described(task)}, "
                f"{run} of {_described(other)}. Serve them apart, or name one task for all of them with --task"
            )
    return task


def _question(task: Task) -> tuple[str, list[str], list[str]]:
    return task.name, task.text, task.labels


def _described(task: Task) -> str:
    return f"task {task.name} ({', '.join(task.text)}: {', '.join(task.labels)})"


SAMPLES = 4
SHORT = 160
"""Characters of all texts of an example together."""


def samples(task: Task, data_dir: Path | None) -> list[list[str]]:
    """The texts and the label of a few examples; none where the data are not available: nothing is fetched."""
    split = "test" if "test" in task.splits else "validation"
    try:
        if needs_hub(task, split, data_dir):
            return []
        rows = load_split(task, split, data_dir, 20 * SAMPLES)
    except DataError:
        return []
    short: dict[int, list[list[str]]] = {label: [] for label in range(len(task.labels))}
    for *texts, label in zip(*(rows[field][:] for field in task.text), rows["label"][:], strict=True):
        if sum(map(len, texts)) <= SHORT:
            short[label].append([*texts, task.labels[label]])
    each = max(1, SAMPLES // len(task.labels))
    return [row for found in short.values() for row in found[:each]][:SAMPLES]


class Answer(NamedTuple):
    """The class probabilities of a run, and how much of each text that is cut off it has read."""

    run: str
    probabilities: list[float]
    cut: dict[str, int]
    """Field -> characters read, of those fields that are longer."""
    max_length: int

    @property
    def prediction(self) -> int:
        return max(range(len(self.probabilities)), key=self.probabilities.__getitem__)


def typed(task: Task, texts: Sequence[str | None]) -> dict[str, str]:
    """Field -> text, cleaned like the texts that the runs were trained on; an empty one is refused."""
    found = {field: _clean(text or "", task) for field, text in zip(task.text, texts, strict=True)}
    empty = [field for field, text in found.items() if not text]
    if empty:
        raise DataError(f"There is nothing to read yet: type the {' and the '.join(empty)} first.")
    return found


def _clean(text: str, task: Task) -> str:
    text = text.encode("utf-8", "replace").decode()  # a tokenizer refuses half a surrogate pair
    for old, new in task.replace.items():
        text = text.replace(old, new)
    return text.strip()


def ask(runs: Sequence[ServedRun], texts: Mapping[str, str]) -> list[Answer]:
    """Every run's answer to the same texts."""
    row = tuple(texts.values())
    return [Answer(run.name, run.probabilities([row])[0].tolist(), _cut(run, texts), run.max_length) for run in runs]


def _cut(run: ServedRun, texts: Mapping[str, str]) -> dict[str, int]:
    return {field: read for field, read in run.read(texts).items() if read < len(texts[field])}


class AttackChoices:
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
            self._ready[attack, lexicon] = chosen, resources_for(chosen, self._task, self._data_dir, lexicon)
        return self._ready[attack, lexicon]


def _needs(attack: str) -> dict[str, str]:
    return choose_attack(attack).needs()


Outcome = Literal["falls", "holds", "wrong before"]
Tell = Callable[[str, int], None]
"""Called after every batch with the run that is attacked, and how many texts it has scored by then."""


class Reply(NamedTuple):
    """What a run says of words that were found against one of them."""

    answer: Answer
    outcome: Outcome


class AttackedRun(NamedTuple):
    """The attack on one run, and what all of them say of the words that it found."""

    run: str
    example: AttackedExample
    replies: list[Reply]

    def those_that(self, outcome: Outcome) -> list[str]:
        return [reply.answer.run for reply in self.replies if reply.outcome == outcome]

    @property
    def tells_apart(self) -> bool:
        """Whether the words break one run and not another."""
        return bool(self.those_that("falls") and self.those_that("holds"))


def attack_each(
    runs: Sequence[ServedRun],
    texts: Mapping[str, str],
    field: str,
    attack: Attack,
    resources: Resources,
    label: int | None = None,
    max_queries: int = 500,
    tell: Tell = lambda run, queries: None,
) -> list[AttackedRun]:
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
        rounds.append(AttackedRun(run.name, example, _replies(runs, texts, field, example, before, right)))
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
    return [Reply(new, _outcome(old, new, own)) for old, new, own in zip(before, after, right, strict=True)]


def _outcome(before: Answer, after: Answer, right: int) -> Outcome:
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
