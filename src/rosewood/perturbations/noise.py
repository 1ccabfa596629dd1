"""Small random noise on the embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from rosewood.models.sites import Place, Site, site_problems
from rosewood.protocol import Batch, Call, Cost, Output, Perturbation, Perturber, Run
from rosewood.tensors import draws

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class Noise(Perturbation):
    """Noise from U(-radius, radius) or N(0, radius^2) on every token's vector (R3F, Aghajanyan et al., 2021, Eq. 6).

    R3F's own code adds it to the word embeddings (`at="words"`), RoAST's to the encoder's input (`at="encoder"`).
    Both detach what they add it to, so embeddings learn through the clean pass alone; `through_embeddings` lets the
    disturbed pass reach them too.
    """

    at: Place = "encoder"
    distribution: Literal["uniform", "normal"] = "uniform"
    radius: Annotated[float, Field(ge=0)] = 1e-5
    through_embeddings: bool = False

    def cost(self, stage: Stage) -> Cost:
        return Cost(forward=1)

    def memory(self) -> str:
        return "second graph"

    def explain(self, stage: Stage) -> list[str]:
        noise = (
            f"U(-{self.radius:g}, {self.radius:g})" if self.distribution == "uniform" else f"N(0, {self.radius:g}^2)"
        )
        what = "word embeddings" if self.at == "words" else "encoder input"
        fixed = "" if self.through_embeddings else ", without gradient"
        return [f"f(x') = f(e + n), e the {what}{fixed}, n ~ {noise}"]

    def problems_with(self, model: nn.Module) -> list[str]:
        return site_problems(model, self.at, "perturbation noise")

    def start(self, run: Run) -> NoiseMaker:
        return NoiseMaker(self, run.model)


class NoiseMaker(Perturber):
    """Draws the noise and adds it during one pass."""

    def __init__(self, settings: Noise, model: nn.Module) -> None:
        self.settings = settings
        self._place = Site(settings.at, model)
        self._width = self._place.width  # now, not in the middle of a step

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        noise = self._noise(batch)

        def add(hidden: Tensor) -> Tensor:
            hidden = hidden if self.settings.through_embeddings else hidden.detach()
            return hidden + noise.to(hidden.dtype)

        with self._place.changed(add):
            return call(batch)

    def _noise(self, batch: Batch) -> Tensor:
        shape = (batch["input_ids"].shape[1], self._width)
        if self.settings.distribution == "normal":
            return draws.normal(batch, *shape, dtype=self._place.dtype) * self.settings.radius
        return (2 * draws.uniform(batch, *shape, dtype=self._place.dtype) - 1) * self.settings.radius
