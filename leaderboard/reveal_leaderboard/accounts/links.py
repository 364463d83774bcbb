"""Sign-in links, for boards without an OpenID provider.

Conventions
-----------
The operator creates a link for an e-mail address and sends it; anyone who opens the link is taken to be the address's
owner. A link starts one session of 30 days, and a person has at most one valid link. A link's secret is 256 random
bits. The secret's hash is stored in the table of sessions until the link is used or expires, marked so that it never
equals a session's hash. Creating and using a link appends an event under ``user:ID``. All functions run inside the
caller's transaction.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa

from reveal_leaderboard.accounts.credentials import DAY_SECONDS, MAX_SECRET_LENGTH, SECRET_BYTES, begin_session, hashed
from reveal_leaderboard.accounts.people import User
from reveal_leaderboard.accounts.rights import check_right, event_name
from reveal_leaderboard.store import events, tables
from reveal_leaderboard.store.database import moment

LINK_ISSUER = "link"
"""The value of `users.issuer` for people who sign in by links; their `subject` is their address."""
LINK_DAYS = 7
MAX_LINK_DAYS = 30
LINK_SESSION_SECONDS = 30 * DAY_SECONDS
MARK = "link-"  # no hash of a session starts like this
MAX_ADDRESS = 200


def mail_address(text: str) -> str:
    """Return an e-mail address in lower case, as it identifies an account.

    Raises
    ------
    ValueError
        If it is not an e-mail address.

    Examples
    --------
    >>> mail_address("Jane@Example.org ")
    'jane@example.org'
    """
    address = text.strip().lower()
    name, at, host = address.partition("@")
    # Non-ASCII addresses are refused, because lower-casing or normalising can make two mailboxes equal: weiß@, weiss@.
    is_plain = text.isascii() and address.isprintable() and " " not in address and len(address) <= MAX_ADDRESS
    if not (name and at and host and is_plain) or "@" in host:
        raise ValueError(
            f"the address must look like name@example.org, in at most {MAX_ADDRESS} ASCII characters (with an "
            f"international domain as xn--...), got {text!r}"
        )
    return address


def make(connection: sa.Connection, user: User, who: str, *, days: int = LINK_DAYS) -> str:
    """Return the secret of a new link for `user`; an earlier unused link becomes invalid.

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
    """Sign in with a link, which becomes invalid; return the new session's secret, or None if the link was not valid.

    Parameters
    ----------
    secret : secret of the link
    instead_of : secret of a session that ends
    """
    if len(secret) > MAX_SECRET_LENGTH:
        return None
    table, users = tables.sessions, tables.users
    mine = [table.c.key_hash == _hashed(secret), table.c.expires_at > moment(connection)]
    query = sa.select(users.c.id).join(table, table.c.user_id == users.c.id)
    user_id = connection.execute(query.where(*mine, users.c.disabled_at.is_(None))).scalar_one_or_none()
    # if two requests use the link at once, only one deletes its row
    if user_id is None or connection.execute(table.delete().where(*mine)).rowcount != 1:
        return None
    return begin_session(connection, user_id, seconds=LINK_SESSION_SECONDS, instead_of=instead_of)


def _hashed(secret: str) -> str:
    """Return the mark and the first 236 bits of the secret's hash, which together fill the column."""
    return (MARK + hashed(secret))[:64]
