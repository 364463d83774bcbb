"""One long run of a board with every kind of event, and all its results.

Valid and invalid submissions: scored, held back by the ladder, refused, failed with an incident, withdrawn before and
after scoring, hidden, chosen, sent again. Also comparisons, receipts, exports; a refresh to a new version; all pages
with all their handlers; every kind of error; health, metrics and API description; an audit and a backup.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.leaderboard.conftest import ACCEPTED, ASKING, wait_until
from tests.leaderboard.leak.answers import metadata, points, probabilities, with_line
from tests.leaderboard.leak.deployment import Deployment
from tests.leaderboard.leak.hospital import FIRST, IMAGES, SECOND, STUDIES
from tests.leaderboard.leak.wire import Visitor
from tests.leaderboard.receiver import Receiver

SETTINGS = f"[quota]\nper_day = 30\ntotal = 30\n[exposure]\n{ACCEPTED}"
WEBHOOK = '[webhooks.chat]\nurl = "{url}"\nevents = ["scored", "withdrawn", "flagged"]\nprivate = true\n'
MAX_UPLOAD_MB = 2
PAGES = ("/", "/submit", "/mine", "/compare", "/about", "/entry", "/submission", "/admin", "/read")
FORMATS = ("json", "csv", "parquet")


@dataclass
class Run:
    """The results of a run.

    Attributes
    ----------
    ids, documents : submissions by the action on them
    receiver : receiver of the worker's webhook messages
    called : handlers called on each page
    made : (hash of an upload, version of its manifest) -> hash of its arrays, None if it is invalid
    """

    board: Deployment
    receiver: Receiver
    ids: dict[str, str] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    called: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def go(self, look: Callable[[], None]) -> None:
        """Run all events in the order of a board's life; call `look` after scoring while the worker still runs."""
        self.send_before_there_is_a_worker()
        self.board.hospital.damage(STUDIES)
        with self.board.worker():
            wait_until(self._is_heard)  # webhooks receive events after they were first seen
            self.board.wait(*self.ids.values())
            self.board.hospital.repair(STUDIES)
            self.send_to_both_boards()
            self.change_what_is_shown()
            self.look_at_everything(FIRST)
            self.refresh()
            self.look_at_everything(SECOND)
            look()
        self.visit_every_page()
        self.make_every_error()
        self.board.command("audit", "--json")
        self.board.command("backup", self.board.root / "backup")
        self.break_the_server()
        self.documents = {name: self.board.document(one) for name, one in self.ids.items()}

    def submit(self, name: str, content: bytes, benchmark: str, team: str, model: str, **more: Any) -> str:
        self.ids[name] = self.board.submit(content, benchmark, metadata(team, model, **more), name=f"{name}.jsonl")
        return self.ids[name]

    def send_before_there_is_a_worker(self) -> None:
        hospital = self.board.hospital
        self.submit("failed", probabilities(hospital, skill=0.1, seed=90), STUDIES, "Alpha", "Unlucky")
        withdrawn = self.submit("withdrawn early", points(hospital, skill=0.1, seed=91), IMAGES, "Alpha", "Hasty")
        assert self.board.wire.client.delete(f"/api/v1/submissions/{withdrawn}").status_code == 200
        partly = points(hospital, skill=0.1, seed=92).partition(b"\n")[2]
        self.ids["refused"] = self.board.submit(partly, IMAGES, metadata("Alpha", "Spoilt"), allow_missing="true")
        self._take_back_the_leave(self.ids["refused"])

    def _is_heard(self) -> bool:
        with sqlite3.connect(self.board.data / "leaderboard.sqlite") as connection:
            return connection.execute("SELECT count(*) FROM webhooks").fetchone() == (1,)

    def _take_back_the_leave(self, submission_id: str) -> None:
        """Make a queued file fail when it is parsed again, because missing answers are no longer allowed."""
        with sqlite3.connect(self.board.data / "leaderboard.sqlite") as connection:
            change = "UPDATE submissions SET allow_missing = 0, canonical = NULL WHERE id = ?"
            assert connection.execute(change, (submission_id,)).rowcount == 1

    def send_to_both_boards(self) -> None:
        hospital = self.board.hospital
        first = points(hospital, skill=0.2, seed=1)
        self.submit("images A", first, IMAGES, "Alpha", "Pointer")
        self.submit("images B", points(hospital, skill=0.9, seed=2), IMAGES, "Beta", "Finder")
        self.submit("studies A", probabilities(hospital, skill=0.1, seed=3), STUDIES, "Alpha", "Reader")
        labelled = {"thresholds": {"Cardiomegaly": 0.4}, "contact": "someone@example.org"}
        self.submit("studies B", probabilities(hospital, skill=0.5, seed=4), STUDIES, "Beta", "Consultant", **labelled)
        self.board.wait(*self.ids.values())
        held = with_line(first, 3, lambda line: re.sub(r'"point": .[0-9]+', '"point": [20', line))
        self.submit("held", held, IMAGES, "Alpha", "Pointer 2")
        self.submit("hidden", points(hospital, skill=0.5, seed=5), IMAGES, "Gamma", "Rule breaker")
        self.submit("withdrawn late", points(hospital, skill=0.6, seed=6), IMAGES, "Delta", "Regret")
        self.board.wait(*self.ids.values())
        twin = self.board.submit(first, IMAGES, metadata("Alpha", "Pointer"))
        assert twin == self.ids["images A"]

    def change_what_is_shown(self) -> None:
        wire = self.board.wire
        reason = ("--why", "asked for by its team")
        self.board.admin("hide", self.ids["hidden"], *reason)
        self.board.admin("hide", self.ids["images B"], *reason)
        self.board.admin("restore", self.ids["images B"], *reason)
        for words in (("boards",), ("people",), ("flags",), ("workers",), ("exposure", IMAGES), ("exposure", STUDIES)):
            self.board.admin(*words)
        late = f"/api/v1/submissions/{self.ids['withdrawn late']}"
        answer = wire.client.delete(late)
        assert answer.status_code == 200, answer.text
        assert wire.client.post(f"/api/v1/submissions/{self.ids['images A']}/choose").status_code == 200
        self.board.compare(self.ids["images A"], self.ids["images B"])
        self.board.compare(self.ids["studies A"], self.ids["studies B"])

    def refresh(self) -> None:
        words = ("refresh", IMAGES, "--to", SECOND)
        assert "queued" in self.board.admin(*words)
        wait_until(lambda: self.board.wire.get("/readyz").json()["queued"] == 0, pause=ASKING)
        wait_until(lambda: "and 0 left" in self.board.admin(*words), pause=ASKING)
        self.board.admin(*words, "--switch")
        self.board.compare(self.ids["images B"], self.ids["images A"])

    def look_at_everything(self, version: str) -> None:
        """Read what the API shows while the board of images is at `version`."""
        wire = self.board.wire
        for name in (IMAGES, STUDIES):
            self.board.wait_ranked(name)
            for form in FORMATS:
                assert wire.get(f"/api/v1/leaderboard?benchmark={name}&format={form}").status_code == 200
            for form in ("json", "parquet"):
                assert wire.get(f"/api/v1/benchmarks/{name}/manifest?format={form}").status_code == 200
            wire.get(f"/api/v1/me/ledger?benchmark={name}")
        wire.get(f"/api/v1/leaderboard?benchmark={IMAGES}&version={FIRST}&format=csv")
        for submission_id in self.ids.values():
            for path in ("", "/events", "/receipt", "/receipt?part=final", f"?version={version}"):
                wire.get(f"/api/v1/submissions/{submission_id}{path}")
            for path in ("badge/{}.svg", "card/{}.png", "figure/entry/{}.svg", "figure/entry/{}.png"):
                wire.get(f"/{path.format(submission_id)}")
        for form in ("svg", "png"):
            assert wire.get(f"/figure/board/{IMAGES}.{form}").status_code == 200
        for path in ("benchmarks", "keys", "me", "me/submissions", "me/tokens", "openapi.json"):
            assert wire.get(f"/api/v1/{path}").status_code == 200
        for path in ("/healthz", "/readyz", "/metrics"):
            assert wire.get(path).status_code == 200
        team = wire.get("/api/v1/me").json()["teams"][0]["id"]
        token = {"team_id": team, "name": "nightly", "scopes": ["read", "submit"], "days": 3}
        assert wire.client.post("/api/v1/me/tokens", json=token).status_code == 201

    def visit_every_page(self) -> None:
        """Open every page as a browser does and call all its handlers."""
        a, b = self.ids["images A"], self.ids["images B"]
        queries = [f"/{page}?id={one}" for page in ("entry", "submission") for one in self.ids.values()]
        queries += [f"/entry?id={a}&version={FIRST}", f"/compare?a={a}&b={b}", "/entry?id=0", "/compare?a=0&b=1"]
        queries += [f"/?benchmark={STUDIES}", f"/?benchmark={IMAGES}&version={FIRST}", "/?benchmark=none&version=x"]
        for number, path in enumerate(queries):
            Visitor(self.board.wire, path, f"visit{number:05d}").open()
        for page in PAGES:
            visitor = Visitor(self.board.wire, page, f"page{page.strip('/') or 'board':>8}".replace(" ", "0"))
            visitor.open()
            if page == "/submit":
                visitor.put("file", visitor.upload("page.jsonl", points(self.board.hospital, skill=0.3, seed=7)))
            self.called |= {f"{page} {name}": done for name, done in visitor.call_all().items()}

    def make_every_error(self) -> None:
        """Send invalid files and requests, and request unknown addresses."""
        wire, hospital = self.board.wire, self.board.hospital
        good = points(hospital, skill=0.2, seed=8)
        for change in (
            lambda line: line.replace("image-", "unknown-"),
            lambda line: line.replace('"finding": "', '"finding": "Un'),
            lambda line: line[:-3],
            lambda line: line.replace('"point": [', '"point": [9'),
            lambda line: line.replace('"counts": "', '"counts": "zz'),
        ):
            assert wire.send(("bad.jsonl", with_line(good, 2, change)), IMAGES, metadata("Alpha")).status_code == 422
        for name, content in (
            ("a.parquet", b"PAR1 no PAR1"),
            ("a.csv", b"x,y\n1,2\n"),
            ("a.json", b"[[[["),
            ("a", b""),
        ):
            assert wire.send((name, content), STUDIES, metadata("Alpha")).status_code == 422
        assert wire.send(("a.jsonl", good), STUDIES, metadata("Alpha")).status_code == 422
        assert wire.send(("a.jsonl", good), "nothing", metadata("Alpha")).status_code == 404
        assert wire.send(("a.jsonl", good), IMAGES, {"organization": "Alpha"}).status_code == 422
        assert wire.send(("a.jsonl", b" " * (MAX_UPLOAD_MB * 1_000_001)), IMAGES, {}).status_code == 413
        assert wire.client.post("/api/v1/submissions", content=b"{").status_code == 400
        for path, status in (
            ("/api/v1/submissions/0123", 404), ("/api/v1/submissions/..%2F..", 404), ("/api/v1/compare?a=0&b=1", 404),
            ("/api/v1/leaderboard", 422), ("/api/v1/leaderboard?benchmark=nothing", 404), ("/nothing", 404),
            (f"/api/v1/leaderboard?benchmark={IMAGES}&version=9", 404), ("/gradio_api/file=/etc/passwd", 404),
            (f"/gradio_api/file={hospital.holdout(IMAGES)}/README.md", 404), ("/gradio_api/queue/data", 403),
        ):  # fmt: skip
            assert wire.get(path).status_code == status, path
        assert wire.client.put("/api/v1/submissions").status_code == 405
        assert wire.get("/", headers={"host": "evil.example"}).status_code == 400
        assert wire.client.post("/logout", headers={"origin": "https://evil.example"}).status_code == 403

    def break_the_server(self) -> None:
        """Cause an internal error: replace the folder of uploads by a file."""
        blobs = self.board.data / "blobs"
        blobs.rename(self.board.root / "uploads")
        blobs.write_text("")
        content = points(self.board.hospital, skill=0.2, seed=9)
        assert self.board.wire.send(("late.jsonl", content), IMAGES, metadata("Alpha")).status_code == 500
