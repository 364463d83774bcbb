"""A synthetic board of tasks: its folders, answers to them, readers, and a worker in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Actor, User
from reveal_leaderboard.boards.catalogue import Catalogue
from reveal_leaderboard.boards.reading import rate
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.settings import load_settings
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.metadata import read_metadata
from reveal_leaderboard.store.queue import Queue
from reveal_leaderboard.store.ratings import answers_of
from reveal_leaderboard.store.store import Store, Submission
from reveal_leaderboard.web.submissions import Intake
from reveal_leaderboard.worker.worker import Worker, open_holdouts

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.images import StudyImage
from reveal_bench.kinds.tasks.lint import answers_to_jsonl
from reveal_bench.kinds.tasks.records import CATEGORIES, AnswerBox, TaskAnswer, TaskManifest, TaskRecord
from reveal_bench.metrics.ordinal import CRITERIA
from tests.leaderboard.conftest import Board
from tests.leaderboard.databases import DATABASE_SOURCE, Kept

BENCHMARK = "rexecution"
SETTINGS = """
[quota]
total = 10
per_day = 10
[release]
min_cell = 10
bands = [10, 20]
band_resolution = [0.1, 0.01]
n_resamples = 200
[reading]
team = "Readers"
"""
REFERENCE = "the reference answer that nobody sees"


class TaskBoard(Board):
    """The same of tasks."""

    @property
    def manifest(self) -> TaskManifest:  # type: ignore[override]
        manifest = self.published.manifest
        assert isinstance(manifest, TaskManifest)
        return manifest


def build_task_board(root: Path, n_tasks: int = 40) -> TaskBoard:
    """Tasks of as many studies, two to a patient; every other one asks for boxes; half are held out."""
    records = [
        TaskRecord(
            f"task-{i:03d}",
            f"s{i:03d}",
            f"p{i // 2:03d}",
            f"Prompt number {i}.",
            CATEGORIES[i % 2],
            images=(StudyImage(f"image-{i:03d}", "PA", 100, 80),),
            indication="Cough.",
            requires_boxes=i % 2 == 0,
            reference_answer=REFERENCE,
        )
        for i in range(n_tasks)
    ]
    board = TaskBoard(root / "public", root / "private" / "references")
    where: dict[str, Any] = {"pixels": "withhold", "holdout": board.holdout, "seed": 3, "synthetic": True}
    build_folder({"test": iter(records)}, board.folder, BENCHMARKS[BENCHMARK], **where)
    return board


def answers_to(manifest: TaskManifest, word: str = "Answer", *, boxes: bool = True) -> list[TaskAnswer]:
    """An answer to every task, with a box where one is asked for."""
    answers = []
    for task in manifest.tasks:
        image = next(iter(task.images))
        drawn = (AnswerBox(image, "effusion", (10.0, 20.0, 30.0, 40.0)),) if boxes and task.requires_boxes else ()
        answers.append(TaskAnswer(task.task_id, f"{word} to {task.task_id}.\nSecond line.", drawn))
    return answers


class Room:
    """A data folder with a way in, a worker's parts, and people."""

    def __init__(self, board: TaskBoard, root: Path, custody: Custody, url: str | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        (root / "settings.toml").write_text(SETTINGS, encoding="utf-8")
        self.settings = load_settings(root / "settings.toml")
        self.board, self.root = board, root
        self.store = Store(url or DATABASE_SOURCE.migrated("sqlite", root), self.settings)
        self.blobs, self.accounts = Blobs(root / "blobs"), Accounts(self.store.engine)
        self.catalogue = Catalogue(self.store, [board.published])
        self.custody = custody
        self.intake = Intake(self.store, self.blobs, self.catalogue, custody, self.accounts)
        self.queue = Queue(self.store.engine, self.settings)
        holdouts = open_holdouts(
            [(BENCHMARK, board.holdout)], shared=[root], vault=root.with_name(root.name + "-vault")
        )
        self.vault = next(iter(holdouts.values())).vault.folder
        self.worker = Worker(self.store, self.blobs, holdouts, custody, self.settings)
        boss = self.accounts.sign_in("https://id.example", "boss", "Boss", as_admin=True)
        self.readers_team = self.accounts.create_team("Readers", owner=boss, who="cli:test")
        self.boss = boss

    def person(self, name: str, *, role: str | None = None, team: str | None = None) -> Actor:
        """Return a new user in the readers' team with `role`, or the owner of a new `team`."""
        user = self.accounts.sign_in("https://id.example", name, name)
        if role is not None:
            self.accounts.add_member(self.readers_team, user, role, "cli:test")
        if team is not None:
            self.accounts.create_team(team, owner=user, who="cli:test")
        return self.actor(user)

    def actor(self, user: User, via: str = "session") -> Actor:
        scopes = frozenset(("read", "submit", "admin"))
        return Actor(user, tuple(self.accounts.teams_of(user)), scopes, via)

    def submit(
        self, actor: Actor, team: str, model: str, answers: Sequence[TaskAnswer] | None = None, **options: Any
    ) -> Submission:
        """Send answers as a file; all of them by default."""
        path = self.root / "answers.jsonl"
        path.write_text(answers_to_jsonl(answers or answers_to(self.board.manifest, model)), encoding="utf-8")
        about = {"model": {"name": model}, "organization": team, "kind": "multimodal_llm"}
        with path.open("rb") as stream:
            outcome = self.intake.submit(
                stream,
                BENCHMARK,
                read_metadata(json.dumps(about)),
                actor=actor,
                filename=path.name,
                allow_missing=options.get("allow_missing", False),
            )
        assert outcome.report.ok, outcome.report.render()
        assert outcome.submission is not None
        return outcome.submission

    def status(self, submission: Submission) -> str:
        current = self.store.get(submission.id)
        return current.status

    def rate_all(self, submission: Submission, actor: Actor, scores: Mapping[str, int] | None = None) -> bool:
        """Rate every answer of a submission; return True if no rating is missing after that."""
        with self.store.read() as connection:
            answers = answers_of(connection, submission.id)
        is_over = False
        for answer in answers:
            ratings = scores_for(bool(answer.boxes), **(scores or {}))
            with self.store.write() as connection:
                is_over = rate(connection, actor, answer.id, ratings, self.settings)
        return is_over


def scores_for(has_boxes: bool, **changes: int) -> dict[str, int | None]:
    """Return scores of 4; the scores for images only if the answer has boxes."""
    scores: dict[str, int | None] = {name: 4 if has_boxes or i < 4 else None for i, name in enumerate(CRITERIA)}
    return scores | {name: value for name, value in changes.items() if scores[name] is not None}


@pytest.fixture(scope="module")
def task_board(tmp_path_factory: pytest.TempPathFactory) -> TaskBoard:
    """Twenty tasks of some ten patients."""
    return build_task_board(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def kept_room(task_board: TaskBoard, tmp_path_factory: pytest.TempPathFactory, custody: Custody) -> Iterator[Room]:
    """One room for the tests of a module."""
    room = Room(task_board, tmp_path_factory.mktemp("room") / "data", custody)
    yield room
    room.store.engine.dispose()


@pytest.fixture
def room(kept_room: Room) -> Iterator[Room]:
    """The same room for every test, with nothing in its database that another test wrote."""
    kept = Kept(kept_room.store.engine)
    yield kept_room
    kept.put_back()
