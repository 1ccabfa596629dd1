"""Embeddings moved to where the loss is higher."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.models.sites import Change, Site, real_tokens, site_problems
from rosewood.protocol import Batch, Call, Cost, Output, Perturbation, Perturber, Run
from rosewood.tensors import draws
from rosewood.tensors.divergences import divergence_problems, forward_kl, log_odds_gap, symmetric_kl
from rosewood.tensors.gradients import LossScale, slopes

if TYPE_CHECKING:
    from rosewood.recipe import Stage

NORMS = {
    "token": "max_h |g| + 1e-8 of each token",
    "sentence": "|g|_2 of each sentence",
    "sentence_infinity": "max |g| of each sentence",
}
ASCENDED = {
    "ce": "CE(f(e + delta), y)",
    "kl": "KL(p || p') + KL(p' || p), p = f(e) fixed",
    "forward_kl": "KL(p || p'), p = f(e) fixed",
    "log_odds": "2 sum p' (logit p' - logit p), p = f(e) and both logits fixed",
}
DIVERGENCES = {"kl": symmetric_kl, "forward_kl": forward_kl, "log_odds": log_odds_gap}
MOVED = {
    "encoder": "the encoder input",
    "words": "the word embeddings",
    "embedded_twice": "the encoder input, given in place of the word embeddings",
}


@dataclass(frozen=True)
class EmbeddingAscent(Perturbation):
    """Adds a perturbation delta to every token's vector that some steps of gradient ascent have found.

    `delta <- delta + step_size g / |g|`, then into the ball of size `radius`, if there is one. The defaults are
    RoAST's and AdvEmbed's; SMART and FreeLB are other settings:

    - RoAST (Kim et al., 2023): CE, one step of 0.1, scaled token by token, from U(0, 1) 1e-5, on the encoder's input,
      no ball. Its official code crashes on a non-finite gradient; here such an example keeps its start.
    - SMART (Jiang et al., 2020, Algorithm 1): `loss="kl"`, `norm="sentence_infinity"`, step 1e-3, `initial="normal"`
      with 1e-5, `radius=1e-5`, and gradients that reach the embeddings. Its official code (mt-dnn) is
      `loss="log_odds"`, `norm="rescaled_token"` and `at="embedded_twice"` with a step of 1e-5: it climbs a gap between
      log-odds, scales every token's delta itself to 1, and gives the encoder's input plus delta to the model in place
      of the word vectors, so that positions and layer norm are applied twice.
    - FreeLB (Zhu et al., 2020, Algorithm 1), with the objective adversarial_path: `norm="sentence"`,
      `initial="sentence"`: U(-1, 1) initial_size / sqrt(length width), `at="words"`, and a Frobenius ball.

    Gradients are taken of the sum over the predictions, not of the mean, so that 1e-8 means the same in every batch.
    The ascent sees one draw of the embeddings' dropout, and so does the pass that follows; only the encoder's differ.
    Padding is never moved.
    """

    loss: Literal["ce", "kl", "forward_kl", "log_odds"] = "ce"
    norm: Literal["token", "sentence", "sentence_infinity", "rescaled_token"] = "token"
    steps: Annotated[int, Field(ge=0)] = 1
    step_size: Annotated[float, Field(gt=0)] = 0.1
    radius: Annotated[float, Field(gt=0)] | None = None
    initial: Literal["uniform01", "normal", "sentence"] = "uniform01"
    initial_size: Annotated[float, Field(ge=0)] = 1e-5
    at: Literal["encoder", "words", "embedded_twice"] = "encoder"
    through_embeddings: bool = False

    def cost(self, stage: Stage) -> Cost:
        if stage.objective.name == "adversarial_path":
            return Cost()  # which counts its passes itself
        return Cost(forward=self.steps + 1, inputs=self.steps)

    def memory(self) -> str:
        return "perturbation"

    def explain(self, stage: Stage) -> list[str]:
        start = {
            "uniform01": f"U(0, 1) {self.initial_size:g}",
            "normal": f"N(0, {self.initial_size:g}^2)",
            "sentence": f"U(-1, 1) {self.initial_size:g} / sqrt(tokens width)",
        }[self.initial]
        ball = "|delta|_2 of each sentence" if self.norm == "sentence" else "max |delta|"
        if self.norm == "rescaled_token":
            step = (
                f"delta <- (delta + {self.step_size:g} g) / (max_h |delta + {self.step_size:g} g| + 1e-6) of each token"
            )
        else:
            step = f"delta <- delta + {self.step_size:g} g / N, N = {NORMS[self.norm]}"
        return [
            f"f(x') = f(e + delta), e {MOVED[self.at]}{'' if self.through_embeddings else ', without gradient'}",
            f"delta_0 = {start if self.initial_size else '0'}; g = grad_delta {ASCENDED[self.loss]}",
            f"{self.steps} times: {step}" + ("" if self.radius is None else f"; then {ball} <= {self.radius:g}"),
        ]

    def problems(self, stage: Stage) -> list[str]:
        found = []
        if self.loss != "ce" and self.steps > 0 and self.initial_size == 0:
            found.append(
                "perturbation embedding_ascent: without a perturbation a divergence is at its minimum and has "
                f"no slope, so loss={self.loss} cannot start there: set perturbation.initial_size above 0"
            )
        if self.norm == "rescaled_token" and self.radius is not None:
            found.append(
                "perturbation.norm=rescaled_token gives every token's perturbation the size 1, so perturbation.radius "
                "would undo it: leave one of them out"
            )
        if self.at == "embedded_twice" and stage.objective.name == "adversarial_path":
            found.append(
                "objective adversarial_path moves what the model embeds once: set perturbation.at to words or encoder"
            )
        return found

    def problems_with(self, model: nn.Module) -> list[str]:
        user = "perturbation embedding_ascent"
        if self.at == "embedded_twice":
            found = site_problems(model, "encoder", user) or _width_problems(model, user)
        else:
            found = site_problems(model, self.at, user)
        compares = self.loss != "ce" and self.steps > 0
        return found + divergence_problems(model, user) if compares else found

    def start(self, run: Run) -> EmbeddingAscender:
        return EmbeddingAscender(self, run.model, run.loss_scale)


class EmbeddingAscender(Perturber):
    """Finds perturbations `(batch, tokens, width)` and runs the model on perturbed embeddings."""

    def __init__(self, settings: EmbeddingAscent, model: nn.Module, loss_scale: LossScale | None = None) -> None:
        self.settings = settings
        self._model, self._loss_scale = model, loss_scale
        self._place = Site("words" if settings.at == "embedded_twice" else settings.at, model)
        self._first = Site("encoder", model) if settings.at == "embedded_twice" else None
        self._width = self._place.width  # now, not in the middle of a step

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        delta = self.initial(batch)
        # The bare model: a wrapper for several processes would wait for the rest of the forward.
        seen = [] if self._first is None else [self._first.reached(partial(call, batch, self._model))]

        def embeddings(hidden: Tensor) -> Tensor:
            if not seen:
                seen.append(hidden)
            return seen[0] if self.settings.through_embeddings else seen[0].detach()

        for _ in range(self.settings.steps):
            slope = self._slope(call, batch, clean, delta.requires_grad_(), embeddings)
            delta = self.climb(delta.detach(), slope, batch)
        with self._place.changed(lambda hidden: _sum(embeddings(hidden), delta)):
            return call(batch)

    def _slope(self, call: Call, batch: Batch, clean: Output | None, delta: Tensor, embeddings: Change) -> Tensor:
        """The gradient of the ascended loss with respect to delta; no weight gets one."""
        with self._place.changed(lambda hidden: _sum(embeddings(hidden).detach(), delta)):
            output = call(batch)
        if self.settings.loss == "ce":
            loss = output.loss
        else:
            assert clean is not None, "objective perturbed refuses this loss"
            loss = DIVERGENCES[self.settings.loss](clean.predictions().detach(), output.predictions())
        return slopes(loss * output.prediction_count(), [delta], self._loss_scale)[0]

    def moved(self, delta: Tensor) -> AbstractContextManager[None]:
        """Inside, the model sees its embeddings plus delta."""
        attached = self.settings.through_embeddings
        return self._place.changed(lambda hidden: _sum(hidden if attached else hidden.detach(), delta))

    def initial(self, batch: Batch) -> Tensor:
        """Where the ascent starts; zero on padding."""
        size, real = self.settings.initial_size, real_tokens(batch)
        shape = (real.shape[1], self._width)
        if size == 0:
            return torch.zeros(len(real), *shape, dtype=self._place.dtype, device=real.device)
        if self.settings.initial == "normal":
            delta = draws.normal(batch, *shape, dtype=self._place.dtype)
        else:
            delta = draws.uniform(batch, *shape, dtype=self._place.dtype)
        if self.settings.initial == "sentence":
            elements = (real.sum(1) * self._width).to(self._place.dtype)
            delta = (2 * delta - 1) / elements.sqrt()[:, None, None]
        return delta.masked_fill_(~real.unsqueeze(-1), 0) * size

    @torch.no_grad()
    def climb(self, delta: Tensor, slope: Tensor, batch: Batch) -> Tensor:
        """One step up the slope and back into the ball; an example whose slope is not finite stays where it is."""
        slope = slope.masked_fill(~real_tokens(batch).unsqueeze(-1), 0)
        finite = slope.isfinite().all(2, keepdim=True).all(1, keepdim=True)
        if self.settings.norm == "rescaled_token":
            higher = delta + self.settings.step_size * slope
            higher = higher / (higher.abs().amax(2, keepdim=True) + 1e-6)
        else:
            higher = delta + self.settings.step_size * slope / self._size(slope)
        return torch.where(finite, self._projected(higher), delta)

    def _size(self, slope: Tensor) -> Tensor:
        if self.settings.norm == "token":
            return slope.abs().amax(2, keepdim=True) + 1e-8
        if self.settings.norm == "sentence":
            return torch.linalg.vector_norm(slope, dim=(1, 2), keepdim=True).clamp(min=1e-8)
        return slope.abs().amax((1, 2), keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)

    def _projected(self, delta: Tensor) -> Tensor:
        radius = self.settings.radius
        if radius is None:
            return delta
        if self.settings.norm == "sentence":
            norm = torch.linalg.vector_norm(delta, dim=(1, 2), keepdim=True)
            return delta * (radius / norm.clamp(min=radius))
        return delta.clamp(-radius, radius)


def _width_problems(model: nn.Module, user: str) -> list[str]:
    words, encoder = Site("words", model).width, Site("encoder", model).width
    if words == encoder:
        return []
    return [
        f"{user} with at=embedded_twice gives the encoder's input in place of the word vectors, and in "
        f"{type(model).__name__} these have {encoder} and {words} numbers: set perturbation.at to encoder"
    ]


def _sum(hidden: Tensor, delta: Tensor) -> Tensor:
    # Under autocast the two may differ.
    return hidden + delta.to(hidden.dtype)
