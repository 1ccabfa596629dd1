"""Certificates side by side: certified accuracy by the number of edits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rosewood.results.defence import Certificate
from rosewood.results.grid import Grid

EDITS = {
    "changed": "any word in place of a word",
    "inserted": "words inserted",
    "deleted": "words deleted",
    "edited": "words changed, inserted or deleted",
    "synonyms": "synonyms in place of words",
}
RADII = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20)


def kept_certificates(run: Path) -> list[Certificate]:
    """What `rosewood certify` has left in the folder of a run."""
    return [Certificate.load(file) for file in sorted(run.glob("certificates/*/certificate.json"))]


def title_of(certificate: Certificate) -> str:
    """The copies, and on what."""
    place = " ".join(filter(None, [certificate.task, certificate.split]))
    return f"{certificate.by} {certificate.share:g}" + (f" on {place}" if place else "")


def certificate_grid(certificates: Mapping[str, Certificate]) -> Grid:
    """A row for each model and kind of edit; a column for each number of edits that some text withstands."""
    largest = max((each.largest_radius(kind) for each in certificates.values() for kind in each.kinds), default=0)
    radii = [radius for radius in RADII if radius <= max(1, largest)]
    rows = [
        [
            model,
            EDITS[kind],
            str(len(each.examples)),
            f"{100 * each.abstained:.1f}",
            *(f"{100 * each.certified_accuracy(kind, radius):.1f}" for radius in radii),
        ]
        for model, each in certificates.items()
        for kind in each.kinds
    ]
    costs = {each.copies + each.selection_copies for each in certificates.values()}
    sure = {f"{100 * each.confidence:g}" for each in certificates.values()}
    caption = (
        f"Certified accuracy in % by the number of edits: right, and no such edits can change the answer of the vote "
        f"over all copies, with {' or '.join(sorted(sure))} % confidence for each text. 0: accuracy where there is an "
        "answer at all; abstained: % of the texts without one. "
        f"×{' or ×'.join(map(str, sorted(costs)))} passes of the network for each text."
    )
    return Grid("Certificates", ["model", "edits", "n", "abstained", *map(str, radii)], rows, caption, texts=2)
