"""What an attack needs beside the model, from a data folder, a package and the training texts of a task."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from rosewood.attacks.search.resources import Resources
from rosewood.data.encoder import SentenceEncoder
from rosewood.data.lexicon import Lexicon
from rosewood.data.loading import load_split
from rosewood.data.tasks import Task
from rosewood.data.trigram import Trigram
from rosewood.errors import RunError
from rosewood.processes import is_first
from rosewood.protocol import Attack


def provisions(attack: Attack, task: Task, data_dir: str | Path | None = None, lexicon: str | None = None) -> Resources:
    """The lexicon of that name, a language model of the training texts, an encoder: each only if needed."""
    needed = attack.needs()
    words = Lexicon.named(lexicon, data_dir) if "lexicon" in needed else None
    speaker = None
    if "language_model" in needed:
        if "train" not in task.splits:
            raise RunError(
                f"the attack {attack.name} learns a language model from training texts, and {task.name} has none: "
                "attack a run, name the task of the checkpoint with --task, or choose another attack"
            )
        texts = load_split(task, "train", data_dir)
        with Console(stderr=True, quiet=not is_first()).status("Fitting a language model on the training texts"):
            speaker = Trigram.fit(text for field in task.text for text in texts[field])
    return Resources(words, speaker, encoder=SentenceEncoder.load() if "encoder" in needed else None)
