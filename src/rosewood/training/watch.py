"""A watch: looks on in some steps of a training run, changes nothing, and writes down what it sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn

from rosewood.errors import RunError
from rosewood.processes import is_first
from rosewood.protocol import Batch, Call, Masks, Output, Risks
from rosewood.recipe import Recipe
from rosewood.training.history import History

if TYPE_CHECKING:
    from rosewood.training.engine import Moment


class Watch:
    """Records every `every`-th step, and the last, in `folder`; in all other steps it costs nothing.

    Steps count from 1. Whatever it computes must leave training as it is: no weight, gradient or random number of the
    run may come out differently. Records are written by the first process; what is counted over examples counts those
    of all. A resumed run takes back the records after its checkpoint, as its history does, so a watch keeps nothing
    from one step to another.
    """

    name: ClassVar[str]
    needs_pretrained: ClassVar[bool] = False

    def __init__(self, folder: str | Path, every: int = 10) -> None:
        if every < 1:
            raise RunError(f"a watch records every k-th step with k at least 1, got every={every}")
        self._path = Path(folder) / f"{self.name}.jsonl"
        self._every = every
        self.records = History(self._path if is_first() else None)

    def problems(self, recipe: Recipe, model: nn.Module) -> list[str]:
        """Sentences that say why there would be nothing to see; none if there is."""
        return []

    def start(self, model: nn.Module, total_steps: int, seed: int, pretrained: Mapping[str, Tensor]) -> None:
        """Training begins, or goes on after a resume."""
        self._model, self._total_steps, self._seed = model, total_steps, seed
        if is_first():
            self._path.parent.mkdir(parents=True, exist_ok=True)

    def is_due(self, step: int) -> bool:
        """Whether this step is recorded."""
        return step % self._every == 0 or step == self._total_steps

    def passed(self, call: Call, batch: Batch, clean: Sequence[Output], moment: Moment) -> None:
        """The first pass over a micro-batch: `clean` are its outputs for undisturbed input, if it has any."""

    def selected(self, step: int, masks: Masks | None, risks: Risks) -> None:
        """The selection has chosen; the optimiser is about to step."""

    def stepped(self, step: int) -> None:
        """The optimiser has stepped."""
