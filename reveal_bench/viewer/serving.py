"""Serve the case viewer, on a leaderboard's server or by ``reveal-bench view`` on this machine.

All addresses are below ``/gallery`` and accept GET only: the page (``?benchmark=NAME&case=ID``), ``static/FILE``,
``list.json`` (the galleries), and ``NAME/FILE`` for the files of a gallery. Only files that
:mod:`reveal_bench.viewer.gallery` writes are served. ``reveal-bench view`` only listens on the loopback address, and
stores nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from reveal_bench.arguments import ArgumentError
from reveal_bench.viewer.gallery import INDEX, SCHEMA

PATH = "/gallery"
PAGE = "gallery.html"
SCRIPT, STYLE, ICON = "text/javascript", "text/css", "image/svg+xml"
FILM_VIEWER = {
    "viewer.js": SCRIPT,
    "film.js": SCRIPT,
    "made.js": SCRIPT,
    "tools.js": SCRIPT,
    "viewer.css": STYLE,
    "icon.svg": ICON,
}
"""File name -> media type, for the image viewer's files that other pages also use."""
STATIC = {**FILM_VIEWER, "gallery.js": SCRIPT, "case.js": SCRIPT, "gallery.css": STYLE}
_N = "[0-9]{1,9}"
FILE = re.compile(rf"gallery\.json|cases/{_N}\.json|(?:films|places)/{_N}-{_N}\.jpg|thumbnails/{_N}\.jpg")
MEDIA = {".json": "application/json", ".jpg": "image/jpeg"}
KEPT_SECONDS = 300

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'none'",
        "base-uri 'none'",
    )
)
"""Content security policy of every response: only files of this server, no inline scripts or styles."""


@dataclass(frozen=True)
class Served:
    """A response that a browser may cache for `seconds`."""

    body: bytes
    media: str
    seconds: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers for the content security policy and for caching."""
        caching = f"max-age={self.seconds}" if self.seconds else "no-cache"
        return {"Content-Security-Policy": CONTENT_POLICY, "Cache-Control": caching}


def static_file(name: str) -> bytes:
    """Return the content of a file in ``static/``."""
    return (files("reveal_bench.viewer") / "static" / name).read_bytes()


@dataclass(frozen=True)
class Gallery:
    """A gallery of cases, in a folder or computed on request.

    Attributes
    ----------
    index : its ``gallery.json``
    read : function that returns the content of a file by its path, None if the file does not exist
    """

    index: Mapping[str, Any]
    read: Callable[[str], bytes | None]

    @classmethod
    def of_folder(cls, folder: Path) -> Gallery:
        """Open a gallery folder that ``write_gallery`` made.

        Raises
        ------
        ValueError
            If it is not a gallery folder, or was prepared by another version.
        """
        folder = Path(folder).resolve()
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise ArgumentError("gallery", f"must be a prepared gallery folder, with {INDEX}", folder) from None
        if index.get("schema") != SCHEMA:
            raise ArgumentError("gallery", "must be prepared by this version of reveal-bench", folder)

        def read(place: str) -> bytes | None:
            path = folder / place
            return path.read_bytes() if path.is_file() else None

        return cls(index, read)

    @property
    def benchmark(self) -> str:
        """Name of the benchmark."""
        return str(self.index["benchmark"])

    @property
    def ids(self) -> set[str]:
        """Ids of the gallery's cases and images."""
        return {name for case in self.index["cases"] for name in (case["id"], *case["images"])}


class Galleries:
    """Galleries by benchmark, at most one for each."""

    def __init__(self, galleries: Iterable[Gallery] = ()) -> None:
        self._of: dict[str, Gallery] = {}
        for one in galleries:
            if one.benchmark in self._of:
                raise ArgumentError("gallery", f"must be given once per benchmark, {one.benchmark} is given twice")
            self._of[one.benchmark] = one

    @property
    def names(self) -> list[str]:
        """Benchmarks with a gallery."""
        return list(self._of)

    def answer(self, place: str, *, menu: Sequence[tuple[str, str]] = ()) -> Served | None:
        """Return the response to `place`, which follows :data:`PATH` and a slash; None if it does not exist.

        `menu` has the name and the address of each page of the site.
        """
        if place == "":
            return Served(static_file(PAGE), "text/html") if self._of else None
        if place == "list.json":
            return Served(json.dumps({"menu": menu, "galleries": self.names}).encode(), MEDIA[".json"])
        first, _, rest = place.partition("/")
        if first == "static":
            return Served(static_file(rest), STATIC[rest]) if rest in STATIC else None
        gallery = self._of.get(first)
        body = gallery.read(rest) if gallery is not None and FILE.fullmatch(rest) else None
        return None if body is None else Served(body, MEDIA[Path(rest).suffix], 0 if rest == INDEX else KEPT_SECONDS)

    def strip(self, benchmark: str, n: int) -> list[tuple[str, str, str]]:
        """Return (address of the case, address of its thumbnail, alternative text) of `n` cases, spread evenly.

        Empty for a benchmark without a gallery.
        """
        if benchmark not in self._of:
            return []
        index = self._of[benchmark].index
        cases = index["cases"]
        n = min(n, len(cases))
        indices = [i * len(cases) // n for i in range(n)]
        return [
            (
                f"{PATH}?{urlencode({'benchmark': benchmark, 'case': cases[i]['id']})}",
                f"{PATH}/{quote(benchmark)}/thumbnails/{i}.jpg",
                _spoken(cases[i], index["groups"]),
            )
            for i in indices
        ]

    def places(self, benchmark: str, system: str) -> list[tuple[str, int, str, str]]:
        """Return (group, number of cases, address of the system's map, address of the references' map), in table order.

        Empty if the benchmark has no gallery, or the gallery has no map of the system.
        """
        gallery = self._of.get(benchmark)
        if gallery is None or system not in gallery.index["systems"]:
            return []
        systems, groups = gallery.index["systems"], gallery.index["groups"]
        n_cases = {(place, group): n for place, group, n in gallery.index.get("places", ())}
        own, address = systems.index(system), f"{PATH}/{quote(benchmark)}/places/"
        return [
            (name, n_cases[own, k], f"{address}{own}-{k}.jpg", f"{address}{len(systems)}-{k}.jpg")
            for k, name in enumerate(groups)
            if (own, k) in n_cases
        ]


def _spoken(case: dict[str, Any], groups: list[str]) -> str:
    findings = ", ".join(groups[number] for number, _ in case["results"])
    return f"{case['view']} radiograph" + (f", asked for {findings}" if findings else "")


HOST = "127.0.0.1"


def loopback_server(galleries: Galleries, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of `galleries` on a port of this machine, by default a free one.

    The server refuses requests for other host names, so that other sites cannot read from it by DNS rebinding.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                self.send_response(HTTPStatus.SEE_OTHER)
                self.send_header("Location", PATH)
                self.end_headers()
                return
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
            """Log nothing, so that the user's terminal stays clean."""

    return ThreadingHTTPServer((HOST, port), Handler)
