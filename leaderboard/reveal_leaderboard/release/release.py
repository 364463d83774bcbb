"""Reduce the exact scores of a submission to the values that a board may show.

Conventions
-----------
Holdouts are small: with exact scores on ten cases, a few dozen submissions would reveal all labels. So these rules
apply:

* A finding with fewer than `min_cell` cases is hidden. For labels of whole studies, at least this many studies must
  have the label, and at least this many must not. Which findings are hidden depends only on the references, never on a
  submission.
* The only totals are macros over the shown findings. Hidden findings are removed before anything is computed, so that
  subtraction cannot reveal them.
* Of positional scores, a board shows the average of the metric by which it ranks (`place_metric`), and further scores
  only for every `place_cell` cases that its average is worth (:func:`shown_places`). The chance level of a score is
  shown beside it.
* Only metrics by which a submission cannot isolate a case are released; each kind of benchmark lists them
  (`Release.metrics` of :mod:`reveal_bench.kinds.parts`). Scores of strata are not released, because strata are too
  small.
* Values are rounded, with larger steps for fewer cases, whose intervals are wider. Macros are rounded so that they show
  no finding more precisely than its own score does. Numbers of cases are given as ranges.
* The interval of a score that is a count of correct answers is computed from the rounded value, the number of cases and
  the number of positive predictions (:mod:`reveal_bench.kinds.scored`), so that it reveals nothing more. For a macro or
  an overlap, the distance of each interval bound from the rounded value is rounded.

Besides these scores, only ranks (:mod:`reveal_leaderboard.release.ranking`) leave the worker. The policy's settings are
stored with the score. A *counting query* remains possible: a submission can ask how many of the cases that it selects
have a finding. Rounding hides little of the answer (one case of 30 changes a score by 0.03), so the budget limits the
number of answers. The gain of five teams who combine their scores was simulated for several budgets and rounding steps
(docs/operating.md, "What colluding teams can learn").

Ratings are readers' judgements of answers, not held-out labels, so repeated submissions reveal nothing. But a mean of
few ratings means little, so small cells are hidden as well; all scores are rounded to `resolution`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.parts import cases_of_average
from reveal_bench.kinds.scored import Disclosure, Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_leaderboard.release.rounding import Rounding, is_positional
from reveal_leaderboard.settings import ReleasePolicy

POLICY = ReleasePolicy()
SHOWN_RECIPE = "{metric}|unit:patient|i:shown{part}|v:{version}"
"""Signature of a score whose interval is computed from the shown value."""


Short = Annotated[str, Field(max_length=200)]
Fraction = Annotated[float, Field(allow_inf_nan=False, examples=[0.47])]


@dataclass(frozen=True, slots=True)
class ReleasedEstimate:
    """A released score of one metric and finding: value and 95% interval as fractions, and the range of its number of
    cases.
    """

    metric: Annotated[Short, Field(examples=["point_hit"])]
    finding: Annotated[Short, Field(examples=["macro"])]
    value: Fraction
    low: Fraction | None
    high: Fraction | None
    n: Annotated[Short, Field(examples=["60-119"])]
    signature: Annotated[str, Field(max_length=500)]

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both bounds of the interval; None without an interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class ReleasedScore:
    """The released scores of a submission, as stored in the database and shown by the pages and the API.

    Attributes
    ----------
    figures : released values of macros and findings, by metric
    shown, hidden : shown and hidden findings, in the order of the vocabulary
    note : sentence that lists the hidden findings and the reason
    policy : the settings of the release policy
    """

    figures: Annotated[tuple[ReleasedEstimate, ...], Field(max_length=1000)]
    shown: Annotated[tuple[Short, ...], Field(max_length=200)]
    hidden: Annotated[tuple[Short, ...], Field(max_length=200)]
    note: Annotated[str, Field(max_length=20_000)]
    policy: Mapping[Short, Any]

    def figure(self, metric: str, finding: str = MACRO) -> ReleasedEstimate | None:
        """Return the value of a metric and finding; None if it is not released."""
        return next((f for f in self.figures if (f.metric, f.finding) == (metric, finding)), None)

    @property
    def signature(self) -> str:
        """Signatures of all values."""
        return " ".join(sorted({figure.signature for figure in self.figures}))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ReleasedScore:
        """Return the score from the values of :meth:`to_json`."""
        figures = tuple(ReleasedEstimate(**figure) for figure in raw["figures"])
        return cls(figures, tuple(raw["shown"]), tuple(raw["hidden"]), raw["note"], raw["policy"])


def ranking_metric(kind: AnyKind, policy: ReleasePolicy) -> str:
    """Return the metric by which a board of `kind` ranks."""
    return policy.place_metric if policy.place_metric in kind.release.fallback_metrics else kind.release.primary


def release(rows: Rows, policy: ReleasePolicy = POLICY, *, part: str = "", other: Rows | None = None) -> ReleasedScore:
    """Return the released scores of a submission, computed from its per-case rows.

    Parameters
    ----------
    rows : rows of a submission on all cases of a holdout, of any kind of benchmark
    policy : release policy
    part : name of the part of the findings that the benchmark asks, for signatures; empty if it asks all
    other : the submission's rows on the other part of the holdout, if it has two parts. A finding with too few cases
        in either part is hidden in both, so that public and final macros average the same findings
    """
    kind = KINDS[rows.kind]
    resampling = Resampling(policy.n_resamples, policy.seed, part=part)
    ranked_by = ranking_metric(kind, policy)
    disclose = partial(kind.release.disclose, min_cell=policy.min_cell, ranked_by=ranked_by)
    hidden = () if other is None else disclose(other, Resampling(1)).hidden
    disclosure = disclose(rows, resampling, left_out=hidden)
    allowed = _with_own_chance(_enough_for_places(disclosure.estimates, policy), kind.release.chance_metrics)
    figures = tuple(_figures(disclosure, allowed, policy, part, is_coarse=kind.scoring.can_be_probed))
    few = {e.finding for e in disclosure.estimates if e.finding != MACRO} - {f.finding for f in figures}
    note = disclosure.note
    if hidden:
        note += " Each of the holdout's two parts must have this many."
    if few:
        named = ", ".join(finding for finding in disclosure.shown if finding in few)
        note += f" Counted only in averages, because the cases are too few: {named}."
    averages = [
        {e.metric for e in estimates if e.finding == MACRO and METRICS[e.metric].better != "neither"}
        for estimates in (disclosure.estimates, allowed)
    ]
    if left_out := sorted(METRICS[metric].in_words for metric in averages[0] - averages[1]):
        note += f" Not shown, because the cases are too few: {', '.join(left_out)}."
    return ReleasedScore(figures, disclosure.shown, disclosure.hidden, note, asdict(policy))


def primary_figure(score: ReleasedScore) -> ReleasedEstimate | None:
    """Return the macro used for ranking and the ladder: that of the policy's or the kind's metric, or of a fallback
    metric if it is missing.
    """
    chosen = (score.policy.get("place_metric", ""),)
    ranking = (chosen, *((kind.release.primary, *kind.release.fallback_metrics) for kind in KINDS.values()))
    figures = (score.figure(metric) for metrics in ranking for metric in metrics)
    return next((figure for figure in figures if figure is not None), None)


def climb(new: ReleasedScore, best: ReleasedScore | None, policy: ReleasePolicy = POLICY) -> bool:
    """Return True if `new` may be shown: its rounded primary macro exceeds that of `best` by more than `ladder_step`.

    The first score of a team is always shown. Only released scores are compared, so that holding a score back reveals
    no more than releasing it would.
    """
    before = None if best is None else primary_figure(best)
    now = primary_figure(new)
    if before is None or now is None:
        return before is None
    return now.value - before.value > policy.ladder_step + 1e-9


def split_final(patient_ids: Iterable[str], key: bytes, share: float) -> frozenset[str]:
    """Return the patients of the final part, about a fraction `share` of all patients.

    A keyed hash of the patient's id decides. So a patient stays in the same part when other patients are added or
    removed, and nobody can tell the parts apart without the key.

    Raises
    ------
    ValueError
        If `share` is not in [0, 1) or the key is shorter than 16 bytes.
    """
    if not 0 <= share < 1:
        raise ValueError(f"`share` must be in [0, 1), got {share}")
    if len(key) < 16:
        raise ValueError(f"`key` must have at least 16 bytes, got {len(key)}")
    limit = int(share * 2**64)
    return frozenset(patient for patient in patient_ids if _place(patient, key) < limit)


def _place(patient: str, key: bytes) -> int:
    digest = hmac.new(key, b"final part\0" + patient.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big")


def _enough_for_places(estimates: Sequence[Estimate], policy: ReleasePolicy) -> list[Estimate]:
    """Return the estimates without positional scores that have too few cases."""
    positional = list(dict.fromkeys(e.metric for e in estimates if is_positional(e.metric)))
    of_findings = [e for e in estimates if e.finding != MACRO]
    n_cases = [{e.finding: e.n for e in of_findings if e.metric == metric} for metric in positional]
    shown = dict(zip(positional, shown_places(n_cases, policy.place_cell), strict=True))
    return [e for e in estimates if e.metric not in shown or e.finding in shown[e.metric]]


def shown_places(n_cases: Sequence[Mapping[Any, int]], place_cell: int) -> list[set[Any]]:
    """Return the findings whose positional scores may be shown, with `MACRO` for the average, for each metric.

    Five answers raise an average that is worth n cases by ``0.87 / sqrt(n)``, and at most ``sqrt(k)`` times as much if
    k scores of each file reveal different sums. So there is at most one sum for every `place_cell` cases: a score of a
    finding, or an average that also includes other findings.

    Parameters
    ----------
    n_cases : number of cases by finding, for each metric; empty for a metric that is shown only on average

    Examples
    --------
    >>> [len(findings) for findings in shown_places([{"A": 350, "B": 350}, {}], 350)]  # two sums in 700 cases
    [3, 0]
    >>> shown_places([{"A": 350, "B": 100}, {}], 350)  # worth 311 cases
    [{'macro'}, set()]
    """
    shown: list[set[Any]] = []
    left = round(cases_of_average(list(n_cases[0].values())) / place_cell, 6) if n_cases else 0.0
    for number, by_finding in enumerate(n_cases):
        needed = place_cell * (number + 1)
        own = {finding for finding, n in by_finding.items() if n >= needed}
        n_sums = len(own) + (not own or own != by_finding.keys())
        if n_sums > left:
            own, n_sums = set(), 1
        # The average of the other hit rate comes without rates per finding, so the first metric's cases count.
        n = round(cases_of_average(list((by_finding or n_cases[0]).values())), 6)
        is_shown = number == 0 or (n >= needed and n_sums <= left)
        shown.append({*own, MACRO} if is_shown else set())
        left -= n_sums * is_shown
    return shown


def _with_own_chance(estimates: Sequence[Estimate], chance_metrics: Mapping[str, str]) -> list[Estimate]:
    """Return the estimates without the chance levels of scores that are not among them."""
    of_chance = {chance: metric for metric, chance in chance_metrics.items()}
    scores = {(e.metric, e.finding) for e in estimates}
    return [e for e in estimates if e.metric not in of_chance or (of_chance[e.metric], e.finding) in scores]


def _figures(
    disclosure: Disclosure, allowed: Sequence[Estimate], policy: ReleasePolicy, part: str, *, is_coarse: bool
) -> Iterator[ReleasedEstimate]:
    """Yield the `allowed` estimates rounded, with larger steps for small numbers of cases if `is_coarse`."""
    rounding = Rounding(policy)
    of_findings = [e for e in disclosure.estimates if e.finding != MACRO] if is_coarse else []
    n_cases = {e.finding: e.n for e in of_findings}
    for e in allowed:
        is_macro = e.finding == MACRO
        step, positional = policy.resolution, is_positional(e.metric)
        if is_macro:
            # The step must suit all shown findings and the findings in this macro; the macro of an overlap may contain
            # only one.
            own = [one.n for one in of_findings if one.metric == e.metric]
            # Without scores of findings, the step suits findings with `min_cell` cases.
            every = list(n_cases.values()) or [policy.min_cell] * (e.n if is_coarse else 0)
            step = max(rounding.macro_step(n, positional=positional) for n in (every, own))
        elif is_coarse:
            step = rounding.step_of(e.n, positional=positional)
        value = rounding.round(e.value, step)
        if value is None:
            continue
        spread, recipe = disclosure.spreads.get((e.metric, e.finding)), e.signature
        if spread is not None:
            low, high = rounding.consistent(value, spread, step, _bounds(e.metric))
            of_part = f"|part:{part}" if part else ""
            recipe = SHOWN_RECIPE.format(metric=e.metric, part=of_part, version=METRICS[e.metric].version)
        elif is_coarse:
            low, high = _within(e.metric, rounding.around(value, e.value - e.low, e.high - e.value, step))
        else:
            low, high = rounding.round_outwards(e.low, e.high, step)
        n = str(e.n) if is_macro else rounding.band(e.n)
        yield ReleasedEstimate(e.metric, e.finding, value, low, high, n, recipe)


def _within(metric: str, ends: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    """Return the bounds of an interval, limited to the range of the metric."""
    least, most = _bounds(metric)
    low, high = ends
    return None if low is None else max(low, least), None if high is None else min(high, most)


def _bounds(metric: str) -> tuple[float, float]:
    return METRICS[metric].low, METRICS[metric].high
