"""Feature vectors of texts: read while a model runs, and kept in a file so that nothing is computed twice."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from rosewood.errors import RunError
from rosewood.models.adapters import encoder, without_adapter
from rosewood.models.sites import real_tokens
from rosewood.protocol import Batch, Call, Output

Feature = Literal["pooler", "token"]


class SummaryVectors:
    """Watches the base model, and hands out one vector per example after each pass.

    `pooler` is what the base model gives as its pooler's output; where it gives none (RoBERTa, DistilBERT, DeBERTa,
    decoders, ...) it is `token`: the last layer's vector of the token that represents the text. That is the first one,
    or the last that is not padding in decoders, encoder-decoder models and XLNet, as their own heads have it.
    """

    def __init__(self, model: nn.Module, feature: Feature) -> None:
        below = encoder(model)
        assert below is not None, "summary_problems refuses models without a base_model"
        bare: Any = without_adapter(model)
        self._feature = feature
        # Heads that score every token and choose afterwards are called `score` in transformers.
        self._at_end = bare.config.is_encoder_decoder or bare.config.model_type == "xlnet" or hasattr(bare, "score")
        self._padding: int | None = bare.config.pad_token_id
        self._seen: tuple[Tensor, Tensor | None] | None = None
        self._hook = below.register_forward_hook(self._see)
        # What was compiled in an earlier stage would not notice the hook.
        torch.compiler.reset()

    def _see(self, module: nn.Module, args: Any, output: Any) -> None:
        self._seen = (output.last_hidden_state, getattr(output, "pooler_output", None))

    def watching(self, call: Call) -> Call:
        """The call, with features in its outputs."""

        def watched(batch: Batch, model: nn.Module | None = None) -> Output:
            output = call(batch, model)
            return output._replace(features=self._of(batch))

        return watched

    def _of(self, batch: Batch) -> Tensor | None:
        seen, self._seen = self._seen, None  # else a graph would live on until the next pass
        if seen is None:
            return None
        tokens, pooled = seen
        if len(tokens) != len(batch["input_ids"]):
            raise RunError(
                f"a batch of {len(batch['input_ids'])} examples gave features of {len(tokens)}, as with several GPUs "
                "in one process (DataParallel): start one process per GPU (torchrun), or make one GPU visible"
            )
        if self._feature == "pooler" and pooled is not None:
            return pooled
        return tokens[torch.arange(len(tokens), device=tokens.device), self._places(batch)]

    def _places(self, batch: Batch) -> Tensor:
        """The position of the token that represents each text."""
        real = real_tokens(batch)
        if not self._at_end:
            return real.int().argmax(1)
        if "attention_mask" not in batch and self._padding is not None:
            real = batch["input_ids"] != self._padding
        return (real * torch.arange(real.shape[1], device=real.device)).argmax(1)

    def stop(self) -> None:
        """Watch no longer."""
        self._hook.remove()


def summary_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why a model has no summary of a text with one class; none if it has."""
    name, config = type(without_adapter(model)).__name__, getattr(model, "config", None)
    if encoder(model) is None or config is None:
        return [f"{user} reads what an encoder says of a text, and {name} has no base_model that would be one"]
    if getattr(model, "loss_type", None) != "ForSequenceClassification":
        return [
            f"{user} compares texts that have one class each, and {name} is not a classifier of whole texts: use a "
            "model for sequence classification, or leave the anchor out"
        ]
    if config.problem_type in ("regression", "multi_label_classification") or config.num_labels == 1:
        kind = "several labels at once" if config.problem_type == "multi_label_classification" else "a number"
        return [f"{user} compares texts that have one class each, and {name} predicts {kind}: leave the anchor out"]
    return []


class HeadInputs:
    """Records the input of the model's last linear layer in every forward pass; one vector per example.

    Decoders score every token, and predict with the last one that is not padding: so it is with their features.
    """

    def __init__(self, model: PreTrainedModel, active: bool = True) -> None:
        self._model = model
        self._active = active
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._input: Tensor | None = None
        self._mask: Tensor | None = None

    def __enter__(self) -> HeadInputs:
        if self._active:
            layer = output_layer(self._model)
            self._hooks = [
                self._model.register_forward_pre_hook(self._see_batch, with_kwargs=True),
                layer.register_forward_pre_hook(self._see_features),
            ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def latest(self) -> NDArray[np.float32]:
        """The features of the batch that was run last, `(batch, dimensions)`."""
        assert self._input is not None, "no batch has been run"
        found = self._input
        if found.dim() == 3:
            assert self._mask is not None, "the tokenizer gives an attention mask"
            positions = torch.arange(found.shape[1], device=found.device)
            last = (self._mask.to(found.device) * positions).argmax(dim=1)
            found = found[torch.arange(len(found), device=found.device), last]
        array: NDArray[np.float32] = found.float().cpu().numpy()
        return array

    def _see_batch(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._mask = kwargs.get("attention_mask")

    def _see_features(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._input = args[0].detach()


def output_layer(model: PreTrainedModel) -> nn.Linear:
    """The last linear layer with as many outputs as the model has labels."""
    fitting = [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear) and module.out_features == model.config.num_labels
    ]
    if not fitting:
        raise RunError(
            f"{type(model).__name__} has no linear layer with {model.config.num_labels} outputs, so its features are "
            "not known, which Mahalanobis scores of anomalies need."
        )
    return fitting[-1]


KEY_BYTES = 16


def row_keys(batch: Batch) -> list[bytes]:
    """A digest of each row's real tokens and their types: what a model without dropout answers depends on."""
    columns = [batch[name] for name in ("input_ids", "token_type_ids") if name in batch]
    tokens = torch.stack(columns, -1).cpu().numpy().astype(np.int64)
    real = real_tokens(batch).cpu().numpy()
    digests = (blake2b(row[kept].tobytes(), digest_size=KEY_BYTES) for row, kept in zip(tokens, real, strict=True))
    return [digest.digest() for digest in digests]


class FeatureFile:
    """Rows of a key and a vector each, in the order in which they came.

    A checkpoint remembers how many rows there were and the SHA-256 of their bytes. A resumed run reads so many and
    forgets the later ones, so that it goes on as the first one did; a file whose bytes are others is dropped. Without
    a path the rows live in a temporary file, and a resumed run starts with none.
    """

    def __init__(self, path: Path | None, width: int, dtype: torch.dtype) -> None:
        self._path = path
        number = np.float64 if dtype == torch.float64 else np.float32
        self._record = np.dtype([("key", np.uint8, (KEY_BYTES,)), ("vector", number, (width,))])
        self._file: BinaryIO | None = None
        self._places: dict[bytes, int] = {}
        self._hash = sha256()

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def add(self, keys: Sequence[bytes], vectors: NDArray[np.floating]) -> None:
        """Keep the vectors of those keys that are not known yet."""
        fresh = {key: i for i, key in reversed(list(enumerate(keys))) if key not in self}
        rows = np.zeros(len(fresh), self._record)
        for row, (key, i) in zip(rows, sorted(fresh.items(), key=lambda item: item[1]), strict=True):
            row["key"], row["vector"] = np.frombuffer(key, np.uint8), vectors[i]
            self._places[key] = len(self._places)
        if self._file is None:
            self._file = self._new()
        self._hash.update(rows.tobytes())
        self._file.write(rows.tobytes())
        self._file.flush()

    def vectors(self, keys: Sequence[bytes]) -> Tensor:
        """The vectors of known keys, `(len(keys), width)`."""
        assert self._file is not None, "something was added"
        rows = np.memmap(self._file, self._record, "r", shape=(len(self._places),))
        return torch.from_numpy(rows["vector"][[self._places[key] for key in keys]])

    def state_dict(self) -> dict[str, Tensor]:
        """How many rows are known and the digest of their bytes, which are on the disk from now on."""
        if self._file is not None:
            os.fsync(self._file.fileno())
        digest = torch.frombuffer(bytearray(self._hash.digest()), dtype=torch.uint8)
        return {"rows": torch.tensor(len(self._places)), "digest": digest}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on with the rows that there were; start with none if the file has others."""
        size = int(state["rows"]) * self._record.itemsize
        if size <= 0 or self._path is None or not self._path.is_file() or self._path.is_symlink():
            return
        if self._path.stat().st_size < size:
            return
        file = self._path.open("r+b")
        content = file.read(size)
        found = sha256(content)
        if found.digest() != bytes(state["digest"].cpu().tolist()):
            file.close()
            return
        file.truncate(size)
        keys = np.frombuffer(content, self._record)["key"]
        self._places = {key.tobytes(): i for i, key in enumerate(keys)}
        self._file, self._hash = file, found

    def _new(self) -> BinaryIO:
        if self._path is None:
            return TemporaryFile()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)  # never follow a link that somebody left under that name
        return self._path.open("x+b")
