"""Gradio's real routes behind the middleware, and the owners of files and sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from gradio.routes import App
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.store.database import connect
from reveal_leaderboard.web.app import QUIET, build_app
from reveal_leaderboard.web.gradio_middleware import ROUTES, GradioGate
from reveal_leaderboard.web.sign_in_modes import Auth, Provider
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from tests.leaderboard.browser.world import World
from tests.leaderboard.databases import DATABASE_SOURCE

HERE = "http://127.0.0.1:7860"
SESSION, OTHER_SESSION = "abcdef12345", "ghijkl67890"
PATHS = ["/tmp/cache/1/a.jsonl", "/tmp/cache/1/b.jsonl"]

# Looked at, and open to everybody: the pages, what they are made of, and their description.
OPEN = {
    "/", "/submit", "/submit/", "/config", "/config/", "/svelte/{path:path}", "/static/{path:path}",
    "/assets/{path:path}", "/favicon.ico", "/theme.css", "/robots.txt", "/manifest.json",
}  # fmt: skip


@dataclass
class Inside:
    """Replacement for Gradio: answers an upload with paths, and keeps what it was sent."""

    seen: list[tuple[str, bytes]] = field(default_factory=list)
    paths: list[str] = field(default_factory=lambda: list(PATHS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.seen.append((request.url.path, await request.body()))
        packs = "accept-encoding" in request.headers and request.url.path.endswith("/upload")
        answer: Response = PlainTextResponse("packed") if packs else PlainTextResponse("inside")
        if request.url.path.endswith("/upload") and not packs:
            answer = JSONResponse(self.paths)
        await answer(scope, receive, send)


@pytest.fixture(scope="module")
def auth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Auth]:
    engine = connect(DATABASE_SOURCE.migrated("sqlite", tmp_path_factory.mktemp("gate")))
    provider = Provider("http://127.0.0.1:1", "c", "s", f"{HERE}/login/callback", "the provider", "the provider")
    yield Auth(Accounts(engine), "oidc", provider)
    engine.dispose()


@pytest.fixture(scope="module")
def cookies(auth: Auth) -> dict[str, dict[str, str]]:
    people = {name: auth.accounts.sign_in("i", name, name, as_admin=name == "admin") for name in ("a", "b", "admin")}
    signed_in = {name: {"cookie": f"reveal={auth.accounts.new_session(user)}"} for name, user in people.items()}
    return {"nobody": {}, **signed_in}


@pytest.fixture
def inside() -> Inside:
    return Inside()


@pytest.fixture
def browser(auth: Auth, inside: Inside) -> TestClient:
    return TestClient(GradioGate(inside, auth), base_url=HERE)


def join(browser: TestClient, headers: dict[str, str], *, session: Any = SESSION, data: Any = None) -> int:
    event = {"data": [data], "fn_index": 0, "session_hash": session}
    return browser.post("/gradio_api/queue/join", json=event, headers=headers).status_code


def file_data(path: str) -> dict[str, Any]:
    return {"path": path, "meta": {"_type": "gradio.FileData"}}


# The real routes


def gradio_routes() -> list[tuple[str, str]]:
    app = FastAPI(docs_url=None, openapi_url=None)
    with gr.Blocks(analytics_enabled=False) as pages:
        gr.File()
    with pages.route("Submit", "/submit"):
        gr.Textbox()
    options = {"run_history": False, "enable_monitoring": False, "ssr_mode": False, "mcp_server": False}
    app = gr.mount_gradio_app(app, pages, path="/", footer_links=[], **options)
    return sorted({(method, path) for path, methods in _routes(app.routes) for method in methods})


def _routes(routes: list[Any]) -> Iterator[tuple[str, set[str]]]:
    for route in routes:
        if isinstance(route, APIRoute) or hasattr(route, "methods"):
            yield route.path, set(route.methods or ())
        for inner in (route, getattr(route, "app", None), getattr(route, "original_router", None)):
            yield from _routes(getattr(inner, "routes", None) or [])


def test_every_route_of_gradio_was_looked_at(browser: TestClient, inside: Inside, cookies: dict[str, Any]) -> None:
    """A route that a new version of Gradio adds is closed, or this test fails until somebody decides that it may be
    open.
    """
    routes = gradio_routes()
    assert len(routes) > 60
    for method, path in routes:
        inside.seen.clear()
        answer = browser.request(method, path.replace("{session_hash}", SESSION), headers=cookies["a"])
        below = path.removeprefix("/gradio_api/")
        if path in OPEN or method in ROUTES.get(below, ()):
            continue
        assert inside.seen == [], (method, path)
        assert answer.status_code == 404, (method, path)
        assert method == "HEAD" or answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/run/predict",
        "/gradio_api/call/predict",
        "/gradio_api/component_server",
        "/gradio_api/proxy=http://127.0.0.1/",
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=https://example.org/",
        "/gradio_api/file/etc/passwd",
        "/gradio_api/openapi.json",
        "/gradio_api/token",
        "//gradio_api/upload",
        "/x/gradio_api/upload",
        "/gradio_api",
        "/monitoring",
        "/monitoring/summary",
        "/openapi.json",
        "/?deep_link=x",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_the_pages_do_not_need_is_not_there(
    browser: TestClient, inside: Inside, cookies: dict[str, Any], method: str, path: str
) -> None:
    for headers in cookies.values():
        assert browser.request(method, f"{HERE}{path}", headers=headers).status_code == 404
    assert inside.seen == []


def test_our_own_sign_in_is_not_gradios(browser: TestClient, inside: Inside) -> None:
    assert browser.post("/login", data={"username": "a", "password": "b"}).status_code == 404
    assert browser.post("/login/").status_code == 404
    assert browser.get("/logout").status_code == 404
    assert inside.seen == []
    assert browser.get("/login").text == browser.post("/logout").text == browser.get("/submit").text == "inside"


# Uploads


def test_nobody_uploads_without_signing_in(browser: TestClient, inside: Inside) -> None:
    answer = browser.post("/gradio_api/upload", files={"files": b"x" * 1000})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert inside.seen == []


def test_an_upload_is_its_owners_alone(browser: TestClient, inside: Inside, cookies: dict[str, Any]) -> None:
    answer = browser.post("/gradio_api/upload", files={"files": b"x"}, headers=cookies["a"])
    assert "/tmp" not in answer.text, "the path of a file must not be shown"
    first, second = answer.json()
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}/a\.jsonl", first)
    fetched = {who: browser.get(f"/gradio_api/file={second}", headers=h).status_code for who, h in cookies.items()}
    assert fetched == {"nobody": 404, "a": 200, "b": 404, "admin": 404}
    assert inside.seen[-1][0] == f"/gradio_api/file={PATHS[1]}"
    inside.seen.clear()
    handed = {
        who: join(browser, headers, session=f"session-of-{who}", data=file_data(first))
        for who, headers in cookies.items()
    }
    assert handed == {"nobody": 403, "a": 200, "b": 403, "admin": 403}
    assert [f'"path": "{PATHS[0]}"' in body.decode() for _, body in inside.seen] == [True]
    for path in ("/etc/passwd", PATHS[0]):
        assert join(browser, cookies["a"], data=[{"deep": [file_data(second), {"path": path}]}]) == 403
        assert browser.get(f"/gradio_api/file={path}", headers=cookies["a"]).status_code == 404


def test_the_same_bytes_belong_to_both_who_sent_them(browser: TestClient, cookies: dict[str, Any]) -> None:
    for who in ("a", "b"):
        name = browser.post("/gradio_api/upload", files={"files": b"x"}, headers=cookies[who]).json()[0]
        fetched = {
            other: browser.get(f"/gradio_api/file={name}", headers=h).status_code for other, h in cookies.items()
        }
        assert fetched == {other: 200 if other == who else 404 for other in cookies}


@pytest.mark.parametrize("answer", [[], [7], "text"], ids=str)
def test_an_upload_that_failed_belongs_to_nobody(
    browser: TestClient, inside: Inside, cookies: dict[str, Any], answer: Any
) -> None:
    inside.paths = answer
    browser.post("/gradio_api/upload", files={"files": b"x"}, headers=cookies["a"])
    assert browser.get("/gradio_api/file=text", headers=cookies["a"]).status_code == 404


# Sessions

FOLLOW: dict[str, Callable[[TestClient, dict[str, str]], int]] = {
    "events": lambda browser, h: browser.get(f"/gradio_api/queue/data?session_hash={SESSION}", headers=h).status_code,
    "join": join,
    "cancel": lambda browser, h: (
        browser.post(
            "/gradio_api/cancel", json={"session_hash": SESSION, "fn_index": 0, "event_id": "e"}, headers=h
        ).status_code
    ),
}


@pytest.mark.parametrize("how", list(FOLLOW))
@pytest.mark.parametrize("first", list(FOLLOW))
def test_a_session_is_whose_it_was_first(browser: TestClient, cookies: dict[str, Any], first: str, how: str) -> None:
    assert FOLLOW[first](browser, cookies["a"]) == 200
    assert {who: FOLLOW[how](browser, headers) for who, headers in cookies.items()} == {
        "nobody": 403, "a": 200, "b": 403, "admin": 403,
    }  # fmt: skip


def test_who_signs_in_keeps_the_session_and_who_was_nobody_loses_it(
    browser: TestClient, cookies: dict[str, Any]
) -> None:
    assert [join(browser, cookies[who]) for who in ("nobody", "a", "nobody", "b")] == [200, 200, 403, 403]
    assert join(browser, cookies["b"], session=OTHER_SESSION) == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"7", b"{}", b'{"session_hash"', b"\xff", b"[" * 100_000, b'{"data": []}'],
    ids=range(8),
)
def test_an_event_that_is_none_is_refused(
    browser: TestClient, inside: Inside, cookies: dict[str, Any], body: bytes
) -> None:
    assert browser.post("/gradio_api/queue/join", content=body, headers=cookies["a"]).status_code == 400
    assert inside.seen == []


@pytest.mark.parametrize("session", [7, None, [], "", "short", "x" * 65, "a b c d e f", "../../../etc"], ids=range(8))
def test_a_session_hash_has_a_form(browser: TestClient, cookies: dict[str, Any], session: Any) -> None:
    assert join(browser, cookies["a"], session=session) == 403


def test_what_was_checked_is_what_gradio_reads(browser: TestClient, inside: Inside, cookies: dict[str, Any]) -> None:
    """Two keys of one name: readers differ about which counts, so only one is handed on."""
    join(browser, cookies["b"], session=OTHER_SESSION)
    body = f'{{"session_hash": "{OTHER_SESSION}", "data": [], "session_hash": "{SESSION}"}}'
    assert browser.post("/gradio_api/queue/join", content=body, headers=cookies["a"]).status_code == 200
    assert json.loads(inside.seen[-1][1]) == {"session_hash": SESSION, "data": []}
    assert inside.seen[-1][1].count(b"session_hash") == 1
    twice = f"/gradio_api/queue/data?session_hash={SESSION}&session_hash={OTHER_SESSION}"
    assert browser.get(twice, headers=cookies["a"]).status_code == 403


def test_an_event_is_not_endless(browser: TestClient, inside: Inside, cookies: dict[str, Any]) -> None:
    assert join(browser, cookies["a"], data="x" * 4_000_000) == 413
    assert inside.seen == []


def mounted_in(app: FastAPI) -> App:
    """Gradio's own application inside ours."""
    (mounted,) = (inner for route in app.routes if isinstance(inner := getattr(route, "app", None), App))
    return mounted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The board's own application, made where nothing yet keeps Gradio quiet."""
    world = World(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        for name in QUIET:
            patch.delenv(name, raising=False)
        return build_app(world.store, world.intake.blobs, world.catalogue, world.intake.custody, world.auth)


def test_gradio_gathers_nothing_about_events(whole: FastAPI) -> None:
    """After each event, Gradio would tabulate its last 10,000 events again, for a page that is closed."""
    queue = mounted_in(whole).get_blocks()._queue
    queue.events_recorded = 1000
    done = {"function": "send", "status": "success", "process_time": 1.0}
    assert queue.ANALYTICS_MAX_EVENTS == 1
    assert queue.compute_analytics_summary([done]) == {"functions": {}}


def test_an_open_page_holds_no_connection(whole: FastAPI) -> None:
    """A browser opens six connections to a server: if each page kept one, the seventh tab would wait for ever."""
    for path in ("/mine", "/submit"):
        page = TestClient(whole, base_url="http://127.0.0.1").get(path).text
        assert '"connect_heartbeat":false' in page.replace(" ", "")


def test_a_page_that_is_opened_costs_no_copy_of_every_component(whole: FastAPI) -> None:
    """Ten thousand sessions are remembered: with a copy in each, visitors could fill the memory."""
    sessions = mounted_in(whole).state_holder
    assert sessions is mounted_in(whole).get_blocks().state_holder
    assert list(sessions[SESSION].components) == []
    assert sessions[SESSION] is sessions[SESSION]


@pytest.mark.parametrize("number", [9999, -1, "0", None, [0]], ids=str)
def test_a_function_that_the_pages_do_not_have_is_refused_before_gradio_fails_over_it(
    auth: Auth, inside: Inside, number: Any
) -> None:
    browser = TestClient(GradioGate(inside, auth, functions={0, 1}), base_url=HERE)
    event = {"data": [], "fn_index": number, "session_hash": SESSION}
    assert browser.post("/gradio_api/queue/join", json=event).status_code == (400 if number == [0] else 404)
    assert inside.seen == []
    assert browser.post("/gradio_api/queue/join", json=event | {"fn_index": 1}).status_code == 200


def test_the_gate_knows_the_functions_of_the_pages(whole: FastAPI) -> None:
    client = TestClient(whole, base_url="http://127.0.0.1")
    numbers = [max(mounted_in(whole).get_blocks().fns) + more for more in (0, 1)]
    events = [{"data": [], "fn_index": number, "session_hash": SESSION} for number in numbers]
    assert [client.post("/gradio_api/queue/join", json=one).status_code for one in events] == [200, 404]
