"""The page of the Python interface: each exported name where mkdocstrings finds its docstring."""

from __future__ import annotations

import inspect
from importlib import import_module

import rosewood

KINDS = (
    ("Functions", lambda name: name[0].islower()),
    ("Classes", lambda name: name[0].isupper() and not name.endswith("Error")),
    ("Errors", lambda name: name.endswith("Error")),
)
PACKAGES = {
    "rosewood.objectives": "Objectives",
    "rosewood.perturbations": "Perturbations",
    "rosewood.selections": "Selections",
    "rosewood.anchors": "Anchors",
    "rosewood.attacks": "Attacks",
    "rosewood.defences": "Defences",
    "rosewood.words": "Words",
    "rosewood.models": "Models",
    "rosewood.experiments": "Experiments",
    "rosewood.report": "Reports",
    "rosewood.report.figures": "Figures",
    "rosewood.lab": "Analyses",
}


def api_page() -> str:
    """Functions, classes and errors of `import rosewood`, then what its packages offer, each by name."""
    parts = ["# Arguments and results", "What each name is for: [the Python interface](../api.md)."]
    for title, belongs in KINDS:
        parts.append(f"## {title}")
        for name in sorted(filter(belongs, rosewood.__all__), key=str.lower):
            parts.append(_entry(f"{rosewood._HOMES[name]}.{name}"))
    for package, title in PACKAGES.items():
        parts += [f"## {title}", f"Imported from `{package}`."]
        parts += [_entry(home) for name, home in sorted(homes_in(package).items()) if name not in rosewood.__all__]
    return "\n\n".join(parts) + "\n"


def homes_in(package: str) -> dict[str, str]:
    """The functions and classes that can be imported from a package, and where each is written."""
    module = import_module(package)
    names = [name for name in getattr(module, "__all__", dir(module)) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    return {
        name: f"{each.__module__}.{each.__qualname__}"
        for name, each in found.items()
        if inspect.isclass(each) or inspect.isfunction(each)
    }


def _entry(name: str) -> str:
    return f"::: {name}\n    options: {{heading_level: 3}}"
