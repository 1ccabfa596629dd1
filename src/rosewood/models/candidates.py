"""Which parameters a selection chooses among."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

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
        return _matching(names, pattern, type(model).__name__)
    prefixes = tuple(block_prefixes(model))
    inside = [name for name in names if name.startswith(prefixes)]
    chosen = inside if biases else [name for name in inside if "bias" not in name.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            f"{type(model).__name__} has no trainable parameter inside repeated blocks (an nn.ModuleList), so there "
            "is nothing to select among. Name the candidates by a regular expression: --set selection.parameters=..."
        )
    return chosen


def candidates_by_name(names: Iterable[str], pattern: str | None = None) -> list[str]:
    """The candidates where only names are known: weights inside numbered modules that have modules of their own.

    `bert.encoder.layer.0.output.dense.weight` is one, `classifier.0.weight` is not. Beside an encoder, the blocks of a
    decoder do not count. On the usual architectures these are the names that `candidate_names` finds.
    """
    names = list(names)
    if pattern is not None:
        return _matching(names, pattern, "this model")
    inside = [name for name in names if re.search(r"(?:^|\.)\d+\.\w+\.", name)]
    halves = [set(name.split(".")) & {"encoder", "decoder"} for name in inside]
    both = {"encoder"} in halves and {"decoder"} in halves
    chosen = [name for name, half in zip(inside, halves, strict=True) if not (both and "decoder" in half)]
    chosen = [name for name in chosen if "bias" not in name.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            "none of the parameters is a weight inside repeated blocks (named like encoder.layer.0.dense.weight), so "
            f"there is nothing to select among. The names look like {', '.join(names[:3])}. Name the candidates by a "
            "regular expression: parameters=..."
        )
    return chosen


def _matching(names: list[str], pattern: str, model: str) -> list[str]:
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        raise RecipeError(f"selection.parameters: {pattern!r} is no regular expression: {error}") from None
    if not chosen:
        raise RecipeError(
            f"no trainable parameter of {model} matches {pattern!r}; its names look like {', '.join(names[:3])}"
        )
    return chosen


def present_masks(names: Sequence[str], masks: Sequence[Tensor], gradients: Container[str]) -> Masks:
    """The masks of those parameters that have a gradient in this step."""
    present = [(name, mask) for name, mask in zip(names, masks, strict=True) if name in gradients]
    return Masks([name for name, _ in present], [mask for _, mask in present])
