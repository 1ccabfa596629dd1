"""Whether models may be compared weight by weight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from transformers import PreTrainedModel

from rosewood.averaging import Weights
from rosewood.errors import RunError


class Kind(NamedTuple):
    """What two models must share, so that one's weights mean something in the other."""

    architecture: str
    labels: list[str]
    shapes: dict[str, tuple[int, ...]]


def kind_of(model: PreTrainedModel) -> Kind:
    """That of a model in memory."""
    labels = cast(dict[int, str], model.config.id2label)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return Kind(type(model).__name__, list(labels.values()), shapes)


def kind_on_disk(folder: Path) -> Kind:
    """That of a saved model, without reading its weights."""
    weights = Weights(folder)
    architectures, labels = weights.config.get("architectures") or ["unknown"], weights.config.get("id2label") or {}
    return Kind(architectures[0], list(labels.values()), weights.shapes())


def check_alike(kinds: Mapping[str, Kind]) -> None:
    """Refuse models whose weights do not mean the same."""
    (first, ours), *others = kinds.items()
    for name, theirs in others:
        problems = []
        if theirs.architecture != ours.architecture:
            problems.append(f"is another architecture ({theirs.architecture}, not {ours.architecture})")
        if theirs.labels != ours.labels:
            problems.append(f"has other labels ({', '.join(theirs.labels)}, not {', '.join(ours.labels)})")
        both = ours.shapes | theirs.shapes
        differing = [each for each in both if ours.shapes.get(each) != theirs.shapes.get(each)]
        if differing:
            here, there = ours.shapes.get(differing[0]), theirs.shapes.get(differing[0])
            problems.append(f"has weights of other shapes ({differing[0]}: {there}, not {here})")
        if problems:
            raise RunError(f"{name} cannot be compared with {first}: it {', and '.join(problems)}.")
