"""What the pages work with: the stores, the queue, the accounts, and who is asking.

Conventions
-----------
A handler never trusts what the browser holds: it asks :meth:`Desk.actor` anew at every event, and every rule about who
may do what is applied to that answer. `gr.State` keeps ids at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import gradio as gr

if TYPE_CHECKING:
    from reveal_leaderboard.accounts import Accounts, Actor
    from reveal_leaderboard.auth import Auth
    from reveal_leaderboard.catalogue import Catalogue
    from reveal_leaderboard.intake import Intake
    from reveal_leaderboard.queue import Queue
    from reveal_leaderboard.settings import Settings
    from reveal_leaderboard.store import Store

__all__ = ["Desk", "NotAdminError"]


class NotAdminError(PermissionError):
    """An admin's action asked for by somebody else."""


@dataclass(frozen=True)
class Desk:
    """Everything a page may reach; no holdout, no vault and no signing key is among it."""

    store: Store
    queue: Queue
    intake: Intake
    accounts: Accounts
    auth: Auth
    settings: Settings
    catalogue: Catalogue

    def actor(self, request: gr.Request) -> Actor | None:
        """Who sent the event, from its cookie or token; None for a visitor."""
        return self.auth.actor(request.request)

    def admin(self, request: gr.Request) -> Actor:
        """Who sent the event, if that is an admin.

        Raises
        ------
        NotAdminError
            For everybody else.
        """
        actor = self.actor(request)
        if actor is None or not actor.is_admin:
            raise NotAdminError("only an admin may do this")
        return actor

    @property
    def names(self) -> list[str]:
        """Names of the benchmarks served."""
        return list(self.catalogue.names)
