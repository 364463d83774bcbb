"""REST API, version 1.

Figures are fractions. Errors are problem documents (RFC 9457). Everything here may be seen by anybody: released
figures, public metadata, reports of the label-blind linter.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, File, Form, Header, HTTPException, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException as StarletteHTTPException

from reveal_bench.benchmarks import BENCHMARKS
from reveal_leaderboard.gate import PROBLEM_TYPE, problem_body
from reveal_leaderboard.intake import Intake, Published
from reveal_leaderboard.metadata import Metadata, MetadataError, read_metadata
from reveal_leaderboard.release import POLICY
from reveal_leaderboard.standings import iso_time, standings, to_csv, to_json
from reveal_leaderboard.store import KeyReusedError, Store, Submission

__all__ = ["add_api", "submission_document"]

PREFIX = "/api/v1"


def problem(status: int, title: str, detail: str, **extensions: object) -> JSONResponse:
    """An error answer."""
    body = problem_body(status, title, detail, **extensions)
    return JSONResponse(body, status_code=status, media_type=PROBLEM_TYPE)


def submission_document(store: Store, submission: Submission) -> dict[str, Any]:
    """A submission as the API shows it: its state, its history, and its released score once there is one."""
    score = store.score_of(submission.id)
    metadata = Metadata.model_validate(submission.metadata).public()
    return {
        "id": submission.id,
        "status": submission.status,
        "queue_position": store.queue_position(submission),
        "benchmark": submission.benchmark,
        "version": submission.version,
        "split": submission.split,
        "metadata": metadata,
        "allow_missing": submission.allow_missing,
        "sha256": submission.sha256,
        "created_at": iso_time(submission.created_at),
        "updated_at": iso_time(submission.updated_at),
        "incident": submission.incident,
        "events": [
            {**asdict(event), "at": iso_time(event.at), "who": event.who.split(":")[0]}
            for event in store.events_of(submission.id)
        ],
        "score": None if score is None else _score_document(score.released, score.reference_hash, score.scored_at),
        "url": f"{PREFIX}/submissions/{submission.id}",
    }


def _score_document(released: Any, reference_hash: str, scored_at: float) -> dict[str, Any]:
    return {**released, "reference_hash": reference_hash, "scored_at": iso_time(scored_at)}


def add_api(app: FastAPI, intake: Intake, *, confinement: str) -> None:
    """Add the API's routes and error answers to `app`."""
    app.include_router(_submission_routes(intake), prefix=PREFIX, tags=["submissions"])
    app.include_router(_board_routes(intake), prefix=PREFIX, tags=["boards"])
    app.include_router(_health_routes(intake, confinement), tags=["health"])
    app.add_exception_handler(StarletteHTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)


def _submission_routes(intake: Intake) -> APIRouter:
    router = APIRouter()

    @router.post("/submissions", status_code=202)
    def submit(
        file: Annotated[UploadFile, File(description="prediction file, any accepted format")],
        benchmark: Annotated[str, Form(max_length=100)],
        metadata: Annotated[str, Form(description="the text of a submission.json")],
        allow_missing: Annotated[bool, Form(description="score missing pairs as misses")] = False,
        idempotency_key: Annotated[str | None, Header(max_length=200, pattern=r"^[!-~]+$")] = None,
    ) -> Response:
        """Lint a prediction file and queue it; a file with errors is answered by its lint report."""
        _published(intake, benchmark)
        try:
            about = read_metadata(metadata)
            outcome = intake.submit(
                file.file,
                benchmark,
                about,
                filename=file.filename or "",
                allow_missing=allow_missing,
                who="local:api",
                idempotency_key=idempotency_key,
            )
        except MetadataError as error:
            return problem(422, "Metadata refused", "Nothing was queued.", errors=error.errors)
        except KeyReusedError as error:
            return problem(409, "Idempotency-Key reused", str(error))
        report = json.loads(outcome.report.to_json())
        if outcome.submission is None:
            detail = f"{outcome.report.verdict}. Nothing was queued."
            return problem(422, "The linter refuses the file", detail, report=report)
        document = submission_document(intake.store, outcome.submission)
        answer = {**document, "is_new": outcome.is_new, "report": report}
        return JSONResponse(answer, status_code=202, headers={"Location": document["url"]})

    @router.get("/submissions/{submission_id}")
    def status(submission_id: str) -> dict[str, Any]:
        """State, queue position, history and released score of a submission."""
        submission = intake.store.get(submission_id)
        if submission is None:
            raise HTTPException(404, "There is no such submission.")
        return submission_document(intake.store, submission)

    return router


def _board_routes(intake: Intake) -> APIRouter:
    router = APIRouter()

    @router.get("/leaderboard")
    def leaderboard(
        benchmark: Annotated[str, Query(max_length=100)], format: Literal["json", "csv"] = "json"
    ) -> Response:
        """The board of a benchmark."""
        board = standings(intake.store, _published(intake, benchmark))
        if format == "json":
            return JSONResponse(to_json(board))
        name = f'attachment; filename="{board.benchmark}-{board.version}.csv"'
        return PlainTextResponse(to_csv(board), media_type="text/csv", headers={"Content-Disposition": name})

    @router.get("/benchmarks")
    def benchmarks() -> list[dict[str, Any]]:
        """The benchmarks that are served."""
        return [_benchmark_document(published) for published in intake.published.values()]

    @router.get("/benchmarks/{name}/manifest")
    def manifest(name: str, format: Literal["parquet", "json"] = "parquet") -> Response:
        """The public manifest of the scored split: images, sizes, and the findings asked."""
        published = _published(intake, name)
        if format == "parquet":
            path = published.manifest_file
            return FileResponse(path, media_type="application/vnd.apache.parquet", filename=f"{name}-{path.name}")
        rows = [asdict(row) for row in published.manifest.rows.values()]
        return JSONResponse({**_benchmark_document(published), "rows": rows})

    return router


def _benchmark_document(published: Published) -> dict[str, Any]:
    manifest = published.manifest
    known = BENCHMARKS.get(published.name)
    return {
        "name": manifest.benchmark,
        "title": manifest.benchmark if known is None else known.title,
        "version": manifest.version,
        "split": manifest.split,
        "synthetic": published.info.synthetic,
        "grid": manifest.grid,
        "asks": published.info.asks,
        "findings": list(manifest.findings),
        "n_images": len(manifest.rows),
        "release": asdict(POLICY),
    }


def _health_routes(intake: Intake, confinement: str) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @router.get("/readyz")
    def readyz() -> Response:
        """Whether it can serve: the database answers; and how the process is confined."""
        try:
            n_waiting = len(intake.store.list_submissions(status="queued"))
        except SQLAlchemyError:
            return problem(503, "Not ready", "The database does not answer.", confinement=confinement)
        ready = {"status": "ready", "confinement": confinement, "queued": n_waiting}
        return JSONResponse({**ready, "benchmarks": list(intake.published)})

    return router


def _published(intake: Intake, benchmark: str) -> Published:
    published = intake.published.get(benchmark)
    if published is None:
        raise HTTPException(404, f"This board serves: {', '.join(intake.published)}.")
    return published


async def _on_http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, StarletteHTTPException) else 500
    detail = error.detail if isinstance(error, StarletteHTTPException) else ""
    return problem(status, HTTPStatus(status).phrase, detail)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    errors = [{"field": ".".join(map(str, fault["loc"])), "rule": fault["msg"]} for fault in faults]
    return problem(422, "Request refused", "Nothing was done.", errors=errors)
