"""Rendering, JSON and showing of hostile values. Expected texts are written out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reveal_bench.entries.report import ProblemLog, show_value
from reveal_bench.predictions import LintProblem, LintReport

REPORT = LintReport(
    file="predictions.jsonl",
    format="jsonl",
    n_entries=2,
    problems=(
        LintProblem(
            "warning", "predictions.jsonl", None, "", "missing-pairs", "", "1 of 3 asked pairs", "scored as misses"
        ),
        LintProblem("error", "predictions.jsonl", 17, "box", "outside-image", "[1, 2]", "must lie inside, got [1, 2]"),
    ),
    predictions=(),
    missing_pairs=(("a", "Edema"),),
    statistics={"per_finding": {"Edema": 2}, "kinds": {}, "share_missing": 1 / 3},
    allow_missing=True,
)


def test_render_puts_errors_first_then_counts_then_statistics():
    assert REPORT.render().splitlines() == [
        "predictions.jsonl:17: error: box: must lie inside, got [1, 2]",
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
def test_place_is_named_as_the_format_counts(file_format, place):
    problem = replace(REPORT.problems[1], file="p")
    report = replace(REPORT, file="p", format=file_format, problems=(problem,))
    assert report.render().startswith(f"{place}: error: box:")


def test_render_counts_what_it_does_not_show():
    problem = REPORT.problems[1]
    report = replace(REPORT, problems=(problem,) * 263)
    lines = report.render(most=50).splitlines()
    assert lines[50] == "... and 213 more"
    assert lines[51].startswith("predictions.jsonl (jsonl): 2 predictions, 263 errors, 0 warnings")


def test_json_has_everything_under_stable_keys():
    document = json.loads(REPORT.to_json())
    assert list(document) == [
        "schema", "file", "format", "ok", "n_entries", "n_predictions", "n_errors", "n_warnings", "allow_missing",
        "problems", "missing_pairs", "statistics",
    ]  # fmt: skip
    assert document["problems"][1] == {
        "severity": "error",
        "file": "predictions.jsonl",
        "line": 17,
        "field": "box",
        "rule": "outside-image",
        "value": "[1, 2]",
        "message": "must lie inside, got [1, 2]",
        "hint": "",
    }
    assert document["missing_pairs"] == [["a", "Edema"]]
    assert document["ok"] is False


def test_json_comes_back_but_for_the_predictions():
    report = replace(REPORT, problems=REPORT.problems[:1], predictions=("one", "two"))
    again = LintReport.from_json(report.to_json())
    assert again == replace(report, predictions=(), n_left_out=2)
    assert again.n_predictions == report.n_predictions == 2
    assert again.to_json() == report.to_json()
    assert LintReport.from_json(REPORT.to_json().encode()) == REPORT


def changed(**values):
    return json.dumps(json.loads(REPORT.to_json()) | values)


PROBLEM = json.loads(REPORT.to_json())["problems"][1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, "nested so deep"),
        ("[]", r"must have the keys .* got \[\]"),
        ("{}", "must have the keys"),
        (changed(labels=[1]), "must have the keys"),
        (changed(schema=2), "`schema` of a lint report must be 1, got 2"),
        (changed(schema=True), "`schema` of a lint report must be 1, got true"),
        (changed(ok=True), "`ok` of a lint report must be False, got true"),
        (changed(n_errors=0), "`n_errors` of a lint report must be 1, got 0"),
        (changed(n_warnings=7), "`n_warnings` of a lint report must be 1, got 7"),
        (changed(n_predictions=3), r"`n_predictions` must lie in \[0, `n_entries`\], got 3"),
        (changed(n_predictions=-1), r"`n_predictions` must lie in \[0, `n_entries`\], got -1"),
        (changed(n_entries=2.0), "`n_entries` of a lint report must be of type int, got 2.0"),
        (changed(n_entries=True), "`n_entries` of a lint report must be of type int, got true"),
        (changed(allow_missing=1), "`allow_missing` of a lint report must be of type bool, got 1"),
        (changed(file=None), "`file` of a lint report must be of type str, got null"),
        (changed(missing_pairs=[["a"]]), r"`missing_pairs` must hold \[image_id, finding\]"),
        (changed(missing_pairs=[["a", 1]]), r"`missing_pairs` must hold \[image_id, finding\]"),
        (changed(problems={}), "`problems` of a lint report must be of type list"),
        (changed(problems=[1]), "a problem must have the keys"),
        (changed(problems=[PROBLEM | {"html": "<b>"}]), "a problem must have the keys"),
        (changed(problems=[PROBLEM | {"severity": "fatal"}]), "`severity` must be 'error' or 'warning'"),
        (changed(problems=[PROBLEM | {"line": "17"}]), "`line` of a lint report must be of type int"),
        (changed(problems=[PROBLEM | {"value": 1}]), "`value` of a lint report must be of type str"),
        (changed(statistics={"x": [1]}), "`statistics.x` must be a number or numbers by name"),
        (changed(statistics={"x": {"y": "z"}}), "`statistics.x` must be a number or numbers by name"),
        (changed(statistics={"x": float("nan")}), "finite numbers only, got NaN"),
    ],
    ids=range(27),
)
def test_json_that_is_no_report_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        LintReport.from_json(text)


@pytest.mark.parametrize(
    ("value", "shown"),
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
def test_shown_values_are_short_and_printable(value, shown):
    assert show_value(value) == shown
    assert len(shown) <= 80


def test_log_stops_after_its_limit_and_says_so():
    log = ProblemLog("p", most=2)
    for line in (1, 2, 3, 4):
        log.error("rule", "must be right", line=line)
    assert log.stopped
    assert [problem.rule for problem in log.problems] == ["rule", "rule", "too-many-problems"]
    assert log.problems[-1].line == 3
