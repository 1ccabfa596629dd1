"""Write the table of docs/defences.md from what is kept of experiments/defences-sst2.yaml.

    python benchmarks/defences_page.py

Of each defence: accuracy on clean text, and robust accuracy against the worst of several attacks on words and on
characters, means over the seeds. Gains over plain fine-tuning are means over the same attacked examples, with 95 %
intervals over examples (each example counts once, as the mean over its seeds). What training costs is the ratio of
steps in benchmarks/defences_step_cost.json, or the passes of a step where that file does not have it.
"""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from evidence_page import markdown

from rosewood.experiments.cell import RESULT
from rosewood.recipe import load_recipe
from rosewood.results import AttackReport, CellResult

HERE = Path(__file__).parent
KEPT = HERE.parent / "experiments" / "results" / "defences-sst2.tar.xz"
STEPS = HERE / "defences_step_cost.json"
PAGE = HERE.parent / "docs" / "defences.md"
BEGIN, END = "<!-- benchmarks/defences_page.py writes this table -->", "<!-- end of the table -->"
BASELINE, THREATS = "vanilla", ("words", "characters")
Outcomes = dict[int, float]
"""Example -> 1 if the model was right on it and stayed so, else 0."""


class Trained(NamedTuple):
    """One cell: a recipe with a seed."""

    label: str
    seed: int
    clean: float
    attacked: Mapping[str, Outcomes]
    forwards: float


def cells(archive: Path) -> list[Trained]:
    """The kept cells, in the order of the experiment."""
    found = []
    with tarfile.open(archive) as kept:
        texts = {
            Path(each.name): kept.extractfile(each).read()  # type: ignore[union-attr]
            for each in kept.getmembers()
            if each.isfile() and not each.name.endswith(".parquet")
        }
    for path, text in texts.items():
        if path.name != RESULT:
            continue
        result = CellResult.model_validate_json(text)
        clean = fmean(each.accuracy for each in result.evaluation.sets if each.role == "clean")
        attacked = {}
        for report_path, content in texts.items():
            if report_path.name == "attack.json" and path.parent in report_path.parents:
                report = AttackReport.model_validate_json(content)
                if report.attack == "worst":
                    attacked[report.settings["threat"]] = outcomes(texts[report_path.with_name("examples.jsonl")])
        found.append(Trained(result.label, result.seed, clean, attacked, result.evaluation.forwards))
    return found


def outcomes(lines: bytes) -> Outcomes:
    """Which examples stayed right."""
    rows = [json.loads(line) for line in lines.decode().splitlines() if line]
    return {row["row"]: float(row["status"] in ("robust", "out_of_queries")) for row in rows}


def gain(mine: Iterable[Trained], base: Mapping[int, Trained], threat: str) -> str:
    """Robust accuracy over seeds, and the difference from the baseline on the same examples, with its interval."""
    differences: dict[int, list[float]] = defaultdict(list)
    accuracies = []
    for one in mine:
        own = one.attacked.get(threat)
        if own is None:
            continue
        accuracies.append(fmean(own.values()))
        other = base[one.seed].attacked.get(threat, {}) if one.seed in base else {}
        for row in own.keys() & other.keys():
            differences[row].append(own[row] - other[row])
    if not accuracies:
        return "–"
    shown = f"{100 * fmean(accuracies):.1f}"
    means = [fmean(each) for each in differences.values()]
    if len(means) < 2 or next(iter(mine)).label == BASELINE:
        return shown
    half = 1.96 * stdev(means) / len(means) ** 0.5
    low, high = (100 * (fmean(means) + sign * half) for sign in (-1, 1))
    return f"{shown} ({100 * fmean(means):+.1f}; {low:+.1f} to {high:+.1f})"


def training_cost(label: str, steps: Mapping[str, Mapping[str, float]]) -> str:
    """How much longer a step takes than one of plain fine-tuning."""
    if label == BASELINE:
        return "1"
    if label in steps and BASELINE in steps:
        return f"{steps[label]['ratio'] / steps[BASELINE]['ratio']:.1f}"
    try:
        return str(load_recipe(label, check_training=False).cost())
    except ValueError:
        return "–"


def table(found: list[Trained]) -> str:
    """A row for each recipe, plain fine-tuning first."""
    groups: dict[str, list[Trained]] = defaultdict(list)
    for one in found:
        groups[one.label].append(one)
    base = {one.seed: one for one in groups.get(BASELINE, [])}
    steps = json.loads(STEPS.read_text(encoding="utf-8"))["steps"] if STEPS.exists() else {}
    header = ["defence", "seeds", "clean", *(f"worst {threat}" for threat in THREATS), "a training step", "an answer"]
    rows = []
    for label, group in sorted(groups.items(), key=lambda item: item[0] != BASELINE):
        rows.append(
            [
                f"`{label}`",
                str(len(group)),
                f"{100 * fmean(one.clean for one in group):.1f}",
                *(gain(group, base, threat) for threat in THREATS),
                training_cost(label, steps),
                f"{group[0].forwards:g}",
            ]
        )
    return markdown(header, rows)


def main() -> None:
    """Put the table between its two marks."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    written = table(cells(KEPT)) if KEPT.exists() else "No cell has finished yet."
    PAGE.write_text(f"{before}{BEGIN}\n\n{written}\n\n{END}{after}", encoding="utf-8")
    print(written)


if __name__ == "__main__":
    main()
