"""A classifier and a defence around it as one model, which reads texts; several answers of models that draw.

A defence changes texts before the classifier reads them, so the text itself must reach the model. `TextTokenizer`
makes no tokens: its ids are the characters of the text, and `Defended` puts them together again. That is why a wrapped
model works wherever a model and its tokenizer do, a transformers pipeline for one. Texts are cut where the classifier
reads them, after the defence has changed them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BatchEncoding,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizer,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from rosewood.errors import RunError
from rosewood.models.scoring import Row, Scored, Scorer, output_names, text_length
from rosewood.protocol import Component
from rosewood.recipe import build_component, plain_settings
from rosewood.results.attack import SavedDefence
from rosewood.results.run import typed_command
from rosewood.tensors.draws import forked, seed_from

FILE = "defence.json"
SUSPICIOUS = "suspicious"
INNER = "model"
"""The folder of the wrapped classifier, within that of the whole."""
Floats = NDArray[np.float64]
Learnt = Mapping[str, Any]


@dataclass(frozen=True)
class Material:
    """What a defence may learn from: training texts with their labels, and words that may replace each other."""

    texts: Sequence[Row] = ()
    labels: Sequence[int] = ()
    substitutes: Mapping[str, Sequence[str]] | None = None


class Shield:
    """A defence at work."""

    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        """What the wrapped model answers, `(rows, classes)`; `base` scores texts with the classifier inside."""
        raise NotImplementedError


class FrontEnd(Shield):
    """A defence that changes each text on its own, and has the classifier read what comes of it."""

    def read(self, text: str) -> str:
        """What the classifier reads in place of the text."""
        raise NotImplementedError

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """What it reads in place of these."""
        return [tuple(map(self.read, row)) for row in rows]

    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        return scored(self.rows(rows), base)


def scored(rows: Sequence[Row], base: Scorer) -> Floats:
    """The logits of texts, each distinct one read once, `(rows, classes)`."""
    places = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    found = np.empty((len(places), base.classes))
    for batch in base.batches(list(places)):
        found[batch.rows] = batch.logits
    return found[[places[row] for row in rows]]


class Defence(Component):
    """What is put around a classifier that is trained already; found and set like a part of a recipe."""

    @property
    def reads_all(self) -> bool:
        """Whether it learns from all texts that a run was trained on; others learn from some training texts."""
        return False

    def needs(self) -> dict[str, str]:
        """The fields of `Material` without which it cannot be made; to each a sentence that says why."""
        return {}

    def learn(self, base: Scorer, material: Material) -> Learnt:
        """What it must know to answer, as JSON: found once, when a model is wrapped, and saved with it."""
        return {}

    def start(self, learnt: Learnt) -> Shield:
        """The defence at work, with what it has learnt."""
        raise NotImplementedError

    def refuses(self) -> bool:
        """Whether it may answer "suspicious", which is then the last output, in place of a label."""
        return False

    def forwards(self) -> float:
        """Passes of the classifier for one text."""
        return 1.0

    def redrawn(self, seed: int, draw: int) -> Self:
        """The same defence with other random numbers; itself, if it draws none, that is, has no setting `seed`."""
        own = self.settings().get("seed")
        other = seed_from(own, seed, draw, size=4) >> 1
        return self if own is None else replace(self, seed=other)  # type: ignore[type-var]


class DefendedConfig(PretrainedConfig):
    """The labels of the classifier inside, and which defence is around it."""

    model_type = "rosewood-defended"

    def __init__(
        self, defence: str = "", settings: Mapping[str, Any] | None = None, refusal: int | None = None, **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.refusal = refusal  # the last output, if it means "suspicious" and is not a label
        self.defence = defence
        self.settings = dict(settings or {})


class TextTokenizer(PreTrainedTokenizer):
    """Passes texts on as they are: the ids are their characters, and of a pair both, with a sign between them.

    Its `max_length` counts tokens of the classifier inside, and travels with the text.
    """

    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask", "max_length"]  # type: ignore[misc]
    padding_side = "right"
    BETWEEN = 0x110000  # the first number that is not a character

    def __init__(self, inner: PreTrainedTokenizerBase) -> None:
        self.inner = inner
        super().__init__(pad_token="[PAD]", model_max_length=inner.model_max_length)

    @property
    def vocab_size(self) -> int:
        return self.BETWEEN + 1

    @property
    def pad_token_id(self) -> int:
        """Not that of the tokenizer inside, which may call it otherwise or have none; the attention mask hides it."""
        return 0

    @property
    def all_special_tokens(self) -> list[str]:
        return self.inner.all_special_tokens if "inner" in vars(self) else super().all_special_tokens

    def get_vocab(self) -> dict[str, int]:
        return self.inner.get_vocab()

    def __call__(
        self,
        text: str | Sequence[str],
        text_pair: str | Sequence[str] | None = None,
        *,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        padding: bool | str = False,
        return_tensors: str | None = None,
        **_: Any,
    ) -> BatchEncoding:
        """Texts, or pairs of them, as numbers; what else a tokenizer takes is about tokens, and changes nothing."""
        single = isinstance(text, str)
        columns = [[each] if isinstance(each, str) else list(each) for each in (text, text_pair) if each is not None]
        rows = [self._ids(row) for row in zip(*columns, strict=True)]
        found: dict[str, Any] = {
            "input_ids": rows,
            "attention_mask": [[1] * len(row) for row in rows],
            "max_length": [[max_length if max_length and truncation else 0] for _ in rows],
        }
        if return_tensors is not None or padding:
            return self.pad(found, return_tensors=return_tensors)
        return BatchEncoding({key: values[0] for key, values in found.items()} if single else found)

    def _ids(self, row: Row) -> list[int]:
        first, *others = ([ord(sign) for sign in text] for text in row)
        return [*first, *(number for other in others for number in (self.BETWEEN, *other))]

    def rows(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Row]:
        """The texts behind some ids."""
        found = []
        for row, ids in enumerate(input_ids.tolist()):
            kept = ids if attention_mask is None else ids[: int(attention_mask[row].sum())]
            texts: list[list[str]] = [[]]
            for number in kept:
                if number == self.BETWEEN:
                    texts.append([])
                elif number < self.BETWEEN:
                    texts[-1].append(chr(number))
            found.append(tuple("".join(text) for text in texts))
        return found

    def save_pretrained(self, save_directory: Any, *_: Any, **__: Any) -> tuple[str, ...]:
        """Only the tokenizer inside has files."""
        return self.inner.save_pretrained(Path(save_directory) / INNER)

    @classmethod
    def from_pretrained(cls, folder: Any, *_: Any, **__: Any) -> Self:  # type: ignore[override]
        return cls(AutoTokenizer.from_pretrained(Path(folder) / INNER, trust_remote_code=False))


class Defended(PreTrainedModel):
    """A classifier inside a defence. It answers like any classifier, and cannot be trained."""

    inner: PreTrainedModel
    tokenizer: TextTokenizer

    config_class = DefendedConfig
    base_model_prefix = "inner"
    _supports_sdpa = _supports_flash_attn = True  # whatever the classifier inside does

    def __init__(
        self, inner: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, defence: Defence, learnt: Learnt
    ) -> None:
        names = [*output_names(inner.config), *([SUSPICIOUS] if defence.refuses() else [])]
        config = DefendedConfig(
            defence.name,
            plain_settings(defence),
            len(names) - 1 if defence.refuses() else None,
            id2label=dict(enumerate(names)),
            label2id={name: number for number, name in enumerate(names)},
            problem_type=getattr(inner.config, "problem_type", None),
            max_position_embeddings=getattr(inner.config, "max_position_embeddings", None),
        )
        super().__init__(config)
        self.inner = inner
        self.tokenizer = TextTokenizer(tokenizer)
        self.config.pad_token_id = self.tokenizer.pad_token_id
        self.config.name_or_path = inner.name_or_path
        self.name_or_path = inner.name_or_path
        self.defence, self.learnt = defence, learnt
        self.shield = defence.start(learnt)
        self.batch_size = 64
        """Copies of texts that the classifier inside reads at a time."""

    @torch.inference_mode()
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, max_length: Tensor | None = None, **_: Any
    ) -> SequenceClassifierOutput:
        """The answer of the defence for texts as `TextTokenizer` gives them."""
        rows = self.tokenizer.rows(input_ids, attention_mask)
        limits = [0] * len(rows) if max_length is None else max_length.reshape(-1).tolist()
        logits = np.empty((len(rows), len(self.config.id2label or ())))
        for limit in dict.fromkeys(limits):
            chosen = [row for row, own in enumerate(limits) if own == limit]
            logits[chosen] = self.shield.logits([rows[row] for row in chosen], self.base(limit or None))
        return SequenceClassifierOutput(logits=torch.from_numpy(logits).float().to(self.device))  # type: ignore[arg-type]

    @contextmanager
    def drawing(self, seed: int, draw: int) -> Iterator[None]:
        """Inside, the defence answers with the random numbers of another draw."""
        before = self.shield
        self.shield = self.defence.redrawn(seed, draw).start(self.learnt)
        try:
            yield
        finally:
            self.shield = before

    def base(self, max_length: int | None = None) -> Scorer:
        """The classifier inside as a function from texts to logits."""
        tokenizer = self.tokenizer.inner
        return Scorer(self.inner, tokenizer, max_length or text_length(self.inner, tokenizer), self.batch_size)

    def save_pretrained(self, save_directory: Any, *_: Any, **__: Any) -> None:
        """Write the folder that `from_pretrained` reads: defence.json, config.json, and the classifier in model/."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        self.inner.save_pretrained(folder / INNER)
        self.tokenizer.save_pretrained(folder)
        self.config.save_pretrained(folder)
        SavedDefence(
            defence=self.defence.name,
            settings=plain_settings(self.defence),
            learnt=dict(self.learnt),
            forwards=self.defence.forwards(),
            command=typed_command(),
        ).save(folder / FILE)

    @classmethod
    def from_pretrained(cls, folder: Any, *_: Any, **__: Any) -> Self:  # type: ignore[override]
        """The model that `save_pretrained` wrote; of its classifier no code is run that came with it."""
        from rosewood.models.open import load_classifier

        path = Path(folder)
        saved = SavedDefence.load(path / FILE)
        defence = build_component("defence", saved.defence, saved.settings)
        assert isinstance(defence, Defence)
        inner, tokenizer = load_classifier(str(path / INNER))
        if isinstance(inner, Defended):
            raise RunError(f"{path / INNER} is a wrapped model, and one is not wrapped twice")
        found = cls(inner, tokenizer, defence, saved.learnt)
        found.name_or_path = found.config.name_or_path = str(folder)
        return found.eval()

    def _init_weights(self, module: Any) -> None:
        """The classifier inside has its weights."""


def forwards_of(model: PreTrainedModel) -> float:
    """Passes of a network for one text: 1, unless the model is wrapped."""
    return model.defence.forwards() if isinstance(model, Defended) else 1.0


def defence_of(model: PreTrainedModel) -> list[Any]:
    """What decides the answers of a wrapped model beside its weights; nothing for any other."""
    if not isinstance(model, Defended):
        return []
    return [model.defence.name, plain_settings(model.defence), json.dumps(model.learnt, sort_keys=True)]


AutoConfig.register(DefendedConfig.model_type, DefendedConfig)
AutoModelForSequenceClassification.register(DefendedConfig, Defended)
AutoTokenizer.register(DefendedConfig, TextTokenizer)


_CHUNK = 4
"""Batches of texts whose answers are collected before they are handed on."""


class Drawn:
    """A scorer that gives each text the answers of several draws: `(draws, ...)` in place of `(...)`.

    A draw is numbered. Its random numbers depend on the seed, the number and the text alone, so that the same text gets
    the same answers in any batch. A defence around a model is started again with another seed for each draw. Any other
    model draws from torch's generator, which is seeded for each text: then a text is read by itself, as often as there
    are draws.
    """

    def __init__(self, scorer: Scorer, draws: int, seed: int = 0, first: int = 0) -> None:
        self.scorer, self.draws, self.seed, self.first = scorer, draws, seed, first

    def batches(self, texts: Sequence[Row]) -> Iterator[Scored]:
        """The answers for some texts, a few batches at a time."""
        size = _CHUNK * self.scorer.batch_size
        for start in range(0, len(texts), size):
            part = texts[start : start + size]
            found = self._redrawn(part) if isinstance(self.scorer.model, Defended) else map(self._seeded, part)
            yield Scored(list(range(start, start + len(part))), list(found))

    def _redrawn(self, texts: Sequence[Row]) -> list[NDArray[np.float32]]:
        model = self.scorer.model
        assert isinstance(model, Defended)
        found: list[list[NDArray[np.float32]]] = [[] for _ in texts]
        for draw in range(self.first, self.first + self.draws):
            with model.drawing(self.seed, draw):
                for batch in self.scorer.batches(texts):
                    for row, logits in zip(batch.rows, batch.logits, strict=True):
                        found[row].append(logits)
        return [np.stack(each) for each in found]

    def _seeded(self, text: Row) -> NDArray[np.float32]:
        with self.seeds(text):
            # One batch, whatever its size is elsewhere: the random numbers of a copy depend on its place in the batch.
            (batch,) = self.scorer.in_batches_of(self.draws).batches([text] * self.draws)
        return np.stack([batch.logits[batch.rows.index(copy)] for copy in range(self.draws)])

    @contextmanager
    def seeds(self, text: Row) -> Iterator[None]:
        """Inside, torch draws the random numbers of this text."""
        with forked(self.scorer.model.device):
            torch.manual_seed(seed_from(self.seed, self.first, *text, size=7))
            yield


def is_random(scorer: Scorer, text: Row) -> bool:
    """Whether two draws of a model differ on a text."""
    if isinstance(scorer.model, Defended):
        return scorer.model.defence.redrawn(0, 0) is not scorer.model.defence
    one, two = (next(iter(Drawn(scorer, 1, first=first).batches([text]))).logits[0] for first in (0, 1))
    return not np.array_equal(one, two)
