"""Receiving uploads: the right to submit, stored files, and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Actor
from reveal_leaderboard.boards.catalogue import Catalogue, UnknownBenchmarkError
from reveal_leaderboard.custody import Custody, ParseFailed
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.metadata import MetadataError, read_metadata
from reveal_leaderboard.store.store import BoardClosedError, QuotaExceededError, Store
from reveal_leaderboard.web.submissions import Intake, NotAMemberError, UploadResult, display_name

from tests.leaderboard.conftest import BENCHMARK, METADATA, Board
from tests.leaderboard.databases import DATABASE_SOURCE

WriteFile = Callable[..., Path]


@pytest.fixture
def intake(board: Board, custody: Custody, tmp_path: Path) -> Intake:
    (tmp_path / "settings.toml").write_text("[quota]\ntotal = 3\n", encoding="utf-8")
    store = Store(DATABASE_SOURCE.migrated("sqlite", tmp_path), load_settings(tmp_path / "settings.toml"))
    blobs, accounts = Blobs(tmp_path / "blobs"), Accounts(store.engine)
    return Intake(store, blobs, Catalogue(store, [board.published]), custody, accounts, heard.append_pair)


class _Heard(list[tuple[str, bool]]):
    def append_pair(self, benchmark: str, passed: bool) -> None:
        self.append((benchmark, passed))


heard = _Heard()


def send(
    intake: Intake, file: Path, actor: Actor | None = None, *, benchmark: str = BENCHMARK, **fields: Any
) -> UploadResult:
    metadata = read_metadata(json.dumps({**METADATA, **fields}))
    actor = actor or intake.accounts.local_actor()
    with file.open("rb") as stream:
        return intake.submit(stream, benchmark, metadata, actor=actor, filename=file.name, allow_missing=False)


def stored(intake: Intake) -> list[str]:
    return [name for name, _ in intake.blobs.names()]


def test_a_clean_file_is_kept_and_queued_once(intake: Intake, write_file: WriteFile) -> None:
    heard.clear()
    first, second = (send(intake, write_file()) for _ in range(2))
    assert (first.is_new, second.is_new) == (True, False)
    assert first.submission.id == second.submission.id
    kept = intake.store.get(first.submission.id)
    assert kept is not None
    assert kept.canonical is not None
    assert sorted(stored(intake)) == sorted([kept.sha256, kept.canonical])
    assert heard == [(BENCHMARK, True), (BENCHMARK, True)]


def test_a_file_with_errors_leaves_nothing_but_its_report(intake: Intake, write_file: WriteFile) -> None:
    heard.clear()
    outcome = send(intake, write_file(broken={2: "no json"}))
    assert outcome.submission is None
    assert outcome.report.problems[0].line == 2
    assert stored(intake) == []
    assert intake.store.list_submissions() == []
    assert heard == [(BENCHMARK, False)]


def test_only_members_submit_for_a_team(intake: Intake, write_file: WriteFile) -> None:
    accounts = intake.accounts
    owner, stranger = (accounts.sign_in("https://id.example.org", name, name) for name in ("owner", "stranger"))
    accounts.create_team("Example Laboratory", owner=owner, who=f"user:{owner.id}")
    actors = {}
    for user in (owner, stranger):
        actor = accounts.session_user(accounts.new_session(user))
        assert actor is not None
        actors[user.name] = actor
    with pytest.raises(NotAMemberError, match="none of your teams has that name"):
        send(intake, write_file(), actors["stranger"])
    assert stored(intake) == []
    sent = send(intake, write_file(), actors["owner"], organization="EXAMPLE laboratory")
    assert sent.submission.team == "Example Laboratory"


@pytest.mark.parametrize(
    ("metadata_fields", "field", "rule"),
    [
        ({"grid": 16}, "grid", "must be the board's grid, 8 cells per side"),
        ({"thresholds": {"Nonsense": 0.5}}, "thresholds", "must name labels of the board"),
    ],
)
def test_metadata_that_do_not_fit_the_board(
    intake: Intake, write_file: WriteFile, metadata_fields: dict[str, Any], field: str, rule: str
) -> None:
    with pytest.raises(MetadataError, match=rule) as raised:
        send(intake, write_file(), **metadata_fields)
    assert raised.value.errors[0]["field"] == field
    assert stored(intake) == []


def test_the_same_file_with_other_thresholds_needs_another_name(intake: Intake, write_file: WriteFile) -> None:
    send(intake, write_file(), thresholds={"Edema": 0.4})
    send(intake, write_file(), thresholds={"Edema": 0.4})
    with pytest.raises(MetadataError, match="use another name"):
        send(intake, write_file(), thresholds={"Edema": 0.6})
    assert send(intake, write_file(), thresholds={"Edema": 0.6}, model={"name": "Other"}).is_new


def test_what_may_not_be_sent_now_is_not_kept(intake: Intake, write_file: WriteFile) -> None:
    for n in range(2):  # a day's worth by the packaged settings
        send(intake, write_file(), model={"name": f"Model {n}"})
    kept = stored(intake)
    other = write_file(name="other.jsonl", seed=1)
    with pytest.raises(QuotaExceededError):
        send(intake, other, model={"name": "Third"})
    with intake.store.write() as connection:
        boards.set_state(connection, BENCHMARK, "paused", who="user:admin", why="holiday")
    with pytest.raises(BoardClosedError, match="paused: holiday"):
        send(intake, other, model={"name": "Third"})
    assert stored(intake) == kept
    assert not send(intake, write_file(), model={"name": "Model 0"}).is_new


def test_boards_that_are_not_there(intake: Intake, write_file: WriteFile) -> None:
    with pytest.raises(UnknownBenchmarkError, match="Benchmarks on this server: chexlocalize"):
        send(intake, write_file(), benchmark="nih")
    with pytest.raises(UnknownBenchmarkError):
        intake.lint(write_file(), "nih", name="x", allow_missing=False)


def test_a_check_that_breaks_off_keeps_nothing(
    intake: Intake, write_file: WriteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ParseFailed("too_large")

    with monkeypatch.context() as patch:
        patch.setattr(intake.custody, "parse", broken)
        with pytest.raises(ParseFailed, match="Reading the file"):
            send(intake, write_file())
    assert stored(intake) == []


def test_names_of_files_are_for_show_only() -> None:
    assert display_name("../../etc/passwd") == "passwd"
    assert display_name("C:\\models\\a\u202eb\x00.csv") == "ab.csv"
    assert display_name("") == "upload"
    assert len(display_name("x" * 999)) == 200
