"""Middleware on a small application."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from reveal_leaderboard.web.middleware import (
    NO_ROOM,
    SPACE_FRAMES,
    BodyLimit,
    Compressed,
    ErrorPages,
    Forwarded,
    KnownHost,
    NotCached,
    NoTraces,
    Problems,
    SameOrigin,
    SecureHeaders,
)
from reveal_leaderboard.web.sign_in_modes import FORWARDED
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HERE = "http://127.0.0.1:7860"


async def _echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def _broken(request: Request) -> Response:
    raise RuntimeError("the-holdout-says-so")


APP = Starlette(routes=[Route("/", _echo, methods=["GET", "POST"]), Route("/broken", _broken)])


async def ask(app: ASGIApp, method: str, path: str = "/", **options: object) -> httpx.Response:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
        return await client.request(method, path, **options)  # type: ignore[arg-type]


def run(app: ASGIApp, method: str, path: str = "/", **options: object) -> httpx.Response:
    return asyncio.run(ask(app, method, path, **options))


async def _pieces(n: int) -> AsyncIterator[bytes]:
    for _ in range(n):
        yield b"x" * 100


@pytest.mark.parametrize(("n_bytes", "status"), [(1000, 200), (1001, 413)])
def test_a_declared_body_is_limited(n_bytes: int, status: int) -> None:
    answer = run(BodyLimit(APP, limit=1000), "POST", content=b"x" * n_bytes)
    assert answer.status_code == status


@pytest.mark.parametrize(("n_pieces", "status"), [(10, 200), (11, 413), (10_000, 413)])
def test_a_streamed_body_is_counted_while_it_arrives(n_pieces: int, status: int) -> None:
    answer = run(BodyLimit(APP, limit=1000), "POST", content=_pieces(n_pieces))
    assert answer.status_code == status
    if status == 413:
        assert answer.headers["content-type"] == "application/problem+json"
        assert "1,000 bytes" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": HERE}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"origin": HERE, "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://[broken"}, 403),
        ({"origin": HERE.replace("http:", "https:")}, 403),
        ({"cookie": "reveal=x"}, 403),  # a browser would say where it comes from
        ({"cookie": "reveal=x", "origin": HERE}, 200),
        ({"cookie": "reveal=x", "sec-fetch-site": "same-origin"}, 200),
        ({"cookie": "other=x", "authorization": "Bearer rvl_x"}, 200),
        ({"authorization": "Bearer rvl_x", "origin": "https://evil.example"}, 403),
    ],
    ids=range(16),
)
def test_a_foreign_pages_write_is_refused(headers: dict[str, str], status: int) -> None:
    assert run(SameOrigin(APP), "POST", headers=headers).status_code == status
    assert run(SameOrigin(APP), "GET", headers=headers).status_code == 200


@pytest.mark.parametrize(("scheme", "status"), [("https", 200), ("http", 403)])
def test_where_pages_are_served_by_https_one_by_http_is_another_sites(scheme: str, status: int) -> None:
    """With and without a header of the proxy that terminates TLS."""
    headers = {"origin": HERE.replace("http:", f"{scheme}:")}
    assert run(SameOrigin(APP, is_secure=True), "POST", headers=headers).status_code == status


def test_an_exception_leaves_only_a_number(caplog: pytest.LogCaptureFixture) -> None:
    app = Starlette(routes=APP.routes)
    app.add_middleware(NoTraces)
    with caplog.at_level(logging.ERROR):
        answer = run(app, "GET", "/broken")
    assert answer.status_code == 500
    assert "holdout" not in answer.text
    number = answer.json()["detail"].split()[-1].rstrip(".")
    assert number in caplog.text
    assert "the-holdout-says-so" in caplog.text


def test_every_answer_carries_the_security_headers() -> None:
    answer = run(SecureHeaders(APP), "GET", "/nowhere")
    assert answer.status_code == 404
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY"
    # With "no-referrer", a browser sends "Origin: null" with the board's own forms, too: no user could sign out.
    assert answer.headers["referrer-policy"] == "same-origin"
    assert "strict-transport-security" not in answer.headers


def test_a_space_may_show_the_board_in_its_frame_and_https_is_kept_to() -> None:
    answer = run(SecureHeaders(APP, SPACE_FRAMES, is_secure=True), "GET")
    assert (
        "frame-ancestors https://huggingface.co https://*.huggingface.co" in answer.headers["content-security-policy"]
    )
    assert "x-frame-options" not in answer.headers
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


# Hosts and proxies


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7860", 200),
        ("127.0.0.1", 200),
        ("[::1]:7860", 200),
        ("[::1]", 200),
        ("BOARD.example.org", 200),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("board.example.org.", 400),
        ("board.example.org:x", 400),
        ("", 400),
    ],
    ids=range(10),
)
def test_only_known_hosts_are_answered(host: str, status: int) -> None:
    app = KnownHost(APP, ["127.0.0.1", "[::1]", "board.example.org"])
    answer = run(app, "GET", headers={"host": host})
    assert answer.status_code == status
    if status == 400:
        assert answer.headers["content-type"] == "application/problem+json"


def test_websockets_are_refused() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/", "headers": [(b"host", b"127.0.0.1")]}
    asyncio.run(KnownHost(APP, ["127.0.0.1"])(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def _seen(request: Request) -> Response:
    names = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded", "x-real-ip", "x-original-url")
    client = None if request.client is None else request.client.host
    seen = {"client": client, "url": str(request.url), "told": request.scope[FORWARDED]}
    return JSONResponse({**seen, "left": [name for name in names if name in request.headers]})


@pytest.mark.parametrize(
    ("n_proxies", "client", "url"),
    [
        (0, "127.0.0.1", "http://127.0.0.1:7860/"),
        (1, "10.0.0.2", "https://board.example.org/"),
        (2, "10.0.0.1", "https://board.example.org/"),
        (9, "6.6.6.6", "https://board.example.org/"),
    ],
)
def test_a_proxy_is_believed_only_if_told_to(n_proxies: int, client: str, url: str) -> None:
    app = Forwarded(Starlette(routes=[Route("/", _seen)]), n_proxies)
    headers = {
        "x-forwarded-for": "6.6.6.6, 10.0.0.1, 10.0.0.2",
        "x-forwarded-host": "board.example.org",
        "x-forwarded-proto": "https",
        "forwarded": "for=6.6.6.6",
        "x-real-ip": "6.6.6.6",
        "x-original-url": "/admin",
    }
    assert run(app, "GET", headers=headers).json() == {"client": client, "url": url, "told": True, "left": []}
    assert run(app, "GET").json()["told"] is False


def test_a_scheme_that_is_none_is_not_believed() -> None:
    app = Forwarded(Starlette(routes=[Route("/", _seen)]), 1)
    assert run(app, "GET", headers={"x-forwarded-proto": "javascript"}).json()["url"] == "http://127.0.0.1:7860/"


# Problem documents


def _pieces_of_text() -> Response:
    return StreamingResponse(iter(["half ", "of it"]), 404, media_type="text/plain")


OURS = "Something went wrong on our side."
NOT_FOUND = "Nothing matches the given URI"  # Python's own words for 404, HTTPStatus.description
ANSWERS: dict[str, tuple[Callable[[], Response], str, object]] = {
    "plain": (lambda: PlainTextResponse("Upload not found", 404), "Upload not found", None),
    "json": (lambda: JSONResponse({"detail": "Queue is full."}, 503), "Queue is full.", None),
    "structure": (lambda: JSONResponse({"detail": [{"loc": ["body"]}]}, 404), NOT_FOUND, [{"loc": ["body"]}]),
    "ours": (lambda: PlainTextResponse("the-holdout-says-so", 500), OURS, None),
    "ours in json": (lambda: JSONResponse({"detail": "the-holdout-says-so"}, 502), OURS, None),
    "control": (lambda: PlainTextResponse("a\x1b[31mb", 404), NOT_FOUND, None),
    "long": (lambda: PlainTextResponse("x" * 100_000, 404), NOT_FOUND, None),
    "packed": (lambda: PlainTextResponse("packed", 404, {"content-encoding": "x-other"}), NOT_FOUND, None),
    "pieces": (_pieces_of_text, "half of it", None),
}


@pytest.mark.parametrize("kind", list(ANSWERS))
def test_every_error_becomes_a_problem_document(kind: str) -> None:
    make, detail, errors = ANSWERS[kind]
    answer = run(Problems(make()), "GET")
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert (document["type"], document["status"]) == ("about:blank", answer.status_code)
    assert (document["detail"], document.get("errors")) == (detail, errors)


@pytest.mark.parametrize(
    "response",
    [
        PlainTextResponse("fine", 200),
        HTMLResponse("<h1>no</h1>", 404),
        JSONResponse({"detail": "d", "errors": [1]}, 422, media_type="application/problem+json"),
    ],
    ids=["good", "page", "problem"],
)
def test_pages_and_problem_documents_pass(response: Response) -> None:
    answer = run(Problems(response), "GET")
    assert (answer.status_code, answer.content) == (response.status_code, response.body)


def test_headers_that_say_what_to_do_are_kept() -> None:
    headers = {"retry-after": "7", "www-authenticate": "Bearer", "x-secret": "of the framework"}
    answer = run(Problems(PlainTextResponse("wait", 429, headers)), "GET")
    assert (answer.headers["retry-after"], answer.headers["www-authenticate"]) == ("7", "Bearer")
    assert "x-secret" not in answer.headers


# Slow senders


def _connection(pieces: list[tuple[float, bytes]]) -> list[Message]:
    """Return the answer to `pieces`, each sent after so many seconds, the last one ``end``."""
    sent: list[Message] = []
    waiting = iter(pieces)

    async def receive() -> Message:
        seconds, body = next(waiting, (3600.0, b""))
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": body, "more_body": body != b"end"}

    async def send(message: Message) -> None:
        sent.append(message)

    limit = BodyLimit(APP, limit=10_000, grace_seconds=0.3, bytes_per_second=1_000)
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    asyncio.run(limit(scope, receive, send))
    return sent


def test_who_stops_sending_is_hung_up_on() -> None:
    answer = _connection([(0.0, b"start")])
    assert [message.get("status") for message in answer] == [408, None]
    assert json.loads(answer[1]["body"])["detail"].startswith("The request arrived too slowly.")


def test_who_sends_fast_enough_may_take_longer() -> None:
    answer = _connection([(0.0, b"x" * 9000), (0.5, b"x"), (0.0, b"end")])  # due 0.3 + 9 s after the start
    assert answer[0]["status"] == 200
    assert answer[1]["body"] == b"9004"


@pytest.mark.parametrize("gate", [SameOrigin, NoTraces, Problems, SecureHeaders, Forwarded, BodyLimit, ErrorPages])
def test_the_start_of_the_server_passes_every_gate(gate: Any) -> None:
    """Gradio's queue starts with the server's lifespan, whose scope has no headers."""
    reached = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["type"])

    options = {"limit": 1} if gate is BodyLimit else {}
    asyncio.run(gate(app, **options)({"type": "lifespan"}, None, None))
    assert reached == ["lifespan"]


def test_a_full_disk_is_said_in_a_fixed_sentence() -> None:
    async def full(scope: Scope, receive: Receive, send: Send) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/a/secret/place")

    answer = run(NoTraces(full), "GET")
    assert (answer.status_code, answer.json()["detail"]) == (507, NO_ROOM)


@pytest.mark.parametrize("error", [HTTPException(404), HTTPException(500)])
def test_events_that_end_with_a_refusal_are_no_incident(error: HTTPException, caplog: pytest.LogCaptureFixture) -> None:
    """Gradio ends the events of an unknown session so; Starlette wraps the error, since the answer has begun."""

    async def events(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"gone", "more_body": True})
        raise RuntimeError from error

    assert run(NoTraces(events), "GET").text == "gone"
    assert ("INC-" in caplog.text) == (error.status_code == 500)


@pytest.mark.parametrize(
    ("path", "headers", "caching"),
    [
        ("/api/v1/me", {}, "private, no-store"),
        ("/api/v1/me/ledger", {"authorization": "Bearer t"}, "private, no-store"),
        ("/mine", {}, "private, no-store"),
        ("/", {"cookie": "theme=dark; session=secret"}, "private, no-store"),
        ("/", {"cookie": "theme=dark"}, None),
        ("/assets/page.js", {"cookie": "session=secret"}, None),
        ("/public", {"cookie": "session=secret"}, "public, max-age=10"),
    ],
)
def test_answers_to_people_are_not_cached(path: str, headers: dict[str, str], caching: str | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        own = {"cache-control": "public, max-age=10"} if path == "/public" else {}
        await PlainTextResponse("yes", headers=own)(scope, receive, send)

    assert run(NotCached(app, "session"), "GET", path, headers=headers).headers.get("cache-control") == caching


async def _long(request: Request) -> Response:
    if request.url.path == "/events":
        return StreamingResponse(_pieces(20), media_type="text/event-stream")
    return HTMLResponse("the same again and again, " * 200)


@pytest.mark.parametrize(
    ("method", "path", "headers", "is_compressed"),
    [
        ("GET", "/", {}, True),
        ("GET", "/", {"accept-encoding": "identity"}, False),
        ("GET", "/", {"cookie": "theme=dark"}, True),
        ("GET", "/", {"cookie": "theme=dark; session=secret"}, False),
        ("GET", "/", {"authorization": "Bearer secret"}, False),
        ("GET", "/assets/page.js", {"cookie": "session=secret"}, True),
        ("POST", "/", {}, False),
        ("GET", "/events", {}, False),
    ],
)
def test_only_what_is_the_same_for_everybody_is_compressed(
    method: str, path: str, headers: dict[str, str], is_compressed: bool
) -> None:
    routes = [Route(place, _long, methods=["GET", "POST"]) for place in ("/", "/assets/page.js", "/events")]
    answer = run(Compressed(Starlette(routes=routes), "session"), method, path, headers=headers)
    assert answer.headers.get("content-encoding") == ("gzip" if is_compressed else None)
    if is_compressed:
        assert int(answer.headers["content-length"]) < 200
        assert answer.headers["vary"] == "Accept-Encoding"
    assert len(answer.text) == (2_000 if path == "/events" else 5_200)
