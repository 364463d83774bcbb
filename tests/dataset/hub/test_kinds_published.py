"""Studies and tasks: the output of a build passes, and anything added to it does not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.hub_checks import PublishRefusedError, prepare, prepare_holdout
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.images import PictureFile, StudyImage
from reveal_bench.kinds.tasks.records import Rating, ReferenceBox, TaskRecord
from reveal_bench.kinds.tasks.rows import rating_row, ratings_features
from reveal_bench.sources.source import Extra
from tests.conftest import files_of
from tests.dataset.hub.conftest import Folders

KINDS = {"findings": "reveal-cxr", "tasks": "rexecution"}


def picture(root: Path, i: int) -> StudyImage:
    """Return an image of a ramp that begins with its own grey."""
    path = root / f"{i}.png"
    Image.fromarray((10 + i + np.arange(120, dtype=np.uint8)).reshape(10, 12)).save(path)
    return StudyImage(f"image{i}", "PA", 12, 10, picture=PictureFile(path, path.name, path.name))


def study(root: Path, i: int) -> StudyRecord:
    return StudyRecord(f"study{i}", f"patient{i}", ("COPD",), "three_of_three", (picture(root, i),), sex="F")


def task(root: Path, i: int) -> TaskRecord:
    boxes = (ReferenceBox("mass", (1.0, 2.0, 3.0, 4.0), f"image{i}"),)
    answer = {"reference_answer": f"A mass of {i} cm.", "reference_boxes": boxes, "risk_flag": False}
    films = {"images": (picture(root, i),), "prior_images": (picture(root, 50 + i),), "temporal": True}
    scores = {"clinical_relevance": 4, "answerability": 5, "complexity": 3, "clarity": 5}
    fields = {**answer, **films, "question_scores": scores, "tags": {"laterality": ("left",)}, "indication": "cough"}
    return TaskRecord(f"task{i}", f"study{i}", f"patient{i}", "Is there a mass?", "measurement_temporal", **fields)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def built(kind: str, tmp_path: Path) -> Folders:
    """Eight studies or tasks with their pictures, half of them held out."""
    films = tmp_path / "films"
    films.mkdir()
    records = [(study if kind == "findings" else task)(films, i) for i in range(8)]
    rows = [rating_row(Rating(f"task{i}", "model", "reader", 4, 3, 5)) for i in range(8)]
    extras = [Extra("ratings", ratings_features, rows, key="task_id")] if kind == "tasks" else []
    options = {"holdout": tmp_path / "vault", "synthetic": True, "extras": extras}
    build_folder({"test": records}, tmp_path / "public", BENCHMARKS[KINDS[kind]], **options)
    return Folders(tmp_path / "public", tmp_path / "vault")


def test_built_folder_passes(built: Folders) -> None:
    publication = prepare(built.public, "org/name", private=False, holdout=built.vault)
    assert "holdout_inputs/holdout-00000-of-00001.parquet" in publication.files
    assert prepare_holdout(built.vault, "vault/name").is_holdout


def test_an_answer_in_the_inputs_does_not(built: Folders, kind: str) -> None:
    path = built.public / "holdout_inputs/holdout-00000-of-00001.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    if kind == "findings":
        rows[1]["labels"], rows[0]["image_facts"][0]["source_sha256"], rows[2]["age_band"] = [3], "0" * 64, 0
        columns = ("labels", "image_facts.source_sha256", "age_band")
    else:
        rows[1]["reference_answer"], rows[2]["question_scores"] = "A mass.", {"clarity": 1}
        rows[0]["tags"] = {"laterality": ["left"]}
        rows[3]["prior_image_facts"][0]["pixel_sha256"] = "0" * 64
        columns = ("reference_answer", "question_scores", "tags", "prior_image_facts.pixel_sha256")
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files_of(built.public).items()}
    sums.pop("CHECKSUMS.json")
    (built.public / "CHECKSUMS.json").write_text(json.dumps({"algorithm": "sha256", "files": sums}))
    with pytest.raises(PublishRefusedError, match="is not published") as caught:
        prepare(built.public, "org/name", private=True, load=False)
    text = "\n".join(map(str, caught.value.problems))
    for column in columns:
        assert (
            f"`{column}` must be empty, because the references of its split are private, got a value in 1 row"
        ) in text


def test_ratings_of_a_held_out_task(built: Folders, kind: str) -> None:
    if kind == "findings":
        names = {"study_id": pq.read_table(built.vault / "manifest/holdout.parquet")["study_id"][0].as_py()}
    else:
        names = {"task_id": pq.read_table(built.vault / "manifest/holdout.parquet")["task_id"][0].as_py()}
    (built.public / "notes").mkdir()
    pq.write_table(pa.table({**{k: [v] for k, v in names.items()}, "process": [5]}), built.public / "notes/x.parquet")
    with pytest.raises(PublishRefusedError, match="is not published") as caught:
        prepare(built.public, "org/name", private=True, load=False)
    text = "\n".join(map(str, caught.value.problems))
    (name, value), *_ = names.items()
    assert f"notes/x.parquet:{value}: `{name}` must not be in the holdout, got {value}" in text
