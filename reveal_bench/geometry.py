"""Coordinates of the whole package: conventions for points, boxes and grid cells.

Conventions
-----------
Pixel (x, y) has its origin at the top-left corner of the full-size image; pixel (i, j) covers the square [i, i+1) x [j,
j+1). A point is ``(x, y)`` with 0 <= x < width and 0 <= y < height; it is in pixel ``(floor(x), floor(y))``. A box is
``[x, y, width, height]``. Sizes are ``(height, width)``, as in COCO.

A :class:`Grid` of n x n equal cells covers the central square of the image whose side is the short side of the image
(paper 000, section 3.2). Columns are letters from the left, rows are numbers from the top: "A1" is top left. Cell edges
are real numbers: neither the central square nor the cells are rounded to whole pixels. For exact arithmetic, edges are
also available as integers in units of 1/(2n) pixel (:meth:`Grid.edges_x`, :meth:`Grid.edges_y`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reveal_bench.arguments import ArgumentError

MAX_CELLS = 26
"""Largest number of cells per side, for which columns still have one-letter names."""

SLACK = 1.0
"""Largest number of pixels by which an annotated box may extend beyond its image."""

_CELL = re.compile(r"([A-Z])([1-9][0-9]?)", re.ASCII)


def is_inside(x: float, y: float, *, size: tuple[int, int]) -> bool:
    """Return True if the point (x, y) is in an image of `size` (height, width). NaN and infinities give False."""
    height, width = size
    return 0 <= x < width and 0 <= y < height


def box_centre(box: Sequence[float]) -> tuple[float, float]:
    """Return the centre (x, y) of a box [x, y, width, height].

    Examples
    --------
    >>> box_centre([10, 20, 4, 6])
    (12.0, 23.0)
    """
    x, y, width, height = box
    return (x + width / 2, y + height / 2)


def extent_problem(box: Sequence[float], size: tuple[int, int] | None) -> str | None:
    """Return the rule broken by a box of finite numbers in an image of `size` (height, width); None if it is valid.

    Without a `size`, only the box's own sides are checked. A box may extend beyond the image by :data:`SLACK`.
    """
    x, y, width, height = box
    if width <= 0 or height <= 0:
        return "must have width and height above 0"
    if size is None:
        return None
    if min(x, y) < -SLACK or x + width > size[1] + SLACK or y + height > size[0] + SLACK:
        return f"must be in the image of {size[1]} x {size[0]} pixels"
    return None


def box_around(
    box: Sequence[float], degrees: float, *, about: Literal["centre", "corner"] = "centre"
) -> tuple[float, float, float, float]:
    """Return the upright box around a box that is rotated clockwise.

    Parameters
    ----------
    degrees : rotation; y points down, so that positive angles turn clockwise
    about : fixed point of the rotation: CVAT rotates about the centre, Label Studio about the top-left corner

    Examples
    --------
    >>> box_around((100, 100, 200, 40), 90)
    (180.0, 20.0, 40.0, 200.0)
    >>> box_around((100, 100, 200, 40), 90, about="corner")
    (60.0, 100.0, 40.0, 200.0)
    """
    x, y, width, height = box
    pivot_x, pivot_y = box_centre(box) if about == "centre" else (x, y)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    from_pivot = [(a - pivot_x, b - pivot_y) for a in (x, x + width) for b in (y, y + height)]
    xs = [round(pivot_x + dx * cosine - dy * sine, 9) for dx, dy in from_pivot]
    ys = [round(pivot_y + dx * sine + dy * cosine, 9) for dx, dy in from_pivot]
    return min(xs), min(ys), round(max(xs) - min(xs), 9), round(max(ys) - min(ys), 9)


def stated_rotation(row: Mapping[str, Any]) -> Any:
    """Return the field `rotation` of an annotation or of its `attributes`, as CVAT and datumaro write it; else 0."""
    attributes = row.get("attributes")
    named = attributes.get("rotation") if isinstance(attributes, Mapping) else None
    return row.get("rotation") or named or 0


@dataclass(frozen=True, slots=True)
class Grid:
    """An n x n grid over the central square of an image.

    Parameters
    ----------
    n : int in [1, 26]
        Cells per side; 8 in paper 000's main analysis, 16 in its appendix.

    Raises
    ------
    ValueError
        If n is out of range.

    Examples
    --------
    >>> grid = Grid(8)
    >>> grid.cell_at(0, 0, size=(80, 80)), grid.cell_at(79.9, 45, size=(80, 80))
    ('A1', 'H5')
    >>> grid.centre("A1", size=(80, 160))
    (45.0, 5.0)
    >>> grid.cell_at(0, 0, size=(80, 160)) is None
    True
    """

    n: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MAX_CELLS:
            raise ArgumentError("n", f"must be in [1, {MAX_CELLS}]", self.n)

    @property
    def cells(self) -> list[str]:
        """All n*n cell names in row-major order: A1, B1, ... A2, ..."""
        return [self.name(column, row) for row in range(self.n) for column in range(self.n)]

    def name(self, column: int, row: int) -> str:
        """Return the name of the cell at 0-based `column` (from the left) and `row` (from the top)."""
        if not (0 <= column < self.n and 0 <= row < self.n):
            raise ValueError(f"`column` and `row` must be in [0, {self.n}), got ({column}, {row})")
        return f"{chr(ord('A') + column)}{row + 1}"

    def parse(self, cell: str) -> tuple[int, int]:
        """Return (column, row), counted from 0, of a cell name.

        Raises
        ------
        ValueError
            If `cell` is not a capital letter and a number, or is outside the grid.
        """
        match = _CELL.fullmatch(cell)
        if match is None:
            raise ArgumentError("cell", "must be a capital letter and a number such as 'D5'", repr(cell))
        column, row = ord(match[1]) - ord("A"), int(match[2]) - 1
        if column >= self.n or row >= self.n:
            raise ArgumentError("cell", f"must be in the {self.n} x {self.n} grid (A1 to {self.cells[-1]})", repr(cell))
        return column, row

    def square(self, size: tuple[int, int]) -> tuple[float, float, float]:
        """Return (left, top, side) of the central square of an image of `size` (height, width), in pixels."""
        height, width = size
        side = min(height, width)
        return (width - side) / 2, (height - side) / 2, float(side)

    def box(self, cell: str, *, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """Return the box [x, y, width, height] of a cell in full-image pixels, not rounded."""
        column, row = self.parse(cell)
        left, top, side = self.square(size)
        return left + side * column / self.n, top + side * row / self.n, side / self.n, side / self.n

    def centre(self, cell: str, *, size: tuple[int, int]) -> tuple[float, float]:
        """Return the centre (x, y) of a cell in full-image pixels."""
        return box_centre(self.box(cell, size=size))

    def cell_at(self, x: float, y: float, *, size: tuple[int, int]) -> str | None:
        """Return the name of the cell that contains the point (x, y), or None outside the central square."""
        left, top, side = self.square(size)
        column = math.floor((x - left) * self.n / side)
        row = math.floor((y - top) * self.n / side)
        if not (0 <= column < self.n and 0 <= row < self.n):
            return None
        return self.name(column, row)

    def edges_x(self, size: tuple[int, int]) -> list[int]:
        """Return the x coordinates of the n + 1 vertical cell edges, as integers in units of 1/(2n) pixel.

        A cell is 2 * side units wide.
        """
        height, width = size
        side = min(height, width)
        return [self.n * (width - side) + 2 * side * k for k in range(self.n + 1)]

    def edges_y(self, size: tuple[int, int]) -> list[int]:
        """Return the y coordinates of the n + 1 horizontal cell edges, as integers in units of 1/(2n) pixel."""
        height, width = size
        return self.edges_x((width, height))
