"""Sign-in links: how people sign in where no provider says who they are.

Conventions
-----------
The operator makes a link for an e-mail address and sends it; whoever opens it is taken to be its owner. A link is
good for one session, which lasts 30 days, and a person has one link at a time. Its secret is 256 random bits; until it
is used or over, its hash lies among the sessions of its person, marked so that it is no session's. Making a link and
using one append an event under ``user:ID``. All functions work within the caller's transaction.
"""

from __future__ import annotations

import secrets
import unicodedata

import sqlalchemy as sa

from reveal_leaderboard.accounts.credentials import DAY_SECONDS, MAX_SECRET_LENGTH, SECRET_BYTES, begin_session, hashed
from reveal_leaderboard.accounts.people import User
from reveal_leaderboard.accounts.rights import check_right, event_name
from reveal_leaderboard.store import events, tables
from reveal_leaderboard.store.database import moment

LINK_ISSUER = "link"
"""What `users.issuer` holds for people who sign in by links; their subject is their address."""
LINK_DAYS = 7
MAX_LINK_DAYS = 30
LINK_SESSION_SECONDS = 30 * DAY_SECONDS
MARK = "link-"  # no hash of a session begins like this
MAX_ADDRESS = 200


def mail_address(text: str) -> str:
    """An e-mail address as accounts are found by it: case does not count.

    Raises
    ------
    ValueError
        If it is none.

    Examples
    --------
    >>> mail_address("Jane@Example.org ")
    'jane@example.org'
    """
    address = unicodedata.normalize("NFKC", text).strip().casefold()
    name, at, host = address.partition("@")
    is_plain = address.isprintable() and " " not in address and len(address) <= MAX_ADDRESS
    if not (name and at and host and is_plain) or "@" in host:
        raise ValueError(
            f"the address must look like name@example.org, with at most {MAX_ADDRESS} characters, got {text!r}"
        )
    return address


def make(connection: sa.Connection, user: User, who: str, *, days: int = LINK_DAYS) -> str:
    """The secret of a new link of `user`; one of theirs that was not used yet counts no more.

    Raises
    ------
    NotPermittedError
        If `who` is not an administrator.
    ValueError
        If `days` is not 1 to 30.
    """
    if not 1 <= days <= MAX_LINK_DAYS:
        raise ValueError(f"days must be 1 to {MAX_LINK_DAYS}, got {days}")
    check_right(connection, who)
    table, secret, now = tables.sessions, secrets.token_urlsafe(SECRET_BYTES), moment(connection)
    connection.execute(table.delete().where(table.c.user_id == user.id, table.c.key_hash.startswith(MARK)))
    row = {"key_hash": _hashed(secret), "user_id": user.id, "created_at": now, "expires_at": now + days * DAY_SECONDS}
    connection.execute(table.insert().values(**row))
    events.append(connection, subject=event_name(user), who=who, to_status="sign-in link", why=f"for {days} days")
    return secret


def use(connection: sa.Connection, secret: str, *, instead_of: str | None = None) -> str | None:
    """The secret of a new session for that of a link, which is used up; None if there is no such link any more.

    Parameters
    ----------
    secret : of the link
    instead_of : secret of a session that ends, if any
    """
    if len(secret) > MAX_SECRET_LENGTH:
        return None
    table, users = tables.sessions, tables.users
    mine = [table.c.key_hash == _hashed(secret), table.c.expires_at > moment(connection)]
    query = sa.select(users.c.id).join(table, table.c.user_id == users.c.id)
    user_id = connection.execute(query.where(*mine, users.c.disabled_at.is_(None))).scalar_one_or_none()
    # Of two who use it at once, one deletes it
    if user_id is None or connection.execute(table.delete().where(*mine)).rowcount != 1:
        return None
    return begin_session(connection, user_id, seconds=LINK_SESSION_SECONDS, instead_of=instead_of)


def _hashed(secret: str) -> str:
    """Cut to the width of the column: 236 bits of it are left."""
    return (MARK + hashed(secret))[:64]
