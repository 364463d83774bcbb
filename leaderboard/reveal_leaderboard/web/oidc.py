"""OpenID Connect client: discovery, keys, and the exchange of a code for checked claims.

Conventions
-----------
Everything that a provider sends is untrusted until it is checked, and every failure is a :class:`ProviderError`. A
request to a provider takes at most `TIMEOUT_SECONDS` in total, follows no redirect, and reads at most `MAX_ANSWER`
bytes. Requests ask for uncompressed answers, and a compressed answer is refused unread. Requests do not occupy a
thread, so a slow provider does not delay people who are signed in. Discovery and keys are requested by one sign-in at a
time and cached; failures are cached for `FAILED_SECONDS`.

Endpoints on this machine are accepted only from an issuer on this machine, because the token endpoint receives codes
and this server's secret.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError
from joserfc.jwk import KeySet

from reveal_leaderboard.addresses import is_loopback
from reveal_leaderboard.web.sign_in_modes import Provider

ALGORITHMS = ["RS256", "ES256"]
KEY_TYPES = ("RSA", "EC")
TIMEOUT_SECONDS = 10.0
KNOWN_SECONDS = 3600.0  # lifetime of cached discovery and keys
KEYS_AGAIN_SECONDS = 60.0  # their lifetime if an ID token names an unknown key
FAILED_SECONDS = 10.0
LEEWAY_SECONDS = 60
MAX_ANSWER = 256 * 1024
MAX_EXCHANGES = 50  # at once
MAX_URL = 2000
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(Exception):
    """The provider is unreachable, or its answer is invalid; the text is for the log."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of an ID token: the subject and the person's names, which may be empty."""

    subject: str
    preferred_username: str
    name: str


T = TypeVar("T")


class _Remembered(Generic[T]):
    """Cached answer of the provider; one sign-in at a time requests a new answer."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask, self._lock = ask, asyncio.Lock()
        self._answer: tuple[float, T] | None = None
        self._failed_at, self._failure = -math.inf, ""

    async def get(self, seconds: float) -> T:
        """Return the cached answer, or request a new one if it is older than `seconds`."""
        async with self._lock:
            if self._answer is not None and time.monotonic() - self._answer[0] < seconds:
                return self._answer[1]
            if time.monotonic() - self._failed_at < FAILED_SECONDS:
                raise ProviderError(self._failure)
            try:
                self._answer = (time.monotonic(), await self._ask())
            except ProviderError as error:
                self._failed_at, self._failure = time.monotonic(), str(error)
                raise
            return self._answer[1]


class Client:
    """OpenID Connect client of one `provider`."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._discovery = _Remembered(self._discover)
        self._keys = _Remembered(self._ask_for_keys)
        self._n_exchanges = 0

    async def authorization_url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the provider's address to which the browser is sent for signing in.

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
        endpoint = (await self._discovery.get(KNOWN_SECONDS))["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def redeem(self, code: str, *, nonce: str, verifier: str) -> Claims:
        """Exchange `code` for an ID token and check it.

        Raises
        ------
        ProviderError
            If the provider refuses the code, or its ID token is invalid.
        """
        if self._n_exchanges >= MAX_EXCHANGES:
            raise ProviderError("too many sign-ins wait for the token endpoint")
        self._n_exchanges += 1
        try:
            answer = await self._exchange(code, verifier)
        finally:
            self._n_exchanges -= 1
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise ProviderError("the token endpoint sent no ID token")
        claims = await self._checked(id_token, nonce)
        texts = [claims.get(key) for key in ("preferred_username", "name")]
        username, name = (text if isinstance(text, str) else "" for text in texts)
        return Claims(claims["sub"], username, name)

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        discovery = await self._discovery.get(KNOWN_SECONDS)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.provider.redirect_uri,
            "code_verifier": verifier,
        }
        ours = (self.provider.client_id, self.provider.client_secret)
        methods = discovery.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if isinstance(methods, list) and "client_secret_basic" in methods:
            auth = httpx.BasicAuth(*(quote(text, safe="") for text in ours))  # RFC 6749, section 2.3.1
            return await self._ask("POST", discovery["token_endpoint"], data=form, auth=auth)
        form |= dict(zip(("client_id", "client_secret"), ours, strict=True))
        return await self._ask("POST", discovery["token_endpoint"], data=form)

    async def _checked(self, id_token: str, nonce: str) -> dict[str, Any]:
        client_id = self.provider.client_id
        try:
            claims = await self._decoded(id_token)
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
        except ProviderError:
            raise
        except Exception as error:  # for a malformed token the library raises errors of many types
            raise ProviderError(f"invalid ID token: {type(error).__name__}: {error}") from None
        party = claims.get("azp", client_id if claims["aud"] in (client_id, [client_id]) else None)
        if party != client_id:
            raise ProviderError("the ID token is for several clients and not authorized for this one")
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 200 or not subject.isprintable():
            raise ProviderError("the ID token's subject must be 1 to 200 printable characters")
        return claims

    async def _decoded(self, id_token: str) -> dict[str, Any]:
        try:
            return jwt.decode(id_token, await self._keys.get(KNOWN_SECONDS), algorithms=ALGORITHMS).claims
        except InvalidKeyIdError:  # the provider may have changed its keys in the meantime
            return jwt.decode(id_token, await self._keys.get(KEYS_AGAIN_SECONDS), algorithms=ALGORITHMS).claims

    async def _discover(self) -> dict[str, Any]:
        issuer = self.provider.issuer
        document = await self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise ProviderError(f"discovery names another issuer: {document.get('issuer')!r}")
        for name in ENDPOINTS:
            if not self._is_safe(url := document.get(name)):
                raise ProviderError(f"discovery: {name} must be an https address, got {url!r}")
        return document

    async def _ask_for_keys(self) -> KeySet:
        answer = await self._ask("GET", (await self._discovery.get(KNOWN_SECONDS))["jwks_uri"])
        listed = answer.get("keys")
        usable = [
            key
            for key in (listed if isinstance(listed, list) else [])
            if isinstance(key, dict) and key.get("kty") in KEY_TYPES and key.get("use", "sig") == "sig"
        ]
        try:
            return KeySet.import_key_set({"keys": usable})
        except Exception as error:  # as above
            raise ProviderError(f"invalid keys: {type(error).__name__}: {error}") from None

    def _is_safe(self, url: object) -> bool:
        if not isinstance(url, str) or not (url.isascii() and url.isprintable() and len(url) <= MAX_URL):
            return False
        try:
            parts, from_here = urlsplit(url), is_loopback(urlsplit(self.provider.issuer).hostname or "")
            is_here = is_loopback(parts.hostname or "")
        except ValueError:
            return False
        if not parts.hostname or (is_here and not from_here):
            return False
        return parts.scheme == "https" or (parts.scheme == "http" and is_here)

    async def _ask(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        path, trust_env = urlsplit(url).path, not is_loopback(urlsplit(url).hostname or "")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=trust_env, verify=_trusted(trust_env)) as client,
                client.stream(method, url, headers=headers, follow_redirects=False, **options) as answer,
            ):
                if answer.status_code != 200:
                    raise ProviderError(f"{method} {path} answered {answer.status_code}")
                document = json.loads(await _read(answer))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError, TimeoutError) as error:
            raise ProviderError(f"{method} {path} failed: {type(error).__name__}") from None
        if not isinstance(document, dict):
            raise ProviderError(f"{method} {path} did not answer with a JSON object")
        return document


async def _read(answer: httpx.Response) -> bytes:
    """Return the body of an answer, which must be uncompressed and at most `MAX_ANSWER` bytes long."""
    if "content-encoding" in answer.headers:
        raise ProviderError("the answer is compressed, although the request asked for an uncompressed one")
    body = b""
    async for part in answer.aiter_raw():
        body += part
        if len(body) > MAX_ANSWER:
            raise ProviderError(f"the answer is longer than {MAX_ANSWER} bytes")
    return body


@cache
def _trusted(trust_env: bool) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=trust_env)
