"""The attacks that a typed sentence can be attacked with, and the lexicons that they take words from."""

from __future__ import annotations

from pathlib import Path

from rosewood.attacks.search.prepare import choose_attack
from rosewood.attacks.search.provisions import provisions
from rosewood.attacks.search.resources import Resources
from rosewood.data.lexicon import lexicon_identity, lexicon_names
from rosewood.data.tasks import Task
from rosewood.errors import DataError, closest
from rosewood.protocol import Attack
from rosewood.registry import component_names


class Arms:
    """Attacks and lexicons by name; what has been prepared once is kept."""

    def __init__(self, task: Task, data_dir: Path | None, lexicon: str | None = None) -> None:
        self.lexicon = lexicon or lexicon_identity(None, data_dir).split()[0]
        self.lexicons = list(dict.fromkeys([self.lexicon, *lexicon_names()]))
        # A language model would have to be fitted on the training texts, which a playground may do without.
        self.attacks = [name for name in component_names("attack") if "language_model" not in _needs(name)]
        self._task, self._data_dir = task, data_dir
        self._ready: dict[tuple[str, str], tuple[Attack, Resources]] = {}

    def take(self, attack: str, lexicon: str) -> tuple[Attack, Resources]:
        """An attack with all that it needs; what is not at hand is an AbsentError."""
        # The names come from a browser, and another name of a lexicon would be a file of this machine.
        for name, known in ((attack, self.attacks), (lexicon, self.lexicons)):
            if name not in known:
                raise DataError(f"There is no {name!r} here: {closest(name, known)}")
        if (attack, lexicon) not in self._ready:
            chosen = choose_attack(attack)
            self._ready[attack, lexicon] = chosen, provisions(chosen, self._task, self._data_dir, lexicon)
        return self._ready[attack, lexicon]


def _needs(attack: str) -> dict[str, str]:
    return choose_attack(attack).needs()
