"""Checks of the right to change accounts and teams, and of the rules for every change.

Conventions
-----------
Every check runs inside the caller's transaction (`connection`), and raises an error if a rule is broken. `who` is the
author of a change: ``user:ID``, or ``cli`` for the operator on the server's own machine.
"""

from __future__ import annotations

import sqlalchemy as sa

from reveal_leaderboard.accounts.credentials import is_admin
from reveal_leaderboard.accounts.people import NotPermittedError, Team, User
from reveal_leaderboard.store import tables
from reveal_leaderboard.store.database import locked

OPERATOR = "cli"


def event_name(whom: User | Team) -> str:
    """Return the name of a person or a team in events."""
    return f"{type(whom).__name__.lower()}:{whom.id}"


def is_trusted(connection: sa.Connection, who: str) -> bool:
    """Return True if `who` is the operator or an administrator."""
    kind, _, user_id = who.partition(":")
    return kind == OPERATOR or (kind == "user" and is_admin(connection, user_id))


def check_right(connection: sa.Connection, who: str, team: Team | None = None) -> None:
    """Refuse `who` unless operator, administrator or, if `team` is given, an owner of the team.

    Raises
    ------
    NotPermittedError
        If `who` is refused.
    """
    if is_trusted(connection, who):
        return
    if team is None:
        raise NotPermittedError("only administrators may do this")
    kind, _, user_id = who.partition(":")
    users, members = tables.users, tables.members
    role = (
        sa.select(members.c.role)
        .join(users, users.c.id == members.c.user_id)
        .where(members.c.team_id == team.id, users.c.id == user_id, users.c.disabled_at.is_(None))
    )
    if kind != "user" or connection.execute(role).scalar_one_or_none() != "owner":
        raise NotPermittedError(f"only owners of {team.name} and administrators may change its members")


def check_consent(user: User, who: str) -> None:
    """Refuse to add `user` to a team unless `who` is that user or the operator.

    Raises
    ------
    NotPermittedError
        If neither does.
    """
    if who != event_name(user) and who.partition(":")[0] != OPERATOR:
        raise NotPermittedError(f"{user.name} must accept an invitation first: people join only by consent")


def check_may_create(connection: sa.Connection, owner: User, who: str) -> None:
    """Refuse a person's second team; events record the first team even after the person has left it.

    Raises
    ------
    NotPermittedError
        If the person created a team before, or `who` creates the team for someone else.
    """
    if is_trusted(connection, who):
        return
    if who != event_name(owner):
        raise NotPermittedError("only administrators may create a team for someone else")
    # This lock makes two requests of one person wait for each other.
    connection.execute(locked(sa.select(tables.users.c.id).where(tables.users.c.id == owner.id)))
    made = [tables.events.c.who == who, tables.events.c.to_status == "created", tables.events.c.subject.like("team:%")]
    if connection.execute(sa.select(sa.func.count()).select_from(tables.events).where(*made)).scalar_one():
        raise NotPermittedError("you have already created a team; ask an administrator for another")


def lock_team(connection: sa.Connection, team: Team) -> None:
    """Lock a team's row, so that changes of its members wait for each other.

    Raises
    ------
    ValueError
        If the team does not exist.
    """
    query = locked(sa.select(tables.teams.c.id).where(tables.teams.c.id == team.id))
    if connection.execute(query).one_or_none() is None:
        raise ValueError(f"no team {team.id}")


def check_owner_left(connection: sa.Connection, team: Team, user: User) -> None:
    """Refuse to remove the last owner of `team`.

    Raises
    ------
    ValueError
        If `user` is the only owner.
    """
    members = tables.members
    query = sa.select(members.c.user_id).where(members.c.team_id == team.id, members.c.role == "owner")
    if set(connection.execute(query).scalars()) == {user.id}:
        raise ValueError(f"user must not be the last owner of {team.name}, got {user.id}: make another owner first")
