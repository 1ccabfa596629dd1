"""The page: one file that opens from disk, with no network, on any screen and on paper."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rosewood.report.figures.style import Mark
from rosewood.report.sections import Section, sections
from rosewood.report.subject import ComparisonVerdict, Subject, verdict
from rosewood.results import now, write


@dataclass(frozen=True)
class Chapter:
    """All about one subject."""

    id: str
    title: str
    verdict: ComparisonVerdict
    facts: str
    marks: dict[str, Mark]
    sections: dict[str, Section]
    """By the name that links lead to."""


def write_report(
    subjects: Sequence[Subject],
    path: Path,
    title: str | None = None,
    notes: Sequence[str] = (),
    closing: Sequence[Section] = (),
) -> None:
    """Write the page whole, or not at all.

    Args:
        subjects: what it shows: of each, what `subject_of` gives.
        path: the file.
        title: the title of the page; by default that of the first subject.
        notes: sentences below the title.
        closing: sections after all subjects.

    Raises:
        RunError: the file cannot be written.

    Example:
        >>> from rosewood.report import load_runs, subject_of
        >>> write_report([subject_of(load_runs(["runs/rose"]))], Path("report.html"))
    """
    write(path, page(subjects, title or subjects[0].title, notes, closing))


def page(subjects: Sequence[Subject], title: str, notes: Sequence[str] = (), closing: Sequence[Section] = ()) -> str:
    """The HTML of a report on one or more subjects: notes under the title, closing sections after all subjects."""
    environment = Environment(
        loader=PackageLoader("rosewood.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    scripts = {"plotly": get_plotlyjs(), "script": _source(environment, "report.js")}
    numbers = itertools.count(1)
    return environment.get_template("report.html").render(
        title=title,
        notes=notes,
        chapters=[_chapter(subject, numbers) for subject in subjects],
        closing={f"section-{next(numbers)}": section for section in closing},
        several=len(subjects) > 1,
        policy=_policy(list(scripts.values())),
        style=Markup(_source(environment, "report.css")),
        version=version("rosewood"),
        date=f"{now():%Y-%m-%d}",
        **{name: Markup(text) for name, text in scripts.items()},
    )


def _chapter(subject: Subject, numbers: Iterator[int]) -> Chapter:
    return Chapter(
        id=f"chapter-{next(numbers)}",
        title=subject.title,
        verdict=verdict(subject),
        facts=_facts(subject),
        marks=subject.marks,
        sections={f"section-{next(numbers)}": section for section in sections(subject)},
    )


def _facts(subject: Subject) -> str:
    models = sorted({run.model for run in subject.runs if run.model})
    counts = [
        _count(len(subject.methods), "method"),
        _count(len(subject.runs), "run"),
        _count(len({each.name for run in subject.runs for each in run.evaluated.evaluation.sets}), "evaluation set"),
    ]
    return " · ".join([*counts, *models])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _policy(scripts: Sequence[str]) -> str:
    """Nothing is fetched, and no script runs but ours: what data could smuggle in would stay dead."""
    hashes = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    # The last two are not covered by default-src.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
