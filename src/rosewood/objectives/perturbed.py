"""The task's own loss, of the disturbed input alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rosewood.perturbations.embedding_ascent import EmbeddingAscent
from rosewood.protocol import Batch, Call, Cost, Objective, Pass, Passes, Perturber, Progress, Term

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class Perturbed(Objective):
    """L = CE(f(x'), y): training on changed texts in place of the originals, for the cost of one pass.

    A smoothed model is trained so, because it never reads anything but changed texts.
    """

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        assert perturb is not None, "a recipe without a perturbation is refused"
        other = perturb.view(call, batch, None)
        yield Pass([Term("ce", other.loss, 1.0)], perturbed=other, again=partial(perturb.again, call, batch))

    def clean_passes(self, stage: Stage) -> int:
        return 0

    def cost(self, stage: Stage) -> Cost:
        return Cost(backward=1)  # the forward is the perturbation's

    def explain(self, stage: Stage) -> list[str]:
        return ["ce = CE(f(x'), y)"]

    def problems(self, stage: Stage) -> list[str]:
        if stage.perturbation is None:
            return [
                "objective perturbed learns from a disturbed input, and the recipe has no perturbation: name one, for "
                "example perturbation=substitution"
            ]
        reasons = {
            "dropout": "disturbs nothing but what dropout does anyway: choose the objective cross_entropy",
            "weight_ascent": "follows a gradient of the clean input: choose the objective consistency",
        }
        found = [
            f"perturbation {name} beside objective perturbed {reason}"
            for name, reason in reasons.items()
            if any(part.name == name for part in stage.perturbation.parts())
        ]
        found += [
            f"perturbation embedding_ascent with loss={part.loss} compares with a pass over the clean input, and "
            "objective perturbed has none: set perturbation.loss=ce"
            for part in stage.perturbation.parts()
            if isinstance(part, EmbeddingAscent) and part.loss != "ce"
        ]
        return found + [
            f"{part} looks at a pass over the clean input, and objective perturbed has none: choose the objective "
            "consistency with clean_weight=0"
            for part in looking_at_clean(stage)
        ]


def looking_at_clean(stage: Stage) -> list[str]:
    """The parts of a stage that look at a pass over the clean input."""
    looking = [f"anchor {a.name}" for a in stage.anchors if not (a.weight_terms or a.changes_weights)]
    rose = stage.selection
    if getattr(rose, "reads_first", False) and getattr(rose, "risk_term", "") == "dropout":
        looking.append(f"selection {rose.name}")
    return looking
