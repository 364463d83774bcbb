"""PadChest-GR: sentences of reports with boxes, on frontal pictures of PadChest.

Source: BIMCV (Castro et al. 2024, arXiv 2411.05085). ``grounded_reports_20240819.json`` is a list with one entry per
study: ``{"StudyID", "ImageID", "findings": [{"sentence_en", "sentence_es", "abnormal", "boxes", "extra_boxes",
"labels", "locations", "progression"}]}``; ``master_table.csv`` (plain or zipped) has patient and split of each study.

Conventions
-----------
* Boxes are corners [left, top, right, bottom] from 0 to 1; they become pixels of the picture, whose size no table
  tells, so the pictures are needed even where pixels are withheld.
* Boxes belong to a sentence. Its labels, about 150 different ones, become the findings of
  :data:`reveal_bench.findings.PADCHEST_GR_LABELS`; a sentence with labels of two findings gives both its boxes. Labels
  that are no finding stay in the config ``sentences``, which has everything the source says, with boxes in pixels.
* ``boxes`` are the ground truth, ``extra_boxes``, a second reader's of some sentences, are of the reader "individual".
* A finding is present if a sentence that is abnormal has a label of it; then it is `missing` if it has no box. A report
  need not name what it does not see: every other finding is unlabelled, not absent.
* Pictures are PNG of 16 bits, in a folder or in a zip archive. BIMCV's archive comes in parts (``.zip.001`` ...) that
  must be joined first. Those of earlier studies are not read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.boxes import Box
from reveal_bench.builders.box_files import (
    Faults,
    annotate_boxes,
    count_warnings,
    inspection,
    is_synthetic,
)
from reveal_bench.builders.padchest_gr_files import Pictures, Sentence, Study, find_files, read_studies
from reveal_bench.builders.source import Extra, Inspection, Pixels, Reading
from reveal_bench.findings import PADCHEST_GR_FINDINGS
from reveal_bench.records import LocalizationRecord, PictureFile

if TYPE_CHECKING:
    from datasets import Features

__all__ = ["PUBLISHED", "SECOND_READER", "detect", "inspect", "read", "sentence_features"]

PUBLISHED = {"images": 4555, "abnormal sentences": 7037, "other sentences": 3422}
"""Counts of the paper."""
SECOND_READER = "second"
"""`reader_id` of the annotations made of ``extra_boxes``."""


def detect(root: Path) -> float:
    """1 if `root` is, or holds, the grounded reports under their published name; else 0."""
    return 1.0 if "reports" in find_files(Path(root)) else 0.0


def inspect(root: Path, *, pictures: Path | None = None) -> Inspection:
    """Count images, sentences and boxes, and list what is wrong with the files.

    `pictures` are not looked at, so that no box is held against the size of its picture.
    """
    root = Path(root)
    files = _files(root)
    faults = Faults()
    warnings: list[str] = []
    studies = read_studies(files, faults, warnings)
    n_boxes = sum(len(sentence.boxes) for study in studies for sentence in study.sentences)
    counts = {**_counts(studies), "boxes": n_boxes}
    return inspection("padchest-gr", root, files, counts, PUBLISHED, faults, warnings)


def read(root: Path, *, pixels: Pixels = "embed", keep_going: bool = False, pictures: Path | None = None) -> Reading:
    """Records per split ("train", "validation", "test"; all are "test" without the master table), and ``sentences``.

    Parameters
    ----------
    root : folder of the download, or its JSON file
    pixels : the pictures are needed either way, for their sizes
    keep_going : leave out images with a problem instead of raising
    pictures : folder with the PNG files or the zip archive, at any depth; `root` by default

    Raises
    ------
    BuildError
        With every problem of the files, every box outside its picture, and every picture that is not there.
    ValueError
        If there is no JSON file, or no picture, or the archive is still in parts.
    """
    root = Path(root)
    files = _files(root)
    faults = Faults()
    warnings: list[str] = []
    studies = read_studies(files, faults, warnings)
    synthetic = is_synthetic(root, files.values())
    if not synthetic:
        warnings += count_warnings(_counts(studies), PUBLISHED)
    shown = Pictures.below(pictures if pictures is not None else files["reports"].parent)
    splits: dict[str, list[LocalizationRecord]] = {split: [] for split in ("train", "validation", "test")}
    rows: list[dict[str, Any]] = []
    for study in studies:
        found = shown.find(study, faults)
        if found is None:
            continue
        picture, size = found
        drawn = [(sentence, sentence.in_pixels(size, study, faults)) for sentence in study.sentences]
        if study.image_id not in faults.bad:
            splits[study.split].append(_record(study, drawn, picture, size))
            rows += [_sentence_row(study, sentence, *boxes) for sentence, boxes in drawn]
    warnings += _label_warnings(studies)
    faults.settle(warnings, keep_going=keep_going)
    return Reading(
        {split: records for split, records in splits.items() if records},
        warnings,
        [Extra("sentences", sentence_features, rows, key="image_id")],
        synthetic=synthetic,
    )


def sentence_features() -> Features:
    """Features of the config ``sentences``: a row per sentence, in the order of the report."""
    from datasets import Features, List, Value

    text, boxes = Value("string"), List(List(Value("float64"), length=4))
    return Features(
        {
            "image_id": text,
            "sentence_en": text,
            "sentence_es": text,
            "abnormal": Value("bool"),
            "labels": List(text),
            "locations": List(text),
            "progression": text,
            "boxes_xywh": boxes,
            "extra_boxes_xywh": boxes,
        }
    )


def _sentence_row(study: Study, sentence: Sentence, boxes: list[Box], extra_boxes: list[Box]) -> dict[str, Any]:
    return {
        "image_id": study.image_id,
        "sentence_en": sentence.english,
        "sentence_es": sentence.spanish,
        "abnormal": sentence.is_abnormal,
        "labels": list(sentence.labels),
        "locations": list(sentence.locations),
        "progression": sentence.progression,
        "boxes_xywh": [list(box) for box in boxes],
        "extra_boxes_xywh": [list(box) for box in extra_boxes],
    }


def _files(root: Path) -> dict[str, Path]:
    files = find_files(root)
    if "reports" not in files:
        raise ValueError(f"`root` must hold grounded_reports_20240819.json, got {root}")
    return files


def _counts(studies: list[Study]) -> dict[str, int]:
    n_abnormal = sum(sentence.is_abnormal for study in studies for sentence in study.sentences)
    n_all = sum(len(study.sentences) for study in studies)
    return {"images": len(studies), "abnormal sentences": n_abnormal, "other sentences": n_all - n_abnormal}


def _label_warnings(studies: list[Study]) -> list[str]:
    boxed = [s for study in studies for s in study.sentences if s.is_abnormal and s.boxes]
    none = Counter(label for sentence in boxed if not sentence.findings for label in sentence.labels)
    several = sum(len(sentence.findings) > 1 for sentence in boxed)
    found = []
    if none:
        n = sum(not sentence.findings for sentence in boxed)
        names = ", ".join(f"{label} {count}" for label, count in none.most_common(5))
        found.append(f"{n:,} boxed sentences have no label that is a finding; they are in `sentences` only ({names})")
    if several:
        found.append(f"{several:,} boxed sentences have labels of several findings; each of these gets all their boxes")
    return found


def _record(
    study: Study,
    drawn: list[tuple[Sentence, tuple[list[Box], list[Box]]]],
    picture: PictureFile,
    size: tuple[int, int],
) -> LocalizationRecord:
    present: set[str] = set()
    truth: dict[str, list[Box]] = {}
    second: dict[str, list[Box]] = {}
    for sentence, (boxes, extra_boxes) in drawn:
        for finding in sentence.findings if sentence.is_abnormal else ():
            present.add(finding)
            truth.setdefault(finding, []).extend(boxes)
            second.setdefault(finding, []).extend(extra_boxes)
    annotations = []
    for finding in PADCHEST_GR_FINDINGS:
        if truth.get(finding):
            annotations.append(annotate_boxes(finding, truth[finding], size))
        if second.get(finding):
            annotations.append(
                annotate_boxes(finding, second[finding], size, reader="individual", reader_id=SECOND_READER)
            )
    return LocalizationRecord(
        image_id=study.image_id,
        patient_id=study.patient_id,
        study_id=study.study_id,
        view="FRONTAL",
        width=size[1],
        height=size[0],
        label_status={finding: 1 if finding in present else None for finding in PADCHEST_GR_FINDINGS},
        annotations=tuple(annotations),
        missing=tuple(f for f in PADCHEST_GR_FINDINGS if f in present and not truth.get(f)),
        picture=picture,
    )
