"""Write synthetic open tasks, ratings of answers to them, and the MIMIC-CXR-JPG tree that the tasks are about.

The tree has the layout of MIMIC-CXR-JPG 2.1.0: names, columns, id styles, and equalised JPEG files of quality 95. The
task and ratings files have the columns of :mod:`reveal_bench.sources.rexecution_files`. All data, including ids, are
synthetic, as ``SYNTHETIC.txt`` states. Task j depends only on the seed and j. Every tenth task is about the previous
patient.

With ``traps``, the tree is where `wget -r` puts it, among ``index.html`` files, and tables are compressed. The metadata
lists studies without images, and has blank and unusual view names and times without leading zeros. The task file mixes
spellings.

Readers score the answers of imaginary models, with known error rates. Every answer has a true score per criterion,
drawn from the model's distribution. A reader gives this score or, with the reader's error rate, a score one step higher
or lower (at 1 and 5, the step inwards). The expected agreement therefore has a closed form. Unlike in real answers,
scores of different criteria are independent.

Distributions resemble those in paper 001 (Tables 1 to 3), in which plans score high and execution scores low.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.kinds.tasks.records import CRITERIA, QUESTION_SCORES, TAGS, Rating
from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.curves import Points, area
from reveal_bench.phantom.findings_drawn import Drawn, draw_findings
from reveal_bench.phantom.folders import check_sizes, start_folder
from reveal_bench.phantom.patients import PhantomFilm, draw_film, films
from reveal_bench.phantom.radiograph import jpeg_bytes, render
from reveal_bench.phantom.rexecution_text import (
    Course,
    Seen,
    Topic,
    answer_text,
    prompt_text,
    tag_values,
    topics_of,
)

MODELS = {"phantom-large": 0.3, "phantom-small": 0.0, "phantom-text": -0.4}
"""Model -> difference between the mean quality of the model's answers and the criterion's mean."""
ANSWERED = {"phantom-large": 1.0, "phantom-small": 0.81, "phantom-text": 1.0}
"""Proportion of tasks that a model answers; the others have no rating."""
DRAWS = {"phantom-large": 0.9}
"""Model -> proportion of the tasks requiring boxes for which the model draws boxes; other models draw none."""
READERS = {"reader-1": 0.15, "reader-2": 0.35}
"""Reader -> proportion of scores that are one step off.

The first reader rates all answers, the second the answers to every fourth task.
"""
SECOND_READS = 4
SPREADS = {
    "process": (4.1, 0.9), "execution": (2.9, 1.4), "synthesis": (3.7, 1.1), "language": (4.2, 0.8),
    "image_content": (3.0, 1.2), "image_style": (3.6, 1.3),
}  # fmt: skip
"""Criterion -> mean and SD of the normal density that gives the probabilities of the scores 1 to 5."""

Float = npt.NDArray[np.float64]


def score_distribution(model: str, criterion: str) -> Float:
    """Return the probabilities of the true scores 1 to 5."""
    mean, sd = SPREADS[criterion]
    density: Float = np.exp(-(((np.arange(1, 6) - mean - MODELS[model]) / sd) ** 2) / 2)
    density /= density.sum()
    return density


def draw_ratings(tasks: Sequence[tuple[str, bool]], *, seed: int) -> list[Rating]:
    """Return ratings of the answers to `tasks`, given as (task_id, requires_boxes); tasks are independent."""
    ratings = []
    distributions = {(model, name): score_distribution(model, name) for model in MODELS for name in CRITERIA}
    kernels = {reader: _kernel(error) for reader, error in READERS.items()}
    for j, (task_id, requires_boxes) in enumerate(tasks):
        for m, model in enumerate(MODELS):
            rng = np.random.default_rng([seed, 3, j, m])
            answered, draws = rng.random(2) < (ANSWERED[model], DRAWS.get(model, 0.0))
            if not answered:
                continue
            criteria = CRITERIA if requires_boxes and draws else CRITERIA[:4]
            true = {name: _pick(rng, distributions[model, name]) for name in criteria}
            for r, (reader, kernel) in enumerate(kernels.items()):
                if r == 0 or j % SECOND_READS == 0:
                    scores = {name: _pick(rng, kernel[score - 1]) for name, score in true.items()}
                    ratings.append(Rating(task_id, model, reader, **scores))
    return ratings


def _pick(rng: np.random.Generator, probabilities: Float) -> int:
    """Return a score from 1 to 5."""
    return 1 + min(int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right")), 4)


def _kernel(error: float) -> Float:
    """Return a matrix (5, 5), whose row t has the probabilities that a reader rates a true score of t + 1 as 1 to 5."""
    kernel = np.diag(np.full(5, 1 - error))
    for t in range(5):
        steps = [t + step for step in (-1, 1) if 0 <= t + step < 5]
        kernel[t, steps] = error / len(steps)
    return kernel


NOTICE = """SYNTHETIC DATA

Every picture, task, answer, rating and id below this folder was made by the program reveal_bench.phantom. Nothing comes
from a patient, a reader or a hospital. The folder has the layout of MIMIC-CXR-JPG so that tools can be tried. Scores
computed on these data say nothing about a model. Not for clinical use.
"""
TREE, TREE_OF_WGET = "mimic-cxr-jpg", "physionet.org/files/mimic-cxr-jpg/2.1.0"
METADATA = (
    "dicom_id", "subject_id", "study_id", "PerformedProcedureStepDescription", "ViewPosition", "Rows", "Columns",
    "StudyDate", "StudyTime", "ProcedureCodeSequence_CodeMeaning", "ViewCodeSequence_CodeMeaning",
    "PatientOrientationCodeSequence_CodeMeaning",
)  # fmt: skip
LABELS = (
    "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Enlarged Cardiomediastinum", "Fracture", "Lung Lesion",
    "Lung Opacity", "No Finding", "Pleural Effusion", "Pleural Other", "Pneumonia", "Pneumothorax", "Support Devices",
)  # fmt: skip
CODE_MEANINGS = {"AP": "antero-posterior", "PA": "postero-anterior", "LATERAL": "lateral", "LL": "left lateral"}
CATEGORY_ENDS = (("broad_abnormality", 0.26), ("diagnosis_support", 0.89), ("measurement_temporal", 1.0))
"""Cumulative proportions of the categories, which are 26, 63 and 11% (paper 001)."""
TEMPORAL = {"broad_abnormality": 0.0, "diagnosis_support": 0.05, "measurement_temporal": 0.72}
"""Category -> proportion of the category's tasks that have a prior study; overall, 11% have one."""
GOLDEN = 0.6180339887498949
NAMES_OF_PAPER = {
    "broad_abnormality": "Broad abnormality query", "diagnosis_support": "High-level diagnostic reasoning",
    "measurement_temporal": "Measurements and temporal comparisons",
}  # fmt: skip
DEVICELIKE = ("Cardiomegaly", "Enlarged Cardiomediastinum", "Support Devices")
"""Findings that do not change within days."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Visit:
    """A study with its drawn images; `dicom_ids` are in the same order."""

    subject: int
    study: int
    taken: tuple[str, str]
    films: Sequence[PhantomFilm]
    drawn: Sequence[tuple[Anatomy, Drawn]]
    dicom_ids: Sequence[str]
    grain: int


@dataclass
class _RexecutionTables:
    """The contents of the tree's tables and of the task file, filled task by task."""

    metadata: list[dict[str, Any]] = field(default_factory=list)
    labels: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)


def write_rexecution(
    out: Path,
    n_tasks: int = 100,
    *,
    seed: int = 0,
    long_side: int = 3056,
    traps: bool = True,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write ``tasks.csv``, ``ratings.csv`` and a MIMIC-CXR-JPG tree.

    Parameters
    ----------
    out : new or empty folder
    n_tasks : number of tasks, each about one study, and about 11% also about an earlier study
    seed : equal seeds give equal bytes
    long_side : long side of the images in pixels; 3056 is the most common in real images
    traps : also write the difficulties of real files
    progress : called with (tasks done, all tasks)

    Returns
    -------
    dict with the number of tasks, images and ratings

    Raises
    ------
    ValueError
        If `out` is not empty or a number is out of range.
    """
    check_sizes(n_tasks=n_tasks, long_side=long_side)
    inner = TREE_OF_WGET if traps else TREE
    out = start_folder(out, NOTICE, inner)
    tree = out / inner
    tables = _RexecutionTables()
    for j, films_of_study in zip(range(n_tasks), _studies(seed), strict=False):
        _write_task(tree, tables, j, films_of_study, seed, long_side, traps=traps)
        if progress is not None:
            progress(j + 1, n_tasks)
    n_films = len(tables.metadata)
    if traps:
        _add_studies_without_pictures(tables, n_tasks, seed, long_side)
    _write_tree_tables(tree, tables, traps=traps)
    (out / "tasks.csv").write_text(_csv_text(list(tables.tasks[0]), tables.tasks), encoding="utf-8", newline="")
    ratings = draw_ratings([(row["task_id"], row["requires_boxes"] == "Yes") for row in tables.tasks], seed=seed)
    heads = ["task_id", "model", "reader", *CRITERIA, "content"]
    rows = [{name: getattr(rating, name) for name in heads} for rating in ratings]
    (out / "ratings.csv").write_text(_csv_text(heads, rows), encoding="utf-8", newline="")
    return {"tasks": n_tasks, "films": n_films, "ratings": len(ratings)}


def _studies(seed: int) -> Iterator[list[PhantomFilm]]:
    for _, group in itertools.groupby(films("test", seed=seed), key=lambda film: film.study.index):
        yield list(group)


def _write_task(
    tree: Path, tables: _RexecutionTables, j: int, shots: list[PhantomFilm], seed: int, long_side: int, *, traps: bool
) -> None:
    rng = np.random.default_rng([seed, 2, j])
    category, temporal = _category(j, seed)
    topics = topics_of(category, temporal=temporal)
    chances = np.array([3.0 if set(topic.findings) & shots[0].study.findings else 1.0 for topic in topics])
    topic = topics[int(rng.choice(len(topics), p=chances / chances.sum()))]
    now = _visit(shots, [draw_film(film) for film in shots], j, 0, seed)
    visits, comparison = [now], None
    if topic.temporal:
        before = _prior(topic, now, j, seed, rng)
        visits = [before, now]
        comparison = Course(*(_area_of(topic.findings[0], visit) for visit in visits))
    for visit in visits:
        _write_visit(tree, tables, visit, long_side, traps=traps)
    prior = str(visits[0].study) if topic.temporal else ""
    tables.tasks.append(_task_row(topic, comparison, now, prior, j, rng, long_side, traps=traps))


def _category(j: int, seed: int) -> tuple[str, bool]:
    """Return task j's (category, whether there is a prior study).

    Proportions are as exact as the number of tasks allows.
    """
    u = (0.37 * seed + j * GOLDEN) % 1.0
    low = 0.0
    for category, end in CATEGORY_ENDS:
        if u < end:
            return category, (u - low) / (end - low) < TEMPORAL[category]
        low = end
    raise AssertionError("the last cumulative proportion is 1")


def _visit(
    shots: Sequence[PhantomFilm], drawn: Sequence[tuple[Anatomy, Drawn]], j: int, which: int, seed: int
) -> _Visit:
    """Return the images of task j's study (0) or previous study (1), with invented ids and dates in source style."""
    rng = np.random.default_rng([seed, 4, j, which])
    subject = 10_000_000 + (12_347 * seed + 3_141_593 * (j - (j % 10 == 9))) % 10_000_000
    study = 50_000_000 + (45_677 * seed + 2_718_281 * (2 * j + which)) % 10_000_000
    day = int(rng.integers(1, 11) if which else rng.integers(11, 28))
    date = f"{2110 + (j + seed) % 90}{int(1 + (3 * j) % 12):02d}{day:02d}"
    time = f"{rng.integers(0, 24) * 10000 + rng.integers(0, 60) * 100 + rng.uniform(0, 60):.3f}"
    dicom_ids = ["-".join(bytes(rng.bytes(4)).hex() for _ in range(5)) for _ in shots]
    return _Visit(subject, study, (date, time), shots, drawn, dicom_ids, 1 + 10 * which)


def _prior(topic: Topic, now: _Visit, j: int, seed: int, rng: np.random.Generator) -> _Visit:
    """Return the images of the same body some days earlier, in which transient findings are drawn anew."""
    finding, present = topic.findings[0], set(now.films[0].study.findings)
    earlier = {name for name in present if name in DEVICELIKE} | ({finding} if rng.random() < 0.65 else set())
    anatomy = now.drawn[0][0]
    drawn = draw_findings(now.films[0].rng(5), anatomy, earlier)
    return _visit(now.films[:1], [(anatomy, drawn)], j, 1, seed)


def _area_of(finding: str, visit: _Visit) -> float:
    return sum(area(contour) for contour in visit.drawn[0][1].contours.get(finding, ()))


def _write_visit(tree: Path, tables: _RexecutionTables, visit: _Visit, long_side: int, *, traps: bool) -> None:
    from PIL import Image, ImageOps

    for film, (anatomy, drawn), dicom_id in zip(visit.films, visit.drawn, visit.dicom_ids, strict=True):
        size = round(film.size[0] * long_side), round(film.size[1] * long_side)
        path = tree / _path(visit.subject, visit.study, dicom_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        grey = render(anatomy, drawn.shapes, film.rng(visit.grain), size)
        equalised = np.asarray(ImageOps.equalize(Image.fromarray(grey)))
        path.write_bytes(jpeg_bytes(equalised, quality=95))
        tables.metadata.append(_metadata_row(visit, film, dicom_id, size, traps=traps))
    names = {"Lung Opacity" if name == "Airspace Opacity" else name for name in visit.drawn[0][1].contours}
    labels = {name: "1.0" if name in names or (name == "No Finding" and not names) else "" for name in LABELS}
    tables.labels.append({"subject_id": visit.subject, "study_id": visit.study, **labels})


def _path(subject: int, study: int, dicom_id: str) -> str:
    return f"files/p{str(subject)[:2]}/p{subject}/s{study}/{dicom_id}.jpg"


def _metadata_row(
    visit: _Visit, film: PhantomFilm, dicom_id: str, size: tuple[int, int], *, traps: bool
) -> dict[str, Any]:
    view = film.view
    if traps and view == "LATERAL" and int(dicom_id[0], 16) % 2:
        view = "LL"
    if traps and view != "LATERAL" and int(dicom_id[:2], 16) < 12:
        view = ""
    if len(visit.films) > 1:
        procedure = "CHEST (PA AND LAT)"
    else:
        procedure = "CHEST (PORTABLE AP)" if film.view == "AP" else "CHEST (SINGLE VIEW)"
    values = (
        dicom_id, visit.subject, visit.study, procedure, view, *size, *visit.taken, procedure,
        CODE_MEANINGS[view or film.view], "Erect",
    )  # fmt: skip
    return dict(zip(METADATA, values, strict=True))


def _seen(visit: _Visit) -> Seen:
    """Return the findings in the frontal image, each with positions, and the widths of heart and chest."""
    anatomy, drawn = visit.drawn[0]
    places = {name: [_place(anatomy, name, c) for c in contours] for name, contours in drawn.contours.items()}
    lungs = np.concatenate(list(anatomy.lungs.values()))
    heart, chest = (float(np.ptp(part[:, 0])) / anatomy.width for part in (anatomy.contours["heart"], lungs))
    return Seen(places, visit.films[0].view, heart, chest)


def _place(anatomy: Anatomy, finding: str, contour: Points) -> str:
    if finding in DEVICELIKE:
        return ""
    lungs = np.concatenate(list(anatomy.lungs.values()))
    x, y = contour.mean(axis=0)
    height = (y - lungs[:, 1].min()) / np.ptp(lungs[:, 1])
    side = "right" if x < anatomy.centre[0] else "left"  # the patient's right is on the left of the film
    return f"{side} {'upper' if height < 1 / 3 else 'middle' if height < 2 / 3 else 'lower'} zone"


def _task_row(
    topic: Topic,
    comparison: Course | None,
    visit: _Visit,
    prior: str,
    j: int,
    rng: np.random.Generator,
    long_side: int,
    *,
    traps: bool,
) -> dict[str, Any]:
    seen = _seen(visit)
    prompt, indication, boxes = prompt_text(topic, rng)
    scores = rng.choice([3, 4, 5], size=4, p=[0.06, 0.34, 0.6])
    while scores.sum() < 16:  # paper 001 kept only questions with such sums
        scores = rng.choice([3, 4, 5], size=4, p=[0.06, 0.34, 0.6])
    dash = " - " if traps and j % 2 else " \u2013 "
    values = tag_values(topic)
    tags = {f"tag_{name}": dash.join(values.get(name, ())) or "None" for name in TAGS}
    odd = traps and j % 4 == 1
    return {
        "task_id": f"task-{j + 1:03d}",
        "study_id": f"s{visit.study}" if odd else str(visit.study),
        "prior_study_id": prior,
        "prompt": prompt,
        "category": NAMES_OF_PAPER[topic.category] if odd else topic.category,
        "indication": indication or "",
        **tags,
        **{name: int(score) for name, score in zip(QUESTION_SCORES, scores, strict=True)},
        "risk_flag": "Yes" if rng.random() < 0.04 else "No",
        # 13 is the number in the example of the paper's supplement.
        "conclusion": 13 if traps and j == 2 else int(scores.sum()),
        "requires_boxes": "Yes" if boxes else "No",
        "reference_answer": answer_text(topic, seen, comparison),
        "reference_boxes": json.dumps(_boxes(topic, visit, long_side)),
    }


def _boxes(topic: Topic, visit: _Visit, long_side: int) -> list[dict[str, Any]]:
    """Return boxes around the topic's findings in the frontal image, or around the heart if its size is asked for."""
    anatomy, drawn = visit.drawn[0]
    contours = [(name, contour) for name in topic.findings for contour in drawn.contours.get(name, ())]
    if topic.name == "heart size":
        contours = [("Heart", anatomy.contours["heart"])]
    height, width = (round(side * long_side) for side in visit.films[0].size)
    boxes = []
    for name, contour in contours:
        points = np.clip(contour * long_side, 0, (width, height))
        low, high = np.floor(points.min(axis=0)), np.ceil(points.max(axis=0))
        box = [int(value) for value in (*low, *(high - low))]
        if min(box[2:]) > 0:
            boxes.append({"label": name, "bbox_xywh": box, "image_id": visit.dicom_ids[0]})
    return boxes


def _add_studies_without_pictures(tables: _RexecutionTables, n_tasks: int, seed: int, long_side: int) -> None:
    """Add to the metadata studies whose images were not downloaded."""
    for j in range(n_tasks, n_tasks + max(3, n_tasks // 10)):
        visit = _visit([], [], j, 0, seed)
        dicom_id = "-".join(f"{j:08x}" for _ in range(5))
        size = (long_side, round(0.8325 * long_side))
        values = (dicom_id, visit.subject, visit.study, "", "RAO", *size, *visit.taken, "", "", "")
        tables.metadata.append(dict(zip(METADATA, values, strict=True)))


def _write_tree_tables(tree: Path, tables: _RexecutionTables, *, traps: bool) -> None:
    metadata = sorted(tables.metadata, key=lambda row: (row["subject_id"], row["study_id"], row["dicom_id"]))
    drawn = {row["study_id"] for row in tables.labels}
    labels = sorted(tables.labels, key=lambda row: (row["subject_id"], row["study_id"]))
    splits = [{**row, "split": "test" if row["study_id"] in drawn else "train"} for row in metadata]
    named = {
        "mimic-cxr-2.0.0-metadata": (METADATA, metadata),
        "mimic-cxr-2.0.0-split": (("dicom_id", "study_id", "subject_id", "split"), splits),
        "mimic-cxr-2.0.0-chexpert": (("subject_id", "study_id", *LABELS), labels),
        "mimic-cxr-2.0.0-negbio": (("subject_id", "study_id", *LABELS), labels),
    }
    for name, (heads, rows) in named.items():
        text = _csv_text(heads, rows).encode()
        if traps:
            packed = gzip.compress(text, mtime=0)
            (tree / f"{name}.csv.gz").write_bytes(packed)
        else:
            (tree / f"{name}.csv").write_bytes(text)
    names = [_path(row["subject_id"], row["study_id"], row["dicom_id"]) for row in metadata]
    (tree / "IMAGE_FILENAMES").write_text("\n".join(names) + "\n", encoding="utf-8")
    folders = [tree, *sorted({path.parent for path in tree.rglob("*.jpg")})] if traps else []
    for folder in folders:
        (folder / "index.html").write_text("<html><!-- left by wget -r --></html>\n", encoding="utf-8")


def _csv_text(heads: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, heads, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
