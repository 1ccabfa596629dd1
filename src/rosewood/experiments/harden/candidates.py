"""What is tried: recipes from the checkpoint or from the pre-trained model, mixtures of weights, and wrappers.

Only recipes are trained. A mixture is the mean of two models' weights: of a trained candidate and the start (WiSE-FT,
the whole trade-off between the two for no training), or of the two best candidates (a soup). A wrapper is a defence
around a model, and changes texts before the model reads them. If one helps the start, recipes and mixtures are measured
with it around them: that is what would be shipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rosewood.attacks import known_attack
from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.worst import THREATS, Worst
from rosewood.config.strict_yaml import parse_overrides
from rosewood.defences.runner.wrap import choose_defence
from rosewood.errors import RunError
from rosewood.recipe import Recipe, load_recipe
from rosewood.results import START

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
    overrides: tuple[str, ...]
    """As `rosewood train --set` takes them."""
    recipe: Recipe
    origin: Literal["checkpoint", "pretrained"]
    front_end: str = ""
    """The defence without which its model is not to be used, such as `encoded`; most have none."""

    @classmethod
    def parse(cls, text: str) -> Trained:
        """Read a candidate as `--candidate` takes it: RECIPE, RECIPE:VARIANT or a YAML file, @pretrained, and settings.

        >>> found = Trained.parse("rose-ensemble:fast@pretrained selection.keep_quantile=0.8")
        >>> found.origin, found.source, found.overrides
        ('pretrained', 'rose-ensemble:fast', ('selection.keep_quantile=0.8',))
        """
        first, *overrides = re.split(r"\s+(?=[\w.]+=)", text.strip())
        source = first.removesuffix(AT_PRETRAINED)
        after = first.removeprefix(source)
        short = Path(source).stem if source.endswith((".yaml", ".yml")) else source
        recipe = load_recipe(source, parse_overrides(overrides))
        name = " ".join([short + after, *overrides])
        return cls(name, source, tuple(overrides), recipe, "pretrained" if after else "checkpoint")


@dataclass(frozen=True)
class WeightMixture:
    """The mean of the weights of some models, in these shares."""

    of: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        return " + ".join(f"{share:g} {name}" for name, share in self.of)


@dataclass(frozen=True)
class Untrained:
    """What is made without training: a mixture, or a model that is there (the start, a finalist), and a defence."""

    inside: WeightMixture | str
    defence: str = ""

    @property
    def name(self) -> str:
        return behind(self.defence, self.inside if isinstance(self.inside, str) else self.inside.name)


def behind(defence: str, name: str) -> str:
    """What a model is called that has a defence around it, or none.

    >>> behind("corrected", "augment"), behind("", "augment")
    ('corrected around augment', 'augment')
    """
    return f"{defence} around {name}" if defence else name


def threat_names(text: str | Sequence[str]) -> list[str]:
    """The threats in their order: `words`, `characters` or `all`, or attacks by name."""
    given = text.split(",") if isinstance(text, str) else list(text)
    names = list(dict.fromkeys(name.strip() for name in given if name.strip()))
    if not names:
        raise RunError("name a threat: words, characters, all, or an attack of `rosewood list attacks`")
    for name in names:
        known_attack(name, or_threat=True)
        attack_of(name)
    return names


def attack_of(threat: str, black_box: bool = False) -> Attack:
    """The attack that a threat is measured by; without gradients where wrappers, which have none, are compared."""
    if threat in THREATS:
        return Worst(threat=threat, white_box=not black_box)  # type: ignore[arg-type]
    return choose_attack(threat)


def encodes(defence: str) -> bool:
    """Whether a front end, or a part of one, is `encoded`.

    >>> encodes("corrected+encoded"), encodes("corrected"), encodes("")
    (True, False, False)
    """
    return "encoded" in defence.split("+")


def defence_of(candidate: str) -> str:
    """The defence around a candidate, by its name.

    >>> defence_of("corrected+encoded around 0.5 encoded + 0.5 start"), defence_of("encoded")
    ('corrected+encoded', '')
    """
    return candidate.partition(" around ")[0] if " around " in candidate else ""


def uses_lexicon(threat: str) -> bool:
    """Whether an attack by this threat takes substitutes from a lexicon."""
    return "lexicon" in attack_of(threat).needs()


def entrants(
    threats: Sequence[str], asked: Sequence[str] = (), around: Sequence[str] = (), lexicon: str | None = None
) -> list[Trained]:
    """The recipes that race, the most promising first; those that were asked for, or else what suits the threats.

    A recipe that learns from encoded texts races with the encoding in front, if that is among the defences.
    """
    front_end = next((defence for defence in reversed(around) if encodes(defence)), "")
    names = list(dict.fromkeys(asked)) or _usual(threats, bool(front_end), lexicon)
    racing = [Trained.parse(name) for name in names]
    return [replace(each, front_end=front_end if _is_encoded(each.recipe) else "") for each in racing]


def _is_encoded(recipe: Recipe) -> bool:
    return any(getattr(each, "encoded", False) for each in recipe.perturbations())


def _usual(threats: Sequence[str], encoding: bool, lexicon: str | None) -> list[str]:
    letters = any(name in ("characters", "all", *_LETTERS) for name in threats)
    words = any(name in ("words", "all", *_WORDS) for name in threats)
    kind = "" if letters == words else ":letters" if letters else ":words"
    found = [f"augment{kind}", "augment+rose", "augment:random", "rose-ensemble:fast@pretrained"]
    if words and encoding:  # its words are those of the front end
        found.insert(1, "encoded" + ("" if lexicon is None else f" perturbation.lexicon={lexicon}"))
    return [*found, f"augment{kind} objective.divergence_weight=4", "augment+rose selection.keep_quantile=0.8"]


def wrappers(threats: Sequence[str], max_cost: float, asked: Sequence[str] | None = None) -> list[str]:
    """Defences around a model: those asked for, or else what fits the threats and the cost, the cheapest first."""
    letters = any(name in ("characters", "all", *_LETTERS) for name in threats)
    words = any(name in ("words", "all", *_WORDS) for name in threats)
    found = [*(["corrected"] if letters else []), *(["encoded"] if words else [])]
    found += [*(["corrected+encoded"] if letters and words else []), "smoothed:mask"]
    passes = {name: choose_defence(name).forwards() for name in dict.fromkeys(found if asked is None else asked)}
    for name, cost in passes.items():
        if asked is not None and cost > max_cost:
            raise RunError(
                f"{name} takes {cost:g} passes of the network for one text, and --max-cost allows {max_cost:g}: "
                f"give --max-cost {cost:g}, or leave it out"
            )
    return [name for name, cost in passes.items() if cost <= max_cost]


def untrained(
    finalists: Sequence[Trained], around: Sequence[str], shield_of: Callable[[Trained], str] = lambda each: ""
) -> list[Untrained]:
    """What can be made of the finalists, of which the best comes first, without training: the most promising first.

    Mixtures have the shield around them that the finalists had in the race; the other defences, and none, are tried
    around the finalists too. Models mix only if their training started from the same weights, head included: those of
    the checkpoint. Models with different shields are not mixed.
    """
    mixing = {each.name: shield_of(each) for each in finalists if each.origin == "checkpoint"}
    mixtures = [
        Untrained(WeightMixture(((name, share), (START, 1 - share))), shield)
        for name, shield in mixing.items()
        for share in ALPHAS
    ]
    shields = set(mixing.values())
    soups = []
    if len(mixing) > 1 and len(shields) == 1:
        soups = [Untrained(WeightMixture(tuple((name, 1 / len(mixing)) for name in mixing)), *shields)]
    best, rest = mixtures[: len(ALPHAS)], mixtures[len(ALPHAS) :]
    return [
        *best,
        *soups,
        *(
            Untrained(each.name, defence)
            for each in finalists
            for defence in (*around, "")
            if defence != shield_of(each)
        ),
        *rest,
    ]
