"""ROSE: update only the weights judged robust, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.errors import RecipeError
from rosewood.models.modes import DropoutSetting, dropout_sites, has_dropout
from rosewood.models.parameters import candidate_names
from rosewood.protocol import (
    Batch,
    Call,
    Cost,
    Masks,
    Output,
    Pass,
    Progress,
    Readings,
    Risks,
    Run,
    Selection,
    Selector,
    Term,
)
from rosewood.tensors.divergences import divergence_problems, symmetric_kl
from rosewood.tensors.gradients import GradientSketch, sketch_problems
from rosewood.tensors.shards import cut, flat_magnitudes, stacked_norms
from rosewood.tensors.statistics import ONE_IN, RULES, RuleName, five_numbers, keep_between, keep_low

if TYPE_CHECKING:
    from rosewood.recipe import Stage

Share = Annotated[float, Field(ge=0, le=1)]
Threshold = tuple[float, float] | RuleName  # two quantiles, or how to find one in the risks of a step
PROBE = "dropout_kl"
CHEAPER = {"probe_fraction": 1.0, "probe_every": 1, "risk_sketch": 0}  # settings and what leaves the risk exact


@dataclass(frozen=True)
class Rose(Selection):
    """Robust selective fine-tuning (Jiang et al., EMNLP 2022).

    First-order risk (Eq. 1-2): norm of the gradient of the symmetric KL between two dropout passes.
    Second-order risk (Eq. 4): |(1 - beta1) |g| / |m| - 1|, g the cross-entropy's gradient, m the momentum. It is lowest
    where g is 1 / (1 - beta1) = 10 times m. After the first steps ratios are below 1 (0.1 if gradients agree from step
    to step, about 0.44 if they are independent), so the tensors with the largest |g| / |m| move.
    A candidate moves if its risk lies between two quantiles of all candidates' risks (Eq. 3); the ensemble (Eq. 5)
    weighs the two masks by gamma. A frozen weight neither moves nor decays and keeps its momentum (Algorithm 1).

    Deviations, each reachable by a setting:
    - Eq. 3 keeps floor(c n) of n candidates; the official code, and `count="interpolated"`, floor(c (n - 1)) + 1.
    - The paper has one threshold per mask, the code one for both; here `keep_quantile` serves both unless
      `first_quantiles` or `second_quantiles` says otherwise.
    - "Parameter" means a weight tensor in the code, hence `level="tensor"`; `level="element"` masks single weights.
    - The code computes the second-order risk from clipped gradients: `risk_gradient`.
    - The code never scales the KL under fp16, so its gradients underflow to ties: `scale_probe`.
    - The code hard-codes 1 - beta1 = 0.1; here it follows the optimiser.
    - 0/0 counts as risk 0 and x/0 as infinite; thresholds are order statistics, which select the same tensors as
      interpolated quantiles but are not poisoned by infinities. A candidate without momentum yet always moves.
    - Candidates: see `rosewood.models.parameters`.

    The paper searches the threshold on a grid, and its limitations wish for "a more automatic method". In place of a
    number, `keep_quantile` takes the name of a rule that finds it again in each step's risks, order by order:
    `outliers` (also `auto`), `otsu` or `gap`; see `rosewood.tensors.statistics`.

    Three settings make the first-order risk cheaper, and a little noisier; each is off by default, and they combine:
    - `probe_fraction` reads it on this part of each batch, evenly spaced rows and at least one. The two passes are
      then the probe's own: a divergence of rows of the loss's pass would go back through all of its graph. Use
      objective.passes=1 with it, since the loss has no more use for a second pass.
    - `probe_every` reads it in every k-th step and keeps the risks in between, where a step costs what the loss does.
    - `risk_sketch` estimates the norms from this many random directions of each layer's outputs
      (`tensors.gradient_sketch`), so that the divergence goes back to the inputs and forms no weight gradient. The
      directions stay the same throughout a stage.
    """

    masked = "freeze"

    order: Literal["first", "second", "ensemble"] = "ensemble"
    keep_quantile: Share | RuleName = 0.6
    first_quantiles: tuple[Share, Share] | None = None
    second_quantiles: tuple[Share, Share] | None = None
    gamma: Annotated[float, Field(gt=0, lt=1)] = 0.5
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    level: Literal["tensor", "element"] = "tensor"
    count: Literal["interpolated", "floor"] = "interpolated"
    risk_term: Literal["dropout", "objective"] = "dropout"
    risk_gradient: Literal["clipped", "raw"] = "clipped"
    dropout: Annotated[float, Field(gt=0, lt=1)] | None = None
    scale_probe: bool = True
    parameters: str | None = None
    probe_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    probe_every: Annotated[int, Field(ge=1)] = 1
    risk_sketch: Annotated[int, Field(ge=0)] = 0

    @property
    def reads_first(self) -> bool:
        return self.order in ("first", "ensemble")

    @property
    def reads_second(self) -> bool:
        return self.order in ("second", "ensemble")

    def thresholds(self) -> dict[str, Threshold]:
        """What the risks of each order that is read are compared with."""
        shared: Threshold = self.keep_quantile if isinstance(self.keep_quantile, str) else (0.0, self.keep_quantile)
        first = {"first": self.first_quantiles or shared} if self.reads_first else {}
        second = {"second": self.second_quantiles or shared} if self.reads_second else {}
        return first | second

    def first_term(self, stage: Stage) -> str:
        """The term whose gradient is the first-order risk."""
        of_objective = stage.objective.divergence_term(stage)
        return of_objective if self.risk_term == "objective" and of_objective else PROBE

    def probes(self, stage: Stage) -> bool:
        """Whether it reads a divergence that the objective does not yield by itself."""
        return self.reads_first and self.first_term(stage) != stage.objective.divergence_term(stage)

    def problems(self, stage: Stage) -> list[str]:
        found = self._cheaper_problems(stage)
        for name in ("first_quantiles", "second_quantiles"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                found.append(f"selection.{name}: the lower quantile {bounds[0]} is above the upper {bounds[1]}")
        if self.count == "floor" and all(isinstance(threshold, str) for threshold in self.thresholds().values()):
            found.append(
                f"selection.count=floor says how many a fixed quantile keeps, and keep_quantile={self.keep_quantile} "
                "finds that out by itself: leave one of the two out"
            )
        if self.dropout is not None and not self.reads_first:
            found.append("selection.dropout is for the passes of the first-order risk, which order=second never runs")
        if self.reads_first and self.risk_term == "objective" and stage.objective.divergence_term(stage) is None:
            found.append(
                f"selection.risk_term=objective reads the divergence of the objective, and {stage.objective.name} has "
                "none: use risk_term=dropout, or the objective consistency"
            )
        return found

    def _cheaper_problems(self, stage: Stage) -> list[str]:
        chosen = [name for name, exact in CHEAPER.items() if getattr(self, name) != exact]
        if not self.reads_first:
            return [
                f"selection.{name} makes the first-order risk cheaper, which order=second never reads"
                for name in chosen
            ]
        found = []
        if not self.probes(stage):
            found += [
                f"selection.{name} is about passes that only the risk needs, and here the risk reads "
                f"{self.first_term(stage)} of objective {stage.objective.name}: use selection.probe_every"
                for name in chosen
                if name != "probe_every"
            ]
        if self.risk_sketch and self.level == "element":
            found.append("selection.risk_sketch estimates norms of whole tensors: use selection.level=tensor")
        for anchor in stage.anchors:
            if self.risk_sketch and anchor.changes_weights:
                found.append(
                    f"selection.risk_sketch forms no gradients, and anchor {anchor.name} has to change them: leave one "
                    "of the two out"
                )
        return found

    def problems_with(self, model: nn.Module) -> list[str]:
        found = []
        try:
            names = candidate_names(model, self.parameters)
            found += sketch_problems(model, names, "selection.risk_sketch") if self.risk_sketch else []
        except RecipeError as error:
            found.append(str(error))
        if self.reads_first:
            found += divergence_problems(model, "selection rose")
        if not self.reads_first or self.risk_term != "dropout":
            return found
        if self.dropout is not None and not any(dropout_sites(model)):
            found.append(f"selection.dropout: {type(model).__name__} has no dropout whose rate could be set")
        if self.dropout is None and not has_dropout(model):
            found.append(
                f"selection rose (order={self.order}) measures how two dropout passes differ, but "
                f"{type(model).__name__} has no dropout, so its risks would be rounding noise: set "
                "selection.dropout (0.1 in the paper), or use order=second"
            )
        return found

    def cost(self, stage: Stage) -> Cost:
        read_share = 1 / self.probe_every
        probe = self._probe_cost(stage).times(read_share) if self.probes(stage) else Cost()
        # A term that shares the total with others is read by a backward of its own, over the same graphs.
        divergence = stage.objective.divergence_term(stage)
        shares = divergence is not None or any(not anchor.changes_weights for anchor in stage.anchors)
        first_apart = read_share if self.reads_first and not self.probes(stage) else 0
        apart = 1 if self.reads_second and shares else first_apart
        return probe.plus(Cost(backward=stage.objective.cost(stage).backward).times(apart))

    def _probe_cost(self, stage: Stage) -> Cost:
        backwards = Cost(inputs=2) if self.risk_sketch else Cost(backward=2)
        if self.probe_fraction < 1:
            return backwards.plus(Cost(forward=2)).times(self.probe_fraction)
        return backwards if stage.objective.clean_passes(stage) > 1 else backwards.plus(Cost(forward=1))

    def reads_apart(self, stage: Stage) -> bool:
        return self.cost(stage) != Cost()

    def memory(self) -> str:
        gradients = "gradient sketches" if self.risk_sketch else "candidate gradients"
        graph = "second graph" if self.probe_fraction == 1 else "two graphs of a part of the batch"
        notes = [graph, gradients] if self.reads_first else []
        return ", ".join(notes + ["masks"] * (self.level == "element"))

    def explain(self, stage: Stage) -> list[str]:
        what = "weight tensors" if self.level == "tensor" else "single weights"
        lines = []
        if self.reads_first:
            term = self.first_term(stage)
            lines.append(f"first-order risk = |grad {term}|, {PROBE} = KL(p || p') + KL(p' || p) of two dropout passes")
            lines += self._explain_cheaper()
        if self.reads_second:
            lines.append("second-order risk = | (1 - beta1) |grad ce| / |m| - 1 |, m the momentum")
        for order, threshold in self.thresholds().items():
            low = f"M_{order} = 1 for the {what} whose {order}-order risk"
            if isinstance(threshold, str):
                lines.append(f"{low} r is at most c_{order}, else 0")
                lines.append(f"c_{order} = {RULES[threshold].formula}; at least one in {ONE_IN} is kept")
            else:
                lines.append(f"{low} lies between the quantiles {threshold[0]:g} and {threshold[1]:g}, else 0")
        if self.order == "ensemble":
            lines.append(f"M = {self.gamma:g} M_first + {1 - self.gamma:g} M_second")
        else:
            lines.append(f"M = M_{self.order}")
        lines.append("g' = M g + (1 - M) m; AdamW on g'; update and decay times M")
        return lines

    def _explain_cheaper(self) -> list[str]:
        lines = []
        if self.probe_fraction < 1:
            lines.append(f"read on {self.probe_fraction:g} of the rows of each batch, in two passes of its own")
        if self.risk_sketch:
            lines.append(f"|grad| estimated by |R^T grad|, R R^T = 1 on average, R with {self.risk_sketch} columns")
        if self.probe_every > 1:
            lines.append(f"read every {self.probe_every} steps, the same in between")
        return lines

    def start(self, run: Run) -> RoseSelector:
        names = candidate_names(run.model, self.parameters)
        dropout = None if self.dropout is None else DropoutSetting(run.model, self.dropout)
        sketch = None
        if self.risk_sketch:
            sketch = GradientSketch(run.model, names, self.risk_sketch, run.generator("rose", "sketch"))
        return RoseSelector(self, names, self.first_term(run.stage), dropout, sketch)


class RoseSelector(Selector):
    """Computes ROSE's masks from the readings of a step.

    All of its state is the optimiser's, but for the last first-order risks where they serve several steps.
    """

    def __init__(
        self,
        settings: Rose,
        names: list[str],
        first_term: str = PROBE,
        dropout: DropoutSetting | None = None,
        sketch: GradientSketch | None = None,
    ) -> None:
        self.settings = settings
        self.names = names
        self._first_term = first_term
        self._dropout = dropout
        self._sketch = sketch
        self._read_step: int | None = None
        self._risks: dict[str, Tensor] = {}
        self._log: dict[str, Tensor] = {}
        self._read: dict[str, tuple[list[str], Tensor]] = {}

    def leave(self) -> None:
        if self._dropout is not None:
            self._dropout.undo()
        if self._sketch is not None:
            self._sketch.undo()

    def state_dict(self) -> dict[str, Tensor]:
        if self._read_step is None:
            return {}
        risks = {f"risk.{name}": risk.clone() for name, risk in self._risks.items()}
        return {"read_step": torch.tensor(self._read_step)} | risks

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if "read_step" in state:
            self._read_step = int(state["read_step"])
        self._risks = {key.removeprefix("risk."): risk for key, risk in state.items() if key != "read_step"}

    def _reads_first(self, at: Progress) -> bool:
        """Whether this step reads the first-order risk; one that the loss scaler skipped leaves that to the next."""
        if not self.settings.reads_first or self._warming_up(at):
            return False
        return self._read_step is None or at.step - self._read_step >= self.settings.probe_every

    def _warming_up(self, at: Progress) -> bool:
        return at.step < self.settings.warmup_steps

    def probe(self, call: Call, batch: Batch, result: Pass, at: Progress) -> list[Term]:
        if not self._reads_first(at) or self.settings.risk_term == "objective":
            return []
        if any(term.name == PROBE for term in result.terms):
            return []
        first, second = self._two_passes(call, batch, result.clean)
        stand_ins = {} if self._sketch is None else self._sketch.stand_ins
        divergence = symmetric_kl(first.predictions(), second.predictions())
        return [Term(PROBE, divergence, 0.0, self.settings.scale_probe, stand_ins)]

    def _two_passes(self, call: Call, batch: Batch, clean: Sequence[Output]) -> tuple[Output, Output]:
        if self.settings.probe_fraction < 1:
            part = evenly_spaced(batch, self.settings.probe_fraction)
            return call(part), call(part)
        return clean[0], clean[1] if len(clean) > 1 else call(batch)

    def reads(self, terms: Sequence[Term], at: Progress) -> dict[str, list[str]]:
        wanted = {}
        if self._reads_first(at):
            wanted[self._first_term] = self.names
        if self.settings.reads_second and not self._warming_up(at):
            wanted["ce"] = self.names
        return wanted

    def masks(self, readings: Readings) -> Masks | None:
        self._log, self._read = {}, {}
        if self._sketch is not None:
            self._sketch.forget()
        if self._warming_up(readings.at):
            return None
        update = {name: readings.gradients["total"][name] for name in self.names if name in readings.gradients["total"]}
        if not update:
            return None
        sizes = [1 if self.settings.level == "tensor" else gradient.numel() for gradient in update.values()]
        masks = []
        for order, threshold in self.settings.thresholds().items():
            read = self._first_risk if order == "first" else self._second_risk
            risk, known = read(readings, list(update))
            masks.append(self._mask(risk, known, sizes, threshold))
        mask = masks[0] if len(masks) == 1 else self.settings.gamma * masks[0] + (1 - self.settings.gamma) * masks[1]
        self._log["kept_share"] = mask.mean()
        if self.settings.level == "tensor":
            return Masks(list(update), mask)
        pieces = zip(mask.split(sizes), update.values(), strict=True)
        return Masks(list(update), [cut(piece.view(gradient.shape), gradient) for piece, gradient in pieces])

    def _mask(self, risk: Tensor, known: list[bool], sizes: list[int], threshold: Threshold) -> Tensor:
        """The mask of all candidates from the risks of the known ones; the others are free to move."""
        kept = self._kept(risk, threshold) if any(known) else risk
        if all(known):
            return kept
        where = torch.tensor([k for k, size in zip(known, sizes, strict=True) for _ in range(size)], device=risk.device)
        return torch.ones(where.numel(), dtype=risk.dtype, device=risk.device).masked_scatter(where, kept)

    def _kept(self, risk: Tensor, threshold: Threshold) -> Tensor:
        if isinstance(threshold, str):
            return keep_low(risk, threshold)
        return keep_between(risk, threshold, self.settings.count)

    def _first_risk(self, readings: Readings, names: list[str]) -> tuple[Tensor, list[bool]]:
        if not self._reads_first(readings.at):
            kept = [self._risks[name] for name in names if name in self._risks]
            return torch.cat(kept) if kept else readings.clip.new_empty(0), [name in self._risks for name in names]
        risk, known = self._read_first_risk(readings, names)
        if self.settings.probe_every > 1:
            covered = list(compress(names, known))
            whole = self.settings.level == "tensor"
            sizes = [1 if whole else readings.gradients["total"][name].numel() for name in covered]
            self._risks = dict(zip(covered, risk.split(sizes), strict=True))
            self._read_step = readings.at.step
        return risk, known

    def _read_first_risk(self, readings: Readings, names: list[str]) -> tuple[Tensor, list[bool]]:
        gradients = readings.gradients[self._first_term]
        known = [name in gradients for name in names]
        covered = list(compress(names, known))
        # Ranks do not depend on the scale, so clipping is left out. NaN comes from an fp16 overflow.
        if not covered:
            return readings.clip.new_empty(0), known
        size = readings.norms if self.settings.level == "tensor" else readings.magnitudes
        risk = size(self._first_term, covered, clipped=False).nan_to_num(nan=math.inf, posinf=math.inf)
        self._log["first_risk"] = five_numbers(risk)
        self._remember("first_risk", covered, risk)
        return risk, known

    def _second_risk(self, readings: Readings, names: list[str]) -> tuple[Tensor, list[bool]]:
        known = [name in readings.gradients["ce"] and name in readings.momentum for name in names]
        covered = list(compress(names, known))
        if not covered:
            return readings.clip.new_empty(0), known
        clipped = self.settings.risk_gradient == "clipped"
        moments = [readings.momentum[name] for name in covered]
        if self.settings.level == "tensor":
            size, average = readings.norms("ce", covered, clipped), stacked_norms(moments)
        else:
            size, average = readings.magnitudes("ce", covered, clipped), flat_magnitudes(moments)
        ratio = (1 - readings.beta1) * size / average
        still = (size == 0) & (average == 0)
        risk = (ratio - 1).abs().nan_to_num(nan=math.inf, posinf=math.inf).masked_fill(still, 0.0)
        ratio = ratio.masked_fill(still, 1.0)
        self._log["second_ratio"] = five_numbers(ratio)
        self._remember("second_ratio", covered, ratio)
        self._log["second_risk"] = five_numbers(risk)
        return risk, known

    def log(self) -> dict[str, Tensor]:
        return self._log

    def _remember(self, kind: str, names: list[str], values: Tensor) -> None:
        if self.settings.level == "tensor":  # those of single weights would take as much memory as the weights
            self._read[kind] = (names, values)

    def risks(self) -> Risks:
        return self._read


def evenly_spaced(batch: Batch, fraction: float) -> Batch:
    """A part of a batch's rows, at least one, spread over all of it: rows may be sorted by length."""
    size = len(next(iter(batch.values())))
    chosen = max(round(fraction * size), 1)
    rows = [i * size // chosen for i in range(chosen)]
    has_rows = {key: isinstance(value, Tensor) and value.shape[:1] == (size,) for key, value in batch.items()}
    return {key: value[rows] if has_rows[key] else value for key, value in batch.items()}
