"""Limits on TCP connections: their number, the time to send a request's head, and the time to read an answer.

Conventions
-----------
Uvicorn and h11 have no such limits. Uvicorn accepts a custom protocol class (``Config(http=CLASS)``), so
:func:`limited_protocol` returns a subclass of uvicorn's h11 protocol. This pure Python protocol is used even if
httptools is installed. Any other ASGI server would need the same limits in front of it.

A connection is *waiting* while none of its requests is being answered: before its first request, between two requests,
and while the body of an answered request is still arriving. If a client connects when the largest number of connections
is open, the connection that has waited longest is closed. So clients that send their request at once are answered,
however many other clients keep connections open without a request. If no connection is waiting, the connection whose
client has the least time left to read its answer (`UNREAD_SECONDS`) is closed. If no answer is unread, the new
connection is closed.

:class:`reveal_leaderboard.web.middleware.BodyLimit` limits request bodies, and
:class:`reveal_leaderboard.web.rate_limits.RateLimit` limits requests in progress.
"""

from __future__ import annotations

import asyncio
import resource
from contextlib import suppress
from typing import ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from reveal_leaderboard.addresses import network_of

HEAD_SECONDS = 20.0
"""Most seconds from the first byte of a request's head to its end, and from a new connection to its first byte."""
UNREAD_SECONDS, SLOWEST_READER = 60.0, 10_000
"""n bytes of an answer must be read within `UNREAD_SECONDS` + n / `SLOWEST_READER` seconds."""
SWEEP_SECONDS = 2.0
MAX_CONNECTIONS, MAX_OF_ADDRESS = 4000, 500
"""`MAX_OF_ADDRESS` is larger than `RequestLimits.open_requests`, so an address with too many requests gets an error."""
BACKLOG = 100
"""Number of connections that asyncio accepts at a time, before the first of them is counted."""
OTHER_DESCRIPTORS = 500
"""File descriptors reserved for files, the database, confined processes, and connections that are being closed."""


class _Group:
    """Open connections, and the waiting ones among them in the order in which they began to wait."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open: dict[LimitedProtocol, None] = {}
        self.waiting: dict[LimitedProtocol, None] = {}

    def add(self, connection: LimitedProtocol) -> LimitedProtocol | None:
        """Add a waiting connection; if there are now too many, return the connection to close, else None."""
        self.open[connection] = self.waiting[connection] = None
        if len(self.open) <= self.limit:
            return None
        if len(self.waiting) > 1:
            return next(iter(self.waiting))
        unread = [other for other in self.open if other.unread_due is not None]
        return min(unread, key=lambda other: other.unread_due or 0.0, default=connection)

    def remove(self, connection: LimitedProtocol) -> None:
        self.open.pop(connection, None)
        self.waiting.pop(connection, None)


class Connections:
    """The open connections of a server.

    Parameters
    ----------
    most, of_address : largest number of connections in total, and from one address (IPv6: one /64)
    head_seconds, unread_seconds : see `HEAD_SECONDS` and `UNREAD_SECONDS`
    """

    def __init__(
        self,
        most: int = MAX_CONNECTIONS,
        of_address: int = MAX_OF_ADDRESS,
        *,
        head_seconds: float = HEAD_SECONDS,
        unread_seconds: float = UNREAD_SECONDS,
    ) -> None:
        self.most, self.of_address = most, of_address
        self.head_seconds, self.unread_seconds = head_seconds, unread_seconds
        self._all, self._by_address = _Group(most), dict[str, _Group]()
        self._is_sweeping = False

    @property
    def n_open(self) -> int:
        """Number of open connections."""
        return len(self._all.open)

    def add(self, connection: LimitedProtocol) -> None:
        """Add a new connection, and close another one if there are too many."""
        same_address = self._by_address.setdefault(connection.address, _Group(self.of_address))
        for group in (same_address, self._all):
            if (surplus := group.add(connection)) is not None:
                surplus.drop()
            if surplus is connection:
                return
        if not self._is_sweeping:
            self._is_sweeping = True
            connection.loop.call_later(SWEEP_SECONDS, self._sweep, connection.loop)

    def note(self, connection: LimitedProtocol, *, waits: bool) -> None:
        """Record whether an open connection is waiting."""
        for group in self._groups(connection):
            if waits and connection in group.open:
                group.waiting[connection] = None
            elif not waits:
                group.waiting.pop(connection, None)

    def remove(self, connection: LimitedProtocol) -> None:
        """Remove a closed connection; does nothing if it was already removed."""
        for group in self._groups(connection):
            group.remove(connection)
        if connection.address in self._by_address and not self._by_address[connection.address].open:
            del self._by_address[connection.address]

    def _groups(self, connection: LimitedProtocol) -> list[_Group]:
        same_address = self._by_address.get(connection.address)
        return [self._all] if same_address is None else [same_address, self._all]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self._all.open):
            connection.check(loop.time())
        self._is_sweeping = bool(self._all.open)
        if self._is_sweeping:
            loop.call_later(SWEEP_SECONDS, self._sweep, loop)


class LimitedProtocol(H11Protocol):
    """An HTTP connection that the server closes when it exceeds `limits`.

    Attributes
    ----------
    address : the client's address as :func:`network_of` writes it
    unread_due : loop time by which the client must have read what was sent; None if nothing is unread
    """

    limits: ClassVar[Connections]  # `connections` is uvicorn's
    address: str
    unread_due: float | None = None
    _head_due: float | None = None
    _closed_due: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Record the new connection and the time by which its first request is due."""
        super().connection_made(transport)
        self.address = network_of(self.client[0] if self.client else "")
        self._head_due = self.loop.time() + self.limits.head_seconds
        self.limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        self.limits.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes from the client, and update whether the connection is waiting."""
        super().data_received(data)
        if self._is_answering():
            self._head_due = None
            self.limits.note(self, waits=False)
        elif self._head_due is None:  # the first bytes of the next head
            self._head_due = self.loop.time() + self.limits.head_seconds

    def on_response_complete(self) -> None:
        """Record that the connection is waiting, unless its next request has already arrived."""
        super().on_response_complete()
        if not self._is_answering():
            self.limits.note(self, waits=True)

    def pause_writing(self) -> None:
        """Set the time by which the client must have read the sent bytes."""
        super().pause_writing()
        self.unread_due = self._time_to_read()

    def resume_writing(self) -> None:
        """Clear that time, because the client has read enough."""
        super().resume_writing()
        self.unread_due = None

    def check(self, now: float) -> None:
        """Close the connection if the client has exceeded a time limit at the loop time `now`."""
        # A closing transport waits until the client has read the rest.
        if self._closed_due is None and self.transport.is_closing():
            self._closed_due = self._time_to_read()
        if any(due is not None and now > due for due in (self._head_due, self.unread_due, self._closed_due)):
            self.drop()

    def drop(self) -> None:
        """Close the connection at once."""
        self.limits.remove(self)
        self.transport.abort()

    def _time_to_read(self) -> float:
        n_bytes = self.transport.get_write_buffer_size()
        return self.loop.time() + self.limits.unread_seconds + n_bytes / SLOWEST_READER

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _should_upgrade(self) -> bool:
        return False  # the server has no websockets, and uvicorn would log two lines per attempt


def limited_protocol(connections: Connections) -> type[LimitedProtocol]:
    """Return a protocol class with these limits, for ``uvicorn.Config(http=...)``."""

    class Protocol(LimitedProtocol):
        pass

    Protocol.limits = connections
    return Protocol


def open_connections(n_proxies: int) -> Connections:
    """Return limits that fit the system's limit of open files, after raising the soft limit.

    Behind a trusted proxy all connections come from the proxy, so there is no limit per address.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft - OTHER_DESCRIPTORS)
    most = max(most, soft // 2) if 0 < soft < needed else most
    return Connections(most, most if n_proxies else MAX_OF_ADDRESS)
