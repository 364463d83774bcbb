"""The client against a server with every kind of failure."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.cli.client import LeaderboardError, Server, Upload, read_token

ID = "0123456789abcdef"
METADATA = {"model": {"name": "Pointer"}, "organization": "Example", "kind": "cnn"}
Answer = tuple[int, dict[str, str], dict[str, Any]]
BROKEN: Answer = (0, {}, {})
"""Marker for a connection that is closed without an answer."""


@dataclass
class Script:
    """A server that sends the answers in turn, then repeats the last one, and records the requests."""

    answers: list[Answer]
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    url: str = ""

    def server(self, token: str | None = None) -> Server:
        return Server(self.url, token, sleep=self.waited.append)


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    running = []

    def start(*answers: Answer) -> Script:
        server_script = Script(list(answers))

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server_script.requests.append((self.command, self.path, dict(self.headers), body))
                status, headers, document = (
                    server_script.answers.pop(0) if len(server_script.answers) > 1 else server_script.answers[0]
                )
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                content = json.dumps(document).encode()
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 - named by the base class

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server_script.url = f"http://127.0.0.1:{server.server_port}"
        return server_script

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def ok(status: str = "queued", **more: Any) -> Answer:
    return 200, {}, {"id": ID, "status": status, "updated_at": "2026-11-21T23:05:00Z", "is_new": True, **more}


def problem(status: int, kind: str, **headers: str) -> Answer:
    return status, headers, {"type": f"/problems/{kind}", "title": kind, "status": status, "detail": f"no {kind}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(b"x" * 200_000)
    return path


def send(server_script: Script, file: Path, **options: Any) -> dict[str, Any]:
    return server_script.server("t0ken").submit(file, benchmark="chexlocalize", metadata=METADATA, **options)


def test_used_up_budget_says_when_it_goes_on() -> None:
    used_up = {"detail": "Nothing is left today.", "balance": {"next_at": "2026-11-29T00:00:00Z"}}
    assert str(LeaderboardError(429, used_up)).endswith(
        "today. The next submission is possible from 2026-11-29T00:00:00Z."
    )
    assert str(LeaderboardError(429, {"detail": "Nothing is left.", "balance": {"next_at": None}})).endswith("is left.")


@pytest.mark.parametrize(
    "failure", [BROKEN, problem(503, "not-ready"), problem(429, "rate")], ids=["broken", "not-ready", "rate"]
)
def test_temporary_failure_is_retried_with_the_same_key(
    script: Callable[..., Script], file: Path, failure: Answer
) -> None:
    server_script = script(failure, failure, ok())
    assert send(server_script, file)["id"] == ID
    assert len(server_script.requests) == 3
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in server_script.requests}) == 1
    assert all(body.count(b"x" * 200_000) == 1 for _, _, _, body in server_script.requests)
    assert len(server_script.waited) == 2
    assert 0.5 <= server_script.waited[0] <= 1 <= server_script.waited[1] <= 2


def test_client_waits_as_long_as_the_server_asks(script: Callable[..., Script]) -> None:
    server_script = script(problem(429, "rate", **{"Retry-After": "17"}), ok())
    server_script.server().submission(ID)
    assert server_script.waited == [17]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (problem(429, "quota", **{"Retry-After": "1"}), 429),
        (problem(429, "rate", **{"Retry-After": "86400"}), 429),
        (problem(422, "lint"), 422),
        (problem(500, "incident"), 500),
        ((502, {}, {}), 502),
    ],
    ids=["quota", "tomorrow", "lint", "incident", "no problem document"],
)
def test_permanent_failure_is_reported_at_once(script: Callable[..., Script], answer: Answer, status: int) -> None:
    server_script = script(answer, ok())
    with pytest.raises(LeaderboardError, match=str(status)) as caught:
        server_script.server().submission(ID)
    assert caught.value.kind == str(answer[2].get("type", "")).removeprefix("/problems/")
    assert server_script.waited == []


def test_retries_are_limited(script: Callable[..., Script]) -> None:
    server_script = script(BROKEN)
    with pytest.raises(ConnectionError, match="no leaderboard answers"):
        server_script.server().submission(ID)
    assert len(server_script.requests) == 6


def test_unreachable_server_is_not_retried() -> None:
    waited: list[float] = []
    with pytest.raises(ConnectionError, match=r"no leaderboard answers at http://127\.0\.0\.1:9"):
        Server("http://127.0.0.1:9", sleep=waited.append).submission(ID)
    assert waited == []


def test_progress_counts_the_bytes_of_the_file(script: Callable[..., Script], file: Path) -> None:
    seen: list[tuple[int, int]] = []
    send(script(ok()), file, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (200_000, 200_000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 2


def test_unscored_submission_is_sent_again_with_a_new_key(script: Callable[..., Script], file: Path) -> None:
    for ended in ("withdrawn", "failed", "refused"):
        server_script = script(ok(ended, is_new=False), ok())
        assert send(server_script, file)["status"] == "queued"
        keys = [headers["Idempotency-Key"] for _, _, headers, _ in server_script.requests]
        assert len(set(keys)) == 2
    server_script = script(ok("scored", is_new=False))
    assert send(server_script, file)["status"] == "scored"
    assert len(server_script.requests) == 1


def test_idempotency_key_covers_whole_upload(file: Path) -> None:
    first = Upload(file, "a", METADATA).key()
    assert first == Upload(file, "a", dict(reversed(METADATA.items()))).key()
    others = [Upload(file, "b", METADATA).key(), Upload(file, "a", {}).key(), Upload(file, "a", METADATA, True).key()]
    file.write_bytes(b"y")
    assert len({first, *others, Upload(file, "a", METADATA).key()}) == 5


def test_waiting_ends_with_the_score(script: Callable[..., Script]) -> None:
    server_script = script(
        ok(queue_position=2), ok(queue_position=2), BROKEN, ok(queue_position=1), ok("scoring"), ok("scored")
    )
    states = [(d["status"], d.get("queue_position")) for d in server_script.server().follow(ID)]
    assert states == [("queued", 2), ("queued", 1), ("scoring", None), ("scored", None)]


def test_waiting_has_a_time_limit(script: Callable[..., Script]) -> None:
    with pytest.raises(TimeoutError, match="is still queued after 0 s"):
        list(script(ok()).server().follow(ID, timeout=0))


def test_redirect_does_not_get_the_token(script: Callable[..., Script]) -> None:
    elsewhere = script(ok())
    server_script = script((302, {"Location": elsewhere.url + "/api/v1/submissions/" + ID}, {"id": ID}))
    with pytest.raises(ValueError, match="is not a reveal-bench leaderboard"):
        server_script.server("t0ken").submission(ID)
    assert elsewhere.requests == []


@pytest.mark.parametrize("url", ["http://board.example.org", "http://192.0.2.7:7860", "http://127.0.0.1.example.org"])
def test_token_is_not_sent_unencrypted(url: str) -> None:
    with pytest.raises(ValueError, match="only sent over https"):
        Server(url, "t0ken")
    Server(url)
    Server("https://board.example.org", "t0ken")


@pytest.mark.parametrize("url", ["", "board.example.org", "ftp://board.example.org", "http://", "http://[bad"])
def test_malformed_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be an http:// or https:// address"):
        Server(url)


@pytest.mark.parametrize("submission_id", ["", "../me", "ABC", "0" * 33, "a?b"])
def test_malformed_id_is_refused(submission_id: str) -> None:
    with pytest.raises(ValueError, match="must be at most 32"):
        Server("http://127.0.0.1:9").withdraw(submission_id)


def test_token_is_read_from_file_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REVEAL_TOKEN", raising=False)
    assert read_token() is None
    monkeypatch.setenv("REVEAL_TOKEN", "of-the-environment")
    assert read_token() == "of-the-environment"
    path = tmp_path / "token"
    path.write_text("of-the-file\n")
    assert read_token(path) == "of-the-file"


@pytest.mark.parametrize("content", [b"", b"two words", b"a\nb", b"\xff\xfe", "tök".encode(), b"x" * 201])
def test_malformed_token_is_not_echoed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"must contain (?:only )?a token") as caught:
        read_token(path)
    for part in ("two", "\ufffd", "tök", "xxx"):
        assert part not in str(caught.value)
