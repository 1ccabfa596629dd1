"""Vectors in a file, found by the digest of what they belong to, so that nothing is computed twice."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rosewood.models.sites import real_tokens
from rosewood.protocol import Batch

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
