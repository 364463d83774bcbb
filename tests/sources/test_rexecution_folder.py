"""From the synthetic download to a dataset folder that anyone can load, and back to the readers' agreement."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.tasks.records import rated_answers, rating_array, read_ratings, read_tasks
from reveal_bench.metrics.ordinal import CONTENT_CRITERIA, CRITERIA, content_score, reader_agreement
from reveal_bench.phantom.rexecution import write_rexecution
from reveal_bench.sources import rexecution

BENCHMARK = BENCHMARKS["rexecution"]
SCORES = [1, 2, 3, 4, 5]


class Built(NamedTuple):
    download: Path
    whole: Path
    public: Path
    private: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Thirty tasks, once as they are and once with half of the patients held out."""
    root = tmp_path_factory.mktemp("built")
    write_rexecution(root / "download", n_tasks=30, seed=0, long_side=96)
    for out, holdout in (("whole", None), ("public", root / "private")):
        source_data = rexecution.read(root / "download")
        build_folder(
            source_data.splits, root / out, BENCHMARK, holdout=holdout, synthetic=True, extras=source_data.extras
        )
    return Built(root / "download", root / "whole", root / "public", root / "private")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_folders_are_valid(built: Built) -> None:
    assert validate_folder(built.whole) == []
    # halves of tasks are loaded by tests/dataset/test_validate.py
    assert validate_folder(built.public, holdout=built.private, load=False) == []
    assert validate_folder(built.private, load=False) == []


def test_tasks_come_back_as_they_were_read(built: Built) -> None:
    records = list(rexecution.read(built.download).splits["test"])
    back = read_tasks(built.whole, "test")
    assert len(back) == 30
    for before, after in zip(records, back, strict=True):
        same = ("task_id", "study_id", "patient_id", "prompt", "indication", "category", "temporal", "tags",
                "question_scores", "risk_flag", "requires_boxes", "reference_answer", "reference_boxes")  # fmt: skip
        assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
        assert [image.image_id for image in after.images] == [image.image_id for image in before.images]
        assert {image.pixel_pipeline for image in (*after.images, *after.prior_images)} == {"original bytes"}


def test_the_card_says_what_it_is(built: Built) -> None:
    card = (built.whole / "README.md").read_text()
    assert "**SYNTHETIC.**" in card
    assert "**This is not the paper's dataset.**" in card
    assert "30 tasks with" in card
    assert "{{" not in card
    assert "| phantom-large |" in card


def test_plain_datasets_loads_it(built: Built, tmp_path: Path) -> None:
    script = """
import sys
sys.modules["reveal_bench"] = None  # cannot be imported, though it may be installed
from datasets import load_dataset
tasks = load_dataset(sys.argv[1], "tasks", split="test")
category = tasks.features["category"].int2str(tasks[0]["category"])
print(len(tasks), sum(len(row["prior_images"]) for row in tasks), category)
image = tasks[0]["images"][0]
print(image.format, image.size == (tasks[0]["image_facts"][0]["width"], tasks[0]["image_facts"][0]["height"]))
ratings = load_dataset(sys.argv[1], "ratings", split="test")
rubric = load_dataset(sys.argv[1], "rubric", split="rubric")
print(len(ratings), "content" in ratings.column_names, len(rubric), rubric[0]["criterion"])
print(len(load_dataset(sys.argv[1])["test"]))
"""
    environment = {"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(built.whole)],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    n_priors = sum(bool(row["prior_study_id"]) for row in rows(built.download / "tasks.csv"))
    n_ratings = len(rows(built.download / "ratings.csv"))
    assert done.stdout.splitlines() == [
        f"30 {n_priors} broad_abnormality", "JPEG True", f"{n_ratings} False 30 process", "30",
    ]  # fmt: skip


def test_a_holdout_keeps_its_answers_and_ratings(built: Built) -> None:
    info = read_folder_info(built.public)
    assert info.splits["holdout"]["references"] == "private"
    held, released = read_tasks(built.private, "holdout"), read_tasks(built.public, "released")
    assert len(held) + len(released) == 30
    assert len(held) >= 10
    assert not {task.patient_id for task in held} & {task.patient_id for task in released}
    n_by_task = dict.fromkeys((task.task_id for task in (*held, *released)), 0)
    for row in rows(built.download / "ratings.csv"):
        n_by_task[row["task_id"]] += 1
    private, public = read_ratings(built.private, "holdout"), read_ratings(built.public, "released")
    assert {r.task_id for r in private} <= {task.task_id for task in held}
    assert len(private) == sum(n_by_task[task.task_id] for task in held)
    assert len(public) == sum(n_by_task[task.task_id] for task in released)
    with pytest.raises(ValueError, match="holds no ratings of split 'holdout'"):
        read_ratings(built.public, "holdout")
    inputs = pq.read_table(built.public / "holdout_inputs").to_pylist()
    assert [row["task_id"] for row in inputs] == [task.task_id for task in held]
    for row, task in zip(inputs, held, strict=True):
        assert (row["prompt"], row["reference_answer"], row["reference_boxes"]) == (task.prompt, None, [])
        assert [facts["source_sha256"] for facts in row["image_facts"]] == [None] * len(task.images)
    readable = "".join(
        str(pq.read_table(path).drop_columns(["images", "prior_images"]).to_pylist())
        for path in (*built.public.glob("tasks/*"), *built.public.glob("holdout_inputs/*"))
    )
    assert all(task.reference_answer and task.reference_answer not in readable for task in held)
    assert all(task.reference_answer and task.reference_answer in readable for task in released)


def test_withheld_pixels(built: Built, tmp_path: Path) -> None:
    source_data = rexecution.read(built.download, pixels="withhold")
    build_folder(
        source_data.splits, tmp_path / "out", BENCHMARK, pixels="withhold", extras=source_data.extras, synthetic=True
    )
    assert validate_folder(tmp_path / "out", load=False) == []
    tasks = read_tasks(tmp_path / "out", "test")
    assert {image.pixel_pipeline for task in tasks for image in task.images} == {"withheld"}
    assert all(len(image.source_sha256 or "") == 64 for task in tasks for image in task.images)


def test_agreement_of_the_readers_is_that_of_scikit_learn(built: Built) -> None:
    """From the published folder to Table 3 of paper 001, against kappa computed from the ratings file itself."""
    from sklearn.metrics import cohen_kappa_score

    ratings = read_ratings(built.whole, "test")
    answers = rated_answers(ratings)
    first, second = (rating_array(ratings, reader=f"reader-{i}", answers=answers) for i in (1, 2))
    file = {(row["task_id"], row["model"], row["reader"]): row for row in rows(built.download / "ratings.csv")}
    both = [answer for answer in answers if (*answer, "reader-2") in file]
    agreement = {row.criterion: row for row in reader_agreement(first, second)}
    for name in CRITERIA:
        pairs = [[file[*answer, f"reader-{i}"][name] for i in (1, 2)] for answer in both]
        one, two = zip(*[(int(a), int(b)) for a, b in pairs if a and b], strict=True)
        assert agreement[name].n == len(one) >= 5
        assert agreement[name].kappa == pytest.approx(cohen_kappa_score(one, two, labels=SCORES, weights="quadratic"))
        assert agreement[name].mean_absolute_difference == pytest.approx(np.abs(np.subtract(one, two)).mean())
    content = content_score(*(first[:, CRITERIA.index(name)] for name in CONTENT_CRITERIA))
    assert content.tolist() == [float(file[*answer, "reader-1"]["content"]) for answer in answers]
