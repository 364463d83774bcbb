"""The description of the API is true: schemathesis sends what it allows and what it forbids, and checks the answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from tests.leaderboard.api_app import Person, World, api_world
from tests.leaderboard.conftest import BENCHMARK, Board

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "missing_required_header", "unsupported_method",
)  # fmt: skip
"""Checks of schemathesis, loaded only in the process of these tests: it takes as long as all of pytest."""
EXAMPLES = 5  # per operation and person
OF_KNOWN = 3  # known ids leave less to generate
SECURED = {"/api/v1/me", "/api/v1/me/submissions", "/api/v1/me/ledger", "/api/v1/me/tokens", "/api/v1/me/invitations"}


@pytest.fixture(scope="module")
def world(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with api_world(board, tmp_path_factory.mktemp("openapi"), metrics=lambda: "up 1\n", metrics_token="t0ken") as made:
        yield made


@pytest.fixture(scope="module")
def document(world: World) -> dict[str, Any]:
    document: dict[str, Any] = world.client().get("/api/v1/openapi.json").json()
    return document


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def signed_in(case: Any, person: Person | None, *, browser: bool = False) -> dict[str, str]:
    """Remove the generated credentials of `case`, and return the headers with which `person` sends it."""
    case.cookies.clear()
    for name in ("Authorization", "Cookie"):
        case.headers.pop(name, None)
    if case.operation.path == "/metrics" and person is not None:
        return {"Authorization": "Bearer t0ken"}
    if browser and person is not None:
        case.cookies["reveal"] = person.session
        return {}
    return {} if person is None else person.bearer


def ask_all(
    world: World, prepare: Callable[[Any], dict[str, str]], *, examples: int = EXAMPLES, **mode: Any
) -> Counter[tuple[str, int]]:
    """Send generated requests to every operation and check the answers; counts them by operation and status.

    `prepare` may change a request, and gives further headers.
    """
    import schemathesis
    from schemathesis import checks

    chosen = [getattr(checks, name) for name in CHECKS]
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", world.app)
    answers: Counter[tuple[str, int]] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @given(case=operation.as_strategy(**mode))
        def ask(case: Any) -> None:
            answer = case.call_and_validate(headers=prepare(case), checks=chosen)
            answers[case.operation.label, answer.status_code] += 1

        ask()
    return answers


@pytest.mark.parametrize("who", ["nobody", "owner"])
def test_no_answer_to_anything_is_outside_the_description(world: World, document: dict[str, Any], who: str) -> None:
    answers = ask_all(world, lambda case: signed_in(case, None if who == "nobody" else world.owner))
    assert {label for label, _ in answers} == {f"{method.upper()} {path}" for path, method, _ in operations(document)}


def test_no_answer_about_what_exists_is_outside_the_description(
    world: World, document: dict[str, Any], write_file: Callable[..., Path]
) -> None:
    ids = []
    for seed in (1, 2, 3):
        ids.append(world.send(write_file(seed=seed), f"Pointer {seed}").json()["id"])
        world.score(ids[-1], 0.4 + seed / 50)
    values = {"submission_id": ids[0], "a": ids[1], "b": ids[2], "benchmark": BENCHMARK, "name": BENCHMARK}

    def about_known(case: Any) -> None:
        for place in (case.path_parameters, case.query):
            place.update({name: value for name, value in values.items() if name in place})
        case.query.pop("version", None)
        if case.operation.path == "/problems/{name}":
            case.path_parameters["name"] = "quota"
        if isinstance(case.body, dict) and "team_id" in case.body:
            case.body["team_id"] = world.owner.team.id

    from schemathesis import GenerationMode

    answers: Counter[tuple[str, int]] = Counter()
    for person, browser in ((None, False), (world.other, False), (world.owner, False), (world.owner, True)):

        def prepare(case: Any, person: Person | None = person, browser: bool = browser) -> dict[str, str]:
            about_known(case)
            return signed_in(case, person, browser=browser)

        answers += ask_all(world, prepare, examples=OF_KNOWN, generation_mode=GenerationMode.POSITIVE)
    succeeded = {label for label, status in answers if status < 300}
    asked = {f"{method.upper()} {path}" for path, method, _ in operations(document)}
    assert asked - succeeded == NEED_MORE
    assert {401, 403, 404, 409} <= {status for _, status in answers}


NEED_MORE = {
    "POST /api/v1/submissions",  # a file that the linter passes
    "GET /api/v1/submissions/{submission_id}/receipt",  # a signature
    "DELETE /api/v1/me/tokens/{token_id}",  # the id of a token
    "POST /api/v1/me/invitations/{invitation_id}",  # the id of an invitation
    "POST /api/v1/submissions/{submission_id}/choose",  # one that is not withdrawn yet
}
"""Operations whose successes are in test_api_documents."""


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    schemas = document["components"]["schemas"]
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used <= set(schemas)
    assert "HTTPValidationError" not in schemas
    assert document["openapi"].startswith("3.1")


def test_every_operation_says_what_it_does_and_how_it_fails(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    for path, method, operation in operations(document):
        where = f"{method} {path}"
        assert operation["description"].endswith("."), where
        statuses = set(operation["responses"])
        assert {"400", "429", "500"} <= statuses, where
        for status, answer in operation["responses"].items():
            if status >= "400":
                assert list(answer["content"]) == ["application/problem+json"], where
                assert answer["content"]["application/problem+json"]["examples"], where
        if "{submission_id}" in path or path in SECURED:
            assert {"401", "403"} <= statuses, where


def test_the_ways_to_sign_in_are_described(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert schemes["token"] == {"type": "http", "scheme": "bearer", "description": schemes["token"]["description"]}
    assert (schemes["session"]["type"], schemes["session"]["in"]) == ("apiKey", "cookie")
    paths = document["paths"]
    assert {} in paths["/api/v1/submissions/{submission_id}"]["get"]["security"]
    assert {} not in paths["/api/v1/submissions"]["post"]["security"]
