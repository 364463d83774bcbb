"""Responses that deviate from the API, each beside what the API would say."""

from __future__ import annotations

from typing import Any

import pytest

from reveal_bench.models.chat_responses import normalised

USAGE = {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8}


def response(content: Any = "Cell: D5", **rest: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"id": "c", "model": "m", "choices": [choice], "usage": USAGE, **rest}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"error": {"message": "overloaded"}}, 502),
        (200, {"error": {"message": "overloaded", "code": "503"}}, 503),
        (200, {"error": {"message": "no credit", "code": 402}, "choices": []}, 402),
        (200, {"error": {"message": "odd", "code": 1234}}, 502),
        (200, {"error": "overloaded"}, 502),
        (200, response(choices=[]), 502),
        (200, response(choices=None), 502),
        (429, {"error": {"message": "quota", "type": "insufficient_quota"}}, 402),
        (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, 429),
        (429, {"error": "slow down"}, 429),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, 413),
        (400, {"error": {"message": "blocked", "code": "content_filter"}}, 400),
        (200, {"object": "list", "data": []}, 200),
        (200, [1, 2], 200),
    ],
)
def test_status(status: int, body: Any, expected: int) -> None:
    assert normalised(status, body)[0] == expected


def test_the_providers_words_stay() -> None:
    assert normalised(200, {"error": {"message": "overloaded"}})[1]["error"]["message"] == "overloaded"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([{"type": "text", "text": "Cell: "}, {"type": "text", "text": "D5"}], "Cell: D5"),
        ([{"type": "thinking", "thinking": "C4"}, {"type": "text", "text": "Cell: D5"}], "Cell: D5"),
        ([{"type": "reasoning", "text": "C4"}, {"type": "output_text", "text": "Cell: D5"}], "Cell: D5"),
        ([], ""),
        ("Cell: D5", "Cell: D5"),
        (None, None),
    ],
)
def test_content(content: Any, expected: str | None) -> None:
    assert normalised(200, response(content))[1]["choices"][0]["message"]["content"] == expected


def test_thinking_is_kept_apart() -> None:
    message = normalised(200, response([{"type": "thinking", "thinking": "C4"}]))[1]["choices"][0]["message"]
    assert "C4" in message["reasoning_content"]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": 1}, "many"])
def test_token_counts_that_are_no_numbers_are_none(usage: Any) -> None:
    assert normalised(200, response(usage=usage))[1]["usage"] is None


def test_a_regular_response_is_unchanged() -> None:
    assert normalised(200, response()) == (200, response())
