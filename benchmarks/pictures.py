"""Take screenshots of the demo for README and guides: the board, a case, and a figure of a report.

reveal-leaderboard demo                                    # in another terminal
python -m benchmarks.pictures demo-data http://127.0.0.1:7860
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.leaderboard.browser.browsing import running_browser

ROOT = Path(__file__).parents[1]
CASE = "/gallery?benchmark=chexlocalize&group=Airspace+Opacity&show=differ"
"""Cases whose opacity is hit by some systems and missed by others."""
RUNS = {"Phantom Net L": "phantom-net-l", "Phantom Net S": "phantom-net-s", "Phantom Chat": "phantom-chat",
        "Chance": "chance"}  # fmt: skip
SETTLED = 1500
"""Milliseconds for drawing."""


def of_board(browser: Any, address: str) -> None:
    """Take a screenshot of the board, down to the end of its table."""
    page = browser.new_page(viewport={"width": 1280, "height": 968})
    page.goto(address)
    page.locator("#board tbody tr").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=ROOT / "leaderboard" / "board.png")


def of_case(browser: Any, address: str) -> None:
    """Take a screenshot of one released case with every system's answer."""
    page = browser.new_page(viewport={"width": 1200, "height": 760})
    page.goto(address + CASE)
    page.locator("#cards a").first.click()
    page.locator("#stage canvas[data-scale]").wait_for()
    page.wait_for_timeout(SETTLED)
    page.screenshot(path=ROOT / "docs" / "cases.jpg", type="jpeg", quality=85)


def of_report(browser: Any, demo: Path) -> None:
    """Save the first figure of the report on the demo's runs."""
    with tempfile.TemporaryDirectory() as name:
        runs = [f"{label}={demo / 'predictions' / run / 'released.jsonl'}" for label, run in RUNS.items()]
        command = [str(Path(sys.executable).with_name("reveal-bench")), "report", *runs]
        command += ["--folder", str(demo / "public"), "--split", "released", "--out", name]
        subprocess.run(command, check=True)
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.goto((Path(name) / "report.html").as_uri())
        box = page.locator("figure").first.bounding_box()
        around = {"x": box["x"] - 16, "y": box["y"] - 16, "width": box["width"] + 32, "height": box["height"] + 32}
        page.screenshot(path=ROOT / "docs" / "report.png", clip=around, full_page=True)


if __name__ == "__main__":
    with running_browser() as chromium:
        of_board(chromium, sys.argv[2])
        of_case(chromium, sys.argv[2])
        of_report(chromium, Path(sys.argv[1]))
