"""An OpenAI-compatible endpoint on loopback that knows the truth of every report, and misbehaves on request.

It says what a careful model would say: the labels of a report as findings, a rib fracture besides, and each finding's
label. A *fault* is a misbehaviour, repeated as often as it is in the list of faults of a report or note.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal_studies import studies

LABEL_OF = {label.lower(): label for label in REVEAL_LABELS}
FRACTURE = "healed rib fracture"
LONGEST_WAIT = 60.0  # seconds; nothing waits for so long unless it fails


def phantom_reports(n: int, *, seed: int = 11) -> dict[str, tuple[str, ...]]:
    """Different reports of the pool -> their labels."""
    reports: dict[str, tuple[str, ...]] = {}
    for study in studies("pool", seed=seed):
        if len(reports) == n:
            return reports
        sides = dict.fromkeys(study.labels, ("right", "left", "bilateral")[study.index % 3])
        reports[write_report(study, sides, has_devices=study.index % 2 == 0).strip()] = study.labels
    raise AssertionError("unreachable")


@dataclass
class ModelServer:
    """The knowledge, behaviour and requests of the endpoint. `others` answer further tasks by name; requests from
    number `gated_from` on are held back.

    `others` answer further tasks by name; the gate is closed to requests from number `gated_from` on.
    """

    truth: Mapping[str, tuple[str, ...]]
    notes: Mapping[str, list[str]] = field(default_factory=dict)
    others: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    gated_from: float = float("inf")
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    usage: list[tuple[int, int]] = field(default_factory=list)
    n_open: int = 0
    peak: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    ended: threading.Event = field(default_factory=threading.Event)

    def wait_for_open(self, n: int) -> bool:
        """Return True once `n` requests are under way at once; False after a long wait."""
        with self.changed:
            return self.changed.wait_for(lambda: self.n_open == n, LONGEST_WAIT)

    def wait_for_asked(self, n: int) -> bool:
        """Return True once `n` requests have come in all; False after a long wait."""
        with self.changed:
            return self.changed.wait_for(lambda: len(self.asked) == n, LONGEST_WAIT)

    def open_gate(self) -> None:
        with self.changed:
            self.gated_from = float("inf")
            self.changed.notify_all()

    def enter(self, body: dict[str, Any], key: str) -> str | None:
        """Count a request; return its fault, if it has one."""
        with self.changed:
            self.asked.append(body)
            self.keys.add(key)
            self.n_open += 1
            self.peak = max(self.peak, self.n_open)
            number = len(self.asked)
            self.changed.notify_all()
            self.changed.wait_for(lambda: number <= self.gated_from or self.ended.is_set(), LONGEST_WAIT)
            faults = self.faults.get(body["messages"][1]["content"], [])
            return faults.pop(0) if faults else None

    def leave(self) -> None:
        with self.changed:
            self.n_open -= 1
            self.changed.notify_all()

    def answer(self, body: dict[str, Any]) -> str:
        """The true answer."""
        task, text = body["response_format"]["json_schema"]["name"], body["messages"][1]["content"]
        if task in self.others:
            return json.dumps(self.others[task](text))
        if task == "note":
            note = json.loads(text)["note"]
            return json.dumps({"revised_labels": self.notes[note], "reason": "The note says so."})
        if task == "labels":
            names = json.loads(text)
            labels = [LABEL_OF.get(name.removeprefix("left "), "None") for name in names]
            return json.dumps({"key_findings": names, "benchmark_labels": labels})
        names = [label.lower() for label in self.truth[text]]
        names += [FRACTURE] if names else []
        if task == "findings":
            rows = [{"finding": name, "side": None if name == FRACTURE else "left", "icd10": None} for name in names]
            return json.dumps({"findings": rows})
        labels = [LABEL_OF.get(name, "None") for name in names]
        return json.dumps({"key_findings": names or ["Normal exam"], "benchmark_labels": labels or ["None"]})


BAD_TEXTS: dict[str, Callable[[str], str]] = {
    "cut-off JSON": lambda text: text[:-5],
    "wrong schema": lambda text: '{"diagnoses": ["COPD"]}',
    "unknown label": lambda text: '{"key_findings": ["left copd"], "benchmark_labels": ["Emphysema"]}',
    "prose alone": lambda text: "The report is hard to read.",
    "two objects": lambda text: f'{text} {{"findings": [], "key_findings": []}}',
}
"""Instead of the true text, in an answer that is otherwise good."""
GOOD_TEXTS: dict[str, Callable[[str], str]] = {
    "prose around": lambda text: f"Here you are:\n\n```json\n{text}\n```\nIs there anything else?",
    "thinking": lambda text: f"<think>Is it normal?</think>{text}",
}
STATUSES: dict[str, tuple[int, dict[str, str]]] = {
    "408": (408, {}),
    "429": (429, {"retry-after-ms": "20"}),
    "500": (500, {}),
    "503": (503, {"Retry-After": "0"}),
    "400": (400, {}),
    "401": (401, {}),
    "404": (404, {}),
    "flagged by moderation": (403, {}),
    "307": (307, {"Location": "/v1/elsewhere"}),
}
BODIES = {
    "not JSON": b"<html>Bad gateway</html>",
    "no choices": b'{"choices": [], "object": "chat.completion"}',
    "a list": b"[1, 2]",
    "content that is not text": b'{"choices": [{"message": {"role": "assistant", "content": {"a": 1}}}]}',
    "an error with status 200": b'{"error": {"message": "overloaded"}}',
}
"""Unusable answers that are sent with status 200."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the client to acknowledge its headers
    model: ModelServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.model.enter(body, self.headers["Authorization"])
        try:
            self.behave(fault, body)
        except OSError:  # the client is gone
            self.close_connection = True
        finally:
            self.model.leave()

    def behave(self, fault: str | None, body: dict[str, Any]) -> None:
        if fault in STATUSES:
            status, headers = STATUSES[fault]
            message = f"{fault} of {self.headers['Authorization']}"  # as some endpoints do, with the key
            self.send(status, json.dumps({"error": {"message": message}}).encode(), headers)
        elif fault in BODIES:
            self.send(200, BODIES[fault])
        elif fault == "hang":
            self.model.ended.wait(LONGEST_WAIT)
            self.close_connection = True
        elif fault == "trickle":
            self.trickle()
        elif fault == "reset":
            self.reset()
        else:
            self.complete(fault, body)

    def complete(self, fault: str | None, body: dict[str, Any]) -> None:
        text = self.model.answer(body)
        finish = "length" if fault == "length" else "stop"
        message = {"role": "assistant", "content": text, "refusal": None}
        if fault == "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        elif fault in BAD_TEXTS or fault in GOOD_TEXTS:
            message["content"] = (BAD_TEXTS | GOOD_TEXTS)[fault](text)
        usage = (sum(len(one["content"]) for one in body["messages"]) // 4, len(text) // 4)
        document = {
            "object": "chat.completion",
            "model": f"{body['model']}-2026-01-01",
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)},
        }
        if fault == "no usage":
            del document["usage"]
        else:
            self.model.usage.append(usage)
        self.send(200, json.dumps(document).encode())

    def send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def trickle(self) -> None:
        """Send a byte now and then, so that no single read ever times out."""
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        while not self.model.ended.wait(0.02):
            self.wfile.write(b" ")

    def reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())
        self.close_connection = True


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect, which tests do on purpose."""

    def shutdown_request(self, request: Any) -> None:
        if request.fileno() >= 0:  # else it was reset
            super().shutdown_request(request)


@contextmanager
def running_model(truth: Mapping[str, tuple[str, ...]], **options: Any) -> Iterator[ModelServer]:
    """An endpoint that listens on a free port of this machine until the end."""
    model = ModelServer(truth, **options)
    server = QuietServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"model": model}))
    model.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.ended.set()
        model.open_gate()
        server.shutdown()
        server.server_close()
        thread.join(10)
