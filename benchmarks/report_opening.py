"""How long a report takes to open, in new headless Chromium browsers with empty caches.

Each browser opens the page once: seconds until text is on the screen, until the page has loaded, and until the driver
says so. Let nothing else run beside it.

    rosewood report RUN ... --output report.html
    python benchmarks/report_opening.py report.html
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
FIGURES = """
    const paint = performance.getEntriesByType("paint").find((each) => each.name === "first-contentful-paint");
    const loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
    const places = [...document.querySelectorAll(".chart")];
    return [paint.startTime, loaded, places.filter((each) => each.querySelector(".main-svg")).length, places.length];
"""


def opened(page: Path, chromium: str, driver: str) -> tuple[list[float], float]:
    """What the page says of itself, and the seconds that opening took as seen from outside."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = chromium
        for option in (*OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        browser = Chrome(options=options, service=Service(driver))
        try:
            browser.get("about:blank")
            began = time.perf_counter()
            browser.get(page.resolve().as_uri())
            seconds = time.perf_counter() - began
            return browser.execute_script(FIGURES), seconds
        finally:
            browser.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--browsers", type=int, default=6)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--driver", default="/usr/bin/chromedriver")
    given = parser.parse_args()
    table = Table(title=f"{given.page.name}, {given.page.stat().st_size / 1e6:.1f} MB, in seconds")
    for column in ("text shown", "loaded", "driver", "charts drawn"):
        table.add_column(column, justify="right")
    for _ in range(given.browsers):
        (shown, loaded, drawn, charts), seconds = opened(given.page, given.chromium, given.driver)
        table.add_row(f"{shown / 1000:.2f}", f"{loaded / 1000:.2f}", f"{seconds:.2f}", f"{drawn} of {charts}")
    Console().print(table)


if __name__ == "__main__":
    main()
