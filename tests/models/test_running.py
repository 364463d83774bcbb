"""Runs against a simulated model on loopback: every failure counted, every answer asked once, every token priced."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.models.endpoints import IN_A_ROW, RunStoppedError
from reveal_bench.models.inspect_logs import import_logs
from reveal_bench.models.prices import Prices
from reveal_bench.models.questions import AskSettings
from reveal_bench.models.run_folder import Run, read_run
from reveal_bench.models.running import ModelChoice, run_model
from tests.conftest import ROOT
from tests.models.conftest import Truth, playing
from tests.models.endpoint import PlayedModel, tokens_of

KEY = "sk-not-to-be-seen-anywhere"
PRICES = Prices(Decimal("1.25"), Decimal("10"), Decimal("0.125"))
FAULTS = (
    ("429", "429"), ("500",), ("503",), ("hang",), ("malformed",), ("prose",), ("no_usage",),
    ("400",) * 9, ("malformed",) * 9, ("refusal",), ("cut_off",), ("empty",),
)  # fmt: skip
"""Faults of one question each; the run recovers from those in the first line, or they do no harm."""
STATUSES = ("answered",) * 7 + ("failed", "failed", "refused", "cut_off", "empty")


@dataclass(frozen=True)
class Done:
    """A run with every fault."""

    out: Path
    home: Path
    run: Run
    model: PlayedModel
    choice: ModelChoice
    hits: set[str]
    statuses: dict[str, str]
    progress: list[tuple[str, int, int, int, str]]
    hosts: set[str]


@pytest.fixture(scope="module")
def done(films: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    """Errs in 30% of the questions; the first of them have the faults above."""
    root = tmp_path_factory.mktemp("run")
    names = [question for question, _, _ in truth.questions]
    faults = dict(zip(names, FAULTS, strict=False))
    statuses = dict.fromkeys(names, "answered") | dict(zip(names, STATUSES, strict=False))
    progress: list[tuple[str, int, int, int, str]] = []
    with pytest.MonkeyPatch.context() as patch, playing(truth, error_rate=0.3, faults=faults) as (model, hits):
        (root / "home").mkdir()
        for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(root / "home"))
        patch.chdir(root / "home")
        patch.setattr("reveal_bench.models.run_monitor.FIRST_PAUSE", 0.1)
        patch.setenv("REVEAL_MODEL_KEY", KEY)
        patch.setenv("OPENAI_ORG_ID", "org-of-somebody-else")
        patch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        hosts: set[str] = set()
        connect, look_up = socket.socket.connect, socket.getaddrinfo

        def connect_and_tell(self: socket.socket, address: Any) -> None:
            hosts.add(str(address[0]) if self.family in (socket.AF_INET, socket.AF_INET6) else str(address))
            connect(self, address)

        def look_up_and_tell(host: Any, *args: Any, **kwargs: Any) -> Any:
            hosts.add(str(host))
            return look_up(host, *args, **kwargs)

        patch.setattr(socket.socket, "connect", connect_and_tell)
        patch.setattr(socket, "getaddrinfo", look_up_and_tell)
        before = dict(os.environ)
        choice = ModelChoice("played", model.url, label="Played Model", seed=5, attempt_timeout=3, max_connections=6)
        run_model(
            films,
            "test",
            root / "out",
            AskSettings(),
            choice,
            prices=PRICES,
            progress=lambda *done: progress.append(done),
        )
        assert dict(os.environ) == before
        yield Done(root / "out", root / "home", read_run(root / "out"), model, choice, hits, statuses, progress, hosts)


def test_every_question_has_a_line_and_every_fault_its_status(done: Done) -> None:
    assert {exchange.question: exchange.status for exchange in done.run.exchanges} == done.statuses
    assert [exchange.question for exchange in done.run.exchanges] == list(done.statuses)
    assert done.run.summary.by_status == dict(Counter(done.statuses.values()))
    for exchange in done.run.exchanges:
        assert (exchange.error is not None) == (exchange.status == "failed")
        assert (exchange.text is None) == (exchange.status == "failed")
        if exchange.status != "failed":
            assert (exchange.served_model, exchange.sent_temperature) == ("played-model-2026", 0.0)
        assert exchange.stop_reason == {"failed": None, "cut_off": "max_tokens"}.get(exchange.status, "stop")
    assert done.progress[0] == ("asking", 0, len(done.statuses), 0, "")
    assert done.progress[-1][:4] == ("asking", len(done.statuses), len(done.statuses), 2)
    notes = [note for *_, note in done.progress]
    for reason in ("HTTP 429", "HTTP 500", "HTTP 503", "no answer"):
        assert any(re.fullmatch(rf"\d+ sent again, waiting \d s after {reason}", note) for note in notes)
    assert notes[-1].partition(",")[0] == "5 sent again"  # 429 twice, 500, 503, and the one that hung


def test_the_score_is_what_the_model_meant_over_all_questions(done: Done, films: Path) -> None:
    meant = {question for question in done.hits if done.statuses[question] == "answered"}
    scored = score_file(
        done.out / "predictions.jsonl", films, "test", ScoringOptions(allow_missing=True, interval="percentile")
    )
    hit_rates = {e.finding: e for e in scored.estimates if e.metric == "grid_hit" and e.n}
    macro = hit_rates.pop("macro")
    assert sum(e.n for e in hit_rates.values()) == len(done.statuses)
    for finding, estimate in hit_rates.items():
        asked = [question for question in done.statuses if question.endswith(f"|{finding}")]
        assert estimate.n == len(asked)
        assert estimate.value * estimate.n == pytest.approx(len(meant.intersection(asked)))
    # 70% of the answers are meant to be right, and everything else is wrong
    stated = [0.7 * done.run.summary.by_finding[finding].get("answered", 0) / e.n for finding, e in hit_rates.items()]
    assert macro.low <= sum(stated) / len(stated) <= macro.high
    n_answered = done.run.summary.by_status["answered"]
    assert abs(len(meant) - 0.7 * n_answered) <= 1.96 * (0.7 * 0.3 * n_answered) ** 0.5
    assert scored.report.missing_pairs == tuple(
        tuple(question.split("|")) for question, status in done.statuses.items() if status != "answered"
    )


def test_the_cost_is_tokens_times_price(done: Done) -> None:
    counted = [name for name, status in done.statuses.items() if status != "failed"]
    (uncounted,) = [name for name, faults in zip(done.statuses, FAULTS, strict=False) if faults == ("no_usage",)]
    counted.remove(uncounted)
    tokens_in, cached, tokens_out = (sum(column) for column in zip(*map(tokens_of, counted), strict=True))
    summary = done.run.summary
    assert (summary.tokens_in, summary.tokens_cached, summary.tokens_out) == (tokens_in, cached, tokens_out)
    millionths = (tokens_in - cached) * Decimal("1.25") + cached * Decimal("0.125") + tokens_out * 10
    assert summary.cost == millionths / 1_000_000
    assert summary.without_usage == 1
    assert Decimal(json.loads((done.out / "summary.json").read_text())["cost"]) == summary.cost


def test_requests_say_what_was_asked_for_and_nothing_more(done: Done) -> None:
    assert done.model.peak <= 6
    assert done.hosts == {"127.0.0.1"}
    for body in done.model.bodies:
        assert (body["model"], body["temperature"], body["seed"]) == ("played", 0.0, 5)
        assert "max_tokens" not in body
        assert [part["image_url"]["detail"] for part in body["messages"][-1]["content"] if "image_url" in part] == [
            "high"
        ]
    for headers in done.model.headers:
        assert {name.lower(): value for name, value in headers.items()}["authorization"] == f"Bearer {KEY}"
        assert "org-of-somebody-else" not in str(headers)


def test_nothing_is_written_outside_and_no_picture_or_key_inside(done: Done) -> None:
    assert list(done.home.rglob("*")) == []
    names = {path.relative_to(done.out).parts[0] for path in done.out.rglob("*")}
    assert names == {"logs", "run.json", "transcript.jsonl", "predictions.jsonl", "submission.json", "summary.json"}
    (log,) = (done.out / "logs").iterdir()
    with zipfile.ZipFile(log) as file:
        text = "".join(file.read(name).decode() for name in file.namelist())
    assert "iVBORw0KGgo" not in text  # how the base64 of a PNG begins
    assert "for key Bearer ***" in text
    assert KEY not in text
    for path in done.out.iterdir():
        if path.is_file():
            text = path.read_text()
            assert KEY not in text
            assert "127.0.0.1" not in text
            assert str(done.out.parent) not in text


def test_the_submission_is_one(done: Done) -> None:
    import jsonschema

    schema = json.loads((ROOT / "submissions" / "schema" / "submission.schema.json").read_text())
    submission = json.loads((done.out / "submission.json").read_text())
    jsonschema.validate(submission, schema)
    assert (submission["model"], submission["prompt_style"]) == ({"name": "Played Model"}, "zero-shot")
    assert submission["grid"] == 8
    assert submission["parameters"]["exchanges_failed"] == 2


def test_logs_say_the_same_when_they_are_imported(done: Done) -> None:
    info, exchanges = import_logs([done.out / "logs"])
    assert tuple(exchanges) == done.run.exchanges
    assert info == replace(done.run.info, model="played", prices=None, harness=info.harness)


def test_done_again_nothing_is_asked_but_failures_on_demand(done: Done, films: Path) -> None:
    files = [path for path in done.out.rglob("*") if path.is_file()]
    before, n_asked = {path: path.read_bytes() for path in files}, len(done.model.asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REVEAL_MODEL_KEY", KEY)
        run_model(films, "test", done.out, AskSettings(), done.choice, prices=PRICES)
        assert len(done.model.asked) == n_asked
        assert {path: path.read_bytes() for path in files} == before
        failed = [name for name, status in done.statuses.items() if status == "failed"]
        for name in failed:
            done.model.faults[name].clear()
        summary = run_model(films, "test", done.out, AskSettings(), done.choice, prices=PRICES, ask_again=True)
    assert sorted(name for name, _ in done.model.asked[n_asked:]) == sorted(failed)
    assert summary.by_status == {"answered": len(done.statuses) - 3, "cut_off": 1, "empty": 1, "refused": 1}
    again = read_run(done.out).exchanges
    assert [exchange.question for exchange in again] == list(done.statuses)
    kept = [exchange for exchange in again if exchange.question not in failed]
    assert kept == [exchange for exchange in done.run.exchanges if exchange.question not in failed]


def test_another_run_is_not_mixed_in(done: Done, films: Path) -> None:
    for settings, choice, difference in (
        (AskSettings(style="chain-of-thought"), done.choice, "settings .*'style': 'zero-shot'.*'chain-of-thought'"),
        (AskSettings(), replace(done.choice, temperature=0.7), r"parameters \{'temperature': 0.0\}.*0.7"),
        (AskSettings(), replace(done.choice, label="Other"), "model 'Played Model', but 'Other' is requested"),
    ):
        with pytest.raises(ValueError, match=f"contains another run: run.json says {difference}"):
            run_model(films, "test", done.out, settings, choice)


def test_another_build_of_the_data_is_not_mixed_in(films: Path, truth: Truth, tmp_path: Path) -> None:
    folder = tmp_path / "films"
    shutil.copytree(films, folder)
    with playing(truth) as (model, _):
        choice = ModelChoice("played", model.url)
        run_model(folder, "test", tmp_path / "out", AskSettings(), choice, limit=1)
        (shard,) = (folder / "localization").glob("test-*.parquet")
        table = pq.read_table(shard)
        hashes = table["pixel_sha256"].to_pylist()
        at = table.schema.get_field_index("pixel_sha256")
        pq.write_table(table.set_column(at, table.schema.field(at), [["0" * 64, *hashes[1:]]]), shard)
        with pytest.raises(ValueError, match=r"contains another run: run\.json says dataset '[0-9a-f]{64}'"):
            run_model(folder, "test", tmp_path / "out", AskSettings(), choice)
        assert len(model.asked) == 1


def test_answers_to_other_examples_are_not_mixed_in(films: Path, truth: Truth, tmp_path: Path) -> None:
    settings = AskSettings(style="few-shot", shots=2, shots_split="validation")
    with playing(truth) as (model, _):
        choice = ModelChoice("played", model.url)
        run_model(films, "test", tmp_path, settings, choice, limit=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("reveal_bench.models.inspect_tasks.ShotPool.pick", lambda *_: ())
            with pytest.raises(ValueError, match="was asked with other examples, its dataset folder has changed"):
                run_model(films, "test", tmp_path, settings, choice, limit=2)
        run_model(films, "test", tmp_path, settings, choice, limit=2)
        assert len(model.asked) == 2


def test_a_file_env_sends_nothing_to_an_endpoint(
    films: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("OPENAI_ORG_ID=org-of-somebody-else\nHTTP_PROXY=http://127.0.0.1:9\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reveal_bench.models.running.PART", 1)
    for name in ("OPENAI_ORG_ID", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with playing(truth) as (model, _):
        run_model(films, "test", tmp_path / "out", AskSettings(), ModelChoice("played", model.url), limit=3)
    assert len(model.headers) == 3
    assert "org-of-somebody-else" not in str(model.headers)


def test_a_run_that_nobody_answers_is_given_up(films: Path, truth: Truth, tmp_path: Path) -> None:
    faults = {question: ["401"] * 9 for question, _, _ in truth.questions}
    with playing(truth, faults=faults) as (model, _):
        choice = ModelChoice("played", model.url, max_connections=2)
        with pytest.raises(RunStoppedError, match=r"the endpoint refuses every request; .*401") as stopped:
            run_model(films, "test", tmp_path, AskSettings(), choice, limit=14)
        assert stopped.value.status == 401
        assert len(model.asked) <= 2
        assert read_run(tmp_path).summary.by_status == {"not_asked": 14}
        model.faults.clear()
        summary = run_model(films, "test", tmp_path, AskSettings(), choice, limit=14)
        assert summary.by_status == {"answered": 14}


def test_ten_requests_in_a_row_that_fail_end_a_run(films: Path, truth: Truth, tmp_path: Path) -> None:
    faults = {question: ["400"] * 9 for question, _, _ in truth.questions}
    with playing(truth, faults=faults) as (model, _):
        choice = ModelChoice("played", model.url, max_connections=2)
        with pytest.raises(RunStoppedError, match=f"{IN_A_ROW} requests in a row .*400"):
            run_model(films, "test", tmp_path, AskSettings(), choice, limit=14)
        assert IN_A_ROW <= len(model.asked) <= IN_A_ROW + 2


def test_a_run_without_an_answer_ends_with_the_reason(films: Path, truth: Truth, tmp_path: Path) -> None:
    faults = {question: ["400"] * 9 for question, _, _ in truth.questions}
    message = r"no question was answered; last reason: .*400"
    with playing(truth, faults=faults) as (model, _):
        with pytest.raises(RunStoppedError, match=message):
            run_model(films, "test", tmp_path, AskSettings(), ModelChoice("misspelt", model.url), limit=2)
        assert read_run(tmp_path).summary.by_status == {"failed": 2}
        for codes in model.faults.values():
            codes.clear()
        choice = ModelChoice("played", model.url)
        with pytest.raises(ValueError, match="contains another run"):
            run_model(films, "test", tmp_path, AskSettings(), choice, limit=2)
        run_model(films, "test", tmp_path, AskSettings(), choice, limit=2, ask_again=True)
    again = read_run(tmp_path)
    assert (again.info.model, again.summary.by_status) == ("played", {"answered": 2})


def test_deviating_responses_are_answers(films: Path, truth: Truth, tmp_path: Path) -> None:
    names = [question for question, _, _ in truth.questions]
    odd = ("error_with_200", "no_choices", "parts", "no_model", "null_usage", "tool_call", "reasoning_only")
    with playing(truth, faults={name: [what] for name, what in zip(names, odd, strict=False)}) as (model, _):
        run_model(films, "test", tmp_path, AskSettings(), ModelChoice("played", model.url, max_retries=2), limit=7)
        n_requests = len(model.asked)
    exchanges = {exchange.question: exchange for exchange in read_run(tmp_path).exchanges}
    statuses = [exchanges[name].status for name in names[:7]]
    assert statuses == [*["answered"] * 5, *["empty"] * 2]
    assert n_requests == 9  # the first two were asked again, the tool call was not
    assert exchanges[names[4]].tokens_in is None
    assert exchanges[names[5]].note == "the model called a tool instead of answering"
    assert exchanges[names[6]].note == "all text is in the reasoning field: check the server's reasoning parser"


def test_a_content_filter_is_no_reason_to_give_up(films: Path, truth: Truth, tmp_path: Path) -> None:
    n_filtered = IN_A_ROW + 2
    names = [question for question, _, _ in truth.questions]
    with playing(truth, faults={name: ["filtered"] * 9 for name in names[:n_filtered]}) as (model, _):
        summary = run_model(films, "test", tmp_path, AskSettings(), ModelChoice("played", model.url), limit=14)
    assert summary.by_status == {"answered": 14 - n_filtered, "refused": n_filtered}
    first = read_run(tmp_path).exchanges[0]
    assert (first.note, first.stop_reason) == ("stopped by content_filter", "content_filter")
    assert len(model.asked) == 14  # none of them twice


def test_an_endpoint_that_dies_is_said_once_and_gone_on_with(
    films: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveal_bench.models.run_monitor.FIRST_PAUSE", 0.2)
    with playing(truth) as (model, _):
        choice = ModelChoice("played", model.url, attempt_timeout=1, max_connections=3, max_retries=20)
        model.down_from = 5
        with pytest.raises(
            RunStoppedError, match=r"the endpoint does not answer: .* in a row failed; last reason"
        ) as stop:
            run_model(films, "test", tmp_path, AskSettings(), choice, limit=10)
        assert stop.value.status is None
        kept = read_run(tmp_path).summary.by_status
        assert kept == {"answered": 5, "not_asked": 5}
        model.down_from = float("inf")
        summary = run_model(films, "test", tmp_path, AskSettings(), choice, limit=10)
        assert summary.by_status == {"answered": 10}
        assert set(model.answered().values()) == {1}


def test_a_folder_that_another_run_writes_is_left_alone(films: Path, tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="is being written by another run"):
            run_model(films, "test", tmp_path, AskSettings(), ModelChoice("m", "http://127.0.0.1:9/v1"))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_epochs_have_files_and_seeds_of_their_own(
    films: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reveal_bench.models.running.PART", 3)
    with playing(truth) as (model, _):
        choice = ModelChoice("played", model.url, temperature=0.7, seed=3)
        run_model(films, "test", tmp_path, AskSettings(), choice, epochs=1, limit=3)
        summary = run_model(films, "test", tmp_path, AskSettings(), choice, epochs=2, limit=4)
    assert Counter(body["seed"] for body in model.bodies) == {3: 4, 4: 4}
    assert set(model.answered().values()) == {2}
    assert summary.n_expected == 8
    assert sum(1 for _ in (tmp_path / "logs").iterdir()) == 4  # 3, 1, 3 and 1 questions
    run = read_run(tmp_path)
    assert [(exchange.question, exchange.epoch) for exchange in run.exchanges] == [
        (question, epoch) for question, _, _ in truth.questions[:4] for epoch in (1, 2)
    ]
    assert sorted(path.name for path in tmp_path.glob("predictions*")) == ["predictions-1.jsonl", "predictions-2.jsonl"]
    assert [len(path.read_text().splitlines()) for path in run.predictions] == [4, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": " "}, "`model` must name a model"),
        ({"model": "gpt-5"}, "`model` must be provider/name"),
        ({"model": "m", "endpoint": "ftp://x"}, "`endpoint` must be an http or https URL"),
        ({"model": "m", "endpoint": "https://k:s@x/v1"}, "`endpoint` must not contain a key"),
        ({"model": "m", "endpoint": "http://gpu.example/v1"}, "`endpoint` must be https when"),
        ({"model": "a/b", "max_connections": 0}, "`max_connections` must be a whole number of at least 1, got 0"),
        ({"model": "a/b", "attempt_timeout": 1.5}, "`attempt_timeout` must be a whole number"),
        ({"model": "a/b", "temperature": float("nan")}, "`temperature` must be a number from 0 to inf"),
        ({"model": "a/b", "top_p": 1.5}, "`top_p` must be a number from 0 to 1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_model_that_cannot_be_meant_is_refused(
    options: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVEAL_MODEL_KEY", KEY)
    with pytest.raises(ValueError, match=message):
        ModelChoice(**options)  # type: ignore[arg-type]
