"""The figures of docs/evidence.md as SVG that reads on light and on dark pages; equal figures make equal bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import matplotlib
from kept_studies import ADVGLUE, CLEAN, Study

matplotlib.use("svg")

import matplotlib.pyplot as plt

INK = "#808080"
MARKERS = "os^Dv"  # a colour that comes twice has another shape
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b")
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "rosewood",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def trade_off_figure(study: Study, robust: str, said: str | None = None) -> str:
    """Clean accuracy against robust accuracy: small points are seeds, large ones means; `said` is on the axis."""

    def draw(axes: Any) -> None:
        for place, method in enumerate(study.methods):
            clean, other = study.seeds_of(method, CLEAN), study.seeds_of(method, robust)
            seeds = sorted(clean.keys() & other.keys())
            if not seeds:
                continue
            points = [(100 * clean[seed], 100 * other[seed]) for seed in seeds]
            middle = (fmean(x for x, _ in points), fmean(y for _, y in points))
            if len(points) > 1:
                axes.scatter(*zip(*points, strict=True), s=14, alpha=0.5, **_look(place))
            axes.scatter(*middle, s=55, zorder=3, label=method, **_look(place))
        axes.set_xlabel("clean accuracy, %")
        axes.set_ylabel(f"{said or ('accuracy ' if robust.startswith('under') else '') + robust}, %")
        axes.margins(0.12)

    return _svg(draw)


def gain_figure(study: Study, robust: str) -> str:
    """What each method has over the baseline on clean rows and on others."""

    def draw(axes: Any) -> None:
        axes.axhline(0, color=INK, linewidth=0.7)
        axes.axvline(0, color=INK, linewidth=0.7)
        for place, method in enumerate(each for each in study.methods if each != study.baseline):
            at = (fmean(study.gains(method, CLEAN)), fmean(study.gains(method, robust)))
            axes.scatter(*at, s=45, zorder=3, label=method, **_look(place))
        axes.set_xlabel(f"clean accuracy, points above {study.baseline}")
        axes.set_ylabel(f"{robust}, points above {study.baseline}")
        axes.margins(0.12)

    return _svg(draw)


def course_figure(courses: Mapping[str, Mapping[int, Mapping[str, list[float]]]]) -> str:
    """Clean accuracy and AdvGLUE while models train."""

    def draw(axes: Any) -> None:
        for place, (method, moments) in enumerate(courses.items()):
            steps = sorted(moments)
            for figure, line in ((CLEAN, "-"), (ADVGLUE, "--")):
                middle = [fmean(moments[step][figure]) for step in steps]
                axes.plot(
                    steps, middle, line, marker="o", markersize=3, color=COLOURS[place], label=f"{method}, {figure}"
                )
        axes.set_xlabel("optimiser steps")
        axes.set_ylabel("accuracy, %")

    return _svg(draw)


def _look(place: int) -> dict[str, str]:
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place // len(COLOURS) % len(MARKERS)]}


def _svg(draw: Any) -> str:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
        draw(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, labelcolor=INK, loc="center left", bbox_to_anchor=(1, 0.5))
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return text.getvalue()
