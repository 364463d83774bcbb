"""The API's error types, their pages, and the exception that ends a request with an error document.

Conventions
-----------
Errors are problem documents (RFC 9457). `type` is a relative address below this server, such as ``/problems/quota``,
that does not change between releases: programs distinguish errors by `type`, people by `title` and `detail`. A
document's text depends on the request, the public manifest and the state of the board, never on reference labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from reveal_leaderboard.web.api.documents import ApiProblem, ProblemPage
from reveal_leaderboard.web.middleware import NO_ROOM, PROBLEM_TYPE, error_page

ALWAYS = ("malformed", "rate", "incident", "no-room")
"""Problem types that any request may cause."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A type of problem: HTTP status, title, and the meaning with the remedy."""

    status: int
    title: str
    meaning: str


PROBLEMS: Mapping[str, ProblemType] = {
    "malformed": ProblemType(
        400,
        "The request cannot be read",
        "The body does not match its Content-Type, or has too many or too long fields. Nothing was done.",
    ),
    "sign-in": ProblemType(
        401,
        "Sign in",
        "The request requires a session or a token, or the token is unknown, expired or revoked. "
        "Create tokens on the page My submissions and send them as `Authorization: Bearer TOKEN`.",
    ),
    "scope": ProblemType(403, "The token may not do this", "The token lacks the scope that the request requires."),
    "session-only": ProblemType(
        403, "Only in the browser", "A token cannot manage tokens or answer invitations: sign in on the page."
    ),
    "not-a-member": ProblemType(
        403,
        "You are not a member of that organization",
        "`organization` in the metadata must be one of your teams for which you may submit.",
    ),
    "not-yours": ProblemType(403, "Not your team's submission", "Only the team that sent a submission may change it."),
    "operators-only": ProblemType(403, "For the operators", "This address is only for the server's operators."),
    "not-found": ProblemType(
        404,
        "Not found here",
        "Nothing has this address or id, or you may not see it; the answer does not reveal which.",
    ),
    "unknown-benchmark": ProblemType(
        404, "No such benchmark", "This server does not have the benchmark, or not that version."
    ),
    "method": ProblemType(
        405, "Method not allowed", "The address does not accept this method; `Allow` lists those that it accepts."
    ),
    "key-reused": ProblemType(
        409,
        "Idempotency-Key reused",
        "The team used this Idempotency-Key for another file or model. Nothing was queued. Send another key.",
    ),
    "board-closed": ProblemType(
        409, "The board is closed", "The board accepts no submissions now; its state gives the reason."
    ),
    "not-now": ProblemType(
        409,
        "Not in this state",
        "The status of the submission or its team does not allow this. For example, a submission cannot "
        "be withdrawn during scoring.",
    ),
    "not-comparable": ProblemType(
        409,
        "These submissions cannot be compared",
        "A comparison needs two different submissions to one benchmark, and both must have scores on its board.",
    ),
    "withdrawn": ProblemType(
        410,
        "Withdrawn by its team",
        "The entry was public until its team withdrew it. `entry` has its team and dates; its scores are gone.",
    ),
    "too-large": ProblemType(413, "Too large", "The request is larger than this server accepts."),
    "lint": ProblemType(
        422, "The file has errors", "`report` lists every problem with its line. Nothing was queued or charged."
    ),
    "metadata": ProblemType(
        422, "Metadata refused", "`errors` lists each field, rule and value. Nothing was queued or charged."
    ),
    "unreadable": ProblemType(
        422,
        "The file could not be read",
        "Reading the file took too much time or memory, or failed unexpectedly. Nothing was queued or charged.",
    ),
    "invalid": ProblemType(
        422, "Request refused", "`errors` lists the parts of the request that break a rule. Nothing was done."
    ),
    "quota": ProblemType(
        429,
        "No scored submission left",
        "The team's budget is used up for now. `balance` shows the budget, and when the next submission "
        "becomes available.",
    ),
    "rate": ProblemType(429, "Too many requests", "Wait as many seconds as `Retry-After` says."),
    "incident": ProblemType(
        500, "Something went wrong on our side", "The server's log has details under the incident number in `detail`."
    ),
    "not-ready": ProblemType(
        503, "Not ready", "The server cannot work now because its database is unreachable. Try again later."
    ),
    "no-room": ProblemType(507, "No space", NO_ROOM),
}
"""Problem types by name."""


class ProblemError(Exception):
    """Exception that ends a request with a problem document.

    Parameters
    ----------
    name : a key of `PROBLEMS`
    detail : text about this request; by default the type's meaning
    headers : further headers of the answer
    extensions : further members of the document, such as ``report``
    """

    def __init__(
        self, name: str, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **extensions: Any
    ) -> None:
        super().__init__(name)
        self.name, self.detail, self.headers, self.extensions = name, detail, dict(headers or {}), extensions

    def answer(self) -> JSONResponse:
        """Return the problem document as a response."""
        kind = PROBLEMS[self.name]
        document = ApiProblem(
            type=f"/problems/{self.name}",
            title=kind.title,
            status=kind.status,
            detail=kind.meaning if self.detail is None else self.detail,
            **self.extensions,
        )
        headers = {"WWW-Authenticate": "Bearer"} if kind.status == 401 else {}
        body = document.model_dump(mode="json", exclude_none=True)
        return JSONResponse(body, kind.status, headers={**headers, **self.headers}, media_type=PROBLEM_TYPE)


def answers(*names: str) -> dict[int | str, dict[str, Any]]:
    """Return a route's possible problems in the format of FastAPI's `responses`, with examples."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for name in names:
        kind = PROBLEMS[name]
        example = {"type": f"/problems/{name}", "title": kind.title, "status": kind.status, "detail": kind.meaning}
        response = by_status.setdefault(kind.status, {"description": "", "content": {PROBLEM_TYPE: {}}})
        response["description"] = "; ".join(filter(None, (response["description"], kind.title)))
        content = response["content"][PROBLEM_TYPE]
        content["schema"] = {"$ref": "#/components/schemas/Problem"}
        content.setdefault("examples", {})[name] = {"summary": kind.title, "value": example}
    return by_status


def add_problems(app: FastAPI) -> None:
    """Add the pages of the problem types, and translate every error of the framework into a problem document."""
    app.include_router(_pages(), tags=["problems"])
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(StarletteHTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)


def _pages() -> APIRouter:
    router = APIRouter()

    @router.get(
        "/problems/{name}",
        response_model=ProblemPage,
        responses={
            200: {"content": {"text/html": {"schema": {"type": "string"}}}},
            **answers("malformed", "not-found", "rate", "incident"),
        },
    )
    def explain(name: str, request: Request) -> Response:
        """Meaning of a problem type: HTML for browsers, JSON for programs."""
        kind = PROBLEMS.get(name)
        if kind is None:
            raise ProblemError("not-found")
        page = ProblemPage(type=f"/problems/{name}", title=kind.title, status=kind.status, meaning=kind.meaning)
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(error_page(page.status, page.title, page.meaning))
        return JSONResponse(page.model_dump(mode="json"))

    return router


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return error.answer()


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    names = {400: "malformed", 401: "sign-in", 404: "not-found", 405: "method", 413: "too-large", 429: "rate"}
    name = names.get(error.status_code)
    if name is None:  # errors from Gradio and other libraries
        document = ApiProblem(type="about:blank", title="Refused", status=error.status_code, detail=str(error.detail))
        body = document.model_dump(mode="json", exclude_none=True)
        return JSONResponse(body, error.status_code, headers=error.headers, media_type=PROBLEM_TYPE)
    return ProblemError(name, headers=error.headers).answer()


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    details = error.errors()
    if details and all(detail["loc"][0] == "path" for detail in details):
        return ProblemError("not-found").answer()  # a malformed id gets the same answer as an unknown id
    errors = [
        {"field": ".".join(map(str, item["loc"]))[:200], "rule": item["msg"], "value": repr(item.get("input"))[:80]}
        for item in details[:100]
    ]
    return ProblemError("invalid", errors=errors).answer()
