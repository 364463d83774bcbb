"""Who is asking: finds the actor of a request, and says what a mode of signing in demands of the server.

Modes
-----
``local``: one person on one machine. Everybody who reaches the server is that person and an administrator, so the
server must listen on a loopback address, and a request that came through a proxy is nobody's.
``oidc``: people sign in with an OpenID provider (Authorization Code with PKCE).
``links``: people sign in with a link that an administrator made for them (``admin invite``); there is no provider.
``huggingface``: the same with Hugging Face as provider, on a Space, which supplies the client.

Environment
-----------
``REVEAL_OIDC_ISSUER``, ``REVEAL_OIDC_CLIENT_ID``, ``REVEAL_OIDC_CLIENT_SECRET`` or ``REVEAL_OIDC_CLIENT_SECRET_FILE``,
``REVEAL_URL`` (the server's address as browsers see it), ``REVEAL_ADMINS`` (who becomes an administrator at sign-in:
``sub:SUBJECT``, on a Space also a username, separated by spaces or commas). A Space sets ``OAUTH_CLIENT_ID``,
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

from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.settings import SettingsError, is_loopback, secret_from

Mode = Literal["local", "oidc", "links", "huggingface"]
MODES: tuple[Mode, ...] = ("local", "oidc", "links", "huggingface")
MAX_ADDRESS = 200  # what the database has room for
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")
FORWARDED = "reveal.forwarded"  # set in a request's scope by gate.Forwarded: it came through a proxy
ACTOR = "reveal.actor"  # the actor, once the gate has looked it up


class ModeError(ValueError):
    """The server may not start like this; the message names the setting, the rule and the value."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An OpenID provider and this server's registration with it.

    Attributes
    ----------
    issuer : its issuer URL; discovery is below it
    redirect_uri : where it sends people back to, an address of this server
    known_as : what `users.issuer` holds for its people
    admins : who becomes an administrator at sign-in, ``sub:SUBJECT`` or a preferred username
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    redirect_uri: str
    label: str
    known_as: str
    admins: frozenset[str] = frozenset()


class Auth:
    """Finds who is asking.

    Parameters
    ----------
    accounts : the people
    mode : one of `MODES`
    provider : needed in the modes "oidc" and "huggingface"
    address : of the server as browsers see it, needed in the mode "links"
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
    def cookie(self) -> str:
        """The session cookie's name: bound to this host by the browser where there is https."""
        return "__Host-reveal" if self.is_secure else "reveal"

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that the server answers to: its public one, and this machine's own for health checks."""
        if self._address is None:
            return frozenset(LOCAL_HOSTS)
        host = urlsplit(self._address).netloc.rpartition("@")[2]
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return frozenset({name.lower(), *LOCAL_HOSTS})

    def actor(self, request: Any) -> Actor | None:
        """Who sent `request` (Starlette's, or Gradio's `gr.Request`), looked up now; None for anybody.

        A request with an `Authorization` header is judged by that alone, never by its cookie.
        """
        inner = getattr(request, "request", request)
        return self._find(inner) if isinstance(inner, HTTPConnection) else None

    def actor_of(self, scope: MutableMapping[str, Any]) -> Actor | None:
        """As :meth:`actor` for an ASGI scope; looked up once per request."""
        if ACTOR not in scope:
            scope[ACTOR] = self._find(HTTPConnection(scope))
        actor: Actor | None = scope[ACTOR]
        return actor

    async def find_actor(self, scope: MutableMapping[str, Any]) -> Actor | None:
        """As :meth:`actor_of`, for code in an event loop: the database is asked in a thread."""
        if ACTOR in scope:
            return self.actor_of(scope)
        return await to_thread.run_sync(self.actor_of, scope)

    def keep(self, answer: Response, name: str, value: str, seconds: int) -> None:
        """Set a cookie that this host's browser sends back to it alone."""
        answer.set_cookie(name, value, max_age=seconds, path="/", secure=self.is_secure, httponly=True, samesite="lax")

    def session_of(self, request: HTTPConnection) -> str | None:
        """The session secret of the request's cookie, good or not."""
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
    """Whether the request was sent from this machine and not passed on."""
    if request.scope.get(FORWARDED) or request.client is None:
        return False
    return is_loopback(request.client.host)


def check_mode(mode: str, host: str, environ: Mapping[str, str], *, trusts_proxy: bool = False) -> None:
    """Refuse to start a server that would let in whom it must not.

    Parameters
    ----------
    mode : one of `MODES`
    host : the address that the server is to listen on

    Raises
    ------
    ModeError
        Naming the setting, the rule and the value.
    """
    if mode not in MODES:
        raise ModeError(f"the mode of signing in must be one of {', '.join(MODES)}, got {mode!r}")
    if mode == "local":
        _check_local(host, environ, trusts_proxy)
    elif mode == "links":
        own_address(environ)
    else:
        provider_from(mode, environ)


def _check_local(host: str, environ: Mapping[str, str], trusts_proxy: bool) -> None:
    if not is_loopback(host):
        raise ModeError(
            "in local mode everybody who reaches the server is its administrator, so it listens on this machine only: "
            f"host must be 127.0.0.1, ::1 or localhost, got {host!r}; to serve others, use the mode oidc or links"
        )
    if environ.get("SPACE_ID"):
        raise ModeError("a Space is open to everybody: the mode must be huggingface there, got 'local'")
    if trusts_proxy:
        raise ModeError("local mode cannot run behind a proxy: anyone it lets in would be an administrator")


def open_auth(accounts: Accounts, mode: str, environ: Mapping[str, str]) -> Auth:
    """The `Auth` of a mode, with its provider as the environment describes it.

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
    """The provider of the mode "oidc" or "huggingface", read from the environment.

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
                "REVEAL_ADMINS must name people by their subject, as sub:SUBJECT, since at many providers they choose "
                f"their usernames; got {names[0]!r} (`admin people` lists the subjects of those who signed in)"
            )
        issuer, own = _needed(environ, "REVEAL_OIDC_ISSUER"), own_address(environ)
        client, secret = _needed(environ, "REVEAL_OIDC_CLIENT_ID"), _secret(environ, "REVEAL_OIDC_CLIENT_SECRET")
        label, known_as = urlsplit(issuer).hostname or issuer, issuer
    _check_address("the issuer", issuer)
    _check_address("the Space's address", own)
    return Provider(issuer, client, secret, f"{own}/login/callback", label, known_as, admins)


def own_address(environ: Mapping[str, str]) -> str:
    """The server's address as browsers see it, from ``REVEAL_URL``.

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
        raise ModeError(f"{name} must be set in the environment for this mode of signing in")
    return value


def _secret(environ: Mapping[str, str], name: str) -> str:
    try:
        return secret_from(environ, name) or _needed(environ, name)
    except SettingsError as error:
        raise ModeError(str(error)) from None


def _check_address(what: str, url: str) -> None:
    """Only https, except on this machine: codes and tokens travel there."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ModeError(f"{what} must be a URL, got {url!r}") from None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if len(url) > MAX_ADDRESS or not is_safe or not host or parts.query or parts.fragment or parts.username is not None:
        raise ModeError(f"{what} must be an https:// address without query or password, got {url!r}")
