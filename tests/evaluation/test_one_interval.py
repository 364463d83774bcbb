"""A system's interval is the same to the last digit wherever it is printed, and whoever else is in the folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reveal_bench.analyses.subgroups import score_subgroups
from reveal_bench.evaluation.compare import compare, rank
from reveal_bench.kinds.detection.scoring import DetectionRows
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.kinds.scored import Rows
from reveal_bench.kinds.tasks.records import CATEGORIES
from reveal_bench.kinds.tasks.scoring import RubricRows
from reveal_bench.metrics.bootstrap import MACRO, estimate_cases, interval_of
from reveal_bench.metrics.detection_matching import RULES
from reveal_bench.metrics.estimates import estimate_labels
from reveal_bench.metrics.intervals import Estimate, Resampling

N = 60
PATIENTS = tuple(f"p{i // 2:02d}" for i in range(N))
IMAGES = tuple(f"i{i:02d}" for i in range(N))
LABELS = ("Edema", "Mass", "Nodule")
PRESENT = np.random.default_rng(0).random((N, 3)) < (0.5, 0.3, 0.04)
DRAWS = Resampling(2000)


def findings(seed: int) -> StudyRows:
    """Decisions that are mostly right; the rare finding is called by some systems, and missed by others."""
    rng = np.random.default_rng(seed)
    probabilities = np.clip(PRESENT * 0.5 + rng.normal(0.25, 0.2, PRESENT.shape), 0, 1)
    studies = tuple(StudyRecord(image, patient, ()) for image, patient in zip(IMAGES, PATIENTS, strict=True))
    return StudyRows(LABELS, studies, probabilities >= 0.5, PRESENT, probabilities, np.ones(N, bool))


def localization(seed: int) -> CaseRows:
    rng = np.random.default_rng(seed)
    names = [LABELS[i % 3] for i in range(N)]
    hits, overlap = (rng.random(N) < 0.7).astype(float), rng.random(N)
    images = tuple(zip(IMAGES, PATIENTS, strict=True))
    columns = [*IMAGES], [*PATIENTS], names, ["mask"] * N, ["mask"] * N
    return CaseRows(LABELS, *columns, {"point_hit": hits, "mask_iou": overlap}, images)


def tasks(seed: int) -> RubricRows:
    rng = np.random.default_rng(seed)
    ratings = rng.integers(1, 6, (N, 2, 6)).astype(float)
    return RubricRows(IMAGES, PATIENTS, tuple(CATEGORIES[i % 3] for i in range(N)), ratings, np.ones(N, bool))


def detection(seed: int) -> DetectionRows:
    rng = np.random.default_rng(seed)
    image, finding = np.nonzero(PRESENT)
    n = len(image)
    hit = np.where(rng.random(n) < 0.7, np.arange(n), -1)
    return DetectionRows(
        LABELS,
        tuple(zip(IMAGES, PATIENTS, strict=True)),
        np.ones((N, 3), bool),
        *(image, finding, np.full(n, 0.1)),
        *(image, finding, rng.random(n), np.tile(hit, (len(RULES), 1)).astype(np.int32)),
        *(np.zeros(0, np.int32), np.zeros(0), np.full(3, 0.5)),
    )


def ends(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


KINDS: list[tuple[Callable[[int], Any], str]] = [
    *((findings, metric) for metric in ("f1", "precision", "recall", "specificity", "npv", "cohen_kappa", "auroc")),
    *((findings, metric) for metric in ("balanced_accuracy", "mcc", "log_loss")),
    *((localization, metric) for metric in ("point_hit", "mask_iou")),
    (tasks, "rubric_mean"),
    *((detection, metric) for metric in ("lesion_sensitivity", "ap_50")),
]


@pytest.mark.parametrize(("make", "metric"), KINDS)
def test_a_systems_interval_does_not_depend_on_the_command(make: Callable[[int], Rows], metric: str) -> None:
    rows = make(1)
    draws = DRAWS.by("shifted") if make is detection else DRAWS
    wanted = next(e for e in rows.estimates(draws) if (e.metric, e.finding) == (metric, MACRO))
    assert wanted.has_interval
    for n_systems in (1, 2, 10):
        systems = {str(seed): make(seed) for seed in range(1, n_systems + 1)}
        ranked = {one.name: one for one in rank(systems, metric=metric, resampling=DRAWS)}
        assert ends(ranked["1"].estimate) == ends(wanted), n_systems
        assert interval_of(ranked["1"].signature) == interval_of(wanted.signature)
    everyone, *of_findings = score_subgroups(rows, {"arm": dict.fromkeys(PATIENTS, "all")}, [metric], DRAWS)
    assert ends(everyone.estimate) == ends(wanted)
    assert interval_of(everyone.estimate.signature) == interval_of(wanted.signature)
    own = {e.finding: ends(e) for e in rows.estimates(draws) if e.metric == metric}
    assert [ends(one.estimate) for one in of_findings] == [
        pytest.approx(own[one.finding], rel=0, abs=0, nan_ok=True) for one in of_findings
    ]


def test_ranked_macros_are_over_shared_findings_and_depend_on_these_alone() -> None:
    """The second system has no score on the third finding, so that both macros leave it out."""
    a, other = localization(1), localization(2)
    is_third = np.array([name == LABELS[2] for name in other.case_findings])
    lacking = {name: np.where(is_third, np.nan, column) for name, column in other.values.items()}
    systems = {"a": a, "b": replace(other, values=lacking)}
    ranked = {one.name: one for one in rank(systems, metric="mask_iou", resampling=DRAWS)}
    alone = a.estimates(DRAWS, groups=LABELS[:2])
    assert ranked["a"].n == 2
    assert ends(ranked["a"].estimate) == ends(next(e for e in alone if e.metric == "mask_iou"))


def test_scores_without_a_folder_have_the_same_intervals() -> None:
    """Call the functions that the `evaluate` modules call."""
    rows, cases = findings(1), localization(1)
    how: dict[str, Any] = {"patients": PATIENTS, "resampling": DRAWS}
    labels = estimate_labels(rows.predicted, rows.present, scores=rows.probabilities, labels=LABELS, **how)
    assert [ends(e) for e in labels] == [
        pytest.approx(ends(e), rel=0, abs=0, nan_ok=True) for e in rows.estimates(DRAWS)
    ]
    for metric in ("point_hit", "mask_iou"):
        own = estimate_cases(metric, 1, cases.values[metric], findings=cases.case_findings, **how)
        assert [ends(e) for e in own] == [ends(e) for e in cases.estimates(DRAWS) if e.metric == metric]


@pytest.mark.parametrize("n_patients", [9, 10])
def test_systems_are_ranked_if_and_only_if_compare_tests_their_macro(n_patients: int) -> None:
    """A finding needs ten supporting patients; with nine, no macro is tested, although all prefer one system."""
    names = [f"p{i}" for i in range(n_patients)]
    columns = names, names, ["Edema"] * n_patients, ["point"] * n_patients, ["point"] * n_patients
    images = tuple(zip(names, names, strict=True))
    good, poor = (CaseRows(("Edema",), *columns, {"point_hit": np.full(n_patients, hit)}, images) for hit in (1.0, 0.0))
    (macro, _) = compare(good, poor, DRAWS, metrics=["point_hit"])
    ranked = {
        (one.tier, one.reason) for one in rank({"good": good, "poor": poor}, metric="point_hit", resampling=DRAWS)
    }
    if n_patients < 10:
        assert ranked == {(None, "too few patients")}
        assert (np.isnan(macro.p), macro.reason) == (True, "too few patients")
    else:
        assert ranked == {(1, ""), (2, "")}
        assert macro.p == pytest.approx(2 / 2**10 / 2)  # mid-p of the 2 of 1,024 flips that are as extreme
