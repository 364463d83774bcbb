"""Commands that use a leaderboard, against the real API over a socket."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from reveal_bench.cli import board as cli_submit
from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, write_outputs
from tests.conftest import ROOT
from tests.leaderboard.api_app import NOBODY, World, api_world
from tests.leaderboard.conftest import BENCHMARK, METADATA, Board, board, write_file
from tests.markdown import Block, block_below
from tests.transcripts import in_shell

__all__ = ["board", "write_file"]  # fixtures

app = typer.Typer()
PAGE = ROOT / "docs" / "commands.md"
for command in (cli_submit.submit, cli_submit.status, cli_submit.withdraw, cli_submit.receipt):
    app.command()(command)
WriteFile = Callable[..., Path]


@dataclass
class Live:
    """A board on a socket and the command line of a submitter."""

    world: World
    url: str
    token: Path

    def run(self, *words: str | Path, expect: int = 0, input: str | None = None) -> Result:
        arguments = [*map(str, words), "--url", self.url, "--token-file", str(self.token)]
        result = CliRunner().invoke(app, arguments, input=input)
        assert result.exit_code == expect, (result.output, result.exception)
        return result

    @contextmanager
    def worker(self, value: float) -> Iterator[None]:
        """Score the next submission that arrives."""

        def work() -> None:
            for _ in range(600):
                queued = [one for one in self.world.services.store.list_submissions() if one.status == "queued"]
                if queued:
                    self.world.score(queued[0].id, value)
                    return
                time.sleep(0.05)

        thread = threading.Thread(target=work)
        thread.start()
        yield
        thread.join()


@pytest.fixture
def live(board: Board, tmp_path: Path) -> Iterator[Live]:
    import uvicorn

    with api_world(board, tmp_path) as world, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # a command that starts before the server waits for it
        server = uvicorn.Server(uvicorn.Config(world.app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        token = tmp_path / "token"
        token.write_text(world.owner.token + "\n")
        metadata = {**METADATA, "organization": world.owner.team.name}
        (tmp_path / "submission.json").write_text(json.dumps(metadata))
        yield Live(world, f"http://127.0.0.1:{listener.getsockname()[1]}", token)
        server.should_exit = True
        thread.join()


def test_submit_waits_and_prints_the_score_with_its_interval(live: Live, write_file: WriteFile) -> None:
    with live.worker(0.47):
        result = live.run("submit", write_file(), "--benchmark", BENCHMARK)
    assert "47 (37 to 57)" in result.stdout
    assert "Fewer than 30 cases: Pneumothorax." in result.stdout
    submission = live.world.services.store.list_submissions()[0].id
    assert f"{live.url}/entry?id={submission}" in result.stdout
    assert f"{submission}: scored" in result.stderr
    again = live.run("submit", write_file(), "--benchmark", BENCHMARK)
    assert "this file was already submitted" in again.stderr


def test_run_folder_is_sent_whole_and_its_refusals_count_as_misses(live: Live, write_file: WriteFile) -> None:
    """The first question was refused, so it has no line; another missing line would need `--allow-missing`."""
    file = write_file(masks=False)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    asked = [(one["image_id"], one["finding"]) for one in map(json.loads, lines)]
    outcomes = [QuestionOutcome(f"{image}|{finding}", image, "answered" if i else "refused", finding, point=(1, 1))
                for i, (image, finding) in enumerate(asked)]  # fmt: skip
    folder = file.parent / "run"
    info = RunInfo(BENCHMARK, "1.0.0", "holdout", "localization", len(asked), len(asked), "model", 8)
    write_outputs(folder, outcomes, info)
    (folder / "predictions.jsonl").write_text("".join(lines[1:]), encoding="utf-8")
    words = ("submit", folder, "--benchmark", BENCHMARK, "--metadata", file.parent / "submission.json", "--no-wait")
    assert "1 of" in live.run(*words).stderr
    (pending,) = live.world.services.store.list_submissions()
    assert pending.allow_missing
    write_outputs(folder, outcomes[:-1], info)  # killed before its last question
    (folder / "predictions.jsonl").write_text("".join(lines[1:-1]), encoding="utf-8")
    assert f"2 of {len(asked)} asked pairs have no prediction" in live.run(*words, expect=1).stderr


def test_submit_says_when_an_earlier_score_is_shown(live: Live, write_file: WriteFile) -> None:
    with live.worker(0.60):
        live.run("submit", write_file(seed=1), "--benchmark", BENCHMARK)
    earlier = live.world.services.store.list_submissions()[0].id
    with live.worker(0.47):
        result = live.run("submit", write_file(seed=2), "--benchmark", BENCHMARK)
    assert "60 (50 to 70)" in result.stdout
    assert f"these are the scores of submission {earlier}" in result.stderr


def test_without_waiting_submit_prints_the_queue_position(live: Live, write_file: WriteFile) -> None:
    result = live.run("submit", write_file(), "--benchmark", BENCHMARK, "--no-wait")
    submission = live.world.services.store.list_submissions()[0].id
    assert result.stdout.strip() == f"submission {submission} is queued (position 1)"
    assert live.run("status", submission).stdout == result.stdout
    document = json.loads(live.run("status", submission, "--json").stdout)
    assert (document["id"], document["queue_position"]) == (submission, 1)


def test_withdrawing(live: Live, write_file: WriteFile) -> None:
    live.run("submit", write_file(seed=1), "--benchmark", BENCHMARK, "--no-wait")
    first = live.world.services.store.list_submissions()[0].id
    assert "costs nothing" in live.run("withdraw", first).stdout
    assert "withdrawn" in live.run("status", first, expect=1).stderr
    with live.worker(0.47):
        live.run("submit", write_file(seed=1), "--benchmark", BENCHMARK)  # the same file again
    live.run("withdraw", first, expect=1, input="n\n")
    assert "still counts in the quota" in live.run("withdraw", first, "--yes").stdout
    assert "withdrawn from the leaderboard" in live.run("status", first).stderr


def test_refused_file_is_answered_with_line_numbers(live: Live, write_file: WriteFile) -> None:
    result = live.run(
        "submit", write_file("bad.jsonl", broken={3: "no json", 5: "nor this"}), "--benchmark", BENCHMARK, expect=1
    )
    (line,) = (line for line in result.stderr.splitlines() if "not JSON" in line)
    assert line.startswith("bad.jsonl:3: error")
    assert line.endswith("(2 such errors)")
    assert "Nothing was queued or charged" in str(result.exception)


def test_receipt_is_checked_before_it_is_saved(live: Live, write_file: WriteFile, tmp_path: Path) -> None:
    from reveal_leaderboard.release.receipts import Signer, append

    with live.worker(0.47):
        live.run("submit", write_file(), "--benchmark", BENCHMARK)
    store = live.world.services.store
    submission = store.list_submissions()[0]
    out = tmp_path / "receipt.json"
    assert "404" in str(live.run("receipt", submission.id, "--out", out, expect=1).exception)
    assert not out.exists()
    (tmp_path / "vault").mkdir(mode=0o700)
    score = store.score_of(submission.id)
    assert score is not None
    with store.write() as connection:
        append(connection, Signer(tmp_path / "vault"), submission, score)
    fetched = live.run("receipt", submission.id, "--out", out)
    assert f"checked: the signing key is one that {live.url} publishes" in fetched.stdout
    assert (
        f"verify-receipt {out} --key KEYS, a file with the answer of the leaderboard's /api/v1/keys" in fetched.stderr
    )
    assert json.loads(out.read_text())["receipt"]["submission"] == submission.id
    live.run("receipt", submission.id, "--out", out, expect=2)
    final = live.run("receipt", submission.id, "--final", "--out", tmp_path / "final.json", expect=1)
    assert "404" in str(final.exception)  # this board has no final part


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_documented_curl_commands_send_a_file_and_check_its_receipt(
    live: Live, write_file: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reveal_leaderboard.release.receipts import Signer, append

    send, fetch, verify = Block(PAGE, 0, "sh", block_below(PAGE, "Without this package", "sh")).commands
    write_file("holdout.jsonl")
    monkeypatch.setenv("REVEAL_LEADERBOARD_URL", live.url)
    monkeypatch.setenv("REVEAL_TOKEN", live.world.owner.token)
    queued = json.loads(in_shell(send, tmp_path))
    (tmp_path / "vault").mkdir(mode=0o700)
    signer = Signer(tmp_path / "vault")
    live.world.score(queued["id"], 0.47, sign=lambda connection, *score: append(connection, signer, *score))
    monkeypatch.setenv("ID", queued["id"])
    in_shell(fetch, tmp_path)
    assert "the signing key is the key that you trust" in in_shell(verify, tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("submit", "{tmp}/a/some.jsonl", "--benchmark", "b"), "metadata is needed"),
        (("receipt", NOBODY, "--out", "{tmp}/token"), "must not exist yet"),
    ],
)
def test_wrong_use_is_exit_code_2(live: Live, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "some.jsonl").touch()
    result = live.run(*(word.format(tmp=tmp_path) for word in words), expect=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_token_is_in_no_output(live: Live, write_file: WriteFile, tmp_path: Path) -> None:
    live.token.write_text("rvl_wrong-but-secret\n")
    outputs: list[Any] = [
        live.run("submit", write_file(), "--benchmark", BENCHMARK, expect=1),
        live.run("status", NOBODY, expect=1),
    ]
    for result in outputs:
        assert "wrong-but-secret" not in result.output + str(result.exception)
        assert "401" in str(result.exception)
