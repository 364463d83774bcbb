"""Compute the content of a board (entries, ranks, published rows) for the page, the API and the exports.

Conventions
-----------
A board consists of released scores (rounded, without small cells), the ranks that a worker computed
(:mod:`reveal_leaderboard.release.ranking`), and published rows. All members of a tier share a rank and a range of
ranks. Inside a tier, entries are listed by released score and then by arrival; this order has no meaning. A submission
that was scored after the last ranking is *new*: it is listed after the ranked entries, without a rank. Submissions
without a released primary score come last.

A board belongs to one version. The board of an earlier version is *frozen*: it stays as it was when the next version
was shown, except for entries that an admin hid later.

A paper may cite an entry that its team withdraws later. So the page of a withdrawn entry still shows its team and the
time of withdrawal, but never its scores. Entries that an admin hid, or that only their team ever saw, look to all other
users like unknown ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import sqlalchemy as sa

from reveal_bench.analyses.published import ReferenceRow, read_reference_rows
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS, Metric
from reveal_bench.metrics.bootstrap import MACRO
from reveal_leaderboard.boards.catalogue import Published
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore, ranking_metric
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.boards import VersionRow
from reveal_leaderboard.store.database import iso_time
from reveal_leaderboard.store.scores import Part, ranked_part
from reveal_leaderboard.store.store import Score, Store, Submission
from reveal_leaderboard.store.tables import results

FINAL_RANKS = (
    "Final ranks, since the round ended on {day}: by the scores on patients that the public scores exclude. The public "
    "scores are shown beside."
)


class UnknownVersionError(ValueError):
    """The board never showed this version."""


@dataclass(frozen=True)
class BoardVersion:
    """Current or earlier version of the board, with UTC times such as 2026-11-21T23:05:00Z.

    `frozen_at` is None for the current version.
    """

    version: str
    shown_at: str
    frozen_at: str | None

    @property
    def is_current(self) -> bool:
        """True for the version that accepts submissions."""
        return self.frozen_at is None


@dataclass(frozen=True)
class BoardEntry:
    """A scored submission on the board.

    Attributes
    ----------
    rank, tier : rank and letter of the entry's tier, 1 and "A" for the best; None if not ranked
    rank_low, rank_high : bounds of the rank interval, see :mod:`reveal_leaderboard.release.ranking`
    is_new : True if scored after the last ranking, so not ranked yet
    public : once the final scores in `score` are shown, the earlier public scores; otherwise None
    version : version of the benchmark
    date : UTC day on which the submission was sent
    """

    submission_id: str
    model: str
    model_version: str
    team: str
    kind: str
    prompt_style: str | None
    date: str
    version: str
    score: ReleasedScore
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    tier: str | None = None
    is_new: bool = False
    public: ReleasedScore | None = None

    def figure(self, metric: str, finding: str = MACRO) -> ReleasedEstimate | None:
        """Return the score of a metric and finding; None if it is not released."""
        return self.score.figure(metric, finding)

    @property
    def public_figures(self) -> tuple[ReleasedEstimate, ...]:
        """The earlier public scores, once `score` is the final one."""
        return () if self.public is None else self.public.figures

    @property
    def place(self) -> str:
        """Rank as text: "2-5", "3", "new, being placed" or "not placed"."""
        if self.rank_low is not None and self.rank_high is not None:
            return str(self.rank_low) if self.rank_low == self.rank_high else f"{self.rank_low}-{self.rank_high}"
        return "new, being placed" if self.is_new else "not placed"


@dataclass(frozen=True)
class Standings:
    """Board of one version of a benchmark.

    Attributes
    ----------
    kind : key of `KINDS`; for tasks, the rubric's criteria take the place of findings
    part : part of the findings that the benchmark asks, such as "5 of 14 findings"; empty if it asks all
    metrics : metrics of the columns, the primary metric first
    hidden : findings with too few cases to be shown
    entries : ranked entries, then new entries, then entries without a primary score
    references : published rows, never ranked
    synthetic : whether the benchmark's data are synthetic
    comparable : whether the reference rows were measured on the dataset and findings from which this split was taken
    history : current and earlier versions of the board, newest first
    ranked_at : UTC time at which the ranks were computed; None before the first ranking
    notes : sentences about the board, for its page
    n_items : number of held-out images, studies or tasks; None if the version's folder did not state it
    n_patients : number of patients with these items; None if the ranks do not use all items, or if each item counts as
        a patient
    chance : metric -> expected macro of random answers, rounded to 0.01
    ranked_part : part of the holdout by which the board ranks: "final" once the round is over and the board has final
        scores, otherwise "public"
    """

    benchmark: str
    title: str
    kind: str
    version: str
    split: str
    metrics: tuple[Metric, ...]
    findings: tuple[str, ...]
    hidden: tuple[str, ...]
    min_cell: int
    entries: tuple[BoardEntry, ...]
    references: tuple[ReferenceRow, ...]
    synthetic: bool
    comparable: bool
    history: tuple[BoardVersion, ...] = ()
    ranked_at: str | None = None
    notes: tuple[str, ...] = ()
    n_items: int | None = None
    n_patients: int | None = None
    chance: Mapping[str, float] = field(default_factory=dict)
    part: str = ""
    ranked_part: Part = "public"
    schema: ClassVar[int] = 2  # version of its JSON and Parquet format

    @property
    def primary(self) -> Metric:
        """The metric used for ranking."""
        return self.metrics[0]

    @property
    def comparable_references(self) -> tuple[ReferenceRow, ...]:
        """The published rows if they are comparable; otherwise none."""
        return self.references if self.comparable else ()

    @property
    def scored_by(self) -> str:
        """Who scores submissions: "program" or "readers"."""
        return KINDS[self.kind].scoring.scored_by

    @property
    def versions(self) -> tuple[str, ...]:
        """Names of all versions with a board, newest first."""
        return tuple(entry.version for entry in self.history)

    @property
    def is_frozen(self) -> bool:
        """True if a later version is on the board."""
        return any(entry.version == self.version and not entry.is_current for entry in self.history)


def board_metrics(benchmark: str, ranked_by: str = "") -> tuple[Metric, ...]:
    """Return the released metrics of a benchmark, the metric by which its board ranks first.

    Parameters
    ----------
    ranked_by : that metric; by default the kind's primary metric

    Examples
    --------
    >>> [metric.name for metric in board_metrics("chexlocalize")]
    ['point_hit', 'grid_hit', 'mask_iou_all']
    """
    asked = BENCHMARKS[benchmark]
    kind = KINDS[asked.kind]
    names = [name for name in asked.metrics or kind.release.metrics if name in kind.release.metrics]
    names.sort(key=lambda name: name != (ranked_by or kind.release.primary))
    return tuple(METRICS[name] for name in names)


def standings(store: Store, published: Published, version: str | None = None) -> Standings:
    """Return the standings of a benchmark's board.

    Parameters
    ----------
    published : the public dataset of any version of the benchmark
    version : version to show; by default the version of `published`

    Raises
    ------
    UnknownVersionError
        If the board has never shown this version, for example because it is still being scored.
    """
    name, version = published.name, version or published.version
    with store.read() as connection:
        history = boards.list_versions(connection, name)
        asked = next((row for row in history if row.version == version), None)
        if asked is None:  # found without a query, because PostgreSQL refuses NUL characters
            known = ", ".join(row.version for row in history) or "none"
            raise UnknownVersionError(
                f"`version` must be one that the board of {name} shows or has shown ({known}), got {version!r}"
            )
        part = ranked_part(connection, name, version)
        ranked = read_ranking(connection, name, version, part)
        ended_at = boards.board_row(connection, name).changed_at
    document, ranked_at = ranked
    ranked_by = ranking_metric(KINDS[published.kind], store.settings.of(name).release)
    if asked.frozen_at is not None:  # a later change of the settings does not change its ranks
        ranked_by = document.get("metric", ranked_by)
    public = {} if part == "public" else {s.id: score for s, score in store.board_rows(name, version, "public")}
    entries = [_entry(*pair, public) for pair in store.board_rows(name, version, part)]
    entries = _placed(entries, document, ranked_by)
    facts = _facts(published, asked)
    is_whole = not facts["part"] and not facts["synthetic"]
    references = tuple(read_reference_rows(name))
    board = Standings(
        benchmark=name,
        title=published.title,
        kind=published.kind,
        version=version,
        split=asked.split,
        metrics=board_metrics(name, ranked_by),
        findings=tuple(facts["findings"]),
        hidden=_hidden(entries, facts["findings"]),
        min_cell=_min_cell(entries, store, name),
        entries=tuple(entries),
        references=references,
        synthetic=bool(facts["synthetic"]),
        comparable=bool(references) and is_whole and all(row.is_of_test_split for row in references),
        history=tuple(_board_version(row) for row in reversed(history)),
        ranked_at=None if ranked_at is None else iso_time(ranked_at),
        n_items=facts.get(f"n_{published.items}"),
        chance={metric: percent / 100 for metric, percent in document.get("chance", {}).items()},
        part=facts["part"],
        ranked_part=part,
    )
    board = replace(board, n_patients=_n_patients(board, document))
    overlaps = published.overlaps if version == published.version and not board.is_frozen else ()
    if name not in store.settings.of(name).exposure.accepted_overlaps:  # a version that was never shown is not public
        overlaps = tuple(one for one in overlaps if one.holdout[0] != one.other[0])
    ended_at = ended_at if asked.frozen_at is None else asked.frozen_at
    return replace(
        board, notes=(*_notes(board, document, ended_at), *(f"Note that {one.sentence}." for one in overlaps))
    )


def read_ranking(
    connection: sa.Connection, benchmark: str, version: str, part: Part
) -> tuple[Mapping[str, Any], float | None]:
    """Return the ranking by `part` and the time of its computation; an empty dict and None before its first ranking."""
    of_board = {"kind": "rank", "benchmark": benchmark, "version": version, "subject": "board"}
    query = sa.select(results.c.document, results.c.computed_at).filter_by(**of_board)
    row = connection.execute(query).one_or_none()
    if row is None or row.document.get("part", "public") != part:
        return {}, None
    return row.document, float(row.computed_at)


def _facts(published: Published, asked: VersionRow) -> Mapping[str, Any]:
    """Return the facts of the requested version, from its folder if this server has it, otherwise from the database."""
    return published.facts() if asked.version == published.version else {**published.facts(), "part": "", **asked.facts}


def _entry(submission: Submission, score: Score, public: Mapping[str, Score]) -> BoardEntry:
    return BoardEntry(
        submission_id=submission.id,
        model=submission.model_name,
        model_version=str(submission.metadata.get("model", {}).get("version") or ""),
        team=submission.team,
        kind=submission.kind,
        prompt_style=submission.prompt_style,
        date=iso_time(submission.created_at)[:10],
        version=score.version,
        score=ReleasedScore.from_json(score.released),
        public=ReleasedScore.from_json(public[submission.id].released) if submission.id in public else None,
    )


def _placed(entries: list[BoardEntry], document: Mapping[str, Any], ranked_by: str) -> list[BoardEntry]:
    """Return the entries with their ranks, in the order of the board; the argument `entries` is in order of arrival."""
    places, known = document.get("entries", {}), set(document.get("computed_for", ()))
    placed = []
    for entry in entries:
        place = places.get(entry.submission_id)
        has_figure = entry.figure(ranked_by) is not None
        if place is not None and has_figure:
            entry = replace(entry, **{name: place[name] for name in ("rank", "rank_low", "rank_high", "tier")})
        else:
            entry = replace(entry, is_new=has_figure and entry.submission_id not in known)
        placed.append(entry)
    return sorted(placed, key=partial(_order, ranked_by))


def _order(ranked_by: str, entry: BoardEntry) -> tuple[float, ...]:
    figure = entry.figure(ranked_by)
    if figure is None:
        return (2,)
    sign = -1 if METRICS[figure.metric].better == "higher" else 1
    return (1, sign * figure.value) if entry.rank is None else (0, entry.rank, sign * figure.value)


def _hidden(entries: Iterable[BoardEntry], findings: Iterable[str]) -> tuple[str, ...]:
    hidden = {finding for entry in entries for finding in entry.score.hidden}
    return tuple(finding for finding in findings if finding in hidden)


def _min_cell(entries: Iterable[BoardEntry], store: Store, benchmark: str) -> int:
    """Return the largest `min_cell` with which the entries' scores were released; without entries, the current
    setting.
    """
    numbers = [int(entry.score.policy["min_cell"]) for entry in entries if "min_cell" in entry.score.policy]
    return max(numbers) if numbers else store.settings.of(benchmark).release.min_cell


def _board_version(row: VersionRow) -> BoardVersion:
    assert row.shown_at is not None, "lists shown versions only"
    return BoardVersion(row.version, iso_time(row.shown_at), None if row.frozen_at is None else iso_time(row.frozen_at))


def _n_patients(board: Standings, document: Mapping[str, Any]) -> int | None:
    """Return the number of patients; None if it is unknown, equals the number of items, or excludes a final part."""
    n = document.get("n_patients", 0)
    has_final_part = any(entry.score.policy.get("final_share") for entry in board.entries)
    return None if not n or has_final_part or (board.n_items is not None and n >= board.n_items) else int(n)


def _notes(board: Standings, document: Mapping[str, Any], ended_at: float) -> Iterable[str]:
    if board.is_frozen:
        current = next((entry.version for entry in board.history if entry.is_current), None)
        yield f"Frozen, not the current version{'' if current is None else f', which is {current}'}."
    if board.ranked_part == "final":
        yield FINAL_RANKS.format(day=iso_time(ended_at)[:10])
    n_new = sum(entry.is_new for entry in board.entries)
    if n_new:
        yield f"{n_new} new {'entry is' if n_new == 1 else 'entries are'} being placed."
    ids = {entry.submission_id for entry in board.entries}
    if set(document.get("computed_for", ())) - ids:
        again = "ranks on a frozen board stay unchanged" if board.is_frozen else "ranks are being computed again"
        yield f"An entry left the board after the ranks were computed; {again}."


def filtered(board: Standings, *, search: str = "", kind: str = "", organization: str = "") -> Standings:
    """Return the board with only the matching entries, whose ranks are still those among all entries.

    Parameters
    ----------
    search : words that must all occur in model, version, organization or prompt style, ignoring case
    kind, organization : exact values; an empty value matches all entries
    """
    words = search.casefold().split()

    def fits(entry: BoardEntry) -> bool:
        text = f"{entry.model} {entry.model_version} {entry.team} {entry.prompt_style or ''}".casefold()
        is_kind, is_team = kind in ("", entry.kind), organization in ("", entry.team)
        return is_kind and is_team and all(word in text for word in words)

    return replace(board, entries=tuple(entry for entry in board.entries if fits(entry)))


def sorted_by(board: Standings, metric: str, finding: str = MACRO, *, worst_first: bool = False) -> Standings:
    """Return the board with its entries sorted by a score, best first by default; entries without the score come last.

    Raises
    ------
    ValueError
        If `metric` is not on the board, or `finding` is neither a finding nor "macro".
    """
    column = next((column for column in board.metrics if column.name == metric), None)
    if column is None:
        raise ValueError(f"`metric` must be one of {[column.name for column in board.metrics]}, got {metric!r}")
    if finding != MACRO and finding not in board.findings:
        raise ValueError(f"`finding` must be {MACRO!r} or one of {list(board.findings)}, got {finding!r}")
    valued = [(figure.value, entry) for entry in board.entries if (figure := entry.figure(metric, finding)) is not None]
    valued.sort(key=lambda pair: pair[0], reverse=(column.better == "higher") != worst_first)
    without = [entry for entry in board.entries if entry.figure(metric, finding) is None]
    return replace(board, entries=(*(entry for _, entry in valued), *without))


@dataclass(frozen=True, slots=True)
class WithdrawnEntry:
    """Public facts of a withdrawn entry.

    Attributes
    ----------
    versions : versions of the benchmark on which the entry's own scores were public, oldest first
    frozen_on : those of `versions` whose frozen board still lists the entry
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
        """Return plain JSON values, with UTC times such as 2026-11-21T23:05:00Z."""
        names = ("submission_id", "model", "team", "benchmark")
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        fields |= {"versions": list(self.versions), "frozen_on": list(self.frozen_on)}
        return fields | {"sent_at": iso_time(self.sent_at), "withdrawn_at": iso_time(self.withdrawn_at)}


def is_public(submission: Submission, score: Score | None) -> bool:
    """Return True if all users may see a submission with this score: not withdrawn, hidden or held back by the
    ladder.
    """
    is_shown = submission.withdrawn_at is None and submission.hidden_at is None
    return is_shown and submission.status == "scored" and score is not None and not score.is_held


def read_withdrawn(store: Store, submission: Submission) -> WithdrawnEntry | None:
    """Return the public facts of a withdrawn submission; None if it was never public, or if an admin hid it."""
    at = submission.withdrawn_at
    if at is None or submission.hidden_at is not None or submission.status != "scored":
        return None
    name, sent_at = submission.benchmark, submission.created_at
    with store.read() as connection:
        known = {row.version: row for row in boards.list_versions(connection, name)}
    scores = [score for score in store.scores_of(submission.id) if score.part == "public" and not score.is_held]
    # A refresh scores withdrawn submissions as well, but on versions shown after the withdrawal nobody saw the scores.
    versions = tuple(s.version for s in scores if (known[s.version].shown_at or at) <= at)
    if not versions:
        return None
    listed = tuple(v for v in versions if known[v].frozen_at is not None and _is_listed(store, submission, v))
    return WithdrawnEntry(submission.id, submission.model_name, submission.team, name, versions, listed, sent_at, at)


def _is_listed(store: Store, submission: Submission, version: str) -> bool:
    return any(row.id == submission.id for row, _ in store.board_rows(submission.benchmark, version))
