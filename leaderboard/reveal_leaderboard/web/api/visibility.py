"""Rules for which submissions a person may see or change, and which parts of a submission.

Conventions
-----------
A scored submission is public unless it is withdrawn, hidden or held back by the ladder. Only its team and the board's
operators see any other submission; everyone else gets the same answer as for an id that never existed. The exception is
an entry that was public until its team withdrew it: the answer says so, but shows no scores
(:mod:`reveal_leaderboard.boards.standings`). Only a submission's team and the operators see the reasons of its events,
since reasons are addressed to the team and may name other submissions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Path

from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.boards.standings import is_public, read_withdrawn
from reveal_leaderboard.store import boards
from reveal_leaderboard.web.api.documents import (
    EventDocument,
    PublicMetadata,
    ScoreDocument,
    SubmissionDocument,
)
from reveal_leaderboard.web.api.problems import ProblemError

if TYPE_CHECKING:
    from reveal_leaderboard.accounts.people import Actor
    from reveal_leaderboard.boards.catalogue import Published
    from reveal_leaderboard.store.store import Score, Submission
    from reveal_leaderboard.web.services import Services

PREFIX = "/api/v1"

ID = r"^[0-9a-f]{1,32}$"
SubmissionId = Annotated[str, Path(pattern=ID, examples=["9f86d081884c7d659a2feaa0"])]
_ROW_FIELDS = (
    "id", "status", "is_chosen", "benchmark", "version", "split", "allow_missing", "sha256", "created_at", "updated_at",
    "withdrawn_at", "incident",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Visible:
    """A submission that the caller may see, and its score on the requested version.

    Attributes
    ----------
    is_own : whether the caller belongs to the submission's team or is an operator
    """

    submission: Submission
    score: Score | None
    is_public: bool
    is_own: bool


def is_own(actor: Actor | None, submission: Submission) -> bool:
    """Return True if `actor` is an administrator or belongs to the submission's team."""
    return actor is not None and (actor.is_admin or actor.belongs_to(submission.team_id))


def find_published(services: Services, benchmark: str, version: str | None = None) -> Published:
    """Return the public dataset of a benchmark at a version, by default the version on its board.

    Raises
    ------
    ProblemError
        If the benchmark is not served, or its board has not shown that version yet.
    """
    catalogue = services.catalogue
    try:
        current = catalogue.current(benchmark)
    except UnknownBenchmarkError:
        raise ProblemError("unknown-benchmark", f"Benchmarks on this server: {', '.join(catalogue.names)}.") from None
    if version is None:
        return current
    with services.store.read() as connection:
        on_board = {row.version for row in boards.list_versions(connection, benchmark)}
    published = catalogue.get(benchmark, version)
    if published is None or version not in on_board:
        names = ", ".join(served.version for served in catalogue.versions(benchmark) if served.version in on_board)
        raise ProblemError("unknown-benchmark", f"Versions of {benchmark} on this board: {names}.")
    return published


def read_visible(services: Services, actor: Actor | None, submission_id: str, version: str | None = None) -> Visible:
    """Return a submission that `actor` may see.

    Raises
    ------
    ProblemError
        "not-found" if it does not exist or `actor` may not see it, "withdrawn" if it was public before.
    """
    submission = services.store.get(submission_id)
    if submission is None:
        raise ProblemError("not-found")
    visible = with_score(services, submission, version, is_own=is_own(actor, submission))
    if visible.is_own or visible.is_public:
        return visible
    withdrawn = read_withdrawn(services.store, submission)
    raise ProblemError("not-found") if withdrawn is None else ProblemError("withdrawn", entry=withdrawn.to_json())


def read_own(services: Services, actor: Actor, submission_id: str) -> Submission:
    """Return a submission that `actor` may change.

    Raises
    ------
    ProblemError
        The errors of :func:`read_visible`; "not-yours" if `actor` may see the submission but not change it.
    """
    submission = read_visible(services, actor, submission_id).submission
    if actor.team(submission.team_id) is None:
        raise ProblemError("not-yours")
    return submission


def matches_tag(tag: str, header: str | None) -> bool:
    """Return True if the header `If-None-Match` contains the tag."""
    return header is not None and tag in (name.strip().removeprefix("W/") for name in header.split(","))


def with_score(
    services: Services, submission: Submission, version: str | None = None, *, is_own: bool = False
) -> Visible:
    """Return a submission with its score, and whether all visitors may see the submission."""
    score = services.store.score_of(submission.id, version)
    return Visible(submission, score, is_public(submission, score), is_own)


def submission_document(services: Services, visible: Visible) -> SubmissionDocument:
    """Return a submission as the API shows it."""
    return SubmissionDocument(**submission_fields(services, visible))


def submission_fields(services: Services, visible: Visible) -> dict[str, Any]:
    """Return the members of :func:`submission_document`."""
    submission, score = visible.submission, visible.score
    waiting = services.queue.position(submission.id) if submission.status in ("queued", "scoring") else None
    by_version = {one.version: one for one in services.store.scores_of(submission.id) if one.part == "public"}
    public = by_version.get(score.version) if score is not None and score.part == "final" else None
    return {
        **{name: getattr(submission, name) for name in _ROW_FIELDS},
        "url": f"{PREFIX}/submissions/{submission.id}",
        "is_public": visible.is_public,
        "queue_position": None if waiting is None else waiting.position,
        "expected_seconds": None if waiting is None else waiting.expected_seconds,
        "metadata": PublicMetadata.of(submission.metadata),
        "hidden_why": submission.hidden_why if submission.hidden_at is not None else None,
        "versions": sorted(by_version),
        "score": None if score is None else ScoreDocument.of(score),
        "public_score": None if public is None else ScoreDocument.of(public),
        "events": submission_events(services, visible),
    }


def submission_events(services: Services, visible: Visible) -> list[EventDocument]:
    """Return the events of a submission, oldest first; visitors get no reasons."""
    events = services.store.events_of(visible.submission.id)
    return [EventDocument.of(event if visible.is_own else replace(event, why="")) for event in events]
