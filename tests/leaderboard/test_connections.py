"""Connections of a server that listens on loopback, with small limits."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import pytest
import uvicorn
from reveal_leaderboard.web import connections
from reveal_leaderboard.web.connections import Connections, limited_protocol, open_connections
from starlette.types import Receive, Scope, Send

from tests.leaderboard.conftest import free_port, wait_until

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
HALF_HEAD = b"GET / HTTP/1.1\r\nHost: here\r\nX-Next: "
LARGE = 64 << 20  # more than the system's buffers hold


class Answers:
    """An application that does not read bodies; `/large` waits until its answer is read, `/whole` does not."""

    def __init__(self) -> None:
        self.large_ended = Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b"a" * (2 if scope["path"] == "/" else LARGE)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body, "more_body": scope["path"] == "/large"})
        if scope["path"] == "/large":
            await send({"type": "http.response.body"})
            self.large_ended.set()


@pytest.fixture(autouse=True)
def _frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.02)


@contextmanager
def serving(limits: Connections, app: Answers | None = None) -> Iterator[int]:
    port = free_port()
    config = uvicorn.Config(
        app or Answers(), port=port, http=limited_protocol(limits), ws="none", lifespan="off", log_level="critical"
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(20)


def connect(stack: ExitStack, port: int, sent: bytes, address: str = "127.0.0.1") -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, source_address=(address, 0)))
    client.sendall(sent)
    return client


def is_closed(client: socket.socket) -> bool:
    """Return True once the server has closed the connection; the socket's timeout is the limit."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def answers(client: socket.socket) -> bool:
    return client.recv(15) == b"HTTP/1.1 200 OK"


def test_half_sent_heads_give_way_to_a_request() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(Connections(8, 8)))
        held = [connect(stack, port, HALF_HEAD) for _ in range(20)]
        assert answers(connect(stack, port, GET))
        assert all(map(is_closed, held[:12]))


def test_one_address_does_not_take_the_places_of_another() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(Connections(20, 4)))
        other = connect(stack, port, HALF_HEAD, "127.0.0.2")
        held = [connect(stack, port, HALF_HEAD) for _ in range(20)]
        assert all(map(is_closed, held[:16]))
        other.sendall(b"yes\r\n\r\n")
        assert answers(other)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HALF_HEAD, id="half a head"),
        pytest.param(GET + HALF_HEAD, id="half of a second head"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 999\r\n\r\n", id="a body nobody reads"),
    ],
)
def test_a_slow_head_is_disconnected_though_bytes_keep_arriving(sent: bytes) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(serving(Connections(head_seconds=0.1)))
        client = connect(stack, port, sent)
        client.settimeout(0.02)

        def drip() -> bool:
            try:
                if sent:
                    client.send(b"a")
                return client.recv(65536) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        assert wait_until(drip)


def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_READER", LARGE * 10)
    app = Answers()
    with ExitStack() as stack:
        port = stack.enter_context(serving(Connections(unread_seconds=0.1), app))
        connect(stack, port, GET.replace(b"/", b"/large", 1))
        assert app.large_ended.wait(10)


def test_a_closed_connection_does_not_wait_forever_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SLOWEST_READER", LARGE * 10)
    limits = Connections(unread_seconds=0.1)
    with ExitStack() as stack:
        port = stack.enter_context(serving(limits))
        connect(stack, port, b"GET /whole HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        wait_until(lambda: limits.n_open == 1)
        assert wait_until(lambda: limits.n_open == 0)


def test_an_unread_answer_gives_way_if_no_connection_waits() -> None:
    app = Answers()
    with ExitStack() as stack:
        port = stack.enter_context(serving(Connections(1, 1), app))
        connect(stack, port, GET.replace(b"/", b"/large", 1)).recv(1)
        assert answers(connect(stack, port, GET))
        assert app.large_ended.wait(10)


@pytest.mark.parametrize(
    ("soft", "hard", "most"),
    [(1024, 1 << 20, 4000), (1024, 4096, 3596), (1024, 1024, 524), (256, 256, 128), (-1, -1, 4000)],
)
def test_connections_leave_room_for_other_descriptors(
    soft: int, hard: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert open_connections(0).most == most
    assert open_connections(1).of_address == most  # a proxy's own address is not limited
