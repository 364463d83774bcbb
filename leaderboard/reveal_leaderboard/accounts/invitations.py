"""Invitations to a team: nobody joins a team without accepting an invitation.

Conventions
-----------
Owners of the team and administrators can invite; only the invited person can accept or decline. An invitation expires
after `INVITATION_DAYS`. A new invitation to the same person replaces the earlier one. Every change appends an event
under ``invitation:ID``; joining also appends an event under ``team:ID``. All functions run inside the caller's
transaction.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.accounts.people import ROLES, NotPermittedError, Team, User
from reveal_leaderboard.accounts.rights import check_right, event_name, lock_team
from reveal_leaderboard.store import events, tables
from reveal_leaderboard.store.database import moment

INVITATION_DAYS = 14
MAX_OPEN = 50  # of one team
DAY_SECONDS = 24 * 3600
GONE = "this invitation expired, was withdrawn or has been answered"


@dataclass(frozen=True, slots=True)
class Invitation:
    """An open invitation of `user` to `team`; `inviter` is the displayed name of its author."""

    id: str
    team: Team
    user: User
    role: str
    inviter: str
    created_at: float
    expires_at: float


def invite(connection: sa.Connection, team: Team, user: User, role: str, who: str) -> str:
    """Invite `user` to `team` with a role, and return the invitation's id.

    Raises
    ------
    NotPermittedError
        If `who` neither owns the team nor is an administrator.
    ValueError
        If `role` is not one of `ROLES`, if `user` is a member or the account is closed, or if the team has too many
        open invitations.
    """
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    lock_team(connection, team)
    check_right(connection, who, team)
    if user.disabled_at is not None:
        raise ValueError(f"the account of {user.name} is closed")
    if _is_member(connection, team, user):
        raise ValueError(f"{user.name} is already a member of {team.name}: change the member's role")
    end_open(connection, team, user, "withdrawn", who)
    now = moment(connection)
    if len(connection.execute(_open(now).where(tables.invitations.c.team_id == team.id)).all()) >= MAX_OPEN:
        raise ValueError(f"{team.name} must have at most {MAX_OPEN} open invitations: withdraw some first")
    row: dict[str, Any] = {"id": secrets.token_hex(12), "team_id": team.id, "user_id": user.id, "role": role}
    row |= {"who": who, "created_at": now, "expires_at": now + INVITATION_DAYS * DAY_SECONDS, "status": "open"}
    connection.execute(tables.invitations.insert().values(**row))
    why = f"{event_name(user)} to {event_name(team)} as {role}"
    events.append(connection, subject=f"invitation:{row['id']}", who=who, to_status="open", why=why)
    return str(row["id"])


def accept(connection: sa.Connection, invitation_id: str, user: User) -> Team:
    """Accept an invitation: make `user` a member of the team.

    Raises
    ------
    NotPermittedError
        If the person has no such open invitation, the team is closed, or the inviter may no longer invite.
    """
    row = _own(connection, invitation_id, user)
    team = _team(row)
    lock_team(connection, team)
    row = _own(connection, invitation_id, user)  # read again, because the team is locked only now
    if row.disabled_at is not None:
        raise NotPermittedError(f"the team {team.name} is closed")
    try:
        check_right(connection, row.who, team)  # a removed owner must not return by an earlier invitation
    except NotPermittedError:
        raise NotPermittedError(
            f"the person who invited you is no longer an owner of {team.name}: ask for another invitation"
        ) from None
    member = {"team_id": team.id, "user_id": user.id, "role": row.role, "since": moment(connection)}
    connection.execute(tables.members.insert().values(**member))
    _end(connection, invitation_id, "accepted", event_name(user))
    why = f"{event_name(user)} is {row.role}, invited by {row.who}"
    events.append(connection, subject=event_name(team), who=event_name(user), to_status="member", why=why)
    return team


def decline(connection: sa.Connection, invitation_id: str, user: User) -> Team:
    """Decline an invitation, and return the team that sent it.

    Raises
    ------
    NotPermittedError
        If the person has no such open invitation.
    """
    team = _team(_own(connection, invitation_id, user))
    lock_team(connection, team)
    _own(connection, invitation_id, user)
    _end(connection, invitation_id, "declined", event_name(user))
    return team


def withdraw(connection: sa.Connection, team: Team, invitation_id: str, who: str) -> None:
    """Withdraw an open invitation of `team`.

    Raises
    ------
    NotPermittedError
        If `who` neither owns the team nor is an administrator, or the team has no such open invitation.
    """
    lock_team(connection, team)
    check_right(connection, who, team)
    table = tables.invitations
    query = _open(moment(connection)).where(table.c.id == invitation_id, table.c.team_id == team.id)
    if connection.execute(query).one_or_none() is None:
        raise NotPermittedError(f"{team.name} has no such open invitation")
    _end(connection, invitation_id, "withdrawn", who)


def of_user(connection: sa.Connection, user: User) -> list[Invitation]:
    """Return a person's open invitations except those of closed teams, oldest first."""
    where = [tables.invitations.c.user_id == user.id, tables.teams.c.disabled_at.is_(None)]
    return _listed(connection, *where)


def of_team(connection: sa.Connection, team: Team) -> list[Invitation]:
    """Return a team's open invitations, oldest first."""
    return _listed(connection, tables.invitations.c.team_id == team.id)


def end_open(connection: sa.Connection, team: Team, user: User, status: str, who: str) -> None:
    """End any open invitations of `user` to `team`; the caller must have locked the team."""
    table = tables.invitations
    place = [table.c.team_id == team.id, table.c.user_id == user.id, table.c.status == "open"]
    for invitation_id in connection.execute(sa.select(table.c.id).where(*place)).scalars().all():
        _end(connection, invitation_id, status, who)


def _open(now: float) -> sa.Select[Any]:
    table = tables.invitations
    columns = [column for column in tables.teams.c if column.name in ("name", "disabled_at", "waiting_since")]
    query = sa.select(table, *columns).join(tables.teams, tables.teams.c.id == table.c.team_id)
    return query.where(table.c.status == "open", table.c.expires_at > now)


def _own(connection: sa.Connection, invitation_id: str, user: User) -> Any:
    table = tables.invitations
    query = _open(moment(connection)).where(table.c.id == invitation_id, table.c.user_id == user.id)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotPermittedError(GONE)
    return row


def _end(connection: sa.Connection, invitation_id: str, status: str, who: str) -> None:
    table = tables.invitations
    connection.execute(table.update().where(table.c.id == invitation_id).values(status=status))
    subject = f"invitation:{invitation_id}"
    events.append(connection, subject=subject, who=who, from_status="open", to_status=status, why="")


def _is_member(connection: sa.Connection, team: Team, user: User) -> bool:
    members = tables.members
    query = sa.select(members.c.role).where(members.c.team_id == team.id, members.c.user_id == user.id)
    return connection.execute(query).one_or_none() is not None


def _listed(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Invitation]:
    rows = connection.execute(_open(moment(connection)).where(*where).order_by(tables.invitations.c.created_at)).all()
    ids = {row.user_id for row in rows} | {row.who.removeprefix("user:") for row in rows}
    users = connection.execute(sa.select(tables.users).where(tables.users.c.id.in_(ids))).all()
    people = {row.id: User(row.id, row.issuer, row.subject, row.name, row.is_admin, row.disabled_at) for row in users}
    listed = []
    for row in rows:
        inviter = people.get(row.who.removeprefix("user:"))
        inviter_name = inviter.name if inviter is not None else "the board's operator"
        user = people[row.user_id]
        listed.append(Invitation(row.id, _team(row), user, row.role, inviter_name, row.created_at, row.expires_at))
    return listed


def _team(row: Any) -> Team:
    return Team(row.team_id, row.name, row.disabled_at, row.waiting_since)
