"""Access rights: every route of the API x {anyone, its team, another team, an operator}, none left out.

The requested submission waits in the queue, so only its team and the operators can see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.leaderboard.api_app import World, api_world, sent
from tests.leaderboard.conftest import BENCHMARK, Board

WHO = ("anybody", "owner", "other", "operator")
ID = "/api/v1/submissions/{submission_id}"
SEEN_BY_ITS_TEAM = (404, 200, 404, 200)
CHANGED_BY_ITS_TEAM = (401, 409, 404, 403)  # 409: a waiting submission cannot be chosen; operators hide instead
ALL, SIGNED_IN = (200, 200, 200, 200), (401, 200, 200, 200)
NOT_WITH_A_TOKEN = (401, 403, 403, 403)
ROUTES: dict[tuple[str, str], tuple[int, int, int, int]] = {
    ("GET", "/api/v1/benchmarks"): ALL,
    ("GET", "/api/v1/benchmarks/{name}/manifest"): ALL,
    ("GET", "/api/v1/leaderboard"): ALL,
    ("GET", "/api/v1/compare"): (404, 409, 404, 409),  # both are the same submission
    ("POST", "/api/v1/submissions"): (401, 400, 400, 400),  # the body is empty
    ("GET", ID): SEEN_BY_ITS_TEAM,
    ("GET", f"{ID}/events"): SEEN_BY_ITS_TEAM,
    ("GET", f"{ID}/receipt"): (404, 404, 404, 404),  # no receipt yet
    ("POST", f"{ID}/choose"): CHANGED_BY_ITS_TEAM,
    ("DELETE", ID): (401, 200, 404, 403),
    ("GET", "/api/v1/me"): SIGNED_IN,
    ("GET", "/api/v1/me/submissions"): SIGNED_IN,
    ("GET", "/api/v1/me/ledger"): SIGNED_IN,
    ("GET", "/api/v1/me/invitations"): SIGNED_IN,
    ("POST", "/api/v1/me/invitations/{invitation_id}"): NOT_WITH_A_TOKEN,
    ("GET", "/api/v1/me/tokens"): NOT_WITH_A_TOKEN,
    ("POST", "/api/v1/me/tokens"): NOT_WITH_A_TOKEN,
    ("DELETE", "/api/v1/me/tokens/{token_id}"): NOT_WITH_A_TOKEN,
    ("GET", "/api/v1/keys"): ALL,
    ("GET", "/problems/{name}"): (404, 404, 404, 404),  # a benchmark is not a kind of problem
    ("GET", "/healthz"): ALL,
    ("GET", "/readyz"): ALL,
    ("GET", "/metrics"): (404, 404, 404, 404),  # off here
}


@pytest.fixture(scope="module")
def world(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with api_world(board, tmp_path_factory.mktemp("access"), settings="[quota]\ntotal = 40\nper_day = 40\n") as made:
        yield made


def status(world: World, who: str, method: str, route: str, submission_id: str) -> int:
    person = {"owner": world.owner, "other": world.other, "operator": world.admin}.get(who)
    path = route.format(submission_id=submission_id, name=BENCHMARK, token_id="0" * 24, invitation_id="0" * 24)
    query = {"benchmark": BENCHMARK} if path.endswith(("leaderboard", "ledger")) else {}
    query |= {"a": submission_id, "b": submission_id} if path.endswith("compare") else {}
    body: dict[str, object] = {"team_id": world.owner.team.id, "name": "n", "scopes": ["read"], "days": 1}
    if "invitations" in path:
        body = {"answer": "accept"}
    is_form = path.endswith("/submissions")
    options = {"json": body} if method == "POST" and not is_form else {}
    answer = world.client(person).request(method, path, params=query, **options)
    return answer.status_code


@pytest.mark.parametrize("route", list(ROUTES), ids=[" ".join(route) for route in ROUTES])
def test_each_role_gets_the_expected_status(
    world: World, write_file: Callable[..., Path], route: tuple[str, str]
) -> None:
    submission_id = sent(
        world, write_file(seed=list(ROUTES).index(route), masks=False)
    )  # a separate submission for each route
    assert {who: status(world, who, *route, submission_id) for who in WHO} == dict(zip(WHO, ROUTES[route], strict=True))


def test_table_covers_every_route(world: World) -> None:
    described = world.app.openapi()["paths"]
    routes = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert routes == set(ROUTES)
