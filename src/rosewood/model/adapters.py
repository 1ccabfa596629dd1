"""PEFT adapters inside a model: what they stand on, and how far they take its weights from the pre-trained ones.

Nothing here imports peft, so that it is needed only by those who use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

# Initialisations that leave the weights below the adapter as they are; the others (pissa, olora, ...) take a part out.
KEEPS_WEIGHTS = (True, False, "gaussian", "eva")


class LowRank(NamedTuple):
    """A layer with the weight W0 + scaling B A: the names of W0, of A (rank, inputs) and of B (outputs, rank)."""

    base: str
    down: str
    up: str
    scaling: float
    embedding: bool
    transposed: bool  # whether W0 is (inputs, outputs)

    @property
    def factors(self) -> tuple[str, str]:
        return self.down, self.up


def without_adapter(model: nn.Module) -> nn.Module:
    """The model that a PEFT wrapper stands around, adapter layers inside it; any other model as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]


def encoder(model: nn.Module) -> nn.Module | None:
    """The part of a model below its head; None if the model does not tell the two apart."""
    bare = without_adapter(model)
    below = getattr(bare, "base_model", bare)
    return None if below is bare else below


def low_rank_changes(model: nn.Module) -> list[LowRank]:
    """Every active LoRA adapter of every layer."""
    return [change for name, layer in model.named_modules() for change in _of_layer(name, layer)]


def _of_layer(name: str, layer: nn.Module) -> Iterator[LowRank]:
    # AdaLoRA has three factors, in parameters instead of modules.
    if not isinstance(getattr(layer, "lora_A", None), nn.ModuleDict):
        return
    known: Any = layer
    for adapter in known.active_adapters:
        base = f"{name}.base_layer.weight"
        if adapter in known.lora_A:
            factors = (f"{name}.lora_A.{adapter}.weight", f"{name}.lora_B.{adapter}.weight")
            yield LowRank(base, *factors, known.scaling[adapter], False, bool(known.fan_in_fan_out))
        elif adapter in known.lora_embedding_A:
            factors = (f"{name}.lora_embedding_A.{adapter}", f"{name}.lora_embedding_B.{adapter}")
            yield LowRank(base, *factors, known.scaling[adapter], True, True)


def start_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why the model is not its pre-trained self when its adapters are off; none if it is."""
    changed = [init for config in _configs(model) if (init := _start(config)) not in KEEPS_WEIGHTS]
    return [
        f"{user} needs the pre-trained weights, and init_lora_weights={init!r} has moved a part of them into the "
        "adapter: use init_lora_weights=True"
        for init in changed
    ]


def change_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why the distance from the pre-trained weights is not known; none if it is."""
    kinds = sorted({config.peft_type.value for config in _configs(model)} - {"LORA"})
    if kinds:
        return [f"{user} knows how far LoRA takes the weights, not how far {' and '.join(kinds)} does: use LoRA"]
    changes = low_rank_changes(model)
    if len({change.base for change in changes}) < len(changes):
        return [f"{user} knows how far one adapter takes the weights, and here several are active: activate one"]
    if any(_is_variant(layer) for layer in model.modules()):
        return [
            f"{user} knows how far plain LoRA takes the weights, W0 + scaling B A, and a layer of this model computes "
            "something else (such as DoRA): leave such settings of LoraConfig out, or the anchor"
        ]
    return start_problems(model, user)


def _is_variant(layer: Any) -> bool:
    """Whether a LoRA layer adds something else than scaling B A, such as DoRA, or one product for each expert."""
    if not isinstance(getattr(layer, "lora_A", None), nn.ModuleDict):
        return False
    stacked = any(factor.weight.shape[0] != layer.r[adapter] for adapter, factor in layer.lora_A.items())
    return stacked or bool(layer.lora_variant)


def virtual_token_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why tokens of the batch and of the model do not correspond; none if they do."""
    kinds = [config.peft_type.value for config in _configs(model) if config.is_prompt_learning]
    return [
        f"{user} changes single tokens, and {kind} puts tokens of its own before them: use an adapter such as LoRA"
        for kind in kinds
    ]


def _configs(model: nn.Module) -> list[Any]:
    return list(getattr(model, "peft_config", {}).values())


def _start(config: Any) -> bool | str:
    return getattr(config, "init_lora_weights", True)
