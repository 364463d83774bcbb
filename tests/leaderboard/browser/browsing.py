"""A monitored browser page, and axe-core run on it; forbidden actions of a page are checked when it is closed.

`axe.min.js` comes with the package `axe-playwright-python`, so that nothing is fetched while tests run. It is put into
the page through the browser's own debugging protocol, which the pages' content security policy does not bind.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PATIENCE_MS = 120_000
BAD = ("serious", "critical")
LEFT = ("AbortError: signal is aborted", "Unexpected error Connection errored out")
"""Messages of Gradio's own script if a page is left before its answer arrives."""


SETTLED = """async () => {
  await document.fonts.ready;
  const images = [...document.images].filter((one) => one.loading !== "lazy");
  await Promise.all(images.map((one) => one.decode().catch(() => {})));
  const root = document.documentElement;
  for (let same = 0, frames = 0, before = ""; same < 5; frames++) {
    if (frames > 1000) throw new Error(`the page does not come to rest: ${before}`);
    await new Promise((done) => { requestAnimationFrame(done); setTimeout(done, 100); });
    document.getAnimations().filter((one) => one instanceof CSSTransition).forEach((one) => one.finish());
    const now = [root.scrollWidth, root.scrollHeight, document.querySelectorAll("*").length].join();
    same = now === before ? same + 1 : 0;
    before = now;
  }
}"""
"""Done once nothing has changed for five frames."""


@contextmanager
def running_browser() -> Iterator[Any]:
    """Debian's Chromium, headless, running until the end of the session."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watch:
    """Forbidden actions of a page: requests to `foreign` addresses, errors on its console or in its scripts."""

    own: tuple[str, ...]
    foreign: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def request(self, request: Any) -> None:
        if not request.url.startswith((*self.own, "data:", "blob:")):
            self.foreign.append(request.url)

    def console(self, message: Any) -> None:
        is_page = message.location["url"].split("#")[0] == message.page.url.split("#")[0]
        is_lost = is_page and "status of 404" in message.text  # which the page says, too
        if message.type == "error" and not message.text.startswith(LEFT) and not is_lost:
            self.errors.append(f"{message.text} {message.location}")


@contextmanager
def watched_page(browser: Any, *own: str, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """A page in a browser context of its own, with no cookie; afterwards it must have behaved.

    Parameters
    ----------
    own : addresses it may ask: the board's, and the sign-in provider's where somebody signs in
    width : of the window, in CSS pixels
    scheme : "light" or "dark"
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        with watched_page_of(context, *own) as page:
            yield page
    finally:
        context.close()


@contextmanager
def watched_page_of(context: Any, *own: str) -> Iterator[Any]:
    """A page of `context`, whose cache has what its earlier pages loaded; afterwards it must have behaved."""
    page, watch = context.new_page(), Watch(own)
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", watch.request)
    page.on("console", watch.console)
    page.on("pageerror", lambda error: watch.errors.append(str(error)))
    try:
        yield page
        assert_well_built(page)
        assert not watch.foreign, f"it asked {watch.foreign}"
        assert not watch.errors, f"its console says {watch.errors}"
    finally:
        page.close()


def settle(page: Any) -> None:
    """Wait until the page no longer changes: fonts and pictures are loaded, transitions are finished, and its size is
    stable.

    Scripts measure a page after its layout, a frame or two after the window changed: an earlier look differs
    from a person's view. Transitions are finished at once, because they can take minutes on a busy machine.
    """
    page.evaluate(SETTLED)


def assert_well_built(page: Any) -> None:
    """Check for one heading of the first order, a language, and no content wider than the window."""
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"{page.url} is {wide} pixels wider than the window"


def axe_source() -> str:
    """The text of axe-core."""
    package = find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def faults(page: Any) -> list[str]:
    """Return the serious and critical findings of axe-core, each with its first elements."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(axe_source())
    report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert report["passes"], "axe-core looked at nothing"
    return [
        f"{one['id']} ({one['impact']}): {', '.join(str(node['target'][0]) for node in one['nodes'][:4])}"
        for one in report["violations"]
        if one["impact"] in BAD
    ]
