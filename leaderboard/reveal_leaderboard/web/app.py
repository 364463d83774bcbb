"""Builds the web application: the REST API, the Gradio pages, and the middleware in front of both.

`OwnMethods` is defined here and not in :mod:`.middleware`, because it needs the application's routes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
from fastapi import FastAPI, HTTPException
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import Response
from gradio.components import Navbar
from gradio.routes import App
from gradio.state_holder import SessionState, StateHolder
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from reveal_bench.viewer.serving import PATH as CASES
from reveal_bench.viewer.serving import Galleries
from reveal_leaderboard import __version__
from reveal_leaderboard.boards.catalogue import Catalogue
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.buckets import SharedBuckets
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.web.api import add_api
from reveal_leaderboard.web.api.visibility import PREFIX
from reveal_leaderboard.web.gradio_middleware import GradioGate
from reveal_leaderboard.web.link_preview import LinkPreviews
from reveal_leaderboard.web.metrics_page import CountRequests, Metrics
from reveal_leaderboard.web.middleware import (
    SPACE_FRAMES,
    BodyLimit,
    Compressed,
    ErrorPages,
    Forwarded,
    Gate,
    KnownHost,
    NotCached,
    NoTraces,
    Problems,
    SameOrigin,
    SecureHeaders,
    send_problem,
)
from reveal_leaderboard.web.pages import about, admin, board, compare, entry, mine, read, submission, submit
from reveal_leaderboard.web.pages.first_sentences import OPENINGS
from reveal_leaderboard.web.pages.plain import add_read_pages
from reveal_leaderboard.web.rate_limits import RateLimit, RequestLimits
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.sign_in import add_sign_in
from reveal_leaderboard.web.sign_in_modes import Auth
from reveal_leaderboard.web.submissions import Intake

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    # After every event Gradio summarises its last 10,000 events for a monitoring page that is closed here.
    "GRADIO_ANALYTICS_MAX_EVENTS": "1",
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(sys.maxsize),
}
"""Environment variables that stop Gradio from sending usage data and from collecting statistics of events."""


class OwnMethods(Gate):
    """Answers 405 if the application has a path, but not for the requested method.

    Without this class, such a request would reach the pages mounted below ``/``.
    """

    def __init__(self, app: ASGIApp, owner: FastAPI) -> None:
        super().__init__(app)
        self.owner = owner

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._match(scope) is not Match.PARTIAL:
            await self.app(scope, receive, send)
            return
        allowed = [method for method in METHODS if self._match({**scope, "method": method}) is Match.FULL]
        detail = f"This address accepts {' and '.join(allowed)}, not {scope['method'][:20]}."
        await send_problem(send, 405, detail, {"allow": ", ".join(allowed)})

    def _match(self, scope: Scope) -> Match:
        matches = [route.matches(scope)[0] for route in self.owner.router.routes if not isinstance(route, Mount)]
        return max(matches, key=lambda match: match.value, default=Match.NONE)


def guard(
    app: FastAPI,
    auth: Auth,
    *,
    max_body_bytes: int,
    n_proxies: int = 0,
    limits: RequestLimits | None = None,
    shared: SharedBuckets | None = None,
    functions: Container[object] | None = None,
) -> None:
    """Put all middleware in front of `app`; call it once, before or after Gradio is mounted.

    Parameters
    ----------
    auth : finds the sender of a request, and knows the server's host names
    max_body_bytes : largest request body
    n_proxies : number of trusted proxies in front of the server; only their headers are trusted
    limits : request limits; by default the limits of the sign-in mode, and no limits in local mode
    shared : buckets that count the requests of all servers together; None to count the requests of this server only
    functions : see :class:`GradioGate`
    """
    # The middleware added last sees a request first. Gradio's own CORS rules do nothing if there is a CORSMiddleware.
    app.add_middleware(NoTraces)
    app.add_middleware(OwnMethods, owner=app)
    app.add_middleware(GradioGate, auth=auth, functions=functions)
    app.add_middleware(CORSMiddleware, allow_origins=[])
    app.add_middleware(BodyLimit, limit=max_body_bytes)
    app.add_middleware(SameOrigin, is_secure=auth.is_secure)
    if auth.mode != "local" or limits is not None:
        app.add_middleware(RateLimit, auth=auth, limits=limits, shared=shared)
    app.add_middleware(Problems)
    app.add_middleware(KnownHost, hosts=auth.hosts)
    app.add_middleware(Forwarded, n_proxies=n_proxies)
    app.add_middleware(ErrorPages)
    app.add_middleware(Compressed, session_cookie=auth.cookie)
    app.add_middleware(NotCached, session_cookie=auth.cookie)
    frames = SPACE_FRAMES if auth.mode == "huggingface" else ()
    app.add_middleware(SecureHeaders, framed_by=frames, is_secure=auth.is_secure)


POLL_SECONDS = 0.05
"""Seconds between Gradio's checks for events while it is idle; Gradio's default of 1 ms uses 8% of a core."""
MAX_UPLOAD_BYTES = 200 * 1000 * 1000
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "sans-serif"]
MONO_FONTS = ["ui-monospace", "monospace"]
READ_PAGES = {
    "/": board.show, "/entry": entry.show, "/submission": submission.show, "/compare": compare.show,
    "/about": about.show,
}  # fmt: skip
"""Read-only pages; those below perform actions."""
PAGES = {"/submit": submit, "/mine": mine, "/admin": admin, "/read": read}
MENU = ("/", "/submit", "/mine", "/compare", "/about")


@dataclass(frozen=True)
class Front:
    """Settings for the network side of the application.

    Attributes
    ----------
    n_proxies : number of trusted proxies in front of the server
    confinement, gaps : answer of :func:`reveal_leaderboard.custody.server.confine_server`, shown by ``/readyz``
    blocked : paths that no file route may serve
    max_upload_bytes : largest request body
    metrics_token : bearer token for ``/metrics``; without a token, only this machine may request the page
    limits : request limits; None for the limits of the sign-in mode
    galleries : viewers of cases, for benchmarks that have one
    """

    n_proxies: int = 0
    confinement: str = "none"
    gaps: Sequence[str] = ()
    blocked: Sequence[Path] = field(default=())
    max_upload_bytes: int = MAX_UPLOAD_BYTES
    metrics_token: str | None = None
    limits: RequestLimits | None = None
    galleries: Galleries = field(default_factory=Galleries)


def build_app(
    store: Store, blobs: Blobs, catalogue: Catalogue, custody: Custody, auth: Auth, front: Front | None = None
) -> FastAPI:
    """Return the application: API, sign-in and pages behind all middleware."""
    front = front or Front()
    queue, accounts = Queue(store.engine, store.settings), auth.accounts
    app = FastAPI(
        title="REVEAL leaderboard",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
    )
    metrics = Metrics(store, catalogue.names)
    intake = Intake(store, blobs, catalogue, custody, accounts, metrics.count_lint)
    services = Services(
        store=store,
        queue=queue,
        intake=intake,
        accounts=accounts,
        auth=auth,
        confinement=front.confinement,
        gaps=tuple(front.gaps),
        metrics=metrics,
        metrics_token=front.metrics_token,
        galleries=front.galleries,
    )
    add_api(app, services)
    add_gallery(app, front.galleries)
    add_read_pages(app, services, READ_PAGES, menu_of(front.galleries))
    add_sign_in(app, auth)
    app.add_middleware(LinkPreviews)
    app.add_middleware(CountRequests, metrics=metrics, templates=list(app.openapi()["paths"]))
    guard(
        app,
        auth,
        max_body_bytes=front.max_upload_bytes,
        n_proxies=front.n_proxies,
        limits=front.limits,
        shared=SharedBuckets(store.engine),
        functions=(functions := set[int]()),
    )
    functions.update(_mount_pages(app, services, front))
    return app


@contextmanager
def _no_app_yet() -> Iterator[None]:
    """Stop Gradio from creating an application after every page, because only the last application is mounted.

    Each application has about a hundred routes. Creating the unused applications would double the start time.
    """
    create = App.create_app
    App.create_app = staticmethod(lambda *_, **__: None)  # type: ignore[assignment]
    try:
        yield
    finally:
        App.create_app = staticmethod(create)  # type: ignore[method-assign]


class _BareSessions(StateHolder):
    """Gradio's state of every open page, without Gradio's copy of all components.

    Only deep links need the copy, and they are disabled here. The copy used 0.3 MB per page and delayed every page by
    20 ms.
    """

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            bare: Any = SimpleNamespace(default_config=self.blocks.default_config, blocks={})
            self.session_data[session_id] = SessionState(bare)
        return super().__getitem__(session_id)


def _mount_pages(app: FastAPI, services: Services, front: Front) -> list[int]:
    """Build the pages, mount them below `app`, and return Gradio's numbers of the pages' handlers."""
    os.environ.update(QUIET)
    links = [(name, path.removeprefix("/")) for name, path in menu_of(front.galleries) if path not in ("/", *PAGES)]
    with _no_app_yet():
        with gr.Blocks(title="REVEAL leaderboard", analytics_enabled=False, delete_cache=(3600, 3600)) as pages:
            Navbar(
                links, main_page_name=OPENINGS["/"].name
            )  # this page is never served, because the board has its address
        for path, module in PAGES.items():
            with pages.route(OPENINGS[path].name, path, show_in_navbar=path in MENU) as page:
                Navbar(links, main_page_name=OPENINGS["/"].name)
                module.build(services, page)
        pages.queue(default_concurrency_limit=4, max_size=64)
        pages._queue.sleep_when_free = POLL_SECONDS
        pages._queue.progress_update_sleep_when_free = 1.0  # no page shows progress
    gr.mount_gradio_app(
        app,
        pages,
        path="/",
        show_error=False,
        allowed_paths=[],
        blocked_paths=[str(path) for path in front.blocked],
        max_file_size=front.max_upload_bytes,
        run_history=False,
        footer_links=[],
        enable_monitoring=False,
        ssr_mode=False,
        mcp_server=False,
        theme=gr.themes.Base(primary_hue="teal", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=MONO_FONTS),
        css=(files("reveal_leaderboard.web.pages") / "style.css").read_text(encoding="utf-8"),
    )
    # Gradio would keep a connection open for every page, to learn when the page is closed. The pages do not need this,
    # and browsers allow only six connections to one server, so the seventh tab would never load.
    pages.config["connect_heartbeat"] = False
    (mounted,) = (inner for route in app.routes if isinstance(inner := getattr(route, "app", None), App))
    mounted.state_holder = _BareSessions()  # type: ignore[no-untyped-call]
    mounted.state_holder.set_blocks(pages)
    return list(pages.fns)


def add_gallery(app: FastAPI, galleries: Galleries) -> None:
    """Serve the viewer of cases, its files and the galleries' files."""
    menu = menu_of(galleries)

    @app.get(CASES, include_in_schema=False)
    def page() -> Response:
        return answer("")

    @app.get(f"{CASES}/{{path:path}}", include_in_schema=False)
    def answer(path: str) -> Response:
        served = galleries.answer(path, menu=menu)
        if served is None:
            raise HTTPException(404, "This server has no gallery of cases.")
        return Response(served.body, media_type=served.media, headers=served.headers)


def menu_of(galleries: Galleries) -> list[tuple[str, str]]:
    """Return the names and paths of the pages in the menu, which has the case viewer only if there are galleries."""
    return [(OPENINGS[path].name, path) for path in MENU] + ([("Cases", CASES)] if galleries.names else [])
