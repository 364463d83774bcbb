"""Consequences of scoring a submission: which scores it shows, whether it is charged, and flags for moderators.

Conventions
-----------
The column `shown_of` of a score is the id of the submission whose scores are shown. This is another submission in two
cases:

* The ladder held the submission back, because it does not exceed the team's best by the ladder's step. The result "not
  better" reveals information, so the submission is charged.
* The team sent the same predictions before. The submission reveals nothing new, so it is refunded. If the earlier
  submissions were withdrawn, and an admin hid none of them, the new submission replaces them and shows its own scores.

If the holdout is too small to release any value, the submission is refunded as well; this depends only on the
references, so it reveals nothing. The ladder considers all scores that a team saw on this version, including those of
withdrawn and hidden submissions, because otherwise a withdrawal would reset the ladder. The caller must lock the team's
row, so that two workers decide one after the other. Only released, rounded scores are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa

from reveal_bench.words import count_text
from reveal_leaderboard.release.fingerprints import Fingerprint, is_near
from reveal_leaderboard.release.release import ReleasedScore, climb, primary_figure
from reveal_leaderboard.settings import BenchmarkSettings, ReleasePolicy
from reveal_leaderboard.store.database import insert_if_absent, moment
from reveal_leaderboard.store.scores import (
    Score,
    ScoringVerdict,
    Signing,
    holder_of,
    raise_flag,
    shows_its_own,
    twins_of,
)
from reveal_leaderboard.store.submissions import Submission, get_known
from reveal_leaderboard.store.tables import fingerprints, scores, submissions


@dataclass(frozen=True)
class ScoredOutcome:
    """Result of scoring before the ladder: the released scores of each part.

    Attributes
    ----------
    final : scores of the part that ranks a closed board; None without such a part
    reference_hash : salted hash of the references, 64 hexadecimal digits
    fingerprint : fingerprint of the canonical predictions
    signs : sentences for moderators about the file, which do not depend on references
    """

    released: ReleasedScore
    final: ReleasedScore | None
    reference_hash: str
    fingerprint: Fingerprint
    signs: tuple[str, ...] = ()

    @property
    def has_figures(self) -> bool:
        """True if any value is released; otherwise the holdout is too small."""
        return any(part.shown for part in (self.released, self.final) if part is not None)

    def record(
        self,
        connection: sa.Connection,
        submission_id: str,
        version: str,
        settings: BenchmarkSettings,
        *,
        is_first: bool,
        who: str,
        sign: Signing | None,
    ) -> ScoringVerdict:
        """Write a submission's scores, fingerprint, receipts and flags; return the verdict.

        Parameters
        ----------
        is_first : False if the submission was scored before on another version; it then shows its own scores

        Notes
        -----
        Each score gets its receipt at once. Receipts of final scores are withheld until the round ends, like the
        scores.
        """
        submission = get_known(connection, submission_id)
        own = _score(submission_id, version, "public", self.released, self.reference_hash, moment(connection))
        score, verdict = own, ScoringVerdict(True, submission_id, "")
        if is_first:
            score, verdict = _decide(connection, submission, own, self, settings.release)
            _choose(connection, submission, is_shown=not score.is_held)
        if not insert_if_absent(connection, scores, asdict(score)):
            if is_first:
                raise ValueError(f"`submission_id` must have no score of version {version} yet, got {submission_id}")
            return verdict
        written = [score]
        if self.final is not None and not score.is_held:
            final = _score(submission_id, version, "final", self.final, self.reference_hash, own.scored_at)
            connection.execute(scores.insert().values(**asdict(final)))
            written.append(final)
        near = settings.exposure.near
        look_alikes = _look_alikes(connection, submission, version, self.fingerprint, near) if is_first else []
        mark = {"content": self.fingerprint.content, "sketch": list(self.fingerprint.sketch)}
        place = {"submission_id": submission_id, "version": version, "benchmark": submission.benchmark}
        insert_if_absent(connection, fingerprints, place | mark)
        if sign is not None:
            for one in written:
                sign(connection, submission, one)
        for detail in self.signs if is_first else ():
            raise_flag(connection, submission_id, "degenerate", None, detail, who=who)
        for kind, other_id, detail in look_alikes:
            raise_flag(connection, submission_id, kind, other_id, detail, who=who)
        return verdict


def _score(
    submission_id: str, version: str, part: str, released: ReleasedScore, reference_hash: str, at: float
) -> Score:
    document = released.to_json()
    return Score(submission_id, version, part, document, submission_id, released.signature, reference_hash, at)


def _decide(
    connection: sa.Connection, submission: Submission, own: Score, outcome: ScoredOutcome, policy: ReleasePolicy
) -> tuple[Score, ScoringVerdict]:
    """Decide which scores a submission shows when it is scored for the first time, and whether it is charged."""
    twins = twins_of(connection, submission, own.version, outcome.fingerprint.content)
    if twins:
        holder = holder_of(twins)
        is_free = holder is None and any(shows_its_own(twin) for twin in twins)  # if so, none of them is on the board
        first = holder or twins[0]
        why = f"the same predictions as submission {first.submission_id}; nothing is charged"
        score = own if is_free else _as_of(own, first)
        return score, ScoringVerdict(False, score.shown_of, why)
    if not outcome.has_figures:
        released = {**own.released, "note": f"{own.released['note']} Nothing is charged."}
        return replace(own, released=released), ScoringVerdict(
            False, submission.id, "no score can be shown; nothing is charged"
        )
    best = _best(_shown_before(connection, submission, own.version, policy))
    if best is None or climb(outcome.released, ReleasedScore.from_json(best.released), policy):
        return own, ScoringVerdict(True, submission.id, "")
    why = (
        f"not better than submission {best.submission_id} by the step of the ladder, so the scores of that submission "
        "are shown again"
    )
    return _as_of(own, best), ScoringVerdict(True, best.shown_of, why)


def _best(rows: Sequence[sa.Row[Any]]) -> sa.Row[Any] | None:
    """Return the row with the highest primary score, the first of equal ones; rows without it rank last."""

    def value(row: sa.Row[Any]) -> float:
        figure = primary_figure(ReleasedScore.from_json(row.released))
        return -math.inf if figure is None else figure.value

    return max(rows, key=value, default=None)


def _as_of(own: Score, other: sa.Row[Any]) -> Score:
    return Score(
        own.submission_id, own.version, own.part, other.released, other.shown_of, other.signature,
        other.reference_hash, own.scored_at,
    )  # fmt: skip


def _shown_before(
    connection: sa.Connection, submission: Submission, version: str, policy: ReleasePolicy
) -> Sequence[sa.Row[Any]]:
    """Return the scores that the team saw on this version (with `ladder_per` = "model": of this model), oldest
    first.
    """
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
    """Make a newly shown submission the chosen one of its model on this version."""
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
    """Return flags (kind, other submission, detail) for predictions that equal, or nearly equal, earlier
    predictions.
    """
    query = (
        sa.select(fingerprints, submissions.c.team_id)
        .join(submissions, submissions.c.id == fingerprints.c.submission_id)
        .where(fingerprints.c.benchmark == submission.benchmark, fingerprints.c.version == version)
        .where(fingerprints.c.submission_id != submission.id)
        .order_by(submissions.c.created_at, submissions.c.id)
    )
    by_kind: dict[str, list[str]] = {}
    for row in connection.execute(query):
        is_own = row.team_id == submission.team_id
        if row.content == fingerprint.content:
            if not is_own:
                by_kind.setdefault("duplicate", []).append(row.submission_id)
        elif is_near(Fingerprint(row.content, tuple(row.sketch)), fingerprint, near):
            by_kind.setdefault("probing" if is_own else "near_duplicate", []).append(row.submission_id)
    words = {
        "duplicate": "the same predictions as {n} of other teams, first {first}",
        "near_duplicate": "nearly the same predictions as {n} of other teams, first {first}",
        "probing": "nearly the same predictions as {n} of the same team, first {first}",
    }
    counts = {kind: count_text(len(ids), "submission") for kind, ids in by_kind.items()}
    return [(kind, ids[0], words[kind].format(n=counts[kind], first=ids[0])) for kind, ids in by_kind.items()]
