"""Labels of studies without a reference: neither positive nor negative, and left out of every score by count."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

import reveal_bench as rb
from reveal_bench.findings import CHEXPERT_LABELS
from tests.cli.test_score import call

N = 90
ASKED = ("Edema", "Fracture", "Pneumonia")
FEW: dict[str, Any] = {"n_resamples": 50}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray, np.ndarray]:
    """Return (folder, references, their mask, probabilities), each (N, 3)."""
    root, rng = tmp_path_factory.mktemp("missing"), np.random.default_rng(3)
    truth, known = rng.random((N, 3)) < 0.4, rng.random((N, 3)) < 0.7
    known[0] = False
    known[1:3] = True  # a study without any reference is left out
    (root / "raw").mkdir()
    with (root / "raw/groundtruth.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["Study", *CHEXPERT_LABELS])
        for i in range(N):
            own = {name: int(truth[i, j]) if known[i, j] else "" for j, name in enumerate(ASKED)}
            table.writerow([f"test/patient{i}/study1", *(own.get(name, 0) for name in CHEXPERT_LABELS)])
    words = ("build", root / "raw", "--findings", ", ".join(ASKED), "--blank", "missing", "--out")
    refused = call(*words, root / "public", "--holdout", root / "private", expect=1).stderr
    assert "must have a reference for every label in a holdout" in refused
    built = call(*words, root / "data")
    kept = known.any(axis=1)
    n_unknown, n_left_out = int((~known[kept]).sum()), int((~kept).sum())
    assert f"groundtruth.csv: {n_unknown} labels missing: not scored" in built.stderr
    assert f"{n_left_out} row" in built.stderr
    assert "no problems" in call("validate", root / "data").stdout
    probabilities = np.clip(truth * 0.3 + 0.7 * rng.random((N, 3)), 0.01, 0.99)
    order = [ASKED.index(name) for name in rb.load(root / "data").findings]
    return root / "data", *(one[kept][:, order] for one in (truth, known, probabilities))


def answers(folder: Path, probabilities: np.ndarray) -> dict[str, dict[str, float]]:
    bench = rb.load(folder)
    keys = [study.study_id for study in bench.references]
    return {
        key: dict(zip(bench.findings, map(float, row), strict=True))
        for key, row in zip(keys, probabilities, strict=True)
    }


def values(result: Any) -> dict[tuple[str, str], float]:
    return {(one.metric, one.finding): one.value for one in result.scored.estimates}


PEERS: dict[str, Callable[[Any, Any, Any], float]] = {
    "f1": lambda y, d, p: sk.f1_score(y, d),
    "precision": lambda y, d, p: sk.precision_score(y, d),
    "recall": lambda y, d, p: sk.recall_score(y, d),
    "specificity": lambda y, d, p: sk.recall_score(~y, ~d),
    "npv": lambda y, d, p: sk.precision_score(~y, ~d),
    "cohen_kappa": lambda y, d, p: sk.cohen_kappa_score(y, d),
    "mcc": lambda y, d, p: sk.matthews_corrcoef(y, d),
    "balanced_accuracy": lambda y, d, p: sk.balanced_accuracy_score(y, d),
    "auroc": lambda y, d, p: sk.roc_auc_score(y, p),
    "average_precision": lambda y, d, p: sk.average_precision_score(y, p),
    "log_loss": lambda y, d, p: sk.log_loss(y, p),
}


def test_scores_are_those_of_scikit_learn_on_the_labels_with_a_reference(world: Any) -> None:
    folder, truth, known, probabilities = world
    result = rb.score(answers(folder, probabilities), folder, **FEW)
    own, findings = values(result), rb.load(folder).findings
    decisions = probabilities >= 0.5
    for metric, peer in PEERS.items():
        wanted = [peer(truth[kept, j], decisions[kept, j], probabilities[kept, j]) for j, kept in enumerate(known.T)]
        assert [own[metric, name] for name in findings] == pytest.approx(wanted, abs=1e-12), metric
        assert own[metric, "macro"] == pytest.approx(np.mean(wanted), abs=1e-12), metric
    assert own["f1_micro", "all"] == pytest.approx(sk.f1_score(truth[known], decisions[known]), abs=1e-12)
    assert own["hamming_loss", "all"] == pytest.approx(
        np.mean([(truth[k, j] != decisions[k, j]).mean() for j, k in enumerate(known.T)]), abs=1e-12
    )
    right = ((truth == decisions) | ~known).all(axis=1)
    assert own["exact_match", "all"] == pytest.approx(right.mean(), abs=1e-12)
    counts = {one.finding: one.n for one in result.scored.estimates if one.metric == "auroc"}
    assert [counts[name] for name in findings] == known.sum(axis=0).tolist()
    (note,) = result.scored.notes
    assert note == f"{(~known).sum()} labels not scored: the study has no reference for it"


def test_answers_without_a_reference_change_nothing(world: Any) -> None:
    folder, _, known, probabilities = world
    other = np.where(known, probabilities, 1 - probabilities)
    for interval in ("jackknife", "bca"):
        one, two = (
            rb.score(answers(folder, table), folder, interval=interval, **FEW).scored.estimates
            for table in (probabilities, other)
        )
        figures = [np.array([(e.value, e.low, e.high) for e in own]) for own in (one, two)]
        assert figures[0] == pytest.approx(figures[1], nan_ok=True)
    systems = {"a": answers(folder, probabilities), "b": answers(folder, other)}
    for row in rb.compare(systems["a"], systems["b"], folder, **FEW).comparisons:
        assert (row.estimate.value, row.p) in ((0.0, 1.0), (0.0, pytest.approx(1.0)))
    one, two = (rb.confidence(own, folder).to_json() for own in systems.values())
    assert one == two


def test_intervals_are_those_of_the_studies_with_a_reference(world: Any) -> None:
    """Patients without a reference for a label add nothing, apart from the number of patients in (n - 1) / n."""
    folder, _, known, probabilities = world
    bench, given = rb.load(folder), answers(folder, probabilities)
    whole = {(e.metric, e.finding): e for e in rb.score(given, folder, **FEW).scored.estimates}
    keys = [study.study_id for study in bench.references]
    for j, name in enumerate(bench.findings):
        ids = [key for key, has in zip(keys, known[:, j], strict=True) if has]
        for one in rb.score(given, bench.select(name, ids=ids), **FEW).scored.estimates:
            if one.finding == name and one.metric in ("f1", "auroc", "average_precision", "cohen_kappa"):
                both = whole[one.metric, name]
                assert one.value == pytest.approx(both.value, abs=1e-12)
                assert (both.low, both.high) == pytest.approx((one.low, one.high), abs=0.01), one.metric


def test_systems_are_compared_on_the_labels_with_a_reference(world: Any, tmp_path: Path) -> None:
    folder, truth, known, probabilities = world
    worse = np.clip(probabilities + np.random.default_rng(1).normal(0, 0.3, truth.shape), 0, 1)
    result = rb.compare(answers(folder, probabilities), answers(folder, worse), folder, **FEW)
    own = {(one.metric, one.finding): one.estimate.value for one in result.comparisons}
    for metric in ("f1", "auroc", "mcc"):
        pair = [
            np.mean([PEERS[metric](truth[k, j], p[k, j] >= 0.5, p[k, j]) for j, k in enumerate(known.T)])
            for p in (probabilities, worse)
        ]
        assert own[metric, "macro"] == pytest.approx(pair[0] - pair[1], abs=1e-12)
    ranked = rb.rank({"a": answers(folder, probabilities), "b": answers(folder, worse)}, folder, metric="auroc", **FEW)
    assert [one.name for one in ranked.ranked] == ["a", "b"]
    rows = rb.score(answers(folder, probabilities), folder, **FEW).scored.rows.to_table()
    assert rows.num_rows == known.sum()
