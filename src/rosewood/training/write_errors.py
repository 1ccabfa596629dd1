"""A write that fails, mostly for want of space, ends a run in a sentence: what failed, what is kept, how to go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from rosewood.errors import RunError
from rosewood.training.checkpoint import checkpoints


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
