"""The step `extract`: its tables, counts and refusals, with the rules and with engines that misbehave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.curation.extract import ReportTable, SuggestionTable, extract
from reveal_bench.curation.folder import CurationError, CurationFolder, Progress
from reveal_bench.curation.report_tables import Quarantined, ReportColumns, StudyReport, SuggestionColumns
from reveal_bench.curation.rules import Rules
from reveal_bench.curation.tables import Suggestion, read_table
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal_studies import studies
from reveal_bench.sources.source import BuildError

COLUMNS = ReportColumns("study", "patient", "report")
ROWS = [
    ("s1", "p1", "FINDINGS: Left effusion and cardiomegaly."),
    ("s2", "p1", "HISTORY: COPD."),
    ("s3", "p2", "No acute abnormality."),
    ("s4", "p3", "FINDINGS: Small pneumothorax."),
]


def table(root: Path, rows: list[tuple[str, str, str]] = ROWS, name: str = "reports.jsonl") -> ReportTable:
    lines = [json.dumps({"study": s, "patient": p, "report": r}) + "\n" for s, p, r in rows]
    (root / name).write_text("".join(lines))
    return ReportTable(root / name, COLUMNS)


@pytest.fixture
def folder(tmp_path: Path) -> CurationFolder:
    return CurationFolder.create(tmp_path / "curation", name="trial", seed=1)


class Backwards:
    """An engine that answers from the last report to the first; `say` may change what it answers."""

    signature = "backwards|v:1"

    def __init__(self, say: Any = None) -> None:
        self.say = say or (lambda answers: answers)
        self.scratch: Path | None = None

    def settings(self) -> dict[str, Any]:
        return {"temperature": 0}

    def counts(self) -> dict[str, Any]:
        return {"tokens": 17, "cost": 0.5}

    def run(
        self, reports: Iterable[StudyReport], scratch: Path, progress: Progress | None = None
    ) -> Iterator[Suggestion | Quarantined]:
        self.scratch = scratch
        (scratch / "kept.txt").write_text("found again after an interruption")
        answers: list[Suggestion | Quarantined] = []
        for one in reports:
            if one.study_id == "s3":
                answers.append(Quarantined(one.study_id, one.patient_id, "no JSON", self.signature, "I think ü\udc80"))
            else:
                answers.append(Suggestion(one.study_id, one.patient_id, (), ("COPD",), "ok", self.signature))
        yield from self.say(answers[::-1])


def test_rows_and_counts(folder: CurationFolder, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    record = extract(folder, table(tmp_path), progress=lambda done, total: progress.append((done, total)))
    rows = read_table(folder.path("suggestions.parquet"), Suggestion)
    assert [(row.study_id, row.patient_id, row.labels, row.status) for row in rows] == [
        ("s1", "p1", ("Cardiomegaly", "Pleural effusion"), "ok"),
        ("s2", "p1", (), "quarantined"),
        ("s3", "p2", (), "ok"),
        ("s4", "p3", ("Pneumothorax",), "ok"),
    ]
    assert {row.engine for row in rows} == {"rules|v:3"}
    assert [json.loads(line) for line in folder.path("quarantine.jsonl").read_text().splitlines()] == [
        {
            "study_id": "s2",
            "patient_id": "p1",
            "reason": "no findings or impression to read",
            "engine": "rules|v:3",
            "answer": "",
        }
    ]
    by_label = {"Cardiomegaly": 1, "Pleural effusion": 1, "Pneumothorax": 1}
    assert record.counts == {
        "studies": 4,
        "patients": 3,
        "ok": 3,
        "quarantined": 1,
        "by_n_labels": {"0": 1, "1": 1, "2": 1},
        "by_label": {label: by_label.get(label, 0) for label in REVEAL_LABELS},
    }
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert record.settings["engine"] == "rules|v:3"


def test_an_engine_may_answer_in_any_order(folder: CurationFolder, tmp_path: Path) -> None:
    engine = Backwards()
    record = extract(folder, table(tmp_path), engine=engine)
    rows = read_table(folder.path("suggestions.parquet"), Suggestion)
    assert [row.study_id for row in rows] == ["s1", "s2", "s3", "s4"]
    assert [row.status for row in rows] == ["ok", "ok", "quarantined", "ok"]
    line = json.loads(folder.path("quarantine.jsonl").read_text(encoding="utf-8"))
    assert line["answer"] == "I think ü\udc80"
    assert record.counts["engine"] == {"tokens": 17, "cost": 0.5}
    assert record.settings["engine_settings"] == {"temperature": 0}
    assert engine.scratch is not None
    assert not engine.scratch.exists()


def left_out(answers: list[Any]) -> list[Any]:
    return answers[:-1]


def twice(answers: list[Any]) -> list[Any]:
    return [*answers, answers[0]]


def unasked(answers: list[Any]) -> list[Any]:
    return [*answers, Suggestion("s9", "p1", (), (), "ok", "x")]


def other_patient(answers: list[Any]) -> list[Any]:
    return [*answers[1:], Suggestion("s4", "p1", (), (), "ok", "x")]


def disordered(answers: list[Any]) -> list[Any]:
    return [*answers[1:], Suggestion("s4", "p3", (), ("Pneumothorax", "COPD"), "ok", "x")]


def own_status(answers: list[Any]) -> list[Any]:
    return [*answers[1:], Suggestion("s4", "p3", (), (), "maybe", "x")]


def no_label(answers: list[Any]) -> list[Any]:
    return [*answers[1:], Suggestion("s4", "p3", (), ("Pneumonia",), "ok", "x")]


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (left_out, r"must answer every report, got no answer to 's1'"),
        (twice, r"must answer every report once, got an unrequested or second answer to study 's4' of patient 'p3'"),
        (unasked, r"got an unrequested or second answer to study 's9' of patient 'p1'"),
        (other_patient, r"got an unrequested or second answer to study 's4' of patient 'p1'"),
        (disordered, r'must give the status "ok" and labels in the order of REVEAL_LABELS, got \'ok\''),
        (own_status, r'must give the status "ok" and labels in the order of REVEAL_LABELS, got \'maybe\''),
        (no_label, r"labels must be among the twelve, got Pneumonia"),
    ],
)
def test_an_engine_that_misbehaves_leaves_nothing(
    folder: CurationFolder, tmp_path: Path, say: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        extract(folder, table(tmp_path), engine=Backwards(say))
    assert folder.state("extract").status == "open"
    assert not folder.path("suggestions.parquet").exists()


def test_the_same_again_does_nothing_and_something_else_needs_redo(folder: CurationFolder, tmp_path: Path) -> None:
    source = table(tmp_path)
    first = extract(folder, source)
    before = folder.path("suggestions.parquet").read_bytes()
    assert first.is_new
    assert not extract(folder, source).is_new
    with pytest.raises(CurationError, match=r"engine was 'rules\|v:3', is 'backwards\|v:1'.*--redo"):
        extract(folder, source, engine=Backwards())
    assert extract(folder, source, engine=Backwards(), redo=True).is_new
    assert folder.path("suggestions.parquet").read_bytes() != before
    assert extract(folder, source, engine=Rules(), redo=True).is_new
    assert folder.path("suggestions.parquet").read_bytes() == before


def test_an_interrupted_run_ends_in_the_same_bytes(folder: CurationFolder, tmp_path: Path) -> None:
    source = table(tmp_path)

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(folder, source, progress=interrupt)
    extract(folder, source)
    other = CurationFolder.create(tmp_path / "other", name="trial", seed=1)
    extract(other, source)
    for name in ("suggestions.parquet", "quarantine.jsonl", "curation.json"):
        assert folder.path(name).read_bytes() == other.path(name).read_bytes()


def test_a_changed_text_file_is_noticed(folder: CurationFolder, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Left effusion.")
    (tmp_path / "t.csv").write_text("study,patient,path\n1,p,a.txt\n")
    source = ReportTable(tmp_path / "t.csv", ReportColumns("study", "patient", file="path"))
    extract(folder, source)
    (tmp_path / "a.txt").write_text("Clear.")
    with pytest.raises(CurationError, match="texts was"):
        extract(folder, source)
    assert extract(folder, source, redo=True).counts["by_label"]["Pleural effusion"] == 0


def test_ready_labels_need_no_engine(folder: CurationFolder, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('study,patient,labels\n1,p,"COPD; Lung mass"\n2,q,None\n')
    source = SuggestionTable(tmp_path / "t.csv", SuggestionColumns("study", "patient", "labels"))
    with pytest.raises(CurationError, match=r"labels from a table need no engine, got rules\|v:3"):
        extract(folder, source, engine=Rules())
    record = extract(folder, source)
    assert [row.labels for row in read_table(folder.path("suggestions.parquet"), Suggestion)] == [
        ("COPD", "Lung mass"),
        (),
    ]
    assert folder.path("quarantine.jsonl").read_bytes() == b""
    assert (record.counts["ok"], record.settings["engine"]) == (2, "given")


def test_a_bad_table_is_refused_before_anything_is_done(folder: CurationFolder, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="2 problems"):
        extract(folder, table(tmp_path, [("", "p", "Clear."), ("s", "p", "")]))
    assert folder.state("extract").status == "open"


def test_nothing_written_names_a_place(folder: CurationFolder, tmp_path: Path) -> None:
    extract(folder, table(tmp_path, name="secret-place.jsonl"))
    for file in folder.root.iterdir():
        assert b"secret-place" not in file.read_bytes()
        assert str(tmp_path).encode() not in file.read_bytes()


def test_the_phantoms_pool_from_reports_to_suggestions(folder: CurationFolder, tmp_path: Path) -> None:
    """Nearly all suggestions match the drawing, and the counts match the truth."""
    drawn = list(islice(studies("pool", seed=5), 120))
    rows = []
    for study in drawn:
        sides = dict.fromkeys(study.labels, "left")
        rows.append((study.study_uid, study.case_id, write_report(study, sides, has_devices=False)))
    record = extract(folder, table(tmp_path, rows))
    rows = read_table(folder.path("suggestions.parquet"), Suggestion)
    right = sum(row.labels == study.labels for row, study in zip(rows, drawn, strict=True))
    assert right >= 118
    assert record.counts["patients"] == len({study.case_id for study in drawn})
    assert sum(record.counts["by_n_labels"].values()) == 120 - record.counts["quarantined"]
