"""Labels from a model: phantom reports and notes against the truth, bad answers, and a run that is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from decimal import Decimal
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

import pytest

from reveal_bench.curation.consensus import Reviser
from reveal_bench.curation.extract import ReportTable, extract
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.model_engine import ModelEngine, ModelReviser, UnreadNote
from reveal_bench.curation.report_tables import Quarantined, ReportColumns, ReportEngine, StudyReport
from reveal_bench.curation.tables import Finding, Revision, Suggestion, Vote
from reveal_bench.models.endpoints import KEY_VARIABLE, RunStoppedError
from reveal_bench.models.model_client import (
    Completion,
    ModelClient,
    ModelSettings,
    RequestFailure,
    RetryPolicy,
)
from reveal_bench.models.prices import Prices
from tests.curation.model_server import BAD_TEXTS, FRACTURE, GOOD_TEXTS, ModelServer, phantom_reports, running_model

TRUTH = phantom_reports(30, seed=15)
REPORTS = [StudyReport(f"study-{i:02d}", f"patient-{i % 20:02d}", text) for i, text in enumerate(TRUTH)]
ABNORMAL = [report for report in REPORTS if TRUTH[report.text]]
NORMAL = [report for report in REPORTS if not TRUTH[report.text]]
QUICK = RetryPolicy(attempts=3, attempt_timeout=60, first_pause=0.005)

Calls = Literal["two", "one"]
CALLS: tuple[Calls, ...] = ("two", "one")


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with running_model(TRUTH) as running:
        yield running


def engine(url: str, cache: Path, calls: Calls = "two", **options: Any) -> ModelEngine:
    more_tries = options.pop("more_tries", 2)
    client = ModelClient(
        ModelSettings("phantom-1"), url, cache, **{"retry_policy": QUICK, "max_connections": 4, **options}
    )
    return ModelEngine(client, calls, more_tries=more_tries)


def run(engine: ModelEngine, reports: list[StudyReport]) -> dict[str, Suggestion | Quarantined]:
    outcomes = list(engine.run(reports))
    by_study = {outcome.study_id: outcome for outcome in outcomes}
    assert len(outcomes) == len(reports)
    assert {(one.study_id, one.patient_id) for one in outcomes} == {(one.study_id, one.patient_id) for one in reports}
    return by_study


def is_true(outcome: Suggestion | Quarantined, report: StudyReport) -> bool:
    return isinstance(outcome, Suggestion) and outcome.status == "ok" and outcome.labels == TRUTH[report.text]


def test_the_reports_are_of_all_kinds() -> None:
    assert len(NORMAL) >= 5
    assert {len(labels) for labels in TRUTH.values()} >= {0, 1, 2, 3}


@pytest.mark.parametrize("calls", CALLS)
def test_the_truth_comes_out(calls: Calls, model: ModelServer, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    asking = engine(model.url, tmp_path, calls)
    results = {one.study_id: one for one in asking.run(REPORTS, progress=lambda *done: progress.append(done))}
    assert all(is_true(results[report.study_id], report) for report in REPORTS)
    assert progress == [(n, 30) for n in range(1, 31)]
    n_lists = len(set(TRUTH.values()) - {()})  # the same findings are asked about once, and none at all never
    assert len(model.asked) == (30 if calls == "one" else 30 + n_lists)
    assert {one.engine for one in results.values()} == {asking.signature}


def test_findings_have_sides_and_labels(model: ModelServer, tmp_path: Path) -> None:
    report = ABNORMAL[0]
    outcome = run(engine(model.url, tmp_path), [report])[report.study_id]
    labels = TRUTH[report.text]
    assert isinstance(outcome, Suggestion)
    assert outcome.findings == (*(Finding(label.lower(), "left", None, label) for label in labels), Finding(FRACTURE))


def test_one_call_knows_no_sides(model: ModelServer, tmp_path: Path) -> None:
    report = ABNORMAL[0]
    outcome = run(engine(model.url, tmp_path, "one"), [report])[report.study_id]
    assert isinstance(outcome, Suggestion)
    assert outcome.findings[0] == Finding(TRUTH[report.text][0].lower(), label=TRUTH[report.text][0])


# An endpoint that misbehaves ------------------------------------------------------------------------------------------

BAD_ONCE = ["length", "refusal", *BAD_TEXTS]
BAD_ALWAYS = [*BAD_ONCE, "400", "500", "reset", "not JSON"]
FINE = ["429", "503", *GOOD_TEXTS]


@pytest.mark.parametrize("calls", CALLS)
def test_nothing_is_lost_and_nothing_guessed(calls: Calls, model: ModelServer, tmp_path: Path) -> None:
    bad, others = ABNORMAL[: len(BAD_ALWAYS)], [*ABNORMAL[len(BAD_ALWAYS) :], *NORMAL]
    model.faults = {report.text: [fault] * 50 for report, fault in zip(bad, BAD_ALWAYS, strict=True)}
    model.faults |= {report.text: [fault] for report, fault in zip(others, FINE, strict=False)}
    model.faults |= {report.text: [fault] for report, fault in zip(others[4:], BAD_ONCE, strict=False)}
    assert len(others) >= len(FINE) + len(BAD_ONCE)
    asking = engine(model.url, tmp_path, calls)
    results = run(asking, REPORTS)
    assert all(is_true(results[report.study_id], report) for report in others)
    for report, fault in zip(bad, BAD_ALWAYS, strict=True):
        outcome = results[report.study_id]
        assert isinstance(outcome, Quarantined), fault
        assert len(json.loads(outcome.answer)) == (3 if fault in BAD_ONCE else 0), fault
        assert outcome.engine == asking.signature
    assert asking.counts()["refused_answers"] == len(BAD_ONCE) * 3 + len(BAD_ONCE)
    assert asking.counts()["unanswered"] == len(BAD_ALWAYS) - len(BAD_ONCE) == 4


def test_the_quarantine_says_why_and_what_the_model_said(model: ModelServer, tmp_path: Path) -> None:
    report = ABNORMAL[0]
    model.faults = {report.text: ["prose alone", "wrong schema", "refusal"]}
    outcome = run(engine(model.url, tmp_path), [report])[report.study_id]
    assert isinstance(outcome, Quarantined)
    assert outcome.reason == (
        "3 answers to 'findings' refused; last reason: the model would not answer: I cannot help with that."
    )
    assert json.loads(outcome.answer) == [
        "The report is hard to read.",
        '{"diagnoses": ["COPD"]}',
        "I cannot help with that.",
    ]


def test_the_model_is_told_what_was_wrong(model: ModelServer, tmp_path: Path) -> None:
    report = ABNORMAL[0]
    model.faults = {report.text: ["wrong schema"]}
    assert is_true(run(engine(model.url, tmp_path, "one"), [report])[report.study_id], report)
    roles = [message["role"] for message in model.asked[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert "got no 'key_findings'" in model.asked[1]["messages"][3]["content"]


def test_a_bad_answer_to_the_second_question_keeps_the_first(model: ModelServer, tmp_path: Path) -> None:
    report = next(report for report in ABNORMAL if TRUTH[report.text] == ("Airspace opacity",))
    model.faults = {json.dumps(["left airspace opacity", FRACTURE]): ["unknown label"] * 9}
    outcome = run(engine(model.url, tmp_path, more_tries=1), [report])[report.study_id]
    assert isinstance(outcome, Quarantined)
    assert outcome.reason.startswith("2 answers to 'labels' refused; last reason: benchmark_labels[0] must be one of")
    assert [sorted(json.loads(text)) for text in json.loads(outcome.answer)] == [
        ["findings"],
        ["benchmark_labels", "key_findings"],
        ["benchmark_labels", "key_findings"],
    ]


def test_an_endpoint_that_refuses_everything_is_no_quarantine(model: ModelServer, tmp_path: Path) -> None:
    model.faults = {report.text: ["401"] for report in REPORTS}
    with pytest.raises(RunStoppedError, match="the endpoint refuses every request"):
        list(engine(model.url, tmp_path).run(REPORTS))


@pytest.mark.parametrize("fault", ["500", "reset"])
def test_a_passing_outage_is_counted_apart_and_asked_again(fault: str, model: ModelServer, tmp_path: Path) -> None:
    """Two reports meet an outage of three attempts, a third one's answers cannot be read."""
    model.faults = {report.text: [fault] * 3 for report in NORMAL[:2]} | {ABNORMAL[0].text: ["prose alone"] * 9}
    first = engine(model.url, tmp_path)
    results = run(first, REPORTS)
    reasons = [one.reason for one in results.values() if isinstance(one, Quarantined)]
    assert len(reasons) == 3
    assert sum(one.startswith("the request 'findings' failed and can be repeated: ") for one in reasons) == 2
    assert (first.counts()["unanswered"], first.counts()["refused_answers"]) == (2, 3)
    again = engine(model.url, tmp_path)
    results = run(again, REPORTS)
    assert all(is_true(results[report.study_id], report) for report in NORMAL[:2])
    assert (again.counts()["unanswered"], again.counts()["refused_answers"]) == (0, 3)


def test_half_a_character_can_be_written_down(tmp_path: Path) -> None:
    dialogue = engine("http://127.0.0.1:9/v1", tmp_path, more_tries=0)._dialogue(REPORTS[0])
    next(dialogue)
    with pytest.raises(StopIteration) as end:
        dialogue.send(Completion("\ud800"))
    assert end.value.value.reason.startswith(
        "the answer to 'findings' refused; last reason: the answer must be Unicode"
    )
    assert json.loads(end.value.value.answer.encode()) == ["\ud800"]


def test_a_failure_ends_a_dialogue(tmp_path: Path) -> None:
    dialogue = engine("http://127.0.0.1:9/v1", tmp_path)._dialogue(REPORTS[0])
    next(dialogue)
    with pytest.raises(StopIteration) as end:
        dialogue.send(RequestFailure("HTTP 400"))
    assert end.value.value.reason == "the request 'findings' failed and can be repeated: HTTP 400"


# Counts and settings --------------------------------------------------------------------------------------------------


def test_counts_add_up(model: ModelServer, tmp_path: Path) -> None:
    model.faults = {ABNORMAL[0].text: ["wrong schema"], ABNORMAL[1].text: ["500"]}
    asking = engine(model.url, tmp_path, "one", prices=Prices(Decimal("3"), Decimal("15")))
    run(asking, REPORTS)
    tokens_in, tokens_out = (sum(column) for column in zip(*model.usage, strict=True))
    assert asking.counts() == {
        "refused_answers": 1,
        "unanswered": 0,
        "answers": 31,
        "answers_without_usage": 0,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "cost": f"{Decimal(3 * tokens_in + 15 * tokens_out).scaleb(-6).normalize():f}",
        "served_models": ["phantom-1-2026-01-01"],
    }
    assert asking.client.spent.retries == 1


def test_a_signature_changes_with_every_setting(tmp_path: Path) -> None:
    def made(calls: Calls = "two", more_tries: int = 2, **settings: Any) -> str:
        client = ModelClient(ModelSettings(**{"model": "m", **settings}), "http://localhost:1/v1", tmp_path)
        return ModelEngine(client, calls, more_tries=more_tries).signature

    variants = {made(), made("one"), made(more_tries=0), made(model="n"), made(seed=1), made(temperature=None)}
    assert len(variants) == 6
    assert made() == made()
    assert made().startswith("m|calls:two|prompts:1|settings:")


def test_settings_name_no_endpoint(tmp_path: Path) -> None:
    one = engine("http://127.0.0.1:1/v1", tmp_path / "a")
    other = engine("https://model.example.org/v1", tmp_path / "b", max_connections=9)
    assert json.loads(json.dumps(one.settings())) == one.settings() == other.settings()
    assert one.signature == other.signature


def test_bad_engines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='`calls` must be "two" or "one", got \'three\''):
        engine("http://127.0.0.1:1/v1", tmp_path, "three")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`more_tries` must be at least 0, got -1"):
        engine("http://127.0.0.1:1/v1", tmp_path, more_tries=-1)


# Killed and run again -------------------------------------------------------------------------------------------------


def only_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    """Install an audit hook that ends the process before it connects to anything but this machine."""
    if event == "socket.connect" and arguments[1][0] not in ("127.0.0.1", "::1"):
        os._exit(3)
    if event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", "localhost", "::1"):
        os._exit(4)


def extracted(url: str, cache: Path, out: Path, reports: list[StudyReport]) -> None:
    sys.addaudithook(only_loopback)
    results = run(engine(url, cache, retry_policy=RetryPolicy()), reports)
    out.write_text(json.dumps([asdict(results[study_id]) for study_id in sorted(results)]), encoding="utf-8")


def start(*arguments: Any) -> BaseProcess:
    """Start a forked copy of this process that runs the extraction."""
    process = get_context("fork").Process(target=extracted, args=arguments)
    process.start()
    return process


def test_killed_and_run_again_only_what_was_under_way_is_asked_again(tmp_path: Path) -> None:
    """Four requests are under way when the process is killed; it connects only to loopback."""
    by_labels = {TRUTH[report.text]: report for report in ABNORMAL}
    reports = [*by_labels.values(), *NORMAL]  # no two have the same findings to be labelled
    bad = {report.text for report in reports[:2]}
    n_needed = len(reports) + len(by_labels) - 2 + 2 * 2  # two are asked three times and then quarantined
    cache, out = tmp_path / "cache", tmp_path / "out.json"
    with running_model(TRUTH, faults={text: ["wrong schema"] * 50 for text in bad}, gated_from=20) as model:
        worker = start(model.url, cache, out, reports)
        assert model.wait_for_asked(24)
        worker.kill()
        worker.join(30)
        assert worker.exitcode == -signal.SIGKILL
        assert not out.exists()
        assert len(list(cache.rglob("*.json"))) == 20
        model.open_gate()
        assert model.wait_for_open(0)
        worker = start(model.url, cache, out, reports)
        worker.join(120)
        assert worker.exitcode == 0
        assert len(model.asked) == n_needed + 4
    with running_model(TRUTH, faults={text: ["wrong schema"] * 50 for text in bad}) as model:
        undisturbed = run(engine(model.url, tmp_path / "another"), reports)
        assert len(model.asked) == n_needed
    whole = json.dumps([asdict(undisturbed[study_id]) for study_id in sorted(undisturbed)])
    assert out.read_text(encoding="utf-8") == whole
    assert sum(isinstance(one, Quarantined) for one in undisturbed.values()) == 2


# In a curation --------------------------------------------------------------------------------------------------------


def test_a_curation_is_extracted_and_holds_neither_key_nor_endpoint(
    model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-do-not-tell-anybody"
    monkeypatch.setenv(KEY_VARIABLE, key)
    table = tmp_path / "reports.jsonl"
    rows = [{"study": one.study_id, "patient": one.patient_id, "report": one.text} for one in REPORTS]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = ReportTable(table, ReportColumns("study", "patient", report="report"))
    model.faults = {ABNORMAL[0].text: ["400"], ABNORMAL[1].text: ["500"], ABNORMAL[2].text: ["prose alone"] * 9}
    folder = CurationFolder.create(tmp_path / "curation", name="Chest")
    reader: ReportEngine = engine(model.url, folder.path("cache/answers"))
    record = extract(folder, source, engine=reader)
    assert (record.counts["ok"], record.counts["quarantined"]) == (28, 2)
    assert record.counts["engine"]["refused_answers"] == 3
    assert record.counts["engine"]["unanswered"] == 1
    again = extract(folder, source, engine=engine("https://model.example.org/v1", folder.path("cache/answers")))
    assert not again.is_new
    assert model.keys == {f"Bearer {key}"}
    port = model.url.split(":")[2].split("/")[0]
    texts = [path.read_bytes() for path in folder.root.rglob("*") if path.is_file()]
    assert len(texts) > 30
    assert not any(key.encode() in text or f":{port}".encode() in text for text in texts)


# Notes ----------------------------------------------------------------------------------------------------------------

NOTES = {
    "also cardiomegaly": ["Cardiomegaly", "Airspace opacity"],
    "no opacity at all": [],
    "film is rotated": ["NA"],
}
SUGGESTED = ("Airspace opacity",)
VOTES = [(Vote(f"study-{i}", "reader_01", "disagree", note), SUGGESTED) for i, note in enumerate([*NOTES, "  "])]
REVISED = [
    Revision("study-0", "reader_01", ("Airspace opacity", "Cardiomegaly"), "model"),
    Revision("study-1", "reader_01", (), "model"),
    Revision("study-2", "reader_01", None, "nothing"),
    Revision("study-3", "reader_01", None, "nothing"),
]


def in_order_of_studies(revisions: Iterator[Revision]) -> list[Revision]:
    return sorted(revisions, key=lambda one: one.study_id)


def reviser(url: str, cache: Path) -> ModelReviser:
    return ModelReviser(ModelClient(ModelSettings("phantom-1"), url, cache, retry_policy=QUICK))


def test_notes_become_labels(tmp_path: Path) -> None:
    with running_model({}, notes=NOTES) as model:
        reading: Reviser = reviser(model.url, tmp_path)
        assert reading.signature.startswith("phantom-1|notes|prompts:1|settings:")
        assert in_order_of_studies(iter(reading(VOTES))) == REVISED
        assert len(model.asked) == 3  # a blank note is not asked about


def test_an_unread_note_has_no_labels_and_is_kept(tmp_path: Path) -> None:
    with running_model({}, notes=NOTES) as model:
        asked = json.dumps(
            {"suggested_labels": ["Airspace opacity"], "answer": "disagree", "note": "also cardiomegaly"}
        )
        model.faults = {asked: ["prose alone"] * 9}
        reading = reviser(model.url, tmp_path)
        revisions = in_order_of_studies(reading(VOTES))
    assert revisions == [Revision("study-0", "reader_01", None, "nothing"), *REVISED[1:]]
    reason = "3 answers to 'note' refused; last reason: the answer must hold a JSON object, got none"
    assert reading.unread == [
        UnreadNote("study-0", "reader_01", reason, json.dumps(["The report is hard to read."] * 3))
    ]
    assert reading.counts()["unread_notes"] == 1
    assert reading.counts()["unanswered"] == 0
    assert reading.counts()["answers"] == 5
