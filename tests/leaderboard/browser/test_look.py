"""Every page in a real browser, on a desktop and a phone, light and dark.

Nobody else is asked, nothing fails, nothing overflows, and axe-core finds nothing serious.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.leaderboard.browser.browsing import faults, running_browser, watched_page_of
from tests.leaderboard.browser.served import serving
from tests.leaderboard.browser.world import IMAGES, World

pytestmark = pytest.mark.browser
PAGES = {
    "/": ("#board .rv-summary", "REVEAL leaderboard"),
    "/submit": ("#balance .rv-balance", "Submit predictions · REVEAL leaderboard"),
    "/compare": ("#compare .rv-message", "Compare two entries · REVEAL leaderboard"),
    "/mine": ("#submissions table", "My submissions · REVEAL leaderboard"),
    "/about": ("#about .rv-how", "About this leaderboard · REVEAL leaderboard"),
    "/admin": ("text=Exposure", "Admin · REVEAL leaderboard"),
    "/entry?id=nothing": ("text=There is no entry to show here.", "Entry · REVEAL leaderboard"),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real application over a world in local mode, with one scored submission."""
    world = World(tmp_path_factory.mktemp("look"))
    actor = world.accounts.local_actor()
    submission = world.send(actor.user, actor.memberships[0].team, "Net")
    world.score(0.7)
    world.rank({submission.id: (1, 1, 1, "A")})
    with serving(world) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")], ids=["desktop-light", "phone-dark"])
def context(browser: Any, request: pytest.FixtureRequest) -> Any:
    """One for all pages of a kind, so that Gradio's scripts are loaded once: nobody signs in here."""
    width, scheme = request.param
    return browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)


@pytest.fixture
def page(context: Any, address: str) -> Iterator[Any]:
    with watched_page_of(context, address) as page:
        yield page


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_with_its_title_and_is_accessible(page: Any, address: str, path: str) -> None:
    wanted, title = PAGES[path]
    page.goto(address + path)
    page.wait_for_selector(wanted)
    page.wait_for_function("title => document.title === title", arg=title)
    assert faults(page) == []


def test_the_skip_link_is_first_and_leads_to_the_heading(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#board .rv-summary")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "rv-skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"


def test_a_column_is_sorted_by_keyboard_and_the_address_keeps_it(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#board .rv-summary")
    page.focus("button[data-id='point_hit:macro']")
    page.keyboard.press("Enter")
    page.wait_for_selector("th[aria-sort=descending] button[data-id='point_hit:macro']")
    page.wait_for_function("location.search.includes('sort=point_hit')")
    address = page.url
    page.goto(address)
    page.wait_for_selector("th[aria-sort=descending] button[data-id='point_hit:macro']")
    assert f"benchmark={IMAGES}" in address
