"""Which entries are public, and what everybody may know of one that was until its team withdrew it.

A paper may cite such an entry: its address says whose it was and when it was withdrawn, never its figures. What an
admin hid, and what nobody but its team ever saw, leaves nothing behind: to everybody else it is as an id that never
was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reveal_leaderboard.boards.standings import iso_time
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.store import Score, Store, Submission

__all__ = ["WithdrawnEntry", "is_public", "read_withdrawn"]


@dataclass(frozen=True, slots=True)
class WithdrawnEntry:
    """An entry of the past.

    Attributes
    ----------
    versions : of the benchmark on which its own figures were public, the oldest first
    frozen_on : those of them whose frozen board still lists it, since it stood there then
    sent_at, withdrawn_at : seconds since 1970
    """

    submission_id: str
    model: str
    team: str
    benchmark: str
    versions: tuple[str, ...]
    frozen_on: tuple[str, ...]
    sent_at: float
    withdrawn_at: float

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, with UTC times such as 2026-11-21T23:05:00Z."""
        names = ("submission_id", "model", "team", "benchmark")
        told: dict[str, Any] = {name: getattr(self, name) for name in names}
        told |= {"versions": list(self.versions), "frozen_on": list(self.frozen_on)}
        return told | {"sent_at": iso_time(self.sent_at), "withdrawn_at": iso_time(self.withdrawn_at)}


def is_public(submission: Submission, score: Score | None) -> bool:
    """Whether everybody may see a submission with this score of it: not withdrawn, hidden or held by the ladder."""
    is_shown = submission.withdrawn_at is None and submission.hidden_at is None
    return is_shown and submission.status == "scored" and score is not None and not score.is_held


def read_withdrawn(store: Store, submission: Submission) -> WithdrawnEntry | None:
    """What is left of a submission for everybody; None unless it was public and is withdrawn, and no admin hid it."""
    at = submission.withdrawn_at
    if at is None or submission.hidden_at is not None or submission.status != "scored":
        return None
    name, sent_at = submission.benchmark, submission.created_at
    with store.read() as connection:
        known = {row.version: row for row in boards.list_versions(connection, name)}
    scores = [score for score in store.scores_of(submission.id) if score.part == "public" and not score.is_held]
    # A refresh scores withdrawn submissions too; of the versions shown since, nobody saw its figures.
    versions = tuple(s.version for s in scores if (known[s.version].shown_at or at) <= at)
    if not versions:
        return None
    listed = tuple(v for v in versions if known[v].frozen_at is not None and _is_listed(store, submission, v))
    return WithdrawnEntry(submission.id, submission.model_name, submission.team, name, versions, listed, sent_at, at)


def _is_listed(store: Store, submission: Submission, version: str) -> bool:
    return any(row.id == submission.id for row, _ in store.board_rows(submission.benchmark, version))
