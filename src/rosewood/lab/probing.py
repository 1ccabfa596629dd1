"""Which of two features models have generalised to, where their training data could not tell the two apart.

The score is Matthews' correlation of the predictions with the linguistic labels on data where the surface feature says
the opposite: +1 is a model that went by the linguistic feature, -1 one that went by the surface, 0 one that answers
the same whatever it reads (ROSE, section 4.2; MSGS, Warstadt et al., 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Annotated

from pydantic import Field
from sklearn.metrics import matthews_corrcoef

from rosewood.comparison.statistics import seed_interval
from rosewood.errors import RunError
from rosewood.results import CellResult, Evaluation, ResultFile, ResultPart, SetResult, Share
from rosewood.results.grid import Grid

AGREEING, OPPOSED = ("train", "ambiguous"), ("disambiguating", "disambiguating-in-domain")
"""The splits of a probing task in which the two features always agree, and those in which they never do."""
Correlation = Annotated[float, Field(ge=-1, le=1)]


class ProbedRun(ResultPart):
    """One fine-tuned model."""

    label: str  # what the experiment calls the recipe
    task: str
    seed: int
    matthews: Correlation  # +1 linguistic, -1 surface
    matthews_in_domain: Correlation | None  # on words of the training data, where there are such sentences
    validation_accuracy: Share  # on unseen sentences where the features agree: whether anything was learnt
    ambiguous_accuracy: Share | None  # the same with other words


class ProbedRecipe(ResultPart):
    """The runs of one recipe on one task."""

    label: str
    task: str
    seeds: list[int]
    mean: Correlation
    median: Correlation
    interval: tuple[Correlation, Correlation] | None  # 95 %, of the mean over seeds (Student's t); None below three
    in_domain_mean: Correlation | None
    validation_accuracy: Share
    ambiguous_accuracy: Share | None


class Probing(ResultFile):
    """What `probing.json` says: every run, and what they come to."""

    model: str
    runs: list[ProbedRun]
    recipes: list[ProbedRecipe]


def probing_of(model: str, results: Sequence[CellResult]) -> Probing:
    """The scores of finished cells, recipes and tasks in the order of their first."""
    runs = [probed_run(each.label, each.seed, each.evaluation) for each in results]
    groups: dict[tuple[str, str], list[ProbedRun]] = {}
    for run in runs:
        groups.setdefault((run.task, run.label), []).append(run)
    return Probing(model=model, runs=runs, recipes=[_recipe(each) for each in groups.values()])


def probed_run(label: str, seed: int, evaluation: Evaluation) -> ProbedRun:
    """The scores of a model that was trained on ambiguous data and evaluated on all sets of its task."""
    sets = {each.name: each for each in evaluation.sets}
    lacking = [name for name in ("validation", OPPOSED[0]) if name not in sets]
    if lacking:
        raise RunError(
            f"a probe needs the sets validation and {OPPOSED[0]}; the evaluation on {evaluation.task} lacks "
            f"{' and '.join(lacking)}. Evaluate on the sets of a probing task."
        )
    return ProbedRun(
        label=label,
        task=evaluation.task,
        seed=seed,
        matthews=matthews(sets[OPPOSED[0]]),
        matthews_in_domain=matthews(sets[OPPOSED[1]]) if OPPOSED[1] in sets else None,
        validation_accuracy=sets["validation"].accuracy,
        ambiguous_accuracy=sets[AGREEING[1]].accuracy if AGREEING[1] in sets else None,
    )


def matthews(found: SetResult) -> float:
    """Matthews' correlation of predictions and labels on a set of two classes; 0 for constant predictions."""
    classes = [each for each in found.groups if each.kind == "class"]
    if len(classes) != 2:
        raise RunError(
            f"expected two classes on {found.name}, got {', '.join(each.group for each in classes) or 'none'}."
        )
    right = [round(each.accuracy * each.examples) for each in classes]
    wrong = [each.examples - count for each, count in zip(classes, right, strict=True)]
    # The four kinds of example, and how many there are of each.
    return float(matthews_corrcoef([0, 1, 0, 1], [0, 1, 1, 0], sample_weight=[*right, *wrong]))


def table(probing: Probing) -> Grid:
    """One row for each task and recipe."""
    header = ["probe", "recipe", "seeds", "MCC", "95 %", "median", "MCC\nin domain", "accuracy\nvalidation"]
    return Grid(
        title=f"Linguistic (+1) or surface (-1) generalisation of {probing.model}",
        header=[*header, "accuracy\nambiguous"],
        rows=[_row(each) for each in probing.recipes],
        caption="MCC: Matthews' correlation with the linguistic labels where the features disagree, mean over seeds. "
        "It means something where the accuracies, on sentences where they agree, are high.",
        texts=2,
    )


def _row(found: ProbedRecipe) -> list[str]:
    ends = "-" if found.interval is None else " to ".join(f"{end:+z.2f}" for end in found.interval)
    scores = [f"{found.mean:+z.2f}", ends, f"{found.median:+z.2f}"]
    scores.append("-" if found.in_domain_mean is None else f"{found.in_domain_mean:+z.2f}")
    accuracies = ["-" if v is None else f"{v:.1%}" for v in (found.validation_accuracy, found.ambiguous_accuracy)]
    return [found.task, found.label, str(len(found.seeds)), *scores, *accuracies]


def _recipe(runs: Sequence[ProbedRun]) -> ProbedRecipe:
    values = [run.matthews for run in runs]
    return ProbedRecipe(
        label=runs[0].label,
        task=runs[0].task,
        seeds=[run.seed for run in runs],
        mean=fmean(values),
        median=median(values),
        interval=seed_interval(values, (-1.0, 1.0)),
        in_domain_mean=_mean([run.matthews_in_domain for run in runs]),
        validation_accuracy=fmean(run.validation_accuracy for run in runs),
        ambiguous_accuracy=_mean([run.ambiguous_accuracy for run in runs]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
