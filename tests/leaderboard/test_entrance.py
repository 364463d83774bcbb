"""All middleware together, before a small application with real Gradio pages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gradio as gr
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.testclient import TestClient
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.store.database import connect
from reveal_leaderboard.web.app import guard
from reveal_leaderboard.web.rate_limits import Rate, RequestLimits
from reveal_leaderboard.web.sign_in import add_sign_in
from reveal_leaderboard.web.sign_in_modes import Auth, Provider

from tests.leaderboard.databases import DATABASE_SOURCE
from tests.leaderboard.people_world import add_me

HERE = "https://board.example.org"
EVIL = "https://evil.example"


@pytest.fixture(scope="module")
def auth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Auth]:
    engine = connect(DATABASE_SOURCE.migrated("sqlite", tmp_path_factory.mktemp("entrance")))
    provider = Provider("https://id.example.org", "c", "s", f"{HERE}/login/callback", "the provider", "the provider")
    yield Auth(Accounts(engine), "oidc", provider)
    engine.dispose()


def build(auth: Auth, limits: RequestLimits | None = None) -> TestClient:
    app = FastAPI(openapi_url=None, docs_url=None)

    @app.post("/write")
    async def write(request: Request) -> int:
        return len(await request.body())

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("the-holdout-says-so")

    versioned = APIRouter()
    versioned.add_api_route("/things/{name}", lambda name: name, methods=["GET"])
    versioned.add_api_route("/things/{name}", lambda name: name, methods=["DELETE"])
    app.include_router(versioned, prefix="/api/v1")
    add_sign_in(app, auth)
    add_me(app, auth)
    guard(app, auth, max_body_bytes=10_000, limits=limits)
    with gr.Blocks(analytics_enabled=False) as pages:
        gr.Textbox("a page")
    options = {"run_history": False, "enable_monitoring": False, "ssr_mode": False, "mcp_server": False}
    gr.mount_gradio_app(app, pages, path="/", show_error=False, footer_links=[], **options)
    return TestClient(app, base_url=HERE, raise_server_exceptions=False, follow_redirects=False)


@pytest.fixture(scope="module")
def browser(auth: Auth) -> TestClient:
    return build(auth)


REFUSED: dict[str, tuple[str, str, dict[str, str], int]] = {
    "host": ("GET", "/", {"host": "evil.example"}, 400),
    "forwarded host": ("GET", "/", {"host": "evil.example", "x-forwarded-host": "board.example.org"}, 400),
    "origin": ("POST", "/write", {"origin": EVIL}, 403),
    "gradio origin": ("POST", "/gradio_api/queue/join", {"origin": EVIL}, 403),
    "sign-out origin": ("POST", "/logout", {"origin": EVIL, "cookie": "__Host-reveal=x"}, 403),
    "silent cookie": ("POST", "/logout", {"cookie": "__Host-reveal=x"}, 403),
    "preflight": ("OPTIONS", "/write", {"origin": EVIL, "access-control-request-method": "POST"}, 400),
    "upload": ("POST", "/gradio_api/upload", {}, 401),
    "files": ("GET", "/gradio_api/file=/etc/passwd", {}, 404),
    "calls": ("POST", "/gradio_api/run/predict", {}, 404),
    "not signed in": ("GET", "/me", {}, 401),
    "bad token": ("GET", "/me", {"authorization": "Bearer rvl_x"}, 401),
    "no such page": ("GET", "/nowhere", {}, 404),
    "method": ("PUT", "/write", {}, 405),
    "fault": ("GET", "/broken", {}, 500),
}


SENDS_CREDENTIALS = ("sign-out origin", "silent cookie", "bad token")


@pytest.mark.parametrize("kind", list(REFUSED))
def test_every_refusal_is_a_problem_document_with_the_headers(browser: TestClient, kind: str) -> None:
    method, path, headers, status = REFUSED[kind]
    answer = browser.request(method, path, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["status"] == status
    assert "holdout" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["strict-transport-security"].startswith("max-age=")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers.get("cache-control") == ("private, no-store" if kind in SENDS_CREDENTIALS else None)


@pytest.mark.parametrize(("path", "allowed"), [("/api/v1/things/a", "DELETE, GET"), ("/write", "POST")])
def test_another_method_is_not_passed_on_to_gradio(browser: TestClient, path: str, allowed: str) -> None:
    answer = browser.put(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert browser.request(allowed.split(", ")[0], path).status_code == 200


def test_a_body_is_limited_everywhere(browser: TestClient) -> None:
    assert browser.post("/write", content=b"x" * 10_000).text == "10000"
    for path in ("/write", "/gradio_api/queue/join"):
        assert browser.post(path, content=b"x" * 10_001).status_code == 413


def test_what_is_for_everybody_passes(browser: TestClient) -> None:
    for path in ("/", "/config", "/gradio_api/info"):
        answer = browser.get(path, headers={"origin": EVIL})
        assert answer.status_code == 200, path
        assert "access-control-allow-origin" not in answer.headers


def test_the_servers_own_machine_may_ask_for_its_health(auth: Auth, browser: TestClient) -> None:
    assert auth.hosts == {"board.example.org", "127.0.0.1", "localhost", "[::1]"}
    assert browser.get("/config", headers={"host": "127.0.0.1:7860"}).status_code == 200


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://localhost:7860", "localhost"),
        ("http://[::1]:7860", "[::1]"),
        ("https://[2001:db8::1]", "[2001:db8::1]"),
    ],
)
def test_hosts_have_no_port(auth: Auth, url: str, host: str) -> None:
    provider = Provider("https://id.example.org", "c", "s", f"{url}/login/callback", "p", "p")
    assert host in Auth(auth.accounts, "oidc", provider).hosts


def test_a_signed_in_persons_requests_are_counted(auth: Auth) -> None:
    browser = build(auth, RequestLimits(address=Rate(1000, 1), actor=Rate(2, 0.001)))
    session = auth.accounts.new_session(auth.accounts.sign_in("i", "s", "jane"))
    statuses = [browser.get("/me", headers={"cookie": f"__Host-reveal={session}"}).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert browser.get("/me").status_code == 401  # nobody's are not


def test_local_mode_answers_this_machine_only(tmp_path: Path) -> None:
    accounts = Accounts(connect(DATABASE_SOURCE.migrated("sqlite", tmp_path)))
    app = build(Auth(accounts, "local")).app
    local = TestClient(app, base_url="http://127.0.0.1:7860", client=("127.0.0.1", 1))
    assert local.get("/me").json()["is_admin"] is True
    assert local.get("/me", headers={"x-forwarded-for": "10.0.0.1"}).status_code == 401
    assert local.get("/me", headers={"host": "board.example.org"}).status_code == 400
    elsewhere = TestClient(app, base_url="http://127.0.0.1:7860", client=("10.0.0.7", 1))
    assert elsewhere.get("/me").status_code == 401


def test_gradio_writes_no_stubs_beside_its_components() -> None:
    script = "import reveal_leaderboard.web, gradio.component_meta as meta; print(meta.create_or_modify_pyi(1, 2, 3))"
    # on anything but a class of a file Gradio's own function fails
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
