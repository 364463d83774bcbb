"""Talking to a leaderboard: upload a prediction file, follow it to its score.

The server's REST API is version 1; errors are RFC 9457 problem documents, whose ``detail`` and lint report are passed
on in :class:`SubmissionRefusedError`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["FINAL_STATES", "SubmissionRefusedError", "follow", "leaderboard", "submit", "wait_until_ready"]

FINAL_STATES = ("scored", "refused", "failed")
"""States of a submission that change no more."""

Document = dict[str, Any]


class SubmissionRefusedError(ValueError):
    """The server answered with an error; `problem` is its problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.problem = dict(problem)
        super().__init__(f"the leaderboard answered {status}: {problem.get('detail') or problem.get('title')}")


def submit(
    path: Path, *, url: str, benchmark: str, metadata: Mapping[str, Any], allow_missing: bool = False
) -> Document:
    """Upload a prediction file; sending the same file again returns the submission there already is.

    Parameters
    ----------
    url : address of the leaderboard, such as ``http://127.0.0.1:7860``
    metadata : as ``submissions/schema/submission.schema.json`` describes

    Returns
    -------
    dict with at least ``id`` and ``status``

    Raises
    ------
    SubmissionRefusedError
        If the server refuses it; the lint report is in `problem`.
    ConnectionError
        If there is no server at `url`.
    """
    fields = {"benchmark": benchmark, "metadata": json.dumps(metadata), "allow_missing": str(allow_missing).lower()}
    with Path(path).open("rb") as file:
        return _request("POST", url, "/api/v1/submissions", data=fields, files={"file": (Path(path).name, file)})


def follow(
    submission_id: str, *, url: str, timeout: float = 600, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Document]:
    """Yield the submission each time its status or queue position changes, until it is final.

    Raises
    ------
    TimeoutError
        If it is not final after `timeout` seconds; it goes on, and can be followed again.
    """
    deadline = time.monotonic() + timeout
    last: tuple[Any, Any] | None = None
    while True:
        document = _request("GET", url, f"/api/v1/submissions/{submission_id}")
        state = (document["status"], document.get("queue_position"))
        if state != last:
            yield document
        last = state
        if document["status"] in FINAL_STATES:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"submission {submission_id} is still {document['status']} after {timeout:.0f} s")
        sleep(0.5)


def wait_until_ready(url: str, *, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until a leaderboard answers at `url`, for at most `seconds`; without patience, return at once.

    Raises
    ------
    ConnectionError
        If there is none in time.
    """
    deadline = time.monotonic() + seconds
    while seconds > 0:
        try:
            _request("GET", url, "/readyz")
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            sleep(0.3)
        else:
            return


def leaderboard(*, url: str, benchmark: str) -> Document:
    """The board of `benchmark` as the API gives it."""
    return _request("GET", url, "/api/v1/leaderboard", params={"benchmark": benchmark})


def _request(method: str, url: str, path: str, **options: Any) -> Document:
    import httpx

    try:
        response = httpx.request(method, url.rstrip("/") + path, timeout=120, **options)
    except httpx.TransportError as error:
        raise ConnectionError(f"no leaderboard answers at {url}: {error}") from None
    try:
        document = response.json()
    except ValueError:
        document = {"title": response.reason_phrase}
    if response.is_error:
        raise SubmissionRefusedError(response.status_code, document if isinstance(document, dict) else {})
    if not isinstance(document, dict) or not {"id", "entries", "status"} & document.keys():
        raise ValueError(f"{url} answers, but not as a leaderboard of this kind does")
    answer: Document = document
    return answer
