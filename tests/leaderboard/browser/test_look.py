"""Every page in a real browser, on a desktop and a phone, light and dark. No other host is contacted, nothing fails,
overflows or moves while loading, and axe-core finds nothing serious.

Nobody else is asked, nothing fails, nothing overflows or moves while it loads, and axe-core finds nothing serious.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.web.app import Front

from reveal_bench.viewer.serving import Galleries, Gallery
from tests.leaderboard.browser.browsing import assert_well_built, faults, settle, watched_page_of
from tests.leaderboard.browser.served import serving
from tests.leaderboard.browser.world import IMAGES, World
from tests.viewer.gallery_sample import make_gallery_sample

pytestmark = pytest.mark.browser
PAGES = {
    "/": ("#board .rv-summary", "CheXlocalize · REVEAL leaderboard"),
    "/submit": ("#balance .rv-balance", "Submit predictions · REVEAL leaderboard"),
    "/compare": ("#compare .rv-message", "Compare two entries · REVEAL leaderboard"),
    "/compare?a={a}&b={b}": ("#compare .rv-compare", "Compare two entries · REVEAL leaderboard"),
    "/mine": ("#submissions table", "My submissions · REVEAL leaderboard"),
    "/about": ("#about .rv-how", "About this leaderboard · REVEAL leaderboard"),
    "/admin": (".rv-health", "Admin · REVEAL leaderboard"),
    "/entry?id={a}": ("#entry .rv-score", "Net v1.0, Local user · REVEAL leaderboard"),
    "/submission?id={a}": ("#progress .rv-score", "Net · REVEAL leaderboard"),
    "/entry?id=nothing": ("text=This entry is not available.", "Entry · REVEAL leaderboard"),
}
WIDTHS = (1024, 1440, 1920)
"""Further window widths in which nothing may overflow; axe-core checks two others."""
MOST_SHIFT = 0.05
IS_DARK = "dark => (getComputedStyle(document.querySelector('.rv-strip')).color !== 'rgb(76, 90, 105)') === dark"
NOTE_SHIFTS = """window.shift = 0;
new PerformanceObserver((seen) => {
  for (const one of seen.getEntries()) window.shift += one.hadRecentInput ? 0 : one.value;
}).observe({type: "layout-shift", buffered: true});"""
FADED = """[...document.querySelectorAll(".rv-scroll")].every((box) =>
  box.classList.contains("rv-more") === (box.scrollLeft + box.clientWidth < box.scrollWidth - 4))"""
CUT_OFF = "fields => fields.map((one) => getComputedStyle(one).textOverflow)"
BESIDE_THE_SCREEN = """() => [...document.querySelectorAll("td .rv-action")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.textContent)"""


@dataclass(frozen=True)
class Board:
    """The board's address, its parts, and two scored and compared entries."""

    address: str
    world: World
    a: str
    b: str

    def at(self, path: str) -> str:
        return self.address + path.format(a=self.a, b=self.b)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory, twin_of: Callable[[str], Path]) -> Iterator[Board]:
    """The real application over a world in local mode, in which everybody is an administrator."""
    world = World(tmp_path_factory.mktemp("look"))
    actor = world.accounts.local_actor()
    a, b = (world.send(actor.user, actor.memberships[0].team, model).id for model in ("Net", "Other"))
    for value in (0.5, 0.6):  # each better than the one before, or the ladder would hold it back
        world.score(value)
    world.rank({a: (2, 2, 2, "B"), b: (1, 1, 1, "A")})
    gallery_files = make_gallery_sample(tmp_path_factory.mktemp("gallery"), twin_of("chexlocalize"))
    with serving(world, Front(galleries=Galleries([Gallery.of_folder(gallery_files.gallery)]))) as address:
        yield Board(address, world, a, b)


@pytest.fixture(scope="module")
def context(context: Any) -> Any:
    """A context that records layout shifts."""
    context.add_init_script(NOTE_SHIFTS)
    return context


@pytest.fixture
def page(context: Any, board: Board) -> Iterator[Any]:
    with watched_page_of(context, board.address) as page:
        yield page


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_with_its_title_and_is_accessible(page: Any, board: Board, path: str) -> None:
    """Opened on a phone in the dark, then looked at on a desktop in the light."""
    expected, title = PAGES[path]
    for width, scheme in ((390, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        if page.url == "about:blank":
            page.goto(board.at(path))
        page.wait_for_selector(expected)
        page.wait_for_function("title => document.title === title", arg=title)
        page.wait_for_function(IS_DARK, arg=scheme == "dark")
        settle(page)
        if width == 390:
            assert page.evaluate("window.shift") < MOST_SHIFT
        assert faults(page) == []
        assert_well_built(page)
        assert page.evaluate(BESIDE_THE_SCREEN) == []
        assert not path.startswith("/compare") or page.get_by_label("Entry B").is_visible()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert_well_built(page)
        page.wait_for_function(FADED)  # what goes on beside the window is seen to
        assert page.evaluate(BESIDE_THE_SCREEN) == []
    page.evaluate("document.body.classList.add('dark'); dispatchEvent(new Event('beforeprint'))")
    assert not page.evaluate("document.body.classList.contains('dark')")
    is_read = page.locator("gradio-app").count() == 0  # the others follow the system's setting in print, too
    page.emulate_media(media="print", color_scheme="dark" if is_read else "light")
    assert page.evaluate(IS_DARK, False)
    assert not page.locator(".nav-holder, .rv-site").is_visible()
    assert set(page.locator("input[role=combobox], select").evaluate_all(CUT_OFF)) <= {"ellipsis"}
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).printColorAdjust") == "exact"


def test_by_keyboard_content_is_reached_at_once_and_a_column_is_sorted(page: Any, board: Board) -> None:
    page.goto(board.address)
    page.wait_for_selector("#board .rv-summary")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.focus("th a[href*='sort=point_hit']")
    page.keyboard.press("Enter")
    page.wait_for_selector("th[aria-sort=descending] a[href*='sort=point_hit']")
    assert f"benchmark={IMAGES}" in page.url
    page.get_by_label("Search").fill("Other")  # the order and the field stay
    page.get_by_role("link", name="Net", exact=True).wait_for(state="detached")
    assert page.evaluate("document.activeElement.name") == "search"
    assert page.url.endswith("version=1.0.0&columns=overview&search=Other&sort=point_hit%3Amacro&descending=1")
    page.route("**search=Busy*", lambda route: route.fulfill(content_type="text/html", body="Too many requests"))
    page.get_by_label("Search").fill("Busy")  # an error is shown instead of the page
    page.get_by_text("Too many requests").wait_for()
    page.go_back()


def test_withdrawing_asks_first(page: Any, board: Board) -> None:
    world = board.world
    actor = world.accounts.local_actor()
    world.send(actor.user, actor.memberships[0].team, "Regretted")
    world.score(0.8)
    page.goto(board.at("/mine"))
    row = page.locator("#submissions tr", has_text="Regretted")
    row.get_by_role("button", name="Withdraw").click()
    answer = page.locator("#answer")
    answer.get_by_text("stays charged").wait_for()
    answer.get_by_role("button", name="Cancel").click()
    answer.get_by_role("button").first.wait_for(state="detached")
    assert "shown on the board" in row.inner_text()
    row.get_by_role("button", name="Withdraw").click()
    answer.get_by_role("button", name="Withdraw submission").click()
    answer.get_by_text("Regretted was withdrawn.").wait_for()
    row.get_by_text("withdrawn", exact=True).wait_for()
    page.goto(board.at(f"/?benchmark={IMAGES}"))
    page.wait_for_selector("#board .rv-summary")
    assert "Regretted" not in page.inner_text("#board")


def test_an_admin_hides_and_restores(page: Any, board: Board) -> None:
    world = board.world
    doubtful = world.send(*world.member("Ada", "Northern Lab"), "Doubtful").id
    world.score(0.6)
    page.goto(board.at("/admin"))
    page.get_by_role("tab", name="Submissions").click()
    for verb, question, message in (
        ("Hide", "Hide submission", "Doubtful of Northern Lab is hidden from the board."),
        ("Restore", "Restore submission", "Doubtful of Northern Lab is on the board again."),
    ):
        row = page.locator("tr", has_text="Doubtful")
        row.locator("summary").click()
        row.get_by_label("Reason").fill(f"reason to {verb}")
        row.get_by_role("button", name=question).click()
        page.locator("#answer").get_by_text(message).wait_for()
        on_board = {submission.id for submission, _ in world.store.board_rows(IMAGES, "1.0.0")}
        assert (doubtful in on_board) is (verb == "Restore")


def test_cases_are_looked_at_by_keyboard_on_a_phone_and_on_a_desktop(page: Any, board: Board) -> None:
    """Walk from the board to a case that all but one system miss, its marks, its picture, and back."""
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    page.goto(board.address)
    page.get_by_role("link", name="Cases").click()
    page.wait_for_selector("#cards a")
    assert faults(page) == []
    names = page.locator("#menu a").all_inner_texts()
    assert names == ["Board", "Submit", "My submissions", "Compare", "About", "Cases"]
    n_cases = page.locator("#cards a").count()
    page.locator("#show").focus()
    page.keyboard.type("Wrong")  # the filter "Wrong: miss"
    page.wait_for_url("**/gallery?*show=wrong-2*")
    assert 0 < page.locator("#cards a").count() < n_cases
    page.locator("#cards a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#stage canvas[data-scale]")
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    assert faults(page) == []
    assert_well_built(page)
    texts = page.locator("#answers .said").all_inner_texts()
    assert [text.split()[-1] for text in texts[-2:]] == ["hit", "miss"]

    canvas = page.locator("#stage canvas")
    pressed = page.locator("#answers button").nth(0)
    scale, window = canvas.get_attribute("data-scale"), canvas.get_attribute("data-width")
    for key in ("0", "ArrowUp", "w"):
        page.keyboard.press(key)
    page.wait_for_selector(f"#stage canvas:not([data-width='{window}'])")
    assert float(canvas.get_attribute("data-width")) < float(window)
    assert float(canvas.get_attribute("data-scale")) > float(scale)
    assert pressed.get_attribute("aria-pressed") == "false"

    case = page.url
    page.keyboard.press("n")
    page.wait_for_url(lambda url: url != case)
    page.goto(case)  # a case has an address
    page.wait_for_selector("#stage canvas[data-scale]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#cards a")
    assert "show=wrong-2" in page.url
    page.evaluate("name => document.querySelector('#show').lastElementChild.text = name", "A long name " * 6)
