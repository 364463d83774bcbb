"""The real server, killed while readers save, keeps all acknowledged answers. And its commands."""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.context import ForkProcess
from pathlib import Path

import httpx
from reveal_leaderboard.cli import app
from reveal_leaderboard.readers.store import Readings
from typer.testing import CliRunner

from tests.leaderboard.conftest import ASKING, free_port, wait_until
from tests.leaderboard.readers.reading_world import READERS, Pool

PATIENCE = 240.0
FORKS = multiprocessing.get_context("fork")
N_BEFORE_DEATH = 7  # of each reader: one more than the list is long


def serve(pool: Pool, data: Path, port: int, log: Path, *more: str) -> None:
    with log.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    words = ["readers", "--data", data, "--curation", pool.curation, "--images", pool.images, "--port", port, *more]
    os.environ["REVEAL_URL"] = f"http://127.0.0.1:{port}"
    app(list(map(str, words)))


def started(pool: Pool, data: Path, log: Path, *more: str) -> tuple[ForkProcess, str]:
    """The command in a copy of this process, which has the imports behind it."""
    port = free_port()
    server = FORKS.Process(target=serve, args=(pool, data, port, log, *more), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.exitcode is None, log.read_text()
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/healthz", verify=False).status_code == 200
        return False

    wait_until(answers, pause=ASKING)
    return server, url


def save(url: str, reader: str, acknowledged: list[str], enough: threading.Semaphore) -> None:
    """Answer again and again until the server is gone; note what it said was saved."""
    with httpx.Client(base_url=url, headers={"Origin": url}, timeout=60) as client:
        client.post("/api/reader", json={"reader": reader})
        tokens = [one["token"] for one in client.get("/api/list").json()["items"]]
        number = 0
        try:
            while True:
                number += 1
                comment = f"{reader} {number}"
                body = {"key": os.urandom(16).hex(), "answer": "disagree", "comment": comment, "seconds": 1.0}
                answer = client.post(f"/api/items/{tokens[number % len(tokens)]}/answers", json=body)
                assert answer.status_code == 200, answer.text
                acknowledged.append(comment)
                if number == N_BEFORE_DEATH:
                    enough.release()
        except httpx.TransportError:
            return


def test_a_killed_server_has_lost_nothing_that_it_acknowledged(pool: Pool, tmp_path: Path) -> None:
    data = tmp_path / "data"
    server, url = started(pool, data, tmp_path / "log")
    acknowledged: list[str] = []
    enough = threading.Semaphore(0)
    readers = [threading.Thread(target=save, args=(url, name, acknowledged, enough)) for name in READERS]
    for thread in readers:
        thread.start()
    assert all(enough.acquire(timeout=PATIENCE) for _ in READERS)
    server.kill()
    server.join(30)
    assert server.exitcode == -signal.SIGKILL
    for thread in readers:
        thread.join(PATIENCE)
    readings = Readings(data)
    with readings.engine.begin() as connection:
        kept = set(connection.exec_driver_sql("SELECT comment FROM answers").scalars())
    readings.engine.dispose()
    assert len(acknowledged) >= N_BEFORE_DEATH * len(READERS)
    assert set(acknowledged) <= kept
    assert len(kept) <= len(acknowledged) + len(READERS)  # at most one each was under way

    run = CliRunner()
    status = run.invoke(app, ["readers-status", "--data", str(data)])
    assert status.exit_code == 0
    assert "disagree" not in status.output
    assert status.output.splitlines()[1].split() == ["Reader", "Ada", "6", "6", "0", "0", "open"]
    out = tmp_path / "votes.csv"
    assert run.invoke(app, ["readers-export", "--data", str(data), "--out", str(out)]).exit_code == 0
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    last = max(
        (comment for comment in acknowledged if comment.startswith(READERS[0])),
        key=lambda comment: int(comment.split()[-1]),
    )
    assert last in {row["comment"] for row in rows}


def test_commands_say_what_is_wrong(pool: Pool, tmp_path: Path) -> None:
    run = CliRunner()
    for words, message in (
        (["readers-status", "--data", str(tmp_path / "none")], "contains no readings.sqlite"),
        (["readers", "--data", str(tmp_path), "--host", "0.0.0.0"], "must be 127.0.0.1"),
        (["readers", "--data", str(tmp_path), "--auth", "oidc"], "must be set in the environment"),
    ):
        done = run.invoke(app, words)
        assert done.exit_code == 2
        assert message in " ".join(done.output.replace("│", "").split())
    prepared = ["--data", str(tmp_path / "data"), "--images", str(pool.images), "--curation", str(pool.curation)]
    assert run.invoke(app, ["readers-prepare", *prepared]).exit_code == 0
    more = ["--data", str(tmp_path / "data"), "--readers", str(pool.readers)]
    refused = run.invoke(app, ["readers-reassign", *more])
    assert (refused.exit_code, "no reader has stopped" in refused.output) == (1, True)
    assert run.invoke(app, ["readers-close", "--data", str(tmp_path / "data"), "--reader", READERS[0]]).exit_code == 0
    done = run.invoke(app, ["readers-reassign", *more])
    assert "6 readings find no reader with capacity" in done.output
    assert run.invoke(app, ["readers-reassign", *more, "--allow-missing"]).exit_code == 0


def test_the_server_reads_no_folder_in_which_the_curation_lies(tmp_path: Path) -> None:
    curation = tmp_path / "pool" / "curation"
    curation.mkdir(parents=True)
    words = ["readers", "--data", tmp_path / "data", "--curation", curation, "--images", tmp_path / "pool"]
    refused = CliRunner().invoke(app, list(map(str, words)))
    assert refused.exit_code == 2
    assert "must not be below --images" in " ".join(refused.output.replace("│", "").split())
    assert not (tmp_path / "data").exists()
