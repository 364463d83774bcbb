"""What the API and the pages work with: the stores, the queue, the accounts, and who is asking.

Conventions
-----------
Nothing that the browser holds is trusted: every event asks anew who sent it, and every rule about who may do what is
applied to that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    """An admin's action asked for by somebody else."""


@dataclass(frozen=True)
class Services:
    """Everything that a route or a page may reach; no holdout, no vault and no signing key is among it.

    Attributes
    ----------
    confinement : how this process is confined, for ``/readyz``
    metrics : renders ``/metrics``; None where they are off
    metrics_token : whoever asks for ``/metrics`` must bear it; without one, only this machine may ask
    galleries : cases to look at
    """

    store: Store
    queue: Queue
    intake: Intake
    accounts: Accounts
    auth: Auth
    confinement: str = "none"
    metrics: Callable[[], str] | None = None
    metrics_token: str | None = None
    galleries: Galleries = field(default_factory=Galleries)

    @property
    def settings(self) -> Settings:
        """The figures of the policy."""
        return self.store.settings

    @property
    def catalogue(self) -> Catalogue:
        """The public side of the benchmarks served."""
        return self.intake.catalogue

    @property
    def names(self) -> list[str]:
        """Names of the benchmarks served."""
        return list(self.catalogue.names)

    @property
    def read_boards(self) -> list[str]:
        """Names of the benchmarks whose answers readers score."""
        return [name for name in self.names if any(one.scored_by == "readers" for one in self.catalogue.versions(name))]

    def actor(self, request: gr.Request) -> Actor | None:
        """Who sent an event of a page, from its cookie or token; None for a visitor."""
        return self.auth.actor(request.request)

    def admin(self, request: gr.Request) -> Actor:
        """Who sent an event of a page, if that is an admin.

        Raises
        ------
        NotAdminError
            For everybody else.
        """
        actor = self.actor(request)
        if actor is None or not actor.is_admin:
            raise NotAdminError("only an admin may do this")
        return actor
