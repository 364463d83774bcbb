"""Does anything of a private holdout lie in a public folder?

Compared are the private folder's rows with every byte that the public folder lets a reader see: all strings of all its
Parquet files, decompressed, and its text files. What must not occur: a mask (its run lengths), a contour (its first
vertices), a point, the hash of a source file, an image with references, and a patient who is in both.

Two images may have the same simple shape by chance, such as a box: in the public references of another image only
a mask or contour with some detail counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reveal_bench.builders.holdout import check_apart
from reveal_bench.builders.shards import read_rows
from reveal_bench.builders.source import Problem
from reveal_bench.masks import empty_rle
from reveal_bench.records import LocalizationRecord, read_folder_info, read_localization

__all__ = ["find_leaks"]

TEXT = {".md", ".json", ".jsonl", ".txt", ".csv", ".yaml", ".yml"}
VERTICES = 4
"""Vertices of a contour that count as the contour."""
DETAIL = 8, 16
"""Vertices of a contour, and characters other than "0" of run lengths, from which chance is no explanation."""


def find_leaks(folder: Path, holdout: Path) -> list[Problem]:
    """Everything of the holdout's references found in the public folder.

    Raises
    ------
    ValueError
        If one folder contains the other, or `holdout` is not a dataset folder.
    """
    check_apart(folder, holdout)
    records = [record for split in read_folder_info(holdout).splits for record in read_localization(holdout, split)]
    patients = {record.patient_id for record in records}
    images = {record.image_id for record in records}
    secrets = _secret_texts(records)
    contours = {_start(contour): record.image_id for record in records for contour in _contours(record)}
    points = {(point.x, point.y): record.image_id for record in records for point in record.points}
    problems: list[Problem] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in TEXT:
            text = path.read_text(encoding="utf-8", errors="replace")
            problems += [
                Problem(name, secrets[secret], "text", "must not hold the holdout's references", secret[:40])
                for secret in secrets
                if secret in text
            ]
        elif path.suffix == ".parquet":
            is_localization = name.startswith("localization/")
            for row in read_rows([path]):
                found = set(_leaks_of_row(row, secrets, contours, points))
                if is_localization and row["patient_id"] in patients:
                    found.add(("patient_id", "must not be in the holdout", row["patient_id"]))
                if is_localization and row["image_id"] in images:
                    found.add(("image_id", "must not be in the holdout", row["image_id"]))
                problems += [Problem(name, row.get("image_id"), *leak) for leak in sorted(found)]
    return problems


def _secret_texts(records: list[LocalizationRecord]) -> dict[str, str]:
    """Strings that only the references hold -> image they belong to."""
    secrets = {}
    for record in records:
        if record.source_sha256 is not None:
            secrets[record.source_sha256] = record.image_id
        for annotation in record.annotations:
            if annotation.rle is not None and annotation.rle.counts != empty_rle(annotation.rle.size).counts:
                secrets[annotation.rle.counts] = record.image_id
    return secrets


def _contours(record: LocalizationRecord) -> Iterator[Any]:
    for annotation in record.annotations:
        for contour in annotation.polygons:
            if len(contour) >= VERTICES:
                yield contour


def _start(contour: Any) -> tuple[tuple[float, float], ...]:
    return tuple((vertex[0], vertex[1]) for vertex in contour[:VERTICES])


def _leaks_of_row(
    row: dict[str, Any], secrets: dict[str, str], contours: dict[Any, str], points: dict[Any, str]
) -> Iterator[tuple[str, str, str]]:
    rule = "must not hold the holdout's references"
    for column, text in _texts(row):
        if text in secrets and (column != "annotations.rle.counts" or len(text) - text.count("0") >= DETAIL[1]):
            yield column, rule, text[:40]
    for annotation in row.get("annotations") or ():
        for contour in annotation["polygons"]:
            if len(contour) >= DETAIL[0] and _start(contour) in contours:
                yield "annotations.polygons", rule, str(_start(contour)[0])
    for point in row.get("points") or ():
        # two readers may well click on the same pixel of two images: only the very image's point tells something
        if points.get((point["x"], point["y"])) == row.get("image_id"):
            yield "points", rule, f"({point['x']}, {point['y']})"


def _texts(value: Any, column: str = "") -> Iterator[tuple[str, str]]:
    """Every string in a row, with the dotted name of its column."""
    if isinstance(value, str):
        yield column, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{column}.{name}" if column else name)
    elif isinstance(value, list):
        for inner in value:
            if not isinstance(inner, int | float):
                yield from _texts(inner, column)
