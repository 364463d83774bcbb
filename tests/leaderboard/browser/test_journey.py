"""Journeys of people on a real board: server and worker are processes, and nothing else writes to the store.

Each test makes what it needs; the last one, which switches the board to another version, leaves the others nothing to
rely on and therefore comes last.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.cli import client
from tests.leaderboard.browser.browsing import assert_well_built, watched_page_of
from tests.leaderboard.browser.real_board import NEW, OLD, RealBoard, running_board
from tests.leaderboard.conftest import ASKING, BENCHMARK, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.processes]
TEAM, OTHER_TEAM = "Example University", "Example Hospital"
BROKEN = {2: '{"image_id": "patient00000_study1_view999", "finding": "Edema", "points": [[3, 4]]}', 3: "{ not json"}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBoard]:
    with running_board(tmp_path_factory.mktemp("real-board")) as running:
        yield running


@pytest.fixture
def page(context: Any, board: RealBoard) -> Iterator[Any]:
    """A desktop page without a user, which may ask only the board and the sign-in provider."""
    context.clear_cookies()
    with watched_page_of(context, board.url, board.provider.issuer) as page:
        yield page


@pytest.fixture(scope="module")
def secrets(board: RealBoard) -> dict[str, str]:
    """Two teams with an owner each, "jane" and "omar", and tokens of theirs."""
    return {TEAM: board.member("jane", TEAM)[1], OTHER_TEAM: board.member("omar", OTHER_TEAM)[1]}


@pytest.fixture(scope="module")
def entries(board: RealBoard, secrets: dict[str, str]) -> tuple[str, str]:
    """Two scored and placed submissions, of two teams."""
    first = board.send(secrets[TEAM], TEAM, "Phantom Net L")
    second = board.send(secrets[OTHER_TEAM], OTHER_TEAM, "Phantom Net S")
    board.wait_until_placed(first, second)
    return first, second


def upload(page: Any, place: str, path: Path) -> None:
    """Feed the file chooser of the upload field labelled `place`."""
    page.locator(".block", has_text=place).locator("input[type=file]").last.set_input_files(path)


def test_from_signing_in_to_a_score(page: Any, board: RealBoard) -> None:
    """A newcomer creates a team, sees the problems of a file, sends a good one, and sees it scored."""
    page.goto(f"{board.url}/submit")
    board.provider.person = {"sub": "newcomer", "preferred_username": "newcomer"}
    page.locator("#report").get_by_role("link", name="Sign in").click()
    page.locator("#report").get_by_text("You need a team to submit.").wait_for()
    page.get_by_role("link", name="Create a team").click()
    page.wait_for_selector("#submissions .rv-message")
    page.get_by_role("button", name="Create a team").click()
    page.get_by_label("Name", exact=False).last.fill("Example Institute")
    page.get_by_role("button", name="Create team").click()
    page.get_by_text("Team Example Institute created.").wait_for()

    page.goto(f"{board.url}/submit")
    page.wait_for_selector("#balance .rv-balance")
    send = page.get_by_role("button", name="Send for scoring")
    upload(page, "Prediction file", board.file(broken=BROKEN))
    report = page.locator("#report")
    report.get_by_text("error").first.wait_for()
    lines = report.locator(".rv-line").all_inner_texts()
    assert [line for line in lines if line] == ["2", "3"]
    assert "patient00000_study1_view999" in report.inner_text()
    assert send.is_disabled()

    page.get_by_label("Clear").first.click()
    report.get_by_text("No file yet.").wait_for()
    upload(page, "Prediction file", board.file())
    report.get_by_text("can be sent").wait_for()
    assert send.is_disabled()  # the model has no name yet
    page.get_by_label("Model name").fill("First try")
    page.wait_for_function("!document.querySelector('#send').disabled")
    page.get_by_text("Links and training data").click()
    page.get_by_label("Code").fill("http://example.org")
    send.click()
    fault = page.locator(".rv-fault")
    fault.wait_for()
    assert fault.locator("label").inner_text().startswith("Code")
    page.get_by_label("Code").fill("")
    send.click()
    fault.wait_for(state="detached")
    page.get_by_role("button", name="Send submission").click()
    page.wait_for_url("**/submission?id=*")
    page.locator("#progress .rv-good", has_text="First try is scored.").wait_for()

    page.locator("#progress").get_by_role("link", name="Show entry").click()
    page.wait_for_selector("#entry .rv-score")
    page.wait_for_function("document.title === 'First try, Example Institute · REVEAL leaderboard'")
    assert_well_built(page)
    receipt = page.get_by_role("link", name="Receipt (JSON)").get_attribute("href")
    answer = page.request.get(board.url + receipt)
    assert answer.ok
    assert answer.json()["receipt"]["benchmark"] == BENCHMARK


def test_submitting_by_keyboard_alone(page: Any, board: RealBoard, secrets: dict[str, str]) -> None:
    """Tab, Enter, Space and typing; the test fills only the system's file chooser, which is not part of the page."""
    board.sign_in(page, "jane", to="/submit")
    page.wait_for_selector("#balance .rv-balance")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")

    tab_to(page, "Prediction file")
    choosers: list[Any] = []
    page.on("filechooser", lambda chooser: choosers.append(chooser))
    for tick in range(300):  # on a busy machine the page may not listen yet: who sees nothing presses again
        if tick % 50 == 0:
            page.keyboard.press("Space")
        page.wait_for_timeout(200)
        if choosers:
            break
    choosers[0].set_files(board.file())
    page.locator("#report").get_by_text("can be sent").wait_for()
    tab_to(page, "Model name")
    page.keyboard.type("Typed only")
    page.wait_for_function("!document.querySelector('#send').disabled")
    tab_to(page, "Kind")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    tab_to(page, "Send for scoring")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Send submission").wait_for()
    tab_to(page, "Send submission")
    page.keyboard.press("Space")
    page.locator("#progress .rv-good", has_text="Typed only is scored.").wait_for()
    tab_to(page, "Show entry")
    page.keyboard.press("Enter")
    page.wait_for_selector("#entry .rv-score")


FOCUSED = """() => {
  const at = document.activeElement;
  const labels = [...(at.labels || [])].map(label => label.textContent);
  const named = at.closest('.block')?.querySelector('label, [data-testid=block-label]');
  return [at.textContent, at.getAttribute('aria-label') || '', ...labels,
          at.type === 'text' || at.tagName === 'BUTTON' ? named?.textContent || '' : ''].map(told => told.trim());
}"""


def tab_to(page: Any, name: str, *, most: int = 60) -> None:
    """Press Tab until the focused element is called `name`; its focus must be visible."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if any(text.startswith(name) for text in page.evaluate(FOCUSED)):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    raise AssertionError(f"{name!r} cannot be reached with Tab")


def test_comparing_two_entries(page: Any, board: RealBoard, entries: tuple[str, str]) -> None:
    page.goto(f"{board.url}/entry?id={entries[0]}")
    page.get_by_role("link", name="Compare with another entry").click()
    page.get_by_text("Choose two entries.").wait_for()
    page.get_by_label("Entry B").select_option("Phantom Net S v1, Example Hospital")
    page.wait_for_selector("#compare .rv-compare tbody tr")
    assert page.url.endswith(f"a={entries[0]}&b={entries[1]}")
    page.reload()  # the address determines the view, now from stored results
    page.wait_for_selector("#compare .rv-compare tbody tr")
    rows = page.locator("#compare .rv-compare tbody tr").all_inner_texts()
    assert any("Cardiomegaly" in row for row in rows)
    assert not any("Pneumothorax" in row for row in rows), "a hidden finding is compared"


def test_a_token_made_on_the_page_lets_the_client_submit(page: Any, board: RealBoard, secrets: dict[str, str]) -> None:
    board.sign_in(page, "omar")
    page.get_by_role("button", name="Create a token").click()
    page.get_by_label("Purpose").fill("a program")
    page.get_by_role("button", name="Create token").click()
    secret = page.locator("#token-answer .rv-secret").inner_text()
    metadata = {"model": {"name": "By client"}, "organization": OTHER_TEAM, "kind": "cnn"}
    sent = client.Server(board.url, secret).submit(board.file(), benchmark=BENCHMARK, metadata=metadata)
    assert sent["is_new"]
    page.goto(f"{board.url}/mine")
    page.locator("#tokens tr", has_text="a program").get_by_role("button", name="Revoke").click()
    page.get_by_text("Token revoked.").wait_for()
    assert secret not in page.content()


def test_a_second_version_takes_over_and_the_first_is_frozen(
    page: Any, board: RealBoard, entries: tuple[str, str]
) -> None:
    refresh = ("refresh", BENCHMARK, "--to", NEW)
    wait_until(lambda: board.admin(*refresh).rstrip().endswith("and 0 left"), pause=ASKING)
    board.admin(*refresh, "--switch")

    page.goto(board.url)
    page.wait_for_selector("#board .rv-summary")
    assert NEW in page.inner_text("#board .rv-summary")
    page.get_by_text(f"Rank changes in version {NEW}").click()
    assert page.locator("#board .rv-moves tbody tr").count() >= 2
    page.get_by_label("Version").select_option(OLD)
    page.get_by_text(f"Frozen, not the current version, which is {NEW}.").wait_for()

    page.goto(f"{board.url}/entry?id={entries[0]}&version={OLD}")
    page.wait_for_selector("#entry .rv-score")
    assert f"version {OLD}" in page.inner_text("#entry header")
    versions = page.locator("#entry .rv-list li").all_inner_texts()
    assert [text.split(",")[0] for text in versions] == [OLD, NEW]
