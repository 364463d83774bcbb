"""Sign-in modes: the settings that each mode requires, and the actor of a request.

Modes
-----
``local``: one person on one machine. All requests count as that person's, who is an administrator, so the server must
listen on a loopback address, and a request through a proxy has no actor. ``oidc``: people sign in with an OpenID
provider (Authorization Code with PKCE). ``links``: people sign in with a link that an administrator made for them
(``admin invite``), without a provider. ``huggingface``: like ``oidc``, on a Space with Hugging Face as the provider;
the Space sets the client's id and secret.

Environment
-----------
``REVEAL_OIDC_ISSUER``, ``REVEAL_OIDC_CLIENT_ID``, ``REVEAL_OIDC_CLIENT_SECRET`` or ``REVEAL_OIDC_CLIENT_SECRET_FILE``,
``REVEAL_URL`` (the server's address as browsers see it), ``REVEAL_ADMINS`` (people who become administrators at
sign-in: ``sub:SUBJECT``, on a Space also a username, separated by spaces or commas). A Space sets ``OAUTH_CLIENT_ID``,
``OAUTH_CLIENT_SECRET``, ``OPENID_PROVIDER_URL`` and ``SPACE_HOST`` itself. Secrets are never logged.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from anyio import to_thread
from starlette.requests import HTTPConnection
from starlette.responses import Response

from reveal_leaderboard.accounts.accounts import LOCAL_ISSUER, Accounts
from reveal_leaderboard.accounts.links import LINK_ISSUER
from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.addresses import is_loopback
from reveal_leaderboard.settings import SettingsError, secret_from

Mode = Literal["local", "oidc", "links", "huggingface"]
MODES: tuple[Mode, ...] = ("local", "oidc", "links", "huggingface")
MAX_ADDRESS = 200  # most characters, as in the database
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
FORWARDED = "reveal.forwarded"  # `Forwarded` sets this key in the scope of a request that came through a proxy
ACTOR = "reveal.actor"  # key of the actor in the scope, once it was looked up


class ModeError(ValueError):
    """A sign-in setting is missing or unsafe; the message names the setting, the rule and the value."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An OpenID provider and this server's registration at the provider.

    Attributes
    ----------
    issuer : the provider's issuer URL, below which its discovery document is
    redirect_uri : address of this server to which the provider sends browsers back
    known_as : value of `users.issuer` for people who sign in by this provider
    admins : people who become administrators at sign-in, as ``sub:SUBJECT`` or a preferred username
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    redirect_uri: str
    label: str
    known_as: str
    admins: frozenset[str] = frozenset()


class Auth:
    """Finds the actor of a request.

    Parameters
    ----------
    accounts : the accounts of the leaderboard
    mode : one of `MODES`
    provider : required in the modes "oidc" and "huggingface", not allowed in the others
    address : the server's address as browsers see it; required in the mode "links", not allowed in the others
    """

    def __init__(
        self, accounts: Accounts, mode: Mode, provider: Provider | None = None, *, address: str | None = None
    ) -> None:
        if mode not in MODES:
            raise ModeError(f"`mode` must be one of {', '.join(MODES)}, got {mode!r}")
        if (provider is not None) != (mode in ("oidc", "huggingface")):
            rule = "must be given in the modes oidc and huggingface only"
            raise ModeError(f"`provider` {rule}, got mode {mode!r} with {provider!r}")
        if (address is not None) != (mode == "links"):
            raise ModeError(f"`address` must be given in the mode links only, got mode {mode!r} with {address!r}")
        self.accounts, self.mode, self.provider = accounts, mode, provider
        self._address = address if provider is None else provider.redirect_uri
        self.is_secure = self._address is not None and self._address.startswith("https:")

    @property
    def issuer(self) -> str:
        """Value of `users.issuer` for people who sign in by this mode."""
        if self.provider is not None:
            return self.provider.known_as
        return LINK_ISSUER if self.mode == "links" else LOCAL_ISSUER

    @property
    def cookie(self) -> str:
        """Name of the session cookie; with https, browsers bind it to this host."""
        return "__Host-reveal" if self.is_secure else "reveal"

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that the server answers to: its public name, and this machine's names for health checks."""
        if self._address is None:
            return frozenset(LOCAL_HOSTS)
        host = urlsplit(self._address).netloc.rpartition("@")[2]
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return frozenset({name.lower(), *LOCAL_HOSTS})

    def actor(self, request: Any) -> Actor | None:
        """Look up the actor of `request` (Starlette's or Gradio's); None for a visitor.

        If there is an `Authorization` header, the cookie is ignored.
        """
        inner = getattr(request, "request", request)
        return self._find(inner) if isinstance(inner, HTTPConnection) else None

    def actor_of(self, scope: MutableMapping[str, Any]) -> Actor | None:
        """Return the actor of an ASGI scope, looked up once per request."""
        if ACTOR not in scope:
            scope[ACTOR] = self._find(HTTPConnection(scope))
        actor: Actor | None = scope[ACTOR]
        return actor

    async def find_actor(self, scope: MutableMapping[str, Any]) -> Actor | None:
        """Return the result of :meth:`actor_of` without blocking the event loop: a thread queries the database."""
        if ACTOR in scope:
            return self.actor_of(scope)
        return await to_thread.run_sync(self.actor_of, scope)

    def keep(self, answer: Response, name: str, value: str, seconds: int) -> None:
        """Set a cookie that browsers send back only to this host."""
        answer.set_cookie(name, value, max_age=seconds, path="/", secure=self.is_secure, httponly=True, samesite="lax")

    def session_of(self, request: HTTPConnection) -> str | None:
        """Return the session secret in the request's cookie, whether or not it is valid."""
        return request.cookies.get(self.cookie) or None

    def _find(self, request: HTTPConnection) -> Actor | None:
        if self.mode == "local":
            return self.accounts.local_actor() if is_from_here(request) else None
        authorization = request.headers.get("authorization")
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            return self.accounts.token_actor(secret.strip()) if scheme.lower() == "bearer" else None
        session = self.session_of(request)
        return None if session is None else self.accounts.session_user(session)


def is_from_here(request: HTTPConnection) -> bool:
    """Return True if the request was sent from this machine, without a proxy."""
    if request.scope.get(FORWARDED) or request.client is None:
        return False
    return is_loopback(request.client.host)


def check_mode(mode: str, host: str, environ: Mapping[str, str], *, trusts_proxy: bool = False) -> None:
    """Refuse settings that would let people in without permission.

    Parameters
    ----------
    mode : one of `MODES`
    host : the address on which the server will listen

    Raises
    ------
    ModeError
        If a setting is unsafe; the message names the setting, the rule and the value.
    """
    if mode not in MODES:
        raise ModeError(f"the sign-in mode must be one of {', '.join(MODES)}, got {mode!r}")
    if mode == "local":
        _check_local(host, environ, trusts_proxy)
    elif mode == "links":
        own_address(environ)
    else:
        provider_from(mode, environ)


def _check_local(host: str, environ: Mapping[str, str], trusts_proxy: bool) -> None:
    if not is_loopback(host):
        raise ModeError(
            "in local mode anyone who reaches the server is its administrator, so host must be 127.0.0.1, ::1 or "
            f"localhost, got {host!r}; to serve other people, use the mode oidc or links"
        )
    if environ.get("SPACE_ID"):
        raise ModeError("a Space is public: the mode must be huggingface there, got 'local'")
    if trusts_proxy:
        raise ModeError("local mode cannot run behind a proxy: anyone who reaches the proxy would be an administrator")


def open_auth(accounts: Accounts, mode: str, environ: Mapping[str, str]) -> Auth:
    """Return the `Auth` of a mode, configured by the environment.

    Raises
    ------
    ModeError
        If a setting is missing or breaks its rule.
    """
    if mode == "local":
        return Auth(accounts, "local")
    if mode == "links":
        return Auth(accounts, "links", address=own_address(environ))
    if mode == "oidc":
        return Auth(accounts, "oidc", provider_from(mode, environ))
    return Auth(accounts, "huggingface", provider_from(mode, environ))


def provider_from(mode: str, environ: Mapping[str, str]) -> Provider:
    """Return the provider for the mode "oidc" or "huggingface", as the environment describes it.

    Raises
    ------
    ModeError
        If a setting is missing or breaks its rule; "huggingface" outside a Space.
    """
    admins = frozenset(environ.get("REVEAL_ADMINS", "").replace(",", " ").split())
    if mode == "huggingface":
        if not environ.get("SPACE_ID"):
            raise ModeError("the mode huggingface works on a Hugging Face Space only: SPACE_ID must be set; use oidc")
        issuer = environ.get("OPENID_PROVIDER_URL") or "https://huggingface.co"
        own, client = f"https://{_needed(environ, 'SPACE_HOST')}", _needed(environ, "OAUTH_CLIENT_ID")
        secret, label, known_as = _secret(environ, "OAUTH_CLIENT_SECRET"), "Hugging Face", "huggingface"
    else:
        if names := sorted(name for name in admins if not name.startswith("sub:")):
            raise ModeError(
                "REVEAL_ADMINS must name people by subject, as sub:SUBJECT, because many providers let them choose "
                f"their username; got {names[0]!r} (`admin people` lists the subjects of people who have signed in)"
            )
        issuer, own = _needed(environ, "REVEAL_OIDC_ISSUER"), own_address(environ)
        client, secret = _needed(environ, "REVEAL_OIDC_CLIENT_ID"), _secret(environ, "REVEAL_OIDC_CLIENT_SECRET")
        label, known_as = urlsplit(issuer).hostname or issuer, issuer
    _check_address("the issuer", issuer)
    _check_address("the Space's address", own)
    return Provider(issuer, client, secret, f"{own}/login/callback", label, known_as, admins)


def own_address(environ: Mapping[str, str]) -> str:
    """Return the server's address as browsers see it, from ``REVEAL_URL``.

    Raises
    ------
    ModeError
        If it is missing or breaks its rule.
    """
    own = _needed(environ, "REVEAL_URL").rstrip("/")
    _check_address("REVEAL_URL", own)
    if urlsplit(own).path:
        raise ModeError(f"REVEAL_URL must have no path, got {own!r}")
    return own


def _needed(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise ModeError(f"{name} must be set in the environment for this sign-in mode")
    return value


def _secret(environ: Mapping[str, str], name: str) -> str:
    try:
        return secret_from(environ, name) or _needed(environ, name)
    except SettingsError as error:
        raise ModeError(str(error)) from None


def _check_address(what: str, url: str) -> None:
    """Require an https address, except on this machine, because codes and tokens are sent to the address."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ModeError(f"{what} must be a URL, got {url!r}") from None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if len(url) > MAX_ADDRESS or not is_safe or not host or parts.query or parts.fragment or parts.username is not None:
        raise ModeError(f"{what} must be an https:// address without query or password, got {url!r}")
