"""Answers and attacks as HTML; whatever a person or a model's config says is shown as text, never obeyed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader

from rosewood.lab.playground.attack import Round
from rosewood.lab.playground.runs import Answer
from rosewood.report.figures.style import colour
from rosewood.results import AttackedExample

CLASSES = 8
"""Classes that are shown of a task with many."""
CONTEXT = 300
"""Characters that are shown of each end of a long part without change."""


def header_html(title: str, runs: Sequence[str]) -> str:
    """What the page is about."""
    return _render("header.html", title=title, runs=runs)


def answers_html(answers: Sequence[Answer], labels: Sequence[str]) -> str:
    """Every run's class probabilities, side by side."""
    highest = [max(answer.probabilities[label] for answer in answers) for label in range(len(labels))]
    shown = sorted(sorted(range(len(labels)), key=lambda label: -highest[label])[:CLASSES])
    agreed = len({answer.prediction for answer in answers}) == 1
    return _render("answers.html", answers=answers, labels=labels, shown=shown, agreed=agreed)


def attack_html(rounds: Sequence[Round], labels: Sequence[str], field: str, max_queries: int) -> str:
    """What the attack on a field found against each run, with the changed words marked."""
    # Two runs that the same words break share one headline.
    headlines = {tuple(_changes(each)): each for each in rounds if each.example.status == "broken"}
    return _render(
        "attack.html",
        rounds=rounds,
        labels=labels,
        headlines=headlines,
        max_queries=max_queries,
        pieces=partial(_pieces, field=field),
    )


def notice_html(words: str) -> str:
    """Something that the person should know or do."""
    return _render("notice.html", words=words)


def _changes(found: Round) -> list[tuple[str, str]]:
    return [(change.before, change.after) for change in found.example.changes]


def _pieces(example: AttackedExample, field: str) -> list[tuple[str, str]]:
    """The text in pieces before and after; of a long part without change only the ends."""
    text = example.texts[field]
    return [(_short(a), _short(b)) if a == b else (a, b) for a, b in example.aligned or [(text, text)]]


def _short(text: str) -> str:
    return text if len(text) <= 2 * CONTEXT else f"{text[:CONTEXT]} … {text[-CONTEXT:]}"


@cache
def _templates() -> Environment:
    found = Environment(loader=PackageLoader("rosewood.lab.playground"), autoescape=True, trim_blocks=True)
    found.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    found.globals["colour"] = colour
    return found


def _render(name: str, **what: Any) -> str:
    return _templates().get_template(name).render(**what)
