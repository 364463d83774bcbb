"""A board of tasks with pictures, answers of two teams that wait for readers, and the page over the board's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from reveal_leaderboard.boards.reading import answers_csv
from reveal_leaderboard.readers.rubric_answers import prepare_rubric
from reveal_leaderboard.readers.store import Readings

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.images import PictureFile, StudyImage
from reveal_bench.kinds.tasks.records import AnswerBox, TaskAnswer, TaskManifest, TaskRecord
from tests.leaderboard.task_world import BENCHMARK, REFERENCE, Room, TaskBoard

TEAMS, MODELS = ("Northern Lab", "Southern Lab"), ("Alpha-7B", "Beta-9B")
N_TASKS, WIDTH, HEIGHT = 12, 80, 100
LABEL = "effusion, left"
ROOM = {"Dr Ada": 12, "Dr Ben": 12}
BOX = (10.0, 20.0, 30.0, 40.0)
CORNER = (0.0, 0.0, 80.0, 50.0)


def build_pictured_board(root: Path) -> TaskBoard:
    """Tasks of as many patients, half of them held out: two views, every other one a prior view, too."""
    records = [_record(i, root / "download") for i in range(N_TASKS)]
    board = TaskBoard(root / "public", root / "private" / "references")
    where: dict[str, Any] = {"pixels": "embed", "holdout": board.holdout, "seed": 3, "synthetic": True}
    build_folder({"test": iter(records)}, board.folder, BENCHMARKS[BENCHMARK], **where)
    return board


def _record(i: int, place: Path) -> TaskRecord:
    images = tuple(_image(place, f"image-{i:03d}-{view}", view, 10 * i + n) for n, view in enumerate(("PA", "LATERAL")))
    prior = (_image(place, f"prior-{i:03d}", "AP", 10 * i + 5),) if i % 2 else ()
    return TaskRecord(
        f"task-{i:03d}",
        f"s{i:03d}",
        f"p{i:03d}",
        f"Prompt number {i}: is there <b>fluid</b>?",
        "measurement_temporal" if prior else "broad_abnormality",
        images=images,
        prior_images=prior,
        indication="Cough." if i % 3 else None,
        temporal=bool(prior),
        requires_boxes=i % 4 < 2,
        reference_answer=REFERENCE,
    )


def _image(place: Path, name: str, view: str, seed: int) -> StudyImage:
    """A picture of smooth noise, so that none equals another."""
    place.mkdir(parents=True, exist_ok=True)
    rough = np.random.default_rng(seed).integers(30, 180, (10, 8), dtype=np.uint8)
    path = place / f"{name}.png"
    Image.fromarray(rough).resize((WIDTH, HEIGHT)).save(path)
    return StudyImage(name, view, WIDTH, HEIGHT, picture=PictureFile(path, path.name, path.name))


def answers_of_model(manifest: TaskManifest, word: str) -> list[TaskAnswer]:
    """An answer to every task; where boxes are asked for one on the first picture and one on the last."""
    answers = []
    for n, task in enumerate(manifest.tasks):
        names = list(task.images)
        drawn = (AnswerBox(names[0], LABEL, BOX), AnswerBox(names[-1], "old", CORNER)) if task.requires_boxes else ()
        text = f"=It looks {word} in {n}.\n- first <i>finding</i>\n- second; -5 mm\n\n'Quoted', | and a bar"
        answers.append(TaskAnswer(task.task_id, text, drawn))
    return answers


@dataclass(frozen=True)
class Waiting:
    """A room whose submissions wait for readers, and the board's file of their answers."""

    room: Room
    answers: Path
    submissions: tuple[str, ...]

    def prepared(self, data: Path, per_item: int = 2) -> Readings:
        return prepare_rubric(data, self.answers, self.room.board.folder, ROOM, per_item=per_item)


def waiting_in(room: Room, out: Path) -> Waiting:
    ids = []
    for team, model, word in zip(TEAMS, MODELS, ("clear", "dense"), strict=True):
        owner = room.person(f"Owner of {team}", team=team)
        submission = room.submit(owner, team, model, answers_of_model(room.board.manifest, word))
        room.worker.run(once=True)
        assert room.status(submission) == "reading"
        ids.append(submission.id)
    with room.store.read() as connection:
        out.write_text(answers_csv(connection, BENCHMARK), encoding="utf-8", newline="")
    return Waiting(room, out, tuple(ids))
