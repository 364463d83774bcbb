"""A client that records all answers: plain requests, and the requests of a browser on the Gradio pages.

A :class:`Visitor` of a page acts like its script: it reads the page's description, calls handlers by ``queue/join``
with the values of the components, follows the events of ``queue/data``, and writes the results into the components.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

STATIC = re.compile(r'(?:href|src)="(\.?/[^"]+)"')


@dataclass
class Answer:
    """One answer of the server: the request, the status, headers as text, and the body."""

    asked: str
    status: int
    headers: bytes
    body: bytes


@dataclass
class Wire:
    """A client that records every answer."""

    url: str
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        keep = {"response": [self._keep]}
        self.client = httpx.Client(base_url=self.url, timeout=60, event_hooks=keep)

    def _keep(self, response: httpx.Response) -> None:
        body = response.read()
        headers = "\n".join(f"{name}: {value}" for name, value in response.headers.multi_items()).encode()
        asked = f"{response.request.method} {response.request.url.raw_path.decode()}"
        self.answers.append(Answer(asked, response.status_code, headers, body))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def send(self, file: Path | tuple[str, bytes], benchmark: str, metadata: Any, **fields: str) -> httpx.Response:
        """Send a submission."""
        name, content = file if isinstance(file, tuple) else (file.name, file.read_bytes())
        form = {"benchmark": benchmark, "metadata": json.dumps(metadata), **fields}
        return self.client.post("/api/v1/submissions", data=form, files={"file": (name, content)})

    @property
    def kinds(self) -> set[str]:
        """Content types of the answers: "text/html", "application/json" ..."""
        headers = (re.search(rb"content-type: ([\w/.+-]+)", answer.headers) for answer in self.answers)
        return {match[1].decode() for match in headers if match}


class Visitor:
    """A user with the page `path` open, such as ``/entry?id=1``; a page that is read has no handlers."""

    def __init__(self, wire: Wire, path: str, session: str) -> None:
        self._wire, self._session = wire, session
        page, _, self._query = path.partition("?")
        html = wire.get(path).text
        for link in dict.fromkeys(STATIC.findall(html)):
            if link.endswith(".css"):
                wire.get(link.removeprefix("."))
        self.config: dict[str, Any] = wire.get(f"/config?{self._query}").json()
        self.mine = self.config["page"].get(page.strip("/"), {}).get("dependencies", [])
        self.values = {c["id"]: c["props"].get("value") for c in self.config["components"]}

    def open(self) -> list[str]:
        """Make the first calls of a browser; return the names of the called handlers."""
        at_load = [d for d in self._handlers() if any(event == "load" for _, event in d["targets"])]
        return [self._call(handler)["name"] for handler in at_load]

    def put(self, kind: str, value: Any) -> None:
        """Set the first component of a kind on this page to `value`, as if typed."""
        inputs = {component for handler in self._handlers() for component in handler["inputs"]}
        of_kind = [c["id"] for c in self.config["components"] if c["type"] == kind and c["id"] in inputs]
        self.values[of_kind[0]] = value

    def call_all(self) -> dict[str, dict[str, Any]]:
        """Call every handler of the page once with the current values of the components."""
        return {handler["api_name"]: self._call(handler) for handler in self._handlers()}

    def _handlers(self) -> list[dict[str, Any]]:
        known = self.config["dependencies"]
        return [d for d in known if d["id"] in self.mine and d["backend_fn"]]

    def _call(self, handler: dict[str, Any]) -> dict[str, Any]:
        data = [self.values.get(component) for component in handler["inputs"]]
        event = {"data": data, "fn_index": handler["id"], "session_hash": self._session, "trigger_id": None}
        joined = self._wire.client.post(f"/gradio_api/queue/join?{self._query}", json=event)
        joined.raise_for_status()
        events = self._wire.get(f"/gradio_api/queue/data?session_hash={self._session}").text
        messages = [json.loads(line[5:]) for line in events.splitlines() if line.startswith("data:")]
        (done,) = [message for message in messages if message["msg"] == "process_completed"]
        for component, value in zip(handler["outputs"], done["output"].get("data") or (), strict=False):
            if not (isinstance(value, dict) and value.get("__type__") == "update"):
                self.values[component] = value
            elif "value" in value:
                self.values[component] = value["value"]
        return {"name": handler["api_name"], "success": done["success"], "output": done["output"]}

    def upload(self, name: str, content: bytes) -> dict[str, Any]:
        """Upload a file to the page; return the new value of its file component."""
        answer = self._wire.client.post("/gradio_api/upload", files={"files": (name, content)})
        return {"path": answer.json()[0], "orig_name": name, "size": len(content), "meta": {"_type": "gradio.FileData"}}
