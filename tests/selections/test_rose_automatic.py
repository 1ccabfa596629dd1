"""ROSE with a threshold that each step's risks set by themselves."""

import json
from pathlib import Path
from typing import Any

import pytest

from keyed_dropout import keyed_dropout
from rosewood.errors import RecipeError
from rosewood.recipe import Recipe, load_recipe
from rosewood.selections.rose import Rose
from tiny import Recording, TinyData, tiny_bert, trained
from two_processes import in_two_processes

RULES = ["otsu", "outliers", "gap"]
ORDERS = ["first", "second", "ensemble"]


def automatic(order: str = "ensemble", rule: str = "otsu", **settings: Any) -> Recipe:
    overrides = {f"selection.{name}": value for name, value in settings.items()}
    return load_recipe(f"rose-{order}", {"selection.keep_quantile": rule} | overrides)


def test_the_published_quantile_stays_the_default() -> None:
    assert Rose().keep_quantile == 0.6
    assert Rose().thresholds() == {"first": (0.0, 0.6), "second": (0.0, 0.6)}
    for order in ORDERS:
        assert load_recipe(f"rose-{order}").selection == Rose(order=order)  # type: ignore[arg-type]


def test_each_order_has_a_threshold_of_its_own() -> None:
    assert Rose(keep_quantile="gap").thresholds() == {"first": "gap", "second": "gap"}
    assert Rose(keep_quantile="gap", order="second").thresholds() == {"second": "gap"}
    mixed = Rose(keep_quantile="otsu", first_quantiles=(0.1, 0.7))
    assert mixed.thresholds() == {"first": (0.1, 0.7), "second": "otsu"}


@pytest.mark.parametrize("rule", RULES)
def test_the_history_says_what_share_was_kept(rule: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    trainer = trained(automatic(rule=rule), tmp_path, max_steps=8, history_file=path)
    shares = [json.loads(line)["kept_share"] for line in path.read_text().splitlines()]
    assert shares == pytest.approx([sum(masks.values()) / len(masks) for masks in trainer.masks])
    assert len(set(shares)) > 1, "the share is not fixed"


def keyed_run(folder: Path, rule: str, batch: int) -> Recording:
    model = tiny_bert()
    with keyed_dropout(model):
        recipe = automatic(rule=rule)
        return trained(
            recipe, folder, model=model, data=TinyData(size=24), max_steps=5, per_device_train_batch_size=batch
        )


def masks_of_a_rank(rank: int, folder: Path) -> dict[str, Any]:
    return {rule: keyed_run(folder / f"out{rank}", rule, batch=4).masks for rule in RULES}


def test_two_processes_mask_as_one_does_with_twice_the_batch(tmp_path: Path) -> None:
    alone = {rule: keyed_run(tmp_path, rule, batch=8).masks for rule in RULES}
    assert in_two_processes(masks_of_a_rank, tmp_path, tmp_path) == [alone, alone]
    assert any(mask < 1 for runs in alone.values() for masks in runs for mask in masks.values())


def test_no_fixed_quantile_has_no_count() -> None:
    message = (
        "selection.count=floor says how many a fixed quantile keeps, and keep_quantile=gap finds that out by itself: "
        "leave one of the two out"
    )
    with pytest.raises(RecipeError) as refusal:
        automatic(rule="gap", count="floor")
    assert message in str(refusal.value)
    automatic(rule="gap", count="floor", first_quantiles=[0.0, 0.5])


@pytest.mark.parametrize("value", ["ots", -0.1, None])
def test_what_is_neither_a_share_nor_a_rule_is_refused(value: Any) -> None:
    expected = r"selection\.keep_quantile: input should be 'auto', 'otsu', 'outliers' or 'gap', got"
    with pytest.raises(RecipeError, match=expected):
        load_recipe("rose-first", {"selection.keep_quantile": value})


def explained(recipe: Recipe) -> str:
    (stage,) = recipe.all_stages()
    return "\n".join(stage.selection.explain(stage))


def test_explain_has_the_formula() -> None:
    by_otsu = explained(automatic())
    assert "M_first = 1 for the weight tensors whose first-order risk r is at most c_first, else 0" in by_otsu
    cut = "the cut with the greatest n_low n_high (mean log r_low - mean log r_high)^2; at least one in 10 is kept"
    assert f"c_first = {cut}" in by_otsu
    assert f"c_second = {cut}" in by_otsu
    assert "c_second = exp(median log r + 2 s), s = 1.4826 median |log r - median log r|;" in explained(
        automatic("second", "outliers")
    )
    assert "c_first" not in explained(automatic(first_quantiles=[0.0, 0.5]))


def test_saved_and_loaded(tmp_path: Path) -> None:
    recipe = automatic("second", "outliers")
    recipe.save(tmp_path / "recipe.yaml")
    assert load_recipe(tmp_path / "recipe.yaml") == recipe
