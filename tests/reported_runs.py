"""Runs with everything that a report can show, made up; the words in them are as evil as a test wants."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml

from rosewood.attacks.runner.report import save_outcome, summarize
from rosewood.evaluation.files import predictions_file, predictions_path, save_evaluation
from rosewood.evaluation.measure import means
from rosewood.lab.landscape import Landscape, grid_coordinates
from rosewood.lab.sharpness import Sharpness
from rosewood.results import (
    AnomalyResult,
    AppliedNoise,
    AttackedExample,
    AttackResult,
    ChangedWord,
    Evaluation,
    GroupResult,
    MissingSet,
    ReliabilityPoint,
    Role,
    SetResult,
)
from tiny_runs import run_info

EVIL = "</script><script>alert('evil')</script><b>bold</b> &amp; %{x} \u202eاردو נסיון"
LABELS = ["negative", "positive"]
EXAMPLES = 40


def set_result(name: str, role: Role, right: int, noise: AppliedNoise | None = None) -> SetResult:
    accuracy = right / EXAMPLES
    groups = [
        GroupResult(kind=kind, group=group, examples=20, accuracy=accuracy, interval=around(accuracy))
        for kind, group in (("class", "negative"), ("length", "6 to 10 words"))
    ]
    return SetResult(
        name=name,
        role=role,
        examples=EXAMPLES,
        accuracy=accuracy,
        interval=around(accuracy),
        ece=0.1,
        brier=0.2,
        nll=0.4,
        reliability=[
            ReliabilityPoint(low=0.0, high=0.5, examples=0, confidence=None, accuracy=None),
            ReliabilityPoint(low=0.5, high=0.8, examples=10, confidence=0.7, accuracy=0.6),
            ReliabilityPoint(low=0.8, high=1.0, examples=30, confidence=0.9, accuracy=0.8),
        ],
        groups=groups,
        worst=groups[0],
        noise=noise,
        data="d",
    )


def around(value: float) -> tuple[float, float]:
    return max(0.0, value - 0.1), min(1.0, value + 0.1)


def evaluation(right: int = 30, words: str = "plain", attacked: bool = True) -> Evaluation:
    """A suite with sets of every role; `right` of 40 examples are right on the clean one, fewer elsewhere."""
    clean = f"clean {words}"
    sets = [
        set_result(clean, "clean", right),
        set_result("imdb", "shift", right - 4),
        set_result("poem", "shift", right - 2),
        set_result("advglue", "adversarial", right - 15),
        *(
            set_result(
                f"typos {strength}", "noise", right - drop, AppliedNoise(kind="some_typos", strength=strength, of=clean)
            )
            for strength, drop in ((0.1, 2), (0.4, 8))
        ),
    ]
    anomalies = [
        AnomalyResult(
            name="wmt16",
            inside=clean,
            score=score,
            examples=EXAMPLES,
            auroc=auroc,
            aupr=0.7,
            fpr_at_95_tpr=0.3,
            source="",
            data="d",
        )
        for score, auroc in (("max_softmax", 0.7), ("energy", 0.45))
    ]
    missing = [MissingSet(name="yelp", role="shift", reason=f"gone {words}")]
    return Evaluation(
        model="m",
        task="own",
        suite="own",
        size=EXAMPLES,
        seed=0,
        max_length=16,
        typo_rate=None,
        labels=dict(zip(LABELS, LABELS, strict=True)),
        sets=sets,
        missing=missing,
        anomalies=anomalies,
        means=means(sets, anomalies, missing),
    )


def attack_result(broken: int = 7, words: str = "plain", count: int = 10) -> AttackResult:
    """An attack that breaks the first `broken` of some examples."""
    examples = [attacked_example(row, row < broken, words) for row in range(count)]
    return AttackResult(
        model="m",
        task="own",
        split="test",
        data="d",
        attack="pwws",
        settings={"unknown_word": "NULL", "exact_case": False},
        lexicon="l",
        field="text",
        seed=0,
        max_length=16,
        max_queries=None,
        max_seconds=None,
        fingerprint="f",
        seconds=1.0,
        summary=summarize(examples, 0),
        examples=examples,
    )


def attacked_example(row: int, broken: bool, words: str) -> AttackedExample:
    aligned = [(f"a {words} ", f"a {words} "), ("good", f"great{words}"), (" film", " film")]
    before, after = ("".join(side) for side in zip(*aligned, strict=True))
    hit = {
        "adversarial": after,
        "adversarial_prediction": 0,
        "adversarial_probabilities": [0.6, 0.4],
        "changes": [ChangedWord(position=1, before="good", after=f"great{words}")],
        "aligned": aligned,
    }
    return AttackedExample(
        row=row,
        status="broken" if broken else "robust",
        label=1,
        texts={"text": before, "other": f"other {words}"},
        prediction=1,
        probabilities=[0.2, 0.8],
        words=3,
        queries=5,
        **hit if broken else {},
    )


def write_run(
    folder: Path, recipe: str = "vanilla", seed: int = 0, right: int = 30, words: str = "plain", steps: int = 5
) -> Path:
    """A folder as training, evaluation and attack leave it."""
    info = run_info(recipe, seed, model="bert-base-uncased", command=f"rosewood train --recipe '{words}'")
    info.save(folder / "run.json")
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"name": recipe, "summary": f"about {words}"}))
    splits = {name: {"folder": {"file": f"{name}.csv"}} for name in ("train", "validation", "test")}
    task = {"name": "own", "title": f"Own {words}", "text": ["text", "other"], "labels": LABELS, "splits": splits}
    (folder / "task.yaml").write_text(yaml.safe_dump(task))
    (folder / "model").mkdir()
    lines = [{"step": step, "terms": {"ce": 1 / step}, "kept_share": 0.6} for step in range(1, steps + 1)]
    (folder / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    save_with_predictions(evaluation(right, words), folder)
    save_outcome(attack_result(words=words), folder / "attacks" / "pwws-test-f")
    return folder


def save_with_predictions(found: Evaluation, folder: Path) -> None:
    """Its file, and beside it predictions that are right on the first examples of each set."""
    save_evaluation(found, folder)
    with predictions_file(predictions_path(folder, found.suite, found.task)) as file:
        for each in found.sets:
            hits = round(each.accuracy * EXAMPLES)
            predicted = ["positive"] * hits + ["negative"] * (EXAMPLES - hits)
            logits = np.zeros((EXAMPLES, 2), dtype=np.float32)
            file.write(each.name, logits, ["positive"] * EXAMPLES, predicted, {})


def guess(folder: Path) -> Path:
    """Make the evaluation of a run say that half of its clean examples have the one label, half the other."""
    found = Evaluation.load(folder / "evaluation.json")
    classes = [
        GroupResult(kind="class", group=label, examples=EXAMPLES // 2, accuracy=0.5, interval=around(0.5))
        for label in LABELS
    ]
    sets = [each.model_copy(update={"groups": classes}) if each.role == "clean" else each for each in found.sets]
    save_evaluation(found.model_copy(update={"sets": sets}), folder)
    return folder


def watch(folder: Path, words: str = "plain", steps: int = 3) -> Path:
    """The records that training with all watches leaves in the run's folder."""
    records: dict[str, dict[str, object]] = {
        "masks": {"kept": {"layer 0": {f"query {words}": 1, "key": 0}, f"layer 1 {words}": {"key": 0.5}}},
        "drift": {"encoder": 0.1, "layers": {"layer 0": 0.2, f"layer 1 {words}": 0.05}},
        "inconsistency": {"compared": 10, "differing": 2},
    }
    (folder / "dynamics").mkdir()
    for name, record in records.items():
        lines = [json.dumps({"step": step} | record) for step in range(1, steps + 1)]
        (folder / "dynamics" / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def landscape(name: str, points: int = 5, source: str = "own, test, 8 examples", **changes: object) -> Landscape:
    """A bowl, twice as steep one way as the other."""
    at = grid_coordinates(points, 0.25)
    settings: dict[str, object] = {
        **{"data": "d", "examples": 8, "fingerprint": "f", "seed": 0, "normalisation": "filter", "accuracy": 0.75},
        "losses": [[a * a + 2 * b * b + 0.1 for b in at] for a in at],
        "sharpness": Sharpness(radius=0.25, mean_rise=0.5, threshold=0.1, basin_area=0.04, basin_is_cut=True),
    }
    return Landscape.model_validate({"name": name, "source": source, "coordinates": at} | settings | changes)
