"""Which parameters a selection chooses among."""

from __future__ import annotations

import re

from torch import nn

from rosewood.errors import RecipeError


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


def candidate_names(model: nn.Module, pattern: str | None = None) -> list[str]:
    """Trainable non-bias parameters inside the repeated blocks, or those whose name matches `pattern`.

    On BERT and RoBERTa the rule equals the official ROSE code's ("layer" and "weight" in the name); unlike that,
    it also works where blocks are called otherwise, and leaves out embeddings, pooler, final norm and head.
    """
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
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
    chosen = [n for n in names if n.startswith(prefixes) and "bias" not in n.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            f"{type(model).__name__} has no trainable parameter inside repeated blocks (an nn.ModuleList), so there "
            "is nothing to select among. Name the candidates by a regular expression: --set selection.parameters=..."
        )
    return chosen
