"""The playground in a real browser: a person types, looks, attacks and sees the words that break a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser import DESKTOP, PHONE, Browser, browser  # noqa: F401  a fixture
from rosewood.lab.playground.app import Playground, start
from tiny_playground import EVIL, telling_sentence, tiny_playground

pytest.importorskip("gradio", reason="gradio is not installed")
PATIENCE = 120
"""Seconds; a busy machine is slow, not broken."""


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Playground:
    return tiny_playground(tmp_path_factory.mktemp("playground"), [[EVIL, "positive"], ["good film", "negative"]])


@pytest.fixture(scope="module")
def address(playground: Playground) -> Iterator[str]:
    page: Any = start(playground, "127.0.0.1", None)
    yield page.local_url
    page.close(verbose=False)


def visit(browser: Browser, address: str, size: tuple[int, int], dark: bool = False) -> None:  # noqa: F811
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.command("Emulation.setEmulatedMedia", features=scheme)
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.command("Emulation.setDeviceMetricsOverride", **screen)
    browser.driver.get_log("browser")
    browser.driver.get(address)
    until(browser, lambda: found(browser, "#text-text textarea"))


def until(browser: Browser, happens: Callable[[], Any]) -> Any:  # noqa: F811
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser.driver, PATIENCE).until(lambda _: happens())


def found(browser: Browser, selector: str) -> list[Any]:  # noqa: F811
    from selenium.webdriver.common.by import By

    return browser.driver.find_elements(By.CSS_SELECTOR, selector)


def type_and_press(browser: Browser, text: str, button: str) -> None:  # noqa: F811
    (field,) = found(browser, "#text-text textarea")
    field.clear()
    field.send_keys(text)
    press(browser, button)


def press(browser: Browser, button: str) -> None:  # noqa: F811
    browser.run("arguments[0].scrollIntoView({block: 'center'})", found(browser, button)[0])
    found(browser, button)[0].click()


def outside(browser: Browser, address: str) -> list[str]:  # noqa: F811
    """What the page has fetched from anywhere else."""
    fetched = browser.run("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert any(name.startswith(address) for name in fetched)
    return [name for name in fetched if not name.startswith((address, "data:", "blob:"))]


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desk", "phone at night"])
def test_a_sentence_is_typed_and_attacked(
    browser: Browser,  # noqa: F811
    address: str,
    playground: Playground,
    size: tuple[int, int],
    dark: bool,
) -> None:
    visit(browser, address, size, dark)
    text = telling_sentence(playground)
    type_and_press(browser, text, "#show")
    until(browser, lambda: len(found(browser, "#answers .run")) == 2)
    for run, card in zip(playground.runs, found(browser, "#answers .run"), strict=True):
        for label, share in zip(run.labels, run.probabilities([(text,)])[0], strict=True):
            assert f"{label}\n{100 * share:.1f} %" in card.text
        assert run.name in card.text and card.size["width"] <= size[0]
    press(browser, "#attack")
    until(browser, lambda: found(browser, "#attacked .run"))
    (telling, *_) = found(browser, "#attacked .telling")
    assert " falls: " in telling.text and " holds: " in telling.text
    changed = browser.run("return [...arguments[0].querySelectorAll('.text ins')].map((e) => e.innerText)", telling)
    gone = browser.run("return [...arguments[0].querySelectorAll('.text del')].map((e) => e.innerText)", telling)
    assert changed and len(changed) == len(gone) and set(gone) <= set(text.split())
    assert ", but not " in found(browser, "#attacked .headline")[0].text
    assert browser.overflow() == 0
    assert browser.violations() == []
    assert outside(browser, address) == []
    assert browser.complaints() == []
    press(browser, "#show")
    until(browser, lambda: not found(browser, "#attacked .run"))


def test_examples_are_clicked_and_what_is_typed_stays_text(browser: Browser, address: str) -> None:  # noqa: F811
    visit(browser, address, DESKTOP)
    rows = until(browser, lambda: found(browser, "tbody tr"))
    assert "<script>" in rows[0].text
    rows[0].click()
    (field,) = found(browser, "#text-text textarea")
    until(browser, lambda: field.get_attribute("value") == EVIL)
    press(browser, "#attack")
    until(browser, lambda: found(browser, "#attacked .text"))
    assert (
        browser.run("return document.querySelectorAll('#attacked script, .text b, .rosewood i:not(.bar i)').length")
        == 0
    )
    kept = "return [...document.querySelector('#attacked .text').childNodes].filter((e) => e.tagName !== 'INS')"
    assert browser.run(f"{kept}.map((e) => e.textContent).join('')") == EVIL
    type_and_press(browser, "${alert(1)} {{value}} فيلم", "#attack")
    until(browser, lambda: "${" in found(browser, "#attacked .text")[0].text)
    assert found(browser, "#attacked .text")[0].get_attribute("dir") == "auto"
    assert browser.complaints() == []


def test_an_empty_field_says_what_to_do(browser: Browser, address: str) -> None:  # noqa: F811
    visit(browser, address, PHONE)
    press(browser, "#show")
    until(browser, lambda: found(browser, "#answers .notice"))
    assert found(browser, "#answers .notice")[0].text == "There is nothing to read yet: type the text first."
    assert browser.violations() == [] and browser.complaints() == []
