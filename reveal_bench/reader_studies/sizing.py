"""Compute the power of a planned reader study, and the cases needed to show a difference of two modalities.

Conventions
-----------
The variances and covariances of a pilot study with n cases (:class:`~.analysis.Components`) predict a study with
n_cases other cases of the same kind. Covariances of errors are ``n / n_cases`` times the pilot's; the interaction of
modality and reader stays the same. Let r be the number of planned readers, and ``shared = cov_2 - cov_3``, or 0 if this
is negative.

* ``MS = interaction + n / n_cases (variance - cov_1 - shared)`` is the expected MS(TR).
* The error of a mean square and its degrees of freedom follow from MS as in :mod:`.analysis`.
* The difference divided by its standard error ``sqrt(2 error / r)`` follows a noncentral t. The noncentrality is the
  true difference (with a margin, the true difference plus the margin) divided by the standard error.

Power is the probability that the two-sided test at 0.05 finds a difference of the modalities, in either direction. With
a margin, power is the probability that the whole 95% interval is above minus the margin. The study compares two
modalities and is fully crossed. A negative interaction counts as 0.

Source: Hillis, Obuchowski and Berbaum (2011), Academic Radiology 18.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.reader_studies.analysis import Components, Sample, scipy_stats

MOST_CASES = 2000
"""Maximum number of cases in the search, because readers rarely read more cases twice."""
_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Pilot:
    """The pilot study that predicts a planned study.

    Attributes
    ----------
    components, n_cases : variance components and number of cases of the pilot study
    n_read : number of modalities with which a reader reads a case; 1 if the other modality is a system
    """

    components: Components
    n_cases: int
    n_read: int = 2

    def __post_init__(self) -> None:
        one = self.components
        if not (isinstance(self.n_cases, int) and self.n_cases >= 2):
            raise ArgumentError("n_cases", "of the pilot must be a whole number of at least 2", repr(self.n_cases))
        needed = {name: getattr(one, name) for name in ("variance", "cov_1", "cov_2", "cov_3", "interaction")}
        undefined = [name for name, value in needed.items() if not math.isfinite(value)]
        if undefined:
            rule = "must come from a study with two modalities and two or more readers, or have all variance components"
            raise ArgumentError("pilot", rule, f"no {undefined[0]}")
        if self._of_one_reading() <= 0:
            rule = "must have a variance above cov_1 plus the excess of cov_2 over cov_3"
            raise ArgumentError("pilot", rule, f"{one.variance:g}, and {one.cov_1 + self._shared():g}")

    def _shared(self) -> float:
        return max(self.components.cov_2 - self.components.cov_3, 0.0)

    def _of_one_reading(self) -> float:
        return self.components.variance - self.components.cov_1 - self._shared()

    def errors(self, n_readers: int, n_cases: IntArray, target: Target) -> tuple[FloatArray, FloatArray]:
        """Return the error of a mean square in studies with `n_cases` cases, and the degrees of freedom."""
        share = self.n_cases / n_cases
        shared = share * self._shared()
        mean_square = max(self.components.interaction, 0.0) + share * self._of_one_reading()
        if target.readers_are == "fixed":
            return share * self._of_one_reading() + n_readers * shared, np.full(n_cases.shape, math.inf)
        error = mean_square + (n_readers * shared if target.cases_are == "random" else 0.0)
        return error, error**2 / (mean_square**2 / (n_readers - 1))


@dataclass(frozen=True, slots=True)
class Target:
    """The difference that a study should show, and the population to which the result refers.

    Attributes
    ----------
    difference : true difference of the modalities; None means 0, which needs a margin
    margin : how much worse than the second modality the first may be; None to test for any difference
    readers_are, cases_are : as in :func:`~.analysis.analyse`
    """

    difference: float | None = None
    margin: float | None = None
    readers_are: Sample = "random"
    cases_are: Sample = "random"

    def __post_init__(self) -> None:
        for name in ("readers_are", "cases_are"):
            if getattr(self, name) not in ("random", "fixed"):
                raise ArgumentError(name, "must be 'random' or 'fixed'", repr(getattr(self, name)))
        if self.readers_are == self.cases_are == "fixed":
            rule = "or `cases_are` must be 'random': otherwise nothing varies"
            raise ArgumentError("readers_are", rule, "'fixed' for both", ("cases_are",))
        if self.margin is None:
            if self.difference is None or not 0 < abs(self.difference) < math.inf:
                rule = "must be the true difference that the study should show, such as 0.05, or `margin` must be given"
                raise ArgumentError("difference", rule, self.difference, ("margin",))
            return
        if not 0 < self.margin < math.inf:
            raise ArgumentError("margin", "must be above 0", self.margin)
        if not -self.margin < self.true_difference < math.inf:
            rule = (
                "must be above minus the margin: no study can show that a modality worse by the margin is non-inferior"
            )
            raise ArgumentError("difference", rule, self.difference)

    @property
    def true_difference(self) -> float:
        """The difference, or 0 if it is None."""
        return self.difference or 0.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned study.

    Attributes
    ----------
    n_readers, n_cases : numbers in the study, in which every reader reads every case with each modality; `n_cases` is
        None if too many would be needed
    n_readings : number of ratings by all readers with each modality that they use
    power : probability that the study shows the difference
    error, freedom, noncentrality : standard error of the difference, degrees of freedom, and of the noncentral t
    """

    n_readers: int
    n_cases: int | None
    n_readings: int | None
    power: float
    error: float
    freedom: float
    noncentrality: float


def power_of(pilot: Pilot, target: Target, *, n_readers: int, n_cases: int) -> Planned:
    """Return the study with these numbers of readers and cases, including its power."""
    return _planned(pilot, target, n_readers, np.array([n_cases], np.int64))[0]


def fewest_cases(pilot: Pilot, target: Target, *, n_readers: int, power: float = 0.8) -> Planned:
    """Return the study with this number of readers and the fewest cases, up to MOST_CASES, that reach the power.

    If no number of cases reaches the power, `n_cases` is None, and `power` is that with MOST_CASES.
    """
    if not 0 < power < 1:
        raise ArgumentError("power", "must be between 0 and 1, such as 0.8", power)
    studies = _planned(pilot, target, n_readers, np.arange(2, MOST_CASES + 1, dtype=np.int64))
    enough = next((study for study in studies if study.power >= power), None)
    return enough or replace(studies[-1], n_cases=None, n_readings=None)


def _planned(pilot: Pilot, target: Target, n_readers: int, n_cases: IntArray) -> list[Planned]:
    least = 1 if target.readers_are == "fixed" else 2
    if n_readers < least:
        raise ArgumentError("n_readers", f"must be at least {least} if readers are {target.readers_are}", n_readers)
    if n_cases.min() < 2:
        raise ArgumentError("n_cases", "must be at least 2", int(n_cases.min()))
    error, freedom = pilot.errors(n_readers, n_cases, target)
    errors = np.sqrt(2 * error / n_readers)
    noncentrality = (
        abs(target.true_difference) if target.margin is None else target.true_difference + target.margin
    ) / errors
    power = _power(noncentrality, freedom, is_two_sided=target.margin is None)
    return [
        Planned(n_readers, n, pilot.n_read * n_readers * n, *figures)
        for n, *figures in zip(
            n_cases.tolist(), power.tolist(), errors.tolist(), freedom.tolist(), noncentrality.tolist(), strict=True
        )
    ]


def _power(noncentrality: FloatArray, freedom: FloatArray, *, is_two_sided: bool) -> FloatArray:
    """Return the probability that a noncentral t exceeds the 97.5th percentile of t.

    If two-sided, add the probability that the noncentral t is below the negative of this percentile.
    """
    stats = scipy_stats()
    if np.isinf(freedom).all():
        critical = stats.norm.ppf(1 - _ALPHA / 2)
        above = stats.norm.sf(critical - noncentrality)
        below = stats.norm.cdf(-critical - noncentrality)
    else:
        critical = stats.t.ppf(1 - _ALPHA / 2, freedom)
        above = stats.nct.sf(critical, freedom, noncentrality)
        below = stats.nct.cdf(-critical, freedom, noncentrality)
    power: FloatArray = above + below if is_two_sided else above
    return power
