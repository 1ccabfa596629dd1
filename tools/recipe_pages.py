"""One page for each recipe, from its YAML file and from what its components say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from rosewood.cli.explain import stand_ins

if TYPE_CHECKING:
    from rosewood.recipe import Recipe

FOLDER = "reference/recipes"
CATALOGUE = "<!-- the catalogue of recipes -->"
ABOVE = ("name", "title", "summary", "citation", "deviations", "variants", "vanilla_when")


@cache
def _described() -> tuple[dict[str, str], str]:
    """The pages, and the table of all recipes: both are made while light objects take the place of torch."""
    with stand_ins():
        from rosewood.recipe import load_recipe, recipe_names

        recipes = [load_recipe(name, check_training=False) for name in recipe_names()]
        pages = {page_of(each.name): "\n\n".join(_page(each)) + "\n" for each in recipes}
        return pages, "\n".join([*_HEADER, *map(_row, recipes)])


_HEADER = (
    "| recipe | objective | perturbation | selection | anchor | cost | from |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def recipe_pages() -> dict[str, str]:
    """Path -> Markdown."""
    return _described()[0]


def catalogue() -> str:
    """The table of all recipes: their choice on the four axes, and what a step costs."""
    return _described()[1]


def page_of(name: str) -> str:
    return f"{FOLDER}/{name.replace('+', '-with-')}.md"  # r-drop+rose-first, freelb++


def _row(recipe: Recipe) -> str:
    perturbation = recipe.perturbation.name if recipe.perturbation else "–"
    selection = ", then ".join(dict.fromkeys(stage.selection.name for stage in recipe.all_stages()))
    anchors = ", ".join(anchor.name for anchor in recipe.anchors) or "–"
    cells = (recipe.objective.name, perturbation, selection, anchors, str(recipe.cost()), _paper(recipe))
    return f"| [`{recipe.name}`]({page_of(recipe.name)}) | {' | '.join(cells)} |"


def _paper(recipe: Recipe) -> str:
    """First author and year of a published method."""
    author, year = re.match(r"\w*", recipe.citation), re.search(r"\b(19|20)\d\d\b", recipe.citation)
    return f"{author.group()} {year.group()}" if author and year and author.group() != "Made" else "–"


def _page(recipe: Recipe) -> Iterator[str]:
    yield f"# {recipe.name}"
    yield f"**{recipe.title}.** {_text(recipe.summary)}"
    if recipe.citation:
        yield f"*{_text(recipe.citation)}*"
    yield f"```\nrosewood train --recipe {recipe.name} --task sst2 --output runs/{recipe.name}\n```"
    memory = recipe.memory() or "nothing to speak of"
    yield f"A step costs {recipe.cost()} (plain fine-tuning: F+B); extra memory: {memory}."
    yield "## What it computes"
    stages = recipe.all_stages()
    for place, stage in enumerate(stages):
        if len(stages) > 1:
            yield f"Stage {place + 1}, {stage.share:.0%} of the steps:"
        lines = [
            line
            for part in stage.components()
            for line in (part.name, *(f"  {said}" for said in part.explain(stage) or ["nothing to compute"]))
        ]
        yield "``` {.text .wrap}\n" + "\n".join(lines) + "\n```"
    if recipe.deviations:
        yield "## Deviations and choices"
        yield "\n".join(f"- {_text(each)}" for each in recipe.deviations)
    yield "## Settings"
    yield "Any of them changes with `--set`, for example `--set training.weight_decay=0.1`."
    plain = recipe.to_dict()
    yield f"```yaml\n{_yaml({key: plain[key] for key in plain if key not in ABOVE})}```"
    if recipe.variants:
        yield "## Variants"
        yield f"`{recipe.name}:NAME` is the recipe with these settings changed:"
        yield f"``` {{.yaml .wrap}}\n{_yaml(recipe.to_dict()['variants'], flow=None)}```"
    if recipe.vanilla_when:
        yield "With these settings it is plain fine-tuning, which a test checks:"
        yield f"```yaml\n{_yaml(dict(recipe.vanilla_when))}```"


def _yaml(plain: dict[str, Any], flow: bool | None = False) -> str:
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=100)


def _text(said: str) -> str:
    return said.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")
