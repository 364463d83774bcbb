"""Does anything of a private holdout lie in a public folder?

Compared are the private folder's rows with every byte that the public folder lets a reader see: all strings of all its
Parquet files, decompressed, and its text files. What must not occur:

* an id of an image, study, task or patient of the holdout in any table but the holdout's own manifest and inputs;
* the hash of a source file anywhere, the hash of pixels or the pixels themselves anywhere but in the inputs;
* a mask (its run lengths), a contour (its first vertices), a point, a reference answer or its boxes, anywhere.

Two images may have the same simple shape by chance, such as a box, and two tasks the same short answer: in the public
references of another image or task only what has some detail counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.builders.holdout import check_apart
from reveal_bench.builders.rows import Row
from reveal_bench.builders.source import Problem
from reveal_bench.builders.validate_tables import (
    INPUTS,
    MANIFEST,
    DatasetFolder,
    Table,
    open_folder,
    read_table,
    tables_of,
)
from reveal_bench.masks import empty_rle

__all__ = ["find_leaks"]

TEXT = {".md", ".json", ".jsonl", ".txt", ".csv", ".tsv", ".yaml", ".yml"}
VERTICES = 4
"""Vertices of a contour that count as the contour."""
DETAIL_VERTICES, DETAIL_RUNS, DETAIL_ANSWER = 8, 16, 40
"""Vertices of a contour, characters other than "0" of run lengths, and characters of an answer, from which chance is no
explanation."""
IDS = {
    "image_id": "image_id", "image_ids": "image_id", "prior_image_ids": "image_id", "study_id": "study_id",
    "task_id": "task_id", "patient_id": "patient_id",
}  # fmt: skip
"""Column -> what its ids are of."""
RULE = "must not hold the holdout's references"


@dataclass
class _Secrets:
    """What only the private folder may know; every dict maps to the key of the row that it is of."""

    ids: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in IDS.values()})
    files: dict[str, str] = field(default_factory=dict)
    pixels: dict[str, str] = field(default_factory=dict)
    masks: dict[str, str] = field(default_factory=dict)
    contours: dict[Any, str] = field(default_factory=dict)
    points: dict[tuple[str, float, float], str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row, key: str) -> None:
        """Take in a row of the private main config."""
        for column, name in _ids_of(row):
            self.ids[column].add(name)
        for name, value in _hashes(row):
            (self.files if name == "source_sha256" else self.pixels)[value] = key
        for annotation in row.get("annotations") or ():
            rle = annotation["rle"]
            if rle is not None and rle["counts"] != empty_rle(tuple(rle["size"])).counts:
                self.masks[rle["counts"]] = key
            for contour in annotation["polygons"]:
                if len(contour) >= VERTICES:
                    self.contours[_start(contour)] = key
        for point in row.get("points") or ():
            self.points[row["image_id"], point["x"], point["y"]] = key
        answer = (row.get("reference_answer") or "").strip()
        if len(answer) >= DETAIL_ANSWER:
            self.answers[answer] = key

    @property
    def texts(self) -> dict[str, str]:
        """What must be in no text file."""
        return {**self.files, **self.pixels, **self.masks, **self.answers}


def find_leaks(
    folder: Path, holdout: Path, *, pixels: Mapping[str, tuple[str, str, str]] | None = None
) -> list[Problem]:
    """Everything of the holdout's references found in the public folder.

    Parameters
    ----------
    pixels : sha256 of decoded pixels -> (split, image id, file) of the public folder's pictures, if they were decoded

    Raises
    ------
    ValueError
        If one folder contains the other, one is no dataset folder, or they are of two kinds of benchmark.
    """
    check_apart(folder, holdout)
    public, private = open_folder(folder), open_folder(holdout)
    if public.kind_name != private.kind_name:
        raise ValueError(f"`holdout` must be of the kind of {folder}, {public.kind_name}, got {private.kind_name}")
    secrets = _Secrets()
    key = private.kind.key
    for table in tables_of(private):
        if table.config == private.kind.config:
            for row in (row for batch in read_table(table) for row in batch):
                secrets.add(row, row[key])
    closed = {split for split, entry in public.info.splits.items() if entry.get("references") == "private"}
    problems = list(_text_leaks(folder, secrets))
    for table in tables_of(public):
        problems += _table_leaks(public, table, secrets, closed)
    for digest, (_, image_id, file) in (pixels or {}).items():
        if digest in secrets.pixels and not file.startswith(f"{INPUTS}/"):
            rule = "must not show a picture of the holdout"
            problems.append(Problem(file, image_id, "image", rule, f"the pixels of {secrets.pixels[digest]}"))
    return problems


def _text_leaks(folder: Path, secrets: _Secrets) -> Iterator[Problem]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in TEXT and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            name = path.relative_to(folder).as_posix()
            for secret, key in secrets.texts.items():
                if secret in text:
                    yield Problem(name, key, "text", RULE, secret[:40])


def _table_leaks(public: DatasetFolder, table: Table, secrets: _Secrets, closed: set[str]) -> Iterator[Problem]:
    may_name = table.split in closed and table.config in (MANIFEST, INPUTS)
    for row in _readable_rows(table):
        found = set(_leaks_of_row(row, secrets, is_input=table.config == INPUTS))
        if not may_name:
            found |= {(column, "must not be in the holdout", name) for column, name in _ids_of(row)
                      if name in secrets.ids[column]}  # fmt: skip
        place = row.get(public.kind.key) or row.get("image_id") or row.get("study_id")
        for column, rule, value in sorted(found):
            yield Problem(table.name, place, column, rule, value)


def _readable_rows(table: Table) -> Iterator[Row]:
    """Rows as far as the file can be read; that it is damaged, `validate_folder` says."""
    import pyarrow as pa

    try:
        for batch in read_table(table):
            yield from batch
    except (OSError, pa.ArrowException):
        return


def _leaks_of_row(row: Row, secrets: _Secrets, *, is_input: bool) -> Iterator[tuple[str, str, str]]:
    for column, text in _texts(row):
        is_mask = text in secrets.masks and (
            column != "annotations.rle.counts" or len(text) - text.count("0") >= DETAIL_RUNS
        )
        is_pixels = text in secrets.pixels and not is_input
        if is_mask or is_pixels or text in secrets.files or text.strip() in secrets.answers:
            yield column, RULE, text[:40]
    for annotation in row.get("annotations") or ():
        for contour in annotation["polygons"]:
            if len(contour) >= DETAIL_VERTICES and _start(contour) in secrets.contours:
                yield "annotations.polygons", RULE, str(_start(contour)[0])
    for point in row.get("points") or ():
        # two readers may well click on the same pixel of two images: only the very image's point tells something
        if (row.get("image_id"), point["x"], point["y"]) in secrets.points:
            yield "points", RULE, f"({point['x']}, {point['y']})"
    if not is_input:
        for data in _file_bytes(row):
            if hashlib.sha256(data).hexdigest() in secrets.files:
                yield "image", "must not show a picture of the holdout", f"the file of {len(data)} bytes"


def _ids_of(row: Row) -> Iterator[tuple[str, str]]:
    for column, name in IDS.items():
        value = row.get(column)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield name, text


def _hashes(value: Any) -> Iterator[tuple[str, str]]:
    """Every hash of a file or of pixels in a row, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("source_sha256", "pixel_sha256"):
                if inner is not None:
                    yield name, inner
            elif not isinstance(inner, bytes):
                yield from _hashes(inner)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict):
                yield from _hashes(inner)


def _start(contour: Any) -> tuple[tuple[float, float], ...]:
    return tuple((vertex[0], vertex[1]) for vertex in contour[:VERTICES])


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


def _file_bytes(row: Row) -> Iterator[bytes]:
    for value in row.values():
        for image in value if isinstance(value, list) else [value]:
            if isinstance(image, dict) and isinstance(image.get("bytes"), bytes):
                yield image["bytes"]
