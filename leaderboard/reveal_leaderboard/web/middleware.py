"""ASGI middleware that every request passes before it reaches the API or a page.

In the order in which a request passes them: `SecureHeaders` adds the security headers. `NotCached` keeps answers to
people out of caches. `Compressed` compresses answers to visitors who are not signed in. `ErrorPages` shows errors to
browsers as pages. `Forwarded` reads the headers of trusted proxies and removes all others. `KnownHost` refuses host
names that are not the server's. `Problems` turns every plain error into a problem document.
:class:`reveal_leaderboard.web.rate_limits.RateLimit` comes next. `SameOrigin` refuses writes from other sites' pages.
`BodyLimit` counts the bytes of a request as they arrive, whatever its headers say, and disconnects slow senders.
:class:`reveal_leaderboard.web.gradio_middleware.GradioGate` guards the routes that Gradio mounts. `NoTraces`, the
innermost, answers an unexpected exception with an incident number; the details are in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reveal_leaderboard.store.database import has_no_room
from reveal_leaderboard.web.pages.drawing import whole_page
from reveal_leaderboard.web.sign_in_modes import FORWARDED

PROBLEM_TYPE = "application/problem+json"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
SPACE_FRAMES = ("https://huggingface.co", "https://*.huggingface.co")  # Hugging Face frames a Space
PERSONAL = ("/api/v1/me", "/mine", "/submit", "/submission", "/admin", "/read")  # even without a cookie, in local mode
SAME_FOR_ALL = ("/assets/", "/static/")  # files of Gradio's pages
GRACE_SECONDS = 120.0
SLOWEST_BYTES_PER_SECOND = 50_000
MAX_PLAIN_ERROR = 16 * 1024

# Gradio's pages need inline scripts, and its HTML component compiles templates in the browser, so the policy cannot
# forbid either. All user text is escaped against foreign markup. The policy prevents requests to other sites, forms
# that post to other sites, and framing.
POLICY = "Content-Security-Policy"
CONTENT_POLICY = (
    "default-src 'self'",
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'self'",
)
SECURE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with "no-referrer", browsers would also omit the origin of a form
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
MAY_DIFFER = ("Cache-Control", "Cross-Origin-Resource-Policy")  # "cross-origin" is for images that other sites may show

log = logging.getLogger(__name__)


class Gate:
    """Base class of middleware: subclasses implement `_handle` for HTTP requests, and everything else passes
    through.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        await (self._handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        raise NotImplementedError


def gathered(
    send: Send,
    matches: Callable[[Message], bool],
    answer: Callable[[Message, bytes], Awaitable[None]],
    max_bytes: int | None = None,
) -> Send:
    """Return a `send` that holds back an answer if `matches(first message)`, and calls `answer` to send a different
    one.

    `answer` gets the first message and about the first `max_bytes` of the body.
    """
    start: Message | None = None
    body = b""

    async def gather(message: Message) -> None:
        nonlocal start, body
        if message["type"] == "http.response.start" and matches(message):
            start = message
        elif start is None:
            await send(message)
        else:
            if max_bytes is None or len(body) < max_bytes:
                body += message.get("body", b"")
            if not message.get("more_body", False):
                await answer(start, body)

    return gather


async def send_problem(
    send: Send, status: int, detail: str, headers: Mapping[str, str] | None = None, *, errors: object = None
) -> None:
    """Answer with a problem document whose title is the status phrase; `errors` is an extra member of the document."""
    problem = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    body = json.dumps(problem if errors is None else {**problem, "errors": errors}).encode()
    fields = {"content-type": PROBLEM_TYPE, "content-length": str(len(body)), **(headers or {})}
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


class SecureHeaders(Gate):
    """Adds the security headers to every answer, and keeps an answer's own content policy as well.

    Parameters
    ----------
    framed_by : sites that may show the pages in a frame, such as `SPACE_FRAMES` on a Space; by default none
    is_secure : whether browsers use https; if True, a header (HSTS) tells them to use https only
    policy : the content security policy of the pages
    headers : more headers
    """

    def __init__(
        self,
        app: ASGIApp,
        framed_by: Sequence[str] = (),
        *,
        is_secure: bool = False,
        policy: Sequence[str] = CONTENT_POLICY,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(app)
        frames = " ".join(framed_by) or "'none'"
        self.headers = {
            POLICY: "; ".join((*policy, f"frame-ancestors {frames}")),
            **SECURE_HEADERS,
            **(headers or {}),
        }
        if not framed_by:
            self.headers["X-Frame-Options"] = "DENY"
        if is_secure:
            self.headers["Strict-Transport-Security"] = "max-age=31536000"

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                own = headers.get(POLICY)
                for name, value in self.headers.items():
                    if name not in MAY_DIFFER or name not in headers:
                        headers[name] = value
                if own is not None:  # the page has a stricter policy, and browsers apply both
                    headers.append(POLICY, own)
            await send(message)

        await self.app(scope, receive, stamped)


class Compressed:
    """Compresses answers, except to people who are signed in.

    The length of a compressed page reveals whether a guess repeats part of a secret on the same page (BREACH). So only
    answers that are the same for all visitors are compressed: the pages' files, and answers to requests without
    credentials. Event streams are not compressed.

    Parameters
    ----------
    session_cookie : name of the cookie of people who are signed in
    """

    def __init__(self, app: ASGIApp, session_cookie: str) -> None:
        self.plain, self.session_cookie = app, session_cookie
        self.compressed = GZipMiddleware(app, minimum_size=1000, compresslevel=6)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        same_for_all = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        same_for_all = same_for_all and _is_same_for_all(scope, self.session_cookie)
        await (self.compressed if same_for_all else self.plain)(scope, receive, send)


def _is_same_for_all(scope: Scope, session_cookie: str) -> bool:
    """Return True for the pages' files, and for requests without credentials."""
    if scope["path"].startswith(SAME_FOR_ALL):
        return True
    headers = Headers(scope=scope)
    return "authorization" not in headers and f"{session_cookie}=" not in headers.get("cookie", "")


class NotCached(Gate):
    """Tells browsers and proxies not to store personal answers, unless the application declares an answer cacheable.

    Parameters
    ----------
    session_cookie : name of the cookie of people who are signed in
    """

    def __init__(self, app: ASGIApp, session_cookie: str) -> None:
        super().__init__(app)
        self.session_cookie = session_cookie

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_personal = scope["path"].startswith(PERSONAL)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                if is_personal or "cache-control" not in headers:
                    headers["Cache-Control"] = "private, no-store"
            await send(message)

        is_marked = is_personal or not _is_same_for_all(scope, self.session_cookie)
        await self.app(scope, receive, marked if is_marked else send)


class Forwarded:
    """Reads the client's address from the headers of `n_proxies` trusted proxies, and removes untrusted headers.

    With `n_proxies` = 0, ``X-Forwarded-*`` and similar headers are removed, since anyone can send them. Otherwise the
    client's address, scheme and host are those that the n-th proxy received, counted from the server.
    """

    def __init__(self, app: ASGIApp, n_proxies: int = 0) -> None:
        self.app, self.n_proxies = app, n_proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] in ("http", "websocket"):
            scope = self._read(scope)
        await self.app(scope, receive, send)

    def _read(self, scope: Scope) -> Scope:
        sent = Headers(scope=scope)
        headers = [(name, value) for name, value in scope["headers"] if not _is_forwarding(name)]
        scope = {**scope, FORWARDED: len(headers) < len(scope["headers"])}
        if self.n_proxies:
            client, scheme, host = (self._forwarded(sent, f"x-forwarded-{name}") for name in ("for", "proto", "host"))
            if client:
                scope["client"] = (client, 0)
            if scheme in ("http", "https"):
                scope["scheme"] = scheme
            if host:
                headers = [pair for pair in headers if pair[0] != b"host"]
                headers.append((b"host", host.encode("latin-1")))
        scope["headers"] = headers
        return scope

    def _forwarded(self, headers: Headers, name: str) -> str:
        values = [part.strip() for line in headers.getlist(name) for part in line.split(",")]
        return values[-min(self.n_proxies, len(values))] if values else ""


def _is_forwarding(name: bytes) -> bool:
    return name.startswith((b"x-forwarded-", b"x-original-")) or name in (b"forwarded", b"x-real-ip")


class KnownHost:
    """Refuses requests for hosts other than `hosts` (400), and all websockets, since the server uses none.

    Parameters
    ----------
    hosts : names and addresses without a port, as in the Host header: ``127.0.0.1``, ``[::1]``, ``board.example.org``
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self.app, self.hosts = app, frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "websocket":
            await receive()  # the request for a websocket
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http" and not self._is_known(Headers(scope=scope).getlist("host")):
            await send_problem(send, 400, "This server does not answer to that host name.")
        else:
            await self.app(scope, receive, send)

    def _is_known(self, named: list[str]) -> bool:
        if len(named) != 1:
            return False
        host, _, port = named[0].rpartition(":")
        if not host or not port.isdecimal():  # no port: an IPv6 address without a port ends with a bracket
            host = named[0]
        return host.lower() in self.hosts


class Problems(Gate):
    """Turns errors in any other format into problem documents.

    CORS, routing and Gradio answer some errors in plain text or other JSON.
    """

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        def is_foreign(start: Message) -> bool:
            kind = Headers(raw=start.get("headers", [])).get("content-type", "").partition(";")[0]
            return start["status"] >= 400 and kind not in (PROBLEM_TYPE, "text/html")

        async def answer(start: Message, body: bytes) -> None:
            headers = Headers(raw=start.get("headers", []))
            names = ("allow", "retry-after", "www-authenticate", "connection")
            retained = {name: headers[name] for name in names if name in headers}
            detail, errors = _detail_of(start["status"], b"" if "content-encoding" in headers else body)
            await send_problem(send, start["status"], detail, retained, errors=errors)

        await self.app(scope, receive, gathered(send, is_foreign, answer, MAX_PLAIN_ERROR))


def _detail_of(status: int, body: bytes) -> tuple[str, object]:
    """Return the text and the machine-readable details of an error, but no internal text or details of a server
    error.
    """
    if status >= 500 and status != 503:
        return "Something went wrong on our side.", None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
        return (text if 0 < len(text) <= 200 and text.isprintable() else HTTPStatus(status).description), None
    detail = document.get("detail") if isinstance(document, dict) else None
    if isinstance(detail, str):
        return detail, None
    return HTTPStatus(status).description or HTTPStatus(status).phrase, detail


class SameOrigin(Gate):
    """Refuses writes (403) unless they come from this site's pages or carry a token.

    Browsers name the origin of a write, so a write with a cookie but no origin is refused. A request with a token needs
    no origin: before a browser sends a token from another site's page, it asks the server, and CORS refuses.

    Parameters
    ----------
    is_secure : whether pages are served by https only; if True, http pages of the same host count as another site
    """

    def __init__(self, app: ASGIApp, is_secure: bool = False) -> None:
        super().__init__(app)
        self.is_secure = is_secure

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scheme = "https" if self.is_secure else scope.get("scheme", "http")
        if scope["method"] not in SAFE_METHODS and _is_foreign(Headers(scope=scope), scheme):
            await send_problem(send, 403, "Requests from other sites' pages are refused.")
        else:
            await self.app(scope, receive, send)


def _is_foreign(headers: Headers, scheme: str) -> bool:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin != f"{scheme}://{headers.get('host')}":
        return True
    if site is not None and site not in ("none", "same-origin"):
        return True
    is_silent = origin is None and site is None
    return is_silent and "cookie" in headers and "authorization" not in headers


class BodyLimit(Gate):
    """Refuses a request body that exceeds `limit` bytes (413) or arrives too slowly (408).

    Parameters
    ----------
    limit : bytes, counted as they arrive
    grace_seconds, bytes_per_second : n bytes must have arrived after `grace_seconds` + n / `bytes_per_second`
    """

    def __init__(
        self,
        app: ASGIApp,
        limit: int,
        *,
        grace_seconds: float = GRACE_SECONDS,
        bytes_per_second: float = SLOWEST_BYTES_PER_SECOND,
    ) -> None:
        super().__init__(app)
        self.limit = limit
        self.grace_seconds, self.bytes_per_second = grace_seconds, bytes_per_second

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(self, receive)
        started = False

        async def checked(message: Message) -> None:
            nonlocal started
            if not body.refused or started:
                started = True
                await send(message)

        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > self.limit:
            body.refused = 413
        else:
            try:
                await self.app(scope, body.receive, checked)
            except Exception:
                if not body.refused:
                    raise
        if body.refused and not started:
            details = {
                413: f"The request is larger than the {self.limit:,} bytes that this server accepts.",
                408: "The request arrived too slowly. Try again on a faster connection.",
            }
            await send_problem(send, body.refused, details[body.refused], {"connection": "close"})


class _Body:
    """A request's body as it arrives; `refused` is the status code of a refusal, or 0."""

    def __init__(self, rules: BodyLimit, receive: Receive) -> None:
        self.rules, self._receive = rules, receive
        self.n_bytes, self.refused, self._is_complete = 0, 0, False
        self._began = asyncio.get_running_loop().time()

    async def receive(self) -> Message:
        """Return the next message; after a refusal, a message that the client has disconnected."""
        if self.refused:
            return {"type": "http.disconnect"}
        if self._is_complete:
            return await self._receive()
        due = self._began + self.rules.grace_seconds + self.n_bytes / self.rules.bytes_per_second
        try:
            message = await asyncio.wait_for(self._receive(), due - asyncio.get_running_loop().time())
        except TimeoutError:
            return self._refuse(408)
        self.n_bytes += len(message.get("body", b""))
        if self.n_bytes > self.rules.limit:
            return self._refuse(413)
        self._is_complete = not message.get("more_body", False)
        return message

    def _refuse(self, status: int) -> Message:
        self.refused = status
        return {"type": "http.disconnect"}


NO_ROOM = "The server's disk is full or read-only. Nothing was stored or charged. Try again later."


class NoTraces:
    """Answers an unexpected exception with an incident number or, if the disk is full, says so; logs the exception."""

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
        except Exception as error:
            if started and _is_refusal(error.__cause__):  # Gradio's own way to end the events of an unknown page
                await send({"type": "http.response.body", "body": b""})
                return
            number = f"INC-{secrets.token_hex(4).upper()}"
            log.exception("%s: %s %s", number, scope.get("method"), scope.get("path"))
            if scope["type"] != "http" or started:
                raise
            if has_no_room(error):
                await send_problem(send, 507, NO_ROOM)
            else:
                await send_problem(
                    send, 500, f"Something went wrong on our side. The log has details under incident {number}."
                )


def _is_refusal(error: BaseException | None) -> bool:
    return isinstance(error, HTTPException) and error.status_code < 500


# Errors as pages -----------------------------------------------------------------------------------------------------

FOR_PROGRAMS = ("/api/", "/gradio_api/", "/metrics", "/healthz", "/readyz")
MAX_DOCUMENT = 64 * 1024
LOST = "No page has this address. The address may be incomplete or out of date."
LINKS = (("/", "To the board"), ("/submit", "Submit"), ("/about", "About"))


def error_page(status: int, title: str, detail: str) -> str:
    """Return a whole page with links back to the board."""
    return whole_page(title, detail, f"HTTP status {status}", LINKS)


class ErrorPages(Gate):
    """Turns problem documents (RFC 9457) into HTML pages for browsers."""

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(start: Message, body: bytes) -> None:
            await _send_page(start, body, send, has_body=scope["method"] != "HEAD")

        replaced = gathered(send, _is_problem, answer, MAX_DOCUMENT)
        await self.app(scope, receive, replaced if _is_for_people(scope) else send)


def _is_for_people(scope: Scope) -> bool:
    if scope["method"] not in ("GET", "HEAD") or scope["path"].startswith(FOR_PROGRAMS):
        return False
    return "text/html" in Headers(scope=scope).get("accept", "")


def _is_problem(message: Message) -> bool:
    kind = Headers(raw=message.get("headers", [])).get("content-type", "")
    return message["status"] >= 400 and kind.startswith(PROBLEM_TYPE)


async def _send_page(start: Message, body: bytes, send: Send, *, has_body: bool) -> None:
    status = start["status"]
    try:
        document = json.loads(body)
        title, detail = str(document["title"]), str(document["detail"])
    except (ValueError, TypeError, KeyError):  # cut off
        title, detail = "Something went wrong", "The page cannot be shown."
    if status == 404 and detail == title:  # a text of the framework
        title, detail = "Page not found", LOST
    page = error_page(status, title, detail).encode()
    headers = [pair for pair in start["headers"] if pair[0].lower() not in (b"content-type", b"content-length")]
    kind = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(page)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *kind]})
    await send({"type": "http.response.body", "body": page if has_body else b""})
