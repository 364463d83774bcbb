"""A client with a misbehaving endpoint: retries, stops, stored completions, costs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.curation.report_prompts import labelled_findings_prompt
from reveal_bench.models.endpoints import KEY_VARIABLE, RunStoppedError
from reveal_bench.models.model_client import (
    Completion,
    CompletionStore,
    Dialogue,
    ModelClient,
    ModelRequest,
    ModelSettings,
    RequestFailure,
    RetryPolicy,
    content_key,
)
from reveal_bench.models.prices import Prices
from tests.conftest import ROOT
from tests.curation import model_server
from tests.curation.model_server import BODIES, ModelServer, phantom_reports, running_model

TRUTH = phantom_reports(12)
REPORTS = list(TRUTH)
QUICK = RetryPolicy(attempts=3, attempt_timeout=30, first_pause=0.005, longest_pause=0.05)
KEY = "sk-do-not-tell-anybody"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with running_model(TRUTH) as running:
        yield running


def client(url: str, cache: Path, **options: Any) -> ModelClient:
    settings = options.pop("settings", ModelSettings("phantom-1"))
    return ModelClient(settings, url, cache, **{"retry_policy": QUICK, "max_connections": 4, **options})


def questions(n: int = len(REPORTS)) -> list[ModelRequest]:
    return [labelled_findings_prompt(report).request for report in REPORTS[:n]]


def one_question(request: ModelRequest) -> Dialogue[tuple[ModelRequest, Completion | RequestFailure]]:
    return request, (yield request)


def ask_all(
    client: ModelClient, requests: list[ModelRequest]
) -> Iterator[tuple[ModelRequest, Completion | RequestFailure]]:
    return client.run(map(one_question, requests))


def outcomes(client: ModelClient, requests: list[ModelRequest]) -> list[Completion | RequestFailure]:
    """Return the outcomes in the order of the requests."""
    by_messages = {request.messages: outcome for request, outcome in ask_all(client, requests)}
    return [by_messages[request.messages] for request in requests]


def test_every_request_is_answered_once(model: ModelServer, tmp_path: Path) -> None:
    asking = client(model.url, tmp_path)
    answers = outcomes(asking, questions())
    texts = [json.loads(answer.text) for answer in answers if isinstance(answer, Completion)]
    sets = [{label for label in text["benchmark_labels"] if label != "None"} for text in texts]
    assert sets == [set(labels) for labels in TRUTH.values()]
    assert asking.spent.requests == asking.spent.answered == len(model.asked) == 12
    assert asking.counts()["served_models"] == ["phantom-1-2026-01-01"]


def test_the_body_says_model_settings_and_schema(model: ModelServer, tmp_path: Path) -> None:
    settings = ModelSettings("phantom-1", seed=5, max_tokens=None, extra={"top_k": 1})
    list(ask_all(client(model.url, tmp_path, settings=settings), questions(1)))
    body = model.asked[0]
    assert body.keys() == {"model", "messages", "temperature", "seed", "response_format", "top_k"}
    assert (body["model"], body["temperature"], body["seed"], body["top_k"]) == ("phantom-1", 0, 5, 1)
    held = body["response_format"]["json_schema"]
    assert held["strict"] is True
    assert held["schema"]["properties"].keys() == {"key_findings", "benchmark_labels"}


@pytest.mark.parametrize(("structure", "expected"), [("object", {"type": "json_object"}), ("none", None)])
def test_endpoints_without_schemas_are_not_sent_one(structure: Any, expected: Any) -> None:
    assert ModelSettings("m", structure=structure).body(questions(1)[0]).get("response_format") == expected


PASSING = ["408", "429", "500", "503", "reset", *BODIES]


def test_what_passes_is_outlasted(model: ModelServer, tmp_path: Path) -> None:
    assert len(PASSING) == 10
    model.faults = {report: [fault] for report, fault in zip(REPORTS, PASSING, strict=False)}
    asking = client(model.url, tmp_path, max_connections=6)
    answers = outcomes(asking, questions())
    assert all(isinstance(answer, Completion) for answer in answers)
    assert asking.spent.retries == 10
    assert asking.spent.requests == len(model.asked) == 22
    assert asking.spent.failures == 0


def test_a_hang_is_not_waited_for(model: ModelServer, tmp_path: Path) -> None:
    """A body that never ends is not waited for either, although no single read is slow."""
    model.faults = {REPORTS[0]: ["hang"], REPORTS[1]: ["trickle"]}
    retry_policy = RetryPolicy(attempts=9, attempt_timeout=0.5, first_pause=0.005)
    asking = client(model.url, tmp_path, retry_policy=retry_policy)
    answers = outcomes(asking, questions(4))
    assert all(isinstance(answer, Completion) for answer in answers)
    assert model.faults == {REPORTS[0]: [], REPORTS[1]: []}
    assert asking.spent.retries >= 2


def test_the_pause_that_the_endpoint_asks_for_is_heeded(model: ModelServer, tmp_path: Path) -> None:
    asked_for: list[float | None] = []

    class Noting(RetryPolicy):
        def pause(self, n_failed: int, asked: float | None) -> float:
            asked_for.append(asked)
            return 0.0

    model.faults = {REPORTS[0]: ["429", "503", "500"]}
    list(ask_all(client(model.url, tmp_path, retry_policy=Noting()), questions(1)))
    assert asked_for == [0.02, 0.0, None]


@pytest.mark.parametrize("fault", ["500", "429", "reset", "not JSON"])
def test_what_does_not_pass_is_given_up(fault: str, model: ModelServer, tmp_path: Path) -> None:
    model.faults = {REPORTS[0]: [fault] * 9}
    asking = client(model.url, tmp_path)
    failed, answered = outcomes(asking, questions(2))
    assert isinstance(failed, RequestFailure)
    assert failed.reason.endswith("in the last of 3 attempts")
    assert isinstance(answered, Completion)
    assert len(model.asked) == 4
    assert len(list(tmp_path.rglob("*.json"))) == 1


def test_a_refused_request_is_not_sent_again(
    model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    model.faults = {REPORTS[0]: ["400"] * 9}
    refused, answered = outcomes(client(model.url, tmp_path), questions(2))
    assert refused == RequestFailure("HTTP 400: 400 of Bearer ***")
    assert isinstance(answered, Completion)
    assert len(model.asked) == 2


@pytest.mark.parametrize("status", ["401", "404", "307"])
def test_what_every_request_would_get_ends_the_run(
    status: str, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    model.faults = {REPORTS[3]: [status]}
    with pytest.raises(RunStoppedError, match=rf"key: \$REVEAL_MODEL_KEY.*HTTP {status}") as raised:
        list(ask_all(client(model.url, tmp_path, max_connections=1), questions()))
    assert KEY not in str(raised.value)
    assert len(model.asked) == 4
    assert len(list(tmp_path.rglob("*.json"))) == 3


def test_failures_in_a_row_end_the_run(model: ModelServer, tmp_path: Path) -> None:
    model.faults = {report: ["400"] for report in REPORTS[4:]}
    retry_policy = RetryPolicy(attempts=1, in_a_row=3)
    with pytest.raises(RunStoppedError, match="3 requests in a row were not answered; last reason: HTTP 400"):
        list(ask_all(client(model.url, tmp_path, max_connections=1, retry_policy=retry_policy), questions()))
    assert len(model.asked) == 7


def test_a_content_filter_ends_nothing(model: ModelServer, tmp_path: Path) -> None:
    model.faults = {report: ["flagged by moderation"] for report in REPORTS[:4]}
    asking = client(model.url, tmp_path, max_connections=1, retry_policy=RetryPolicy(attempts=2, in_a_row=3))
    filtered = outcomes(asking, questions())[:4]
    assert filtered == [Completion("", finish="content_filter")] * 4
    assert len(model.asked) == len(REPORTS)


def test_an_endpoint_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    with running_model(TRUTH) as model:
        gone = model.url
    with pytest.raises(RunStoppedError, match="no request was answered"):
        list(ask_all(client(gone, tmp_path), questions(2)))


def test_so_many_requests_as_allowed_are_under_way(model: ModelServer, tmp_path: Path) -> None:
    model.gated_from = 0  # no answer before four have come

    def open_at_four() -> None:
        model.wait_for_open(4)
        model.open_gate()

    opener = threading.Thread(target=open_at_four)
    opener.start()
    asked = list(ask_all(client(model.url, tmp_path, max_connections=4, retry_policy=RetryPolicy()), questions()))
    opener.join()
    assert len(asked) == 12
    assert model.peak == 4


def test_who_stops_listening_can_ask_again(model: ModelServer, tmp_path: Path) -> None:
    asking = client(model.url, tmp_path)
    some = ask_all(asking, questions())
    assert isinstance(some, Generator)
    next(some)
    some.close()
    assert len(outcomes(asking, questions())) == 12


# What is kept ---------------------------------------------------------------------------------------------------------


def test_what_is_known_is_not_asked_again(model: ModelServer, tmp_path: Path) -> None:
    first = outcomes(client(model.url, tmp_path), questions())
    with running_model(TRUTH) as other:  # at another address
        again = client(other.url, tmp_path, prices=Prices(Decimal(1), Decimal(1)))
        assert outcomes(again, questions()) == first
        assert other.asked == []
    assert (again.spent.cached, again.spent.requests) == (12, 0)
    assert again.spent.cost == Decimal(0)


@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings("phantom-2"),
        ModelSettings("phantom-1", temperature=0.7),
        ModelSettings("phantom-1", seed=1),
        ModelSettings("phantom-1", max_tokens=100),
        ModelSettings("phantom-1", extra={"top_k": 1}),
    ],
    ids=["model", "temperature", "seed", "max_tokens", "extra"],
)
def test_other_settings_ask_anew(settings: ModelSettings, model: ModelServer, tmp_path: Path) -> None:
    list(ask_all(client(model.url, tmp_path), questions(2)))
    list(ask_all(client(model.url, tmp_path, settings=settings), questions(2)))
    assert len(model.asked) == 4


def test_another_prompt_or_schema_asks_anew(model: ModelServer, tmp_path: Path) -> None:
    (system, report), name, schema = questions(1)[0].messages, "labelled_findings", questions(1)[0].schema
    changed = [
        ModelRequest(((system[0], system[1] + " "), report), name, schema),
        ModelRequest((system, report), name, {**schema, "required": []}),
    ]
    list(ask_all(client(model.url, tmp_path), [*questions(1), *changed]))
    assert len(model.asked) == 3


def test_the_same_question_at_once_is_asked_once(model: ModelServer, tmp_path: Path) -> None:
    asking = client(model.url, tmp_path)
    answers = [answer for _, answer in ask_all(asking, questions(1) * 5)]
    assert len(answers) == 5
    assert len(set(map(str, answers))) == 1
    assert len(model.asked) == 1
    assert asking.counts()["answers"] == 1


def test_a_damaged_answer_is_asked_for_again(model: ModelServer, tmp_path: Path) -> None:
    first = outcomes(client(model.url, tmp_path), questions(2))
    kept = sorted(tmp_path.rglob("*.json"))
    kept[0].write_bytes(kept[0].read_bytes()[:40])
    assert outcomes(client(model.url, tmp_path), questions(2)) == first
    assert len(model.asked) == 3


def test_a_completion_under_another_key_is_not_used(tmp_path: Path) -> None:
    cache, one, two = CompletionStore(tmp_path), content_key({"a": 1}), content_key({"a": 2})
    cache.write(one, Completion("yes"))
    two_path = tmp_path / two[:2] / f"{two}.json"
    two_path.parent.mkdir(exist_ok=True)
    two_path.write_bytes((tmp_path / one[:2] / f"{one}.json").read_bytes())
    assert cache.find(one) == Completion("yes")
    assert cache.find(two) is None


def test_keys_do_not_depend_on_the_order_of_fields() -> None:
    assert content_key({"a": 1, "b": [1, 2]}) == content_key({"b": [1, 2], "a": 1})
    assert content_key({"a": [1, 2]}) != content_key({"a": [2, 1]})


def test_no_file_holds_the_key(model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    model.faults = {REPORTS[0]: ["400"], REPORTS[1]: ["500"]}
    results = outcomes(client(model.url, tmp_path), questions())
    assert model.keys == {f"Bearer {KEY}"}
    assert KEY not in repr(results)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 11
    assert not any(KEY.encode() in path.read_bytes() or KEY in path.name for path in files)


def test_without_a_key_none_is_sent(model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)  # is for somebody else
    list(ask_all(client(model.url, tmp_path), questions(1)))
    assert model.keys == {"Bearer none"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nothing_of_the_environment_is_sent_or_between(
    host: str, model: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second endpoint acts as a proxy, which would get the key and the reports."""
    seen: list[dict[str, str]] = []
    post = model_server.Handler.do_POST

    def noting(handler: model_server.Handler) -> None:
        seen.append({name.casefold(): value for name, value in handler.headers.items()})
        post(handler)

    monkeypatch.setattr(model_server.Handler, "do_POST", noting)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "for-somebody-else")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: for-somebody-else\nAuthorization: Bearer for-somebody-else")
    with running_model(TRUTH) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "" if name.upper() == "NO_PROXY" else proxy.url.removesuffix("/v1"))
        outcomes(client(model.url.replace("127.0.0.1", host), tmp_path), questions(3))
        assert proxy.asked == []
    assert len(seen) == len(model.asked) == 3
    assert {headers["authorization"] for headers in seen} == {f"Bearer {KEY}"}
    assert not {"openai-organization", "openai-project", "x-team"} & seen[0].keys()
    assert "for-somebody-else" not in str(seen)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [("https://model.example.org/v1", True), ("https://localhost/v1", False), ("http://model.example.org/v1", False)],
    ids=["https", "https loopback", "plain http"],
)
def test_proxies_are_for_https_to_another_machine(
    endpoint: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert client(endpoint, tmp_path)._client()._client.trust_env is expected


# What it costs --------------------------------------------------------------------------------------------------------


def test_cost_is_tokens_times_price_exactly(model: ModelServer, tmp_path: Path) -> None:
    prices = Prices(Decimal("2.50"), Decimal("10.01"))
    asking = client(model.url, tmp_path, prices=prices)
    model.faults = {REPORTS[0]: ["500"], REPORTS[1]: ["400"]}
    outcomes(asking, questions())
    tokens_in, tokens_out = (sum(column) for column in zip(*model.usage, strict=True))
    millionths = 250 * tokens_in + 1001 * tokens_out  # of a hundredth
    assert asking.spent.cost == Decimal(millionths) / Decimal(100_000_000)
    counts = asking.counts()
    assert (counts["tokens_in"], counts["tokens_out"]) == (tokens_in, tokens_out)
    assert Decimal(counts["cost"]) == asking.spent.cost
    assert counts["answers"] == 11


def test_counts_are_the_same_whoever_paid(model: ModelServer, tmp_path: Path) -> None:
    whole = client(model.url, tmp_path / "a", prices=(prices := Prices(Decimal("0.15"), Decimal("0.60"))))
    outcomes(whole, questions())
    outcomes(client(model.url, tmp_path / "b"), questions(5))
    resumed = client(model.url, tmp_path / "b", prices=prices)
    outcomes(resumed, questions())
    assert resumed.counts() == whole.counts()
    assert (resumed.spent.cached, resumed.spent.answered) == (5, 7)


def test_answers_without_usage_are_counted(model: ModelServer, tmp_path: Path) -> None:
    model.faults = {REPORTS[0]: ["no usage"]}
    asking = client(model.url, tmp_path, prices=Prices(Decimal(1), Decimal(1)))
    outcomes(asking, questions(3))
    counts = asking.counts()
    assert counts["answers_without_usage"] == 1
    assert Decimal(counts["cost"]) * 10**6 == sum(map(sum, model.usage))


def test_large_costs_are_exact() -> None:
    """10^12 tokens at 0.123456789 and 1 token at 10^-9 a million."""
    prices = Prices(Decimal("0.123456789"), Decimal("0.000000001"))
    assert prices.cost(10**12, 1) == Decimal("123456.789000000000001")


# Arguments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoint": "model.example.org/v1"}, "must be an http or https URL"),
        ({"endpoint": "ftp://model.example.org"}, "must be an http or https URL"),
        ({"endpoint": "https://me:secret@model.example.org"}, "must not contain a key"),
        ({"endpoint": "http://model.example.org/v1"}, "keys are not sent over plain http to another machine"),
        ({"max_connections": 0}, "`max_connections` must be at least 1, got 0"),
    ],
)
def test_bad_clients_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with pytest.raises(ValueError, match=message) as raised:
        ModelClient(ModelSettings("m"), **{"endpoint": "https://model.example.org/v1", "cache": tmp_path, **options})
    assert KEY not in str(raised.value)


def test_a_dialogue_may_ask_nothing(model: ModelServer, tmp_path: Path) -> None:
    def silent() -> Dialogue[str]:
        return "done"
        yield questions(1)[0]

    assert list(client(model.url, tmp_path).run([silent()])) == ["done"]
    assert model.asked == []


def test_importing_the_curation_imports_no_client() -> None:
    code = (
        "import sys, reveal_bench.curation.model_engine;"
        "print(sorted({'openai', 'httpx', 'httpx2', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
