"""Certificates: how far each text may be changed without changing the answer, and the figures that come of it."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions, now


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
