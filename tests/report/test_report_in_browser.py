"""A report in a real browser: what a person sees on a phone, on a desk, at night and on paper."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from browser import DESKTOP, PHONE, Browser, browser  # noqa: F401  a fixture
from reported_runs import EVIL, landscape, watch, write_run
from rosewood.comparison.runs import load_runs
from rosewood.report.page import write_report
from rosewood.report.subject import subject_of

DRAWN = """
    const done = arguments[arguments.length - 1];
    const places = [...document.querySelectorAll(".chart")];
    const empty = () => places.find((each) => !each.querySelector("svg .trace, svg .hm image, svg .contour"));
    const finish = () => (scrollTo({ top: 0, behavior: "instant" }), done(places.length));
    const look = () => (empty() ? (scroll(empty()), setTimeout(look, 50)) : finish());
    const scroll = (place) => place.scrollIntoView({ behavior: "instant" });
    look();
"""
BEGUN = """
    const done = arguments[arguments.length - 1];
    const places = [...document.querySelectorAll(".chart")];
    const count = () => places.filter((each) => each.querySelector(".main-svg")).length;
    const look = () => (count() ? done([places.length, count()]) : setTimeout(look, 50));
    look();
"""
STYLE = "return getComputedStyle(document.querySelector(arguments[0])).getPropertyValue(arguments[1])"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rights = {"vanilla": 30, "rose": 33, f"evil {EVIL}": 31}
    runs = [
        watch(write_run(folder / f"{number}", recipe, right=right, words=EVIL), EVIL)
        for number, (recipe, right) in enumerate(rights.items())
    ]
    for number in range(2):
        landscape(f"{number}", points=11, source=EVIL).save(folder / "landscapes" / f"{number}.json")
    write_report([subject_of(load_runs(runs), landscape=folder / "landscapes")], folder / "report.html")
    return folder / "report.html"


def drawn(browser: Browser) -> int:  # noqa: F811
    """How many charts there are, once a reader has scrolled to all of them."""
    return int(browser.driver.execute_async_script(DRAWN))


def lightness(browser: Browser, element: str, style: str) -> float:  # noqa: F811
    return sum(float(part) for part in re.findall(r"[\d.]+", browser.run(STYLE, element, style))[:3]) / 3


def check_page(browser: Browser, width: int) -> None:  # noqa: F811
    """What must hold on every screen."""
    assert drawn(browser) > 8
    assert browser.run("return document.querySelectorAll('.chart svg .hm image').length") == 6, "2 for each run"
    assert browser.run("return document.querySelectorAll('.chart svg .contour').length") == 2
    assert "No method can be shown to differ from vanilla" in browser.text()
    numbers = browser.run("return document.querySelector('tbody').innerText")
    assert "75.0 ±10.0" in numbers and "82.5 ±10.0" in numbers
    box = browser.run("return document.querySelector('tbody td').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0 and box["right"] <= width, "the first figure is on the screen"
    assert browser.overflow() == 0
    browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert browser.overflow() == 0
    assert browser.violations() == []
    assert browser.complaints() == []


def test_on_a_phone_at_night(browser: Browser, page: Path) -> None:  # noqa: F811
    browser.open(page, PHONE, dark=True)
    check_page(browser, PHONE[0])
    assert lightness(browser, "body", "background-color") < 60
    assert lightness(browser, ".chart .ytick text", "fill") > 150


def test_on_a_desk_by_day(browser: Browser, page: Path) -> None:  # noqa: F811
    browser.open(page, DESKTOP)
    check_page(browser, DESKTOP[0])
    assert lightness(browser, "body", "background-color") > 200
    assert lightness(browser, ".chart .ytick text", "fill") < 130


def test_charts_are_drawn_when_a_reader_comes_near(browser: Browser, page: Path) -> None:  # noqa: F811
    browser.open(page, PHONE)
    charts, begun = browser.driver.execute_async_script(BEGUN)
    assert 0 < begun < charts / 2
    assert drawn(browser) == charts
    assert browser.complaints() == []


def test_what_the_data_say_is_shown_and_not_run(browser: Browser, page: Path) -> None:  # noqa: F811
    browser.open(page)
    drawn(browser)
    assert browser.run("return document.querySelectorAll('main b').length") == 0
    assert "</script><script>alert('evil')</script><b>bold</b> &amp; %{x}" in browser.run(
        "return document.querySelector('dd').innerText"
    )
    labels = browser.run("return [...document.querySelectorAll('.chart svg text')].map((each) => each.textContent)")
    assert any(each.startswith("clean </script><script>") for each in labels)
    assert browser.run("return document.querySelector('dd').dir") == "auto"
    assert browser.complaints() == []


def test_the_keyboard_reaches_everything(browser: Browser, page: Path) -> None:  # noqa: F811
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    drawn(browser)
    reached = set()
    for _ in range(20):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(browser.run("return document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.skip", "A.", "DIV.scroll", "SUMMARY."} <= reached
    browser.driver.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert browser.run("return document.querySelector('details').open")


def test_paper_gets_everything(browser: Browser, page: Path) -> None:  # noqa: F811
    browser.open(page)
    pdf = base64.b64decode(browser.command("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) > 3
    assert drawn(browser) > 8
    assert not browser.run("return document.querySelector('details').open"), "closed again afterwards"
    assert browser.overflow() == 0
    assert browser.complaints() == []
