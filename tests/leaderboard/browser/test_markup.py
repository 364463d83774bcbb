"""Texts of users stay text: on every page that shows them, no script runs, no other host is contacted, and all texts
can be read.

The store is filled behind the backs of those who check names, so that the pages are tested and not the checks: every
field of every submission, team, person, token, reason, file and answer is hostile in one of the ways of `HOSTILE`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from reveal_leaderboard.accounts.people import Team, User
from reveal_leaderboard.store import boards, tables
from reveal_leaderboard.store.scores import raise_flag
from reveal_leaderboard.store.store import Submission

from reveal_bench.kinds.tasks.records import TaskAnswer
from tests.leaderboard.browser.browsing import watched_page_of
from tests.leaderboard.browser.served import serving
from tests.leaderboard.browser.world import IMAGES, STUDIES, TASKS, World

pytestmark = pytest.mark.browser
RUN = "window.ran=1;alert(1)"
AWAY = "https://elsewhere.invalid"
HOSTILE = {
    "script": f"<script>{RUN}</script>",
    "attribute": f"\"'><img src={AWAY}/a onerror='{RUN}'>",
    "svg": f'<svg onload="{RUN}"><a xlink:href="javascript:{RUN}">x</a></svg>',
    "address": f"javascript:{RUN}//https://",
    "markdown": f"[click](javascript:{RUN}) ![a]({AWAY}/b) <{AWAY}/c> **bold**",
    "entities": f"&lt;script&gt;{RUN}&lt;/script&gt; &#60;img src=x onerror={RUN}&#62;",
    "template": "${window.ran=1} {{window.ran=1}} {@html '<img src=x onerror=window.ran=1>'} {#if 1}x{/if}",
    "closing": f"</td></tr></table></div></main><iframe src='javascript:parent.{RUN}'></iframe><style>*{{color:red}}",
    "bidi": "\u202eltr.exe\u2066 \u200bwidth",
    "formula": f'=HYPERLINK("{AWAY}/d","x")',
}
HOSTILE["everything"] = " ".join(HOSTILE.values())
ANSWERS = ["\n".join(list(HOSTILE.values())[i::3]) for i in range(3)]
WATCH = """window.broken = [];
document.addEventListener('securitypolicyviolation',
  (event) => window.broken.push(event.effectiveDirective + ' ' + event.blockedURI));"""
OURS = ", ".join(f"[action='{path}']" for path in ("/", "/compare", "/logout"))
FOREIGN = f"script:not([src]):not([type]), iframe, object, embed, img:not([src^='data:']), form:not({OURS})"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Submission]]]:
    """The address, and one entry per way of being hostile."""
    world = World(tmp_path_factory.mktemp("markup"), names=(IMAGES, STUDIES, TASKS))
    me = world.accounts.sign_in("local", "local", HOSTILE["attribute"], as_admin=True)
    own = world.accounts.local_actor().memberships[0].team
    entries = {}
    for i, (name, text) in enumerate(HOSTILE.items()):
        user, team = world.member(text, f"Team {i}")
        entries[name] = send(world, user, team, text)
        world.score(0.4 + 0.05 * i)
    refuse_and_hide(world, me, own)
    send(world, me, own, "Answers", benchmark=TASKS)
    answers = [TaskAnswer(f"t{i}", answer) for i, answer in enumerate(ANSWERS)]
    world.queue.await_readers(world.work("score", TASKS), who="worker:1", answers=answers)
    with world.store.write() as connection:  # names that no form lets through
        for i, text in enumerate(HOSTILE.values()):
            connection.execute(tables.teams.update().where(tables.teams.c.name == f"Team {i}").values(name=text))
        boards.set_state(connection, STUDIES, "paused", who="test", why=" ".join(HOSTILE.values()))
    with serving(world) as address:
        yield address, entries


def send(world: World, user: User, team: Team, text: str, **options: Any) -> Submission:
    metadata = {
        "model": {"name": text, "version": text},
        "prompt_style": text,
        "parameters": {text: text},
        "thresholds": {text: 0.5},
        "training_data": text,
        "known_overlap": text,
        "links": {"code": text, "paper": text, "model": f"https://{text}"},
    }
    return world.send(user, team, text, metadata=metadata, prompt_style=text, filename=text, **options)


def refuse_and_hide(world: World, me: User, own: Team) -> None:
    """Add reasons that the team sees, a flag for the maintainers, and a token's name."""
    for text in HOSTILE.values():
        send(world, me, own, text)
        world.queue.refuse(world.work("score"), who="worker:1", why=text)
    hidden = send(world, me, own, "Hidden")
    world.score(0.9)
    world.store.hide(hidden.id, who="test", why=" ".join(HOSTILE.values()))
    with world.store.write() as connection:
        raise_flag(connection, hidden.id, "twin", None, " ".join(HOSTILE.values()))
    world.accounts.issue_token(me, own, name="token", scopes=["read"], days=1)
    with world.store.write() as connection:
        connection.execute(tables.tokens.update().values(name=" ".join(HOSTILE.values())))


@pytest.fixture
def page(context: Any, board: tuple[str, dict[str, Submission]]) -> Iterator[Any]:
    """A page that afterwards has opened no dialog, besides what every page must not do."""
    dialogs: list[str] = []

    def dismiss(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    with watched_page_of(context, board[0]) as page:
        page.add_init_script(WATCH)
        page.on("dialog", dismiss)
        yield page
        assert dialogs == []


def assert_is_text(page: Any, place: str, texts: list[str]) -> None:
    """Check that no script ran or was attempted, no element comes from a user's text, and every text can be read as it
    was entered.
    """
    page.wait_for_timeout(100)  # an image that cannot be loaded says so a moment later
    assert page.evaluate("[window.ran ?? null, window.broken]") == [None, []]
    assert page.locator(f"{place} :is({FOREIGN})").count() == 0
    assert page.locator(f"{place} a[href^='javascript' i], {place} [onload], {place} [onerror]").count() == 0
    missing = texts
    for _ in range(100):  # what a board shows comes after its frame
        markup = squeezed(page.locator(place).first.evaluate("element => element.textContent"))
        missing = [text for text in texts if squeezed(text) not in markup]
        if not missing:
            break
        page.wait_for_timeout(100)
    assert page.locator(f"{place} :is({FOREIGN})").count() == 0
    assert missing == [], f"not to be read on {page.url}"


def squeezed(text: str) -> str:
    return "".join(text.split())


def opened(page: Any, board: tuple[str, Any], path: str, expected: str) -> None:
    page.goto(board[0] + path)
    page.wait_for_selector(expected)


def test_the_board_its_plots_and_its_choices(page: Any, board: Any) -> None:
    opened(page, board, f"/?benchmark={IMAGES}&columns=point_hit", "#board .rv-board")
    for place in ("#board .rv-board", "#board .rv-heat"):
        assert_is_text(page, place, list(HOSTILE.values()))
    options = page.get_by_label("Team").locator("option").all_text_contents()
    assert {squeezed(text) for text in HOSTILE.values()} <= {squeezed(sentence) for sentence in options}
    assert_is_text(page, "main", [])
    opened(page, board, f"/?benchmark={STUDIES}", "#board .rv-message")
    assert_is_text(page, "#board", list(HOSTILE.values()))


@pytest.mark.parametrize("name", ["everything", "address"])  # an address matters if it is alone
def test_an_entry(page: Any, board: Any, name: str) -> None:
    opened(page, board, f"/entry?id={board[1][name].id}", "#entry .rv-score")
    assert_is_text(page, "#entry .rv-head", [HOSTILE[name]])
    facts = page.locator("#entry .rv-facts-list dd").all_inner_texts()
    n_told = sum(squeezed(HOSTILE[name]) in squeezed(sentence) for sentence in facts)
    assert n_told >= 8, facts
    assert_is_text(page, "#entry", [])


def test_a_comparison(page: Any, board: Any) -> None:
    a, b = (board[1][name].id for name in ("markdown", "template"))
    opened(page, board, f"/compare?a={a}&b={b}", "#compare .rv-compare")
    assert_is_text(page, "#compare", [HOSTILE[name] for name in ("markdown", "template")])
    assert page.get_by_label("Entry A").locator("option").count() == len(HOSTILE) + 1
    assert_is_text(page, "main", [])


def test_what_is_ones_own(page: Any, board: Any) -> None:
    opened(page, board, "/mine", "#submissions table")
    assert_is_text(page, "#submissions", list(HOSTILE.values()))
    page.wait_for_selector("#tokens table")
    assert_is_text(page, "#tokens", list(HOSTILE.values()))
    assert_is_text(page, "main", [HOSTILE["attribute"]])  # the person's name


def test_what_maintainers_see(page: Any, board: Any) -> None:
    opened(page, board, "/admin", ".rv-health")
    for tab in ("Health", "Boards", "Submissions", "People"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(300)
        assert_is_text(page, "main", [] if tab == "Health" else list(HOSTILE.values()))


def test_an_answer_that_a_reader_is_shown(page: Any, board: Any) -> None:
    seen = set()
    opened(page, board, "/read", "#reading .rv-toml")
    for number in range(1, len(ANSWERS) + 1):
        assert_is_text(page, "main", [])
        seen.add(page.locator("#reading .rv-toml").inner_text())
        for name in ("process", "execution", "synthesis", "language"):
            page.locator(f"#score-{name} input").first.check()
        page.locator("#save").click()
        if number < len(ANSWERS):
            page.locator("#reading .rv-note", has_text=f"{number} of").first.wait_for()
    page.get_by_text("You have scored all answers.").wait_for()
    assert seen == set(ANSWERS)


def test_a_file_whose_name_and_content_are_hostile(page: Any, board: Any) -> None:
    lines = [json.dumps({"image_id": text, "finding": text, "points": text, text: text}) for text in HOSTILE.values()]
    content = "\n".join([*lines, *HOSTILE.values()]).encode()
    name = f"<img src=x onerror={RUN}> ${{window.ran=1}}.jsonl"
    opened(page, board, "/submit", "#balance .rv-balance")
    field = page.locator(".block", has_text="Prediction file").locator("input[type=file]").last
    field.set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})
    page.wait_for_selector("#report .rv-lint")
    begin = ["<script>", "<svg onload=", "[click](javascript:", "${window.ran=1}", "=HYPERLINK("]  # the rest is cut off
    assert_is_text(page, "#report", begin)
    metadata = json.dumps({"model": {"name": HOSTILE["script"]}, "organization": HOSTILE["template"], "kind": "x"})
    described = page.locator(".block", has_text="Fill the form").locator("input[type=file]").last
    described.set_input_files({"name": "submission.json", "mimeType": "text/plain", "buffer": metadata.encode()})
    page.wait_for_selector("#filled .rv-bad")
    assert_is_text(page, "#filled", [HOSTILE["script"], HOSTILE["template"][:32]])  # the rest is cut off
    assert_is_text(page, "main", [])


def test_what_an_address_says(page: Any, board: Any) -> None:
    names = ("benchmark", "version", "search", "kind", "organization", "sort", "columns", "id", "a", "b", "sent")
    asked = urlencode(dict.fromkeys(names, HOSTILE["everything"]))
    places = {"/": "#board .rv-summary", "/entry": "#entry .rv-message", "/compare": "#compare .rv-message"}
    for path, expected in places.items():
        opened(page, board, f"{path}?{asked}", expected)
        assert_is_text(page, "main", [])
