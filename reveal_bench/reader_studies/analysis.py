"""Compare modalities over readers by the method of Obuchowski and Rockette, with Hillis's degrees of freedom.

Conventions
-----------
`figures` contains figures of merit (n_modalities, n_readers), such as AUCs. The errors of these figures come from the
sample of cases; `covariance` is the covariance of these errors, over modality x reader in row-major order. The model is
figure = mean + modality + reader + modality x reader + error. The errors of two figures have one of four covariances.

* `variance`: the same figure.
* `cov_1`: the same reader with another modality.
* `cov_2`: another reader with the same modality.
* `cov_3`: another reader with another modality.

Each covariance is the mean of the matrix entries of its kind. ``cov_2 - cov_3``, and the cov_2 of a single modality,
count as 0 if negative. The variance of readers is solved from their expected mean square with this interaction, as in
RJafroc; OR-DBM MRMC prints a larger one if cov_2 is below cov_3. The analysis depends on whether readers, cases or both
are a random sample.

=========  =======  =============================================  ==========================================
readers    cases    error of a mean square                         degrees of freedom
=========  =======  =============================================  ==========================================
random     random   MS(TR) + r (cov_2 - cov_3)                     error^2 / (MS(TR)^2 / ((t - 1) (r - 1)))
fixed      random   variance - cov_1 + (r - 1) (cov_2 - cov_3)     infinite
random     fixed    MS(TR)                                         (t - 1) (r - 1)
=========  =======  =============================================  ==========================================

Here t is the number of modalities, r the number of readers, and MS(TR) the mean square of their interaction. The
difference of two modalities has the standard error ``sqrt(2 error / r)``.

If each reader reads with one modality (split plot), the figures of a reader with other modalities are NaN. Let MS be
the pooled mean square of readers within modalities. The difference of modalities with r and s readers has the variance
``MS (1 / r + 1 / s) + 2 (cov_2 - cov_3)``, with degrees of freedom by Satterthwaite from those of MS.
If readers are fixed, ``variance - cov_2`` replaces MS; if cases are fixed, the second term is 0. F is the mean over the
pairs of modalities of the squared ratio of difference and standard error, which equals Hillis's F for equally many
readers. With different numbers of readers, three or more modalities have no F.

Sources: Obuchowski and Rockette (1995), Communications in Statistics 24; Hillis (2007), Statistics in Medicine 26;
Hillis (2014), Statistics in Medicine 33.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import ModuleType
from typing import Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.metrics.multiplicity import holm

Sample = Literal["random", "fixed"]


@dataclass(frozen=True, slots=True)
class Components:
    """Variances and covariances in the model of Obuchowski and Rockette.

    `reader` and `interaction` may be negative, and are NaN for one reader. If readers are nested in modalities,
    `interaction` is NaN, because `reader` includes it, and `cov_1` is 0.
    """

    variance: float
    cov_1: float
    cov_2: float
    cov_3: float
    reader: float
    interaction: float


@dataclass(frozen=True, slots=True)
class Mean:
    """A modality's mean figure over readers, computed only from the modality's own ratings."""

    modality: str
    estimate: Estimate
    error: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean figure of modality `a` minus that of modality `b`, with 95% interval and two-sided p.

    `p_adjusted` is p after Holm's correction for all pairs of modalities.
    """

    a: str
    b: str
    estimate: Estimate
    error: float
    freedom: float
    p: float
    p_adjusted: float = math.nan

    def against(self, margin: float) -> str:
        """Return "non-inferior", "inferior" or "not shown" for `a` against `b` and a margin; "-" without interval.

        The rule is that for two systems in :mod:`reveal_bench.evaluation.margin`.
        """
        low, high = self.estimate.low, self.estimate.high
        if not low < high:
            return "-"
        return "non-inferior" if low > -margin else "inferior" if high <= -margin else "not shown"


@dataclass(frozen=True)
class Analysis:
    """The result of a reader study.

    Attributes
    ----------
    modalities, readers : their names, in order
    figures : float array (n_modalities, n_readers), NaN for a reader with another modality than the reader's own
    components : components of the model
    f, freedom, p : result of the test that all modalities are equal: F (or chi square over its degrees of freedom,
        where the second of `freedom` is infinite), both degrees of freedom, and p; NaN for one modality
    means : means of every modality
    differences : differences of every pair of modalities
    readers_are, cases_are : "random" for a sample, "fixed" otherwise
    """

    modalities: tuple[str, ...]
    readers: tuple[str, ...]
    figures: FloatArray
    components: Components
    f: float
    freedom: tuple[float, float]
    p: float
    means: tuple[Mean, ...]
    differences: tuple[Difference, ...]
    readers_are: Sample
    cases_are: Sample


def analyse(
    figures: npt.ArrayLike,
    covariance: npt.ArrayLike,
    *,
    modalities: Sequence[str],
    readers: Sequence[str],
    readers_are: Sample = "random",
    cases_are: Sample = "random",
) -> Analysis:
    """Analyse figures of merit with the covariance of their errors.

    Parameters
    ----------
    figures : float array (n_modalities, n_readers); if readers are nested in modalities, NaN except one per reader
    covariance : float array (n_modalities * n_readers, n_modalities * n_readers)
    modalities, readers : their names
    readers_are, cases_are : "random" if readers or cases are a sample and the result is about their population, "fixed"
        if the result is only about these readers or cases

    Raises
    ------
    ValueError
        If shapes do not fit, a score is undefined, readers are missing, or both readers and cases are fixed.
    ImportError
        If scipy is not installed.
    """
    values, matrix = np.asarray(figures, np.float64), np.asarray(covariance, np.float64)
    _check(values, matrix, modalities, readers, readers_are, cases_are)
    names, t = tuple(modalities), len(values)
    variances = _mean_covariances(matrix, ~np.isnan(values))
    design = _nested if np.isnan(values).any() else _crossed
    components, errors, freedom = design(values, variances, readers_are, cases_are)
    means = tuple(_mean_of(i, names[i], values, matrix, readers_are, cases_are) for i in range(t))
    differences = tuple(
        _difference(
            names[a],
            names[b],
            means[a].estimate.value - means[b].estimate.value,
            float(errors[a, b]),
            float(freedom[a, b]),
        )
        for a, b in combinations(range(t), 2)
    )
    ratios = [(one.estimate.value / one.error) ** 2 if one.error > 0 else math.nan for one in differences]
    n_readers = {*(~np.isnan(values)).sum(axis=1).tolist()}
    f = float(np.mean(ratios)) if t == 2 or (t > 2 and len(n_readers) == 1) else math.nan
    adjusted = [float(p) for p in holm([one.p for one in differences])]
    differences = tuple(replace(one, p_adjusted=p) for one, p in zip(differences, adjusted, strict=True))
    f_freedom = float(t - 1), float(freedom[0, -1])
    return Analysis(
        names, tuple(readers), values, components, f, f_freedom, _upper_tail(f, t - 1, f_freedom[1]),
        means, differences, readers_are, cases_are,
    )  # fmt: skip


_Errors = tuple[Components, FloatArray, FloatArray]
"""Components, and standard errors and degrees of freedom of differences (n_modalities, n_modalities)."""


def _crossed(
    figures: FloatArray, variances: tuple[float, float, float, float], readers_are: Sample, cases_are: Sample
) -> _Errors:
    variance, cov_1, cov_2, cov_3 = variances
    t, r = figures.shape
    shared = max(cov_2 - cov_3, 0.0) if t > 1 and r > 1 else 0.0
    ms_r, ms_tr = _mean_squares(figures)
    interaction = ms_tr - variance + cov_1 + shared if t > 1 and r > 1 else math.nan
    # Solved from the expected mean square of readers, in which the interaction counts with `shared` above.
    reader = (ms_r - interaction - variance + cov_2 - (t - 1) * (cov_1 - cov_3)) / t
    if readers_are == "fixed":
        error, freedom = variance - cov_1 + (r - 1) * shared, math.inf
    else:
        error = ms_tr + (r * shared if cases_are == "random" else 0.0)
        freedom = _freedom(error, ms_tr, (t - 1) * (r - 1))
    components = Components(variance, cov_1, cov_2, cov_3, reader, interaction)
    return components, np.full((t, t), math.sqrt(2 * error / r)), np.full((t, t), freedom)


def _nested(
    figures: FloatArray, variances: tuple[float, float, float, float], readers_are: Sample, cases_are: Sample
) -> _Errors:
    variance, cov_1, cov_2, cov_3 = variances
    n = (~np.isnan(figures)).sum(axis=1)
    own_freedom = int((n - 1).sum())
    rest = figures - np.nanmean(figures, axis=1, keepdims=True)
    mean_square = float(np.nansum(rest**2)) / own_freedom if own_freedom else math.nan
    components = Components(variance, cov_1, cov_2, cov_3, mean_square - variance + cov_2, math.nan)
    shared = 0.0 if cases_are == "fixed" else max(cov_2 - cov_3, 0.0)
    each = 1 / n[:, None] + 1 / n
    if readers_are == "fixed":
        return components, np.sqrt((variance - cov_2) * each + 2 * shared), np.full(each.shape, math.inf)
    squares = mean_square * each + 2 * shared
    freedom = [
        _freedom(float(a), float(b), own_freedom) for a, b in zip(squares.flat, (mean_square * each).flat, strict=True)
    ]
    return components, np.sqrt(squares), np.reshape(freedom, each.shape)


def _check(
    figures: FloatArray,
    covariance: FloatArray,
    modalities: Sequence[str],
    readers: Sequence[str],
    readers_are: str,
    cases_are: str,
) -> None:
    if figures.ndim != 2 or figures.shape != (len(modalities), len(readers)) or not figures.size:
        rule = (
            f"must have a row for each of {len(modalities)} modalities and a column for each of {len(readers)} readers"
        )
        raise ArgumentError("figures", rule, figures.shape)
    if covariance.shape != (figures.size, figures.size):
        raise ArgumentError("covariance", f"must have the shape {(figures.size, figures.size)}", covariance.shape)
    n_read = (~np.isnan(figures)).sum(axis=1)
    is_nested = len(modalities) > 1 and bool((np.isfinite(figures).sum(axis=0) == 1).all())
    if not ((is_nested or np.isfinite(figures).all()) and np.isfinite(covariance).all()):
        raise ArgumentError("figures", "and `covariance` must be defined", "NaN", ("covariance",))
    for name, kind in (("readers_are", readers_are), ("cases_are", cases_are)):
        if kind not in ("random", "fixed"):
            raise ArgumentError(name, "must be 'random' or 'fixed'", repr(kind))
    if readers_are == cases_are == "fixed":
        rule = "or `cases_are` must be 'random': otherwise nothing varies"
        raise ArgumentError("readers_are", rule, "'fixed' for both")
    if readers_are == "random" and n_read.min() < 2:
        raise ArgumentError("readers_are", "must be 'fixed' for one reader", repr(readers_are))


def _mean_covariances(matrix: FloatArray, is_read: BoolArray) -> tuple[float, float, float, float]:
    """Return variance, cov_1, cov_2 and cov_3 of the figures that exist, each 0 if there are no such pairs of figures.

    Parameters
    ----------
    is_read : bool array (n_modalities, n_readers), True if the reader read with the modality
    """
    modality, reader = np.nonzero(is_read)
    own = np.flatnonzero(is_read)
    matrix = matrix[np.ix_(own, own)]
    same_modality, same_reader = modality[:, None] == modality, reader[:, None] == reader
    kinds = (same_modality & same_reader, ~same_modality & same_reader, same_modality & ~same_reader,
             ~same_modality & ~same_reader)  # fmt: skip
    variance, cov_1, cov_2, cov_3 = (float(matrix[kind].mean()) if kind.any() else 0.0 for kind in kinds)
    return variance, cov_1, cov_2, cov_3


def _mean_squares(figures: FloatArray) -> tuple[float, float]:
    """Return the mean squares of readers (NaN for one reader) and of the interaction (0 without degrees of freedom)."""
    t, r = figures.shape
    of_modality, of_reader, mean = figures.mean(axis=1), figures.mean(axis=0), figures.mean()
    rest = figures - of_modality[:, None] - of_reader + mean
    ms_r = t * float(((of_reader - mean) ** 2).sum()) / (r - 1) if r > 1 else math.nan
    ms_tr = float((rest**2).sum()) / ((t - 1) * (r - 1)) if t > 1 and r > 1 else 0.0
    return ms_r, ms_tr


def _freedom(error: float, mean_square: float, own: float) -> float:
    """Return Hillis's degrees of freedom, which are infinite if readers differ only by rounding."""
    return error**2 / (mean_square**2 / own) if mean_square > _ROUNDING * error else math.inf


_ROUNDING = 1e-12
"""Fraction of a variance below which a component counts as 0, because readers' figures then differ only by rounding."""


def _mean_of(
    i: int, name: str, figures: FloatArray, matrix: FloatArray, readers_are: Sample, cases_are: Sample
) -> Mean:
    """Return the mean figure of modality `i`, computed only from the modality's own ratings."""
    is_read = ~np.isnan(figures) & (np.arange(len(figures)) == i)[:, None]
    own = figures[is_read]
    r = len(own)
    variance, _, cov_2, _ = _mean_covariances(matrix, is_read)
    ms_r, _ = _mean_squares(own[None])
    if readers_are == "fixed":
        error, freedom = variance + (r - 1) * max(cov_2, 0.0), math.inf
    else:
        error = ms_r + (r * max(cov_2, 0.0) if cases_are == "random" else 0.0)
        freedom = _freedom(error, ms_r, r - 1)
    value, spread = float(own.mean()), math.sqrt(error / r)
    reach = _reach(spread, freedom)
    return Mean(name, Estimate(value, value - reach, value + reach), spread, freedom)


def _difference(a: str, b: str, value: float, error: float, freedom: float) -> Difference:
    reach = _reach(error, freedom)
    f = (value / error) ** 2 if error > 0 else math.nan
    estimate = Estimate(float(value), float(value - reach), float(value + reach))
    return Difference(a, b, estimate, error, freedom, _upper_tail(f, 1, freedom))


def _reach(error: float, freedom: float) -> float:
    """Return half the width of a 95% interval by Student's t; NaN if the error is 0, which allows no inference."""
    stats = scipy_stats()
    if error**2 < _ROUNDING:
        return math.nan
    return error * float(stats.norm.ppf(0.975) if math.isinf(freedom) else stats.t.ppf(0.975, freedom))


def _upper_tail(f: float, numerator: int, denominator: float) -> float:
    """Return the p value of an F statistic.

    If the denominator has infinite degrees of freedom, F is chi square divided by its degrees of freedom.
    """
    if math.isnan(f):
        return math.nan
    stats = scipy_stats()
    if math.isinf(denominator):
        return float(stats.chi2.sf(f * numerator, numerator))
    return float(stats.f.sf(f, numerator, denominator))


def scipy_stats() -> ModuleType:
    """Return ``scipy.stats``, or raise an ImportError that says how to install it."""
    try:
        from scipy import stats
    except ImportError:
        raise ImportError("the analysis of readers needs scipy: pip install 'reveal-bench[curate]'") from None
    module: ModuleType = stats
    return module
