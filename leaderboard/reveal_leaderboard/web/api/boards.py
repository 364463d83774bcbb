"""Routes of boards: list of benchmarks, public manifests, boards, comparisons of two entries.

Conventions
-----------
All answers come from public manifests, released scores and published rows. A board is the same for all visitors. A
board is computed again after a new event or ranking; a conditional request for an unchanged board is answered with 304.
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
from reveal_leaderboard.boards.exports import to_csv, to_parquet
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
BOARD_SECONDS = 10  # lifetime in the cache of a browser or proxy
MAX_BOARDS = 64
BINARY = {"schema": {"type": "string", "format": "binary"}}

Name = Annotated[str, Query(max_length=100, examples=["chexlocalize"])]
Version = Annotated[
    str | None, Query(max_length=100, pattern=r"^[!-~]+$", description="by default the version on the board")
]
Id = Annotated[str, Query(pattern=ID)]


def board_routes(services: Services) -> APIRouter:
    """Return the routes of boards."""
    router = APIRouter()
    _add_benchmarks(router, services)
    _add_leaderboard(router, services)
    _add_compare(router, services)
    return router


def _add_benchmarks(router: APIRouter, services: Services) -> None:
    @router.get("/benchmarks", responses=answers(*ALWAYS))
    def benchmarks() -> BenchmarkList:
        """The benchmarks on this server, with the rules of their boards."""
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
        """The public manifest of the scored split: the questions for each image, study or task."""
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
        versions = [row.version for row in stored_boards.list_versions(connection, published.name)]
        assert board is not None, "every served benchmark has a board"
        times = services.settings.of(published.name).round
        state, state_why = stored_boards.shown_state(connection, board, times)
    uses_grid = KINDS[published.kind].questions.uses_grid
    quota = published.quota(services.settings.of(published.name))
    return BenchmarkDocument(
        name=published.name,
        title=published.title,
        kind=published.kind,
        version=published.version,
        versions=versions,
        split=published.split,
        state=state,
        state_why=state_why,
        synthetic=published.synthetic,
        findings=list(published.findings),
        part=published.part,
        n_items=published.n_items,
        items=published.items,
        grid=published.info.grid if uses_grid else None,
        asks=published.info.asks if uses_grid else None,
        settings=services.settings.document(published.name) | {"quota": asdict(quota)},
    )


class _Boards:
    """Cache of boards as bytes, valid until a new event or ranking."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._cache: Recent[tuple[str, ...], tuple[object, bytes]] = Recent(MAX_BOARDS)
        self._lock = threading.Lock()

    def get(self, published: Published, version: str, format: str) -> bytes:
        """Return the board of a version as JSON, CSV or Parquet."""
        key = (published.name, version, format)
        state = self._state()  # read first, so that a later change makes the cache stale
        with self._lock:
            cached = self._cache.get(key)
        if cached is not None and cached[0] == state:
            return cached[1]
        body = self._make(published, version, format)
        with self._lock:
            self._cache.put(key, (state, body))
        return body

    def _state(self) -> object:
        """Return a value that changes with every event and every ranking."""
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
        return Board.model_validate(board).model_dump_json().encode("utf-8")


def _add_leaderboard(router: APIRouter, services: Services) -> None:
    cache = _Boards(services)

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
        """The board of a benchmark: submissions in tiers, and published rows for comparison."""
        published = find_published(services, benchmark)
        try:
            body = cache.get(published, version or published.version, format)
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
        """Differences between the released scores of two submissions to a benchmark, with intervals."""
        actor = find_visitor(services, request)
        pair = read_visible(services, actor, a), read_visible(services, actor, b)
        published = find_published(services, pair[0].submission.benchmark)
        scores = _released_of_both(services, *pair)
        document = compare_released(*scores, published.kind, ids=(a, b))
        return ApiComparison(a=a, b=b, benchmark=published.name, version=published.version, document=document)


def _released_of_both(services: Services, a: Visible, b: Visible) -> tuple[ReleasedScore, ReleasedScore]:
    """Return two entries, which must be on the board, because differences would reveal scores held back or hidden."""
    if a.submission.id == b.submission.id:
        raise ProblemError("not-comparable", "Choose two different submissions.")
    if a.submission.benchmark != b.submission.benchmark:
        raise ProblemError("not-comparable", "The submissions are to different benchmarks.")
    benchmark = a.submission.benchmark
    version = find_published(services, benchmark).version
    on_board = {submission.id: score for submission, score in services.store.board_rows(benchmark, version)}
    for entry in (a, b):
        score = entry.score
        if score is None or score.is_held or score.version != version:
            detail = f"Submission {entry.submission.id} shows no scores of its own on version {version}."
            raise ProblemError("not-comparable", detail)
        if entry.submission.id not in on_board:
            raise ProblemError("not-comparable", f"Submission {entry.submission.id} is not on the board of {version}.")
    first, second = (ReleasedScore.from_json(on_board[entry.submission.id].released) for entry in (a, b))
    return first, second
