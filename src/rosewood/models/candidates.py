"""Which parameters a selection chooses among."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from torch import Tensor, nn

from rosewood.errors import RecipeError
from rosewood.protocol import Masks, is_attached


def block_prefixes(model: nn.Module) -> list[str]:
    """Name prefixes of the repeated blocks: the outermost module lists of the encoder (or of a decoder-only model).

    In an encoder-decoder model only the encoder counts. Nested lists belong to the outermost one.
    """
    root = model
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        root = model.get_encoder()  # type: ignore[operator]
    inside = {id(module) for module in root.modules()}
    prefixes: list[str] = []
    for name, module in model.named_modules():
        nested = any(name.startswith(prefix) for prefix in prefixes)
        if isinstance(module, nn.ModuleList) and id(module) in inside and not nested:
            prefixes.append(f"{name}.")
    return prefixes


def candidate_names(model: nn.Module, pattern: str | None = None, biases: bool = False) -> list[str]:
    """Trainable parameters inside the repeated blocks, with or without biases, or those whose name matches `pattern`.

    On BERT and RoBERTa the rule equals the official codes': ROSE's without biases ("layer" and "weight" in the name),
    Child-Tuning's and RoAST's with them ("layer" in the name). Unlike those, it also works where blocks are called
    otherwise, and leaves out embeddings, pooler, final norm and head.
    """
    named = model.named_parameters()
    names = [name for name, parameter in named if parameter.requires_grad and not is_attached(name)]
    if pattern is not None:
        try:
            chosen = [name for name in names if re.search(pattern, name)]
        except re.error as error:
            raise RecipeError(f"selection.parameters: {pattern!r} is no regular expression: {error}") from None
        if not chosen:
            raise RecipeError(
                f"no trainable parameter of {type(model).__name__} matches {pattern!r}; "
                f"its names look like {', '.join(names[:3])}"
            )
        return chosen
    prefixes = tuple(block_prefixes(model))
    inside = [name for name in names if name.startswith(prefixes)]
    chosen = inside if biases else [name for name in inside if "bias" not in name.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            f"{type(model).__name__} has no trainable parameter inside repeated blocks (an nn.ModuleList), so there "
            "is nothing to select among. Name the candidates by a regular expression: --set selection.parameters=..."
        )
    return chosen


def present_masks(names: Sequence[str], masks: Sequence[Tensor], gradients: Container[str]) -> Masks:
    """The masks of those parameters that have a gradient in this step."""
    present = [(name, mask) for name, mask in zip(names, masks, strict=True) if name in gradients]
    return Masks([name for name, _ in present], [mask for _, mask in present])
