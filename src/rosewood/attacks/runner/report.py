"""The figures of an attack, tables of them for the terminal, and the files in its folder.

`attack.json` has the figures, `examples.jsonl` a line per example.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from pydantic import ValidationError
from rich.text import Text

from rosewood.attacks.runner.constraints import in_words, verdicts
from rosewood.config.attack_options import MeaningFilter
from rosewood.errors import RunError
from rosewood.results import AttackedExample, AttackReport, AttackResult, AttackSummary, FilteredAccuracy, write
from rosewood.results.evaluation import majority_share
from rosewood.tensors.statistics import wilson_interval

NO_FILTER = MeaningFilter()


def summarize(
    examples: Sequence[AttackedExample],
    left_out: int = 0,
    min_changeable: float = 0.0,
    meaning_filter: MeaningFilter = NO_FILTER,
) -> AttackSummary:
    """Count and average; `left_out` examples were never begun."""
    counts = Counter(example.status for example in examples)
    total, broken = len(examples), counts["broken"]
    unbroken = counts["robust"] + counts["out_of_queries"]
    attacked = [example for example in examples if example.status != "wrong"]
    shares = [len(example.changes) / example.words for example in examples if example.status == "broken"]
    words = [(example.changeable, example.words) for example in attacked if example.changeable is not None]
    similarities = [example.similarity for example in examples if example.similarity is not None]
    return AttackSummary(
        examples=total,
        left_out=left_out,
        counts=dict(counts),
        clean_accuracy=len(attacked) / total,
        clean_interval=wilson_interval(len(attacked), total),
        majority=majority_share(
            # A text with several labels is right if all are; of words with labels, nobody knows how often each occurs.
            (example.label, *(() if example.about_words else example.expected))
            for example in examples
        ),
        robust_accuracy=unbroken / total,
        robust_accuracy_at_most=(unbroken + counts["out_of_time"]) / total,
        robust_interval=(
            wilson_interval(unbroken, total)[0],
            wilson_interval(unbroken + counts["out_of_time"], total)[1],
        ),
        filtered=filtered(examples, meaning_filter),
        success_rate=broken / (broken + unbroken) if broken + unbroken else None,
        changed_words=fmean(shares) if shares else None,
        changeable_words=sum(some for some, _ in words) / max(1, sum(all_ for _, all_ in words)) if words else None,
        min_changeable=min_changeable,
        similarity=fmean(similarities) if similarities else None,
        broken_by=dict(Counter(example.broken_by for example in examples if example.broken_by is not None)),
        mean_queries=fmean(example.queries for example in attacked) if attacked else None,
    )


def filtered(examples: Sequence[AttackedExample], conditions: MeaningFilter) -> FilteredAccuracy | None:
    """The robust accuracy where only edits count that satisfy the conditions; None if there are none."""
    if conditions == MeaningFilter():
        return None
    told = [verdicts(example, conditions) for example in examples if example.status == "broken"]
    passed = sum(all(verdict is not False for verdict in each.values()) for each in told)
    counts, total = Counter(example.status for example in examples), len(examples)
    robust = counts["robust"] + counts["out_of_queries"] + counts["broken"] - passed
    at_most = robust + counts["out_of_time"]
    return FilteredAccuracy(
        conditions=conditions,
        passed=passed,
        failed=dict(Counter(name for each in told for name, verdict in each.items() if verdict is False)),
        unknown=sorted({name for each in told for name, verdict in each.items() if verdict is None}),
        robust_accuracy=robust / total,
        robust_accuracy_at_most=at_most / total,
        robust_interval=(wilson_interval(robust, total)[0], wilson_interval(at_most, total)[1]),
    )


COLUMNS = ("n", "clean", "robust", "filtered", "broken", "words", "cosine", "queries")
CAPTION = (
    "Accuracy in %, with 95 % Wilson intervals. Broken: % of the examples that were right before the attack. Words: % "
    "of the words that were changed in broken texts; below it, % of the words of all texts that the attack can change. "
    "Cosine: between the sentence vectors of broken texts and their originals. Queries: mean per attacked example."
)
NOT_ATTACKED = "not attacked"
FAILED = {
    "words": "change too many words",
    "similarity": "have too low a cosine",
    "fluency": "raise the perplexity too much",
    "antonyms": "put in an antonym",
}
"""What is wrong with edits that do not satisfy a condition of a filter."""


def caption_of(reports: Iterable[AttackReport]) -> str:
    """What the columns mean, and after how many tokens texts were cut."""
    reports = list(reports)
    lengths = dict.fromkeys(str(report.max_length) for report in reports)
    filters = filter_caption(report.summary for report in reports)
    return " ".join([CAPTION, *filters, f"Texts are cut after {' or '.join(lengths)} tokens.", *_gradients_in(reports)])


def _gradients_in(reports: Sequence[AttackReport]) -> list[str]:
    """Which models were attacked without gradients, if others in the same table were attacked with them."""
    without = dict.fromkeys(each.model for each in reports if is_without_gradients(each))
    if not without or all(map(is_without_gradients, reports)):
        return []
    return [
        f"Attacked without gradients, by fewer attacks than the others: {', '.join(without)}. Figures of the two kinds "
        "do not compare; --set white_box=false attacks all models in that way."
    ]


def is_without_gradients(report: AttackReport) -> bool:
    """Whether attacks that need gradients were left out of the worst case over several attacks."""
    return report.settings.get("white_box") is False


def filter_caption(summaries: Iterable[AttackSummary]) -> list[str]:
    """What the column "filtered" counts."""
    found = [summary.filtered for summary in summaries if summary.filtered is not None]
    told = [
        f"Filtered: robust accuracy if an edit counts only where {in_words(conditions)}."
        for conditions in dict.fromkeys(each.conditions for each in found)
    ]
    unknown = sorted({name for each in found for name in each.unknown})
    unchecked = f"The records say nothing of {' and '.join(unknown)}, so the filter did not check that."
    return [*told, *([unchecked] if unknown else [])]


def title_of(report: AttackReport) -> str:
    """The attack and what it was on."""
    return f"{name_of(report)} on {place_of(report)}"


def name_of(report: AttackReport) -> str:
    """The attack, as `--attack` takes it, whether it was without gradients, and the protocol if there is one."""
    name = ":".join([report.attack, *filter(None, [report.settings.get("recipe")])])
    name += " without gradients" if is_without_gradients(report) else ""
    return f"{name} ({report.protocol})" if report.protocol else name


def deviations_caption(report: AttackReport) -> str | None:
    """Where the attack departs from its protocol; None without one."""
    if report.protocol is None:
        return None
    said = "".join(f"\n  {each}" for each in report.deviations)
    return f"Protocol {report.protocol}, {f'with these deviations:{said}' if said else 'without deviations.'}"


def place_of(report: AttackReport) -> str:
    """What was attacked."""
    return " ".join(dict.fromkeys(filter(None, [report.task, report.split]))) or "the data"


def summary_cells(summary: AttackSummary) -> list[str]:
    """The figures of an attack, a text for each of the columns."""
    return [
        str(summary.examples),
        _accuracy(summary.clean_accuracy, summary.clean_accuracy, summary.clean_interval),
        _accuracy(summary.robust_accuracy, summary.robust_accuracy_at_most, summary.robust_interval)
        if summary.attacked
        else "\n".join(NOT_ATTACKED.split()),
        _filtered(summary),
        _percent(summary.success_rate) if summary.attacked else "-",
        _words(summary),
        "-" if summary.similarity is None else f"{summary.similarity:.2f}",
        "-" if summary.mean_queries is None else f"{summary.mean_queries:.0f}",
    ]


def added_by(report: AttackReport) -> str | None:
    """What each attack of a list added; None for a single attack that did all, or where nothing broke."""
    counts = report.summary.broken_by
    if not counts:
        return None
    parts = [f"{name} {count}" for name, count in sorted(counts.items(), key=lambda each: -each[1])]
    return f"Broken by {', '.join(parts)}: each attack saw only what those before it had left."


def edits_caption(report: AttackReport) -> str | None:
    """How many edits pass the filter, and why the others do not; None without a filter, or where nothing broke."""
    found, broken = report.summary.filtered, report.summary.counts.get("broken", 0)
    if found is None or not broken:
        return None
    failed = sorted(found.failed.items(), key=lambda each: -each[1])
    why = " and ".join(f"{count} {FAILED[name]}" for name, count in failed)
    others = f" Of the others, {why}." if why else ""
    return f"{found.passed} of {broken} edits pass the filter {found.conditions}.{others}"


def warning_of(report: AttackReport) -> str | None:
    """Why the figures say nothing about robustness; None if they do."""
    summary = report.summary
    if summary.attacked:
        return None
    what = f"the lexicon {report.lexicon_name or ''}".rstrip() if report.lexicon else report.attack
    return (
        f"Not attacked: {what} could change only {100 * (summary.changeable_words or 0):.1f} % of the words, less than "
        f"{100 * summary.min_changeable:g} %, so unbroken examples say nothing about the model. Are the texts in "
        "another language? Give a lexicon of it (a JSON file, or a folder with a wordnet in WN-LMF), or take typos."
    )


def _filtered(summary: AttackSummary) -> str:
    found = summary.filtered
    if found is None or not summary.attacked:
        return "-"
    return _accuracy(found.robust_accuracy, found.robust_accuracy_at_most, found.robust_interval)


def _accuracy(low: float, high: float, interval: tuple[float, float]) -> str:
    value = f"{100 * low:.1f}" if low == high else f"{100 * low:.1f}-{100 * high:.1f}"
    return f"{value}\n({100 * interval[0]:.0f}-{100 * interval[1]:.0f})"


def _words(summary: AttackSummary) -> str:
    changed = _percent(summary.changed_words)
    return changed if summary.changeable_words is None else f"{changed}\nof {100 * summary.changeable_words:.0f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def diff(example: AttackedExample, labels: Sequence[str]) -> Text:
    """A broken example: changed words struck out in red, the new words in green; readable without colours."""
    before, after = answers_of(example, labels)
    text = Text(f"row {example.row}, {example.queries} queries: {_plain(before)} -> {_plain(after)}\n", style="dim")
    text = Text.assemble(text)
    for before, after in example.aligned:
        if before == after:
            text.append(_plain(before))
        else:
            text.append("[").append(_plain(before), "red strike").append(" -> ").append(_plain(after), "green")
            text.append("]")
    return text


def answers_of(example: AttackedExample, labels: Sequence[str]) -> tuple[str, str]:
    """What the model answers before and after an attack that broke it, in words."""
    assert example.adversarial_prediction is not None and example.adversarial_probabilities is not None

    def named(numbers: Sequence[int]) -> str:
        return " ".join(_name(labels, number) for number in numbers) or "none"

    if example.about_words:
        words = next(iter(example.texts.values())).split()
        entity = " ".join(words[at] for at in example.about_words)
        return f"{entity}: {named(example.predicted)}", named(example.adversarial_predicted)
    if example.expected or example.predicted or example.adversarial_predicted:
        return f"[{named(example.predicted)}]", f"[{named(example.adversarial_predicted)}]"
    right, wrong = example.label, example.adversarial_prediction
    return (
        f"{_name(labels, right)} {example.probabilities[right]:.0%}",
        f"{_name(labels, wrong)} {example.adversarial_probabilities[wrong]:.0%}",
    )


def _name(labels: Sequence[str], number: int) -> str:
    return labels[number] if number < len(labels) else f"label {number}"


def _plain(text: str) -> str:
    """Without the signs that a terminal obeys; several in a row are shown as one."""
    shown = "".join(sign if sign.isprintable() else " " if sign.isspace() else "�" for sign in text)
    return re.sub("�+", "�", shown)


REPORT = "attack.json"
EXAMPLES = "examples.jsonl"


def save_outcome(result: AttackResult, folder: Path) -> None:
    """Write both files; the report comes last, so that where it is, all is."""
    write(folder / EXAMPLES, "".join(f"{example.model_dump_json()}\n" for example in result.examples))
    facts = {name: value for name, value in result if name != "examples"}
    AttackReport(**facts).save(folder / REPORT)


def load_attack(folder: str | Path) -> AttackResult:
    """Read the result of a finished attack, as `rosewood attack` and `attack(folder=...)` leave it.

    Args:
        folder: The folder with `attack.json` and `examples.jsonl`.

    Returns:
        The figures and settings, and what was done to each example.

    Raises:
        RunError: If the folder does not hold a finished attack, or a file is damaged.

    Example:
        >>> result = load_attack("runs/rose/attacks/pwws-test-f")
        >>> len([example.adversarial for example in result.examples if example.status == "broken"])
        7
    """
    folder = Path(folder)
    return AttackResult(**dict(AttackReport.load(folder / REPORT)), examples=_examples(folder / EXAMPLES))


def _examples(path: Path) -> list[AttackedExample]:
    try:
        return [AttackedExample.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValidationError) as error:
        raise RunError(f"cannot read {path}: {error}. Delete its folder, and attack again.") from None
