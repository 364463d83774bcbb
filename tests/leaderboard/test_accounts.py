"""People and teams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts.accounts import AccountDisabledError, Accounts, TeamNameError
from reveal_leaderboard.accounts.people import NotPermittedError, Team, User

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import on_both
from tests.leaderboard.people_world import ISSUER, accounts, engine, me, person, steps, team_of

__all__ = ["accounts", "engine"]


# People


def test_a_person_is_made_once_and_renamed(accounts: Accounts) -> None:
    first = accounts.sign_in(ISSUER, "7", "jane")
    again = accounts.sign_in(ISSUER, "7", "jane-doe")
    other = accounts.sign_in("https://other.example.org", "7", "jane")
    assert again.id == first.id != other.id
    assert [user.name for user in accounts.users()] == ["jane", "jane-doe"]
    assert accounts.user(first.id) == again
    assert accounts.user("nobody") is None


@on_both
def test_two_first_sign_ins_at_once_make_one_person(accounts: Accounts) -> None:
    assert len(set(at_once(lambda _: person(accounts, "jane").id, range(4)))) == 1


def test_who_is_listed_becomes_an_administrator_and_stays_one(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane", as_admin=True)
    assert jane.is_admin
    assert person(accounts, "jane").is_admin
    assert steps(engine, me(jane)) == ["created", "admin"]
    bob = person(accounts, "bob")
    accounts.set_admin(bob, True, me(jane))
    accounts.set_admin(jane, False, me(bob))
    with pytest.raises(NotPermittedError, match="only administrators"):
        accounts.set_admin(jane, True, me(jane))


def test_a_closed_account_is_out_at_once(engine: sa.Engine, accounts: Accounts) -> None:
    jane = person(accounts, "jane")
    lab = team_of(accounts, jane)
    session = accounts.new_session(jane)
    _, secret = accounts.issue_token(jane, lab, name="laptop")
    accounts.disable(jane, "cli", "left the hospital")
    assert accounts.session_user(session) is None
    assert accounts.token_actor(secret) is None
    with pytest.raises(AccountDisabledError, match="closed by an administrator"):
        person(accounts, "jane")
    with pytest.raises(NotPermittedError, match="only owners"):
        accounts.add_member(lab, jane, "member", me(jane))
    accounts.enable(jane, "cli")
    assert accounts.session_user(session) is None  # it ended
    assert accounts.token_actor(secret) is None  # whoever took the account over may have it
    assert steps(engine, me(jane))[-2:] == ["disabled", "enabled"]


@pytest.mark.parametrize("act", ["disable", "enable"])
def test_only_administrators_close_accounts(accounts: Accounts, act: str) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    with pytest.raises(NotPermittedError, match="only administrators"):
        getattr(accounts, act)(jane, me(bob))


# Teams


@pytest.mark.parametrize(
    "name",
    ["", " ", "-lab", "a" * 65, "Lab<b>", "=1+1", "L\u0430b", "Lab\u200b", "Lab\nB", "\u202elab"],
    ids=["empty", "space", "dash", "long", "markup", "formula", "cyrillic", "zero-width", "newline", "right-to-left"],
)
def test_a_team_is_named_by_the_rule(accounts: Accounts, name: str) -> None:
    with pytest.raises(TeamNameError, match="must be 1-64 of the characters"):
        team_of(accounts, person(accounts, "jane"), name)
    assert accounts.teams() == []


@pytest.mark.parametrize("twin", ["example lab", "EXAMPLE  LAB", " Example Lab ", "Ｅxample Lab"])
def test_no_two_teams_look_alike(accounts: Accounts, twin: str) -> None:
    team_of(accounts, person(accounts, "jane"))
    with pytest.raises(TeamNameError, match="already"):
        team_of(accounts, person(accounts, "bob"), twin)
    assert len(accounts.teams()) == 1


def test_a_person_makes_one_team(accounts: Accounts) -> None:
    jane, bob, root = person(accounts, "jane"), person(accounts, "bob"), person(accounts, "root", as_admin=True)
    lab = team_of(accounts, jane)
    accounts.add_member(lab, bob, "owner", "cli")
    accounts.remove_member(lab, jane, me(jane))
    with pytest.raises(NotPermittedError, match="you have already created a team"):
        team_of(accounts, jane, "Another")  # a fresh team would have a fresh quota
    with pytest.raises(NotPermittedError, match="for someone else"):
        accounts.create_team("Another", owner=jane, who=me(bob))
    another = accounts.create_team("Another", owner=jane, who=me(root))
    assert [m.team for m in accounts.teams_of(jane)] == [another]


ACTS: dict[str, Callable[[Accounts, Team, User, str], Any]] = {
    "change": lambda accounts, team, user, who: accounts.add_member(team, user, "owner", who),
    "remove": lambda accounts, team, user, who: accounts.remove_member(team, user, who),
}


@pytest.mark.parametrize("act", list(ACTS))
@pytest.mark.parametrize(
    ("role", "may"), [("owner", True), ("member", False), ("reader", False), (None, False), ("admin", True)]
)
def test_owners_and_administrators_manage_members(accounts: Accounts, act: str, role: str | None, may: bool) -> None:
    owner, target = person(accounts, "owner"), person(accounts, "target")
    asking = person(accounts, "asking", as_admin=role == "admin")
    lab = team_of(accounts, owner)
    if role in ("owner", "member", "reader"):
        accounts.add_member(lab, asking, role, "cli")
    accounts.add_member(lab, target, "reader", "cli")
    before = accounts.members(lab)
    if may:
        ACTS[act](accounts, lab, target, me(asking))
        assert accounts.members(lab) != before
    else:
        with pytest.raises(NotPermittedError, match="only owners of Example Lab"):
            ACTS[act](accounts, lab, target, me(asking))
        assert accounts.members(lab) == before


@pytest.mark.parametrize("who", ["", "user:", "user:nobody", "worker:one", "clip", "admin"])
def test_whoever_else_asks_may_nothing(accounts: Accounts, who: str) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane)
    with pytest.raises(NotPermittedError):
        accounts.add_member(lab, bob, "owner", who)
    with pytest.raises(NotPermittedError):
        accounts.disable(lab, who)


@on_both
@pytest.mark.parametrize("who", ["self", "cli"])
def test_the_last_owner_stays(engine: sa.Engine, accounts: Accounts, who: str) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane)
    accounts.add_member(lab, bob, "member", "cli")
    author = me(jane) if who == "self" else who
    with pytest.raises(ValueError, match="last owner of Example Lab"):
        accounts.remove_member(lab, jane, author)
    with pytest.raises(ValueError, match="last owner of Example Lab"):
        accounts.add_member(lab, jane, "reader", author)
    accounts.add_member(lab, bob, "owner", author)
    accounts.remove_member(lab, jane, author)
    assert [(user.id, role) for user, role in accounts.members(lab)] == [(bob.id, "owner")]
    assert steps(engine, f"team:{lab.id}") == ["created", "member", "member", "member"]


@on_both
def test_two_owners_who_remove_each_other_leave_one(accounts: Accounts) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane)
    accounts.add_member(lab, bob, "owner", "cli")

    def may_leave(user: User) -> bool:
        try:
            accounts.remove_member(lab, user, me(user))
        except ValueError:
            return False
        return True

    assert sorted(at_once(may_leave, (jane, bob))) == [False, True]
    assert [role for _, role in accounts.members(lab)] == ["owner"]


def test_bad_members_are_refused(accounts: Accounts) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane)
    with pytest.raises(ValueError, match="role must be one of owner, member, reader, got 'boss'"):
        accounts.add_member(lab, bob, "boss", me(jane))
    with pytest.raises(ValueError, match="must be a member of the team"):
        accounts.remove_member(lab, bob, me(jane))
    with pytest.raises(ValueError, match="no team"):
        accounts.add_member(Team("nowhere", "Nowhere"), bob, "member", "cli")


@pytest.mark.parametrize(("role", "may_submit"), [("owner", True), ("member", True), ("reader", False)])
def test_a_role_says_who_submits(accounts: Accounts, role: str, may_submit: bool) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane)
    accounts.add_member(lab, bob, "owner", "cli")
    accounts.add_member(lab, jane, role, me(bob))
    actor = accounts.session_user(accounts.new_session(jane))
    assert (actor.team(lab.id) == lab) is may_submit
    assert (accounts.team_to_submit_for(actor, "EXAMPLE lab") == lab) is may_submit
    assert actor.belongs_to(lab.id)
    assert accounts.team_to_submit_for(actor, "Elsewhere") is None
    accounts.disable(lab, "cli", "asked to")
    actor = accounts.session_user(accounts.new_session(jane))
    assert actor.memberships == ()
    accounts.enable(lab, "cli")
    assert [m.role for m in accounts.teams_of(jane)] == [role]


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("IllinoisLab", "lllinoisLab"), ("Lab 1", "Lab l"), ("Lab O", "Lab 0"), ("Modern Lab", "Modem Lab"),
        ("Vision-Lab", "Vision.Lab"), ("Vision Lab", "VisionLab"), ("West", "VVest"),
        ("B2S Group 6", "82S Gr0up G"), ("Zebra 5", "2ebra s"),
    ],
)  # fmt: skip
def test_no_team_is_easily_taken_for_another(accounts: Accounts, name: str, twin: str) -> None:
    first = team_of(accounts, person(accounts, "jane"), name)
    with pytest.raises(TeamNameError, match=f"must not look like that of the team '{name}'"):
        team_of(accounts, person(accounts, "bob"), twin)
    assert accounts.teams() == [first]


# The local person


def test_the_local_person_is_one_and_submits_for_any_name(accounts: Accounts) -> None:
    actor = accounts.local_actor()
    assert accounts.local_actor() == actor
    assert (actor.via, actor.is_admin, [m.team.name for m in actor.memberships]) == ("local", True, ["Local user"])
    made = accounts.team_to_submit_for(actor, "Example Lab")
    assert accounts.team_to_submit_for(actor, "example  lab") == made  # the actor was looked up before it was made
    assert accounts.local_actor().team(made.id) == made
    with pytest.raises(TeamNameError, match="must be 1-64"):
        accounts.team_to_submit_for(actor, "<b>")
