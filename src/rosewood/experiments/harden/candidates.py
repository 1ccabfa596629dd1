"""What is tried: recipes from the checkpoint or from the pre-trained model, mixtures of weights, and wrappers.

Only recipes are trained. A mixture is the mean of two models' weights: of a trained candidate and the start (WiSE-FT,
the whole trade-off between the two for no training), or of the two best candidates (a soup). A wrapper is a defence
around a model, and changes texts before the model reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.worst import THREATS, Worst
from rosewood.defences.wrapping.wrap import choose_defence
from rosewood.errors import RunError
from rosewood.recipe import Recipe, load_recipe

START = "start"
ALPHAS = (0.5, 0.75, 0.25)
"""Shares of the trained model in a mixture with the start, the most promising first."""
AT_PRETRAINED = "@pretrained"
_LETTERS, _WORDS = ("typos", "textbugger", "imperceptible"), ("pwws", "textfooler", "genetic", "bae", "bert_attack")


@dataclass(frozen=True)
class Trained:
    """A recipe, and the model that its training starts from."""

    name: str
    source: str
    """As `rosewood train --recipe` takes it."""
    recipe: Recipe
    origin: Literal["checkpoint", "pretrained"]

    @classmethod
    def parse(cls, text: str) -> Trained:
        """Read a candidate as `--candidate` takes it: RECIPE, RECIPE:VARIANT or a YAML file, and @pretrained.

        >>> Trained.parse("rose-ensemble:fast@pretrained").origin
        'pretrained'
        """
        source = text.strip().removesuffix(AT_PRETRAINED)
        after = text.strip().removeprefix(source)
        short = Path(source).stem if source.endswith((".yaml", ".yml")) else source
        return cls(short + after, source, load_recipe(source), "pretrained" if after else "checkpoint")


@dataclass(frozen=True)
class Mixture:
    """The mean of the weights of some models, in these shares."""

    of: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        return " + ".join(f"{share:g} {name}" for name, share in self.of)


@dataclass(frozen=True)
class Wrapped:
    """A model with a defence around it."""

    inside: str
    defence: str

    @property
    def name(self) -> str:
        return f"{self.defence} around {self.inside}"

    @property
    def cost(self) -> float:
        """Passes of the network for one text."""
        return choose_defence(self.defence).forwards()


Untrained = Mixture | Wrapped


def threat_names(text: str | Sequence[str]) -> list[str]:
    """The threats in their order: `words`, `characters` or `all`, or attacks by name."""
    given = text.split(",") if isinstance(text, str) else list(text)
    names = list(dict.fromkeys(name.strip() for name in given if name.strip()))
    if not names:
        raise RunError("name a threat: words, characters, all, or an attack of `rosewood list attacks`")
    for name in names:
        attack_of(name)
    return names


def attack_of(threat: str, black_box: bool = False) -> Attack:
    """The attack that a threat is measured by; without gradients where wrappers, which have none, are compared."""
    if threat in THREATS:
        return Worst(threat=threat, white_box=not black_box)  # type: ignore[arg-type]
    return choose_attack(threat)


def entrants(threats: Sequence[str], asked: Sequence[str] = ()) -> list[Trained]:
    """The recipes that race, the most promising first; those that were asked for, or else what suits the threats."""
    if asked:
        return [Trained.parse(text) for text in dict.fromkeys(asked)]
    letters = any(name in ("characters", "all", *_LETTERS) for name in threats)
    words = any(name in ("words", "all", *_WORDS) for name in threats)
    kind = "" if letters == words else ":letters" if letters else ":words"
    found = [f"augment{kind}", "augment+rose", "augment:random", "rose-ensemble:fast@pretrained"]
    return [Trained.parse(text) for text in dict.fromkeys(found)]


def wrappers(threats: Sequence[str], max_cost: float) -> list[str]:
    """Defences around a model that fit the cost and the threats; the cheapest first."""
    letters = any(name in ("characters", "all", *_LETTERS) for name in threats)
    found = [*(["corrected"] if letters else []), "smoothed:mask"]
    return [name for name in found if choose_defence(name).forwards() <= max_cost]


def untrained(finalists: Sequence[Trained], around: Sequence[str]) -> list[Untrained]:
    """What can be made of the finalists, of which the best comes first, without training: the most promising first.

    Models mix only if their training started from the same weights, head included: those of the checkpoint.
    """
    mixing = [each.name for each in finalists if each.origin == "checkpoint"]
    mixtures = [Mixture(((name, share), (START, 1 - share))) for name in mixing for share in ALPHAS]
    soups = [Mixture(tuple((name, 1 / len(mixing)) for name in mixing))] if len(mixing) > 1 else []
    wrapped = [Wrapped(each.name, defence) for each in finalists for defence in around]
    first = len(ALPHAS) if mixtures else 0
    return [*wrapped[: len(around)], *mixtures[:first], *wrapped[len(around) :], *soups, *mixtures[first:]]
