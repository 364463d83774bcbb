"""Obuchowski and Rockette's analysis: printed worked examples, and the analysis of variance of pseudovalues."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import f as f_distribution
from scipy.stats import f_oneway, ttest_ind

from reveal_bench.reader_studies.analysis import Analysis, Sample, analyse
from reveal_bench.reader_studies.study import beside_readers, figures_of
from tests.reader_studies.studies import drawn

FloatArray = npt.NDArray[np.float64]
VAN_DYKE = np.array([
    [0.91964573, 0.85877617, 0.90386473, 0.97310789, 0.82979066],
    [0.94782609, 0.90531401, 0.92173913, 0.99935588, 0.92995169],
])  # fmt: skip
"""Areas of five readers with two modalities (Van Dyke et al. 1993), as RJafroc prints them."""


def covariance(
    t: int, r: int, variance: float | list[float], cov_1: float, cov_2: float | list[float], cov_3: float
) -> FloatArray:
    """One whose means of each kind are as given; `variance` and `cov_2` may differ between modalities."""
    modality, reader = np.divmod(np.arange(t * r), r)
    same_modality, same_reader = modality[:, None] == modality, reader[:, None] == reader
    own = np.broadcast_to(cov_2, t)[modality]
    matrix = np.where(same_modality, own[:, None], np.where(same_reader, cov_1, cov_3))
    matrix[np.diag_indices(t * r)] = np.broadcast_to(variance, t)[modality]
    return matrix


def of(
    figures: FloatArray, matrix: FloatArray, readers_are: Sample = "random", cases_are: Sample = "random"
) -> Analysis:
    t, r = figures.shape
    names = [f"m{i}" for i in range(t)], [f"r{i}" for i in range(r)]
    return analyse(figures, matrix, modalities=names[0], readers=names[1], readers_are=readers_are, cases_are=cases_are)


# Variances of the single modalities are those of their printed standard errors: (variance + 4 cov_2) / 5
VARIANCES = [5 * 0.02428971**2 - 4 * 0.0004839618, 5 * 0.01677632**2 - 4 * 0.0002041879]
JACKKNIFE = covariance(2, 5, 8.0228827e-4, 3.4661371e-4, [4.839618e-4, 2.041879e-4], 2.3902837e-4)


def test_van_dyke_readers_and_cases_random() -> None:
    """Printed by MRMCaov 0.2 (jackknife covariances), and by RJafroc."""
    result = of(VAN_DYKE, JACKKNIFE)
    assert result.f == pytest.approx(4.456319, abs=1e-6)
    assert result.freedom == (1, pytest.approx(15.25967, abs=1e-5))
    assert result.p == pytest.approx(0.05166569, abs=2e-8)
    (difference,) = result.differences
    assert difference.estimate.value == pytest.approx(-0.04380032, abs=5e-9)
    assert difference.error == pytest.approx(0.02074862, abs=5e-9)
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((-0.0879594986, 0.0003588544), abs=2e-8)
    assert difference.p == pytest.approx(result.p)
    assert result.components.reader == pytest.approx(0.0015349993, abs=5e-9)
    assert result.components.interaction == pytest.approx(0.0002004025, abs=5e-9)
    printed = [
        (0.8970370, 0.03317360, 12.74465, 0.8252236, 0.9688505),
        (0.9408374, 0.02156637, 12.71019, 0.8941378, 0.9875369),
    ]
    for mean, (value, error, freedom, low, high) in zip(result.means, printed, strict=True):
        assert (mean.estimate.value, mean.estimate.low, mean.estimate.high) == pytest.approx(
            (value, low, high), abs=5e-8
        )
        assert mean.error == pytest.approx(error, abs=5e-9)
        assert mean.freedom == pytest.approx(freedom, abs=2e-5)


def test_van_dyke_readers_fixed() -> None:
    """Printed by RJafroc for these five readers only."""
    assert np.mean(VARIANCES) == pytest.approx(0.0008022883, abs=5e-10)
    result = of(VAN_DYKE, JACKKNIFE, readers_are="fixed")
    assert (result.f, result.p) == (pytest.approx(5.475953, abs=5e-7), pytest.approx(0.01927984, abs=5e-9))
    assert result.freedom == (1, math.inf)
    (difference,) = result.differences
    assert difference.error == pytest.approx(0.01871748, abs=5e-9)
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((-0.08048591, -0.00711473), abs=1e-8)
    of_each = of(VAN_DYKE, covariance(2, 5, VARIANCES, 3.4661371e-4, [4.839618e-4, 2.041879e-4], 2.3902837e-4), "fixed")
    assert [(mean.estimate.low, mean.estimate.high) for mean in of_each.means] == [
        (pytest.approx(0.8494301, abs=1e-6), pytest.approx(0.9446440, abs=1e-6)),
        (pytest.approx(0.9079564, abs=1e-6), pytest.approx(0.9737183, abs=1e-6)),
    ]


def test_van_dyke_cases_fixed() -> None:
    """Printed by RJafroc for these cases only."""
    result = of(VAN_DYKE, JACKKNIFE, cases_are="fixed")
    assert (result.f, result.p) == (pytest.approx(8.704, abs=5e-6), pytest.approx(0.04195875, abs=5e-8))
    assert result.freedom == (1, 4)
    (difference,) = result.differences
    assert difference.error == pytest.approx(0.01484629, abs=5e-9)
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((-0.08502022, -0.00258042), abs=2e-8)


def test_van_dyke_with_unbiased_covariances() -> None:
    """Printed by the MATLAB toolbox of MRMCaov, to five digits."""
    result = of(VAN_DYKE, covariance(2, 5, 0.00078839, 0.00034167, [0.00047718, 0.00020095], 0.00023561))
    assert result.f == pytest.approx(4.4896, abs=5e-4)
    assert result.freedom[1] == pytest.approx(15.034, abs=2e-3)
    assert result.p == pytest.approx(0.051162, abs=5e-6)
    (difference,) = result.differences
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((-0.087852, 0.0002513), abs=2e-6)
    assert [mean.error for mean in result.means] == pytest.approx([0.033071, 0.021491], abs=1e-6)
    assert [mean.freedom for mean in result.means] == pytest.approx([12.588, 12.534], abs=2e-3)
    assert [(mean.estimate.low, mean.estimate.high) for mean in result.means] == [
        (pytest.approx(0.82535, abs=6e-6), pytest.approx(0.96872, abs=6e-6)),
        (pytest.approx(0.89423, abs=6e-6), pytest.approx(0.98744, abs=6e-6)),
    ]


def test_franken() -> None:
    """Franken et al. 1992, four readers and two modalities, printed by RJafroc: cov_2 below cov_3 counts as 0.

    Areas that have the printed sums of squares: two modality means, four reader means, and an interaction of one
    pattern, which is all that the analysis sees of them.
    """
    between = np.array([0.8477499, 0.8368951])
    pattern = np.array([1.0, 1.0, -1.0, -1.0])
    readers = 2 * np.sqrt(0.0020521800 / 8 / 4) * pattern * [1, -1, 1, -1]  # sum of squares of four means, times two
    interaction = np.sqrt(0.0001506079 / 8) * np.outer([1, -1], pattern)
    figures = between[:, None] + readers / 2 * np.sqrt(4) + interaction
    result = of(figures, covariance(2, 4, 1.525776e-03, 7.916821e-04, 4.836377e-04, 5.125091e-04))
    assert result.f == pytest.approx(4.694058, abs=5e-5)
    assert result.freedom == (1, pytest.approx(3))
    assert result.p == pytest.approx(0.1188379, abs=2e-6)
    (difference,) = result.differences
    assert difference.estimate.value == pytest.approx(0.01085482, abs=3e-8)
    assert difference.error == pytest.approx(0.005010122, abs=1e-8)
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((-0.005089627, 0.02679926), abs=1e-7)
    assert result.components.reader == pytest.approx(2.331994e-05, abs=5e-10)
    assert result.components.interaction == pytest.approx(-6.838915e-04, abs=5e-10)


def test_it_equals_the_analysis_of_variance_of_pseudovalues(rng: np.random.Generator) -> None:
    """Dorfman, Berbaum and Metz with Hillis' error: another formula, from mean squares over all three factors."""
    study = drawn(rng, t=3, r=4, n=40)
    figures, matrix = figures_of(study, "auc")
    result = of(figures, matrix)
    t, r, n = study.scores.shape
    pseudo = np.empty((t, r, n))
    from sklearn.metrics import roc_auc_score

    for i in range(t):
        for j in range(r):
            for k in range(n):
                kept = np.arange(n) != k
                area = roc_auc_score(study.truth[kept], study.scores[i, j, kept])
                pseudo[i, j, k] = n * figures[i, j] - (n - 1) * area

    def mean_square(values: FloatArray, axes: tuple[int, ...]) -> float:
        """Return the interaction of `axes`: their means without all lower effects."""
        rest = np.zeros_like(values)
        for mask in range(2 ** len(axes)):
            own = tuple(axis for b, axis in enumerate(axes) if mask >> b & 1)
            others = tuple(axis for axis in range(3) if axis not in own)
            rest = rest + (-1) ** (len(axes) - len(own)) * values.mean(axis=others, keepdims=True)
        return float((rest**2).sum() / np.prod([values.shape[axis] - 1 for axis in axes]))

    ms_t, ms_tr, ms_tc, ms_trc = (mean_square(pseudo, axes) for axes in ((0,), (0, 1), (0, 2), (0, 1, 2)))
    error = ms_tr + max(ms_tc - ms_trc, 0)
    freedom = error**2 / (ms_tr**2 / ((t - 1) * (r - 1)))
    assert result.f == pytest.approx(ms_t / error)
    assert result.freedom == pytest.approx((t - 1, freedom))
    assert result.p == pytest.approx(f_distribution.sf(ms_t / error, t - 1, freedom))
    assert len(result.differences) == 3
    smallest, middle, largest = sorted(result.differences, key=lambda one: one.p)
    thrice, twice = 3 * smallest.p, 2 * middle.p
    expected = [min(1, thrice), min(1, max(thrice, twice)), min(1, max(thrice, twice, largest.p))]
    assert [one.p_adjusted for one in (smallest, middle, largest)] == pytest.approx(expected)


def nested(numbers: list[int]) -> npt.NDArray[np.bool_]:
    """Which of the readers has which modality, in order, as (n_modalities, n_readers)."""
    return np.repeat(np.arange(len(numbers)), numbers) == np.arange(len(numbers))[:, None]


@pytest.mark.parametrize("numbers", [[4, 4], [3, 6], [2, 2, 2]])
def test_nested_readers_of_fixed_cases_are_an_analysis_of_variance(
    rng: np.random.Generator, numbers: list[int]
) -> None:
    """scipy's one-way analysis of variance and, for two modalities, Student's t of two samples of readers."""
    is_read = nested(numbers)
    figures = np.where(is_read, 0.8 + 0.05 * rng.standard_normal(is_read.shape), np.nan)
    samples = [row[~np.isnan(row)] for row in figures]
    result = of(figures, 1e-4 * np.eye(figures.size), cases_are="fixed")
    f, p = f_oneway(*samples)
    assert (result.f, result.p) == (pytest.approx(f), pytest.approx(p))
    assert result.freedom == (len(numbers) - 1, sum(numbers) - len(numbers))
    if len(numbers) == 2:
        interval = ttest_ind(*samples).confidence_interval()
        (difference,) = result.differences
        assert (difference.estimate.low, difference.estimate.high) == pytest.approx((interval.low, interval.high))


def test_nested_readers_of_random_cases(rng: np.random.Generator) -> None:
    """Hillis's F and degrees of freedom (2014) written out, for three modalities with four readers each."""
    is_read = nested([4, 4, 4])
    figures = np.where(is_read, 0.8 + 0.05 * rng.standard_normal(is_read.shape), np.nan)
    matrix = covariance(3, 12, 8e-4, 9.0, 5e-4, 2e-4)  # cov_1 does not occur
    result = of(figures, matrix)
    means = np.nanmean(figures, axis=1)
    of_readers = np.nanvar(figures, axis=1, ddof=1).mean()
    error = of_readers + 4 * 3e-4
    freedom = error**2 / (of_readers**2 / 9)
    assert (result.f, result.freedom) == (pytest.approx(4 * means.var(ddof=1) / error), (2, pytest.approx(freedom)))
    assert result.p == pytest.approx(f_distribution.sf(result.f, 2, freedom))
    assert result.differences[1].error == pytest.approx(math.sqrt(2 * error / 4))
    assert result.components.reader == pytest.approx(of_readers - 8e-4 + 5e-4)
    assert math.isnan(result.components.interaction)
    with pytest.raises(ValueError, match="`readers_are` must be 'fixed' for one reader"):
        of(np.where(nested([1, 3]), 0.5, np.nan), np.eye(8))
    assert math.isnan(of(np.where(nested([2, 3, 2]), rng.random(7), np.nan), covariance(3, 7, 1.0, 0, 0.5, 0.2)).f)


def test_nested_fixed_readers_have_the_variance_of_the_contrast(rng: np.random.Generator) -> None:
    study = drawn(rng, t=2, r=6, n=90)
    is_read = nested([3, 3])
    figures, matrix = figures_of(replace(study, scores=np.where(is_read[:, :, None], study.scores, np.nan)), "auc")
    assert np.isnan(figures).tolist() == (~is_read).tolist()
    whole, whole_matrix = figures_of(study, "auc")
    own = np.flatnonzero(is_read)
    assert matrix[np.ix_(own, own)] == pytest.approx(whole_matrix[np.ix_(own, own)])
    contrast = np.where(is_read, np.array([[1], [-1]]) / 3, 0).ravel()
    (difference,) = of(figures, matrix, readers_are="fixed").differences
    assert difference.estimate.value == pytest.approx(contrast @ whole.ravel())
    cov_2, cov_3 = (
        np.mean([whole_matrix[a, b] for a in own for b in own if a != b and (a // 6 == b // 6) == same])
        for same in (True, False)
    )
    assert difference.error**2 == pytest.approx(contrast @ whole_matrix @ contrast + 2 * max(cov_3 - cov_2, 0))


def test_one_modality_has_means_alone(rng: np.random.Generator) -> None:
    study = drawn(rng, t=1, r=5, n=30)
    result = of(*figures_of(study, "auc"))
    assert math.isnan(result.f)
    assert math.isnan(result.p)
    assert math.isnan(result.components.reader)
    assert result.differences == ()
    (mean,) = result.means
    assert mean.estimate.low < mean.estimate.value < mean.estimate.high


def test_one_reader_is_no_sample(rng: np.random.Generator) -> None:
    """The result is about this reader only, and equals the difference of two correlated areas."""
    study = drawn(rng, t=2, r=1, n=60)
    figures, matrix = figures_of(study, "auc")
    with pytest.raises(ValueError, match="`readers_are` must be 'fixed' for one reader"):
        of(figures, matrix)
    (difference,) = of(figures, matrix, readers_are="fixed").differences
    assert difference.error == pytest.approx(math.sqrt(matrix[0, 0] + matrix[1, 1] - 2 * matrix[0, 1]))


def test_equal_modalities_differ_by_nothing(rng: np.random.Generator) -> None:
    study = drawn(rng, t=1, r=3, n=30)
    figures, matrix = figures_of(study, "auc")
    twice = of(np.vstack([figures, figures]), np.tile(matrix, (2, 2)))
    (difference,) = twice.differences
    assert difference.estimate.value == pytest.approx(0, abs=1e-9)
    assert not difference.estimate.has_interval  # nothing is known of others
    assert math.isnan(twice.p)


@pytest.mark.parametrize(
    ("figures", "options", "message"),
    [
        ([[0.5, 0.5]], {}, "`figures` must have a row for each of 2 modalities"),
        ([[0.5, np.nan], [0.5, 0.5]], {}, "`figures` and `covariance` must be defined, got NaN"),
        ([[0.5, 0.5], [0.5, 0.5]], {"readers_are": "some"}, "`readers_are` must be 'random' or 'fixed', got 'some'"),
        ([[0.5, 0.5], [0.5, 0.5]], {"readers_are": "fixed", "cases_are": "fixed"}, "nothing varies"),
    ],
)
def test_what_cannot_be_analysed_is_refused(figures: list[list[float]], options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        analyse(figures, np.eye(4), modalities=["a", "b"], readers=["x", "y"], **options)  # type: ignore[arg-type]


def test_the_covariance_has_the_shape_of_the_figures() -> None:
    with pytest.raises(ValueError, match=r"`covariance` must have the shape \(4, 4\), got \(2, 2\)"):
        analyse(np.ones((2, 2)), np.eye(2), modalities=["a", "b"], readers=["x", "y"])


HUPSE = np.array([0.69453125, 0.65, 0.80625, 0.725, 0.65982143, 0.76845238, 0.7375, 0.675, 0.675])
"""Nine radiologists (Hupse et al. 2013), the area of location and score up to .2; the system's is 0.59166667."""
OF_SYSTEM = 0.0033672893
BESIDE = covariance(
    2, 9, [OF_SYSTEM, 2 * 0.0034336373 - OF_SYSTEM], 0.00076136841, [OF_SYSTEM, 0.0012211529], 0.00076136841
)


def test_a_system_beside_nine_readers() -> None:
    """Printed by RJafroc for the analysis of differences (1T-RRRC), and the same for the analysis of two modalities
    (2T-RRRC).
    """
    figures = np.stack([np.full(9, 0.59166667), HUPSE])
    result = of(figures, BESIDE)
    assert (result.f, result.freedom[1]) == pytest.approx((4.1576797, 937.24371), rel=2e-6)
    assert result.p == pytest.approx(0.041726262, abs=1e-8)
    (difference,) = result.differences
    assert difference.estimate.value == pytest.approx(-0.11850612, abs=1e-8)
    assert difference.error == pytest.approx(0.058118615, abs=2e-8)
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((-0.2325638, -0.004448434), abs=1e-7)
    system, readers = result.means
    assert (system.error, system.freedom) == (pytest.approx(0.058028349, abs=1e-8), math.inf)
    assert (system.estimate.low, system.estimate.high) == pytest.approx((0.47793319, 0.70540014), abs=1e-7)
    assert (readers.error, readers.freedom) == pytest.approx((0.039156365, 193.10832), rel=2e-6)
    assert (readers.estimate.low, readers.estimate.high) == pytest.approx((0.63294372, 0.78740185), abs=1e-7)
    assert result.components.interaction == pytest.approx(0.00026488983, abs=2e-10)
    of_cases = of(figures, BESIDE, cases_are="fixed")
    assert (math.sqrt(of_cases.f), of_cases.freedom[1]) == pytest.approx((6.7083568, 8), rel=1e-6)
    assert of_cases.p == pytest.approx(0.00015139664, rel=1e-5)
    (difference,) = of_cases.differences
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((-0.159242710, -0.077769525), abs=2e-8)


def test_a_system_in_a_table_is_a_modality_of_its_own(rng: np.random.Generator) -> None:
    """As the readers' differences from it, each with its own covariance (Hillis' analysis of one modality)."""
    study = drawn(rng, t=1, r=5, n=60)
    figures, matrix = figures_of(study, "auc")
    contrast = np.hstack([-np.eye(4), np.ones((4, 1))])
    (mean,) = of((contrast @ figures[0])[None], contrast @ matrix @ contrast.T).means
    beside = beside_readers(study, "r4")
    assert (beside.modalities, beside.readers) == (("r4", "readers"), ("r0", "r1", "r2", "r3"))
    result = of(*figures_of(beside, "auc"))
    (difference,) = result.differences
    a, b = difference.estimate, mean.estimate
    assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high))
    assert (difference.error, difference.freedom) == pytest.approx((mean.error, mean.freedom))
    with pytest.raises(ValueError, match="`system` must be one of the readers r0, r1, r2, r3, r4, got 'GPT'"):
        beside_readers(study, "GPT")
    with pytest.raises(ValueError, match="of a table with one modality, got 2 modalities: m0, m1"):
        beside_readers(drawn(rng, t=2, r=2, n=9), "r1")
    with pytest.raises(ValueError, match="`system` must be compared with at least one other reader, got 'r0' alone"):
        beside_readers(drawn(rng, t=1, r=1, n=9), "r0")


def test_readers_whose_figures_differ_by_rounding_alone_have_no_spread_of_their_own() -> None:
    """Readers whose scores differ only by the rounding error of .1 + .2 against .3 count as equal."""
    one = of(np.array([[0.1 + 0.2, 0.3, 0.3]]), np.full((3, 3), 1e-4) + 1e-4 * np.eye(3))
    assert one.means[0].freedom == math.inf
