"""No action leaks a holdout into answers, files, logs, the database or the server's memory."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from reveal_leaderboard.custody.confinement import landlock_abi

from reveal_bench.kinds.localization.records import read_localization
from tests.leaderboard.leak.canaries import Search
from tests.leaderboard.leak.collected import PLACES, Collected, dump_of, made_at_home
from tests.leaderboard.leak.deployment import deployed
from tests.leaderboard.leak.hospital import IMAGES, MARKERS, SECOND, STUDIES, Hospital
from tests.leaderboard.leak.secrets import secret_texts
from tests.leaderboard.leak.whole_run import MAX_UPLOAD_MB, SETTINGS, WEBHOOK, Run
from tests.leaderboard.leak.wire import Answer
from tests.leaderboard.receiver import SECRET, receiving

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collected]:
    """The one long run; the hospital's folder is outside everything that is searched."""
    root = tmp_path_factory.mktemp("leak")
    (root / "run").mkdir()
    hospital = Hospital(root / "hospital").build()
    with receiving() as receiver:
        settings = SETTINGS + WEBHOOK.format(url=receiver.url)
        options = ("--max-upload-mb", str(MAX_UPLOAD_MB))
        with deployed(hospital, root / "run", settings, *options, REVEAL_WEBHOOK_CHAT_SECRET=SECRET) as board:
            yield Collected.of(Run(board, receiver))


@pytest.mark.parametrize("place", PLACES)
def test_no_secret_is_leaked(collected: Collected, place: str) -> None:
    assert collected.leaks[place] == []


# The search is effective: everything happened, the canaries exist, and planted ones are found


def test_every_submission_has_its_final_status(collected: Collected) -> None:
    ends = {name: document["status"] for name, document in collected.run.documents.items()}
    scored = ("images A", "images B", "studies A", "studies B", "held", "hidden", "withdrawn late")
    withdrawn = {"withdrawn early": "withdrawn"}
    assert ends == {"failed": "failed", "refused": "refused", **withdrawn, **dict.fromkeys(scored, "scored")}
    assert collected.run.documents["failed"]["incident"].startswith("INC-")
    assert collected.run.documents["held"]["score"]["shown_of"] == collected.run.ids["images A"]


def test_webhook_gets_public_events_without_scores(collected: Collected) -> None:
    messages = collected.run.receiver.messages
    counts = Counter((message["type"], message["data"].get("model")) for message in messages)
    scored = {"Pointer", "Finder", "Reader", "Consultant", "Regret"}
    assert {model for kind, model in counts if kind == "scored" and model is not None} >= scored - {"Regret"}
    assert counts["withdrawn", "Regret"] == 1
    assert sum(n for (kind, _), n in counts.items() if kind == "scored") == 7
    least = {"event", "benchmark", "version"}
    assert {frozenset(message["data"]) for message in messages} == {
        frozenset(least), frozenset({*least, "entry", "team", "model"})
    }  # fmt: skip


def test_stored_arrays_equal_those_computed_from_uploads(collected: Collected) -> None:
    with closing(sqlite3.connect(collected.run.board.data / "leaderboard.sqlite")) as connection:
        query = "SELECT DISTINCT canonical FROM submissions WHERE canonical IS NOT NULL"
        named = {name for (name,) in connection.execute(query)}
    assert len(named) > 5
    assert named <= {path.name for path in made_at_home(collected.run)}


def test_every_kind_of_answer_occurred(collected: Collected) -> None:
    statuses = {answer.status for answer in collected.run.board.wire.answers}
    assert {200, 201, 202, 400, 401, 403, 404, 405, 413, 422, 500} - statuses <= {401}  # this board has no sign-in
    kinds = {"text/html", "text/event-stream", "text/css", "text/csv", "application/json", "text/plain"}
    assert kinds | {"application/problem+json", "application/vnd.apache.parquet"} <= collected.run.board.wire.kinds


def test_no_answer_names_a_path_of_the_server(collected: Collected) -> None:
    place = str(collected.run.board.root).encode()
    leaking = [answer.asked for answer in collected.run.board.wire.answers if place in answer.body + answer.headers]
    assert leaking == []


def test_every_page_handler_was_called(collected: Collected) -> None:
    failed = {name for name, done in collected.run.called.items() if not done["success"]}
    config = collected.run.board.wire.get("/config").json()
    handlers = [handler for handler in config["dependencies"] if handler["backend_fn"]]
    assert failed == set()
    assert len(collected.run.called) == len(handlers) > 40


def test_the_board_was_refreshed_and_shows_the_best_first(collected: Collected) -> None:
    board = collected.run.board.wire.get(f"/api/v1/leaderboard?benchmark={IMAGES}").json()
    assert board["version"] == SECOND
    ids = [entry["submission_id"] for entry in board["entries"]]
    assert ids[0] == collected.run.ids["images B"]
    assert collected.run.ids["hidden"] not in ids


def test_holdouts_contain_the_canaries(collected: Collected) -> None:
    """A search for missing canaries would also find nothing."""
    hospital = collected.run.board.hospital
    search = Search(secret_texts(hospital))
    secrets = {leak.secret for leak in search.within_folder(hospital.root, besides=[hospital.root / "public"])}
    in_names = {leak.secret for leak in search.within(str(hospital.holdout(IMAGES)).encode(), "path")}
    in_names |= {leak.secret for leak in search.within(str(hospital.vault).encode(), "path")}
    assert secrets | in_names >= set(secret_texts(hospital)) - {"text in a damaged file"}  # repaired before
    assert in_names == {"folder of holdouts", "folder of vaults"}
    first, second = hospital.images, read_localization(hospital.holdout(IMAGES, SECOND), "holdout")
    assert [record.image_id for record in first] == [record.image_id for record in second]
    assert [record.labels for record in first] != [record.labels for record in second]


def test_search_includes_exact_scores(collected: Collected) -> None:
    assert collected.search.n_numbers > 1000


def test_incident_has_the_cause_missing_in_the_answer(collected: Collected) -> None:
    number = collected.run.documents["failed"]["incident"]
    hospital = collected.run.board.hospital
    details = (hospital.vault / f"{number}.txt").read_text()
    assert MARKERS["folder of holdouts"] in details or "Parquet" in details
    why = [e["why"] for e in collected.run.documents["failed"]["events"] if e["to_status"] == "failed"]
    sentence = "Scoring failed because of an internal error, which cannot be shown. Please send the incident number"
    assert why == [f"{sentence} {number} to the operators."]


def plant(collected: Collected, place: str, secret: str) -> None:
    board = collected.run.board
    if place == "answers":
        board.wire.answers.append(Answer("GET /planted", 200, b"", f'{{"value": "{secret}"}}'.encode()))
    elif place == "files in the end":
        (board.data / "planted.log").write_bytes(secret.encode("utf-16"))
    else:
        with closing(sqlite3.connect(board.data / "leaderboard.sqlite")) as connection:
            connection.execute("CREATE TABLE planted (text)")
            connection.execute("INSERT INTO planted VALUES (?)", (secret,))
            connection.commit()


@pytest.mark.parametrize("place", ["answers", "files in the end", "database"])
def test_planted_canary_is_detected(collected: Collected, place: str) -> None:
    secret = MARKERS["patient"]
    plant(collected, place, secret)
    data = collected.run.board.data
    leaks: dict[str, Any] = {
        "answers": collected.in_answers,
        "files in the end": lambda: collected.search.within_folder(data),
        "database": lambda: collected.search.within(dump_of(data / "leaderboard.sqlite"), "database"),
    }
    assert {leak.secret for leak in leaks[place]()} == {"patient"}


def test_server_memory_can_be_searched(collected: Collected) -> None:
    """A text that the server must know is in its memory: the name of a board."""
    search = Search({"board": STUDIES})
    assert Collected(collected.run, search).in_memory(collected.run.board.server.pid)


# All scores are rounded


def test_every_released_score_is_rounded(collected: Collected) -> None:
    figures: list[float] = []
    for answer in collected.run.board.wire.answers:
        if b"application/json" in answer.headers and b"/api/v1/" in answer.asked.encode():
            figures += list(_figures(json.loads(answer.body)))
    assert len(figures) > 500
    assert [value for value in figures if abs(100 * value - round(100 * value)) > 1e-9] == []


def _figures(document: Any) -> Iterator[float]:
    """Yield values, interval bounds and differences anywhere in a document, except in linter reports."""
    if isinstance(document, list):
        for inner in document:
            yield from _figures(inner)
    elif isinstance(document, dict):
        for name, inner in document.items():
            if name in ("value", "low", "high", "a", "b") and isinstance(inner, float):
                yield inner
            elif name != "report":
                yield from _figures(inner)


def test_the_server_was_confined(collected: Collected) -> None:
    if landlock_abi() == 0:
        pytest.skip("this kernel has no Landlock")
    assert collected.run.board.wire.get("/readyz").json()["confinement"].startswith(f"landlock-{landlock_abi()}")
