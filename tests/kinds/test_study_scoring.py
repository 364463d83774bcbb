"""Findings-type scoring against scikit-learn and by hand, and the whole command on a folder of studies."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.kinds.findings.records import (
    AGREEMENTS,
    FindingsPrediction,
    StudyRecord,
    read_studies,
    read_study_manifest,
)
from reveal_bench.kinds.findings.scoring import score_studies, summarize_studies
from reveal_bench.kinds.images import StudyImage
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling
from tests.cli.test_score import call

LABELS = REVEAL_LABELS
Prediction = FindingsPrediction


def studies(rng: np.random.Generator, n: int) -> list[StudyRecord]:
    return [
        StudyRecord(
            f"s{i:03d}",
            f"p{i // 2:03d}",
            tuple(label for label in LABELS if rng.random() < 0.3),
            AGREEMENTS[int(rng.integers(2))],
            tuple(StudyImage(f"i{i}-{view}", view, 4, 4) for view in (("AP",) if i % 3 else ("PA", "LATERAL"))),
        )
        for i in range(n)
    ]


def probabilities(rng: np.random.Generator, records: list[StudyRecord]) -> list[Prediction]:
    """Return probabilities of a fair model, with two digits so that ties occur."""
    return [
        Prediction(
            r.study_id, None, {k: float(np.round(0.6 * rng.random() + 0.4 * (k in r.labels), 2)) for k in LABELS}
        )
        for r in records
    ]


def test_every_label_equals_scikit_learn(rng: np.random.Generator) -> None:
    from sklearn.metrics import (
        average_precision_score,
        balanced_accuracy_score,
        cohen_kappa_score,
        f1_score,
        log_loss,
        matthews_corrcoef,
        precision_score,
        recall_score,
        roc_auc_score,
    )

    records = studies(rng, 120)
    rows = score_studies(probabilities(rng, records), records, labels=LABELS)
    got = {(e.metric, e.finding): e.value for e in summarize_studies(rows, Resampling(20))}
    assert rows.probabilities is not None
    for i, label in enumerate(LABELS):
        present, predicted, score = rows.present[:, i], rows.predicted[:, i], rows.probabilities[:, i]
        assert got["f1", label] == pytest.approx(f1_score(present, predicted), rel=1e-12)
        assert got["specificity", label] == pytest.approx(recall_score(present, predicted, pos_label=0), rel=1e-12)
        assert got["npv", label] == pytest.approx(precision_score(present, predicted, pos_label=0), rel=1e-12)
        assert got["cohen_kappa", label] == pytest.approx(cohen_kappa_score(present, predicted), rel=1e-12)
        assert got["balanced_accuracy", label] == pytest.approx(balanced_accuracy_score(present, predicted), rel=1e-12)
        assert got["mcc", label] == pytest.approx(matthews_corrcoef(present, predicted), rel=1e-12)
        assert got["log_loss", label] == pytest.approx(log_loss(present, score, labels=[0, 1]), rel=1e-12)
        assert got["auroc", label] == pytest.approx(roc_auc_score(present, score), rel=1e-12)
        assert got["average_precision", label] == pytest.approx(average_precision_score(present, score), rel=1e-12)
    assert got["f1_micro", "all"] == pytest.approx(f1_score(rows.present, rows.predicted, average="micro"), rel=1e-12)
    assert got["f1", MACRO] == pytest.approx(np.mean([got["f1", label] for label in LABELS]), rel=1e-12)


def test_thresholds_are_fixed_before_scoring() -> None:
    records = [StudyRecord("s", "p", ("COPD",))]
    values = dict.fromkeys(LABELS, 0.4)
    for thresholds, expected in ((0.5, set()), (0.4, set(LABELS)), ({"COPD": 0.3}, {"COPD"})):
        rows = score_studies([Prediction("s", None, values)], records, labels=LABELS, thresholds=thresholds)
        assert {label for i, label in enumerate(LABELS) if rows.predicted[0, i]} == expected
    with pytest.raises(ValueError, match=re.escape("`thresholds` must name labels of the benchmark, got ['Edema']")):
        score_studies([Prediction("s", None, values)], records, labels=LABELS, thresholds={"Edema": 0.5})


def test_missing_study_is_a_miss_for_each_of_its_labels() -> None:
    records = [StudyRecord("a", "a", ("COPD",)), StudyRecord("b", "b", ("COPD",))]
    rows = score_studies([Prediction("a", ("COPD",))], records, labels=LABELS)
    assert rows.has_prediction.tolist() == [True, False]
    got = {(e.metric, e.finding): e.value for e in summarize_studies(rows, Resampling(20))}
    assert got["recall", "COPD"] == 0.5
    assert got["precision", "COPD"] == 1
    assert np.isnan(got["f1", "Aneurysm"])
    assert ("auroc", "COPD") not in got
    absent = score_studies([Prediction("a", None, dict.fromkeys(LABELS, 0.0))], records, labels=LABELS, thresholds=0.0)
    assert absent.predicted.tolist() == [[True] * 12, [False] * 12]


def test_strata_share_the_resampled_patients(rng: np.random.Generator) -> None:
    from sklearn.metrics import f1_score

    records = studies(rng, 60)
    rows = score_studies(probabilities(rng, records), records, labels=LABELS)
    strata = rows.strata()
    assert sum(part.sum() for name, part in strata.items() if name.startswith("findings")) == 60
    assert sum(part.sum() for name, part in strata.items() if name.startswith("agreement")) == 60
    part = summarize_studies(rows, Resampling(50, 2), stratum="view: AP")
    alone = [i for i, r in enumerate(records) if "AP" in r.views]
    (f1,) = [e for e in part if (e.metric, e.finding) == ("f1_micro", "all")]
    assert f1.value == pytest.approx(f1_score(rows.present[alone], rows.predicted[alone], average="micro"))
    chosen = ["log_loss", "auroc", "f1_micro"]
    some = rows.estimates(Resampling(50, 2), stratum="view: AP", metrics=chosen)
    assert [repr(e) for e in some] == [repr(e) for e in part if e.metric in chosen]
    with pytest.raises(ValueError, match="`stratum` must be one of"):
        summarize_studies(rows, stratum="view: XX")
    with pytest.raises(ValueError, match="`unit` must be 'patient' or 'study', got 'image'"):
        summarize_studies(rows, Resampling(unit="image"))
    (by_study, *_) = summarize_studies(rows, Resampling(20, unit="study"))
    assert "unit:study" in by_study.signature


def test_duplicates_and_mixed_kinds_are_refused() -> None:
    record, labels = StudyRecord("s", "p", ()), Prediction("s", ())
    with pytest.raises(ValueError, match="must name each study once, got 's' twice"):
        score_studies([labels, labels], [record], labels=LABELS)
    with pytest.raises(ValueError, match="`records` must name each study once"):
        score_studies([], [record, record], labels=LABELS)
    other = Prediction("t", None, dict.fromkeys(LABELS, 0.5))
    with pytest.raises(ValueError, match="must all give labels, or all probabilities"):
        score_studies([labels, other], [record], labels=LABELS)


def write_folder(folder: Path, records: list[StudyRecord]) -> None:
    """Write a folder of studies without pixels; half of them are private, in `vault` next to it."""
    build_folder(
        {"test": records},
        folder,
        BENCHMARKS["reveal-cxr"],
        pixels="withhold",
        holdout=folder.with_name("vault"),
        holdout_split="test",
        synthetic=True,
    )


def test_the_command_scores_studies(tmp_path: Path, rng: np.random.Generator) -> None:
    everything = studies(rng, 80)
    write_folder(tmp_path / "data", everything)
    records = read_studies(tmp_path / "data", "released")
    private = read_studies(tmp_path / "vault", "holdout")
    assert sorted(records + private, key=lambda r: r.study_id) == everything
    assert len(records) == 40
    assert read_study_manifest(tmp_path / "data", "released").studies == tuple(r.study_id for r in records)
    file = tmp_path / "p.jsonl"
    lines = [{"study_id": p.study_id, "probabilities": p.probabilities} for p in probabilities(rng, records)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "accepted" in call("lint", file, tmp_path / "data", "--split", "released").stdout
    (tmp_path / "submission.json").write_text('{"thresholds": {"COPD": 0.9}}')
    options = ("--rows", tmp_path / "rows.parquet", "--metadata", tmp_path / "submission.json")
    text = call("score", file, tmp_path / "data", *options).stdout
    for title in ("AUROC", "Cohen's kappa", "COPD", "F1, micro", "F1, macro; agreement: three of three"):
        assert title in text
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 40 * 12
    document = json.loads(call("score", file, tmp_path / "data", "--json").stdout)
    assert document["protocol"]["thresholds"] == 0.5
    plain = call("score", file, tmp_path / "data", "--no-strata", "--unit", "study", "--interval", "bca")
    assert "F1, micro" in plain.stdout
    assert "agreement:" not in plain.stdout
    assert "95% intervals (bca), 1000 resamples of studies" in plain.stdout
    assert "submission.json has thresholds that were not applied" in plain.stderr
    compared = call("compare", file, file, tmp_path / "data", "--metric", "auroc", "--resamples", 20)
    assert compared.stderr.count("thresholds that were not applied") == 1
    plain = tmp_path / "plain" / "p.jsonl"
    plain.parent.mkdir()
    shutil.copy(file, plain)
    having = [line["probabilities"]["COPD"] for line, r in zip(lines, records, strict=True) if "COPD" in r.labels]
    at_09, at_05 = (sum(p >= threshold for p in having) / len(having) for threshold in (0.9, 0.5))
    (tmp_path / "submission.json").rename(tmp_path / "p.submission.json")  # the folder also has rows.parquet
    words = ("compare", file, plain, tmp_path / "data", "--metric", "recall", "--json")
    for options, expected in (((), (at_05, at_05)), (("--own-thresholds",), (at_09, at_05))):
        (comparison,) = (c for c in json.loads(call(*words, *options).stdout)["comparisons"] if c["finding"] == "COPD")
        assert (comparison["a"], comparison["b"]) == expected
    for thresholds, message in (
        ("null", ""),
        ('"0.5"', "`thresholds` must be a finite number, or one for each label"),
        ("true", "got True"),
    ):
        (tmp_path / "other.json").write_text(f'{{"thresholds": {thresholds}}}')
        options = ("--metadata", tmp_path / "other.json")
        assert message in call("score", file, tmp_path / "data", *options, expect=int(bool(message))).stderr
    assert "view: PA" in document["strata"]
    refused = call("score", file, tmp_path / "data", "--split", "holdout", expect=1)
    assert "holds no labels of split 'holdout': they are private" in refused.stderr
    broken = tmp_path / "broken.jsonl"
    broken.write_text(file.read_text().replace(f'"{records[3].study_id}"', '"s3"'))
    assert "broken.jsonl:4: error: study_id" in call("score", broken, tmp_path / "data", expect=1).stderr


def test_image_manifest_is_refused_for_studies(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", [StudyRecord("s", "p", ()), StudyRecord("t", "q", ())])
    table = pa.table({"image_id": ["i"], "study_id": ["s"]})
    pq.write_table(table, tmp_path / "data" / "manifest" / "released.parquet")
    with pytest.raises(ValueError, match="its manifest lists images, not studies"):
        read_study_manifest(tmp_path / "data", "released")
