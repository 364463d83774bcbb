"""Points and cells of predictions: the point at which a cell, box or mask is scored, and the cell of a point."""

from __future__ import annotations

from collections.abc import Sequence

from reveal_bench.geometry import Grid, box_centre
from reveal_bench.kinds.localization.records import LocalizationPrediction, Point
from reveal_bench.masks import pack_masks


def kind_of_answer(prediction: LocalizationPrediction | None) -> str:
    """Return which part of a prediction is scored as its point: "point", "box", "cell", "mask" or "none"."""
    if prediction is None:
        return "none"
    for kind, value in (("point", prediction.points), ("box", prediction.box), ("cell", prediction.cell)):
        if value:
            return kind
    return "mask" if prediction.mask is not None else "none"


def points_of(
    prediction: LocalizationPrediction | None,
    *,
    grid: Grid,
    size: tuple[int, int],
    deepest: Sequence[int] | None = None,
) -> Sequence[Point]:
    """Return the points (x, y) of a prediction; empty for an absent prediction or an empty mask.

    Parameters
    ----------
    size : (height, width) of the image
    deepest : deepest pixel of the mask, used if only a mask is predicted; computed here by default
    """
    if prediction is None:
        return ()
    if prediction.points:
        return prediction.points
    if prediction.box is not None:
        return (box_centre(prediction.box),)
    if prediction.cell is not None:
        return (grid.centre(prediction.cell, size=size),)
    if deepest is None and prediction.mask is not None:
        deepest = pack_masks([prediction.mask]).deepest_xy([0])[0].tolist()
    return () if deepest is None or deepest[0] < 0 else ((deepest[0], deepest[1]),)


def cells_of(
    prediction: LocalizationPrediction | None, points: Sequence[Point], *, grid: Grid, size: tuple[int, int]
) -> list[str]:
    """Return the cells of a prediction with these `points`; points outside the central square have no cell."""
    if prediction is not None and prediction.cell is not None:
        return [prediction.cell]
    return [cell for x, y in points if (cell := grid.cell_at(x, y, size=size)) is not None]


def kind_of_cell(prediction: LocalizationPrediction | None, *, grid: Grid, size: tuple[int, int]) -> str:
    """Return "cell" if a prediction names a cell other than its point's, otherwise the part that is scored as its
    point.
    """
    kind = kind_of_answer(prediction)
    if prediction is None or prediction.cell is None:
        return kind
    own = {grid.cell_at(x, y, size=size) for x, y in points_of(prediction, grid=grid, size=size)}
    return kind if own == {prediction.cell} else "cell"
