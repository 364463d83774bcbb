"""A Hugging Face Hub on loopback, for tests with the real clients: HTTP, a log, and faults on demand.

It proves that this project's side of the protocol works with the clients that people have. It is not the Hub: it has
neither Xet storage nor a viewer, nor a page to grant access.

Set HF_ENDPOINT (to :attr:`FakeHub.endpoint`), HF_HUB_DISABLE_XET=1 and HF_HOME before `huggingface_hub` is imported:
so clients run in processes of their own (:mod:`tests.dataset.hub.clients`).

Objects are served under another host name (localhost) than the API (127.0.0.1), as the real Hub's are: a client that
sent its token along with them would be seen in the log.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.dataset.hub.fake_repo import Account, RefusalError, Repo, Store
from tests.dataset.hub.fake_routes import ROUTES, Answer, Call


@dataclass(frozen=True)
class Request:
    """One line of the log; `token` is whether one was sent, and the headers are not kept."""

    method: str
    path: str
    status: int
    host: str
    has_token: bool
    body: bytes = b""


@dataclass
class _Cut:
    """Interrupts uploads of objects: after `after` bytes the connection closes, `times` times; or it hangs there."""

    after: int
    times: int
    hangs: bool
    reached: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)


class FakeHub:
    """Use as a context manager; `store` is its state, `log` what it was asked."""

    def __init__(self) -> None:
        self.store = Store()
        self.log: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.before: dict[str, Callable[[], None]] = {}
        self.cut: _Cut | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        self.storage = f"http://localhost:{port}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def account(self, token: str, name: str, *namespaces: str, only: tuple[str, ...] | None = None) -> str:
        """Make `token` valid; returns it."""
        self.store.accounts[token] = Account(name, namespaces, only)
        return token

    def repo(self, repo_id: str) -> Repo:
        return self.store.repos[repo_id]

    def cut_uploads(self, *, after: int, times: int = 1_000_000) -> None:
        """Close the connection after `after` bytes of an object from now on."""
        self.cut = _Cut(after, times, hangs=False)

    def hang_uploads(self, *, after: int) -> threading.Event:
        """Read only the first `after` bytes of an object from now on; the event is set when an upload reaches them."""
        self.cut = _Cut(after, 1_000_000, hangs=True)
        return self.cut.reached

    def release(self) -> None:
        """Accept uploads again."""
        if self.cut is not None:
            self.cut.release.set()
        self.cut = None

    def do_before(self, route: str, action: Callable[[], Any]) -> None:
        """Run a function once, before the next answer of `route` (the name of its function)."""
        self.before[route] = action

    def answer(self, method: str, target: str, token: str | None, body: bytes) -> Answer:
        parts = urlsplit(target)
        for wanted, pattern, function in ROUTES:
            match = pattern.fullmatch(parts.path) if wanted == method else None
            if match is None:
                continue
            self.counts[function.__name__] += 1
            action = self.before.pop(function.__name__, None)
            if action is not None:
                action()
            groups = {name: None if text is None else unquote(text) for name, text in match.groupdict().items()}
            with self.store.lock:
                call = Call(self.store.account(token), body, dict(parse_qsl(parts.query)), self.endpoint, self.storage)
                return function(self.store, call, **groups)
        self.counts["unknown route"] += 1
        raise RefusalError(404, f"no route for {method} {parts.path}")


class _Handler(BaseHTTPRequestHandler):
    """Reads a request, lets the Hub answer it, logs it; `hub` is set by the Hub that makes the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers
    hub: FakeHub

    def do_GET(self) -> None:
        body = self.read_body()
        if body is None:
            return
        header = self.headers.get("Authorization")
        token = None if header is None else header.removeprefix("Bearer ")
        try:
            answer = self.hub.answer(self.command, self.path, token, body)
        except RefusalError as refusal:
            headers = {"Content-Type": "application/json", "X-Error-Message": refusal.message}
            if refusal.code:
                headers["X-Error-Code"] = refusal.code
            answer = Answer(json.dumps({"error": refusal.message}).encode(), refusal.status, headers)
        host = self.headers.get("Host", "").split(":")[0]
        self.hub.log.append(Request(self.command, self.path, answer.status, host, token is not None, body))
        self.send(answer)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """The log is `hub.log`."""

    def read_body(self) -> bytes | None:
        """The whole body; None if the connection was cut on purpose."""
        size = int(self.headers.get("Content-Length", 0))
        cut = self.hub.cut if self.path.startswith("/store/") and self.command == "PUT" else None
        if cut is None or cut.times == 0:
            return self.rfile.read(size)
        cut.times -= 1
        self.rfile.read(min(cut.after, size))
        self.hub.counts["cut"] += 1
        cut.reached.set()
        if cut.hangs:
            cut.release.wait(60)
        self.close_connection = True
        self.connection.close()
        return None

    def send(self, answer: Answer) -> None:
        body, status, headers = answer.body, answer.status, dict(answer.headers)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and status == 200:
            first, last = int(wanted[1]), min(int(wanted[2] or len(body) - 1), len(body) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            body, status = body[first : last + 1], 206
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
