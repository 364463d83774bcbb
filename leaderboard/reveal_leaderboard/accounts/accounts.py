"""Database queries on people and teams: sign-in, membership, roles, approval and closure.

Conventions
-----------
Times are seconds since 1970 UTC by the database's clock. Every change appends an event under ``user:ID``, ``team:ID``
or ``token:ID``; no event contains a secret, a person's name or an address.

`who` is the author of a change: ``user:ID`` for a signed-in person (:attr:`Actor.name`), or ``cli`` for the operator on
the server's own machine. The author's rights are read in the transaction of the change, so rights that were just
revoked no longer count.

A team always has an owner. Names of two teams never differ only in case or spaces. With the setting `accounts.new_teams
= "asked"`, a new team cannot submit before an administrator approves it, unless an administrator created it. People
join a team by accepting an invitation (:mod:`reveal_leaderboard.accounts.invitations`), unless the operator adds them.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import IntegrityError

from reveal_leaderboard.accounts import invitations, links
from reveal_leaderboard.accounts.credentials import Credentials, memberships_of, revoke
from reveal_leaderboard.accounts.people import (
    ROLES,
    SCOPES,
    Actor,
    Membership,
    Team,
    User,
    look_of,
    team_key,
)
from reveal_leaderboard.accounts.rights import (
    check_consent,
    check_may_create,
    check_owner_left,
    check_right,
    event_name,
    is_trusted,
    lock_team,
)
from reveal_leaderboard.store import events, tables
from reveal_leaderboard.store.database import locked, moment
from reveal_leaderboard.store.metadata import Name
from reveal_leaderboard.store.submissions import NotAllowedError, waits_for_approval

LOCAL_ISSUER = "local"
LOCAL_NAME = "Local user"

NAME = TypeAdapter(Name)


class TeamNameError(ValueError):
    """A team's name breaks the rule for names, or is too similar to another team's name."""


class AccountDisabledError(PermissionError):
    """An administrator closed the account."""


class Accounts(Credentials):
    """Queries on people and teams, and on their sessions and tokens."""

    # People ---------------------------------------------------------------------------------------------------------

    def sign_in(self, issuer: str, subject: str, name: str, *, as_admin: bool = False) -> User:
        """Return the user identified by `issuer` and `subject`; create, rename or make the user an administrator as
        needed.

        Raises
        ------
        AccountDisabledError
            If an administrator closed the account.
        """
        try:
            return self._sign_in(issuer, subject, name, as_admin)
        except IntegrityError:  # two first sign-ins of one person at the same time
            return self._sign_in(issuer, subject, name, as_admin)

    def _sign_in(self, issuer: str, subject: str, name: str, as_admin: bool) -> User:
        with self._engine.begin() as connection:
            return _signed_in(connection, issuer, subject, name, as_admin)

    def sign_in_link(self, address: str, who: str, *, days: int = links.LINK_DAYS) -> str:
        """Return the secret of a link that signs in the owner of an e-mail address once; create the account if missing.

        Raises
        ------
        NotPermittedError
            If `who` is not an administrator.
        AccountDisabledError
            If an administrator closed the account.
        ValueError
            If `address` is not an e-mail address, or `days` is not 1 to 30.
        """
        subject = links.mail_address(address)
        with self._engine.begin() as connection:
            check_right(connection, who)
            user = _signed_in(connection, links.LINK_ISSUER, subject, subject.partition("@")[0][:100], False, who)
            return links.make(connection, user, who, days=days)

    def use_link(self, secret: str, *, instead_of: str | None = None) -> str | None:
        """Sign in with a link, which becomes invalid; return the new session's secret, or None if the link was not
        valid.
        """
        with self._engine.begin() as connection:
            return links.use(connection, secret, instead_of=instead_of)

    def local_actor(self) -> Actor:
        """Return the only user in local mode: an administrator who owns the team "Local user"."""
        table = tables.users
        me = [table.c.issuer == LOCAL_ISSUER, table.c.subject == LOCAL_ISSUER]
        with self._reading.begin() as connection:
            row = connection.execute(sa.select(table).where(*me)).one_or_none()
            memberships = () if row is None else memberships_of(connection, row.id)
        if row is not None and memberships:
            return Actor(_as_user(row), memberships, frozenset(SCOPES), "local")
        user = self.sign_in(LOCAL_ISSUER, LOCAL_ISSUER, LOCAL_NAME, as_admin=True)
        if not self.teams_of(user):
            with contextlib.suppress(TeamNameError):  # another request created the user in the meantime
                self.create_team(LOCAL_NAME, owner=user, who=event_name(user))
        return Actor(user, self.teams_of(user), frozenset(SCOPES), "local")

    def user(self, user_id: str) -> User | None:
        """Return the user with this id, disabled or not."""
        with self._reading.begin() as connection:
            row = connection.execute(sa.select(tables.users).where(tables.users.c.id == user_id)).one_or_none()
        return None if row is None else _as_user(row)

    def users(self) -> list[User]:
        """Return all users, by name."""
        with self._reading.begin() as connection:
            return [_as_user(row) for row in connection.execute(sa.select(tables.users).order_by(tables.users.c.name))]

    def set_admin(self, user: User, is_admin: bool, who: str) -> None:
        """Make `user` an administrator, or not; administrators listed in the settings become one again at the next
        sign-in.
        """
        with self._engine.begin() as connection:
            check_right(connection, who)
            connection.execute(tables.users.update().where(tables.users.c.id == user.id).values(is_admin=is_admin))
            to_status = "admin" if is_admin else "not admin"
            events.append(connection, subject=event_name(user), who=who, to_status=to_status, why="")

    # Teams ----------------------------------------------------------------------------------------------------------

    def create_team(self, name: str, *, owner: User, who: str, is_asked: bool = False) -> Team:
        """Create a team.

        A person may create one team, because each team has its own quota; administrators may create any number.

        Parameters
        ----------
        is_asked : True to let the team wait for approval, unless `who` is an administrator

        Raises
        ------
        TeamNameError
            If the name breaks the rule for names, is taken, or looks like another team's name.
        NotPermittedError
            If `who` is not an administrator and has already created a team, or creates this team for another person.
        """
        called = _team_name(name)
        try:
            with self._engine.begin() as connection:
                check_may_create(connection, owner, who)
                _check_look(connection, called)
                now = moment(connection)
                waits = is_asked and not is_trusted(connection, who)
                team = Team(secrets.token_hex(12), called, waiting_since=now if waits else None)
                row = asdict(team) | {"name_key": team_key(called), "created_at": now}
                connection.execute(tables.teams.insert().values(**row))
                member = {"team_id": team.id, "user_id": owner.id, "role": "owner", "since": now}
                connection.execute(tables.members.insert().values(**member))
                why = f"owner {event_name(owner)}" + (", waits for approval" if waits else "")
                events.append(connection, subject=event_name(team), who=who, to_status="created", why=why)
        except IntegrityError:
            raise TeamNameError(f"name must be new, but the team {name!r} already exists") from None
        return team

    def team(self, team_id: str) -> Team | None:
        """Return the team with this id, disabled or not."""
        with self._reading.begin() as connection:
            row = connection.execute(sa.select(tables.teams).where(tables.teams.c.id == team_id)).one_or_none()
        return None if row is None else _as_team(row)

    def teams(self) -> list[Team]:
        """Return all teams, by name."""
        with self._reading.begin() as connection:
            rows = connection.execute(sa.select(tables.teams).order_by(tables.teams.c.name_key))
            return [_as_team(row) for row in rows]

    def team_to_submit_for(self, actor: Actor, organization: str) -> Team | None:
        """Return the actor's team named `organization`; None if the actor may not submit for it.

        In local mode, a missing team is created.

        Raises
        ------
        TeamNameError
            If the team would be created, but its name is invalid.
        NotAllowedError
            If the team waits for approval, or is closed.
        """
        key = team_key(organization)
        for membership in actor.memberships:
            if team_key(membership.team.name) == key:
                if membership.team.waiting_since is not None:
                    raise NotAllowedError(waits_for_approval(membership.team.name))
                return actor.team(membership.team.id)
        for closed, why in self.closed_teams_of(actor.user):
            if team_key(closed.name) == key:
                raise NotAllowedError(f"{closed.name} is closed: {why}")
        if actor.via != "local":
            return None
        try:
            return self.create_team(organization, owner=actor.user, who=actor.name)
        except TeamNameError:  # created by another request in the meantime, or an invalid name
            matches = (m.team for m in self.teams_of(actor.user) if team_key(m.team.name) == key)
            team = next(matches, None)
            if team is None:
                raise
            return team

    def add_member(self, team: Team, user: User, role: str, who: str) -> None:
        """Change the role of a member of `team`; the operator may also add a person, others must invite.

        Raises
        ------
        NotPermittedError
            If `who` is neither an owner of the team nor an administrator, or if `user` is not a member and must be
            invited.
        ValueError
            If `role` is not one of `ROLES`, or if the last owner would no longer be an owner.
        """
        if role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
        table = tables.members
        with self._engine.begin() as connection:
            lock_team(connection, team)
            check_right(connection, who, team)
            if role != "owner":
                check_owner_left(connection, team, user)
            changed = connection.execute(table.update().where(*_place(team, user)).values(role=role)).rowcount
            if not changed:
                check_consent(user, who)
                invitations.end_open(connection, team, user, "withdrawn", who)
                row = {"team_id": team.id, "user_id": user.id, "role": role, "since": moment(connection)}
                connection.execute(table.insert().values(**row))
            why = f"{event_name(user)} is {role}"
            events.append(connection, subject=event_name(team), who=who, to_status="member", why=why)

    def remove_member(self, team: Team, user: User, who: str) -> None:
        """Remove `user` from `team` and revoke the user's tokens for it.

        Every member except the last owner may leave.

        Raises
        ------
        NotPermittedError, ValueError
            As for :meth:`add_member`, and if `user` is not a member.
        """
        with self._engine.begin() as connection:
            lock_team(connection, team)
            if who != event_name(user):
                check_right(connection, who, team)
            check_owner_left(connection, team, user)
            if not connection.execute(tables.members.delete().where(*_place(team, user))).rowcount:
                raise ValueError(f"user must be a member of the team, got {user.id}")
            mine = [tables.tokens.c.user_id == user.id, tables.tokens.c.team_id == team.id]
            revoke(connection, mine, who, "no longer a member")
            why = f"{event_name(user)} left" if who == event_name(user) else f"{event_name(user)} was removed"
            events.append(connection, subject=event_name(team), who=who, to_status="member", why=why)

    def members(self, team: Team) -> list[tuple[User, str]]:
        """Return the members of `team` with their roles, in the order in which they joined."""
        table = tables.members
        query = (
            sa.select(tables.users, table.c.role)
            .join(table, table.c.user_id == tables.users.c.id)
            .where(table.c.team_id == team.id)
            .order_by(table.c.since, tables.users.c.id)
        )
        with self._reading.begin() as connection:
            return [(_as_user(row), row.role) for row in connection.execute(query)]

    def teams_of(self, user: User) -> tuple[Membership, ...]:
        """Return the teams of `user` that are not disabled."""
        with self._reading.begin() as connection:
            return memberships_of(connection, user.id)

    def approve_team(self, team: Team, who: str) -> bool:
        """Approve a waiting team; return False if it was not waiting.

        Raises
        ------
        NotPermittedError
            If `who` is not an administrator.
        ValueError
            If the team is closed: it must be opened again first.
        """
        table = tables.teams
        with self._engine.begin() as connection:
            check_right(connection, who)
            row = connection.execute(locked(sa.select(table).where(table.c.id == team.id))).one_or_none()
            if row is None or row.waiting_since is None:
                return False
            if row.disabled_at is not None:
                raise ValueError(f"{row.name} is closed: open it again before you approve it")
            connection.execute(table.update().where(table.c.id == team.id).values(waiting_since=None))
            events.append(connection, subject=event_name(team), who=who, to_status="approved", why="")
        return True

    def closed_teams_of(self, user: User) -> list[tuple[Team, str]]:
        """Return the disabled teams of `user`, and the reasons."""
        table, members = tables.teams, tables.members
        query = sa.select(table).join(members, members.c.team_id == table.c.id).order_by(table.c.name_key)
        with self._reading.begin() as connection:
            rows = connection.execute(query.where(members.c.user_id == user.id, table.c.disabled_at.is_not(None)))
            return [(team, _why_disabled(connection, team)) for team in map(_as_team, rows)]

    # Both -----------------------------------------------------------------------------------------------------------

    def disable(self, whom: User | Team, who: str, why: str = "") -> None:
        """Close an account (its sessions end and its tokens are revoked) or a team (it can no longer submit)."""
        self._switch(whom, who, why, is_on=False)

    def enable(self, whom: User | Team, who: str, why: str = "") -> None:
        """Reopen a closed account or team."""
        self._switch(whom, who, why, is_on=True)

    def _switch(self, whom: User | Team, who: str, why: str, *, is_on: bool) -> None:
        table = tables.users if isinstance(whom, User) else tables.teams
        with self._engine.begin() as connection:
            check_right(connection, who)
            if isinstance(whom, User) and not is_on:
                connection.execute(tables.sessions.delete().where(tables.sessions.c.user_id == whom.id))
                revoke(connection, [tables.tokens.c.user_id == whom.id], who, "the account was closed")
            at = None if is_on else moment(connection)
            if not connection.execute(table.update().where(table.c.id == whom.id).values(disabled_at=at)).rowcount:
                raise ValueError(f"{event_name(whom)} must exist")
            to_status = "enabled" if is_on else "disabled"
            events.append(connection, subject=event_name(whom), who=who, to_status=to_status, why=why)


def _signed_in(
    connection: sa.Connection, issuer: str, subject: str, name: str, as_admin: bool, who: str | None = None
) -> User:
    """Return the user, created if missing; `who` is the author of the creation event, by default the user."""
    table = tables.users
    me = [table.c.issuer == issuer, table.c.subject == subject]
    row = connection.execute(sa.select(table).where(*me)).one_or_none()
    if row is not None and row.disabled_at is not None:
        raise AccountDisabledError("this account was closed by an administrator")
    was_admin = row is not None and row.is_admin
    user_id = secrets.token_hex(12) if row is None else row.id
    user = User(user_id, issuer, subject, name, was_admin or as_admin)
    if row is None:
        connection.execute(table.insert().values(**asdict(user), created_at=moment(connection)))
        events.append(connection, subject=event_name(user), who=who or event_name(user), to_status="created", why="")
    elif (row.name, row.is_admin) != (user.name, user.is_admin):
        connection.execute(table.update().where(*me).values(name=name, is_admin=user.is_admin))
        if row.name != name:
            events.append(connection, subject=event_name(user), who=event_name(user), to_status="renamed")
    if user.is_admin and not was_admin:
        why = "listed as an administrator in the settings"
        events.append(connection, subject=event_name(user), who=event_name(user), to_status="admin", why=why)
    return user


def _as_user(row: Any) -> User:
    return User(row.id, row.issuer, row.subject, row.name, row.is_admin, row.disabled_at)


def _as_team(row: Any) -> Team:
    return Team(row.id, row.name, row.disabled_at, row.waiting_since)


def _why_disabled(connection: sa.Connection, team: Team) -> str:
    reasons = [event.why for event in events.history(connection, event_name(team)) if event.to_status == "disabled"]
    return reasons[-1] if reasons else ""


def _place(team: Team, user: User) -> list[sa.ColumnElement[bool]]:
    return [tables.members.c.team_id == team.id, tables.members.c.user_id == user.id]


def _check_look(connection: sa.Connection, name: str) -> None:
    teams = tables.teams
    look, key = look_of(name), team_key(name)
    for other, other_key in connection.execute(sa.select(teams.c.name, teams.c.name_key)):
        if look_of(other) == look and other_key != key:
            raise TeamNameError(f"name must not look like that of the team {other!r}, got {name!r}")


def _team_name(name: str) -> str:
    try:
        return NAME.validate_python(name)
    except ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise TeamNameError(f"name {rule}, got {name!r}") from None
