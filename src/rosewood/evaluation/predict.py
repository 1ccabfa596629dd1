"""Class scores of a model for texts: each distinct text is computed once, and kept on disk."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from xxhash import xxh3_128

from rosewood.models.features import HeadInputs, output_layer
from rosewood.models.modes import evaluating
from rosewood.models.names import model_fingerprint
from rosewood.models.scoring import Row, Scorer
from rosewood.results.files import replacing

Floats = NDArray[np.float32]


class TextQuery(NamedTuple):
    """The texts of an example, and how many tokens of them the model sees."""

    texts: Row
    max_length: int


class Answers:
    """The logits of questions, and the features of some."""

    def __init__(self, rows: dict[TextQuery, int], logits: Floats, feature_rows: dict[int, int], features: Floats):
        self._rows, self._logits = rows, logits
        self._feature_rows, self._features = feature_rows, features

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, question: TextQuery) -> bool:
        return question in self._rows

    def logits(self, questions: Sequence[TextQuery]) -> Floats:
        """`(questions, classes)`."""
        return self._logits[[self._rows[each] for each in questions]]

    def features(self, questions: Sequence[TextQuery]) -> Floats:
        """What the last layer sees, `(questions, dimensions)`; only of questions that asked for it."""
        return self._features[[self._feature_rows[self._rows[each]] for each in questions]]


def answer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Iterable[TextQuery],
    featured: Iterable[TextQuery] = (),
    batch_size: int = 64,
    cache: PredictionCache | None = None,
    progress: bool = True,
) -> Answers:
    """Run the model once on each distinct question, and keep the features of those in `featured`.

    Texts are batched by length, so that little is spent on padding. What the cache holds is not run again, and what is
    run goes into it. The training mode of every module is put back afterwards.
    """
    rows = {question: row for row, question in enumerate(dict.fromkeys(questions))}
    wanted = {rows[question] for question in featured}
    pass_ = _Pass(model, tokenizer, list(rows), sorted(wanted), batch_size)
    if cache is not None:
        pass_.recall(cache)
    pass_.run(progress)
    if cache is not None:
        pass_.remember(cache)
    return Answers(rows, pass_.logits, pass_.feature_rows, pass_.features)


def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    task_fields: Sequence[str],
    max_length: int = 128,
    batch_size: int = 64,
    progress: bool = True,
) -> Floats:
    """Logits (examples, classes) in the order of the dataset, computed on the model's device."""
    texts = zip(*(dataset[field][:] for field in task_fields), strict=True)
    questions = [TextQuery(row, max_length) for row in texts]
    return answer(model, tokenizer, questions, batch_size=batch_size, progress=progress).logits(questions)


class _Pass:
    """One run of the model over distinct questions."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        questions: Sequence[TextQuery],
        featured: Sequence[int],
        batch_size: int,
    ) -> None:
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.questions = questions
        self.todo = list(range(len(questions)))
        self.logits = np.empty((len(questions), int(model.config.num_labels or 0)), dtype=np.float32)
        self.feature_rows = {row: place for place, row in enumerate(featured)}
        self.features = np.empty((0, 0), dtype=np.float32)
        self._scorers = {
            (limit, texts): Scorer(model, tokenizer, limit, batch_size)
            for limit, texts in dict.fromkeys((each.max_length, len(each.texts)) for each in questions)
        }

    def run(self, progress: bool) -> None:
        # The bar appears on a terminal only, and only if there is something to do.
        shown = progress and self.todo
        bar = tqdm(total=len(self.todo), desc="predict", unit="text", disable=None if shown else True)
        kinds: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row in self.todo:
            kinds[self.questions[row].max_length, len(self.questions[row].texts)].append(row)
        with bar, evaluating(self.model), HeadInputs(self.model, active=bool(self.feature_rows)) as head:
            for kind, rows in kinds.items():
                for batch in self._scorers[kind].batches([self.questions[row].texts for row in rows]):
                    done = [rows[place] for place in batch.rows]
                    self.logits[done] = batch.logits
                    self._keep_features(done, head)
                    bar.update(len(done))

    def _keep_features(self, rows: Sequence[int], head: HeadInputs) -> None:
        wanted = [place for place, row in enumerate(rows) if row in self.feature_rows]
        if wanted:
            found = head.latest()
            self._make_room(found.shape[1])
            self.features[[self.feature_rows[rows[place]] for place in wanted]] = found[wanted]

    def _make_room(self, dimensions: int) -> None:
        if not self.features.size:
            self.features = np.empty((len(self.feature_rows), dimensions), dtype=np.float32)

    def recall(self, cache: PredictionCache) -> None:
        """Take what is known already."""
        keys = [cache.key(each.texts, each.max_length) for each in self.questions]
        known = cache.known("logits", keys, self.logits.shape[1])
        featured = [keys[row] for row in self.feature_rows]
        known_features = cache.known("features", featured, output_layer(self.model).in_features) if featured else {}
        self.todo = [
            row
            for row, key in enumerate(keys)
            if key not in known or (row in self.feature_rows and key not in known_features)
        ]
        left = set(self.todo)
        for row, key in enumerate(keys):
            if row not in left:
                self.logits[row] = known[key]
                if row in self.feature_rows:
                    self._make_room(len(known_features[key]))
                    self.features[self.feature_rows[row]] = known_features[key]

    def remember(self, cache: PredictionCache) -> None:
        """Leave what was computed for the next time."""
        if not self.todo:
            return
        keys = [cache.key(self.questions[row].texts, self.questions[row].max_length) for row in self.todo]
        places = [place for place, row in enumerate(self.todo) if row in self.feature_rows]
        features = self.features[[self.feature_rows[self.todo[place]] for place in places]]
        cache.add(keys, self.logits[self.todo], [keys[place] for place in places], features)


_PARTS = ("logits", "features")
_KEY_BYTES = 16


def checkpoint_fingerprint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of everything that decides a prediction: weights, vocabulary, and the settings of both."""
    settings = {key: value for key, value in model.config.to_dict().items() if not key.startswith("_")}
    settings.pop("transformers_version", None)
    parts = [model_fingerprint(model, tokenizer), settings, _tokenizer_settings(tokenizer)]
    return xxh3_128(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _tokenizer_settings(tokenizer: PreTrainedTokenizerBase) -> list[Any]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = dict(tokenizer.init_kwargs) if backend is None else json.loads(backend.to_str())
    for passing in ("truncation", "padding", "name_or_path"):  # how it was last used, or where it lies
        rules.pop(passing, None)
    return [rules, tokenizer.truncation_side, tokenizer.padding_side, tokenizer.model_input_names]


class PredictionCache:
    """One file of a folder: the predictions of one checkpoint. A file that cannot be read counts as empty.

    Whoever can write the file decides what is predicted: `fresh` begins with an empty one. A folder that is a link is
    not used, because it may lead out of the run.
    """

    def __init__(self, folder: Path, checkpoint: str, fresh: bool = False) -> None:
        self._path = folder / f"predictions-{checkpoint}.safetensors"
        self._is_link = folder.is_symlink()
        self._stored = {} if fresh or self._is_link else self._read()

    @staticmethod
    def key(texts: Row, max_length: int) -> bytes:
        """The name of one prediction."""
        return xxh3_128(json.dumps([max_length, *texts]).encode()).digest()

    def known(self, part: Literal["logits", "features"], keys: Sequence[bytes], width: int) -> Mapping[bytes, Floats]:
        """Those of the asked that are stored, if they are as wide as they must be."""
        if part not in self._stored or self._stored[part][1].shape[1:] != (width,):
            return {}
        names, values = self._stored[part]
        places = {bytes(name): place for place, name in enumerate(names)}
        return {key: values[places[key]] for key in keys if key in places}

    def add(self, keys: Sequence[bytes], logits: Floats, feature_keys: Sequence[bytes], features: Floats) -> None:
        """Write new predictions beside the old ones, and drop those of other weights."""
        if self._is_link:
            return
        for part, names, values in (("logits", keys, logits), ("features", feature_keys, features)):
            if names:
                self._stored[part] = _joined(self._stored.get(part), names, values)
        self._write()
        for other in self._path.parent.glob("predictions-*.safetensors"):
            if other != self._path:
                with suppress(OSError):
                    other.unlink()

    def _read(self) -> dict[str, tuple[NDArray[np.uint8], Floats]]:
        try:
            tensors = load_file(self._path)
        except Exception:  # a damaged file can make safetensors say anything
            return {}
        pairs = {part: (tensors.get(f"{part}.keys"), tensors.get(part)) for part in _PARTS}
        return {
            part: (names, values)
            for part, (names, values) in pairs.items()
            if names is not None and values is not None and _are_whole(names, values)
        }

    def _write(self) -> None:
        tensors: dict[str, NDArray[Any]] = {}
        for part, (names, values) in self._stored.items():
            tensors |= {f"{part}.keys": names, part: np.ascontiguousarray(values)}
        # A cache that cannot be written costs time, not results.
        with suppress(OSError, SafetensorError), replacing(self._path) as temporary:
            save_file(tensors, temporary)


def _are_whole(names: NDArray[Any], values: NDArray[Any]) -> bool:
    """Whether these are as `_write` leaves them."""
    return (
        (names.dtype, values.dtype) == (np.uint8, np.float32)
        and (names.ndim, values.ndim) == (2, 2)
        and names.shape == (len(values), _KEY_BYTES)
        and bool(np.isfinite(values).all())
    )


def _joined(
    stored: tuple[NDArray[np.uint8], Floats] | None, keys: Sequence[bytes], values: Floats
) -> tuple[NDArray[np.uint8], Floats]:
    names = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
    if stored is None or stored[1].shape[1:] != values.shape[1:]:
        return names, values
    return np.concatenate([stored[0], names]), np.concatenate([stored[1], values])
