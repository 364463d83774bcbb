"""How figures are written for people: percent with one decimal, ratings on their scale, "-" where undefined."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from reveal_bench.metrics import METRICS, Metric
from reveal_bench.metrics.intervals import Resampling


def plural_of(unit: str) -> str:
    """Several of what is resampled.

    Examples
    --------
    >>> plural_of("patient"), plural_of("study")
    ('patients', 'studies')
    """
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def range_text(metric: Metric) -> str:
    """The range of a metric.

    Examples
    --------
    >>> range_text(METRICS["cohen_kappa"]), range_text(METRICS["mean_absolute_difference"])
    ('[-1, 1]', '[0, inf)')
    """
    return f"[{metric.low:g}, inf)" if metric.high == inf else f"[{metric.low:g}, {metric.high:.3g}]"


def scale_text(metrics: Iterable[str]) -> str:
    """What the figures of a table are in, for its caption.

    Examples
    --------
    >>> scale_text(["point_hit"]), scale_text(["cpm", "false_alarms"])
    ('percent', 'false alarms of each finding per image, all else in percent,')
    """
    others = {METRICS[metric].family == "lesions" for metric in metrics if METRICS[metric].high > 1}
    words = [
        "false alarms of each finding per image, all else in" if are_alarms else "ratings on their scale and"
        for are_alarms in sorted(others)
    ]
    return " ".join([*words, "percent"]) + "," * bool(words)


def value_text(metric: str, value: float, *, decimals: int = 1) -> str:
    """A figure as tables show it: ratings as they are, all others in percent with so many `decimals`.

    Examples
    --------
    >>> value_text("point_hit", 0.78125), value_text("rubric_mean", 4.5), value_text("point_hit", float("nan"))
    ('78.1', '4.50', '-')
    """
    if value != value:
        return "-"
    is_rating = metric in METRICS and METRICS[metric].high > 1
    return f"{value:.2f}" if is_rating else f"{100 * value:.{decimals}f}"


def interval_text(metric: str, low: float, high: float, *, decimals: int = 1) -> str:
    """The ends of an interval in brackets; nothing where it is undefined.

    Examples
    --------
    >>> interval_text("point_hit", 0.72, 0.84)
    '(72.0 to 84.0)'
    """
    if low != low:
        return ""
    return f"({value_text(metric, low, decimals=decimals)} to {value_text(metric, high, decimals=decimals)})"


def intervals_text(how: Resampling) -> str:
    """How the intervals of a table were made.

    Examples
    --------
    >>> intervals_text(Resampling())
    '95 % intervals by the jackknife over patients'
    >>> intervals_text(Resampling(unit="study", interval="bca"))
    '95 % intervals (bca), 1000 resamples of studies, seed 0'
    """
    units = plural_of(how.unit)
    if how.interval == "jackknife":
        return f"95 % intervals by the jackknife over {units}"
    return f"95 % intervals ({how.interval}), {how.n_resamples} resamples of {units}, seed {how.seed}"


def n_text(n: int, positives: int | None) -> str:
    """How many cases are behind a figure, and how many of them have the finding where that is not all.

    Examples
    --------
    >>> n_text(100, 7), n_text(100, None)
    ('7 of 100', '100')
    """
    return str(n) if positives is None else f"{positives} of {n}"


def p_text(p: float) -> str:
    """A p with three decimals; none is 0.

    Examples
    --------
    >>> p_text(0.0316), p_text(0.0002), p_text(float("nan"))
    ('0.032', '<0.001', '-')
    """
    if p != p:
        return "-"
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def groups_text(metric: str, n: int | str) -> str:
    """What a macro of `metric` is over: so many findings or criteria.

    Examples
    --------
    >>> groups_text("point_hit", 10), groups_text("rubric_mean", 1)
    ('10 findings', '1 criterion')
    """
    one, several = ("criterion", "criteria") if METRICS[metric].family == "ordinal" else ("finding", "findings")
    return f"{n} {one if str(n) == '1' else several}"
