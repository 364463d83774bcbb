"""The board's page in Chromium: time to the first row, bytes sent, and the answer to a search, by number of entries.

Server and browser run on this machine. A page is opened in a fresh context each time, so nothing is cached; bytes are
counted as they come over the wire, headers included. A search is timed from the last key to the table that shows its
result. Ratios are 200 entries by 10, of medians: 1 would say that the number of entries costs nothing.

    python benchmarks/board_page.py
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.leaderboard.browser.browsing import running_browser
from tests.leaderboard.browser.served import serving
from tests.leaderboard.browser.world import METRICS, STUDIES, World

SIZES, ROUNDS, PER_TEAM = (10, 200), 3, 10
VIEWS = {"overview": "", "by finding": f"&columns={METRICS[STUDIES][0]}"}


def fill(world: World, n: int) -> None:
    """`n` scored and ranked entries of ten to a team, no two with the same figures."""
    places = {}
    for i in range(n):
        if i % PER_TEAM == 0:
            user, team = world.member(f"Person {i}", f"Laboratory {i // PER_TEAM}")
        sent = world.send(user, team, f"Model {i:03d}", benchmark=STUDIES)
        world.score(0.3 + 0.6 * i / n, benchmark=STUDIES)  # each better than the last, or the ladder holds it back
        place = n - i
        places[sent.id] = (place, max(place - 5, 1), min(place + 5, n), "ABCDEFGHIJ"[10 * (place - 1) // n])
    world.rank(places, benchmark=STUDIES)


def look(browser: Any, address: str, view: str) -> tuple[float, float, float]:
    """Seconds to the first row, kilobytes until then, seconds that a search takes."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    sent = []
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.on("Network.dataReceived", lambda event: sent.append(event["encodedDataLength"] or event["dataLength"]))
    start = time.perf_counter()
    page.goto(f"{address}/?benchmark={STUDIES}{view}")
    page.wait_for_selector("#board a.rv-name")
    first_row, kilobytes = time.perf_counter() - start, sum(sent) / 1000
    field = page.get_by_label("Search")
    field.press_sequentially("Model 00")
    page.wait_for_url("**search=Model+00*")
    page.wait_for_function("document.querySelectorAll('#board a.rv-name').length === 10")
    start = time.perf_counter()
    field.press_sequentially("7")
    page.wait_for_function("document.querySelectorAll('#board a.rv-name').length === 1")
    found = time.perf_counter() - start
    context.close()
    return first_row, kilobytes, found


def measure() -> list[dict[str, float | str]]:
    rows: dict[tuple[str, int], list[float]] = {}
    for n in SIZES:
        with tempfile.TemporaryDirectory() as name, running_browser() as browser:
            world = World(Path(name))
            fill(world, n)
            with serving(world) as address:
                look(browser, address, "")  # warms the server
                for view, query in VIEWS.items():
                    rounds = [look(browser, address, query) for _ in range(ROUNDS)]
                    rows[view, n] = [statistics.median(column) for column in zip(*rounds, strict=True)]
    found: list[dict[str, float | str]] = []
    for view in VIEWS:
        few, many = rows[view, SIZES[0]], rows[view, SIZES[1]]
        for what, a, b in zip(("first row, s", "sent, kB", "search, s"), few, many, strict=True):
            figures = {f"{n} entries": round(x, 3) for n, x in zip(SIZES, (a, b), strict=True)}
            found.append({"work": f"board page, {view}: {what}", **figures, "ratio": round(b / a, 2)})
    return found


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
