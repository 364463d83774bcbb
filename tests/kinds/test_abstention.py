"""Lines that abstain: reading, contradictions, and scores by hand, with abstentions as misses and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import reveal_bench as rb
from reveal_bench.kinds.detection.lint import lint_detections
from reveal_bench.kinds.detection.scoring import score_detections
from reveal_bench.kinds.localization.records import ImageManifest, ManifestRow, read_manifest
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.predictions.report import LintReport
from tests.cli.test_score import call
from tests.conftest import World
from tests.dataset.card_folders import LABELS
from tests.kinds.folders import studies, tasks
from tests.kinds.test_detection import drawing, image

__all__ = ["studies", "tasks"]

FEW = {"n_resamples": 20}


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def with_declined(path: Path, new: Path, key: str, *declined: str) -> Path:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return written(new, [{key: line[key], "abstain": True} if line[key] in declined else line for line in lines])


def value(records: list[dict[str, Any]], metric: str, finding: str = "macro") -> float:
    (number,) = [one["value"] for one in records if (one["metric"], one["finding"]) == (metric, finding)]
    return float(number)


def test_declined_studies_count_as_negative_or_are_left_out(studies, tmp_path: Path) -> None:
    # All six studies have the first label, studies 0 and 3 the second
    folder, files = studies
    path = with_declined(files / "right.jsonl", tmp_path / "some.jsonl", "study_id", "study-0", "study-1")
    result = rb.score(path, folder, split="test", **FEW)
    assert value(result.records, "recall", LABELS[1]) == 1 / 2
    assert value(result.records, "f1", LABELS[1]) == pytest.approx(2 / 3)
    assert value(result.records, "recall", LABELS[0]) == pytest.approx(4 / 6)
    assert value(result.answered, "recall", LABELS[1]) == value(result.answered, "f1") == 1
    abstained = result.to_document()["abstained"]
    assert (abstained["n"], abstained["coverage"]) == (2, pytest.approx(4 / 6))
    assert result.to_document()["n_missing"] == 0
    assert "coverage 66.7%, 2 questions declined" in repr(result)
    # A mapping in Python, and a file without abstentions
    mapped: dict[str, Any] = {f"study-{i}": {"abstain": True} if i < 2 else ["Edema"] for i in range(5)}
    mapped["study-5"] = {"abstain": False, **dict.fromkeys(LABELS, 0.5)}
    report = rb.lint(mapped, folder, split="test")
    assert [name for name, _ in report.abstained] == ["study-0", "study-1"]
    assert {problem.rule for problem in report.problems} == {"mixed-kinds"}  # labels and probabilities
    whole = rb.score(files / "right.jsonl", folder, split="test", **FEW)
    assert whole.answered == []
    assert "abstained" not in whole.to_document()


def test_command_prints_both_tables(studies, tmp_path: Path) -> None:
    folder, files = studies
    path = with_declined(files / "right.jsonl", tmp_path / "some.jsonl", "study_id", "study-0")
    printed = call("score", path, folder, "--split", "test", "--resamples", 20).stdout
    assert "answered questions alone: coverage 83.3%, 1 question declined" in printed
    selected = call("score", path, folder, "--split", "test", "--metric", "recall", "--resamples", 20).stdout
    assert selected.count("Recall") == 2
    assert "Precision" not in selected
    assert "5 predictions, 1 declined, 0 errors" in call("lint", path, folder, "--split", "test").stdout


def test_a_declined_task_has_the_lowest_score(tasks, tmp_path: Path) -> None:
    folder, files, ratings = tasks
    path = with_declined(files / "a.jsonl", tmp_path / "a.jsonl", "task_id", "task-0")
    ratings_file = tmp_path / "ratings.csv"  # readers rate only the given answers
    ratings_file.write_text("".join(line for line in ratings.read_text().splitlines(True) if "task-0,a" not in line))
    result = rb.score(path, folder, split="test", ratings=ratings_file, **FEW)
    assert value(result.records, "rubric_mean") == (1 + 3 * 4.5) / 4
    assert value(result.answered, "rubric_mean") == 4.5


def test_declined_places_are_misses(world: World, tmp_path: Path) -> None:
    asked = read_manifest(world.folder, "released").asked_pairs()
    lines = [{"image_id": image, "finding": finding, "cell": "D5"} for image, finding in asked]
    rows = rb.score(lines, world.folder, split="released", **FEW).rows.to_pandas()
    n_hits = rows.groupby("finding").point_hit.sum()
    finding = str(n_hits.idxmax())
    own = rows[rows.finding == finding]
    hit = own.image_id[own.point_hit == 1].iloc[0]
    declined = {"image_id": hit, "finding": finding, "abstain": True}
    some = [declined if (one["image_id"], one["finding"]) == (hit, finding) else one for one in lines]
    result = rb.score(some, world.folder, split="released", **FEW)
    assert value(result.records, "point_hit", finding) == pytest.approx((n_hits[finding] - 1) / len(own))
    assert value(result.answered, "point_hit", finding) == pytest.approx((n_hits[finding] - 1) / (len(own) - 1))
    assert result.scored.answered is not None
    assert result.scored.answered.coverage == 1 - 1 / len(asked)
    nothing = rb.lint([*some, lines[0] | {"abstain": False}], world.folder, split="released")
    assert [p.rule for p in nothing.problems if p.severity == "error"] == ["duplicate-pair"]
    # A finding in another spelling is declined; an unknown finding is reported
    declined_all = [{"image_id": image, "finding": name.upper(), "abstain": True} for image, name in asked]
    report = rb.lint(declined_all, world.folder, split="released")
    assert report.ok
    assert set(report.abstained) == set(asked)
    report = rb.lint([*lines, declined | {"finding": "Fracture"}], world.folder, split="released")
    assert [p.rule for p in report.problems if p.severity == "error"] == ["unknown-finding"]
    # Half are missing and one is declined: coverage and the second table use only the answers
    part = rb.score([*lines[: len(lines) // 2], *some[-1:]], world.folder, split="released", allow_missing=True, **FEW)
    assert part.answered == []
    last = {"image_id": asked[-1][0], "finding": asked[-1][1], "abstain": True}
    part = rb.score([*lines[:5], last], world.folder, split="released", allow_missing=True, **FEW)
    assert part.scored.answered is not None
    assert part.scored.answered.coverage == pytest.approx(5 / len(asked))


def lint_boxes(tmp_path: Path, *lines: dict[str, Any]) -> LintReport:
    rows = {name: ManifestRow(name, name, "PA", 100, 100, ("Nodule",)) for name in ("i1", "i2")}
    manifest = ImageManifest("boxes", "1.0", "test", 8, ("Nodule",), rows)
    return lint_detections(written(tmp_path / "boxes.jsonl", list(lines)), manifest)


MARK = {"image_id": "i1", "finding": "Nodule", "box": [10, 10, 20, 20], "score": 0.9}


def test_declined_image_has_no_detection_or_is_left_out(tmp_path: Path) -> None:
    records = [image(name, {"Nodule": 1}, drawing("Nodule", (10, 10, 20, 20))) for name in ("i1", "i2")]
    report = lint_boxes(tmp_path, MARK, {"image_id": "i2", "abstain": True})
    assert report.abstained == (("i2", ""),)
    rows = score_detections(report.predictions, records, findings=("Nodule",))
    result = [
        {e.metric: e.value for e in part.estimates(Resampling(20, interval="percentile")) if e.finding == "Nodule"}[
            "lesion_sensitivity"
        ]
        for part in (rows, rows.without(report.abstained))
    ]
    assert result == [1 / 2, 1]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ({"image_id": "i1", "abstain": True}, "abstain-and-answer"),  # the question that MARK answers
        ({"image_id": "i2", "abstain": True, "score": 0.2}, "abstain-and-answer"),
        ({"image_id": "i3", "abstain": True}, "unknown-image"),
        ({"image_id": "i2", "abstain": 1}, "wrong-type"),
        ({"image_id": 2, "abstain": True}, "wrong-type"),  # an id must be text here also
    ],
)
def test_contradictory_line_is_refused(tmp_path: Path, line: dict[str, Any], rule: str) -> None:
    (problem,) = lint_boxes(tmp_path, MARK, line).problems
    assert (problem.rule, problem.line, problem.field) == (rule, 2, "abstain")


def test_a_question_is_declined_once(tmp_path: Path) -> None:
    twice = {"image_id": "i2", "abstain": True}
    (problem,) = lint_boxes(tmp_path, MARK, twice, twice).problems
    assert (problem.rule, problem.line) == ("abstain-twice", 3)
