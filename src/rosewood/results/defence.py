"""Defences: what `defence.json` says of a model that is wrapped."""

from typing import Annotated, Any

from pydantic import Field

from rosewood.results.files import ResultFile

COST = "×: so many passes of the network for each text; 1 where no number is given."
Forwards = Annotated[float, Field(gt=0)]


class SavedDefence(ResultFile):
    """A defence with its settings, and what it has learnt; the model that it wraps is in the folder beside the file."""

    defence: str  # its name in the registry
    settings: dict[str, Any]
    learnt: dict[str, Any] = {}  # a lexicon, a vocabulary, thresholds: whatever the defence needs to answer
    forwards: Forwards  # passes of the network for one text


def with_cost(model: str, forwards: float) -> str:
    """The name of a model in a table, with what an answer of it costs if that is more than one pass."""
    return model if forwards == 1 else f"{model} ×{forwards:g}"
