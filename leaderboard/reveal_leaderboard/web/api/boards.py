"""Routes of boards: the benchmarks served, their manifests, the board itself, comparisons.

Conventions
-----------
Everything here is made of public manifests, released figures and published rows. The board is the same for everybody;
it is made anew when an event or a ranking was added since, and an unchanged one is answered by 304.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import asdict
from typing import Annotated, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from reveal_bench.kinds import KINDS
from reveal_leaderboard.boards.catalogue import Published
from reveal_leaderboard.boards.comparisons import compare_released
from reveal_leaderboard.boards.exports import to_csv, to_json, to_parquet
from reveal_leaderboard.boards.standings import UnknownVersionError, standings
from reveal_leaderboard.release.release import ReleasedScore
from reveal_leaderboard.store import boards as stored_boards
from reveal_leaderboard.store.tables import chains, results
from reveal_leaderboard.web.api.authentication import ANYBODY, SIGN_IN, find_visitor
from reveal_leaderboard.web.api.documents import (
    ApiComparison,
    ApiManifestRow,
    BenchmarkDocument,
    BenchmarkList,
    Board,
    ManifestDocument,
)
from reveal_leaderboard.web.api.problems import ALWAYS, ProblemError, answers
from reveal_leaderboard.web.api.visibility import ID, Visible, find_published, matches_tag, read_visible
from reveal_leaderboard.web.recent import Recent
from reveal_leaderboard.web.services import Services

PARQUET = "application/vnd.apache.parquet"
MEDIA = {"json": "application/json", "csv": "text/csv; charset=utf-8", "parquet": PARQUET}
BOARD_SECONDS = 10  # how long a browser or a proxy may keep a board without asking
KEPT_BOARDS = 64
BINARY = {"schema": {"type": "string", "format": "binary"}}

Name = Annotated[str, Query(max_length=100, examples=["chexlocalize"])]
Version = Annotated[
    str | None, Query(max_length=100, pattern=r"^[!-~]+$", description="by default the one on the board")
]
Id = Annotated[str, Query(pattern=ID)]


def board_routes(services: Services) -> APIRouter:
    """The routes of boards."""
    router = APIRouter()
    _add_benchmarks(router, services)
    _add_leaderboard(router, services)
    _add_compare(router, services)
    return router


def _add_benchmarks(router: APIRouter, services: Services) -> None:
    @router.get("/benchmarks", responses=answers(*ALWAYS))
    def benchmarks() -> BenchmarkList:
        """The benchmarks that are served, with the rules of their boards."""
        names = services.catalogue.names
        return BenchmarkList(benchmarks=[_benchmark(services, find_published(services, name)) for name in names])

    @router.get(
        "/benchmarks/{name}/manifest",
        response_model=ManifestDocument,
        responses={
            200: {"content": {PARQUET: BINARY}},
            **answers("unknown-benchmark", "invalid", *ALWAYS),
        },
    )
    def manifest(name: str, format: Literal["parquet", "json"] = "parquet", version: Version = None) -> Response:
        """The public manifest of the scored split: what is asked, image by image or study by study."""
        published = find_published(services, name, version)
        if format == "parquet":
            path = published.manifest_file
            return FileResponse(path, media_type=PARQUET, filename=f"{name}-{published.version}-{path.name}")
        document = ManifestDocument(benchmark=_benchmark(services, published), rows=_rows(published))
        return JSONResponse(document.model_dump(mode="json", exclude_none=True))


def _rows(published: Published) -> list[ApiManifestRow]:
    return [ApiManifestRow(**row) for row in KINDS[published.kind].questions.manifest_entries(published.manifest)]


def _benchmark(services: Services, published: Published) -> BenchmarkDocument:
    with services.store.read() as connection:
        board = stored_boards.board(connection, published.name)
        shown = [row.version for row in stored_boards.list_versions(connection, published.name)]
    assert board is not None, "a benchmark that is served has a board"
    uses_grid = KINDS[published.kind].questions.uses_grid
    quota = published.quota(services.settings.of(published.name))
    return BenchmarkDocument(
        name=published.name,
        title=published.title,
        kind=published.kind,
        version=published.version,
        versions=shown,
        split=published.split,
        state=board.state,
        state_why=board.why,
        synthetic=published.synthetic,
        findings=list(published.findings),
        n_items=published.n_items,
        items=published.items,
        grid=published.info.grid if uses_grid else None,
        asks=published.info.asks if uses_grid else None,
        settings=services.settings.document(published.name) | {"quota": asdict(quota)},
    )


class _Boards:
    """Boards as bytes, kept until anything that they are made of may have changed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: Recent[tuple[str, ...], tuple[object, bytes]] = Recent(KEPT_BOARDS)
        self._lock = threading.Lock()

    def get(self, published: Published, version: str, format: str) -> bytes:
        """The board of a version in a format."""
        key = (published.name, version, format)
        state = self._state()  # asked for first: a change in between makes the kept board old, not wrong
        with self._lock:
            found = self._kept.get(key)
        if found is not None and found[0] == state:
            return found[1]
        body = self._make(published, version, format)
        with self._lock:
            self._kept.put(key, (state, body))
        return body

    def _state(self) -> object:
        """Changes with every event and every ranking."""
        with self._services.store.read() as connection:
            length = connection.execute(
                sa.select(chains.c.length).where(chains.c.name == "events")
            ).scalar_one_or_none()
            computed = connection.execute(sa.select(sa.func.max(results.c.computed_at))).scalar_one_or_none()
        return length, computed

    def _make(self, published: Published, version: str, format: str) -> bytes:
        board = standings(self._services.store, published, version)
        if format == "parquet":
            return to_parquet(board)
        if format == "csv":
            return to_csv(board).encode("utf-8")
        return Board.model_validate(to_json(board)).model_dump_json().encode("utf-8")


def _add_leaderboard(router: APIRouter, services: Services) -> None:
    made = _Boards(services)

    @router.get(
        "/leaderboard",
        response_model=Board,
        responses={
            200: {"content": {"text/csv": {"schema": {"type": "string"}}, PARQUET: BINARY}},
            304: {"description": "unchanged since `If-None-Match`"},
            **answers("unknown-benchmark", "invalid", *ALWAYS),
        },
    )
    def leaderboard(
        benchmark: Name,
        version: Version = None,
        format: Literal["json", "csv", "parquet"] = "json",
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """The board of a benchmark: submissions in tiers, and published rows beside them."""
        published = find_published(services, benchmark)
        try:
            body = made.get(published, version or published.version, format)
        except UnknownVersionError as error:
            raise ProblemError("unknown-benchmark", str(error)) from None
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": f"public, max-age={BOARD_SECONDS}"}
        if matches_tag(tag, if_none_match):
            return Response(status_code=304, headers=headers)
        if format != "json":
            name = f"{published.name}-{version or published.version}.{format}"
            headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return Response(body, media_type=MEDIA[format], headers=headers)


def _add_compare(router: APIRouter, services: Services) -> None:
    @router.get(
        "/compare",
        response_model=ApiComparison,
        dependencies=SIGN_IN,
        openapi_extra=ANYBODY,
        responses={
            **answers("sign-in", "scope", "not-found", "withdrawn", "not-comparable", "invalid", *ALWAYS),
        },
    )
    def compare(request: Request, a: Id, b: Id) -> ApiComparison:
        """Two scored submissions to one benchmark: differences of their released figures with intervals."""
        actor = find_visitor(services, request)
        pair = read_visible(services, actor, a), read_visible(services, actor, b)
        of = find_published(services, pair[0].submission.benchmark)
        scores = _released_of_both(services, *pair)
        document = compare_released(*scores, of.kind, ids=(a, b))
        return ApiComparison(a=a, b=b, benchmark=of.name, version=of.version, document=document)


def _released_of_both(services: Services, a: Visible, b: Visible) -> tuple[ReleasedScore, ReleasedScore]:
    """The scores of two entries of one board; what is held back or hidden must not come out as a difference."""
    if a.submission.id == b.submission.id:
        raise ProblemError("not-comparable", "The two must be different submissions.")
    if a.submission.benchmark != b.submission.benchmark:
        raise ProblemError("not-comparable", "The two were sent to different benchmarks.")
    benchmark = a.submission.benchmark
    version = find_published(services, benchmark).version
    on_board = {submission.id: score for submission, score in services.store.board_rows(benchmark, version)}
    for one in (a, b):
        score = one.score
        if score is None or score.is_held or score.version != version:
            detail = f"Submission {one.submission.id} has no figures of its own on version {version}."
            raise ProblemError("not-comparable", detail)
        if one.submission.id not in on_board:
            raise ProblemError("not-comparable", f"Submission {one.submission.id} is not on the board of {version}.")
    first, second = (ReleasedScore.from_json(on_board[one.submission.id].released) for one in (a, b))
    return first, second
