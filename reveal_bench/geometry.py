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
from collections.abc import Sequence
from dataclasses import dataclass

from reveal_bench.arguments import ArgumentError

MAX_CELLS = 26
"""Largest number of cells per side, for which columns still have one-letter names."""

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
