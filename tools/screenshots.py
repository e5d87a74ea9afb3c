"""`make screenshots`: screenshots of the console, in both themes, from a real run of `scheduler dev`."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tools.browser import ARGUMENTS, chromium

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "console"
_LINK = re.compile(r"http://127\.0\.0\.1:[0-9]+/login/[\w-]+")
_SECONDS = 900  # the run ends on its own if this program does not end it
_TIMEOUT_MS = 180_000
_SAMPLES = 9  # a minute and a half on the charts
_THEMES: tuple[Any, ...] = ("light", "dark")


def main() -> int:
    """Take all screenshots."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _running() as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        context = browser.new_context(viewport={"width": 1280, "height": 820}, timezone_id="Europe/Berlin")
        context.set_default_timeout(_TIMEOUT_MS)
        page = context.new_page()
        page.goto(link)
        _wait_for_samples(page)
        for name, path in _pages(page).items():
            for theme in _THEMES:
                page.emulate_media(color_scheme=theme)
                page.goto(path)
                _settle(page, name)
                page.screenshot(path=str(FOLDER / f"{name}-{theme}.png"))
        browser.close()
    return 0


@contextmanager
def _running() -> Iterator[str]:
    """Run the whole sidecar; yield the link that logs in."""
    command = [sys.executable, "-m", "scheduler", "dev", "--for", str(_SECONDS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
    try:
        for line in process.stdout or ():
            print(line, end="", flush=True)  # noqa: T201 - shows the progress
            match = _LINK.search(line)
            if match:
                break
        else:
            raise SystemExit("scheduler dev ended before it was up")
        yield match[0]
    finally:
        process.terminate()
        process.communicate()


def _wait_for_samples(page: Page) -> None:
    """Wait until the charts have data and a run is dead."""
    page.locator("#part-failing").get_by_role("link").first.wait_for()
    page.evaluate(
        "count => new Promise(done => { let seen = 0;"
        " document.addEventListener('sample', () => { seen += 1; if (seen >= count) done(seen); }); })", _SAMPLES)


def _pages(page: Page) -> dict[str, str]:
    """Return the addresses of the pages, with an interesting job and run."""
    base = page.url.rstrip("/")
    page.goto(f"{base}/jobs?job_type=sample.webhook")
    job = page.locator("#jobs tbody a").first.get_attribute("href")
    page.goto(f"{base}/runs?job_type=sample.webhook&status=succeeded")
    run = page.locator("#runs-table tbody td:nth-child(2) a").first.get_attribute("href")
    return {"overview": f"{base}/", "jobs": f"{base}/jobs", "job": f"{base}{job}", "run": f"{base}{run}",
            "new-job": f"{base}/jobs/new", "load": f"{base}/load"}


def _settle(page: Page, name: str) -> None:
    """Wait until the page is complete, and fill in its form."""
    if name == "overview":
        page.locator(".u-wrap canvas").nth(3).wait_for()
        page.locator("[data-live-state]", has_text="● live").wait_for()
    if name == "new-job":
        page.get_by_label("Name", exact=True).fill("Weekly report")
        page.get_by_label("Type", exact=True).fill("report.weekly")
        weekdays = page.get_by_role("group", name="On which weekdays")
        for day in ("Mon", "Tue", "Wed", "Thu"):
            weekdays.get_by_label(day, exact=True).uncheck()
        page.get_by_label("Time zone").fill("Europe/Berlin")
        page.locator("#preview").get_by_text("Fridays at 09:00 in Europe/Berlin").wait_for()
        page.evaluate("document.activeElement.blur()")


if __name__ == "__main__":
    raise SystemExit(main())
