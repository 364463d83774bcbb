"""Actors of requests, requirements of the sign-in modes, and rights by route and person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import gradio as gr
import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Team, User
from reveal_leaderboard.store.database import connect
from reveal_leaderboard.web.api.authentication import require_actor
from reveal_leaderboard.web.api.problems import add_problems
from reveal_leaderboard.web.middleware import Forwarded
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.sign_in_modes import Auth, ModeError, Provider, check_mode, open_auth, provider_from

from tests.leaderboard.databases import DATABASE_SOURCE

HERE = "http://127.0.0.1:7860"
OIDC = {
    "REVEAL_OIDC_ISSUER": "https://id.example.org/realms/x",
    "REVEAL_OIDC_CLIENT_ID": "board",
    "REVEAL_OIDC_CLIENT_SECRET": "s3cret",
    "REVEAL_URL": "https://board.example.org",
}
SPACE = {
    "SPACE_ID": "owner/board",
    "SPACE_HOST": "owner-board.hf.space",
    "OAUTH_CLIENT_ID": "client",
    "OAUTH_CLIENT_SECRET": "s3cret",
    "OPENID_PROVIDER_URL": "https://huggingface.co",
}


# Modes


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_local_mode_listens_on_this_machine(host: str) -> None:
    check_mode("local", host, {})


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.1.7", "board.example.org", "127.0.0.1.example.org", "localhost.example.org"]
)
def test_local_mode_listens_nowhere_else(host: str) -> None:
    with pytest.raises(ModeError, match=r"host must be 127\.0\.0\.1, ::1 or localhost, got"):
        check_mode("local", host, {})


def test_local_mode_refuses_a_space_and_a_proxy() -> None:
    with pytest.raises(ModeError, match="the mode must be huggingface there"):
        check_mode("local", "127.0.0.1", {"SPACE_ID": "owner/board"})
    with pytest.raises(ModeError, match="behind a proxy"):
        check_mode("local", "127.0.0.1", {}, trusts_proxy=True)
    with pytest.raises(ModeError, match="must be one of local, oidc, links, huggingface, got 'mock'"):
        check_mode("mock", "127.0.0.1", {})


def test_hugging_face_sign_in_works_on_a_space_only(tmp_path: Path) -> None:
    check_mode("huggingface", "0.0.0.0", SPACE)
    provider = provider_from("huggingface", SPACE)
    assert provider.redirect_uri == "https://owner-board.hf.space/login/callback"
    assert (provider.issuer, provider.known_as, provider.label) == (
        "https://huggingface.co", "huggingface", "Hugging Face",
    )  # fmt: skip
    with pytest.raises(ModeError, match="SPACE_ID must be set"):
        check_mode("huggingface", "127.0.0.1", {**SPACE, "SPACE_ID": ""})


@pytest.mark.parametrize("name", [name for name in OIDC if "ISSUER" in name or "CLIENT" in name or "URL" in name])
@pytest.mark.parametrize("value", ["", "  "], ids=["empty", "spaces"])
def test_a_missing_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ModeError, match=f"{name} must be set"):
        check_mode("oidc", "0.0.0.0", {**OIDC, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REVEAL_URL", "http://board.example.org"),
        ("REVEAL_URL", "https://board.example.org/sub"),
        ("REVEAL_URL", "board.example.org"),
        ("REVEAL_URL", "https://user:password@board.example.org"),
        ("REVEAL_URL", "https://board.example.org:port"),
        ("REVEAL_OIDC_ISSUER", "http://id.example.org"),
        ("REVEAL_OIDC_ISSUER", "https://id.example.org/?x=1"),
        ("REVEAL_OIDC_ISSUER", "https:///"),
        ("REVEAL_OIDC_ISSUER", "https://id.example.org/" + "x" * 200),
    ],
    ids=range(9),
)
def test_an_address_that_is_not_safe_is_refused(name: str, value: str) -> None:
    with pytest.raises(ModeError, match=r"must be|must have no path"):
        check_mode("oidc", "0.0.0.0", {**OIDC, name: value})


def test_a_secret_may_lie_in_a_file_and_is_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("from-a-file\n")
    environ = {**OIDC, "REVEAL_OIDC_CLIENT_SECRET": "", "REVEAL_OIDC_CLIENT_SECRET_FILE": str(path)}
    provider = provider_from("oidc", environ)
    assert provider.client_secret == "from-a-file"
    assert "from-a-file" not in repr(provider)
    path.write_text("")
    with pytest.raises(ModeError, match="must contain the secret"):
        provider_from("oidc", environ)
    path.unlink()
    with pytest.raises(ModeError, match=r"must be a readable text file, got .*FileNotFoundError"):
        provider_from("oidc", environ)


def test_administrators_are_listed_with_spaces_or_commas() -> None:
    assert provider_from("oidc", {**OIDC, "REVEAL_ADMINS": " sub:8, sub:7  sub:a-b,"}).admins == {
        "sub:7",
        "sub:8",
        "sub:a-b",
    }
    with pytest.raises(ModeError, match=r"as sub:SUBJECT, because many providers .* got 'jane'"):
        provider_from("oidc", {**OIDC, "REVEAL_ADMINS": "sub:7, jane"})
    assert provider_from("oidc", OIDC).admins == frozenset()


# Who is asking


@dataclass
class World:
    """Two teams with a member each, a reader, and an administrator; everybody signed in, with a token where named."""

    auth: Auth
    jane: User
    root: User
    lab: Team
    headers: dict[str, dict[str, str]]


def provider() -> Provider:
    return Provider("http://127.0.0.1:1", "c", "s", f"{HERE}/login/callback", "the provider", "the provider")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    engine = connect(DATABASE_SOURCE.migrated("sqlite", tmp_path_factory.mktemp("world")))
    accounts = Accounts(engine)
    people = {
        name: accounts.sign_in("i", name, name, as_admin=name == "admin") for name in ("a", "b", "reader", "admin")
    }
    teams = {
        name: accounts.create_team(f"Team {name}", owner=people[name], who=f"user:{people[name].id}") for name in "ab"
    }
    accounts.add_member(teams["a"], people["reader"], "reader", "cli")
    accounts.add_member(teams["a"], people["admin"], "member", "cli")
    headers: dict[str, dict[str, str]] = {"nobody": {}}
    for name, user in people.items():
        headers[name] = {"cookie": f"reveal={accounts.new_session(user)}", "origin": HERE}
    asked = {"a token": ("a", ["read", "submit"]), "a reading token": ("a", ["read"])}
    asked |= {"admin token": ("admin", ["read", "admin"]), "admin's plain token": ("admin", ["read"])}
    for name, (owner, scopes) in asked.items():
        _, secret = accounts.issue_token(people[owner], teams["a"], name="t", scopes=scopes)
        headers[name] = {"authorization": f"Bearer {secret}"}
    headers["bad token"] = {"authorization": "Bearer rvl_nothing"}
    headers["bad token, good cookie"] = {**headers["a"], **headers["bad token"]}
    headers["other scheme"] = {"authorization": "Basic YTpi", "cookie": headers["a"]["cookie"], "origin": HERE}
    yield World(Auth(accounts, "oidc", provider()), people["a"], people["admin"], teams["a"], headers)
    engine.dispose()


@pytest.fixture(scope="module")
def browser(world: World) -> TestClient:
    app, services = FastAPI(openapi_url=None), cast(Services, world)  # of which only `auth` is asked

    @app.get("/public")
    def public(request: Request) -> str:
        actor = world.auth.actor(request)
        return "nobody" if actor is None else actor.user.name

    @app.get("/mine")
    def mine(request: Request) -> str:
        return require_actor(services, request, "read").name

    @app.post("/submit")
    def submit(request: Request) -> str:
        return require_actor(services, request, "submit").name

    @app.post("/admin")
    def admin(request: Request) -> str:
        return require_actor(services, request, "admin").name

    @app.get("/team")
    def team(request: Request) -> bool:
        return require_actor(services, request, "read").team(world.lab.id) is not None

    add_problems(app)
    return TestClient(app, base_url=HERE)


MATRIX = {
    #                          public mine submit admin
    "nobody":                 (200,   401, 401,   401),
    "a":                      (200,   200, 200,   403),
    "b":                      (200,   200, 200,   403),
    "reader":                 (200,   200, 200,   403),
    "admin":                  (200,   200, 200,   200),
    "a token":                (200,   200, 200,   403),
    "a reading token":        (200,   200, 403,   403),
    "admin token":            (200,   200, 403,   200),
    "admin's plain token":    (200,   200, 403,   403),
    "bad token":              (200,   401, 401,   401),
    "bad token, good cookie": (200,   401, 401,   401),
    "other scheme":           (200,   401, 401,   401),
}  # fmt: skip


@pytest.mark.parametrize("who", list(MATRIX))
def test_who_may_do_what(world: World, browser: TestClient, who: str) -> None:
    routes = [("GET", "/public"), ("GET", "/mine"), ("POST", "/submit"), ("POST", "/admin")]
    answers = [browser.request(method, path, headers=world.headers[who]) for method, path in routes]
    assert tuple(answer.status_code for answer in answers) == MATRIX[who]
    for answer in answers:
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers.get("www-authenticate") == ("Bearer" if answer.status_code == 401 else None)
            assert answer.json()["status"] == answer.status_code


@pytest.mark.parametrize(
    ("who", "is_in"),
    [("a", True), ("b", False), ("reader", False), ("admin", True), ("a token", True), ("a reading token", False)],
)
def test_who_submits_for_the_team(world: World, browser: TestClient, who: str, is_in: bool) -> None:
    assert browser.get("/team", headers=world.headers[who]).json() is is_in


def test_gradio_handlers_ask_in_the_same_way(world: World) -> None:
    session = world.auth.accounts.new_session(world.jane)
    headers = [(b"cookie", f"reveal={session}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    request = gr.Request(request=Request(scope))
    actor = world.auth.actor(request)
    assert actor.user == world.jane
    world.auth.accounts.end_session(session)
    assert world.auth.actor(request) is None  # asked anew each time
    assert world.auth.actor(gr.Request(request=None)) is None


def test_the_cookie_is_bound_to_the_host_where_there_is_https(world: World) -> None:
    accounts = world.auth.accounts
    assert open_auth(accounts, "oidc", OIDC).cookie == "__Host-reveal"
    assert open_auth(accounts, "huggingface", SPACE).cookie == "__Host-reveal"
    assert world.auth.cookie == "reveal"
    with pytest.raises(ModeError, match="`provider` must be given"):
        Auth(accounts, "oidc")
    with pytest.raises(ModeError, match="`mode` must be one of"):
        Auth(accounts, "mock")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("client", "headers", "is_somebody"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {}, True),
        ("10.0.0.7", {}, False),
        ("127.0.0.1", {"x-forwarded-for": "10.0.0.7"}, False),
        ("127.0.0.1", {"forwarded": "for=10.0.0.7"}, False),
    ],
    ids=["v4", "v6", "elsewhere", "proxied", "forwarded"],
)
def test_in_local_mode_only_this_machine_is_somebody(
    world: World, client: str, headers: dict[str, str], is_somebody: bool
) -> None:
    auth = Auth(world.auth.accounts, "local")
    app = FastAPI(openapi_url=None)

    @app.get("/")
    def who(request: Request) -> bool:
        actor = auth.actor(request)
        return actor is not None and actor.is_admin

    app.add_middleware(Forwarded)
    assert TestClient(app, client=(client, 5000)).get("/", headers=headers).json() is is_somebody
