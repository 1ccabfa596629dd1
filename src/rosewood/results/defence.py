"""Defences on disk: what a wrapped model says of itself, and certificates."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions, now

COST = "×: so many passes of the network for each text; 1 where no number is given."
Forwards = Annotated[float, Field(gt=0)]


class SavedDefence(ResultFile):
    """A defence with its settings, and what it has learnt; the model that it wraps is in the folder beside the file."""

    defence: str  # its name in the registry
    settings: dict[str, Any]
    learnt: dict[str, Any] = {}  # a lexicon, a vocabulary, thresholds: whatever the defence needs to answer
    forwards: Forwards  # passes of the network for one text
    command: str = ""  # that wrapped the model; empty in a live session


def with_cost(model: str, forwards: float) -> str:
    """The name of a model in a table, with what an answer of it costs if that is more than one pass."""
    return model if forwards == 1 else f"{model} ×{forwards:g}"


class CertifiedExample(ResultPart):
    """What is certain of one text, with the confidence that the certificate was made with."""

    row: Count
    label: Count
    prediction: Count | None  # None: abstained, as no label is certain to have more than half of all copies
    words: Count
    votes: Count  # of the copies, those with the most frequent label
    lower: Share  # bound of the share of all copies that have it
    radii: dict[str, Count] = {}  # kind of edit -> how many of them change nothing


class Certificate(ResultFile):
    """What `certificate.json` says: certified accuracy of the smoothed model by the number of edits."""

    model: str
    task: str | None = None
    split: str | None = None
    by: Literal["mask", "delete", "substitute"]
    share: Share
    copies: Annotated[int, Field(gt=0)]  # that a bound is computed from
    selection_copies: Annotated[int, Field(gt=0)]  # others, that choose the label the bound is about
    confidence: Annotated[float, Field(gt=0, lt=1)]  # of each text's certificate
    seed: int
    max_length: Count
    fingerprint: str  # of all of the above, the model's weights and the texts
    versions: dict[str, str] = Field(default_factory=installed_versions)
    created: AwareDatetime = Field(default_factory=now)
    seconds: Annotated[float, Field(ge=0)]
    examples: Annotated[list[CertifiedExample], Field(min_length=1)]

    @property
    def abstained(self) -> float:
        """The share of texts without an answer."""
        return sum(each.prediction is None for each in self.examples) / len(self.examples)

    @property
    def kinds(self) -> list[str]:
        """The kinds of edits that there is a radius for."""
        return list(dict.fromkeys(kind for each in self.examples for kind in each.radii))

    def certified_accuracy(self, kind: str, radius: int) -> float:
        """The share of texts that get the right answer after any so many edits; an abstention is not one."""
        right = [each for each in self.examples if each.prediction == each.label]
        return sum(each.radii.get(kind, 0) >= radius for each in right) / len(self.examples)

    def largest_radius(self, kind: str) -> int:
        """The most edits that any text of the right answer withstands."""
        right = [each for each in self.examples if each.prediction == each.label]
        return max((each.radii.get(kind, 0) for each in right), default=0)
