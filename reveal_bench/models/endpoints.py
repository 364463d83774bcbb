"""Define the rules for endpoints and API keys that every client of a model follows.

:mod:`reveal_bench.models.model_client` (text prompts of the curation) and :mod:`reveal_bench.models.running` (runs with
images, through inspect_ai) follow the same rules. The caller always names the endpoint, because reports and images are
sent to it. The endpoint's key comes from :data:`KEY_VARIABLE` and is sent only to the endpoint: never over plain http
to another machine, and never into a file or a message.

A request is repeated if the connection broke or hung, or the status was 408, 409, 429 or 5xx. The pauses between
repetitions grow, and are at least as long as the endpoint asks for (:func:`retry_after`). A run stops
(:class:`RunStoppedError`) after :data:`IN_A_ROW` failed requests in a row, and at once after a status of :data:`FINAL`.
A request that a content filter refused counts as answered, whatever its status, because the next request may pass the
filter (:func:`names_content_filter`). Times are seconds.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit
from urllib.request import getproxies

from reveal_bench.arguments import ArgumentError

KEY_VARIABLE = "REVEAL_MODEL_KEY"
"""Environment variable with the key; not the SDK's own, so that a provider's key is never sent to another one."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
IN_A_ROW = 10
"""Number of failed requests in a row that stops a run: the endpoint is down, or refuses the key or the model."""
FINAL = (401, 402, 404)
"""HTTP statuses that every further request would also get: no key, no credit, no such model."""

FILTERED = (400, 403, 422, 451)
"""HTTP statuses with which content filters are known to refuse a request."""
CONTENT_FILTER = re.compile(
    r"(?i)content[ _-]?(?:filter|polic|management polic|moderation)|safety (?:system|filter|polic)|\bflagged\b"
    r"|(?:inappropriate|sensitive|prohibited|harmful|unsafe)[ _]content|data_?inspection_?failed|responsibleaipolicy"
)
"""Wording of refusals by the content filters of Azure, OpenAI, DashScope, OpenRouter and others; some send no code."""

LONGEST_REASON = 1000
KEY_VARIABLES = ("_KEY", "_TOKEN", "_SECRET")
"""Endings of the names of environment variables that contain keys, such as :data:`KEY_VARIABLE`."""
SHORTEST_KEY = 6
SECRETS = ((re.compile(r"https?://[^\s'\"]+"), "<address>"), (re.compile(r"(?i)\bbearer\s+[^\s'\",)]+"), "Bearer ***"))


class RunStoppedError(ValueError):
    """The run stopped because the endpoint does not answer requests; earlier answers are kept.

    `status` is the HTTP status of the last response; None without a response.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def check_endpoint(endpoint: str) -> None:
    """Raise ValueError unless `endpoint` is an http or https URL to which reports, images and the key may go."""
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ArgumentError("endpoint", "must be an http or https URL", repr(endpoint))
    if url.username or url.password:
        raise ArgumentError("endpoint", f"must not contain a key. Put it in ${KEY_VARIABLE}")
    if os.environ.get(KEY_VARIABLE) and url.scheme == "http" and url.hostname not in LOOPBACK:
        rule = f"must be https when ${KEY_VARIABLE} is set: keys are not sent over plain http to another machine"
        raise ArgumentError("endpoint", rule, repr(endpoint))


def check_reachable(endpoint: str) -> None:
    """Raise ValueError if nothing listens at an endpoint; otherwise, a run would repeat requests for many minutes."""
    url = urlsplit(endpoint)
    if url.scheme == "https" and getproxies():  # only the proxy connects to the endpoint
        return
    try:
        socket.create_connection((url.hostname, url.port or {"http": 80}.get(url.scheme, 443)), timeout=20).close()
    except OSError as error:
        rule = "must be the address of a running server"
        raise ArgumentError("endpoint", rule, f"{endpoint}: {error.strerror or error}") from None


def is_sealed(endpoint: str) -> bool:
    """Return True if requests go to another machine over https, so that no proxy on the way can read them."""
    url = urlsplit(endpoint)
    return url.scheme == "https" and url.hostname not in LOOPBACK


def names_content_filter(status: int | None, message: str) -> bool:
    """Return True if a content filter refused the request, judged by the wording because a code may be missing.

    Examples
    --------
    >>> names_content_filter(400, "The response was filtered due to the content management policy.")
    True
    >>> names_content_filter(400, "Unknown parameter: 'temperature'.")
    False
    """
    return status in FILTERED and CONTENT_FILTER.search(message) is not None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the pause that the endpoint asks for, in seconds; None if it does not ask for one."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * scale
        except ValueError:
            try:
                date = parsedate_to_datetime(text)
                seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
            except (ValueError, OverflowError):
                continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    return None


def reason_text(reason: str) -> str:
    """Return a reason on one line, without the keys and addresses that messages of endpoints and the SDK repeat."""
    line = " ".join(reason.split())
    keys = {value for name, value in os.environ.items() if name.endswith(KEY_VARIABLES) and len(value) >= SHORTEST_KEY}
    for key in sorted(keys, key=len, reverse=True):
        line = line.replace(key, "***")
    for pattern, replacement in SECRETS:
        line = pattern.sub(replacement, line)
    return line[:LONGEST_REASON]
