"""Bring responses of OpenAI-compatible endpoints into the form that the API defines, before the SDK reads them.

Conventions
-----------
Servers, gateways and routers deviate in ways that the SDK turns into a lost answer or an unclear error:

=====================================================  ========================================================
response                                               becomes
=====================================================  ========================================================
200 with an error and no choices                       the error's own HTTP status, otherwise 502 (asked again)
200 without choices                                    502 (asked again)
429 "insufficient_quota"                               402 (not asked again: waiting does not help)
400 "context_length_exceeded"                          413, so that the question fails with the message
content as a list of parts                             the text parts; thinking is moved to `reasoning_content`
no model, or token counts that are no numbers          an empty name; no token counts
=====================================================  ========================================================

Everything else is left as it is.
"""

from __future__ import annotations

import json
from typing import Any


def normalised(status: int, body: Any) -> tuple[int, Any]:
    """Return the status and the JSON body of a response in the form that the API defines.

    Examples
    --------
    >>> normalised(200, {"error": {"message": "Provider returned error", "code": 503}})[0]
    503
    >>> normalised(429, {"error": {"message": "No credit", "code": "insufficient_quota"}})[0]
    402
    """
    if not isinstance(body, dict):
        return status, body
    error = body.get("error")
    fault: dict[str, Any] = error if isinstance(error, dict) else {}
    words = {str(fault.get(key)) for key in ("code", "type")}
    if status == 429 and "insufficient_quota" in words:
        return 402, body
    if status == 400 and "context_length_exceeded" in words:
        return 413, {"error": {**fault, "code": "request_too_long"}}
    if status != 200 or (error is None and "choices" not in body):
        return status, body
    if not body.get("choices"):
        return _status_of(str(fault.get("code"))), {"error": error or {"message": "the response has no choices"}}
    usage = body.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    is_counted = all(type(counts.get(key)) is int for key in ("prompt_tokens", "completion_tokens"))
    if not is_counted:
        usage = None
    choices = [_choice(choice) for choice in body["choices"]]
    return status, {**body, "model": body.get("model") or "", "usage": usage, "choices": choices}


def _status_of(code: str) -> int:
    return int(code) if code.isdecimal() and 400 <= int(code) <= 599 else 502


def _choice(choice: Any) -> Any:
    """Return a choice whose content is a text."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return choice
    parts = [part for part in message["content"] if isinstance(part, dict)]
    text = "".join(str(part.get("text", "")) for part in parts if part.get("type") in ("text", "output_text"))
    thinking = json.dumps([part for part in parts if part.get("type") in ("thinking", "reasoning")])
    thought = {"reasoning_content": thinking} if thinking != "[]" else {}
    return {**choice, "message": {**thought, **message, "content": text}}


async def normalise_response(response: Any) -> None:
    """Normalise a response of the SDK's HTTP client; a hook for its event "response".

    `response` is a ``Response`` of httpx or httpx2; which of them the SDK uses depends on its version. A body that is
    not JSON, such as a stream, is left as it is.
    """
    if "json" not in response.headers.get("content-type", ""):
        return
    content = await response.aread()
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return
    status, changed = normalised(response.status_code, body)
    if status != response.status_code or changed is not body:
        response.status_code, response._content = status, json.dumps(changed).encode()
