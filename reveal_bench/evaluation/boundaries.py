"""How well masks agree along their boundaries: Dice, boundary IoU, normalised surface distance and Hausdorff 95.

Conventions
-----------
A case is a finding on an image whose reference is a mask with pixels; a predicted mask that is missing is empty.
Distances are in mm where every image says its spacing, in pixels else; the tolerance is 2 of the same. The mean of
Hausdorff 95 is over the cases where it is finite, and `n_infinite` counts the others, whose prediction is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.evaluation.pixels import masks_by_case
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.masks import empty_rle, pack_masks
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.mask_agreement import boundary_iou, dice, hausdorff_95, surface_distance

__all__ = ["TOLERANCE", "BoundaryMean", "boundary_means"]

TOLERANCE = 2.0
"""Distance within which boundaries agree, in the unit of the distances."""
_METRICS = ("dice", "boundary_iou", "surface_distance", "hausdorff_95")


@dataclass(frozen=True, slots=True)
class BoundaryMean:
    """The mean of one metric over the cases of a finding.

    Attributes
    ----------
    finding : or "macro", the unweighted mean over findings
    metric : name in METRICS
    value : mean over `n` cases, NaN without any; of a macro over findings
    n, n_infinite : cases, or findings, in the mean; and those that are infinite and have no part in it
    unit : "mm" or "pixels" of `hausdorff_95`, and of the tolerance of `surface_distance`
    """

    finding: str
    metric: str
    value: float
    n: int
    n_infinite: int
    unit: str


def boundary_means(
    predictions: Sequence[LocalizationPrediction], records: Sequence[LocalizationRecord], findings: Sequence[str]
) -> list[BoundaryMean]:
    """Per metric the macro, then every finding.

    Raises
    ------
    ArgumentError
        If no mask is predicted, or no reference is a mask.
    """
    masks = masks_by_case(predictions, "whose boundaries are compared")
    cases = [
        (record, finding, drawn.rle)
        for finding in findings
        for record in records
        if (drawn := record.reference(finding)) is not None and drawn.rle is not None and drawn.area_px
    ]
    if not cases:
        raise ArgumentError("bench", "must have masks as references, for boundaries to be compared", "none")
    in_mm = all(record.spacing_mm is not None for record, _, _ in cases)
    values = np.full((len(_METRICS), len(cases)), np.nan)
    for i, (record, finding, reference) in enumerate(cases):
        own = pack_masks([masks.get((record.image_id, finding)) or empty_rle(record.size)])
        other = pack_masks([reference])
        spacing = record.spacing_mm if in_mm and record.spacing_mm is not None else (1.0, 1.0)
        values[0, i] = dice(own, other)[0]
        values[1, i] = boundary_iou(own, other)[0]
        values[2, i] = surface_distance(own, other, tolerance=TOLERANCE, spacing=spacing)[0]
        values[3, i] = hausdorff_95(own, other, spacing=spacing)[0]
    of_finding = np.array([finding for _, finding, _ in cases])
    unit = "mm" if in_mm else "pixels"
    by_metric = zip(_METRICS, values, strict=True)
    return [one for metric, row in by_metric for one in _means(metric, row, of_finding, findings, unit)]


def _means(
    metric: str, values: FloatArray, of_finding: npt.NDArray[np.str_], findings: Sequence[str], unit: str
) -> list[BoundaryMean]:
    found = []
    for finding in findings:
        own = values[of_finding == finding]
        finite = own[np.isfinite(own)]
        value = float(finite.mean()) if len(finite) else float("nan")
        found.append(BoundaryMean(finding, metric, value, len(finite), int(np.isinf(own).sum()), unit))
    defined = [one.value for one in found if one.n]
    macro = float(np.mean(defined)) if defined else float("nan")
    return [BoundaryMean(MACRO, metric, macro, len(defined), sum(one.n_infinite for one in found), unit), *found]
