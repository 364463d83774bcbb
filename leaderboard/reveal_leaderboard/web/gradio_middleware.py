"""Guards the routes that Gradio mounts: routes that the pages need work for the owner of a session or file only, and
all other routes answer 404.

Conventions
-----------
Measured on Gradio 6.31: any visitor can call any handler by several routes, read any upload whose path is known, pass
another person's upload to a handler, and read the events of a session whose hash is known. This middleware prevents it:

- below ``/gradio_api`` only the routes of `ROUTES` exist; the monitoring and editing routes elsewhere do not exist;
- only people who are signed in can upload, and only they can fetch their file or pass it to a handler;
- a browser knows its file by a name generated here, never by its path on this machine's disk;
- a session hash belongs to the first who uses it; a visitor's session may become a person's, never the reverse.

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
MAX_KNOWN = 100_000  # session hashes, and files
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
OURS = {"/login": ("GET", "HEAD"), "/logout": ("POST",)}  # Gradio has routes of its own for the other methods


class GradioGate(Gate):
    """Admits the requests to Gradio that the pages need, from the owners of sessions and files.

    Parameters
    ----------
    functions : numbers of the pages' handlers; the set may be filled later, and with None only Gradio checks the number
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
        """Read the event, check the owner of its session and files, and pass it on."""
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
            await send_problem(send, 403, "That file is not yours, or is gone. Upload it again.")
            return
        except (ValueError, TypeError, KeyError, RecursionError):
            await send_problem(send, 400, "An event must be a JSON object with a session_hash.")
            return
        if not is_known:  # Gradio would fail, and log a traceback for every such request
            await send_problem(send, 404, "The pages have no such function.")
        elif not isinstance(session, str) or not self._sessions.claim(session, owner):
            await send_problem(send, 403, OTHERS)
        else:
            # Serialised again, so that Gradio cannot read another session or file from it than was checked here.
            await self.app(scope, _replay(json.dumps(event).encode(), receive), send)

    def _with_paths(self, value: Any, owner: str) -> Any:
        """Return an event in which the generated name of every file is replaced by the file's true path.

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
                raise RuntimeError("an upload was answered with more than a list of paths")
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
        """Return True if the session belongs to `owner`, who becomes the owner of a new one."""
        if not HASH.fullmatch(session) or self._owner_of.get(session, NOBODY) not in (NOBODY, owner):
            return False
        self._owner_of.put(session, owner)
        return True


class _UploadedFiles:
    """Uploaded files by generated name and owner; Gradio keeps identical uploads of two people under one path."""

    def __init__(self) -> None:
        self._path_of: Recent[tuple[str, str], str] = Recent(MAX_KNOWN)

    def add(self, path: str, owner: str) -> str:
        """Return a new name for an uploaded file; it ends with the file's own name, which pages show."""
        name = f"{secrets.token_urlsafe(16)}/{PurePath(path).name}"
        self._path_of.put((name, owner), path)
        return name

    def path_of(self, name: str, owner: str) -> str | None:
        """Return the path of the file with this generated name; None if it does not belong to `owner`."""
        return self._path_of.get((name, owner))


def _is_closed(method: str, path: str) -> bool:
    if "gradio_api" in path and not path.startswith(API):  # another spelling of it
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
