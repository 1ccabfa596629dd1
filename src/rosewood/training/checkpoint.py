"""Checkpoints that can be trusted: whole, or refused in plain words.

Each carries the checksums of its files, and only one that matches is resumed. What cannot be read safely is refused.
A write that fails, mostly because the disk is full, says what is kept and how to go on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import torch
import xxhash
from safetensors import SafetensorError
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from rosewood.errors import RosewoodError, RunError

CHECKSUMS = "checksums.json"
PREFIX = f"{PREFIX_CHECKPOINT_DIR}-"


class NoGoodCheckpointError(RunError):
    """There is no checkpoint that a run could go on from."""


def seal(checkpoint: Path) -> None:
    """Write down the checksums of all files of a checkpoint."""
    # Against accidents, not against attackers; so fast that it costs less than the disk does.
    sums = {str(file.relative_to(checkpoint)): _checksum(file) for file in sorted(_files(checkpoint))}
    (checkpoint / CHECKSUMS).write_text(json.dumps({"xxh3_128": sums}, indent=2) + "\n", encoding="utf-8")


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, in a few words; None if it is as it was written."""
    try:
        sums = dict(json.loads((checkpoint / CHECKSUMS).read_text(encoding="utf-8"))["xxh3_128"])
    except FileNotFoundError:
        return f"{CHECKSUMS} is missing"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{CHECKSUMS} cannot be read"
    for name, expected in sums.items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        try:
            found = _checksum(file)
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if found != expected:
            return f"{name} does not have the checksum it was written with"
    return None


def newest_good(folder: Path) -> Path:
    """The newest checkpoint in a folder that is not damaged, with a warning if newer ones are."""
    found = checkpoints(folder)
    if not found:
        raise NoGoodCheckpointError(f"there is no checkpoint in {folder}")
    return _first_good(found)


def good_or_older(checkpoint: Path) -> Path:
    """This checkpoint or, if it is damaged, the newest older one beside it that is not."""
    if not checkpoint.is_dir():
        raise NoGoodCheckpointError(f"there is no checkpoint {checkpoint}")
    if not (checkpoint / CHECKSUMS).exists():
        warnings.warn(f"{checkpoint} has no {CHECKSUMS}: it is used as it is, unchecked", stacklevel=2)
        return checkpoint
    beside = checkpoints(checkpoint.parent)
    older = beside[beside.index(checkpoint) + 1 :] if checkpoint in beside else []
    return _first_good([checkpoint, *older])


def _first_good(candidates: list[Path]) -> Path:
    bad: dict[Path, str] = {}
    for candidate in candidates:
        problem = damage(candidate)
        if problem is None:
            if bad:
                warnings.warn(f"{_in_words(bad)}; resuming from {candidate} instead", stacklevel=3)
            for other in bad:
                _set_aside(other)
            return candidate
        bad[candidate] = problem
    raise NoGoodCheckpointError(
        f"{_in_words(bad)}; a checkpoint without {CHECKSUMS} can be used if it is named by its own path"
    )


def _in_words(bad: dict[Path, str]) -> str:
    return "; ".join(f"{checkpoint} is damaged: {problem}" for checkpoint, problem in bad.items())


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    found = [path for path in folder.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=lambda path: -int(path.name.removeprefix(PREFIX)))


def _set_aside(checkpoint: Path) -> None:
    """Rename it: the Trainer, which only looks at names, might otherwise delete a good one in its favour."""
    aside = checkpoint.with_name(f"_damaged-{checkpoint.name}")
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)


def _files(checkpoint: Path) -> list[Path]:
    return [file for file in checkpoint.rglob("*") if file.is_file() and file.name != CHECKSUMS]


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, xxhash.xxh3_128).hexdigest()


@contextmanager
def reading(checkpoint: str | None) -> Iterator[None]:
    """Turns whatever comes up while the Trainer reads a checkpoint into an error that says what to do.

    transformers reads the optimiser, the schedule and the random state with `torch.load(weights_only=True)`, which
    knows tensors and plain data and refuses every other object before any of its code can run.
    """
    try:
        yield
    except UnpicklingError:
        raise RunError(
            f"{checkpoint} holds a Python object that could run code, or a damaged file; nothing of it was run. Do not "
            "use this checkpoint: remove its folder to continue from the one before it, or start a new run"
        ) from None
    except (RosewoodError, MemoryError, torch.OutOfMemoryError):
        raise  # not the checkpoint's fault
    except Exception as error:  # a damaged file can make transformers say anything
        raise RunError(
            f"the checkpoint {checkpoint} cannot be read: {error}\n"
            "Remove its folder to continue from the one before it, or start a new run."
        ) from error


def refuse_links(run: Path) -> None:
    """A link inside a run directory would let the run write somewhere else."""
    link = next((path for path in run.rglob("*") if path.is_symlink()), None)
    if link is not None:
        raise RunError(
            f"{link} is a link, and a run writes nowhere but into its own directory: put what it points to there"
        )


@contextmanager
def explained(what: str, place: Path, size: Callable[[], int], checkpoint_folder: Path) -> Iterator[None]:
    """Turn the errors of a failed write of `what` into `place`, which takes `size()` bytes, into a RunError."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = _reason(error)
        if reason is None:
            raise
        kept = checkpoints(checkpoint_folder)
        advice = (
            f"The last good checkpoint is kept, {kept[0]}: make room and go on from it with "
            "`rosewood train --output RUN --resume`, or train(resume_from_checkpoint=True)."
            if kept
            else "There is no earlier checkpoint: make room and start again."
        )
        raise RunError(
            f"{what} could not be written to {place}: {reason}. "
            f"It takes about {_megabytes(size())}; {_megabytes(_free(place))} are free. {advice}"
        ) from error


def _reason(error: Exception) -> str | None:
    """What the disk said, or None if it is not the disk's error."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, SafetensorError):
        return str(error)
    is_from_torch_save = "inline_container" in str(error)
    return f"torch.save failed as it does on a full disk ({error})" if is_from_torch_save else None


def _free(place: Path) -> int:
    existing = next(folder for folder in (place, *place.parents) if folder.exists())
    return shutil.disk_usage(existing).free


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.2f} MB"
