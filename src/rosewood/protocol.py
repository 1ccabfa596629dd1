"""What the four parts of a recipe and the training engine say to each other.

A component is a frozen dataclass of settings. `start(run)` gives its runtime object, which does the work and
owns whatever state there is. Components know the model and the batch, never the trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn

from rosewood.config.strict_yaml import checked_settings
from rosewood.errors import RecipeError
from rosewood.tensors.draws import seed_from
from rosewood.tensors.shards import flat_magnitudes, stacked_norms

if TYPE_CHECKING:
    from rosewood.recipe import Stage

Batch = Mapping[str, Any]
Collate = Callable[..., Mapping[str, Tensor]]  # `rosewood.words.alignment.Collate`
ATTACHED = "rosewood_"
"""The prefix of modules that are trained beside the model and are not part of it afterwards."""


def is_attached(parameter: str) -> bool:
    """Whether a parameter of this name belongs to a module that is trained beside the model."""
    return parameter.startswith(ATTACHED)


class Output(NamedTuple):
    """One pass of the model over a batch: the task loss, a mean over its predictions, and the logits.

    A prediction is an example, or a token where tokens have labels; `model.predictions` says which are counted.
    """

    loss: Tensor
    logits: Tensor  # None where a model has none (question answering), which only plain cross-entropy allows
    counted: Tensor | None = None  # (batch, tokens): whether a token's prediction is in the loss; None: examples count
    real: Tensor | None = None  # (batch, tokens): whether a token is not padding
    features: Tensor | None = None  # (batch, width): a vector per example, if a tether watches for them

    def predictions(self) -> Tensor:
        """The logits of what is counted, `(predictions, ..., classes)`.

        Padding that has a label gets the same logits in every pass, so that it diverges from nothing.
        """
        if self.counted is None or self.real is None:
            return self.logits
        padding = ~self.real[self.counted]
        return self.logits[self.counted].masked_fill_(padding.unsqueeze(-1), 0)

    def prediction_count(self) -> int:
        """How many predictions the loss is a mean over."""
        return len(self.logits) if self.counted is None else int(self.counted.sum())


class Call(Protocol):
    """Runs the model, or another one in its place, on a batch the way the trainer does."""

    def __call__(self, batch: Batch, model: nn.Module | None = None) -> Output: ...


class Term(NamedTuple):
    """A named part of the loss. Weight 0 means read only: its gradient is looked at but never moves a weight."""

    name: str
    value: Tensor
    weight: float
    scaled: bool = True  # whether the fp16 loss scaler applies to the backward that reads this term alone
    stand_ins: Mapping[str, Tensor] = {}  # read in place of the parameters of these names; never of a weighted term


class Pass(NamedTuple):
    """What an objective yields for one backward.

    `clean` holds the outputs of passes over the undisturbed batch, which differ by dropout only. `leaves` are
    tensors whose gradients the objective wants back. `isolated` asks for the weights' gradients of this pass alone.
    `complete` says that no later pass of this batch adds another weighted term. `perturbed` is the output for the
    disturbed input, and `again` runs that input, or else the clean one, once more with fresh dropout.
    """

    terms: list[Term]
    clean: Sequence[Output] = ()
    leaves: Sequence[Tensor] = ()
    isolated: bool = False
    complete: bool = True
    perturbed: Output | None = None
    again: Callable[[], Output] | None = None


class Feedback(NamedTuple):
    """What an objective gets back: gradients up to a positive factor, which directions do not depend on."""

    leaves: list[Tensor]
    weights: Mapping[str, Tensor]


Passes = Generator[Pass, Feedback, None]


class Progress(NamedTuple):
    """How far training is, within the current stage: optimiser steps done and planned, and epochs done.

    `micro_batch` counts within the optimiser step; `examples` is how many examples, over all processes and
    accumulated batches, the step has.
    """

    step: int
    total_steps: int
    epoch: int = 0
    micro_batch: int = 0
    examples: int = 1


class Position(NamedTuple):
    """How far the trainer is: optimiser steps and epochs done, and the place of a micro-batch in its step.

    `parts` is how many micro-batches with as many predictions as this one would make the step.
    """

    step: int
    epoch: int
    micro_batch: int
    micro_batches: int
    examples: int
    parts: float


@dataclass(frozen=True)
class Ramp:
    """A weight that rises in a line over the first part `over` of a stage's steps up to `to`, and stays there.

    Step t of n, from 1 on, has the weight `to` min(1, t / (over n)), so that none is 0.
    """

    to: Annotated[float, Field(ge=0, le=3.4e38)]
    over: Annotated[float, Field(gt=0, le=1)] = 0.3

    def __bool__(self) -> bool:
        return self.to > 0

    def __format__(self, spec: str) -> str:
        return f"({self.to:{spec}}, from 0 over the first {self.over:{spec}} of the steps)"


Weight = Annotated[float, Field(ge=0)] | Ramp
"""The weight of a term: a number, or one that rises to a number, in YAML `{to: 10, over: 0.3}`."""


def weight_at(weight: float | Ramp, at: Progress) -> float:
    """The weight of a term in a step."""
    if not isinstance(weight, Ramp):
        return weight
    return weight.to * min(1.0, (at.step + 1) / (weight.over * at.total_steps))


@dataclass(frozen=True)
class Run:
    """What a component may know when it starts.

    `pretrained` holds the pre-trained values of the trainable parameters, by name: those the model had when the
    trainer got it, or those of the pre-trained model that it was given beside; it exists if a component of the recipe
    asks for it. In the second case `frozen` has those of the encoder's other parameters, which an adapter leaves where
    they are; in the first it is empty, because there they are at their pre-trained values.

    `loss_scale` multiplies a loss as fp16 needs it, for `slopes`; no other precision has one. `folder` is a place for
    files that a resumed run finds again.
    """

    model: nn.Module
    total_steps: int
    stage: Stage
    seed: int = 0
    pretrained: Mapping[str, Tensor] = field(default_factory=dict)
    loss_scale: Callable[[Tensor], Tensor] | None = None
    folder: Path | None = None
    frozen: Mapping[str, Tensor] = field(default_factory=dict)

    def trainable(self) -> dict[str, nn.Parameter]:
        """The parameters of the model that may move; modules trained beside it are not part of it."""
        named = self.model.named_parameters()
        return {name: p for name, p in named if p.requires_grad and not is_attached(name)}

    def generator(self, *key: int | str) -> torch.Generator:
        """Random numbers that depend on seed and key alone: equal on all processes and after a resume.

        The key starts with the component's name, so that no two components draw the same.
        """
        device = next(self.model.parameters()).device
        return torch.Generator(device).manual_seed(seed_from(self.seed, *key) >> 1)


class Stateful:
    """A runtime object; what it must not lose in a checkpoint goes into its state_dict."""

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        assert not state, f"{type(self).__name__} keeps no state, it was given {sorted(state)}"


class Cost(NamedTuple):
    """Passes per micro-batch and graph: forwards (F), backwards to the inputs only (X), full backwards (B).

    A pass over a part of the batch, or not in every step, counts as that part of a pass.
    """

    forward: float = 0
    inputs: float = 0
    backward: float = 0

    def plus(self, other: Cost) -> Cost:
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, share: float) -> Cost:
        return Cost(*(count * share for count in self))

    def __str__(self) -> str:
        counts = zip("FXB", self, strict=True)
        return "+".join(f"{'' if count == 1 else f'{count:.3g}'}{kind}" for kind, count in counts if count)


class Component:
    """Settings of one part of a recipe; registered under the name of its file.

    Settings that do not have their declared types and ranges are refused when the component is made.
    """

    def __post_init__(self) -> None:
        values, problems = checked_settings(type(self), self.settings())
        if problems:
            raise RecipeError("\n".join(f"{type(self).__name__}.{name}: {problem}" for name, problem in problems))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        return type(self).__module__.rsplit(".", 1)[-1]

    def settings(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def cost(self, stage: Stage) -> Cost:
        """What this component adds to a step."""
        return Cost()

    def memory(self) -> str:
        """What it keeps beside model and optimiser, in a few words; empty if nothing to speak of."""
        return ""

    def explain(self, stage: Stage) -> list[str]:
        """Formulas of what it does with these settings, one per line."""
        return []

    def problems(self, stage: Stage) -> list[str]:
        """Sentences that say why this component makes no sense beside the others; none if it does."""
        return []

    def problems_with(self, model: nn.Module) -> list[str]:
        """Sentences that say why this component cannot work on this model; none if it can."""
        return []


class Minimiser(Stateful):
    """The runtime of an objective; this one keeps nothing and does what the settings say."""

    def __init__(self, settings: Objective) -> None:
        self.settings = settings

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        """Run the model on one batch and yield the terms of each backward; gradients come back as the answer."""
        return self.settings.run(call, batch, perturb, at)


class Objective(Component):
    """What is minimised."""

    reads_labels: ClassVar[bool] = False  # whether it computes a loss from the labels, which class weights do not reach

    def divergence_term(self, stage: Stage) -> str | None:
        """The name of its term that measures how two views of the input differ, if it has one."""
        return None

    def asks_back(self, stage: Stage) -> bool:
        """Whether it needs gradients before a batch is over, and so more than one backward."""
        return False

    def clean_passes(self, stage: Stage) -> int:
        """How many passes over the undisturbed batch it makes, differing by dropout only."""
        return 1

    def run(self, call: Call, batch: Batch, perturb: Perturber | None, at: Progress) -> Passes:
        """As `Minimiser.run`, for objectives that keep nothing between batches."""
        raise NotImplementedError

    def start(self, run: Run) -> Minimiser:
        return Minimiser(self)


class Perturber(Stateful):
    """The runtime of a perturbation, in the perturbation's file."""

    @property
    def name(self) -> str:
        return type(self).__module__.rsplit(".", 1)[-1]

    def begin(self, at: Progress) -> None:
        """A micro-batch begins."""

    def view(self, call: Call, batch: Batch, clean: Output | None) -> Output:
        """Run the model on a disturbed version of the batch; `clean` is None where no pass saw the undisturbed one."""
        raise NotImplementedError

    def again(self, call: Call, batch: Batch) -> Output:
        """Run the model once more, with fresh dropout, on the disturbed version that `view` made last."""
        raise NotImplementedError(f"perturbation {self.name} cannot repeat its last view, so it is not `repeatable`")


class Perturbation(Component):
    """How the input, or the weights, are disturbed."""

    repeatable: ClassVar[bool] = False  # whether its Perturber has `again`

    def columns(self) -> Mapping[str, Collate]:
        """What training data must have beside what the model takes, and how that becomes part of a batch."""
        return {}

    def preparation(self) -> dict[str, Any]:
        """The settings that decide what `prepare` does; empty if it does nothing."""
        return {}

    def prepare(
        self,
        data: Any,
        tokenizer: Any,
        fields: Sequence[str],
        max_length: int,
        lexicon: Any = None,
        seed: int = 0,
    ) -> Any:
        """Add its `columns` to tokenized data that still have their texts, in `fields`.

        `lexicon` is the run's, if `preparation` names one.
        """
        return data

    def parts(self) -> tuple[Perturbation, ...]:
        """The perturbations that it is made of; itself, unless it is made of others."""
        return (self,)

    def start(self, run: Run) -> Perturber:
        raise NotImplementedError


class Tether(Stateful):
    """The runtime of an anchor."""

    def watching(self, call: Call) -> Call:
        """The call of a micro-batch, made to give features in its outputs if this anchor looks at them."""
        return call

    def terms(self, call: Call, batch: Batch, result: Pass, at: Progress) -> list[Term]:
        """Terms of this batch, for a pass that has clean outputs."""
        return []

    def weight_terms(self, at: Progress) -> list[Term]:
        """Terms that depend on the weights alone; asked for once per optimiser step."""
        return []

    def around(self, at: Progress) -> AbstractContextManager[None]:
        """Spans forward and backward of a micro-batch, for anchors that change the weights meanwhile."""
        return nullcontext()

    def pull_back(self, gradients: Mapping[str, Tensor]) -> None:
        """Turn gradients of the weights inside `around`, in place, into those of the weights outside."""

    def after_step(self, at: Progress) -> None:
        """The optimiser has stepped."""

    def leave(self) -> None:
        """The stage is over: undo what was done to the model."""


class Anchor(Component):
    """What ties the model to its pre-trained self."""

    needs_pretrained: ClassVar[bool] = False
    changes_weights: ClassVar[bool] = False  # whether `around` and `pull_back` do something
    weight_terms: ClassVar[bool] = False  # whether its terms depend on the weights alone

    def batch_order(self) -> Literal["stratified", "one_class"] | None:
        """How the classes are to be spread over the batches; None if that does not matter."""
        return None

    def modules(self, model: nn.Module, seed: int) -> nn.Module | None:
        """What is trained beside the model and no part of it afterwards; `model.attached` says where it is found."""
        return None

    def start(self, run: Run) -> Tether:
        raise NotImplementedError


class Masks(NamedTuple):
    """Multipliers of named parameters: one number each, `(len(names),)`, or one tensor of its shape each.

    Where parameters are divided over processes, the shape is that of the own part.
    """

    names: list[str]
    values: Tensor | list[Tensor]


@dataclass(frozen=True)
class Readings:
    """What a selection may look at when the optimiser is about to step.

    `gradients[term][parameter]` is the gradient of that term as it is stored; `factors[term]` turns it into the
    gradient as clipping leaves it, so that no gradient is copied only to be scaled.
    """

    gradients: Mapping[str, Mapping[str, Tensor]]
    factors: Mapping[str, Tensor]
    clip: Tensor
    momentum: Mapping[str, Tensor]
    beta1: float
    at: Progress

    def factor(self, term: str, clipped: bool) -> Tensor:
        return self.factors[term] if clipped else self.factors[term] / self.clip

    def norms(self, term: str, names: Sequence[str], clipped: bool = True) -> Tensor:
        """Frobenius norms of one term's gradients, `(len(names),)`."""
        gradients = self.gradients[term]
        return stacked_norms([gradients[name] for name in names]) * self.factor(term, clipped)

    def magnitudes(self, term: str, names: Sequence[str], clipped: bool = True) -> Tensor:
        """Absolute values of one term's gradients, one flat tensor over all elements."""
        gradients = self.gradients[term]
        return flat_magnitudes([gradients[name] for name in names]) * self.factor(term, clipped)


Risks = Mapping[str, tuple[Sequence[str], Tensor]]  # kind -> parameters, and one number for each


class Selector(Stateful):
    """The runtime of a selection; this one lets every parameter move."""

    def enter(self) -> None:
        """A stage begins, or continues after a resume."""

    def leave(self) -> None:
        """The stage is over: undo what `enter` did to the model."""

    def prepare(self, call: Call, steps: Iterable[Sequence[Batch]]) -> None:
        """One pass over the training data before the stage's first step, if `Selection.prepares`.

        Each element holds the micro-batches that an optimiser step would accumulate.
        """

    def probe(self, call: Call, batch: Batch, result: Pass, at: Progress) -> list[Term]:
        """Read-only terms that the objective does not yield by itself."""
        return []

    def reads(self, terms: Sequence[Term], at: Progress) -> dict[str, list[str]]:
        """Which terms' gradients are wanted on their own, and for which parameters; `total` is always there."""
        return {}

    def masks(self, readings: Readings) -> Masks | None:
        """The multipliers of this optimiser step; None means that everything moves."""
        return None

    def log(self) -> dict[str, Tensor]:
        """What the last `masks` saw, for the history; tensors, so that nothing waits for the device."""
        return {}

    def risks(self) -> Risks:
        """What the last `masks` judged single parameters by, for watches."""
        return {}


class Selection(Component):
    """Which parameters may move in a step."""

    # freeze: a masked parameter neither moves nor decays and keeps its momentum;
    # zero: only its gradient is masked, so momentum and decay still act.
    masked: ClassVar[Literal["freeze", "zero"]] = "zero"
    prepares: ClassVar[bool] = False  # whether it needs a pass over the training data before it starts
    makes_masks: ClassVar[bool] = True  # whether its Selector ever gives any

    def reads_apart(self, stage: Stage) -> bool:
        """Whether it needs the gradient of a term that is not the total's."""
        return False

    def start(self, run: Run) -> Selector:
        return Selector()
