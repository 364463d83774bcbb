"""Routes for operators (health, readiness, metrics) and the public keys of receipts."""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Request, Security
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from sqlalchemy.exc import SQLAlchemyError

from reveal_bench.exchange.receipts import key_id
from reveal_leaderboard.custody.confinement import children_gaps
from reveal_leaderboard.release import receipts
from reveal_leaderboard.web.api.documents import Health, Key, Keys, Readiness
from reveal_leaderboard.web.api.problems import ALWAYS, ProblemError, answers
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.sign_in_modes import is_from_here

READY_SECONDS = 1.0
"""Seconds for which the result of a readiness check is reused, because the route has no request limit."""
LEAST_ROOM = 64 << 20
"""Fewest free bytes on the disk of uploads with which the server is ready."""
NO_ROOM = "The disk of uploads is nearly full or read-only."
OPERATOR = Security(
    HTTPBearer(auto_error=False, scheme_name="operator", description="the server's REVEAL_METRICS_TOKEN")
)


def health_routes(services: Services) -> APIRouter:
    """Return the routes ``/healthz``, ``/readyz`` and ``/metrics``."""
    router = APIRouter()

    @router.get("/healthz", responses=answers(*ALWAYS))
    async def healthz() -> Health:
        """Answers while the process runs."""
        return Health(status="ok")

    latest: list[tuple[float, Readiness | ProblemError]] = []
    checking = asyncio.Lock()

    @router.get("/readyz", responses=answers(*ALWAYS, "not-ready"))
    async def readyz() -> Readiness:
        """Readiness of the server (database reachable, space for uploads), waiting submissions, and live workers."""
        async with checking:
            if not latest or time.monotonic() >= latest[0][0] + READY_SECONDS:
                result = await to_thread.run_sync(check)
                latest[:] = [(time.monotonic(), result)]
            result = latest[0][1]
        if isinstance(result, ProblemError):
            raise result.with_traceback(None)
        return result

    def check() -> Readiness | ProblemError:
        try:
            with services.store.read() as connection:
                workers = services.queue.alive(connection)
            n_waiting = services.store.count_waiting()
        except SQLAlchemyError:
            return ProblemError("not-ready", confinement=services.confinement)
        if not services.intake.blobs.has_room(LEAST_ROOM):
            return ProblemError("not-ready", NO_ROOM, confinement=services.confinement)
        confinements = sorted({worker.confinement for worker in workers})
        return Readiness(
            status="ready",
            confinement=services.confinement,
            benchmarks=list(services.catalogue.names),
            queued=n_waiting,
            live_workers=len(workers),
            worker_confinement=confinements,
            gaps=[*services.gaps, *(f"worker: {gap}" for one in confinements for gap in children_gaps(one))],
        )

    @router.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses=answers("malformed", "operators-only", "not-found", "rate", "incident"),
    )
    def metrics(request: Request, token: Annotated[object, OPERATOR] = None) -> PlainTextResponse:
        """Counts and times for Prometheus; only for the server's operators."""
        if services.metrics is None:
            raise ProblemError("not-found")
        if not _is_operator(request, services.metrics_token):
            raise ProblemError("operators-only")
        return PlainTextResponse(services.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _is_operator(request: Request, token: str | None) -> bool:
    """Return True if the request has the token or, without one, comes from this machine without a proxy."""
    if token is not None:
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(sent.strip().encode(), token.encode())
    return is_from_here(request)


def key_routes(services: Services) -> APIRouter:
    """Return the route ``/keys``."""
    router = APIRouter()

    @router.get("/keys", responses=answers(*ALWAYS))
    def keys() -> Keys:
        """Public keys of the workers that sign receipts."""
        with services.store.read() as connection:
            used = receipts.public_keys(connection)
            ready = {worker.receipt_key for worker in services.queue.workers(connection) if worker.receipt_key}
        fresh = sorted(ready - {key.public_key for key in used})
        return Keys(
            keys=[
                *(Key.model_validate(key) for key in used),
                *(Key(key_id=key_id(text), public_key=text, first=None, last=None) for text in fresh),
            ]
        )

    return router
