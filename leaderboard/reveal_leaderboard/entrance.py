"""Puts everything that a request passes before the application, in its order.

`OwnMethods` stands here and not with the other gates because it looks at the application's routes.
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from reveal_leaderboard.auth import Auth
from reveal_leaderboard.error_page import ErrorPages
from reveal_leaderboard.gate import (
    SPACE_FRAMES,
    BodyLimit,
    Forwarded,
    KnownHost,
    NoTraces,
    Problems,
    SameOrigin,
    SecureHeaders,
    send_problem,
)
from reveal_leaderboard.gradio_gate import GradioGate
from reveal_leaderboard.rate import Limits, RateLimit

__all__ = ["OwnMethods", "guard"]

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")


class OwnMethods:
    """Answers 405 where a path is the application's own but the method is not.

    Without it such a request would fall through to what is mounted below ``/``.
    """

    def __init__(self, app: ASGIApp, owner: FastAPI) -> None:
        self.app, self.owner = app, owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http" or self._match(scope) is not Match.PARTIAL:
            await self.app(scope, receive, send)
            return
        allowed = [method for method in METHODS if self._match({**scope, "method": method}) is Match.FULL]
        detail = f"This address takes {' and '.join(allowed)}, not {scope['method'][:20]}."
        await send_problem(send, 405, detail, {"allow": ", ".join(allowed)})

    def _match(self, scope: Scope) -> Match:
        matches = [route.matches(scope)[0] for route in self.owner.router.routes if not isinstance(route, Mount)]
        return max(matches, key=lambda match: match.value, default=Match.NONE)


def guard(app: FastAPI, auth: Auth, *, max_body_bytes: int, n_proxies: int = 0, limits: Limits | None = None) -> None:
    """Let requests to `app` through the gates only; to be called once, before or after Gradio is mounted.

    Parameters
    ----------
    auth : who is asking, and under which host names the server is reached
    max_body_bytes : largest request body
    n_proxies : how many trusted proxies stand before the server; their word counts, nobody else's
    limits : how much may be asked for; in local mode, where everybody is one person, only what is given here
    """
    # The last one added sees a request first. Gradio's own CORS rules stand down when there is a CORSMiddleware.
    app.add_middleware(NoTraces)
    app.add_middleware(OwnMethods, owner=app)
    app.add_middleware(GradioGate, auth=auth)
    app.add_middleware(CORSMiddleware, allow_origins=[])
    app.add_middleware(BodyLimit, limit=max_body_bytes)
    app.add_middleware(SameOrigin)
    if auth.mode != "local" or limits is not None:
        app.add_middleware(RateLimit, auth=auth, limits=limits)
    app.add_middleware(Problems)
    app.add_middleware(KnownHost, hosts=auth.hosts)
    app.add_middleware(Forwarded, n_proxies=n_proxies)
    app.add_middleware(ErrorPages)
    frames = SPACE_FRAMES if auth.mode == "huggingface" else ()
    app.add_middleware(SecureHeaders, framed_by=frames, is_secure=auth.is_secure)
