"""Where components and files are found: in Rosewood, and in installed packages that extend it.

Every file in the folder of a family is a component, found without touching a list. A folder within it holds what its
components share. A package that extends Rosewood names itself under the entry point group `rosewood.components`, and
has folders with the names of Rosewood's: `selections`, `attacks`, `defences`, ... with one component per file,
`sections` of a report, and `tasks`, `suites`, `recipes` and `protocols` with YAML files. It leaves out what it has
nothing for.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rosewood.errors import RecipeError, closest

if TYPE_CHECKING:
    from rosewood.protocol import Component


FAMILIES = {
    "objective": "rosewood.objectives",
    "perturbation": "rosewood.perturbations",
    "selection": "rosewood.selections",
    "anchor": "rosewood.anchors",
    "attack": "rosewood.attacks",
    "defence": "rosewood.defences",
}


def component_names(family: str) -> list[str]:
    """The names of all components of a family."""
    return sorted(_modules(family))


def module_of(family: str, name: str) -> str:
    """The module of the component of that name; an unknown name answers with the closest ones."""
    known = _modules(family)
    if name not in known:
        raise RecipeError(f"unknown {family} {name!r}: {closest(name, sorted(known))}")
    return known[name]


def component(family: str, name: str) -> type[Component]:
    """The component class of that name."""
    home = module_of(family, name)

    from rosewood.protocol import Component  # slow

    module = import_module(home)
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Component) and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise RecipeError(f"{home} must define exactly one component, it defines {len(own)}")
    return own[0]


def _modules(family: str) -> dict[str, str]:
    package = FAMILIES[family]
    return modules_in(package, Path(__file__).parent.parent / package.rpartition(".")[2])


GROUP = "rosewood.components"
Place = TypeVar("Place", str, Path)


@cache
def extensions() -> dict[str, list[Path]]:
    """The packages that extend Rosewood, and their folders."""
    found = {}
    for name in sorted({entry.module for entry in entry_points(group=GROUP)}):
        spec = find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            raise RecipeError(f"an installed package extends Rosewood by {name}, which is not a package: remove it")
        found[name] = [Path(folder) for folder in spec.submodule_search_locations]
    return found


def modules_in(package: str, folder: Path) -> dict[str, str]:
    """The modules in a package of Rosewood, and in packages of that name that extend it: name -> where to import it.

    What starts with an underscore, and a package within the package, is what the modules share.
    """
    own = package.rpartition(".")[2]
    homes = {package: [folder]} | {f"{name}.{own}": [each / own for each in at] for name, at in extensions().items()}
    found: dict[str, str] = {}
    for home, folders in homes.items():
        for module in pkgutil.iter_modules([str(each) for each in folders]):
            if not module.ispkg and not module.name.startswith("_"):
                _add(found, module.name, f"{home}.{module.name}")
    return found


def files_in(folder: Path) -> dict[str, Path]:
    """The YAML files in a folder of Rosewood, and in folders of that name that extend it: name -> path."""
    found: dict[str, Path] = {}
    for each in [folder, *(at / folder.name for places in extensions().values() for at in places)]:
        for file in sorted(each.glob("*.yaml")):
            _add(found, file.stem, file)
    return found


def _add(found: dict[str, Place], name: str, place: Place) -> None:
    if name in found:
        raise RecipeError(f"{name} is there twice, as {found[name]} and {place}: rename one")
    found[name] = place


Names = tuple[Callable[[str], Any], Callable[[], list[str]]]
"""The `__getattr__` and the `__dir__` of a package."""


def on_first_use(package: str, homes: Mapping[str, str]) -> Names:
    """The `__getattr__` and `__dir__` of a package; `homes` says for each of its names which module has it."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*homes, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})

    return find, names


def components(package: str, family: str, homes: Mapping[str, str] | None = None) -> Names:
    """The `__getattr__` and `__dir__` of a family's package: the classes of its components, and names with a home.

    A class is looked for in the file that is called so: `ChildTuning` in `child_tuning.py`.
    """
    find_at_home, names_at_home = on_first_use(package, homes or {})

    def find(name: str) -> Any:

        if name[0].isupper() and name not in (homes or {}):
            files = [each for each in component_names(family) if each.replace("_", "") == name.lower()]
            classes = [found for each in files if (found := component(family, each)).__name__ == name]
            if classes:
                return classes[0]
        return find_at_home(name)

    def names() -> list[str]:

        return sorted({*names_at_home(), *(component(family, each).__name__ for each in component_names(family))})

    return find, names
