"""The server as a process, tested over a socket, for properties that need all of it; routes are tested in test_api_*.

The last tests send it a sample of the bad files of hostile/, while a worker scores what it accepts.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from reveal_leaderboard.custody.confinement import landlock_abi
from reveal_leaderboard.store.blobs import Blobs

from reveal_bench.cli import client
from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.predictions import RULES
from tests.leaderboard.conftest import BENCHMARK, METADATA, RARE, WAIT_SECONDS, Board, Server, guesses, serve
from tests.leaderboard.hostile.corpus import BROKE_OFF, TOO_LARGE, Bad, Site
from tests.leaderboard.hostile.test_files import CORPUS
from tests.leaderboard.hostile.understanding import SENTENCES, check_sentence
from tests.leaderboard.hostile.world import STUDIES, build_studies
from tests.leaderboard.hostile.wrappings import LARGE_WRAPPINGS

pytestmark = pytest.mark.processes

REFUSED = [bad for bad in CORPUS if bad.rules]
SOUND = [bad for bad in CORPUS if not bad.rules]
SAMPLE = (*REFUSED[::60], *SOUND[::12], *LARGE_WRAPPINGS[::11])


def floats(value: Any) -> Iterator[float]:
    """Every float in a JSON document."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from floats(item)


@pytest.fixture(scope="module")
def uploads(bucket: str) -> str:
    """Return this server's folder of uploads; other servers keep theirs in their data folders."""
    return f"s3://{bucket}/live"


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """The server's second board."""
    return Board(*build_studies(tmp_path_factory.mktemp("studies")))


@pytest.fixture(scope="module")
def server(board: Board, studies: Board, uploads: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--benchmark", str(studies.folder), "--blobs", uploads)
    with serve(board, tmp_path_factory.mktemp("server"), *options) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def scored(server: Server, board: Board, uploads: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The first file of the board, sent and followed to its score by the project's own client."""
    file = tmp_path_factory.mktemp("first") / "good.jsonl"
    file.write_text(predictions_to_jsonl(guesses(board.manifest)), encoding="utf-8")
    document = client.Server(server.url).submit(file, benchmark=BENCHMARK, metadata=METADATA)
    assert (document["status"], document["queue_position"]) == ("queued", 1)
    assert len(list(Blobs(uploads).names())) == 2  # the file, and its predictions
    assert not (server.data / "blobs").exists()
    with server.worker("--once", "--blobs", uploads):
        return list(client.Server(server.url).follow(document["id"], timeout=WAIT_SECONDS))[-1]


def test_a_good_file_is_queued_scored_and_shown(server: Server, scored: dict[str, Any]) -> None:
    assert scored["status"] == "scored"
    assert [event["to_status"] for event in scored["events"]] == ["received", "linted", "queued", "scoring", "scored"]
    assert {event["who"] for event in scored["events"]} == {"submitter", "worker"}
    assert scored["score"]["hidden"] == [RARE]
    text = server.get(f"/api/v1/leaderboard?benchmark={BENCHMARK}").text
    board = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the answer"))
    (entry,) = board["entries"]
    assert entry["submission_id"] == scored["id"]
    assert entry["is_new"] or entry["rank"] >= 1
    ours = list(floats([scored, board["entries"]]))
    assert ours
    assert all(round(x, 2) == x for x in ours)


@pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
@pytest.mark.usefixtures("scored")
def test_the_running_server_is_confined_and_never_learns_the_path(server: Server) -> None:
    confinement = server.get("/readyz").json()["confinement"]
    assert confinement.startswith(f"landlock-{landlock_abi()}, seccomp; children: rlimits")
    proc = Path(f"/proc/{server.process.pid}")
    assert "NoNewPrivs:\t1" in (proc / "status").read_text()
    secret = str(server.board.holdout.parent).encode()
    for name in ("environ", "cmdline", "maps"):
        assert secret not in (proc / name).read_bytes()
    opened = []
    for link in (proc / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            opened.append(os.readlink(link))
    assert opened
    assert not [path for path in opened if secret.decode() in path]
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert {"leaderboard.sqlite", "leaderboard.sqlite-wal"} <= {path.name for path in files}
    assert not [path for path in files if secret in path.read_bytes()]
    assert secret not in server.log.read_bytes()
    answers = [server.get(path).content for path in ("/config", f"/api/v1/leaderboard?benchmark={BENCHMARK}")]
    assert not [answer for answer in answers if secret in answer]


# Bad files. What each rule says of them is checked in hostile/, without a server.


@pytest.fixture(scope="module")
def site(board: Board, studies: Board) -> Site:
    """Return the findings in the sample's files."""
    asked = studies.published.manifest
    assert isinstance(asked, StudyManifest)
    return Site(*board.manifest.asked_pairs()[0], *asked.studies[:2], asked.labels)


@pytest.fixture(scope="module")
def working(server: Server, studies: Board, uploads: str) -> Iterator[Server]:
    """The server with a worker; both must survive all requests."""
    with server.worker("--holdout", f"{STUDIES}={studies.holdout}", "--blobs", uploads) as worker:
        yield server
        assert (server.process.poll(), worker.poll()) == (None, None)


def send(server: Server, site: Site, bad: Bad) -> httpx.Response:
    metadata = {**METADATA, "model": {"name": f"Model {SAMPLE.index(bad)}"}}
    board = BENCHMARK if bad.board == "images" else STUDIES
    fields = {"benchmark": board, "metadata": json.dumps(metadata), "allow_missing": "true"}
    name = bad.filename.replace("\x00", "") or "predictions"
    files = {"file": (name, bad.make(site))}
    return httpx.post(f"{server.url}/api/v1/submissions", data=fields, files=files, timeout=120, verify=False)


def check_lint(document: dict[str, Any], rules: frozenset[str]) -> None:
    problems = document["report"]["problems"]
    assert {problem["rule"] for problem in problems if problem["severity"] == "error"} <= rules
    assert {problem["rule"] for problem in problems} <= set(RULES)
    for problem in problems:
        check_sentence(problem["message"])


@pytest.mark.parametrize("bad", SAMPLE, ids=lambda bad: bad.name)
def test_a_bad_file_is_answered_over_http(working: Server, site: Site, bad: Bad) -> None:
    answer = send(working, site, bad)
    document = answer.json()
    if not bad.rules:
        assert answer.status_code == 202
        assert working.wait_scored(document["id"])["status"] == "scored"
        return
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    check_sentence(document["detail"])
    if document["type"] == "/problems/unreadable":
        assert document["detail"] in SENTENCES
        assert bad.rules & {TOO_LARGE, BROKE_OFF}
    else:
        assert document["type"] == "/problems/lint"
        check_lint(document, bad.rules)


def test_nothing_of_a_bad_file_is_kept(server: Server, site: Site, uploads: str) -> None:
    before = sorted(Blobs(uploads).names())
    assert send(server, site, SAMPLE[0]).status_code == 422
    assert sorted(Blobs(uploads).names()) == before


def test_the_log_holds_no_text_of_a_file(server: Server) -> None:
    canary = "canary4711"
    line = f'{{"image_id": "{canary}", "finding": "{canary}", "cell": "{canary}"}}'
    metadata = json.dumps({**METADATA, "contact": f"{canary}@example.org"})
    answer = httpx.post(
        f"{server.url}/api/v1/submissions",
        data={"benchmark": BENCHMARK, "metadata": metadata},
        files={"file": (f"{canary}.jsonl", line.encode())},
        timeout=60,
    )
    assert answer.status_code == 422
    assert canary in answer.text
    assert canary not in server.log.read_text(encoding="utf-8")
