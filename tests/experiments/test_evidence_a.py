"""The settings of the evidence's runs are those that were best on held-out rows, and the file says so."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from rosewood.experiments.experiment import RecipeChoice, read_experiment

ROOT = Path(__file__).parent.parent.parent
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "evidence_a.py"))


def test_the_best_cell_of_each_method_that_is_tuned_is_taken() -> None:
    tried = [RecipeChoice(recipe="vanilla", label=f"vanilla {rate}") for rate in ("1e-4", "2e-4", "5e-5")]
    tried += [RecipeChoice(recipe="r-drop", label=f"r-drop {rate}") for rate in ("1e-4", "2e-4")]
    accuracies = {"vanilla 1e-4": 0.8, "vanilla 2e-4": 0.9, "vanilla 5e-5": 0.9, "r-drop 2e-4": 0.7}
    recipes, missing = SCRIPT["chosen"](tried, accuracies)
    assert recipes == [RecipeChoice(recipe="vanilla", label="vanilla")] and missing == ["r-drop"]
    assert SCRIPT["chosen"](tried, accuracies | {"r-drop 1e-4": 0.6})[1] == []


def test_every_method_has_the_same_rates_and_every_rose_the_same_thresholds() -> None:
    grid: dict[str, set[tuple[float, float | None]]] = {}
    for each in read_experiment(SCRIPT["TUNING"]).recipes:
        setting = each.training["learning_rate"], each.changes.get("selection.keep_quantile")
        grid.setdefault(each.name.split()[0], set()).add(setting)
    rates = (5e-5, 1e-4, 2e-4)
    assert len(grid) == 10
    for method, settings in grid.items():
        rose = {(rate, 0.6) for rate in rates} | {(1e-4, quantile) for quantile in (0.4, 0.8)}
        assert settings == (rose if "rose" in method else {(rate, None) for rate in rates}), method


def test_the_file_is_what_the_script_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes, missing = SCRIPT["chosen"](
        read_experiment(SCRIPT["TUNING"]).recipes, SCRIPT["kept_accuracies"](SCRIPT["KEPT"])
    )
    if not recipes:
        pytest.skip("no method is tuned yet")
    assert SCRIPT["FILE"].read_text(encoding="utf-8") == SCRIPT["experiment"](recipes, missing)
    monkeypatch.chdir(ROOT)
    assert [each.name for each in read_experiment(SCRIPT["FILE"]).recipes] == [each.name for each in recipes]
