"""The pages in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.intake import open_data
from reveal_leaderboard.store import NewSubmission

from tests.leaderboard.conftest import BENCHMARK, METADATA, RARE, WAIT_SECONDS, Server

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.processes,
]
ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
XSS = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>${window.broken=1}{{window.broken=1}}'
WriteFile = Callable[..., Path]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # without a Chromium of the system, the one that Playwright brought: `make test` sees to one of the two
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def page(browser: Any, request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    """A page that must ask nobody but the server, log no error, and never scroll sideways as a whole."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(WAIT_SECONDS * 1000)
    foreign: list[str] = []
    errors: list[str] = []
    page.on(
        "request", lambda r: foreign.append(r.url) if not r.url.startswith((server.url, "data:", "blob:")) else None
    )
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    yield page
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("window.broken") is None
    assert foreign == []
    assert errors == []
    context.close()


def open_board(page: Any, server: Server, query: str = "") -> Any:
    page.goto(server.url + "/" + query)
    page.wait_for_selector("#board .rv-summary")
    return page


def score_directly(server: Server, name: str) -> None:
    """Queue a good file under a name that the form would refuse, and let a worker score it."""
    store, blobs = open_data(server.data)
    del blobs
    template = store.list_submissions()[0]
    fields = {field: getattr(template, field) for field in NewSubmission.__slots__}
    new = NewSubmission(
        **{**fields, "model_name": name, "team": name[:100], "metadata": METADATA, "idempotency_key": None}
    )
    submission, _ = store.add_submission(new, who="test")
    with server.worker("--once"):
        assert server.wait_scored(submission.id)["status"] == "scored"


def test_an_empty_board_invites(page: Any, server: Server) -> None:
    open_board(page, server)
    if not server.get(f"/api/v1/leaderboard?benchmark={BENCHMARK}").json()["entries"]:
        assert "No submission is scored yet" in page.inner_text("#board")
    assert "This benchmark is synthetic" in page.inner_text("#board")
    page.click("text=Published rows, measured on the real CheXlocalize test set")
    assert "Human benchmark" in page.inner_text("#board")


def test_a_malformed_file_is_shown_with_its_lines_and_cannot_be_sent(
    page: Any, server: Server, write_file: WriteFile
) -> None:
    broken = {3: '{"image_id": "nobody", "finding": "Edema", "cell": "D5"}', 7: f'{{"image_id": {json.dumps(XSS)}}}'}
    page.goto(server.url + "/submit")
    page.wait_for_selector("#send")
    page.set_input_files("input[type=file]", str(write_file("bad.jsonl", broken=broken)))
    page.wait_for_selector("#report .rv-bad")
    assert "cannot be sent" in page.inner_text("#report")
    lines = page.locator("#report tbody .rv-line").all_inner_texts()
    assert {"3", "7"} <= set(lines)
    assert "nobody" in page.inner_text("#report tbody")
    assert page.is_disabled("#send")


def test_a_good_file_is_sent_and_watched_to_its_score_without_reloading(
    page: Any, server: Server, write_file: WriteFile
) -> None:
    width = page.viewport_size["width"]
    page.goto(server.url + "/submit")
    page.wait_for_selector("#send")
    assert page.is_disabled("#send")
    page.evaluate("window.reloaded = false")
    page.set_input_files("input[type=file]", str(write_file(seed=width)))
    page.wait_for_selector("#report .rv-good")
    page.wait_for_selector("#send:enabled")
    page.click("#send")
    page.wait_for_selector("#progress .rv-bad")
    assert "Model name" in page.inner_text("#progress")
    page.get_by_label("Model name").fill(f"Browser {width}")
    page.get_by_label("Organization").fill("Example Laboratory")
    page.click("#send")
    page.wait_for_selector("#progress .rv-busy")
    assert "position" in page.inner_text("#progress")
    with server.worker("--once", "--pause-before-finish", "2.5"):
        page.wait_for_selector("text=Being scored")
        page.wait_for_selector("#progress .rv-score")
    progress = page.inner_text("#progress")
    assert f"Browser {width} is scored" in progress
    assert RARE in progress
    assert page.locator("#progress .rv-bar i").count() > 10
    assert page.evaluate("window.reloaded") is False
    open_board(page, server)
    assert f"Browser {width}" in page.inner_text("#board")


def test_markup_in_names_is_shown_and_not_run(page: Any, server: Server, write_file: WriteFile) -> None:
    server.post(write_file(seed=3), {**METADATA, "model": {"name": "Template"}})
    score_directly(server, XSS[:100])
    open_board(page, server)
    assert "<img src=x" in page.inner_text("#board")
    assert page.locator("#board img").count() == 0


def test_the_view_is_kept_in_the_address(page: Any, server: Server) -> None:
    open_board(page, server)
    page.get_by_role("radio", name="IoU").check()
    page.wait_for_selector("#board th:has-text('Lung Lesion')")
    assert "view=IoU" in page.evaluate("location.search")
    open_board(page, server, page.evaluate("location.search"))
    assert "Lung Lesion" in page.inner_text("#board thead")
    assert page.get_by_role("radio", name="IoU").is_checked()


def test_the_first_column_stays_while_the_table_scrolls(page: Any, server: Server) -> None:
    open_board(page, server, "?view=Hit+rate")
    box = page.locator("#board .rv-scroll").first
    left = "document.querySelector('#board tbody th').getBoundingClientRect().left"
    before = page.evaluate(left)
    box.evaluate("box => { box.scrollLeft = 300 }")
    assert box.evaluate("box => box.scrollLeft") > 0
    assert abs(page.evaluate(left) - before) <= 1
