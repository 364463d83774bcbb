"""ASGI middleware that limits the rate of requests of an address, a person and a team.

Conventions
-----------
Limits are token buckets. A request takes its cost from the buckets of its address and its actor. An upload also takes
its cost from the buckets of the actor's teams or, with an API token, of the token's team. If a bucket contains less
than the cost, the request is refused (429, with ``Retry-After``) and costs nothing. The unit of cost is one read
request. All IPv6 addresses of a /64 network share a bucket, since they belong to one customer.

Every request is counted in the memory of its server. Uploads, sign-ins and changes through the API are also counted in
the database (:mod:`reveal_leaderboard.store.buckets`), for all servers together and across restarts. Reading a page
writes nothing to the database, so that visitors cannot delay the workers; of visitors' requests, only sign-ins are
written. A missing bucket counts as full, so the buckets in memory that were used longest ago are dropped first.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from reveal_leaderboard.addresses import network_of
from reveal_leaderboard.store.buckets import Rate, SharedBuckets
from reveal_leaderboard.web.middleware import SAFE_METHODS, Gate, send_problem
from reveal_leaderboard.web.recent import Recent
from reveal_leaderboard.web.sign_in_modes import Auth

MAX_BUCKETS = 50_000
STATIC = ("/assets/", "/static/", "/gallery/", "/svelte/", "/theme.css", "/favicon.ico")
PROBES = ("/healthz", "/readyz")
"""Addresses that are never limited, because a supervisor restarts a server that does not answer them."""
UPLOADS = ("/gradio_api/upload", "/api/v1/submissions")
SIGN_INS = ("/login", "/api/v1/me/tokens")
BY_API = "/api/"
READ, WRITE, UPLOAD, SIGN_IN = 1, 2, 20, 20
SWEEP_SECONDS = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Rates for an address, an actor and a team's uploads; `open_requests` is the most simultaneous requests per
    address.

    The limits of an address are generous because a hospital's staff share one, and a page keeps a request open until
    its events are answered. A whole team may upload twice as much as one of its members: 60 files at once, then 2 per
    second.
    """

    address: Rate = field(default=Rate(2000, 100))
    actor: Rate = field(default=Rate(600, 20))
    team: Rate = field(default=Rate(1200, 40))
    open_requests: int = 400


def cost_of(method: str, path: str) -> int:
    """Return the cost of a request in reads; static files cost 0, uploads and sign-ins most.

    >>> cost_of("GET", "/assets/index.js"), cost_of("GET", "/submit"), cost_of("POST", "/api/v1/submissions")
    (0, 1, 20)
    """
    if _is_sign_in(method, path):
        return SIGN_IN
    if method in SAFE_METHODS:
        return 0 if path.startswith(STATIC) else READ
    return UPLOAD if _is_upload(method, path) else WRITE


def _is_sign_in(method: str, path: str) -> bool:
    return path == "/login/callback" or (path.startswith(SIGN_INS) and (path == "/login" or method not in SAFE_METHODS))


def _is_upload(method: str, path: str) -> bool:
    return method not in SAFE_METHODS and path.rstrip("/") in UPLOADS


class RateLimit(Gate):
    """Refuses requests beyond `limits`.

    Parameters
    ----------
    auth : finds the actor of a request; visitors are counted by address only
    shared : buckets that count the requests of all servers together; None to count the requests of this server only
    clock : function that returns monotonic seconds
    """

    def __init__(
        self,
        app: ASGIApp,
        auth: Auth,
        limits: RequestLimits | None = None,
        *,
        shared: SharedBuckets | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(app)
        self.auth, self.limits = auth, limits or RequestLimits()
        self._shared, self._clock, self._swept = shared, clock, clock()
        self._buckets = _Buckets(clock)
        self._open: Counter[str] = Counter()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await self.app(scope, receive, send)
            return
        address = _address(scope)
        if self._open[address] >= self.limits.open_requests:
            detail = f"Your address already has {self.limits.open_requests} requests in progress."
            await send_problem(send, 429, detail, {"retry-after": "5"})
            return
        self._open[address] += 1
        try:
            await self._count(address, scope, receive, send)
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    async def _count(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        cost, actor = cost_of(method, path), None
        charged = {f"address:{address}": self.limits.address}
        seconds = self._buckets.wait(charged, cost)
        if not seconds and cost and _has_credentials(scope):  # looked up only if the address is within its limit
            actor = await self.auth.find_actor(scope)
            if actor is not None:
                charged[actor.name] = self.limits.actor
                if _is_upload(method, path):
                    charged |= {f"team:{m.team.id}": self.limits.team for m in actor.memberships}
                seconds = self._buckets.wait(charged, cost)
        if not seconds:
            self._buckets.take(charged, cost)
            if self._shared is not None and _is_shared(method, path, is_known=actor is not None):
                seconds = await to_thread.run_sync(self._take_shared, self._shared, charged, cost)
                if seconds:
                    self._buckets.take(charged, -cost)
        if seconds:
            wait = max(1, math.ceil(seconds))
            detail = f"Too many requests at once. Try again in {wait} s."
            await send_problem(send, 429, detail, {"retry-after": str(wait)})
            return
        await self.app(scope, receive, send)

    def _take_shared(self, shared: SharedBuckets, charged: dict[str, Rate], cost: float) -> float:
        """Return the seconds to wait; 0 if the database is unreachable, because the request itself will report the
        outage.
        """
        try:
            if self._clock() > self._swept + SWEEP_SECONDS:
                self._swept = self._clock()
                rates = (self.limits.address, self.limits.actor, self.limits.team)
                shared.sweep(max(rate.burst / rate.per_second for rate in rates))
            return shared.take(charged, cost)
        except SQLAlchemyError as error:
            log.warning("the database is unreachable: a request is counted by this server only", exc_info=error)
            return 0.0


class _Buckets:
    """Token buckets in memory: the content of each, and the time at which it was computed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._contents: Recent[str, tuple[float, float]] = Recent(MAX_BUCKETS)

    def wait(self, rates: dict[str, Rate], cost: float) -> float:
        """Return the seconds until every bucket contains `cost`; 0 if all of them contain enough now."""
        return max(rate.wait(self._now_in(key, rate), cost) for key, rate in rates.items())

    def take(self, rates: dict[str, Rate], cost: float) -> None:
        if not cost:
            return
        for key, rate in rates.items():
            self._contents.put(key, (self._now_in(key, rate) - cost, self._clock()))

    def _now_in(self, key: str, rate: Rate) -> float:
        if key not in self._contents:
            return rate.burst
        content, at = self._contents[key]
        return rate.filled(content, self._clock() - at)


def _is_shared(method: str, path: str, *, is_known: bool) -> bool:
    """Return True if all servers count the request together."""
    changes = method not in SAFE_METHODS and (path.startswith(BY_API) or _is_upload(method, path))
    return _is_sign_in(method, path) or (is_known and changes)


def _has_credentials(scope: Scope) -> bool:
    return any(name in (b"cookie", b"authorization") for name, _ in scope["headers"])


def _address(scope: Scope) -> str:
    return network_of((scope.get("client") or ("",))[0])
