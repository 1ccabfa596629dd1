"""Recipes, overrides and training arguments that nobody would write: refused in our words, or usable."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from junk import SCALARS, TEXTS, VALUES, mutated, only_our_errors, scarred
from rosewood.config.strict_yaml import parse_overrides
from rosewood.data.tasks import load_task
from rosewood.recipe import Recipe, build_recipe, load_recipe, recipe_names
from rosewood.training.assembly import training_arguments
from rosewood.training.plan import Plan

SHIPPED = {
    name: (resources.files("rosewood.recipes") / f"{name}.yaml").read_text(encoding="utf-8") for name in recipe_names()
}
SPECS = st.sampled_from([yaml.safe_load(text) for text in SHIPPED.values()])
PATHS = st.one_of(
    st.sampled_from(
        [
            *("selection", "selection.name", "selection.order", "selection.keep_quantile", "objective.passes"),
            *(
                "perturbation.steps",
                "perturbation",
                "anchors",
                "anchors.0",
                "anchors.0.name",
                "stages.0.share",
                "stages",
            ),
            *(
                "training",
                "training.learning_rate",
                "training.a.b",
                "name",
                "variants.x.y",
                "",
                ".",
                "..",
                "selection.",
            ),
        ]
    ),
    st.lists(TEXTS, min_size=1, max_size=3).map(".".join),
)
# Those that start no process group, touch no global switch and call nobody.
ARGUMENTS = (
    *("learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size", "per_device_eval_batch_size"),
    *("gradient_accumulation_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args", "label_smoothing_factor"),
    *("logging_steps", "logging_strategy", "eval_strategy", "eval_steps", "save_strategy", "save_steps", "debug"),
    *("train_sampling_strategy", "dataloader_num_workers", "dataloader_prefetch_factor", "include_for_metrics"),
    *("metric_for_best_model", "load_best_model_at_end", "save_total_limit", "neftune_noise_alpha", "seed"),
)


def use(recipe: Recipe, folder: Path) -> None:
    """Everything that is done with a recipe short of training with it."""
    recipe.cost()
    recipe.memory()
    for stage in recipe.all_stages():
        for part in stage.components():
            part.explain(stage)
    recipe.save(folder / "saved.yaml")
    assert load_recipe(folder / "saved.yaml") == recipe


def test_recipe_files(profile: settings, tmp_path: Path) -> None:
    file = tmp_path / "made-up.yaml"

    @profile
    @given(SPECS.flatmap(mutated))
    def check(spec: Any) -> None:
        file.write_text(yaml.safe_dump(spec, allow_unicode=True), encoding="utf-8")
        with only_our_errors():
            use(load_recipe(file), tmp_path)

    check()


def test_recipe_texts(profile: settings, tmp_path: Path) -> None:
    file = tmp_path / "made-up.yaml"

    @profile
    @given(st.sampled_from(list(SHIPPED.values())).flatmap(lambda text: scarred(text.encode())))
    def check(data: bytes) -> None:
        file.write_bytes(data)
        with only_our_errors():
            use(load_recipe(file), tmp_path)

    check()


def test_recipes_as_plain_data(profile: settings, tmp_path: Path) -> None:
    @profile
    @given(SPECS.flatmap(mutated), st.dictionaries(PATHS, VALUES, max_size=2))
    def check(spec: Any, overrides: dict[str, Any]) -> None:
        with only_our_errors():
            use(build_recipe(spec, overrides), tmp_path)

    check()


def test_overrides(profile: settings, tmp_path: Path) -> None:
    values = st.one_of(TEXTS, VALUES.map(lambda value: yaml.safe_dump(value, default_flow_style=True)))
    assignments = st.one_of(TEXTS, st.tuples(PATHS, values).map("=".join))

    @profile
    @given(st.sampled_from(list(SHIPPED)), st.lists(assignments, max_size=3))
    def check(name: str, given_assignments: list[str]) -> None:
        with only_our_errors():
            use(load_recipe(name, parse_overrides(given_assignments)), tmp_path)

    check()


def test_names_of_recipes(profile: settings) -> None:
    endings = st.sampled_from(["", ".yaml", ".yml", ":sst2-base", ":x", "/", "/x.yaml"])

    @profile
    @given(st.tuples(st.one_of(TEXTS, st.sampled_from(list(SHIPPED))), endings).map("".join))
    def check(name: str) -> None:
        with only_our_errors():
            load_recipe(name)

    check()


def test_training_arguments(profile: settings, tmp_path: Path) -> None:
    task = load_task("sst2")

    @profile
    @given(st.dictionaries(st.sampled_from(ARGUMENTS), SCALARS, min_size=1, max_size=3), st.booleans())
    def check(arguments: dict[str, Any], from_a_run: bool) -> None:
        with only_our_errors():
            if from_a_run:  # run.json holds whatever it holds
                plan = Plan(recipe=load_recipe("vanilla"), task=task, arguments=arguments)
            else:
                plan = Plan(recipe=build_recipe({"training": arguments}), task=task)
            training_arguments(plan, tmp_path, has_validation=True)

    check()
