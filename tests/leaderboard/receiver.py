"""A receiver of webhooks on this machine, which checks messages as the Standard Webhooks specification says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes, secret").decode()


def is_signed(headers: dict[str, str], body: bytes, secret: str = SECRET) -> bool:
    """Check by the specification: base64 of the HMAC-SHA256 over id, timestamp and body, joined by full stops."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    code = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    is_recent = abs(float(headers.get("received-at", time.time())) - int(headers["webhook-timestamp"])) < 300
    return is_recent and f"v1,{code}" in headers["webhook-signature"].split(" ")


@dataclass
class Receiver:
    """The received requests and the answer: a status, after `before` has run."""

    url: str
    status: int = 204
    before: Callable[[], object] = lambda: None
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages in order, all of them signed."""
        assert all(is_signed(headers, body) for headers, body in self.got)
        return [json.loads(body) for _, body in self.got]

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.got]


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append((headers | {"received-at": str(time.time())}, body))
            receiver.before()
            self.send_response(receiver.status)
            self.send_header("location", receiver.url)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/hook?of=board")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
