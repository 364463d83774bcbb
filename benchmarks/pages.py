"""Check a leaderboard's pages in a browser: screenshots, accessibility problems, layout shifts and loading times.

Every page is opened at four widths, in light and dark, for a screenshot, serious problems reported by axe-core, layout
shift and overflow. Then the board is loaded at 1.6 Mbit/s with a quarter of the processor. The script measures the
times until the first paint (goal: 1.2 s) and until the rows are visible (goal: 2.5 s).

    reveal-leaderboard demo                                    # in another terminal
    python -m benchmarks.pages http://127.0.0.1:7860 /tmp/pictures
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.leaderboard.browser.browsing import faults, running_browser
from tests.leaderboard.browser.test_look import NOTE_SHIFTS

WIDTHS, SCHEMES = (1920, 1440, 1024, 390), ("light", "dark")
PAGES = {
    "board": "/", "submit": "/submit", "compare": "/compare", "mine": "/mine", "about": "/about", "admin": "/admin",
    "gallery": "/gallery", "entry": "/entry?id={id}", "submission": "/submission?id={id}", "unknown": "/no-such-page",
}  # fmt: skip
SLOW = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 93_750}
"""Chromium's "slow 4G" in bytes per second: 1.6 Mbit/s down, 0.75 Mbit/s up."""
SLOWED, PATIENCE_MS = 4, 60_000
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
COME_UNTIL = """moment => {
  const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
  const come = all.filter(one => one.responseEnd <= moment);
  const kB = come.reduce((sum, one) => sum + one.transferSize, 0) / 1000;
  return `${(moment / 1000).toFixed(2)} s (${come.length} requests, ${kB.toFixed(0)} kB)`;
}"""
SETTLED = 1500
"""Milliseconds to wait for drawing after the network is idle."""


def first_entry(page: Any, address: str) -> str:
    """Return the id of an entry on the board."""
    board = page.request.get(f"{address}/api/v1/benchmarks").json()["benchmarks"][0]["name"]
    board_document = page.request.get(f"{address}/api/v1/leaderboard?benchmark={board}").json()
    return str(board_document["entries"][0]["submission_id"])


def walk(browser: Any, address: str, out: Path) -> None:
    """Print one line per page, width and colour scheme, and save a screenshot."""
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            context.add_init_script(NOTE_SHIFTS)
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            entry = first_entry(page, address)
            for name, path in PAGES.items():
                page.goto(address + path.format(id=entry))
                page.wait_for_load_state("networkidle")
                page.wait_for_timeout(SETTLED)
                wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                shift = page.evaluate("window.shift")
                page.screenshot(path=out / f"{name}-{width}-{scheme}.png")
                page.screenshot(path=out / f"{name}-{width}-{scheme}-whole.png", full_page=True)
                timings = "; ".join(faults(page)) or "nothing serious"
                print(f"{name:<11} {width:>4} {scheme:<5} shift {shift:.3f} wider by {max(0, wide):>3} axe: {timings}")
            context.close()


def first_rows(browser: Any, address: str) -> tuple[str, str]:
    """Return as texts when the board is first painted and its rows are visible, on a slow connection and processor."""
    context = browser.new_context(viewport={"width": 390, "height": 900})
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    devtools.send("Network.enable")
    devtools.send("Network.emulateNetworkConditions", SLOW)
    devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
    page.goto(address, wait_until="commit")
    page.locator("#board tbody tr").first.wait_for(timeout=PATIENCE_MS)
    drawn = page.evaluate("performance.now()")
    page.wait_for_load_state()
    timings = [page.evaluate(COME_UNTIL, moment) for moment in (page.evaluate(PAINTED), drawn)]
    context.close()
    return timings[0], timings[1]


def main(address: str, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with running_browser() as browser:
        for _ in range(3):
            seen, drawn = first_rows(browser, address)
            print(f"on a slow connection the board is painted after {seen}, its rows are visible after {drawn}")
        walk(browser, address, out)


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), Path(sys.argv[2]))
