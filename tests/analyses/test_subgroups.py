"""Groups of patients against scipy's Welch test, with permutations, and the false positives among equal groups."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import PermutationMethod, ttest_ind

from reveal_bench.analyses.odds_ratio import odds_ratio
from reveal_bench.analyses.patient_groups import group_patients
from reveal_bench.analyses.subgroups import Subgroup, score_subgroups
from reveal_bench.api.score_tables import Subgroups
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import UNDEFINED, Estimate

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
    subgroups = score_subgroups(rows_of(values), {"arm": groups}, ["mask_iou"])
    return {one.group: one for one in subgroups if one.finding == MACRO}


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


def test_a_column_of_one_group_says_why_there_is_no_difference(rng: np.random.Generator) -> None:
    groups = score_subgroups(rows_of(rng.random(40)), {"sex": dict.fromkeys(PATIENTS, "missing")}, ["mask_iou"])
    result = Subgroups(groups, 40)
    assert result.caption.endswith("; no difference by sex because all patients are in the group 'missing'")
    assert result.printed_rows()[0]["group"] == MACRO


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
    (groups,) = group_patients(folder, "localization", "test", [name], bands).values()
    return groups


def test_patients_of_several_values_and_of_none_are_groups(tmp_path: Path) -> None:
    write_column(tmp_path, "sex", ["F", "M", "F", "F", None, "", None, "M"], ["a", "b", "c", "c", "d", "e", "f", "c"])
    assert column(tmp_path, "sex") == {
        "a": "F", "b": "M", "c": "several", "d": "missing", "e": "missing", "f": "missing"
    }  # fmt: skip
    write_column(tmp_path, "age", [39.9, 40.0, 64, 65, None], list("abcde"))
    bands = ["below 40", "40 to below 65", "40 to below 65", "65 or more", "missing"]
    assert list(column(tmp_path, "age", [40, 65]).values()) == bands
    groups = {"age": dict(zip(PATIENTS, bands, strict=False))}
    results = score_subgroups(rows_of([0.5] * 5), groups, ["mask_iou"])
    assert [one.group for one in results if one.finding == MACRO] == bands[:2] + bands[3:]


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
        ("age", None, "`by` must have at most 30 different values, or be divided by `bands`, got age, which has 40"),
        ("age", [65, 40], "`bands` must be increasing numbers, such as 40,65, got"),
        ("age", [40, 40], "`bands` must be increasing numbers"),
        ("age", [math.nan], "`bands` must be increasing numbers"),
        ("age", [], "`bands` must be increasing numbers"),
    ],
)
def test_columns_and_bands_of_no_use_are_refused(tmp_path: Path, name: str, bands: Any, rule: str) -> None:
    write_column(tmp_path, "age", list(range(40)), PATIENTS[:40])
    with pytest.raises(ArgumentError) as caught:
        column(tmp_path, name, bands)
    assert rule in str(caught.value)


def test_bands_of_words_are_refused(tmp_path: Path) -> None:
    write_column(tmp_path, "sex", ["F"], ["a"])
    with pytest.raises(ArgumentError, match="`bands` needs a column of numbers, sex has other values, got 'F'"):
        column(tmp_path, "sex", [40])
    with pytest.raises(ArgumentError, match="`metric` must be one of mask_iou"):
        score_subgroups(rows_of([0.5]), {"sex": {PATIENTS[0]: "F"}}, ["f1"])


def test_patients_without_counted_cases_are_reported() -> None:
    groups = [Subgroup("sex", name, "mask_iou", MACRO, n, UNDEFINED) for name, n in (("F", 20), ("M", 28))]
    assert Subgroups(groups, 50).caption.endswith(
        "n: patients with a case that counts in the score (2 of 50 patients have no such case)"
    )
    assert "no such case" not in Subgroups(groups, 48).caption


def write_columns(folder: Path) -> None:
    (folder / "localization").mkdir()
    columns = {
        "patient_id": list("abcde"),
        "sex": ["F", "F", "M", None, "M"],
        "age": [39, 65, 65, 70, None],
        "dose": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    pq.write_table(pa.table(columns), folder / "localization" / "test-00000-of-00001.parquet")


def test_columns_are_crossed_or_scored_one_by_one(tmp_path: Path) -> None:
    write_columns(tmp_path)
    groups = group_patients(tmp_path, "localization", "test", ["sex", "sex, age"], [65])
    assert list(groups) == ["sex", "sex, age"]
    assert list(groups["sex"].values()) == ["F", "F", "M", "missing", "M"]
    crossed = ["F, below 65", "F, 65 or more", "M, 65 or more", "missing, 65 or more", "M, missing"]
    assert list(groups["sex, age"].values()) == crossed
    results = score_subgroups(
        rows_of([0.5] * 5), {"sex, age": dict(zip(PATIENTS, crossed, strict=False))}, ["mask_iou"]
    )
    ordered = [one.group for one in results if one.finding == MACRO]
    assert ordered == [*crossed[:3], "M, missing", "missing, 65 or more"]


def test_bands_cut_the_only_column_of_numbers(tmp_path: Path) -> None:
    write_columns(tmp_path)
    for by, numbers in (("sex,age,dose", "age, dose"), ("sex,sex", "'F'")):
        with pytest.raises(ArgumentError, match=f"`bands` needs .* of numbers.*, got {numbers}"):
            group_patients(tmp_path, "localization", "test", [by], [65])
    for wrong, got in (([], "none"), ([64, 71], "64")):
        with pytest.raises(ArgumentError, match=f"`by` must name at least one column, such as 'sex', got {got}"):
            group_patients(tmp_path, "localization", "test", wrong)


LABELS = ("Edema", "Mass")


def studies(predicted: Any, present: Any, patients: Any, probabilities: Any = None) -> StudyRows:
    n = len(predicted)
    records = tuple(StudyRecord(f"s{i}", patient, ()) for i, patient in enumerate(patients))
    return StudyRows(LABELS, records, predicted, present, probabilities, np.ones(n, bool))


def test_findings_have_the_scores_of_the_groups_own_studies(rng: np.random.Generator) -> None:
    """Against scikit-learn on the studies of each group."""
    from sklearn.metrics import f1_score, recall_score, roc_auc_score

    present = rng.random((120, 2)) < 0.4
    probabilities = np.clip(present * 0.3 + rng.random((120, 2)) * 0.7, 0, 1)
    rows = studies(probabilities >= 0.5, present, PATIENTS, probabilities)
    arm = np.array(list("ab" * 60))
    groupings = {"arm": dict(zip(PATIENTS, arm, strict=True))}
    scored = {(one.metric, one.finding, one.group): one
              for one in score_subgroups(rows, groupings, ["f1", "recall", "auroc"])}  # fmt: skip
    assert len(scored) == 3 * 3 * 2
    by_oracle = {"f1": (f1_score, rows.predicted), "recall": (recall_score, rows.predicted),
                 "auroc": (roc_auc_score, probabilities)}  # fmt: skip
    for metric, (oracle, answers) in by_oracle.items():
        values = {
            group: [oracle(present[arm == group, i], answers[arm == group, i]) for i in range(2)] for group in "ab"
        }
        for i, finding in enumerate(LABELS):
            one = scored[metric, finding, "a"]
            assert one.estimate.value == pytest.approx(values["a"][i])
            assert one.difference.value == pytest.approx(values["a"][i] - values["b"][i])
            assert one.difference.low < one.difference.value < one.difference.high
            assert one.p == pytest.approx(scored[metric, finding, "b"].p)  # two groups: the same difference
        assert scored[metric, MACRO, "a"].estimate.value == pytest.approx(np.mean(values["a"]))


def test_a_macros_difference_states_its_findings(rng: np.random.Generator) -> None:
    """Mass, which 12 patients have, five of them in group a, counts in the values, but not in the difference."""
    present = np.column_stack([np.ones(120, bool), np.isin(np.arange(120), [0, 2, 4, 6, 8, 1, 3, 5, 7, 9, 11, 13])])
    predicted = present & (rng.random((120, 2)) < 0.7)
    arm = dict(zip(PATIENTS, "ab" * 60, strict=True))
    table = Subgroups(score_subgroups(studies(predicted, present, PATIENTS), {"arm": arm}, ["recall"]), 120)
    macro, edema = (next(one for one in table.groups if one.finding == finding) for finding in (MACRO, "Edema"))
    assert (macro.n_compared, edema.n_compared) == (1, 0)
    assert macro.difference.value == pytest.approx(edema.difference.value)
    assert macro.estimate.value != pytest.approx(edema.estimate.value)
    assert table.printed_rows()[0]["group"] == "macro; differences over 1 of 2 findings"
    a, b = (replace(one, n_compared=n) for one, n in zip(table.groups[:2], (5, 9), strict=True))
    assert (
        "; differences over 5 (a), 9 (b) of 2" in Subgroups([a, b, *table.groups[2:]], 120).printed_rows()[0]["group"]
    )
    few = {"arm": dict(zip(PATIENTS, ["a"] * 3 + ["b"] * 117, strict=True))}
    none = Subgroups(score_subgroups(studies(predicted, present, PATIENTS), few, ["recall"]), 120)
    assert none.printed_rows()[0]["group"] == "macro; no differences because too few patients have each finding"


def test_p_of_findings_covers_all_findings(rng: np.random.Generator) -> None:
    """A second finding that is the same for everyone adds nothing; one with noise makes p larger."""
    present = np.ones((120, 2), bool)
    arm = dict(zip(PATIENTS, "ab" * 60, strict=True))
    hits = rng.random(120) < np.where(np.arange(120) % 2, 0.75, 0.6)
    p = []
    for other in (np.ones(120, bool), rng.random(120) < 0.6):
        rows = studies(np.column_stack([hits, other]), present, PATIENTS)
        p += [one.p for one in score_subgroups(rows, {"arm": arm}, ["recall"]) if one.finding == "Edema"][:1]
    assert p[0] < p[1] < 2 * p[0] + 0.02  # at most Bonferroni's


def test_average_precision_of_groups_has_no_test(rng: np.random.Generator) -> None:
    present = rng.random((120, 2)) < 0.4
    rows = studies(present, present, PATIENTS, np.clip(present * 0.3 + rng.random((120, 2)) * 0.7, 0, 1))
    arm = dict(zip(PATIENTS, "ab" * 60, strict=True))
    for one in score_subgroups(rows, {"arm": arm}, ["average_precision"]):
        assert one.estimate.has_interval
        assert math.isnan(one.p)
        assert not math.isnan(one.difference.value)
        assert one.flag


# right and wrong answers of a group and of the rest: scipy's sample odds ratio has Woolf's interval
@pytest.mark.parametrize("table", [[[12, 5], [6, 9]], [[40, 2], [90, 31]], [[8, 12], [300, 150]]])
def test_odds_ratio_is_scipys(table: list[list[int]]) -> None:
    from scipy.stats.contingency import odds_ratio as scipy_odds_ratio

    sides = [(np.arange(right + wrong) < right, np.ones(right + wrong)) for right, wrong in table]
    ratio = odds_ratio(*sides[0], *sides[1])
    expected = scipy_odds_ratio(table, kind="sample")
    ends = expected.confidence_interval()
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((expected.statistic, ends.low, ends.high), rel=1e-12)


def test_odds_ratio_with_a_zero_adds_a_half_to_all_counts() -> None:
    """10 of 10 right, against 6 of 10: 10.5 * 4.5 / (0.5 * 6.5), variance 1/10.5 + 1/0.5 + 1/6.5 + 1/4.5."""
    ones = np.ones(10)
    ratio = odds_ratio(ones, ones, np.arange(10) < 6, ones)
    assert ratio.value == pytest.approx(10.5 * 4.5 / (0.5 * 6.5))
    reach = 1.959963984540054 * math.sqrt(1 / 10.5 + 1 / 0.5 + 1 / 6.5 + 1 / 4.5)
    assert (ratio.low, ratio.high) == pytest.approx((ratio.value / math.exp(reach), ratio.value * math.exp(reach)))


def test_odds_ratio_of_clusters_is_as_of_fewer_cases() -> None:
    """20 patients with two equal answers each say as much as 20 answers, except for the factor 20 / 19."""
    ones, halves = np.ones(20), np.arange(20) < 10
    single = odds_ratio(halves, ones, np.arange(20) < 15, ones)
    double = odds_ratio(2.0 * halves, 2 * ones, 2.0 * (np.arange(20) < 15), 2 * ones)
    widths = [math.log(one.high / one.low) for one in (single, double)]
    assert double.value == pytest.approx(single.value)
    assert widths[1] / widths[0] == pytest.approx(math.sqrt(20 / 19))


def test_odds_ratio_is_withheld_where_it_says_nothing() -> None:
    ones = np.ones(10)
    half = np.arange(10) < 5
    assert odds_ratio(ones, ones, ones, ones) is UNDEFINED  # nothing wrong on either side
    assert odds_ratio(half[:9], ones[:9], half, ones) is UNDEFINED  # 9 patients
    clustered = odds_ratio(2 * ones, 2 * ones, half, ones)  # a zero, and patients with two cases
    assert clustered == Estimate(clustered.value)


def test_groups_of_proportions_have_odds_ratios(rng: np.random.Generator) -> None:
    present = np.ones((120, 2), bool)
    predicted = rng.random((120, 2)) < 0.7
    arm = dict(zip(PATIENTS, "ab" * 60, strict=True))
    rows = studies(predicted, present, PATIENTS)
    table = Subgroups(score_subgroups(rows, {"arm": arm}, ["recall"]), 120)
    a, b = (one for one in table.groups if one.finding == "Edema")
    right = [int(predicted[first::2, 0].sum()) for first in (0, 1)]
    assert a.odds_ratio.value == pytest.approx(right[0] * (60 - right[1]) / (right[1] * (60 - right[0])))
    assert a.odds_ratio.value == pytest.approx(1 / b.odds_ratio.value)
    assert "odds ratio of a right answer, patients as clusters, not corrected" in table.caption
    assert {"odds_ratio", "odds_ratio_low", "odds_ratio_high", "flag"} <= set(table.records[0])
    printed = table.printed_rows()
    assert [row["group"] for row in printed] == ["macro", "  a", "  b", "Edema", "  a", "  b", "Mass", "  a", "  b"]
    assert (printed[1]["odds ratio"], printed[3]["odds ratio"]) == ("-", "")
    without = Subgroups(score_subgroups(rows, {"arm": arm}, ["f1"]), 120)
    assert "odds ratio" not in without.caption + str(without.printed_rows())
