"""The settings that make ROSE's first-order risk cheaper: what they cost, what they refuse, what they keep."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from keyed_dropout import keyed_dropout
from rosewood.errors import RecipeError
from rosewood.protocol import Progress, Readings, Run
from rosewood.recipe import Recipe, build_recipe, load_recipe
from rosewood.selections.rose import Rose, RoseSelector, evenly_spaced
from tiny import Recording, TinyData, differing, tiny_bert, trained, weights
from two_processes import in_two_processes


def cheaper(recipe: str = "rose-first", passes: int = 1, **settings: Any) -> Recipe:
    overrides: dict[str, Any] = {"objective.passes": passes} if recipe in ("rose-first", "rose-ensemble") else {}
    return load_recipe(recipe, overrides | {f"selection.{name}": value for name, value in settings.items()})


EXACT = {"probe_fraction": 1.0, "probe_every": 1, "risk_sketch": 0}


def test_off_by_default() -> None:
    for recipe in ("rose-first", "rose-ensemble", "r-drop+rose-first"):
        assert load_recipe(recipe) == load_recipe(recipe, {f"selection.{name}": v for name, v in EXACT.items()})


@pytest.mark.parametrize(
    ("recipe", "passes", "settings", "cost"),
    [
        ("rose-first", 1, {}, "2F+3B"),
        ("rose-first", 2, {}, "2F+4B"),
        ("rose-first", 1, {"probe_fraction": 0.125}, "1.25F+1.25B"),
        ("rose-ensemble", 1, {"probe_fraction": 0.5}, "2F+2B"),
        ("rose-first", 2, {"probe_fraction": 0.5}, "3F+3B"),
        ("rose-ensemble", 1, {"probe_every": 4}, "1.25F+1.5B"),
        ("rose-first", 1, {"risk_sketch": 8}, "2F+2X+B"),
        ("rose-first", 2, {"risk_sketch": 8}, "2F+2X+2B"),
        ("rose-first", 1, {"probe_fraction": 0.25, "probe_every": 2, "risk_sketch": 8}, "1.25F+0.25X+B"),
        ("r-drop+rose-first", 1, {"probe_every": 4}, "2F+2.5B"),
        ("r-drop+rose-ensemble", 1, {"probe_every": 4}, "2F+4B"),  # the cross-entropy is read in every step
    ],
)
def test_what_a_step_costs(recipe: str, passes: int, settings: dict[str, Any], cost: str) -> None:
    assert str(cheaper(recipe, passes, **settings).cost()) == cost


def test_the_forwards_are_those_of_the_cost(tmp_path: Path) -> None:
    model = tiny_bert()
    rows: list[int] = []
    model.register_forward_pre_hook(lambda _, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True)
    recipe = cheaper(probe_fraction=0.25, probe_every=3)
    trained(recipe, tmp_path, model=model, max_steps=6)
    assert rows == [4, 1, 1, 4, 4] * 2
    assert sum(rows) / 4 == pytest.approx(6 * recipe.cost().forward)


def test_explained() -> None:
    recipe = cheaper(probe_fraction=0.25, probe_every=2, risk_sketch=8)
    lines = recipe.selection.explain(recipe.all_stages()[0])
    assert lines[1:4] == [
        "read on 0.25 of the rows of each batch, in two passes of its own",
        "|grad| estimated by |R^T grad|, R R^T = 1 on average, R with 8 columns",
        "read every 2 steps, the same in between",
    ]
    assert recipe.memory() == "two graphs of a part of the batch, gradient sketches"


# Which rows.


@pytest.mark.parametrize(
    ("size", "fraction", "rows"),
    [
        (8, 0.5, [0, 2, 4, 6]),
        (8, 0.25, [0, 4]),
        (8, 0.01, [0]),
        (1, 0.5, [0]),
        (5, 0.6, [0, 1, 3]),
        (4, 0.99, [0, 1, 2, 3]),
    ],
)
def test_rows_are_spread_over_the_batch(size: int, fraction: float, rows: list[int]) -> None:
    batch = {"input_ids": torch.arange(size)[:, None], "labels": torch.arange(size), "scale": torch.ones(()), "n": 3}
    part = evenly_spaced(batch, fraction)
    assert part["labels"].tolist() == rows
    assert part["input_ids"].tolist() == [[row] for row in rows]
    assert (part["scale"], part["n"]) == (torch.ones(()), 3)


def keyed_run(folder: Path, settings: dict[str, Any], **arguments: Any) -> Recording:
    model = tiny_bert()
    with keyed_dropout(model):
        data = TinyData(size=16)
        return trained(cheaper("rose-ensemble", **settings), folder, model, data, max_steps=5, **arguments)


@pytest.mark.parametrize("settings", [{"probe_fraction": 0.5}, {"risk_sketch": 3}, {"probe_every": 2}], ids=str)
def test_batch_8_is_batch_2_with_4_accumulation_steps(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = keyed_run(tmp_path, settings, per_device_train_batch_size=8)
    parts = keyed_run(tmp_path, settings, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    assert whole.masks == parts.masks
    expected = weights(whole.model)
    for name, weight in weights(parts.model).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-9)


EVERYTHING_AT_ONCE = {"probe_fraction": 0.5, "probe_every": 2, "risk_sketch": 3}


def masks_of_a_rank(rank: int, folder: Path) -> list[dict[str, float]]:
    return keyed_run(folder / f"out{rank}", EVERYTHING_AT_ONCE, per_device_train_batch_size=4).masks


def test_two_processes_mask_as_one_does_with_twice_the_batch(tmp_path: Path) -> None:
    alone = keyed_run(tmp_path, EVERYTHING_AT_ONCE, per_device_train_batch_size=8).masks
    assert in_two_processes(masks_of_a_rank, tmp_path, tmp_path) == [alone, alone]


# When it is read.


def test_between_readings_the_mask_stays_and_is_then_that_of_a_fresh_reading(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    trainer = trained(cheaper(probe_every=3), tmp_path, history_file=history, max_steps=7)
    masks = trainer.masks
    assert masks[0] == masks[1] == masks[2] != masks[3] == masks[4] == masks[5]
    read = ["first_risk" in line for line in history.read_text().splitlines()]
    assert read == [True, False, False, True, False, False, True]
    exact = trained(cheaper(), tmp_path, max_steps=1)
    assert masks[0] == exact.masks[0]


def one_selector(**settings: Any) -> RoseSelector:
    model = nn.Module()
    for name in "abc":
        model.register_parameter(name, nn.Parameter(torch.zeros(1)))
    return Rose(parameters=".", **settings).start(Run(model, 10, cheaper().all_stages()[0]))


def readings(step: int, **kl: float) -> Readings:
    one = torch.ones(())
    total = {name: torch.ones(1) for name in "abc"}
    gradients: dict[str, dict[str, Tensor]] = {"total": total, "ce": total}
    gradients |= {"dropout_kl": {name: torch.tensor([float(value)]) for name, value in kl.items()}} if kl else {}
    return Readings(gradients, dict.fromkeys(gradients, one), one, {}, 0.9, Progress(step, 10))


def test_a_reading_that_the_loss_scaler_skipped_is_made_up_for() -> None:
    selector = one_selector(order="first", probe_every=4, keep_quantile=0.5)
    assert set(selector.reads([], Progress(0, 10))) == {"dropout_kl"}
    assert set(selector.reads([], Progress(1, 10))) == {"dropout_kl"}, "step 0 never came to its masks"
    selector.masks(readings(1, a=1, b=3, c=2))
    due = [step for step in range(2, 10) if selector.reads([], Progress(step, 10))]
    assert due == list(range(5, 10)), "four steps after the last reading"


def test_a_candidate_that_joins_between_readings_moves() -> None:
    selector = one_selector(order="first", probe_every=4, keep_quantile=0.0)
    selector.masks(readings(0, a=2, b=1))
    found = selector.masks(readings(1))
    assert found is not None
    assert dict(zip(found.names, found.values, strict=True)) == {"a": 0, "b": 1, "c": 1}


def test_the_state_is_the_last_reading() -> None:
    before = one_selector(order="first", probe_every=4, keep_quantile=0.5)
    assert before.state_dict() == {}
    before.masks(readings(0, a=1, b=3, c=2))
    after = one_selector(order="first", probe_every=4, keep_quantile=0.5)
    after.load_state_dict(before.state_dict())
    assert not after.reads([], Progress(3, 10))
    one, other = before.masks(readings(3)), after.masks(readings(3))
    assert one is not None
    assert other is not None
    assert torch.as_tensor(one.values).tolist() == torch.as_tensor(other.values).tolist() == [1, 0, 1]
    assert one_selector(order="first").state_dict() == {}


@pytest.mark.parametrize("settings", [{"probe_every": 2}, {"risk_sketch": 2}, {"probe_fraction": 0.5}], ids=str)
def test_candidates_without_gradients_do_not_stop_training(settings: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_bert()
    model.unused = nn.ModuleList([nn.Linear(2, 2, dtype=torch.float64)])
    recipe = cheaper("rose-ensemble", parameters="^unused.*weight", **settings)
    assert trained(recipe, tmp_path, model=model, max_steps=3).state.global_step == 3


# The sketch in a model.


@pytest.mark.parametrize("passes", [1, 2])
def test_the_sketch_leaves_the_model_as_it_was(passes: int, tmp_path: Path) -> None:
    model = tiny_bert()
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    trainer = trained(cheaper("rose-ensemble", passes, risk_sketch=2), tmp_path, model=model, max_steps=3)
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks
    assert any(mask < 1 for masks in trainer.masks for mask in masks.values())


def test_the_sketch_depends_on_the_seed_alone(tmp_path: Path) -> None:
    recipe = cheaper(risk_sketch=1)
    one, same = (trained(recipe, tmp_path, max_steps=4) for _ in range(2))
    assert one.masks == same.masks
    exact = trained(cheaper(), tmp_path, max_steps=4)
    assert one.masks != exact.masks, "one direction of 16 or 32 is an estimate"


def test_the_sketch_with_gradient_checkpointing(tmp_path: Path) -> None:
    recipe = cheaper("rose-ensemble", risk_sketch=2)
    plain = trained(recipe, tmp_path, max_steps=3)
    again = trained(
        recipe,
        tmp_path,
        max_steps=3,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
    )
    assert plain.masks == again.masks
    assert not list(differing(weights(plain.model), weights(again.model)))


# Refusals.


@pytest.mark.parametrize(("setting", "value"), [("probe_fraction", 0.5), ("probe_every", 2), ("risk_sketch", 4)])
def test_the_second_order_has_nothing_to_make_cheaper(setting: str, value: Any) -> None:
    with pytest.raises(
        RecipeError, match=rf"selection\.{setting} makes the first-order risk cheaper, which order=second never reads"
    ):
        cheaper("rose-second", **{setting: value})


@pytest.mark.parametrize(("setting", "value"), [("probe_fraction", 0.5), ("risk_sketch", 4)])
def test_a_divergence_of_the_objective_is_read_whole(setting: str, value: Any) -> None:
    with pytest.raises(
        RecipeError,
        match=rf"selection\.{setting} is .* dropout_kl of objective consistency: use selection\.probe_every",
    ):
        cheaper("r-drop+rose-first", **{setting: value})


def test_what_a_sketch_cannot_show() -> None:
    with pytest.raises(RecipeError, match=r"risk_sketch estimates norms of whole tensors: use selection\.level=tensor"):
        cheaper(risk_sketch=4, level="element")
    with pytest.raises(RecipeError, match="risk_sketch forms no gradients, and anchor mixout has to change them"):
        build_recipe({"selection": {"name": "rose", "risk_sketch": 4}, "anchors": ["mixout"]})
    with pytest.raises(
        RecipeError, match=r"selection\.risk_sketch sketches .* bert\.embeddings\.word_embeddings\.weight"
    ):
        cheaper(risk_sketch=4, parameters="weight").check_model(tiny_bert())
    cheaper(risk_sketch=4).check_model(tiny_bert())


@pytest.mark.parametrize(
    ("setting", "value"),
    [("probe_fraction", 0.0), ("probe_fraction", 1.5), ("probe_every", 0), ("risk_sketch", -1)],
)
def test_settings_out_of_range(setting: str, value: Any) -> None:
    with pytest.raises(RecipeError, match=rf"selection\.{setting}: "):
        cheaper(**{setting: value})
