"""Before and after on test rows, which are read here for the first time: what has changed, and whether it counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from math import sqrt
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rosewood.attacks.runner.report import load_attack
from rosewood.comparison.statistics import holm, mcnemar, paired_difference
from rosewood.data.loading import load_split
from rosewood.errors import DataError
from rosewood.evaluation.evaluate import evaluate
from rosewood.evaluation.files import correct_by_set, load_evaluation, predictions_path
from rosewood.experiments.harden.candidates import START, defence_of, encodes, uses_lexicon
from rosewood.experiments.harden.schedule import CLEAN_PER_ATTACKED
from rosewood.experiments.harden.stage import WITHSTOOD, Work, attacked, judging_task
from rosewood.models.modes import accelerated
from rosewood.models.open import load_classifier
from rosewood.results import AttackedExample, Change, Evaluation, Hardening
from rosewood.words.lexicon import Lexicon

TEST, BEFORE, AFTER = "test", "before", "after"
LEVEL = 0.05
Right = NDArray[np.bool_]
Role = Literal["clean", "threat", "lexicon", "noise"]


def other_lexicon(work: Work) -> str | None:
    """A lexicon that a front end does not encode: Roget's, or another one that is there; none if there is none."""
    if not any(map(uses_lexicon, work.threats)):
        return None
    encoded = Lexicon.named(work.lexicon, work.data_dir).name
    for name in ("roget", "counter-fitted", "wordnet"):
        if name != encoded:
            with suppress(DataError):  # its files or packages are not there
                return Lexicon.named(name, work.data_dir).name
    return None


def judge(model: Path, folder: Path, work: Work, rows: int, other: str | None = None) -> None:
    """Measure a model on test rows: clean, under noise, under each threat; what is in the folder is kept.

    With another lexicon, threats that take words from one are measured with both.
    """
    task = judging_task(Path(work.output))
    opened, tokenizer = load_classifier(str(model))
    opened = accelerated(opened)
    evaluate(
        opened,
        tokenizer,
        task,
        data_dir=work.data_dir,
        size=CLEAN_PER_ATTACKED * rows,
        max_length=work.max_length,
        seed=work.seed,
        output=folder,
        progress=False,
    )
    chosen = load_split(task, "test", work.data_dir, rows, work.seed)
    again = [(threat, other) for threat in work.threats if other is not None and uses_lexicon(threat)]
    for threat, lexicon in [*((threat, None) for threat in work.threats), *again]:
        place = attack_folder(folder, threat, lexicon)
        attacked(opened, tokenizer, chosen, work, threat, place, lexicon, task=task.name, split="test")


def attack_folder(folder: Path, threat: str, other: str | None = None) -> Path:
    """Where a model's attack by a threat is kept, among the attacks of its folder."""
    return folder / "attacks" / "-".join(filter(None, [threat, other, "test"])).replace(":", "-")


def changes(before: Path, after: Path, threats: Sequence[str], other: str | None = None) -> list[Change]:
    """Every figure of two models on the same test rows, and the paired test between them."""
    found = [*_on_sets(before, after)]
    again = [(threat, other) for threat in threats if other is not None and uses_lexicon(threat)]
    for threat, lexicon in [*((threat, None) for threat in threats), *again]:
        ours, theirs = (load_attack(attack_folder(folder, threat, lexicon)) for folder in (after, before))
        pair = [np.array([each.status in WITHSTOOD for each in side.examples]) for side in (ours, theirs)]
        ends = theirs.summary.robust_interval, ours.summary.robust_interval
        role: Role = "lexicon" if lexicon else "threat"
        what = f"{threat} with {lexicon}" if lexicon else f"under {threat}"
        found.append(_change(what, role, pair[0], pair[1], *ends))
    return found


def _on_sets(before: Path, after: Path) -> Iterator[Change]:
    first, second = load_evaluation(before), load_evaluation(after)
    right = [correct_by_set(predictions_path(*place)) for place in _places(((before, first), (after, second)))]
    for one, other in zip(first.sets, second.sets, strict=True):
        role: Role = "noise" if one.role == "noise" else "clean"
        what = role if role == "clean" else one.name
        yield _change(what, role, right[1][one.name], right[0][one.name], one.interval, other.interval)
    clean = [next(each for each in found.sets if each.role == "clean") for found in (first, second)]
    yield Change(
        what="calibration error",
        role="calibration",
        examples=clean[0].examples,
        before=clean[0].ece,
        after=clean[1].ece,
        difference=clean[1].ece - clean[0].ece,
    )


def _places(sides: Sequence[tuple[Path, Evaluation]]) -> Iterator[tuple[Path, str | None, str]]:
    return ((folder, found.suite, found.task) for folder, found in sides)


def _change(
    what: str,
    role: Role,
    after: Right,
    before: Right,
    before_interval: tuple[float, float],
    interval: tuple[float, float],
) -> Change:
    drawn = paired_difference(after, before)
    return Change(
        what=what,
        role=role,
        examples=len(after),
        before=float(before.mean()),
        before_interval=before_interval,
        after=float(after.mean()),
        after_interval=interval,
        difference=drawn.difference,
        interval=(drawn.low, drawn.high),
        p=mcnemar(after, before),
    )


def is_better(found: Sequence[Change], max_clean_loss: float) -> bool:
    """Whether some threat is met better beyond noise and none worse, and the clean loss on these rows is allowed."""
    return is_more_robust(found) and not loses_more(found, max_clean_loss)


def is_more_robust(found: Sequence[Change]) -> bool:
    """Whether some threat is met better beyond noise, and none worse.

    Threats are tested together (Holm), and the whole interval of the gain must lie above 0.
    """
    threats = {each.what: each for each in found if each.role == "threat"}
    adjusted = holm({what: each.p for what, each in threats.items() if each.p is not None})
    sure = [threats[what] for what, p in adjusted.items() if p < LEVEL]
    gains = [each for each in sure if each.interval is not None and each.interval[0] > 0]
    return bool(gains) and all(each.difference > 0 for each in sure)


def loses_more(found: Sequence[Change], max_clean_loss: float) -> bool:
    """Whether the clean accuracy falls by more than was allowed: on these rows, whatever the interval says."""
    clean = next(each for each in found if each.role == "clean")
    return clean.difference < -max_clean_loss / 100 - 1e-9


def sentence_of(state: Hardening, kept: str = "") -> str:
    """The end in words; `kept` is where the candidate is, in the folder of the hardening."""
    if not state.changes:
        return (
            "Nothing is better beyond noise: on held-out rows no candidate within the limits was more robust than your "
            "model. It is unchanged."
        )
    figures = "; ".join(_change_in_words(each) for each in state.changes if each.role in ("threat", "clean"))
    if is_better(state.changes, state.max_clean_loss):
        return f"{state.winner} is better: {figures}.{_one_lexicon(state)}"
    place = f" It is kept in {kept}." if kept else ""
    if is_more_robust(state.changes):
        return (
            f"Your model is unchanged: {state.winner} is more robust, and loses more clean accuracy than you allow: "
            f"{figures}. {_lost(state)}{place}"
        )
    threats = [each for each in state.changes if each.role == "threat"]
    least = max(_detectable(each) for each in threats)
    return (
        f"Nothing is better beyond noise: your model is unchanged. The best candidate, {state.winner}: {figures}."
        f"{place} These test rows show differences of about {100 * least:.0f} points or more."
    )


def _lost(state: Hardening) -> str:
    """The clean accuracy that was lost on test rows, and on held-out rows."""
    clean = next(each for each in state.changes if each.role == "clean")
    held_out = state.last(START).clean_accuracy - state.last(str(state.winner)).clean_accuracy
    return (
        f"On these {clean.examples} rows it falls by {-100 * clean.difference:.1f} points, and --max-clean-loss is "
        f"{state.max_clean_loss:g}; on the {len(state.last(START).right)} held-out rows it "
        f"{'fell' if held_out > 0 else 'rose'} by {100 * abs(held_out):.1f}."
    )


def _one_lexicon(state: Hardening) -> str:
    """Said of encoded synonyms: attacks with the lexicon that they encode are what they are best against."""
    if not encodes(defence_of(str(state.winner))):
        return ""
    others = "; ".join(_change_in_words(each) for each in state.changes if each.role == "lexicon")
    if others:
        return f" Its attacks used the lexicon that it encodes. With words of another one: {others}."
    if not any(map(uses_lexicon, state.threats)):
        return ""
    return " Its attacks used the lexicon that it encodes: attack it with another one, too, such as --lexicon roget."


def _change_in_words(each: Change) -> str:
    assert each.interval is not None and each.p is not None
    low, high = (100 * end for end in each.interval)
    p = "p < 0.001" if each.p < 0.001 else f"p = {each.p:.3f}"
    return (
        f"{each.what} {100 * each.before:.1f} -> {100 * each.after:.1f} % "
        f"({100 * each.difference:+.1f} points, {low:+.1f} to {high:+.1f}, {p})"
    )


def _detectable(each: Change) -> float:
    """The difference that a test on so many rows finds four times in five, at the spread that was seen."""
    assert each.interval is not None
    return 2.8 * max((each.interval[1] - each.interval[0]) / 3.92, 1 / sqrt(each.examples) / 4)


def saved_examples(before: Path, after: Path, threats: Sequence[str], most: int) -> list[AttackedExample]:
    """Texts that an attack broke before, and none after, as they were changed then: the plainest of each threat."""
    found = []
    for threat in threats:
        ours, theirs = (load_attack(attack_folder(folder, threat)).examples for folder in (after, before))
        hold = {each.row for each in ours if each.status in WITHSTOOD}
        found.append(sorted((each for each in theirs if each.status == "broken" and each.row in hold), key=_effort))
    return [each for turn in zip_longest(*found) for each in turn if each is not None][:most]


def _effort(example: AttackedExample) -> tuple[bool, int, int]:
    """How hard it is to see what was done to a text: invisible signs, many changes, a long text."""
    text = example.adversarial or ""
    return any(not sign.isprintable() for sign in text), len(example.changes), len(text)
