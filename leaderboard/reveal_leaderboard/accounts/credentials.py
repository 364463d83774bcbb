"""Database queries on sessions and API tokens, the secrets by which a person is recognised.

Conventions
-----------
A secret is 256 random bits and is shown once; the database stores only its SHA-256. Times are seconds since 1970 UTC by
the database's clock. A session ends 12 hours after sign-in, regardless of activity; a session started by a sign-in link
lasts longer (:mod:`reveal_leaderboard.accounts.links`). A token belongs to one person and one team and lasts at most
366 days.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from reveal_leaderboard.accounts.people import SCOPES, Actor, Membership, Team, Token, User
from reveal_leaderboard.store import events, tables
from reveal_leaderboard.store.database import locked, moment, reading
from reveal_leaderboard.store.metadata import Name

SESSION_SECONDS = 12 * 3600
DAY_SECONDS = 24 * 3600
TOKEN_DAYS = 90
MAX_TOKEN_DAYS = 366
MAX_TOKENS = 50  # alive, per person
TOKEN_PREFIX = "rvl_"  # by this prefix, scanners of public code find leaked tokens
SECRET_BYTES = 32
MAX_SECRET_LENGTH = 100
SWEEP = 500  # most expired sessions removed per sign-in
USED_EVERY_SECONDS = 60  # precision of `used_at`

NAME = TypeAdapter(Name)


class TokenError(ValueError):
    """The requested token cannot be issued."""


class Credentials:
    """Sessions and tokens in the database; `engine` is from :func:`reveal_leaderboard.store.database.connect`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._reading = reading(engine)

    # Sessions -------------------------------------------------------------------------------------------------------

    def new_session(self, user: User, *, instead_of: str | None = None) -> str:
        """Create a session for `user` and return its secret; end the session whose secret is `instead_of`."""
        with self._engine.begin() as connection:
            return begin_session(connection, user.id, instead_of=instead_of)

    def session_user(self, secret: str) -> Actor | None:
        """Return the actor whose session has this secret; None without a valid session."""
        if len(secret) > MAX_SECRET_LENGTH:
            return None
        table, users = tables.sessions, tables.users
        with self._reading.begin() as connection:
            query = sa.select(users).join(table, table.c.user_id == users.c.id)
            alive = [table.c.expires_at > moment(connection), users.c.disabled_at.is_(None)]
            row = connection.execute(query.where(table.c.key_hash == hashed(secret), *alive)).one_or_none()
            if row is None:
                return None
            user = User(row.id, row.issuer, row.subject, row.name, row.is_admin)
            memberships = memberships_of(connection, user.id)
        scopes = SCOPES if user.is_admin else ("read", "submit")
        return Actor(user, memberships, frozenset(scopes), "session")

    def end_session(self, secret: str) -> None:
        """End the session with this secret, if there is one."""
        table = tables.sessions
        with self._engine.begin() as connection:
            mine = table.c.key_hash == hashed(secret)
            user_id = connection.execute(sa.select(table.c.user_id).where(mine)).scalar_one_or_none()
            if user_id is not None:
                connection.execute(table.delete().where(mine))
                who = f"user:{user_id}"
                events.append(connection, subject=who, who=who, to_status="signed out", why="")

    # Tokens ---------------------------------------------------------------------------------------------------------

    def issue_token(
        self, user: User, team: Team, *, name: str, scopes: Iterable[str] = ("read", "submit"), days: int = TOKEN_DAYS
    ) -> tuple[Token, str]:
        """Create a token of `user` for `team`; return the token and its secret, which is shown only once.

        Parameters
        ----------
        name : the person's name for the token, which must follow the rule for names
        scopes : some of `SCOPES`; "admin" is for administrators only, and "submit" is not for readers of the team
        days : 1 to 366

        Raises
        ------
        TokenError
            If an argument breaks a rule; the message names the field, the rule and the value.
        """
        asked = tuple(dict.fromkeys(scopes))
        called = _checked(name, asked, days)
        secret = TOKEN_PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        with self._engine.begin() as connection:
            now = moment(connection)
            _check_may_hold(connection, user, team, asked, now)
            token = Token(secrets.token_hex(12), user.id, team, called, asked, now, now + days * DAY_SECONDS)
            row = {"id": token.id, "key_hash": hashed(secret), "user_id": user.id, "team_id": team.id, "name": called}
            moments = {"created_at": now, "expires_at": token.expires_at}
            connection.execute(tables.tokens.insert().values(**row, scopes=list(asked), **moments))
            why = f"{', '.join(asked)} for team:{team.id}, {days} days"
            who = f"user:{user.id}"
            events.append(connection, subject=f"token:{token.id}", who=who, to_status="issued", why=why)
        return token, secret

    def token_actor(self, secret: str) -> Actor | None:
        """Return the actor of this token; None if the token is unknown, expired or revoked, or its owner's account is
        closed.
        """
        if not secret.startswith(TOKEN_PREFIX) or len(secret) > MAX_SECRET_LENGTH:
            return None
        table, users = tables.tokens, tables.users
        columns = (table.c.id.label("token_id"), table.c.team_id, table.c.scopes, table.c.used_at)
        with self._reading.begin() as connection:
            now = moment(connection)
            query = (
                sa.select(users, *columns)
                .join(table, table.c.user_id == users.c.id)
                .where(
                    table.c.key_hash == hashed(secret),
                    table.c.expires_at > now,
                    table.c.revoked_at.is_(None),
                    users.c.disabled_at.is_(None),
                )
            )
            row = connection.execute(query).one_or_none()
            if row is None:
                return None
            memberships = tuple(m for m in memberships_of(connection, row.id) if m.team.id == row.team_id)
        if not memberships:
            return None
        if row.used_at is None or now - row.used_at >= USED_EVERY_SECONDS:
            self._note_use(row.token_id)
        user = User(row.id, row.issuer, row.subject, row.name, row.is_admin)
        return Actor(user, memberships, frozenset(row.scopes), "token")

    def _note_use(self, token_id: str) -> None:
        with self._engine.begin() as connection:
            values = {"used_at": moment(connection)}
            connection.execute(tables.tokens.update().where(tables.tokens.c.id == token_id).values(**values))

    def tokens_of(self, user: User) -> list[Token]:
        """Return the tokens of `user`, newest first, including expired and revoked ones."""
        table = tables.tokens
        query = _tokens().where(table.c.user_id == user.id)
        with self._reading.begin() as connection:
            rows = connection.execute(query.order_by(table.c.created_at.desc(), table.c.id)).all()
        return [_as_token(row) for row in rows]

    def live_tokens(self) -> list[tuple[Token, str]]:
        """Return (token, owner's name) for every token that is neither expired nor revoked, newest first, for
        administrators. Tokens of closed accounts and teams are included, because they work again once the account or
        team is reopened.
        """
        table, users = tables.tokens, tables.users
        query = _tokens().add_columns(users.c.name.label("owner")).join(users, users.c.id == table.c.user_id)
        with self._reading.begin() as connection:
            alive = [table.c.revoked_at.is_(None), table.c.expires_at > moment(connection)]
            rows = connection.execute(query.where(*alive).order_by(table.c.created_at.desc(), table.c.id)).all()
        return [(_as_token(row), row.owner) for row in rows]

    def token_id_of(self, secret: str) -> str | None:
        """Return the id of the token with this secret, whether or not it is valid; None if the secret is unknown."""
        if not secret.startswith(TOKEN_PREFIX) or len(secret) > MAX_SECRET_LENGTH:
            return None
        query = sa.select(tables.tokens.c.id).where(tables.tokens.c.key_hash == hashed(secret))
        with self._reading.begin() as connection:
            return connection.execute(query).scalar_one_or_none()

    def revoke_token(self, token_id: str, who: str, why: str = "") -> bool:
        """Revoke a token; return False if `who` may not revoke it or the token is not valid.

        Administrators and ``cli`` may revoke any token, other people only their own. `why` is the reason shown to the
        token's owner.
        """
        mine = [tables.tokens.c.id == token_id]
        with self._engine.begin() as connection:
            kind, _, user_id = who.partition(":")
            if kind == "user" and not is_admin(connection, user_id):
                mine.append(tables.tokens.c.user_id == user_id)
            return bool(revoke(connection, mine, who, why))

    def why_revoked(self, user: User) -> dict[str, str]:
        """Return token id -> reason for the tokens of `user` that were revoked with a reason."""
        table, rows = tables.tokens, tables.events
        of_token = sa.and_(rows.c.subject == "token:" + table.c.id, rows.c.to_status == "revoked", rows.c.why != "")
        query = sa.select(table.c.id, rows.c.why).join(rows, of_token).where(table.c.user_id == user.id)
        with self._reading.begin() as connection:
            return {row.id: row.why for row in connection.execute(query)}


def begin_session(
    connection: sa.Connection, user_id: str, *, seconds: float = SESSION_SECONDS, instead_of: str | None = None
) -> str:
    """Create a session and return its secret; remove some expired sessions and the session whose secret is
    `instead_of`.
    """
    table, secret, now = tables.sessions, secrets.token_urlsafe(SECRET_BYTES), moment(connection)
    over = sa.select(table.c.key_hash).where(table.c.expires_at <= now).limit(SWEEP)
    hashes = list(connection.execute(locked(over, skip=True)).scalars())
    if instead_of is not None:
        hashes.append(hashed(instead_of))
    connection.execute(table.delete().where(table.c.key_hash.in_(hashes)))
    row = {"key_hash": hashed(secret), "user_id": user_id, "created_at": now, "expires_at": now + seconds}
    connection.execute(table.insert().values(**row))
    events.append(connection, subject=f"user:{user_id}", who=f"user:{user_id}", to_status="signed in", why="")
    return secret


def memberships_of(connection: sa.Connection, user_id: str) -> tuple[Membership, ...]:
    """Return a person's memberships in teams that are not disabled, sorted by team name."""
    teams, members = tables.teams, tables.members
    query = (
        sa.select(teams.c.id, teams.c.name, teams.c.waiting_since, members.c.role)
        .join(members, members.c.team_id == teams.c.id)
        .where(members.c.user_id == user_id, teams.c.disabled_at.is_(None))
        .order_by(teams.c.name_key)
    )
    rows = connection.execute(query)
    return tuple(Membership(Team(row.id, row.name, waiting_since=row.waiting_since), row.role) for row in rows)


def is_admin(connection: sa.Connection, user_id: str) -> bool:
    """Return True if this person is an administrator and the account is not closed."""
    users = tables.users
    query = sa.select(users.c.is_admin).where(users.c.id == user_id, users.c.disabled_at.is_(None))
    return bool(connection.execute(query).scalar_one_or_none())


def revoke(connection: sa.Connection, where: Sequence[sa.ColumnElement[bool]], who: str, why: str) -> int:
    """Revoke the tokens selected by `where`; return how many were not revoked before."""
    table = tables.tokens
    query = sa.select(table.c.id).where(*where, table.c.revoked_at.is_(None)).order_by(table.c.id)
    ids = connection.execute(locked(query)).scalars().all()
    for token_id in ids:
        connection.execute(table.update().where(table.c.id == token_id).values(revoked_at=moment(connection)))
        events.append(connection, subject=f"token:{token_id}", who=who, to_status="revoked", why=why)
    return len(ids)


def _tokens() -> sa.Select[Any]:
    table, teams = tables.tokens, tables.teams
    columns = (teams.c.name.label("team_name"), teams.c.disabled_at, teams.c.waiting_since)
    return sa.select(table, *columns).join(teams, teams.c.id == table.c.team_id)


def _as_token(row: Any) -> Token:
    team = Team(row.team_id, row.team_name, row.disabled_at, row.waiting_since)
    return Token(
        row.id, row.user_id, team, row.name, tuple(row.scopes), row.created_at, row.expires_at, row.used_at,
        row.revoked_at,
    )  # fmt: skip


def hashed(secret: str) -> str:
    """Return the hash of a secret, which the database stores instead of the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _checked(name: str, scopes: tuple[str, ...], days: int) -> str:
    if not scopes or not set(scopes) <= set(SCOPES):
        raise TokenError(f"scopes must be one or more of {', '.join(SCOPES)}, got {', '.join(scopes) or 'none'}")
    if not 1 <= days <= MAX_TOKEN_DAYS:
        raise TokenError(f"days must be 1 to {MAX_TOKEN_DAYS}, got {days}")
    try:
        return NAME.validate_python(name)
    except ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise TokenError(f"name {rule}, got {name!r}") from None


def _check_may_hold(connection: sa.Connection, user: User, team: Team, scopes: tuple[str, ...], now: float) -> None:
    table = tables.tokens
    role = next((m.role for m in memberships_of(connection, user.id) if m.team.id == team.id), None)
    if role is None:
        raise TokenError(f"team must be an open team of yours, got {team.name!r}")
    if role == "reader" and "submit" in scopes:
        raise TokenError(f"scopes must not include submit, because you are a reader of {team.name}")
    if "admin" in scopes and not is_admin(connection, user.id):
        raise TokenError("scopes must not include admin, because you are not an administrator")
    alive = [table.c.user_id == user.id, table.c.revoked_at.is_(None), table.c.expires_at > now]
    if connection.execute(sa.select(sa.func.count()).select_from(table).where(*alive)).scalar_one() >= MAX_TOKENS:
        raise TokenError(f"at most {MAX_TOKENS} tokens may be valid at once: revoke one first")
