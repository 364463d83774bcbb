"""The API on an application of its own: real store, queue, accounts and intake, with people, tokens and scores.

The linter runs in this process instead of a child, and tests write scores instead of a worker: only the routes are
tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Team, User
from reveal_leaderboard.boards.catalogue import Catalogue
from reveal_leaderboard.custody import BOARD_LIMITS, Custody, Lint, Parsed
from reveal_leaderboard.custody.arrays import stamp_of, write_canonical
from reveal_leaderboard.release.fingerprints import Fingerprint
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.scores import Signing
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.web import api
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.sign_in_modes import Auth, Provider
from reveal_leaderboard.web.submissions import Intake
from starlette.testclient import TestClient

from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.localization.records import ImageManifest
from reveal_bench.predictions import LintReport
from reveal_bench.predictions.limits import LintOptions
from tests.leaderboard.conftest import BENCHMARK, METADATA, Board
from tests.leaderboard.databases import DATABASE_SOURCE, Kept

SUBMISSIONS = "/api/v1/submissions"
NOBODY = "0" * 32


AnyManifest = ImageManifest | StudyManifest


def lint_of(report: LintReport) -> Lint:
    """A report as the board has it."""
    return Lint.model_validate_json(report.to_json())


class LintHere:
    """Replacement for custody: the same linter and limits, in this process."""

    ends_with: Exception | None = None

    def parse(
        self, path: Path, manifest: AnyManifest, *, name: str, allow_missing: bool, canonical: Path | None = None
    ) -> Parsed:
        if self.ends_with is not None:
            raise self.ends_with
        report = lint_predictions(
            path, manifest, LintOptions(allow_missing=allow_missing, limits=BOARD_LIMITS, name=name)
        )
        if report.ok and canonical is not None:
            write_canonical(canonical, report.predictions, manifest)
        return Parsed(report=lint_of(report), signs=[])

    def stamp(self, manifest: AnyManifest) -> str:
        return stamp_of(manifest).hex()


@dataclass
class Person:
    """A user with a team, a token for it, and a session in a browser."""

    user: User
    team: Team
    token: str
    session: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass
class World:
    """The application and the people of a test."""

    app: FastAPI
    services: Services
    custody: LintHere
    owner: Person
    other: Person
    admin: Person
    n_scored: int = field(default=0)

    def client(self, who: Person | None = None, *, host: str = "203.0.113.9", browser: bool = False) -> TestClient:
        headers = {} if who is None or browser else who.bearer
        cookies = {"reveal": who.session} if who is not None and browser else {}
        return TestClient(
            self.app, base_url="http://board.test", headers=headers, cookies=cookies, client=(host, 50000)
        )

    def send(self, file: Path, model: str = "Pointer", *, who: Person | None = None, **options: Any) -> httpx.Response:
        """POST a file as `who`, the owner by default."""
        who = who or self.owner
        metadata = options.pop("metadata", None) or {
            **METADATA,
            "organization": who.team.name,
            "model": {"name": model},
            "contact": "secret.contact@example.org",
        }
        fields = {"benchmark": BENCHMARK, "metadata": json.dumps(metadata), **options.pop("fields", {})}
        with file.open("rb") as stream:
            files = {"file": (file.name, stream)}
            return self.client(who).post(SUBMISSIONS, data=fields, files=files, **options)

    def score(
        self, submission_id: str, value: float = 0.47, *, final: float | None = None, sign: Signing | None = None
    ) -> None:
        """Finish the next job, which must be for `submission_id`, with one released score and one held back."""
        queue, served = self.services.queue, [self.services.intake.catalogue.current(BENCHMARK).key]
        job = queue.claim("hand", served=served)
        while job is not None and job.kind != "score":
            queue.finish_result(job, document={"schema": 1, "entries": {}, "computed_for": []})
            job = queue.claim("hand", served=served)
        assert job.subject == submission_id
        self.n_scored += 1
        kept_back = None if final is None else released(final)
        outcome = ScoredOutcome(released(value), kept_back, "e" * 64, Fingerprint(f"{self.n_scored:064d}", ()))
        assert queue.finish_score(job, who="worker:hand", outcome=outcome, sign=sign)


def released(value: float) -> ReleasedScore:
    """A released score of one macro figure."""
    figure = ReleasedEstimate(
        "point_hit", "macro", value, round(value - 0.1, 2), round(value + 0.1, 2), "9", "point_hit|v:1"
    )
    return ReleasedScore(
        (figure,), ("Edema",), ("Pneumothorax",), "Fewer than 30 cases: Pneumothorax.", {"min_cell": 30}
    )


def person(accounts: Accounts, name: str, *, is_admin: bool = False, is_asked: bool = False) -> Person:
    """Return a new user who owns the team of the same name."""
    user = accounts.sign_in("https://issuer.test", name, name, as_admin=is_admin)
    team = accounts.create_team(name, owner=user, who=f"user:{user.id}", is_asked=is_asked)
    scopes = ("read", "submit", "admin") if is_admin else ("read", "submit")
    _, token = accounts.issue_token(user, team, name="test", scopes=scopes)
    return Person(user, team, token, accounts.new_session(user))


DESCRIPTIONS: list[dict[str, Any]] = []
describe = api._describe


def described(app: FastAPI) -> dict[str, Any]:
    """The description of the routes, which are the same in all worlds; making it takes longer than all else."""
    if not DESCRIPTIONS:
        DESCRIPTIONS.append(describe(app))
    return DESCRIPTIONS[0]


SETTINGS = """
[quota]
total = 12
per_day = 12
board_total = 500
"""


@contextmanager
def api_world(
    board: Board,
    root: Path,
    *,
    settings: str = SETTINGS,
    children: Custody | None = None,
    further: Sequence[Board] = (),
    **options: Any,
) -> Iterator[World]:
    """The API over `board` and `further` ones, with its data below `root`; files are linted here unless there are
    `children` for it.
    """
    own = root / "settings.toml"
    own.write_text(settings, encoding="utf-8")
    figures = load_settings(own)
    store = Store(DATABASE_SOURCE.migrated("sqlite", root), figures)
    accounts = Accounts(store.engine)
    provider = Provider("https://issuer.test", "id", "secret", "http://board.test/login/callback", "Test", "test")
    custody = LintHere()
    catalogue = Catalogue(store, [one.published for one in (board, *further)])
    intake = Intake(store, Blobs(root / "blobs"), catalogue, children or custody, accounts)  # type: ignore[arg-type]
    queue = Queue(store.engine, figures)
    services = Services(store, queue, intake, accounts, Auth(accounts, "oidc", provider), **options)
    app = FastAPI(title="Test", version="1", docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "_describe", described)
        api.add_api(app, services)
    people = [person(accounts, name, is_admin=name == "Operators") for name in ("Owners", "Others", "Operators")]
    try:
        yield World(app, services, custody, *people)
    finally:
        store.engine.dispose()


@pytest.fixture(scope="module")
def kept_world(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One application for the tests of a module."""
    with api_world(board, tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture
def world(kept_world: World) -> Iterator[World]:
    """The same application for every test, with nothing in it that another test sent or changed."""
    services, kept_world.custody.ends_with = kept_world.services, None
    kept = Kept(services.store.engine)
    yield kept_world
    kept.put_back()
    for name, _ in list(services.intake.blobs.names()):
        services.intake.blobs.remove(name)


def private_parts(world: World) -> Mapping[str, str]:
    """Return texts that no answer to others may contain: user ids, and the contact."""
    people = (world.owner, world.other, world.admin)
    return {**{person.user.name: person.user.id for person in people}, "contact": "secret.contact@example.org"}


def problem(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """The problem document of an answer, which must be of this type."""
    document: dict[str, Any] = answer.json()
    stored = (answer.status_code, answer.headers["content-type"], document["type"], document["status"])
    assert stored == (status, "application/problem+json", f"/problems/{name}", status), document
    return document


def sent(world: World, file: Path, model: str = "Pointer", **options: Any) -> str:
    answer = world.send(file, model, **options)
    assert answer.status_code == 202, answer.text
    identifier: str = answer.json()["id"]
    return identifier


def in_state(world: World, state: str, write_file: Callable[..., Path]) -> str:
    """A submission of the owner that is `state`."""
    store, owner = world.services.store, f"user:{world.owner.user.id}"
    if state == "held":
        sent(world, write_file(seed=7), "Earlier")
        world.score(store.of_team(world.owner.team.id)[0].id, 0.60)
    stored = sent(world, write_file(seed=8))
    if state in ("scored", "held", "withdrawn after", "hidden"):
        world.score(stored, 0.47)
    if state.startswith("withdrawn"):
        store.withdraw(stored, who=owner)
    if state == "hidden":
        store.hide(stored, who=f"user:{world.admin.user.id}", why="doubtful")
    if state in ("refused", "failed"):
        job = world.services.queue.claim("hand", served=[world.services.intake.catalogue.current(BENCHMARK).key])
        assert job is not None
        if state == "refused":
            assert world.services.queue.refuse(job, who="worker:hand", why="no")
        else:
            assert world.services.queue.fail(job, who="worker:hand", why="ours", incident="INC-1")
    return stored
