"""Canonical predictions: checked predictions as arrays, the only form in which they reach a process with references.

Conventions
-----------
Images, findings, studies and labels are indices into the public manifest, whose digest is in the file: it can be read
with that manifest alone. Coordinates, scores and probabilities are float64 and pass bit for bit; NaN stands for a score
that was not given. Masks are run lengths in one spelling (:mod:`.runs`); the size of a mask is that of its image.
Predictions are as the linter hands them on, and reading gives equal ones (masks spelt as pycocotools spells them).

The reader trusts nothing: every length, range and sum is checked before use. :mod:`.archive` bounds sizes.

Findings predictions as arrays, see :mod:`.canonical`: either labels or probabilities, for the whole file.

Answers to tasks as arrays, see :mod:`.canonical`; and, for scoring, the same with the ratings that readers gave.

Tasks are indices into the manifest, images into those of the task, in its order. Texts are UTF-8, one after another,
with the places where they end. Ratings name their answer by its place and their reader by a number: names of readers
are needed by no child. A score of 0 stands for none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reveal_bench.geometry import Grid, box_centre, is_inside
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.kinds.localization.records import LocalizationPrediction, Manifest, ManifestRow
from reveal_bench.kinds.tasks.lint import ANSWER_LIMITS
from reveal_bench.kinds.tasks.records import CRITERIA, AnswerBox, Rating, TaskAnswer, TaskManifest
from reveal_leaderboard.custody.arrays import Fields, masks_from_text, read_arrays, text_of_masks, write_arrays
from reveal_leaderboard.custody.limits import MOST_MASK_RUNS
from reveal_leaderboard.custody.manifests import AnyManifest, manifest_digest

__all__ = ["Predictions", "read_canonical", "read_rated", "write_canonical", "write_rated"]

FINDINGS_FIELDS: Mapping[str, tuple[str, int]] = {
    "study": ("<u4", 1),
    "gives_labels": ("|b1", 1),
    "n_labels": ("<u2", 1),
    "labels": ("<u2", 1),
    "probabilities": ("<f8", 2),
}


def findings_arrays(predictions: Sequence[FindingsPrediction], manifest: StudyManifest) -> dict[str, npt.NDArray[Any]]:
    """The arrays of checked findings predictions."""
    studies = {study: i for i, study in enumerate(manifest.studies)}
    codes = {label: i for i, label in enumerate(manifest.labels)}
    gives_labels = {prediction.labels is not None for prediction in predictions}
    if len(gives_labels) > 1 or any((p.labels is None) == (p.probabilities is None) for p in predictions):
        raise ValueError("all findings predictions must give labels, or all probabilities")
    try:
        study = [studies[p.study_id] for p in predictions]
        labels = [codes[label] for p in predictions for label in p.labels or ()]
        given = [p.probabilities for p in predictions if p.probabilities is not None]
        probabilities = [[one[label] for label in manifest.labels] for one in given]
    except KeyError as error:
        raise ValueError(f"predictions must be of the manifest's studies and all its labels, got {error}") from None
    return {
        "study": np.array(study, np.uint32),
        "gives_labels": np.array([True in gives_labels], np.bool_),
        "n_labels": np.array([len(p.labels or ()) for p in predictions], np.uint16),
        "labels": np.array(labels, np.uint16),
        "probabilities": np.array(probabilities, np.float64).reshape(-1, len(manifest.labels)),
    }


def findings_from(arrays: Mapping[str, npt.NDArray[Any]], manifest: StudyManifest) -> tuple[FindingsPrediction, ...]:
    """The predictions back; raises ValueError for anything that is not as it must be."""
    n, n_labels = len(arrays["line"]), arrays["n_labels"]
    probabilities, study, labels = arrays["probabilities"], arrays["study"], arrays["labels"]
    _require(arrays["gives_labels"].shape == (1,), "`gives_labels` must be one value")
    gives_labels = bool(arrays["gives_labels"][0])
    wanted = (0 if gives_labels else n, len(manifest.labels))
    _require(probabilities.shape == wanted, f"`probabilities` must have shape {wanted}, got {probabilities.shape}")
    _require(len(study) == len(n_labels) == n, "`study` and `n_labels` must have one value per prediction")
    _require(len(labels) == int(n_labels.sum(dtype=np.int64)), "`labels` must have as many values as `n_labels` says")
    _require(gives_labels or len(labels) == 0, "`labels` must be empty where probabilities are given")
    _require(bool((study < len(manifest.studies)).all()), "`study` must be an index into the manifest")
    _require(len(np.unique(study)) == n, "each study must be predicted once")
    _require(bool((labels < len(manifest.labels)).all()), "`labels` must be indices into the manifest")
    _require(bool(((probabilities >= 0) & (probabilities <= 1)).all()), "`probabilities` must lie in [0, 1]")
    stops = np.cumsum(n_labels, dtype=np.int64).tolist()
    found = []
    for i, (code, stop, line) in enumerate(zip(study.tolist(), stops, arrays["line"].tolist(), strict=True)):
        study_id = manifest.studies[code]
        if gives_labels:
            codes = labels[stop - int(n_labels[i]) : stop].tolist()
            _require(len(set(codes)) == len(codes), "a study must name each label once")
            found.append(FindingsPrediction(study_id, tuple(manifest.labels[c] for c in codes), None, line))
        else:
            values = dict(zip(manifest.labels, probabilities[i].tolist(), strict=True))
            found.append(FindingsPrediction(study_id, None, values, line))
    return tuple(found)


TASKS_FIELDS: Fields = {
    "task": ("<u4", 1),
    "answer_text": ("|u1", 1),
    "answer_ends": ("<i8", 1),
    "n_boxes": ("<u2", 1),
    "box_image": ("<u2", 1),
    "boxes": ("<f8", 2),
    "label_text": ("|u1", 1),
    "label_ends": ("<i8", 1),
}
_RATINGS: Fields = {"rated": ("<u4", 1), "reader": ("<u2", 1), "scores": ("|u1", 2)}

MODEL = "submission"
"""What the model is called in ratings that were read back."""
TaskArrays = Mapping[str, npt.NDArray[Any]]


def answer_arrays(answers: Sequence[TaskAnswer], manifest: TaskManifest) -> dict[str, npt.NDArray[Any]]:
    """The arrays of checked answers."""
    places = {task.task_id: i for i, task in enumerate(manifest.tasks)}
    try:
        task = [places[answer.task_id] for answer in answers]
        images = [list(manifest.tasks[i].images) for i in task]
        box_image = [
            of_task.index(box.image_id) for answer, of_task in zip(answers, images, strict=True) for box in answer.boxes
        ]
    except (KeyError, ValueError) as error:
        raise ValueError(f"answers must be to the manifest's tasks and on their images, got {error}") from None
    boxes = [box for answer in answers for box in answer.boxes]
    answer_text, answer_ends = _joined([answer.answer for answer in answers])
    label_text, label_ends = _joined([box.label for box in boxes])
    return {
        "task": np.array(task, np.uint32),
        "answer_text": answer_text,
        "answer_ends": answer_ends,
        "n_boxes": np.array([len(answer.boxes) for answer in answers], np.uint16),
        "box_image": np.array(box_image, np.uint16),
        "boxes": np.array([box.box for box in boxes], np.float64).reshape(-1, 4),
        "label_text": label_text,
        "label_ends": label_ends,
    }


def answers_from(arrays: TaskArrays, manifest: TaskManifest) -> tuple[TaskAnswer, ...]:
    """The answers back; raises ValueError for anything that is not as it must be."""
    task, n_boxes, n = arrays["task"], arrays["n_boxes"], len(arrays["line"])
    total = int(n_boxes.sum(dtype=np.int64))
    _require(len(task) == len(n_boxes) == n, "`task` and `n_boxes` must have one value per answer")
    _require(bool((task < len(manifest.tasks)).all()), "`task` must be an index into the manifest")
    _require(len(np.unique(task)) == n, "each task must be answered once")
    _require(bool((n_boxes <= ANSWER_LIMITS.boxes).all()), f"an answer must have at most {ANSWER_LIMITS.boxes} boxes")
    _require(arrays["boxes"].shape == (total, 4), f"`boxes` must have shape ({total}, 4)")
    _require(len(arrays["box_image"]) == total, "`box_image` must have one value per box")
    texts = _parted(arrays["answer_text"], arrays["answer_ends"], n, ANSWER_LIMITS.characters)
    labels = _parted(arrays["label_text"], arrays["label_ends"], total, ANSWER_LIMITS.label_characters)
    drawn = iter(zip(arrays["box_image"].tolist(), arrays["boxes"].tolist(), labels, strict=True))
    answers = []
    for place, text, count, line in zip(task.tolist(), texts, n_boxes.tolist(), arrays["line"].tolist(), strict=True):
        asked = manifest.tasks[place]
        names, sizes = list(asked.images), list(asked.images.values())
        boxes = []
        for image, (x, y, width, height), label in (next(drawn) for _ in range(count)):
            _require(image < len(names), "`box_image` must be an index into the images of the task")
            rows, columns = sizes[image]
            fits = x >= 0 and y >= 0 and width > 0 and height > 0 and x + width <= columns and y + height <= rows
            _require(fits, "`boxes` must lie inside the image")
            boxes.append(AnswerBox(names[image], label, (x, y, width, height)))
        _require(bool(text.strip()), "an answer must hold text")
        answers.append(TaskAnswer(asked.task_id, text, tuple(boxes), line))
    return tuple(answers)


def write_rated(
    file: BinaryIO, answers: Sequence[TaskAnswer], ratings: Sequence[Rating], manifest: TaskManifest
) -> None:
    """Write answers with their ratings.

    Raises
    ------
    ValueError
        If a rating is of no answer.
    """
    places = {answer.task_id: i for i, answer in enumerate(answers)}
    readers = {name: i for i, name in enumerate(sorted({rating.reader for rating in ratings}))}
    strangers = sorted({rating.task_id for rating in ratings} - set(places))
    if strangers:
        raise ValueError(f"ratings must be of answers, got one of task {strangers[0]!r}, which has none")
    scores = [[getattr(rating, name) or 0 for name in CRITERIA] for rating in ratings]
    arrays: dict[str, npt.NDArray[Any]] = {
        "manifest": np.frombuffer(manifest_digest(manifest), np.uint8),
        "line": np.array([answer.line for answer in answers], np.int64),
        **answer_arrays(answers, manifest),
        "rated": np.array([places[rating.task_id] for rating in ratings], np.uint32),
        "reader": np.array([readers[rating.reader] for rating in ratings], np.uint16),
        "scores": np.array(scores, np.uint8).reshape(-1, len(CRITERIA)),
    }
    write_arrays(file, arrays)


def read_rated(file: BinaryIO, manifest: TaskManifest) -> tuple[tuple[TaskAnswer, ...], tuple[Rating, ...]]:
    """Read what :func:`write_rated` wrote; readers are numbers from "0" on, and the model is :data:`MODEL`.

    Raises
    ------
    ValueError
        If anything is not as it must be, or the file is of another manifest.
    """
    arrays = read_arrays(file, {**_SHARED, **TASKS_FIELDS, **_RATINGS})
    if arrays["manifest"].tobytes() != manifest_digest(manifest):
        raise ValueError("the rated answers must be of this manifest, got those of another")
    answers = answers_from(arrays, manifest)
    rated, reader, scores = arrays["rated"], arrays["reader"], arrays["scores"]
    _require(scores.shape == (len(rated), len(CRITERIA)), f"`scores` must have shape ({len(rated)}, {len(CRITERIA)})")
    _require(len(reader) == len(rated), "`reader` must have one value per rating")
    _require(bool((rated < len(answers)).all()), "`rated` must be an index into the answers")
    _require(bool((scores <= 5).all()), "`scores` must be from 1 to 5, or 0 for none")
    _require(bool((scores[:, :4] >= 1).all()), "`scores` must be there for every text criterion")
    pairs = rated.astype(np.int64) * (1 << 16) + reader
    _require(len(np.unique(pairs)) == len(pairs), "each reader must rate an answer once")
    ratings = []
    for place, number, row in zip(rated.tolist(), reader.tolist(), scores.tolist(), strict=True):
        ratings.append(Rating(answers[place].task_id, MODEL, f"{number:05d}", *(score or None for score in row)))
    return answers, tuple(ratings)


def _joined(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """UTF-8 of all texts, and the place where each ends."""
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(one) for one in encoded], dtype=np.int64)


def _parted(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], n: int, most: int) -> list[str]:
    _require(len(ends) == n, f"a text must end {n} times, it ends {len(ends)} times")
    places = [0, *ends.tolist()]
    _require(places == sorted(places) and places[-1] == len(text), "texts must follow one another to the end")
    data = text.tobytes()
    try:
        parts = [data[start:stop].decode() for start, stop in pairwise(places)]
    except UnicodeDecodeError:
        raise ValueError("canonical predictions: texts must be UTF-8") from None
    _require(all(len(part) <= most for part in parts), f"a text must have at most {most} characters")
    return parts


Predictions = Sequence[LocalizationPrediction] | Sequence[FindingsPrediction] | Sequence[TaskAnswer]
Arrays = dict[str, npt.NDArray[Any]]

_SHARED: Fields = {"manifest": ("u1", 1), "line": ("<i8", 1)}
_LOCALIZATION: Fields = {
    **_SHARED,
    "image": ("<u4", 1),
    "finding": ("<u2", 1),
    "n_points": ("<u2", 1),
    "points": ("<f8", 2),
    "cell": ("<i2", 1),
    "has_box": ("|b1", 1),
    "boxes": ("<f8", 2),
    "score": ("<f8", 1),
    "has_mask": ("|b1", 1),
    "mask_offsets": ("<i8", 1),
    "mask_text": ("|u1", 1),
}
_FINDINGS: Fields = {**_SHARED, **FINDINGS_FIELDS}
_TASKS: Fields = {**_SHARED, **TASKS_FIELDS}


def write_canonical(path: Path | BinaryIO, predictions: Predictions, manifest: AnyManifest) -> None:
    """Write checked predictions.

    Raises
    ------
    ValueError
        If they are not of this manifest, or findings predictions give labels and probabilities in turn.
    """
    shared: Arrays = {
        "manifest": np.frombuffer(manifest_digest(manifest), np.uint8),
        "line": np.array([prediction.line for prediction in predictions], np.int64),
    }
    if isinstance(manifest, StudyManifest):
        arrays = shared | findings_arrays(predictions, manifest)  # type: ignore[arg-type]
    elif isinstance(manifest, TaskManifest):
        arrays = shared | answer_arrays(predictions, manifest)  # type: ignore[arg-type]
    else:
        arrays = shared | _localization_arrays(predictions, manifest)  # type: ignore[arg-type]
    if isinstance(path, Path):
        with path.open("wb") as file:
            write_arrays(file, arrays)
    else:
        write_arrays(path, arrays)


def read_canonical(
    path: Path | BinaryIO, manifest: AnyManifest
) -> tuple[LocalizationPrediction, ...] | tuple[FindingsPrediction, ...] | tuple[TaskAnswer, ...]:
    """Read what :func:`write_canonical` wrote; equal to what it was given.

    Raises
    ------
    ValueError
        If anything is not as it must be, or the file is of another manifest.
    """
    fields = {StudyManifest: _FINDINGS, TaskManifest: _TASKS}.get(type(manifest), _LOCALIZATION)
    if isinstance(path, Path):
        with path.open("rb") as file:
            arrays = read_arrays(file, fields)
    else:
        arrays = read_arrays(path, fields)
    if arrays["manifest"].tobytes() != manifest_digest(manifest):
        raise ValueError("the canonical predictions must be of this manifest, got those of another")
    line = arrays["line"]
    _require(bool((line >= 0).all()), "`line` must not be negative")
    if isinstance(manifest, StudyManifest):
        return findings_from(arrays, manifest)
    if isinstance(manifest, TaskManifest):
        return answers_from(arrays, manifest)
    return _localization_from(arrays, manifest)


def _localization_arrays(predictions: Sequence[LocalizationPrediction], manifest: Manifest) -> Arrays:
    images = {image_id: i for i, image_id in enumerate(manifest.rows)}
    findings = {finding: i for i, finding in enumerate(manifest.findings)}
    cells = {cell: i for i, cell in enumerate(Grid(manifest.grid).cells)}
    try:
        image = [images[p.image_id] for p in predictions]
        finding = [findings[p.finding] for p in predictions]
        cell = [-1 if p.cell is None else cells[p.cell] for p in predictions]
    except KeyError as error:
        raise ValueError(f"predictions must be of the manifest's images, findings and cells, got {error}") from None
    text, offsets = text_of_masks([p.mask for p in predictions if p.mask is not None])
    return {
        "image": np.array(image, np.uint32),
        "finding": np.array(finding, np.uint16),
        "n_points": np.array([len(p.points) for p in predictions], np.uint16),
        "points": np.array([point for p in predictions for point in p.points], np.float64).reshape(-1, 2),
        "cell": np.array(cell, np.int16),
        "has_box": np.array([p.box is not None for p in predictions], np.bool_),
        "boxes": np.array([p.box for p in predictions if p.box is not None], np.float64).reshape(-1, 4),
        "score": np.array([np.nan if p.score is None else p.score for p in predictions], np.float64),
        "has_mask": np.array([p.mask is not None for p in predictions], np.bool_),
        "mask_offsets": offsets,
        "mask_text": text,
    }


def _localization_from(arrays: Arrays, manifest: Manifest) -> tuple[LocalizationPrediction, ...]:
    rows, cells = list(manifest.rows.values()), Grid(manifest.grid).cells
    _check_shapes(arrays)
    _require(bool((arrays["image"] < len(rows)).all()), "`image` must be an index into the manifest")
    _require(bool((arrays["finding"] < len(manifest.findings)).all()), "`finding` must be an index into the manifest")
    cell = arrays["cell"]
    _require(bool(((cell >= -1) & (cell < len(cells))).all()), "`cell` must lie in the grid")
    score = arrays["score"]
    _require(bool((np.isnan(score) | ((score >= 0) & (score <= 1))).all()), "`score` must lie in [0, 1]")
    _check_pairs(arrays, manifest, rows)
    sizes = [rows[i].size for i in arrays["image"][arrays["has_mask"]].tolist()]
    offsets = arrays["mask_offsets"]
    masks = iter(masks_from_text(arrays["mask_text"], offsets, sizes, most_runs=MOST_MASK_RUNS))
    points = iter(map(tuple, arrays["points"].tolist()))
    boxes = iter(map(tuple, arrays["boxes"].tolist()))
    found = []
    columns = [arrays[name].tolist() for name in ("image", "finding", "n_points", "cell", "has_box", "score", "line")]
    for image, finding, n_points, cell, has_box, score, line, has_mask in zip(
        *columns, arrays["has_mask"].tolist(), strict=True
    ):
        prediction = LocalizationPrediction(
            rows[image].image_id,
            manifest.findings[finding],
            points=tuple(next(points) for _ in range(n_points)),
            cell=None if cell < 0 else cells[cell],
            box=next(boxes) if has_box else None,
            mask=next(masks) if has_mask else None,
            score=None if score != score else score,
            line=line,
        )
        _check_place(prediction, rows[image])
        found.append(prediction)
    return tuple(found)


def _check_shapes(arrays: Arrays) -> None:
    n = len(arrays["line"])
    for name in ("image", "finding", "n_points", "cell", "has_box", "score", "has_mask"):
        _require(len(arrays[name]) == n, f"`{name}` must have one value per prediction, {n}, got {len(arrays[name])}")
    n_points, n_boxes = int(arrays["n_points"].sum(dtype=np.int64)), int(arrays["has_box"].sum())
    _require(arrays["points"].shape == (n_points, 2), f"`points` must have shape ({n_points}, 2)")
    _require(arrays["boxes"].shape == (n_boxes, 4), f"`boxes` must have shape ({n_boxes}, 4)")


def _check_pairs(arrays: Arrays, manifest: Manifest, rows: Sequence[ManifestRow]) -> None:
    pairs = arrays["image"].astype(np.int64) * len(manifest.findings) + arrays["finding"]
    _require(len(np.unique(pairs)) == len(pairs), "each (image, finding) must be predicted once")
    asked = {i * len(manifest.findings) + manifest.findings.index(f) for i, row in enumerate(rows) for f in row.asked}
    _require(asked.issuperset(pairs.tolist()), "every (image, finding) must be asked for by the manifest")


def _check_place(prediction: LocalizationPrediction, row: ManifestRow) -> None:
    for x, y in prediction.points:
        _require(is_inside(x, y, size=row.size), "`points` must lie inside the image")
    if prediction.box is not None:
        x, y, width, height = prediction.box
        fits = 0 <= x <= x + width <= row.width and 0 <= y <= y + height <= row.height and width > 0 and height > 0
        _require(fits and is_inside(*box_centre(prediction.box), size=row.size), "`boxes` must lie inside the image")
    given = prediction.points or prediction.cell or prediction.box or prediction.mask
    _require(bool(given), "a prediction must hold a point, cell, box or mask")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"canonical predictions: {rule}")
