"""Tests and differences of two halves, against the paper's printed p values, scipy and an enumeration of all tables;
degenerate inputs first.
"""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from reveal_bench.curation.balance import SIMULATED, compare_counts, compare_halves
from reveal_bench.dataset.balance import Column, Differences, mean_differences, proportion_differences

HALF = np.array([False, False, True, True])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((2, 0)),  # no category
        [[0, 0], [0, 0]],  # no study
        [[3], [4]],  # one category
        [[3, 0], [4, 0]],  # the other is empty
        [[0, 0], [4, 1]],  # a half is empty
    ],
)
def test_tables_that_say_nothing(table: npt.ArrayLike, rng: np.random.Generator) -> None:
    result = compare_counts(table, rng)
    assert (result.test, result.n_simulated) == ("none", 0)
    assert math.isnan(result.p_value)
    assert math.isnan(result.chi_square_p_value)


@pytest.mark.parametrize(
    "table", [[[1, 2]], [[1, 2], [3, -1]], [[1, 2], [0.5, 1]], [[1, 2], [math.nan, 1]], [[1, 1], [1, 1], [1, 1]]]
)
def test_what_is_no_table_of_counts_is_refused(table: npt.ArrayLike, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="`table` must be two rows of counts, got "):
        compare_counts(table, rng)


PRINTED = {
    "Manufacturer": (
        [[1, 49, 5, 35, 8, 2, 0, 4, 1, 7, 5], [0, 37, 10, 39, 5, 0, 4, 1, 1, 2, 11]],
        0.057,
    ),  # the last column is not printed: it completes the sums of the other columns' tables
    "Manufacturer Model Name": ([[1, 5, 7, 8, 2, 1, 2, 50, 39, 2, 0], [1, 11, 2, 5, 0, 2, 1, 36, 48, 0, 4]], 0.066),
    "Detector Type": ([[78, 22], [77, 18]], 0.726),
    "View Position": ([[96, 0, 4, 16, 0], [88, 2, 8, 9, 2]], 0.115),
    "Pixel Spacing": (
        [[92, 2, 0, 1, 1, 2, 2, 0, 1, 0, 1, 4, 4], [87, 0, 4, 0, 0, 0, 0, 1, 0, 1, 1, 3, 2]],
        0.220,
    ),
}
"""Paper 004, Table S2: holdout, released."""


@pytest.mark.parametrize("name", PRINTED)
def test_chi_square_of_the_paper_s_table_s2(name: str, rng: np.random.Generator) -> None:
    table, printed = PRINTED[name]
    result = compare_counts(table, rng)
    assert result.chi_square_p_value == pytest.approx(printed, abs=0.0005)
    assert result.test == ("chi-square" if name == "Detector Type" else "fisher, simulated")
    assert result.p_value > 0.03


TABLE_1 = {
    "age": [[23, 26, 22, 15, 13, 1, 0], [23, 29, 20, 16, 5, 4, 3]],  # 40-49: 13 printed once, 5 makes 100
    "sex": [[50, 50, 0], [49, 48, 3]],
    "race": [[6, 14, 46, 3, 31], [5, 20, 34, 2, 39]],
    "patient class": [[89, 11, 0], [80, 17, 3]],
}


@pytest.mark.parametrize(
    ("name", "chi_square", "fisher"),
    [
        ("age", 0.1944, 0.2201),  # 200,000 tables by scipy.stats.fisher_exact with a MonteCarloMethod
        ("sex", 0.2175, 0.3350),  # all tables enumerated, as the next two
        ("race", 0.3974, 0.3868),
        ("patient class", 0.0923, 0.1040),
    ],
)
def test_table_1_shows_no_difference_either_way(
    name: str, chi_square: float, fisher: float, rng: np.random.Generator
) -> None:
    result = compare_counts(TABLE_1[name], rng)
    assert result.chi_square_p_value == pytest.approx(chi_square, abs=0.00005)
    assert (result.test, result.n_simulated) == ("fisher, simulated", SIMULATED)
    assert result.p_value == pytest.approx(fisher, abs=4 * math.sqrt(fisher * (1 - fisher) / SIMULATED))
    assert result.p_value > 0.05  # as the paper says of all


def test_large_cells_take_chi_square_and_small_ones_fisher(rng: np.random.Generator) -> None:
    from scipy.stats import chi2_contingency, fisher_exact

    large = [[30, 20, 10], [25, 25, 12]]
    result, oracle = compare_counts(large, rng), chi2_contingency(large)
    assert (result.test, result.p_value, result.degrees_of_freedom) == ("chi-square", oracle.pvalue, 2)
    assert result.statistic == pytest.approx(oracle.statistic)
    assert result.smallest_expected == pytest.approx(22 * 60 / 122)
    at_limit = compare_counts([[5, 45], [5, 45]], rng)  # expected counts of exactly 5 are not small
    assert (at_limit.test, at_limit.smallest_expected) == ("chi-square", 5)
    small = compare_counts([[3, 1], [1, 3]], rng)  # the lady tasting tea: (1 + 16 + 16 + 1) / 70
    assert (small.test, small.smallest_expected) == ("fisher", 2)
    assert small.p_value == pytest.approx(34 / 70)
    assert small.p_value == pytest.approx(fisher_exact([[3, 1], [1, 3]]).pvalue)


@pytest.mark.parametrize("table", [[[3, 0, 1], [0, 4, 2]], [[6, 1, 0, 2], [2, 3, 3, 1]], [[1, 1, 1], [1, 1, 1]]])
def test_simulated_fisher_agrees_with_all_tables_enumerated(table: list[list[int]], rng: np.random.Generator) -> None:
    first, second = np.array(table)
    totals, size = first + second, int(first.sum())

    def chance(row: tuple[int, ...]) -> float:
        return math.prod(math.comb(int(n), x) for n, x in zip(totals, row, strict=True)) / math.comb(
            int(totals.sum()), size
        )

    rows = [row for row in product(*(range(int(n) + 1) for n in totals)) if sum(row) == size]
    observed = chance(tuple(int(x) for x in first))
    exact = sum(chance(row) for row in rows if chance(row) <= observed * (1 + 1e-9))
    result = compare_counts(table, rng)
    assert result.test == "fisher, simulated"
    assert result.p_value == pytest.approx(exact, abs=4 * math.sqrt(0.25 / SIMULATED))
    assert compare_counts(table[::-1], rng).p_value == pytest.approx(exact, abs=4 * math.sqrt(0.25 / SIMULATED))


def test_a_simulated_p_value_is_never_zero_and_comes_from_the_seed() -> None:
    table = [[40, 0, 0], [0, 40, 3]]
    result = compare_counts(table, np.random.default_rng(0), n_simulated=99)
    assert (result.p_value, result.n_simulated) == (1 / 100, 99)
    mild = [[6, 1, 0, 2], [2, 3, 3, 1]]
    a, b, c = (compare_counts(mild, np.random.default_rng(seed)).p_value for seed in (0, 0, 1))
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    ("members", "difference"),
    [
        ([1, 1, 1, 1], 0),  # constant and equal
        ([0, 0, 0, 0], 0),
        ([1, 0, 0, 1], 0),
        ([1, 1, 0, 0], math.inf),  # constant and different
        ([0, 0, 1, 1], -math.inf),
        ([1, 1, 1, 0], 0.5 / math.sqrt(0.25 / 2)),
        ([1, 0, 0, 0], 0.5 / math.sqrt(0.25 / 2)),
    ],
)
def test_difference_of_proportions(members: list[int], difference: float) -> None:
    assert proportion_differences(np.array(members, float)[:, None], HALF) == pytest.approx([difference])


def test_difference_of_proportions_as_published() -> None:
    """Austin's formula by hand for Table 1's inpatients: (0.89 - 0.80) / sqrt((0.0979 + 0.16) / 2) = 0.2506."""
    members = np.repeat([1, 0, 1, 0], [89, 11, 80, 20]).astype(float)[:, None]
    result = proportion_differences(members, np.repeat([False, True], 100))
    assert result == pytest.approx([0.09 / math.sqrt(0.12895)])
    assert result == pytest.approx([0.2506], abs=5e-5)


@pytest.mark.parametrize(
    ("numbers", "difference"),
    [
        ([math.nan] * 4, math.nan),
        ([1, math.nan, 2, 3], math.nan),  # one number has no variance
        ([0.1, 0.1, 0.1, 0.1], 0),
        ([0.1, 0.1, 0.3, 0.3], -math.inf),
        ([1, 3, 5, 7], -4 / math.sqrt(2)),  # both variances are 2
        ([1e6 + 1, 1e6 + 3, 1e6 + 5, 1e6 + 7], -4 / math.sqrt(2)),
    ],
)
def test_difference_of_means(numbers: list[float], difference: float) -> None:
    result = mean_differences(np.array(numbers)[:, None], HALF)
    assert result == pytest.approx([difference], nan_ok=True)


@pytest.mark.parametrize("is_holdout", [[True] * 4, [False] * 4])
def test_an_empty_half_is_undefined(is_holdout: list[bool]) -> None:
    half = np.array(is_holdout)
    assert np.isnan(proportion_differences(np.ones((4, 1)), half)).all()
    assert np.isnan(mean_differences(np.ones((4, 1)), half)).all()


def test_missing_is_a_category_of_its_own(rng: np.random.Generator) -> None:
    result = compare_halves(Column("sex", ("F", "", "M", "F")), HALF, rng)
    assert [(one.category, one.released, one.holdout) for one in result.categories] == [
        ("F", 1, 1),
        ("M", 0, 1),
        (None, 1, 0),
    ]
    assert not result.is_number
    assert math.isnan(result.mean_released)
    assert result.largest_difference == pytest.approx(0.5 / math.sqrt(0.25 / 2))
    assert result.test.test == "fisher, simulated"


def test_numbers_are_compared_per_value_and_by_their_mean(rng: np.random.Generator) -> None:
    result = compare_halves(Column("kvp", ("85", "85.0", "", "110")), HALF, rng)
    assert [(one.category, one.released, one.holdout) for one in result.categories] == [
        ("85", 2, 0),
        ("110", 0, 1),
        (None, 0, 1),
    ]
    assert (result.is_number, result.mean_released, result.mean_holdout) == (True, 85, 110)
    assert math.isnan(result.standardized_mean_difference)  # the holdout has one number
    assert result.largest_difference == pytest.approx(0.5 / math.sqrt(0.25 / 2))  # of missing


@pytest.mark.parametrize("texts", [("", "", "", ""), ("85", "85 kV", "1", "2"), ("nan", "1", "1", "1"), ("1_0",) * 4])
def test_what_is_no_column_of_numbers(texts: tuple[str, ...], rng: np.random.Generator) -> None:
    assert Column("kvp", texts).numbers is None
    assert not compare_halves(Column("kvp", texts), HALF, rng).is_number


def test_a_number_is_written_as_short_as_may_be() -> None:
    names, members = Column("spacing", ("0.1390", ".139", "-2", "1e3", "2e-07")).categories()
    assert names == ["-2", "2e-07", "0.139", "1000"]
    assert members.sum(axis=0).tolist() == [1, 1, 2, 1]


def test_values_of_numbers_do_not_judge_a_split() -> None:
    kvp = Column("kvp", ("1", "4", "2", "3"))  # every value in one half alone, and equal means
    sex = Column("sex", ("F", "M", "F", "M"))
    assert Differences([kvp, sex])(HALF) == pytest.approx([0, 0, 0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [([], "got []"), ([Column("a", ("1",)), Column("b", ("1", "2"))], "got [1, 2]")],
)
def test_columns_are_of_the_same_studies(columns: list[Column], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Differences(columns)


def test_a_column_has_a_text_per_study(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="`sex` must have 4 texts, got 1"):
        compare_halves(Column("sex", ("F",)), HALF, rng)
