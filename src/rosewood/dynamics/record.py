"""How the dynamics of training are recorded: a watch looks on in some steps and writes JSON lines to RUN/dynamics.

Each kind is declared in a file of its own: the watch, its records, and what is read from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from rosewood.errors import RunError
from rosewood.models.adapters import encoder, without_adapter
from rosewood.models.parameters import block_prefixes
from rosewood.protocol import Batch, Call, Masks, Output, Risks
from rosewood.recipe import Recipe
from rosewood.results.grid import Grid
from rosewood.results.run import History
from rosewood.tensors.shards import is_first

if TYPE_CHECKING:
    from rosewood.protocol import Position


FOLDER = "dynamics"
Size = Annotated[float, Field(ge=0)]


class Seen(BaseModel):
    """A recorded step; steps count from 1, so that step n is what the n-th update did."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    watch: ClassVar[str]

    step: Annotated[int, Field(ge=1)]

    @classmethod
    def path(cls, run: str | Path) -> Path:
        """Where a run keeps these records."""
        return Path(run) / FOLDER / f"{cls.watch}.jsonl"


Kind = TypeVar("Kind", bound=Seen)


def read_seen(run: str | Path, kind: type[Kind]) -> list[Kind]:
    """All records of one kind, in the order of their steps, or an error that says what is wrong."""
    path = kind.path(run)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise RunError(
            f"{run} has no record of its {kind.watch} ({path} does not exist): train with --watch {kind.watch}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read {path}: {error}") from error
    records = [_parsed(line, kind, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    for before, after in pairwise(records):
        if after.step <= before.step:
            raise RunError(f"{path} is damaged: step {after.step} comes after step {before.step}. Train again.")
    if not records:
        raise RunError(f"{path} is empty: no step was recorded before the run ended. Use a smaller --watch-every.")
    return records


def _parsed(line: str, kind: type[Kind], place: str) -> Kind:
    try:
        return kind.model_validate(json.loads(line))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise RunError(f"{place} is damaged: {where}: {problem['msg']}. Train again with --watch.") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{place} is damaged: {error}. Train again with --watch.") from error


class Watch:
    """Records every `every`-th step, and the last, in `folder`; in all other steps it costs nothing.

    Steps count from 1. Whatever it computes must leave training as it is: no weight, gradient or random number of the
    run may come out differently. Records are written by the first process; what is counted over examples counts those
    of all. A resumed run takes back the records after its checkpoint, as its history does, so a watch keeps nothing
    from one step to another.
    """

    name: ClassVar[str]
    seen: ClassVar[type[Seen]]
    """What it records."""
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

    def passed(self, call: Call, batch: Batch, clean: Sequence[Output], moment: Position) -> None:
        """The first pass over a micro-batch: `clean` are its outputs for undisturbed input, if it has any."""

    def selected(self, step: int, masks: Masks | None, risks: Risks) -> None:
        """The selection has chosen; the optimiser is about to step."""

    def stepped(self, step: int) -> None:
        """The optimiser has stepped."""


def layers_of(model: nn.Module) -> dict[str, tuple[str, str]]:
    """Each parameter's layer, and its name within that: `("layer 0", "attention.self.query.weight")`.

    What is not in a repeated block goes by the name of its module: embeddings, pooler, classifier.
    """
    blocks = block_prefixes(model)
    around = [f"{name}." for name, module in model.named_modules() if name and _is_around(module, model)]
    return {name: _place(name, blocks, around) for name, _ in model.named_parameters()}


def _is_around(module: nn.Module, model: nn.Module) -> bool:
    return module is encoder(model) or module is without_adapter(model)


def _place(name: str, blocks: list[str], around: list[str]) -> tuple[str, str]:
    for prefix in blocks:
        if name.startswith(prefix):
            number, _, rest = name.removeprefix(prefix).partition(".")
            kind = "layer" if len(blocks) == 1 else prefix.split(".")[-2]
            return f"{kind} {number}", rest
    for prefix in around:  # the outer one first
        name = name.removeprefix(prefix)
    first, _, rest = name.partition(".")
    return first, rest or first


class ByLayer(NamedTuple):
    """One number per layer and recorded step, `values[layer][step]`; None where there is none."""

    run: str
    steps: list[int]
    layers: list[str]
    values: list[list[float | None]]


def by_layer(run: str, records: Sequence[tuple[int, Mapping[str, float]]]) -> ByLayer:
    """Records of `(step, layer -> number)` as a table, layers in the order in which they first appear."""
    layers = list(dict.fromkeys(layer for _, numbers in records for layer in numbers))
    values = [[numbers.get(layer) for _, numbers in records] for layer in layers]
    return ByLayer(run, [step for step, _ in records], layers, values)


def layer_table(title: str, columns: Sequence[tuple[str, Mapping[str, float]]], form: str, caption: str) -> Grid:
    """A row for each layer and a column for each run."""
    layers = list(dict.fromkeys(layer for _, column in columns for layer in column))
    rows = [
        [layer, *(form.format(column[layer]) if layer in column else "" for _, column in columns)] for layer in layers
    ]
    return Grid(title, ["", *(run for run, _ in columns)], rows, caption)
