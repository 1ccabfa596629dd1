"""Where components and files are found: in Rosewood, and in installed packages that extend it.

A package names itself under the entry point group `rosewood.components`, and has folders called as those of Rosewood:
`selections`, `attacks`, `defences`, ... with one component a file, `sections` of a report, and `tasks`, `suites` and
`recipes` with YAML files. It needs none that it has nothing for.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from rosewood.errors import RecipeError

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
