"""What is searched, and for what: ranges `LOW..HIGH`, `LOW..HIGH:log` or choices `A,B`, and the figure to maximise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rosewood.config import strict_yaml
from rosewood.data.tasks import Carve, Split, Task
from rosewood.errors import ExperimentError, RecipeError, closest
from rosewood.recipe import PARTS, SWITCHES, Recipe, load_recipe

if TYPE_CHECKING:
    from optuna.trial import Trial


SHORT = {"learning_rate": "training.learning_rate"}
_SEARCHABLE = (*PARTS, *SWITCHES, "stages", "training")


@dataclass(frozen=True)
class Range:
    """All numbers between two ends; `whole` ones alone, or evenly on a logarithmic scale."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def tried(self) -> tuple[Any, ...]:
        """Values that a recipe must take for it to take them all."""
        return (self.low, self.high)

    def suggest(self, trial: Trial, path: str) -> Any:
        """The value of a trial."""
        if self.whole:
            return trial.suggest_int(path, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(path, self.low, self.high, log=self.log)

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """Some values, without any order."""

    tried: tuple[Any, ...]

    def suggest(self, trial: Trial, path: str) -> Any:
        """The value of a trial."""
        return trial.suggest_categorical(path, self.tried)

    def __str__(self) -> str:
        return ",".join(map(str, self.tried))


Space = dict[str, Range | Choice]


def read_search(path: Path) -> dict[str, Any]:
    """A YAML file that maps settings to ranges, written as on the command line, or to lists of choices."""
    raw = strict_yaml.read(path, "a search space", ExperimentError)
    if not isinstance(raw, dict):
        raise ExperimentError(f"{path} must map settings to what is searched, such as learning_rate: 1e-5..1e-3:log")
    return {str(name): value for name, value in raw.items()}


def parse_search(assignments: Sequence[str]) -> dict[str, str]:
    """`["learning_rate=1e-5..1e-3:log"]` as a mapping."""
    found: dict[str, str] = {}
    for assignment in assignments:
        name, sign, text = (part.strip() for part in assignment.partition("="))
        if not (name and sign and text):
            raise ExperimentError(f"--search expects SETTING=LOW..HIGH or SETTING=A,B,C, got {assignment!r}")
        if name in found:
            raise ExperimentError(f"--search {name} is there more than once: give it one range or one list")
        found[name] = text
    return found


def space_of(search: Mapping[str, Any], recipe: Recipe) -> Space:
    """What is searched, checked against the recipe; all problems are said at once."""
    if not search:
        raise ExperimentError("there is nothing to search: give a setting and its range, learning_rate=1e-5..1e-3:log")
    problems: list[str] = []
    space: Space = {}
    for name, given in search.items():
        path = SHORT.get(name, name)
        if path in space:
            problems.append(f"{name}: {path} is there more than once: give it one range or one list")
            continue
        try:
            space[path] = _dimension(given)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    space = {path: _whole_if_needed(path, each, space, recipe) for path, each in space.items()}
    problems += dict.fromkeys(problem for path in space for problem in _refusals(path, space, recipe))
    if problems:
        raise ExperimentError("\n".join(["the search cannot be done:", *(f"- {each}" for each in problems)]))
    return space


def _dimension(given: Any) -> Range | Choice:
    if isinstance(given, str) and ".." in given:
        return _range(given)
    values = given if isinstance(given, list) else _listed(str(given))
    odd = [value for value in values if not isinstance(value, str | int | float | bool | None)]
    if odd:
        raise ValueError(f"choices are single values, got {odd[0]!r}")
    distinct = list(dict.fromkeys(map(_number_if_one, values)))
    if len(distinct) < 2:
        raise ValueError(f"expected a range LOW..HIGH or two values or more, got {given!r}; fix one value with --set")
    return Choice(tuple(distinct))


def _range(text: str) -> Range:
    ends, colon, scale = text.partition(":")
    if colon and scale.strip() != "log":
        raise ValueError(f"after the range only :log is allowed, got :{scale}")
    low, high = (_number(end) for end in ends.split("..", 1))
    if low >= high:
        raise ValueError(f"the range {ends.strip()} is empty: its first end must be the smaller one")
    if colon and low <= 0:
        raise ValueError(f"a logarithmic range begins above 0, got {low:g}")
    return Range(low, high, bool(colon), all(_is_whole(end) for end in ends.split("..", 1)))


def _is_whole(text: str) -> bool:
    return text.strip().lstrip("+-").isdigit()


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise ValueError(f"expected a number at each end of the range, got {text.strip()!r}")
    return number


def _listed(text: str) -> list[Any]:
    try:
        return list(strict_yaml.parse(f"[{text}]"))
    except yaml.YAMLError:
        raise ValueError(f"expected values with commas between them, got {text!r}") from None


def _number_if_one(value: Any) -> Any:
    """YAML 1.1 reads 1e-5 as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _refusal(path: str, value: Any, space: Space, recipe: Recipe) -> str:
    """What the recipe says against a value: with the part that it belongs to, or else with all that is searched."""
    first = {other: each.tried[0] for other, each in space.items() if not f"{other}.".startswith(f"{path}.")}
    parents = {other: chosen for other, chosen in first.items() if path.startswith(f"{other}.")}
    refusal = _refused(recipe, parents | {path: value})
    return refusal and _refused(recipe, first | {path: value}) and refusal


def _refused(recipe: Recipe, changes: dict[str, Any]) -> str:
    try:
        load_recipe(recipe, changes)
    except RecipeError as error:
        return str(error)
    return ""


def _whole_if_needed(path: str, dimension: Range | Choice, space: Space, recipe: Recipe) -> Range | Choice:
    """0..1 are two values of a count, and all between them of a weight: the recipe tells which it is."""
    if isinstance(dimension, Choice) or not dimension.whole:
        return dimension
    is_count = bool(_refusal(path, dimension.low + 0.5, space, recipe))
    return Range(dimension.low, dimension.high, dimension.log, is_count)


def _refusals(path: str, space: Space, recipe: Recipe) -> Iterator[str]:
    known, dimension = [*SHORT, *_paths(recipe)], space[path]
    if path.partition(".")[0] not in _SEARCHABLE:
        yield f"{path}: no such setting; {closest(path, known)}"
        return
    for value in dimension.tried:
        refusal = _refusal(
            path, int(value) if isinstance(dimension, Range) and dimension.whole else value, space, recipe
        )
        if "no such setting" in refusal:
            yield f"{path}: no such setting; {closest(path, known)}"
        elif refusal:
            yield f"{path}: {refusal}"


def _paths(recipe: Recipe) -> list[str]:
    """Every setting that the recipe has, by its path."""
    plain = recipe.to_dict()
    return [path for top in _SEARCHABLE for path in _below(top, plain.get(top)) if not path.endswith(".name")]


def _below(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping | list) and value:
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in entries:
            yield from _below(f"{path}.{key}", inner)
    else:
        yield path


OBJECTIVES = ("clean", "robust", "mean")


@dataclass(frozen=True)
class TuningGoal:
    """The figure to be raised; `clean_weight` is the share of clean accuracy in a mean.

    A mean is of accuracies on the same examples, those that are attacked: clean accuracy on others would add the
    difference between two samples. A model at guessing cannot be misled, so that its robust accuracy counts as nothing.
    """

    objective: str = "clean"
    attack: str | None = None
    clean_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ExperimentError(f"unknown objective {self.objective!r}: {closest(self.objective, [*OBJECTIVES])}")
        if self.objective == "clean" and self.attack is not None:
            raise ExperimentError("the objective clean knows no attack: choose --objective robust or mean")
        if self.objective != "clean" and self.attack is None:
            raise ExperimentError(f"the objective {self.objective} needs an attack: --attack typos, or --attack pwws")
        if not 0 < self.clean_weight < 1:
            raise ExperimentError(f"clean_weight must lie between 0 and 1, got {self.clean_weight:g}")

    def value(self, clean: float, attacked: float | None, robust: float | None, guessing: bool | None) -> float:
        """The figure, from accuracy on all examples, and on those that are attacked without the attack and under it."""
        if self.objective == "clean":
            return clean
        assert robust is not None  # every evaluation of such a search is followed by the attack
        if guessing:
            return 0.0
        if self.objective == "robust":
            return robust
        assert attacked is not None
        return self.clean_weight * attacked + (1 - self.clean_weight) * robust


SHARE = 0.1


def held_out(task: Task) -> Task:
    """The task with `train` and a `validation` that is carved from it, and nothing else.

    Where a task carves its validation data from its training data, that stays. Where it has validation data of its
    own, they are left for the final run, and a tenth of the training data replaces them.
    """
    train, own = task.split("train"), task.splits.get("validation")
    if train.carve is not None:
        raise ExperimentError(f"the training data of task {task.name} are carved from another split: nothing is left")
    taken = task.carved_from("train")
    if taken is not None and (own is None or own.carve != taken):
        other = next(name for name, split in task.splits.items() if split.carve == taken)
        raise ExperimentError(
            f"task {task.name} carves its split {other} from the training data, so that none can be held out without "
            f"touching it: put {other} into a file of its own"
        )
    rule = taken or Carve.model_validate({"from": "train", "share": SHARE})
    splits = {"train": train, "validation": Split(role="validation", carve=rule)}
    return task.model_copy(update={"splits": splits})
