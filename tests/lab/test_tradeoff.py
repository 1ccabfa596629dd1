"""Trade-off curves: the setting from the recipe, accuracies from comparable attacks or evaluations, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rosewood.errors import RunError
from rosewood.evaluation.files import save_evaluation
from rosewood.lab.tradeoff import setting_of, tradeoff
from rosewood.recipe import load_recipe
from rosewood.report.figures.lab import tradeoff as drawn
from rosewood.results import AttackReport, AttackSummary, Evaluation, Mean, SetResult
from tiny_runs import run_info

QUANTILE = "selection.keep_quantile"


def made(folder: Path, quantile: float, seed: int = 0, recipe: str = "rose-first") -> Path:
    folder.mkdir()
    load_recipe(recipe, {QUANTILE: quantile}).save(folder / "recipe.yaml")
    run_info(recipe, seed, training_arguments={"learning_rate": 1e-4}).save(folder / "run.json")
    return folder


def attacked(run: Path, clean: float, robust: float, attack: str = "pwws", **changes: Any) -> None:
    summary = AttackSummary(
        examples=100,
        left_out=0,
        counts={},
        clean_accuracy=clean,
        clean_interval=(clean - 0.01, clean + 0.01),
        robust_accuracy=robust,
        robust_accuracy_at_most=robust,
        robust_interval=(robust - 0.02, robust + 0.02),
        success_rate=None,
        changed_words=None,
        mean_queries=None,
    )
    facts: dict[str, Any] = {"data": "d", "settings": {}, "lexicon": "l", "field": "text", "seed": 0, "max_length": 16}
    facts |= {"max_queries": None, "max_seconds": None, "model": str(run), "seconds": 1.0} | changes
    report = AttackReport(attack=attack, fingerprint=f"{run}", summary=summary, **facts)
    report.save(run / "attacks" / f"{attack}-{len(list(run.glob('attacks/*')))}" / "attack.json")


def evaluated(run: Path, clean: float, typos: float) -> None:
    sets = [
        SetResult(
            name=name,
            role=role,
            examples=9,
            accuracy=value,
            interval=(value, value),
            ece=0,
            brier=0,
            nll=0,
            data=name,
        )
        for name, role, value in (("test", "clean", clean), ("typos", "noise", typos))
    ]
    averages = {"clean": ("test", clean), "noise": ("typos", typos)}
    means = [
        Mean(name=role, value=value, sets=[name], missing=[], interval=(value, value))
        for role, (name, value) in averages.items()
    ]
    facts: dict[str, Any] = {"task": "own", "size": None, "seed": 0, "max_length": 16, "typo_rate": 0.3, "missing": []}
    save_evaluation(Evaluation(model="m", sets=sets, means=means, **facts), run)


def evaluation_without_means(run: Path) -> str:
    """As the first format had it."""
    return Evaluation.load(run / "evaluation.json").model_copy(update={"means": []}).model_dump_json()


def test_a_curve_over_the_values_of_a_setting(tmp_path: Path) -> None:
    for name, quantile, seed, clean, robust in (
        ("b", 0.8, 0, 0.9, 0.4),
        ("a", 0.5, 0, 0.8, 0.5),
        ("c", 0.5, 1, 0.86, 0.54),
    ):
        attacked(made(tmp_path / name, quantile, seed), clean, robust)
    found = tradeoff([tmp_path / name for name in "bac"], QUANTILE, "pwws")
    assert [(p.setting, p.seed, p.clean.value, p.robust.value) for p in found.points] == [
        (0.5, 0, 0.8, 0.5),
        (0.5, 1, 0.86, 0.54),
        (0.8, 0, 0.9, 0.4),
    ]
    curve = drawn(found).data[0]
    assert list(curve.x) == pytest.approx([0.83, 0.9]) and list(curve.y) == pytest.approx([0.52, 0.4])
    assert list(curve.text) == ["0.5", "0.8"]
    assert list(curve.error_y.array) == pytest.approx([0.02, 0.02]), "over two seeds, and of one run"


def test_recipes_have_curves_of_their_own(tmp_path: Path) -> None:
    for name, recipe in (("a", "rose-first"), ("b", "rose-second")):
        attacked(made(tmp_path / name, 0.5, recipe=recipe), 0.8, 0.5)
    found = tradeoff([tmp_path / "a", tmp_path / "b"], QUANTILE, "pwws")
    assert [curve.name for curve in drawn(found).data] == ["rose-first", "rose-second"]


def test_attacks_that_differ_do_not_compare(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", 0.5), made(tmp_path / "other", 0.6)
    attacked(one, 0.8, 0.5)
    with pytest.raises(RunError, match=r"other was not\): give all of them to one command, rosewood attack RUN"):
        tradeoff([one, other], QUANTILE, "pwws")
    attacked(other, 0.8, 0.5, max_queries=10)
    with pytest.raises(RunError, match="settings, budgets or examples differ"):
        tradeoff([one, other], QUANTILE, "pwws")
    attacked(other, 0.8, 0.5, lexicon="other")
    with pytest.raises(RunError, match="settings, budgets or examples differ"):
        tradeoff([one, other], QUANTILE, "pwws")
    attacked(other, 0.8, 0.6)
    assert [point.robust.value for point in tradeoff([one, other], QUANTILE, "pwws").points] == [0.5, 0.6]


def test_sets_of_an_evaluation(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", 0.5), made(tmp_path / "other", 0.6)
    for run, typos in ((one, 0.7), (other, 0.6)):
        evaluated(run, 0.9, typos)
    found = tradeoff([one, other], QUANTILE, "typos")
    assert [(point.clean.value, point.robust.value) for point in found.points] == [(0.9, 0.7), (0.9, 0.6)]
    (other / "evaluation.json").write_text(evaluation_without_means(other))
    assert tradeoff([one, other], QUANTILE, "noise").points[1].robust.value == 0.6
    with pytest.raises(RunError, match="evaluated on a set or role of that name: attack it, or choose one of clean"):
        tradeoff([one, other], QUANTILE, "genetic")


def test_settings_by_path(tmp_path: Path) -> None:
    run = made(tmp_path / "run", 0.5)
    assert setting_of(run, QUANTILE) == 0.5
    assert setting_of(run, "selection.order") == '"first"'
    assert setting_of(run, "training.learning_rate") == 1e-4
    with pytest.raises(RunError, match=r"has no setting selection\.kep: where 'kep' is looked for, there is name"):
        setting_of(run, "selection.kep")
    with pytest.raises(RunError, match=r"has no setting anchors\.0\.weight: where '0' is looked for, there is nothing"):
        setting_of(run, "anchors.0.weight")
    with pytest.raises(RunError, match=r"selection is not a single setting: choose one of selection\.name"):
        setting_of(run, "selection")
