"""geometry: cells, points and boxes, by hand."""

from __future__ import annotations

import re

import pytest

from reveal_bench.geometry import Grid, is_inside


def test_cells_tile_the_central_square_of_a_wide_image() -> None:
    # 2828 x 2320: square of 2320 from x = 254; cells of 290 px
    grid = Grid(8)
    size = (2320, 2828)
    assert grid.square(size) == (254.0, 0.0, 2320.0)
    assert grid.box("A1", size=size) == (254.0, 0.0, 290.0, 290.0)
    assert grid.box("H8", size=size) == (254.0 + 7 * 290, 7 * 290.0, 290.0, 290.0)
    assert grid.cell_at(253.9, 100, size=size) is None
    assert grid.cell_at(254.0, 0, size=size) == "A1"
    assert grid.cell_at(2573.9, 2319.9, size=size) == "H8"
    assert grid.cell_at(2574.0, 100, size=size) is None


@pytest.mark.parametrize("size", [(5, 5), (7, 10), (10, 7), (1, 1), (1, 9), (2021, 2022)])
@pytest.mark.parametrize("n", [1, 3, 8, 16, 26])
def test_every_cell_holds_its_own_centre(size: tuple[int, int], n: int) -> None:
    grid = Grid(n)
    for cell in grid.cells:
        x, y = grid.centre(cell, size=size)
        assert grid.cell_at(x, y, size=size) == cell
        assert is_inside(x, y, size=size)


def test_exact_edges_agree_with_boxes() -> None:
    grid = Grid(8)
    size = (2022, 2021)
    edges = grid.edges_y(size)
    # units of 1/16 px: the square starts at y = 0.5 and has cells of 2021 / 8 px
    assert edges[0] == 8
    assert edges[1] - edges[0] == 2 * 2021
    assert grid.box("A2", size=size)[1] == edges[1] / 16


@pytest.mark.parametrize("cell", ["", "A", "1", "a1", "A0", "A01", "I1", "A9", "AA1", "A1 ", "D-5", "Ａ1", "A١"])
def test_invalid_cell_is_refused(cell: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(cell))):
        Grid(8).parse(cell)


@pytest.mark.parametrize("n", [0, -1, 27])
def test_grids_out_of_range_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match=rf"`n` must be in \[1, 26\], got {n}"):
        Grid(n)


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [(0, 0, True), (9.99, 4.99, True), (10, 0, False), (0, 5, False), (-0.01, 0, False), (float("nan"), 0, False)],
)
def test_points_on_the_border(x: float, y: float, inside: bool) -> None:
    assert is_inside(x, y, size=(5, 10)) is inside
