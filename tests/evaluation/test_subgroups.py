"""Groups of patients against scipy's Welch test, with permutations, and the false positives among equal groups."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import PermutationMethod, ttest_ind

from reveal_bench.api.score_tables import Subgroups
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.subgroups import Subgroup, groups_of_column, score_subgroups
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.metrics.intervals import UNDEFINED

PATIENTS = [f"p{i:03d}" for i in range(120)]


def rows_of(values: Any) -> CaseRows:
    """A value per patient on one finding."""
    n = len(values)
    kinds = ["point"] * n
    images = [f"i{patient}" for patient in PATIENTS[:n]]
    return CaseRows(
        findings=("Edema",),
        image_ids=images,
        patient_ids=PATIENTS[:n],
        case_findings=["Edema"] * n,
        point_kinds=kinds,
        cell_kinds=kinds,
        values={"mask_iou": np.asarray(values, float)},
        all_images=tuple(zip(images, PATIENTS[:n], strict=True)),
    )


def scored(values: Any, names: str) -> dict[str, Subgroup]:
    groups = dict(zip(PATIENTS, names, strict=False))
    return {one.group: one for one in score_subgroups(rows_of(values), "arm", groups, "mask_iou")}


def test_two_groups_have_the_difference_of_their_means_and_nearly_welchs_p(rng: np.random.Generator) -> None:
    values = rng.uniform(0, 1, 120)
    values[:50] *= 0.8
    results = scored(values, "a" * 50 + "b" * 70)
    a, b = results["a"], results["b"]
    assert (a.n, b.n) == (50, 70)
    assert a.estimate.value == pytest.approx(values[:50].mean())
    assert a.difference.value == pytest.approx(values[:50].mean() - values[50:].mean())
    dealt = ttest_ind(values[:50], values[50:], equal_var=False, method=PermutationMethod(n_resamples=9999, rng=1))
    assert a.p == pytest.approx(dealt.pvalue, abs=0.02)  # of 2,000 deals, and of 9,999
    ends = ttest_ind(values[:50], values[50:], equal_var=False).confidence_interval()
    assert (a.difference.low, a.difference.high) == pytest.approx((ends.low, ends.high), abs=0.004)
    assert (b.difference.value, b.p) == pytest.approx((-a.difference.value, a.p))


def test_p_of_several_groups_is_that_of_the_largest_statistic_of_plain_deals() -> None:
    rng = np.random.default_rng(6)
    values = rng.random(80)
    values[:20] += 0.25
    groups = np.repeat(list("abcd"), 20)

    def statistics(dealt: Any) -> list[float]:
        sides = [(dealt[groups == g], dealt[groups != g]) for g in "abcd"]
        return [abs(a.mean() - b.mean()) / math.sqrt(a.var(ddof=1) / 20 + b.var(ddof=1) / 60) for a, b in sides]

    largest = np.array([max(statistics(rng.permutation(values))) for _ in range(400)])
    results = scored(values / 2, "".join(groups))
    for group, statistic in zip("abcd", statistics(values), strict=True):
        assert results[group].p == pytest.approx((largest >= statistic).mean(), abs=0.07), group
    assert results["a"].p < 0.05 < results["c"].p


def test_small_groups_have_a_value_and_nothing_else(rng: np.random.Generator) -> None:
    values = rng.uniform(0, 1, 120)
    results = scored(values, "a" * 9 + "b" * 111)
    for one in results.values():
        assert not math.isnan(one.estimate.value)
        assert math.isnan(one.p)
        assert math.isnan(one.difference.low)
    assert math.isnan(results["a"].estimate.low)
    assert results["b"].estimate.low < results["b"].estimate.value < results["b"].estimate.high
    assert scored(values, "a" * 10 + "b" * 110)["a"].p == pytest.approx(scored(values, "a" * 10 + "b" * 110)["b"].p)
    alone = scored(values, "a" * 120)["a"]
    assert (alone.n, math.isnan(alone.difference.value)) == (120, True)
    assert math.isnan(scored(np.full(120, 0.5), "ab" * 60)["a"].p)  # nothing varies: no test


def test_equal_groups_rarely_differ_significantly() -> None:
    rng = np.random.default_rng(8)
    n_trials = 60
    text = sum(min(one.p for one in scored(rng.beta(1, 3, 120), "abcd" * 30).values()) <= 0.05 for _ in range(n_trials))
    assert text <= 8  # of .05, 3 are expected and 8 exceeded in 1 of 300


def test_intervals_of_groups_exclude_0_exactly_if_p_is_small() -> None:
    rng = np.random.default_rng(3)
    groups = [one for shift in np.linspace(0, 0.3, 12) for one in scored(
        rng.beta(1, 3, 120) * 0.7 + shift * (np.arange(120) % 3 == 0), "abc" * 40).values()]  # fmt: skip
    significant = [one.p <= 0.05 for one in groups]
    assert significant == [one.difference.low > 0 or one.difference.high < 0 for one in groups]
    assert 0.1 < np.mean(significant) < 0.9


def write_column(folder: Path, column: str, values: list[Any], patients: list[str]) -> None:
    (folder / "localization").mkdir(exist_ok=True)
    table = pa.table({"patient_id": patients, "image_id": [str(i) for i in range(len(values))], column: values})
    pq.write_table(table, folder / "localization" / "test-00000-of-00001.parquet")


def column(folder: Path, name: str, bands: Any = None) -> dict[str, str]:
    return groups_of_column(folder, "localization", "test", name, bands)


def test_patients_of_several_values_and_of_none_are_groups(tmp_path: Path) -> None:
    write_column(tmp_path, "sex", ["F", "M", "F", "F", None, "", None, "M"], ["a", "b", "c", "c", "d", "e", "f", "c"])
    assert column(tmp_path, "sex") == {
        "a": "F", "b": "M", "c": "several", "d": "missing", "e": "missing", "f": "missing"
    }  # fmt: skip
    write_column(tmp_path, "age", [39.9, 40.0, 64, 65, None], list("abcde"))
    bands = ["below 40", "40 to below 65", "40 to below 65", "65 or more", "missing"]
    assert list(column(tmp_path, "age", [40, 65]).values()) == bands
    results = score_subgroups(rows_of([0.5] * 5), "age", dict(zip(PATIENTS, bands, strict=False)), "mask_iou")
    assert [one.group for one in results] == ["below 40", "40 to below 65", "65 or more", "missing"]


def test_bands_do_not_cut_the_codes_of_names(tmp_path: Path) -> None:
    from datasets import ClassLabel, Dataset, Features, Value

    rows = {"patient_id": ["a", "b"], "age_band": [0, 1]}
    features = Features({"patient_id": Value("string"), "age_band": ClassLabel(names=["40-49", "50-59"])})
    (tmp_path / "localization").mkdir()
    Dataset.from_dict(rows, features).to_parquet(tmp_path / "localization" / "test-00000-of-00001.parquet")
    assert column(tmp_path, "age_band") == {"a": "40-49", "b": "50-59"}
    with pytest.raises(ArgumentError, match="needs a column of numbers, age_band has names, got 40-49, 50-59"):
        column(tmp_path, "age_band", [40])


@pytest.mark.parametrize(
    ("name", "bands", "rule"),
    [
        ("colour", None, "`by` must be a column of the dataset folder: age, got 'colour'"),
        ("image_id", None, "`by` must be a column of the dataset folder: age, got 'image_id'"),
        ("age", None, "`by` must have at most 30 different values, or be cut by `bands`, got age, which has 40"),
        ("age", [65, 40], "`bands` must be numbers that rise, such as 40,65, got"),
        ("age", [40, 40], "`bands` must be numbers that rise"),
        ("age", [math.nan], "`bands` must be numbers that rise"),
        ("age", [], "`bands` must be numbers that rise"),
    ],
)
def test_columns_and_bands_of_no_use_are_refused(tmp_path: Path, name: str, bands: Any, rule: str) -> None:
    write_column(tmp_path, "age", list(range(40)), PATIENTS[:40])
    with pytest.raises(ArgumentError) as caught:
        column(tmp_path, name, bands)
    assert rule in str(caught.value)


def test_bands_of_words_are_refused(tmp_path: Path) -> None:
    write_column(tmp_path, "sex", ["F"], ["a"])
    with pytest.raises(ArgumentError, match="`bands` needs a column of numbers, sex has others, got 'F'"):
        column(tmp_path, "sex", [40])
    with pytest.raises(ArgumentError, match="`metric` must be one of mask_iou"):
        score_subgroups(rows_of([0.5]), "sex", {PATIENTS[0]: "F"}, "f1")


def test_patients_without_counted_cases_are_reported() -> None:
    undefined = UNDEFINED, UNDEFINED, math.nan
    groups = [Subgroup("sex", name, "mask_iou", n, *undefined) for name, n in (("F", 20), ("M", 28))]
    assert Subgroups(groups, 50).caption.endswith("2 of 50 patients are in no row: none of their cases counts")
    assert "in no row" not in Subgroups(groups, 48).caption
