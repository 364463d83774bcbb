"""What the person who asks may see of a submission.

Conventions
-----------
A scored submission is public unless it is withdrawn, hidden or held back by the ladder. Any other is seen only by its
team and the board's operators; everyone else gets the same answer as for an id that never existed. An entry that was
public until its team withdrew it is the exception: the answer says so, without its figures
(:mod:`reveal_leaderboard.boards.standings`). The reasons of events are shown to its team and the operators only, since
they are written to a team and may name other submissions.
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
    """A submission that the asker may see, with its score on the version asked for.

    Attributes
    ----------
    is_own : the asker is of its team, or an operator
    """

    submission: Submission
    score: Score | None
    is_public: bool
    is_own: bool


def is_own(actor: Actor | None, submission: Submission) -> bool:
    """Return True if `actor` is an administrator or belongs to the submission's team."""
    return actor is not None and (actor.is_admin or actor.belongs_to(submission.team_id))


def find_published(services: Services, benchmark: str, version: str | None = None) -> Published:
    """The public side of a benchmark, at the version that its board shows unless another is asked for.

    Raises
    ------
    ProblemError
        If it is not served, or its board has not shown that version yet.
    """
    catalogue = services.catalogue
    try:
        current = catalogue.current(benchmark)
    except UnknownBenchmarkError:
        raise ProblemError("unknown-benchmark", f"This board serves: {', '.join(catalogue.names)}.") from None
    if version is None:
        return current
    with services.store.read() as connection:
        shown = {row.version for row in boards.list_versions(connection, benchmark)}
    found = catalogue.get(benchmark, version)
    if found is None or version not in shown:
        served = ", ".join(one.version for one in catalogue.versions(benchmark) if one.version in shown)
        raise ProblemError("unknown-benchmark", f"Versions of {benchmark} on this board: {served}.")
    return found


def read_visible(services: Services, actor: Actor | None, submission_id: str, version: str | None = None) -> Visible:
    """A submission, if `actor` may see it.

    Raises
    ------
    ProblemError
        If there is none, or it is not theirs to see: the same answer for both. If it was public and is withdrawn.
    """
    submission = services.store.get(submission_id)
    if submission is None:
        raise ProblemError("not-found")
    visible = with_score(services, submission, version, is_own=is_own(actor, submission))
    if visible.is_own or visible.is_public:
        return visible
    gone = read_withdrawn(services.store, submission)
    raise ProblemError("not-found") if gone is None else ProblemError("withdrawn", entry=gone.to_json())


def read_own(services: Services, actor: Actor, submission_id: str) -> Submission:
    """A submission, if `actor` may change it.

    Raises
    ------
    ProblemError
        If it is not theirs to see, or not theirs to change.
    """
    submission = read_visible(services, actor, submission_id).submission
    if actor.team(submission.team_id) is None:
        raise ProblemError("not-yours")
    return submission


def matches_tag(tag: str, header: str | None) -> bool:
    """Whether the header `If-None-Match` names the tag."""
    return header is not None and tag in (name.strip().removeprefix("W/") for name in header.split(","))


def with_score(
    services: Services, submission: Submission, version: str | None = None, *, is_own: bool = False
) -> Visible:
    """A submission with its score, and whether everybody may see it."""
    score = services.store.score_of(submission.id, version)
    return Visible(submission, score, is_public(submission, score), is_own)


def submission_document(services: Services, visible: Visible) -> SubmissionDocument:
    """A submission as the API shows it."""
    return SubmissionDocument(**submission_fields(services, visible))


def submission_fields(services: Services, visible: Visible) -> dict[str, Any]:
    """The members of :func:`submission_document`."""
    submission, score = visible.submission, visible.score
    waiting = services.queue.position(submission.id) if submission.status in ("queued", "scoring") else None
    scored = [one for one in services.store.scores_of(submission.id) if one.part == "public"]
    return {
        **{name: getattr(submission, name) for name in _ROW_FIELDS},
        "url": f"{PREFIX}/submissions/{submission.id}",
        "is_public": visible.is_public,
        "queue_position": None if waiting is None else waiting.position,
        "expected_seconds": None if waiting is None else waiting.expected_seconds,
        "metadata": PublicMetadata.of(submission.metadata),
        "hidden_why": submission.hidden_why if submission.hidden_at is not None else None,
        "versions": sorted({one.version for one in scored}),
        "score": None if score is None else ScoreDocument.of(score),
        "events": submission_events(services, visible),
    }


def submission_events(services: Services, visible: Visible) -> list[EventDocument]:
    """What happened to a submission, oldest first; to visitors without the reasons."""
    events = services.store.events_of(visible.submission.id)
    return [EventDocument.of(event if visible.is_own else replace(event, why="")) for event in events]
