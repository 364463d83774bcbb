"""In any order of sending, leasing, finishing, dying and withdrawing, the ledger stays correct (SQLite)."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from reveal_leaderboard.settings import QuotaPolicy
from reveal_leaderboard.store.events import verify_events
from reveal_leaderboard.store.queue import Job
from reveal_leaderboard.store.store import NotAllowedError, QuotaExceededError
from reveal_leaderboard.store.tables import jobs, ledger, scores, submissions

from tests.leaderboard.databases import DATABASE_SOURCE
from tests.leaderboard.worlds import NEW, World, outcome

QUOTA = QuotaPolicy(total=7, per_day=6, board_total=10)
ENDS = ("scored", "refused", "failed", "withdrawn")


class Life(RuleBasedStateMachine):
    """Two teams, three files, four models, and workers that may die; `held` are leases that somebody still holds."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="life-"))
        self.world = World(DATABASE_SOURCE.migrated("sqlite", self.folder), quota=QUOTA)
        with self.world.store.engine.connect() as connection:
            connection.connection.driver_connection.execute("PRAGMA synchronous=OFF")  # type: ignore[union-attr]
        self.held: list[Job] = []
        self.live: dict[str, Job] = {}  # by job id: whose lease counts

    def teardown(self) -> None:
        with self.world.store.read() as connection:
            assert verify_events(connection) == []
        self.world.store.engine.dispose()
        shutil.rmtree(self.folder)

    @rule(team=st.integers(1, 2), file=st.integers(0, 2), model=st.integers(0, 1))
    def send(self, team: int, file: int, model: int) -> None:
        new = replace(NEW, team_id=f"team{team}", user_id=f"user{team}", sha256=f"{file:064x}", model_name=f"M{model}")
        spent = self.world.spent()
        may_send = self.world.balance(f"team{team}").may_send
        try:
            submission, is_new = self.world.store.add_submission(new, who=f"user:user{team}")
        except QuotaExceededError:
            assert not may_send
            assert self.world.spent() == spent
        except NotAllowedError:  # the same predictions are there under another name
            assert self.world.spent() == spent
        else:
            assert may_send or not is_new
            assert self.world.spent() == spent + is_new
            assert submission.status == "queued" if is_new else submission.status not in ("refused", "failed")

    @rule(lease=st.sampled_from([600, 600, 600, -1]), team=st.integers(1, 2), file=st.integers(3, 9))
    def claim(self, lease: float, team: int, file: int) -> None:
        """A worker asks for work; if the queue is empty, a submission arrives first."""
        if (job := self.world.claim(lease_seconds=lease)) is None:
            self.send(team, file, model=0)
            job = self.world.claim(lease_seconds=lease)
        self.live = {i: lease for i, lease in self.live.items() if self._is_leased(lease)}
        if job is not None:
            assert job.id not in self.live or self.live[job.id].fence < job.fence
            self.live[job.id] = job
            self.held.append(job)

    def _is_leased(self, job: Job) -> bool:
        with self.world.store.read() as connection:
            row = connection.execute(sa.select(jobs.c.status, jobs.c.fence).where(jobs.c.id == job.id)).one()
        return bool(row.status == "leased" and row.fence == job.fence)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["score", "score", "score", "refuse", "fail", "beat"]))
    def answer(self, data: st.DataObject, how: str) -> None:
        """The holder of a lease, which may have run out long ago, reports something."""
        job = data.draw(st.sampled_from(self.held[::-1]))  # rather the latest
        is_live = self._is_leased(job)
        who = {"who": "worker:w"}
        if how == "beat":
            assert self.world.queue.heartbeat(job, lease_seconds=600) == is_live
            return
        if job.kind == "rank":
            kept = self.world.queue.finish_result(job, document={})
        elif how == "score":
            value, content = data.draw(st.integers(0, 100)) / 100, data.draw(st.sampled_from("abcd"))
            kept = self.world.queue.finish_score(job, outcome=outcome(value, content), **who)
        elif how == "refuse":
            kept = self.world.queue.refuse(job, why="bad", **who)
        else:
            kept = self.world.queue.fail(job, why="us", incident="INC-1", **who)
        assert kept == is_live

    @rule(data=st.data(), how=st.sampled_from(["withdraw", "choose", "hide", "restore"]))
    def change(self, data: st.DataObject, how: str) -> None:
        ids = [submission.id for submission in self.world.store.list_submissions()]
        if not ids:
            return
        submission_id = data.draw(st.sampled_from(ids))
        why: dict[str, Any] = {"why": "because"} if how in ("hide", "restore") else {}
        try:
            getattr(self.world.store, how)(submission_id, who="user:user1", **why)
        except NotAllowedError:
            submission = self.world.store.get(submission_id)
            assert submission is not None
            assert how in ("withdraw", "choose")

    @invariant()
    def the_books_are_right(self) -> None:
        with self.world.store.read() as connection:
            rows = connection.execute(sa.select(submissions)).all()
            spent = {
                row[0]: row[1]
                for row in connection.execute(
                    sa.select(ledger.c.submission_id, sa.func.sum(ledger.c.amount)).group_by(ledger.c.submission_id)
                )
            }
            last = {row.submission_id: row.kind for row in connection.execute(sa.select(ledger).order_by(ledger.c.id))}
            scored = set(connection.execute(sa.select(scores.c.submission_id)).scalars())
            work = {
                row.subject: row.status for row in connection.execute(sa.select(jobs).where(jobs.c.kind == "score"))
            }
        for row in rows:
            is_open = row.status in ("queued", "scoring")
            assert (last[row.id] == "reserved") == is_open
            assert spent[row.id] == (1 if is_open or last[row.id] == "charged" else 0)
            assert (row.id in scored) == (row.status == "scored")
            assert work[row.id] == {"queued": "queued", "scoring": "leased", "scored": "done"}.get(
                row.status, {"withdrawn": "cancelled"}.get(row.status, row.status)
            )
        for team in ("team1", "team2"):
            assert 0 <= self.world.balance(team).left <= QUOTA.total
        assert sum(spent.values()) <= QUOTA.board_total

    @invariant()
    def the_board_shows_one_of_a_model_and_only_what_may_be_shown(self) -> None:
        pairs = self.world.store.board_rows("bench", "1.0")
        assert len({(s.team_id, s.model_name) for s, _ in pairs}) == len(pairs)
        for submission, score in pairs:
            assert not score.is_held
            assert (submission.status, submission.withdrawn_at, submission.hidden_at) == ("scored", None, None)

    @invariant()
    def the_row_is_the_summary_of_its_events(self) -> None:
        for submission in self.world.store.list_submissions():
            statuses = [e.to_status for e in self.world.store.events_of(submission.id)]
            life = [status for status in statuses if status in (*ENDS, "queued", "scoring")]
            withdrawn = submission.status == "scored" and submission.withdrawn_at is not None
            assert life[-1] == ("withdrawn" if withdrawn else submission.status)


Life.TestCase.settings = settings(
    max_examples=8, stateful_step_count=25, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestLife = Life.TestCase
