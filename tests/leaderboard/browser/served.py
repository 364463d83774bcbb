"""The real application over a :class:`World`, served by a thread of this process: up in a second, no worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reveal_leaderboard.web.app import Front, build_app

from tests.leaderboard.browser.world import World
from tests.leaderboard.conftest import serving as serving_app


@contextmanager
def serving(world: World, front: Front | None = None) -> Iterator[str]:
    """The address of the board, until the end of the block."""
    app = build_app(world.store, world.intake.blobs, world.catalogue, world.intake.custody, world.auth, front)
    try:
        with serving_app(app) as address:
            yield address
    finally:
        world.store.engine.dispose()
