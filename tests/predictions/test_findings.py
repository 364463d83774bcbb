"""The linter of findings-type files: a malformed line for every rule, and valid files in each form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.kinds.findings.lint import lint_findings
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.predictions.report import LintReport
from reveal_bench.predictions.rules import RULES

MANIFEST = StudyManifest("reveal-cxr", "1.0.0", "released", REVEAL_LABELS, ("s1", "s2", "s3"))
ALL = dict.fromkeys(REVEAL_LABELS, 0.25)


def lint(tmp_path: Path, content: str | bytes, **options: Any) -> LintReport:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    report = lint_findings(path, MANIFEST, LintOptions(**options))
    assert {problem.rule for problem in report.problems} <= set(RULES)
    return report


def lines(*entries: dict[str, Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def labels(study_id: str, *names: str) -> dict[str, Any]:
    return {"study_id": study_id, "labels": list(names)}


def test_labels_are_read_and_spellings_reported(tmp_path: Path) -> None:
    report = lint(tmp_path, lines(labels("s1", "COPD", "lung_mass"), labels("s2"), labels("s3", "Aneurysm")))
    assert report.ok
    assert report.predictions[0] == FindingsPrediction("s1", ("COPD", "Lung mass"), None, 1)
    assert [p.rule for p in report.problems] == ["finding-spelling"]
    assert report.statistics["positive_share"]["COPD"] == pytest.approx(1 / 3)


def test_single_incomplete_lines_get_advice_on_empty_cells(tmp_path: Path) -> None:
    part = {name: value for name, value in ALL.items() if name != "COPD"}
    every = [{"study_id": study, "probabilities": ALL} for study in MANIFEST.studies]
    report = lint(tmp_path, lines(every[0], every[1] | {"probabilities": part}, every[2]))
    (problem,) = (one for one in report.problems if one.severity == "error")
    assert (problem.rule, problem.line, problem.value) == ("missing-labels", 2, '["COPD"]')
    assert problem.hint.startswith("an empty cell or NaN? leave out the study")
    assert "bench.select" in lint(tmp_path, lines(*(one | {"probabilities": part} for one in every))).problems[0].hint


def test_scores_on_another_scale_have_no_proportion_of_positive_studies(tmp_path: Path) -> None:
    """A threshold of 0.5 says nothing about logits."""
    logits = [{"study_id": study, "probabilities": ALL | {"COPD": 2.5}} for study in MANIFEST.studies]
    report = lint(tmp_path, lines(*logits), any_scale=True)
    assert report.ok
    assert report.statistics == {}


def test_probabilities_are_equal_in_every_form(tmp_path: Path) -> None:
    values = {study: {**ALL, "COPD": k / 4} for k, study in enumerate(MANIFEST.studies)}
    canonical = lines(*({"study_id": study, "probabilities": p} for study, p in values.items()))
    header = ["study_id", *reversed(REVEAL_LABELS)]
    table = "\n".join([",".join(header), *(",".join([s, *(str(p[k]) for k in header[1:])]) for s, p in values.items())])
    for content in (canonical, table, table.replace(",", "\t"), gzip.compress(canonical.encode())):
        report = lint(tmp_path, content)
        assert report.ok, report.render()
        assert {p.study_id: p.probabilities for p in report.predictions} == values


@pytest.mark.parametrize(
    ("entry", "rule", "field", "value"),
    [
        (labels("s9"), "unknown-study", "study_id", '"s9"'),
        (labels("s1", "Pneumonia"), "unknown-finding", "labels", '"Pneumonia"'),
        (labels("s1", "COPD", "copd"), "duplicate-label", "labels", '"COPD"'),
        ({"study_id": "s1", "labels": "COPD"}, "wrong-type", "labels", '"COPD"'),
        ({"study_id": "s1", "labels": [3]}, "wrong-type", "labels", "3"),
        ({"study_id": "s1"}, "missing-field", "labels", "[]"),
        ({"study_id": 1, "labels": []}, "missing-field", "study_id", "1"),
        ({"labels": []}, "missing-field", "study_id", "null"),
        ({**labels("s1"), "labls": []}, "unknown-field", "labls", '"labls"'),
        ({"study_id": "s1", "probabilities": [0.5]}, "wrong-type", "probabilities", "[0.5]"),
        ({"study_id": "s1", "probabilities": {**ALL, "COPD": 3.2}}, "score-range", "probabilities.COPD", "3.2"),
        ({"study_id": "s1", "probabilities": {**ALL, "COPD": "0.5"}}, "wrong-type", "probabilities.COPD", '"0.5"'),
        ({"study_id": "s1", "probabilities": {**ALL, "COPD": True}}, "wrong-type", "probabilities.COPD", "true"),
        ({"study_id": "s1", "probabilities": {"COPD": 0.5}}, "missing-labels", "probabilities", None),
    ],
)
def test_each_rule_names_line_field_and_value(
    tmp_path: Path, entry: dict[str, Any], rule: str, field: str, value: str | None
) -> None:
    report = lint(tmp_path, lines(labels("s2"), entry, labels("s3")), allow_missing=True)
    (problem,) = [p for p in report.problems if p.severity == "error"]
    assert (problem.rule, problem.field, problem.line) == (rule, field, 2)
    assert value is None or problem.value == value
    assert report.predictions == ()


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = lines(labels("s1", "Pneumonia"), labels("s1")) + '{"study_id": "s2", "probabilities": {"COPD": NaN}}\n{\n'
    broken = {(p.line, p.rule) for p in lint(tmp_path, text).problems}
    assert {(1, "unknown-finding"), (2, "duplicate-study"), (None, "missing-studies")} <= broken
    assert {line for line, _ in broken} >= {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1e-2", 0.01),
        (".5", 0.5),
        ("+1.", 1.0),
        (" 0.5", 0.5),
        ("1_0", None),
        ("\u0660.\u0665", None),
        ("0." + "1" * 39, None),
    ],
)
def test_numbers_of_tables_are_ascii_decimals(tmp_path: Path, cell: str, value: float | None) -> None:
    """Python's float also reads the last three."""
    rows = [",".join([study, cell, *["0.25"] * (len(REVEAL_LABELS) - 1)]) for study in MANIFEST.studies]
    report = lint(tmp_path, "\n".join([",".join(["study_id", *REVEAL_LABELS]), *rows]) + "\n")
    assert [p.rule for p in report.problems if p.severity == "error"] == ["wrong-type"] * 3 * (value is None)
    assert [p.probabilities[REVEAL_LABELS[0]] for p in report.predictions] == [value] * 3 * (value is not None)


@pytest.mark.parametrize(
    ("fill", "constant"), [([0.5] * 3, ["COPD", "Lung mass"]), ([0] * 3, ["COPD", "Lung mass"]), ([0.5, 0.5, 0.4], [])]
)
def test_fillers_are_warned_of(tmp_path: Path, fill: list[float], constant: list[str]) -> None:
    """Two findings have one probability in all three studies, or in two of them."""
    manifest = StudyManifest("reveal-cxr", "1", "test", ("COPD", "Lung mass", "Aneurysm"), ("s1", "s2", "s3"))
    lines = [
        {"study_id": f"s{i}", "probabilities": {"COPD": x, "Lung mass": x, "Aneurysm": i / 10}}
        for i, x in enumerate(fill, start=1)
    ]
    path = tmp_path / "filled.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    warnings = [problem for problem in lint_findings(path, manifest).problems if problem.rule == "constant-score"]
    assert [problem.message for problem in warnings] == (
        [f"2 findings with the same probability in every study, got {json.dumps(constant)}"] if constant else []
    )


def test_missing_studies_and_mixed_kinds(tmp_path: Path) -> None:
    report = lint(tmp_path, lines(labels("s1"), {"study_id": "s2", "probabilities": ALL}))
    assert [p.rule for p in report.problems] == ["missing-studies", "mixed-kinds"]
    assert report.missing_pairs == (("s3", ""),)
    assert lint(tmp_path, lines(labels("s1")), allow_missing=True).ok


def test_studies_of_another_version_are_left_out_and_counted(tmp_path: Path) -> None:
    content = lines(labels("s1", "COPD"), labels("gone"), labels("gone2", "COPD"), labels("s3"))
    assert [p.rule for p in lint(tmp_path, content, allow_missing=True).problems if p.severity == "error"] == [
        "unknown-study", "unknown-study",
    ]  # fmt: skip
    report = lint(tmp_path, content, allow_missing=True, leave_out_unknown=True)
    assert report.ok
    assert [p.study_id for p in report.predictions if isinstance(p, FindingsPrediction)] == ["s1", "s3"]
    assert report.missing_pairs == (("s2", ""),)
    (warning,) = (problem for problem in report.problems if problem.rule == "left-out")
    assert warning.message == "2 predictions on studies that are not in this version are left out"


def test_many_studies_of_another_version_do_not_stop_parsing(tmp_path: Path) -> None:
    content = lines(*(labels(f"gone{i}") for i in range(5000)), labels("s1"))
    report = lint(tmp_path, content, allow_missing=True, leave_out_unknown=True)
    assert report.ok
    assert len(report.predictions) == 1


@pytest.mark.parametrize(
    ("content", "line", "hint"),
    [
        ("study_id,COPD\ns1,0\ns\u00e4,0\n".encode("latin-1"), 3, "save the table as CSV UTF-8"),
        (b"PK\x03\x04", None, "save it as CSV UTF-8"),
        (b"\x80\x04\x95", None, "it can run code"),
        (bytes(range(250, 127, -1)), None, "save it as JSON lines or CSV in UTF-8"),
    ],
    ids=["Latin-1", "a spreadsheet", "a pickle", "noise"],
)
def test_other_tables_are_refused_with_the_next_step(
    tmp_path: Path, content: bytes, line: int | None, hint: str
) -> None:
    (problem,) = lint(tmp_path, content).problems
    assert (problem.line, problem.hint.endswith(hint)) == (line, True)
