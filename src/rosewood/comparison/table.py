"""Evaluations side by side, one column or row per model: figures, labels, confusions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

from rich.console import Group

from rosewood.errors import RunError
from rosewood.results import ClassResult, Evaluation, GroupResult, Mean, Role, SetResult
from rosewood.results.attack import COST, with_cost
from rosewood.results.evaluation import GUESSING_NOTE, is_guessing, marked, unmarked
from rosewood.results.grid import Folded, Grid

Evaluations = Mapping[str, Evaluation]
ACCURACY = "Accuracy in %, ± half the width of its 95 % Wilson interval."
SEVERAL = "A text is right if all its labels are. "
_WORST = "Worst group: the lowest accuracy of a group of 20 examples or more"
WORST = f"{_WORST}; gap: how far it is below the mean, or above if negative."
WORST_WITH_SIGN = f"{_WORST}, and how far it is above (+) or below (−) the mean."
MEANS = {
    "clean": "clean",
    "shift": "shift",
    "adversarial": "adversarial",
    "noise": "noise",
    "ece": "ECE",
    "held_out_ece": "ECE\nscaled",
    "auroc": "AUROC",
}
_BUILT_IN = ("class", "length", "negation", "rare words")


def render(evaluations: Evaluations) -> Group:
    """All tables for the terminal."""
    return Group(*map(Folded, grids(evaluations)))


def grids(evaluations: Evaluations) -> list[Grid]:
    """One table of a task; of a suite a summary and then every perspective on its own. Models that guess are marked."""
    guessing = {model: is_guessing(evaluation) for model, evaluation in evaluations.items()}
    evaluations = {
        marked(with_cost(model, evaluation.forwards), guessing[model]): evaluation
        for model, evaluation in evaluations.items()
    }
    names = sorted({evaluation.suite or evaluation.task for evaluation in evaluations.values()})
    if len(names) != 1:
        raise RunError(f"a table compares models on one task; got {', '.join(names) or 'no evaluation'}.")
    if all(evaluation.suite is None for evaluation in evaluations.values()):
        found = [_task(evaluations, names[0])]
    else:
        found = [_summary(evaluations, names[0]), _sets(evaluations)]
    if any(guessing.values()):
        found[0] = replace(found[0], caption=f"{found[0].caption} {GUESSING_NOTE}")
    if any(evaluation.forwards != 1 for evaluation in evaluations.values()):
        found[0] = replace(found[0], caption=f"{found[0].caption} {COST}")
    found += [_noise(evaluations), _anomalies(evaluations), _columns(evaluations), _attacks(evaluations)]
    return [grid for grid in found if grid.rows]


def percent(value: float | None) -> str:
    """A share in %, or a sign for none."""
    return "missing" if value is None else f"{100 * value:.1f}"


def with_interval(result: SetResult | GroupResult | None, between: str = " ") -> str:
    """An accuracy and half its interval."""
    return "missing" if result is None else percent(result.accuracy) + between + half_width(result.interval)


def half_width(interval: tuple[float, float]) -> str:
    """What is added to an accuracy, and taken from it."""
    low, high = interval
    return f"±{50 * (high - low):.1f}"


def worst_group(result: SetResult | None) -> str:
    """The worst group of a set, its accuracy, and its distance from the mean."""
    if result is None or result.worst is None or result.gap is None:
        return "-"
    distance = f"{-100 * result.gap:+z.1f}".replace("-", "−")
    return f"{with_interval(result.worst)} ({distance})\n{result.worst.kind}: {result.worst.group}"


def _task(evaluations: Evaluations, task: str) -> Grid:
    in_curves = any(map(has_noise_curves, evaluations.values()))  # then the noises have a table of their own
    several = any(each.multi_label for each in evaluations.values())
    left_out = ("anomaly", "reference", *(["noise"] if in_curves else []))
    headings = {name: role for name, role in _set_names(evaluations).items() if role not in left_out}
    rows = []
    for model, evaluation in evaluations.items():
        results = _by_name(evaluation)
        clean = _clean(evaluation)
        cells = [with_interval(results.get(name)) for name in headings]
        cells += [mean_cell(next((each for each in evaluation.means if each.name == "noise"), None))] * in_curves
        if several:
            cells += [percent(clean.macro_f1 if clean else None), percent(clean.micro_f1 if clean else None)]
        rows.append([model, *cells, percent(clean.ece if clean else None), worst_group(clean)])
    return Grid(
        f"Robustness on {task}",
        [
            "model",
            *(f"{name}\n({role})" for name, role in headings.items()),
            *(["noise\n(mean)"] * in_curves),
            *(["macro F1\n(clean)", "micro F1\n(clean)"] * several),
            "ECE\n(clean)",
            "worst group\n(clean)",
        ],
        rows,
        f"{ACCURACY} {SEVERAL if several else ''}ECE: expected calibration error in %, 10 bins. {WORST_WITH_SIGN}"
        f"{cut_after(evaluations)}{'' if in_curves else unseen_noises(evaluations)}",  # the curves' caption has it too
    )


def has_noise_curves(evaluation: Evaluation) -> bool:
    """Whether some noise was measured at several strengths."""
    return len({each.noise.strength for each in evaluation.sets if each.noise}) > 1


def cut_after(evaluations: Evaluations) -> str:
    """After how many tokens texts were cut, as a sentence; empty if an old evaluation does not say."""
    lengths = {
        model: "/".join(map(str, sorted({each.max_length for each in evaluation.sets if each.max_length})))
        for model, evaluation in evaluations.items()
    }
    if not all(lengths.values()):
        return ""
    if len(set(lengths.values())) == 1:
        return f" Texts are cut after {next(iter(lengths.values()))} tokens."
    return f" Tokens after which texts are cut: {', '.join(f'{unmarked(m)} {n}' for m, n in lengths.items())}."


def unseen_noises(evaluations: Evaluations) -> str:
    """Which noises change nothing that a model reads, as sentences; empty if there are none."""
    found: dict[str, list[str]] = {}
    for model, evaluation in evaluations.items():
        seen = {each.noise.kind for each in evaluation.sets if each.noise and not each.unseen}
        for kind in dict.fromkeys(each.noise.kind for each in evaluation.sets if each.noise and each.unseen):
            if kind not in seen:
                found.setdefault(kind.replace("_", " "), []).append(model)
    return "".join(
        f" Noise of the kind “{kind}” has no effect on {', '.join(map(unmarked, models))}: no token changes."
        for kind, models in found.items()
    )


def _summary(evaluations: Evaluations, suite: str) -> Grid:
    shown = mean_names(evaluations)
    rows = []
    for model, evaluation in evaluations.items():
        found = {each.name: each for each in evaluation.means}
        rows.append([model, *(mean_cell(found.get(name)) for name in shown), worst_group(_clean(evaluation))])
    return Grid(
        f"Robustness on the suite {suite}",
        ["model", *(MEANS[name] for name in shown), "worst group\n(clean)"],
        rows,
        "Unweighted means over the sets in %, of accuracies ± half the width of the 95 % interval; “n of m sets”: the "
        "others are missing. ECE: expected calibration error, 10 bins, as it is and scaled by a temperature found on "
        f"held-out examples. AUROC: anomalies found by the highest probability. {WORST_WITH_SIGN}",
    )


def mean_names(evaluations: Evaluations) -> list[str]:
    """The means that the suite has sets for, available or not."""
    roles = {"auroc" if role == "anomaly" else role for role in _set_names(evaluations).values()}
    return [name for name in MEANS if name in roles or name.endswith("ece")]


def mean_cell(mean: Mean | None) -> str:
    """A mean, and over how many of its sets if not all."""
    if mean is None:
        return "missing"
    of = len(mean.sets) + len(mean.missing)
    spread = "" if mean.interval is None else f" {half_width(mean.interval)}"
    return percent(mean.value) + spread + (f"\n{len(mean.sets)} of {of} sets" if mean.missing else "")


def _sets(evaluations: Evaluations) -> Grid:
    names = {name: role for name, role in _set_names(evaluations).items() if role in ("clean", "shift", "adversarial")}
    uncounted = {each.name for e in evaluations.values() for each in e.sets if not each.counted}
    uncounted |= {each.name for e in evaluations.values() for each in e.missing if not each.counted}
    rows = []
    for name, role in names.items():
        results = [_by_name(evaluation).get(name) for evaluation in evaluations.values()]
        examples = next((str(each.examples) for each in results if each), "-")
        figures = [cell for each in results for cell in (with_interval(each), worst_group(each))]
        rows.append([f"{name}{' †' if name in uncounted else ''}\n{role}", examples, *figures])
    models = [cell for model in evaluations for cell in (model, f"worst group\n{model}")]
    caption = f"{ACCURACY} {WORST_WITH_SIGN}{cut_after(evaluations)}"
    if uncounted:
        caption += " †: not in the means, because not in the published suite."
    return Grid("Sets", ["set\n(role)", "examples", *models], rows, caption)


def _noise(evaluations: Evaluations) -> Grid:
    noises = [each.noise for e in evaluations.values() for each in e.sets if each.noise]
    strengths = sorted({noise.strength for noise in noises})
    if len(strengths) < 2:
        return Grid("Noise", [], [])
    rows = []
    for kind, of in dict.fromkeys((noise.kind, noise.of) for noise in noises):
        for model, evaluation in evaluations.items():
            curve = {each.noise.strength: each for each in evaluation.sets if each.noise and each.noise.kind == kind}
            points = [_by_name(evaluation).get(of), *map(curve.get, strengths)]
            cells = [with_interval(point, between="\n") for point in points]
            rows.append([kind.replace("_", " "), model, *cells, worst_group(curve.get(strengths[-1]))])
    header = ["noise", "model", "0", *(f"{strength:g}" for strength in strengths), f"worst group\nat {strengths[-1]:g}"]
    sets = ", ".join(sorted({noise.of for noise in noises}))
    caption = f"{ACCURACY} On {sets}, by the strength of the noise; 0: the whole set without noise. {WORST_WITH_SIGN}"
    caption += unseen_noises(evaluations)
    return Grid("Noise", header, rows, caption, texts=2)


def _anomalies(evaluations: Evaluations) -> Grid:
    scores = list(dict.fromkeys(each.score for e in evaluations.values() for each in e.anomalies))
    rows = []
    for name, role in _set_names(evaluations).items():
        if role != "anomaly":
            continue
        for model, evaluation in evaluations.items():
            found = {each.score: each for each in evaluation.anomalies if each.name == name}
            cells = [
                " / ".join(map(percent, (found[score].auroc, found[score].aupr, found[score].fpr_at_95_tpr)))
                if score in found
                else "missing"
                for score in scores
            ]
            rows.append([name, model, *cells])
    inside = ", ".join(sorted({each.inside for e in evaluations.values() for each in e.anomalies})) or "nothing"
    caption = (
        "AUROC / AUPR / false positives at 95 % true positives, in %: how well the scores separate these texts from "
        f"{inside}."
    )
    return Grid("Anomalies", ["set", "model", *(score.replace("_", " ") for score in scores)], rows, caption, texts=2)


def _columns(evaluations: Evaluations) -> Grid:
    """Accuracy by the columns of the data, such as how the rows of AdvGLUE were made."""
    rows = []
    for key in dict.fromkeys(key for evaluation in evaluations.values() for key in _column_groups(evaluation)):
        groups = [_column_groups(evaluation).get(key) for evaluation in evaluations.values()]
        examples = next(str(group.examples) for group in groups if group)
        rows.append([*key, examples, *map(with_interval, groups)])
    return Grid("By column", ["set", "column", "group", "examples", *evaluations], rows, ACCURACY, texts=3)


def _attacks(evaluations: Evaluations) -> Grid:
    rows = []
    for model, evaluation in evaluations.items():
        for each in evaluation.attacks:
            found = each.summary
            clean, robust = (
                f"{percent(accuracy)}\n({percent(low)} to {percent(high)})"
                for accuracy, (low, high) in (
                    (found.clean_accuracy, found.clean_interval),
                    (found.robust_accuracy, found.robust_interval),
                )
            )
            if not found.attacked:
                robust = "not attacked"
            queries = "-" if found.mean_queries is None else f"{found.mean_queries:.0f}"
            rows.append([each.attack, model, str(found.examples), clean, robust, queries])
    header = ["attack", "model", "examples", "clean", "robust", "queries"]
    return Grid("Attacks", header, rows, "Accuracy in % before and under attack (95 % Wilson interval).", texts=2)


def _column_groups(evaluation: Evaluation) -> dict[tuple[str, str, str], GroupResult]:
    return {
        (each.name, group.kind, group.group): group
        for each in evaluation.sets
        for group in each.groups
        if each.noise is None and group.kind not in _BUILT_IN
    }


def _set_names(evaluations: Evaluations) -> dict[str, Role]:
    """All sets, missing ones among the others, by role, clean first."""
    found: dict[str, Role] = {}
    for evaluation in evaluations.values():
        found |= dict(_roles(evaluation))
    roles = get_args(Role)
    return dict(sorted(found.items(), key=lambda item: roles.index(item[1])))


def _roles(evaluation: Evaluation) -> Iterator[tuple[str, Role]]:
    yield from ((each.name, each.role) for each in evaluation.sets)
    yield from ((each.name, "anomaly") for each in evaluation.anomalies)
    yield from ((each.name, each.role) for each in evaluation.missing)


def _by_name(evaluation: Evaluation) -> dict[str, SetResult]:
    return {result.name: result for result in evaluation.sets}


def _clean(evaluation: Evaluation) -> SetResult | None:
    return next((result for result in evaluation.sets if result.role == "clean"), None)


CAPTION = (
    "In %: precision / recall / F1 of each label. Macro F1: the mean F1 of the labels that occur; micro F1: of all "
    "labels together; -: the label was never given or never predicted."
)


def class_grids(evaluations: Mapping[str, Evaluation]) -> list[Grid]:
    """For the clean sets: a table of all labels, and a confusion matrix for each model, if a text has one label."""
    grids = [classes_grid(evaluations), *confusion_grids(evaluations)]
    return [grid for grid in grids if grid.rows]


def classes_grid(evaluations: Mapping[str, Evaluation]) -> Grid:
    """A row for each label of each clean set, a column for each model."""
    found = {model: {each.name: each for each in _clean_sets(evaluation)} for model, evaluation in evaluations.items()}
    rows = []
    for name in dict.fromkeys(name for sets in found.values() for name in sets):
        sets = [by_name.get(name) for by_name in found.values()]
        some = next(each for each in sets if each)
        for place, one in enumerate(some.classes):
            cells = [_cell(each.classes[place]) if each else "missing" for each in sets]
            rows.append([name, one.label, str(one.examples), *cells])
        macro, micro = ([_percent(getattr(each, f1, None)) for each in sets] for f1 in ("macro_f1", "micro_f1"))
        rows.append([name, "macro F1", str(some.examples), *macro])
        if some.micro_f1 is not None:
            rows.append([name, "micro F1", str(some.examples), *micro])
    return Grid("Classes", ["set", "label", "examples", *evaluations], rows, CAPTION, texts=2)


def confusion_grids(evaluations: Mapping[str, Evaluation]) -> Iterator[Grid]:
    """A matrix for each model and clean set."""
    for model, evaluation in evaluations.items():
        for each in _clean_sets(evaluation):
            names = [one.label for one in each.classes]
            rows = [[name, *map(str, counts)] for name, counts in zip(names, each.confusion, strict=False)]
            caption = "A row for each label, a column for each prediction; the diagonal is right."
            yield Grid(f"Confusion of {model} on {each.name}", ["label", *names], rows, caption)


def _clean_sets(evaluation: Evaluation) -> list[SetResult]:
    return [each for each in evaluation.sets if each.role == "clean" and each.classes]


def _cell(one: ClassResult) -> str:
    return " / ".join(map(_percent, (one.precision, one.recall, one.f1)))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
