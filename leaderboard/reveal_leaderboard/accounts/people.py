"""Plain data on people, teams, roles and rights; the database queries are in `accounts`.

Conventions
-----------
Roles: an *owner* manages the team's members and submits, a *member* submits, a *reader* can only view. Scopes limit
what a request may do: a session has all the person's rights, a token only the scopes chosen when it was created.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

SCOPES = ("read", "submit", "admin")
ROLES = ("owner", "member", "reader")


class NotPermittedError(PermissionError):
    """The author of a change has no right to make it."""


@dataclass(frozen=True, slots=True)
class User:
    """A person, identified by the sign-in provider (`issuer`) and the provider's id (`subject`)."""

    id: str
    issuer: str
    subject: str
    name: str
    is_admin: bool = False
    disabled_at: float | None = None


@dataclass(frozen=True, slots=True)
class Team:
    """An organization that submits; a team with `waiting_since` cannot submit until an administrator approves it."""

    id: str
    name: str
    disabled_at: float | None = None
    waiting_since: float | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    """A person's membership in a team; `role` is one of `ROLES`."""

    team: Team
    role: str


@dataclass(frozen=True, slots=True)
class Token:
    """An API token as it may be shown, without its secret. `scopes` are some of `SCOPES`."""

    id: str
    user_id: str
    team: Team
    name: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float
    used_at: float | None = None
    revoked_at: float | None = None

    @property
    def team_id(self) -> str:
        """Id of the team."""
        return self.team.id


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a request with its scopes; `via` is "session", "token" or "local"."""

    user: User
    memberships: tuple[Membership, ...]
    scopes: frozenset[str]
    via: str

    @property
    def name(self) -> str:
        """The actor's name in events."""
        return f"user:{self.user.id}"

    @property
    def is_admin(self) -> bool:
        """True if the actor may administer the board; an administrator's token needs the scope `admin`."""
        return self.user.is_admin and "admin" in self.scopes

    def may(self, scope: str) -> bool:
        """Return True if the request has this scope; "admin" also requires an administrator."""
        return self.is_admin if scope == "admin" else scope in self.scopes

    def team(self, team_id: str) -> Team | None:
        """Return the team with this id if the actor may submit for it; None otherwise, also if the team awaits
        approval.
        """
        if not self.may("submit"):
            return None
        teams = (m.team for m in self.memberships if m.role in ("owner", "member") and m.team.waiting_since is None)
        return next((team for team in teams if team.id == team_id), None)

    def belongs_to(self, team_id: str) -> bool:
        """Return True if the actor is a member of the team in any role."""
        return any(m.team.id == team_id for m in self.memberships)


_LOOK_ALIKES = str.maketrans("I102568", "llozsgb", " ._+()/-")
_LOOK_ALIKE_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


def look_of(name: str) -> str:
    """Return a key that is equal for team names that look alike.

    Names are ASCII (:mod:`reveal_leaderboard.store.metadata`). Similar are the confusables of Unicode's UTS 39 (I, l
    and 1; 0 and O; rn and m), 2 and Z, 5 and S, 6 and G, 8 and B, vv and w, and cl and d. No two digits are similar.
    Separators and case are ignored.

    >>> [look_of(name) for name in ("Barn Lab", "Bam-Lab", "Lab I", "Lab 1", "Ali", "All")]
    ['bamlab', 'bamlab', 'labl', 'labl', 'ali', 'all']
    """
    look = name.translate(_LOOK_ALIKES).casefold()
    for pair, single in _LOOK_ALIKE_PAIRS:
        look = look.replace(pair, single)
    return look


def is_visible(name: str) -> bool:
    """Return True if a name has a visible character: not only spaces, marks and blank letters."""
    return name.isprintable() and any(
        unicodedata.category(letter)[0] in "LNPS" and letter not in _SHOWN_AS_NOTHING for letter in name
    )


_SHOWN_AS_NOTHING = "\u115f\u1160\u2800\u3164\uffa0"
"""Hangul fillers and the empty Braille pattern: blank, although Unicode calls them letters or symbols."""


def team_key(name: str) -> str:
    """Return a key that is equal for names that differ only in case or runs of spaces."""
    return " ".join(unicodedata.normalize("NFKC", name).split()).casefold()
