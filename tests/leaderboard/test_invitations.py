"""Nobody is in a team without having accepted an invitation to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts import invitations
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import NotPermittedError, Team, User
from reveal_leaderboard.store import tables

from tests.leaderboard.conftest import at_once
from tests.leaderboard.databases import on_both
from tests.leaderboard.people_world import accounts, engine, later, me, person, steps, team_of

__all__ = ["accounts", "engine"]


def invited(engine: sa.Engine, team: Team, user: User, who: str, role: str = "member") -> str:
    with engine.begin() as connection:
        return invitations.invite(connection, team, user, role, who)


def answer(engine: sa.Engine, act: Callable[[sa.Connection, str, User], Team], invitation: str, user: User) -> Team:
    with engine.begin() as connection:
        return act(connection, invitation, user)


def open_to(engine: sa.Engine, user: User) -> list[str]:
    with engine.begin() as connection:
        return [one.id for one in invitations.of_user(connection, user)]


def test_nobody_is_added_unasked(accounts: Accounts) -> None:
    jane, bob, root = person(accounts, "jane"), person(accounts, "bob"), person(accounts, "root", as_admin=True)
    lab = team_of(accounts, jane)
    for who in (me(jane), me(root)):
        with pytest.raises(NotPermittedError, match="must accept an invitation first"):
            accounts.add_member(lab, bob, "member", who)
    accounts.add_member(lab, bob, "member", "cli:operator")
    accounts.add_member(lab, bob, "reader", me(jane))  # a member's role changes without being asked
    assert [role for _, role in accounts.members(lab)] == ["owner", "reader"]


@on_both
def test_who_accepts_is_a_member_once(engine: sa.Engine, accounts: Accounts) -> None:
    jane, bob = person(accounts, "jane"), person(accounts, "bob")
    lab = team_of(accounts, jane)
    invitation = invited(engine, lab, bob, me(jane), "owner")
    assert [role for _, role in accounts.members(lab)] == ["owner"]
    assert open_to(engine, bob) == [invitation]

    def accepts(_: int) -> bool:
        try:
            return answer(engine, invitations.accept, invitation, bob) == lab
        except NotPermittedError:
            return False

    assert sorted(at_once(accepts, range(3))) == [False, False, True]
    assert [(user.id, role) for user, role in accounts.members(lab)] == [(jane.id, "owner"), (bob.id, "owner")]
    assert open_to(engine, bob) == []
    assert steps(engine, f"invitation:{invitation}") == ["open", "accepted"]
    assert steps(engine, f"team:{lab.id}") == ["created", "member"]
    accounts.remove_member(lab, bob, me(bob))
    with pytest.raises(NotPermittedError, match="this invitation expired"):  # it is used up
        answer(engine, invitations.accept, invitation, bob)


@pytest.mark.parametrize("how", ["declined", "withdrawn", "expired", "another's", "taken by the next", "added"])
def test_an_invitation_that_is_over_lets_nobody_in(engine: sa.Engine, accounts: Accounts, how: str) -> None:
    jane, bob, eve = (person(accounts, name) for name in ("jane", "bob", "eve"))
    lab = team_of(accounts, jane)
    invitation = invited(engine, lab, bob, me(jane))
    if how == "declined":
        answer(engine, invitations.decline, invitation, bob)
    elif how == "withdrawn":
        with engine.begin() as connection:
            invitations.withdraw(connection, lab, invitation, me(jane))
    elif how == "expired":
        later(engine, tables.invitations, 14 * 24 * 3600 + 1, "expires_at")
    elif how == "taken by the next":
        invited(engine, lab, bob, me(jane), "reader")
    elif how == "added":
        accounts.add_member(lab, bob, "reader", "cli")
        accounts.remove_member(lab, bob, me(jane))
    for act in (invitations.accept, invitations.decline):
        with pytest.raises(NotPermittedError, match="this invitation expired"):
            answer(engine, act, invitation, eve if how == "another's" else bob)
    assert [user.id for user, _ in accounts.members(lab)] == [jane.id]


@pytest.mark.parametrize("role", ["member", "reader", None])
def test_only_owners_and_administrators_invite_and_withdraw(
    engine: sa.Engine, accounts: Accounts, role: str | None
) -> None:
    jane, bob, asking = (person(accounts, name) for name in ("jane", "bob", "asking"))
    root = person(accounts, "root", as_admin=True)
    lab = team_of(accounts, jane)
    if role is not None:
        accounts.add_member(lab, asking, role, "cli")
    with pytest.raises(NotPermittedError, match="only owners of Example Lab"):
        invited(engine, lab, bob, me(asking))
    invitation = invited(engine, lab, bob, me(root))
    with pytest.raises(NotPermittedError, match="only owners"), engine.begin() as connection:
        invitations.withdraw(connection, lab, invitation, me(asking))
    other = team_of(accounts, bob, "Other")
    with pytest.raises(NotPermittedError, match="Other has no such open invitation"), engine.begin() as connection:
        invitations.withdraw(connection, other, invitation, me(bob))
    assert open_to(engine, bob) == [invitation]


def test_what_cannot_be_asked_is_refused(
    engine: sa.Engine, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    jane, bob, eve = (person(accounts, name) for name in ("jane", "bob", "eve"))
    lab = team_of(accounts, jane)
    with pytest.raises(ValueError, match="role must be one of owner, member, reader, got 'boss'"):
        invited(engine, lab, bob, me(jane), "boss")
    with pytest.raises(ValueError, match="is already a member of Example Lab"):
        invited(engine, lab, jane, me(jane))
    monkeypatch.setattr(invitations, "MAX_OPEN", 1)
    invitation = invited(engine, lab, bob, me(jane))
    with pytest.raises(ValueError, match="at most 1 open invitations"):
        invited(engine, lab, eve, me(jane))
    accounts.disable(lab, "cli", "asked to")
    assert open_to(engine, bob) == []
    with pytest.raises(NotPermittedError, match="the team Example Lab is closed"):
        answer(engine, invitations.accept, invitation, bob)
    accounts.disable(eve, "cli")
    with pytest.raises(ValueError, match="the account of eve is closed"):
        invited(engine, lab, accounts.user(eve.id) or eve, "cli")


def test_an_invitation_is_worth_nothing_once_who_sent_it_owns_the_team_no_more(
    engine: sa.Engine, accounts: Accounts
) -> None:
    jane, eve, friend = person(accounts, "jane"), person(accounts, "eve"), person(accounts, "friend")
    lab = team_of(accounts, jane)
    accounts.add_member(lab, eve, "owner", "cli:operator")
    invitation = invited(engine, lab, friend, me(eve), "owner")
    accounts.remove_member(lab, eve, me(jane))
    with pytest.raises(NotPermittedError, match="no longer an owner of Example Lab"):
        answer(engine, invitations.accept, invitation, friend)
    assert [user.id for user, _ in accounts.members(lab)] == [jane.id]
    answer(engine, invitations.accept, invited(engine, lab, friend, me(jane)), friend)
    assert [user.id for user, _ in accounts.members(lab)] == [jane.id, friend.id]
