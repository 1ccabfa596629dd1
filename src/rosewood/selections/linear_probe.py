"""Linear probe: only the head is trained, on frozen features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from rosewood.models.adapters import encoder, without_adapter
from rosewood.protocol import Cost, Run, Selection, Selector

if TYPE_CHECKING:
    from rosewood.recipe import Stage


@dataclass(frozen=True)
class LinearProbe(Selection):
    """The first stage of LP-FT (Kumar et al., ICLR 2022): train the head, freeze the encoder in eval mode.

    The head is every trainable parameter outside the model's `base_model`; a pooler inside it stays frozen. Dropout
    of the encoder is off, dropout of the head stays on. A frozen parameter gets no gradient, so that neither
    momentum nor weight decay moves it. Adapters are part of the encoder.
    """

    makes_masks = False

    def cost(self, stage: Stage) -> Cost:
        # No graph is built below the head, and a backward through the head alone is next to nothing.
        return Cost(backward=-stage.objective.cost(stage).backward)

    def explain(self, stage: Stage) -> list[str]:
        return ["only the parameters of the head move; the encoder is frozen, its dropout off"]

    def problems(self, stage: Stage) -> list[str]:
        return [
            f"anchor {anchor.name} acts on the weights of the encoder, which selection linear_probe does not move: "
            "leave it out of this stage (anchors: [])"
            for anchor in stage.anchors
            if anchor.weight_terms or anchor.changes_weights
        ]

    def problems_with(self, model: nn.Module) -> list[str]:
        kind = type(model).__name__
        if encoder(model) is None:
            return [f"selection linear_probe trains what is on top of an encoder, but {kind} has no base_model"]
        if not any(name in _head_names(model) for name, p in model.named_parameters() if p.requires_grad):
            return [f"selection linear_probe trains the head, but {kind} has no trainable parameter outside base_model"]
        return []

    def start(self, run: Run) -> HeadOnly:
        return HeadOnly(run)


def _head_names(model: nn.Module) -> set[str]:
    below = encoder(model)
    inside = set() if below is None else {id(p) for p in below.parameters()}
    head = {id(p) for p in without_adapter(model).parameters()} - inside
    return {name for name, p in model.named_parameters() if id(p) in head}


class HeadOnly(Selector):
    """Freezes the encoder while its stage lasts."""

    def __init__(self, run: Run) -> None:
        below = encoder(run.model)
        assert below is not None, "problems_with refuses models without a base_model"
        self._model, self._encoder = run.model, below
        self._frozen: list[nn.Parameter] = []
        self._hook: RemovableHandle | None = None

    def enter(self) -> None:
        head = _head_names(self._model)
        self._frozen = [p for name, p in self._model.named_parameters() if p.requires_grad and name not in head]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        # Before every forward, because the trainer switches the whole model to training in every step.
        self._hook = self._encoder.register_forward_pre_hook(_calm)

    def leave(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._encoder.train(self._model.training)
        self._hook, self._frozen = None, []


def _calm(encoder: nn.Module, inputs: Any) -> None:
    encoder.eval()
