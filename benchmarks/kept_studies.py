"""What experiments/results/ holds, as studies: method -> figure -> seed -> value."""

from __future__ import annotations

import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from statistics import fmean, stdev

import pyarrow.parquet as pq

from rosewood.comparison.matched_accuracy import matched
from rosewood.experiments.cell import RESULT
from rosewood.experiments.experiment import read_experiment
from rosewood.results import AttackReport, AttackSummary, CellResult, Comparison, Evaluation

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "experiments" / "results"
CLEAN, ADVGLUE, NOISE = "clean", "AdvGLUE", "noise"
Values = dict[str, dict[str, dict[int, float]]]
Outcomes = dict[int, float]
"""Example -> 1 if the model was right on it (and stayed so, under attack), else 0."""


@dataclass(frozen=True)
class Study:
    """An experiment with what has been measured of it."""

    name: str
    title: str
    baseline: str
    values: Values = field(default_factory=dict)
    methods: Sequence[str] = ()  # that the experiment has, measured or not
    seeds: Sequence[int] = ()
    results: Sequence[CellResult] = ()
    command: str = ""  # that runs the cells of METHOD again

    @property
    def figures(self) -> list[str]:
        """Clean accuracy first, attacks last."""
        found = {figure for figures in self.values.values() for figure in figures}
        known = [each for each in (CLEAN, ADVGLUE, NOISE) if each in found]
        return known + sorted(found.difference(known))

    @property
    def finished(self) -> int:
        return sum(len(figures.get(CLEAN, ())) for figures in self.values.values())

    @property
    def planned(self) -> int:
        return len(self.methods) * len(self.seeds)

    def seeds_of(self, method: str, figure: str) -> dict[int, float]:
        return self.values.get(method, {}).get(figure, {})

    def gains(self, method: str, figure: str, over: str | None = None) -> list[float]:
        """In points, of the seeds that both have, which saw the same rows."""
        ours, theirs = self.seeds_of(method, figure), self.seeds_of(over or self.baseline, figure)
        return [100 * (ours[seed] - theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]


@cache
def kept_experiment(name: str) -> Study:
    """An experiment file, and the cells in its archive; either may be missing."""
    file, archive = ROOT / "experiments" / f"{name}.yaml", KEPT / f"{name}.tar.xz"
    results = list(_results(archive)) if archive.exists() else []
    methods, seeds = list(dict.fromkeys(result.label for result, _ in results)), {each.seed for each, _ in results}
    title, baseline = name, "vanilla"
    if file.exists():
        experiment = read_experiment(file)
        title, baseline = experiment.title, experiment.baseline or baseline
        methods = list(dict.fromkeys([*(choice.name for choice in experiment.recipes), *methods]))
        seeds |= {*experiment.seeds}
    values: Values = {}
    for result, attacks in results:
        for figure, value in figures_of(result.evaluation, attacks):
            values.setdefault(result.label, {}).setdefault(figure, {})[result.seed] = value
    command = f"rosewood compare experiments/{name}.yaml --only 'METHOD'"
    return Study(name, title, baseline, values, methods, sorted(seeds), [each for each, _ in results], command)


def _results(archive: Path) -> Iterator[tuple[CellResult, dict[str, AttackSummary]]]:
    """Each cell with its attacks by name."""
    with tarfile.open(archive) as kept:
        contents = {
            PurePosixPath(entry.name): kept.extractfile(entry).read()  # type: ignore[union-attr]
            for entry in kept.getmembers()
            if entry.isfile() and PurePosixPath(entry.name).name in (RESULT, "attack.json")
        }
    for path, content in sorted(contents.items()):
        if path.name == RESULT:
            reports = [
                AttackReport.model_validate_json(said)
                for other, said in contents.items()
                if other.name == "attack.json" and other.parts[:2] == path.parts[:2]
            ]
            tested = [each for each in reports if each.split in (None, "test")]
            yield CellResult.model_validate_json(content), {_name(each): each.summary for each in tested}


@cache
def kept_outcomes(name: str) -> dict[tuple[str, int], dict[str, Outcomes]]:
    """(method, seed) -> clean, AdvGLUE or attack -> what became of each example, in the archive of an experiment."""
    archive = KEPT / f"{name}.tar.xz"
    if not archive.exists():
        return {}
    with tarfile.open(archive) as kept:
        contents = {PurePosixPath(each.name): kept.extractfile(each).read() for each in kept if each.isfile()}  # type: ignore[union-attr]
    cells = {
        path.parent: CellResult.model_validate_json(said) for path, said in contents.items() if path.name == RESULT
    }
    found: dict[tuple[str, int], dict[str, Outcomes]] = {(each.label, each.seed): {} for each in cells.values()}
    for path, content in contents.items():
        cell = next(cells[folder] for folder in path.parents if folder in cells)
        of_cell = found[cell.label, cell.seed]
        if path.name == "examples.jsonl":
            report = AttackReport.model_validate_json(contents[path.with_name("attack.json")])
            of_cell[f"under {_name(report)}"] = stayed_right(content)
        elif path.suffix == ".parquet":
            roles = {each.name: each.role for each in cell.evaluation.sets}
            for row in pq.read_table(io.BytesIO(content), columns=["set", "row", "label", "prediction"]).to_pylist():
                figure = CLEAN if roles[row["set"]] == "clean" else ADVGLUE if "advglue" in row["set"] else ""
                if figure:
                    of_cell.setdefault(figure, {})[row["row"]] = float(row["label"] == row["prediction"])
    return found


def stayed_right(lines: bytes) -> Outcomes:
    """What became of each attacked example, from examples.jsonl."""
    rows = [json.loads(line) for line in lines.decode().splitlines() if line]
    return {row["row"]: float(row["status"] in ("robust", "out_of_queries")) for row in rows}


def gain_over_examples(pairs: Iterable[tuple[Outcomes, Outcomes]]) -> tuple[float, float, float] | None:
    """Points that one model has above another on the same examples, with the ends of the 95 % interval over examples.

    Of several pairs of models, an example counts once, as the mean of its differences.
    """
    differences: dict[int, list[float]] = defaultdict(list)
    for ours, theirs in pairs:
        for row in ours.keys() & theirs.keys():
            differences[row].append(100 * (ours[row] - theirs[row]))
    means = [fmean(each) for each in differences.values()]
    if len(means) < 2:
        return None
    middle, half = fmean(means), 1.96 * stdev(means) / len(means) ** 0.5
    return middle, middle - half, middle + half


def pairs_of(
    outcomes: Mapping[tuple[str, int], Mapping[str, Outcomes]], method: str, baseline: str, figure: str
) -> list[tuple[Outcomes, Outcomes]]:
    """What became of the examples of a figure with a method and with the baseline, for each seed that both have."""
    return [
        (own[figure], outcomes[baseline, seed][figure])
        for (label, seed), own in outcomes.items()
        if label == method and figure in own and figure in outcomes.get((baseline, seed), {})
    ]


def _name(report: AttackReport) -> str:
    """Of the worst case with what an attacker may change."""
    threat = report.settings.get("threat")
    return f"{report.attack} {threat}" if threat else report.attack


def figures_of(evaluation: Evaluation, attacks: dict[str, AttackSummary]) -> Iterator[tuple[str, float]]:
    """Clean accuracy, AdvGLUE, the mean of the noises, and robust accuracy under each attack."""
    own = evaluation.suite is None  # then the set `test` is the clean one
    clean = [each.accuracy for each in evaluation.sets if each.role == "clean" and (not own or each.name == "test")]
    clean = clean or [each.accuracy for each in evaluation.sets if each.name == "validation"]
    adversarial = [each.accuracy for each in evaluation.sets if each.name.startswith("advglue")]
    noise = [each.accuracy for each in evaluation.sets if each.role == "noise"]
    for figure, values in ((CLEAN, clean), (ADVGLUE, adversarial), (NOISE, noise)):
        if values:
            yield figure, fmean(values)
    inside = {each.attack: each.summary for each in evaluation.attacks}
    for name, summary in sorted((inside | attacks).items()):
        if summary.attacked:
            yield f"under {name}", summary.robust_accuracy


def rose_small() -> Study:
    """ROSE's Tables 1 and 2 at a small scale: figures of each seed, the mean over SST-2, QQP and QNLI."""
    kept = Comparison.load(KEPT / "rose-small.json")
    tasks = ("sst2", "qqp", "qnli")  # no method has learnt RTE
    columns = {CLEAN: tasks, ADVGLUE: tuple(f"advglue_{task}" for task in tasks)}
    found = {(each.label, each.figure): each.values for each in kept.figures}
    methods = list(dict.fromkeys(each.label for each in kept.figures))
    values: Values = {
        method: {
            figure: {seed: fmean(found[method, part][seed] for part in parts) for seed in (0, 1, 2)}
            for figure, parts in columns.items()
        }
        for method in methods
    }
    command = "rosewood compare experiments/replication.yaml --only 'METHOD'"
    title = "ROSE on SST-2, QQP and QNLI with 640 to 1,040 training rows"
    return Study("rose-small", title, "vanilla", values, methods, (0, 1, 2), (), command)


def rift_small(task: str) -> Study:
    """RIFT's recipes on one task, one seed."""
    rows = [row for row in json.loads((KEPT / "rift-small.json").read_text(encoding="utf-8")) if row["task"] == task]
    names = {CLEAN: "clean", "under pwws": "pwws", "under genetic": "genetic"}
    values: Values = {row["recipe"]: {figure: {row["seed"]: row[key]} for figure, key in names.items()} for row in rows}
    command = f"python benchmarks/rift_replication.py {task} --data-dir $ROSEWOOD_DATA --output runs/rift"
    return Study(f"rift-small-{task}", f"RIFT on {task.upper()}", "vanilla", values, [*values], (0,), (), command)


def rose_threshold() -> Study:
    """ROSE-Second with fixed and automatic thresholds; a threshold of 1.0 masks nothing."""
    cells = json.loads((KEPT / "rose-threshold.json").read_text(encoding="utf-8"))["cells"]
    values: Values = {}
    for threshold, seed in sorted({(cell["threshold"], cell["seed"]) for cell in cells}):
        alike = [cell for cell in cells if (cell["threshold"], cell["seed"]) == (threshold, seed)]
        for figure, key in ((CLEAN, "accuracy"), (NOISE, "typos")):
            mean = fmean(cell[key] for cell in alike)
            values.setdefault(threshold, {}).setdefault(figure, {})[seed] = mean
    command = "python benchmarks/automatic_threshold.py --data-dir $ROSEWOOD_DATA --output runs/threshold"
    title = "ROSE-Second's threshold: held-out rows of SST-2, QQP and QNLI, with and without typos"
    return Study("rose-threshold", title, "1.0", values, [*values], (0, 1, 2), (), command)


def course(study: Study, methods: Iterable[str]) -> dict[str, dict[int, dict[str, list[float]]]]:
    """Method -> step -> figure -> the values of its seeds, at every measured moment of training."""
    found: dict[str, dict[int, dict[str, list[float]]]] = {method: {} for method in methods}
    for result in study.results:
        for moment in result.moments if result.label in found else ():
            for figure, value in figures_of(moment.evaluation, {}):
                found[result.label].setdefault(moment.step, {}).setdefault(figure, []).append(100 * value)
    return found


def gains_at_match(study: Study, ours: str, theirs: str, figure: str) -> list[float]:
    """In points, each pair of runs at its first moments that reach the lower of the two final validation accuracies."""
    pair = [result for result in study.results if result.label in (ours, theirs)]
    matches = matched(pair)
    at = {
        (result.label, result.seed): dict(figures_of(matches[result.fingerprint].moment.evaluation, {}))
        for result in pair
        if result.fingerprint in matches
    }
    seeds = sorted({seed for _, seed in at})
    return [
        100 * (at[ours, seed][figure] - at[theirs, seed][figure])
        for seed in seeds
        if (ours, seed) in at and (theirs, seed) in at
    ]
