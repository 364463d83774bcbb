"""A board with two teams in a database, submissions to it, and outcomes of scoring made up to the point."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from reveal_leaderboard.release.fingerprints import Fingerprint
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore
from reveal_leaderboard.settings import BenchmarkSettings, QuotaPolicy, ReleasePolicy, Settings, load_settings
from reveal_leaderboard.store import boards, quota
from reveal_leaderboard.store.queue import Job, Queue
from reveal_leaderboard.store.store import NewSubmission, Store, Submission
from reveal_leaderboard.store.tables import ledger, teams, users

from tests.leaderboard.databases import DATABASE_SOURCE, Kept

BENCHMARK = "bench"
SERVED = [(BENCHMARK, "1.0"), (BENCHMARK, "2.0")]
LADDER = ReleasePolicy()
PLENTY = QuotaPolicy(total=1000, per_day=1000, board_total=10_000)
NEW = NewSubmission(
    benchmark=BENCHMARK,
    version="1.0",
    split="holdout",
    team_id="team1",
    user_id="user1",
    model_name="Model",
    kind="cnn",
    prompt_style=None,
    metadata={"model": {"name": "Model"}},
    filename="p.jsonl",
    sha256="a" * 64,
    size=10,
)


def sha(n: int) -> str:
    """Return a digest that no file has."""
    return f"{n:064x}"


@dataclass(frozen=True)
class FixedSettings(Settings):
    """The packaged settings with one quota and one release policy for every benchmark."""

    quota: QuotaPolicy = PLENTY
    release: ReleasePolicy = LADDER

    def of(self, benchmark: str) -> BenchmarkSettings:
        return replace(super().of(benchmark), quota=self.quota, release=self.release)


def released(value: float | None) -> ReleasedScore:
    """A score whose primary macro is `value`; none is shown for None."""
    figures = (
        () if value is None else (ReleasedEstimate("point_hit", "macro", value, None, None, "3", "point_hit|v:1"),)
    )
    return ReleasedScore(figures, ("Edema",), (), "", {})


def outcome(value: float | None = 0.5, content: str = "c", *, sketch_of: str | None = None) -> ScoredOutcome:
    """Return an outcome whose predictions are identified by `content` and resemble the predictions of `sketch_of`."""
    rng = random.Random(sketch_of or content)
    sketch = tuple(rng.randrange(2**32) for _ in range(128))
    return ScoredOutcome(released(value), None, "f" * 64, Fingerprint(content, sketch))


class World:
    """A store and a queue on an open board, with two teams of one user each."""

    def __init__(self, url: str, **policies: Any) -> None:
        self.settings = FixedSettings(load_settings()._document, **policies)
        self.store = Store(url, self.settings)
        self.queue = Queue(self.store.engine, self.settings)
        with self.store.write() as connection:
            boards.register_version(connection, BENCHMARK, "1.0", "holdout", {"n_images": 60})
            for n in (1, 2):
                person = {"issuer": "test", "subject": f"{n}", "name": f"Person {n}", "is_admin": False}
                connection.execute(users.insert().values(id=f"user{n}", **person, created_at=0.0))
                team = {"name": f"Team {n}", "name_key": f"team {n}"}
                connection.execute(teams.insert().values(id=f"team{n}", **team, created_at=0.0))

    def add(self, **changes: Any) -> Submission:
        submission, is_new = self.store.add_submission(replace(NEW, **changes), who="user:user1")
        assert is_new
        return submission

    def claim(self, worker: str = "w", *, served: Sequence[tuple[str, str]] = SERVED, **options: float) -> Job | None:
        return self.queue.claim(worker, served=served, **options)  # type: ignore[arg-type]

    def take(self, worker: str = "w", **options: float) -> Job:
        job = self.claim(worker, **options)
        assert job is not None
        return job

    def finish(self, job: Job, *result: Any, **options: Any) -> bool:
        return self.queue.finish_score(job, who="worker:w", outcome=outcome(*result), **options)

    def score(self, value: float | None = 0.5, content: str | None = None, **changes: Any) -> Submission:
        """A submission that is scored at once; its predictions are its own unless `content` is given."""
        submission = self.add(**changes)
        job = self.take_score()
        assert job.subject == submission.id
        assert self.finish(job, value, submission.id if content is None else content)
        return self.get(submission)

    def take_score(self) -> Job:
        """Lease the next job that is not a ranking; rankings on the way are done."""
        while (job := self.take()).kind == "rank":
            assert self.queue.finish_result(job, document={})
        return job

    def clear(self) -> None:
        """Do all rankings that are queued."""
        while (job := self.claim()) is not None:
            assert job.kind == "rank"
            assert self.queue.finish_result(job, document={})

    def get(self, submission: Submission) -> Submission:
        submission = self.store.get(submission.id)
        assert submission is not None
        return submission

    def path(self, submission: Submission) -> list[str]:
        return [event.to_status for event in self.store.events_of(submission.id)]

    def kinds(self, submission: Submission) -> list[str]:
        """Return the ledger's entries of a submission."""
        with self.store.read() as connection:
            rows = quota.statement(connection, submission.team_id, submission.benchmark, submission.version)
        return [row.kind for row in rows if row.submission_id == submission.id]

    def spent(self) -> int:
        """The sum of the ledger."""
        with self.store.read() as connection:
            return int(connection.execute(sa.select(sa.func.coalesce(sa.func.sum(ledger.c.amount), 0))).scalar_one())

    def balance(self, team_id: str = "team1") -> quota.QuotaBalance:
        with self.store.read() as connection:
            return quota.balance(connection, team_id, BENCHMARK, "1.0", self.settings)

    def jobs(self) -> list[tuple[str, str]]:
        """Kind and status of every job, oldest first."""
        with self.store.read() as connection:
            rows = connection.execute(sa.text("SELECT kind, status FROM jobs ORDER BY created_at, kind"))
            return [(row[0], row[1]) for row in rows]


AnyWorld = TypeVar("AnyWorld", bound=World)


@cache
def kept_world(of: type[AnyWorld], kind: str) -> tuple[AnyWorld, Kept]:
    """One world for all tests of a process on a kind of database."""
    folder = Path(tempfile.mkdtemp(prefix="world-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    world = of(DATABASE_SOURCE.migrated(kind, folder))
    return world, Kept(world.store.engine)


@pytest.fixture
def world(database_kind: str) -> Iterator[World]:
    """The same world for every test, as it was made."""
    world, kept = kept_world(World, database_kind)
    yield world
    kept.put_back()
