"""ROC and precision-recall curves of findings: hand arithmetic, and scikit-learn."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

import reveal_bench as rb
from reveal_bench.analyses.roc import partial_area
from reveal_bench.analyses.thresholds import cuts_of
from reveal_bench.dataset.build import build_folder
from reveal_bench.metrics.bootstrap import resampling_counts
from reveal_bench.metrics.intervals import Resampling
from tests.cli.test_score import call
from tests.dataset.card_folders import FINDINGS, LABELS, study

EDEMA, MASS, NODULE = LABELS
N = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 60 studies: 20 have Mass, 15 of them and 4 others with a probability of 0.6; 5 with 0.2, the others 0.1.

    All have Edema, none has Nodule.
    """
    root = tmp_path_factory.mktemp("roc")
    records = [study(root / "pictures", i, LABELS[:2] if i % 3 == 0 else (EDEMA,)) for i in range(N)]
    build_folder({"test": records}, root / "folder", FINDINGS)
    mass = [(0.6 if i < 45 else 0.2) if i % 3 == 0 else (0.6 if i < 6 else 0.1) for i in range(N)]
    of_studies = [{EDEMA: 0.5, MASS: probability, NODULE: 0.3} for probability in mass]
    lines = [json.dumps({"study_id": f"study-{i}", "probabilities": own}) for i, own in enumerate(of_studies)]
    (root / "test.jsonl").write_text("\n".join(lines))
    return root


@pytest.mark.parametrize("max_fpr", [0.05, 0.1, 0.37, 1.0])
def test_partial_areas_equal_scikit_learn(max_fpr: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 40))
        present = rng.random(n) < rng.random()
        scores = rng.integers(0, rng.integers(2, 50), n) / 50
        area = float(partial_area(cuts_of(scores, present), max_fpr, standardized=max_fpr < 1))
        if 0 < present.sum() < n:
            assert area == pytest.approx(roc_auc_score(present, scores, max_fpr=max_fpr), abs=1e-12)
        else:
            assert math.isnan(area)


def test_curves_have_the_points_of_every_threshold(folder: Path) -> None:
    """The partial area is a triangle, 0.1 * 0.75 / 2; standardized, (1 + (0.0375 - 0.005) / 0.095) / 2."""
    result = rb.curves(folder / "test.jsonl", folder / "folder", split="test", n_resamples=200)
    assert isinstance(result, rb.api.FindingCurves)
    roc, precision = result.tables["roc"].records, result.tables["precision_recall"].records
    assert {row["finding"] for row in roc} == {MASS}  # the others are of one class
    points = [(row["false_positive_rate"], row["sensitivity"]) for row in roc]
    assert points == [(0, 0), (pytest.approx(0.1), 0.75), (pytest.approx(0.1), 1), (1, 1)]
    assert [(row["recall"], row["precision"]) for row in precision] == [
        (0.75, pytest.approx(15 / 19)),
        (1, pytest.approx(20 / 24)),
        (1, pytest.approx(1 / 3)),
    ]
    (area,) = result.curves.areas
    assert area.area.value == pytest.approx(0.0375)
    assert area.standardized.value == pytest.approx((1 + 0.0325 / 0.095) / 2)
    assert area.standardized.low < area.standardized.value < area.standardized.high


def test_bands_are_wilson_intervals_by_the_error_of_resampled_patients(folder: Path) -> None:
    result = rb.curves(folder / "test.jsonl", folder / "folder", split="test", n_resamples=100)
    assert isinstance(result, rb.api.FindingCurves)
    confidences = result.scored.rows.confidences()
    assert confidences is not None
    of_mass = np.array(confidences.case_groups) == MASS
    patients = [sorted(confidences.all_patients).index(name) for name in np.array(confidences.case_patients)[of_mass]]
    scores, present = confidences.probabilities[of_mass], confidences.happened[of_mass]
    drawn = []
    for counts in resampling_counts(len(confidences.all_patients), Resampling(100)):
        times = counts[patients].astype(int)
        fpr, sensitivity, _ = roc_curve(np.repeat(present, times), np.repeat(scores, times), drop_intermediate=False)
        drawn.append(np.interp(0.05, fpr, sensitivity))
    band = next(one.height for one in result.curves.roc_bands if math.isclose(one.at, 0.05))
    value, z = 0.375, NormalDist().inv_cdf(0.975)
    size = value * (1 - value) / np.std(drawn, ddof=1) ** 2
    # The ends of Wilson's interval solve (value - p)^2 = z^2 p (1 - p) / size
    ends = np.sort(np.roots([1 + z**2 / size, -2 * value - z**2 / size, value**2]))
    assert (band.value, band.low, band.high) == pytest.approx((value, *ends))


def test_bands_of_a_perfect_system_have_a_width(folder: Path, tmp_path: Path) -> None:
    """At a sensitivity of 1 among 20 patients, Wilson's lower bound is 20 / (20 + z^2)."""
    lines = [{"study_id": f"study-{i}", "probabilities": {EDEMA: 0.5, MASS: 0.9 - 0.8 * (i % 3 > 0), NODULE: 0.5}}
             for i in range(N)]  # fmt: skip
    (tmp_path / "perfect.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = rb.curves(tmp_path / "perfect.jsonl", folder / "folder", split="test", n_resamples=20)
    assert isinstance(result, rb.api.FindingCurves)
    low = 20 / (20 + NormalDist().inv_cdf(0.975) ** 2)
    (area,) = result.curves.areas
    assert (area.area.low, area.area.high) == pytest.approx((0.1 * low, 0.1), abs=1e-12)
    heights = {round(one.at, 2): one.height for one in result.curves.roc_bands}
    assert (heights[0.5].low, heights[0.5].high) == pytest.approx((low, 1), abs=1e-12)
    assert not heights[0.04].has_interval  # 1.6 of 40 patients
    assert heights[0.05].has_interval
    assert f"no curve for {EDEMA}: all cases have it; no curve for {NODULE}: no case has it" in result.caption


def test_the_command_writes_tables_and_figures(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "curves"
    words = (folder / "test.jsonl", folder / "folder", "--split", "test", "--resamples", "50", "--out", out)
    printed = call("curves", *words, "--max-fpr", "0.1").stdout
    assert "0.0375" in printed
    assert "0.671" in printed
    written = {path.name for path in out.iterdir()}
    assert {"roc.csv", "roc.png", "precision_recall.svg", "partial_areas.csv", "roc_bands.csv"} <= written


def test_readers_are_points_beside_the_curve(folder: Path, tmp_path: Path) -> None:
    """At a false positive rate of 0.1 the curve rises from 0.75 to 1, so a reader with 0.75 there is below its top.

    At a rate of 0, the curve has a sensitivity of 0; from 0.1 on it has 1.
    """
    positive, negative = [i for i in range(N) if i % 3 == 0], [i for i in range(N) if i % 3]
    called = {"on": (20, 4), "above": (10, 0), "level": (15, 4), "below": (10, 8)}
    readers = {}
    for name, (hits, alarms) in called.items():
        own = {*positive[:hits], *negative[:alarms]}
        readers[name] = tmp_path / f"{name}.jsonl"
        lines = [json.dumps({"study_id": f"study-{i}", "labels": [MASS] if i in own else []}) for i in range(N)]
        readers[name].write_text("\n".join(lines))
    words = (folder / "test.jsonl", folder / "folder", "--split", "test", "--resamples", "50")
    options = [word for path in readers.values() for word in ("--reader", path)]
    assert "2 of 4" in call("curves", *words, *options).stdout
    result = rb.curves(folder / "test.jsonl", folder / "folder", split="test", n_resamples=50, readers=readers)
    assert isinstance(result, rb.api.FindingCurves)
    points = {one.reader: (one.false_positive_rate, one.sensitivity, one.below_curve) for one in result.readers}
    assert points == {
        "on": (pytest.approx(0.1), 1, False),
        "above": (0, 0.5, False),
        "level": (pytest.approx(0.1), 0.75, True),
        "below": (pytest.approx(0.2), 0.5, True),
    }
    roc, _ = result.drawn()
    (panel,) = roc.draw(180.0).axes
    assert panel.get_title(loc="left") == "Mass (n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}20)"
    assert "n: cases with the finding. Not drawn: Edema (all cases have it); Nodule (no case has it)." in roc.caption
    counts = [{"finding": name, "n_below": 2, "n_readers": 4} for name in ("macro", MASS)]
    assert result.tables["readers_below"].records == counts
    assert "; readers below the curve, mean over findings: 2.00 of 4; no curve" in result.caption


def test_readers_below_the_curve_have_a_mean_over_findings(tmp_path: Path) -> None:
    """The system is perfect for Edema, and its curve for Mass is the diagonal, because it has one probability.

    For Edema, B and C miss a study, A is on the curve. For Mass, C has a sensitivity of 4 / 8 at a rate of 6 / 8.
    """
    edema, mass = set(range(0, 16, 2)), set(range(8))
    labels = [[name for name, own in ((EDEMA, edema), (MASS, mass)) if i in own] for i in range(16)]
    records = [study(tmp_path / "pictures", i, own) for i, own in enumerate(labels)]
    build_folder({"test": records}, tmp_path / "folder", FINDINGS)
    predictions = {f"study-{i}": {EDEMA: 0.1 + 0.8 * (i in edema), MASS: 0.5, NODULE: 0.1} for i in range(16)}
    called = {"A": (edema, mass), "B": (edema - {0}, mass), "C": (edema - {0} | {1}, set(range(4, 14)))}
    readers = {
        reader: {f"study-{i}": [EDEMA] * (i in own[0]) + [MASS] * (i in own[1]) for i in range(16)}
        for reader, own in called.items()
    }
    result = rb.curves(predictions, tmp_path / "folder", split="test", n_resamples=10, readers=readers)
    assert isinstance(result, rb.api.FindingCurves)
    assert {row["finding"]: row["n_below"] for row in result.readers_below} == {"macro": 1.5, EDEMA: 2, MASS: 1}


def test_a_rate_outside_its_range_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="max_fpr"):
        rb.curves(folder / "test.jsonl", folder / "folder", split="test", max_fpr=0)
