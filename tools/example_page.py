"""The page of examples: examples/README.md, with each script and notebook below it."""

from __future__ import annotations

import re
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGE = "examples.md"
LINK = re.compile(r"\]\(((?:notebooks/)?(\w+)\.(?:py|ipynb))\)")


def example_page() -> str:
    """Links to files become links to the code on the page."""
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    parts = [LINK.sub(r"](#\2)", text)]
    for path, name in LINK.findall(text):
        code = (EXAMPLES / path).with_suffix(".py").read_text(encoding="utf-8")
        parts.append(f"## {path} {{ #{name} }}\n\n```python\n{_without_header(code)}\n```\n")
    return "\n".join(parts)


def _without_header(code: str) -> str:
    """Without the lines in which jupytext describes a notebook."""
    return re.sub(r"\A# ---\n.*?\n# ---\n", "", code, flags=re.DOTALL).strip()
