"""The page as a file: complete, bounded, and the same text that went in."""

import itertools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reported_runs import EVIL, landscape, watch, write_run
from rosewood.comparison.runs import load_runs
from rosewood.report.page import page, write_report
from rosewood.report.sections import Section, Table
from rosewood.report.subject import subject_of
from rosewood.results.grid import Grid


class Outline(HTMLParser):
    """Elements in their order, and the text outside of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.inside = [each for each in self.inside if each != tag]

    def handle_data(self, data: str) -> None:
        if not {"script", "style"}.intersection(self.inside):
            self.text += data


def outline(text: str) -> Outline:
    parsed = Outline()
    parsed.feed(text)
    return parsed


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("evil")
    runs = [write_run(folder / f"{number}", f"{recipe}{EVIL}", words=EVIL) for number, recipe in enumerate("ab")]
    return page([subject_of(load_runs(runs), f"a{EVIL}")], EVIL)


def test_text_from_data_is_text(evil: str) -> None:
    found = outline(evil)
    scripts = [attributes for tag, attributes in found.elements if tag == "script"]
    assert len([each for each in scripts if each.get("type") != "application/json"]) == 2, "Plotly's, and ours"
    assert "b" not in {tag for tag, _ in found.elements}
    assert found.text.count("<script>alert('evil')</script>") > 20
    assert "alert('evil')</script>" not in evil
    assert EVIL in found.text


def test_the_page_asks_for_nothing_from_elsewhere_and_runs_nothing_else(evil: str) -> None:
    for _, attributes in outline(evil).elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith("#")
    policy = next(a["content"] for _, a in outline(evil).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert policy.endswith("base-uri 'none'; form-action 'none'")


def test_headings_and_landmarks(evil: str) -> None:
    tags = [tag for tag, _ in outline(evil).elements]
    assert [tags.count(tag) for tag in ("h1", "header", "nav", "main", "footer")] == [1] * 5
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_ten_runs_fit_into_eight_megabytes(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{n}", f"recipe{n}", right=25 + n, steps=2000) for n in range(10)]
    for run in runs:
        watch(run, steps=2000)
        landscape(run.name, points=51).save(tmp_path / "landscapes" / f"{run.name}.json")
    write_report([subject_of(load_runs(runs), landscape=tmp_path / "landscapes")], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 8_000_000


def test_notes_stand_under_the_title_and_closing_sections_after_all_chapters(tmp_path: Path) -> None:
    subjects = [subject_of(load_runs([write_run(tmp_path / name)]), title=f"On {name}") for name in ("one", "two")]
    grid = Grid("Cells that failed", ["cell", "error"], [["rose-0", f"broke {EVIL}"]], texts=2)
    closing = [Section("What failed", [Table(grid, titled=True)], "They are in no table above.")]
    text = page(subjects, "Both", [f"A note {EVIL}"], closing)
    found = outline(text)
    assert [tag for tag, _ in found.elements].count("h2") == 3 and "<script>alert" not in text
    places = [
        found.text.index(words) for words in ("Both\n", f"A note {EVIL}", "On one", "They are in no table above.")
    ]
    assert places == sorted(places)
    rest = found.text[places[-1] :]
    assert rest.index("Cells that failed") < rest.index(f"broke {EVIL}")
    links = {a["href"] for tag, a in found.elements if tag == "a"}
    (heading,) = (a["id"] for tag, a in found.elements[-40:] if tag == "h2")
    assert f"#{heading}" in links
    assert 'class="notes"' not in page(subjects, "Both")


def test_several_subjects_are_chapters(tmp_path: Path) -> None:
    subjects = [subject_of(load_runs([write_run(tmp_path / name)]), title=f"On {name}") for name in ("one", "two")]
    found = outline(page(subjects, "Both"))
    assert [tag for tag, _ in found.elements].count("h2") == 2
    links = [a["href"] for tag, a in found.elements if tag == "a"]
    ids = {a["id"] for _, a in found.elements if "id" in a}
    assert {link.removeprefix("#") for link in links if link} <= ids and len(links) == 3
