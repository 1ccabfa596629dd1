"""The mean loss along a path of adversarial perturbations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rosewood.models.modes import SameDraws
from rosewood.objectives.perturbed import looking_at_clean
from rosewood.perturbations.embedding_ascent import EmbeddingAscender, EmbeddingAscent
from rosewood.protocol import Batch, Call, Cost, Objective, Pass, Passes, Perturber, Progress, Term

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class AdversarialPath(Objective):
    """Averages the loss, and so its gradient, over the points of an ascent (FreeLB, Zhu et al., 2020, Algorithm 1).

    L = 1/K sum_k CE(f(e + delta_k), y), K = perturbation.steps + 1. The backward of each pass gives both the share of
    the weights' gradient and the direction of the next step, so K passes cost K times plain fine-tuning and nothing
    more. The official code's adv_steps counts passes in the Hugging Face port, steps in the fairseq version.

    All passes have the same dropout, as in the official code, unless `share_dropout` is false. No pass sees the clean
    input, unless the path starts there (perturbation.initial_size = 0).
    """

    share_dropout: bool = True

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        assert isinstance(perturb, EmbeddingAscender), "other perturbations are refused"
        if self.share_dropout:
            call = SameDraws(call, batch)
        points = perturb.settings.steps + 1
        delta = perturb.initial(batch)
        for point in range(points):
            last = point + 1 == points
            with perturb.moved(delta if last else delta.requires_grad_()):
                output = call(batch)
            clean = [output] if point == 0 and perturb.settings.initial_size == 0 else []
            term = Term("ce", output.loss / points, 1.0)
            answer = yield Pass([term], clean, [] if last else [delta], complete=points == 1)
            if not last:
                delta = perturb.climb(delta.detach(), answer.leaves[0], batch)

    def asks_back(self, stage: Stage) -> bool:
        return True

    def cost(self, stage: Stage) -> Cost:
        points = stage.perturbation.steps + 1 if isinstance(stage.perturbation, EmbeddingAscent) else 1
        return Cost(forward=points, backward=points)

    def explain(self, stage: Stage) -> list[str]:
        points = self.cost(stage).forward
        dropout = "the same dropout in all of them" if self.share_dropout else "fresh dropout in each"
        return [f"ce = mean of CE(f(x'), y) over the {points} points of the ascent, {dropout}"]

    def problems(self, stage: Stage) -> list[str]:
        if not isinstance(stage.perturbation, EmbeddingAscent):
            found = "none" if stage.perturbation is None else stage.perturbation.name
            return [
                "objective adversarial_path averages the loss along an ascent of the embeddings and needs perturbation "
                f"embedding_ascent, got {found}: name that one, or choose the objective consistency"
            ]
        return self._problems_of_ascent(stage.perturbation) + self._blind(stage, stage.perturbation)

    def _problems_of_ascent(self, perturbation: EmbeddingAscent) -> list[str]:
        found = []
        if perturbation.loss != "ce":
            found.append(
                "objective adversarial_path climbs the loss that it minimises, the cross-entropy, so perturbation "
                f"embedding_ascent with loss={perturbation.loss} would be ignored: set perturbation.loss=ce"
            )
        if perturbation.norm == "rescaled_token":
            found.append(
                "perturbation.norm=rescaled_token depends on the size of the gradient, and objective adversarial_path "
                "knows only its direction: choose the norm token, sentence or sentence_infinity"
            )
        return found

    def _blind(self, stage: Stage, perturbation: EmbeddingAscent) -> list[str]:
        """Parts that look at a pass over clean input, when there is none."""
        if perturbation.initial_size == 0:
            return []
        return [
            f"{part} looks at a pass over the clean input, and objective adversarial_path has none unless its path "
            "starts there: set perturbation.initial_size=0"
            for part in looking_at_clean(stage)
        ]
