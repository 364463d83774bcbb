"""Signing in and out: ``GET /login``, ``GET /login/callback``, ``POST /logout``.

Conventions
-----------
The data of a pending sign-in (state, nonce, PKCE verifier, next path) are in a cookie that is valid for ten minutes and
that browsers send back only to this host. So any server can answer the callback. Each part is compared or checked when
it returns. A completed sign-in always gets a new session and ends the previous one. Afterwards, people are sent only to
paths of this server. An error is shown as a page in plain words with a number; the details are in the log under this
number.

Providers are used by the Authorization Code flow (OpenID Connect Core 1.0, section 3.1) with PKCE S256 (RFC 7636), and
an issuer in the answer must match (RFC 9207). ID tokens are accepted only with RS256 or ES256, from this issuer, for
this client, unexpired (60 s of tolerance for clocks), with this sign-in's nonce. No text of a provider is shown to
people: :class:`ProviderError` is for the log.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
import unicodedata
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from reveal_leaderboard.accounts.accounts import AccountDisabledError
from reveal_leaderboard.accounts.credentials import SESSION_SECONDS
from reveal_leaderboard.settings import is_loopback
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
        """Return the text of the cookie."""
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
    """Add the sign-in routes to `app`; call it before Gradio is mounted."""
    client = None if auth.provider is None else Client(auth.provider)
    if auth.mode == "links":
        add_links(app, auth)

    @app.get("/login", include_in_schema=False)
    def login(request: Request, next: str = "/") -> Response:
        """Send the browser to the provider, except in local mode, where all users are already signed in."""
        path = own_path(next)
        if auth.mode == "links":
            return how_to_sign_in()
        if client is None:
            return RedirectResponse(path, 303, NO_STORE)
        return _start(auth, client, path)

    @app.get("/login/callback", include_in_schema=False)
    def callback(request: Request) -> Response:
        """Complete the sign-in of people who return from the provider."""
        if client is None:
            return RedirectResponse("/", 303, NO_STORE)
        answer = _finish(auth, client, request)
        _clear(answer, auth, _pending_cookie(auth))  # each sign-in can be tried once
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


def _start(auth: Auth, client: Client, path: str) -> Response:
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    pending = Pending(state, nonce, verifier, path)
    try:
        url = client.authorization_url(state=pending.state, nonce=pending.nonce, verifier=pending.verifier)
    except ProviderError as error:
        return _trouble(client.provider, error)
    answer = RedirectResponse(url, 303, NO_STORE)
    auth.keep(answer, _pending_cookie(auth), pending.to_cookie(), PENDING_SECONDS)
    return answer


def _finish(auth: Auth, client: Client, request: Request) -> Response:
    provider, query = client.provider, request.query_params
    pending = Pending.from_cookie(request.cookies.get(_pending_cookie(auth), ""))
    state = query.get("state", "")
    if pending is None or not hmac.compare_digest(state.encode(), pending.state.encode()):
        text = "It was started in another browser, was already completed, or took longer than ten minutes."
        return _page(400, "This sign-in cannot be completed", text)
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
        text = "An administrator closed it. If you think this is a mistake, contact the operators of this board."
        return _page(403, "This account is closed", text)
    secret = auth.accounts.new_session(user, instead_of=auth.session_of(request))
    answer = RedirectResponse(own_path(pending.path), 303, NO_STORE)
    auth.keep(answer, auth.cookie, secret, SESSION_SECONDS)
    return answer


def _is_listed(claims: Claims, provider: Provider) -> bool:
    names = {f"sub:{claims.subject}"}
    # At some providers people choose their username: one that looks like a subject's entry is ignored.
    if claims.preferred_username and not claims.preferred_username.startswith("sub:"):
        names.add(claims.preferred_username)
    return bool(names & provider.admins)


def shown_name(claims: Claims) -> str:
    """Return the name by which the board shows a person: the username or name, without an address's host, cut to 100
    characters.
    """
    for text in (claims.preferred_username.partition("@")[0], claims.name.partition("@")[0]):
        name = unicodedata.normalize("NFKC", text).strip()
        if name and len(name) <= 100 and name.isprintable():
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
        f"{provider.label} could not confirm who you are. Try again; if it fails again, send the operators the number."
    )
    return _page(status, "Sign-in failed", text, number)


def _page(status: int, title: str, text: str, number: str = "") -> Response:
    note = f"Incident {number}" if number else ""
    return HTMLResponse(whole_page(title, text, note, LINKS), status, NO_STORE)


ALGORITHMS = ["RS256", "ES256"]
KEY_TYPES = ("RSA", "EC")
TIMEOUT_SECONDS = 10.0
KNOWN_SECONDS = 3600.0  # lifetime of discovery and keys
KEYS_AGAIN_SECONDS = 60.0  # the same if an ID token names an unknown key
LEEWAY_SECONDS = 60
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(Exception):
    """The provider is unreachable, or its answer is invalid; the text is for the log."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of an ID token: the subject, and its names, which may be empty."""

    subject: str
    preferred_username: str
    name: str


class Client:
    """This server as a client of `provider`; thread-safe."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._lock = threading.Lock()
        self._discovery: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def authorization_url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the address at which the browser signs in.

        Raises
        ------
        ProviderError
            If discovery fails.
        """
        digest = hashlib.sha256(verifier.encode("ascii")).digest()
        query = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": self.provider.redirect_uri,
            "scope": "openid profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii"),
            "code_challenge_method": "S256",
        }
        endpoint = self._discovered()["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def redeem(self, code: str, *, nonce: str, verifier: str) -> Claims:
        """Exchange `code` for an ID token and check it.

        Raises
        ------
        ProviderError
            If the provider refuses the code, or its ID token is invalid.
        """
        answer = self._exchange(code, verifier)
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise ProviderError("the token endpoint sent no ID token")
        claims = self._checked(id_token, nonce)
        texts = [claims.get(key) for key in ("preferred_username", "name")]
        username, name = (text if isinstance(text, str) else "" for text in texts)
        return Claims(claims["sub"], username, name)

    def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        discovery = self._discovered()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.provider.redirect_uri,
            "code_verifier": verifier,
        }
        ours = (self.provider.client_id, self.provider.client_secret)
        if "client_secret_basic" in discovery.get("token_endpoint_auth_methods_supported", ["client_secret_basic"]):
            auth = httpx.BasicAuth(*(quote(text, safe="") for text in ours))  # RFC 6749, section 2.3.1
            return self._ask("POST", discovery["token_endpoint"], data=form, auth=auth)
        form |= dict(zip(("client_id", "client_secret"), ours, strict=True))
        return self._ask("POST", discovery["token_endpoint"], data=form)

    def _checked(self, id_token: str, nonce: str) -> dict[str, Any]:
        client_id = self.provider.client_id
        try:
            claims = self._decoded(id_token)
            registry = jwt.JWTClaimsRegistry(
                leeway=LEEWAY_SECONDS,
                iss={"essential": True, "value": self.provider.issuer},
                aud={"essential": True, "value": client_id},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            registry.validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            raise ProviderError(f"invalid ID token: {error}") from None
        party = claims.get("azp", client_id if claims["aud"] in (client_id, [client_id]) else None)
        if party != client_id:
            raise ProviderError("the ID token is for several clients and not authorized for this one")
        if len(claims["sub"]) > 200 or not claims["sub"].isprintable():
            raise ProviderError("the ID token's subject is longer than 200 characters or not printable")
        return claims

    def _decoded(self, id_token: str) -> dict[str, Any]:
        try:
            return jwt.decode(id_token, self._key_set(KNOWN_SECONDS), algorithms=ALGORITHMS).claims
        except InvalidKeyIdError:  # the provider may have changed its keys since
            return jwt.decode(id_token, self._key_set(KEYS_AGAIN_SECONDS), algorithms=ALGORITHMS).claims

    def _discovered(self) -> dict[str, Any]:
        with self._lock:
            if self._discovery is not None and time.monotonic() - self._discovery[0] < KNOWN_SECONDS:
                return self._discovery[1]
        issuer = self.provider.issuer
        document = self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise ProviderError(f"discovery names another issuer: {document.get('issuer')!r}")
        for name in ENDPOINTS:
            url = document.get(name)
            if not isinstance(url, str) or not self._is_safe(url):
                raise ProviderError(f"discovery: {name} must be an https address, got {url!r}")
        with self._lock:
            self._discovery = (time.monotonic(), document)
        return document

    def _key_set(self, known_seconds: float) -> KeySet:
        with self._lock:
            if self._keys is not None and time.monotonic() - self._keys[0] < known_seconds:
                return self._keys[1]
        answer = self._ask("GET", self._discovered()["jwks_uri"])
        listed = answer.get("keys")
        usable = [
            key
            for key in (listed if isinstance(listed, list) else [])
            if isinstance(key, dict) and key.get("kty") in KEY_TYPES and key.get("use", "sig") == "sig"
        ]
        keys = KeySet.import_key_set({"keys": usable})
        with self._lock:
            self._keys = (time.monotonic(), keys)
        return keys

    def _is_safe(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))

    def _ask(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        own_machine = is_loopback(urlsplit(url).hostname or "")
        try:
            with httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=not own_machine, follow_redirects=False) as client:
                answer = client.request(method, url, headers={"Accept": "application/json"}, **options)
            if answer.status_code != 200:
                raise ProviderError(f"{method} {urlsplit(url).path} answered {answer.status_code}")
            document = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ProviderError(f"{method} {urlsplit(url).path} failed: {type(error).__name__}") from None
        if not isinstance(document, dict):
            raise ProviderError(f"{method} {urlsplit(url).path} did not answer with a JSON object")
        return document
