"""Draw heat maps of reference and predicted locations over the average frontal image, and count repeated answers.

Conventions
-----------
Only frontal images are used, as in paper 000 (section 4.3); an unknown view counts as frontal, as for the error
categories. The reference and all runs use the same questions: those whose reference has a hit cell
(:func:`reveal_bench.metrics.localization.hit_cells`). In the reference's heat map, a cell's value is the proportion of
questions in which it is a hit cell: the hit rate of always answering that cell. In a run's heat map, a cell's value is
the proportion of answers that name the cell. Points, boxes and masks count in the cell of the point by which they are
scored; an answer of several points is divided among their cells. Missing answers, and answers outside the central
square, count in no cell, so a run's cells may sum to less than 1. Arrays are (n rows, n columns), row 0 at the top.

Panels of heat maps share one scale from 0 to 100%, drawn by square root: a cell of 4% remains visible beside one of
100%. The background image is lightened, so that dark means frequent in print as well.

Two tables show limitations of grid hit rates. The first table counts the questions decided by the fallback rule: if the
reference does not cover half of any cell, every cell that it touches counts as a hit (paper 000, section 3.3: 4.4% of
images). The second table counts each run's most common cells: MedGemma at a temperature of 0 gave 96.7% of its answers
in two cells, whatever the image (section 3.5).
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.geometry import Grid
from reveal_bench.kinds.folder import split_shards
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.points import points_of
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.references import list_cases
from reveal_bench.masks import pack_masks, pack_regions
from reveal_bench.metrics.localization import cell_coverage, hit_cells
from reveal_bench.reports.figures import BarGroup
from reveal_bench.reports.page import Csv, PageTable, Progress
from reveal_bench.reports.run_hits import HitRun
from reveal_bench.reports.runs import Split, short_names
from reveal_bench.reports.style import (
    LINE,
    NOTHING,
    SOFT,
    WIDE,
    Illustration,
    new_figure,
    percent,
    place_axes,
    style,
    wrap,
)
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LATERAL = "LATERAL"
FEW = 10
"""Minimum number of patients for showing an average image; an average of fewer could reveal one of them."""
_AT_ONCE = 256
"""Number of masks unpacked at a time, to limit memory."""


@dataclass(frozen=True)
class AveragePicture:
    """The mean of all frontal images of a split.

    Attributes
    ----------
    pixels : float array (side, side) in [0, 255]; None if the folder lacks images, or if showing the average is not
        allowed
    n : number of averaged images
    n_patients : number of their patients
    """

    pixels: FloatArray | None
    n: int
    n_patients: int

    def without_few(self) -> AveragePicture:
        """Return the average image; without pixels if fewer than :data:`FEW` patients could be recognizable in it."""
        return replace(self, pixels=None) if self.n_patients < FEW else self


@dataclass(frozen=True)
class Truth:
    """How often each cell is a hit cell for one finding, and the images of its questions."""

    shares: FloatArray
    image_ids: tuple[str, ...]


def average_picture(folder: Path, split: str, *, side: int = 256, progress: Progress | None = None) -> AveragePicture:
    """Return the mean of the central squares of all frontal images, each resized to `side` x `side`.

    Images are read in small batches.

    Raises
    ------
    ValueError
        If an image cannot be read.
    """
    from PIL import Image

    total, n, patients = np.zeros((side, side)), 0, set[str]()
    for image_id, patient_id, data in _frontal_pictures(folder, split):
        try:
            with Image.open(io.BytesIO(data)) as picture:
                grey = picture.convert("L")
        except (OSError, Image.DecompressionBombError) as error:
            raise ValueError(f"the image of {image_id!r} must be readable: {error}") from None
        left, top, length = Grid(1).square((grey.height, grey.width))
        square = (left, top, left + length, top + length)
        small = grey.resize((side, side), Image.Resampling.BOX, box=square)
        total += np.asarray(small, np.float64)
        n += 1
        patients.add(patient_id)
        if progress is not None:
            progress("averaged pictures", n, None)
    return AveragePicture(total / n if n else None, n, len(patients))


def _frontal_pictures(folder: Path, split: str) -> Iterator[tuple[str, str, bytes]]:
    import pyarrow.parquet as pq

    for shard in split_shards(folder, "localization", split):
        file = pq.ParquetFile(shard)
        if "image" not in file.schema_arrow.names:
            continue
        for batch in file.iter_batches(batch_size=8, columns=["image_id", "patient_id", "view", "image"]):
            row: dict[str, Any]
            for row in batch.to_pylist():
                data = (row["image"] or {}).get("bytes")
                if VIEWS[row["view"]] != LATERAL and data:
                    yield row["image_id"], row["patient_id"], data


def truth_shares(records: Sequence[LocalizationRecord], findings: Sequence[str], grid: Grid) -> dict[str, Truth]:
    """Return finding -> how often each cell is a hit cell, for findings with a question."""
    frontal = [record for record in records if record.view != LATERAL]
    truths = {}
    cases = list_cases(frontal)
    for finding in findings:
        own = [(record, reference) for record, name, reference in cases if name == finding]
        total, image_ids = np.zeros((grid.n, grid.n)), []
        for start in range(0, len(own), _AT_ONCE):
            part = own[start : start + _AT_ONCE]
            regions = pack_regions([ref.region for _, ref in part], [ref.size for _, ref in part])
            hits = hit_cells(regions, grid)
            total += hits.sum(axis=0)
            image_ids += [record.image_id for (record, _), hit in zip(part, hits, strict=True) if hit.any()]
        if image_ids:
            truths[finding] = Truth(total / len(image_ids), tuple(image_ids))
    return truths


def prediction_shares(
    epochs: Sequence[Sequence[LocalizationPrediction]],
    sizes: Mapping[str, tuple[int, int]],
    truths: Mapping[str, Truth],
    grid: Grid,
) -> dict[str, FloatArray]:
    """Return finding -> how often a run answers each cell, for the findings of `truths`.

    Parameters
    ----------
    epochs : predictions of each epoch
    sizes : image_id -> (height, width)
    """
    counted = {finding: frozenset(truth.image_ids) for finding, truth in truths.items()}
    shares = {finding: np.zeros((grid.n, grid.n)) for finding in truths}
    for predictions in epochs:
        counted_predictions = [p for p in predictions if p.image_id in counted.get(p.finding, ())]
        for prediction, cells in zip(
            counted_predictions, answered_cells(counted_predictions, sizes, grid), strict=True
        ):
            for cell in cells:
                if cell is not None:
                    column, row = grid.parse(cell)
                    shares[prediction.finding][row, column] += 1 / len(cells)
    return {finding: total / (len(epochs) * len(counted[finding])) for finding, total in shares.items()}


def answered_cells(
    predictions: Sequence[LocalizationPrediction], sizes: Mapping[str, tuple[int, int]], grid: Grid
) -> Iterator[Sequence[str | None]]:
    """Yield each prediction's cells: one, or one per point; None for a point outside the central square."""
    only_masks = [i for i, p in enumerate(predictions) if p.mask is not None and not (p.points or p.box or p.cell)]
    deepest: dict[int, list[int]] = {}
    for start in range(0, len(only_masks), _AT_ONCE):
        part = only_masks[start : start + _AT_ONCE]
        masks = pack_masks([mask for i in part if (mask := predictions[i].mask) is not None])
        deepest.update(zip(part, masks.deepest_xy(range(len(part))).tolist(), strict=True))
    for i, prediction in enumerate(predictions):
        if prediction.cell is not None:
            yield (prediction.cell,)
            continue
        size = sizes[prediction.image_id]
        points = points_of(prediction, grid=grid, size=size, deepest=deepest.get(i))
        yield tuple(grid.cell_at(x, y, size=size) for x, y in points)


def heat_rows(label: str, shares: Mapping[str, Any], n: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """Return rows of ``heat-maps.csv``: run, finding, cell, share and n."""
    rows: list[tuple[Any, ...]] = []
    for finding, cells in shares.items():
        grid = Grid(len(cells))
        flat = np.asarray(cells).ravel().tolist()
        rows += [(label, finding, cell, share, n[finding]) for cell, share in zip(grid.cells, flat, strict=True)]
    return rows


def draw_heat(
    runs: Sequence[HitRun],
    split: Split,
    truths: Mapping[str, Truth],
    picture: AveragePicture,
    order: Sequence[str],
) -> Iterator[Illustration]:
    """Yield figures with the heat maps of the references and of runs."""
    grid = Grid(runs[0].grid)
    sizes = {record.image_id: record.size for record in split.records}
    columns = [
        HeatColumn(name, prediction_shares(run.predictions, sizes, truths, grid))
        for name, run in zip(short_names(runs), runs, strict=True)
    ]
    truth = HeatColumn("Ground truth", {name: own.shares for name, own in truths.items()})
    named = [name for name in order if name in truths]
    groups = [BarGroup(name, name, (f"n = {len(truths[name].image_ids)}",)) for name in named]
    note, caption = _behind(picture), _heat_caption(grid, picture)
    number = 0
    for start in range(0, len(groups), ROWS_ON_PAGE):
        for first in range(0, len(columns), COLUMNS_ABREAST - 1):
            number += 1
            abreast = columns[first : first + COLUMNS_ABREAST - 1]
            part = groups[start : start + ROWS_ON_PAGE]
            pathologies = ", ".join(group.key for group in part)
            alt = (
                f"Heat maps over {'a plain background' if picture.pixels is None else 'the average frontal image'}: "
                "columns ground truth, "
                f"{', '.join(c.title for c in abreast)}; rows {pathologies}. The shares of all cells are in "
                "heat-maps.csv."
            )
            draw = partial(heat_maps, part, [truth, *abreast], picture.pixels, note=note)
            yield Illustration(f"heat-maps-{number}", f"Where: {pathologies}", caption, alt, draw, has_narrow=False)


def _behind(picture: AveragePicture) -> str:
    if picture.n == 0:
        return "The background is plain because the folder has no images."
    if picture.pixels is None:
        return f"The background is plain because an average of fewer than {FEW} patients could reveal one of them."
    return (
        f"The background is the average of only {count_text(picture.n, 'frontal image')}."
        if picture.n_patients < FEW
        else ""
    )


def _heat_caption(grid: Grid, picture: AveragePicture) -> str:
    behind = (
        f"over the average of the {picture.n} frontal images (central squares)"
        if picture.pixels is not None
        else "over a plain background because the folder has no images"
        if picture.n == 0
        else f"over a plain background because there are fewer than {FEW} patients"
    )
    return (
        f"Frontal images only (n = questions), {behind}. Ground truth: share of questions in which a cell of the "
        f"{grid.n} × {grid.n} grid is a hit cell, that is, the grid hit rate of always answering that cell. Runs: "
        "share of questions answered with the cell, or with a point in it. The largest share is below each panel. All "
        "panels share one square-root scale."
    )


ROWS_ON_PAGE = 5


COLUMNS_ABREAST = 7
"""Maximum number of columns: the references and six runs. More columns would be narrower than 20 mm."""


SIDE = 256


MAP = "YlOrRd"


@dataclass(frozen=True)
class HeatColumn:
    """A column of heat maps: title, and group key -> shares (n, n)."""

    title: str
    shares: Mapping[str, FloatArray]


def overlay(shares: FloatArray, picture: FloatArray | None) -> npt.NDArray[np.uint8]:
    """Return RGB pixels (256, 256, 3) of `shares` (n, n) in [0, 1] over a grey image (256, 256) in [0, 255].

    Cells with share 0 show the image alone, or white if there is none. Thin light lines separate the cells.
    """
    ground = np.ones((SIDE, SIDE)) if picture is None else 0.55 + 0.45 * picture / 255
    edges = np.arange(SIDE) * len(shares) // SIDE
    pixels = _mixed(shares[np.ix_(edges, edges)], ground)
    lines = np.flatnonzero(np.diff(edges)) + 1
    pixels[lines] = pixels[lines] * 0.6 + 0.4
    pixels[:, lines] = pixels[:, lines] * 0.6 + 0.4
    return np.asarray(np.rint(255 * pixels), np.uint8)


def _mixed(shares: FloatArray, ground: FloatArray) -> FloatArray:
    """Return RGB colours (..., 3) in [0, 1] of shares blended with a grey background; larger shares are more opaque."""
    import matplotlib

    roots = np.sqrt(np.clip(shares, 0, 1))
    colour = matplotlib.colormaps[MAP](0.10 + 0.90 * roots)[..., :3]
    opacity = np.where(roots > 0, 0.62 + 0.33 * roots, 0.0)[..., None]
    mixed: FloatArray = colour * opacity + ground[..., None] * (1 - opacity)
    return mixed


def heat_maps(
    groups: Sequence[BarGroup],
    columns: Sequence[HeatColumn],
    picture: FloatArray | None,
    width: float = WIDE,
    *,
    note: str = "",
) -> Figure:
    """Draw a heat map for each group (row) and column, with one colour bar.

    Parameters
    ----------
    picture : the average image (256, 256), or None for a plain background
    note : text below the panels, such as the reason for a missing image
    """
    if len(columns) > COLUMNS_ABREAST:
        raise ArgumentError("columns", f"must be at most {COLUMNS_ABREAST}", len(columns))
    with style():
        left, gap, below, right = 34.0, 1.5, 5.0, 18.0
        side = min(30.0, (width - left - right - gap * (len(columns) - 1)) / len(columns))
        titles = [wrap(column.title, side - 1, most=4, bold=number == 0) for number, column in enumerate(columns)]
        top = 3 + LINE * max(title.count("\n") + 1 for title in titles)
        foot = 7.0 if note else 2.0
        height = top + len(groups) * (side + below) + foot
        figure = new_figure(height, width)
        for row, group in enumerate(groups):
            low = height - top - (row + 1) * side - row * below
            for number, column in enumerate(columns):
                axes = place_axes(figure, left + number * (side + gap), low, side, side)
                _draw_panel(axes, column.shares.get(group.key), picture)
                if row == 0:
                    axes.set_title(titles[number], fontsize=8, pad=3, fontweight="bold" if number == 0 else "normal")
                if number == 0:
                    name = "\n".join([wrap(group.label, left - 4), *group.below])
                    axes.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=4)
        end = left + len(columns) * (side + gap)
        tall = min(len(groups) * (side + below) - below, 70.0)
        _draw_bar(place_axes(figure, end + 1.5, height - top - tall, 3, tall))
        if note:
            figure.text(left / width, 2.2 / height, note, fontsize=8, color=SOFT)
    return figure


def _draw_panel(axes: Axes, shares: FloatArray | None, picture: FloatArray | None) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
        spine.set_edgecolor(SOFT)
    if shares is None:
        axes.text(0.5, 0.5, "no image", ha="center", va="center", fontsize=8, color=SOFT, transform=axes.transAxes)
        return
    axes.imshow(overlay(shares, picture), extent=(0, 1, 0, 1), interpolation="nearest", aspect="auto")
    axes.set_xlabel(f"max {100 * float(shares.max()):.0f}%", fontsize=8, labelpad=1.5, color=SOFT)


def _draw_bar(axes: Axes) -> None:
    """Draw the colour bar: colours of shares on white."""
    steps = np.linspace(0, 1, 256)
    column = _mixed(steps**2, np.ones(256))[:, None]
    axes.imshow(column, origin="lower", extent=(0, 1, 0, 1), aspect="auto", interpolation="nearest")
    ticks = (0, 4, 16, 36, 64, 100)
    axes.set_yticks([(tick / 100) ** 0.5 for tick in ticks], [f"{tick}%" for tick in ticks])
    axes.yaxis.tick_right()
    axes.set_xticks([])
    axes.tick_params(length=2, width=0.5, labelsize=8, pad=1.5)


TOP = (1, 2, 5)
"""Values of k for the table of each run's share of answers in its k most common cells."""
FEW_CELLS, MOST_SHARE = 2, 0.9
"""(k, share): warn if a run's k most common cells contain more than this share of its answers."""


def fallback_counts(
    records: Sequence[LocalizationRecord], findings: Sequence[str], grid: int
) -> dict[str, tuple[int, int]]:
    """Return finding -> (questions decided by the fallback rule, questions with a hit cell)."""
    counts = {finding: [0, 0] for finding in findings}
    for _, finding, reference in list_cases(records):
        if finding not in counts:
            continue
        most = int(cell_coverage(pack_regions([reference.region], [reference.size]), 0, Grid(grid)).max())
        if most > 0:
            counts[finding][0] += 2 * most < (2 * min(reference.size)) ** 2
            counts[finding][1] += 1
    return {finding: (n, of) for finding, (n, of) in counts.items()}


def fallback_table(counts: Mapping[str, tuple[int, int]], grid: int) -> PageTable:
    """Return a table of the questions that the fallback rule decides, by pathology and in total."""
    n, of = (sum(pair[i] for pair in counts.values()) for i in (0, 1))
    lines = [("All", n, of), *((finding, *pair) for finding, pair in counts.items())]
    rows = [(name, f"{of:,}", f"{n:,}", percent(n / of) if of else NOTHING) for name, n, of in lines]
    caption = (
        f"The fallback rule applies to questions whose reference covers less than half of every cell of the {grid} × "
        f"{grid} grid, so that any cell that it touches is a hit. In paper 000, it decided 4.4% of the images."
    )
    plain = Csv.of(
        "fallback-rule", ("finding", "questions", "by_fallback", "grid"), [(*line, grid) for line in _plain(lines)]
    )
    head = ("Pathology", "Questions", "By the fallback rule", "Share")
    return PageTable(head, rows, caption, "Questions that the fallback rule decides", csv=plain)


def _plain(lines: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    return [("all" if name == "All" else name, of, n) for name, n, of in lines]


def cell_counts(run: HitRun, sizes: Mapping[str, tuple[int, int]]) -> Counter[str]:
    """Return cell -> number of answers over all epochs; points count in their cells.

    Parameters
    ----------
    sizes : image_id -> (height, width)
    """
    grid = Grid(run.grid)
    cells = (cells for epoch in run.predictions for cells in answered_cells(epoch, sizes, grid))
    return Counter(cell for own in cells for cell in own if cell is not None)


def top_cells_table(counts: Mapping[str, Counter[str]]) -> PageTable:
    """Return a table of each run's most common cells and their share of its answers; `counts` maps run labels."""
    rows, plain = [], []
    for label, cells in counts.items():
        names = [cell for cell, _ in cells.most_common(max(TOP))]
        shares = [_share_of(cells, k) for k in TOP]
        rows.append(
            (label, f"{cells.total():,}", f"{len(cells):,}", ", ".join(names) or NOTHING, *map(percent, shares))
        )
        plain += [(label, k, " ".join(names[:k]), share, cells.total()) for k, share in zip(TOP, shares, strict=True)]
    head = ("Run", "Answers", "Different cells", "Most common first", *(f"In {count_text(k, 'cell')}" for k in TOP))
    caption = (
        "Share of a run's answers, over all findings and epochs, in its most common cells. In paper 000, MedGemma at "
        "a temperature of 0 gave 96.7% of its answers in two cells."
    )
    file = Csv.of("commonest-cells", ("run", "k", "cells", "share", "answers"), plain)
    return PageTable(head, rows, caption, "Most common cells", csv=file)


def _share_of(cells: Counter[str], k: int) -> float | None:
    """Return the share of the answers in the `k` most common cells; None without answers."""
    return sum(n for _, n in cells.most_common(k)) / cells.total() if cells else None


def repeated(counts: Mapping[str, Counter[str]]) -> list[str]:
    """Return a warning for every run that gives nearly all answers in a few cells."""
    warnings = []
    for label, cells in counts.items():
        share = _share_of(cells, FEW_CELLS)
        if share is not None and share > MOST_SHARE and cells.total() > FEW_CELLS:
            names = " or ".join(cell for cell, _ in cells.most_common(FEW_CELLS))
            warnings.append(
                f"{label} gives {percent(share)} of its answers in {names}: they hardly depend on the image"
            )
    return warnings
