"""Predictions on disk, by the fingerprints of model and text, so that nothing is computed twice."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from xxhash import xxh3_128

from rosewood.models.identity import of_model
from rosewood.models.scoring import Row

Floats = NDArray[np.float32]
_PARTS = ("logits", "features")
_KEY_BYTES = 16


def checkpoint_fingerprint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of everything that decides a prediction: weights, vocabulary, and the settings of both."""
    settings = {key: value for key, value in model.config.to_dict().items() if not key.startswith("_")}
    settings.pop("transformers_version", None)
    parts = [of_model(model, tokenizer), settings, _tokenizer_settings(tokenizer)]
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
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)  # never follow a link that somebody left under that name
            save_file(tensors, temporary)
            temporary.replace(self._path)
        except (OSError, SafetensorError):
            # A cache that cannot be written costs time, not results.
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


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
