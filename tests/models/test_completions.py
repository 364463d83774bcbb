"""Responses of an endpoint, pauses between attempts, and invalid settings."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest

from reveal_bench.models.endpoints import retry_after
from reveal_bench.models.model_client import Completion, FailedAttempt, ModelSettings, RetryPolicy, read_completion
from reveal_bench.models.prices import Prices


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelSettings(" "), "`model` must name a model"),
        (lambda: ModelSettings("m", structure="xml"), "`structure` must be"),  # type: ignore[arg-type]
        (lambda: ModelSettings("m", extra={"messages": []}), "`extra` must not set messages"),
        (lambda: RetryPolicy(attempts=0), "`attempts` and `in_a_row` must be at least 1, got 0"),
        (lambda: RetryPolicy(attempt_timeout=0), "must be positive"),
        (lambda: RetryPolicy(first_pause=9, longest_pause=3), "`first_pause` <= `longest_pause`"),
        (lambda: Prices(Decimal("-1"), Decimal(1)), "`tokens_in` must be a Decimal of at least 0"),
        (lambda: Prices(Decimal(1), 0.6), "`tokens_out` must be a Decimal of at least 0, got 0.6"),  # type: ignore[arg-type]
        (lambda: Prices(Decimal(1), Decimal("NaN")), "`tokens_out` must be a Decimal"),
    ],
)
def test_bad_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_pauses_grow_and_heed_the_endpoint() -> None:
    retry_policy = RetryPolicy(first_pause=1, longest_pause=60)
    assert 0.75 <= retry_policy.pause(1, None) <= 1
    assert 3 <= retry_policy.pause(3, None) <= 4
    assert 45 <= retry_policy.pause(2000, None) <= 60
    assert retry_policy.pause(1, 7.5) == 7.5
    assert 3 <= retry_policy.pause(3, 0.5) <= 4
    assert retry_policy.pause(1, 86_400) == 60


LATER, EARLIER = (datetime.now(UTC) + timedelta(hours=sign) for sign in (2, -2))


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry-after": "3"}, 3, 3),
        ({"retry-after": "0.5"}, 0.5, 0.5),
        ({"retry-after-ms": "20", "retry-after": "3"}, 0.02, 0.02),
        ({"retry-after": format_datetime(LATER, usegmt=True)}, 3600, 7200),
    ],
    ids=["seconds", "fraction", "milliseconds", "date"],
)
def test_the_endpoint_says_when_to_come_back(headers: dict[str, str], low: float, high: float) -> None:
    seconds = retry_after(headers)
    assert seconds is not None
    assert low <= seconds <= high


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-3",
        "nan",
        "inf",
        format_datetime(EARLIER, usegmt=True),
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
    ],
    ids=range(8),
)
def test_nonsense_about_when_to_come_back_is_ignored(text: str) -> None:
    assert retry_after({"retry-after": text}) is None


def completion(message: Any, **rest: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, **rest}]}).encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (completion({"content": "x"}), Completion("x")),
        (completion({"content": "x"}, finish_reason="stop"), Completion("x", "stop")),
        (completion({"content": None}, finish_reason="length"), Completion("", "length")),
        (completion({"content": None, "refusal": "no"}), Completion("", refusal="no")),
        (completion({"content": "x", "refusal": 3}, finish_reason=1), Completion("x")),
        (b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": true}}', Completion("x")),
        (b'{"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 7}}', Completion("x", tokens_in=7)),
    ],
)
def test_completions_are_read(content: bytes, expected: Completion) -> None:
    assert read_completion(content) == expected


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"\xff", b'{"choices": null}', completion("x"), completion({"content": ["x"]}),
     b'{"choices": [{"message": {"content": "x"}}], "usage": 3}', b"[" * 100_000],
    ids=["empty", "null", "list", "no UTF-8", "no choices", "text", "parts", "usage", "deep"],
)  # fmt: skip
def test_what_is_no_completion_is_a_passing_fault(content: bytes) -> None:
    outcome = read_completion(content)
    assert isinstance(outcome, FailedAttempt)
    assert outcome.is_passing
    assert outcome.reason.startswith("HTTP 200 with")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Completion("x", "stop"), None),
        (Completion("x", "length"), "the answer was cut off at the largest number of tokens"),
        (Completion("", "content_filter"), "the answer was held back by a content filter"),
        (Completion("", refusal="I am sorry"), "the model would not answer: I am sorry"),
    ],
)
def test_answers_that_are_not_to_be_read(answer: Completion, fault: str | None) -> None:
    assert answer.fault == fault
