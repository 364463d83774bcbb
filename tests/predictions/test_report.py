"""Reports as text and JSON, and hostile values in them. Expected texts are written by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reveal_bench.predictions import LintProblem, LintReport
from reveal_bench.predictions.report import ProblemLog, show_value

REPORT = LintReport(
    file="predictions.jsonl",
    format="jsonl",
    n_entries=2,
    problems=(
        LintProblem(
            "warning", "predictions.jsonl", None, "", "missing-pairs", "", "1 of 3 asked pairs", "scored as misses"
        ),
        LintProblem("error", "predictions.jsonl", 17, "box", "outside-image", "[1, 2]", "must be inside, got [1, 2]"),
    ),
    predictions=(),
    missing_pairs=(("a", "Edema"),),
    statistics={"per_finding": {"Edema": 2}, "kinds": {}, "share_missing": 1 / 3},
    allow_missing=True,
)


def test_render_puts_errors_first_then_counts_then_statistics():
    assert REPORT.render().splitlines() == [
        "predictions.jsonl:17: error: box: must be inside, got [1, 2]",
        "predictions.jsonl: warning: 1 of 3 asked pairs  hint: scored as misses",
        "predictions.jsonl (jsonl): 2 predictions, 1 error, 1 warning: refused",
        "  per finding: Edema 2",
        "  kinds: none",
        "  share missing: 0.333",
    ]


@pytest.mark.parametrize(
    ("file_format", "place"),
    [("csv", "p:17"), ("parquet", "p: row 17"), ("coco-results", "p: entry 17")],
)
def test_position_is_named_as_the_format_counts(file_format, place):
    problem = replace(REPORT.problems[1], file="p")
    report = replace(REPORT, file="p", format=file_format, problems=(problem,))
    assert report.render().startswith(f"{place}: error: box:")


def test_render_counts_omitted_problems():
    problem = REPORT.problems[1]
    report = replace(REPORT, problems=(problem,) * 263)
    assert report.render().splitlines()[0].endswith("got [1, 2]  (263 such errors)")
    lines = report.render(most=50, every=True).splitlines()
    assert lines[50] == "... and 213 more"
    assert lines[51].startswith("predictions.jsonl (jsonl): 2 predictions, 263 errors, 0 warnings")


def test_json_is_complete_with_stable_keys():
    document = json.loads(REPORT.to_json())
    assert list(document) == [
        "schema", "file", "format", "ok", "n_entries", "n_predictions", "n_errors", "n_warnings", "allow_missing",
        "problems", "missing_pairs", "abstained", "statistics",
    ]  # fmt: skip
    assert document["problems"][1] == {
        "severity": "error",
        "file": "predictions.jsonl",
        "line": 17,
        "field": "box",
        "rule": "outside-image",
        "value": "[1, 2]",
        "message": "must be inside, got [1, 2]",
        "hint": "",
    }
    assert document["missing_pairs"] == [["a", "Edema"]]
    assert document["ok"] is False


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (float("nan"), "nan"),
        ("D\x005", '"D\\x005"'),
        ("\u202egnp", '"\\u202egnp"'),
        ("\ud800", '"\\ud800"'),
        ("x" * 100, '"' + "x" * 76 + "..."),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, ...]"),
        ([[[[[1]]]]], "[[[...]]]"),
        ({"size": [1, 2]}, '{"size": [1, 2]}'),
    ],
)
def test_printed_values_are_short_and_printable(value, text):
    assert show_value(value) == text
    assert len(text) <= 80


def test_log_stops_at_its_limit_with_a_note():
    log = ProblemLog("p", most=2)
    for line in (1, 2, 3, 4):
        log.error("rule", "must be right", line=line)
    assert log.stopped
    assert [problem.rule for problem in log.problems] == ["rule", "rule", "too-many-problems"]
    assert log.problems[-1].line == 3
