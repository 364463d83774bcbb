"""Confidence intervals printed in the papers (submissions/reference/intervals.csv), and ours from the same inputs.

Few inputs are printed. Intervals for mIoU, decreases, kappa and AC1 need the single images or votes, so
only hit rates, slopes and rank correlations are compared.
"""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from scipy import stats

from reveal_bench.analyses.shapes import assurances
from reveal_bench.metrics.bootstrap import estimate_cases
from reveal_bench.metrics.intervals import Estimate, Interval, Resampling
from tests.evaluation.test_reference_rows import EXTENDED_DATA_FIG_5, EXTENDED_DATA_FIG_6, IMAGES, SUBMISSIONS

with (SUBMISSIONS / "reference" / "intervals.csv").open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))
TABLE_3 = [row for row in ROWS if row["item"] == "Table 3"]
SLOPES = [row for row in TABLE_3 if row["metric"] == "confidence_slope_mask_iou"]


def numbers(row: dict[str, str]) -> tuple[float, float, float]:
    return float(row["estimate"]), float(row["low"]), float(row["high"])


def stars(p: float) -> str:
    return "*" * sum(p < level for level in (0.05, 0.01, 0.001))


def test_printed_intervals_contain_their_estimates_except_misprints() -> None:
    outside = {(row["item"], row["metric"], row["finding"]) for row in ROWS if not ordered(row)}
    assert outside == {
        ("Extended Data Fig. 6", "decrease_point_hit", "Atelectasis"),
        ("Table 2", "slope_gap_mask_iou", "Number of instances"),
    }
    assert all(row["note"] for row in ROWS if not ordered(row))
    assert len(ROWS) == 2 + 2 * 11 + 16 + 2 * 11 + 1 + 2 * 12


def ordered(row: dict[str, str]) -> bool:
    estimate, low, high = numbers(row)
    return low <= estimate <= high


def test_estimates_are_those_of_the_other_tables() -> None:
    for metric, table in (("decrease_mask_iou", EXTENDED_DATA_FIG_5), ("decrease_point_hit", EXTENDED_DATA_FIG_6)):
        own = [row for row in ROWS if row["metric"] == metric and row["finding"] != "Average"]
        assert {row["finding"]: row["estimate"] for row in own} == {name: text for name, (text, _) in table.items()}
        assert all(int(row["n"]) == IMAGES[row["finding"]] for row in own)
    assert sum(int(row["n"]) for row in SLOPES[:-1]) == int(SLOPES[-1]["n"]) == 2365


def hit_rate(k: int, n: int, interval: Interval = "jackknife") -> Estimate:
    hits = (np.arange(n) < k).astype(float)
    patients = [str(i) for i in range(n)]
    return estimate_cases("point_hit", 1, hits, patients=patients, resampling=Resampling(interval=interval))[1]


@pytest.mark.parametrize(("interval", "tolerance"), [("jackknife", 0.0035), ("percentile", 0.0045)])
def test_hit_rate_of_support_devices(interval: Interval, tolerance: float) -> None:
    # 0.357 of 314 images are 112. Wilson's interval lies 0.003 nearer to one half than the paper's percentiles.
    (row,) = (row for row in ROWS if (row["metric"], row["finding"]) == ("point_hit", "Support Devices"))
    value, low, high = numbers(row)
    estimate = hit_rate(112, int(row["n"]), interval)
    assert estimate.value == pytest.approx(value, abs=5e-4)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=tolerance)


def test_hit_rate_of_ten_pneumothoraces() -> None:
    # Readers hit all ten, so the decrease is 1 - hit rate: 4 of 10, printed interval 0.077 to 0.727. Ours is Wilson's,
    # which excludes rates that ten images make implausible: 0.16 to 0.70. Percentiles are multiples of a tenth.
    (row,) = (row for row in ROWS if (row["metric"], row["finding"]) == ("decrease_point_hit", "Pneumothorax"))
    _, low, high = numbers(row)
    printed = (1 - high / 100, 1 - low / 100)
    ours, percentile = hit_rate(4, 10), hit_rate(4, 10, "percentile")
    assert (ours.low, ours.high) == pytest.approx((0.160, 0.700), abs=5e-4)
    assert printed[0] < ours.low - 0.05
    assert ours.high < printed[1]
    assert (percentile.low, percentile.high) == pytest.approx(printed, abs=0.03)


@pytest.mark.parametrize("row", SLOPES, ids=lambda row: row["finding"])
def test_slopes_on_confidence(row: dict[str, str]) -> None:
    """Data with the printed slope and n, and residuals of the width of the interval, give the limits and the stars."""
    slope, low, high = numbers(row)
    n = int(row["n"])
    x = np.linspace(0, 1, n)
    x -= x.mean()
    noise = np.cos(np.arange(n) * 2.0)
    noise -= noise.mean() + x * (noise @ x) / (x @ x)  # uncorrelated with x
    error = (high - low) / 2 / stats.t.ppf(0.975, n - 2)
    noise *= error * math.sqrt((n - 2) * (x @ x) / (noise @ noise))
    (own, _) = assurances({"mask_iou": slope * x + noise}, x, ["a"] * n, order=["a"])
    assert (own.slope.value, own.slope.low, own.slope.high) == pytest.approx((slope, low, high), abs=0.0011)
    assert stars(own.slope_p) == row["p"]


def test_rank_correlations_do_not_fit_their_images() -> None:
    # Fisher's interval fits if every row has about 1,520 images, not its own: ours are wider for ten findings
    for row in TABLE_3:
        if row["metric"] == "confidence_spearman_mask_iou":
            rho, low, high = numbers(row)
            reach = stats.norm.ppf(0.975) / math.sqrt(1520 - 3)
            fitted = np.tanh(math.atanh(rho) + np.array([-reach, reach]))
            assert fitted == pytest.approx((low, high), abs=0.0015)


def test_slopes_on_shapes_are_symmetric_except_misprints() -> None:
    table = [row for row in ROWS if row["item"] == "Table 2"]
    lopsided = [row for row in table if abs(sum(numbers(row)[1:]) / 2 - numbers(row)[0]) > 0.0011]
    assert [(row["metric"], row["finding"]) for row in lopsided] == [
        ("slope_gap_mask_iou", "Number of instances"),
        ("slope_point_hit", "Number of instances"),
    ]
    assert all(row["note"] for row in lopsided)
