"""What every request passes, tried on a small application."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from reveal_leaderboard.gate import BodyLimit, NoTraces, SameOrigin, SecureHeaders
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

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
    import asyncio

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
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_a_foreign_pages_write_is_refused(headers: dict[str, str], status: int) -> None:
    assert run(SameOrigin(APP), "POST", headers=headers).status_code == status
    assert run(SameOrigin(APP), "GET", headers=headers).status_code == 200


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
