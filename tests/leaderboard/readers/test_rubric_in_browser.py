"""Answers to tasks scored in a real browser by keyboard alone, with the model's boxes on the pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.readers.app import build_readers_app
from reveal_leaderboard.readers.films import ImageCache
from reveal_leaderboard.web.auth import Auth

from reveal_bench.metrics.ordinal import CRITERIA
from tests.leaderboard.conftest import serving
from tests.leaderboard.readers.reading_world import accounts_in
from tests.leaderboard.readers.rubric_world import Waiting, build_pictured_board, waiting_in
from tests.leaderboard.task_world import Room

browsing = pytest.importorskip("tests.leaderboard.browser.browsing")
pytestmark = pytest.mark.skipif(browsing.CHROMIUM is None, reason="no Chromium here")

ORANGE = """([x, y]) => {
  const canvas = document.querySelector('.view canvas');
  const [r, g, b] = canvas.getContext('2d').getImageData(x, y, 1, 1).data;
  return r > 200 && g > 100 && b < 120;
}"""
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory, custody: Custody) -> Iterator[Waiting]:
    root = tmp_path_factory.mktemp("rubric")
    room = Room(build_pictured_board(root), root / "data", custody)
    yield waiting_in(room, root / "answers.csv")
    room.store.engine.dispose()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing.running_browser() as found:
        yield found


def ready(page: Any, number: int) -> None:
    """Wait until answer `number` is there with its pictures."""
    page.wait_for_function(
        "n => document.querySelector('#place').textContent.startsWith(`${n} of 12`)"
        " && !document.querySelector('.waiting')"
        " && [...document.querySelectorAll('.view canvas')].every((one) => one.dataset.scale)",
        arg=number,
    )


def edge_of_the_box(page: Any) -> list[int]:
    """A place on the left edge of the first box: 10 of 80 pixels across, 50 of 100 down."""
    page.evaluate(FRAME)
    scale, x, y, width, height = page.evaluate(
        "() => { const c = document.querySelector('.view canvas'), d = c.dataset;"
        " return [Number(d.scale), Number(d.x), Number(d.y), c.width, c.height]; }"
    )
    return [round(width / 2 + (10 - x) * scale), round(height / 2 + (50 - y) * scale)]


def chosen(page: Any) -> dict[str, int]:
    found: dict[str, int] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#scales fieldset')]"
        ".map((one) => [one.dataset.name, Number(one.querySelector(':checked')?.value ?? 0)]))"
    )
    return found


def test_answers_are_scored_by_keyboard_with_the_boxes_in_sight(browser: Any, waiting: Waiting, tmp_path: Path) -> None:
    readings = waiting.prepared(tmp_path / "data")
    app = build_readers_app(readings, ImageCache(readings.root), Auth(accounts_in(tmp_path / "accounts"), "local"), {})
    places = readings.places("Dr Ada")
    shown = [readings.item(place.item) for place in places]
    drawn = [len(one.films) if one.content["boxes"] else 0 for one in shown]
    with_boxes, without = drawn.index(3) + 1, drawn.index(0) + 1
    with serving(app) as url, browsing.watched_page(browser, url) as page:
        press = page.keyboard.press
        page.goto(url)
        page.wait_for_selector("#reader")
        press("Tab")
        press("Enter")
        ready(page, 1)
        assert browsing.faults(page) == []
        for step in range(2, with_boxes + 1):
            press("n")
            ready(page, step)
        content = readings.item(places[with_boxes - 1].item).content
        assert page.locator("#texts").inner_text().count(content["prompt"]) == 1
        assert content["answer"] in page.locator("#texts p").last.evaluate("one => one.textContent")
        assert page.locator("#texts b, #texts i").count() == 0  # markup stays text
        captions = page.locator("figcaption").all_inner_texts()
        assert [one.split(",")[0] for one in captions] == ["PA", "Lateral", "Prior: AP"]

        at = edge_of_the_box(page)
        assert page.evaluate(ORANGE, at)
        press("g")
        page.evaluate(FRAME)
        assert not page.evaluate(ORANGE, at)
        press("g")
        page.evaluate(FRAME)
        assert page.evaluate(ORANGE, at)

        for digit in "453":
            press(digit)
        assert page.locator("fieldset.current").get_attribute("data-name") == "language"
        press("Enter")  # half of it is not sent
        assert "Without a score yet: Language, Image content, Image style." in page.locator("#told").inner_text()
        assert browsing.faults(page) == []
        for digit in "542":
            press(digit)
        press("0")
        press("6")
        for _ in range(5):
            press("k")
        press("2")
        wanted = dict(zip(CRITERIA, (2, 5, 3, 5, 4, 2), strict=True))
        assert chosen(page) == wanted
        page.screenshot(path=tmp_path / "rubric.png")
        press("Enter")
        page.wait_for_function("n => !document.querySelector('#place').textContent.startsWith(`${n} `)", arg=with_boxes)
        kept = readings.answer("Dr Ada", places[with_boxes - 1].item)
        assert (kept.answer, kept.comment, kept.details) == ("scored", "", wanted)

        page.reload()  # resumed, and what was given stands there and can be changed
        page.wait_for_selector("#panel:not([hidden])")
        assert page.locator("#done-text").inner_text() == "1 of 12 answered"
        go_to(page, with_boxes)
        assert chosen(page) == wanted
        press("5")
        press("Enter")
        page.wait_for_function("n => !document.querySelector('#place').textContent.startsWith(`${n} `)", arg=with_boxes)
        changed = readings.answer("Dr Ada", places[with_boxes - 1].item)
        assert changed.details == wanted | {"process": 5}

        go_to(page, without)
        assert page.locator("#scales fieldset").count() == 4
        assert "Image content" not in page.locator("#scales").inner_text()
        press("u")
        assert browsing.faults(page) == []
        press("Enter")
        page.wait_for_function("n => !document.querySelector('#place').textContent.startsWith(`${n} `)", arg=without)
        assert page.locator("#done-text").inner_text() == "2 of 12 answered, 1 not readable"
        assert browsing.faults(page) == []
    readings.engine.dispose()


def go_to(page: Any, number: int) -> None:
    """With Next and Back to answer `number`."""
    page.wait_for_function("() => /^\\d/.test(document.querySelector('#place').textContent)")
    while (now := int(page.locator("#place").inner_text().split(" ")[0])) != number:
        page.keyboard.press("n" if now < number else "b")
        ready(page, now + (1 if now < number else -1))
