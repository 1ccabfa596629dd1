"""Attacks: searches for a few changed words that make a model wrong, one file each.

Their classes can be imported from here, `from rosewood.attacks import Genetic`, and so can what an attack of your own
is made of: `Attack`, the `Target` that it gets, the questions `probe`, `trial` and `move`, and `by_importance`.
`replay` tries what an attack found on other models.
"""

from pathlib import Path

from rosewood.config.registry import component_names, components, files_in
from rosewood.errors import RecipeError, RunError, closest

_HOMES = {
    "Attack": "rosewood.attacks.runner.attack",
    "Resources": "rosewood.attacks.runner.search",
    "Search": "rosewood.attacks.runner.search",
    "Target": "rosewood.attacks.runner.search",
    "by_importance": "rosewood.attacks.runner.search",
    "move": "rosewood.attacks.runner.search",
    "probe": "rosewood.attacks.runner.search",
    "replay": "rosewood.attacks.runner.replay",
    "trial": "rosewood.attacks.runner.search",
}

__getattr__, __dir__ = components(__name__, "attack", _HOMES)

TEXTATTACK = "textattack:"
"""What the names of TextAttack's recipes begin with."""
THREATS = ("words", "characters", "all")
"""What may change under several attacks together."""
RELATED = {"deepwordbug": "typos or textbugger", "hotflip": "gradient", "autoattack": "worst"}
"""Attacks that are known by names which Rosewood does not have, and what comes near them."""


def known_attack(name: str, or_threat: bool = False) -> str:
    """The name of an attack as it is registered, or a threat; nothing slow is imported to say that there is none."""
    plain = name.replace("-", "_")
    known = [*(THREATS if or_threat else ()), *component_names("attack")]
    if name.startswith(TEXTATTACK) or plain in known:
        return plain
    if plain.lower() in RELATED:
        raise RecipeError(f"there is no attack {name!r} in Rosewood; take {RELATED[plain.lower()]}")
    raise RecipeError(f"unknown {'threat' if or_threat else 'attack'} {name!r}: {closest(plain, known)}")


PROTOCOLS = Path(__file__).parent / "protocols"


def protocol_file(name: str | Path) -> Path:
    """The YAML file of a protocol: a path, or the name of one that is installed; nothing slow is imported."""
    if Path(name).suffix in (".yaml", ".yml"):
        return Path(name)
    known = files_in(PROTOCOLS)
    if str(name) not in known:
        raise RunError(f"unknown protocol {str(name)!r}: {closest(str(name), sorted(known))}")
    return known[str(name)]
