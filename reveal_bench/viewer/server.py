"""The page of cases on this machine alone: a server on the loopback address, which keeps nothing."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from reveal_bench.viewer.serving import PATH, Galleries

__all__ = ["loopback_server"]

HOST = "127.0.0.1"


def loopback_server(galleries: Galleries, port: int = 0) -> ThreadingHTTPServer:
    """A server of `galleries` that is bound to a port of this machine, a free one unless said.

    It answers to its own address alone: a page of another site that calls itself by a name of this machine gets
    nothing.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            is_ours = self.headers.get("Host") == f"{HOST}:{self.connection.getsockname()[1]}"
            place = path.removeprefix(PATH).removeprefix("/") if path == PATH or path.startswith(f"{PATH}/") else None
            served = galleries.answer(place) if is_ours and place is not None else None
            if served is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            self.send_response(HTTPStatus.OK)
            fields = {"Content-Type": served.media, "Content-Length": str(len(served.body)), **served.headers}
            for name, value in {**fields, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(served.body)

        def log_message(self, *_: object) -> None:
            """Say nothing: the terminal is the user's."""

    return ThreadingHTTPServer((HOST, port), Handler)
