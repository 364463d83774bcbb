"""Scores of localization: rows of cases from predictions and references, and estimates from rows.

Conventions
-----------
There is one row per image x finding whose reference is not empty (and, if a benchmark asks for all findings and masks
are predicted, per absent finding and per predicted mask without a reference). An absent prediction is a miss. Hits
apply to every submission, and a metric of masks or boxes to one with a mask or a box; metrics that do not apply are
absent from the rows.

A prediction of another type is converted for point and cell metrics. The point of a box is its centre, the point of a
cell its centre in the full image, the point of a mask its deepest pixel. The cell of a point is the cell that contains
it; a point outside the central square has no cell, which is a miss. Mask metrics score only masks, and box metrics only
boxes, against the tight box of the reference. The row contains the type that was used.

`mask_iou` follows the true-positive slice of paper 002: it is undefined for an *empty* mask. An absent prediction is a
miss (0) in both `mask_iou` and `mask_iou_all`; an empty mask is 0 only in `mask_iou_all`. With ``missing="empty"``, as
in the published code, an absent mask counts as an empty one.

References without a mask are boxes, one per instance, from sources that draw only boxes. Points and cells are scored
against the union of the boxes, which contains a pixel if a box contains its centre (:mod:`reveal_bench.masks`). A box
is scored against the tight box around all boxes, just as a mask reference is reduced to its tight box. So if a finding
has several boxes, a box around one of them cannot reach an IoU of 1. A mask is not compared with boxes: for such
references `mask_iou` and `mask_iou_all` are undefined. If no reference is a mask, these metrics are absent from the
rows, and :attr:`CaseRows.notes` says so.

If a benchmark asks for all findings, confidence scores say whether a finding is present, and AUROC is added to the
other metrics (:mod:`reveal_bench.kinds.localization.presence`). Masks then also have `siim_dice`, over all images with
a label: an absent finding adds a row, in which no mask, or an empty one, is right.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.geometry import Grid
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.points import cells_of, kind_of_answer, kind_of_cell, points_of
from reveal_bench.kinds.localization.presence import Presence, presence_of
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.references import Case, Reference, draws_boxes_alone, each_case
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.scored import Confidences, Rows
from reveal_bench.masks import empty_rle, pack_masks, pack_regions
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import (
    BootstrapMeans,
    bootstrap_columns,
    code_cases,
    estimates_from,
    needed_blocks,
)
from reveal_bench.metrics.intervals import Estimate, Resampling, check_interval
from reveal_bench.metrics.localization import (
    box_iou,
    chance_among,
    hit_cells,
    hits_among,
    mask_iou,
    point_chance,
    point_hit,
)

if TYPE_CHECKING:
    import pyarrow as pa


SIZES = (
    ("below 2% of the image", math.ulp(0.0), 0.02),
    ("2 to 10% of the image", 0.02, 0.1),
    ("10% of the image or more", 0.1, math.inf),
)
"""Strata of references by the proportion of the image that they cover: name, lower bound, upper bound (exclusive).

An empty reference is in no stratum."""
PROTOCOLS = ("cell", "point", "box", "mask")
"""Forms of answers."""
SHARE = "share of the image"
"""The key of the references' sizes among the metrics of a batch, and in rows kept as arrays."""
_TEXTS = ("image_ids", "patient_ids", "case_findings", "point_kinds", "cell_kinds")
_GIVEN = (SHARE, "confidence", "reference is a mask", "mask")
_NEEDED = {
    "point_hit": "", "point_chance": "", "grid_hit": "", "grid_chance": "", "mask_iou": "mask", "mask_iou_all": "mask",
    "box_iou": "box", "siim_dice": "masks of all images",
}  # fmt: skip
"""Metric -> part of a prediction without which the metric does not apply, unless another case has it."""
_TEXT_AT_ONCE = 2 << 20
"""Number of characters of run-length strings unpacked together; limits memory to about 10 bytes per character."""
_NO_MASKS = "masks were not compared: the references are boxes, so mask IoU is not defined; a mask counts by its point"


_OF_CELLS = ("grid_hit", "grid_chance")
"""Metrics that depend on the grid."""


@dataclass(frozen=True, repr=False)
class CaseRows(Rows):
    """Rows of one submission, one per case.

    Attributes
    ----------
    findings : all findings, in table order
    image_ids, patient_ids, case_findings : lists (n_cases,)
    point_kinds, cell_kinds : lists (n_cases,)
        The part scored as the point and as the cell of the prediction: "point", "box", "cell", "mask" or "none". A
        named cell that contains the point counts as the point's.
    values : dict from metric to float array (n_cases,)
    all_images : every (image_id, patient_id) of the split, with or without rows: the units that are resampled
    notes : sentences needed to interpret the scores
    views : image_id -> view, if known
    scores : float array (n_cases,), the model's confidence that the finding is present; NaN if it gave no confidence
    shares : float array (n_cases,), proportion of the image that the reference covers; empty if unknown
    presence : the scores of all findings that were asked, present or not; None if only present findings are asked
    form : form of answers that a run asked for, one of :data:`PROTOCOLS`; empty if unknown
    """

    kind: ClassVar[str] = "localization"

    findings: tuple[str, ...]
    image_ids: list[str]
    patient_ids: list[str]
    case_findings: list[str]
    point_kinds: list[str]
    cell_kinds: list[str]
    values: dict[str, FloatArray]
    all_images: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    scores: FloatArray = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    shares: FloatArray = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)
    presence: Presence | None = field(default=None, compare=False, repr=False)
    form: str = field(default="", compare=False, repr=False)

    @override
    def __len__(self) -> int:
        return len(self.image_ids)

    @property
    @override
    def groups(self) -> tuple[str, ...]:
        return self.findings

    @override
    def metrics(self) -> list[str]:
        first = _OF_CELLS if self.leading == "grid_hit" else ()
        return [name for name in dict.fromkeys((*first, *METRICS)) if name in self.values]

    @property
    def protocol(self) -> str:
        """Most common form of the answers, the form asked for if no case has an answer, or "none" if it is unknown."""
        counts = {form: self.point_kinds.count(form) for form in PROTOCOLS}
        return max(PROTOCOLS, key=counts.__getitem__) if any(counts.values()) else self.form or "none"

    @property
    @override
    def leading(self) -> str:
        """Hit rate of paper 000 for cells, the pointing game of paper 002 for other forms; "" if none is known."""
        is_of_cells = self.protocol == "cell" and "grid_hit" in self.values
        return "" if self.protocol == "none" else "grid_hit" if is_of_cells else "point_hit"

    @override
    def without_cells(self) -> Self:
        return replace(self, values={name: own for name, own in self.values.items() if name not in _OF_CELLS})

    @override
    def estimates(
        self,
        resampling: Resampling,
        *,
        stratum: str | None = None,
        groups: Sequence[str] | None = None,
        metrics: Collection[str] | None = None,
    ) -> list[Estimate]:
        """Return the estimates of :func:`summarize`, and AUROC for the whole split.

        For a stratum, all units of the split are resampled, too.

        Raises
        ------
        ValueError
            If the stratum, unit or interval is unknown.
        """
        rows = self if stratum is None else self.take(self.stratum(stratum))
        names = [name for name in rows.metrics() if metrics is None or name in metrics]
        estimates = summarize(rows, resampling, metrics=names, findings=groups)
        if stratum is None and self.presence is not None and (metrics is None or "auroc" in metrics):
            estimates += self.presence.estimates(groups or self.findings, self.all_images, resampling)
        return estimates

    @override
    def strata(self) -> dict[str, BoolArray]:
        """Return stratum -> bool array (n_cases,): the cases of each view, and of each size of reference."""
        views = np.array([self.views.get(image, "") for image in self.image_ids], object)
        parts = {f"view: {view}": views == view for view in VIEWS}
        if len(self.shares):
            parts |= {f"size: {name}": (self.shares >= low) & (self.shares < high) for name, low, high in SIZES}
        return {name: part for name, part in parts.items() if part.any()}

    def take(self, part: BoolArray) -> CaseRows:
        """Return the rows of only the cases in `part`."""
        kept = np.flatnonzero(part).tolist()
        chosen: dict[str, Any] = {name: [getattr(self, name)[i] for i in kept] for name in _TEXTS}
        values = {name: column[kept] for name, column in self.values.items()}
        further = {name: column[kept] for name in ("scores", "shares") if len(column := getattr(self, name))}
        return replace(self, **chosen, values=values, **further)

    @classmethod
    @override
    def resample(
        cls, systems: Sequence[CaseRows], resampling: Resampling, *, metrics: Sequence[str], groups: Sequence[str]
    ) -> list[dict[str, BootstrapMeans]]:
        """See :func:`resample_systems`."""
        return resample_systems(systems, resampling, metrics=metrics, findings=groups)

    @classmethod
    @override
    def answers(cls, systems: Sequence[CaseRows], metric: str, groups: Sequence[str]) -> FloatArray:
        """Return each system's values on the cases that at least one has, (n_systems, n_cases); -1 if undefined."""
        wanted, scored = set(groups), []
        for rows in systems:
            cases = zip(rows.image_ids, rows.case_findings, rows.values[metric].tolist(), strict=True)
            scored.append({(image, finding): value for image, finding, value in cases if finding in wanted})
        keys = sorted(set().union(*scored))
        table: FloatArray = np.array([[own.get(key, np.nan) for key in keys] for own in scored])
        return np.where(np.isnan(table), -1.0, table)

    @override
    def patients(self) -> frozenset[str]:
        return frozenset(patient for _, patient in self.all_images)

    @override
    def of_patients(self, patients: Collection[str]) -> CaseRows:
        """Return the rows as if the split contained only `patients`."""
        chosen = frozenset(patients)
        kept = np.array([patient in chosen for patient in self.patient_ids], bool)
        images = tuple(pair for pair in self.all_images if pair[1] in chosen)
        presence = None if self.presence is None else self.presence.of_images({image for image, _ in images})
        return replace(self.take(kept), all_images=images, presence=presence)

    @override
    def without(self, questions: Collection[tuple[str, str]]) -> CaseRows:
        """Return the rows without those of `questions`, pairs (image_id, finding); `presence` becomes None."""
        chosen = frozenset(questions)
        pairs = zip(self.image_ids, self.case_findings, strict=True)
        return replace(self.take(np.array([pair not in chosen for pair in pairs], bool)), presence=None)

    def with_reference(self) -> CaseRows:
        """Return the cases that have a reference.

        Rows that exist only because a mask was predicted without a reference are left out.
        """
        return self.take(~np.isnan(self.values["point_hit"])) if "point_hit" in self.values else self

    @override
    def comparable(self) -> CaseRows:
        """Return the same cases, with undefined values if they have no reference."""
        if "point_hit" not in self.values:
            return self
        has_reference = ~np.isnan(self.values["point_hit"])
        return replace(self, values={name: np.where(has_reference, v, np.nan) for name, v in self.values.items()})

    @override
    def chance(self, groups: Sequence[str]) -> dict[str, float]:
        """Return the expected hit rates of a random cell (paper 000, section 4.1) and of a random point.

        A rate is included only if it is known for every group.
        """
        rows = self.with_reference()
        of = np.array(rows.case_findings, object)
        columns = {"point_hit": rows.shares, "grid_hit": rows.values.get("grid_chance", np.zeros(0))}
        return {
            metric: float(np.mean([np.nanmean(column[of == group]) for group in groups]))
            for metric, column in columns.items()
            if len(column) and groups and all((~np.isnan(column[of == group])).any() for group in groups)
        }

    @override
    def confidences(self) -> Confidences | None:
        """Return scores compared with hits; all cases have their finding, so images without it are not considered."""
        if "point_hit" not in self.values or np.isnan(self.scores).all():
            return None
        asked = ~np.isnan(self.values["point_hit"])
        kept = np.flatnonzero(asked & ~np.isnan(self.scores))
        hits = self.values["point_hit"][kept] == 1
        return Confidences(
            event="hits",
            whole_split=False,
            groups=self.findings,
            case_groups=[self.case_findings[i] for i in kept],
            case_patients=[self.patient_ids[i] for i in kept],
            all_patients=self.patients(),
            probabilities=self.scores[kept],
            happened=hits,
            sureness=self.scores[kept],
            right=hits,
            n_without_confidence=int(asked.sum()) - len(kept),
        )

    def n_defined(self, metric: str) -> dict[str, int]:
        """Return finding -> number of rows in which `metric` is defined."""
        defined = ~np.isnan(self.values[metric])
        counts = dict.fromkeys(self.findings, 0)
        for finding, is_defined in zip(self.case_findings, defined, strict=True):
            counts[finding] += int(is_defined)
        return counts

    @override
    def to_table(self) -> pa.Table:
        """Return a table: image_id, patient_id, finding, the kinds, and a column per metric (null if undefined)."""
        import pyarrow as pa

        columns = {
            "image_id": self.image_ids,
            "patient_id": self.patient_ids,
            "finding": self.case_findings,
            "point_kind": self.point_kinds,
            "cell_kind": self.cell_kinds,
        }
        return pa.table(columns | {name: pa.array(v, from_pandas=True) for name, v in self.values.items()})


def score_localization(
    predictions: Sequence[LocalizationPrediction],
    records: Iterable[LocalizationRecord],
    *,
    findings: Sequence[str],
    grid: int = 8,
    asks: str = "present",
    missing: str = "miss",
    form: str = "",
) -> CaseRows:
    """Score checked predictions against references, case by case.

    Parameters
    ----------
    predictions : at most one per (image, finding); predictions for pairs without a row are ignored
    records : references; only their ground truth is used. With "present", only a few records are in memory at a time
    findings : all findings of the benchmark
    grid : cells per side
    asks : {"present", "all"}
        With "all" and predicted masks, an absent finding adds a row, in which only `siim_dice` is defined, and
        `mask_iou_all` if its mask is not empty.
    missing : {"miss", "empty"}
        The value of a missing mask in `mask_iou`: 0, or undefined like an empty mask.
    form : form of answers that a run asked for, one of :data:`PROTOCOLS`; empty if unknown

    Raises
    ------
    ValueError
        If a pair is predicted twice, an image is listed twice, a reference is malformed, or `missing` is "empty"
        although no mask is predicted.
    """
    by_pair = _by_pair(predictions)
    if missing == "empty" and not any(prediction.mask is not None for prediction in predictions):
        raise ArgumentError("missing", "must be 'miss' if no mask is predicted", repr(missing))
    presence, also, absent = None, frozenset[Pair](), frozenset[Pair]()
    if asks == "all":
        records = list(records)
        presence = presence_of(by_pair, records)
        masked = frozenset(pair for pair, prediction in by_pair.items() if prediction.mask is not None)
        if masked and not draws_boxes_alone(records):
            labels = ((one.image_id, *label) for one in records for label in one.label_status.items())
            absent = frozenset((image_id, finding) for image_id, finding, status in labels if status == 0)
            also = masked | absent
    images: list[Pair] = []
    views: dict[str, str] = {}

    def noted() -> Iterator[LocalizationRecord]:
        for record in records:
            images.append((record.image_id, record.patient_id))
            views[record.image_id] = record.view
            yield record

    cells, with_boxes = Grid(grid), form == "box" or any(one.box is not None for one in predictions)
    columns: dict[str, list[str]] = {name: [] for name in _TEXTS}
    batches = []
    for cases, chosen in _batches(each_case(noted(), also), by_pair):
        columns["image_ids"] += [record.image_id for record, _, _ in cases]
        columns["patient_ids"] += [record.patient_id for record, _, _ in cases]
        columns["case_findings"] += [finding for _, finding, _ in cases]
        columns["point_kinds"] += map(kind_of_answer, chosen)
        sizes = [reference.size for _, _, reference in cases]
        columns["cell_kinds"] += [kind_of_cell(p, grid=cells, size=size) for p, size in zip(chosen, sizes, strict=True)]
        batches.append(_batch_values(chosen, [reference for _, _, reference in cases], cells, with_boxes))
    columns_of = {
        name: np.concatenate([np.zeros(0), *(batch[name] for batch in batches)])
        for name in (*_GIVEN, *_NEEDED)
        if name != "siim_dice"
    }
    shares, scores, is_mask, has_mask = (columns_of.pop(name) for name in _GIVEN)
    has_mask = has_mask > 0
    if missing == "empty":
        columns_of["mask_iou"][~has_mask] = np.nan
    masks_compared = has_mask.any() and is_mask.any()
    left_out = [_NO_MASKS] if has_mask.any() and not masks_compared else []
    if also:
        is_absent = np.array(
            [pair in absent for pair in zip(columns["image_ids"], columns["case_findings"], strict=True)]
        )
        columns_of["siim_dice"] = _siim_dice(columns_of["mask_iou_all"], is_absent, shares)
    applies = {"mask": masks_compared, "box": with_boxes, "": True, "masks of all images": bool(also)}
    return CaseRows(
        findings=tuple(findings),
        **columns,
        values={name: columns_of[name] for name, needed in _NEEDED.items() if applies[needed]},
        all_images=tuple(images),
        notes=(*left_out, *(() if presence is None else presence.notes)),
        views=views,
        scores=scores,
        shares=shares,
        presence=presence,
        form=form,
    )


def _siim_dice(iou: FloatArray, is_absent: BoolArray, shares: FloatArray) -> FloatArray:
    """Return Dice from IoU, 1 for an empty answer to an absent finding; NaN without a label or a reference mask."""
    values = np.where(is_absent & np.isnan(iou), 1.0, 2 * iou / (1 + iou))
    return np.where(is_absent | (shares > 0), values, np.nan)


Pair = tuple[str, str]


def _by_pair(predictions: Sequence[LocalizationPrediction]) -> dict[Pair, LocalizationPrediction]:
    by_pair: dict[Pair, LocalizationPrediction] = {}
    for prediction in predictions:
        pair = (prediction.image_id, prediction.finding)
        if pair in by_pair:
            raise ArgumentError("predictions", "must name each (image, finding) once", f"{pair} twice")
        by_pair[pair] = prediction
    return by_pair


def _batches(
    cases: Iterable[Case], by_pair: Mapping[Pair, LocalizationPrediction]
) -> Iterator[tuple[list[Case], list[LocalizationPrediction | None]]]:
    """Yield batches of cases and predictions with about :data:`_TEXT_AT_ONCE` characters of run-length strings."""
    batch: list[Case] = []
    chosen: list[LocalizationPrediction | None] = []
    n_characters = 0
    for record, finding, reference in cases:
        prediction = by_pair.get((record.image_id, finding))
        batch.append((record, finding, reference))
        chosen.append(prediction)
        mask = prediction.mask if prediction is not None else None
        n_characters += reference.weight + (len(mask.counts) if mask is not None else 0)
        if n_characters >= _TEXT_AT_ONCE:
            yield batch, chosen
            batch, chosen, n_characters = [], [], 0
    if batch:
        yield batch, chosen


def _batch_values(
    chosen: Sequence[LocalizationPrediction | None], references: Sequence[Reference], grid: Grid, with_boxes: bool
) -> dict[str, FloatArray]:
    sizes = [reference.size for reference in references]
    regions = pack_regions([reference.region for reference in references], sizes)
    has_mask = np.array([p is not None and p.mask is not None for p in chosen], bool)
    masks = pack_masks(
        [
            p.mask if p is not None and p.mask is not None else empty_rle(size)
            for p, size in zip(chosen, sizes, strict=True)
        ]
    )
    only_masks = [i for i, p in enumerate(chosen) if kind_of_answer(p) == "mask"]
    deepest = dict(zip(only_masks, masks.deepest_xy(only_masks).tolist(), strict=True))
    points = [
        points_of(p, grid=grid, size=size, deepest=deepest.get(i))
        for i, (p, size) in enumerate(zip(chosen, sizes, strict=True))
    ]
    cells = [
        cells_of(p, own_points, grid=grid, size=size) for p, size, own_points in zip(chosen, sizes, points, strict=True)
    ]
    good_cells = hit_cells(regions, grid)
    boxes = np.array([(np.nan,) * 4 if p is None or p.box is None else p.box for p in chosen])
    tight = regions.boxes_xywh() if with_boxes else np.full(boxes.shape, np.nan)
    for i, reference in enumerate(references):
        if reference.box is not None:
            tight[i] = reference.box
    is_mask = np.array([reference.is_mask for reference in references], bool)
    iou_all = mask_iou(masks, regions, slice="all") if is_mask.any() else np.full(len(masks), np.nan)
    iou_drawn = np.where((masks.areas > 0) & (regions.areas > 0), iou_all, np.nan)
    for iou in (iou_all, iou_drawn):
        iou[~has_mask & (regions.areas > 0)] = 0.0
        iou[~is_mask] = np.nan
    return {
        SHARE: regions.areas / [height * width for height, width in sizes],
        "confidence": np.array([np.nan if p is None or p.score is None else p.score for p in chosen]),
        "reference is a mask": is_mask,
        "mask": has_mask,
        "point_chance": point_chance(regions),
        "grid_chance": chance_among(good_cells),
        "point_hit": point_hit(points, regions),
        "grid_hit": hits_among(cells, good_cells, grid),
        "mask_iou": iou_drawn,
        "mask_iou_all": iou_all,
        "box_iou": box_iou(boxes, tight),
    }


def summarize(
    rows: CaseRows,
    resampling: Resampling = Resampling(),
    *,
    metrics: Sequence[str] | None = None,
    findings: Sequence[str] | None = None,
) -> list[Estimate]:
    """Return the macro of every metric and its mean per finding; all 95% intervals come from the same replicates.

    Parameters
    ----------
    rows : CaseRows
    resampling : unit "patient" or "image": all units of the split are resampled, with or without rows; interval
        "jackknife", "percentile", "bca" or "chexlocalize", which is the published rule on these replicates
        (:mod:`reveal_bench.analyses.compat` has the published replicates, too)
    metrics : metrics to report; by default those that apply
    findings : findings to report; the macro is over these only

    Returns
    -------
    list of Estimate: for each metric the macro, then the findings in the order of `findings`. A replicate in which a
    finding has no defined row is left out for that finding; the macro of a replicate averages the other findings.

    Raises
    ------
    ValueError
        If a metric or finding is unknown, or the interval does not apply.
    """
    check_interval(resampling.interval, resampling.n_resamples)
    chosen = tuple(rows.findings if findings is None else findings)
    names = rows.metrics() if metrics is None else list(metrics)
    (means,) = resample_systems([rows], resampling, metrics=names, findings=chosen)
    estimates = []
    for name in names:
        recipe = resampling.signature(name)
        estimates += estimates_from(means[name], chosen, recipe=recipe, interval=resampling.interval)
    return estimates


def resample_systems(
    systems: Sequence[CaseRows],
    resampling: Resampling,
    *,
    metrics: Sequence[str],
    findings: Sequence[str],
) -> list[dict[str, BootstrapMeans]]:
    """Return means per finding of several systems on one split, in the data and in the same replicates.

    Returns
    -------
    list with, for each system, a dict from metric to BootstrapMeans with a group per finding

    Raises
    ------
    ValueError
        If a metric or finding is unknown to a system, or the systems were scored on different images.
    """
    unit = resampling.unit
    if unit not in ("patient", "image"):
        raise ArgumentError("unit", "must be 'patient' or 'image'", repr(unit))
    images = systems[0].all_images
    for rows in systems:
        unknown = [name for name in findings if name not in rows.findings]
        if unknown:
            raise ArgumentError("findings", f"must be among {list(rows.findings)}", unknown)
        missing = [name for name in metrics if name not in rows.values]
        if missing:
            raise ArgumentError("metrics", f"must be among {list(rows.values)}", missing)
        if rows.all_images != images and (stray := min(set(images) ^ set(rows.all_images), default=None)):
            raise ValueError(f"all systems must be scored on the same images, got {stray[0]!r} in only some of them")
    units = sorted({image[1 if unit == "patient" else 0] for image in images})
    results = []
    for rows in systems:
        of_case = rows.patient_ids if unit == "patient" else rows.image_ids
        kept, groups, codes = code_cases(rows.case_findings, of_case, findings=findings, units=units)
        blocks = needed_blocks(len(units), resampling)
        columns = [rows.values[name][kept] for name in metrics]
        means = bootstrap_columns(columns, groups, codes, n_groups=len(findings), n_units=len(units), blocks=blocks)
        results.append(dict(zip(metrics, means, strict=True)))
    return results
