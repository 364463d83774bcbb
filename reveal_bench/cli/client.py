"""Client of a leaderboard's REST API: submit prediction files, follow and withdraw submissions, fetch receipts.

Conventions
-----------
The API has version 1. Errors are RFC 9457 problem documents; :class:`LeaderboardError` contains them. Requests are
repeated after a broken connection, 429 or 503, with growing pauses or the pauses that the server requests. An upload's
idempotency key is computed from its content, so that repeated uploads are queued once.

A token is read from a file or from ``REVEAL_TOKEN``. The token is only sent to its server, never over plain http to
another machine, and never to the target of a redirect.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from reveal_bench.models.endpoints import LOOPBACK, retry_after

if TYPE_CHECKING:
    import ssl

    import httpx

FINAL_STATES = ("scored", "refused", "failed", "withdrawn")
"""Final states of a submission."""

TOKEN_VARIABLE = "REVEAL_TOKEN"
ATTEMPTS = 6
LONGEST_PAUSE = 120.0  # in seconds; a longer wait is reported as an error
LONGEST_POLL = 5.0
ENDED_UNSCORED = ("refused", "failed", "withdrawn")

Document = dict[str, Any]
Progress = Callable[[int, int], None]
Sleep = Callable[[float], None]


class LeaderboardError(ValueError):
    """Error response of the server, with the HTTP `status` and its `problem` document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status, self.problem = status, dict(problem)
        balance = problem.get("balance")
        next_at = balance.get("next_at") if isinstance(balance, dict) else None
        later = f" The next submission is possible from {next_at}." if next_at else ""
        super().__init__(f"the leaderboard answered {status}: {problem.get('detail') or problem.get('title')}{later}")

    @property
    def kind(self) -> str:
        """Name of the problem, such as "quota" for ``/problems/quota``; empty without a problem document."""
        kind = str(self.problem.get("type", ""))
        return kind.removeprefix("/problems/") if kind.startswith("/problems/") else ""


def read_token(file: Path | None = None) -> str | None:
    """Return the token from `file`, otherwise from the environment's ``REVEAL_TOKEN``, otherwise None.

    Raises
    ------
    ValueError
        If the content is not a token; the message does not show the content.
    """
    source, text = (TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)) if file is None else (str(file), _read_text(file))
    if text is None or (file is None and not text.strip()):
        return None
    token = text.strip()
    if not re.fullmatch(r"[!-~]{1,200}", token):
        raise ValueError(f"{source} must contain only a token: one line of printable ASCII")
    return token


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file} must contain a token, got something other than text") from None


@dataclass(frozen=True)
class Upload:
    """A prediction file to upload, with its metadata."""

    path: Path
    benchmark: str
    metadata: Mapping[str, Any]
    allow_missing: bool = False

    def key(self, after: str = "") -> str:
        """Return the Idempotency-Key, a hash of the content and of the state `after` which it is sent."""
        with self.path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        parts = [self.benchmark, self.metadata, self.allow_missing, content, after]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @property
    def fields(self) -> dict[str, str]:
        """Fields of the upload form."""
        texts = {"benchmark": self.benchmark, "metadata": json.dumps(self.metadata)}
        return {**texts, "allow_missing": str(self.allow_missing).lower()}


@dataclass(frozen=True)
class Server:
    """A leaderboard to which requests are sent.

    Parameters
    ----------
    url : address, such as ``https://board.example.org``
    token : from :func:`read_token`; a local leaderboard of one person needs none
    sleep : function that waits the given number of seconds
    """

    url: str
    token: str | None = None
    sleep: Sleep = time.sleep

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"--url must be an http:// or https:// address, got {self.url!r}")
        if self.token is not None and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError(f"a token is only sent over https, but {self.url} uses http to another machine")

    def submit(
        self,
        path: Path,
        *,
        benchmark: str,
        metadata: Mapping[str, Any],
        allow_missing: bool = False,
        progress: Progress | None = None,
    ) -> Document:
        """Upload a prediction file; a repeated upload returns the existing submission.

        A file whose submission was withdrawn, refused or failed is queued again.

        Parameters
        ----------
        metadata : fields of ``submissions/schema/submission.schema.json``
        progress : called with (bytes sent, total bytes)

        Raises
        ------
        LeaderboardError
            If the server refuses the file; `problem` has the lint report.
        ConnectionError
            If no server answers.
        """
        upload = Upload(Path(path), benchmark, metadata, allow_missing)
        document = self._send(upload, upload.key(), progress)
        is_over = document["status"] in ENDED_UNSCORED or document.get("withdrawn_at")
        if is_over and not document.get("is_new", True):
            document = self._send(upload, upload.key(f"{document['id']} {document['updated_at']}"), progress)
        return document

    def _send(self, upload: Upload, key: str, progress: Progress | None) -> Document:
        with upload.path.open("rb") as file:
            stream = _Counted(file, upload.path.stat().st_size, progress)
            files = {"file": (upload.path.name, stream)}
            headers = {"Idempotency-Key": key}
            return self._ask("POST", "/api/v1/submissions", data=upload.fields, files=files, headers=headers)

    def submission(self, submission_id: str) -> Document:
        """Return a submission's state, position in the queue, history and score."""
        return self._ask("GET", _address(submission_id))

    def withdraw(self, submission_id: str) -> Document:
        """Withdraw a submission from the queue or from the leaderboard."""
        return self._ask("DELETE", _address(submission_id))

    def receipt(self, submission_id: str, *, version: str | None = None, part: str | None = None) -> Document:
        """Return the signed receipt of a score, by default of the board's version and the part that ranks."""
        return self._ask(
            "GET", f"{_address(submission_id)}/receipt", params=_named_parameters(version=version, part=part)
        )

    def receipt_keys(self) -> list[Document]:
        """Return the public keys that verify the board's receipts, with ``key_id`` and ``public_key`` (base64)."""
        keys: list[Document] = self._ask("GET", "/api/v1/keys")["keys"]
        return keys

    def leaderboard(self, benchmark: str, *, version: str | None = None) -> Document:
        """Return the leaderboard of a benchmark."""
        return self._ask(
            "GET", "/api/v1/leaderboard", params={"benchmark": benchmark, **_named_parameters(version=version)}
        )

    def follow(self, submission_id: str, *, timeout: float = 600) -> Iterator[Document]:
        """Yield the submission each time its status or queue position changes, until it is final.

        Raises
        ------
        TimeoutError
            If the status is not final after `timeout` seconds. The server continues, so you can follow it again.
        """
        deadline = time.monotonic() + timeout
        last: tuple[Any, Any] | None = None
        pause = 0.5
        while True:
            document = self.submission(submission_id)
            state = (document["status"], document.get("queue_position"))
            if state != last:
                yield document
            last = state
            if document["status"] in FINAL_STATES or document["status"] == "reading":  # readers may take days to score
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"submission {submission_id} is still {document['status']} after {timeout:.0f} s")
            self.sleep(pause)
            pause = min(LONGEST_POLL, 1.3 * pause)

    def wait_until_ready(self, *, seconds: float) -> None:
        """Wait until the leaderboard answers, for at most `seconds`; return at once if `seconds` is 0 or less.

        Raises
        ------
        ConnectionError
            If no answer arrives in time.
        """
        deadline = time.monotonic() + seconds
        while seconds > 0:
            try:
                self._ask("GET", "/readyz", attempts=1)
            except (ConnectionError, LeaderboardError):
                if time.monotonic() > deadline:
                    raise
                self.sleep(0.3)
            else:
                return

    def _ask(self, method: str, path: str, *, attempts: int = ATTEMPTS, **options: Any) -> Document:
        import httpx

        headers = {"Accept": "application/json", **options.pop("headers", {})}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = httpx.Timeout(10, read=300, write=60)
        with httpx.Client(timeout=timeout, headers=headers, follow_redirects=False, verify=_certificates()) as client:
            for attempt in range(1, attempts + 1):
                try:
                    response = client.request(method, self.url.rstrip("/") + path, **options)
                except httpx.TransportError as error:
                    # A refused connection is not retried: `wait_until_ready` waits for a leaderboard that is starting.
                    is_absent = attempt == 1 and isinstance(error, httpx.ConnectError)
                    if is_absent or attempt == attempts:
                        raise ConnectionError(f"no leaderboard answers at {self.url}: {error}") from None
                    self.sleep(_backoff(attempt))
                    continue
                pause = _pause_asked_for(response, attempt)
                if pause is None or attempt == attempts:
                    return _document(response, self.url)
                self.sleep(pause)
        raise AssertionError("unreachable: the last attempt raises or returns")


@cache
def _certificates() -> ssl.SSLContext:
    """Return the TLS certificates that verify a server; cached, because loading takes longer than most requests."""
    import httpx

    return httpx.create_ssl_context()


def _backoff(attempt: int) -> float:
    """Return seconds to wait after a failed attempt: 1, 2, 4 ..., randomly reduced by up to half to spread clients."""
    # This randomness needs no seed because no score depends on it
    return float(2 ** (attempt - 1)) * random.uniform(0.5, 1)


def _pause_asked_for(response: httpx.Response, attempt: int) -> float | None:
    """Return the seconds to wait before repeating a request; None if that is futile or the wait is too long."""
    if response.status_code not in (429, 503):
        return None
    if response.status_code == 429 and "/problems/quota" in response.text[:1000]:
        return None
    pause = retry_after(response.headers)
    if pause is None:
        return _backoff(attempt)
    return pause if pause <= LONGEST_PAUSE else None


def _document(response: httpx.Response, url: str) -> Document:
    try:
        document = response.json()
    except ValueError:
        document = {"title": response.reason_phrase}
    if response.is_error:
        raise LeaderboardError(response.status_code, document if isinstance(document, dict) else {})
    expected = {"id", "entries", "status", "keys", "receipt"}
    if response.status_code >= 300 or not isinstance(document, dict) or not expected & document.keys():
        raise ValueError(f"{url} is not a reveal-bench leaderboard")
    answer: Document = document
    return answer


def _address(submission_id: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{1,32}", submission_id):
        raise ValueError(f"the submission's id must be at most 32 characters from 0-9 and a-f, got {submission_id!r}")
    return f"/api/v1/submissions/{submission_id}"


def _named_parameters(**parameters: str | None) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value is not None}


class _Counted:
    """A file that reports how many bytes were read."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress | None) -> None:
        self._file, self._size, self._progress = file, size, progress

    def read(self, n: int = -1) -> bytes:
        """Return the next `n` bytes."""
        chunk = self._file.read(n)
        if self._progress is not None:
            self._progress(self._file.tell(), self._size)
        return chunk

    def seek(self, place: int, whence: int = 0) -> int:
        """Move to a position; a repeated request starts again at 0."""
        return self._file.seek(place, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def fileno(self) -> int:
        """Return the file descriptor, from which the length is known before reading."""
        return self._file.fileno()
