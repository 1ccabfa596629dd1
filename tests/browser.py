"""A real browser for tests of pages: Debian's Chromium without a screen, one for each module that asks."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PHONE, DESKTOP = (390, 844), (1280, 900)


class Browser:
    """What a person would do with a page, and see on it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        """Load a file as a double click would, on a screen of this size."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=scheme)
        width, height = size
        phone = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", **phone)
        self.driver.get_log("browser")  # what earlier pages complained about
        self.driver.get(page.resolve().as_uri())

    def command(self, name: str, **arguments: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script on the page returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self) -> str:
        """All text that the page shows."""
        return str(self.run("return document.body.innerText"))

    def complaints(self) -> list[str]:
        """What the console has to say since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the screen."""
        return int(self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def violations(self) -> list[str]:
        """What axe-core finds that is serious or critical for people with disabilities."""
        axe_core_python = pytest.importorskip("axe_core_python", reason="axe_core_python is not installed")
        self.run((Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "axe.run({resultTypes: ['violations']}).then(arguments[arguments.length - 1])"
        )
        return [
            f"{each['id']}: {json.dumps([node['target'] for node in each['nodes']][:5])}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser with an empty profile; the reason for a skip says what is absent."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    for program in (CHROMIUM, DRIVER):
        if not Path(program).exists():
            pytest.skip(f"{program} is not installed")
    from selenium.webdriver.chrome.service import Service

    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tempfile.mkdtemp(prefix="rosewood-browser-")
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(120)  # a busy machine is slow, not broken
    try:
        yield Browser(driver)
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)
