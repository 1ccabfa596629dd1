"""Checkpoints may come from strangers: what cannot be read safely is refused in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import torch

from rosewood.errors import RosewoodError, RunError


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
