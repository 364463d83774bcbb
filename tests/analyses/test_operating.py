"""Thresholds tuned on one split and applied on another, and operating points with intervals."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

import reveal_bench as rb
from reveal_bench.analyses.operating import points_chosen
from reveal_bench.analyses.thresholds import Criterion
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.scored import Confidences
from reveal_bench.metrics.bootstrap import MACRO, resampling_counts
from reveal_bench.metrics.intervals import Resampling
from tests.cli.test_score import call
from tests.dataset.card_folders import FINDINGS, LABELS, study

EDEMA, MASS, NODULE = LABELS
N = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two splits of 60 studies: all have Edema, 20 of each split also have Mass, none has Nodule."""
    root = tmp_path_factory.mktemp("operating")
    records = [study(root / "pictures", i, LABELS[:2] if i % 3 == 0 else (EDEMA,)) for i in range(2 * N)]
    build_folder({"val": records[:N], "test": records[N:]}, root / "folder", FINDINGS)
    for split, first in (("val", 0), ("test", N)):
        lines = [json.dumps({"study_id": f"study-{first + i}", "probabilities": probabilities(i)}) for i in range(N)]
        (root / f"{split}.jsonl").write_text("\n".join(lines))
    return root


def probabilities(i: int) -> dict[str, float]:
    """Return 0.6 for 15 of the 20 studies with Mass, 0.2 for the others; 0.6 for 4 of 40 without it, else 0.1."""
    mass = (0.6 if i < 45 else 0.2) if i % 3 == 0 else (0.6 if i < 6 else 0.1)
    return {EDEMA: 0.5 + i / 200, MASS: mass, NODULE: 0.3}


def test_thresholds_are_tuned_on_one_split_and_applied_on_another(folder: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "submission.json"
    metadata.write_text('{"organization": "Mine", "thresholds": 0.9}')
    words = (folder / "val.jsonl", folder / "folder", "--split", "val", "--metadata", metadata)
    refused = call("tune", *words, "--metric", "youden", expect=1).stderr
    assert "--otherwise must be given, as in --otherwise=0.5, because 2 of 3 findings have no threshold" in refused
    assert "Edema: all cases have it; Nodule: no case has it" in refused
    printed = call("tune", *words, "--metric", "youden", "--otherwise", "0.4", "--wide")
    assert re.search(r"Mass +20 of 60 +0.150 +100.0 +90.0 +83.3 +100.0", printed.stdout)  # 20 of 20, 36 of 40, 20 of 24
    assert re.search(r"Nodule +0 of 60 +0.400.*as given: no case has it", printed.stdout)
    assert "replaced its thresholds, which were 0.9" in printed.stderr
    again = call("tune", *words, "--metric", "f1", "--otherwise", "0.3").stderr
    assert (
        "replaced its thresholds, which were tuned on reveal-cxr 1.0.0, split val (highest Youden's index, val" in again
    )
    call("tune", *words, "--metric", "youden", "--otherwise", "0.4")
    document = json.loads(metadata.read_text())
    assert document["organization"] == "Mine"
    assert document["thresholds"] == {EDEMA: 0.4, MASS: 0.15, NODULE: 0.4}
    assert document["tuning"].items() >= {
        "split": "val", "n": 60, "criterion": "highest Youden's index", "file": "val.jsonl"
    }.items()  # fmt: skip

    words = (folder / "folder", "--metadata", metadata)
    scored = call("score", folder / "test.jsonl", *words, "--split", "test", "--json")
    result = json.loads(scored.stdout)
    assert result["protocol"]["thresholds"] == document["thresholds"]
    (specificity,) = (e["value"] for e in result["estimates"] if (e["metric"], e["finding"]) == ("specificity", MASS))
    assert specificity == 36 / 40
    (note,) = result["notes"]
    place = r"reveal-cxr \S+, split val \(60 studies, highest Youden's index, val.jsonl\)"
    assert re.fullmatch(f"thresholds were tuned on {place}", note)
    leak = "thresholds were tuned on this split, so scores of decisions are too good"
    assert leak in call("score", folder / "val.jsonl", *words, "--split", "val").stderr
    (tmp_path / "val.jsonl").write_text((folder / "val.jsonl").read_text())
    own = (tmp_path / "val.jsonl", folder / "val.jsonl", folder / "folder", "--split", "val", "--own-thresholds")
    assert leak in call("compare", *own).stderr


def test_two_files_in_a_folder_have_thresholds_of_their_own(folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.jsonl", "b.v2.jsonl.gz")]
    for file, otherwise in zip(files, ("0.4", "0.3"), strict=True):
        content = (folder / "val.jsonl").read_bytes()
        file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
        call("tune", file, folder / "folder", "--split", "val", "--metric", "f1", "--otherwise", otherwise)
    words = ("compare", *files, folder / "folder", "--split", "val", "--own-thresholds", "--json")
    thresholds = json.loads(call(*words).stdout)["protocol"]["thresholds"]
    assert {name: chosen[EDEMA] for name, chosen in thresholds.items()} == {"a.jsonl": 0.4, "b.v2.jsonl.gz": 0.3}
    (tmp_path / "a.submission.json").rename(tmp_path / "submission.json")  # whose thresholds are these?
    submit = ("submit", files[0], "--benchmark", "b", "--url", "http://127.0.0.1:9")
    for refused in (words, submit):
        assert "Name it a.submission.json if they are those of a.jsonl" in call(*refused, expect=1).stderr
    (tmp_path / "submission.json").write_text('{"organization": "Mine"}')  # of both
    done = call(*words)
    assert json.loads(done.stdout)["protocol"]["thresholds"]["a.jsonl"] == 0.5
    assert "a.jsonl has no thresholds of its own, so 0.5 applies" in done.stderr
    assert f"--metadata {tmp_path / 'a.submission.json'}`" in done.stderr
    assert "b.v2.jsonl.gz has no thresholds" not in done.stderr
    files[1].unlink()
    call("tune", files[0], folder / "folder", "--split", "val", "--metric", "f1", "--otherwise", "0.2")
    assert json.loads((tmp_path / "submission.json").read_text())["thresholds"][EDEMA] == 0.2


@pytest.mark.parametrize("number", ["float16", "float32"])
def test_frames_and_their_csv_files_have_the_same_decisions(
    folder: Path, tmp_path: Path, rng: np.random.Generator, number: str
) -> None:
    """Text has fewer digits than a float32: 0.7471137642860413 is written as 0.74711376."""
    index = [f"study-{i}" for i in range(N)]
    has_mass = np.arange(N)[:, None] % 3 == 0
    frame = pd.DataFrame(
        ((rng.random((N, 3)) + has_mass) / 2).astype(number), pd.Index(index, name="study_id"), list(LABELS)
    )
    frame.to_csv(tmp_path / "val.csv")
    tuned = rb.tune_thresholds(frame, folder / "folder", split="val", metric="youden", otherwise=0.5)
    assert (
        tuned.thresholds
        == rb.tune_thresholds(
            tmp_path / "val.csv", folder / "folder", split="val", metric="youden", otherwise=0.5
        ).thresholds
    )
    mass, threshold = frame["Mass"].astype(float), tuned.thresholds["Mass"]
    below, above = mass[mass < threshold].max(), mass[mass >= threshold].min()
    assert below + (above - below) / 8 < threshold < above - (above - below) / 8
    results = [
        rb.score(source, folder / "folder", split="val", thresholds=tuned.thresholds, n_resamples=1).table
        for source in (frame, tmp_path / "val.csv")
    ]
    decided = [table[table.metric.isin(["f1", "precision", "recall", "specificity"])] for table in results]
    pd.testing.assert_frame_equal(*decided, check_exact=True)


def test_thresholds_that_few_cases_decide_are_noted(folder: Path, tmp_path: Path) -> None:
    """Four of the 60 studies have Mass."""
    records = [study(folder / "pictures", i, LABELS[:2] if i < 4 else (EDEMA,)) for i in range(N)]
    build_folder({"val": records}, tmp_path / "folder", FINDINGS)
    words = (folder / "val.jsonl", tmp_path / "folder", "--metric", "f1", "--otherwise", "0.4")
    printed = call("tune", *words, "--metadata", tmp_path / "submission.json")
    assert re.search(r"Mass +4 of 60 .* only 4 cases with it", printed.stdout)
    assert printed.stderr.count("few cases determine the thresholds of Mass (only 4 cases with it)\n") == 1


def test_damaged_record_of_tuning_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"thresholds": {"Mass": 0.2}, "tuning": {"split": "val"}}')
    words = (folder / "test.jsonl", folder / "folder", "--split", "test", "--metadata", tmp_path / "s.json")
    assert "must be in the format of `reveal-bench tune`" in call("score", *words, expect=1).stderr


def test_points_at_tuned_thresholds_have_the_intervals_of_score(folder: Path) -> None:
    tuned = rb.tune_thresholds(folder / "val.jsonl", folder / "folder", split="val", sensitivity=0.9, otherwise=0.5)
    options = {"split": "test", "thresholds": tuned.thresholds}
    points = rb.operating_points(folder / "test.jsonl", folder / "folder", prevalence={MASS: 0.02}, **options)  # type: ignore[arg-type]
    assert "fixed thresholds" in points.caption
    assert "tuned on reveal-cxr" in points.caption
    point = next(one for one in points.points if one.finding == MASS)
    result = rb.score(folder / "test.jsonl", folder / "folder", **options)  # type: ignore[arg-type]
    assert "; thresholds were tuned on reveal-cxr" in result.caption
    scores = {(e.metric, e.finding): e for e in result.scored.estimates}
    for name, own in (("recall", point.sensitivity), ("specificity", point.specificity), ("precision", point.ppv)):
        assert own == scores[name, MASS]
    assert (point.threshold, point.n_positive, point.n) == (0.15, 20, 60)
    # Of 1,000 patients 20 are found and 98 of 980 called wrongly
    assert point.ppv_at_prevalence.value == pytest.approx(20 / 118)
    assert 0 < point.ppv_at_prevalence.low < 20 / 118 < point.ppv_at_prevalence.high < 0.5
    macro = points.points[0]
    assert (macro.finding, math.isnan(macro.ppv_at_prevalence.value)) == (MACRO, True)


def test_the_command_shows_a_fixed_specificity(folder: Path) -> None:
    words = (folder / "test.jsonl", folder / "folder", "--split", "test", "--prevalence", "Mass=0.02", "--wide")
    printed = call("operating-points", *words, "--specificity", "0.9").stdout
    assert "chosen on these cases, with a specificity of at least 0.9, and again in each of 1,000 resamples" in printed
    assert re.search(r"Mass +20 of 60 +0.150 +100.0 +90.0 +83.3 +100.0 +2.0 +16.9", printed)  # 0.02 / 0.118
    assert re.search(r"Nodule +0 of 60 .*no case has it", printed)
    assert "there are at the row's prevalence, from a specificity of exactly 0.9 and the row's sensitivity" in printed
    assert "no interval of macros, of specificity, PPV and NPV on these cases" in printed
    printed = call("operating-points", *words, "--specificity", "0.95").stdout
    assert re.search(
        r"Mass +20 of 60 +- +0.0 +100.0 +- .*no threshold reaches the target with a true positive", printed
    )


def random_confidences(n: int) -> Confidences:
    """Return scores of one finding for `n` patients with one or two studies each."""
    rng = np.random.default_rng(5)
    patients = np.concatenate([np.arange(n), np.arange(0, n, 2)])
    present = rng.random(len(patients)) < 0.4
    scores = np.round(np.clip(rng.normal(0.4 + 0.2 * present, 0.15), 0, 1), 2)
    names = [f"p{i:03d}" for i in patients]
    findings = (MASS,), [MASS] * len(patients)
    return Confidences("e", True, *findings, names, frozenset(names), scores, present, scores, present, 0)


def test_chosen_thresholds_are_chosen_again_in_every_resample() -> None:
    from sklearn.metrics import roc_curve

    confidences, resampling = random_confidences(200), Resampling(50, 3)
    (_, point) = points_chosen(confidences, Criterion("specificity", 0.9), resampling, {MASS: 0.1})

    def sensitivity(cases: Sequence[int] | np.ndarray) -> float:
        fpr, tpr, _ = roc_curve(confidences.happened[cases], confidences.probabilities[cases], drop_intermediate=False)
        return float(tpr[1 - fpr >= 0.9 - 1e-12].max())

    value = sensitivity(np.arange(len(confidences)))
    names = sorted(confidences.all_patients)
    units = np.array([names.index(name) for name in confidences.case_patients])
    drawn = [sensitivity(np.repeat(np.arange(len(units)), counts[units].astype(int)))
             for counts in resampling_counts(200, resampling)]  # fmt: skip
    error = np.std(drawn, ddof=1)
    size, z = value * (1 - value) / error**2, NormalDist().inv_cdf(0.975)
    # The ends of Wilson's interval solve (value - p)^2 = z^2 p (1 - p) / size
    ends = np.sort(np.roots([1 + z**2 / size, -2 * value - z**2 / size, value**2]))
    assert point.sensitivity.value == pytest.approx(value, abs=1e-12)
    assert (point.sensitivity.low, point.sensitivity.high) == pytest.approx(tuple(ends), abs=1e-9)
    assert not point.specificity.has_interval
    assert not point.ppv.has_interval
    at = [p * 0.1 / (p * 0.1 + 0.1 * 0.9) for p in (value, *ends)]  # 0.1 of those without it are called
    own = point.ppv_at_prevalence
    assert (own.value, own.low, own.high) == pytest.approx(tuple(at), abs=1e-9)


def test_few_patients_beyond_the_fixed_rate_leave_no_interval() -> None:
    confidences = random_confidences(200)
    n_with = len({p for p, has in zip(confidences.case_patients, confidences.happened, strict=True) if has})
    for target, is_shown in ((0.9, n_with >= 50), (0.99, False)):
        point = points_chosen(confidences, Criterion("sensitivity", target), Resampling(20), {})[1]
        assert point.specificity.has_interval == point.ppv.has_interval == is_shown
    constant = replace(confidences, probabilities=np.full(len(confidences), 0.5))
    point = points_chosen(constant, Criterion("sensitivity", 0.5), Resampling(20), {MASS: 0.1})[1]
    assert point.reason == "all probabilities are equal"
    rates = [point.sensitivity, point.specificity, point.ppv, point.npv, point.ppv_at_prevalence]
    assert np.isnan([(rate.value, rate.low, rate.high) for rate in rates]).all()
    fewer = replace(confidences, happened=confidences.happened & (np.arange(len(confidences)) < 30))
    assert not points_chosen(fewer, Criterion("sensitivity", 0.9), Resampling(20), {})[1].specificity.has_interval


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`metric` must be given, as in `metric`='youden', or `sensitivity`, `specificity` or `ppv`"),
        ({"metric": "f1", "ppv": 0.9}, "`metric` must be given without another criterion, got ppv, f1"),
        ({"metric": "f1", "otherwise": 2}, "`otherwise` must be in [0, 1], or finite for logits, got 2"),
    ],
)
def test_options_of_tuning_are_checked(folder: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        rb.tune_thresholds(folder / "val.jsonl", folder / "folder", split="val", **options)  # type: ignore[arg-type]


def test_labels_without_probabilities_are_refused(folder: Path) -> None:
    labels = {f"study-{i}": [MASS] for i in range(N)}
    for function, options in ((rb.tune_thresholds, {"metric": "f1"}), (rb.operating_points, {})):
        with pytest.raises(ValueError, match="must have a probability for every finding of every study"):
            function(labels, folder / "folder", split="val", **options)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prevalence": 1.0}, "`prevalence` must be in (0, 1), got 1.0"),
        ({"prevalence": {"X": 0.1}}, "`prevalence` must name findings of the benchmark"),
        ({"thresholds": 0.3, "sensitivity": 0.9}, "`thresholds` must not be given with `sensitivity`"),
        ({"sensitivity": 0.9, "n_resamples": 1}, "`n_resamples` must be at least 2"),
    ],
)
def test_options_of_operating_points_are_checked(folder: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        rb.operating_points(folder / "val.jsonl", folder / "folder", split="val", **options)  # type: ignore[arg-type]
