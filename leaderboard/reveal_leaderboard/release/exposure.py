"""The exposure meter: an upper bound on what the released scores reveal about a holdout version.

Conventions
-----------
Information is measured in bits (base-2 logarithms). *Revealed*: a score that is a count (hits, correct labels) of n
cases has n + 1 possible values, so it reveals at most log2(n + 1) bits. An IoU reveals at most log2 of its number of
rounded values. F1, recall and kappa of a label all reveal the same count. A score that the ladder held back reveals one
bit. *Contained*: the labels of a finding contain log2 of the number of ways to choose the n of N studies that have the
finding. For positional metrics, labels contain one bit per case, namely whether the position of a good model is right;
teams with two candidate positions per case need no more. Numbers of cases are the lower ends of the shown ranges, but
at least the number that a separate score, or an overlap, needs to be shown. A positional score is counted together with
its effect on the average, which is rounded more finely. Averages of hits that include a finding without a separate
score, such as grid hits, are counted with the finding's hit rate: if a file's cells contain its points, both metrics
test the same positions, and the average reveals the count again, in its own steps.

Teams that share a person, or whose predictions are near-identical, count as one group. A shared person is a member of
both teams or sent a submission for both. Administrators do not link teams, because they may look after many teams and
have no reason to probe the labels. Repeated predictions of a team reveal nothing new and are not counted. The result is
an upper bound. If the ratio of revealed to contained bits is below 1, the scores alone cannot determine all labels of a
finding. But a team with a good model gains from far fewer bits, and honest developers learn far less than the bound. So
the meter tells a maintainer when to look, not what happened.

Final scores count as further scores once they are shown. Submissions to other versions and boards that share held-out
cases are also counted, weighted by the shared fraction of this version's cases (:mod:`reveal_leaderboard.store.cases`).
Findings are matched across spellings and synonyms.

Nobody can see whether teams collude. So the meter adds up the bits of the `colluding` groups with the most bits about a
finding, and compares the sum with the bits in the labels. On 300 studies, five teams whose model has an AUROC of 0.9
gain 0.02 to 0.05 of macro F1 by the time the meter says "watch" (docs/operating.md, "What colluding teams can learn").

For detections only macros are shown. A team can change only the predictions of one finding from submission to
submission. A macro over K findings with rounding step r then reveals as much about this finding as a separate score
with step K r. These bits are compared with the bits in the labels of the smallest finding that may be shown. In
simulations on 300 images, five submissions raise the AP of one of six findings by 0.03, and the meter then says
"watch".

The meter does not count four kinds of values: intervals of scores that are counts, and comparisons, because both are
computed from released values; other macros with their intervals, which follow from the scores except for rounding;
AUROC, which is one number over at least five labels; and ranks, which on an open board depend only on each system's own
scores and standard errors (:mod:`reveal_leaderboard.release.ranking`). The simulation from which the thresholds were
derived includes these values: its teams receive every macro, rounded to 0.005.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from reveal_bench.findings import canonical_finding
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings import RELEASED_PER_LABEL
from reveal_bench.kinds.localization.disclosure import FOR_OVERLAP, HITS, OVERLAPS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.words import count_text, percent_text
from reveal_leaderboard.release.release import POLICY, ReleasedEstimate, ReleasedScore
from reveal_leaderboard.release.rounding import Rounding, is_positional
from reveal_leaderboard.settings import BenchmarkSettings, ReleasePolicy, Settings
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.cases import lock_boards, shared_with
from reveal_leaderboard.store.scores import ranked_part
from reveal_leaderboard.store.tables import fingerprints, members, scores, submissions, teams, users, versions

Level = Literal["low", "watch", "close"]
IN_MACROS = KINDS["detection"].release.metrics
TELLING = (*HITS, *OVERLAPS, *RELEASED_PER_LABEL)
USED_UP = "The held-out labels are used up until they are refreshed."
MOST_WHY = 500
CASE_BITS = 1.0
HELD_BITS = 1.0


@dataclass(frozen=True, slots=True)
class Group:
    """Group of linked teams, and the numbers of their scores that were shown, and held back by the ladder."""

    teams: tuple[str, ...]
    n_shown: int
    n_held: int


@dataclass(frozen=True, slots=True)
class Exposure:
    """Information released on one version of a benchmark.

    Attributes
    ----------
    n_scored : int, number of scored submissions, without repeated predictions of a team. Withdrawn and hidden
        submissions count, because their teams saw the scores. Submissions to other versions and boards count by their
        share
    board_total : int, number of submissions after which the benchmark closes
    by_team : (name, number of scored submissions), largest number first
    groups : tuple of Group, largest number of scores first
    finding, group : the most exposed finding, and the teams that together could have learned its labels; None if no
        score is shown
    bits_out, bits_held, share : bits revealed to the group about this finding, bits in its labels, and the ratio of
        both
    level : {"low", "watch", "close"}
    sentence : text on the level and these numbers
    """

    n_scored: int
    board_total: int
    by_team: tuple[tuple[str, int], ...]
    groups: tuple[Group, ...]
    finding: str | None
    group: Group | None
    bits_out: float
    bits_held: float
    share: float
    level: Level
    sentence: str


@dataclass(frozen=True, slots=True)
class _ScoredRow:
    """A scored submission: team, its public scores and then its final ones if these are shown, whether the ladder held
    it back, and fingerprint.
    """

    submission_id: str
    team: str
    scores: tuple[ReleasedScore, ...]
    is_held: bool
    content: str | None
    sketch: tuple[int, ...]


_Learnt = tuple[float, float, float, str | None, Group | None]
"""Share, bits revealed, bits in the labels, finding, and the groups to which the bits were revealed."""


def exposure(connection: sa.Connection, benchmark: str, version: str, settings: Settings) -> Exposure:
    """Return the exposure of a version of a benchmark."""
    own = _account(connection, benchmark, version, 1.0, settings)
    others = [
        _account(connection, other.benchmark, other.version, other.share, settings)
        for other in shared_with(connection, benchmark, version)
    ]
    accounts = [own, *(_renamed(_without_rescored(other, own), own.findings) for other in others)]
    figures = settings.of(benchmark)
    rows = [row for account in accounts for row in account.rows]
    return _measure(accounts, _group_teams(rows, figures.exposure.near, _persons(connection)), figures)


def pause_used_up(connection: sa.Connection, benchmark: str, version: str, settings: Settings, *, who: str) -> None:
    """Pause this board, and boards on which submissions to this version count, if open with a meter that says "close".

    The meter's sentence becomes the reason. Call this function in the transaction that writes a score, so that no other
    score is released before the pause.
    """
    for name, board in lock_boards(connection, benchmark, version).items():
        if board.state != "open" or (name == benchmark and board.version != version):
            continue
        meter = exposure(connection, name, board.version, settings)
        if meter.level == "close":
            boards.set_state(connection, name, "paused", who=who, why=f"{USED_UP} {meter.sentence}"[:MOST_WHY])


@dataclass(frozen=True, slots=True)
class _Account:
    """Scored submissions on one version, and the fraction of the measured version's cases that this version shares."""

    rows: list[_ScoredRow]
    n_cases: int | None
    release: ReleasePolicy
    share: float
    findings: tuple[str, ...] = ()


def _account(connection: sa.Connection, benchmark: str, version: str, share: float, settings: Settings) -> _Account:
    query = sa.select(versions.c.facts).where(versions.c.benchmark == benchmark, versions.c.version == version)
    facts = connection.execute(query).scalar_one_or_none() or {}
    rows = _without_repeats(_read(connection, benchmark, version))
    n_cases, findings = facts.get("n_studies", facts.get("n_images")), tuple(facts.get("findings", ()))
    return _Account(rows, n_cases, settings.of(benchmark).release, share, findings)


def _without_rescored(other: _Account, own: _Account) -> _Account:
    """Return an account without the submissions that were also scored on the measured version, whose scores there
    count.
    """
    known = {row.submission_id for row in own.rows}
    return replace(other, rows=[row for row in other.rows if row.submission_id not in known])


def _renamed(account: _Account, findings: tuple[str, ...]) -> _Account:
    """Return an account with the findings' names replaced by those in `findings`; unknown findings keep their names."""
    names = {MACRO: MACRO}
    for name in account.findings:  # a synonym may be known only in one direction
        same = (own for own in findings if canonical_finding(own, account.findings) == name)
        names[name] = canonical_finding(name, findings) or next(same, name)

    def rename(score: ReleasedScore) -> ReleasedScore:
        figures = tuple(replace(figure, finding=names.get(figure.finding, figure.finding)) for figure in score.figures)
        return replace(score, figures=figures, shown=tuple(names.get(name, name) for name in score.shown))

    return replace(account, rows=[replace(row, scores=tuple(map(rename, row.scores))) for row in account.rows])


def answer_bits(
    figures: Iterable[ReleasedEstimate], n_cases: int | None, policy: ReleasePolicy = POLICY, *, n_averages: int = 0
) -> float:
    """Return the largest number of bits that the scores of one finding can reveal together.

    Parameters
    ----------
    figures : the values of one finding in one score
    n_cases : largest possible number of cases of the finding, if its range has no upper end; None if unknown
    policy : rounding of the scores
    n_averages : number of averages of hits that include the finding without showing a separate score

    Examples
    --------
    >>> figure = ReleasedEstimate("f1", "Edema", 0.61, 0.5, 0.7, "30-59", "")
    >>> answer_bits([figure], 668) == math.log2(11)  # 0.0, 0.1 ... 1.0
    True
    """
    bits = calls = 0.0
    for figure in figures:
        least, most = _band(figure.n)
        own, plain = (
            Rounding(policy).step_of(least, positional=coarse) for coarse in (is_positional(figure.metric), False)
        )
        # The macro also reveals the finding, in steps about as fine as without the factor. Both grids of values
        # overlap.
        values = 1 / own + 1 + (1 / plain if own != plain else 0)
        if figure.metric in HITS:
            values, n_averages = values + n_averages / plain, 0
        steps = math.log2(values)
        most = most or n_cases
        count = math.inf if most is None else math.log2(most + 1)
        if figure.metric in HITS:
            bits += min(count, steps)
        elif figure.metric in OVERLAPS:
            bits += steps
        elif figure.metric in RELEASED_PER_LABEL:  # together they can reveal the count more exactly than each alone
            calls = min(count, calls + steps)
    if n_averages:  # the finding has too few cases for a separate hit rate, but is in averages
        bits += math.log2(1 + n_averages / Rounding(policy).step_of(policy.min_cell))
    return bits + calls


def label_bits(figures: Sequence[ReleasedEstimate], n_cases: int | None, policy: ReleasePolicy = POLICY) -> float:
    """Return the smallest number of bits that the labels of a finding can contain, given its released scores and range.

    Parameters
    ----------
    figures : the values of the finding; empty if it counts only in averages
    n_cases : number of studies in the split, for labels of studies; None if unknown
    policy : release policy of the scores, since positional scores and overlap require a minimum number of cases
    """
    if not figures:
        return policy.min_cell * CASE_BITS
    least, most = _band(figures[0].n)
    if any(figure.metric in RELEASED_PER_LABEL for figure in figures):
        n = n_cases or 2 * least
        return min(_log2_choose(n, least), _log2_choose(n, min(most or n - least, n - least)))
    has_overlap = any(figure.metric in OVERLAPS for figure in figures)
    enough = max(policy.place_cell, math.ceil(FOR_OVERLAP * policy.min_cell) if has_overlap else 0)
    if most is None or most >= enough:
        least = max(least, enough)
    return least * CASE_BITS


def _log2_choose(n: int, k: int) -> float:
    """Return log2 of the number of ways to choose k of n; 0 if there is no way."""
    return math.log2(math.comb(n, k)) if 0 <= k <= n else 0.0


def _band(band: str) -> tuple[int, int | None]:
    """Return the bounds of a range such as "30-59" or "120+"; the upper bound of "120+" is None."""
    low, _, high = band.rstrip("+").partition("-")
    return int(low), int(high) if high else None


def _read(connection: sa.Connection, benchmark: str, version: str) -> list[_ScoredRow]:
    own = sa.and_(fingerprints.c.submission_id == scores.c.submission_id, fingerprints.c.version == scores.c.version)
    parts = ("public", ranked_part(connection, benchmark, version))
    query = (
        sa.select(teams.c.name, scores.c.released, scores.c.shown_of, scores.c.submission_id)
        .add_columns(fingerprints.c.content, fingerprints.c.sketch)
        .select_from(scores)
        .join(submissions, submissions.c.id == scores.c.submission_id)
        .join(teams, teams.c.id == submissions.c.team_id)
        .join(fingerprints, own, isouter=True)
        .where(submissions.c.benchmark == benchmark, scores.c.version == version, scores.c.part.in_(parts))
        .order_by(scores.c.scored_at, scores.c.submission_id, scores.c.part.desc())
    )
    return [
        _ScoredRow(
            submission_id=first.submission_id,
            team=first.name,
            scores=tuple(ReleasedScore.from_json(row.released) for row in (first, *others)),
            is_held=first.shown_of != first.submission_id,
            content=first.content,
            sketch=tuple(first.sketch or ()),
        )
        for _, (first, *others) in groupby(connection.execute(query), lambda row: row.submission_id)
    ]


def _persons(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return (person, team name) pairs for members and senders, without administrators."""
    belongs = sa.union(
        sa.select(members.c.user_id, members.c.team_id), sa.select(submissions.c.user_id, submissions.c.team_id)
    ).subquery()
    query = (
        sa.select(belongs.c.user_id, teams.c.name)
        .join(users, users.c.id == belongs.c.user_id)
        .join(teams, teams.c.id == belongs.c.team_id)
        .where(users.c.is_admin.is_(False))
    )
    return [(row.user_id, row.name) for row in connection.execute(query)]


def _without_repeats(rows: Sequence[_ScoredRow]) -> list[_ScoredRow]:
    """Return `rows`, sorted by time, without a team's repeated submissions of the same predictions."""
    first = {(row.team, row.content): row for row in reversed(rows)}
    return [row for row in rows if row.content is None or first[row.team, row.content] is row]


def _measure(
    accounts: Sequence[_Account], group_of: Mapping[str, tuple[str, ...]], figures: BenchmarkSettings
) -> Exposure:
    rows = [row for account in accounts for row in account.rows]
    n_scored = math.ceil(round(sum(account.share * len(account.rows) for account in accounts), 6))
    by_group: dict[tuple[str, ...], list[_ScoredRow]] = defaultdict(list)
    for row in rows:
        by_group[group_of[row.team]].append(row)
    n_held = {names: sum(row.is_held for row in own) for names, own in by_group.items()}
    groups = {names: Group(names, len(own) - n_held[names], n_held[names]) for names, own in by_group.items()}
    measured: dict[str, list[tuple[float, float, Group]]] = defaultdict(list)
    in_labels = _bits_held(accounts)
    for names in by_group:
        for name, bits in _bits_of_group(accounts, group_of, names).items():
            measured[name].append((bits, in_labels[name], groups[names]))
    learnt: list[_Learnt] = [_together(*entry, figures.exposure.colluding) for entry in measured.items()]
    share, out, held, finding, group = max(learnt, key=lambda entry: entry[0], default=(0.0, 0.0, 0.0, None, None))
    level = _level(share, n_scored, figures)
    counted = Counter(row.team for row in rows)
    return Exposure(
        n_scored=n_scored,
        board_total=figures.quota.board_total,
        by_team=tuple(sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))),
        groups=tuple(sorted(groups.values(), key=lambda g: (-g.n_shown - g.n_held, g.teams))),
        finding=finding,
        group=group,
        bits_out=round(out, 1),
        bits_held=round(held, 1),
        share=share,
        level=level,
        sentence=_sentence(n_scored, len(counted), figures.quota.board_total, finding, group, share, level),
    )


def _bits_of_group(
    accounts: Sequence[_Account], group_of: Mapping[str, tuple[str, ...]], names: tuple[str, ...]
) -> dict[str, float]:
    """Return finding -> bits revealed to a group, summed over its accounts, each weighted by its share."""
    out: dict[str, float] = defaultdict(float)
    for account in accounts:
        own = [row for row in account.rows if group_of[row.team] == names]
        for finding, (bits, _) in _bits(own, account.n_cases, account.release).items() if own else ():
            out[finding] += account.share * bits
    return out


def _bits_held(accounts: Sequence[_Account]) -> dict[str, float]:
    """Return finding -> bits in its labels, on the measured version if it shows the finding, otherwise on another
    version.
    """
    held: dict[str, float] = {}
    for account in accounts:
        if account.rows:
            for finding, (_, in_labels) in _bits(account.rows, account.n_cases, account.release).items():
                held.setdefault(finding, in_labels)
    return held


def _together(finding: str, measured: Sequence[tuple[float, float, Group]], colluding: int) -> _Learnt:
    """Return the exposure of the most exposed finding to the `colluding` groups that together have the most bits about
    it.
    """
    most = sorted(measured, key=lambda entry: -entry[0])[:colluding]
    out, held = sum(entry[0] for entry in most), min(entry[1] for entry in most)
    names = tuple(name for *_, group in most for name in group.teams)
    group = Group(names, sum(g.n_shown for *_, g in most), sum(g.n_held for *_, g in most))
    return (out / held if held else math.inf), out, held, finding, group


def _bits(rows: Sequence[_ScoredRow], n_cases: int | None, policy: ReleasePolicy) -> dict[str, tuple[float, float]]:
    """Return, for each finding, the bits that `rows` reveal and the bits in its labels."""
    out: dict[str, float] = defaultdict(float)
    seen: dict[str, dict[str, ReleasedEstimate]] = defaultdict(dict)
    # older scores, from before this setting existed, show findings with fewer cases
    shown_from = min(row.scores[0].policy.get("place_cell", 0) for row in rows)
    for row, score in [(one, score) for one in rows for score in one.scores]:
        by_finding: dict[str, list[ReleasedEstimate]] = defaultdict(list)
        for figure in score.figures:
            if figure.finding != MACRO and figure.metric in TELLING:
                by_finding[figure.finding].append(figure)
                if score is row.scores[0]:
                    seen[figure.finding][figure.metric] = figure
        averages = [figure.metric for figure in score.figures if figure.finding == MACRO and figure.metric in HITS]
        for finding in score.shown if averages else by_finding:
            own = by_finding[finding]
            n_averages = len({*averages} - {figure.metric for figure in own})
            out[finding] += HELD_BITS if row.is_held else answer_bits(own, n_cases, policy, n_averages=n_averages)
        macros = [figure for figure in score.figures if figure.metric in IN_MACROS]
        if macros:
            out[MACRO] += HELD_BITS if row.is_held else sum(_macro_bits(figure, policy) for figure in macros)
    rule = replace(policy, place_cell=min(policy.place_cell, shown_from))
    held = {finding: label_bits(list(seen[finding].values()), n_cases, rule) for finding in out}
    held[MACRO] = _log2_choose(n_cases or 2 * policy.min_cell, policy.min_cell)
    return {finding: (bits, held[finding]) for finding, bits in out.items()}


def _macro_bits(macro: ReleasedEstimate, policy: ReleasePolicy) -> float:
    """Return the largest number of bits that a macro can reveal about one of its findings."""
    return math.log2(1 / (int(macro.n) * policy.resolution) + 1)


def _group_teams(
    rows: Sequence[_ScoredRow], near: float, persons: Iterable[tuple[str, str]]
) -> dict[str, tuple[str, ...]]:
    """Return team -> all teams linked to it by a person or by near-identical predictions, including the team."""
    persons = list(persons)
    leader = {row.team: row.team for row in rows} | {team: team for _, team in persons}

    def find(team: str) -> str:
        while leader[team] != team:
            team = leader[team]
        return team

    sketched = [row for row in rows if row.sketch]  # predictions without an item would all look equal
    matrix = np.array([row.sketch for row in sketched], np.int64)
    for i, row in enumerate(sketched):
        for j in np.flatnonzero(_agreement(matrix[:i], matrix[i]) >= near).tolist():
            leader[find(row.team)] = find(sketched[j].team)
    teams_of: dict[str, list[str]] = defaultdict(list)
    for person, team in persons:
        teams_of[person].append(team)
    for first, *others in teams_of.values():
        for team in others:
            leader[find(team)] = find(first)
    together: dict[str, list[str]] = defaultdict(list)
    for team in dict.fromkeys(row.team for row in rows):
        together[find(team)].append(team)
    return {team: tuple(sorted(names)) for names in together.values() for team in names}


def _agreement(sketches: npt.NDArray[np.int64], sketch: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the similarity of each of `sketches` to `sketch`, as
    :func:`reveal_leaderboard.release.fingerprints.similarity`.
    """
    jaccard = (sketches == sketch).mean(axis=1)
    agreement: npt.NDArray[np.float64] = 2 * jaccard / (1 + jaccard)
    return agreement


def _level(share: float, n_scored: int, figures: BenchmarkSettings) -> Level:
    policy, used = figures.exposure, n_scored / figures.quota.board_total
    if share >= policy.close_bits or used >= 1:
        return "close"
    return "watch" if share >= policy.watch_bits or used >= policy.watch_used else "low"


_ADVICE: dict[Level, str] = {
    "low": "Nothing needs to be done.",
    "watch": "Check the flags of near-identical predictions, and plan a refresh.",
    "close": "Close the benchmark and refresh its labels.",
}


def _sentence(
    n_scored: int, n_teams: int, board_total: int, finding: str | None, group: Group | None, share: float, level: Level
) -> str:
    scored = f"{n_scored} of {board_total} submissions are used, by {count_text(n_teams, 'team')}."
    if finding is None or group is None:
        return f"{scored} Nothing was released. {_ADVICE[level]}"
    who = " and ".join(group.teams) if len(group.teams) < 3 else f"{len(group.teams)} teams together"
    most = "all" if share >= 1 else percent_text(share, 0)
    labels = "one finding" if finding == MACRO else finding
    return f"{scored} At most, {who} could know {most} of the information in the labels of {labels}. {_ADVICE[level]}"
