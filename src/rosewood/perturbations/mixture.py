"""One of several perturbations, drawn for each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.perturbations.substitution import Substitution
from rosewood.perturbations.typing import Typing
from rosewood.protocol import Batch, Call, Collate, Cost, Output, Perturbation, Perturber, Progress, Run
from rosewood.recipe import part_of

if TYPE_CHECKING:
    from rosewood.recipe import Stage


Part = Annotated[Perturbation, part_of("perturbation")]


@dataclass(frozen=True)
class Mixture(Perturbation):
    """Disturbs each batch by one of the perturbations in `of`, so that one model is trained against all of them.

    Which one is drawn for each optimiser step, with equal chances or in the proportions of `weights`: all batches that
    a step accumulates, and those of all processes, are disturbed by the same.
    """

    of: Annotated[tuple[Part, ...], Field(min_length=2)] = (Substitution(), Typing())
    weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        return all(part.repeatable for part in self.of)

    def chances(self) -> list[float]:
        weights = self.weights or (1.0,) * len(self.of)
        return [weight / sum(weights) for weight in weights]

    def columns(self) -> Mapping[str, Collate]:
        return {name: collate for part in self.of for name, collate in part.columns().items()}

    def parts(self) -> tuple[Perturbation, ...]:
        return self.of

    def cost(self, stage: Stage) -> Cost:
        total = Cost()
        for chance, part in zip(self.chances(), self.of, strict=True):
            total = total.plus(part.cost(stage).times(chance))
        return total

    def memory(self) -> str:
        return ", ".join(dict.fromkeys(note for part in self.of for note in part.memory().split(", ") if note))

    def explain(self, stage: Stage) -> list[str]:
        lines = []
        for chance, part in zip(self.chances(), self.of, strict=True):
            lines.append(f"with probability {chance:.2g} {part.name}:")
            lines += [f"  {line}" for line in part.explain(stage)]
        return lines

    def problems(self, stage: Stage) -> list[str]:
        found = [problem for part in self.of for problem in part.problems(stage)]
        found += [
            f"perturbation mixture cannot have {part.name} in it, which is more than another input of the same model: "
            "give that one a recipe of its own"
            for part in self.of
            if part.name in ("mixture", "weight_ascent")
        ]
        if self.weights is not None and len(self.weights) != len(self.of):
            found.append(f"perturbation.weights: expected one for each of {len(self.of)}, got {len(self.weights)}")
        return found

    def problems_with(self, model: nn.Module) -> list[str]:
        return [problem for part in self.of for problem in part.problems_with(model)]

    def start(self, run: Run) -> Mixer:
        return Mixer(self, run)


class Mixer(Perturber):
    """Draws whose turn it is in each optimiser step, and leaves the rest to that one."""

    def __init__(self, settings: Mixture, run: Run) -> None:
        self._run = run
        self._chances = torch.tensor(settings.chances(), dtype=torch.float64)
        self._perturbers = [part.start(run) for part in settings.of]
        self._current = self._perturbers[0]

    def begin(self, at: Progress) -> None:
        generator = self._run.generator("mixture", at.step)
        drawn = torch.multinomial(self._chances.to(generator.device), 1, generator=generator)
        self._current = self._perturbers[int(drawn)]
        self._current.begin(at)

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        return self._current.view(call, batch, clean)

    def again(self, call: Call, batch: Batch) -> Output:
        return self._current.again(call, batch)

    def state_dict(self) -> dict[str, Tensor]:
        each = ((i, one.state_dict()) for i, one in enumerate(self._perturbers))
        return {f"{i}.{key}": value for i, state in each for key, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for i, one in enumerate(self._perturbers):
            prefix = f"{i}."
            one.load_state_dict({key.removeprefix(prefix): v for key, v in state.items() if key.startswith(prefix)})
