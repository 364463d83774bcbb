"""Web server of the readers' app: routes for a reader's list, items, images and answers, behind the board's middleware.

Conventions
-----------
Routes below ``/api`` are for readers: signed-in people to whom the maintainer's table assigns a reader name or, in
local mode, anyone who chose a reader name. Items that are not on the reader's list get the answer 404. Browsers refer
to items by tokens of the session. No answer contains the id of a study or patient, a report, or another reader's name.
Scripts and styles are files of this project, neither inline nor from other sites, as the content security policy
enforces.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from reveal_bench.tables import TableError, read_table
from reveal_bench.viewer.serving import FILM_VIEWER, static_file
from reveal_leaderboard.accounts.links import mail_address
from reveal_leaderboard.readers.forms import FORMS, ReaderAnswerError
from reveal_leaderboard.readers.images import ImageCache, ImageError
from reveal_leaderboard.readers.store import (
    Item,
    KeyUsedError,
    ListClosedError,
    ListEntry,
    NotOnListError,
    ReaderAnswer,
    Readings,
)
from reveal_leaderboard.web.app import OwnMethods
from reveal_leaderboard.web.middleware import (
    SPACE_FRAMES,
    BodyLimit,
    Forwarded,
    KnownHost,
    NoTraces,
    Problems,
    SameOrigin,
    SecureHeaders,
)
from reveal_leaderboard.web.pages.drawing import page_style
from reveal_leaderboard.web.rate_limits import RateLimit, RequestLimits
from reveal_leaderboard.web.sign_in import add_sign_in
from reveal_leaderboard.web.sign_in_modes import Auth

MAX_BODY_BYTES = 64_000
MAX_SECONDS = 86_400.0
CHOSEN = "reveal-reader"
OWN = {
    "app.js": "text/javascript", "panel.js": "text/javascript", "scales.js": "text/javascript",
    "style.css": "text/css",
}  # fmt: skip
STATIC = {**OWN, **FILM_VIEWER}

log = logging.getLogger(__name__)


class SentAnswer(BaseModel):
    """An answer sent by the browser; `key` is new for each answer, so that a second click does not send a second
    answer.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    answer: Annotated[str, Field(max_length=40)]
    comment: Annotated[str, Field(max_length=20_000)] = ""
    details: Any = None
    seconds: Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]


class ReaderChoice(BaseModel):
    """The reader name that a person chooses in local mode."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reader: Annotated[str, Field(max_length=200)]


@dataclass(frozen=True)
class Session:
    """A reader's session: the reader's name, list, and tokens that stand for the items in this session."""

    reader: str
    places: tuple[ListEntry, ...]
    tokens: Mapping[str, str]

    def item(self, token: str) -> str:
        """Return the item with a token; raise 404 if the reader's list has no such item."""
        if token not in self.tokens:
            raise HTTPException(404, "This item is not on your list. Reload the page.")
        return self.tokens[token]


class ReadingService:
    """The functions behind the routes."""

    def __init__(self, readings: Readings, images: ImageCache, auth: Auth, people: Mapping[str, str]) -> None:
        self.readings, self.images, self.auth, self.people = readings, images, auth, people
        self.form = FORMS[readings.form]

    def reader(self, request: Request) -> str | None:
        """Return the requesting reader's name, None if the person is not a reader; raise 401 if nobody is signed in."""
        actor = self.auth.actor(request)
        if actor is None or actor.via == "token":
            raise HTTPException(401, "Sign in to read.")
        if self.auth.mode == "local":
            chosen = _decoded(request.cookies.get(CHOSEN, ""))
            return chosen if chosen in self.readings.readers() else None
        # The issuer is checked, because an account of an earlier provider may have the same subject.
        return self.people.get(actor.user.subject) if actor.user.issuer == self.auth.issuer else None

    def session(self, request: Request) -> Session:
        """Return the session of a request; raise 403 if the person is not a reader."""
        reader = self.reader(request)
        if reader is None:
            raise HTTPException(403, "You are not a reader of this dataset.")
        places = tuple(self.readings.places(reader))
        name = "local" if self.auth.mode == "local" else self.auth.session_of(request) or ""
        return Session(reader, places, tokens_of(self.readings.key, name, reader, (one.item for one in places)))

    def who(self, request: Request) -> dict[str, Any]:
        """Return whether the person is signed in, and the reader name."""
        about = {"mode": self.auth.mode, "title": self.form.title, "signed_in": False, "reader": None}
        try:
            reader = self.reader(request)
        except HTTPException:
            return about
        names = self.readings.readers() if self.auth.mode == "local" else []
        return about | {"signed_in": True, "reader": reader, "readers": names}

    def listed(self, session: Session) -> dict[str, Any]:
        """Return the reader's list in its order, as tokens and current answers."""
        entries = [
            {"token": token, "answer": place.answer}
            for token, place in zip(session.tokens, session.places, strict=True)
        ]
        return {"items": entries, "is_open": self.readings.is_open(session.reader)}

    def item_panel(self, session: Session, token: str) -> dict[str, Any]:
        """Return an item's questions, the properties of its images, and the reader's own answer."""
        item = self.readings.item(session.item(token))
        own = self.readings.answer(session.reader, item.item)
        own_answer = None if own is None else {"answer": own.answer, "comment": own.comment, "details": own.details}
        pictures = [{"view": film.view, **self._facts(item, n)} for n, film in enumerate(item.films)]
        return {"token": token, "panel": self.form.panel(item.content), "films": pictures, "own": own_answer}

    def film(self, session: Session, token: str, number: int) -> Response:
        """Return the packed pixel values of an image."""
        item = self.readings.item(session.item(token))
        if not 0 <= number < len(item.films):
            raise HTTPException(404, "There is no such image.")
        try:
            _, data = self.images.get(item.films[number])
        except ImageError:
            raise HTTPException(404, "This image cannot be shown.") from None
        return Response(data, media_type="application/octet-stream", headers={"Content-Encoding": "gzip"})

    def put(self, session: Session, token: str, sent: SentAnswer) -> dict[str, Any]:
        """Store an answer, and return the reply for the browser once the answer is on disk."""
        name = session.item(token)
        try:
            read = self.form.read(self.readings.item(name).content, sent.answer, sent.comment, sent.details)
            answer, comment, details = read
            is_new = self.readings.put(
                ReaderAnswer(session.reader, name, answer, comment, details, math.floor(sent.seconds * 10) / 10),
                sent.key,
            )
        except ReaderAnswerError as error:
            raise HTTPException(422, str(error)) from None
        except NotOnListError as error:
            raise HTTPException(404, f"{error}".capitalize() + ".") from None
        except (ListClosedError, KeyUsedError) as error:
            raise HTTPException(409, f"Not saved: {error}.") from None
        log.info("an answer was stored", extra={"count": int(is_new)})
        return {"saved": True, "answer": answer}

    def _facts(self, item: Item, number: int) -> dict[str, Any]:
        try:
            facts, _ = self.images.get(item.films[number])
        except ImageError as error:
            log.warning("an image cannot be shown: %s", error)
            return {"fault": "This image cannot be shown."}
        return {"fault": "", **facts}


def build_readers_app(
    readings: Readings,
    images: ImageCache,
    auth: Auth,
    people: Mapping[str, str],
    *,
    n_proxies: int = 0,
    limits: RequestLimits | None = None,
) -> FastAPI:
    """Return the web application for prepared readings.

    Parameters
    ----------
    people : subject (the sign-in provider's id of a person) -> reader name; unused in local mode
    n_proxies : number of trusted proxies in front of the server
    limits : request limits; by default none in local mode
    """
    app = FastAPI(title="REVEAL readers", openapi_url=None, docs_url=None, redoc_url=None)
    service = ReadingService(readings, images, auth, people)
    add_sign_in(app, auth)
    _add_pages(app)
    _add_api(app, service)
    app.add_middleware(NoTraces)
    app.add_middleware(OwnMethods, owner=app)
    app.add_middleware(BodyLimit, limit=MAX_BODY_BYTES)
    app.add_middleware(SameOrigin, is_secure=auth.is_secure)
    if auth.mode != "local" or limits is not None:
        app.add_middleware(RateLimit, auth=auth, limits=limits)
    app.add_middleware(Problems)
    app.add_middleware(KnownHost, hosts=auth.hosts)
    app.add_middleware(Forwarded, n_proxies=n_proxies)
    frames = SPACE_FRAMES if auth.mode == "huggingface" else ()
    app.add_middleware(
        SecureHeaders,
        framed_by=frames,
        is_secure=auth.is_secure,
        policy=_strict_policy(),
        headers={"Cache-Control": "no-store"},
    )
    return app


def _add_pages(app: FastAPI) -> None:
    static = files("reveal_leaderboard.readers") / "static"
    texts = {name: (static / name).read_bytes() for name in ("index.html", *OWN)}
    texts |= {name: static_file(name) for name in FILM_VIEWER}

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return Response(texts["index.html"], media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(404, "This page does not exist.")
        return Response(texts[name], media_type=STATIC[name], headers={"Cache-Control": "no-cache"})

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> Response:
        return asset("icon.svg")

    @app.get("/healthz", include_in_schema=False)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}


def _add_api(app: FastAPI, service: ReadingService) -> None:
    @app.exception_handler(RequestValidationError)
    def refused(request: Request, error: RequestValidationError) -> Response:
        faults = (f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors())
        return JSONResponse({"detail": "; ".join(faults)[:200]}, 422)  # without values, which may be any text

    signed_in = Depends(service.session)

    @app.get("/api/who")
    def who(request: Request) -> dict[str, Any]:
        return service.who(request)

    @app.post("/api/reader")
    def choose(request: Request, chosen: ReaderChoice) -> Response:
        service.reader(request)
        if service.auth.mode != "local":
            raise HTTPException(403, "Your reader name is set by your account.")
        if chosen.reader not in service.readings.readers():
            raise HTTPException(422, "There is no list for a reader of this name.")
        answer = RedirectResponse("/", 303)
        answer.set_cookie(CHOSEN, _encoded(chosen.reader), httponly=True, samesite="strict", path="/")
        return answer

    @app.get("/api/list")
    def listed(session: Session = signed_in) -> dict[str, Any]:
        return service.listed(session)

    @app.get("/api/items/{token}")
    def item_panel(token: str, session: Session = signed_in) -> dict[str, Any]:
        return service.item_panel(session, token)

    @app.get("/api/items/{token}/films/{number}")
    def film(token: str, number: int, session: Session = signed_in) -> Response:
        return service.film(session, token, number)

    @app.post("/api/items/{token}/answers")
    def put(token: str, sent: SentAnswer, session: Session = signed_in) -> dict[str, Any]:
        return service.put(session, token, sent)

    @app.post("/api/stop")
    def stop(session: Session = signed_in) -> dict[str, bool]:
        if service.readings.is_open(session.reader):
            service.readings.mark(session.reader, "stop")
        return {"is_open": False}


def _strict_policy() -> tuple[str, ...]:
    """Return the content security policy, which allows the inline style sheet of the sign-in pages by its hash."""
    digest = base64.b64encode(hashlib.sha256(page_style().encode()).digest()).decode()
    return (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' 'sha256-{digest}'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
    )


# Readers' names, and a session's tokens for items -----------------------------------------------------------

PEOPLE_COLUMNS = ["subject", "reader"]


class PeopleError(ValueError):
    """The table of people is invalid; the message names every problem."""


def read_people(path: Path, readers: Collection[str], *, by_mail: bool = False) -> dict[str, str]:
    """Return subject -> reader name from the maintainer's table of people.

    A subject is the sign-in provider's id of a person, or the person's e-mail address with `by_mail`. On the board,
    ``admin people`` lists subjects; for Hugging Face, the subject is the account's id. The table has the columns
    `subject` and `reader`, CSV in UTF-8; each value occurs once.

    Raises
    ------
    PeopleError
        If a column is wrong, a cell is blank or repeated, or a reader has no list; the error lists every problem.
    """
    problems: list[str] = []
    people: dict[str, str] = {}
    try:
        rows = read_table(path, columns=PEOPLE_COLUMNS).rows
    except TableError as error:
        raise PeopleError(str(error)) from None
    for row in rows:
        subject, reader = (row[name] for name in PEOPLE_COLUMNS)
        where = f"line {row.number}"
        if by_mail and subject:
            try:
                subject = mail_address(subject)
            except ValueError as error:
                problems.append(f"{where}: `subject`: {error}")
                continue
        if not subject or not reader:
            problems.append(f"{where}: must have a subject and a reader")
        elif reader not in readers:
            problems.append(f"{where}: `reader` must have a list, got {reader!r}")
        elif subject in people or reader in people.values():
            problems.append(f"{where}: subject and reader must not be repeated, got {subject!r} and {reader!r}")
        else:
            people[subject] = reader
    if problems:
        raise PeopleError(f"{path.name}: {'; '.join(problems)}")
    return people


def token_of(key: bytes, session: str, reader: str, item: str) -> str:
    """Return this session's token for an item: 32 hexadecimal digits that reveal nothing about the item."""
    return hmac.new(key, "\0".join((session, reader, item)).encode(), hashlib.sha256).hexdigest()[:32]


def tokens_of(key: bytes, session: str, reader: str, items: Iterable[str]) -> dict[str, str]:
    """Return token -> item for the items of a session."""
    return {token_of(key, session, reader, item): item for item in items}


def _encoded(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode("ascii").rstrip("=")


def _decoded(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return ""
