"""Write the tables of docs/defences.md from the kept results of recipes, and of attacks on wrapped runs.

    python benchmarks/defences_page.py
    python benchmarks/defences_page.py --keep "corrected around vanilla" --seed 0 runs/vanilla-corrected

Of each defence: accuracy on clean text, and robust accuracy against the worst of several attacks on words and on
characters, means over the seeds. Gains over plain fine-tuning are means over the same attacked examples, with 95 %
intervals over examples (each example counts once, as the mean over its seeds). What training costs is the ratio of
steps in benchmarks/defences_step_cost.json, or the passes of a step where that file does not have it.

A wrapped model has no gradients. The tables of wrapped models therefore have attacks without them, on models with and
without a wrapper: `rosewood attack RUN --threat words --set white_box=false --examples 150`, and the same with
characters; and under another lexicon: `rosewood attack RUN --attack pwws --lexicon roget --examples 150`. `--keep` adds
such attacks on a run, and its accuracies on experiments/suites/sst2-noise.yaml if it was
evaluated there, to experiments/results/attacks/wrapped-sst2.tar.xz.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from evidence_page import markdown
from kept_studies import Outcomes, gain_over_examples, stayed_right

from rosewood.experiments.cell import RESULT
from rosewood.recipe import load_recipe
from rosewood.results import AttackReport, CellResult, Evaluation

HERE = Path(__file__).parent
RESULTS = HERE.parent / "experiments" / "results"
KEPT = {"SST-2": RESULTS / "defences-sst2.tar.xz", "reviews": RESULTS / "defences-reviews.tar.xz"}
WRAPPED = RESULTS / "attacks" / "wrapped-sst2.tar.xz"
STEPS = HERE / "defences_step_cost.json"
PAGE = HERE.parent / "docs" / "defences.md"
BEGIN, END = "<!-- benchmarks/defences_page.py writes the table of {} -->", "<!-- end of the table -->"
OTHER, BOTH = "roget", "both"
"""PWWS with a lexicon that was not encoded; and what stays right under this and the worst case of words, too."""
EVALUATION = "evaluation-sst2-noise.json"
BASELINE, THREATS = "vanilla", ("words", "characters")


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
                    attacked[report.settings["threat"]] = stayed_right(texts[report_path.with_name("examples.jsonl")])
        found.append(Trained(result.label, result.seed, clean, attacked, result.evaluation.forwards))
    return found


def gain(mine: Iterable[Trained], base: Mapping[int, Trained], threat: str) -> str:
    """Robust accuracy over seeds, and the difference from the baseline on the same examples, with its interval."""
    attacked = [one for one in mine if threat in one.attacked]
    if not attacked:
        return "–"
    shown = f"{100 * fmean(fmean(one.attacked[threat].values()) for one in attacked):.1f}"
    pairs = [
        (one.attacked[threat], base[one.seed].attacked[threat])
        for one in attacked
        if one.label != BASELINE and one.seed in base and threat in base[one.seed].attacked
    ]
    found = gain_over_examples(pairs)
    return shown if found is None else "{} ({:+.1f}; {:+.1f} to {:+.1f})".format(shown, *found)


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
    header = [
        "defence",
        "seeds",
        "clean",
        *(f"worst {threat}" for threat in THREATS),
        "a training step",
        "passes a text",
    ]
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


def wrapped(threat: str) -> list[Trained]:
    """The kept attacks without gradients on words or on characters, plain fine-tuning first.

    Clean accuracy is that of the dev set where all of them have it, and that of the attacked sentences otherwise.
    """
    attacks = _kept_attacks()
    kept = {key: texts for key, texts in attacks.items() if key[2] == threat}
    evaluated = has_evaluations(threat)
    found = []
    for (label, seed, _), texts in kept.items():
        report = AttackReport.model_validate_json(texts["attack.json"])
        clean = report.summary.clean_accuracy
        if evaluated:
            sets = Evaluation.model_validate_json(texts[EVALUATION]).sets
            clean = fmean(each.accuracy for each in sets if each.role == "clean")
        attacked = {threat: stayed_right(texts["examples.jsonl"])}
        if threat == "words" and (label, seed, OTHER) in attacks:
            attacked[OTHER] = stayed_right(attacks[label, seed, OTHER]["examples.jsonl"])
            attacked[BOTH] = {row: min(right, attacked[OTHER][row]) for row, right in attacked["words"].items()}
        found.append(Trained(label, int(seed), clean, attacked, report.forwards))
    return sorted(found, key=lambda each: (each.label != BASELINE, " around " in each.label, each.label))


def has_evaluations(threat: str) -> bool:
    """Whether all models that were attacked so were evaluated, too."""
    return all(EVALUATION in texts for (_, _, kind), texts in _kept_attacks().items() if kind == threat)


def _kept_attacks() -> dict[tuple[str, str, str], dict[str, bytes]]:
    """Label, seed and threat -> attack.json, examples.jsonl and, if there was one, the evaluation."""
    if not WRAPPED.exists():
        return {}
    found: dict[tuple[str, str, str], dict[str, bytes]] = defaultdict(dict)
    with tarfile.open(WRAPPED) as kept:
        for each in kept:
            label, seed, threat, name = each.name.split("/")
            found[label, seed, threat][name] = kept.extractfile(each).read()  # type: ignore[union-attr]
    return dict(sorted(found.items()))


def kind_of(report: AttackReport) -> str | None:
    """Which table an attack on a wrapped run is for: the threat of `worst` without gradients, or the other lexicon."""
    if report.attack == "worst" and report.settings.get("white_box") is False:
        return str(report.settings["threat"])
    return OTHER if (report.attack, report.lexicon_name) == ("pwws", OTHER) else None


def keep(run: Path, label: str, seed: int, kinds: Collection[str]) -> None:
    """Add the attacks on a run to the archive, or put them in place of older ones."""
    attacks = _kept_attacks()
    found: set[str] = set()
    for file in sorted((run / "attacks").glob("*/attack.json")):
        report = AttackReport.load(file)
        kind = kind_of(report)
        if kind is None or kind not in kinds:
            continue
        if kind in found:
            raise SystemExit(f"{run} has several attacks for {kind}, and one is expected")
        found.add(kind)
        texts = {
            "attack.json": report.model_copy(update={"model": Path(report.model).name}).model_dump_json().encode(),
            "examples.jsonl": file.with_name("examples.jsonl").read_bytes(),
        }
        if (run / EVALUATION).exists():
            result = Evaluation.load(run / EVALUATION)
            placeless = result.model_copy(update={"model": Path(result.model).name, "missing": []})
            texts[EVALUATION] = placeless.model_dump_json().encode()
        attacks[label, str(seed), kind] = texts
    if not found:
        raise SystemExit(f"{run} has no attack for {' or '.join(kinds)}")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        for (name, number, threat), texts in sorted(attacks.items()):
            for file_name, text in sorted(texts.items()):
                entry = tarfile.TarInfo(f"{name}/{number}/{threat}/{file_name}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
    WRAPPED.write_bytes(content.getvalue())


def wrapped_table(threat: str) -> str:
    """A row for each model, plain fine-tuning first."""
    groups: dict[str, list[Trained]] = defaultdict(list)
    for one in wrapped(threat):
        groups[one.label].append(one)
    base = {one.seed: one for one in groups[BASELINE]}
    columns = {threat: f"worst {threat}, without gradients"}
    if threat == "words":
        columns |= {OTHER: "`pwws`, Roget", BOTH: "both"}
    rows = []
    for label, group in groups.items():
        clean = f"{100 * fmean(one.clean for one in group):.1f}"
        gains = [gain(group, base, kind) for kind in columns]
        rows.append([label, str(len(group)), clean, *gains, f"{group[0].forwards:g}"])
    clean_rows = "dev set" if has_evaluations(threat) else "these sentences"
    return markdown(["model", "seeds", f"clean, {clean_rows}", *columns.values(), "passes a text"], rows)


def main() -> None:
    """Put the tables between their marks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", metavar="LABEL", help="what the run is called in the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attacks", nargs="+", choices=(*THREATS, OTHER), default=(*THREATS, OTHER))
    parser.add_argument("run", nargs="?", type=Path)
    asked = parser.parse_args()
    if asked.keep:
        keep(asked.run, asked.keep, asked.seed, asked.attacks)
    tables = {
        name: table(cells(archive)) if archive.exists() else "No cell has finished yet."
        for name, archive in KEPT.items()
    }
    tables |= {f"wrapped models, {threat}": wrapped_table(threat) for threat in THREATS}
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
