"""Guard Gradio's routes: those that the pages need serve only the owner of a session or file, all others answer 404.

Conventions
-----------
Without this middleware (measured on Gradio 6.31), any visitor can call any handler by several routes, read an upload if
its path is known, pass another person's upload to a handler, and read the events of a session if its hash is known.
With this middleware:

- below ``/gradio_api`` only the routes of `ROUTES` exist; the monitoring and editing routes elsewhere do not exist;
- only signed-in people can upload, and only the person who uploaded a file can fetch it or pass it to a handler;
- a browser refers to its file by a generated name, never by the file's path on this machine's disk;
- a session hash belongs to its first user; a visitor's session can become that of a signed-in person, never the
  reverse.

Owners are kept in memory, as Gradio keeps its queue and sessions; the oldest are forgotten first.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Container
from pathlib import PurePath
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reveal_leaderboard.web.api.authentication import refuse_anonymous_upload
from reveal_leaderboard.web.middleware import Gate, gathered, send_problem
from reveal_leaderboard.web.recent import Recent
from reveal_leaderboard.web.sign_in_modes import Auth

API = "/gradio_api/"
NOBODY = "nobody"
MAX_EVENT_BYTES = 4 * 1000 * 1000
MAX_KNOWN = 100_000  # most session hashes, and most files, that are remembered
MAX_UPLOAD_ANSWER = 1_000_000
HASH = re.compile(r"[A-Za-z0-9_-]{6,64}")

ROUTES = {
    "info": ("GET",),
    "info/": ("GET",),
    "app_id": ("GET",),
    "app_id/": ("GET",),
    "startup-events": ("GET",),
    "theme.css": ("GET",),
    "queue/data": ("GET",),
    "queue/join": ("POST",),
    "cancel": ("POST",),
    "reset": ("POST",),
    "upload": ("POST",),
    "upload_progress": ("GET",),
}
WITH_SESSION_IN_BODY = ("queue/join", "cancel")
CLOSED = ("monitoring", "pwa_icon", "openapi.json")  # outside /gradio_api
OURS = {"/login": ("GET", "HEAD"), "/logout": ("POST",)}  # Gradio has its own routes for the other methods


class GradioGate(Gate):
    """Passes on only requests that the pages need, and only from the owner of the session and file.

    Parameters
    ----------
    functions : Gradio's numbers of the pages' handlers; the set may be filled later; None to accept any number
    """

    def __init__(self, app: ASGIApp, auth: Auth, functions: Container[object] | None = None) -> None:
        super().__init__(app)
        self.auth, self.functions = auth, functions
        self._sessions, self._files = _SessionOwners(), _UploadedFiles()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        is_api = path.startswith(API)
        if _is_closed(scope["method"], path) or b"deep_link" in scope["query_string"]:
            await send_problem(send, 404, "There is nothing here.")
        elif is_api:
            await self._guard(path.removeprefix(API), scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _guard(self, route: str, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        actor = await self.auth.find_actor(scope)
        owner = NOBODY if actor is None else actor.name
        if route == "upload" and method == "POST" and actor is None:
            await refuse_anonymous_upload(send)
        elif route.startswith("file=") and method == "GET":
            path = self._files.path_of(route.removeprefix("file="), owner)
            if path is None:
                await send_problem(send, 404, "This file does not exist.")
            else:
                await self.app(_moved(scope, f"{API}file={path}"), receive, send)
        elif method not in ROUTES.get(route, ()):
            await send_problem(send, 404, "There is nothing here.")
        elif route == "queue/data":
            hashes = parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [])
            if len(hashes) == 1 and self._sessions.claim(hashes[0], owner):
                await self.app(scope, receive, send)
            else:
                await send_problem(send, 403, OTHERS)
        elif route in WITH_SESSION_IN_BODY:
            await self._guard_event(owner, scope, receive, send)
        elif route == "upload":
            plain = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
            await self.app({**scope, "headers": plain}, receive, self._renaming(owner, send))
        else:
            await self.app(scope, receive, send)

    async def _guard_event(self, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Read an event, check that its session and files belong to the sender, and pass the event on to Gradio."""
        body = await _read(receive)
        if body is None:
            await send_problem(send, 413, f"An event is at most {MAX_EVENT_BYTES:,} bytes.", {"connection": "close"})
            return
        try:
            event = json.loads(body)
            session = event["session_hash"]
            event = self._with_paths(event, owner)
            is_known = self.functions is None or event["fn_index"] in self.functions
        except _NotTheirsError:
            await send_problem(send, 403, "That file is not yours, or no longer exists. Upload it again.")
            return
        except (ValueError, TypeError, KeyError, RecursionError):
            await send_problem(send, 400, "An event must be a JSON object with a session_hash.")
            return
        if not is_known:  # Gradio would raise an exception, and log a traceback
            await send_problem(send, 404, "The pages have no such function.")
        elif not isinstance(session, str) or not self._sessions.claim(session, owner):
            await send_problem(send, 403, OTHERS)
        else:
            # Serialised again, so that Gradio reads exactly the session and files that were checked here.
            await self.app(scope, _replay(json.dumps(event).encode(), receive), send)

    def _with_paths(self, value: Any, owner: str) -> Any:
        """Return the event with the generated name of every file replaced by the file's true path.

        Raises
        ------
        _NotTheirsError
            If a file does not belong to `owner`.
        """
        if isinstance(value, list):
            return [self._with_paths(inner, owner) for inner in value]
        if not isinstance(value, dict):
            return value
        event = {name: self._with_paths(inner, owner) for name, inner in value.items()}
        if isinstance(value.get("path"), str):
            event["path"] = self._files.path_of(value["path"], owner)
            if event["path"] is None:
                raise _NotTheirsError
        return event

    def _renaming(self, owner: str, send: Send) -> Send:
        """Return a `send` that answers an upload with generated names instead of paths, and records the owner of each
        name.
        """

        async def answer(start: Message, body: bytes) -> None:
            if len(body) > MAX_UPLOAD_ANSWER:
                raise RuntimeError("Gradio answered an upload with something other than a list of paths")
            paths = _listed(body)
            if paths:
                body = json.dumps([self._files.add(path, owner) for path in paths]).encode()
            MutableHeaders(raw=start["headers"])["content-length"] = str(len(body))
            await send(start)
            await send({"type": "http.response.body", "body": body})

        return gathered(send, lambda start: True, answer, MAX_UPLOAD_ANSWER + 1)


class _NotTheirsError(Exception):
    """An event names another person's file."""


OTHERS = "This session belongs to someone else, or you have signed in or out since. Reload the page."


class _SessionOwners:
    """The owner of each session hash."""

    def __init__(self) -> None:
        self._owner_of: Recent[str, str] = Recent(MAX_KNOWN)

    def claim(self, session: str, owner: str) -> bool:
        """Return True if the session belongs to `owner`; a new session is given to `owner`."""
        if not HASH.fullmatch(session) or self._owner_of.get(session, NOBODY) not in (NOBODY, owner):
            return False
        self._owner_of.put(session, owner)
        return True


class _UploadedFiles:
    """Uploaded files by generated name and owner, because Gradio stores identical uploads of two people under one
    path.
    """

    def __init__(self) -> None:
        self._path_of: Recent[tuple[str, str], str] = Recent(MAX_KNOWN)

    def add(self, path: str, owner: str) -> str:
        """Return a generated name for an uploaded file; its last part is the file's own name, which pages show."""
        name = f"{secrets.token_urlsafe(16)}/{PurePath(path).name}"
        self._path_of.put((name, owner), path)
        return name

    def path_of(self, name: str, owner: str) -> str | None:
        """Return the path of the file with this generated name; None if it does not belong to `owner`."""
        return self._path_of.get((name, owner))


def _is_closed(method: str, path: str) -> bool:
    if "gradio_api" in path and not path.startswith(API):  # another spelling of the same name
        return True
    if method not in OURS.get(path.rstrip("/"), (method,)):
        return True
    return path.lstrip("/").partition("/")[0] in CLOSED


async def _read(receive: Receive) -> bytes | None:
    """Return the whole body of a request; None if it is too large or was cut off."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += bytes(message.get("body", b""))
        if len(body) > MAX_EVENT_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replay(body: bytes, receive: Receive) -> Receive:
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _moved(scope: Scope, path: str) -> Scope:
    return {**scope, "path": path, "raw_path": quote(path).encode()}


def _listed(answer: bytes) -> list[str]:
    try:
        paths = json.loads(answer)
    except ValueError:  # an error's text
        return []
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
