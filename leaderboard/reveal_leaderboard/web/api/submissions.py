"""Routes of submissions: send, read, withdraw, choose for the board, and get the receipt.

Conventions
-----------
The sender is checked before the body is read, so that strangers cannot make the server store anything. A body has at
most two files and three fields: `metadata` may be a text or a file, as in ``curl -F metadata=@submission.json``. The
answer to a file without errors is 202: the submission is queued, and the answer has the address of its status.
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
                    "file": {
                        "type": "string",
                        "format": "binary",
                        "description": "prediction file in any accepted format",
                    },
                    "benchmark": {"type": "string", "maxLength": 100, "examples": ["chexlocalize"]},
                    "metadata": {
                        "type": "string",
                        "maxLength": MAX_BYTES,
                        "description": "content of a submission.json, as a text or as a file",
                        "examples": ['{"model": {"name": "Pointer"}, "organization": "Example", "kind": "cnn"}'],
                    },
                    "allow_missing": {
                        "type": "string",
                        "enum": ["true", "false"],
                        "default": "false",
                        "description": "true to score missing predictions as misses",
                    },
                },
            }
        }
    },
}

ScoredVersion = Annotated[
    str | None,
    Query(
        max_length=100,
        pattern=r"^[!-~]+$",
        description="a version on which the submission has a score; by default the newest",
    ),
]


def submission_routes(services: Services) -> APIRouter:
    """Return the routes of submissions."""
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
            str | None,
            Header(
                max_length=200,
                pattern=r"^[!-~]+$",
                description="key with which a repeated request does not create a second submission",
            ),
        ] = None,
    ) -> Response:
        """Check a prediction file and queue it for scoring.

        A file with errors costs nothing, and the answer is the list of errors.
        """
        actor = await run_in_threadpool(require_actor, services, request, "submit")
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise ProblemError("malformed", "The body must be multipart/form-data.")
        async with request.form(max_files=2, max_fields=3, max_part_size=MAX_BYTES) as form:
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
        raise ProblemError("metadata", errors=[ApiFault.of(item) for item in error.errors]) from None
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
    """Return the fields file, benchmark, metadata and allow_missing of a form; each must have its type and occur at
    most once.
    """
    errors = []
    fields: dict[str, Any] = {"allow_missing": "false"}
    for name, value in form.multi_items():
        if name == "metadata" and isinstance(value, UploadFile):
            # One byte above the limit, which `read_metadata` then refuses
            value = value.file.read(MAX_BYTES + 1).decode("utf-8", "replace")
        if name not in ("file", "benchmark", "metadata", "allow_missing"):
            errors.append({"field": name, "rule": "is not a field of this form"})
        elif isinstance(value, UploadFile) != (name == "file"):
            errors.append({"field": name, "rule": "must be a file" if name == "file" else "must be a text"})
        elif name in fields and name != "allow_missing":
            errors.append({"field": name, "rule": "must occur once"})
        else:
            fields[name] = value
    missing = [name for name in ("file", "benchmark", "metadata") if name not in fields]
    invalid = {error["field"] for error in errors}
    errors += [{"field": name, "rule": "is missing"} for name in missing if name not in invalid]
    if fields["allow_missing"] not in ("true", "false"):
        rule = "must be true or false"
        errors.append({"field": "allow_missing", "rule": rule, "value": str(fields["allow_missing"])[:80]})
    if errors:
        raise ProblemError("invalid", errors=[ApiFault.of(error) for error in errors])
    return fields["file"], fields["benchmark"], fields["metadata"], fields["allow_missing"] == "true"


def _add_views(router: APIRouter, services: Services) -> None:
    public = answers("sign-in", "scope", "not-found", "withdrawn", "invalid", *ALWAYS)

    @router.get("/submissions/{submission_id}", responses=public, openapi_extra=ANYBODY)
    def show(request: Request, submission_id: SubmissionId, version: ScoredVersion = None) -> SubmissionDocument:
        """Status, queue position, history and released score of a submission."""
        visible = read_visible(services, find_visitor(services, request), submission_id, version)
        if version is not None and visible.score is None:
            raise ProblemError("not-found", "The submission has no score on that version.")
        return submission_document(services, visible)

    @router.get("/submissions/{submission_id}/events", responses=public, openapi_extra=ANYBODY)
    def events(request: Request, submission_id: SubmissionId) -> EventList:
        """Events of a submission, oldest first."""
        visible = read_visible(services, find_visitor(services, request), submission_id)
        return EventList(events=submission_events(services, visible))

    @router.get("/submissions/{submission_id}/receipt", responses=public, openapi_extra=ANYBODY)
    def receipt(
        request: Request,
        submission_id: SubmissionId,
        version: ScoredVersion = None,
        part: Literal["public", "final"] | None = None,
    ) -> ApiReceipt:
        """The signed receipt of a released score; `reveal-bench verify-receipt` checks it offline.

        Once final scores are shown, this is the receipt of the final score, unless `part=public` asks for the earlier.
        """
        visible = read_visible(services, find_visitor(services, request), submission_id, version)
        score = visible.score
        if score is not None and part is not None:
            score = services.store.score_of(submission_id, score.version, part)
        if score is None:
            raise ProblemError(
                "not-found", "The submission has no score, and so no receipt, for that version and part."
            )
        with services.store.read() as connection:
            file = receipts.receipt_file(connection, submission_id, score.version, score.part)
        if file is None:
            raise ProblemError("not-found", "The submission has no receipt for that version and part.")
        return ApiReceipt.model_validate(file)


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
        """Withdraw a submission.

        A queued submission is refunded; a scored one leaves the board, but remains charged.
        """
        return change(request, submission_id, services.store.withdraw)

    @router.post("/submissions/{submission_id}/choose", responses=refusals)
    def choose(request: Request, submission_id: SubmissionId) -> SubmissionDocument:
        """Choose this scored submission to represent its model on the board."""
        return change(request, submission_id, services.store.choose)
