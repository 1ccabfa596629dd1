"""Names of a package that are imported on first use, so that importing the package is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

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
        from rosewood.config.registry import component, component_names

        if name[0].isupper() and name not in (homes or {}):
            files = [each for each in component_names(family) if each.replace("_", "") == name.lower()]
            classes = [found for each in files if (found := component(family, each)).__name__ == name]
            if classes:
                return classes[0]
        return find_at_home(name)

    def names() -> list[str]:
        from rosewood.config.registry import component, component_names

        return sorted({*names_at_home(), *(component(family, each).__name__ for each in component_names(family))})

    return find, names
