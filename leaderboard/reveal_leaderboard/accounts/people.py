"""Who there is: persons, teams, roles, and what an actor may do. Plain facts; the queries are in `accounts`.

Conventions
-----------
Roles: an *owner* manages the team's members and submits, a *member* submits, a *reader* sees. Scopes: what a way of
asking allows; a person signed in has all that the person may do, a token only those it was issued with.
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
    """A person; `issuer` and `subject` together are who the sign-in provider says it is."""

    id: str
    issuer: str
    subject: str
    name: str
    is_admin: bool = False
    disabled_at: float | None = None


@dataclass(frozen=True, slots=True)
class Team:
    """An organization that submits; one with `waiting_since` does not yet, until an administrator approves it."""

    id: str
    name: str
    disabled_at: float | None = None
    waiting_since: float | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    """A person's place in a team; `role` is one of `ROLES`."""

    team: Team
    role: str


@dataclass(frozen=True, slots=True)
class Token:
    """What may be shown of an API token: everything but the secret. `scopes` are of `SCOPES`."""

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
    """Who is asking, and what the way of asking allows; `via` is "session", "token" or "local"."""

    user: User
    memberships: tuple[Membership, ...]
    scopes: frozenset[str]
    via: str

    @property
    def name(self) -> str:
        """As events name it."""
        return f"user:{self.user.id}"

    @property
    def is_admin(self) -> bool:
        """Whether it may administer the board: a token of an administrator only with the scope `admin`."""
        return self.user.is_admin and "admin" in self.scopes

    def may(self, scope: str) -> bool:
        """Whether it may do what `scope` names."""
        return self.is_admin if scope == "admin" else scope in self.scopes

    def team(self, team_id: str) -> Team | None:
        """The team of this id if the actor may submit for it; one that waits for approval is none."""
        if not self.may("submit"):
            return None
        teams = (m.team for m in self.memberships if m.role in ("owner", "member") and m.team.waiting_since is None)
        return next((team for team in teams if team.id == team_id), None)

    def belongs_to(self, team_id: str) -> bool:
        """Whether it may see what only the team sees."""
        return any(m.team.id == team_id for m in self.memberships)


def team_key(name: str) -> str:
    """What two names of the same team have in common: case and runs of spaces do not count."""
    return " ".join(unicodedata.normalize("NFKC", name).split()).casefold()
