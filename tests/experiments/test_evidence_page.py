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
from kept_studies import (
    CLEAN,
    KEPT,
    Study,
    gain_over_examples,
    kept_experiment,
    kept_outcomes,
    pairs_of,
    rift_small,
    rose_small,
)

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


def test_gains_over_examples_by_hand() -> None:
    ours, theirs = {0: 1.0, 1: 1.0, 2: 0.0, 7: 1.0}, {0: 0.0, 1: 1.0, 2: 0.0}
    second = ({0: 1.0, 1: 1.0, 2: 1.0}, {0: 1.0, 1: 1.0, 2: 1.0})
    # Of the three examples that both have, the differences are 100, 0, 0 with one seed and 0, 0, 0 with the other.
    middle, low, high = gain_over_examples([(ours, theirs), second]) or (0.0, 0.0, 0.0)
    half = 1.96 * (((50 - 50 / 3) ** 2 + 2 * (50 / 3) ** 2) / 2 / 3) ** 0.5
    assert (middle, low, high) == pytest.approx((50 / 3, 50 / 3 - half, 50 / 3 + half))
    assert gain_over_examples([]) is None


def test_kept_outcomes_have_the_figures_of_the_kept_results() -> None:
    study, outcomes = kept_experiment("evidence-a"), kept_outcomes("evidence-a")
    assert len(outcomes) == study.finished > 0
    for (method, seed), figures_of_cell in outcomes.items():
        assert {CLEAN, "AdvGLUE", "under pwws", "under worst words"} <= figures_of_cell.keys()
        for figure, rows in figures_of_cell.items():
            assert sum(rows.values()) / len(rows) == pytest.approx(study.seeds_of(method, figure)[seed]), figure
    assert len(pairs_of(outcomes, "rose-second", "vanilla", CLEAN)) == len(study.seeds_of("rose-second", CLEAN))
