"""Search for contents of a private holdout in a public dataset folder.

The rows of the private folder are compared with all strings, boxes and pictures in the public folder's Parquet files,
and with its text files. The public folder must not contain:

* the id of an image, study, task or patient of the holdout, except in the holdout's manifest and inputs (in text files
  and Parquet metadata, ids that might be ordinary numbers or words are ignored);
* the hash of a source file; the hash of pixels or the pixels themselves, except in the inputs;
* a mask (its run lengths), a contour (its first vertices), a point, a box, a reference answer, or a text of another
  table (such as a phrase or sentence).

Two images may by chance have the same simple shape, such as a box with round numbers, and two tasks the same standard
answer. Equal references of different images or tasks are therefore only a leak if they have enough detail. Names of
findings and texts of fewer than three words are not secret.

Without the private folder, the search is limited to ids, which the public manifest of the private split lists. In text
files, ids and texts are found regardless of case and line breaks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.dataset.holdout import check_apart
from reveal_bench.dataset.tables import (
    IDS,
    INPUTS,
    MANIFEST,
    DatasetFolder,
    TableFile,
    metadata_texts,
    open_folder,
    read_table,
    tables_of,
)
from reveal_bench.dataset.validate_rows import PictureChecks
from reveal_bench.files import FILMS
from reveal_bench.kinds.rows import Row
from reveal_bench.masks import empty_rle
from reveal_bench.sources.source import Problem

TOKEN = re.compile(r"[\w.+-]+")
PIECE = re.compile(r"[^\W_]+")
ID_CHARACTERS, ID_DIGITS = 4, 8
"""Smallest length of an id in the search, and of an id that is a number.

Short numbers might also be a size or a count.
"""
PIECES = 24
"""Largest number of adjacent pieces of a longer word (such as a file name) that are joined and compared with ids."""


def folded(text: str) -> str:
    """Return the text in lower case with single spaces."""
    return " ".join(text.casefold().split())


def distinctive_ids(ids: Collection[str]) -> dict[str, str]:
    """Return a dict from lower-case id to id, for ids that have a digit and are too long to occur by chance."""
    return {
        name.casefold(): name
        for name in ids
        if len(name) >= (ID_DIGITS if name.isdigit() else ID_CHARACTERS) and any(c.isdigit() for c in name)
    }


def ids_in_text(text: str, ids: dict[str, str]) -> Iterator[str]:
    """Yield the ids that occur in the text as words or as pieces of words; `ids` comes from :func:`distinctive_ids`."""
    matches = set()
    for token in set(TOKEN.findall(text.casefold())) if ids else ():
        if token in ids:
            matches.add(ids[token])
            continue
        pieces = [match.span() for match in PIECE.finditer(token)]
        for i, (start, _) in enumerate(pieces):
            matches.update(ids[part] for _, end in pieces[i : i + PIECES] if (part := token[start:end]) in ids)
    yield from sorted(matches)


TEXT_BYTES = 64 << 20
"""Size in bytes up to which files other than tables are searched as text.

`validate_folder` rejects files that do not belong in a dataset folder.
"""
VERTICES = 4
"""Number of first vertices of a contour that are compared."""
DETAIL_VERTICES, DETAIL_RUNS, DETAIL_DIGITS, DETAIL_TEXT = 8, 16, 9, 120
"""Detail from which equal references are not a coincidence.

In vertices of a contour, characters of run lengths other than "0", significant digits of a box's four numbers in total,
and characters of a text. A box at the image's top left corner never has enough detail.
"""
WORDS, SAME_ROW_TEXT, FILE_TEXT = 3, 12, 40
"""Smallest length of texts in the search.

In words for any text, in characters for a text in a row of the same key, and in characters for a text file.
"""
RULE = "must not contain the holdout's references"
SHOWS = "must not show a picture of the holdout"

Box = tuple[float, ...]


@dataclass
class _Secrets:
    """Contents of a private folder that a public folder must not reveal.

    Attributes
    ----------
    findings : names of the findings, by code
    files, pixels, masks, contours : dicts from hash, run lengths or first vertices to the key of the row
    points : (image id, x, y) of each point
    boxes, boxes_at : pairs (label, box) of boxes with enough detail, and pairs (key of the row, box) of all boxes
    texts : dict from answer, phrase or sentence to the keys of its rows
    """

    findings: Sequence[str]
    ids: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in IDS.values()})
    files: dict[str, str] = field(default_factory=dict)
    pixels: dict[str, str] = field(default_factory=dict)
    masks: dict[str, str] = field(default_factory=dict)
    contours: dict[Any, str] = field(default_factory=dict)
    points: set[tuple[str, float, float]] = field(default_factory=set)
    boxes: set[tuple[str, Box]] = field(default_factory=set)
    boxes_at: set[tuple[str, Box]] = field(default_factory=set)
    texts: dict[str, set[str]] = field(default_factory=dict)

    def add_ids(self, row: Row) -> None:
        """Add the ids of a row."""
        for _, name, value in _ids_of(row):
            self.ids[name].add(value)

    def add(self, row: Row, key: str) -> None:
        """Add a row of the private main config."""
        for name, value in _hashes(row):
            (self.files if name == "source_sha256" else self.pixels)[value] = key
        for annotation in row.get("annotations") or ():
            rle = annotation["rle"]
            if rle is not None and rle["counts"] != empty_rle(tuple(rle["size"])).counts:
                self.masks[rle["counts"]] = key
            for contour in annotation["polygons"] or ():
                if len(contour) >= VERTICES:
                    self.contours[_start(contour)] = key
        for point in row.get("points") or ():
            self.points.add((row["image_id"], point["x"], point["y"]))
        self._add_text(row.get("reference_answer") or "", key)
        self._add_boxes(row, key)

    def add_extra(self, row: Row, key: str) -> None:
        """Add a row of another table of the private folder."""
        for column, text in _texts(row):
            if column not in IDS:
                self._add_text(text, key)
        self._add_boxes(row, key)

    def _add_text(self, text: str, key: str) -> None:
        text = folded(text)
        if len(text.split()) >= WORDS and text not in {name.casefold() for name in self.findings}:
            self.texts.setdefault(text, set()).add(key)

    def _add_boxes(self, row: Row, key: str) -> None:
        for _, labels, box in _boxes(row, self.findings):
            self.boxes_at.add((key, box))
            if _has_detail(box):
                self.boxes.update((label, box) for label in labels)

    def tells_text(self, text: str, key: str | None) -> bool:
        """Return True if a text in the row `key` reveals a text of the holdout."""
        text = folded(text)
        keys = self.texts.get(text, ())
        return bool(keys) and len(text) >= (SAME_ROW_TEXT if key in keys else DETAIL_TEXT)

    @property
    def forbidden_texts(self) -> dict[str, str]:
        """Dict from text to row key, for the texts that no file may contain."""
        texts = {text: min(keys) for text, keys in self.texts.items() if len(text) >= FILE_TEXT}
        return {**self.files, **self.pixels, **self.masks, **texts}


def find_leaks(folder: Path, holdout: Path | None, *, pictures: PictureChecks | None = None) -> list[Problem]:
    """Return a problem for each content of the holdout in the public folder.

    Parameters
    ----------
    holdout : private folder; without it, only ids of the public manifest are searched for
    pictures : pictures of the public folder that were already decoded; tables with these pictures are not hashed again

    Raises
    ------
    ValueError
        If one folder contains the other, either is not a dataset folder, or their kinds of benchmark differ.
    """
    public = open_folder(folder)
    secrets, closed = _Secrets(public.info.findings), public.private_splits
    tables = tables_of(public)
    for table in tables:
        if table.split in closed and table.config in (MANIFEST, INPUTS):
            for row in _readable_rows(table, list(IDS)):
                secrets.add_ids(row)
    if holdout is None:
        return [problem for table in tables for problem in _id_leaks(table, secrets, closed)]
    _read_holdout(folder, public, holdout, secrets)
    problems = list(_text_leaks(folder, secrets))
    for table in tables:
        problems += _table_leaks(
            public, table, secrets, closed, is_hashed=pictures is not None and table.name in pictures.seen
        )
    if pictures is not None:
        problems += _picture_leaks(pictures, secrets)
    return problems


def _read_holdout(folder: Path, public: DatasetFolder, holdout: Path, secrets: _Secrets) -> None:
    check_apart(folder, holdout)
    private = open_folder(holdout)
    if public.kind_name != private.kind_name:
        raise ArgumentError(
            "holdout", f"must have the same kind of benchmark as {folder}, {public.kind_name}", private.kind_name
        )
    key = private.kind.key
    for table in tables_of(private):
        for row in _readable_rows(table):
            secrets.add_ids(row)
            if table.config == private.kind.config:
                secrets.add(row, row[key])
            elif table.config != MANIFEST and key in row:
                secrets.add_extra(row, row[key])


def _picture_leaks(pictures: PictureChecks, secrets: _Secrets) -> Iterator[Problem]:
    """Yield a problem for each decoded picture with the pixels or file bytes of a picture of the holdout."""
    for what, places, known in (("pixels", pictures.places, secrets.pixels), ("file", pictures.files, secrets.files)):
        for digest, (_, image_id, file) in places.items():
            if digest in known and not file.startswith(f"{INPUTS}/"):
                value = f"the {what} of {known[digest]}{pictures.fault_of(digest)}"
                yield Problem(file, image_id, "image", SHOWS, value)


def _id_leaks(table: TableFile, secrets: _Secrets, closed: set[str]) -> Iterator[Problem]:
    if table.split in closed and table.config in (MANIFEST, INPUTS):
        return
    for row in _readable_rows(table, list(IDS)):
        for column, rule, value in sorted(set(_find_id_leaks(row, secrets))):
            yield Problem(table.name, _place(row), column, rule, value)


def _text_leaks(folder: Path, secrets: _Secrets) -> Iterator[Problem]:
    known, ids = secrets.forbidden_texts, distinctive_ids(set().union(*secrets.ids.values()))
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".parquet":
            field, text = "metadata", "\n".join(metadata_texts(path))
        elif path.stat().st_size <= TEXT_BYTES:
            field, text = "text", path.read_text(encoding="utf-8", errors="replace")
        else:
            continue
        same = folded(text)
        for secret, key in known.items():
            if secret in text or secret in same:
                yield Problem(name, key, field, RULE, secret[:40])
        for identifier in ids_in_text(text, ids) if name != FILMS else ():  # it names images, as the manifest does
            yield Problem(name, None, field, "must not name data of the holdout", identifier)


def _table_leaks(
    public: DatasetFolder, table: TableFile, secrets: _Secrets, closed: set[str], *, is_hashed: bool
) -> Iterator[Problem]:
    key, is_input = public.kind.key, table.config == INPUTS
    may_name = table.split in closed and table.config in (MANIFEST, INPUTS)
    for row in _readable_rows(table, without=public.kind.table.image_columns if is_hashed else ()):
        leaks = set(_find_reference_leaks(row, row.get(key), secrets))
        leaks |= set(_find_hash_leaks(row, secrets, is_input=is_input))
        if not may_name:
            leaks |= set(_find_id_leaks(row, secrets))
        for column, rule, value in sorted(leaks):
            yield Problem(table.name, _place(row, key), column, rule, value)


def _place(row: Row, key: str = "task_id") -> str | None:
    """Return the id that names a row of any table."""
    return row.get(key) or row.get("image_id") or row.get("study_id")


def _readable_rows(table: TableFile, columns: list[str] | None = None, *, without: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the readable rows of a file; `validate_folder` reports damage."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if columns is None and without:
            columns = [name for name in pq.read_schema(table.path).names if name not in without]
        for batch in read_table(table, columns):
            yield from batch
    except (OSError, pa.ArrowException):
        return


Told = tuple[str, str, str]
"""Column, rule, value."""


def _find_id_leaks(row: Row, secrets: _Secrets) -> Iterator[Told]:
    for column, name, value in _ids_of(row):
        if value in secrets.ids[name]:
            yield column, "must not be in the holdout", value


def _find_hash_leaks(row: Row, secrets: _Secrets, *, is_input: bool) -> Iterator[Told]:
    for column, text in _texts(row):
        if text in secrets.files or (text in secrets.pixels and not is_input):
            yield column, RULE, text[:40]
    if not is_input:
        for data in _file_bytes(row):
            if hashlib.sha256(data).hexdigest() in secrets.files:
                yield "image", SHOWS, f"the file of {len(data)} bytes"


def _find_reference_leaks(row: Row, key: str | None, secrets: _Secrets) -> Iterator[Told]:
    for column, text in _texts(row):
        is_mask = text in secrets.masks and (
            column != "annotations.rle.counts" or len(text) - text.count("0") >= DETAIL_RUNS
        )
        if is_mask or secrets.tells_text(text, key):
            yield column, RULE, text[:40]
    for annotation in row.get("annotations") or ():
        for contour in annotation["polygons"] or ():
            if len(contour) >= DETAIL_VERTICES and _start(contour) in secrets.contours:
                yield "annotations.polygons", RULE, str(_start(contour)[0])
    for point in row.get("points") or ():
        # readers may click on the same pixel of different images, so only a point of the same image is a leak
        if (row.get("image_id"), point["x"], point["y"]) in secrets.points:
            yield "points", RULE, f"({point['x']}, {point['y']})"
    for column, labels, box in _boxes(row, secrets.findings):
        if (key, box) in secrets.boxes_at or any((label, box) in secrets.boxes for label in labels):
            yield column, RULE, str(list(box))


def _ids_of(row: Row) -> Iterator[Told]:
    """Yield (column, kind of id, id) of each id in a row."""
    for column, name in IDS.items():
        value = row.get(column)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield column, name, text


def _boxes(
    value: Row, findings: Sequence[str], column: str = "", labels: Sequence[str] = ("",)
) -> Iterator[tuple[str, Sequence[str], Box]]:
    """Yield (column, labels, box) of every box in a row, at any depth, except tight boxes of masks."""
    named = value.get("label", value.get("labels"))
    if named is not None:
        codes = named if isinstance(named, list) else [named]
        labels = [_label(code, findings) for code in codes] or [""]
    for name, inner in value.items():
        where = f"{column}.{name}" if column else name
        if name.endswith("_xywh") and inner:
            if value.get("rle") is None or name != "bbox_xywh":
                for box in inner if isinstance(inner[0], list) else [inner]:
                    yield where, labels, tuple(box)
        elif isinstance(inner, list):
            for entry in inner:
                if isinstance(entry, dict):
                    yield from _boxes(entry, findings, where, labels)


def _label(code: int | str, findings: Sequence[str]) -> str:
    is_known = isinstance(code, int) and 0 <= code < len(findings)
    return (findings[code] if is_known else str(code)).casefold()  # type: ignore[index]


def _has_detail(box: Box) -> bool:
    """Return True if a box has too much detail (DETAIL_DIGITS) to be drawn twice by chance."""
    digits = sum(len(f"{value:.10g}".replace(".", "").strip("-0")) for value in box)
    return any(box[:2]) and digits >= DETAIL_DIGITS


def _hashes(value: Any) -> Iterator[tuple[str, str]]:
    """Yield (column, hash) of every hash of a file or of pixels in a row, at any depth."""
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
    """Yield (dotted name of the column, string) of every string in a row."""
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
