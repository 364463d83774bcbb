"""The REST API, version 1: :func:`add_api` puts its routes, errors and description on an application.

Conventions
-----------
Scores are fractions, times are UTC texts, errors are problem documents (RFC 9457; see :mod:`.problems`). A route parses
the request, calls another module, and translates the result or the error. :mod:`.authentication` decides who may call a
route, :mod:`.visibility` what the caller may see, and :mod:`.documents` the format of the answer.

The description (OpenAPI 3.1) is complete: a status or media type missing from it is a bug. It leaves out FastAPI's own
error formats, because every error here is a problem document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi

from reveal_leaderboard.web.api.accounts import account_routes
from reveal_leaderboard.web.api.boards import board_routes
from reveal_leaderboard.web.api.documents import ApiProblem
from reveal_leaderboard.web.api.health import health_routes, key_routes
from reveal_leaderboard.web.api.problems import ProblemError, add_problems
from reveal_leaderboard.web.api.result_images import image_routes
from reveal_leaderboard.web.api.submissions import submission_routes
from reveal_leaderboard.web.api.visibility import PREFIX
from reveal_leaderboard.web.middleware import PROBLEM_TYPE
from reveal_leaderboard.web.services import Services


def add_api(app: FastAPI, services: Services) -> None:
    """Add the API's routes, error answers and description to `app`; call it before pages are mounted."""
    app.include_router(submission_routes(services), prefix=PREFIX, tags=["submissions"])
    app.include_router(board_routes(services), prefix=PREFIX, tags=["boards"])
    app.include_router(account_routes(services), prefix=PREFIX, tags=["account"])
    app.include_router(key_routes(services), prefix=PREFIX, tags=["receipts"])
    app.include_router(health_routes(services), tags=["health"])
    app.include_router(image_routes(services))
    add_problems(app)
    describe(app)
    add_unknown(app)


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


FRAMEWORKS_OWN = ("HTTPValidationError", "ValidationError")


SUMMARY = """\
Send prediction files to benchmarks for chest radiographs, follow their scoring, and read the boards.

Scores are released fractions: rounded, with 95% intervals, and without findings that have few cases. Times are UTC.
Errors are problem documents (RFC 9457); the address in `type` explains each. Create tokens on the page My submissions
and send them as `Authorization: Bearer TOKEN`. Writes may be repeated: give uploads an `Idempotency-Key`. After 429 and
503, wait as many seconds as `Retry-After` says."""


TAGS = [
    {"name": "submissions", "description": "Send, follow and withdraw submissions; receipts."},
    {"name": "boards", "description": "Benchmarks, manifests, boards, comparisons."},
    {"name": "account", "description": "Your account, submissions, budget and tokens."},
    {"name": "receipts", "description": "Public keys that verify receipts."},
    {"name": "health", "description": "For administrators of the board."},
    {"name": "problems", "description": "Meanings of the error types."},
]


def describe(app: FastAPI) -> None:
    """Make `app` serve the complete description of its routes, computed at the first request."""

    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = description  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary="Leaderboards with private holdouts",
        description=SUMMARY,
        routes=app.routes,
        tags=TAGS,
        servers=[{"url": "/"}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    for operations in document["paths"].values():
        for operation in operations.values():
            if PROBLEM_TYPE not in operation["responses"].get("422", {"content": {PROBLEM_TYPE: {}}})["content"]:
                del operation["responses"]["422"]  # FastAPI's; malformed ids get 404 here
    document = _public_names(document)
    schemas = document["components"]["schemas"]
    problem = ApiProblem.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    problem = _public_names(problem)
    document["components"]["schemas"] = {
        **{name: schemas[name] for name in sorted(schemas) if name not in FRAMEWORKS_OWN},
        **{name: schema for name, schema in problem.pop("$defs").items() if name not in schemas},
        "Problem": problem,
    }
    return document


def _public_names(document: dict[str, Any]) -> dict[str, Any]:
    """Return the API's description with public names: the class `ApiReceipt` becomes `Receipt`."""
    renamed: dict[str, Any] = json.loads(re.sub(r'(?<=["/])Api(?=[A-Z])', "", json.dumps(document)))
    return renamed


def add_unknown(app: FastAPI) -> None:
    """Add answers for unknown methods and paths below the API's prefix, which the mounted pages would answer
    otherwise.
    """
    paths: Mapping[str, Mapping[str, Any]] = app.openapi()["paths"]
    for path, operations in paths.items():
        allowed = {method.upper() for method in operations}
        others = [method for method in METHODS if method not in allowed]
        app.add_route(path, _refusal(sorted(allowed)), methods=others, include_in_schema=False)
    for path in (f"{PREFIX}/{{rest:path}}", "/problems/{rest:path}"):
        app.add_route(path, _unknown, methods=list(METHODS), include_in_schema=False)


def _refusal(allowed: list[str]) -> Any:
    async def refuse(request: Request) -> Any:
        return ProblemError("method", headers={"Allow": ", ".join(allowed)}).answer()

    return refuse


async def _unknown(request: Request) -> Any:
    return ProblemError("not-found").answer()
