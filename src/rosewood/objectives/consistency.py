"""Two views of the same input should be predicted alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

from rosewood.models.modes import SameDraws
from rosewood.perturbations.dropout import SecondPass
from rosewood.perturbations.weight_ascent import WeightAscender, WeightAscent
from rosewood.protocol import (
    Batch,
    Call,
    Cost,
    Objective,
    Output,
    Pass,
    Passes,
    Perturber,
    Progress,
    Ramp,
    Term,
    Weight,
    weight_at,
)
from rosewood.tensors.divergences import divergence_problems, forward_kl, midpoint_kl, symmetric_kl

if TYPE_CHECKING:
    from rosewood.recipe import Stage

MEASURES = {"symmetric": symmetric_kl, "forward": forward_kl, "js": midpoint_kl}
FORMULAS = {
    "symmetric": "KL(p || p') + KL(p' || p)",
    "forward": "KL(p || p')",
    "js": "(KL(m || p) + KL(m || p')) / 2, m = (p + p') / 2",
}


@dataclass(frozen=True)
class Consistency(Objective):
    """Cross-entropy on the clean and on the perturbed input, plus a divergence between the two predictions.

    L = clean_weight CE(f(x), y) + perturbed_weight CE(f(x'), y) + divergence_weight D(p, p')

    `divergence_weight` multiplies the divergence as `divergence` writes it: where a paper has alpha times half the
    symmetric KL (R-Drop Eq. 4, RoAST), it is alpha / 2. `reduction="sum"` sums the divergence over the examples of an
    optimiser step instead of averaging, which is what several official codes do beside an averaged cross-entropy; of a
    task with labels for tokens, that is the mean over the tokens times the examples.
    "js" is HiddenCut's, with the arguments of the KL the other way round than in the Jensen-Shannon divergence.

    With the perturbation weight_ascent the second pass runs at other weights, so it has a backward of its own there,
    and the clean prediction is a constant in D (RoAST's AdvWeight). clean_weight = divergence_weight = 0 is SAM: the
    step follows the gradient at the ascended weights alone.

    All passes draw their own dropout, as in every official code; at a small perturbation the divergence is then
    mostly that of dropout. `share_dropout` gives all passes of a batch the same dropout. `fixed_targets` sends no
    gradient through the first argument of either KL, as the official code of SMART (mt-dnn) does.

    Each weight may rise while training goes on, `divergence_weight: {to: 10, over: 0.3}`: a strong adversary from the
    first step on can keep a model from learning anything.
    """

    clean_weight: Weight = 0.5
    perturbed_weight: Weight = 0.5
    divergence: Literal["symmetric", "forward", "js"] = "symmetric"
    divergence_weight: Weight = 0.5
    reduction: Literal["mean", "sum"] = "mean"
    share_dropout: bool = False
    fixed_targets: bool = False

    @property
    def _looks_at_perturbed(self) -> bool:
        return bool(self.perturbed_weight or self.divergence_weight)

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        assert perturb is not None, "a recipe without a perturbation is refused"
        if self.share_dropout:
            call = SameDraws(call, batch)
        clean = call(batch)
        if not self._looks_at_perturbed:
            yield Pass([self._cross_entropy(clean, None, at)], [clean], again=partial(call, batch))
        elif isinstance(perturb, WeightAscender):
            yield from self._at_other_weights(call, batch, clean, perturb, at)
        else:
            other = perturb.view(call, batch, clean)
            terms = [self._cross_entropy(clean, other, at), *self._divergences(clean, other, perturb, at)]
            views = [clean, other] if isinstance(perturb, SecondPass) else [clean]
            yield Pass(terms, views, perturbed=other, again=partial(perturb.again, call, batch))

    def _at_other_weights(
        self, call: Call, batch: Batch, clean: Output, perturb: WeightAscender, at: Progress
    ) -> Passes:
        first = self._cross_entropy(clean, None, at) if self.clean_weight else Term("ascent", clean.loss, 0.0)
        answer = yield Pass([first], [clean], isolated=True, complete=False)
        with perturb.ascended(answer.weights):
            other = perturb.view(call, batch, clean)
            terms = [self._cross_entropy(None, other, at)] if self.perturbed_weight else []
            fixed = clean._replace(logits=clean.logits.detach())
            yield Pass(terms + self._divergences(fixed, other, perturb, at), complete=False)

    def _cross_entropy(self, clean: Output | None, other: Output | None, at: Progress) -> Term:
        parts = [(weight_at(self.clean_weight, at), clean), (weight_at(self.perturbed_weight, at), other)]
        losses = [_times(weight, output.loss) for weight, output in parts if weight and output is not None]
        return Term("ce", losses[0] if len(losses) == 1 else losses[0] + losses[1], 1.0)

    def _divergences(self, clean: Output, other: Output, perturb: Perturber, at: Progress) -> list[Term]:
        if not self.divergence_weight:
            return []
        first, second = clean.predictions(), other.predictions()
        if self.fixed_targets:
            value = forward_kl(first.detach(), second) + forward_kl(second.detach(), first)
        else:
            value = MEASURES[self.divergence](first, second)
        value = value * at.examples if self.reduction == "sum" else value
        return [Term(_term_name(perturb.name), value, weight_at(self.divergence_weight, at))]

    def divergence_term(self, stage: Stage) -> str | None:
        return _term_name(stage.perturbation.name) if stage.perturbation and self.divergence_weight else None

    def asks_back(self, stage: Stage) -> bool:
        return isinstance(stage.perturbation, WeightAscent)

    def clean_passes(self, stage: Stage) -> int:
        return 2 if stage.perturbation is not None and stage.perturbation.name == "dropout" else 1

    def cost(self, stage: Stage) -> Cost:
        # No gradient goes through a clean pass that neither term has a part in.
        clean = bool(self.clean_weight or self.divergence_weight) or isinstance(stage.perturbation, WeightAscent)
        return Cost(forward=1, backward=clean + self._looks_at_perturbed)

    def explain(self, stage: Stage) -> list[str]:
        if not self._looks_at_perturbed:
            return [f"ce = {_factor(self.clean_weight)}CE(f(x), y)"]
        parts = [(self.clean_weight, "CE(f(x), y)"), (self.perturbed_weight, "CE(f(x'), y)")]
        lines = ["ce = " + " + ".join(f"{_factor(weight)}{what}" for weight, what in parts if weight)]
        term = self.divergence_term(stage)
        if term is not None:
            over = "summed over the step's examples" if self.reduction == "sum" else "averaged over the batch"
            lines.append(f"{term} = {FORMULAS[self.divergence]}, {over}")
            if self.fixed_targets:
                lines.append("no gradient flows through the first argument of either KL")
            lines.append(f"L = ce + {_factor(self.divergence_weight)}{term}")
        if self.share_dropout:
            lines.append("all passes have the same dropout")
        return lines

    def problems_with(self, model: nn.Module) -> list[str]:
        return divergence_problems(model, "objective consistency") if self.divergence_weight else []

    def problems(self, stage: Stage) -> list[str]:
        found = []
        if stage.perturbation is None:
            found.append(
                "objective consistency compares the predictions for an input and for a perturbed one, and the recipe "
                "has no perturbation: name one, for example perturbation=dropout (R-Drop)"
            )
        elif self.share_dropout and stage.perturbation.name == "dropout":
            found.append(
                "objective.share_dropout makes the two passes equal, and perturbation dropout needs them to differ: "
                "leave it false, or choose another perturbation"
            )
        if self.fixed_targets and self.divergence != "symmetric":
            found.append(
                f"objective.fixed_targets is about the symmetric KL, and objective.divergence is {self.divergence}"
            )
        if not self.clean_weight and not self.perturbed_weight:
            found.append(
                "objective consistency: clean_weight and perturbed_weight are both 0, so nothing is learned from the "
                "labels: give one of them a weight"
            )
        return found


def _term_name(perturbation: str) -> str:
    return f"{perturbation}_kl"


def _times(weight: float, loss: Tensor) -> Tensor:
    return loss if weight == 1 else loss * weight


def _factor(weight: float | Ramp) -> str:
    return "" if weight == 1 else f"{weight:g} "
