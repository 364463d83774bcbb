"""What an endpoint sends back for one attempt: an answer, or a fault and whether it passes.

Conventions
-----------
A body is read as data that may hold anything: what is no chat completion is a fault, never an exception.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from reveal_bench.curation.answer_cache import Answer

__all__ = ["Fault", "read_completion", "retry_after"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one attempt; `asked_for` is the pause that the endpoint wants, `status` HTTP's."""

    reason: str
    is_passing: bool = True
    status: int | None = None
    asked_for: float | None = None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the endpoint asks, None if it does not."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * scale
        except ValueError:
            try:
                moment = parsedate_to_datetime(text)
                seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
            except ValueError:
                continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def read_completion(content: bytes) -> Answer | Fault:
    """The answer in the body of a response."""
    try:
        document = json.loads(content)
        choice = document["choices"][0]
        text, refusal = choice["message"].get("content"), choice["message"].get("refusal")
        usage = document.get("usage") or {}
        tokens = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return Fault("HTTP 200 with a body that is no chat completion")
    if not (text is None or isinstance(text, str)):
        return Fault("HTTP 200 with content that is no text")
    counted = [n if isinstance(n, int) and not isinstance(n, bool) and n >= 0 else None for n in tokens]
    named = {"finish": choice.get("finish_reason"), "refusal": refusal, "served_model": document.get("model")}
    texts = {name: value if isinstance(value, str) else None for name, value in named.items()}
    return Answer(text or "", tokens_in=counted[0], tokens_out=counted[1], **texts)
