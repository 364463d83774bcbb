"""Services that the API and the pages share: stores, queue, accounts, and the actor of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reveal_bench.viewer.serving import Galleries

if TYPE_CHECKING:
    import gradio as gr

    from reveal_leaderboard.accounts.accounts import Accounts
    from reveal_leaderboard.accounts.people import Actor
    from reveal_leaderboard.boards.catalogue import Catalogue
    from reveal_leaderboard.settings import Settings
    from reveal_leaderboard.store.queue import Queue
    from reveal_leaderboard.store.store import Store
    from reveal_leaderboard.web.sign_in_modes import Auth
    from reveal_leaderboard.web.submissions import Intake


class NotAdminError(PermissionError):
    """Someone other than an admin requested an admin's action."""


@dataclass(frozen=True)
class Services:
    """Everything that a route or a page can use, which excludes holdouts, the vault and signing keys.

    Attributes
    ----------
    confinement, gaps : how this process is confined, and what the confinement does not prevent, for ``/readyz``
    metrics : renders ``/metrics``; None to switch it off
    metrics_token : bearer token for ``/metrics``; without a token, only this machine may request the page
    galleries : viewers of released cases
    """

    store: Store
    queue: Queue
    intake: Intake
    accounts: Accounts
    auth: Auth
    confinement: str = "none"
    gaps: tuple[str, ...] = ()
    metrics: Callable[[], str] | None = None
    metrics_token: str | None = None
    galleries: Galleries = field(default_factory=Galleries)

    @property
    def settings(self) -> Settings:
        """The settings of all boards."""
        return self.store.settings

    @property
    def catalogue(self) -> Catalogue:
        """The public datasets of the benchmarks served."""
        return self.intake.catalogue

    @property
    def names(self) -> list[str]:
        """Names of the benchmarks served."""
        return list(self.catalogue.names)

    @property
    def read_boards(self) -> list[str]:
        """Names of the benchmarks whose answers readers rate."""
        versions = self.catalogue.versions
        return [name for name in self.names if any(version.scored_by == "readers" for version in versions(name))]

    def actor(self, request: Any) -> Actor | None:
        """Return the signed-in person who requests a page or sends its event; None for visitors and tokens.

        Tokens are for the API, which checks their scopes.
        """
        actor = self.auth.actor(request)
        return None if actor is None or actor.via == "token" else actor

    def admin(self, request: gr.Request) -> Actor:
        """Return the sender of a page's event, who must be an admin.

        Raises
        ------
        NotAdminError
            If the sender is not an admin.
        """
        actor = self.actor(request)
        if actor is None or not actor.is_admin:
            raise NotAdminError("only an admin may do this")
        return actor
