"""The recipes, letter by letter."""

from __future__ import annotations

from rosewood.report.parts import Listing, Section
from rosewood.report.subject import Subject

PLACE = 90


def section(subject: Subject) -> Section | None:
    """One file a method."""
    found = {run.method: run.recipe for run in subject.runs if run.recipe is not None}
    listings = [Listing(method, text) for method, text in found.items()]
    lead = "Saved as a file, each can be given to rosewood train --recipe."
    return Section("Recipes", listings, lead) if listings else None
