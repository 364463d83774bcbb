"""Signing in and out: ``GET /login``, ``GET /login/callback``, ``POST /logout``, ``GET /me``.

Conventions
-----------
What a sign-in under way must remember (state, nonce, PKCE verifier, where to go afterwards) lies in a cookie of ten
minutes that only this host's browser sends back, so any server may answer the callback; each of them is compared or
checked again when it comes back. A finished sign-in always gets a new session, and the one before ends. After it,
people are sent to paths of this server only. What goes wrong is shown as a page in plain words; the log has the rest
under the number that the page names.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import secrets
import unicodedata
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from reveal_leaderboard.accounts.accounts import AccountDisabledError
from reveal_leaderboard.accounts.credentials import SESSION_SECONDS
from reveal_leaderboard.web.auth import Auth, Provider
from reveal_leaderboard.web.oidc import Claims, Client, ProviderError
from reveal_leaderboard.web.pages.drawing import whole_page

__all__ = ["add_sign_in", "own_path", "shown_name"]

PENDING_SECONDS = 600
MAX_PATH = 500
NO_STORE = {"Cache-Control": "no-store"}

WAYS = (("/login", "Sign in again"), ("/", "Back to the board"))

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in under way."""

    state: str
    nonce: str
    verifier: str
    path: str

    def to_cookie(self) -> str:
        """The text that the cookie holds."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).rstrip(b"=").decode("ascii")

    @classmethod
    def from_cookie(cls, text: str) -> Pending | None:
        """Read a cookie; None if it is not one of ours."""
        try:
            fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            pending = cls(**fields)
        except (ValueError, TypeError):
            return None
        return pending if all(isinstance(value, str) and value for value in asdict(pending).values()) else None


def add_sign_in(app: FastAPI, auth: Auth) -> None:
    """Add the routes of signing in to `app`; to be called before Gradio is mounted."""
    client = None if auth.provider is None else Client(auth.provider)

    @app.get("/login", include_in_schema=False)
    def login(request: Request, next: str = "/") -> Response:
        """Send the browser to the provider; in local mode, everybody is signed in already."""
        path = own_path(next)
        if client is None:
            return RedirectResponse(path, 303, NO_STORE)
        return _start(auth, client, path)

    @app.get("/login/callback", include_in_schema=False)
    def callback(request: Request) -> Response:
        """What the provider sends people back to."""
        if client is None:
            return RedirectResponse("/", 303, NO_STORE)
        answer = _finish(auth, client, request)
        _clear(answer, auth, _pending_cookie(auth))  # a sign-in has one try
        return answer

    @app.post("/logout", include_in_schema=False)
    def logout(request: Request) -> Response:
        """End the session."""
        session = auth.session_of(request)
        if session is not None and auth.mode != "local":
            auth.accounts.end_session(session)
        answer = RedirectResponse("/", 303, NO_STORE)
        _clear(answer, auth, auth.cookie)
        return answer

    @app.get("/me", include_in_schema=False)
    def me(request: Request) -> Response:
        """Who is signed in, for the pages."""
        actor = auth.actor(request)
        if actor is None:
            return JSONResponse({"mode": auth.mode, "signed_in": False}, headers=NO_STORE)
        teams = [{"id": m.team.id, "name": m.team.name, "role": m.role} for m in actor.memberships]
        facts = {"id": actor.user.id, "name": actor.user.name, "is_admin": actor.is_admin, "teams": teams}
        return JSONResponse({"mode": auth.mode, "signed_in": True, "via": actor.via, **facts}, headers=NO_STORE)


def _start(auth: Auth, client: Client, path: str) -> Response:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    pending = Pending(state, nonce, verifier, path)
    try:
        url = client.authorization_url(state=pending.state, nonce=pending.nonce, verifier=pending.verifier)
    except ProviderError as error:
        return _trouble(client.provider, error)
    answer = RedirectResponse(url, 303, NO_STORE)
    _set(answer, auth, _pending_cookie(auth), pending.to_cookie(), PENDING_SECONDS)
    return answer


def _finish(auth: Auth, client: Client, request: Request) -> Response:
    provider, query = client.provider, request.query_params
    pending = Pending.from_cookie(request.cookies.get(_pending_cookie(auth), ""))
    state = query.get("state", "")
    if pending is None or not hmac.compare_digest(state.encode(), pending.state.encode()):
        text = "It was not started in this browser, was finished before, or took longer than ten minutes."
        return _page(400, "This sign-in cannot be finished", text)
    if query.get("iss", provider.issuer) != provider.issuer:
        return _trouble(provider, ProviderError("the answer names another issuer"), 400)
    if "error" in query:
        text = f"{provider.label} did not sign you in: you or your organization declined. Nothing was changed."
        return _page(403, "Not signed in", text)
    try:
        claims = client.redeem(query.get("code", ""), nonce=pending.nonce, verifier=pending.verifier)
        as_admin = _is_listed(claims, provider)
        user = auth.accounts.sign_in(provider.known_as, claims.subject, shown_name(claims), as_admin=as_admin)
    except ProviderError as error:
        return _trouble(provider, error, 400)
    except AccountDisabledError:
        text = "An administrator closed it. Write to the operators of this board if you think that is a mistake."
        return _page(403, "This account is closed", text)
    secret = auth.accounts.new_session(user, instead_of=auth.session_of(request))
    answer = RedirectResponse(own_path(pending.path), 303, NO_STORE)
    _set(answer, auth, auth.cookie, secret, SESSION_SECONDS)
    return answer


def _is_listed(claims: Claims, provider: Provider) -> bool:
    names = {f"sub:{claims.subject}"}
    # A person may choose the username at some providers: one that reads like a subject's entry counts for nothing.
    if claims.preferred_username and not claims.preferred_username.startswith("sub:"):
        names.add(claims.preferred_username)
    return bool(names & provider.admins)


def shown_name(claims: Claims) -> str:
    """What a person is called here: the username or name, without an address's host; at most 100 characters."""
    for text in (claims.preferred_username.partition("@")[0], claims.name.partition("@")[0]):
        name = unicodedata.normalize("NFKC", text).strip()
        if name and len(name) <= 100 and name.isprintable():
            return name
    return "user"


def own_path(text: str) -> str:
    """`text` if it is a path of this server, else ``/``: nobody is sent elsewhere.

    >>> own_path("/entry?id=1"), own_path("https://elsewhere.example/"), own_path("//elsewhere.example")
    ('/entry?id=1', '/', '/')
    """
    plain = text.isascii() and text.isprintable() and " " not in text and "\\" not in text and len(text) <= MAX_PATH
    if not plain or not text.startswith("/") or text.startswith(("//", "/login", "/logout")):
        return "/"
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc else text


def _pending_cookie(auth: Auth) -> str:
    return f"{auth.cookie}-signin"


def _set(answer: Response, auth: Auth, name: str, value: str, seconds: int) -> None:
    answer.set_cookie(name, value, max_age=seconds, path="/", secure=auth.is_secure, httponly=True, samesite="lax")


def _clear(answer: Response, auth: Auth, name: str) -> None:
    answer.delete_cookie(name, path="/", secure=auth.is_secure, httponly=True, samesite="lax")


def _trouble(provider: Provider, error: ProviderError, status: int = 502) -> Response:
    number = f"INC-{secrets.token_hex(4).upper()}"
    log.warning("%s: sign-in with %s: %s", number, provider.issuer, error)
    text = f"{provider.label} could not confirm who you are. Try again; if it stays so, tell the operators the number."
    return _page(status, "Sign-in did not work", text, number)


def _page(status: int, title: str, text: str, number: str = "") -> Response:
    note = f"Incident {number}" if number else ""
    return HTMLResponse(whole_page(title, text, note, WAYS), status, NO_STORE)
