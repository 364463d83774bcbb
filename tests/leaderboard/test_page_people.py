"""Teams that wait and tokens that leaked, on the pages: what an administrator can do, and what those concerned read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reveal_leaderboard.accounts.people import Actor, Membership, Team, Token, User
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.web.pages import admin, mine
from reveal_leaderboard.web.pages import admin as admin_panels
from reveal_leaderboard.web.pages import header as account_strip
from reveal_leaderboard.web.pages import mine as tokens
from reveal_leaderboard.web.pages.drawing import draw
from reveal_leaderboard.web.services import Services

from reveal_bench.kinds import KINDS
from tests.leaderboard.browser.world import IMAGES, World
from tests.leaderboard.test_board import XSS
from tests.leaderboard.test_page_handlers import asking, click


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A board that wants to be asked, its admin, and Ada, whose team waits."""
    world: Any = World(tmp_path, mode="oidc")
    world.store.settings = load_settings()
    world.boss, _ = world.member("Boss", "Maintainers", is_admin=True)
    world.ada = world.accounts.sign_in("https://id.example", "ada-7", "Ada")
    world.made = mine.MineHandlers(world.services).make_team(asking(world, world.ada), "Northern Lab", IMAGES)
    (membership,) = world.accounts.teams_of(world.ada)
    world.north = membership.team
    yield world
    world.store.engine.dispose()


def panels(world: Any) -> dict[str, str]:
    return dict(
        zip(
            admin_panels.PANELS, admin.AdminHandlers(world.services).refresh(asking(world, world.boss), ""), strict=True
        )
    )


def act(world: Any, name: str, subject: str, why: str = "", *, who: User | None = None) -> str:
    handlers = admin.AdminHandlers(world.services)
    return str(handlers.act(asking(world, who or world.boss), click(name, subject, why), "")[0])


def test_who_makes_a_team_is_told_that_it_waits_until_it_does_not(world: Any) -> None:
    answer, account, *_ = world.made
    assert "The team may submit once the maintainers have approved it." in answer
    assert "Northern Lab (owner, awaiting approval)" in account
    handlers = mine.MineHandlers(world.services)
    listed, _ = handlers.refresh(asking(world, world.ada), world.north.id, IMAGES)
    assert "Northern Lab is awaiting approval." in listed
    assert "No submissions yet" not in listed
    assert "is approved and may now submit" in act(world, "approve-team", world.north.id)
    listed, _ = handlers.refresh(asking(world, world.ada), world.north.id, IMAGES)
    assert "awaiting approval" not in listed
    assert "No submissions yet" in listed
    assert "waits" not in handlers.open(asking(world, world.ada))[0]


def test_an_administrators_team_does_not_wait(world: Any) -> None:
    text, account, *_ = mine.MineHandlers(world.services).make_team(asking(world, world.boss), "Eastern Lab", IMAGES)
    assert "You are its owner" in text
    assert "approved" not in text
    assert "awaiting approval" not in account


def test_an_open_board_lets_new_teams_submit_at_once(world: Any, tmp_path: Path) -> None:
    (tmp_path / "open.toml").write_text('[accounts]\nnew_teams = "open"\n', encoding="utf-8")
    world.store.settings = load_settings(tmp_path / "open.toml")
    bo = world.accounts.sign_in("https://id.example", "bo", "Bo")
    text = mine.MineHandlers(world.services).make_team(asking(world, bo), "Southern Lab", IMAGES)[0]
    assert "approved" not in text
    assert [m.team.waiting_since for m in world.accounts.teams_of(bo)] == [None]
    assert panels(world)["waiting"].count("approve-team") == 1  # who waited before waits on


def test_waiting_teams_come_first_with_who_asks(world: Any) -> None:
    names = list(admin_panels.PANELS)
    assert names.index("waiting") < names.index("teams")
    visible = panels(world)
    for word in ("Northern Lab", "Ada", "https://id.example: ada-7", "approve-team", "refuse-now"):
        assert word in visible["waiting"]
    assert "Northern Lab" not in visible["teams"]
    assert "1 team is awaiting approval." in admin.AdminHandlers(world.services).open(asking(world, world.boss))[1]
    assert "awaiting approval" not in admin.AdminHandlers(world.services).open(asking(world, world.ada))[1]
    act(world, "approve-team", world.north.id)
    visible = panels(world)
    assert "No team awaits approval." in visible["waiting"]
    assert "New teams appear here." in visible["waiting"]
    assert admin.AdminHandlers(world.services).open(asking(world, world.boss))[1] == ""
    assert "Northern Lab" in visible["teams"]
    assert "already been approved" in act(world, "approve-team", world.north.id)


def test_a_team_is_refused_with_a_reason_that_it_reads(world: Any) -> None:
    assert "a reason is required" in act(world, "refuse-now", world.north.id, " ")
    assert world.accounts.team(world.north.id).disabled_at is None
    assert "is refused and closed" in act(world, "refuse-now", world.north.id, "you have a team already")
    visible = panels(world)
    assert "Northern Lab" not in visible["waiting"]
    assert "not approved" in visible["teams"]
    account, _, listed, *_ = mine.MineHandlers(world.services).open(asking(world, world.ada))
    assert "The maintainers did not approve the team Northern Lab." in account
    assert "Reason: you have a team already" in account
    assert "you are not in a team yet" in listed.lower()
    act(world, "open-team", world.north.id)
    assert "Northern Lab" in panels(world)["waiting"]
    act(world, "approve-team", world.north.id)
    assert "already been approved" in act(world, "refuse-now", world.north.id, "too late")
    act(world, "close-team", world.north.id, "a copy of another")
    account = mine.MineHandlers(world.services).open(asking(world, world.ada))[0]
    assert "The maintainers closed the team Northern Lab." in account
    assert "Reason: a copy of another" in account


@pytest.mark.parametrize("name", ["approve-team", "refuse-now", "revoke-now"])
def test_nobody_else_approves_refuses_or_revokes(world: Any, name: str) -> None:
    token, secret = world.accounts.issue_token(world.ada, world.north, name="cluster")
    for subject in (world.north.id, token.id):
        assert "only an admin may do this" in act(world, name, subject, "because", who=world.ada)
    assert world.accounts.team(world.north.id) == world.north
    assert world.accounts.token_actor(secret) is not None


def test_an_administrator_revokes_one_token_with_a_reason_that_its_owner_reads(world: Any) -> None:
    token, secret = world.accounts.issue_token(world.ada, world.north, name="cluster", scopes=["read"])
    world.accounts.issue_token(world.ada, world.north, name="laptop", scopes=["read", "submit"])
    visible = panels(world)["tokens"]
    for word in ("cluster", "laptop", "Ada", "Northern Lab", token.id, "read, submit"):
        assert word in visible
    assert secret not in visible
    assert secret[4:] not in visible
    assert "Revoke …: cluster of Ada" in visible
    assert "a reason is required" in act(world, "revoke-now", token.id)
    assert world.accounts.token_actor(secret) is not None
    assert "cluster of Ada is revoked" in act(world, "revoke-now", token.id, "seen in a public notebook")
    assert world.accounts.token_actor(secret) is None
    assert "the token is unknown, expired or revoked" in act(world, "revoke-now", token.id, "again")
    visible = panels(world)["tokens"]
    assert "cluster" not in visible
    assert "laptop" in visible
    assert "seen in a public notebook" in tokens.TokenHandlers(world.services).show(asking(world, world.ada))


def test_texts_of_people_are_escaped_for_administrators_too() -> None:
    user, team = User("u", XSS, XSS, XSS), Team("t", XSS, None, 1.0)
    token = Token("k", "u", team, XSS, ("read",), 0.0, 1.0)
    for markup in (
        admin.waiting_view([(team, [(user, "owner")])], is_asked=True),
        admin.teams_view([Team("t", XSS)]),
        draw("admin.html", "users", [user], User("v", "i", "s", "Boss")),
        draw("admin.html", "tokens", [(token, XSS)], 200),
    ):
        assert "<img" not in markup
        assert "&lt;img" in markup


# The strip ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "kind", "leads"),
    [
        ("visitor", "tasks", False),
        ("admin", "tasks", True),
        ("reader", "tasks", True),
        ("member", "tasks", False),
        ("reader of others", "tasks", False),
        ("admin", "localization", False),
        ("local", "tasks", True),
    ],
)
def test_the_strip_leads_those_to_the_readers_page_who_may_read(
    tmp_path: Path, who: str, kind: str, leads: bool
) -> None:
    (tmp_path / "own.toml").write_text('[reading]\nteam = "Our readers"\n', encoding="utf-8")
    version = SimpleNamespace(scored_by=KINDS[kind].scoring.scored_by)
    intake: Any = SimpleNamespace(catalogue=SimpleNamespace(names=["board"], versions=lambda name: [version]))
    store: Any = SimpleNamespace(settings=load_settings(tmp_path / "own.toml"))
    nothing: Any = None
    team = Team("t", "Others" if who == "reader of others" else "our  READERS")
    memberships = (Membership(team, "member" if who == "member" else "reader"),) if who != "admin" else ()
    is_admin = who in ("admin", "local")
    scopes = frozenset(("read", "submit", "admin") if is_admin else ("read", "submit"))
    user = User("u", "i", "s", "Ada", is_admin)
    actor = None if who == "visitor" else Actor(user, memberships, scopes, "local" if who == "local" else "session")
    auth: Any = SimpleNamespace(actor=lambda _: actor)
    markup = account_strip.header_of(Services(store, nothing, intake, nothing, auth), None)
    assert ('href="/read"' in markup) is leads
    assert ('href="/admin"' in markup) is is_admin
