"""What every request passes before it meets the API or a page, as ASGI middleware.

`SecureHeaders` stamps every answer. `SameOrigin` refuses writes that another site's page sends. `BodyLimit` counts the
bytes of a request while they arrive, whatever its headers say. `NoTraces` turns an unexpected exception into a bare
problem document; the log has the rest.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["PROBLEM_TYPE", "BodyLimit", "NoTraces", "SameOrigin", "SecureHeaders", "problem_body"]

PROBLEM_TYPE = "application/problem+json"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

# Gradio's pages are built from inline scripts and, in its HTML component, from templates compiled in the browser. So
# the policy cannot forbid those: what stops foreign markup is that all user text is escaped. The policy stops requests
# to other sites, foreign forms and framing.
CONTENT_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
SECURE_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

log = logging.getLogger(__name__)


def problem_body(status: int, title: str, detail: str, **extensions: object) -> dict[str, object]:
    """A problem document (RFC 9457)."""
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **extensions}


async def _send_problem(send: Send, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
    body = json.dumps(problem_body(status, HTTPStatus(status).phrase, detail)).encode()
    fields = {"content-type": PROBLEM_TYPE, "content-length": str(len(body)), **(headers or {})}
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


class SecureHeaders:
    """Adds the security headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in SECURE_HEADERS.items():
                    headers[name] = value
            await send(message)

        await self.app(scope, receive, stamped)


class SameOrigin:
    """Refuses requests that change something and come from another site's page (403)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS and _is_foreign(Headers(scope=scope)):
            await _send_problem(send, 403, "Requests from other sites' pages are refused.")
            return
        await self.app(scope, receive, send)


def _is_foreign(headers: Headers) -> bool:
    origin = headers.get("origin")
    if origin is not None and _netloc(origin) != headers.get("host"):
        return True
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # no address at all
        return None


class BodyLimit:
    """Refuses a request body of more than `limit` bytes (413), counted while it arrives."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        n_bytes = 0
        started = False

        async def counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            # To the application the client is gone: whatever it would answer is replaced below.
            return {"type": "http.disconnect"} if n_bytes > self.limit else message

        async def checked(message: Message) -> None:
            nonlocal started
            if n_bytes <= self.limit or started:
                started = True
                await send(message)

        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > self.limit:
            n_bytes = int(declared)
        else:
            try:
                await self.app(scope, counted, checked)
            except Exception:
                if n_bytes <= self.limit:
                    raise
        if n_bytes > self.limit and not started:
            detail = f"The request is larger than the {self.limit:,} bytes that are taken."
            await _send_problem(send, 413, detail, {"connection": "close"})


class NoTraces:
    """Answers an unexpected exception with a number to quote, and logs it under that number."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception:
            number = f"INC-{secrets.token_hex(4).upper()}"
            log.exception("%s: %s %s", number, scope.get("method"), scope.get("path"))
            if scope["type"] != "http" or started:
                raise
            await _send_problem(send, 500, f"Something went wrong on our side; it is noted as incident {number}.")
