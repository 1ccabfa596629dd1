"""The page of the Python interface: each exported name where mkdocstrings finds its docstring."""

from __future__ import annotations

import rosewood

KINDS = (
    ("Functions", lambda name: name[0].islower()),
    ("Classes", lambda name: name[0].isupper() and not name.endswith("Error")),
    ("Errors", lambda name: name.endswith("Error")),
)


def api_page() -> str:
    """Functions, classes and errors, each by name."""
    parts = ["# Arguments and results", "What each name is for: [the Python interface](../api.md)."]
    for title, belongs in KINDS:
        parts.append(f"## {title}")
        for name in sorted(filter(belongs, rosewood.__all__), key=str.lower):
            parts.append(f"::: {rosewood._HOMES[name]}.{name}\n    options: {{heading_level: 3}}")
    return "\n\n".join(parts) + "\n"
