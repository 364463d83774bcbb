"""Routes for signing in and out: ``GET /login``, ``GET /login/callback``, ``POST /logout``.

Conventions
-----------
The data of a pending sign-in (state, nonce, PKCE verifier, next path) are in a cookie that is valid for ten minutes and
that browsers send back only to this host. So any server of the board can answer the callback, which checks each of
these data. A completed sign-in always gets a new session and ends the previous one. After signing in, people are
redirected only to paths of this server. An error page is in plain words and has a number, under which the log has the
details.

Sign-in uses the Authorization Code flow (OpenID Connect Core 1.0, section 3.1) with PKCE S256 (RFC 7636). An issuer in
the answer must match the provider (RFC 9207). An ID token must be signed with RS256 or ES256, name the issuer, this
client and the sign-in's nonce, and not be expired (clocks may differ by 60 s). Pages never show a provider's text:
:class:`ProviderError` is for the log.
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

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from reveal_leaderboard.accounts.accounts import AccountDisabledError
from reveal_leaderboard.accounts.credentials import SESSION_SECONDS
from reveal_leaderboard.accounts.people import is_visible
from reveal_leaderboard.web.oidc import Claims, Client, ProviderError
from reveal_leaderboard.web.pages.drawing import whole_page
from reveal_leaderboard.web.sign_in_links import add_links, how_to_sign_in
from reveal_leaderboard.web.sign_in_modes import Auth, Provider

PENDING_SECONDS = 600
MAX_PATH = 500
NO_STORE = {"Cache-Control": "no-store"}

LINKS = (("/login", "Sign in again"), ("/", "Back to the board"))

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending sign-in."""

    state: str
    nonce: str
    verifier: str
    path: str

    def to_cookie(self) -> str:
        """Return the pending sign-in as the text of a cookie."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).rstrip(b"=").decode("ascii")

    @classmethod
    def from_cookie(cls, text: str) -> Pending | None:
        """Return the pending sign-in from a cookie; None if the cookie is malformed."""
        try:
            fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            pending = cls(**fields)
        except (ValueError, TypeError, RecursionError):
            return None
        is_ours = all(isinstance(value, str) and value and value.isascii() for value in asdict(pending).values())
        return pending if is_ours else None


def add_sign_in(app: FastAPI, auth: Auth) -> None:
    """Add the sign-in routes to `app`; call it before Gradio is mounted."""
    client = None if auth.provider is None else Client(auth.provider)
    if auth.mode == "links":
        add_links(app, auth)

    @app.get("/login", include_in_schema=False)
    async def login(request: Request, next: str = "/") -> Response:
        """Send the browser to the provider, except in local mode, where all users are already signed in."""
        path = own_path(next)
        if auth.mode == "links":
            return how_to_sign_in()
        if client is None:
            return RedirectResponse(path, 303, NO_STORE)
        return await _start(auth, client, path)

    @app.get("/login/callback", include_in_schema=False)
    async def callback(request: Request) -> Response:
        """Complete the sign-in when the browser returns from the provider."""
        if client is None:
            return RedirectResponse("/", 303, NO_STORE)
        answer = await _finish(auth, client, request)
        _clear(answer, auth, _pending_cookie(auth))  # a sign-in can be completed only once
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


async def _start(auth: Auth, client: Client, path: str) -> Response:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    pending = Pending(state, nonce, verifier, path)
    try:
        url = await client.authorization_url(state=pending.state, nonce=pending.nonce, verifier=pending.verifier)
    except ProviderError as error:
        return _trouble(client.provider, error)
    answer = RedirectResponse(url, 303, NO_STORE)
    auth.keep(answer, _pending_cookie(auth), pending.to_cookie(), PENDING_SECONDS)
    return answer


async def _finish(auth: Auth, client: Client, request: Request) -> Response:
    provider, query = client.provider, request.query_params
    pending = Pending.from_cookie(request.cookies.get(_pending_cookie(auth), ""))
    state = query.get("state", "")
    if pending is None or not hmac.compare_digest(state.encode(errors="replace"), pending.state.encode()):
        text = "The sign-in was started in another browser, was already completed, or took longer than ten minutes."
        return _page(400, "This sign-in cannot be completed", text)
    if query.get("iss", provider.issuer) != provider.issuer:
        return _trouble(provider, ProviderError("the answer names another issuer"), 400)
    if "error" in query:
        text = f"{provider.label} did not sign you in: you or your organization declined. Nothing was changed."
        return _page(403, "Not signed in", text)
    try:
        claims = await client.redeem(query.get("code", ""), nonce=pending.nonce, verifier=pending.verifier)
        secret = await to_thread.run_sync(_new_session, auth, provider, claims, auth.session_of(request))
    except ProviderError as error:
        return _trouble(provider, error, 400)
    except AccountDisabledError:
        text = "An administrator closed your account. If this is a mistake, contact the operators of this board."
        return _page(403, "This account is closed", text)
    answer = RedirectResponse(own_path(pending.path), 303, NO_STORE)
    auth.keep(answer, auth.cookie, secret, SESSION_SECONDS)
    return answer


def _new_session(auth: Auth, provider: Provider, claims: Claims, old_session: str | None) -> str:
    as_admin = _is_listed(claims, provider)
    user = auth.accounts.sign_in(provider.known_as, claims.subject, shown_name(claims), as_admin=as_admin)
    return auth.accounts.new_session(user, instead_of=old_session)


def _is_listed(claims: Claims, provider: Provider) -> bool:
    names = {f"sub:{claims.subject}"}
    # At some providers people choose their username, so a username that looks like an entry for a subject is ignored.
    if claims.preferred_username and not claims.preferred_username.startswith("sub:"):
        names.add(claims.preferred_username)
    return bool(names & provider.admins)


def shown_name(claims: Claims) -> str:
    """Return the name by which the board shows a person: the username or else the name, without the host of an e-mail
    address, if it has at most 100 characters; otherwise "user".
    """
    for text in (claims.preferred_username.partition("@")[0], claims.name.partition("@")[0]):
        name = unicodedata.normalize("NFKC", text).strip()
        if len(name) <= 100 and is_visible(name):
            return name
    return "user"


def own_path(text: str) -> str:
    """Return `text` if it is a path of this server, else ``/``: browsers are never sent to other sites.

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


def _clear(answer: Response, auth: Auth, name: str) -> None:
    answer.delete_cookie(name, path="/", secure=auth.is_secure, httponly=True, samesite="lax")


def _trouble(provider: Provider, error: ProviderError, status: int = 502) -> Response:
    number = f"INC-{secrets.token_hex(4).upper()}"
    log.warning("%s: sign-in with %s: %s", number, provider.issuer, error)
    text = (
        f"{provider.label} could not confirm who you are. Try again. If the error persists, send the "
        f"number to the operators."
    )
    return _page(status, "Sign-in failed", text, number)


def _page(status: int, title: str, text: str, number: str = "") -> Response:
    note = f"Incident {number}" if number else ""
    return HTMLResponse(whole_page(title, text, note, LINKS), status, NO_STORE)
