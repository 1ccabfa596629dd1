"""Write every table and figure of docs/evidence.md, the long tables in docs/evidence/, and the choice of recipes in
docs/choose.md and README.md, from experiments/results/.

    make evidence

The page has its tables between two comments, `<!-- table NAME -->` and `<!-- end -->`: what stands between them is
replaced, the sentences around them are written by hand. Cells that have not run are marked, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from evidence_figures import course_figure, gain_figure, trade_off_figure
from kept_studies import (
    ADVGLUE,
    CLEAN,
    NOISE,
    Study,
    course,
    gain_over_examples,
    gains_at_match,
    kept_experiment,
    kept_outcomes,
    pairs_of,
    rift_small,
    rose_small,
    rose_threshold,
)

from rosewood.comparison.statistics import t_interval
from rosewood.experiments.experiment import read_experiment

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence.md"
PAGES = (PAGE, ROOT / "docs" / "choose.md", ROOT / "README.md")
FOLDER = ROOT / "docs" / "evidence"
MISSING = "–"
EXPERIMENTS = (
    "defences-sst2",
    "defences-reviews",
    "defences-agnews",
    "evidence-a",
    "evidence-a-tuning",
    "evidence-c",
    "evidence-d-snli",
    "evidence-d-imdb",
    "evidence-e",
    "question-duration-small",
    "question-random-importance-small",
    "question-masking-architecture-small",
    "question-word-level-small",
)
MASKS = [("by gradient", "at random"), ("by gradient", "all weights"), ("by gradient", "vanilla")]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A pipe table, the first column to the left and figures to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def per_cent(values: Iterable[float]) -> str:
    """Mean of shares in %, with the standard deviation over seeds if there are several."""
    points = [100 * value for value in values]
    if len(points) < 2:
        return f"{points[0]:.1f}" if points else MISSING
    return f"{fmean(points):.1f} ±{stdev(points):.1f}"


def difference(points: Sequence[float]) -> str:
    """Mean difference with its 95 % interval; of fewer than three seeds without one."""
    if not points:
        return MISSING
    mean = f"{round(fmean(points), 1) + 0.0:+.1f}"  # adding zero takes the sign off a negative one
    if len(points) < 3 or len(set(points)) == 1:
        return mean
    low, high = t_interval(points)
    return f"{mean} ({low:+.1f} to {high:+.1f})"


def method_table(study: Study, figures: Sequence[str] | None = None) -> str:
    """One row for each method: its figures over seeds."""
    columns = list(figures or study.figures or [CLEAN])
    rows = [
        [
            f"`{method}`",
            str(len(study.seeds_of(method, CLEAN))),
            *(per_cent(study.seeds_of(method, each).values()) for each in columns),
        ]
        for method in study.methods
    ]
    return markdown(["method", "seeds", *columns], rows)


def gain_table(study: Study, figures: Sequence[str] | None = None) -> str:
    """One row for each method: points above the baseline, of runs with the same seed."""
    columns = list(figures or study.figures or [CLEAN])
    others = [method for method in study.methods if method != study.baseline]
    rows = [[f"`{method}`", *(difference(study.gains(method, each)) for each in columns)] for method in others]
    return markdown([f"points above {study.baseline}", *columns], rows)


def counted(study: Study) -> str:
    """How much of an experiment has run."""
    if not study.finished:
        return f"No cell of `experiments/{study.name}.yaml` has finished yet."
    return f"{study.finished} of {study.planned} cells have finished."


def long_page(study: Study) -> str:
    """The page of an experiment: all figures, all differences, and the command of each row."""
    parts = [f"# {study.title}", f"Written by `make evidence`. {counted(study)}"]
    parts += ["Accuracy in %, mean ± standard deviation over seeds:", method_table(study)]
    if len(study.methods) > 1 and study.finished and study.baseline in study.values:
        parts += [
            f"Points above {study.baseline}: mean of the differences of runs with the same seed, and from three seeds "
            "on its 95 % interval (Student's t, not adjusted for how many there are):",
            gain_table(study),
        ]
    parts += ["Each row again:", "```\n" + "\n".join(commands(study)) + "\n```"]
    return "\n\n".join(parts) + "\n"


def commands(study: Study) -> list[str]:
    return list(dict.fromkeys(study.command.replace("METHOD", method) for method in study.methods))


def defences() -> str:
    study = kept_experiment("defences-sst2")
    measured = replace(study, methods=[each for each in study.methods if study.seeds_of(each, CLEAN)])
    return f"{method_table(measured)}\n\n{counted(study)}" if measured.methods else counted(study)


def over_baseline(name: str, more: Mapping[str, Callable[[str], str]] | None = None) -> str:
    """A row for each measured method: its figures, and the points above the baseline on the same examples."""
    study, outcomes = kept_experiment(name), kept_outcomes(name)
    more = more or {}
    columns = [each for each in study.figures if each != NOISE]
    rows = []
    for method in study.methods:
        seeds = len(study.seeds_of(method, CLEAN))
        if not seeds:
            continue
        cells = [f"`{method}`", str(seeds)]
        for figure in columns:
            shown = f"{100 * fmean(study.seeds_of(method, figure).values()):.1f}"
            pairs = [] if method == study.baseline else pairs_of(outcomes, method, study.baseline, figure)
            found = gain_over_examples(pairs)
            cells.append(shown if found is None else "{} ({:+.1f}; {:+.1f} to {:+.1f})".format(shown, *found))
        rows.append([*cells, *(column(method) for column in more.values())])
    header = ["method", "seeds", *columns, *more]
    return markdown(header, rows) if rows else counted(study)


def rose_whole() -> str:
    """ROSE's tables on SST-2's train set, beside the paper's."""
    published = read_experiment(ROOT / "experiments" / "evidence-a.yaml").published

    def paper(method: str) -> str:
        figure = published.get(method, {}).get("sst2-noise", {}).get("advglue_sst2")
        return MISSING if figure is None else f"{figure:.1f}"

    table = over_baseline("evidence-a", {"AdvGLUE, paper": paper})
    return f"{table}\n\n{counted(kept_experiment('evidence-a'))}"


def base_size() -> str:
    return over_baseline("evidence-c")


def news() -> str:
    return over_baseline("defences-agnews")


def duration() -> str:
    study = kept_experiment("question-duration-small")
    moments = course(study, ["vanilla"])["vanilla"]
    rows = [
        [figure, *(f"{fmean(moments[step][figure]):.1f}" for step in sorted(moments))] for figure in (CLEAN, ADVGLUE)
    ]
    return markdown(["vanilla after steps", *map(str, sorted(moments))], rows)


def rift() -> str:
    snli, imdb = rift_small("snli"), rift_small("imdb")
    rows = [
        [
            f"`{method}`",
            *(per_cent(snli.seeds_of(method, figure).values()) for figure in (CLEAN, "under pwws")),
            *(per_cent(imdb.seeds_of(method, figure).values()) for figure in (CLEAN, "under pwws")),
        ]
        for method in snli.methods
    ]
    return markdown(["method", "SNLI clean", "SNLI under PWWS", "IMDB clean", "IMDB under PWWS"], rows)


def roast() -> str:
    study = kept_experiment("question-random-importance-small")
    rows = []
    for ours, theirs in MASKS:
        at_end = [difference(study.gains(ours, figure, theirs)) for figure in (CLEAN, NOISE, ADVGLUE)]
        rows.append([f"{ours} − {theirs}", *at_end, difference(gains_at_match(study, ours, theirs, ADVGLUE))])
    return markdown(["points", CLEAN, NOISE, ADVGLUE, "AdvGLUE, matched"], rows)


def choose() -> str:
    """What an engineer may expect, what to take against it, and what that has shown here."""
    defended, snli = kept_experiment("defences-sst2"), rift_small("snli")
    words, letters = "under worst words", "under worst characters"
    encoded, encoded_clean = _wrapped_gain("words", "encoded around encoded")
    corrected, corrected_clean = _wrapped_gain("characters", "corrected around vanilla")
    rows = [
        [
            "replaced words and typing errors",
            "`augment`",
            f"words {_from_to(defended, 'augment', words)}, letters {_from_to(defended, 'augment', letters)}",
            _from_to(defended, "augment", CLEAN),
        ],
        [
            "replaced words; clean accuracy must not fall",
            "`a2t`",
            f"words {_from_to(defended, 'a2t', words)}",
            _from_to(defended, "a2t", CLEAN),
        ],
        [
            "replaced words above all",
            "`encoded`, then `rosewood wrap --with encoded`",
            f"without gradients: words {encoded}",
            encoded_clean,
        ],
        [
            "typing errors, without training",
            "`rosewood wrap --with corrected`",
            f"without gradients: letters {corrected}",
            corrected_clean,
        ],
        [
            "replaced words in pairs of texts",
            "`rift`",
            f"SNLI, PWWS: {_from_to(snli, 'rift', 'under pwws')}",
            _from_to(snli, "rift", CLEAN),
        ],
        ["no lexicon, no changed texts", "`rose-ensemble`", *_points("rose-ensemble")],
    ]
    return markdown(["you expect", "take", "right under attack", "clean"], rows).replace("---: |", "--- |")


def wrapped() -> str:
    """Models with and without a front end, under attacks on words without gradients."""
    from defences_page import wrapped_table  # it takes its tables' form from here

    return wrapped_table("words")


def _wrapped_gain(threat: str, label: str) -> tuple[str, str]:
    """Robust and clean accuracy of plain fine-tuning and of a wrapped model, of the seeds that both have."""
    from defences_page import BOTH, wrapped

    around = {each.seed: each for each in wrapped(threat) if each.label == label}
    plain = {each.seed: each for each in wrapped(threat) if each.label == "vanilla" and each.seed in around}

    def from_to(kind: str) -> str:
        return _arrow(
            *(
                fmean(fmean(each.attacked[kind].values()) for each in side.values() if kind in each.attacked)
                for side in (plain, around)
            )
        )

    other = f"; attacker with a second thesaurus: {from_to(BOTH)}" if threat == "words" else ""
    return from_to(threat) + other, _arrow(*(fmean(each.clean for each in side.values()) for side in (plain, around)))


def _arrow(before: float, after: float) -> str:
    return f"{100 * before:.1f} → {100 * after:.1f} %"


def _from_to(study: Study, method: str, figure: str) -> str:
    """Plain fine-tuning's figure and the method's, of the seeds that both have."""
    before, after = study.seeds_of(study.baseline, figure), study.seeds_of(method, figure)
    both = before.keys() & after.keys()
    return _arrow(fmean(before[s] for s in both), fmean(after[s] for s in both)) if both else MISSING


def _points(method: str) -> list[str]:
    """Points above plain fine-tuning on AdvGLUE and on clean rows, with few training rows and with many."""
    few, many = rose_small(), kept_outcomes("evidence-a")

    def gained(figure: str) -> tuple[str, str]:
        found = gain_over_examples(pairs_of(many, method, "vanilla", figure))
        return difference(few.gains(method, figure)), "{:+.1f} ({:+.1f} to {:+.1f})".format(
            *found
        ) if found else MISSING

    robust, clean = gained(ADVGLUE), gained(CLEAN)
    return [
        f"{ADVGLUE}: 1,000 rows {robust[0]} points, 48,000 rows {robust[1]}",
        f"{clean[0]} points, {clean[1]}",
    ]


TABLES: dict[str, Callable[[], str]] = {
    "defences": defences,
    "wrapped": wrapped,
    "base_size": base_size,
    "news": news,
    "rose_whole": rose_whole,
    "duration": duration,
    "rift": rift,
    "roast": roast,
    "choose": choose,
}


def figures() -> dict[str, str]:
    """File name -> SVG."""
    masks = kept_experiment("question-random-importance-small")
    drawn = {
        "rose.svg": gain_figure(rose_small(), ADVGLUE),
        "duration.svg": course_figure(course(kept_experiment("question-duration-small"), ["vanilla", "roast"])),
        "rift.svg": trade_off_figure(rift_small("snli"), "under pwws"),
        "roast.svg": trade_off_figure(masks, ADVGLUE),
    }
    defended = kept_experiment("defences-sst2")
    if defended.finished:
        words = "right under the worst of four attacks on words"
        drawn["defences.svg"] = trade_off_figure(defended, "under worst words", words)
    return drawn


def with_tables(text: str) -> str:
    """The page with each of its tables as it is now."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table {found.group(1)} -->\n\n{TABLES[found.group(1)]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


def long_pages() -> dict[str, str]:
    """File name -> Markdown."""
    studies = [*map(kept_experiment, EXPERIMENTS), rose_small(), rose_threshold()]
    studies += [rift_small("snli"), rift_small("imdb")]
    return {f"{study.name}.md": long_page(study) for study in studies if study.finished}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    written = figures() | long_pages()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for path in FOLDER.iterdir():
        if path.name not in written:
            path.unlink()
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE.name}: {len(TABLES)} tables; {FOLDER.name}/: {len(written)} files")


if __name__ == "__main__":
    main()
