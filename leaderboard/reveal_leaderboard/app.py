"""Builds the web application: the REST API, and the Gradio pages mounted beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import gradio as gr
from fastapi import FastAPI
from gradio.components import Navbar

from reveal_leaderboard import __version__
from reveal_leaderboard.api import PREFIX, Services, add_api
from reveal_leaderboard.auth import Auth
from reveal_leaderboard.blobs import Blobs
from reveal_leaderboard.catalogue import Catalogue
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.entrance import guard
from reveal_leaderboard.intake import Intake
from reveal_leaderboard.metrics_page import CountRequests, Metrics
from reveal_leaderboard.pages import about, admin, board, compare, entry, mine, read, submit
from reveal_leaderboard.pages.desk import Desk
from reveal_leaderboard.queue import Queue
from reveal_leaderboard.rate import Limits
from reveal_leaderboard.signin import add_sign_in
from reveal_leaderboard.store import Store

__all__ = ["MAX_UPLOAD_BYTES", "Front", "build_app"]

MAX_UPLOAD_BYTES = 200 * 1000 * 1000
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "sans-serif"]
MONO_FONTS = ["ui-monospace", "monospace"]
MAIN_PAGE = "Board"
PAGES = (
    ("Submit", "/submit", submit),
    ("My submissions", "/mine", mine),
    ("Compare", "/compare", compare),
    ("About", "/about", about),
    ("Entry", "/entry", entry),
    ("Admin", "/admin", admin),
    ("Read", "/read", read),
)
UNLISTED = ("Entry", "Admin", "Read")


@dataclass(frozen=True)
class Front:
    """How the application meets the world.

    Attributes
    ----------
    n_proxies : proxies in front of it whose word is taken
    confinement : what :func:`reveal_leaderboard.confinement.confine` answered, shown by ``/readyz``
    blocked : paths that no file route may serve
    max_upload_bytes : largest request body
    metrics_token : whoever asks for ``/metrics`` must bear it; without one, only this machine may ask
    limits : of requests; None for those of the mode
    """

    n_proxies: int = 0
    confinement: str = "none"
    blocked: Sequence[Path] = field(default=())
    max_upload_bytes: int = MAX_UPLOAD_BYTES
    metrics_token: str | None = None
    limits: Limits | None = None


def build_app(
    store: Store, blobs: Blobs, catalogue: Catalogue, custody: Custody, auth: Auth, front: Front | None = None
) -> FastAPI:
    """The application: API, sign-in and pages over the parts given, behind the gate."""
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

    def count(benchmark: str, passed: bool) -> None:
        metrics.count_lint(benchmark, passed=passed)

    intake = Intake(store, blobs, catalogue, custody, accounts, count)
    services = Services(
        store=store,
        queue=queue,
        intake=intake,
        accounts=accounts,
        auth=auth,
        settings=store.settings,
        confinement=front.confinement,
        metrics=metrics,
        metrics_token=front.metrics_token,
    )
    add_api(app, services)
    add_sign_in(app, auth)
    app.add_middleware(CountRequests, metrics=metrics, templates=list(app.openapi()["paths"]))
    guard(app, auth, max_body_bytes=front.max_upload_bytes, n_proxies=front.n_proxies, limits=front.limits)
    _mount_pages(app, Desk(store, queue, intake, accounts, auth, store.settings, catalogue), front)
    return app


def _mount_pages(app: FastAPI, desk: Desk, front: Front) -> None:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with gr.Blocks(title="REVEAL leaderboard", analytics_enabled=False, delete_cache=(3600, 3600)) as pages:
        Navbar(main_page_name=MAIN_PAGE)
        board.build(desk, pages)
    for name, path, module in PAGES:
        with pages.route(name, path, show_in_navbar=name not in UNLISTED) as page:
            Navbar(main_page_name=MAIN_PAGE)
            module.build(desk, page)
    pages.queue(default_concurrency_limit=4, max_size=64)
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
        css=(files("reveal_leaderboard") / "pages" / "style.css").read_text(encoding="utf-8"),
    )
