"""Write CSV tables for other programs: labels of studies, with a column per label, and boxes, with a row per box.

Conventions
-----------
``labels.csv`` has a row per study and reader: 1 present, 0 absent, blank if not stated. ``boxes.csv`` has a row per
box, [x, y, width, height] in pixels of the full image; a drawing that has only a mask gets the box around the mask.
This module only writes; :mod:`reveal_bench.exchange.outputs` reads the tables of models.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.exchange.shapes import mask_in_box
from reveal_bench.kinds.cases import Annotations, Drawing, StudyLabels

FILE, IMAGES = "labels.csv", "images"
BOXES = "boxes.csv"


def write(annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
    """Write the tables that have rows; return sentences about facts for which there is no column."""
    if annotations.studies:
        labels = (
            [one.study_id, one.reader, *(_cell(one, name) for name in annotations.names)] for one in annotations.studies
        )
        _write(out / FILE, ["study_id", "reader", *annotations.names], labels)
    if annotations.drawings:
        columns = ["image_id", "finding", "reader", "x", "y", "width", "height", "score"]
        _write(out / BOXES, columns, (row for one in annotations.drawings for row in _boxes(one)))
    lost = {
        "masks and contours, of which only the boxes are exported": any(one.mask for one in annotations.drawings),
        "points": any(one.points for one in annotations.drawings),
        "cells": any(one.cell is not None for one in annotations.drawings),
    }
    return [part for part, is_there in lost.items() if is_there]


def _cell(study: StudyLabels, name: str) -> str:
    value = study.values.get(name)
    return "" if value is None else str(value if study.are_probabilities else int(value))


def _boxes(drawing: Drawing) -> Iterator[list[Any]]:
    boxes: Sequence[Sequence[float]] = drawing.boxes
    if not boxes and drawing.mask is not None and (region := mask_in_box(drawing.mask)) is not None:
        boxes = (region[0],)
    score = "" if drawing.score is None else drawing.score
    for box in boxes:
        yield [drawing.image_id, drawing.finding, drawing.reader, *box, score]


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
