"""The report of runs of the other kinds: scores of labels with differences, and answers that wait for readers."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reveal_bench.analyses.relative_decrease import decreases_csv
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.compare import compare, relative_decrease
from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.findings.lint import findings_to_jsonl
from reveal_bench.kinds.findings.records import StudyRecord, read_studies
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.phantom import study_predictions
from reveal_bench.reports.page import PAGE
from reveal_bench.reports.run_page import write_run_report
from reveal_bench.reports.run_scores import ScoreReport
from tests.cli.test_score import call
from tests.dataset.card_folders import findings_folder, tasks_folder
from tests.reports.conftest import rows_of

OPTIONS = {"n_resamples": 40, "seed": 2}


pytestmark = pytest.mark.usefixtures("small_pictures")


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, Path]], Path]:
    """A folder, two runs on it, one with probabilities and one with labels, and their report."""
    root = tmp_path_factory.mktemp("studies")
    folder = findings_folder(root)
    labels = read_folder_info(folder).findings
    records = read_studies(folder, "test")
    good = root / "good.jsonl"
    good.write_text(findings_to_jsonl(study_predictions(records, labels, quality=0.9, seed=1)), encoding="utf-8")
    plain = root / "plain.jsonl"
    lines = [json.dumps({"study_id": record.study_id, "labels": [labels[0]]}) for record in records]
    plain.write_text("\n".join(lines) + "\n", encoding="utf-8")
    runs = [("Good & <b>", good), ("", plain)]
    assert write_run_report(runs, folder, root / "report", **OPTIONS) == []  # type: ignore[arg-type]
    return folder, runs, root / "report"


def test_scores_are_those_of_score(studies: tuple[Path, list[tuple[str, Path]], Path]) -> None:
    folder, runs, report = studies
    rows = rows_of(report, "scores")
    for label, path in (("Good & <b>", runs[0][1]), ("plain", runs[1][1])):
        estimates = score_file(path, folder, "test", ScoringOptions(**OPTIONS)).estimates  # type: ignore[arg-type]
        wanted = {(e.metric, e.finding): e for e in estimates}
        result = {(row["metric"], row["finding"]): row for row in rows if row["run"] == label}
        assert {metric for metric, _ in result} >= {"f1", "precision", "recall", "cohen_kappa"}
        assert ({"auroc", "average_precision"} <= {metric for metric, _ in result}) == (label != "plain")
        for key, row in result.items():
            values = (wanted[key].value, wanted[key].low, wanted[key].high)
            got = [float(row[name] or "nan") for name in ("value", "low", "high")]
            assert got == pytest.approx(values, rel=0, abs=0, nan_ok=True), key
            assert row["signature"] == wanted[key].signature


def test_differences_are_those_of_compare(studies: tuple[Path, list[tuple[str, Path]], Path]) -> None:
    folder, runs, report = studies
    a, b = (score_file(path, folder, "test", ScoringOptions(**OPTIONS)).rows for _, path in runs)  # type: ignore[arg-type]
    of_benchmark = BENCHMARKS[read_folder_info(folder).benchmark].metrics
    compared = compare(a, b, Resampling(**OPTIONS))  # type: ignore[arg-type]
    wanted = {(one.metric, one.finding): one for one in compared if one.metric in of_benchmark}
    rows = rows_of(report, "differences")
    assert {(row["run"], row["reference"]) for row in rows} == {("Good & <b>", "plain")}
    assert {(row["metric"], row["finding"]) for row in rows} == set(wanted)
    for row in rows:
        one = wanted[row["metric"], row["finding"]]
        got = [float(row[name] or "nan") for name in ("difference", "low", "high", "p")]
        assert got == pytest.approx((one.estimate.value, one.estimate.low, one.estimate.high, one.p), nan_ok=True)


def test_page_names_runs_and_findings(studies: tuple[Path, list[tuple[str, Path]], Path]) -> None:
    text = (studies[2] / PAGE).read_text(encoding="utf-8")
    assert "Good &amp; &lt;b&gt;" in text
    for words in (
        "2 runs compared",
        "Edema",
        "Mean scores",
        "Differences from plain",
        "f1|b:40|seed:2|unit:patient|i:jackknife|v:1",
    ):
        assert words in text


def test_probabilities_have_roc_curves(studies: tuple[Path, list[tuple[str, Path]], Path], tmp_path: Path) -> None:
    """Only one run has probabilities, and only Mass is in some studies and not in others."""
    folder, runs, report = studies
    assert {path.name for path in report.rglob("*.svg")} >= {"roc.svg", "precision_recall.svg"}
    page = (report / PAGE).read_text(encoding="utf-8")
    assert "Sensitivity against the false positive rate over all thresholds" in page
    assert ">reader</text>" not in page
    write_run_report(runs[1:], folder, tmp_path, n_resamples=10)
    assert not list(tmp_path.rglob("roc.svg"))


def test_findings_can_be_picked(studies: tuple[Path, list[tuple[str, Path]], Path], tmp_path: Path) -> None:
    folder, runs, _ = studies
    write_run_report(runs, folder, tmp_path, findings=["Edema"], n_resamples=10)
    assert {row["finding"] for row in rows_of(tmp_path, "scores")} == {"macro", "Edema"}
    assert not list(tmp_path.rglob("roc.svg"))  # all studies have Edema
    with pytest.raises(ValueError, match=r"`findings` must be among .* got \['Gout'\]"):
        write_run_report(runs, folder, tmp_path, findings=["Gout"], n_resamples=10)


def test_part_of_a_split_is_reported(studies: tuple[Path, list[tuple[str, Path]], Path], tmp_path: Path) -> None:
    """A file that answers two findings of two studies cannot be reported on the whole split."""
    folder, runs, _ = studies
    lines = [json.loads(line) for line in runs[0][1].read_text().splitlines()[:2]]
    for line in lines:
        line["probabilities"] = {name: line["probabilities"][name] for name in ("Edema", "Mass")}
    part, ids = tmp_path / "part.jsonl", tmp_path / "ids.txt"
    part.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ids.write_text("".join(f"{line['study_id']}\n" for line in lines))
    options = ("--findings", "Edema, Mass", "--subset", ids, "--resamples", 10)
    call("report", part, "--folder", folder, "--out", tmp_path / "report", *options)
    document = json.loads(call("score", part, folder, *options, "--json").stdout)
    wanted = {(one["metric"], one["finding"]): one["value"] for one in document["estimates"]}
    rows = rows_of(tmp_path / "report", "scores")
    assert {row["finding"] for row in rows} == {"macro", "Edema", "Mass"}
    for row in rows:
        assert (float(row["value"]) if row["value"] else None) == wanted[row["metric"], row["finding"]]
    assert document["protocol"]["part"].startswith("2 of 3 findings (Edema, Mass), 2 of 6 studies")
    assert document["protocol"]["part"] in (tmp_path / "report" / PAGE).read_text()
    assert "needs `--folder`" in call("report", folder, "--findings", "Edema", expect=1).stderr


def test_a_finding_without_a_case_is_told_of_once(tmp_path: Path) -> None:
    """No study has a nodule and no answer calls one, so that F1 is undefined."""
    folder = findings_folder(tmp_path)
    called = tmp_path / "called.jsonl"
    lines = [json.dumps({"study_id": one.study_id, "labels": ["Edema"]}) for one in read_studies(folder, "test")]
    called.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_run_report([("", called)], folder, tmp_path / "report", n_resamples=10)
    page = (tmp_path / "report" / PAGE).read_text(encoding="utf-8")
    (table,) = re.findall(r"<caption><span><strong>Table \d+\. F1\..*?</table>", page, re.DOTALL)
    assert '<th scope="row">Mass</th>' in table
    assert '<th scope="row">Nodule</th>' not in table
    assert page.count("F1 is undefined without cases for: Nodule. These findings") == 1


def test_answers_to_tasks_wait_for_readers(tmp_path: Path) -> None:
    folder = tasks_folder(tmp_path, n=6)
    answers = tmp_path / "answers.jsonl"
    lines = [json.dumps({"task_id": f"task-{i}", "answer": "No."}) for i in range(4)]
    answers.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_run_report([("", answers)], folder, tmp_path / "report")
    rows = rows_of(tmp_path / "report", "answers")
    assert sum(int(row["tasks"]) for row in rows) == 6
    assert sum(int(row["answered"]) for row in rows) == 4
    text = (tmp_path / "report" / PAGE).read_text(encoding="utf-8")
    assert "Answers that wait for readers" in text
    assert "These answers wait for readers." in text


def test_intervals_and_p_of_reports_agree_for_200_pairs() -> None:
    """No row has an interval without 0 beside a p above 0.05, or the reverse: differences, the page, and decreases."""
    rng = np.random.default_rng(5)
    records = tuple(StudyRecord(f"s{i:02}", f"p{i:02}", ()) for i in range(50))
    n_excluding = 0
    for trial in range(200):
        present = rng.random((50, 3)) < (0.15, 0.4, 0.7)
        errors = rng.choice([0.02, 0.1, 0.3], 2)
        a, b = (
            StudyRows(
                ("a", "b", "c"), records, present ^ (rng.random((50, 3)) < share), present, None, np.ones(50, bool)
            )
            for share in errors
        )
        metric, how = ("f1", "recall")[trial % 2], Resampling(150, trial)
        compared = compare(a, b, how, metrics=[metric])
        report: Any = SimpleNamespace(
            runs=[SimpleNamespace(label="A"), SimpleNamespace(label="B")],
            options=SimpleNamespace(reference=1),
            comparisons={0: compared},
            metrics=[metric],
        )
        table = ScoreReport._differences(report)
        assert table.csv is not None
        rows = list(csv.DictReader(io.StringIO(table.csv.text)))
        rows += list(csv.DictReader(io.StringIO(decreases_csv(relative_decrease(a, b, how, metrics=[metric])))))
        for row in rows:
            for kind in ("", "_adjusted"):
                low, high, p = (row[name + kind] for name in ("low", "high", "p"))
                if low and high:
                    excludes = float(low) > 0 or float(high) < 0
                    assert excludes == (float(p) <= 0.05), (trial, row)
                    assert row.get(f"excludes_zero{kind}", str(excludes)) == str(excludes)
                    n_excluding += excludes
    assert 300 < n_excluding < 2500
