"""A reader in a real browser: from the first study to the last by keyboard alone, and what the picture does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.readers.app import build_readers_app
from reveal_leaderboard.readers.images import ImageCache
from reveal_leaderboard.readers.store import ReaderAnswer, Readings
from reveal_leaderboard.web.sign_in_modes import Auth, Provider, open_auth

from reveal_bench.metrics.ordinal import CRITERIA
from tests.leaderboard.conftest import free_port, serving
from tests.leaderboard.oidc_provider import CLIENT_ID, CLIENT_SECRET, running_provider
from tests.leaderboard.readers.reading_world import READERS, Pool, accounts_in, local_app, prepared
from tests.leaderboard.readers.rubric_world import Waiting

browsing = pytest.importorskip("tests.leaderboard.browser.browsing")
pytestmark = pytest.mark.skipif(browsing.CHROMIUM is None, reason="no Chromium here")

GREY_AT = """([x, y]) => {
  const canvas = document.querySelector('.view.active canvas') || document.querySelector('.view canvas');
  return canvas.getContext('2d').getImageData(x, y, 1, 1).data[0];
}"""
MEAN = """() => {
  const canvas = document.querySelector('.view canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let sum = 0;
  for (let at = 0; at < data.length; at += 4) sum += data[at];
  return sum / (data.length / 4);
}"""
ORANGE = """([x, y]) => {
  const canvas = document.querySelector('.view canvas');
  const [r, g, b] = canvas.getContext('2d').getImageData(x, y, 1, 1).data;
  return r > 200 && g > 100 && b < 120;
}"""
FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture
def page_and_readings(browser: Any, pool: Pool, tmp_path: Path) -> Iterator[tuple[Any, Readings]]:
    """The first study of the first reader, chosen by keyboard."""
    app = local_app(pool, tmp_path / "data")
    readings = Readings(tmp_path / "data")
    with serving(app) as url, browsing.watched_page(browser, url) as page:
        page.goto(url)
        page.wait_for_selector("#reader")
        assert page.evaluate("document.activeElement.id") == "reader"
        assert browsing.faults(page) == []
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        ready(page, 1)
        yield page, readings
    readings.engine.dispose()


def ready(page: Any, number: int, *, of: int = 6) -> None:
    """Wait until study or answer `number` is there with its pictures."""
    page.wait_for_function(
        "([n, of]) => document.querySelector('#place').textContent.startsWith(`${n} of ${of}`)"
        " && !document.querySelector('.waiting')"
        " && [...document.querySelectorAll('.view canvas')].every((one) => one.dataset.scale)",
        arg=[number, of],
    )


def kept(readings: Readings) -> dict[int, ReaderAnswer]:
    answers = {one.item: one for one in readings.all_answers() if one.reader == READERS[0]}
    return {place.position: answers[place.item] for place in readings.places(READERS[0]) if place.item in answers}


def test_all_six_studies_are_read_by_keyboard(page_and_readings: tuple[Any, Readings]) -> None:
    page, readings = page_and_readings
    press = page.keyboard.press
    press("1")
    press("Enter")
    ready(page, 2)
    press("3")
    page.keyboard.type("no 1 sees Opacity n or b")  # letters that are keys elsewhere
    press("Enter")
    ready(page, 3)
    press("2")
    press("Enter")  # without a comment it is asked for once
    assert "not right" in page.locator("#told").inner_text()
    press("Enter")
    ready(page, 4)
    press("u")
    press("n")
    ready(page, 5)
    press("2")
    press("Escape")
    press("t")
    page.keyboard.press("Space")  # the first of the twelve, the other way round
    press("Enter")
    ready(page, 6)
    assert browsing.faults(page) == []
    press("b")
    ready(page, 5)
    assert page.locator("#choices [aria-pressed=true]").inner_text().endswith("Agree mostly")
    press("1")
    press("Enter")
    ready(page, 6)
    press("1")
    press("Enter")
    page.wait_for_selector("text=You are done")
    assert page.locator("#done-text").inner_text() == "6 of 6 answered, 1 not readable"
    answers = kept(readings)
    by_position = {position: (one.answer, one.comment) for position, one in answers.items()}
    assert by_position == {
        1: ("agree_all", ""),
        2: ("disagree", "no 1 sees Opacity n or b"),
        3: ("agree_mostly", ""),
        4: ("cannot_read", ""),
        5: ("agree_all", ""),
        6: ("agree_all", ""),
    }
    assert all(one.seconds >= 0 for one in answers.values())
    assert browsing.faults(page) == []
    press("Enter")  # Close my list
    page.wait_for_selector("dialog[open]")
    assert browsing.faults(page) == []
    press("Tab")
    press("Enter")
    page.wait_for_selector("text=Your list is closed")
    assert not readings.is_open(READERS[0])


def test_after_a_reload_the_reader_goes_on_where_it_was(page_and_readings: tuple[Any, Readings]) -> None:
    page, readings = page_and_readings
    for number in (1, 2):
        page.keyboard.press("1")
        page.keyboard.press("Enter")
        ready(page, number + 1)
    page.reload()
    ready(page, 3)
    assert page.locator("#done-text").inner_text() == "2 of 6 answered"
    page.keyboard.press("b")
    ready(page, 2)
    assert page.locator("#choices [aria-pressed=true]").inner_text().endswith("Agree all")
    assert sorted(kept(readings)) == [1, 2]


def state(page: Any) -> dict[str, float]:
    page.evaluate(FRAME)
    dataset: dict[str, str] = page.evaluate("({...document.querySelector('.view canvas').dataset})")
    return {name: float(value == "true") if name == "inverted" else float(value) for name, value in dataset.items()}


def test_the_picture_does_what_keys_and_pointer_say(page_and_readings: tuple[Any, Readings]) -> None:
    page, _ = page_and_readings
    press, mouse = page.keyboard.press, page.mouse
    box = page.locator(".view canvas").first.bounding_box()
    at = [box["width"] * 0.3, box["height"] * 0.6]
    start, grey, mean = state(page), page.evaluate(GREY_AT, at), page.evaluate(MEAN)

    press("i")  # invert
    assert state(page)["inverted"] == 1
    assert abs(page.evaluate(GREY_AT, at) - (255 - grey)) <= 1
    press("i")
    assert state(page) == start

    press("l")  # brighter
    assert state(page)["center"] != start["center"]
    assert page.evaluate(MEAN) > mean
    press("r")
    assert state(page) == start
    assert page.evaluate(GREY_AT, at) == grey

    mouse.move(box["x"] + at[0], box["y"] + at[1])  # the wheel zooms about the pointer
    before = place(state(page), box, at)
    mouse.wheel(0, -400)
    zoomed = state(page)
    assert zoomed["scale"] > start["scale"] * 1.5
    after = place(zoomed, box, at)
    assert abs(after[0] - before[0]) < 0.1  # of a film pixel: the browser rounds where the wheel was
    assert abs(after[1] - before[1]) < 0.1

    mouse.down()  # dragging moves the film with the pointer
    mouse.move(box["x"] + at[0] + 40, box["y"] + at[1] - 25)
    mouse.up()
    moved = place(state(page), box, [at[0] + 40, at[1] - 25])
    assert abs(moved[0] - after[0]) < 0.1
    assert abs(moved[1] - after[1]) < 0.1

    mouse.down(button="right")  # with the right button it is a wider window
    mouse.move(box["x"] + at[0] + 100, box["y"] + at[1] - 25)
    mouse.up(button="right")
    assert state(page)["width"] > start["width"] * 1.2

    press("o")
    assert state(page)["scale"] == 1
    press("ArrowUp")
    assert state(page)["scale"] == 1.25
    press("z")
    assert state(page)["scale"] == start["scale"]
    press("r")
    assert state(page) == start
    press("h")
    page.wait_for_selector("#help[open]")
    press("1")  # is not an answer while help is open
    press("Escape")
    assert page.locator("#choices [aria-pressed=true]").count() == 0


def place(now: dict[str, float], box: dict[str, float], at: list[float]) -> tuple[float, float]:
    """Return the image position at a point of the frame, in pixels of the image."""
    x = now["x"] + (at[0] - box["width"] / 2) / now["scale"]
    return x, now["y"] + (at[1] - box["height"] / 2) / now["scale"]


def test_two_views_hang_side_by_side_or_one_at_a_time(page_and_readings: tuple[Any, Readings]) -> None:
    page, readings = page_and_readings
    films = [len(readings.item(place.item).films) for place in readings.places(READERS[0])]
    number = films.index(2) + 1
    for step in range(2, number + 1):
        page.keyboard.press("n")
        ready(page, step)
    assert page.locator(".view:visible").count() == 2
    page.keyboard.press("v")
    assert page.locator(".view:visible").count() == 1
    first = page.locator(".view:visible canvas").get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert page.locator(".view:visible canvas").get_attribute("aria-label") != first
    assert browsing.faults(page) == []


def test_an_answer_that_is_refused_stays_on_the_page(browser: Any, pool: Pool, tmp_path: Path) -> None:
    app = local_app(pool, tmp_path / "data")
    readings = Readings(tmp_path / "data")
    context = browser.new_context()  # not watched: the browser's console names every refusal
    page = context.new_page()
    with serving(app) as url:
        page.goto(url)
        page.wait_for_selector("#reader")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        ready(page, 1)
        page.keyboard.press("3")
        page.keyboard.type("wrong side")
        readings.mark(READERS[0], "close")  # meanwhile, by the maintainer
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('#told').textContent.includes('closed')")
        assert page.locator("#comment").input_value() == "wrong side"
        readings.mark(READERS[0], "open")
        page.keyboard.press("Enter")
        ready(page, 2)
    context.close()
    assert kept(readings)[1].comment == "wrong side"


def test_a_reader_signs_in_with_an_account_and_out_again(browser: Any, pool: Pool, tmp_path: Path) -> None:
    port = free_port()
    here = f"http://127.0.0.1:{port}"
    with running_provider() as provider:
        environ = {
            "REVEAL_OIDC_ISSUER": provider.issuer,
            "REVEAL_OIDC_CLIENT_ID": CLIENT_ID,
            "REVEAL_OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "REVEAL_URL": here,
        }
        auth = open_auth(accounts_in(tmp_path / "accounts"), "oidc", environ)
        people = {provider.person["sub"]: READERS[1]}
        readings = prepared(pool, tmp_path / "data")
        app = build_readers_app(readings, ImageCache(pool.images), auth, people)
        own = (here, provider.issuer)
        with serving(app, port), browsing.watched_page(browser, *own, width=820, scheme="dark") as page:
            page.goto(here)
            page.wait_for_selector("text=You are not signed in")
            assert browsing.faults(page) == []
            page.keyboard.press("Enter")  # on the link
            ready(page, 1)
            assert browsing.faults(page) == []
            page.keyboard.press("1")
            page.keyboard.press("Enter")
            ready(page, 2)
            page.wait_for_load_state("networkidle")  # films that come later are refused
            page.locator("#sign-out button").focus()
            page.keyboard.press("Enter")
            page.wait_for_selector("text=You are not signed in")
            assert [one.reader for one in readings.all_answers()] == [READERS[1]]
            provider.person = {"sub": "nobody's"}
            page.keyboard.press("Enter")
            page.wait_for_selector("text=You are not a reader")
    readings.engine.dispose()


def test_the_pages_of_signing_in_keep_their_style(browser: Any, pool: Pool, tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path / "accounts")
    provider = Provider("http://127.0.0.1:9", "c", "s", "http://127.0.0.1:8/login/callback", "p", "p")
    app = build_readers_app(
        prepared(pool, tmp_path / "data"), ImageCache(pool.images), Auth(accounts, "oidc", provider), {}
    )
    context = browser.new_context()  # not watched: the page is an error, and the console says so
    page = context.new_page()
    with serving(app) as url:
        page.goto(f"{url}/login/callback")
        assert page.locator("h1").inner_text() == "This sign-in cannot be completed"
        widest = page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth")
        assert widest == "640px"  # as its stylesheet says
    context.close()


# Answers to tasks, scored with the model's boxes on the pictures ------------------------------------------------------


def edge_of_the_box(page: Any) -> list[int]:
    """A place on the left edge of the first box: 10 of 80 pixels across, 50 of 100 down."""
    page.evaluate(FRAME)
    scale, x, y, width, height = page.evaluate(
        "() => { const c = document.querySelector('.view canvas'), d = c.dataset;"
        " return [Number(d.scale), Number(d.x), Number(d.y), c.width, c.height]; }"
    )
    return [round(width / 2 + (10 - x) * scale), round(height / 2 + (50 - y) * scale)]


def chosen(page: Any) -> dict[str, int]:
    scores: dict[str, int] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#scales fieldset')]"
        ".map((one) => [one.dataset.name, Number(one.querySelector(':checked')?.value ?? 0)]))"
    )
    return scores


def test_answers_are_scored_by_keyboard_with_the_boxes_in_sight(browser: Any, waiting: Waiting, tmp_path: Path) -> None:
    readings = waiting.prepared(tmp_path / "data")
    app = build_readers_app(readings, ImageCache(readings.root), Auth(accounts_in(tmp_path / "accounts"), "local"), {})
    places = readings.places("Dr Ada")
    items = [readings.item(place.item) for place in places]
    drawn = [len(one.films) if one.content["boxes"] else 0 for one in items]
    with_boxes, without = drawn.index(3) + 1, drawn.index(0) + 1
    with serving(app) as url, browsing.watched_page(browser, url) as page:
        press = page.keyboard.press
        page.goto(url)
        page.wait_for_selector("#reader")
        press("Tab")
        press("Enter")
        ready(page, 1, of=12)
        assert browsing.faults(page) == []
        for step in range(2, with_boxes + 1):
            press("n")
            ready(page, step, of=12)
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
        press("Enter")
        page.wait_for_function("n => !document.querySelector('#place').textContent.startsWith(`${n} `)", arg=with_boxes)
        kept = readings.answer("Dr Ada", places[with_boxes - 1].item)
        assert (kept.answer, kept.comment, kept.details) == ("scored", "", wanted)

        page.reload()  # resumed: the answer is there and can be changed
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
    """Go to answer `number` with Next and Back."""
    page.wait_for_function("() => /^\\d/.test(document.querySelector('#place').textContent)")
    while (now := int(page.locator("#place").inner_text().split(" ")[0])) != number:
        page.keyboard.press("n" if now < number else "b")
        ready(page, now + (1 if now < number else -1), of=12)
