"""The real application over a :class:`World`, served by a thread of this process: up in a second, no worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from reveal_leaderboard.web.app import build_app

from tests.leaderboard.browser.world import World
from tests.leaderboard.conftest import free_port


@contextmanager
def serving(world: World) -> Iterator[str]:
    """The address of the board, until the end of the block."""
    app = build_app(world.store, world.intake.blobs, world.catalogue, world.intake.custody, world.auth)
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start in a minute"
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        world.store.engine.dispose()
