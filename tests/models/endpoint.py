"""An OpenAI-compatible endpoint on loopback that simulates a model, and misbehaves on request.

It knows a question by the last picture and the finding named beside it, and gives the answer of its
table. A *fault* is a misbehaviour, repeated as often as it is in the list of faults of a question.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONGEST_WAIT = 60.0  # seconds; nothing waits for so long unless it fails
REFUSAL = "I'm sorry, but I can't help with interpreting medical images."
CUT_OFF = "First I go through the lungs from the apex to the base, and what I see on the"
PROSE = "Looking at the film, several places come to mind. The abnormality is best seen near the middle. Cell: {answer}"
TEXTS = {"refusal": REFUSAL, "cut_off": CUT_OFF, "empty": "", "prose": PROSE}
FILTERED = "The response was filtered due to the content management policy."
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Cell: A1"}]}


def with_message(finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """The choices of a response with one message."""
    message = {"role": "assistant", "content": None, **message}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}


DEVIATIONS: dict[str, dict[str, Any]] = {
    "error_with_200": {"choices": None, "error": {"message": "Provider returned error", "code": 503}},
    "no_choices": {"choices": []},
    "parts": with_message(content=[THINKING, {"type": "text", "text": "Cell: D5"}]),
    "no_model": {"model": None},
    "null_usage": {"usage": {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}},
    "tool_call": with_message(
        "tool_calls", tool_calls=[{"id": "t1", "type": "function", "function": {"name": "answer", "arguments": "{}"}}]
    ),
    "reasoning_only": with_message(reasoning_content="It is in D5. Cell: D5"),
}
"""What deviates from the answer of :meth:`PlayedModel.reply`."""
STATUSES = {"429": 429, "500": 500, "503": 503, "400": 400, "401": 401, "filtered": 400}


@dataclass
class PlayedModel:
    """The knowledge, behaviour and requests of the endpoint.

    Attributes
    ----------
    questions : (sha256 of the picture, finding) -> question; for studies the finding is ""
    answers : question -> text
    faults : question -> what goes wrong, one request after the other
    asked : (question, what it was answered with) in the order of the requests
    gated_from : requests from this number on are held until the gate is opened
    down_from : connections of requests from this number on break without an answer
    """

    questions: Mapping[tuple[str, str], str]
    answers: Mapping[str, str]
    faults: dict[str, list[str]] = field(default_factory=dict)
    gated_from: float = float("inf")
    down_from: float = float("inf")
    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    usage: list[tuple[int, int, int]] = field(default_factory=list)
    n_open: int = 0
    peak: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    ended: threading.Event = field(default_factory=threading.Event)

    def answered(self) -> Counter[str]:
        """Count the answers to each question that a client can read."""
        return Counter(
            question for question, what in self.asked if what == "answer" or what in TEXTS or what == "no_usage"
        )

    def wait_for_open(self, n: int) -> bool:
        """Return True once `n` requests are under way at once; False after a long wait."""
        with self.changed:
            return self.changed.wait_for(lambda: self.n_open >= n, LONGEST_WAIT)

    def wait_for_none_open(self) -> bool:
        """Return True once no request is under way; False after a long wait."""
        with self.changed:
            return self.changed.wait_for(lambda: self.n_open == 0, LONGEST_WAIT)

    def open_gate(self) -> None:
        with self.changed:
            self.gated_from = float("inf")
            self.changed.notify_all()

    def take(self, body: dict[str, Any], headers: Mapping[str, str]) -> tuple[str, str]:
        """Return the question of a request, and its answer."""
        question = self.question_of(body)
        with self.changed:
            planned = self.faults.get(question)
            what = planned.pop(0) if planned else "answer"
            number = len(self.asked)
            what = what if number < self.down_from else "down"
            self.asked.append((question, what))
            self.bodies.append(body)
            self.headers.append(dict(headers))
            self.n_open += 1
            self.peak = max(self.peak, self.n_open)
            self.changed.notify_all()
            self.changed.wait_for(lambda: number < self.gated_from or self.ended.is_set(), LONGEST_WAIT)
        return question, what

    def question_of(self, body: dict[str, Any]) -> str:
        parts = next(
            one["content"]
            for one in reversed(body["messages"])
            if isinstance(one["content"], list) and any(part["type"] == "image_url" for part in one["content"])
        )
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        text = " ".join(part["text"] for part in parts if part["type"] == "text")
        digest = hashlib.sha256(base64.b64decode(urls[-1].split(",", 1)[1])).hexdigest()
        named = [finding for sha256, finding in self.questions if sha256 == digest and finding.lower() in text.lower()]
        assert named, f"nothing that is asked of this picture is in: {text}"
        return self.questions[digest, max(named, key=len)]

    def reply(self, question: str, what: str) -> dict[str, Any]:
        """The body of an answer; its tokens depend on the question alone."""
        text = TEXTS.get(what, "{answer}").format(answer=self.answers[question])
        tokens_in, cached, tokens_out = tokens_of(question)
        usage = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        if what != "no_usage":
            with self.changed:
                self.usage.append((tokens_in, cached, tokens_out))
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": "played-model-2026",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "length" if what == "cut_off" else "stop",
                }
            ],
            **({} if what == "no_usage" else {"usage": usage}),
        } | DEVIATIONS.get(what, {})


def tokens_of(question: str) -> tuple[int, int, int]:
    """(sent, of these from the cache, written) tokens of a question."""
    number = int(hashlib.sha256(question.encode()).hexdigest()[:6], 16)
    return 700 + number % 101, number % 37, 3 + number % 11


@contextmanager
def played(model: PlayedModel) -> Iterator[PlayedModel]:
    """Serve the model until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            question, what = model.take(body, self.headers)
            try:
                if what == "hang":
                    model.ended.wait(LONGEST_WAIT)
                elif what in STATUSES:
                    why = FILTERED if what == "filtered" else f"no ({what}) for key {self.headers.get('Authorization')}"
                    error = {"error": {"message": why}}
                    self.send(STATUSES[what], error, {"Retry-After": "0"} if what == "429" else {})
                elif what == "down":
                    self.close_connection = True
                elif what == "malformed":
                    self.send(200, {"object": "chat.completion", "choices": "none"})
                else:
                    self.send(200, model.reply(question, what))
            except (BrokenPipeError, ConnectionResetError):  # the client gave up, or was killed
                self.close_connection = True
            finally:
                with model.changed:
                    model.n_open -= 1
                    model.changed.notify_all()

        def send(self, status: int, body: dict[str, Any], headers: Mapping[str, str] = {}) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield model
    finally:
        model.ended.set()
        with model.changed:
            model.changed.notify_all()
        server.shutdown()
        server.server_close()
