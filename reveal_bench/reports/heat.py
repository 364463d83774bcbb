"""Where a finding is and where runs say it is: shares per grid cell, over the average frontal image.

Conventions
-----------
Frontal images alone, as in paper 000 (section 4.3); a view that the source does not name counts as frontal, as for
the error categories. A question counts if its reference has
a hit cell (:func:`reveal_bench.metrics.localization.hit_cells`); the same questions count for the truth and for every
run. Truth: the share of them in which the cell is a hit cell, which is the hit rate of always answering that cell.
Runs: the share of their answers that is this cell. Of an answer that is a point, box or mask, the cell that holds its
point, as it is scored (several points share it). Answers without a cell (none, or outside the central square) are in
no cell, so that the cells of a run may add up to less than 1. Arrays are (n rows, n columns), row 0 at the top.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arrays import FloatArray
from reveal_bench.geometry import Grid
from reveal_bench.kinds.folder import split_shards
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.points import points_of
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.scoring import list_cases
from reveal_bench.masks import pack_masks, pack_regions
from reveal_bench.metrics.localization import hit_cells
from reveal_bench.reports.page import Progress

LATERAL = "LATERAL"
FEW = 10
"""Patients; an average of fewer could show one of them."""
_AT_ONCE = 256
"""Masks unpacked together: bounds memory."""


@dataclass(frozen=True)
class AveragePicture:
    """The mean of all frontal pictures of a split.

    Attributes
    ----------
    pixels : float array (side, side) in [0, 255]; None if the folder holds no pictures, or it must not be shown
    n : pictures behind it
    n_patients : whose pictures they are
    """

    pixels: FloatArray | None
    n: int
    n_patients: int

    def without_few(self) -> AveragePicture:
        """Without the pixels if they are of fewer than :data:`FEW` patients: such an average can show a person."""
        return replace(self, pixels=None) if self.n_patients < FEW else self


@dataclass(frozen=True)
class Truth:
    """Hit cells of one finding; `image_ids` are the questions that count."""

    shares: FloatArray
    image_ids: tuple[str, ...]


def average_picture(folder: Path, split: str, *, side: int = 256, progress: Progress | None = None) -> AveragePicture:
    """The mean of the central squares of all frontal pictures, each resized to `side` x `side`.

    Pictures are read a few rows at a time.

    Raises
    ------
    ValueError
        If a picture cannot be read.
    """
    from PIL import Image

    total, n, patients = np.zeros((side, side)), 0, set[str]()
    for image_id, patient_id, data in _frontal_pictures(folder, split):
        try:
            with Image.open(io.BytesIO(data)) as picture:
                grey = picture.convert("L")
        except (OSError, Image.DecompressionBombError) as error:
            raise ValueError(f"the picture of {image_id!r} must be readable: {error}") from None
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
    """How often each cell is a hit cell, per finding of `findings` that has a question."""
    frontal = [record for record in records if record.view != LATERAL]
    truths = {}
    cases = list_cases(frontal)
    for finding in findings:
        chosen = [(record, reference) for record, name, reference in cases if name == finding]
        total, image_ids = np.zeros((grid.n, grid.n)), []
        for start in range(0, len(chosen), _AT_ONCE):
            part = chosen[start : start + _AT_ONCE]
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
    """How often a run answers each cell, per finding of `truths`.

    Parameters
    ----------
    epochs : predictions per epoch
    sizes : image_id -> (height, width)
    """
    counted = {finding: frozenset(truth.image_ids) for finding, truth in truths.items()}
    shares = {finding: np.zeros((grid.n, grid.n)) for finding in truths}
    for predictions in epochs:
        kept = [p for p in predictions if p.image_id in counted.get(p.finding, ())]
        for prediction, cells in zip(kept, answered_cells(kept, sizes, grid), strict=True):
            for cell in cells:
                if cell is not None:
                    column, row = grid.parse(cell)
                    shares[prediction.finding][row, column] += 1 / len(cells)
    return {finding: total / (len(epochs) * len(counted[finding])) for finding, total in shares.items()}


def answered_cells(
    predictions: Sequence[LocalizationPrediction], sizes: Mapping[str, tuple[int, int]], grid: Grid
) -> Iterator[Sequence[str | None]]:
    """The cell, or the cells of the points, of each prediction; None outside the central square."""
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
