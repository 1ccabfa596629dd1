"""A recipe: one component per axis, its settings, and where they come from. YAML in and out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BeforeValidator
from torch import nn

from rosewood.config import strict_yaml
from rosewood.config.registry import component, files_in
from rosewood.config.strict_yaml import checked_settings, override, typed_arguments
from rosewood.errors import RecipeError, closest
from rosewood.protocol import Anchor, Collate, Component, Cost, Objective, Perturbation, Ramp, Selection
from rosewood.results.files import write_whole

_FOLDER = Path(__file__).parent / "recipes"
LISTS, MAPPINGS = ("stages", "deviations"), ("training", "variants", "vanilla_when")
SWITCHES = {"optimizer_form": ("torch", "hf"), "attention_mask": ("given", "absent")}  # the default first
PARTS = ("objective", "perturbation", "selection", "anchors")
DEFAULT_PARTS: dict[str, Any] = {
    "objective": "cross_entropy",
    "perturbation": None,
    "selection": "everything",
    "anchors": [],
}


@dataclass(frozen=True)
class Stage:
    """A share of the training steps with its own parts and a fresh optimiser."""

    share: float
    objective: Objective
    perturbation: Perturbation | None
    selection: Selection
    anchors: tuple[Anchor, ...] = ()

    def components(self) -> list[Component]:
        single = [self.objective, self.perturbation, self.selection, *self.anchors]
        return [part for part in single if part is not None]


@dataclass(frozen=True)
class Recipe:
    """A training method as a choice on four axes.

    `training` holds the published training arguments (names of transformers.TrainingArguments), `variants` named
    overrides such as a paper's per-task settings, and `vanilla_when` the overrides under which the recipe is plain
    fine-tuning. A recipe with `stages` runs them one after the other; its own parts are then those of the last.
    `attention_mask="absent"` lets the model attend to padding, in training and evaluation, as RoAST's code does.

    Example:
        >>> recipe = load_recipe("rose-second")
        >>> type(recipe.objective).__name__, type(recipe.selection).__name__
        ('CrossEntropy', 'Rose')
    """

    name: str
    objective: Objective
    selection: Selection
    perturbation: Perturbation | None = None
    anchors: tuple[Anchor, ...] = ()
    stages: tuple[Stage, ...] = ()
    optimizer_form: Literal["torch", "hf"] = "torch"
    attention_mask: Literal["given", "absent"] = "given"
    training: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    summary: str = ""
    citation: str = ""
    deviations: tuple[str, ...] = ()
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    vanilla_when: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = [problem for stage in self.all_stages() for problem in _wrong_kinds(stage)]
        _raise_all(self.name, problems)
        for stage in self.all_stages():
            problems += [problem for part in stage.components() for problem in part.problems(stage)]
            names = [anchor.name for anchor in stage.anchors]
            problems += [
                f"anchor {name} is there more than once: once is enough" for name in names if names.count(name) > 1
            ]
        total = sum(stage.share for stage in self.stages)
        if self.stages and abs(total - 1) > 1e-9:
            problems.append(f"stages: their shares must add up to 1, they add up to {total:g}")
        _raise_all(self.name, problems)

    def all_stages(self) -> tuple[Stage, ...]:
        """The stages in order; a recipe without any is one stage."""
        return self.stages or (Stage(1.0, self.objective, self.perturbation, self.selection, self.anchors),)

    def perturbations(self) -> list[Perturbation]:
        """Those of all stages, and of a mixture those that it is made of."""
        whole = [stage.perturbation for stage in self.all_stages() if stage.perturbation is not None]
        return [part for perturbation in whole for part in perturbation.parts()]

    def columns(self) -> dict[str, Collate]:
        """What the perturbations need to find in the training data, such as substitutes of words."""
        return {name: collate for part in self.perturbations() for name, collate in part.columns().items()}

    def needs_pretrained(self) -> bool:
        """Whether some anchor ties the model to pre-trained weights."""
        return any(anchor.needs_pretrained for stage in self.all_stages() for anchor in stage.anchors)

    def cost(self) -> Cost:
        """Passes per micro-batch of the main stage."""
        stage = self.all_stages()[-1]
        total = Cost()
        for part in stage.components():
            total = total.plus(part.cost(stage))
        return total

    def memory(self) -> str:
        """What the main stage keeps beside model and optimiser."""
        notes = [
            note
            for part in self.all_stages()[-1].components()
            if (whole := part.memory())
            for note in whole.split(", ")
        ]
        return ", ".join(dict.fromkeys(notes))

    def check_model(self, model: nn.Module) -> None:
        """Refuse, before any work starts, a model on which a part cannot do what it is for."""
        parts = [part for stage in self.all_stages() for part in stage.components()]
        _raise_all(self.name, [problem for part in parts for problem in part.problems_with(model)])

    def to_dict(self) -> dict[str, Any]:
        """The resolved recipe as plain data: every setting, defaults included."""
        plain: dict[str, Any] = {"name": self.name, "title": self.title, "summary": self.summary}
        plain |= _parts_to_dict(self)
        if self.stages:
            plain["stages"] = [{"share": stage.share} | _parts_to_dict(stage) for stage in self.stages]
        plain |= {switch: getattr(self, switch) for switch in SWITCHES}
        plain["training"] = dict(self.training)
        plain["citation"] = self.citation
        plain["deviations"] = list(self.deviations)
        plain["variants"] = {name: dict(overrides) for name, overrides in self.variants.items()}
        plain["vanilla_when"] = dict(self.vanilla_when)
        return plain

    def save(self, path: Path) -> None:
        write_whole(path, yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True))


def _wrong_kinds(stage: Stage) -> list[str]:
    """Something that is not a component of its axis, such as a name."""
    given = [("objective", Objective, stage.objective), ("selection", Selection, stage.selection)]
    given += [("perturbation", Perturbation, stage.perturbation)] if stage.perturbation is not None else []
    given += [("anchor", Anchor, anchor) for anchor in stage.anchors]
    return [
        f"{axis}: expected an object of a subclass of {kind.__name__}, got {part!r}; names are for load_recipe and YAML"
        for axis, kind, part in given
        if not isinstance(part, kind)
    ]


def deciding(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a recipe, as plain data, that decides its figures: not what it says about itself."""
    words = ("title", "summary", "citation", "deviations", "variants", "vanilla_when")
    return {key: value for key, value in plain.items() if key not in words}


def recipe_names() -> list[str]:
    """The names of the recipes that come with Rosewood, or with packages that extend it."""
    return sorted(files_in(_FOLDER))


def load_recipe(
    recipe: str | Path | Recipe, overrides: Mapping[str, Any] | None = None, check_training: bool = True
) -> Recipe:
    """Load a recipe by name, by name and variant, or from a YAML file.

    Args:
        recipe: a name (`rose-ensemble`), a name and a variant (`rose-ensemble:sst2-base`), the path of a YAML file, or
            a recipe, which is returned with the overrides.
        overrides: single settings to change, such as `{"selection.keep_quantile": 0.7}`.
        check_training: whether to check the training arguments. Only transformers, which takes seconds to import, knows
            their types.

    Returns:
        The recipe; its components refuse settings that are out of range.

    Raises:
        RecipeError: there is no such recipe, variant or setting, or its parts make no sense together.

    Example:
        >>> recipe = load_recipe("rose-second", {"selection.keep_quantile": 0.7})
        >>> recipe.all_stages()[0].selection.keep_quantile
        0.7
    """
    if not isinstance(recipe, str | Path | Recipe):
        raise RecipeError(
            f"expected a recipe's name, a YAML file or a Recipe, got {type(recipe).__name__}: for example "
            'load_recipe("rose-second"), or load_recipe("vanilla", {"selection": "rose"})'
        )
    if isinstance(recipe, Recipe):
        return build_recipe(recipe.to_dict(), overrides) if overrides else recipe
    name, _, variant = (str(recipe), "", "") if str(recipe).endswith((".yaml", ".yml")) else str(recipe).partition(":")
    spec = _read(name)
    chosen: dict[str, Any] = {}
    if variant:
        variants = _copied(spec.get("variants"))
        known = list(variants) if isinstance(variants, dict) else []
        if variant not in known or not isinstance(variants[variant], dict):
            raise RecipeError(f"recipe {name} has no variant {variant!r}: {closest(variant, known)}")
        chosen |= variants[variant]
        spec = spec | {"name": f"{name}:{variant}"}
    return build_recipe(spec, chosen | dict(overrides or {}), check_training)


def build_recipe(
    spec: Mapping[str, Any], overrides: Mapping[str, Any] | None = None, check_training: bool = True
) -> Recipe:
    """A recipe from plain data; all problems are reported at once."""
    # An entry left empty in YAML is None and counts as absent, except where None is a value of its own.
    plain = {key: value for key, value in _copied(spec).items() if value is not None or key in PARTS}
    problems: list[str] = []
    _drop_wrong_kinds(plain, problems)
    # A whole part before its settings, in whatever order they were given.
    for path, value in sorted((overrides or {}).items(), key=lambda item: item[0].count(".")):
        override(plain, path, _copied(value), DEFAULT_PARTS, problems)
    _drop_wrong_kinds(plain, problems)
    problems += _hidden_by_stages(plain, list(overrides or {}))
    known = [part.name for part in dataclasses.fields(Recipe)]
    problems += [f"{key}: no such entry in a recipe; {closest(key, known)}" for key in plain if key not in known]
    parts = _build_parts(plain, DEFAULT_PARTS, "", problems)
    stages = tuple(_build_stage(stage, plain, i, problems) for i, stage in enumerate(plain.get("stages") or []))
    switches = {switch: plain.get(switch, values[0]) for switch, values in SWITCHES.items()}
    problems += [
        f"{switch}: expected {' or '.join(SWITCHES[switch])}, got {value!r}"
        for switch, value in switches.items()
        if value not in SWITCHES[switch]
    ]
    training = plain.get("training") or {}
    if check_training:
        training = typed_arguments(training, problems)
    name = str(plain.get("name", "recipe"))
    _raise_all(name, problems)
    if stages:
        parts = {part: getattr(stages[-1], part) for part in PARTS}
    return Recipe(
        name=name,
        **parts,
        stages=stages,
        **switches,
        training=training,
        title=str(plain.get("title") or name),
        summary=str(plain.get("summary", "")),
        citation=str(plain.get("citation", "")),
        deviations=tuple(plain.get("deviations") or ()),
        variants=plain.get("variants") or {},
        vanilla_when=plain.get("vanilla_when") or {},
    )


def _read(name: str) -> dict[str, Any]:
    known = files_in(_FOLDER)
    path = known.get(name, Path(name))
    if path.suffix not in (".yaml", ".yml"):
        raise RecipeError(
            f"unknown recipe {name!r}: {closest(name, sorted(known))} A recipe of your own ends in .yaml."
        )
    return _installed(path) if name in known else _of_file(path)


def _of_file(path: Path) -> dict[str, Any]:
    spec = strict_yaml.read(path, "a recipe", RecipeError)
    if not isinstance(spec, dict):
        raise RecipeError(
            f"{path} must hold a mapping (objective: ..., selection: ...), it holds {type(spec).__name__}"
        )
    return {"name": path.stem} | spec


_installed = cache(_of_file)
"""Recipes that come with a package are read once, and copied whenever one is built."""


def _copied(value: Any) -> Any:
    if isinstance(value, Component):
        return _component_to_dict(value)
    if isinstance(value, Ramp):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        # Keys of YAML may be something else than text (`no:` is False); unknown names are looked up as text.
        return {str(key): _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list | tuple) else value


def _drop_wrong_kinds(plain: dict[str, Any], problems: list[str]) -> None:
    """Take out and report what should be a list or a mapping and is not, so that the rest can be read."""
    kinds = [(key, list, "list") for key in LISTS] + [(key, dict, "mapping") for key in MAPPINGS]
    wrong = [(key, name) for key, kind, name in kinds if not isinstance(plain.get(key) or kind(), kind)]
    problems += [f"{key}: expected a {name}, got {plain.pop(key)!r}" for key, name in wrong]
    variants = plain.get("variants") or {}
    odd = [key for key, value in variants.items() if not isinstance(value, dict)]
    problems += [f"variants.{key}: expected a mapping of settings, got {variants.pop(key)!r}" for key in odd]


def _hidden_by_stages(plain: Mapping[str, Any], paths: list[str]) -> list[str]:
    """Overrides of a part that every stage sets for itself would change nothing."""
    stages = plain.get("stages") or []
    found = []
    for path in paths:
        part = path.partition(".")[0]
        if part in PARTS and stages and all(isinstance(stage, dict) and part in stage for stage in stages):
            last = len(stages) - 1
            found.append(f"--set {path}: every stage has its own {part}: name the stage, such as stages.{last}.{path}")
    return found


def _build_parts(plain: Mapping[str, Any], default: Mapping[str, Any], at: str, problems: list[str]) -> dict[str, Any]:
    spec = {part: plain.get(part, default.get(part, DEFAULT_PARTS[part])) for part in PARTS}
    anchors = spec["anchors"] or []
    if not isinstance(anchors, list):
        problems.append(f"{at}anchors: expected a list such as [mixout], got {anchors!r}")
        anchors = []
    return {
        "objective": _build("objective", spec["objective"], f"{at}objective", problems),
        "perturbation": _build("perturbation", spec["perturbation"], f"{at}perturbation", problems),
        "selection": _build("selection", spec["selection"], f"{at}selection", problems),
        "anchors": tuple(_build("anchor", a, f"{at}anchors.{i}", problems) for i, a in enumerate(anchors)),
    }


def _build_stage(stage: Any, plain: Mapping[str, Any], index: int, problems: list[str]) -> Any:
    at = f"stages.{index}"
    if not isinstance(stage, dict) or not isinstance(stage.get("share"), int | float) or not 0 < stage["share"] <= 1:
        problems.append(f"{at}: expected a mapping with a share of the training steps in (0, 1], got {stage!r}")
        return None
    unknown = [key for key in stage if key not in (*PARTS, "share")]
    problems += [f"{at}.{key}: no such entry; {closest(key, [*PARTS, 'share'])}" for key in unknown]
    parts = _build_parts(stage, plain, f"{at}.", problems)
    return None if problems else Stage(share=float(stage["share"]), **parts)


def _build(family: str, spec: Any, at: str, problems: list[str]) -> Any:
    if spec is None:
        if family != "perturbation":
            problems.append(f"{at}: expected the name of a component, got nothing")
        return None
    if isinstance(spec, str):
        spec = {"name": spec}
    if not isinstance(spec, dict) or not isinstance(spec.get("name"), str):
        problems.append(f"{at}: expected a name, or a mapping with a name and settings, got {spec!r}")
        return None
    settings = {key: value for key, value in spec.items() if key != "name"}
    try:
        cls = component(family, spec["name"])
    except RecipeError as error:
        problems.append(f"{at}: {error}")
        return None
    values, found = checked_settings(cls, settings)
    problems += [f"{at}.{setting}: {problem}" for setting, problem in found]
    return None if found else cls(**values)


def _parts_to_dict(parts: Recipe | Stage) -> dict[str, Any]:
    return {
        "objective": _component_to_dict(parts.objective),
        "perturbation": None if parts.perturbation is None else _component_to_dict(parts.perturbation),
        "selection": _component_to_dict(parts.selection),
        "anchors": [_component_to_dict(anchor) for anchor in parts.anchors],
    }


def _component_to_dict(part: Component) -> dict[str, Any]:
    return {"name": part.name} | plain_settings(part)


def plain_settings(part: Component) -> dict[str, Any]:
    """The settings of a component as plain data, components within it as mappings with their names."""
    return {key: _copied(value) for key, value in part.settings().items()}


def part_of(family: str) -> BeforeValidator:
    """For components within one of their family: each from its name, or from a mapping with name and settings."""

    def built(spec: Any) -> Any:
        spec = {"name": spec} if isinstance(spec, str) else spec
        if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
            return spec
        try:
            return build_component(family, spec["name"], {k: v for k, v in spec.items() if k != "name"})
        except RecipeError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(built)


def _raise_all(name: str, problems: Sequence[str]) -> None:
    unique = list(dict.fromkeys(problems))
    if len(unique) == 1:
        raise RecipeError(f"recipe {name}: {unique[0]}")
    if unique:
        raise RecipeError(f"recipe {name} has {len(unique)} problems:\n" + "\n".join(f"- {p}" for p in unique))


def build_component(family: str, name: str, settings: Mapping[str, Any] | None = None) -> Component:
    """One component by name with checked settings; all problems are reported at once."""
    problems: list[str] = []
    built: Component = _build(family, {"name": name} | dict(settings or {}), family, problems)
    if problems:
        raise RecipeError("\n".join(problems))
    return built
