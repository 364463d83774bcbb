"""Read a file of a model's misses for the error form, and identify partial hits.

A line (JSON Lines) or row (Parquet) is one miss: `id`, `image` (a file below the root), `finding`, `grid` (rows,
columns), `reference` (cells that the reference touches at all, each row and column from 0), and the model's prediction:
`cell` (row, column) or `point` (x, y as fractions of width and height, from the upper left).

Paper 000 (section 3): a prediction that touches less than half of a reference cell is a partial hit; a prediction that
does not touch the reference is an error of position or of anatomy, which only a reader can tell. Every line is a miss,
so a cell (or the cell of a point) that is in `reference` is a partial hit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.curation.assign import draw_assignment
from reveal_bench.sources.source import BuildError, Problem
from reveal_leaderboard.readers.preparation import put
from reveal_leaderboard.readers.store import Item, ItemImage, Readings

MAX_GRID = 64
FIELDS = ("id", "image", "finding", "grid", "reference")


def prepare_misses(
    data: Path, table: Path, images: Path, capacities: Mapping[str, int], *, per_item: int = 1, seed: int = 0
) -> Readings:
    """Create the database for a file of misses; partial hits are stored as well, but are on no reader's list.

    Raises
    ------
    BuildError
        If the file breaks a rule; the error lists every problem.
    ValueError
        If the readers' capacities are too small.
    """
    items = read_misses(table, images)
    asked = [one.item for one in items if not one.content["is_partial"]]
    if not asked:
        raise ValueError(f"{table.name} must contain a miss that is not a partial hit, got {len(items)} partial hits")
    drawn = draw_assignment(asked, capacities, np.random.default_rng(seed), per_study=per_item, most=len(asked))
    lists = [(one.reader, one.position, one.study_id) for one in drawn]
    return put(data, items, lists, form="errors", seed=seed, root=images)


def read_misses(table: Path, images: Path) -> list[Item]:
    """Return id -> miss for a file of misses.

    Raises
    ------
    BuildError
        If the file breaks a rule; the error lists every problem.
    """
    problems: list[Problem] = []
    items: dict[str, Item] = {}
    for number, row in enumerate(_rows(table), start=1):
        faults = _faults(row, images)
        if not faults and str(row["id"]) in items:
            faults = [("id", "must occur only once", repr(row["id"]))]
        problems += [Problem(table.name, number, *fault) for fault in faults]
        if not faults:
            items[str(row["id"])] = _item(row)
    if problems or not items:
        raise BuildError(problems or [Problem(table.name, None, "lines", "must exist", "an empty file")])
    return [items[name] for name in sorted(items)]


def _rows(table: Path) -> list[Any]:
    if table.suffix == ".parquet":
        import pyarrow.parquet as pq

        return list(pq.read_table(table).to_pylist())
    try:
        return [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise BuildError(
            [Problem(table.name, None, "file", "must be JSON Lines or Parquet", str(error)[:100])]
        ) from None


def _faults(row: Any, images: Path) -> list[tuple[str, str, str]]:
    """Return (field, rule, value) for each problem of a line."""
    if not isinstance(row, dict) or any(row.get(name) in (None, "") for name in FIELDS):
        got = ", ".join(row) if isinstance(row, dict) else type(row).__name__
        return [("fields", f"must be {', '.join(FIELDS)} and cell or point", got[:100])]
    faults = []
    path = (images / str(row["image"])).resolve()
    if not path.is_relative_to(images.resolve()) or not path.is_file():
        faults.append(("image", "must be a file below the root", repr(row["image"])[:100]))
    grid = row["grid"]
    if not _is_pair(grid, 1, MAX_GRID + 1, 1, MAX_GRID + 1):
        return [*faults, ("grid", f"must be numbers of rows and columns from 1 to {MAX_GRID}", repr(grid)[:100])]
    cells = row["reference"]
    if not isinstance(cells, list) or not all(_is_pair(cell, 0, grid[0], 0, grid[1]) for cell in cells):
        faults.append(("reference", "must be a list of cells of the grid", repr(cells)[:100]))
    cell, point = row.get("cell"), row.get("point")
    if (cell is None) == (point is None):
        faults.append(("cell, point", "must have `cell` or `point`, not both", f"{cell!r} and {point!r}"[:100]))
    elif cell is not None and not _is_pair(cell, 0, grid[0], 0, grid[1]):
        faults.append(("cell", "must be a cell of the grid", repr(cell)[:100]))
    elif point is not None and not _is_share(point):
        faults.append(("point", "must be two numbers from 0 to 1", repr(point)[:100]))
    return faults


def _is_pair(value: Any, low: int, high: int, low_2: int, high_2: int) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value)
    return is_pair and low <= value[0] < high and low_2 <= value[1] < high_2


def _is_share(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(type(one) in (int, float) for one in value)
    return is_pair and all(0 <= one <= 1 for one in value)


def _item(row: Mapping[str, Any]) -> Item:
    rows, columns = row["grid"]
    point = row.get("point")
    cell = row["cell"] if point is None else [_index(point[1], rows), _index(point[0], columns)]
    content = {
        "finding": str(row["finding"]),
        "is_partial": cell in row["reference"],
        "reference": [_rect(one, rows, columns) for one in row["reference"]],
        "model": [] if point is not None else [_rect(cell, rows, columns)],
        "points": [] if point is None else [point],
    }
    return Item(str(row["id"]), content, (ItemImage(str(row["image"]), None, "UNKNOWN"),))


def _index(share: float, n: int) -> int:
    """Return the index of the cell that contains a position, given as a fraction of a side; 1 is in the last cell."""
    return min(int(share * n), n - 1)


def _rect(cell: Sequence[int], rows: int, columns: int) -> list[float]:
    """Return the edges (x0, y0, x1, y1) of a cell as fractions of width and height."""
    row, column = cell
    return [column / columns, row / rows, (column + 1) / columns, (row + 1) / rows]
