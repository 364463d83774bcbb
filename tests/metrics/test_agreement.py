"""Agreement against scikit-learn, irrCAC's printed digits and hand-counted tables; degenerate inputs first."""

from __future__ import annotations

import math
import re
import warnings
from itertools import combinations

import numpy as np
import pytest

from reveal_bench.metrics.agreement import (
    Weights,
    ac1_from_sums,
    ac1_from_tables,
    agreement_from_tables,
    cohen_kappa,
    contingency_table,
    difference_from_tables,
    gwet_ac1,
    kappa_from_tables,
    lowest_kappa,
    mean_absolute_difference,
    percent_agreement,
    reader_against_majority,
    reader_sums,
    resample_tables,
    unit_tables,
)
from reveal_bench.metrics.bootstrap import resampling_counts
from reveal_bench.metrics.intervals import Resampling

NAN = float("nan")
WEIGHTS: tuple[Weights | None, ...] = (None, "linear", "quadratic")


@pytest.mark.parametrize(
    ("rater_a", "rater_b", "kappa", "ac1", "agreement", "difference"),
    [
        ([], [], NAN, NAN, NAN, NAN),  # no case
        ([0], [0], NAN, 1, 1, 0),  # one case: chance agreement of kappa is 1; AC1's is 0 (all votes in one category)
        ([0], [1], 0, -1, 0, 1),  # kappa: chance agreement 0, observed 0; AC1: chance 1/2
        ([1, 1, 1], [1, 1, 1], NAN, 1, 1, 0),  # both constant
        ([0, 0, 0, 0], [0, 0, 1, 1], 0, 0.2, 0.5, 0.5),  # one constant: kappa 0; AC1 chance 2 * 3/4 * 1/4 = 3/8
        ([0, 1], [0, 1], 1, 1, 1, 0),  # perfect
        ([0, 1], [1, 0], -1, -1, 0, 1),  # worst
    ],
)
def test_degenerate_inputs(
    rater_a: list[int], rater_b: list[int], kappa: float, ac1: float, agreement: float, difference: float
) -> None:
    for weights in WEIGHTS:  # with two categories, all weightings are one
        got = cohen_kappa(rater_a, rater_b, n_categories=2, weights=weights)
        assert got == pytest.approx(kappa, abs=1e-15, nan_ok=True)
    assert gwet_ac1(rater_a, rater_b, n_categories=2) == pytest.approx(ac1, abs=1e-15, nan_ok=True)
    assert percent_agreement(rater_a, rater_b, n_categories=2) == pytest.approx(agreement, nan_ok=True)
    assert mean_absolute_difference(rater_a, rater_b, n_categories=2) == pytest.approx(difference, nan_ok=True)


def test_a_category_nobody_used_matters_to_ac1_alone() -> None:
    a, b = [0, 0, 1, 1, 1], [0, 1, 1, 1, 0]
    for weights in WEIGHTS:
        two, five = (cohen_kappa(a, b, n_categories=k, weights=weights) for k in (2, 5))
        assert two == pytest.approx(five, abs=1e-15)
    # shares 0.4 and 0.6: sum of p(1 - p) is 0.48, chance 0.48 / (k - 1); agreement is 0.6
    assert gwet_ac1(a, b, n_categories=2) == pytest.approx((0.6 - 0.48) / 0.52)
    assert gwet_ac1(a, b, n_categories=5) == pytest.approx((0.6 - 0.12) / 0.88)


def test_weighted_kappa_by_hand() -> None:
    # a: 0 1 2, b: 0 2 2. Costs of the cases: 0, 1, 0. Chance pairs (all 9): a = 0 with b = 0 2 2, a = 1, a = 2:
    # linear 0 2 2 + 1 1 1 + 2 0 0 = 9, quadratic 0 4 4 + 1 1 1 + 4 0 0 = 15. kappa = 1 - (1 / 3) / (sum / 9).
    assert cohen_kappa([0, 1, 2], [0, 2, 2], n_categories=3, weights="linear") == pytest.approx(1 - 3 / 9)
    assert cohen_kappa([0, 1, 2], [0, 2, 2], n_categories=3, weights="quadratic") == pytest.approx(1 - 3 / 15)


def test_lowest_kappa_is_that_of_the_worst_order_of_ratings() -> None:
    # Each calls one in ten: agreement .8 at least, chance .82: -.02 / .18
    assert lowest_kappa(np.array([[8.0, 1], [1, 0]])) == pytest.approx(-1 / 9)
    # Nine and six in ten: agreement .5 at least, chance .58: -.08 / .42
    assert lowest_kappa(np.array([[1.0, 0], [3, 6]])) == pytest.approx(-4 / 21)
    assert np.isnan(lowest_kappa(np.array([[5.0, 0], [0, 0]])))
    for a in range(1, 7):
        for b in range(1, 7):
            one = np.arange(7) < a
            others = [np.isin(np.arange(7), called) for called in combinations(range(7), b)]
            worst = min(cohen_kappa(one, other, n_categories=2) for other in others)
            assert lowest_kappa(contingency_table(one, others[0], n_categories=2).astype(float)) == worst


@pytest.mark.parametrize("weights", WEIGHTS)
def test_kappa_equals_scikit_learn(weights: Weights | None, rng: np.random.Generator) -> None:
    from sklearn.exceptions import UndefinedMetricWarning
    from sklearn.metrics import cohen_kappa_score

    for _ in range(100):
        k, n = int(rng.integers(2, 7)), int(rng.integers(1, 60))
        a = rng.integers(0, rng.integers(1, k + 1), n)
        b = np.where(rng.random(n) < rng.random(), a, rng.integers(0, k, n))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            expected = cohen_kappa_score(a, b, labels=np.arange(k), weights=weights)
        got = cohen_kappa(a, b, n_categories=k, weights=weights)
        assert got == pytest.approx(expected, abs=1e-12, nan_ok=True)


# irrCAC 0.4.4 needs numpy < 2, so its numbers are written down: irrCAC.table.CAC(table).gwet(). With digits=12 it also
# equalled gwet_ac1 on 3,000 random tables and ac1_from_sums on 500 random sets of votes (irrCAC.raw), all to 5e-13.
@pytest.mark.parametrize(
    ("table", "ac1"),
    [
        ([[13, 0, 0], [0, 20, 7], [0, 4, 56]], 0.84933),  # its cont3x3abstractors
        ([[40, 4, 4, 17], [6, 25, 2, 13], [4, 1, 21, 12], [15, 5, 9, 45]], 0.45616),  # its cont4x4diagnosis
        ([[118, 5], [2, 0]], 0.94078),
        ([[40, 9], [6, 45]], 0.70075),
        ([[5, 0], [0, 0]], 1.0),
        ([[0, 3], [4, 0]], -1.0),
    ],
)
def test_ac1_equals_irrcac_to_its_digits(table: list[list[int]], ac1: float) -> None:
    assert round(float(ac1_from_tables(np.array(table, np.float64))), 5) == ac1


def test_ac1_among_many_readers_equals_irrcac_to_its_digits() -> None:
    # irrCAC.datasets.raw_4raters and raw_5observers, -1 where its tables have NaN; irrCAC.raw.CAC(votes).gwet()
    four = [
        [1, 1, -1, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4], [4, 4, 4, 4], [1, 1, 2, 1],
        [2, 2, 2, 2], [-1, 5, 5, 5], [-1, -1, 1, 1], [-1, -1, 3, -1],
    ]  # fmt: skip
    codes = np.where(np.array(four) < 0, -1, np.array(four) - 1)
    assert round(float(ac1_from_sums(reader_sums(codes, n_categories=5).sum(axis=0))), 5) == 0.77544
    five = [
        [1, 1, 2, -1, 2], [1, 1, 0, 1, -1], [2, 3, 3, 3, -1], [-1, 0, 0, -1, 0], [0, 0, 0, -1, 0], [0, 0, 0, -1, 0],
        [1, 0, 2, -1, 1], [1, -1, 2, 0, -1], [2, 2, 2, -1, 2], [2, 1, 1, 1, -1], [-1, 1, 0, 0, -1], [0, 0, 0, 0, -1],
        [1, 2, 2, 2, -1], [3, 3, 2, 2, 3], [1, 1, 1, -1, 1],
    ]  # fmt: skip
    assert round(float(ac1_from_sums(reader_sums(five, n_categories=4).sum(axis=0))), 5) == 0.49662
    # a study nobody read adds nothing
    assert ac1_from_sums(reader_sums([*five, [-1] * 5], n_categories=4).sum(axis=0)) == ac1_from_sums(
        reader_sums(five, n_categories=4).sum(axis=0)
    )


def test_ac1_of_two_complete_readers_is_the_ac1_of_the_pair(rng: np.random.Generator) -> None:
    votes = rng.integers(0, 3, (40, 2, 4))
    got = ac1_from_sums(reader_sums(votes, n_categories=3).sum(axis=0))
    for label in range(4):
        expected = gwet_ac1(votes[:, 0, label], votes[:, 1, label], n_categories=3)
        assert got[label] == pytest.approx(expected, abs=1e-14)
    assert math.isnan(ac1_from_sums(reader_sums([[1, -1]], n_categories=3).sum(axis=0)))


def test_table_s3_of_paper_004_cannot_be_of_one_set_of_pairs() -> None:
    # pleural effusion: kappa 0.756, AC1 0.667. AC1 falls below kappa only when the two raters are on either side of
    # one half, and then by little: over all 2 x 2 tables of 40 pairs with kappa of about 0.756, by less than 0.02.
    n = 40
    cells = np.array(
        [(a, b, c, n - a - b - c) for a in range(n + 1) for b in range(n + 1 - a) for c in range(n + 1 - a - b)]
    )
    tables = cells.reshape(-1, 2, 2).astype(np.float64)
    kappa, ac1 = kappa_from_tables(tables), ac1_from_tables(tables)
    near = np.abs(kappa - 0.756) < 0.05
    assert near.sum() > 100
    assert (kappa - ac1)[near].max() < 0.02


def test_stacks_of_tables_equal_one_at_a_time(rng: np.random.Generator) -> None:
    tables = rng.integers(0, 6, (7, 3, 4, 4)).astype(np.float64)
    for function in (kappa_from_tables, ac1_from_tables, agreement_from_tables, difference_from_tables):
        stacked = function(tables)
        single = [[float(function(table)) for table in row] for row in tables]
        np.testing.assert_array_equal(stacked, single)


def test_replicates_equal_a_loop_over_the_same_draws(rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score

    n, n_units, k = 80, 25, 4
    a = rng.integers(0, k, n)
    b = np.where(rng.random(n) < 0.6, a, rng.integers(0, k, n))
    units = rng.integers(0, n_units - 2, n)  # two patients without a case
    counts = resampling_counts(n_units, Resampling(150, 5))
    replicates = resample_tables(counts, unit_tables(a, b, n_categories=k, units=units, n_units=n_units))
    draws = np.random.default_rng(5).integers(0, n_units, (150, n_units))
    for draw, table in zip(draws, replicates, strict=True):
        cases = np.concatenate([np.flatnonzero(units == unit) for unit in draw])
        for weights in WEIGHTS:
            expected = cohen_kappa_score(a[cases], b[cases], labels=np.arange(k), weights=weights)
            assert kappa_from_tables(table, weights=weights) == pytest.approx(expected, abs=1e-12)
        assert ac1_from_tables(table) == gwet_ac1(a[cases], b[cases], n_categories=k)
        assert agreement_from_tables(table) == np.mean(a[cases] == b[cases])
        assert difference_from_tables(table) == pytest.approx(np.abs(a[cases] - b[cases]).mean(), abs=1e-14)


def test_order_raters_and_doubling_do_not_matter(rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 5, 50), rng.integers(0, 5, 50)
    order, flipped = rng.permutation(50), 4 - np.arange(5)
    for x, y in ((a[order], b[order]), (b, a), (np.tile(a, 2), np.tile(b, 2)), (flipped[a], flipped[b])):
        for weights in WEIGHTS:
            same = cohen_kappa(a, b, n_categories=5, weights=weights)
            assert cohen_kappa(x, y, n_categories=5, weights=weights) == pytest.approx(same, abs=1e-14)
        for function in (gwet_ac1, percent_agreement, mean_absolute_difference):
            assert function(x, y, n_categories=5) == pytest.approx(function(a, b, n_categories=5), abs=1e-14)


@pytest.mark.parametrize(
    ("votes", "options", "table", "n_votes", "n_undefined"),
    [
        # three binary votes cannot tie: two with the majority, one against
        ([[1, 1, 0]], {}, [[0, 1], [0, 2]], 3, 0),
        ([[0, 0, 0]], {}, [[3, 0], [0, 0]], 3, 0),
        # a tie of two, a lone reader, nobody: no majority
        ([[1, 0, -1]], {}, [[0, 0], [0, 0]], 2, 2),
        ([[1, -1, -1]], {}, [[0, 0], [0, 0]], 1, 1),
        ([[-1, -1, -1]], {}, [[0, 0], [0, 0]], 0, 0),
        ([[1, -1, -1]], {"min_votes": 1}, [[0, 0], [0, 1]], 1, 0),
        # two of four is not more than half
        ([[1, 1, 0, 0]], {}, [[0, 0], [0, 0]], 4, 4),
        # against the two others: the dissenter has them against it, each of the others has a tie
        ([[1, 1, 0]], {"own_vote": False}, [[0, 1], [0, 0]], 3, 2),
        ([[1, 1, 1]], {"own_vote": False}, [[0, 0], [0, 3]], 3, 0),
        ([[1, 1]], {"own_vote": False, "min_votes": 1}, [[0, 0], [0, 2]], 2, 0),
    ],
)
def test_majorities(
    votes: list[list[int]], options: dict[str, int], table: list[list[int]], n_votes: int, n_undefined: int
) -> None:
    pairs = reader_against_majority(votes, n_categories=2, **options)  # type: ignore[arg-type]
    assert pairs.tables.sum(axis=0).tolist() == table
    assert [int(pairs.n_votes), int(pairs.n_undefined)] == [n_votes, n_undefined]


def test_three_answers_of_three_readers_have_no_majority() -> None:
    pairs = reader_against_majority([[0, 1, 2], [2, 2, 0]], n_categories=3)
    assert pairs.tables[0].sum() == 0
    assert pairs.tables[1].tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 2]]
    assert pairs.n_undefined == 3


def plain_pairs(votes: list[list[int]], *, own_vote: bool) -> tuple[list[int], list[int]]:
    """Reader after reader, study after study."""
    readers, majorities = [], []
    for study in votes:
        for i, vote in enumerate(study):
            group = [v for j, v in enumerate(study) if v >= 0 and (own_vote or j != i)]
            winners = [c for c in set(group) if 2 * group.count(c) > len(group) and group.count(c) >= 2]
            if vote >= 0 and winners:
                readers.append(vote)
                majorities.append(winners[0])
    return readers, majorities


@pytest.mark.parametrize("own_vote", [True, False])
def test_pooled_and_per_label_kappa_equal_pairing_by_hand(own_vote: bool, rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score

    votes = rng.integers(-1, 2, (120, 5, 3))
    pairs = reader_against_majority(votes, n_categories=2, own_vote=own_vote)
    pooled_a: list[int] = []
    pooled_b: list[int] = []
    for label in range(3):
        a, b = plain_pairs(votes[:, :, label].tolist(), own_vote=own_vote)
        kappa = kappa_from_tables(pairs.tables.sum(axis=0)[label])
        assert kappa == pytest.approx(cohen_kappa_score(a, b), abs=1e-12)
        assert pairs.n_votes[label] - pairs.n_undefined[label] == len(a)
        single = reader_against_majority(votes[:, :, label], n_categories=2, own_vote=own_vote)
        np.testing.assert_array_equal(single.tables, pairs.tables[:, label])
        pooled_a += a
        pooled_b += b
    pooled = kappa_from_tables(pairs.tables.sum(axis=(0, 1)))
    assert pooled == pytest.approx(cohen_kappa_score(pooled_a, pooled_b), abs=1e-12)


def test_the_interval_resamples_studies(rng: np.random.Generator) -> None:
    from sklearn.metrics import cohen_kappa_score

    votes = rng.integers(0, 2, (30, 3))
    pairs = reader_against_majority(votes, n_categories=2)
    counts = resampling_counts(30, Resampling(100, 2))
    replicates = kappa_from_tables(resample_tables(counts, pairs.tables))
    for draw, kappa in zip(np.random.default_rng(2).integers(0, 30, (100, 30)), replicates, strict=True):
        a, b = plain_pairs(votes[draw].tolist(), own_vote=True)
        assert kappa == pytest.approx(cohen_kappa_score(a, b), abs=1e-12)
    sums = reader_sums(votes, n_categories=2)
    np.testing.assert_allclose(
        ac1_from_sums(resample_tables(counts, sums))[0],
        ac1_from_sums(
            reader_sums(votes[np.random.default_rng(2).integers(0, 30, (100, 30))[0]], n_categories=2).sum(0)
        ),
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("a", "b", "k", "message"),
    [
        ([0, 1], [0], 2, "`rater_b` must have the length of `rater_a` (2), got 1"),
        ([0, 2], [0, 1], 2, "`rater_a` must be in [0, 2), got 0 to 2"),
        ([0, 1], [0, -1], 2, "`rater_b` must be in [0, 2), got -1 to 0"),
        ([0, 0.5], [0, 1], 2, "`rater_a` must hold integers, got 0.5"),
        ([0, NAN], [0, 1], 2, "`rater_a` must hold integers, got nan"),
        ([0, math.inf], [0, 1], 2, "`rater_a` must hold integers, got inf"),
        (["a"], ["b"], 2, "`rater_a` must hold integers, got <U1"),
        ([[0]], [0], 2, "`rater_a` must have 1 dimensions, got shape (1, 1)"),
        ([0], [0], 1, "`n_categories` must be at least 2, got 1"),
    ],
)
def test_bad_ratings_are_refused(a: list[int], b: list[int], k: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        contingency_table(a, b, n_categories=k)


def test_bad_units_tables_votes_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("`units` must have the length of `rater_a` (1), got 2")):
        unit_tables([0], [0], n_categories=2, units=[0, 1], n_units=2)
    with pytest.raises(ValueError, match=re.escape("`units` must be in [0, 2), got 2 to 2")):
        unit_tables([0], [0], n_categories=2, units=[2], n_units=2)
    with pytest.raises(ValueError, match="`weights` must be None, 'linear' or 'quadratic', got 'cubic'"):
        cohen_kappa([0], [0], n_categories=2, weights="cubic")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=re.escape("`tables` must have shape (..., k, k) with k at least 2, got (2, 3)")
    ):
        kappa_from_tables(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=re.escape("`tables` must hold finite numbers of at least 0, got -1.0")):
        kappa_from_tables(np.array([[1.0, -1.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=re.escape("`tables` must have one entry per unit of `counts` (3), got 2")):
        resample_tables(np.ones((1, 3)), np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="`min_votes` must be at least 1, got 0"):
        reader_against_majority([[0]], n_categories=2, min_votes=0)
    with pytest.raises(ValueError, match=re.escape("`votes` must be in [-1, 2), got -2 to 0")):
        reader_against_majority([[0, -2]], n_categories=2)
    with pytest.raises(ValueError, match=re.escape("`votes` must have 2 or 3 dimensions, got shape (2,)")):
        reader_sums([0, 1], n_categories=2)
    with pytest.raises(ValueError, match="`n_categories` must be at least 2, got 1"):
        reader_sums([[0, 0]], n_categories=1)
