"""Write the tables of docs/defences.md from the kept results of recipes, and of attacks on wrapped runs.

    python benchmarks/defences_page.py
    python benchmarks/defences_page.py --keep "corrected around vanilla" --seed 0 runs/vanilla-corrected

Of each defence: accuracy on clean text, and robust accuracy against the worst of several attacks on words and on
characters, means over the seeds. Gains over plain fine-tuning are means over the same attacked examples, with 95 %
intervals over examples (each example counts once, as the mean over its seeds). What training costs is the ratio of
steps in benchmarks/defences_step_cost.json, or the passes of a step where that file does not have it.

A wrapped model has no gradients. The second table therefore has attacks without them, on models with and without a
wrapper: `rosewood attack RUN --threat characters --set white_box=false --examples 150`. `--keep`
adds such an attack on a run to experiments/results/attacks/wrapped-sst2.tar.xz.
"""

from __future__ import annotations

import argparse
import io
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
RESULTS = HERE.parent / "experiments" / "results"
KEPT = {"SST-2": RESULTS / "defences-sst2.tar.xz", "reviews": RESULTS / "defences-reviews.tar.xz"}
WRAPPED = RESULTS / "attacks" / "wrapped-sst2.tar.xz"
STEPS = HERE / "defences_step_cost.json"
PAGE = HERE.parent / "docs" / "defences.md"
BEGIN, END = "<!-- benchmarks/defences_page.py writes the table of {} -->", "<!-- end of the table -->"
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


def wrapped() -> list[Trained]:
    """The kept attacks without gradients, plain fine-tuning first."""
    found = []
    for (label, seed), (report, lines) in _kept_attacks().items():
        summary = AttackReport.model_validate_json(report)
        attacked = {summary.settings["threat"]: outcomes(lines)}
        found.append(Trained(label, int(seed), summary.summary.clean_accuracy, attacked, summary.forwards))
    return sorted(found, key=lambda each: (each.label != BASELINE, " around " in each.label, each.label))


def _kept_attacks() -> dict[tuple[str, str], tuple[bytes, bytes]]:
    """Label and seed -> attack.json and examples.jsonl."""
    if not WRAPPED.exists():
        return {}
    with tarfile.open(WRAPPED) as kept:
        texts = {each.name: kept.extractfile(each).read() for each in kept.getmembers()}  # type: ignore[union-attr]
    names = {tuple(name.split("/")[:2]) for name in texts}
    return {
        (label, seed): (texts[f"{label}/{seed}/attack.json"], texts[f"{label}/{seed}/examples.jsonl"])
        for label, seed in sorted(names)
    }


def keep(run: Path, label: str, seed: int) -> None:
    """Add the attack without gradients on a run to the archive, or put it in place of an older one."""
    files = [
        file
        for file in sorted((run / "attacks").glob("worst-*/attack.json"))
        if AttackReport.load(file).settings.get("white_box") is False
    ]
    if len(files) != 1:
        raise SystemExit(f"{run} has {len(files)} attacks by worst with white_box=false, and one is expected")
    attacks = _kept_attacks() | {
        (label, str(seed)): (files[0].read_bytes(), files[0].with_name("examples.jsonl").read_bytes())
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        for (name, number), texts in sorted(attacks.items()):
            for file, text in zip(("attack.json", "examples.jsonl"), texts, strict=True):
                entry = tarfile.TarInfo(f"{name}/{number}/{file}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
    WRAPPED.write_bytes(content.getvalue())


def wrapped_table(found: list[Trained]) -> str:
    """A row for each model, plain fine-tuning first."""
    groups: dict[str, list[Trained]] = defaultdict(list)
    for one in found:
        groups[one.label].append(one)
    base = {one.seed: one for one in groups[BASELINE]}
    rows = []
    for label, group in groups.items():
        clean = f"{100 * fmean(one.clean for one in group):.1f}"
        gained = gain(group, base, "characters")
        rows.append([label, str(len(group)), clean, gained, f"{group[0].forwards:g}"])
    return markdown(
        ["model", "seeds", "clean, these sentences", "worst characters, without gradients", "an answer"], rows
    )


def main() -> None:
    """Put the tables between their marks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", metavar="LABEL", help="what the run is called in the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("run", nargs="?", type=Path)
    asked = parser.parse_args()
    if asked.keep:
        keep(asked.run, asked.keep, asked.seed)
    tables = {
        name: table(cells(archive)) if archive.exists() else "No cell has finished yet."
        for name, archive in KEPT.items()
    }
    tables["wrapped models"] = wrapped_table(wrapped())
    page = PAGE.read_text(encoding="utf-8")
    for name, written in tables.items():
        begin = BEGIN.format(name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(END)
        page = f"{before}{begin}\n\n{written}\n\n{END}{after}"
        print(written)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
