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
from reveal_bench.arrays import FloatArray
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.metrics.multiplicity import holm

Sample = Literal["random", "fixed"]


@dataclass(frozen=True, slots=True)
class Components:
    """Variances and covariances in the model of Obuchowski and Rockette.

    `reader` and `interaction` may be negative, and are NaN for one reader.
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
    figures : float array (n_modalities, n_readers)
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
    figures : float array (n_modalities, n_readers)
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
    t, r = values.shape
    variance, cov_1, cov_2, cov_3 = _mean_covariances(matrix, t, r)
    shared = max(cov_2 - cov_3, 0.0) if t > 1 and r > 1 else 0.0
    ms_t, ms_r, ms_tr = _mean_squares(values)
    interaction = ms_tr - variance + cov_1 + shared if t > 1 and r > 1 else math.nan
    # Solved from the expected mean square of readers, in which the interaction counts with `shared` above.
    reader = (ms_r - interaction - variance + cov_2 - (t - 1) * (cov_1 - cov_3)) / t
    components = Components(variance, cov_1, cov_2, cov_3, reader, interaction)
    if readers_are == "fixed":
        error, freedom = variance - cov_1 + (r - 1) * shared, math.inf
    else:
        error = ms_tr + (r * shared if cases_are == "random" else 0.0)
        freedom = _freedom(error, ms_tr, (t - 1) * (r - 1))
    f = ms_t / error if t > 1 and error > 0 else math.nan
    names = tuple(modalities)
    means = tuple(_mean_of(i, names[i], values, matrix, readers_are, cases_are) for i in range(t))
    differences = tuple(
        _difference(names[a], names[b], values[a].mean() - values[b].mean(), math.sqrt(2 * error / r), freedom)
        for a, b in combinations(range(t), 2)
    )
    adjusted = [float(p) for p in holm([one.p for one in differences])]
    differences = tuple(replace(one, p_adjusted=p) for one, p in zip(differences, adjusted, strict=True))
    return Analysis(
        names, tuple(readers), values, components, f, (float(t - 1), freedom), _upper_tail(f, t - 1, freedom),
        means, differences, readers_are, cases_are,
    )  # fmt: skip


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
    if not (np.isfinite(figures).all() and np.isfinite(covariance).all()):
        raise ArgumentError("figures", "and `covariance` must be defined", "NaN", ("covariance",))
    for name, kind in (("readers_are", readers_are), ("cases_are", cases_are)):
        if kind not in ("random", "fixed"):
            raise ArgumentError(name, "must be 'random' or 'fixed'", repr(kind))
    if readers_are == cases_are == "fixed":
        rule = "or `cases_are` must be 'random': otherwise nothing varies"
        raise ArgumentError("readers_are", rule, "'fixed' for both")
    if readers_are == "random" and len(readers) < 2:
        raise ArgumentError("readers_are", "must be 'fixed' for one reader", repr(readers_are))


def _mean_covariances(matrix: FloatArray, t: int, r: int) -> tuple[float, float, float, float]:
    """Return variance, cov_1, cov_2 and cov_3, each 0 if there are no such pairs of figures."""
    modality, reader = np.divmod(np.arange(t * r), r)
    same_modality, same_reader = modality[:, None] == modality, reader[:, None] == reader
    kinds = (same_modality & same_reader, ~same_modality & same_reader, same_modality & ~same_reader,
             ~same_modality & ~same_reader)  # fmt: skip
    variance, cov_1, cov_2, cov_3 = (float(matrix[kind].mean()) if kind.any() else 0.0 for kind in kinds)
    return variance, cov_1, cov_2, cov_3


def _mean_squares(figures: FloatArray) -> tuple[float, float, float]:
    """Return the mean squares of modalities, readers and interaction.

    A mean square without degrees of freedom is NaN, but the mean square of the interaction is then 0.
    """
    t, r = figures.shape
    of_modality, of_reader, mean = figures.mean(axis=1), figures.mean(axis=0), figures.mean()
    rest = figures - of_modality[:, None] - of_reader + mean
    ms_t = r * float(((of_modality - mean) ** 2).sum()) / (t - 1) if t > 1 else math.nan
    ms_r = t * float(((of_reader - mean) ** 2).sum()) / (r - 1) if r > 1 else math.nan
    ms_tr = float((rest**2).sum()) / ((t - 1) * (r - 1)) if t > 1 and r > 1 else 0.0
    return ms_t, ms_r, ms_tr


def _freedom(error: float, mean_square: float, own: float) -> float:
    """Return Hillis's degrees of freedom, which are infinite if readers differ only by rounding."""
    return error**2 / (mean_square**2 / own) if mean_square > _ROUNDING * error else math.inf


_ROUNDING = 1e-12
"""Fraction of a variance below which a component counts as 0, because readers' figures then differ only by rounding."""


def _mean_of(
    i: int, name: str, figures: FloatArray, matrix: FloatArray, readers_are: Sample, cases_are: Sample
) -> Mean:
    """Return the mean figure of modality `i`, computed only from the modality's own ratings."""
    r = figures.shape[1]
    own = matrix[i * r : (i + 1) * r, i * r : (i + 1) * r]
    variance, _, cov_2, _ = _mean_covariances(own, 1, r)
    _, ms_r, _ = _mean_squares(figures[i : i + 1])
    if readers_are == "fixed":
        error, freedom = variance + (r - 1) * max(cov_2, 0.0), math.inf
    else:
        error = ms_r + (r * max(cov_2, 0.0) if cases_are == "random" else 0.0)
        freedom = _freedom(error, ms_r, r - 1)
    value, spread = float(figures[i].mean()), math.sqrt(error / r)
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
