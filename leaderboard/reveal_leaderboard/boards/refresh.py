"""Replace the version that a board shows by a new version of the benchmark (a refresh).

Conventions
-----------
A board shows one version of its benchmark at a time, and submissions go to this version. A refresh has three steps.
:func:`reveal_leaderboard.store.boards.register_version` registers the next version. :func:`start_refresh` queues the
stored submissions for scoring against the next version. :func:`switch_version` shows the next version when all these
jobs have ended; before that, no user sees a score on it. After the switch the old version is frozen: its scores stay
visible, with a note on the change.

A submission that the ladder held back shows the scores of another submission. On the new version it shows that
submission's new scores, because its own scores would release what the ladder held back. Every function runs in its
caller's transaction.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from reveal_bench.words import percent_text
from reveal_leaderboard.release.release import ReleasedScore, primary_figure
from reveal_leaderboard.store import events
from reveal_leaderboard.store.boards import RefreshError, board_row, version_row
from reveal_leaderboard.store.cases import overlaps_of, shared_with
from reveal_leaderboard.store.database import insert_if_absent, moment
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.scores import freeze, has_final, on_board
from reveal_leaderboard.store.tables import boards, jobs, scores, submissions, versions


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a refresh, as numbers of submissions."""

    total: int
    done: int
    failed: int
    left: int


@dataclass(frozen=True, slots=True)
class RankChange:
    """Rank of a submission before and after a switch, by the rounded primary score.

    Ties share the better rank; None means unranked.
    """

    submission_id: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class RankChanges:
    """Rank changes of a switch; `dropped` are the submissions without a score on the new version."""

    benchmark: str
    old: str
    new: str
    changes: tuple[RankChange, ...]
    dropped: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"changes": [asdict(change) for change in self.changes], "dropped": list(self.dropped)}


def start_refresh(connection: sa.Connection, benchmark: str, version: str, *, who: str) -> int:
    """Queue all submissions that show their own scores, and have none on `version`, for scoring against `version`.

    Returns
    -------
    number of queued jobs. Call the function again for submissions that were scored on the old version in the meantime,
    or whose job failed.

    Raises
    ------
    LookupError
        If the board is unknown.
    RefreshError
        If the version is unknown, is or was on the board, or if one version reveals references of the other. A new
        version may publish the holdout of the current version, but only while the board is not open.
    """
    current = board_row(connection, benchmark, lock=True)
    _waiting_version(connection, benchmark, version)
    _check_overlaps(connection, current, version)
    wanted = [row.submission_id for row in _own_scores(connection, benchmark, current.version)]
    there = {row.submission_id for row in _own_scores(connection, benchmark, version)}
    put = [Queue.put(connection, "rescore", benchmark, version, i) for i in sorted(set(wanted) - there)]
    n = len(put)
    why = f"{n} submissions are scored against version {version}"
    events.append(connection, subject=f"board:{benchmark}", who=who, to_status="refreshing", why=why)
    return n


def progress(connection: sa.Connection, benchmark: str, version: str) -> Progress:
    """Return how many stored submissions were scored against `version`."""
    query = (
        sa.select(jobs.c.status, sa.func.count())
        .where(jobs.c.kind == "rescore", jobs.c.benchmark == benchmark, jobs.c.version == version)
        .group_by(jobs.c.status)
    )
    n = {row[0]: int(row[1]) for row in connection.execute(query)}
    total, done = sum(n.values()), n.get("done", 0)
    left = n.get("queued", 0) + n.get("leased", 0)
    return Progress(total, done, total - done - left, left)


def carried_words(connection: sa.Connection, benchmark: str, version: str) -> list[str]:
    """Return a sentence on each version or board that shares held-out cases with `version`."""
    return [
        f"{version} shares {percent_text(shared.share, 0)} of its cases with {shared.benchmark} {shared.version}: "
        + (
            "submissions scored there count by that share, and a team's sum is rounded up"
            if shared.benchmark == benchmark
            else "submissions scored there count in full"
        )
        for shared in shared_with(connection, benchmark, version)
    ]


def switch_version(connection: sa.Connection, benchmark: str, version: str, *, who: str) -> RankChanges:
    """Show `version` on the board, and freeze the previous version.

    Returns
    -------
    the rank changes; they are also stored, publicly, as `rank_changes` in the facts of the version

    Notes
    -----
    If the board is paused, submissions that wait for their first score are refused and refunded. If the board is closed
    and the new version has final scores, the board is paused, because these scores belong to the next round.

    Raises
    ------
    LookupError
        If the board is unknown.
    RefreshError
        If the version is unknown, is or was on the board, reveals or shares references as in :func:`start_refresh`, or
        if submissions are still to be scored.
    """
    current = board_row(connection, benchmark, lock=True)
    facts = _waiting_version(connection, benchmark, version).facts
    _check_overlaps(connection, current, version)
    if current.state == "paused":
        why = f"Version {version} replaced version {current.version} before this file was scored. Send it again."
        Queue.return_queued(connection, benchmark, current.version, who=who, why=why)
    _check_nothing_is_left(connection, benchmark, current.version, version)
    _copy_held(connection, benchmark, current.version, version)
    before, after = (_ranks(connection, benchmark, v) for v in (current.version, version))
    ids = sorted(before | after, key=lambda i: (after.get(i) or len(after) + 1, before.get(i) or 0, i))
    moves = tuple(RankChange(i, before.get(i), after.get(i)) for i in ids)
    dropped = tuple(change.submission_id for change in moves if change.after is None)
    changes = RankChanges(benchmark, current.version, version, moves, dropped)
    at = moment(connection)
    of_board = versions.c.benchmark == benchmark
    freeze(connection, benchmark, current.version)
    connection.execute(versions.update().where(of_board, versions.c.version == current.version).values(frozen_at=at))
    show = versions.update().where(of_board, versions.c.version == version)
    connection.execute(show.values(shown_at=at, facts={**facts, "rank_changes": changes.to_json()}))
    connection.execute(boards.update().where(boards.c.benchmark == benchmark).values(version=version, changed_at=at))
    if current.state == "closed" and has_final(connection, benchmark, version):
        set_paused = boards.update().where(boards.c.benchmark == benchmark)
        connection.execute(set_paused.values(state="paused", why=f"version {version} is shown now; its round begins"))
    Queue.put(connection, "rank", benchmark, version, "board")
    if current.state != "closed" and has_final(connection, benchmark, current.version):
        Queue.put(connection, "rank", benchmark, current.version, "board")  # by its final scores, which are shown now
    why = f"version {version} replaced version {current.version}; {len(dropped)} submissions dropped"
    events.append(connection, subject=f"board:{benchmark}", who=who, to_status="switched", why=why)
    return changes


def _waiting_version(connection: sa.Connection, benchmark: str, version: str) -> sa.Row[Any]:
    row = version_row(connection, benchmark, version)
    if row.shown_at is not None:
        raise RefreshError(f"version {version} of {benchmark} is or was already on the board")
    return row


def _check_overlaps(connection: sa.Connection, current: sa.Row[Any], version: str) -> None:
    name = current.benchmark
    for (other, _), sentence in overlaps_of(connection, name, version).items():
        if other == name:
            raise RefreshError(
                f"version {version} must have references that no earlier version reveals, but {sentence}. Build "
                f"it with --previous and --previous-holdout, or name {name} in its `accepted_overlaps` and restart the "
                "server"
            )
    retired = overlaps_of(connection, name, current.version).get((name, version))
    if retired is not None and current.state == "open":
        raise RefreshError(f"{retired}, which the board still scores: pause the board first")


def _own_scores(connection: sa.Connection, benchmark: str, version: str) -> list[sa.Row[Any]]:
    """Return the public scores on a version, oldest first, without submissions that show other submissions' scores."""
    query = (
        sa.select(scores)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version, scores.c.part == "public")
        .where(scores.c.shown_of == scores.c.submission_id)
        .order_by(scores.c.scored_at, scores.c.submission_id)
    )
    return list(connection.execute(query))


def _check_nothing_is_left(connection: sa.Connection, benchmark: str, old: str, new: str) -> None:
    live = jobs.c.status.in_(("queued", "leased"))
    for kind, version, what in (("rescore", new, "against the new version"), ("score", old, "against the old one")):
        query = sa.select(sa.func.count()).select_from(jobs).where(live, jobs.c.benchmark == benchmark)
        n = connection.execute(query.where(jobs.c.kind == kind, jobs.c.version == version)).scalar_one()
        if n:
            hint = "; pause the board to return them uncharged" if kind == "score" else ""
            raise RefreshError(f"{n} submissions of {benchmark} are still to be scored {what}{hint}")
    tried = sa.select(jobs.c.subject).where(
        jobs.c.kind == "rescore", jobs.c.benchmark == benchmark, jobs.c.version == new
    )
    subjects = set(connection.execute(tried).scalars())
    missing = [row for row in _own_scores(connection, benchmark, old) if row.submission_id not in subjects]
    if missing:
        words = "are not queued to be scored against the new version: run the refresh without the switch first"
        raise RefreshError(f"{len(missing)} submissions of {benchmark} {words}")


def _copy_held(connection: sa.Connection, benchmark: str, old: str, new: str) -> None:
    """Let each held-back submission show the new scores of the submission whose old scores it shows."""
    own = {row.submission_id: row for row in _own_scores(connection, benchmark, new)}
    query = (
        sa.select(scores.c.submission_id, scores.c.shown_of)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == old, scores.c.part == "public")
        .where(scores.c.shown_of != scores.c.submission_id)
    )
    for held in connection.execute(query).all():
        if held.shown_of in own:
            values = {**own[held.shown_of]._mapping, "submission_id": held.submission_id}
            insert_if_absent(connection, scores, values)


def _ranks(connection: sa.Connection, benchmark: str, version: str) -> dict[str, int]:
    """Return submission id -> rank on a version's board, by the rounded primary score; without this score, no rank."""
    values: dict[str, float] = {}
    for row in on_board(connection, benchmark, version):
        figure = primary_figure(ReleasedScore.from_json(row.score_released))
        if figure is not None:
            values[row.id] = figure.value
    return {i: 1 + sum(other > value for other in values.values()) for i, value in values.items()}
