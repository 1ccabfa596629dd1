"""docs/evidence.md has the tables and figures that the kept results make, and says no other figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from evidence_page import (
    FOLDER,
    PAGE,
    PAGES,
    TABLES,
    difference,
    figures,
    long_pages,
    method_table,
    per_cent,
    with_tables,
)
from kept_studies import CLEAN, KEPT, Study, kept_experiment, rift_small, rose_small

ROOT = Path(__file__).parent.parent.parent
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    """Make it again with `make evidence`."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert [with_tables(text) for text in texts] == texts
    assert set(re.findall(r"<!-- table (\w+) -->", "".join(texts))) == {*TABLES}


def test_the_long_tables_and_figures_are_current() -> None:
    made = long_pages() | figures()
    assert {path.name for path in FOLDER.iterdir()} == {*made}
    for name, text in made.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, name


def test_the_page_is_short_and_shows_every_figure() -> None:
    assert len(TEXT.splitlines()) <= 200
    assert len(re.findall(r"^## \d\. ", TEXT, re.MULTILINE)) == 5
    assert {*re.findall(r"\]\(evidence/(\w+\.svg)\)", TEXT)} == {*figures()}


def test_findings_say_figures_that_their_tables_have() -> None:
    """Every number with a decimal point in the sentences of a finding is in a table of the page or in a linked one."""
    for finding in re.findall(r"^## \d\. .*?(?=^## )", TEXT, re.MULTILINE | re.DOTALL):
        linked = [(PAGE.parent / link).read_text() for link in re.findall(r"\]\((evidence/[\w-]+\.md)\)", finding)]
        tables = "\n".join(line for text in [TEXT, *linked] for line in text.splitlines() if line.startswith("|"))
        said = "\n".join(line for line in finding.splitlines() if not line.startswith(("|", "!", "#")))
        said = re.sub(r"p = [\d.]+[^.]*\.|0\.11\.|0\.08|22\.7 M", "", said)  # p-values have no table
        for number in re.findall(r"\d+\.\d+", said):
            assert re.search(rf"(?<!\d){re.escape(number)}(?!\d)", tables), f"{number} in {finding[:60]}"


def test_means_and_differences_by_hand() -> None:
    values = {"vanilla": {CLEAN: {0: 0.8, 1: 0.7}}, "other": {CLEAN: {0: 0.9, 2: 0.1}}}
    study = Study("s", "S", "vanilla", values, ["vanilla", "other", "missing"], (0, 1, 2))
    assert study.gains("other", CLEAN) == [pytest.approx(10)], "only seed 0 is in both"
    rows = ["| `vanilla` | 2 | 75.0 ±7.1 |", "| `other` | 2 | 50.0 ±56.6 |", "| `missing` | 0 | – |"]
    assert method_table(study).splitlines()[2:] == rows
    assert (study.finished, study.planned) == (4, 9)
    assert (
        per_cent([0.5]) == "50.0" and difference([-0.01]) == "+0.0" and difference([1, 2, 3]).startswith("+2.0 (-0.5")
    )


def test_kept_results_are_read_as_they_are() -> None:
    rows = json.loads((KEPT / "rift-small.json").read_text())
    snli = rift_small("snli")
    assert snli.seeds_of("rift", "under pwws") == {
        0: next(r["pwws"] for r in rows if (r["task"], r["recipe"]) == ("snli", "rift"))
    }
    small = rose_small()
    assert small.finished == small.planned == 30
    duration = kept_experiment("question-duration-small")
    assert duration.finished == duration.planned == 12 and duration.baseline == "vanilla"


def test_an_experiment_that_has_not_run_is_marked() -> None:
    study = kept_experiment("rose-table4")
    assert study.finished == 0 and study.planned > 0
    assert "–" in method_table(study)
