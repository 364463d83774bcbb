"""Signing in by a link: one use, an end, no forgery, and a page that asks first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient
from reveal_leaderboard.accounts.accounts import AccountDisabledError, Accounts
from reveal_leaderboard.accounts.links import mail_address
from reveal_leaderboard.accounts.people import NotPermittedError
from reveal_leaderboard.store import tables
from reveal_leaderboard.web.rate_limits import cost_of
from reveal_leaderboard.web.sign_in import add_sign_in
from reveal_leaderboard.web.sign_in_modes import Auth, ModeError, check_mode, open_auth
from typer.testing import CliRunner

from tests.leaderboard.databases import on_both
from tests.leaderboard.people_world import accounts, add_me, engine, later, me, person, steps

__all__ = ["accounts", "engine"]

HERE = "http://127.0.0.1:7860"
DAY = 86400.0
JANE = "jane@example.org"


@pytest.fixture
def browser(accounts: Accounts) -> Iterator[TestClient]:
    app = FastAPI(openapi_url=None)
    auth = open_auth(accounts, "links", {"REVEAL_URL": HERE})
    add_sign_in(app, auth)
    add_me(app, auth)
    with TestClient(app, base_url=HERE, follow_redirects=False) as browser:
        yield browser


@on_both
def test_a_link_works_once(engine: sa.Engine, accounts: Accounts) -> None:
    link = accounts.sign_in_link(JANE, "cli")
    session = accounts.use_link(link)
    actor = accounts.session_user(session)
    assert (actor.user.issuer, actor.user.subject, actor.user.name) == ("link", JANE, "jane")
    assert (actor.is_admin, actor.memberships) == (False, ())
    assert accounts.use_link(link) is None
    assert accounts.session_user(link) is None  # a link is not a session
    assert accounts.use_link(session) is None  # nor a session a link
    assert steps(engine, f"user:{actor.user.id}") == ["created", "sign-in link", "signed in"]
    with engine.connect() as connection:
        events = connection.execute(sa.select(tables.events.c.who, tables.events.c.why)).all()
    assert [row.who for row in events] == ["cli", "cli", f"user:{actor.user.id}"]
    assert not any(JANE in row.why or link in row.why for row in events)


def test_a_link_expires_and_its_session_lasts_thirty_days(engine: sa.Engine, accounts: Accounts) -> None:
    late, in_time = accounts.sign_in_link("a@example.org", "cli"), accounts.sign_in_link("b@example.org", "cli", days=8)
    later(engine, tables.sessions, 7 * DAY + 60, "created_at", "expires_at")
    assert accounts.use_link(late) is None
    session = accounts.use_link(in_time)
    later(engine, tables.sessions, 30 * DAY - 60, "created_at", "expires_at")
    assert accounts.session_user(session) is not None
    later(engine, tables.sessions, 120, "created_at", "expires_at")
    assert accounts.session_user(session) is None


def test_a_newer_link_takes_the_place_of_the_older_and_ends_no_session(accounts: Accounts) -> None:
    session = accounts.use_link(accounts.sign_in_link(JANE, "cli"))
    older = accounts.sign_in_link(JANE, "cli")
    newer = accounts.sign_in_link(" Jane@EXAMPLE.org", "cli")
    assert accounts.use_link(older) is None
    again = accounts.session_user(accounts.use_link(newer))
    assert again.user == accounts.session_user(session).user
    assert len(accounts.users()) == 1


@pytest.mark.parametrize("secret", ["", "x", "x" * 5000, "\ud800", "link-", "' OR 1=1 --"])
def test_a_forged_link_is_none(engine: sa.Engine, accounts: Accounts, secret: str) -> None:
    accounts.sign_in_link(JANE, "cli")
    assert accounts.use_link(secret) is None
    with engine.connect() as connection:  # what the database holds opens nothing either
        (held,) = connection.execute(sa.select(tables.sessions.c.key_hash)).scalars()
    assert accounts.use_link(held) is accounts.session_user(held) is None


def test_a_closed_account_has_no_link(accounts: Accounts) -> None:
    link = accounts.sign_in_link(JANE, "cli")
    (jane,) = accounts.users()
    accounts.disable(jane, "cli", "left")
    assert accounts.use_link(link) is None
    with pytest.raises(AccountDisabledError):
        accounts.sign_in_link(JANE, "cli")
    accounts.enable(jane, "cli")
    assert accounts.use_link(link) is None


def test_only_administrators_make_links(accounts: Accounts) -> None:
    bob = person(accounts, "bob")
    with pytest.raises(NotPermittedError, match="only administrators"):
        accounts.sign_in_link(JANE, me(bob))
    assert accounts.users() == [bob]


MERGED = ["weiß@example.org", "ｊane@example.org", "\u212aate@example.org"]  # the last with the sign of the kelvin


@pytest.mark.parametrize(
    "text", ["", "jane", "@example.org", "jane@", "a@b@c", "a b@example.org", "a@" + "x" * 200, *MERGED]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"must look like name@example\.org"):
        mail_address(text)


def test_opening_a_link_changes_nothing_and_its_button_signs_in(accounts: Accounts, browser: TestClient) -> None:
    link = accounts.sign_in_link(JANE, "cli")
    assert "Ask them for a link" in browser.get("/login").text
    for _ in range(2):  # a program that looks at mail, and a person
        opened = browser.get("/login/link", params={"key": link})
        assert (opened.status_code, opened.headers["cache-control"]) == (200, "no-store")
        assert f'name="key" value="{link}"' in opened.text
        assert browser.get("/me").status_code == 401
    used = browser.post("/login/link", data={"key": link})
    assert (used.status_code, used.headers["location"]) == (303, "/")
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Max-Age=2592000"} <= set(used.headers["set-cookie"].split("; "))
    assert browser.get("/me").json()["name"] == "jane"
    again = TestClient(browser.app, base_url=HERE).post("/login/link", data={"key": link})
    assert (again.status_code, again.cookies) == (403, {})
    assert "used before" in again.text
    assert browser.post("/login/link").status_code == 403


def test_a_key_is_shown_as_text(browser: TestClient) -> None:
    assert "<script" not in browser.get("/login/link", params={"key": '"><script>'}).text


def test_each_try_counts_as_a_sign_in() -> None:
    assert cost_of("POST", "/login/link") == cost_of("GET", "/login/callback") > cost_of("GET", "/login/link")


def test_the_mode_needs_its_address(accounts: Accounts) -> None:
    check_mode("links", "0.0.0.0", {"REVEAL_URL": "https://board.example.org"}, trusts_proxy=True)
    auth = open_auth(accounts, "links", {"REVEAL_URL": "https://board.example.org/"})
    assert (auth.cookie, "board.example.org" in auth.hosts) == ("__Host-reveal", True)
    for url in ("", "http://board.example.org", "https://board.example.org/x"):
        with pytest.raises(ModeError, match="REVEAL_URL must"):
            check_mode("links", "0.0.0.0", {"REVEAL_URL": url})
    with pytest.raises(ModeError, match="`address` must be given in the mode links only"):
        Auth(accounts, "links")


def test_the_command_prints_a_link_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reveal_leaderboard.cli import app
    from reveal_leaderboard.store.paths import resolve_paths

    accounts = Accounts(resolve_paths(tmp_path, None, None, None).open_store(is_new=True).engine)
    monkeypatch.setenv("REVEAL_URL", f"{HERE}/")
    printed = CliRunner().invoke(app, ["admin", "invite", JANE, "--data", str(tmp_path)])
    assert printed.exit_code == 0, printed.output
    address, key = printed.stdout.strip().split("?key=")
    assert address == f"{HERE}/login/link"
    assert accounts.use_link(key) is not None
    monkeypatch.delenv("REVEAL_URL")
    refused = CliRunner().invoke(app, ["admin", "invite", JANE, "--data", str(tmp_path)])
    assert (refused.exit_code, "REVEAL_URL must be set" in refused.stderr) == (1, True)
