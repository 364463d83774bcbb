"""Export models' misses for radiologists to classify, and read their answers (paper 000, section 3.4).

Readers classify the exported files with ``reveal-leaderboard readers --form errors --misses
OUT/for_readers/misses.jsonl --images OUT/for_readers --readers readers.csv``. The files are:

* ``for_readers/misses.jsonl``: one line per miss, with a neutral id, the image file, the finding, the grid, the cells
  that the reference touches, and the predicted cell. Cells are [row, column], counted from 0.
* ``for_readers/pictures/``: the central squares of the radiographs as PNG, at full resolution, because the form's grid
  covers the whole image. If height and width differ by an odd number, the edge of the square is in the middle of a
  pixel, and the image begins with that pixel.
* ``key.jsonl``: image and finding of each id, and the models that missed it. Do not give this file to readers.

All files reveal references. Only their owner can open the folder, because the files of a holdout are as secret as the
holdout itself.

If several models predicted the same cell for a case, readers judge this cell once. If a model has more than
`max_per_finding` misses of a finding, readers get a random sample: the first misses in
:func:`~reveal_bench.reports.run_errors.reading_order`.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.kinds.localization.references import list_cases
from reveal_bench.masks import pack_regions
from reveal_bench.metrics.localization import cell_coverage
from reveal_bench.reports.run_errors import CaseError, ReviewKey, reading_order
from reveal_bench.tables import read_table

if TYPE_CHECKING:
    from PIL.Image import Image

READERS_FOLDER, MISSES_FILE, KEY = "for_readers", "misses.jsonl", "key.jsonl"
ANSWER_COLUMNS = ["id", "finding", "reader", "category", "comment"]
"""Columns of the error ratings that ``reveal-leaderboard readers-export`` writes."""
ANSWERS = {"position_error": "position", "anatomy_error": "anatomy", "cannot_read": None}
KEY_FIELDS = {"id", "image_id", "finding", "grid", "cell", "models"}


def write_misses(
    out: Path,
    case_errors: Mapping[str, Sequence[CaseError]],
    records: Sequence[LocalizationRecord],
    open_picture: Callable[[str], Image],
    *,
    grid: int,
    seed: int = 0,
    max_per_finding: int = 50,
) -> dict[str, int]:
    """Write the misses for readers to judge.

    Parameters
    ----------
    out : new or empty folder
    case_errors : model -> its cases from :func:`~reveal_bench.reports.run_errors.categorize`, with this `grid`; cases
        decided by the anatomy are omitted; cases that readers have already judged count towards `max_per_finding`
    records : references of the split
    open_picture : image_id -> the whole radiograph, in the size stated in its record
    seed : seed of the random sample; :func:`~reveal_bench.reports.run_errors.shares` needs the same seed
    max_per_finding : maximum number of misses per model and finding to read, at least 1

    Returns
    -------
    dict from finding to the number of misses written, in the order of the records' findings

    Raises
    ------
    ValueError
        If `out` is not empty, a number is out of range, no case is left to read, a case has no record, or an image does
        not have the size in its record.
    """
    out = Path(out).resolve()
    if max_per_finding < 1:
        raise ArgumentError("max_per_finding", "must be at least 1", max_per_finding)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArgumentError("out", "must be a new or empty folder", out)
    for model, cases in case_errors.items():
        if getattr(cases, "grid", grid) != grid:
            raise ArgumentError("grid", f"must be that of `case_errors[{model!r}]`, {cases.grid}", grid)  # type: ignore[attr-defined]
    misses = _choose(case_errors, seed, max_per_finding)
    if not misses:
        raise ValueError("the runs must have a miss without overlap that no reader has judged, got none")
    touched = _touched_cells(records, {(case.image_id, case.finding) for case, _ in misses}, Grid(grid))
    new = out.with_name(f".{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # left by an interrupted run
    new.mkdir(mode=0o700, parents=True)
    try:
        _write(new, misses, touched, {record.image_id: record.size for record in records}, open_picture, Grid(grid))
        if out.exists():
            out.rmdir()
        new.rename(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    counts = Counter(case.finding for case, _ in misses)
    known = dict.fromkeys(finding for record in records for finding in record.label_status)
    return {finding: counts[finding] for finding in known if counts[finding]}


def _choose(
    case_errors: Mapping[str, Sequence[CaseError]], seed: int, max_per_finding: int
) -> list[tuple[CaseError, list[str]]]:
    """Return (miss, models that made it) for each miss to read, in reading order."""
    selected: dict[bytes, tuple[CaseError, list[str]]] = {}
    for model, cases in case_errors.items():
        by_finding: dict[str, list[CaseError]] = {}
        for case in cases:
            if case.category == "miss_unreviewed" or case.source == "reader":
                by_finding.setdefault(case.finding, []).append(case)
        for own in by_finding.values():
            first = sorted(own, key=lambda case: reading_order(case, seed))[:max_per_finding]
            for case in first:
                if case.source != "reader":
                    selected.setdefault(reading_order(case, seed), (case, []))[1].append(model)
    return [selected[place] for place in sorted(selected)]


def _touched_cells(
    records: Sequence[LocalizationRecord], pairs: set[tuple[str, str]], grid: Grid
) -> dict[tuple[str, str], list[list[int]]]:
    """Return (image_id, finding) -> [row, column] of every cell that the reference touches."""
    touched = {}
    images = {image_id for image_id, _ in pairs}
    for record, finding, reference in list_cases([record for record in records if record.image_id in images]):
        if (record.image_id, finding) in pairs:
            covered = cell_coverage(pack_regions([reference.region], [reference.size]), 0, grid)
            touched[record.image_id, finding] = np.argwhere(covered).tolist()
    lacking = sorted(pairs - touched.keys())
    if lacking:
        raise ArgumentError("records", f"must have the reference of every case, {lacking[0]} is missing")
    return touched


def _write(
    folder: Path,
    misses: Sequence[tuple[CaseError, list[str]]],
    touched: Mapping[tuple[str, str], list[list[int]]],
    sizes: Mapping[str, tuple[int, int]],
    open_picture: Callable[[str], Image],
    grid: Grid,
) -> None:
    pictures = folder / READERS_FOLDER / "pictures"
    pictures.mkdir(parents=True)
    names: dict[str, str] = {}
    lines, key = [], []
    for number, (case, models) in enumerate(misses, start=1):
        if case.image_id not in names:
            names[case.image_id] = f"p{len(names) + 1:05d}.png"
            square = _square(open_picture(case.image_id), case.image_id, sizes[case.image_id])
            square.save(pictures / names[case.image_id], "PNG")
        column, row = grid.parse(str(case.cell))
        name = f"m{number:05d}"
        item = {"id": name, "image": f"pictures/{names[case.image_id]}", "finding": case.finding}
        cells = {"grid": [grid.n, grid.n], "reference": touched[case.image_id, case.finding], "cell": [row, column]}
        lines.append(item | cells)
        meant = {"id": name, "image_id": case.image_id, "finding": case.finding, "grid": grid.n, "cell": case.cell}
        key.append(meant | {"models": sorted(models)})
    _write_lines(folder / READERS_FOLDER / MISSES_FILE, lines)
    _write_lines(folder / KEY, key)


def _square(picture: Image, image_id: str, size: tuple[int, int]) -> Image:
    """Return the central square of a radiograph as a grey PNG at full resolution, without metadata."""
    if (picture.height, picture.width) != size:
        got = [picture.height, picture.width]
        raise ValueError(f"the image of {image_id} must have its record's size {list(size)}, got {got}")
    left, top, side = (int(value) for value in Grid(1).square(size))
    square = picture.crop((left, top, left + side, top + side)).convert("L")
    square.info.clear()
    return square


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def read_reviews(answers: Path, key: Path | None = None) -> dict[ReviewKey, str]:
    """Parse readers' answers for :func:`~reveal_bench.reports.run_errors.categorize`.

    Parameters
    ----------
    answers : CSV file of error ratings that ``reveal-leaderboard readers-export`` writes
    key : ``key.jsonl`` of :func:`write_misses`; by default the one beside `answers`

    Returns
    -------
    dict from (image_id, finding, cells per side, cell) to "position" or "anatomy", by majority. Misses without a
    majority, or without a reader who could judge them, are omitted and stay unreviewed.

    Raises
    ------
    ValueError
        If a file is malformed, an id is not in the key or has another finding there, or a reader answers an id twice.
    OSError
        If a file cannot be read.
    """
    answers = Path(answers)
    key = answers.with_name(KEY) if key is None else Path(key)
    meant = _read_key(key)
    votes: dict[ReviewKey, Counter[str]] = {}
    seen: set[tuple[str, str]] = set()
    for row in read_table(answers, columns=ANSWER_COLUMNS).rows:
        where = f"{answers.name}, line {row.number}"
        item, category = row["id"], row["category"]
        if item not in meant:
            raise ValueError(f"{where}: `id` must be in {key.name}, got {item!r}")
        if row["finding"] != meant[item][1]:
            raise ValueError(f"{where}: `finding` must be {meant[item][1]!r}, as in the key, got {row['finding']!r}")
        if category not in ANSWERS:
            raise ValueError(f"{where}: `category` must be one of {', '.join(ANSWERS)}, got {category!r}")
        if (item, row["reader"]) in seen:
            raise ValueError(f"{where}: `reader` must answer {item} once, got {row['reader']!r} twice")
        seen.add((item, row["reader"]))
        answer = ANSWERS[category]
        if answer is not None:
            votes.setdefault(meant[item], Counter())[answer] += 1
    return {
        judged: "position" if counts["position"] > counts["anatomy"] else "anatomy"
        for judged, counts in votes.items()
        if counts["position"] != counts["anatomy"]
    }


def _read_key(path: Path) -> dict[str, ReviewKey]:
    meant: dict[str, ReviewKey] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        where = f"{path.name}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"{where}: must be JSON, got {line[:60]!r}") from None
        if not isinstance(row, dict) or set(row) != KEY_FIELDS:
            raise ValueError(f"{where}: the fields must be {', '.join(sorted(KEY_FIELDS))}, got {line[:100]}")
        if row["id"] in meant:
            raise ValueError(f"{where}: `id` must occur only once, got {row['id']!r} twice")
        try:
            Grid(row["grid"]).parse(row["cell"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {error}") from None
        meant[row["id"]] = row["image_id"], row["finding"], row["grid"], row["cell"]
    return meant
