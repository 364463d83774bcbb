"""Routes of submissions: send, look, withdraw, choose, receipt.

Conventions
-----------
Who sends is settled before the body is read, so that somebody unknown cannot make the server store anything. A body
holds one file and three fields at most. The answer to an upload is 202: it was linted and queued; its address tells the
rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import FormData, UploadFile

from reveal_leaderboard.custody import ParseFailed
from reveal_leaderboard.release import receipts
from reveal_leaderboard.store.metadata import MAX_BYTES, MetadataError, read_metadata
from reveal_leaderboard.store.quota import QuotaExceededError
from reveal_leaderboard.store.store import BoardClosedError, KeyReusedError, NotAllowedError
from reveal_leaderboard.web.api.authentication import ANYBODY, SIGN_IN, find_visitor, require_actor
from reveal_leaderboard.web.api.documents import (
    ApiFault,
    ApiReceipt,
    Budget,
    EventList,
    SubmissionDocument,
    SubmissionReceived,
)
from reveal_leaderboard.web.api.problems import ALWAYS, ProblemError, answers
from reveal_leaderboard.web.api.visibility import (
    SubmissionId,
    find_published,
    read_own,
    read_visible,
    submission_document,
    submission_events,
    submission_fields,
    with_score,
)
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.submissions import NotAMemberError

if TYPE_CHECKING:
    from reveal_leaderboard.accounts.people import Actor

UPLOAD = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file", "benchmark", "metadata"],
                "properties": {
                    "file": {"type": "string", "format": "binary", "description": "predictions, any accepted format"},
                    "benchmark": {"type": "string", "maxLength": 100, "examples": ["chexlocalize"]},
                    "metadata": {
                        "type": "string",
                        "maxLength": MAX_BYTES,
                        "description": "the text of a submission.json",
                        "examples": ['{"model": {"name": "Pointer"}, "organization": "Example", "kind": "cnn"}'],
                    },
                    "allow_missing": {
                        "type": "string",
                        "enum": ["true", "false"],
                        "default": "false",
                        "description": "score what is missing as misses",
                    },
                },
            }
        }
    },
}

ScoredVersion = Annotated[
    str | None,
    Query(max_length=100, pattern=r"^[!-~]+$", description="one that has a score; by default the newest"),
]


def submission_routes(services: Services) -> APIRouter:
    """The routes of submissions."""
    router = APIRouter(dependencies=SIGN_IN)
    _add_upload(router, services)
    _add_views(router, services)
    _add_changes(router, services)
    return router


def _add_upload(router: APIRouter, services: Services) -> None:
    refusals = ("sign-in", "scope", "not-a-member", "unknown-benchmark", "key-reused", "board-closed", "too-large")

    @router.post(
        "/submissions",
        status_code=202,
        response_model=SubmissionReceived,
        responses=answers(*refusals, "lint", "metadata", "unreadable", "invalid", "quota", "not-now", *ALWAYS),
        openapi_extra={"requestBody": UPLOAD},
    )
    async def submit(
        request: Request,
        idempotency_key: Annotated[
            str | None, Header(max_length=200, pattern=r"^[!-~]+$", description="makes repeating the request safe")
        ] = None,
    ) -> Response:
        """Lint a prediction file and queue it; a file with errors is answered by its lint report and costs nothing."""
        actor = await run_in_threadpool(require_actor, services, request, "submit")
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise ProblemError("malformed", "The body must be multipart/form-data.")
        async with request.form(max_files=1, max_fields=3, max_part_size=MAX_BYTES) as form:
            return await run_in_threadpool(_receive, services, actor, form, idempotency_key)


def _receive(services: Services, actor: Actor, form: FormData, idempotency_key: str | None) -> Response:
    file, benchmark, metadata, allow_missing = _fields(form)
    find_published(services, benchmark)
    try:
        outcome = services.intake.submit(
            file.file,
            benchmark,
            read_metadata(metadata),
            actor=actor,
            filename=file.filename or "",
            allow_missing=allow_missing,
            idempotency_key=idempotency_key,
        )
    except MetadataError as error:
        raise ProblemError("metadata", errors=[ApiFault.of(fault) for fault in error.errors]) from None
    except NotAMemberError as error:
        raise ProblemError("not-a-member", str(error)) from None
    except ParseFailed as error:
        raise ProblemError("unreadable", str(error)) from None
    except KeyReusedError as error:
        raise ProblemError("key-reused", str(error)) from None
    except BoardClosedError as error:
        raise ProblemError("board-closed", str(error)) from None
    except QuotaExceededError as error:
        raise ProblemError("quota", str(error), balance=Budget.model_validate(error.balance)) from None
    except NotAllowedError as error:
        raise ProblemError("not-now", str(error)) from None
    report = outcome.report
    if outcome.submission is None:
        raise ProblemError("lint", f"{report.verdict}. Nothing was queued or charged.", report=report)
    fields = submission_fields(services, with_score(services, outcome.submission, is_own=True))
    document = SubmissionReceived(**fields, is_new=outcome.is_new, report=report)
    return JSONResponse(document.model_dump(mode="json"), status_code=202, headers={"Location": document.url})


def _fields(form: FormData) -> tuple[UploadFile, str, str, bool]:
    """(file, benchmark, metadata, allow_missing) of a form, each given once at most and of its kind."""
    faults = []
    found: dict[str, Any] = {"allow_missing": "false"}
    for name, value in form.multi_items():
        if name not in ("file", "benchmark", "metadata", "allow_missing"):
            faults.append({"field": name, "rule": "is not a field of this form"})
        elif isinstance(value, UploadFile) != (name == "file"):
            faults.append({"field": name, "rule": "must be a file" if name == "file" else "must be a text"})
        elif name in found and name != "allow_missing":
            faults.append({"field": name, "rule": "must be given once"})
        else:
            found[name] = value
    missing = [name for name in ("file", "benchmark", "metadata") if name not in found]
    faults += [{"field": name, "rule": "must be given"} for name in missing if name not in {f["field"] for f in faults}]
    if found["allow_missing"] not in ("true", "false"):
        rule = "must be true or false"
        faults.append({"field": "allow_missing", "rule": rule, "value": str(found["allow_missing"])[:80]})
    if faults:
        raise ProblemError("invalid", errors=[ApiFault.of(fault) for fault in faults])
    return found["file"], found["benchmark"], found["metadata"], found["allow_missing"] == "true"


def _add_views(router: APIRouter, services: Services) -> None:
    public = answers("sign-in", "scope", "not-found", "withdrawn", "invalid", *ALWAYS)

    @router.get("/submissions/{submission_id}", responses=public, openapi_extra=ANYBODY)
    def show(request: Request, submission_id: SubmissionId, version: ScoredVersion = None) -> SubmissionDocument:
        """State, place in the queue, history and released score of a submission."""
        visible = read_visible(services, find_visitor(services, request), submission_id, version)
        if version is not None and visible.score is None:
            raise ProblemError("not-found", "It has no score on that version.")
        return submission_document(services, visible)

    @router.get("/submissions/{submission_id}/events", responses=public, openapi_extra=ANYBODY)
    def events(request: Request, submission_id: SubmissionId) -> EventList:
        """What happened to a submission, oldest first."""
        visible = read_visible(services, find_visitor(services, request), submission_id)
        return EventList(events=submission_events(services, visible))

    @router.get("/submissions/{submission_id}/receipt", responses=public, openapi_extra=ANYBODY)
    def receipt(
        request: Request,
        submission_id: SubmissionId,
        version: ScoredVersion = None,
        part: Literal["public", "final"] = "public",
    ) -> ApiReceipt:
        """The signed receipt of a released score; `reveal-bench verify-receipt` checks it offline.

        Final figures have their own, `part=final`, from the moment when they are shown.
        """
        visible = read_visible(services, find_visitor(services, request), submission_id, version)
        score = visible.score
        if score is not None and part == "final":  # shown at announced rounds only
            score = services.store.score_of(submission_id, score.version, part)
        if score is None:
            raise ProblemError("not-found", "It has no score of that version and part, so no receipt.")
        with services.store.read() as connection:
            found = receipts.receipt_file(connection, submission_id, score.version, part)
        if found is None:
            raise ProblemError("not-found", "There is no receipt of that version and part.")
        return ApiReceipt.model_validate(found)


def _add_changes(router: APIRouter, services: Services) -> None:
    refusals = answers("sign-in", "scope", "not-yours", "not-found", "withdrawn", "not-now", *ALWAYS)

    def change(request: Request, submission_id: str, act: Any) -> SubmissionDocument:
        actor = require_actor(services, request, "submit")
        read_own(services, actor, submission_id)
        try:
            act(submission_id, who=actor.name)
        except NotAllowedError as error:
            raise ProblemError("not-now", str(error)) from None
        return submission_document(services, read_visible(services, actor, submission_id))

    @router.delete("/submissions/{submission_id}", responses=refusals)
    def withdraw(request: Request, submission_id: SubmissionId) -> SubmissionDocument:
        """Withdraw a submission: out of the queue, at no cost; or off the board, once scored, and still charged."""
        return change(request, submission_id, services.store.withdraw)

    @router.post("/submissions/{submission_id}/choose", responses=refusals)
    def choose(request: Request, submission_id: SubmissionId) -> SubmissionDocument:
        """Make this scored submission the one of its model that the board shows."""
        return change(request, submission_id, services.store.choose)
