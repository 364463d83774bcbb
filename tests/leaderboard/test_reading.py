"""Readers and what their ratings change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Actor, NotPermittedError
from reveal_leaderboard.boards.reading import (
    ReadingProgress,
    answers_csv,
    import_ratings,
    is_complete,
    last_rated,
    may_read,
    next_answer,
    progress,
    rate,
    readable,
)
from reveal_leaderboard.settings import BenchmarkSettings, ReadingPolicy, load_settings
from reveal_leaderboard.store.audit import audit
from reveal_leaderboard.store.events import append, subjects
from reveal_leaderboard.store.ratings import StoredAnswer, answers_of, digest_of, own_scores, ratings_of
from reveal_leaderboard.store.rubric import RatingError
from reveal_leaderboard.store.store import Submission
from reveal_leaderboard.store.submissions import NotAllowedError
from reveal_leaderboard.store.tables import CRITERIA, answers, ratings

from reveal_bench.kinds.tasks.records import AnswerBox, TaskAnswer
from tests.leaderboard.databases import on_both
from tests.leaderboard.worlds import BENCHMARK, FixedSettings, World, kept_world

POLICY = ReadingPolicy(2, "Readers")
TEXT: dict[str, int | None] = dict.fromkeys(CRITERIA[:4], 3)
FULL: dict[str, int | None] = dict.fromkeys(CRITERIA, 4)
GIVEN = (
    TaskAnswer("t1", "First.", (AnswerBox("i1", "heart", (1.0, 2.0, 3.0, 4.0)),)),
    TaskAnswer("t2", "=HYPERLINK(1)"),
    TaskAnswer("t3", "Third."),
)


class ReadingSettings(FixedSettings):
    def of(self, benchmark: str) -> BenchmarkSettings:
        return replace(super().of(benchmark), reading=POLICY)


class Library(World):
    """A world with a team of readers."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.settings = ReadingSettings(load_settings()._document)
        self.store.settings = self.queue.settings = self.settings
        self.accounts = Accounts(self.store.engine)
        self.boss = self.accounts.sign_in("test", "boss", "Boss", as_admin=True)
        self.team = self.accounts.create_team("Readers", owner=self.boss, who="cli:test")
        with self.store.write() as connection:
            for subject in list(subjects(connection)):  # the world's people were put in without events
                append(connection, subject=subject, who="test", to_status="recorded")

    def actor(
        self, name: str, role: str | None = "reader", *, via: str = "session", scopes: Any = ("submit",)
    ) -> Actor:
        user = self.accounts.sign_in("test", name, name)
        if role is not None:
            self.accounts.add_member(self.team, user, role, "cli:test")
        return Actor(user, tuple(self.accounts.teams_of(user)), frozenset(scopes), via)

    def read(self, **changes: Any) -> tuple[Submission, list[StoredAnswer]]:
        """A submission whose answers wait for readers."""
        submission = self.add(**changes)
        job = self.take_score()
        assert job.subject == submission.id
        assert self.queue.await_readers(job, who="worker:w", answers=GIVEN)
        with self.store.read() as connection:
            return self.get(submission), answers_of(connection, submission.id)

    def rate(self, actor: Actor, answer: StoredAnswer | str, scores: dict[str, int | None] | None = None) -> bool:
        answer_id = answer if isinstance(answer, str) else answer.id
        values = scores if scores is not None else FULL if not isinstance(answer, str) and answer.boxes else TEXT
        with self.store.write() as connection:
            return rate(connection, actor, answer_id, values, self.settings)

    def next(self, actor: Actor) -> StoredAnswer | None:
        with self.store.read() as connection:
            return next_answer(connection, actor, BENCHMARK, POLICY)

    def read_by_two(self, answers: list[StoredAnswer]) -> None:
        for name in ("one", "two"):
            for answer in answers:
                self.rate(self.actor(name), answer)

    def problems(self) -> tuple[Any, ...]:
        with self.store.read() as connection:
            return audit(connection).problems


@pytest.fixture
def library(database_kind: str) -> Iterator[Library]:
    library, kept = kept_world(Library, database_kind)
    yield library
    kept.put_back()


@on_both
def test_from_the_file_to_the_score(library: Library) -> None:
    """Two readers of every answer: the last rating queues the submission, which is then charged and scored."""
    submission, answers = library.read()
    assert submission.status == "reading"
    assert [answer.to_answer() for answer in answers] == list(GIVEN)
    assert (library.kinds(submission), library.balance().pending) == (["reserved"], 1)
    assert library.claim() is None
    assert library.problems() == ()
    one, two = library.actor("one"), library.actor("two")
    assert [library.rate(one, answer) for answer in answers] == [False] * 3
    assert [library.rate(two, answer) for answer in answers] == [False, False, True]
    assert library.get(submission).status == "queued"
    assert library.problems() == ()
    job = library.take_score()
    assert (job.subject, job.attempts, job.fence) == (submission.id, 1, 2)
    assert library.finish(job)
    assert library.path(submission) == [
        "received", "linted", "queued", "scoring", "reading", "queued", "scoring", "scored",
    ]  # fmt: skip
    assert library.kinds(submission) == ["reserved", "charged"]


def test_the_end_of_a_reading_tells_its_ratings_and_no_reader(library: Library) -> None:
    submission, answers = library.read()
    library.read_by_two(answers)
    event = library.store.events_of(submission.id)[-1]
    with library.store.read() as connection:
        rows = ratings_of(connection, submission.id)
    assert (event.from_status, event.to_status, event.who) == ("reading", "queued", "readers")
    assert event.why == f"read to the end: 6 ratings, SHA-256 {digest_of(rows)}"
    assert [(r.task_id, r.process, r.image_style) for r in rows[:3]] == [("t1", 4, 4), ("t1", 4, 4), ("t2", 3, None)]


def test_audit_finds_a_rating_that_was_changed_afterwards(library: Library) -> None:
    submission, answers = library.read()
    library.read_by_two(answers)
    with library.store.write() as connection:
        connection.execute(ratings.update().where(ratings.c.answer_id == answers[0].id).values(process=1))
    (problem,) = library.problems()
    assert problem.area == "submissions"
    assert problem.text == f"submission {submission.id}: its ratings differ from those with which it was scored"


def test_who_may_read(library: Library) -> None:
    library.read()
    allowed = [library.actor("reader")]
    boss = Actor(library.boss, (), frozenset(("submit", "admin")), "session")
    allowed.append(boss)
    refused = [
        library.actor("owner", "owner"),
        library.actor("member", "member"),
        library.actor("nobody", None),
        library.actor("looks only", scopes=("read",)),
        Actor(library.boss, (), frozenset(("read", "submit")), "token"),
    ]
    other = library.accounts.create_team("Their own readers", owner=refused[2].user, who="cli:test")
    library.accounts.add_member(other, library.actor("friend", None).user, "reader", "cli:test")
    refused.append(library.actor("friend", None))
    assert [may_read(actor, POLICY) for actor in allowed] == [True, True]
    assert [may_read(actor, POLICY) for actor in (*refused, None)] == [False] * 7
    assert not may_read(allowed[0], ReadingPolicy())  # where no team is named, admins alone
    assert may_read(boss, ReadingPolicy())
    with library.store.read() as connection:
        for call in (next_answer, last_rated, progress):
            with pytest.raises(NotPermittedError, match="only readers of this board and admins"):
                call(connection, refused[0], BENCHMARK, POLICY)
        with pytest.raises(NotPermittedError, match="only readers"):
            readable(connection, refused[0], "x", POLICY)


def test_a_team_that_waits_or_is_closed_does_not_read(library: Library) -> None:
    reader = library.actor("reader")
    waiting = tuple(replace(one, team=replace(one.team, waiting_since=1.0)) for one in reader.memberships)
    assert not may_read(replace(reader, memberships=waiting), POLICY)
    library.accounts.disable(library.team, "cli:test", "over")
    assert not may_read(replace(reader, memberships=library.accounts.teams_of(reader.user)), POLICY)


def test_nobody_reads_answers_of_a_team_of_their_own(library: Library) -> None:
    submission, answers = library.read()
    both = library.actor("both")
    team = next(team for team in library.accounts.teams() if team.id == submission.team_id)
    for role in ("reader", "member", "owner"):
        library.accounts.add_member(team, both.user, role, "cli:test")
        now = Actor(both.user, tuple(library.accounts.teams_of(both.user)), both.scopes, "session")
        assert library.next(now) is None
        with library.store.read() as connection:
            assert readable(connection, now, answers[0].id, POLICY) is None
        with pytest.raises(NotPermittedError, match="readers must not rate answers of their own team"):
            library.rate(now, answers[0])
    local = Actor(both.user, now.memberships, both.scopes, "local")
    assert library.next(local) is not None


@on_both
def test_a_reader_goes_through_all_answers_once(library: Library) -> None:
    library.read()
    library.read(team_id="team2", sha256="b" * 64)
    reader, seen = library.actor("reader"), []
    while (answer := library.next(reader)) is not None:
        seen.append(answer.id)
        library.rate(reader, answer)
    assert len(set(seen)) == len(seen) == 6
    with library.store.read() as connection:
        assert progress(connection, reader, BENCHMARK, POLICY) == ReadingProgress(rated=6, left=0, waiting=6)


def test_the_order_is_the_readers_own(library: Library) -> None:
    """Twelve readers all see the same one of six answers first with a chance of 1 in 360 million."""
    for n in range(1, 3):
        library.read(team_id=f"team{n}", sha256=f"{n}" * 64)
    first = [library.next(library.actor(f"reader{n}")) for n in range(12)]
    assert len({answer.id for answer in first if answer is not None}) > 1
    assert library.next(library.actor("reader0")) == first[0]


def test_answers_that_are_begun_come_first(library: Library) -> None:
    _, answers = library.read()
    library.rate(library.actor("one"), answers[1])
    assert library.next(library.actor("two")) == answers[1]
    library.rate(library.actor("two"), answers[1])
    with library.store.read() as connection:
        assert progress(connection, library.actor("three"), BENCHMARK, POLICY) == ReadingProgress(0, 2, 2)


def test_a_rating_may_be_changed_until_the_end(library: Library) -> None:
    submission, answers = library.read()
    one, two = library.actor("one"), library.actor("two")
    library.rate(one, answers[1])
    library.rate(one, answers[1], TEXT | {"process": 5})
    with library.store.read() as connection:
        assert own_scores(connection, answers[1].id, one.name) == dict.fromkeys(CRITERIA, None) | TEXT | {"process": 5}
        assert own_scores(connection, answers[1].id, two.name) is None
        assert last_rated(connection, one, BENCHMARK, POLICY) == answers[1]
        assert last_rated(connection, two, BENCHMARK, POLICY) is None
    for answer in answers:
        library.rate(one, answer)
        library.rate(two, answer)
    with pytest.raises(NotAllowedError, match="no longer waits for readers"):
        library.rate(one, answers[0])
    with library.store.read() as connection:
        assert last_rated(connection, one, BENCHMARK, POLICY) is None
        assert is_complete(connection, submission.id, POLICY)


SCORES: dict[str, tuple[int, dict[str, Any], str]] = {
    "nothing": (1, {}, "Process must be scored; Execution must be scored"),
    "zero": (1, TEXT | {"process": 0}, "Process must be a whole number from 1 to 5, got 0"),
    "six": (1, TEXT | {"language": 6}, "Language must be .* got 6"),
    "half": (1, TEXT | {"process": 2.5}, "got 2.5"),
    "text": (1, TEXT | {"process": "3"}, "got '3'"),
    "true": (1, TEXT | {"process": True}, "got True"),
    "pictures without boxes": (1, FULL, "Image content must be empty: the answer has no boxes"),
    "boxes without pictures": (0, TEXT, "Image style must be scored: the answer has boxes"),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_that_break_a_rule_are_not_kept(library: Library, name: str) -> None:
    place, scores, match = SCORES[name]
    _, answers = library.read()
    with pytest.raises(RatingError, match=match):
        library.rate(library.actor("one"), answers[place], scores)
    with library.store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(ratings)).scalar_one() == 0


@on_both
def test_the_database_itself_refuses_a_six(library: Library) -> None:
    _, answers = library.read()
    row = {"answer_id": answers[0].id, "reader": "r", "process": 6, "who": "w", "rated_at": 0.0}
    with library.store.write() as connection, pytest.raises(sa.exc.IntegrityError, match="ck_ratings_process"):
        connection.execute(ratings.insert().values(**row))


def test_an_unknown_answer_is_refused(library: Library) -> None:
    with pytest.raises(NotAllowedError, match="unknown answer"):
        library.rate(library.actor("one"), "nothing")


@on_both
def test_withdrawn_while_it_is_read_costs_nothing_and_is_not_read_on(library: Library) -> None:
    submission, answers = library.read()
    one = library.actor("one")
    library.rate(one, answers[0])
    assert library.store.withdraw(submission.id, who="user:user1").status == "withdrawn"
    assert (library.kinds(submission), library.spent()) == (["reserved", "refunded"], 0)
    assert library.next(library.actor("two")) is None
    with pytest.raises(NotAllowedError, match="no longer waits for readers"):
        library.rate(one, answers[1])
    assert library.problems() == ()


def test_sent_again_it_is_read_on_where_it_stood(library: Library) -> None:
    submission, answers = library.read()
    library.rate(library.actor("one"), answers[0])
    library.store.withdraw(submission.id, who="user:user1")
    again, before = library.read()
    assert (again.id, before) == (submission.id, answers)
    assert library.kinds(submission) == ["reserved", "refunded", "reserved"]
    assert library.next(library.actor("two")) == answers[0]
    assert library.problems() == ()


def test_what_is_hidden_is_not_read(library: Library) -> None:
    submission, answers = library.read()
    library.store.hide(submission.id, who="user:boss", why="a test")
    assert library.next(library.actor("one")) is None
    with pytest.raises(NotAllowedError, match="no longer"):
        library.rate(library.actor("one"), answers[0])
    library.store.restore(submission.id, who="user:boss", why="over")
    assert library.next(library.actor("one")) is not None


def test_a_worker_that_was_given_up_cannot_bring_answers(library: Library) -> None:
    submission = library.add()
    job = library.take(lease_seconds=0.0)
    other = library.take("other")
    assert other.subject == submission.id
    assert not library.queue.await_readers(job, who="worker:w", answers=GIVEN)
    with library.store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(answers)).scalar_one() == 0
    assert library.queue.await_readers(other, who="worker:other", answers=GIVEN)


# Files of ratings -----------------------------------------------------------------------------------------------------

HEAD = ",".join(("answer_id", "reader", *CRITERIA))


def lines_of(answers: list[StoredAnswer], *readers: str) -> str:
    rows = [f"{a.id},{r},4,4,4,4,{'4,4' if a.boxes else ','}" for a in answers for r in readers]
    return "\n".join([HEAD, *rows]) + "\n"


@on_both
def test_a_file_of_ratings_ends_a_reading(library: Library, tmp_path: Path) -> None:
    submission, answers = library.read()
    path = tmp_path / "ratings.csv"
    path.write_text(lines_of(answers, "Dr A", "Dr B"), encoding="utf-8")
    with library.store.write() as connection:
        done = import_ratings(connection, path, library.settings, who="cli:boss")
    assert (done.new, done.changed, done.complete) == (6, 0, (submission.id,))
    assert library.get(submission).status == "queued"
    with library.store.read() as connection:
        assert {r.reader for r in ratings_of(connection, submission.id)} == {"file:Dr A", "file:Dr B"}
    assert library.problems() == ()


def test_a_file_may_be_brought_in_twice(library: Library, tmp_path: Path) -> None:
    _, answers = library.read()
    path = tmp_path / "ratings.csv"
    path.write_text(lines_of(answers, "Dr A"), encoding="utf-8")
    for expected in ((3, 0), (0, 3)):
        with library.store.write() as connection:
            done = import_ratings(connection, path, library.settings, who="cli:boss")
        assert (done.new, done.changed, done.complete) == (*expected, ())


BAD_FILES: dict[str, tuple[str, str]] = {
    "no head": ("{a},r,1,1,1,1,1,1\n", "ratings.csv:1: `columns` must have different names, got 1 more than once"),
    "unknown answer": (f"{HEAD}\nzzz,r,1,1,1,1,,\n", "line 2: `answer_id` must be the id of an answer on this board"),
    "six": (f"{HEAD}\n{{a}},r,6,1,1,1,1,1\n", "line 2: `process` must be 1, 2, 3, 4 or 5, got '6'"),
    "word": (f"{HEAD}\n{{a}},r,good,1,1,1,1,1\n", "got 'good'"),
    "no pictures": (f"{HEAD}\n{{a}},r,1,1,1,1,,\n", "line 2: Image content must be scored"),
    "cell too few": (f"{HEAD}\n{{a}},r,1,1,1,1,1\n", "line 2: must have 8 cells, like the header, got "),
    "cell too many": (f"{HEAD}\n{{a}},r,1,1,1,1,1,1,1\n", "line 2: must have 8 cells, like the header, got "),
    "no reader": (f"{HEAD}\n{{a}}, ,1,1,1,1,1,1\n", "line 2: `reader` must be a name"),
    "twice": (f"{HEAD}\n{{a}},r,1,1,1,1,1,1\n{{a}},r,1,1,1,1,1,1\n", "line 3: the reader already rated .* in line 2"),
    "not text": ("\xff", "ratings.csv:1: `file` must be UTF-8: save the table as CSV UTF-8"),
    "open quote": (f'{HEAD}\n"{{a}},r,1,1,1,1,1,1\n', "must be readable as csv in UTF-8"),
    "empty": ("", "must have a row of column names"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_of_a_bad_file_nothing_is_kept(library: Library, tmp_path: Path, name: str) -> None:
    text, match = BAD_FILES[name]
    _, answers = library.read()
    path = tmp_path / "ratings.csv"
    good = f"{answers[1].id},good,5,5,5,5,,\n"
    text = text.replace("{a}", answers[0].id)
    path.write_bytes(text.encode("latin-1") + (good.encode() if text.startswith(HEAD) and '"' not in text else b""))
    with pytest.raises(RatingError, match=match), library.store.write() as connection:
        import_ratings(connection, path, library.settings, who="cli:boss")
    with library.store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(ratings)).scalar_one() == 0


def test_answers_for_readers_elsewhere_are_blinded_and_harmless(library: Library) -> None:
    submission, answers = library.read()
    with library.store.read() as connection:
        text = answers_csv(connection, BENCHMARK)
    lines = text.split("\r\n")
    assert lines[0] == "answer_id,task_id,answer,boxes"
    assert sorted(line[:32] for line in lines[1:-1]) == [line[:32] for line in lines[1:-1]]
    assert f"{answers[1].id},t2,'=HYPERLINK(1)," in text
    for secret in (submission.id, submission.model_name, "Team 1", submission.sha256):
        assert secret not in text
