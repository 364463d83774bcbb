"""Routes of the page of cases; what is at an address, :mod:`reveal_bench.viewer.serving` says."""

from __future__ import annotations

from fastapi import FastAPI, HTTPException
from fastapi.responses import Response

from reveal_bench.viewer.serving import PATH, Galleries

__all__ = ["add_gallery", "navigation"]


def add_gallery(app: FastAPI, galleries: Galleries) -> None:
    """Serve the page, its files and those of the galleries."""

    @app.get(PATH, include_in_schema=False)
    def page() -> Response:
        return answer("")

    @app.get(f"{PATH}/{{place:path}}", include_in_schema=False)
    def answer(place: str) -> Response:
        served = galleries.answer(place)
        if served is None:
            raise HTTPException(404, "There are no cases to look at here.")
        return Response(served.body, media_type=served.media, headers=served.headers)


def navigation(galleries: Galleries) -> list[tuple[str, str]]:
    """The way there in the bar of pages, if there is a gallery; Gradio puts the slash before it."""
    return [("Cases", PATH.removeprefix("/"))] if galleries.names else []
