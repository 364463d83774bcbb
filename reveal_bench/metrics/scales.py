"""Display texts of metric values: percent with one decimal, or ratings on their scale."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from reveal_bench.metrics import METRICS, Family, Metric
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.words import interval_text, number_text, percent_interval, percent_number, plural, with_interval

_OWN_UNITS: dict[Family, str] = {
    "lesions": "false alarms of each finding per image, everything else in",
    "labels": "log loss in nats, everything else in",
}
"""Family of metrics -> words on the units of those that are not shown in percent."""


def range_text(metric: Metric) -> str:
    """Return the range of a metric.

    Examples
    --------
    >>> [range_text(METRICS[name]) for name in ("cohen_kappa", "mean_absolute_difference", "icc_1_k")]
    ['-1 to 1', '0 or more', 'up to 1']
    """
    if metric.low == -inf:
        return f"up to {metric.high:g}"
    return f"{metric.low:g} or more" if metric.high == inf else f"{metric.low:g} to {metric.high:.3g}"


def scale_text(metrics: Iterable[str]) -> str:
    """Return the units of a table's values, for its caption.

    Examples
    --------
    >>> scale_text(["point_hit"]), scale_text(["cpm", "false_alarms"])
    ('percent', 'false alarms of each finding per image, everything else in percent,')
    """
    families = dict.fromkeys(METRICS[metric].family for metric in metrics if METRICS[metric].high > 1)
    words = dict.fromkeys(_OWN_UNITS.get(family, "ratings on their scale and") for family in families)
    return " ".join([*words, "percent"]) + "," * bool(words)


def value_text(metric: str, value: float, *, decimals: int = 1) -> str:
    """Return a value in percent with `decimals`, or on its own scale with two decimals if that exceeds 1.

    Examples
    --------
    >>> value_text("point_hit", 0.78125), value_text("rubric_mean", 4.5), value_text("point_hit", float("nan"))
    ('78.1', '4.50', '-')
    """
    return number_text(value, 2) if _has_own_scale(metric) else percent_number(value, decimals)


def ends_text(metric: str, low: float | None, high: float | None, *, decimals: int = 1) -> str:
    """Return an interval on the scale of :func:`value_text`; empty if it is undefined.

    Examples
    --------
    >>> ends_text("point_hit", 0.72, 0.84), ends_text("rubric_mean", 4.25, 4.75)
    ('72.0 to 84.0', '4.25 to 4.75')
    """
    return interval_text(low, high, 2) if _has_own_scale(metric) else percent_interval(low, high, decimals)


def estimate_text(metric: str, value: float, low: float | None, high: float | None, *, decimals: int = 1) -> str:
    """Return a value with its interval on the scale of :func:`value_text`.

    Examples
    --------
    >>> estimate_text("point_hit", 0.78125, 0.72, 0.84), estimate_text("point_hit", 0.5, float("nan"), float("nan"))
    ('78.1 (72.0 to 84.0)', '50.0')
    """
    text = value_text(metric, value, decimals=decimals)
    return with_interval(text, ends_text(metric, low, high, decimals=decimals))


def _has_own_scale(metric: str) -> bool:
    return metric in METRICS and METRICS[metric].high > 1


def intervals_text(how: Resampling) -> str:
    """Return a phrase on how the intervals of a table were computed.

    Examples
    --------
    >>> intervals_text(Resampling())
    '95% intervals by the jackknife over patients'
    >>> intervals_text(Resampling(unit="study", interval="bca"))
    '95% intervals (bca), 1000 resamples of studies, seed 0'
    """
    units = plural(how.unit)
    if how.interval == "jackknife":
        return f"95% intervals by the jackknife over {units}"
    return f"95% intervals ({how.interval}), {how.n_resamples} resamples of {units}, seed {how.seed}"


def groups_text(metric: str, n: int | str) -> str:
    """Return the number of findings or criteria in a macro of `metric`, in words.

    Examples
    --------
    >>> groups_text("point_hit", 10), groups_text("rubric_mean", 1)
    ('10 findings', '1 criterion')
    """
    one, several = ("criterion", "criteria") if METRICS[metric].family == "ordinal" else ("finding", "findings")
    return f"{n} {one if str(n) == '1' else several}"
