"""Figures of evaluations: perspectives, sets, groups, calibration, anomalies, attacks and noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from rosewood.comparison.runs import EvaluatedRun, shared_tasks
from rosewood.comparison.significance import Figure, mean_of
from rosewood.evaluation.measure import MEASURED, ROLES, interval_of_mean, mean_interval
from rosewood.report.figures.style import GRID, TEXT, axis_title, label, mark, small_chart, styled
from rosewood.results import AttackSummary, Evaluation, Role
from rosewood.results.evaluation import guesses_before, is_guessing, marked

Methods = Mapping[str, Sequence[Evaluation]]
"""Method -> the evaluations of its runs."""


def perspectives(methods: Mapping[str, Sequence[EvaluatedRun]]) -> go.Figure | None:
    """Means over the counted sets of each role, with intervals; nothing where there are fewer than two roles.

    Tasks are not seeds: the tasks that all methods have are averaged within each seed before the interval over seeds.
    """
    shared = shared_tasks(methods)
    found = averaged(
        (row, method, figure)
        for method, seeds in shared.by_seed.items()
        for evaluations in seeds.values()
        for row, figure in _over_tasks(evaluations)
    )
    if len({each.row for each in found}) < 2:
        return None
    axis = "accuracy in %" if len(shared.tasks) == 1 else f"mean accuracy over {len(shared.tasks)} tasks in %"
    return dots(found, list(methods), "Accuracy from each perspective", axis)


def _over_tasks(evaluations: Sequence[Evaluation]) -> Iterator[tuple[str, Figure]]:
    """The mean of each role over the tasks of one seed; a role that not all of them have says so."""
    by_role: dict[Role, list[Figure]] = {}
    for evaluation in evaluations:
        for role, accuracy in role_accuracies(evaluation):
            by_role.setdefault(role, []).append(accuracy)
    for role, figures in by_role.items():
        lacking = len(figures) < len(evaluations)
        yield f"{role}, {len(figures)} of {len(evaluations)} tasks" if lacking else role, _mean(figures)


def _mean(figures: Sequence[Figure]) -> Figure:
    """The mean of one model over tasks, whose examples differ."""
    values = [each.value for each in figures]
    intervals = [each.interval or (each.value, each.value) for each in figures]
    return Figure(
        sum(values) / len(values), interval_of_mean(values, intervals), any(each.guessing for each in figures)
    )


def role_accuracies(evaluation: Evaluation) -> Iterator[tuple[Role, Figure]]:
    """The mean accuracy over the counted sets of each role that has some."""
    for role in ROLES:
        sets = [each for each in evaluation.sets if each.role == role and each.counted]
        if sets:
            mean = sum(each.accuracy for each in sets) / len(sets)
            yield role, Figure(mean, mean_interval(sets), is_guessing(evaluation))


def sets(methods: Methods, role: Role) -> go.Figure | None:
    """One row for each set of the role; nothing if there is none."""
    found = averaged(
        (each.name, method, Figure(each.accuracy, each.interval, is_guessing(run)))
        for method, runs in methods.items()
        for run in runs
        for each in run.sets
        if each.role == role
    )
    return dots(found, list(methods), f"Accuracy on {role} sets", "accuracy in %") if found else None


def groups(methods: Methods, name: str) -> go.Figure | None:
    """One row for each group of the set; nothing if it was not divided."""
    found = averaged(
        (f"{group.kind}: {group.group}", method, Figure(group.accuracy, group.interval, is_guessing(run)))
        for method, runs in methods.items()
        for run in runs
        for each in run.sets
        if each.name == name
        for group in each.groups
    )
    return dots(found, list(methods), f"Groups of {label(name)}", "accuracy in %") if found else None


def anomaly_scores(methods: Methods) -> list[str]:
    """The scores that tell anomalies, in the order of the evaluation."""
    return list(dict.fromkeys(each.score for runs in methods.values() for run in runs for each in run.anomalies))


def anomalies(methods: Methods, score: str) -> go.Figure:
    """AUROC by set, for one score; half is chance."""
    found = averaged(
        (each.name, method, Figure(each.auroc))
        for method, runs in methods.items()
        for run in runs
        for each in run.anomalies
        if each.score == score
    )
    figure = dots(found, list(methods), label(score.replace("_", " ")), "AUROC in %, 50 is chance", reference=0.5)
    # The same for every score, so that they compare.
    lowest = min([0.5, *(each.auroc for runs in methods.values() for run in runs for each in run.anomalies)])
    return figure.update_xaxes(range=[100 * lowest - 3, 103])


Attacked = Mapping[str, Mapping[str, Sequence[AttackSummary]]]
"""Attack -> method -> what it came to in each of its runs."""


def robust_accuracy(attacked: Attacked, methods: Sequence[str]) -> go.Figure | None:
    """Two rows per attack: the accuracy on the attacked examples before, and under attack."""
    found = averaged(_figures(attacked))
    return dots(found, methods, "Accuracy before and under attack", "accuracy in %") if found else None


def trade_off(attacked: Attacked, methods: Sequence[str]) -> go.Figure | None:
    """Clean against robust accuracy under the attack that breaks most; nothing where no attack met several methods.

    Both accuracies are of the attacked examples. Methods at the upper right are better on both.
    """
    found = {(each.row, each.series): each for each in averaged(_figures(attacked))}
    met = {attack: [method for method in methods if (f"under {attack}", method) in found] for attack in attacked}
    most = max(map(len, met.values()), default=0)
    if most < 2:
        return None
    hardest = min(
        (attack for attack in attacked if len(met[attack]) == most),
        key=lambda attack: sum(found[f"under {attack}", method].value for method in met[attack]),
    )
    figure = go.Figure()
    for method in met[hardest]:
        clean, robust = found[f"before {hardest}", method], found[f"under {hardest}", method]
        look = mark(methods.index(method))
        figure.add_scatter(
            x=[100 * clean.value],
            y=[100 * robust.value],
            error_x=_bars([clean]),
            error_y=_bars([robust]),
            mode="markers",
            name=marked(label(method), clean.guessing),
            marker={"color": look.colour, "symbol": look.symbol, "size": 11},
            hovertext=[f"{_hover(clean)}<br>{_hover(robust)}"],
            hoverinfo="text",
        )
    styled(figure, "Clean against robust accuracy").update_layout(height=420, showlegend=True, hovermode="closest")
    figure.update_xaxes(title=axis_title("clean accuracy in %"), automargin=True, zeroline=False)
    figure.update_yaxes(title=axis_title(label(f"under {hardest} in %", 60)), automargin=True, zeroline=False)
    return figure


def _figures(attacked: Attacked) -> Iterator[tuple[str, str, Figure]]:
    for attack, by_method in attacked.items():
        for method, summaries in by_method.items():
            for each in (summary for summary in summaries if summary.attacked):
                guessing = guesses_before(each)
                yield f"before {attack}", method, Figure(each.clean_accuracy, each.clean_interval, guessing)
                yield f"under {attack}", method, Figure(each.robust_accuracy, each.robust_interval, guessing)


def noise_kinds(methods: Methods) -> list[str]:
    """The noises that were measured at two strengths or more, as a curve needs."""
    measured = {
        (each.noise.kind, each.noise.strength): None
        for runs in methods.values()
        for run in runs
        for each in run.sets
        if each.noise
    }
    kinds = [kind for kind, _ in measured]
    return [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]


def noise_curves(methods: Methods, kind: str) -> go.Figure:
    """One curve per method, from the text as it is to the strongest noise."""
    figure = go.Figure()
    for place, (method, runs) in enumerate(methods.items()):
        curve = _curve(runs, kind)
        figure.add_scatter(
            x=list(curve),
            y=[100 * each.value for each in curve.values()],
            error_y=_bars(list(curve.values())),
            name=marked(label(method), any(map(is_guessing, runs))),
            hovertext=[f"{label(method)} at {at:g}: {100 * each.value:.1f} %" for at, each in curve.items()],
            **mark(place).curve(),
        )
    small_chart(figure, label(kind.replace("_", " ")), "strength", "accuracy in %")
    return figure.update_yaxes(range=_range(methods))


def _range(methods: Methods) -> list[float]:
    """The same for every kind, so that the steepness of their curves compares."""
    curves = [_curve(runs, kind) for runs in methods.values() for kind in noise_kinds(methods)]
    ends = [end for curve in curves for each in curve.values() for end in each.interval or (each.value,)]
    return [100 * max(0.0, min(ends)) - 2, 100 * min(1.0, max(ends)) + 2]


def _curve(runs: Sequence[Evaluation], kind: str) -> dict[float, Figure]:
    """Strength -> accuracy; strength 0 is the set that the noise was made from."""
    points: dict[float, list[Figure]] = {}
    for run in runs:
        noisy = [each for each in run.sets if each.noise and each.noise.kind == kind]
        plain = {each.noise.of for each in noisy if each.noise}
        for each in run.sets:
            strength = each.noise.strength if each.noise else 0.0
            if each in noisy or each.name in plain:
                points.setdefault(strength, []).append(Figure(each.accuracy, each.interval))
    return {strength: mean_of(points[strength]) for strength in sorted(points)}


def calibration(methods: Methods) -> go.Figure | None:
    """One row for each clean, shifted or adversarial set; an interval only over seeds."""
    found = averaged(
        (each.name, method, Figure(each.ece))
        for method, runs in methods.items()
        for run in runs
        for each in run.sets
        if each.role in MEASURED
    )
    return dots(found, list(methods), "Expected calibration error", "error in %, lower is better") if found else None


class Bin(NamedTuple):
    """All examples of one confidence bin, over seeds."""

    examples: int
    confidence: float
    accuracy: float


def reliability(methods: Methods, name: str) -> go.Figure | None:
    """Accuracy by confidence on one set; on the diagonal a model is as sure as it is right."""
    figure = go.Figure()
    for place, (method, runs) in enumerate(methods.items()):
        bins = _pooled(runs, name)
        if bins:
            figure.add_scatter(
                x=[each.confidence for each in bins],
                y=[each.accuracy for each in bins],
                name=label(method),
                hovertext=[
                    f"{label(method)}<br>sure {each.confidence:.0%}, right {each.accuracy:.0%} of {each.examples}"
                    for each in bins
                ],
                **mark(place).curve(),
            )
    if not figure.data:
        return None
    diagonal = {"x0": 0, "y0": 0, "x1": 1, "y1": 1, "xref": "x", "yref": "y"}
    figure.add_shape(type="line", **diagonal, line={"color": TEXT, "width": 1, "dash": "dash"})
    small_chart(figure, label(name), "confidence", "accuracy")
    figure.update_xaxes(tickformat=".0%", range=[0, 1.02])
    return figure.update_yaxes(tickformat=".0%", range=[0, 1.05])


def _pooled(runs: Sequence[Evaluation], name: str) -> list[Bin]:
    together: dict[float, list[Bin]] = {}
    for point in (point for run in runs for each in run.sets if each.name == name for point in each.reliability):
        if point.examples and point.confidence is not None and point.accuracy is not None:
            together.setdefault(point.low, []).append(Bin(point.examples, point.confidence, point.accuracy))
    return [_merged(together[low]) for low in sorted(together)]


def _merged(bins: Sequence[Bin]) -> Bin:
    examples = sum(each.examples for each in bins)
    confidence = sum(each.examples * each.confidence for each in bins) / examples
    return Bin(examples, confidence, sum(each.examples * each.accuracy for each in bins) / examples)


ROW, DOT, FRAME = 18, 11, 110  # pixels: a row without its dots, each of its dots, and the frame around the rows


class Dot(NamedTuple):
    """A share with its 95 % interval, if it has one, and whether a model at guessing has it."""

    row: str
    series: str
    value: float
    interval: tuple[float, float] | None = None
    guessing: bool = False


def averaged(found: Iterable[tuple[str, str, Figure]]) -> list[Dot]:
    """The figures of single runs, by row and series, as one dot for all runs of a series."""
    together: dict[tuple[str, str], list[Figure]] = {}
    for row, series, figure in found:
        together.setdefault((row, series), []).append(figure)
    means = {place: mean_of(figures) for place, figures in together.items()}
    return [Dot(*place, mean.value, mean.interval, mean.guessing) for place, mean in means.items()]


def dots(
    found: Sequence[Dot], series: Sequence[str], title: str, axis: str, reference: float | None = None
) -> go.Figure:
    """The dots in %, rows from top to bottom as they come; the place in `series` decides the colour."""
    rows = list(dict.fromkeys(each.row for each in found))
    shown = [name for name in series if any(each.series == name for each in found)]
    figure = go.Figure()
    for name in shown:
        figure.add_trace(_trace(found, rows, name, series.index(name), _offset(shown.index(name), len(shown))))
    styled(figure, title)
    figure.update_layout(height=FRAME + len(rows) * (ROW + DOT * len(shown)), showlegend=True, hovermode="closest")
    figure.update_xaxes(title=axis_title(axis), automargin=True, zeroline=False)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[label(row) for row in rows],
        range=[len(rows) - 0.5, -0.5],
        automargin=True,
        zeroline=False,
        showgrid=False,
    )
    for place in range(1, len(rows)):
        figure.add_hline(y=place - 0.5, line={"color": GRID, "width": 1})
    if reference is not None:
        figure.add_vline(x=100 * reference, line={"color": TEXT, "width": 1, "dash": "dash"})
    return figure


def _offset(place: int, count: int) -> float:
    """How far below the middle of its row a dot is."""
    return 0.7 * ((place + 0.5) / count - 0.5)


def _trace(found: Sequence[Dot], rows: Sequence[str], name: str, place: int, offset: float) -> go.Scatter:
    own = [each for each in found if each.series == name]
    look = mark(place)
    return go.Scatter(
        x=[100 * each.value for each in own],
        y=[rows.index(each.row) + offset for each in own],
        error_x=_bars(own),
        mode="markers",
        name=marked(label(name), any(each.guessing for each in own)),
        marker={"color": look.colour, "symbol": look.symbol, "size": 8},
        hovertext=[_hover(each) for each in own],
        hoverinfo="text",
    )


def _bars(dots: Sequence[Dot | Figure]) -> dict[str, object]:
    """The intervals of dots, in %."""
    ends = [_clipped(each) for each in dots]
    return {
        "array": [100 * (high - each.value) for each, (_, high) in zip(dots, ends, strict=True)],
        "arrayminus": [100 * (each.value - low) for each, (low, _) in zip(dots, ends, strict=True)],
        "thickness": 1.5,
        "width": 3,
    }


def _clipped(each: Dot | Figure) -> tuple[float, float]:
    """An interval over few seeds can reach beyond what a share can be."""
    low, high = each.interval or (each.value, each.value)
    return min(each.value, max(0.0, low)), max(each.value, min(1.0, high))


def _hover(each: Dot) -> str:
    text = f"{label(each.row)}<br>{label(each.series)}: {100 * each.value:.1f} %{' (at guessing)' * each.guessing}"
    if each.interval is None:
        return text
    low, high = _clipped(each)
    return f"{text} ({100 * low:.1f} to {100 * high:.1f})"
