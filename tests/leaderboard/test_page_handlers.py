"""Rights on the pages: every handler is called as a browser could call it, with ids of others."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from reveal_leaderboard.accounts.people import User
from reveal_leaderboard.store import boards, quota
from reveal_leaderboard.store.tables import events
from reveal_leaderboard.web.app import READ_PAGES
from reveal_leaderboard.web.link_preview import LinkPreviews
from reveal_leaderboard.web.pages import admin, entry, mine, submit
from reveal_leaderboard.web.pages.plain import add_read_pages
from reveal_leaderboard.web.pages.submit import FIELDS
from reveal_leaderboard.web.services import NotAdminError
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from tests.leaderboard.browser.world import IMAGES, STUDIES, World
from tests.leaderboard.databases import Kept
from tests.leaderboard.elements import texts_in

FORM = ["Net", "1.0", "Northern Lab", "cnn", "none (not prompted)", None, None, None, None, None]
assert len(FORM) == len(FIELDS)


@pytest.fixture(scope="module")
def kept_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A board with an admin, two teams, and a scored submission of each."""
    world = World(tmp_path_factory.mktemp("pages"), mode="oidc")
    world.boss, _ = world.member("Boss", "Maintainers", is_admin=True)  # type: ignore[attr-defined]
    world.ada, world.north = world.member("Ada", "Northern Lab")  # type: ignore[attr-defined]
    world.bo, world.south = world.member("Bo", "Southern Lab")  # type: ignore[attr-defined]
    world.mine = world.send(world.ada, world.north, "Mine")  # type: ignore[attr-defined]
    world.score(0.7)
    world.theirs = world.send(world.bo, world.south, "Theirs")  # type: ignore[attr-defined]
    world.score(0.6)
    yield world
    world.store.engine.dispose()


@pytest.fixture
def world(kept_world: World) -> Iterator[World]:
    """The same board for every test, as it was made."""
    kept = Kept(kept_world.store.engine)
    yield kept_world
    kept.put_back()


def asking(world: Any, user: User | None, **query: str) -> Any:
    """A request of `user`'s browser."""
    world.auth.user = user
    return SimpleNamespace(request=None, query_params=query)


def click(act: str, subject: str = "", why: str = "") -> gr.EventData:
    return gr.EventData(None, {"act": act, "id": subject, "why": why})


def n_events(world: Any) -> int:
    with world.store.read() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(events)).scalar_one())


# Admin ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["visitor", "member"])
def test_nobody_but_an_admin_is_sent_anything_or_changes_anything(world: Any, who: str) -> None:
    user = None if who == "visitor" else world.ada
    handlers, request = admin.AdminHandlers(world.services), asking(world, user)
    before = n_events(world)
    opened = handlers.open(request)
    assert opened[0]["visible"] is False
    assert set(opened[3:]) == {""}
    assert set(handlers.refresh(request, "")) | set(handlers.live(request)) == {""}
    subjects = (world.theirs.id, world.south.id, world.bo.id, f"{IMAGES}:1.0.0")
    for act in admin.Acts(world.services)._by_name:
        for subject in subjects:
            reply, *panels = handlers.act(request, click(act, subject, "because"), "")
            assert "only an admin may do this" in reply
            assert set(panels) == {""}
    assert "only an admin" in handlers.set_state(request, IMAGES, "closed", "because", "")[0]
    assert "only an admin" in handlers.grant(request, world.north.id, IMAGES, 5, "because", "")[0]
    assert n_events(world) == before
    with pytest.raises(NotAdminError, match="only an admin"):
        world.services.admin(request)


def test_an_admin_hides_with_a_reason_and_restores(world: Any) -> None:
    handlers, request = admin.AdminHandlers(world.services), asking(world, world.boss)
    assert "a reason is required" in handlers.act(request, click("hide-now", world.theirs.id, " "), "")[0]
    assert world.store.get(world.theirs.id).hidden_at is None
    handlers.act(request, click("hide-now", world.theirs.id, "copied"), "")
    assert world.store.get(world.theirs.id).hidden_why == "copied"
    handlers.act(request, click("restore-now", world.theirs.id, "not copied"), "")
    assert world.store.get(world.theirs.id).hidden_at is None


def test_an_admin_closes_others_but_not_the_own_account(world: Any) -> None:
    handlers, request = admin.AdminHandlers(world.services), asking(world, world.boss)
    handlers.act(request, click("close-user", world.bo.id), "")
    assert world.accounts.user(world.bo.id).disabled_at is not None
    for act in ("close-user", "no-admin"):
        assert "your own account" in handlers.act(request, click(act, world.boss.id), "")[0]
    assert world.accounts.user(world.boss.id).is_admin


def test_a_board_is_paused_with_a_reason_only(world: Any) -> None:
    handlers, request = admin.AdminHandlers(world.services), asking(world, world.boss)
    assert "a reason is required" in handlers.set_state(request, IMAGES, "paused", "", "")[0]
    handlers.set_state(request, IMAGES, "paused", "labels are mended", "")
    with world.store.read() as connection:
        assert boards.board(connection, IMAGES).state == "paused"  # type: ignore[union-attr]


def test_panels_show_the_queue_and_incidents_by_number_and_time_only(world: Any) -> None:
    world.send(world.ada, world.north, "Broken")
    world.queue.fail(world.work(), who="worker:1", why="secret of the holdout", incident="INC-1")
    handlers = admin.AdminHandlers(world.services)
    panels = dict(zip(admin.PANELS, handlers.open(asking(world, world.boss))[3:], strict=True))
    assert "INC-1" in panels["incidents"]
    assert "secret of the holdout" not in "".join(panels.values())
    assert "landlock-4" in panels["workers"]
    assert "Theirs" in panels["submissions"]
    assert "cannot be read now" not in "".join(panels.values())


# My submissions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["withdraw", "withdraw-now", "choose"])
def test_anothers_submission_can_be_neither_withdrawn_nor_chosen(world: Any, act: str) -> None:
    handlers, before = mine.MineHandlers(world.services), n_events(world)
    reply = handlers.act(asking(world, world.ada), click(act, world.theirs.id), world.south.id, IMAGES)
    assert "this submission is not yours" in reply[0]
    assert "Theirs" not in "".join(reply)
    assert "not signed in" in handlers.act(asking(world, None), click(act, world.theirs.id), world.south.id, IMAGES)[0]
    assert n_events(world) == before


def test_a_withdrawal_is_asked_about_first(world: Any) -> None:
    handlers, request = mine.MineHandlers(world.services), asking(world, world.ada)
    asked = handlers.act(request, click("withdraw", world.mine.id), world.north.id, IMAGES)[0]
    assert "stays charged" in asked
    assert world.store.get(world.mine.id).withdrawn_at is None
    handlers.act(request, click("withdraw-now", world.mine.id), world.north.id, IMAGES)
    assert world.store.get(world.mine.id).withdrawn_at is not None


def test_only_an_open_board_lets_a_team_choose(world: Any) -> None:
    world.send(world.ada, world.north, "Mine")
    world.score(0.8)  # shown from now on, so that the first can be chosen
    handlers = mine.MineHandlers(world.services)

    def n_buttons() -> int:
        return "".join(handlers.show(asking(world, world.ada), world.north.id, IMAGES)).count("Show on board")

    before = n_buttons()
    with world.store.write() as connection:
        boards.set_state(connection, IMAGES, "closed", who="test", why="the round is over")
    assert (before > 0, n_buttons()) == (True, 0)


def test_a_team_is_shown_to_its_members_only(world: Any) -> None:
    handlers = mine.MineHandlers(world.services)
    own = "".join(handlers.show(asking(world, world.ada), world.north.id, IMAGES))
    assert "Mine" in own
    assert "left for your team: 9 of 10" in own
    others = "".join(handlers.show(asking(world, world.ada), world.south.id, IMAGES))
    assert "Theirs" not in others
    assert "Bo" not in others
    assert "Mine" not in "".join(handlers.show(asking(world, None), world.north.id, IMAGES))


def test_an_owner_invites_and_only_the_person_accepts(world: Any) -> None:
    handlers = mine.MineHandlers(world.services)
    assert "Not done" in handlers.act(asking(world, world.ada), click("remove", world.bo.id), world.south.id, IMAGES)[0]
    reply = handlers.invite(asking(world, world.ada), world.north.id, IMAGES, world.bo.id, "reader")
    assert "Bo is invited to Northern Lab as reader" in reply[0]
    assert "invited until" in reply[3]
    reply = handlers.invite(asking(world, world.bo), world.north.id, IMAGES, world.bo.id, "owner")
    assert "Not invited" in reply[0]
    assert [role for _, role in world.accounts.members(world.north)] == ["owner"]  # nobody is added unasked
    offered = handlers.open(asking(world, world.bo))[0]
    assert "Ada invites you to Northern Lab as reader" in offered
    invitation = offered.split('data-act="accept" data-id="')[1].split('"')[0]
    assert (
        "this invitation expired"
        in handlers.answer(asking(world, world.ada), click("accept", invitation), None, IMAGES)[0]
    )
    reply = handlers.answer(asking(world, world.bo), click("accept", invitation), world.south.id, IMAGES)
    assert "You have joined Northern Lab" in reply[0]
    assert "Ada invites you" not in reply[1]
    reply = handlers.invite(asking(world, world.bo), world.north.id, IMAGES, world.bo.id, "owner")
    assert "Not done" in reply[0]
    assert [role for _, role in world.accounts.members(world.north)] == ["owner", "reader"]
    listed = handlers.show(asking(world, world.bo), world.north.id, IMAGES)[0]
    assert 'data-act="withdraw"' not in listed  # a reader sees, and changes nothing


def test_a_tokens_secret_is_in_one_answer_and_nowhere_else(world: Any) -> None:
    handlers = mine.TokenHandlers(world.services)
    reply, listed = handlers.issue(asking(world, world.ada), world.north.id, "cluster", 30, ["read", "submit"])
    (secret,) = texts_in(reply, "code")
    assert world.accounts.token_actor(secret).user.name == "Ada"
    assert secret not in listed
    assert secret not in handlers.show(asking(world, world.ada))
    token = world.accounts.tokens_of(world.ada)[0]
    handlers.revoke(asking(world, world.bo), click("revoke", token.id))
    assert world.accounts.token_actor(secret) is not None
    handlers.revoke(asking(world, world.ada), click("revoke", token.id))
    assert world.accounts.token_actor(secret) is None


def test_a_token_is_nobody_on_pages_which_do_not_check_its_scopes(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = world.send(world.ada, world.north, "Waiting")
    token, secret = world.accounts.issue_token(world.ada, world.north, name="cluster", scopes=["submit"])
    monkeypatch.setattr(world.auth, "actor", lambda request: world.accounts.token_actor(secret))
    assert "Waiting" not in read_page(world, f"/entry?id={waiting.id}").text
    page = read_page(world, f"/submission?id={waiting.id}")
    assert (page.status_code, "Waiting" in page.text, "Signed in" in page.text) == (404, False, False)
    reply = mine.MineHandlers(world.services).invite(asking(world, None), world.north.id, IMAGES, world.bo.id, "owner")
    assert "not signed in" in reply[0]
    mine.TokenHandlers(world.services).revoke(asking(world, None), click("revoke", token.id))
    assert world.accounts.token_actor(secret) is not None


@pytest.mark.parametrize("team", ["south", "none"])
def test_no_token_is_issued_for_a_team_of_others(world: Any, team: str) -> None:
    team_id = world.south.id if team == "south" else None
    reply, _ = mine.TokenHandlers(world.services).issue(asking(world, world.ada), team_id, "cluster", 30, ["submit"])
    assert "No token was created" in reply
    assert world.accounts.tokens_of(world.ada) == []


# Submit ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def good_file(world: Any, tmp_path: Path) -> str:
    manifest = world.boards[IMAGES].manifest
    lines = [
        f'{{"image_id": "{image}", "finding": "{finding}", "point": [{5 + i % 50}, {4 + i % 7}]}}'
        for i, (image, finding) in enumerate(manifest.asked_pairs())
    ]
    path = tmp_path / "good.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_a_visitor_is_asked_to_sign_in_before_anything_is_read(world: Any, good_file: str) -> None:
    handlers, request = submit.SubmitHandlers(world.services), asking(world, None)
    assert handlers.check(request, good_file, IMAGES, False)[0] == submit.SIGN_IN
    assert handlers.send(request, good_file, IMAGES, False, {}, *FORM) == submit.SIGN_IN
    assert handlers.ask(request, good_file, IMAGES, False, {}, *FORM)[0] == submit.SIGN_IN
    assert handlers.open(request)[0] == submit.SIGN_IN


def test_a_good_file_is_linted_asked_about_sent_once_and_watched(world: Any, good_file: str) -> None:
    handlers, request = submit.SubmitHandlers(world.services), asking(world, world.ada)
    asked = (good_file, IMAGES, False, {}, *FORM)
    report, is_clean = handlers.check(request, good_file, IMAGES, False)
    assert "can be sent: 60 predictions" in report
    assert is_clean is True
    question = handlers.ask(request, *asked)[0]
    assert f"Send Net for Northern Lab to {IMAGES} 1.0.0?" in question
    assert "<b>9 of 10 left</b>" in question
    assert handlers.answer(request, click("keep"), *asked)[0] == ""
    assert world.store.count_waiting() == 0  # a question spends nothing
    visible, balance = handlers.answer(request, click("send"), *asked)
    sent = re.search(r"/submission\?id=(\w+)", visible)[1]  # type: ignore[index]
    assert "<b>8 of 10 left</b>" in balance
    assert f"/submission?id={sent}" in handlers.send(request, *asked)

    def watched(user: User | None) -> Any:
        return read_page(world, "/submission", user, id=sent)

    assert "In the queue, position 1." in watched(world.ada).text
    assert " data-refresh" in watched(world.ada).text
    for other in (world.bo, None):  # not theirs to watch
        assert "Net" not in watched(other).text
        assert watched(other).status_code == 404
    world.score(0.9)
    assert "Net is scored." in watched(world.ada).text
    assert f"/entry?id={sent}" in watched(world.ada).text
    world.rank({sent: (1, 1, 2, "A")})
    assert "Rank 1–2 of 3, tier A." in watched(world.ada).text
    assert " data-refresh" not in watched(world.ada).text


def test_only_what_is_complete_can_be_sent_and_of_several_teams_none_is_chosen(world: Any) -> None:
    handlers, request = submit.SubmitHandlers(world.services), asking(world, world.ada)
    assert handlers.open(request)[1]["value"] == "Northern Lab"
    world.accounts.create_team("Aardvark Lab", owner=world.ada, who=f"user:{world.boss.id}")
    assert handlers.open(asking(world, world.ada))[1]["value"] is None
    button, missing, _ = handlers.ready(request, True, " ", None, IMAGES)
    assert button["interactive"] is False
    assert "the model’s name, the team" in missing
    assert handlers.ready(request, True, "Net", "Northern Lab", IMAGES)[0]["interactive"] is True
    assert handlers.ready(request, False, "Net", "Northern Lab", IMAGES)[0]["interactive"] is False
    with world.store.write() as connection:
        boards.set_state(connection, IMAGES, "paused", why="looked at", who="test")
    assert handlers.ready(request, True, "Net", "Northern Lab", IMAGES)[0]["interactive"] is False


@pytest.mark.parametrize(
    ("field", "value", "reply"),
    [(0, "", "Model name"), (2, None, "Team"), (5, "http://x", "Code")],
    ids=["name", "no-organization", "link"],
)
def test_what_is_wrong_with_the_form_stands_at_its_field(
    world: Any, good_file: str, field: int, value: str | None, reply: str
) -> None:
    form: list[Any] = list(FORM)
    form[field] = value
    handlers = submit.SubmitHandlers(world.services)
    visible, folded, *at_fields = handlers.ask(asking(world, world.ada), good_file, IMAGES, False, {}, *form)
    assert reply in visible
    assert [i for i, update in enumerate(at_fields) if update["elem_classes"]] == [field]
    assert at_fields[field]["info"] in html.unescape(visible)
    assert folded.get("open", False) is (field == 5)  # a fault is never folded away
    assert reply in handlers.send(asking(world, world.ada), good_file, IMAGES, False, {}, *form)
    assert world.store.count_waiting() == 0


def test_nothing_is_sent_for_a_team_of_others(world: Any, good_file: str) -> None:
    form = [*FORM[:2], "Southern Lab", *FORM[3:]]
    handlers = submit.SubmitHandlers(world.services)
    assert "none of your teams" in handlers.send(asking(world, world.ada), good_file, IMAGES, False, {}, *form)
    assert world.store.count_waiting() == 0


def test_a_spent_budget_and_a_closed_board_are_told(world: Any, good_file: str) -> None:
    handlers = submit.SubmitHandlers(world.services)
    for n in range(9):
        world.send(world.ada, world.north, f"Net {n}")
    visible = handlers.send(asking(world, world.ada), good_file, IMAGES, False, {}, *FORM)
    assert "no scored submission left for this version of the benchmark (10 of 10 used)." in visible
    balance = handlers.balance(asking(world, world.ada), IMAGES, "Northern Lab")
    assert "<b>0 of 10 left</b>" in balance
    with world.store.write() as connection:
        boards.set_state(connection, IMAGES, "closed", who="test", why="the round is over")
    assert "the round is over" in handlers.send(asking(world, world.ada), good_file, IMAGES, False, {}, *FORM)


def test_a_balance_is_shown_for_ones_own_team_only(world: Any) -> None:
    handlers = submit.SubmitHandlers(world.services)
    assert handlers.balance(asking(world, world.ada), IMAGES, "Southern Lab") == ""
    assert handlers.balance(asking(world, None), IMAGES, "Northern Lab") == ""


def test_the_form_is_filled_from_a_file_and_nothing_of_it_is_lost(world: Any, tmp_path: Path) -> None:
    path = tmp_path / "submission.json"
    path.write_text(
        '{"model": {"name": "Filled"}, "organization": "northern LAB", "kind": "cnn", "thresholds": 0.5,'
        ' "parameters": {"size": 3}, "links": {"paper": "https://example.org/p"}}',
        encoding="utf-8",
    )
    handlers = submit.SubmitHandlers(world.services)
    reply, more, *values = handlers.fill(asking(world, world.ada), str(path), *FORM)
    inputs = dict(zip(FIELDS, values, strict=True))
    assert (inputs["model.name"], inputs["organization"], inputs["kind"]) == ("Filled", "Northern Lab", "cnn")
    assert inputs["links.paper"] == "https://example.org/p"
    assert more == {"parameters": {"size": 3}, "thresholds": 0.5}
    assert "Also sent: parameters, thresholds." in reply
    reply, _, *values = handlers.fill(asking(world, world.bo), str(path), *FORM)
    assert values[2] is None
    assert "You are not a member of the file" in reply


@pytest.mark.parametrize(
    ("content", "reply"),
    [(b"{", "must be JSON"), (b"\xff\xfe", "must be UTF-8 text"), (b" " * 70_000, "at most 65536 bytes"),
     (b'{"model": {"name": "<b>"}, "organization": "a", "kind": "cnn"}', "&lt;b&gt;")],
    ids=["broken", "bytes", "large", "markup"],
)  # fmt: skip
def test_a_bad_submission_json_is_refused_with_the_reason(
    world: Any, tmp_path: Path, content: bytes, reply: str
) -> None:
    path = tmp_path / "submission.json"
    path.write_bytes(content)
    visible, more, *_ = submit.SubmitHandlers(world.services).fill(asking(world, world.ada), str(path), *FORM)
    assert reply in visible
    assert "has errors" in visible
    assert more == {}


# Entries and comparisons ----------------------------------------------------------------------------------------------


def test_what_is_hidden_or_withdrawn_is_seen_by_its_own_alone(world: Any) -> None:
    def seen_by(user: User | None, submission_id: str) -> bool:
        asking(world, user)
        row = world.store.get(submission_id)
        return entry.may_see(row, world.store.scores_of(submission_id), world.auth.actor(None))

    waiting = world.send(world.ada, world.north, "Waiting")
    for user, is_own in ((None, False), (world.bo, False), (world.ada, True), (world.boss, True)):
        assert seen_by(user, world.mine.id) is True
        assert seen_by(user, waiting.id) is is_own
    world.store.hide(world.mine.id, who="test", why="looked at")
    world.store.withdraw(world.theirs.id, who="test")
    assert [seen_by(user, world.mine.id) for user in (None, world.bo, world.ada)] == [False, False, True]
    assert [seen_by(user, world.theirs.id) for user in (None, world.ada, world.bo)] == [False, False, True]


@pytest.mark.parametrize(
    ("which", "reply"),
    [("none", "Choose two entries."), ("same", "You chose the same entry twice."), ("strange", "not on this board"),
     ("both", "between the released scores")],
)  # fmt: skip
def test_states_of_a_comparison(world: Any, which: str, reply: str) -> None:
    a, b = world.mine.id, world.theirs.id
    pair = {"none": ("", ""), "same": (a, a), "strange": (a, "f" * 32), "both": (a, b)}[which]
    text = read_page(world, "/compare", a=pair[0], b=pair[1]).text
    assert reply in text
    chosen = [entry_id if entry_id in (a, b) else "" for entry_id in pair]
    assert re.findall(r'value="([0-9a-f]*)" selected', text) == chosen


def test_compare_opens_with_the_first_two_places(world: Any) -> None:
    a, b = world.mine.id, world.theirs.id
    world.rank({a: (1, 1, 2, "A"), b: (1, 1, 2, "A")})
    text = read_page(world, "/compare").text
    assert [f'value="{entry_id}" selected' in text for entry_id in (a, b)] == [True, True]
    assert "Macro hit rate: A − B is +10 points" in text
    assert "tier A" in text


def test_the_other_boards_ledger_is_another_one(world: Any) -> None:
    with world.store.read() as connection:
        assert quota.balance(connection, world.north.id, STUDIES, "1.0.0", world.settings).left == 10
    visible = mine.MineHandlers(world.services).show(asking(world, world.ada), world.north.id, STUDIES)[1]
    assert "Nothing has been charged yet." in visible


GRADIO = b"""<!doctype html><html><head><meta property="og:title" content="Gradio" />
<meta name="twitter:description" content="Click to try out the app!" /></head>
<body class="x"><p>app</p></body></html>"""


async def like_gradio(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers every address with the same document, in two parts."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html; charset=utf-8")]}
    )
    await send({"type": "http.response.body", "body": GRADIO[:40], "more_body": True})
    await send({"type": "http.response.body", "body": GRADIO[40:]})


def read_page(world: World, path: str, user: User | None = None, **query: str) -> Any:
    """The answer to the browser of `user` on a page that is read."""
    app = FastAPI()
    asking(world, user)
    add_read_pages(app, world.services, READ_PAGES, [("Board", "/")])
    return TestClient(app).get(path, params=query or None)


@pytest.mark.parametrize(
    ("path", "status", "title"),
    [
        ("/", 200, "CheXlocalize · REVEAL leaderboard"),
        ("/?benchmark=nope", 404, "REVEAL leaderboard"),
        ("/entry?id={mine}", 200, "Mine v1.0, Northern Lab · REVEAL leaderboard"),
        ("/entry?id=0", 404, "Entry · REVEAL leaderboard"),
        ("/compare", 200, "Compare two entries · REVEAL leaderboard"),
        ("/about", 200, "About this leaderboard · REVEAL leaderboard"),
        ("/submit", 200, "Submit · REVEAL leaderboard"),
    ],
)
def test_a_page_says_what_it_is_before_any_script_runs(world: Any, path: str, status: int, title: str) -> None:
    address = path.format(mine=world.mine.id)
    answer = TestClient(LinkPreviews(like_gradio)).get(address) if path == "/submit" else read_page(world, address)
    assert answer.status_code == status
    assert f"<title>{title}</title>" in answer.text
    assert f'<meta property="og:title" content="{title}">' in answer.text
    assert not re.search("Gradio|Click to try", answer.text)
    assert answer.headers["content-length"] == str(len(answer.content))


def test_a_page_that_acts_says_that_it_needs_scripts() -> None:
    text = TestClient(LinkPreviews(like_gradio)).get("/submit").text
    assert "This page needs JavaScript." in text[text.index("<noscript>") : text.index("</noscript>")]


def test_a_board_is_read_and_changed_without_scripts(world: Any) -> None:
    """Its choices are a form with GET, its heads are links, and its policy forbids scripts in the page."""
    answer = read_page(world, "/", search="North", sort="point_hit:macro")
    assert answer.headers["content-security-policy"] == "script-src 'self'"
    assert answer.headers["vary"] == "Cookie"
    assert not re.search(r"<script(?! src=)| on\w+=", answer.text)
    assert answer.text.count("Northern Lab</span>") == 1
    assert "Southern Lab</span>" not in answer.text
    assert '<input type="hidden" name="sort" value="point_hit:macro">' in answer.text
    assert f'href="/?benchmark={IMAGES}&amp;version=1.0.0&amp;search=North&amp;sort=model"' in answer.text
    assert any(cell.startswith("70 ") for cell in texts_in(answer.text, "td"))


def test_what_a_visitor_may_not_see_is_not_described(world: Any) -> None:
    world.store.hide(world.mine.id, who="test", why="looked at")
    waiting = world.send(world.ada, world.north, "Waiting", benchmark=STUDIES)
    for path in (f"/entry?id={world.mine.id}", f"/entry?id={waiting.id}", f"/compare?a={waiting.id}"):
        seen, unknown = read_page(world, path).text, read_page(world, path.partition("=")[0] + "=" + "f" * 32).text
        assert seen == unknown
        assert "Northern Lab" not in seen


def test_a_page_that_cannot_be_drawn_says_so(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READ_PAGES, "/about", lambda services, request: 1 / 0)
    answer = read_page(world, "/about")
    assert (answer.status_code, "This page cannot be read now." in answer.text) == (503, True)


def test_the_opening_says_what_is_ranked_who_leads_and_how_sure_that_is(world: Any) -> None:
    text = read_page(world, "/", benchmark=IMAGES).text
    words = " ".join(re.sub("<[^>]+>", " ", text[text.index("<h1") :]).split())
    n = world.services.catalogue.current(IMAGES).n_items
    assert words.startswith(f"Where is each finding of a chest radiograph? Models ranked on {n} held-out images.")
    assert "No entry is ranked yet." in words  # nobody ranked them here
    assert "There is no board &#39;nope&#39;." in read_page(world, "/", benchmark="nope").text
