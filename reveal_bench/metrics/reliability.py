"""Agreement of any number of readers: Fleiss' kappa, Krippendorff's alpha and intraclass correlations.

Conventions
-----------
Ratings are one array (n_cases, n_readers). Categories are integer codes in [0, n_categories), -1 without a rating; for
alpha at the levels "ordinal" and "interval" and for intraclass correlations the codes are ordered, and for the last two
evenly spaced. Intraclass correlations except ICC(1,1) and ICC(1,k) need one column per reader; for all other metrics
the ratings of a case may be in any order. Undefined values are NaN. Replicates, and scores without a patient, are
computed from sums over cases: add up the cases' rows, then call the function that ends in ``_from_sums`` or
``_from_coincidences``.

Missing ratings: Fleiss' kappa and alpha use the cases with two or more ratings; intraclass correlations use the cases
that every reader rated.

Metrics
-------
* :func:`fleiss_kappa`              agreement beyond chance of readers who may differ from case to case [1]_
* :func:`krippendorff_alpha`        1 - (observed disagreement) / (expected disagreement), three levels [2]_
* :func:`intraclass_correlation`    the six forms of Shrout and Fleiss [3]_, also named by McGraw and Wong [4]_

References
----------
.. [1] Fleiss, J. L. (1971). Psychol. Bull. 76, 378-382. doi:10.1037/h0031619
.. [2] Krippendorff, K. (2011). Computing Krippendorff's alpha-reliability. University of Pennsylvania.
.. [3] Shrout, P. E. and Fleiss, J. L. (1979). Psychol. Bull. 86, 420-428. doi:10.1037/0033-2909.86.2.420
.. [4] McGraw, K. O. and Wong, S. P. (1996). Psychol. Methods 1, 30-46. doi:10.1037/1082-989X.1.1.30
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.metrics.agreement import check_codes, divide

Level = Literal["nominal", "ordinal", "interval"]
IccForm = Literal["1,1", "2,1", "3,1", "1,k", "2,k", "3,k"]

_NO_SPREAD = 1e-12  # smaller proportions of the total are due to rounding


def fleiss_kappa(ratings: npt.ArrayLike, *, n_categories: int) -> float:
    """Return Fleiss' kappa; p are the categories' proportions.

    Agreement is the mean over cases of the proportion of equal pairs of ratings. Cases with fewer than two ratings are
    left out; if the other cases have unequal numbers of ratings, each has equal weight, also in p.

    Parameters
    ----------
    ratings : int array (n_cases, n_readers), values in [0, n_categories), -1 without a rating
    n_categories : int, at least 2

    Returns
    -------
    float in [-1, 1]; NaN if all ratings are one category, or no case has two ratings

    Raises
    ------
    ValueError
        If the shape is wrong or a code is out of range.

    Examples
    --------
    Agreement is (1 + 1/3 + 1) / 3 = 7/9, proportions are 5/9 and 4/9, so chance is 41/81:

    >>> round(fleiss_kappa([[0, 0, 0], [0, 0, 1], [1, 1, 1]], n_categories=2), 3)
    0.55
    """
    return float(fleiss_from_sums(fleiss_sums(ratings, n_categories=n_categories).sum(axis=0)))


def krippendorff_alpha(ratings: npt.ArrayLike, *, n_categories: int, level: Level = "nominal") -> float:
    """Return Krippendorff's alpha.

    Disagreement of ratings i and j is 1 ("nominal"), (i - j)^2 ("interval"), or the squared difference of their
    mean ranks among all ratings ("ordinal"). Cases with fewer than two ratings are left out.

    Parameters
    ----------
    ratings, n_categories : as for :func:`fleiss_kappa`
    level : "nominal", "ordinal" or "interval"

    Returns
    -------
    float in [-1, 1]; NaN if all ratings are one category, or no case has two ratings

    Raises
    ------
    ValueError
        If the shape is wrong, a code is out of range, or `level` is unknown.

    Examples
    --------
    Within cases, 2 of 8 ordered pairs differ; among all ratings, 2 * 3 * 5 of 8 * 7. Alpha is 1 - (2/8) / (30/56):

    >>> round(krippendorff_alpha([[0, 0], [0, 1], [1, 1], [1, 1]], n_categories=2), 3)
    0.533
    """
    tables = coincidences(ratings, n_categories=n_categories)
    return float(alpha_from_coincidences(tables.sum(axis=0), level=level))


def intraclass_correlation(ratings: npt.ArrayLike, *, form: IccForm = "2,1") -> float:
    """Return an intraclass correlation: the proportion of the variance of ratings that is between cases.

    * 1,1: different readers rate each case; differences between readers are error
    * 2,1: absolute agreement; the same readers, a sample of all readers, rate every case
    * 3,1: consistency; constant differences between readers are not error
    * 1,k, 2,k, 3,k: as 1,1, 2,1, 3,1, for the mean of all readers' ratings; 3,k is Cronbach's alpha

    Parameters
    ----------
    ratings : float array (n_cases, n_readers), NaN without a rating; only cases that every reader rated are used
    form : one of the six

    Returns
    -------
    float, at most 1; NaN with fewer than two readers or complete cases, or if the denominator is not above 0, such as
    for equal ratings

    Raises
    ------
    ValueError
        If the shape is wrong, a rating is infinite, or `form` is unknown.

    Examples
    --------
    The second reader always rates higher by 1:

    >>> ratings = [[1, 2], [2, 3], [3, 4]]
    >>> [round(intraclass_correlation(ratings, form=form), 3) for form in ("2,1", "3,1")]
    [0.667, 1.0]
    """
    values = np.asarray(ratings, np.float64)
    if values.ndim != 2:
        raise ArgumentError("ratings", "must have shape (n_cases, n_readers)", values.shape)
    if np.isinf(values).any():
        raise ArgumentError("ratings", "must be finite, or NaN without a rating", "inf")
    complete = values[~np.isnan(values).any(axis=1)]
    complete = complete - complete[:1, :1]  # centred near 0, so that squares lose no digits
    complete = complete - (complete.mean() if complete.size else 0.0)
    return float(icc_from_sums(icc_sums(complete).sum(axis=0), form=form))


def fleiss_sums(ratings: npt.ArrayLike, *, n_categories: int) -> FloatArray:
    """Return each case's terms of Fleiss' kappa, (n_cases, 2 + n_categories); all are 0 without two ratings.

    The terms are the proportion of equal pairs of ratings, 1, and the proportion of ratings in each category.
    """
    tally = rating_counts(ratings, n_categories=n_categories)
    n = tally.sum(axis=-1, keepdims=True)
    pairs = (tally * (tally - 1)).sum(axis=-1, keepdims=True)
    terms: FloatArray = np.concatenate([pairs / np.maximum(n * (n - 1), 1), n >= 2, tally / np.maximum(n, 1)], axis=-1)
    return np.where(n >= 2, terms, 0.0)


def fleiss_from_sums(sums: FloatArray) -> FloatArray:
    """Return :func:`fleiss_kappa` from summed :func:`fleiss_sums` (..., 2 + k); shape (...)."""
    means = divide(sums, sums[..., 1:2])
    remainder = 1 - (means[..., 2:] ** 2).sum(axis=-1)  # 1 - chance
    return divide(means[..., 0] - 1 + remainder, np.where(remainder < _NO_SPREAD, np.nan, remainder))


def coincidences(ratings: npt.ArrayLike, *, n_categories: int) -> FloatArray:
    """Return the coincidences of each case, (n_cases, n_categories, n_categories): counts of ordered pairs of its
    ratings.

    Each pair counts 1 / (number of ratings - 1), so the entries of a case's table sum to its number of ratings.
    """
    tally = rating_counts(ratings, n_categories=n_categories)
    n = tally.sum(axis=-1)[:, None, None]
    pairs = tally[:, :, None] * tally[:, None, :] - tally[:, :, None] * np.eye(n_categories)
    tables: FloatArray = pairs / np.maximum(n - 1, 1)
    return tables


def alpha_from_coincidences(tables: FloatArray, *, level: Level = "nominal") -> FloatArray:
    """Return :func:`krippendorff_alpha` from summed :func:`coincidences` (..., k, k); shape (...)."""
    if level not in get_args(Level):
        raise ArgumentError("level", f"must be one of {', '.join(get_args(Level))}", repr(level))
    in_category = tables.sum(axis=-1)
    n = in_category.sum(axis=-1)
    k = tables.shape[-1]
    # The mean rank of a category's ratings, or its code
    places = np.cumsum(in_category, axis=-1) - in_category / 2 if level == "ordinal" else np.arange(float(k))
    costs = 1 - np.eye(k) if level == "nominal" else (places[..., :, None] - places[..., None, :]) ** 2
    observed = (tables * costs).sum(axis=(-2, -1))
    expected = (in_category[..., :, None] * in_category[..., None, :] * costs).sum(axis=(-2, -1))
    return 1 - divide((n - 1) * observed, np.where(expected > 0, expected, np.nan))


def icc_sums(ratings: FloatArray) -> FloatArray:
    """Return each case's terms of intraclass correlations, (n_cases, 3 + n_readers); all are 0 if a rating is missing.

    The terms are 1, the sum of squared ratings, the square of their sum, and the ratings.
    """
    terms = [np.ones((len(ratings), 1)), (ratings**2).sum(axis=1, keepdims=True)]
    terms += [ratings.sum(axis=1, keepdims=True) ** 2, ratings]
    return np.where(np.isnan(ratings).any(axis=1, keepdims=True), 0.0, np.concatenate(terms, axis=1))


def icc_from_sums(sums: FloatArray, *, form: IccForm = "2,1") -> FloatArray:
    """Return :func:`intraclass_correlation` from summed :func:`icc_sums` (..., 3 + n_readers); shape (...)."""
    if form not in get_args(IccForm):
        raise ArgumentError("form", f"must be one of {'; '.join(get_args(IccForm))}", repr(form))
    n, squares, of_cases = sums[..., 0], sums[..., 1], sums[..., 2]
    of_readers = sums[..., 3:]
    k = of_readers.shape[-1]
    total = of_readers.sum(axis=-1)
    # Sums of squares times n k, which are exact for whole numbers
    all_around = n * k * squares - total**2
    between = n * of_cases - total**2
    readers = k * (of_readers**2).sum(axis=-1) - total**2
    within = all_around - between
    cases_off = np.where((n > 1) & (k > 1), n - 1, np.nan)
    mean_between, mean_within = between / cases_off, within / np.where(n > 1, n * max(k - 1, 1), np.nan)
    mean_readers, mean_error = readers / max(k - 1, 1), (within - readers) / (cases_off * max(k - 1, 1))
    error = mean_within if form[0] == "1" else mean_error
    added = divide(k * (mean_readers - mean_error), n) if form[0] == "2" else np.zeros_like(n)
    of_mean = mean_between + added / k
    denominator = of_mean if form[2] == "k" else mean_between + (k - 1) * error + added
    is_defined = denominator > _NO_SPREAD * all_around / np.maximum(n, 1)
    return divide(mean_between - error, np.where(is_defined, denominator, np.nan))


def rating_counts(ratings: npt.ArrayLike, *, n_categories: int) -> FloatArray:
    """Return the number of readers who chose each category, (n_cases, n_categories).

    Raises
    ------
    ValueError
        If the shape is wrong, a code is out of range, or there are fewer than two categories.
    """
    if n_categories < 2:
        raise ArgumentError("n_categories", "must be at least 2", n_categories)
    codes: IntArray = check_codes("ratings", ratings, low=-1, limit=n_categories, n_dims=(2,))
    counts = [(codes == category).sum(axis=1) for category in range(n_categories)]
    return np.stack(counts, axis=-1).astype(np.float64)
