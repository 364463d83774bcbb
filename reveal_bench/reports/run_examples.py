"""Example films of a report of runs: the reference's outline, the cell of every run, and what kind of error it is.

After paper 000, Figure 5. Cases with most anatomy errors come first, then those with most misses beside a hit, each of
another finding as long as there are some. Films are the central squares that models saw, without the grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.kinds.localization.scoring import list_cases
from reveal_bench.masks import BoolMask, pack_regions
from reveal_bench.reports.figures import CATEGORY_PAINTS
from reveal_bench.reports.films import view_in_words
from reveal_bench.reports.run_errors import MISSES, CaseError
from reveal_bench.reports.style import (
    INK,
    LINE,
    WIDE,
    Illustration,
    cut,
    new_figure,
    paints,
    place_axes,
    style,
    width_of,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from PIL.Image import Image

MOST_EXAMPLES = 12
SIDE_PX = 512
_REFERENCE = "#ff6ad5"
_ABREAST = 3
Pair = tuple[str, str]


@dataclass(frozen=True)
class _Example:
    """One case: the film (n, n) in [0, 255], the reference on it, and what every run said."""

    finding: str
    view: str
    film: FloatArray
    reference: BoolMask
    answers: Mapping[str, CaseError]


def draw_examples(
    cases: Mapping[str, Sequence[CaseError]],
    records: Sequence[LocalizationRecord],
    open_picture: Callable[[str], Image],
    most: int,
    grid: int,
) -> Illustration | None:
    """The figure of at most `most` examples; None if no run missed anything.

    Parameters
    ----------
    cases : run label -> its cases, from :func:`~reveal_bench.reports.run_errors.categorize`
    open_picture : image_id -> the whole radiograph
    grid : cells per side

    Raises
    ------
    ValueError
        If the folder holds no picture of an example.
    """
    by_pair: dict[Pair, dict[str, CaseError]] = {}
    for label, own in cases.items():
        for case in own:
            by_pair.setdefault((case.image_id, case.finding), {})[label] = case
    chosen = _chosen(by_pair, most)
    if not chosen:
        return None
    wanted = {image_id for image_id, _ in chosen}
    references = {
        (record.image_id, finding): (record, reference)
        for record, finding, reference in list_cases([one for one in records if one.image_id in wanted])
    }
    examples = []
    for pair in chosen:
        record, reference = references[pair]
        mask = pack_regions([reference.region], [reference.size]).dense(0)
        film, drawn = _square(open_picture(pair[0]), mask)
        examples.append(_Example(pair[1], record.view, film, drawn, by_pair[pair]))
    told = "; ".join(f"{one.finding}: {', '.join(_said(label, case) for label, case in one.answers.items())}"
                     for one in examples)  # fmt: skip
    return Illustration(
        "examples",
        "Example films",
        "Central squares of single films with the outline of the reference (pink) and the cell of every run; below, "
        "what kind of answer it is, a miss where nobody reviewed it. First the cases with most anatomy errors, then "
        "those with most misses beside a hit, each of another finding as long as there are some.",
        f"Radiographs with reference and cells. {told}.",
        partial(_draw, examples, list(cases), Grid(grid)),
        has_narrow=False,
    )


def _chosen(by_pair: Mapping[Pair, Mapping[str, CaseError]], most: int) -> list[Pair]:
    """Pairs that some run missed, the most telling first; a finding comes again when all others had their turn."""

    def order(pair: Pair) -> tuple[int, bool, int, Pair]:
        found = [case.category for case in by_pair[pair].values()]
        n_missed = sum(category in MISSES for category in found)
        return -found.count("anatomy"), "full_hit" not in found, -n_missed, pair

    missed = [
        pair for pair, own in by_pair.items() if any(case.category in MISSES and case.cell for case in own.values())
    ]
    turns: dict[str, int] = {}
    ranked: list[tuple[int, int, Pair]] = []
    for pair in sorted(missed, key=order):
        turns[pair[1]] = turns.get(pair[1], 0) + 1
        ranked.append((turns[pair[1]], len(ranked), pair))
    return [pair for _, _, pair in sorted(ranked)[:most]]


def _square(picture: Image, mask: BoolMask) -> tuple[FloatArray, BoolMask]:
    """The central square of a film and of a mask, at most :data:`SIDE_PX` a side."""
    from PIL import Image

    left, top, length = Grid(1).square(mask.shape)
    side = min(SIDE_PX, int(length))
    box, size = (left, top, left + length, top + length), (side, side)
    film = picture.convert("L").resize(size, Image.Resampling.BOX, box=box)
    drawn = Image.fromarray(np.asarray(255 * mask, np.uint8)).resize(size, Image.Resampling.BOX, box=box)
    return np.asarray(film, np.float64), np.asarray(drawn) > 127


def _said(label: str, case: CaseError, width: float = math.inf) -> str:
    """A run's name, cell and kind of answer; of more than `width` millimetres the name alone is shortened."""
    kind = CATEGORY_PAINTS[case.category][0].removesuffix(", not reviewed")
    rest = f" {case.cell or 'no cell'}, {kind}"
    return label + rest if width == math.inf else cut(label, width - width_of(rest)) + rest


def _draw(examples: Sequence[_Example], labels: Sequence[str], grid: Grid, width: float = WIDE) -> Figure:
    columns = min(_ABREAST, len(examples))
    gap = 4.0
    side = (width - gap * (_ABREAST - 1)) / _ABREAST
    looks = dict(zip(labels, paints(len(labels)), strict=True))
    with style():
        titles = [wrap(f"{one.finding} ({view_in_words(one.view)})", side - 1, most=2) for one in examples]
        rows = -(-len(examples) // columns)
        top = 2 + LINE * max(title.count("\n") + 1 for title in titles)
        tall = top + side + 2 + (LINE + 0.6) * len(labels) + 3
        figure = new_figure(rows * tall, width)
        for number, (one, title) in enumerate(zip(examples, titles, strict=True)):
            row, column = divmod(number, columns)
            left, low = column * (side + gap), (rows - row) * tall - top - side
            axes = place_axes(figure, left, low, side, side)
            axes.set_title(title, fontsize=8, loc="left", pad=3)
            _draw_film(axes, one, grid, {label: look.colour for label, look in looks.items()})
            for line, (label, case) in enumerate(one.answers.items()):
                height = low - 2 - (LINE + 0.6) * (line + 0.7)
                key = place_axes(figure, left, height, 2.4, 2.4)
                key.set_axis_off()
                key.add_patch(_cell_patch((0, 0, 1, 1), looks[label].colour))
                words = _said(label, case, side - 4)
                figure.text((left + 3.8) / width, (height + 0.5) / (rows * tall), words, fontsize=8, color=INK)
    return figure


def _draw_film(axes: Axes, one: _Example, grid: Grid, colours: Mapping[str, str]) -> None:
    n = len(one.film)
    axes.imshow(one.film, cmap="gray", vmin=0, vmax=255, extent=(0, n, n, 0), interpolation="nearest")
    if one.reference.any() and not one.reference.all():
        middles = np.arange(n) + 0.5
        axes.contour(middles, middles, one.reference, [0.5], colors=[_REFERENCE], linewidths=1.4)
    taken: dict[str, int] = {}
    for label, case in one.answers.items():
        if case.cell is None:
            continue
        place = taken[case.cell] = taken.get(case.cell, -1) + 1
        column, row = grid.parse(case.cell)
        cell, inset = n / grid.n, n / grid.n * 0.1 * place  # of several runs in one cell each is seen
        corner = column * cell + inset, row * cell + inset, cell - 2 * inset, cell - 2 * inset
        axes.add_patch(_cell_patch(corner, colours[label]))
    axes.set_xlim(0, n)
    axes.set_ylim(n, 0)
    axes.set_axis_off()


def _cell_patch(corner: tuple[float, float, float, float], colour: str) -> Rectangle:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    x, y, width, height = corner
    around = [Stroke(linewidth=2.6, foreground="white"), Normal()]  # dark colours are seen on dark films
    return Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=1.4, path_effects=around)
