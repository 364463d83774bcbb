"""Runs of benchmarks of detection, findings and tasks, end to end with simulated models on loopback.

Each is run by the command line, then scored, compared, ranked and reported from the folder of its run.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.detection.records import instances
from reveal_bench.models.run_folder import read_run
from reveal_bench.reports.runs import load_runs, open_split
from tests.cli.test_score import call
from tests.dataset.card_folders import findings_folder, tasks_folder
from tests.models.conftest import saying

FEW = ("--resamples", 40)
FALSE_ALARM = {"box": [1, 1, 9, 9], "score": 0.75}


def ask(folder: Path, split: str, out: Path, says: Mapping[str, Mapping[str, str]]) -> list[Path]:
    """Runs of models by name, with a fixed answer per question."""
    for name, answers in says.items():
        with saying(folder, split, answers) as model:
            call("run", folder, "--split", split, "--model", name, "--endpoint", model.url, "--out", out / name)
    return [out / name for name in says]


def macros(*words: object) -> dict[str, float]:
    document = json.loads(call(*words, *FEW, "--json").stdout)
    return {row["metric"]: row["value"] for row in document["estimates"] if row["finding"] == "macro"}


def ranked(directory: Path, folder: Path, *words: object) -> list[str]:
    document = json.loads(call("rank", directory, folder, *words, *FEW, "--json").stdout)
    return [row["name"] for row in document["systems"]]


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """Films with several boxes of a finding; one model marks them all, the other one of each two and a false alarm."""
    root = tmp_path_factory.mktemp("detection")
    call("phantom", root / "download", "--style", "rsna-pneumonia", "--images", 12, "--long-side", 96)
    words = ("--task", "detection", "--keep-going")
    call("build", root / "download", "--out", root / "data", *words)
    says: dict[str, dict[str, str]] = {"all": {}, "half": {}}
    for record in KINDS["detection"].data.read_records(root / "data", "train"):
        for finding in record.label_status:
            places = [{"box": list(box), "score": 0.9} for box in instances(record, finding)]
            key = f"{record.image_id}|{finding}"
            says["all"][key] = json.dumps({"boxes": places})
            says["half"][key] = f"I see:\n{json.dumps({'boxes': [*places[::2], *[FALSE_ALARM] * (not places)]})}"
    return root / "data", ask(root / "data", "train", root / "runs", says)


def test_several_boxes_are_kept_with_their_scores(detection: tuple[Path, list[Path]]) -> None:
    _, (every, half) = detection
    lines = [json.loads(line) for line in (half / "predictions.jsonl").read_text().splitlines()]
    boxes = [one for exchange in read_run(half).exchanges for one in exchange.detections]
    assert [(tuple(line["box"]), line["score"]) for line in lines] == [(one.box, one.score) for one in boxes]
    assert {one.score for one in boxes} == {0.75, 0.9}
    status = read_run(every).summary.by_status
    assert set(status) == {"absent", "answered"}  # no box is an answer, too
    assert max(len(exchange.detections) for exchange in read_run(every).exchanges) > 1


def test_a_detection_run_is_scored_compared_and_ranked(detection: tuple[Path, list[Path]]) -> None:
    folder, (every, half) = detection
    scores = macros("score", every, folder)
    assert (scores["ap_50"], scores["cpm"], scores["false_alarms"]) == (1, 1, 0)  # it marks what the reference marks
    less = macros("score", half, folder)
    assert less["ap_50"] < 1
    assert less["false_alarms"] > 0
    differences = macros_of_comparison(every, half, folder)
    assert differences["ap_50"] == pytest.approx(scores["ap_50"] - less["ap_50"])
    assert ranked(every.parent, folder) == ["all", "half"]


def test_unanswered_questions_of_a_detection_run_are_counted(
    detection: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    """Three of the replies "no box" become refusals, which have no line in the predictions either."""
    folder, (every, _) = detection
    run = shutil.copytree(every, tmp_path / "some")
    transcript = (run / "transcript.jsonl").read_text()
    (run / "transcript.jsonl").write_text(transcript.replace('"status": "absent"', '"status": "refused"', 3))
    assert json.loads(call("score", run, folder, *FEW, "--json").stdout)["n_missing"] == 3
    message = f"3 of {len(transcript.splitlines())} questions have no usable answer"
    assert f"warning: some/predictions.jsonl: {message}" in call("score", run, folder, *FEW).stderr
    assert json.loads(call("score", every, folder, *FEW, "--json").stdout)["n_missing"] == 0
    runs = [("", run), ("all", every)]
    assert [one.n_missing for one in load_runs(runs, open_split(folder, runs))] == [3, 0]


def test_silence_earns_no_area_below_a_curve(detection: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """Without any mark each lesion ties with each image, which counts half: an area of 0.5 for nothing."""
    folder, (every, _) = detection
    run = shutil.copytree(every, tmp_path / "refused")
    transcript = (run / "transcript.jsonl").read_text()
    (run / "transcript.jsonl").write_text(re.sub('"status": "(absent|answered)"', '"status": "refused"', transcript))
    (run / "predictions.jsonl").write_text("")
    scores = macros("score", run, folder)
    assert (scores["ap_50"], scores["lroc"], scores["lesion_sensitivity"]) == (0, 0, 0)
    assert not {"afroc", "wafroc", "image_auroc", "false_alarms"} & scores.keys()
    assert "warning: nothing was detected: wAFROC, AFROC and" in call("score", run, folder, *FEW).stderr


def macros_of_comparison(a: Path, b: Path, folder: Path, *words: object) -> dict[str, float]:
    document = json.loads(call("compare", a, b, folder, *words, *FEW, "--json").stdout)
    return {row["metric"]: row["value"] for row in document["comparisons"] if row["finding"] == "macro"}


def test_the_report_of_a_detection_run_has_its_curves(detection: tuple[Path, list[Path]], tmp_path: Path) -> None:
    folder, runs = detection
    call("report", *runs, "--folder", folder, "--out", tmp_path / "report", *FEW)
    assert {path.stem for path in (tmp_path / "report" / "figures").iterdir()} >= {"ap-50", "froc", "precision_recall"}
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "At every threshold" in page
    assert "Questions without an answer are counted as negative." in page


def test_a_run_of_findings(tmp_path: Path) -> None:
    """For six studies, one model names the labels of each, the other only "Edema"."""
    folder = findings_folder(tmp_path)
    records = KINDS["findings"].data.read_records(folder, "test")
    says = {
        "right": {record.study_id: f"Findings: {', '.join(record.labels) or 'none'}" for record in records},
        "edema": {record.study_id: "**Findings:** Edema" for record in records},
    }
    right, edema = ask(folder, "test", tmp_path / "runs", says)
    scores, less = macros("score", right, folder), macros("score", edema, folder)
    assert scores["f1"] == 1
    assert macros_of_comparison(right, edema, folder)["f1"] == pytest.approx(1 - less["f1"])
    assert ranked(tmp_path / "runs", folder) == ["right", "edema"]
    call("report", right, edema, "--folder", folder, "--out", tmp_path / "report", *FEW)
    with (tmp_path / "report" / "tables" / "scores.csv").open(encoding="utf-8", newline="") as file:
        of_f1 = [row for row in csv.DictReader(file) if (row["metric"], row["finding"]) == ("f1", "macro")]
    assert {row["run"]: float(row["value"]) for row in of_f1} == pytest.approx({"right": 1.0, "edema": less["f1"]})


def test_a_run_of_tasks(tmp_path: Path) -> None:
    """Readers give one model 4, the other 2; a third one drafts."""
    folder = tasks_folder(tmp_path)
    records = KINDS["tasks"].data.read_records(folder, "test")
    says = {name: {record.task_id: f"{name}: it is {i} cm wide." for i, record in enumerate(records)} for name in "ab"}
    a, b = ask(folder, "test", tmp_path / "runs", says)
    answers = [json.loads(line)["answer"] for line in (a / "predictions.jsonl").read_text().splitlines()]
    assert answers == list(says["a"].values())
    head = "task_id,model,reader,process,execution,synthesis,language,image_content,image_style"
    lines = [f"{r.task_id},{name},r1,{s},{s},{s},{s},," for r in records for name, s in (("a", 4), ("b", 2))]
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("\n".join([head, *lines]) + "\n")
    rated = ("--ratings", ratings)
    assert macros("score", a, folder, *rated)["rubric_mean"] == 4
    assert macros_of_comparison(a, b, folder, *rated)["rubric_mean"] == 2
    assert ranked(tmp_path / "runs", folder, *rated) == ["a", "b"]
    call("report", f"a={a}", f"b={b}", "--folder", folder, *rated, "--out", tmp_path / "report", *FEW)
    assert (tmp_path / "report" / "figures" / "distributions.png").is_file()
