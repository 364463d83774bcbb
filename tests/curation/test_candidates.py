"""Candidate tasks from a simulated model: the file that `build` reads, and answers that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reveal_bench.cli import app
from reveal_bench.curation.candidates import assessments_prompt, drafts_prompt
from reveal_bench.curation.report_prompts import UnreadableAnswerError
from reveal_bench.sources.rexecution_files import parse_tasks
from reveal_bench.sources.source import Problem
from tests.curation.candidates_model import OTHERS, REPORTS, assessments, drafts, write_reports
from tests.curation.model_server import running_model

REPORT = REPORTS["501"]


def test_candidates_are_drafted_scored_and_ready_to_build(tmp_path: Path) -> None:
    reports = write_reports(tmp_path / "reports.csv")
    cut = tmp_path / "cut"
    with running_model({}, others=OTHERS, faults={REPORTS["502"]: ["cut-off JSON"]}) as model:
        words = ["curate", "candidates", str(cut), "--reports", str(reports), "--model", "m", "--endpoint", model.url]
        done = CliRunner().invoke(app, [*words, "--candidates", "2"], catch_exceptions=False)
        again = CliRunner().invoke(app, [*words, "--candidates", "2"], catch_exceptions=False)
        n_asked = len(model.asked)
    assert "studies 2, candidates 4" in done.output
    assert "already done" in again.output
    assert n_asked == 5  # two of each study, and one answer was cut off
    problems: list[Problem] = []
    tasks = parse_tasks(cut / "candidates.csv", problems, [])
    assert [task.task_id for task in tasks] == ["501-1", "501-2", "502-1", "502-2"]
    assert tasks[0].prompt == "Compare the effusion, please."  # 4 x 4 before 4 x 3
    assert tasks[0].question_scores == dict.fromkeys(tasks[0].question_scores or {}, 4)
    assert (tasks[0].risk_flag, tasks[1].risk_flag, tasks[0].indication, tasks[2].indication) == (
        True,
        False,
        "Cough.",
        None,
    )
    assert (tasks[1].tags["subtype"], tasks[1].tags["laterality"]) == (("pleura", "follow-up"), ())
    assert {(p.row, p.field) for p in problems} == {(2, "prior_study_id"), (4, "prior_study_id")}  # for who selects
    page = (cut / "candidates.html").read_text(encoding="utf-8")
    assert page.index("Compare the heart, please.") < page.index("Describe the heart.")


def changed(document: dict[str, Any], change: Callable[[Any], Any]) -> str:
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda document: document.update(indication="Fever."), "word for word"),
        (lambda document: document["tasks"].pop(), "tasks must be 2, got 1"),
        (lambda document: document["tasks"][1].update(document["tasks"][0]), "got one twice"),
        (lambda document: document["tasks"][0].update(prompt="=1+1"), "begins with a letter"),
        (lambda document: document["tasks"][0].update(category="quiz"), "must be one of"),
    ],
)
def test_drafts_that_are_not_what_was_asked_for(change: Callable[[Any], Any], match: str) -> None:
    with pytest.raises(UnreadableAnswerError, match=match):
        drafts_prompt(REPORT, 2).read(changed(drafts(REPORT), change))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda document: document["assessments"].pop(), "assessments must be 2, one per task, got 1"),
        (lambda document: document["assessments"][0].update(clarity=6), "clarity must be one of"),
        (lambda document: document["assessments"][0].update(clarity=True), "clarity must be integer"),
        (
            lambda document: document["assessments"][1].update(laterality=["left - right"]),
            "without a dash between blanks",
        ),
        (lambda document: document["assessments"][1].update(laterality=["None"]), "without a dash between blanks"),
    ],
)
def test_assessments_that_are_not_what_was_asked_for(change: Callable[[Any], Any], match: str) -> None:
    tasks = drafts(REPORT)["tasks"]
    text = json.dumps({"tasks": tasks})
    assert len(assessments_prompt(None, tasks).read(json.dumps(assessments(text)))) == 2
    with pytest.raises(UnreadableAnswerError, match=match):
        assessments_prompt(None, tasks).read(changed(assessments(text), change))


def test_rules_write_no_tasks(tmp_path: Path) -> None:
    reports = write_reports(tmp_path / "reports.csv")
    result = CliRunner().invoke(app, ["curate", "candidates", str(tmp_path / "cut"), "--reports", str(reports)])
    assert isinstance(result.exception, ValueError | SystemExit)
    assert not (tmp_path / "cut" / "candidates.csv").exists()
