"""The API's errors: one table of problem types, served as pages, and the one way to answer with them.

Conventions
-----------
Errors are problem documents (RFC 9457). `type` is a relative address below this server, such as ``/problems/quota``,
that does not change between releases: programs tell errors apart by it, people by `title` and `detail`. What a
document says follows from the request, the public manifest and the state of the board; never from a reference.
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
"""Problems that any request may meet."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A type of problem: its HTTP status, its title, and what it means and asks of the sender."""

    status: int
    title: str
    meaning: str


PROBLEMS: Mapping[str, ProblemType] = {
    "malformed": ProblemType(
        400,
        "The request cannot be read",
        "The body is not what its Content-Type says, or has more or longer fields than are taken. Nothing was done.",
    ),
    "sign-in": ProblemType(
        401,
        "Sign in",
        "The request needs a signed-in person or a token, or the token sent is unknown, expired or revoked. "
        "Create tokens on the page of your submissions and send them as `Authorization: Bearer TOKEN`.",
    ),
    "scope": ProblemType(403, "The token may not do this", "The token lacks the scope that the request needs."),
    "session-only": ProblemType(
        403, "Only in the browser", "A token cannot manage tokens or answer invitations: sign in on the page."
    ),
    "not-a-member": ProblemType(
        403,
        "You are not a member of that organization",
        "`organization` in the metadata must be a team of yours for which you may submit.",
    ),
    "not-yours": ProblemType(403, "Not your team's submission", "Only its own team may change a submission."),
    "operators-only": ProblemType(403, "For the operators", "This address answers the server's operators only."),
    "not-found": ProblemType(
        404,
        "Not found here",
        "Nothing here has this address or id, or it is not yours to see: the answer does not say which.",
    ),
    "unknown-benchmark": ProblemType(
        404, "No such benchmark", "This board does not serve that benchmark, or not in that version."
    ),
    "method": ProblemType(
        405, "Not that way", "The address exists, but not for this method; `Allow` lists those it takes."
    ),
    "key-reused": ProblemType(
        409,
        "Idempotency-Key reused",
        "The team used this Idempotency-Key for another file or model. Nothing was queued; send another key.",
    ),
    "board-closed": ProblemType(409, "The board is closed", "The board takes no submissions now; its state says why."),
    "not-now": ProblemType(
        409,
        "Not in this state",
        "The submission's or its team's state does not allow it, such as withdrawing while it is scored.",
    ),
    "not-comparable": ProblemType(
        409,
        "These two cannot be compared",
        "Only two different submissions to one benchmark are compared, whose own figures are shown.",
    ),
    "withdrawn": ProblemType(
        410,
        "Withdrawn by its team",
        "The entry was public until its team withdrew it. `entry` says whose it was and when; its figures are gone.",
    ),
    "too-large": ProblemType(413, "Too large", "The request is larger than this server takes."),
    "lint": ProblemType(
        422, "The linter refuses the file", "`report` lists every problem with its line. Nothing was queued or charged."
    ),
    "metadata": ProblemType(
        422, "Metadata refused", "`errors` lists field, rule and value. Nothing was queued or charged."
    ),
    "unreadable": ProblemType(
        422,
        "The file took too much to read",
        "Reading the file took more time or memory than is allowed, or stopped. Nothing was queued or charged.",
    ),
    "invalid": ProblemType(
        422, "Request refused", "`errors` lists the parts of the request that break a rule. Nothing was done."
    ),
    "quota": ProblemType(
        429,
        "No scored submission left",
        "The team's budget is used up for now; `balance` shows it, and when there is more.",
    ),
    "rate": ProblemType(429, "Too many requests", "Wait as many seconds as `Retry-After` says."),
    "incident": ProblemType(
        500, "Something went wrong on our side", "It is noted under the incident number that `detail` gives."
    ),
    "not-ready": ProblemType(
        503, "Not ready", "The server cannot work now, as its database does not answer. Try again later."
    ),
    "no-room": ProblemType(507, "No room", NO_ROOM),
}
"""Every problem type by its name."""


class ProblemError(Exception):
    """Ends a request with a problem document.

    Parameters
    ----------
    name : a key of PROBLEMS
    detail : what is wrong this time; the type's meaning unless given
    headers : of the answer
    extensions : further members of the document, such as ``report``
    """

    def __init__(
        self, name: str, detail: str | None = None, *, headers: Mapping[str, str] | None = None, **extensions: Any
    ) -> None:
        super().__init__(name)
        self.name, self.detail, self.headers, self.extensions = name, detail, dict(headers or {}), extensions

    def answer(self) -> JSONResponse:
        """The problem document as a response."""
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
    """The problems that a route answers with, in the form of FastAPI's `responses`, an example for each."""
    by_status: dict[int | str, dict[str, Any]] = {}
    for name in names:
        kind = PROBLEMS[name]
        example = {"type": f"/problems/{name}", "title": kind.title, "status": kind.status, "detail": kind.meaning}
        known = by_status.setdefault(kind.status, {"description": "", "content": {PROBLEM_TYPE: {}}})
        known["description"] = f"{known['description']}; {kind.title}" if known["description"] else kind.title
        content = known["content"][PROBLEM_TYPE]
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
        """What a problem type means; HTML for browsers, JSON for programs."""
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
    if name is None:  # Gradio's and others' own
        document = ApiProblem(type="about:blank", title="Refused", status=error.status_code, detail=str(error.detail))
        body = document.model_dump(mode="json", exclude_none=True)
        return JSONResponse(body, error.status_code, headers=error.headers, media_type=PROBLEM_TYPE)
    return ProblemError(name, headers=error.headers).answer()


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    if faults and all(fault["loc"][0] == "path" for fault in faults):
        return ProblemError("not-found").answer()  # an id of another form than ours is as unknown as any
    errors = [
        {"field": ".".join(map(str, fault["loc"]))[:200], "rule": fault["msg"], "value": repr(fault.get("input"))[:80]}
        for fault in faults[:100]
    ]
    return ProblemError("invalid", errors=errors).answer()
