"""score, compare and rank for every kind of benchmark, with scores checked by hand; BCa against deletion."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

from reveal_bench.kinds import KINDS, parts
from reveal_bench.metrics.estimates import estimate_labels
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.predictions.limits import Limits, LintOptions
from tests.cli.test_score import call
from tests.dataset.card_folders import LABELS
from tests.kinds.folders import studies, tasks

__all__ = ["studies", "tasks"]


def figure(document, metric, finding="macro"):
    (estimate,) = [e for e in document if (e["metric"], e["finding"]) == (metric, finding)]
    return estimate


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_parts_have_only_attributes_of_their_protocols(kind) -> None:
    """A misspelt attribute would leave the default of the protocol in place, and mypy reports only misspelt methods."""
    for part in filter(None, vars(kind).values()):
        protocols = [one for one in type(part).__mro__ if one.__module__ == parts.__name__]
        expected = {name for one in protocols for name in {*vars(one), *one.__annotations__}}
        own = {name for one in type(part).__mro__ if one not in protocols for name in vars(one) if name[0] != "_"}
        if protocols:
            assert own - expected == set(), type(part).__name__


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_file_is_checked_within_limits_and_under_its_name(kind, tmp_path) -> None:
    manifest, text = kind.predictions.example_upload()
    path = tmp_path / "predictions.jsonl"
    path.write_text(text)
    assert kind.predictions.lint(path, manifest).ok
    report = kind.predictions.lint(
        path, manifest, LintOptions(limits=Limits(file_bytes=len(text) - 1), name="sent.jsonl")
    )
    assert (report.file, [problem.rule for problem in report.problems]) == ("sent.jsonl", ["file-size"])


def test_findings_are_compared_and_ranked(studies) -> None:
    folder, files = studies
    words = ("--split", "test", "--resamples", 200)
    first, second = LABELS[:2]
    document = json.loads(call("compare", files / "right.jsonl", files / "half.jsonl", folder, *words, "--json").stdout)
    f1 = figure(document["comparisons"], "f1", second)
    assert (f1["a"], f1["b"], f1["value"]) == (1, 0, 1)
    assert figure(document["comparisons"], "f1", first)["value"] == 0
    ranking = json.loads(call("rank", files, folder, *words, "--json").stdout)
    assert ranking["metric"] == "f1"
    assert [(s["name"], s["rank"]) for s in ranking["systems"]] == [("right", 1), ("half", 2)]
    assert "F1" in call("rank", files, folder, *words).stdout


def test_tasks_are_scored_compared_and_ranked_by_ratings(tasks) -> None:
    folder, files, ratings = tasks
    words = ("--split", "test", "--ratings", ratings, "--resamples", 200)
    scored = json.loads(call("score", files / "a.jsonl", folder, *words, "--strata", "--json").stdout)
    assert figure(scored["estimates"], "rubric_mean")["value"] == 4.5
    assert set(scored["strata"]) == {"category: diagnosis_support", "category: measurement_temporal"}
    compared = json.loads(call("compare", files / "a.jsonl", files / "b.jsonl", folder, *words, "--json").stdout)
    assert figure(compared["comparisons"], "rubric_mean")["value"] == 2
    ranking = json.loads(call("rank", files, folder, *words, "--json").stdout)
    assert [(s["name"], s["value"]) for s in ranking["systems"]] == [("a", 4.5), ("b", 2.5)]
    assert "4.50" in call("score", files / "a.jsonl", folder, *words).stdout  # ratings keep their scale
    assert "are scored by readers" in call("score", files / "a.jsonl", folder, "--split", "test", expect=1).stderr
    (files.parent / "c-4.1.jsonl").write_text((files / "a.jsonl").read_text())
    refused = call("score", files.parent / "c-4.1.jsonl", folder, *words, expect=1).stderr
    assert "must have ratings of 'c-4.1', the model named like the file, got those of a, b" in refused
    (only := files.parent / "only.csv").write_text(
        "".join(line for line in ratings.read_text().splitlines(keepends=True) if ",b," not in line)
    )
    for command in (("compare", files / "a.jsonl", files / "b.jsonl"), ("rank", files)):
        refused = call(*command, folder, "--split", "test", "--ratings", only, expect=1).stderr
        assert "must have ratings of 'b', the model named like the file, got those of a" in refused
    table = call("score", files / "a.jsonl", folder, *words, "--strata").stdout
    assert "ratings on their scale and percent" in table
    assert table.count("Scores of 5") == 1  # a column for the criteria, with or without strata


def test_groups_of_patients_are_scored_for_every_kind(world, studies, tasks, tmp_path) -> None:
    chance = tmp_path / "chance.jsonl"
    call("baseline", "chance", world.folder, "--out", chance)
    (of_studies, files), (of_tasks, answers, ratings) = studies, tasks
    for file, folder, column, options in (
        (chance, world.folder, "view", ("--metric", "Hit rate")),
        (files / "half.jsonl", of_studies, "sex", ("--split", "test")),
        (answers / "a.jsonl", of_tasks, "category", ("--split", "test", "--ratings", ratings)),
    ):
        words = ("score", file, folder, *options, "--resamples", 20, "--by", column)
        document = json.loads(call(*words, "--json").stdout)
        groups = document["subgroups"]
        metric = groups[0]["metric"]
        if len({group["group"] for group in groups}) == 1:
            assert groups[0]["value"] == figure(document["estimates"], metric)["value"]
        assert {group["by"] for group in groups} == {column}
        text = call(*words).stdout
        assert f"by {column}, with 95% intervals; difference from all other" in text
        assert all(group["group"] in text for group in groups)
        assert call(*words, "--format", "csv").stdout.startswith("by,group,metric,finding,n,value,low,high,difference,")
    wrong = call(*words, "--bands", "old", expect=1).stderr
    assert "--bands must be increasing numbers, such as 40,65, got 'old'" in wrong
    assert "needs --by, the column of groups" in call(*words[:-2], "--bands", "40", expect=1).stderr
    assert "because groups consist of patients, got 'task'" in call(*words, "--unit", "task", expect=1).stderr


@pytest.mark.parametrize("interval", ["percentile", "bca"])
def test_every_unit_and_interval_of_a_kind(studies, tasks, interval) -> None:
    for (folder, files, *ratings), name, kind in ((studies, "half", "findings"), (tasks, "a", "tasks")):
        rating_options = ("--ratings", *ratings) if ratings else ()
        options = ("--split", "test", "--resamples", 50, "--interval", interval, "--unit", KINDS[kind].unit)
        scored = json.loads(call("score", files / f"{name}.jsonl", folder, *options, *rating_options, "--json").stdout)
        recipes = {e["signature"].split("|v:")[0].split("|", 1)[1] for e in scored["estimates"]}
        part = "" if interval == "percentile" else "|i:bca"
        assert recipes == {f"b:50|seed:0|unit:{KINDS[kind].unit}{part}"}


def test_unsupported_interval_is_refused(studies) -> None:
    folder, files = studies
    refused = call(
        "score", files / "right.jsonl", folder, "--split", "test", "--interval", "chexlocalize", expect=1
    ).stderr
    assert "must be 'jackknife' or 'percentile' or 'bca' for a benchmark of findings, got 'chexlocalize'" in refused


def test_localization_baseline_is_refused_for_other_kinds(studies, tmp_path) -> None:
    refused = call(
        "baseline", "chance", studies[0], "--split", "test", "--out", tmp_path / "out.jsonl", expect=1
    ).stderr
    assert "baselines need positions on images" in refused


def bca_by_deletion(value: float, replicates: np.ndarray, left_out: np.ndarray) -> list[float]:
    """Return the BCa bounds of Efron and Tibshirani (1993), equations 14.9 to 14.15."""
    replicates, left_out = replicates[~np.isnan(replicates)], left_out[~np.isnan(left_out)]
    bias = norm.ppf(((replicates < value).mean() + (replicates <= value).mean()) / 2)
    deviations = left_out.mean() - left_out
    acceleration = (deviations**3).sum() / (6 * (deviations**2).sum() ** 1.5)
    z = bias + norm.ppf([0.025, 0.975])
    shares = norm.cdf(bias + z / (1 - acceleration * z))
    return np.percentile(replicates, 100 * shares).tolist()


@pytest.mark.parametrize("metric", ["f1", "cohen_kappa", "auroc", "average_precision"])
def test_bca_of_labels_equals_deletion_of_each_patient(metric: str) -> None:
    from sklearn.metrics import average_precision_score, cohen_kappa_score, f1_score, roc_auc_score

    by_name = {
        "f1": f1_score, "cohen_kappa": cohen_kappa_score, "auroc": roc_auc_score,
        "average_precision": average_precision_score,
    }  # fmt: skip
    rng = np.random.default_rng(7)
    present = rng.random(40) < 0.4
    scores = np.where(present, rng.normal(0.7, 0.3, 40), rng.normal(0.4, 0.3, 40)).clip(0, 1)
    predicted = scores >= 0.5
    patients = [f"p{i // 2:02d}" for i in range(40)]

    def value_on(rows: np.ndarray) -> float:
        values = scores if metric in ("auroc", "average_precision") else predicted
        if len(set(present[rows])) < 2:
            return math.nan
        return float(by_name[metric](present[rows], values[rows]))

    of_patient = np.arange(40).reshape(20, 2)
    draws = np.random.default_rng(3).integers(0, 20, (300, 20))
    replicates = np.array([value_on(of_patient[draw].ravel()) for draw in draws])
    left_out = np.array([value_on(np.delete(of_patient, i, axis=0).ravel()) for i in range(20)])
    how = Resampling(300, 3, interval="bca")
    estimates = estimate_labels(
        predicted[:, None],
        present[:, None],
        labels=["Edema"],
        scores=scores[:, None],
        patients=patients,
        resampling=how,
    )
    (estimate,) = [e for e in estimates if (e.metric, e.finding) == (metric, "Edema")]
    assert estimate.value == pytest.approx(value_on(np.arange(40)), abs=1e-12)
    assert [estimate.low, estimate.high] == pytest.approx(
        bca_by_deletion(estimate.value, replicates, left_out), abs=1e-9
    )
    assert estimate.signature == f"{metric}|b:300|seed:3|unit:patient|i:bca|v:1"
