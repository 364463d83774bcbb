"""Builds the web application: the REST API, and the Gradio pages mounted beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import gradio as gr
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from gradio.components import Navbar
from starlette.middleware.trustedhost import TrustedHostMiddleware

from reveal_leaderboard import __version__
from reveal_leaderboard.api import PREFIX, add_api
from reveal_leaderboard.gate import BodyLimit, NoTraces, SameOrigin, SecureHeaders
from reveal_leaderboard.intake import DATABASE, Intake, Published, open_data
from reveal_leaderboard.pages import board, submit

__all__ = ["MAX_UPLOAD_BYTES", "build_app"]

MAX_UPLOAD_BYTES = 200 * 1000 * 1000
LOCAL_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
SYSTEM_FONTS = ["system-ui", "-apple-system", "Segoe UI", "sans-serif"]
MAIN_PAGE = "Board"
MONO_FONTS = ["ui-monospace", "monospace"]


def build_app(
    data: Path,
    published: Mapping[str, Published],
    *,
    confinement: str = "none",
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
) -> FastAPI:
    """The application that serves `published` benchmarks from the data folder `data`.

    Parameters
    ----------
    data : folder of the database and the uploads; made if missing
    published : dict from benchmark name to its public side
    confinement : what :func:`reveal_leaderboard.confinement.confine` answered, shown by ``/readyz``
    max_upload_bytes : largest request body
    """
    store, blobs = open_data(data)
    blobs.sweep()
    intake = Intake(store, blobs, published)
    app = FastAPI(
        title="REVEAL leaderboard",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
    )
    add_api(app, intake, confinement=confinement)
    # The last one added sees a request first. Gradio's own CORS rules stand down when there is a CORSMiddleware.
    app.add_middleware(NoTraces)
    app.add_middleware(CORSMiddleware, allow_origins=[])
    app.add_middleware(BodyLimit, limit=max_upload_bytes)
    app.add_middleware(SameOrigin)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_HOSTS, www_redirect=False)
    app.add_middleware(SecureHeaders)
    _mount_pages(app, intake, data, max_upload_bytes)
    return app


def _mount_pages(app: FastAPI, intake: Intake, data: Path, max_upload_bytes: int) -> None:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with gr.Blocks(title="REVEAL leaderboard", analytics_enabled=False, delete_cache=(3600, 3600)) as pages:
        Navbar(main_page_name=MAIN_PAGE)
        board.build(intake, pages)
    with pages.route("Submit", "/submit"):
        Navbar(main_page_name=MAIN_PAGE)
        submit.build(intake)
    pages.queue(default_concurrency_limit=4, max_size=64)
    gr.mount_gradio_app(
        app,
        pages,
        path="/",
        show_error=False,
        allowed_paths=[],
        blocked_paths=[str(data / DATABASE), str(data / "blobs")],
        max_file_size=max_upload_bytes,
        run_history=False,
        footer_links=[],
        enable_monitoring=False,
        ssr_mode=False,
        mcp_server=False,
        theme=gr.themes.Base(
            primary_hue="teal", neutral_hue="slate", font=SYSTEM_FONTS, font_mono=["ui-monospace", "monospace"]
        ),
        css=(files("reveal_leaderboard") / "pages" / "style.css").read_text(encoding="utf-8"),
    )
