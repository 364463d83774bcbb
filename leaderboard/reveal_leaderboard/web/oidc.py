"""Talks to an OpenID provider: discovery, the code's exchange, and the check of the ID token.

Conventions
-----------
Authorization Code flow (OpenID Connect Core 1.0, section 3.1) with PKCE S256 (RFC 7636) and the provider's name in its
answer where it gives one (RFC 9207). ID tokens are accepted with RS256 or ES256 only, from this issuer, for this
client, unexpired (60 s of grace for clocks), with this sign-in's nonce. Nothing that a provider sent is shown to
anybody: :class:`ProviderError` is for the log.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from reveal_leaderboard.settings import is_loopback
from reveal_leaderboard.web.auth import Provider

__all__ = ["Claims", "Client", "ProviderError"]

ALGORITHMS = ["RS256", "ES256"]
KEY_TYPES = ("RSA", "EC")
TIMEOUT_SECONDS = 10.0
KNOWN_SECONDS = 3600.0  # how long discovery and keys are believed
KEYS_AGAIN_SECONDS = 60.0  # how soon keys are asked for again when an ID token names one that is not there
LEEWAY_SECONDS = 60
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(Exception):
    """The provider did not answer, or answered what cannot be believed; the text is for the log."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What an ID token says: the subject, and the names it offers, "" where there is none."""

    subject: str
    preferred_username: str
    name: str


class Client:
    """This server as a client of `provider`; threads may share it."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._lock = threading.Lock()
        self._found: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def authorization_url(self, *, state: str, nonce: str, verifier: str) -> str:
        """Where the browser goes to sign in.

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
            If the provider refuses the code, or its ID token does not pass.
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
        found = self._discovered()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.provider.redirect_uri,
            "code_verifier": verifier,
        }
        ours = (self.provider.client_id, self.provider.client_secret)
        if "client_secret_basic" in found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"]):
            auth = httpx.BasicAuth(*(quote(text, safe="") for text in ours))  # RFC 6749, section 2.3.1
            return self._ask("POST", found["token_endpoint"], data=form, auth=auth)
        form |= dict(zip(("client_id", "client_secret"), ours, strict=True))
        return self._ask("POST", found["token_endpoint"], data=form)

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
            raise ProviderError(f"the ID token does not pass: {error}") from None
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
            if self._found is not None and time.monotonic() - self._found[0] < KNOWN_SECONDS:
                return self._found[1]
        issuer = self.provider.issuer
        found = self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise ProviderError(f"discovery names another issuer: {found.get('issuer')!r}")
        for name in ENDPOINTS:
            url = found.get(name)
            if not isinstance(url, str) or not self._is_safe(url):
                raise ProviderError(f"discovery: {name} must be an https address, got {url!r}")
        with self._lock:
            self._found = (time.monotonic(), found)
        return found

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
                raise ProviderError(f"{method} {urlsplit(url).path} was answered by {answer.status_code}")
            document = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ProviderError(f"{method} {urlsplit(url).path} failed: {type(error).__name__}") from None
        if not isinstance(document, dict):
            raise ProviderError(f"{method} {urlsplit(url).path} was not answered by a JSON object")
        return document
