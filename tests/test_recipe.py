"""Recipes: from YAML and back, overrides, and errors that name everything wrong at once."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rosewood.config.strict_yaml import parse_overrides
from rosewood.errors import RecipeError
from rosewood.recipe import Recipe, build_component, build_recipe, load_recipe, recipe_names
from rosewood.selections.rose import Rose
from tiny import arguments

EVERY = recipe_names()
VARIANTS = [f"{name}:{variant}" for name in EVERY for variant in load_recipe(name).variants]


def test_the_shipped_names() -> None:
    assert {"vanilla", "rose-first", "rose-second", "rose-ensemble"} <= set(EVERY)
    assert sorted(EVERY) == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_every_recipe_loads_and_goes_round(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.title
    assert recipe.summary.endswith(".")
    assert recipe.citation or name == "vanilla"
    assert build_recipe(recipe.to_dict()) == recipe
    recipe.save(tmp_path / "saved.yaml")
    assert load_recipe(tmp_path / "saved.yaml") == recipe
    assert load_recipe(str(tmp_path / "saved.yaml")) == recipe
    assert load_recipe(recipe) is recipe


@pytest.mark.parametrize("name", EVERY + VARIANTS)
def test_published_training_arguments_are_arguments(name: str, tmp_path: Path) -> None:
    training = load_recipe(name).training
    args = arguments(tmp_path, **training)
    for key, value in training.items():
        assert getattr(args, key) == value
        assert not isinstance(value, str) or key in ("lr_scheduler_type", "optim")


@pytest.mark.parametrize("name", [name for name in EVERY if load_recipe(name).vanilla_when])
def test_the_overrides_of_vanilla_when_are_settings(name: str) -> None:
    recipe = load_recipe(name)
    assert load_recipe(name, recipe.vanilla_when) != recipe


def test_variants_of_the_papers_table() -> None:
    """Every cell of the ROSE table: learning rate and kept share (methods: first, second, ensemble)."""
    columns = ["qnli-base", "qqp-base", "rte-base", "sst2-base", "qnli-large", "qqp-large", "rte-large", "sst2-large"]
    table = {
        "first": "2e-5/70 2e-5/70 4e-5/80 2e-5/60 3e-5/50 2e-5/70 1e-5/80 4e-5/70",
        "second": "1e-5/40 1e-4/60 4e-5/60 1e-4/30 1e-5/50 1e-5/60 2e-5/50 1e-5/50",
        "ensemble": "1e-5/90 5e-5/75 4e-5/80 5e-5/40 1e-5/30 1e-5/80 1e-5/85 1e-5/70",
    }
    for order, row in table.items():
        assert set(load_recipe(f"rose-{order}").variants) - {"fast"} == set(columns)
        for column, cell in zip(columns, row.split(), strict=True):
            rate, percent = cell.split("/")
            recipe = load_recipe(f"rose-{order}:{column}")
            assert recipe.training["learning_rate"] == float(rate)
            assert isinstance(recipe.selection, Rose)
            assert recipe.selection.keep_quantile == int(percent) / 100
            batch = recipe.training.get("per_device_train_batch_size")
            assert batch == (16 if column.startswith("rte") else None)


def test_an_override_beats_a_variant() -> None:
    recipe = load_recipe("rose-first:sst2-base", {"selection.keep_quantile": 0.9, "training.learning_rate": "3e-5"})
    assert isinstance(recipe.selection, Rose)
    assert recipe.selection.keep_quantile == 0.9
    assert recipe.training["learning_rate"] == 3e-5


def test_overrides_of_a_recipe_object_and_of_whole_parts() -> None:
    recipe = load_recipe(load_recipe("rose-first"), {"objective.passes": 1, "selection.gamma": 0.2})
    assert recipe.objective.settings() == {"passes": 1}
    assert load_recipe("vanilla", {"selection": "rose"}).selection == Rose()
    assert load_recipe("vanilla", {"selection.name": "rose", "selection.order": "second"}).selection == Rose("second")


def test_overrides_reach_into_stages() -> None:
    spec = {"stages": [{"share": 0.5}, {"share": 0.5, "selection": "rose"}]}
    recipe = build_recipe(spec, {"stages.1.selection.order": "second"})
    assert recipe.stages[1].selection == Rose("second")
    assert build_recipe(recipe.to_dict()) == recipe
    with pytest.raises(RecipeError, match="stages has 2 entries, counted from 0"):
        build_recipe(spec, {"stages.2.selection.order": "second"})


def test_overriding_does_not_touch_the_original() -> None:
    spec: dict[str, Any] = {"selection": {"name": "rose"}, "training": {"weight_decay": 0.1}}
    build_recipe(spec, {"selection.order": "first", "training.weight_decay": 0.0, "objective.passes": 2})
    assert spec == {"selection": {"name": "rose"}, "training": {"weight_decay": 0.1}}
    assert load_recipe("vanilla") == load_recipe("vanilla")


# What is typed after --set.


def test_assignments_are_read_as_yaml() -> None:
    given = ["selection.keep_quantile=0.7", "a.b = true", "c=[1, 2]", "d=", "e=x=y", "f=1e-5"]
    assert parse_overrides(given) == {
        "selection.keep_quantile": 0.7,
        "a.b": True,
        "c": [1, 2],
        "d": None,
        "e": "x=y",
        "f": "1e-5",  # YAML 1.1; settings and training arguments read it as a number
    }
    recipe = load_recipe("rose-first", parse_overrides(["selection.keep_quantile=5e-1", "training.learning_rate=1e-5"]))
    assert isinstance(recipe.selection, Rose)
    assert (recipe.selection.keep_quantile, recipe.training["learning_rate"]) == (0.5, 1e-5)


@pytest.mark.parametrize("given", ["keep_quantile", "=0.7", ""])
def test_assignments_without_path_or_sign_are_refused(given: str) -> None:
    with pytest.raises(RecipeError, match=r"--set expects PATH=VALUE, such as selection\.keep_quantile=0\.7, got"):
        parse_overrides([given])


@pytest.mark.parametrize("given", ["selection.parameters=[abc", "selection.parameters=*.query", "a='"])
def test_a_value_that_is_no_yaml_is_a_recipe_error(given: str) -> None:
    with pytest.raises(RecipeError, match="--set"):
        parse_overrides([given])


# Errors.


def message(spec: dict[str, Any], overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(RecipeError) as caught:
        build_recipe(spec, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"selection": "roze"}, "recipe recipe: selection: unknown selection 'roze': did you mean rose"),
        ({"selektion": "rose"}, "selektion: no such entry in a recipe; did you mean selection"),
        (
            {"selection": {"name": "rose", "keep_quantil": 0.5}},
            "selection.keep_quantil: no such setting; did you mean keep_quantile",
        ),
        ({"training": {"learning_rat": 1}}, "training.learning_rat: no such training argument; did you mean learning"),
        ({"optimizer_form": "jax"}, "optimizer_form: expected torch or hf, got 'jax'"),
        ({"attention_mask": False}, "attention_mask: expected given or absent, got False"),
        ({"anchors": "x"}, "anchors: expected a list such as [mixout], got 'x'"),
        ({"objective": None}, "objective: expected the name of a component, got nothing"),
        ({"objective": 3}, "objective: expected a name, or a mapping with a name and settings, got 3"),
        ({"stages": [{"selection": "rose"}]}, "stages.0: expected a mapping with a share of the training steps in (0"),
        ({"stages": [{"share": 1.0, "selektion": 1}]}, "stages.0.selektion: no such entry; did you mean selection"),
    ],
)
def test_each_mistake_is_named(spec: dict[str, Any], expected: str) -> None:
    assert expected in message(spec)


def test_all_problems_at_once() -> None:
    text = message(
        {
            "name": "mine",
            "objectiv": "x",
            "objective": {"name": "cross_entropy", "passes": 0},
            "selection": {"name": "rose", "order": "third", "gamma": 2},
            "training": {"batch": 1},
        },
        {"objective.passes.deep": 1},
    )
    assert text.startswith("recipe mine has ")
    for part in ("objectiv:", "selection.order:", "selection.gamma:", "training.batch:", "--set objective.passes.deep"):
        assert part in text
    assert len(text.splitlines()) >= 6


WRONG_KINDS: list[dict[str, Any]] = [
    *({"stages": 5}, {"training": 5}, {"training": ["a"]}, {"variants": 3}, {"vanilla_when": 3}),
    {"deviations": "one text"},
]


@pytest.mark.parametrize("spec", WRONG_KINDS, ids=str)
def test_entries_of_the_wrong_kind_are_recipe_errors(spec: dict[str, Any]) -> None:
    assert next(iter(spec)) in message(spec)


OF_THE_WRONG_KIND: list[dict[str, Any]] = [
    *({"stages": True}, {"training": True}, {"selection": "rose", "stages": 5}, {"variants": 1}, {"variants.x": 1}),
]


@pytest.mark.parametrize("overrides", OF_THE_WRONG_KIND, ids=str)
def test_overrides_of_the_wrong_kind_are_recipe_errors(overrides: dict[str, Any]) -> None:
    assert "expected a " in message({}, overrides)


def test_variants_that_are_no_settings(tmp_path: Path) -> None:
    assert "variants.x: expected a mapping of settings, got 3" in message({"variants": {"x": 3}})
    (tmp_path / "mine.yaml").write_text("variants: {x: 3, no: {training.weight_decay: 0.5}}")
    with pytest.raises(RecipeError, match="has no variant 'x'"):
        load_recipe(f"{tmp_path}/mine.yaml:x")


def test_keys_that_are_no_text() -> None:
    assert "False: no such entry in a recipe" in message({False: 1})
    assert "training.None: no such training argument" in message({"training": {None: 1}})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("learning_rate", float("nan")), ("learning_rate", -1), ("weight_decay", float("inf")), ("adam_beta2", 1)),
        *(("per_device_train_batch_size", 0), ("gradient_accumulation_steps", 0), ("num_train_epochs", 0)),
    ],
)
def test_training_arguments_out_of_range(name: str, value: float) -> None:
    assert f"training.{name}: input should be" in message({"training": {name: value}})


def test_an_empty_entry_counts_as_absent(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("objective: cross_entropy\nsummary:\ncitation:\ntraining:\nvariants:\n")
    recipe = load_recipe(path)
    assert (recipe.name, recipe.title, recipe.summary, recipe.citation) == ("mine", "mine", "", "")
    assert load_recipe(path, {"training.weight_decay": 0.1}).training == {"weight_decay": 0.1}


def test_unknown_recipes_and_variants() -> None:
    with pytest.raises(RecipeError, match=r"unknown recipe 'rose-ensembel': did you mean rose-ensemble"):
        load_recipe("rose-ensembel")
    with pytest.raises(RecipeError, match=r"recipe rose-first has no variant 'sst-base': did you mean sst2-base"):
        load_recipe("rose-first:sst-base")


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such file, expected the YAML file of a recipe"):
        load_recipe(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(RecipeError, match=r"must hold a mapping .* it holds list"):
        load_recipe(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    with pytest.raises(RecipeError, match="cannot be read as YAML"):
        load_recipe(tmp_path / "broken.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match="cannot be read as YAML"):
        load_recipe(tmp_path / "binary.yaml")


def test_a_path_may_hold_a_colon_and_a_file_may_have_variants(tmp_path: Path) -> None:
    folder = tmp_path / "12:30"
    folder.mkdir()
    text = yaml.safe_dump({"selection": "rose", "variants": {"half": {"selection.keep_quantile": 0.5}}})
    (folder / "mine.yaml").write_text(text)
    assert load_recipe(folder / "mine.yaml").selection == Rose()
    (tmp_path / "mine.yaml").write_text(text)
    assert load_recipe(f"{tmp_path}/mine.yaml:half").selection == Rose(keep_quantile=0.5)


def test_a_recipe_is_frozen() -> None:
    recipe = load_recipe("vanilla")
    with pytest.raises(AttributeError):
        recipe.name = "other"  # type: ignore[misc]
    assert isinstance(recipe, Recipe)


def test_a_part_comes_before_its_settings_in_whatever_order_they_are_given() -> None:
    recipe = load_recipe("vanilla", parse_overrides(["selection.order=second", "selection=rose"]))
    assert recipe.selection.settings()["order"] == "second"


def test_a_part_that_every_stage_sets_cannot_be_overridden_in_vain() -> None:
    with pytest.raises(RecipeError, match=r"every stage has its own selection: .* stages\.1\.selection"):
        load_recipe("lp-ft", {"selection": "rose"})


def test_two_anchors_of_a_kind_are_refused() -> None:
    with pytest.raises(RecipeError, match="anchor mixout is there more than once"):
        build_recipe({"anchors": ["mixout", "mixout"]})


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("learning_rate", "abc", "training.learning_rate: input should be a valid number"),
        ("max_grad_norm", None, "training.max_grad_norm: input should be a valid number"),
        ("max_steps", 10.5, "training.max_steps: input should be a valid integer"),
        ("eval_strategy", False, "quote them"),
    ],
)
def test_training_arguments_have_the_types_of_transformers(setting: str, value: Any, expected: str) -> None:
    with pytest.raises(RecipeError) as error:
        build_recipe({"training": {setting: value}})
    assert expected in str(error.value)


def test_numbers_that_yaml_reads_as_text_are_numbers() -> None:
    assert build_recipe({"training": {"learning_rate": "1e-5"}}).training["learning_rate"] == 1e-5


def test_one_component_by_name() -> None:
    assert build_component("attack", "genetic", {"generations": 3}).settings()["generations"] == 3
    with pytest.raises(RecipeError) as error:
        build_component("attack", "genetic", {"generation": 3, "population": 1})
    assert "attack.generation: no such setting; did you mean generations" in str(error.value)
    assert "attack.population: input should be greater than or equal to 2, got 1" in str(error.value)


@pytest.mark.parametrize("recipe", ["rift", "rift-unconditional", "adv-base", "adv-ptwd", "adv-mixout"])
def test_the_published_settings_of_rift_have_the_official_epsilon(recipe: str) -> None:
    for variant in ("imdb", "snli"):
        assert load_recipe(f"{recipe}:{variant}").training["adam_epsilon"] == 1e-6
    assert "1e-6" in " ".join(load_recipe(recipe).deviations)


@pytest.mark.parametrize("recipe", ["roast", "advembed"])
def test_the_official_form_of_roast_drops_the_last_batch_and_ends_at_a_small_rate(recipe: str) -> None:
    training = load_recipe(f"{recipe}:code").training
    assert training["dataloader_drop_last"] is True
    assert training["lr_scheduler_type"] == "polynomial"  # which ends at 1e-7 by default
