"""Uploads, and changes of submissions by their team: the routes on a real store."""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.custody import ParseFailed
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.database import has_no_room

from tests.leaderboard.api_app import SUBMISSIONS, World, api_world, kept_world, problem, sent, world
from tests.leaderboard.conftest import BENCHMARK, METADATA, Board

__all__ = ["kept_world", "world"]

WriteFile = Callable[..., Path]


# Sending -------------------------------------------------------------------------------------------------------------


def test_a_stranger_is_refused_before_the_body_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_read(*args: object, **options: object) -> None:
        raise AssertionError("the body was read")

    monkeypatch.setattr("starlette.requests.Request._get_form", not_read)
    answer = world.client().post(SUBMISSIONS, headers={"Content-Type": "multipart/form-data; boundary=x"}, content=b"x")
    problem(answer, 401, "sign-in")


def test_an_upload_is_answered_by_its_address_and_its_report(world: World, write_file: WriteFile) -> None:
    answer = world.send(write_file())
    document = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, document["url"])
    assert document["url"] == f"{SUBMISSIONS}/{document['id']}"
    assert (document["status"], document["queue_position"], document["is_new"]) == ("queued", 1, True)
    assert (document["report"]["ok"], document["report"]["problems"]) == (True, [])
    assert world.send(write_file()).json()["is_new"] is False


def test_a_file_with_errors_is_answered_by_its_lines(world: World, write_file: WriteFile) -> None:
    answer = world.send(write_file(broken={3: "no json"}))
    report = problem(answer, 422, "lint")["report"]
    assert next(entry["line"] for entry in report["problems"] if entry["severity"] == "error") == 3
    assert world.services.store.list_submissions() == []


def test_missing_pairs_are_errors_unless_allowed(world: World, write_file: WriteFile) -> None:
    short = write_file()
    short.write_text("\n".join(short.read_text(encoding="utf-8").splitlines()[:-3]), encoding="utf-8")
    problem(world.send(short), 422, "lint")
    allowed = world.send(short, fields={"allow_missing": "true"})
    assert (allowed.status_code, allowed.json()["allow_missing"]) == (202, True)


def test_a_lattice_of_points_is_refused(world: World, write_file: WriteFile) -> None:
    """With several points per case, a lattice of points would always hit; a board accepts one."""
    file = write_file(masks=False)
    lattice = [json.loads(line) | {"point": None, "points": [[1, 1], [2, 2]]} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({k: v for k, v in one.items() if v is not None}) + "\n" for one in lattice))
    assert "one point" in problem(world.send(file), 422, "lint")["report"]["problems"][0]["message"]


def test_a_file_that_costs_too_much_gets_a_fixed_sentence(world: World, write_file: WriteFile) -> None:
    kinds: tuple[Any, ...] = ("too_large", "timeout", "crashed")
    for kind in kinds:
        world.custody.ends_with = ParseFailed(kind)
        assert problem(world.send(write_file()), 422, "unreadable")["detail"] == str(ParseFailed(kind))


def _sqlite_error(code: int) -> Exception:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = code
    return error


NO_ROOM: dict[str, Exception] = {
    "disk": OSError(errno.ENOSPC, "No space left on device", "/a/secret/place"),
    "read only": OSError(errno.EROFS, "Read-only file system", "/a/secret/place"),
    "database": sa.exc.OperationalError("INSERT", {}, _sqlite_error(sqlite3.SQLITE_FULL)),
}


@pytest.mark.parametrize("place", list(NO_ROOM))
def test_a_full_disk_keeps_and_charges_nothing(world: World, write_file: WriteFile, place: str) -> None:
    """`NoTraces` answers. With space again, the same file is accepted."""

    def full(*arguments: Any, **more: Any) -> Any:
        raise NO_ROOM[place]

    file = write_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.services.intake.blobs, "receive" if place != "database" else "keep", full)
        with pytest.raises(type(NO_ROOM[place])) as caught:
            world.send(file)
    assert has_no_room(caught.value)
    assert world.services.store.list_submissions() == []
    assert world.send(file).status_code == 202


def test_only_members_submit_for_an_organization(world: World, write_file: WriteFile) -> None:
    for organization in (world.other.team.name, "Another Laboratory"):
        answer = world.send(write_file(), metadata={**METADATA, "organization": organization})
        assert organization in problem(answer, 403, "not-a-member")["detail"]


BAD_METADATA = [
    ("{}", "model"),
    ("[]", "metadata"),
    ("", "metadata"),
    ('{"\\ud800": 1}', "metadata"),
    (json.dumps({**METADATA, "links": {"code": "http://x.org"}}), "links.code"),
    (json.dumps({**METADATA, "grid": 4, "organization": "Owners"}), "grid"),
    (json.dumps({**METADATA, "kind": "robot"}), "kind"),
    (json.dumps({**METADATA, "model": {"name": "<b>"}}), "model.name"),
    (json.dumps(METADATA)[:-1] + ', "parameters": {"a": ' + "9" * 5000 + "}}", "metadata"),
]


def test_metadata_are_refused_by_their_fields(world: World, write_file: WriteFile) -> None:
    for text, field in BAD_METADATA:
        answer = world.send(write_file(), fields={"metadata": text})
        assert field in {error["field"] for error in problem(answer, 422, "metadata")["errors"]}, text


def test_each_part_of_the_form_is_given_once_and_of_its_kind(world: World, write_file: WriteFile) -> None:
    client = world.client(world.owner)
    file = ("file", ("a.jsonl", b"{}"))
    fields = {"benchmark": BENCHMARK, "metadata": "{}"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"data": fields, "files": [("file", (None, b"text"))]}, "file"),
        ({"data": {**fields, "other": "1"}, "files": [file]}, "other"),
        ({"data": {**fields, "allow_missing": "perhaps"}, "files": [file]}, "allow_missing"),
        ({"data": {"metadata": "{}"}, "files": [file]}, "benchmark"),
        ({"data": {**fields, "benchmark": [BENCHMARK, BENCHMARK]}, "files": [file]}, "benchmark"),
    ]
    for form, field in cases:
        errors = problem(client.post(SUBMISSIONS, **form), 422, "invalid")["errors"]
        assert field in {error["field"] for error in errors}
    problem(client.post(SUBMISSIONS, data=fields, files=[file, file]), 422, "invalid")
    problem(client.post(SUBMISSIONS, data=fields, files=[file, file, file]), 400, "malformed")
    problem(client.post(SUBMISSIONS, json={}), 400, "malformed")
    problem(client.post(SUBMISSIONS, data={**fields, "benchmark": "none"}, files=[file]), 404, "unknown-benchmark")


def test_metadata_may_be_a_file(world: World, write_file: WriteFile) -> None:
    metadata = {**METADATA, "organization": world.owner.team.name}
    client = world.client(world.owner)

    def send(content: bytes) -> Any:
        files = {"file": ("good.jsonl", write_file().read_bytes()), "metadata": ("submission.json", content)}
        return client.post(SUBMISSIONS, data={"benchmark": BENCHMARK}, files=files)

    assert send(json.dumps(metadata).encode()).status_code == 202
    assert [one.model_name for one in world.services.store.list_submissions()] == ["Phantom Pointer"]
    for content in (b"{", b'{"model": "\xff"}', b" " * 65_537):
        assert problem(send(content), 422, "metadata")["errors"]


def test_a_key_is_for_one_submission(world: World, write_file: WriteFile) -> None:
    key = {"Idempotency-Key": "one"}
    first, again = (world.send(write_file(seed=1), headers=key) for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    problem(world.send(write_file(seed=2), headers=key), 409, "key-reused")
    problem(world.send(write_file(seed=2), headers={"Idempotency-Key": "two words"}), 422, "invalid")


def test_a_closed_board_says_why(world: World, write_file: WriteFile) -> None:
    with world.services.store.write() as connection:
        boards.set_state(connection, BENCHMARK, "closed", who="cli", why="for refresh")
    assert "for refresh" in problem(world.send(write_file()), 409, "board-closed")["detail"]


@pytest.mark.parametrize(
    ("times", "is_open", "sentence"),
    [
        ('closes = "2026-01-31T12:30Z"', False, "Submissions are accepted until 2026-01-31 12:30 UTC."),
        ('opens = "2999-01-01T00:00Z"', False, "Submissions are accepted from 2999-01-01 00:00 UTC."),
        (
            'opens = "2026-01-01T00:00Z"\ncloses = "2999-01-31T00:00Z"',
            True,
            "Submissions are accepted from 2026-01-01 00:00 UTC until 2999-01-31 00:00 UTC.",
        ),
    ],
)
def test_files_are_accepted_only_within_the_times_of_the_round(
    board: Board, tmp_path: Path, write_file: WriteFile, times: str, *, is_open: bool, sentence: str
) -> None:
    settings = f"[benchmarks.{BENCHMARK}.round]\n{times}\n"
    with api_world(board, tmp_path, settings=settings) as world:
        answer = world.send(write_file())
        (listed,) = world.client().get("/api/v1/benchmarks").json()["benchmarks"]
        if is_open:
            assert (answer.status_code, listed["state"], listed["state_why"]) == (202, "open", "")
        else:
            detail = problem(answer, 409, "board-closed")["detail"]
            assert detail == f"the board of {BENCHMARK} is paused: {sentence}"
            assert (listed["state"], listed["state_why"]) == ("paused", sentence)


def test_a_spent_budget_is_told_with_its_account(board: Board, tmp_path: Path, write_file: WriteFile) -> None:
    with api_world(board, tmp_path, settings="[quota]\ntotal = 2\nper_day = 1\n") as world:
        world.score(sent(world, write_file(seed=1)))
        balance = problem(world.send(write_file(seed=2)), 429, "quota")["balance"]
        expected = {"total": 2, "charged": 1, "pending": 0, "left": 1, "per_day": 1, "left_today": 0}
        assert {name: balance[name] for name in expected} == expected
        assert balance["next_at"].endswith("T00:00:00Z")
        ledger = world.client(world.owner).get(f"/api/v1/me/ledger?benchmark={BENCHMARK}").json()["ledgers"][0]
        assert [(row["kind"], row["amount"]) for row in ledger["rows"]] == [("reserved", 1), ("charged", 0)]
        assert ledger["balance"] == balance


# Changing ------------------------------------------------------------------------------------------------------------


def test_withdrawing_from_the_queue_costs_nothing(world: World, write_file: WriteFile) -> None:
    sent_id = sent(world, write_file())
    problem(world.client(world.other).delete(f"{SUBMISSIONS}/{sent_id}"), 404, "not-found")
    document = world.client(world.owner).delete(f"{SUBMISSIONS}/{sent_id}").json()
    assert document["status"] == "withdrawn"
    ledger = world.client(world.owner).get(f"/api/v1/me/ledger?benchmark={BENCHMARK}").json()["ledgers"][0]
    assert [(row["kind"], row["amount"]) for row in ledger["rows"]] == [("reserved", 1), ("refunded", -1)]


def test_nothing_is_withdrawn_while_it_is_scored(world: World, write_file: WriteFile) -> None:
    sent_id = sent(world, write_file())
    world.services.queue.claim("hand", served=[world.services.intake.catalogue.current(BENCHMARK).key])
    assert "scoring" in problem(world.client(world.owner).delete(f"{SUBMISSIONS}/{sent_id}"), 409, "not-now")["detail"]


def test_only_its_team_changes_a_submission(world: World, write_file: WriteFile) -> None:
    sent_id = sent(world, write_file())
    world.score(sent_id)
    for person in (world.other, world.admin):
        problem(world.client(person).delete(f"{SUBMISSIONS}/{sent_id}"), 403, "not-yours")
        problem(world.client(person).post(f"{SUBMISSIONS}/{sent_id}/choose"), 403, "not-yours")
    problem(world.client().delete(f"{SUBMISSIONS}/{sent_id}"), 401, "sign-in")


def test_the_chosen_one_is_on_the_board(world: World, write_file: WriteFile) -> None:
    first, second = (sent(world, write_file(seed=seed), "Same Name") for seed in (1, 2))
    world.score(first, 0.40)
    world.score(second, 0.50)
    for one in (first, second):
        assert world.client(world.owner).post(f"{SUBMISSIONS}/{one}/choose").json()["is_chosen"] is True
        board_now = world.client().get(f"/api/v1/leaderboard?benchmark={BENCHMARK}").json()
        assert [entry["submission_id"] for entry in board_now["entries"]] == [one]
