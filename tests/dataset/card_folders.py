"""Small dataset folders of every kind; pictures are noise of a few pixels.

Each different folder is built once per process, and every call gets a copy that its test may change.
"""

import functools
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.images import PictureFile, StudyImage
from reveal_bench.kinds.tasks.records import Rating, ReferenceBox, TaskRecord
from reveal_bench.kinds.tasks.rows import rating_row, ratings_features
from reveal_bench.sources.source import Extra
from tests.dataset.conftest import make_record

LABELS = ("Edema", "Mass", "Nodule")
FINDINGS = replace(BENCHMARKS["reveal-cxr"], findings=LABELS)
TASKS = BENCHMARKS["rexecution"]


def pixels(i, width=12, height=10):
    return np.random.default_rng(i).integers(0, 256, (height, width), dtype=np.uint8)


def png(values):
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


def picture(root, i, width=12, height=10):
    """A PNG file on disk, as a source names it."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{i}.png"
    path.write_bytes(png(pixels(i, width, height)))
    return PictureFile(path, path.name, path.name)


def localized(root, i, **changes):
    """Record i of the localization world, with its picture."""
    return make_record(i, picture=picture(root, i, 30, 20), source_sha256=None, **changes)


def study_image(root, i, view="AP", **changes):
    fields = {
        "manufacturer": "Carestream",
        "manufacturer_raw": "CARESTREAM",
        "kvp": 90.0 + i % 2,
        "spacing_mm": (0.14, 0.14),
        "spacing_source": "imager_pixel_spacing",
    }
    return StudyImage(f"image-{i}", view, 12, 10, picture=picture(root, i), **{**fields, **changes})


def study(root, i, labels=("Edema",), n_images=1, **changes):
    """Study i with `n_images` images, numbered from 10 i."""
    views = ("AP", "LATERAL")
    images = tuple(study_image(root, 10 * i + k, views[k % 2]) for k in range(n_images))
    fields = {
        "agreement": "three_of_three",
        "n_agree_all": 3,
        "age_band": "60-69",
        "sex": "F",
        "race": "White",
        "patient_class": "inpatient",
    }
    return StudyRecord(f"study-{i}", f"patient-{i}", labels, images=images, **{**fields, **changes})


def task(root, i, **changes):
    """Task i; odd ones are temporal and have a prior image."""
    prior = (study_image(root, 100 + i),) if i % 2 else ()
    fields = {
        "category": "measurement_temporal" if i % 2 else "diagnosis_support",
        "images": (study_image(root, i),),
        "prior_images": prior,
        "indication": "cough",
        "temporal": bool(i % 2),
        "tags": {"laterality": ("left",)},
        "question_scores": {"clinical_relevance": 5, "answerability": 4, "complexity": 3, "clarity": 2},
        "risk_flag": False,
        "requires_boxes": True,
        "reference_answer": f"A round opacity of {i} cm in the left lower lobe.",
        "reference_boxes": (ReferenceBox("opacity", (1.0, 2.0, 3.0 + i / 8, 4.0), f"image-{i}"),),
    }
    return TaskRecord(f"task-{i}", f"study-{i}", f"patient-{i}", f"Is there a mass? ({i})", **{**fields, **changes})


def ratings(tasks, models=("a", "b")):
    """Two readers' scores of two models; model "a" gets 4 and 5, "b" 2 and 3."""
    rows = [
        Rating(record.task_id, model, reader, score, score, 5, 5, None, 3)
        for record in tasks
        for k, model in enumerate(models)
        for reader, score in (("r1", 4 - 2 * k), ("r2", 5 - 2 * k))
    ]
    return Extra("ratings", ratings_features, [rating_row(row) for row in rows], key="task_id")


_built = tempfile.TemporaryDirectory(prefix="reveal-bench-folders-")


def copied(make: Callable[..., Path]) -> Callable[..., Path]:
    """Wrap a maker of folders so that each folder is built once and then copied. Folders that depend on more than plain
    options (other folders, an earlier build of the same one) are always built.

    What depends on more than plain options (other folders, an earlier build of the same one) is always built.
    """

    @functools.cache
    def original(arguments: tuple[object, ...], options: tuple[tuple[str, object], ...]) -> Path:
        root = Path(tempfile.mkdtemp(dir=_built.name))
        make(root, *arguments, **dict(options))
        return root

    @functools.wraps(make)
    def copy(root: Path, *arguments: object, **options: object) -> Path:
        is_plain = all(isinstance(value, str | int | None) for value in (*arguments, *options.values()))
        if not is_plain or (root / "folder").exists():
            return make(root, *arguments, **options)
        shutil.copytree(original(arguments, tuple(sorted(options.items()))), root, dirs_exist_ok=True)
        return root / "folder"

    return copy


@copied
def localization_folder(root, n=6, **options):
    """`n` images of the split "test", each with a mask of Edema."""
    records = [localized(root / "pictures", i) for i in range(n)]
    return _build(root, {"test": records}, BENCHMARKS["chexlocalize"], **options)


@copied
def findings_folder(root, n=6, **options):
    """`n` studies; study i has 1 + i % 2 images, and two labels if i is divisible by 3."""
    records = [study(root / "pictures", i, LABELS[:2] if i % 3 == 0 else ("Edema",), 1 + i % 2) for i in range(n)]
    return _build(root, {"test": records}, FINDINGS, **options)


@copied
def tasks_folder(root, n=4, **options):
    """`n` tasks with ratings."""
    records = [task(root / "pictures", i) for i in range(n)]
    return _build(root, {"test": records}, TASKS, extras=[ratings(records)], **options)


def _build(root, splits, benchmark, *, holdout=False, **options):
    folder = root / "folder"
    private = root / "private" if holdout else None
    build_folder(splits, folder, benchmark, holdout=private, **options)
    return folder


def digest(data):
    return sha256(data).hexdigest()


def reseal(folder):
    """Make CHECKSUMS.json and the hashes in croissant.json true again after an edit."""
    path = folder / "CHECKSUMS.json"
    listing = json.loads(path.read_text())
    old, files = listing["files"], {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name not in ("CHECKSUMS.json", "croissant.json"):
            files[file.relative_to(folder).as_posix()] = digest(file.read_bytes())
    croissant = folder / "croissant.json"
    if croissant.exists():
        text = croissant.read_text()
        for name, value in files.items():
            text = text.replace(old.get(name, "no such hash"), value)
        croissant.write_text(text)
        files["croissant.json"] = digest(croissant.read_bytes())
    path.write_text(json.dumps({**listing, "files": files}))


def edit(folder, name, change, *, schema=None):
    """Apply `change` to every row (a dict, in place) of the Parquet file that begins with `name`, and reseal."""
    (path,) = folder.glob(f"{name}*.parquet")
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        change(row)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema or table.schema), path)
    reseal(folder)


def rows_of(folder, name):
    return [row for path in sorted(folder.glob(f"{name}*.parquet")) for row in pq.read_table(path).to_pylist()]


def faults(problems):
    """(file's folder, row, field) of every problem, sorted."""
    return sorted((problem.file.split("/")[0], str(problem.row), problem.field) for problem in problems)


def faults_of(folder, *, load=False, **options):
    """Return the faults that validation finds."""
    return faults(validate_folder(folder, load=load, **options))
