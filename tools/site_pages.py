"""Pages of the documentation that are made when it is built, and links that lead out of its folder.

mkdocs loads this file (`hooks` in mkdocs.yml). The front page is README.md; CONTRIBUTING.md, SECURITY.md and
CHANGELOG.md and the examples are pages too. The reference is written from the code: commands, recipes, the Python
interface.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

from api_page import api_page
from command_pages import command_pages
from example_page import PAGE as EXAMPLES
from example_page import example_page
from recipe_pages import CATALOGUE, catalogue, recipe_pages

ROOT = Path(__file__).parent.parent
FROM_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}


@cache
def generated_pages() -> dict[str, str]:
    """Path among the pages -> Markdown, of every page that is not a file in docs/."""
    front = {page: linked_from_root((ROOT / name).read_text(encoding="utf-8")) for name, page in FROM_ROOT.items()}
    return front | command_pages() | recipe_pages() | {"reference/api.md": api_page(), EXAMPLES: example_page()}


def linked_from_root(text: str) -> str:
    """The text of a file beside docs/, with links as a page in docs/ has them."""
    text = re.sub(r"\]\(docs/", "](", text)
    for name, page in {**FROM_ROOT, "examples/README.md": EXAMPLES}.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text.replace('src="docs/', 'src="').replace('srcset="docs/', 'srcset="')


def linked_among_pages(text: str) -> str:
    """The text of a page, with links to files beside docs/ as links to their pages."""
    for name, page in {**FROM_ROOT, "examples/README.md": EXAMPLES}.items():
        text = text.replace(f"](../{name}", f"]({page}")
    return text


def on_config(config: Any, **_: Any) -> Any:
    """Navigation: a folder, written with a slash at the end, becomes the pages in it."""
    docs = Path(config.docs_dir)
    pages = sorted({*generated_pages(), *(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))})
    config.nav = [_unfolded(entry, pages) for entry in config.nav]
    return config


def _unfolded(entry: Any, pages: list[str]) -> Any:
    if isinstance(entry, dict):
        return {title: _unfolded(inner, pages) for title, inner in entry.items()}
    if isinstance(entry, list):
        return [_unfolded(inner, pages) for inner in entry]
    if not entry.endswith("/"):
        return entry
    inside = [page for page in pages if page.startswith(entry)]
    return sorted(inside, key=lambda page: not page.endswith("/index.md"))


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the generated pages."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mend links out of docs/, and put the catalogue of recipes into its page."""
    if page.file.src_uri == "recipes.md":
        markdown = markdown.replace(CATALOGUE, catalogue())
    return linked_among_pages(markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The script with which search works from the disk is ours, not one from elsewhere."""
    return with_own_worker(output, get_relative_url("assets/worker.js", page.url))


def on_post_template(output: str, **_: Any) -> str:
    """As for pages, of 404.html."""
    return with_own_worker(output, "assets/worker.js")


def with_own_worker(html: str, path: str) -> str:
    return html.replace(
        '<script src="https://unpkg.com/iframe-worker/shim"></script>', f'<script src="{path}"></script>'
    )
