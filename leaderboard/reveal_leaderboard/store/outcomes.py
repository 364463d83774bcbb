"""What follows from a scored submission: which figures it shows, what it is charged, and what moderators are told.

Conventions
-----------
A score row says with `shown_of` whose figures it shows. They are another submission's

* when the ladder held it back: it is not better than its team's best by the step. It says "not better than that one",
  which is an answer, so it is charged;
* when its team sent the same predictions before: nothing new was said, so it is refunded. If they were withdrawn since,
  and none of them was hidden by an admin, it takes their place and shows its own figures.

The ladder looks at all that a team was ever shown on this version, withdrawn and hidden submissions included, else
withdrawing would reset it. The team's row must be locked by the caller, so that two workers decide one after the other.
Only released, rounded figures are read here.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from reveal_leaderboard.release.fingerprints import Fingerprint, is_near
from reveal_leaderboard.release.release import ReleasedScore, ReleasePolicy, climb, primary_figure
from reveal_leaderboard.settings import BenchmarkSettings
from reveal_leaderboard.store import events
from reveal_leaderboard.store.database import insert_if_absent, moment
from reveal_leaderboard.store.submissions import Submission, get_known
from reveal_leaderboard.store.tables import fingerprints, flags, results, scores, submissions

__all__ = [
    "Score", "ScoredOutcome", "Signing", "Verdict", "freeze", "on_board", "place_holder", "raise_flag", "record",
]  # fmt: skip


@dataclass(frozen=True)
class ScoredOutcome:
    """What comes back from scoring: the released figures of each part, before the ladder.

    Attributes
    ----------
    final : figures of the part that is kept for announced rounds, if the benchmark has one
    reference_hash : salted hash of the references, 64 hexadecimal digits
    fingerprint : of the canonical predictions
    signs : sentences for moderators about the file, which depend on no reference
    """

    released: ReleasedScore
    final: ReleasedScore | None
    reference_hash: str
    fingerprint: Fingerprint
    signs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """A score as it is shown: `released` is the JSON form of :class:`reveal_leaderboard.release.release.ReleasedScore`.

    Attributes
    ----------
    part : "public" or "final"
    shown_of : the submission whose figures these are
    """

    submission_id: str
    version: str
    part: str
    released: Mapping[str, Any]
    shown_of: str
    signature: str
    reference_hash: str
    scored_at: float

    @property
    def is_held(self) -> bool:
        """Whether it shows the figures of another submission."""
        return self.shown_of != self.submission_id


Signing = Callable[[sa.Connection, Submission, Score], object]
"""Makes the receipt of a score in the transaction that writes it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a scored submission: whether it is charged, whose figures it shows, and why if not its own."""

    is_charged: bool
    shown_of: str
    why: str


def record(
    connection: sa.Connection,
    submission_id: str,
    version: str,
    outcome: ScoredOutcome,
    settings: BenchmarkSettings,
    *,
    is_first: bool,
    who: str,
    sign: Signing | None,
) -> Verdict:
    """Write the score rows of a submission, its fingerprint, its receipts and its flags.

    Parameters
    ----------
    is_first : False for a submission that is scored again against another version: it always shows its own figures, and
        those that are there already stay

    Notes
    -----
    Each row gets its receipt at once. Those of final figures are withheld like the figures, until a round ends.
    """
    submission = get_known(connection, submission_id)
    own = _score(submission_id, version, "public", outcome.released, outcome.reference_hash, moment(connection))
    score, verdict = own, Verdict(True, submission_id, "")
    if is_first:
        score, verdict = _decide(connection, submission, own, outcome, settings.release)
        _choose(connection, submission, is_shown=not score.is_held)
    if not insert_if_absent(connection, scores, asdict(score)):
        if is_first:
            raise ValueError(f"`submission_id` must have no score of version {version} yet, got {submission_id}")
        return verdict
    written = [score]
    if outcome.final is not None and not score.is_held:
        final = _score(submission_id, version, "final", outcome.final, outcome.reference_hash, own.scored_at)
        connection.execute(scores.insert().values(**asdict(final)))
        written.append(final)
    near = settings.exposure.near
    found = _look_alikes(connection, submission, version, outcome.fingerprint, near) if is_first else []
    mark = {"content": outcome.fingerprint.content, "sketch": list(outcome.fingerprint.sketch)}
    place = {"submission_id": submission_id, "version": version, "benchmark": submission.benchmark}
    insert_if_absent(connection, fingerprints, place | mark)
    if sign is not None:
        for one in written:
            sign(connection, submission, one)
    for detail in outcome.signs if is_first else ():
        raise_flag(connection, submission_id, "degenerate", None, detail, who=who)
    for kind, other_id, detail in found:
        raise_flag(connection, submission_id, kind, other_id, detail, who=who)
    return verdict


def on_board(connection: sa.Connection, benchmark: str, version: str) -> list[sa.Row[Any]]:
    """Rows (submission columns, then score columns as `score_NAME`) that a version shows, oldest submission first.

    Those are the public scores of submissions that show their own figures and are neither withdrawn nor hidden, one
    for each model of a team: the one it chose, else the newest. A version that was frozen shows what it showed then
    (:func:`freeze`), less what was hidden since: what teams choose and withdraw later is of the version after it.
    """
    kept = _frozen(connection, benchmark, version)
    columns = [column.label(f"score_{column.name}") for column in scores.columns]
    query = (
        sa.select(submissions, *columns)
        .join(scores, scores.c.submission_id == submissions.c.id)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version, scores.c.part == "public")
        .where(scores.c.shown_of == scores.c.submission_id, submissions.c.status == "scored")
        .where(submissions.c.hidden_at.is_(None))
        .order_by(submissions.c.created_at, submissions.c.id)
    )
    if kept is not None:
        return [row for row in connection.execute(query) if row.id in kept]
    query = query.where(submissions.c.withdrawn_at.is_(None))
    shown: dict[tuple[str, str], sa.Row[Any]] = {}
    for row in connection.execute(query):
        model = (row.team_id, row.model_name)
        if model not in shown or row.is_chosen or not shown[model].is_chosen:
            shown[model] = row
    return sorted(shown.values(), key=lambda row: (row.created_at, row.id))


def freeze(connection: sa.Connection, benchmark: str, version: str) -> None:
    """Write down what a version shows: from now on it shows nothing else."""
    document = {"entries": [row.id for row in on_board(connection, benchmark, version)]}
    key = {"kind": "frozen", "benchmark": benchmark, "version": version, "subject": "board"}
    connection.execute(results.insert().values(**key, document=document, computed_at=moment(connection)))


def place_holder(connection: sa.Connection, submission: Submission, version: str) -> str | None:
    """The other submission of its team, with the same predictions, that bars a scored one from the board, if any.

    That is one that is there in its place, or one that an admin hid: what is hidden does not come back by another name.
    """
    mine = (fingerprints.c.submission_id == submission.id, fingerprints.c.version == version)
    content = connection.execute(sa.select(fingerprints.c.content).where(*mine)).scalar_one_or_none()
    holder = None if content is None else _holder(_twins(connection, submission, version, content))
    return None if holder is None else str(holder.submission_id)


def raise_flag(
    connection: sa.Connection, submission_id: str, kind: str, other_id: str | None, detail: str, *, who: str = "store"
) -> str:
    """Tell the moderators something about a submission; returns the flag's id."""
    flag_id = secrets.token_hex(16)
    values = {"submission_id": submission_id, "kind": kind, "other_id": other_id, "detail": detail[:500]}
    connection.execute(flags.insert().values(id=flag_id, raised_at=moment(connection), **values))
    why = f"{kind} of submission {submission_id}"
    events.append(connection, subject=f"flag:{flag_id}", who=who, to_status="raised", why=why)
    return flag_id


def _score(
    submission_id: str, version: str, part: str, released: ReleasedScore, reference_hash: str, at: float
) -> Score:
    document = released.to_json()
    return Score(submission_id, version, part, document, submission_id, released.signature, reference_hash, at)


def _decide(
    connection: sa.Connection, submission: Submission, own: Score, outcome: ScoredOutcome, policy: ReleasePolicy
) -> tuple[Score, Verdict]:
    """Whose figures a submission shows when it is scored for the first time."""
    twins = _twins(connection, submission, own.version, outcome.fingerprint.content)
    if twins:
        holder = _holder(twins)
        is_free = holder is None and any(_is_own(twin) for twin in twins)  # then their place is empty
        first = holder or twins[0]
        why = f"the same predictions as submission {first.submission_id}; nothing is charged"
        score = own if is_free else _as_of(own, first)
        return score, Verdict(False, score.shown_of, why)
    best = _best(_shown_before(connection, submission, own.version, policy))
    if best is None or climb(outcome.released, ReleasedScore.from_json(best.released), policy):
        return own, Verdict(True, submission.id, "")
    why = f"not better than submission {best.submission_id} by the step of the ladder, whose figures are shown again"
    return _as_of(own, best), Verdict(True, best.shown_of, why)


def _best(rows: Sequence[sa.Row[Any]]) -> sa.Row[Any] | None:
    """The row of the highest primary figure, the first of equal ones; rows without one come last."""

    def value(row: sa.Row[Any]) -> float:
        figure = primary_figure(ReleasedScore.from_json(row.released))
        return -math.inf if figure is None else figure.value

    return max(rows, key=value, default=None)


def _as_of(own: Score, other: sa.Row[Any]) -> Score:
    return Score(
        own.submission_id, own.version, own.part, other.released, other.shown_of, other.signature,
        other.reference_hash, own.scored_at,
    )  # fmt: skip


def _twins(connection: sa.Connection, submission: Submission, version: str, content: str) -> Sequence[sa.Row[Any]]:
    """The scores of the same team for the same predictions, oldest first."""
    query = (
        sa.select(scores, submissions.c.withdrawn_at, submissions.c.hidden_at)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .join(
            fingerprints,
            sa.and_(fingerprints.c.submission_id == scores.c.submission_id, fingerprints.c.version == scores.c.version),
        )
        .where(submissions.c.team_id == submission.team_id, submissions.c.benchmark == submission.benchmark)
        .where(scores.c.version == version, scores.c.part == "public", fingerprints.c.content == content)
        .where(submissions.c.id != submission.id)
        .order_by(scores.c.scored_at, scores.c.submission_id)
    )
    return connection.execute(query).all()


def _holder(twins: Sequence[sa.Row[Any]]) -> sa.Row[Any] | None:
    """Which of the same predictions keeps the others off the board: a hidden one, else one that is not withdrawn."""
    hidden = [twin for twin in twins if twin.hidden_at is not None]
    there = [twin for twin in twins if _is_own(twin) and twin.withdrawn_at is None]
    return next(iter([*hidden, *there]), None)


def _is_own(score: sa.Row[Any]) -> bool:
    return bool(score.shown_of == score.submission_id)


def _frozen(connection: sa.Connection, benchmark: str, version: str) -> frozenset[str] | None:
    """Ids of what a frozen version showed; None for one that is not frozen."""
    key = {"kind": "frozen", "benchmark": benchmark, "version": version, "subject": "board"}
    document = connection.execute(sa.select(results.c.document).filter_by(**key)).scalar_one_or_none()
    return None if document is None else frozenset(document["entries"])


def _shown_before(
    connection: sa.Connection, submission: Submission, version: str, policy: ReleasePolicy
) -> Sequence[sa.Row[Any]]:
    """What the team, or its model, was shown on this version, oldest first."""
    query = (
        sa.select(scores)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .where(submissions.c.team_id == submission.team_id, submissions.c.benchmark == submission.benchmark)
        .where(scores.c.version == version, scores.c.part == "public", submissions.c.id != submission.id)
        .where(scores.c.shown_of == scores.c.submission_id)
        .order_by(scores.c.scored_at, scores.c.submission_id)
    )
    if policy.ladder_per == "model":
        query = query.where(submissions.c.model_name == submission.model_name)
    return connection.execute(query).all()


def _choose(connection: sa.Connection, submission: Submission, *, is_shown: bool) -> None:
    """A newly shown submission takes the place of its model's others of the same version."""
    if is_shown:
        names = ("team_id", "benchmark", "version", "model_name")
        same = (submissions.c[name] == getattr(submission, name) for name in names)
        others = submissions.update().where(*same, submissions.c.is_chosen)
        connection.execute(others.values(is_chosen=False))
    mine = submissions.update().where(submissions.c.id == submission.id)
    connection.execute(mine.values(is_chosen=is_shown))


def _look_alikes(
    connection: sa.Connection, submission: Submission, version: str, fingerprint: Fingerprint, near: float
) -> list[tuple[str, str, str]]:
    """Flags (kind, other submission, detail) for predictions that were, or nearly were, sent before."""
    query = (
        sa.select(fingerprints, submissions.c.team_id)
        .join(submissions, submissions.c.id == fingerprints.c.submission_id)
        .where(fingerprints.c.benchmark == submission.benchmark, fingerprints.c.version == version)
        .where(fingerprints.c.submission_id != submission.id)
        .order_by(submissions.c.created_at, submissions.c.id)
    )
    found: dict[str, list[str]] = {}
    for row in connection.execute(query):
        is_own = row.team_id == submission.team_id
        if row.content == fingerprint.content:
            if not is_own:
                found.setdefault("duplicate", []).append(row.submission_id)
        elif is_near(Fingerprint(row.content, tuple(row.sketch)), fingerprint, near):
            found.setdefault("probing" if is_own else "near_duplicate", []).append(row.submission_id)
    words = {
        "duplicate": "the same predictions as {n} submissions of other teams, the first is {first}",
        "near_duplicate": "nearly the predictions of {n} submissions of other teams, the first is {first}",
        "probing": "nearly the predictions of {n} submissions of the same team, the first is {first}",
    }
    return [(kind, ids[0], words[kind].format(n=len(ids), first=ids[0])) for kind, ids in found.items()]
