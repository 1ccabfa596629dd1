"""README and docs/: every link leads somewhere, every command has options that exist, the site's pages are made."""

from __future__ import annotations

import posixpath
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
import yaml
from typer.core import TyperCommand, TyperGroup

import rosewood
from rosewood.cli import commands
from rosewood.recipe import load_recipe, recipe_names
from site_pages import FROM_ROOT, generated_pages, linked_among_pages, linked_from_root

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / name for name in (*FROM_ROOT, "examples/README.md")] + [*(ROOT / "docs").rglob("*.md")])
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+?)\s*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "")).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page))):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{name} links to {target}"
        if anchor:
            assert anchor in slugs(text_of(there)), f"{name} links to {target}, which has no such heading"


def command_lines(text: str) -> Iterator[list[str]]:
    """The words of each `rosewood ...` line in blocks of code, without comments and redirections."""
    for block in re.findall(r"^```(?:bash|sh|console)?\n(.*?)^\s*```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"\s*(?:\$ |- run: )?(?:[A-Z_]+=\S+ )*(?:torchrun .*-m )?rosewood ([a-z].*)", line)
            if found and not re.match(r"\w+: ", found.group(1)):
                yield shlex.split(re.split(r"\s(?:[>|&]|\.\.\.)|\s;", found.group(1))[0], comments=True)


def check(words: list[str]) -> None:
    """Parse the words as the command line does, without running anything."""
    command: TyperCommand | TyperGroup = typer.main.get_command(commands())  # type: ignore[assignment]
    name = "rosewood"
    while isinstance(command, TyperGroup):
        if not words or words[0].startswith("-"):
            return
        name, *words = words
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]  # type: ignore[assignment]
    command.make_context(name, words)


COMMANDS = [(name, words) for name, path in zip(NAMES, PAGES, strict=True) for words in command_lines(text_of(path))]


@pytest.mark.parametrize(
    "name", sorted({*NAMES} - {"CHANGELOG.md", "CONTRIBUTING.md"})
)  # files of the past, of an example
def test_every_file_of_the_project_that_is_named_exists(name: str) -> None:
    folders = r"(?:src/rosewood|tests|benchmarks|experiments|scripts|tools|examples|schemas)"
    named = set(re.findall(rf"`({folders}/[\w/.+-]+\.(?:py|yaml|json|sh|md))`", text_of(ROOT / name)))
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_command_parses() -> None:
    """An unknown command, an unknown option, or a missing argument fails."""
    assert len(COMMANDS) > 60
    problems = []
    for name, words in COMMANDS:
        try:
            check(words)
        except Exception as error:
            problems.append(f"{name}: rosewood {' '.join(words)}: {error or type(error).__name__}")
    assert problems == []


@pytest.mark.parametrize("line", ["rosewood trane", "rosewood train --recip vanilla", "rosewood attack runs/x --foo 1"])
def test_a_wrong_command_is_found(line: str) -> None:
    (words,) = command_lines(f"```\n{line}  # a comment\n```")
    with pytest.raises((AssertionError, Exception), match=r"no command|No such option"):
        check(words)


def other_commands(text: str) -> Iterator[list[str]]:
    """The words of each `make`, `pip` or `python` line in blocks of code and in sentences, without comments."""
    lines = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for block in re.findall(r"^```(?:bash|sh|console)?\n(.*?)^\s*```", text, re.DOTALL | re.MULTILINE):
        lines += block.replace("\\\n", " ").splitlines()
    for line in lines:
        found = re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*((?:make|pip install|python(?: -m pip)?) .*)", line)
        if found:
            yield shlex.split(re.split(r"\s(?:[>|&])", found.group(1))[0], comments=True)


def wrong_words(words: list[str]) -> list[str]:
    """Targets, extras, files and options that do not exist."""
    settings = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    if words[0] == "make":
        targets = re.findall(r"^([\w -]+):", text_of(ROOT / "Makefile"), flags=re.MULTILINE)
        return [word for word in words[1:] if word not in " ".join(targets).split()]
    if "install" in words:
        extras = re.findall(r"(?:rosewood|\.)\[([\w,]+)\]", " ".join(words))
        return [extra for extra in ",".join(extras).split(",") if extra and extra not in settings]
    script = ROOT / words[1]
    if not script.exists():
        return [] if words[1].startswith("-") else [words[1]]
    return [word for word in words[2:] if word.startswith("--") and f'"{word.split("=")[0]}"' not in text_of(script)]


def test_other_commands_name_what_there_is() -> None:
    """Of `make` the targets, of `pip` the extras, of scripts of the project the file and its options."""
    found = [(path.name, words) for path in PAGES for words in other_commands(text_of(path))]
    assert len(found) > 40
    assert [(name, wrong) for name, words in found if (wrong := wrong_words(words))] == []


@pytest.mark.parametrize(
    "line", ["make tset", "pip install '.[demmo]'", "python benchmarks/no.py", "python benchmarks/roget.py --no 1"]
)
def test_a_wrong_word_is_found(line: str) -> None:
    (words,) = other_commands(f"```\n{line}  # a comment\n```")
    assert wrong_words(words)


def test_options_in_sentences_exist() -> None:
    """Of every `rosewood NAME ... --option` in a sentence, too."""
    problems = []
    group = typer.main.get_command(commands())
    assert isinstance(group, TyperGroup)
    for name, path in zip(NAMES, PAGES, strict=True):
        prose = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
        for said in re.findall(r"`rosewood ([a-z]+)\b([^`]*)`", prose):
            command, rest = said
            if command not in group.commands:
                problems.append(f"{name}: rosewood {command}")
                continue
            known = {option for each in group.commands[command].params for option in (*each.opts, *each.secondary_opts)}
            problems += [f"{name}: rosewood {command} {o}" for o in re.findall(r"(--[a-z-]+)", rest) if o not in known]
    assert [each for each in problems if "--help" not in each and "CHANGELOG" not in each] == []


def test_the_navigation_names_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r"(\S+\.md|\S+/)$", nav, re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} | {
        *generated_pages()
    }
    folders = tuple(entry for entry in named if entry.endswith("/"))
    assert {page for page in pages if page not in named and not page.startswith(folders)} == set()
    assert {entry for entry in named if entry.endswith(".md") and entry not in pages} == set()
    assert yaml.safe_load(f"nav:\n{nav}")


@pytest.mark.parametrize(("link", "fails"), [("other.md", False), ("nowhere.md", True), ("other.md#nowhere", True)])
def test_make_docs_fails_on_a_dead_link(link: str, fails: bool, tmp_path: Path) -> None:
    """With the Makefile's own options and the site's own rules, on two pages: `--quiet` would hide every warning."""
    (options,) = re.findall(r"/mkdocs build(.*)$", text_of(ROOT / "Makefile"), re.MULTILINE)
    rules = text_of(ROOT / "mkdocs.yml").partition("\nvalidation:\n")[2].partition("\n\n")[0]
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text(f"# Here\n\n[there]({link})\n", encoding="utf-8")
    (pages / "other.md").write_text("# There\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: Two pages\ntheme: mkdocs\nvalidation:\n{rules}\n", encoding="utf-8"
    )
    build = [sys.executable, "-m", "mkdocs", "build", *options.split()]
    found = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode != 0) == fails, found.stderr
    assert ("nowhere" in found.stderr) == fails


def test_only_pages_and_pictures_lie_among_the_pages() -> None:
    kinds = {path.suffix for path in (ROOT / "docs").rglob("*") if path.is_file()}
    assert kinds <= {".md", ".png", ".svg", ".css", ".js"}


def test_every_recipe_has_a_page_and_a_row_with_its_cost() -> None:
    from recipe_pages import catalogue, page_of

    rows = {line.split("`")[1]: line for line in catalogue().splitlines() if "`" in line}
    assert set(rows) == set(recipe_names())
    for name, row in rows.items():
        recipe = load_recipe(name)
        page = generated_pages()[page_of(name)]
        assert f"| {recipe.cost()} |" in row
        assert f"# {name}\n" in page
        assert page.count("- ") >= len(recipe.deviations)
        assert all(f"\n  {line}\n" in page for stage in recipe.all_stages() for line in stage.objective.explain(stage))


def test_every_command_has_a_page_with_its_options() -> None:
    page = generated_pages()["reference/commands/train.md"]
    assert "| `--recipe` `<str>` | vanilla |" in page
    assert "| `--seed` `<int>` | 0 |" in page
    assert "<float32|bfloat16|auto>" in page
    assert all(f"`{name}`" in generated_pages()["reference/commands/index.md"] for name in ("attack", "wrap", "gate"))


def test_the_interface_has_every_exported_name() -> None:
    page = generated_pages()["reference/api.md"]
    assert all(f".{name}\n" in page for name in rosewood.__all__)
    packaged = ("Rose", "Mixout", "Consistency", "Genetic", "Smoothed", "load_classifier", "RayEngine", "write_report")
    assert all(f".{name}\n" in page for name in packaged), "what is imported from packages"


def test_links_of_the_front_page_lead_into_the_site() -> None:
    assert linked_from_root("[a](docs/a.md#b) [c](CONTRIBUTING.md)") == "[a](a.md#b) [c](contributing.md)"


def test_every_link_of_the_site_leads_to_a_page_or_a_picture_of_it() -> None:
    docs = ROOT / "docs"
    files = {path.relative_to(docs).as_posix(): path for path in docs.rglob("*") if path.is_file()}
    pages = {name: linked_among_pages(text_of(path)) for name, path in files.items() if name.endswith(".md")}
    pages |= generated_pages()
    there = {*files, *pages}
    lost = [
        f"{name}: {target}"
        for name, text in pages.items()
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", without_code(text))
        if not target.startswith(("http://", "https://", "mailto:"))
        and posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) not in there
    ]
    assert lost == []


def test_the_page_of_examples_has_each_script_and_notebook() -> None:
    page = generated_pages()["examples.md"]
    for script in [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples" / "notebooks").glob("*.ipynb")]:
        assert f"](#{script.stem})" in page
        assert f"{{ #{script.stem} }}" in page


@pytest.mark.parametrize("name", NAMES)
def test_names_of_python_are_public(name: str) -> None:
    """Readers are sent to a package or a file at the top, never to a file within a package."""
    text = text_of(ROOT / name)
    imported = re.findall(r"^from (rosewood[\w.]*) import (.+)$", text, re.MULTILINE)
    paths = {f"{place}.{each.strip()}" for place, names in imported for each in names.split("#")[0].split(",")}
    paths |= set(re.findall(r"(?<![\w./-])rosewood(?:\.[A-Za-z_]\w*)+(?= ?\(|`)", text))
    for path in paths - {"rosewood.components", "rosewood.safetensors"}:  # an entry point, and a file
        place, _, last = path.rpartition(".")
        assert hasattr(import_module(place), last) or find_spec(path) is not None, f"{name}: {path} does not exist"
        assert hasattr(import_module(place), "__path__") or place.count(".") == 1, f"{name}: {path} is not public"
