"""Signing in through a real provider on loopback: the whole way, and every bad turn of it."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.testclient import TestClient
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.store.database import connect
from reveal_leaderboard.web import oidc
from reveal_leaderboard.web.oidc import Claims, Client, ProviderError
from reveal_leaderboard.web.sign_in import Pending, add_sign_in, own_path, shown_name
from reveal_leaderboard.web.sign_in_modes import Auth, open_auth
from reveal_leaderboard.web.sign_in_modes import Provider as Registration

from tests.leaderboard.databases import DATABASE_SOURCE
from tests.leaderboard.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from tests.leaderboard.people_world import add_me

HERE = "http://127.0.0.1:7860"


def encoded(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


ODD_KEY = {"id_token": f"{encoded({'alg': 'RS256', 'kid': ['rsa']})}.{encoded({})}.AAAA"}


@pytest.fixture(scope="module")
def running() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def provider(running: Provider, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """The provider, as it is when nothing is wrong; it speaks plain HTTP, and reading certificates takes longest."""
    monkeypatch.setattr(oidc, "_trusted", lambda trust_env: False)
    fresh = Provider(issuer=running.issuer)
    vars(running).update(vars(fresh))
    return running


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    return Accounts(connect(DATABASE_SOURCE.migrated("sqlite", tmp_path)))


def auth_for(provider: Provider, accounts: Accounts, **more: str) -> Auth:
    environ = {
        "REVEAL_OIDC_ISSUER": provider.issuer,
        "REVEAL_OIDC_CLIENT_ID": CLIENT_ID,
        "REVEAL_OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "REVEAL_URL": HERE,
        **more,
    }
    return open_auth(accounts, "oidc", environ)


def board(auth: Auth) -> TestClient:
    """A browser at a small board, which does not follow redirects by itself."""
    app = FastAPI(openapi_url=None)
    add_sign_in(app, auth)
    add_me(app, auth)
    return TestClient(app, base_url=HERE, follow_redirects=False, client=("127.0.0.1", 5000))


@pytest.fixture
def browser(provider: Provider, accounts: Accounts) -> TestClient:
    return board(auth_for(provider, accounts))


def to_provider(browser: TestClient, path: str = "/login") -> str:
    """Start to sign in, and be sent back by the provider: the callback's path with its query."""
    started = browser.get(path)
    assert started.status_code == 303
    sent_back = httpx.get(started.headers["location"], trust_env=False, verify=False)
    assert sent_back.status_code == 302
    url = sent_back.headers["location"]
    assert url.startswith(f"{HERE}/login/callback?")
    return str(url.removeprefix(HERE))


def assert_not_signed_in(browser: TestClient, answer: Any, status: int) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert "<h1>" in answer.text
    assert "reveal" not in browser.cookies
    assert browser.get("/me").status_code == 401


@pytest.mark.parametrize("signer", ["rsa", "ec"])
def test_the_whole_way(provider: Provider, accounts: Accounts, browser: TestClient, signer: str) -> None:
    provider.signer = signer
    answer = browser.get(to_provider(browser, "/login?next=/submit?benchmark=a"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/submit?benchmark=a")
    cookie = next(line for line in answer.headers.get_list("set-cookie") if line.startswith("reveal="))
    assert {"HttpOnly", "Path=/", "SameSite=lax", "Max-Age=43200"} <= set(cookie.split("; "))
    me = browser.get("/me").json()
    assert (me["via"], me["name"], me["is_admin"], me["teams"]) == ("session", "jane", False, [])
    user = accounts.user(me["id"])
    assert (user.issuer, user.subject) == (provider.issuer, "248289761001")
    old = browser.cookies["reveal"]
    assert browser.post("/logout", headers={"origin": HERE}).status_code == 303
    assert "reveal" not in browser.cookies
    assert accounts.session_user(old) is None


def test_a_session_is_new_after_each_sign_in(accounts: Accounts, browser: TestClient) -> None:
    browser.get(to_provider(browser))
    first = browser.cookies["reveal"]
    browser.get(to_provider(browser))
    assert browser.cookies["reveal"] != first
    assert accounts.session_user(first) is None


def test_a_session_planted_before_is_not_taken_over(accounts: Accounts, browser: TestClient) -> None:
    browser.cookies.set("reveal", "planted-by-somebody-else", domain="127.0.0.1", path="/")
    browser.get(to_provider(browser))
    assert accounts.session_user("planted-by-somebody-else") is None


BAD_CLAIMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "nonce-other": lambda claims: {**claims, "nonce": "of another sign-in"},
    "nonce-missing": lambda claims: {k: v for k, v in claims.items() if k != "nonce"},
    "nonce-empty": lambda claims: {**claims, "nonce": ""},
    "aud-other": lambda claims: {**claims, "aud": "another client"},
    "aud-missing": lambda claims: {k: v for k, v in claims.items() if k != "aud"},
    "aud-several": lambda claims: {**claims, "aud": [CLIENT_ID, "another client"]},
    "azp-other": lambda claims: {**claims, "aud": [CLIENT_ID, "another client"], "azp": "another client"},
    "iss-other": lambda claims: {**claims, "iss": "https://evil.example"},
    "iss-missing": lambda claims: {k: v for k, v in claims.items() if k != "iss"},
    "expired": lambda claims: {**claims, "iat": claims["iat"] - 3600, "exp": claims["iat"] - 120},
    "exp-missing": lambda claims: {k: v for k, v in claims.items() if k != "exp"},
    "exp-list": lambda claims: {**claims, "exp": [1]},
    "exp-text": lambda claims: {**claims, "exp": "tomorrow"},
    "issued-tomorrow": lambda claims: {**claims, "iat": claims["iat"] + 86400, "exp": claims["iat"] + 90000},
    "sub-missing": lambda claims: {k: v for k, v in claims.items() if k != "sub"},
    "sub-empty": lambda claims: {**claims, "sub": ""},
    "sub-number": lambda claims: {**claims, "sub": 7},
    "sub-nul": lambda claims: {**claims, "sub": "7\x00"},
    "sub-surrogate": lambda claims: {**claims, "sub": "\ud800"},
    "sub-long": lambda claims: {**claims, "sub": "7" * 201},
}


@pytest.mark.parametrize("fault", list(BAD_CLAIMS))
def test_an_id_token_with_bad_claims_signs_nobody_in(
    provider: Provider, accounts: Accounts, browser: TestClient, fault: str
) -> None:
    provider.twist = BAD_CLAIMS[fault]
    assert_not_signed_in(browser, browser.get(to_provider(browser)), 400)
    assert accounts.users() == []


@pytest.mark.parametrize("signer", ["another key", "unknown kid", "alg none", "alg HS256", "no signature"])
def test_an_id_token_with_a_bad_signature_signs_nobody_in(
    provider: Provider, accounts: Accounts, browser: TestClient, signer: str
) -> None:
    provider.signer = signer
    assert_not_signed_in(browser, browser.get(to_provider(browser)), 400)
    assert accounts.users() == []


def test_several_audiences_pass_if_it_is_for_us(provider: Provider, browser: TestClient) -> None:
    provider.twist = lambda claims: {**claims, "aud": [CLIENT_ID, "another"], "azp": CLIENT_ID}
    assert browser.get(to_provider(browser)).status_code == 303


@pytest.mark.parametrize(
    "change", ["state=other", "state=", "state=%F0%9F%98%80", "no state"], ids=["other", "empty", "emoji", "none"]
)
def test_an_answer_to_another_sign_in_is_refused(provider: Provider, browser: TestClient, change: str) -> None:
    path = to_provider(browser)
    state = parse_qs(urlsplit(path).query)["state"][0]
    path = path.replace(f"state={state}", "" if change == "no state" else change)
    assert_not_signed_in(browser, browser.get(path), 400)
    assert provider.n_exchanges == 0


def test_an_answer_without_the_cookie_is_refused(provider: Provider, browser: TestClient) -> None:
    """Somebody else's callback link, opened in this browser, signs nobody in as somebody else."""
    path = to_provider(browser)
    browser.cookies.clear()
    assert_not_signed_in(browser, browser.get(path), 400)
    assert provider.n_exchanges == 0


def test_a_callback_works_once(provider: Provider, browser: TestClient) -> None:
    path = to_provider(browser)
    pending = browser.cookies["reveal-signin"]
    assert browser.get(path).status_code == 303
    browser.cookies.clear()
    assert_not_signed_in(browser, browser.get(path), 400)
    browser.cookies.set("reveal-signin", pending, domain="127.0.0.1", path="/")
    assert_not_signed_in(browser, browser.get(path), 400)  # the provider refuses the code
    assert provider.n_exchanges == 2


def test_a_code_is_bound_to_its_verifier(browser: TestClient) -> None:
    """PKCE: a stolen code is useless with another browser's verifier."""
    path = to_provider(browser)
    pending = Pending.from_cookie(browser.cookies["reveal-signin"])
    stolen = Pending(pending.state, pending.nonce, "x" * 43, "/")
    browser.cookies.clear()
    browser.cookies.set("reveal-signin", stolen.to_cookie(), domain="127.0.0.1", path="/")
    assert_not_signed_in(browser, browser.get(path), 400)


def test_an_answer_of_another_issuer_is_refused(provider: Provider, browser: TestClient) -> None:
    path = to_provider(browser).partition("&iss=")[0]
    assert_not_signed_in(browser, browser.get(f"{path}&iss=https://evil.example"), 400)
    assert provider.n_exchanges == 0


def test_who_declines_is_told_so_and_no_text_of_the_answer_is_shown(browser: TestClient) -> None:
    path = to_provider(browser)
    state = parse_qs(urlsplit(path).query)["state"][0]
    answer = browser.get(f"/login/callback?state={state}&error=access_denied&error_description=<script>x</script>")
    assert_not_signed_in(browser, answer, 403)
    assert "did not sign you in" in answer.text
    assert "script" not in answer.text


def test_a_closed_account_cannot_sign_in(accounts: Accounts, browser: TestClient) -> None:
    browser.get(to_provider(browser))
    session = browser.cookies["reveal"]
    accounts.disable(accounts.users()[0], "cli")
    assert browser.get("/me").status_code == 401
    browser.cookies.clear()
    answer = browser.get(to_provider(browser))
    assert_not_signed_in(browser, answer, 403)
    assert "This account is closed" in answer.text
    assert accounts.session_user(session) is None


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "javascript:alert(1)",
        "evil.example",
        "",
        "/login?next=/login",
        "/logout",
        "/" + "a" * 500,
        "/ü",
        "http:evil.example",
    ],
    ids=range(14),
)
def test_nobody_is_sent_elsewhere(browser: TestClient, path: str) -> None:
    assert own_path(path) == "/"
    started = browser.get("/login", params={"next": path})
    sent_back = httpx.get(started.headers["location"], trust_env=False, verify=False).headers["location"]
    assert browser.get(sent_back.removeprefix(HERE)).headers["location"] == "/"
    browser.cookies.clear()


def test_a_forged_cookie_sends_nobody_elsewhere(browser: TestClient) -> None:
    path = to_provider(browser)
    pending = Pending.from_cookie(browser.cookies["reveal-signin"])
    forged = Pending(pending.state, pending.nonce, pending.verifier, "https://evil.example/")
    browser.cookies.clear()
    browser.cookies.set("reveal-signin", forged.to_cookie(), domain="127.0.0.1", path="/")
    assert browser.get(path).headers["location"] == "/"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "%%%",
        "e30",
        encoded([1]),
        "bnVsbA",
        "A" * 5000,
        encoded(dict.fromkeys(("state", "nonce", "verifier", "path"), "\ud800")),
        base64.urlsafe_b64encode(b'{"state":' + b"[" * 100_000).decode(),
    ],
    ids=range(9),
)
def test_what_is_no_cookie_of_ours_starts_nothing(text: str) -> None:
    assert Pending.from_cookie(text) is None


@pytest.mark.parametrize(
    ("admins", "person", "is_admin"),
    [
        ("sub:7, sub:9", {"sub": "7", "preferred_username": "jane"}, True),
        ("sub:7", {"sub": "8", "preferred_username": "sub:7"}, False),  # a name that reads like a subject
        ("sub:jane", {"sub": "7", "preferred_username": "jane", "name": "jane"}, False),  # anybody may be called so
        ("", {"sub": "7", "preferred_username": ""}, False),
    ],
    ids=range(4),
)
def test_who_is_listed_becomes_administrator(
    provider: Provider, accounts: Accounts, admins: str, person: dict[str, str], is_admin: bool
) -> None:
    provider.person = person
    browser = board(auth_for(provider, accounts, REVEAL_ADMINS=admins))
    browser.get(to_provider(browser))
    assert browser.get("/me").json()["is_admin"] is is_admin


@pytest.mark.parametrize(
    ("username", "name", "displayed"),
    [
        ("jane@hospital.example", "Jane Doe", "jane"),
        ("", "Jane Doe", "Jane Doe"),
        ("\u202eevil", "Jane", "Jane"),
        ("x" * 101, "", "user"),
        ("", "", "user"),
        ("  ", "\x00", "user"),
        ("\u3164", "Jane", "Jane"),  # a letter that shows as nothing
        ("\u2800 \uffa0", "\u0301", "user"),
    ],
    ids=range(8),
)
def test_an_address_is_never_shown(username: str, name: str, displayed: str) -> None:
    assert shown_name(Claims("7", username, name)) == displayed


BAD_PROVIDERS: dict[str, dict[str, Any]] = {
    "another issuer": {"issuer": "https://evil.example"},
    "no endpoint": {"token_endpoint": None},
    "plain http": {"jwks_uri": "http://keys.example.org/keys"},
    "a script": {"authorization_endpoint": "javascript:alert(1)"},
    "no address": {"token_endpoint": "https://["},
    "half a character": {"authorization_endpoint": "https://id.example.org/\ud800"},
    "too long": {"padding": "a" * oidc.MAX_ANSWER},
}


@pytest.mark.parametrize("fault", list(BAD_PROVIDERS))
def test_discovery_that_cannot_be_believed_starts_nothing(provider: Provider, browser: TestClient, fault: str) -> None:
    provider.metadata = BAD_PROVIDERS[fault]
    assert_not_signed_in(browser, browser.get("/login"), 502)


def test_a_compressed_answer_is_refused_unread(provider: Provider, browser: TestClient) -> None:
    """400 KB of gzip once took 951 MB."""
    provider.is_compressed = True
    assert_not_signed_in(browser, browser.get("/login"), 502)


HERE_ONLY = ["https://localhost/token", "http://127.0.0.1/token", "https://[::1]/t", "https://[::ffff:127.0.0.1]/t"]


@pytest.mark.parametrize("endpoint", HERE_ONLY)
def test_a_remote_provider_cannot_have_this_server_ask_its_own_machine(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = "https://id.example.org"
    remote = Registration(issuer, "client", "secret", f"{HERE}/login/callback", "it", issuer)

    async def ask(self: Client, method: str, url: str, **_: Any) -> dict[str, Any]:
        return {**Provider(issuer=issuer).discovery(), "token_endpoint": endpoint}

    monkeypatch.setattr(Client, "_ask", ask)
    with pytest.raises(ProviderError, match="discovery: token_endpoint must be an https address"):
        asyncio.run(Client(remote).authorization_url(state="s", nonce="n", verifier="v"))


def test_a_hanging_provider_is_asked_once_and_delays_nobody_else(accounts: Accounts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        hanging.settimeout(0.01)
        auth = auth_for(Provider(issuer=f"http://127.0.0.1:{hanging.getsockname()[1]}"), accounts)

        async def visit() -> int:
            transport = httpx.ASGITransport(board(auth).app, client=("127.0.0.1", 5000))
            async with httpx.AsyncClient(transport=transport, base_url=HERE) as visitor:
                pending = [asyncio.create_task(visitor.get("/login")) for _ in range(80)]
                await asyncio.sleep(0.1)
                answer = await asyncio.wait_for(visitor.get("/me"), 5)
                assert not any(task.done() for task in pending)
                for task in pending:
                    task.cancel()
                return answer.status_code

        assert asyncio.run(visit()) == 401
        hanging.accept()[0].close()
        with pytest.raises(TimeoutError):
            hanging.accept()


def test_a_failure_is_remembered_for_seconds(
    provider: Provider, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.metadata = BAD_PROVIDERS["no endpoint"]
    assert [browser.get("/login").status_code for _ in range(3)] == [502, 502, 502]
    assert provider.n_discoveries == 1
    provider.metadata = {}
    monkeypatch.setattr(oidc, "FAILED_SECONDS", 0.0)
    assert browser.get("/login").status_code == 303


def test_an_answer_that_trickles_in_ends_at_the_deadline(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "TIMEOUT_SECONDS", 0.3)
    stop = threading.Event()

    def trickle(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not stop.wait(0.02):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, args=(server,), daemon=True)
        thread.start()
        browser = board(auth_for(Provider(issuer=f"http://127.0.0.1:{server.getsockname()[1]}"), accounts))
        assert_not_signed_in(browser, browser.get("/login"), 502)
        stop.set()
        thread.join(10)


def test_a_provider_that_is_gone_is_said_plainly(accounts: Accounts) -> None:
    browser = board(auth_for(Provider(issuer="http://127.0.0.1:1"), accounts))
    answer = browser.get("/login")
    assert_not_signed_in(browser, answer, 502)
    assert "Incident INC-" in answer.text


@pytest.mark.parametrize(
    "answer",
    [{}, {"id_token": 7}, {"id_token": "x.y"}, {"id_token": "..."}, [], "text", "[" * 100_000, ODD_KEY],
    ids=range(8),
)
def test_a_token_answer_that_is_none_signs_nobody_in(provider: Provider, browser: TestClient, answer: Any) -> None:
    provider.token_answer = PlainTextResponse(answer) if isinstance(answer, str) else JSONResponse(answer)
    assert_not_signed_in(browser, browser.get(to_provider(browser)), 400)


@pytest.mark.parametrize("methods", [["client_secret_post"], 7])
def test_a_provider_that_wants_the_secret_in_the_form_gets_it(
    provider: Provider, browser: TestClient, methods: object
) -> None:
    provider.metadata = {"token_endpoint_auth_methods_supported": methods}
    assert browser.get(to_provider(browser)).status_code == 303


def test_keys_are_asked_for_once(provider: Provider, browser: TestClient) -> None:
    for _ in range(3):
        browser.get(to_provider(browser))
    assert provider.n_key_sets == 1
    provider.signer = "unknown kid"
    for _ in range(3):
        browser.get(to_provider(browser))
    assert provider.n_key_sets == 1  # known for less than a minute: not asked for again


def test_no_secret_is_logged(provider: Provider, browser: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="reveal_leaderboard"):
        browser.get(to_provider(browser))
        session = browser.cookies["reveal"]
        provider.signer = "another key"
        path = to_provider(browser)
        browser.get(path)
    assert "INC-" in caplog.text
    code = parse_qs(urlsplit(path).query)["code"][0]
    for secret in (CLIENT_SECRET, session, code):
        assert secret not in caplog.text


def test_local_mode_needs_no_sign_in(accounts: Accounts) -> None:
    browser = board(Auth(accounts, "local"))
    assert browser.get("/login?next=/submit").headers["location"] == "/submit"
    assert browser.get("/login/callback").headers["location"] == "/"
    me = browser.get("/me").json()
    assert (me["via"], me["name"], me["is_admin"]) == ("local", "Local user", True)
