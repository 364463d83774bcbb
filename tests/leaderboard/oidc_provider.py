"""A strict OpenID provider on loopback, whose ID tokens can be made bad in every way.

It signs with `cryptography` directly, so that the library that checks the tokens is not the one that made them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

import uvicorn
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

CLIENT_ID = "reveal board"  # with a space: names are form-encoded before they become a Basic header
CLIENT_SECRET = "s3cret:with/colon%"

Claims = dict[str, Any]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def public_keys() -> list[dict[str, str]]:
    own, curve = RSA_KEY.public_key().public_numbers(), EC_KEY.public_key().public_numbers()
    return [
        {"kty": "RSA", "kid": "rsa", "use": "sig", "alg": "RS256", "n": number(own.n), "e": number(own.e)},
        {"kty": "EC", "kid": "ec", "use": "sig", "crv": "P-256", "x": number(curve.x), "y": number(curve.y)},
        {"kty": "XYZ", "kid": "of the future"},
    ]


def token_of(header: dict[str, str], claims: Claims, sign: Callable[[bytes], bytes]) -> str:
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"
    return f"{signed}.{b64(sign(signed.encode()))}"


def rs256(key: rsa.RSAPrivateKey) -> Callable[[bytes], bytes]:
    return lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def es256(data: bytes) -> bytes:
    r, s = decode_dss_signature(EC_KEY.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def hs256_with_the_public_key(data: bytes) -> bytes:
    """The classic confusion: the public key as a shared secret."""
    public = RSA_KEY.public_key().public_numbers().n.to_bytes(256, "big")
    return hmac.new(public, data, hashlib.sha256).digest()


SIGNERS: dict[str, tuple[dict[str, str], Callable[[bytes], bytes]]] = {
    "rsa": ({"alg": "RS256", "kid": "rsa"}, rs256(RSA_KEY)),
    "ec": ({"alg": "ES256", "kid": "ec"}, es256),
    "another key": ({"alg": "RS256", "kid": "rsa"}, rs256(OTHER_KEY)),
    "unknown kid": ({"alg": "RS256", "kid": "never seen"}, rs256(OTHER_KEY)),
    "alg none": ({"alg": "none"}, lambda data: b""),
    "alg HS256": ({"alg": "HS256", "kid": "rsa"}, hs256_with_the_public_key),
    "no signature": ({"alg": "RS256", "kid": "rsa"}, lambda data: b""),
}


@dataclass
class Provider:
    """The provider's next behaviour; `twist` changes the claims of an ID token before it is signed."""

    issuer: str = ""
    person: Claims = field(default_factory=lambda: {"sub": "248289761001", "preferred_username": "jane"})
    signer: str = "rsa"
    twist: Callable[[Claims], Claims] = dict
    metadata: dict[str, Any] = field(default_factory=dict)
    token_answer: Response | None = None
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    n_exchanges: int = 0
    n_key_sets: int = 0
    n_discoveries: int = 0
    is_compressed: bool = False

    def discovery(self) -> dict[str, Any]:
        places = {f"{name}_endpoint": f"{self.issuer}/{name}" for name in ("authorization", "token")}
        return {"issuer": self.issuer, **places, "jwks_uri": f"{self.issuer}/keys", **self.metadata}

    def authorize(self, query: dict[str, str]) -> Response:
        """Sign the person in without asking, and send the browser back with a code."""
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.issuer}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back)}", 302)

    def redeem(self, form: dict[str, str], authorization: str) -> Response:
        """Give an ID token for a code, once."""
        self.n_exchanges += 1
        if self.token_answer is not None:
            return self.token_answer
        kind, _, encoded = authorization.partition(" ")
        if kind == "Basic":
            client = tuple(unquote(part) for part in base64.b64decode(encoded).decode().split(":", 1))
        else:
            client = (form.get("client_id", ""), form.get("client_secret", ""))
        asked = self.codes.pop(form.get("code", ""), None)
        if client != (CLIENT_ID, CLIENT_SECRET):
            return JSONResponse({"error": "invalid_client"}, 401)
        challenge = b64(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        moment = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": moment, "exp": moment + 300, "nonce": asked["nonce"]}
        header, sign = SIGNERS[self.signer]
        id_token = token_of(header, self.twist({**claims, **self.person}), sign)
        return JSONResponse({"access_token": "unused", "token_type": "Bearer", "id_token": id_token})


def _app(provider: Provider) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.get("/.well-known/openid-configuration")
    def discovery() -> Response:
        provider.n_discoveries += 1
        body = json.dumps(provider.discovery()).encode()
        if provider.is_compressed:
            return Response(gzip.compress(body), headers={"Content-Encoding": "gzip"})
        return Response(body)

    @app.get("/authorization")
    def authorize(request: Request) -> Response:
        return provider.authorize(dict(request.query_params))

    @app.post("/token")
    async def token(request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        return provider.redeem(form, request.headers.get("authorization", ""))

    @app.get("/keys")
    def keys() -> dict[str, Any]:
        provider.n_key_sets += 1
        return {"keys": public_keys()}

    return app


@contextmanager
def running_provider() -> Iterator[Provider]:
    """A provider that listens on a free port of this machine until the end."""
    provider = Provider()
    listener = socket.create_server(("127.0.0.1", 0))
    provider.issuer = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(_app(provider), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
