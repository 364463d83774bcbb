"""New teams that wait for approval: who waits, who approves, and that nothing is sent before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Actor, NotPermittedError, Team, User
from reveal_leaderboard.store.store import NewSubmission, NotAllowedError, Store
from reveal_leaderboard.web.pages.submit import WAITING, _account
from starlette.testclient import TestClient

from tests.leaderboard.api_app import SUBMISSIONS, World, kept_world, problem, world
from tests.leaderboard.conftest import BENCHMARK, METADATA
from tests.leaderboard.databases import on_both
from tests.leaderboard.people_world import accounts, engine, me, person, steps, team_of

__all__ = ["accounts", "engine", "kept_world", "world"]

WAITS = "Example Lab awaits the maintainers’ approval and may submit once approved"


def actor_of(accounts: Accounts, user: User) -> Actor:
    actor = accounts.session_user(accounts.new_session(user))
    assert actor is not None
    return actor


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "open"])
@pytest.mark.parametrize("by", ["self", "administrator", "operator"])
def test_only_a_team_that_no_administrator_made_waits(accounts: Accounts, by: str, is_asked: bool) -> None:
    jane, root = person(accounts, "jane"), person(accounts, "root", as_admin=True)
    who = {"self": me(jane), "administrator": me(root), "operator": "cli:somebody"}[by]
    team = accounts.create_team("Example Lab", owner=jane, who=who, is_asked=is_asked)
    waits = by == "self" and is_asked
    assert (team.waiting_since is not None) is waits
    assert accounts.team(team.id) == team
    assert [m.team for m in actor_of(accounts, jane).memberships] == [team]
    assert (actor_of(accounts, jane).team(team.id) is None) is waits
    assert _account(actor_of(accounts, jane)) == (WAITING if waits else "")


@on_both
def test_a_team_that_waits_submits_nothing_by_any_way_of_asking(engine: sa.Engine, accounts: Accounts) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane, is_asked=True)
    accounts.add_member(lab, bob, "member", "cli")
    _, secret = accounts.issue_token(bob, lab, name="cluster")
    by_token = accounts.token_actor(secret)
    for actor in (actor_of(accounts, jane), actor_of(accounts, bob), by_token):
        assert actor.belongs_to(lab.id)
        assert actor.team(lab.id) is None
        with pytest.raises(NotAllowedError, match=WAITS):
            accounts.team_to_submit_for(actor, "example  LAB")
    assert accounts.approve_team(lab, "cli")
    again = accounts.token_actor(secret)  # the token was issued before
    assert again is not None
    assert accounts.team_to_submit_for(again, "Example Lab") == accounts.team(lab.id)
    assert steps(engine, f"team:{lab.id}") == ["created", "member", "approved"]


@pytest.mark.parametrize("who", ["self", "", "user:nobody", "worker:one"])
def test_only_administrators_approve(accounts: Accounts, who: str) -> None:
    jane, root = person(accounts, "jane"), person(accounts, "root", as_admin=True)
    lab = team_of(accounts, jane, is_asked=True)
    with pytest.raises(NotPermittedError, match="only administrators"):
        accounts.approve_team(lab, me(jane) if who == "self" else who)
    assert accounts.approve_team(lab, me(root))
    assert not accounts.approve_team(lab, me(root))
    assert not accounts.approve_team(Team("nowhere", "Nowhere"), "cli")


def test_who_waits_makes_no_other_team_meanwhile(accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    team_of(accounts, jane, is_asked=True)
    with pytest.raises(NotPermittedError, match="you have already created a team"):
        team_of(accounts, jane, "Another", is_asked=True)


def test_a_refused_team_is_told_why_and_waits_again_when_it_is_opened(engine: sa.Engine, accounts: Accounts) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane, is_asked=True)
    accounts.disable(lab, "cli", "one team to a laboratory")
    (closed,) = accounts.closed_teams_of(jane)
    assert (closed[0].id, closed[0].waiting_since, closed[1]) == (lab.id, lab.waiting_since, "one team to a laboratory")
    assert accounts.closed_teams_of(bob) == []
    assert actor_of(accounts, jane).memberships == ()
    with pytest.raises(NotAllowedError, match="Example Lab is closed: one team to a laboratory"):
        accounts.team_to_submit_for(actor_of(accounts, jane), "example lab")
    with pytest.raises(ValueError, match="Example Lab is closed: open it again before you approve it"):
        accounts.approve_team(lab, "cli")
    accounts.enable(lab, "cli")
    assert accounts.closed_teams_of(jane) == []
    with pytest.raises(NotAllowedError, match=WAITS):
        accounts.team_to_submit_for(actor_of(accounts, jane), "Example Lab")
    assert accounts.approve_team(lab, "cli")
    assert steps(engine, f"team:{lab.id}") == ["created", "disabled", "enabled", "approved"]


def test_the_local_person_never_waits(accounts: Accounts) -> None:
    actor = accounts.local_actor()
    made = accounts.create_team("Anything", owner=actor.user, who=actor.name, is_asked=True)
    assert made.waiting_since is None
    assert all(m.team.waiting_since is None for m in actor.memberships)


@on_both
def test_the_store_refuses_what_slipped_by(database_url: str) -> None:
    """A request that looked before the team was known to wait is refused where it is written, with its team locked."""
    store = Store(database_url)
    accounts = Accounts(store.engine)
    jane = person(accounts, "jane")
    lab = team_of(accounts, jane, is_asked=True)
    new = NewSubmission(
        benchmark=BENCHMARK, version="1.0.0", split="holdout", team_id=lab.id, user_id=jane.id, model_name="Net",
        kind="cnn", prompt_style=None, metadata={}, filename="net.jsonl", sha256="0" * 64, size=1,
    )  # fmt: skip
    from reveal_leaderboard.store.boards import register_version

    with store.write() as connection:
        register_version(connection, BENCHMARK, "1.0.0", "holdout", {})
    for send in (store.check_sending, lambda it: store.add_submission(it, who=me(jane))):
        with pytest.raises(NotAllowedError, match=WAITS):
            send(new)
    assert store.list_submissions() == []
    accounts.approve_team(lab, "cli")
    store.check_sending(new)
    assert store.add_submission(new, who=me(jane))[0].status == "queued"
    store.engine.dispose()


# Over the API ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["token", "session"])
def test_an_upload_for_a_team_that_waits_is_a_problem_in_words(
    world: World, write_file: Callable[..., Path], way: str
) -> None:
    accounts = world.services.accounts
    jane = person(accounts, "jane")
    lab = team_of(accounts, jane, is_asked=True)
    _, secret = accounts.issue_token(jane, lab, name="cluster")
    sign_in = {"Authorization": f"Bearer {secret}"} if way == "token" else {}
    cookies = {"reveal": accounts.new_session(jane)} if way == "session" else {}
    client = TestClient(world.app, base_url="http://board.test", headers=sign_in, cookies=cookies)

    def send() -> httpx.Response:
        fields = {"benchmark": BENCHMARK, "metadata": json.dumps({**METADATA, "organization": "Example Lab"})}
        with write_file().open("rb") as stream:
            return client.post(SUBMISSIONS, data=fields, files={"file": ("good.jsonl", stream)})

    assert problem(send(), 409, "not-now")["detail"] == WAITS
    assert world.services.store.list_submissions() == []
    me_now = client.get("/api/v1/me").json()
    assert [team["name"] for team in me_now["teams"]] == ["Example Lab"]
    accounts.approve_team(lab, "cli")
    assert send().status_code == 202
