"""Scores of detection: which lesion of the references each detection hits, and the scores of each finding.

Conventions
-----------
The rules for hits and scores are in :mod:`reveal_bench.metrics.detection`: a detection hits a lesion if the IoU of
their boxes is high enough, or if its centre is inside. A lesion is one instance in the ground truth. A mask is compared
by its tight box. A point has no box, so it never hits by IoU.

If it is unknown whether or where a finding is on an image (:mod:`reveal_bench.kinds.detection.records`), the image and
the detections on it are left out of that finding's scores. An image without a detection of a finding counts as answered
"absent", so no answer is missing.

A board may show macros over the findings that are present in enough images and absent from enough images. A single
finding's score would reveal to a frequent submitter, image by image, where the finding is absent; see "What colluding
teams can learn" in the operator's guide.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.kinds.detection.records import instance_masks, instances, is_known
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.kinds.localization.scoring import SIZES
from reveal_bench.kinds.options import Thresholds
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.scored import Confidences, Disclosure, Rows, disclosure_of_findings
from reveal_bench.masks import Rle, pack_masks
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, Counts, blocks_of_counts, estimates_from, replicates_of
from reveal_bench.metrics.detection import VOC_METRICS, Matched, detection_figures
from reveal_bench.metrics.detection_matching import CENTRE, RULES, Hits, match_marks, match_masks, match_points
from reveal_bench.metrics.intervals import Estimate, Resampling, check_interval
from reveal_bench.metrics.localization import mask_iou, point_hit
from reveal_bench.metrics.resampled import Figures

if TYPE_CHECKING:
    import pyarrow as pa

CRITERIA = ("centre", "mask", "iou_50", "iobb_50")
"""Rules of :mod:`reveal_bench.metrics.detection_matching` that can decide if a detection hits, the default first."""
_MASKS_AT_ONCE = 256
_POINTS_ALONE = "detections are points: average precision is not defined, because it needs boxes or masks"
_SILENT = (
    "nothing was detected: wAFROC, AFROC and image AUROC, which are then 50%, and false alarms, which are then 0, are "
    "left out"
)
_LEFT_OUT = {
    _POINTS_ALONE: ("ap_40", "ap_50", "ap", *VOC_METRICS, "rsna_precision"),
    _SILENT: ("wafroc", "afroc", "image_auroc", "false_alarms"),
}
"""Note -> metrics that do not apply for this reason."""
_BY_MASK = ("pq", "sq", "rq")
_OF_IMAGES = ("false_alarms", "image_auroc")
_DETECTION = tuple(name for name, metric in METRICS.items() if metric.family == "lesions")


@dataclass(frozen=True, repr=False)
class DetectionRows(Rows):
    """Detections of one submission, and the lesion that each hits.

    Attributes
    ----------
    findings : all findings, in table order
    images : every (image_id, patient_id) of the split
    known : bool array (n_images, n_findings), True if it is known whether and where the finding is on the image
    lesion_image, lesion_finding : int arrays (n_lesions,), the image and finding of each lesion whose pair is known
    lesion_share : float array (n_lesions,), proportion of the image that each lesion's box covers
    mark_image, mark_finding : int arrays (n_marks,), the image and finding of each detection, ordered by image, then as
        in the file
    mark_score : float array (n_marks,)
    mark_hit : int array (n_rules, n_marks), a row for each of RULES: index of the lesion that is hit, or -1
    mask_hit, mask_iou : int and float arrays (n_marks,), the lesion whose mask a detection's mask matches, or -1, and
        their IoU; empty where detections or lesions have no masks
    thresholds : float array (n_findings,), lowest score at which a detection counts
    criterion : member of CRITERIA that decides hits for FROC, related metrics and metrics at a threshold
    notes : sentences that people need to interpret the scores
    views : image_id -> view, if known
    place_of : int array (n_marks,), index of each detection among the predictions, if known
    """

    kind: ClassVar[str] = "detection"

    findings: tuple[str, ...]
    images: tuple[tuple[str, str], ...]
    known: BoolArray
    lesion_image: IntArray
    lesion_finding: IntArray
    lesion_share: FloatArray
    mark_image: IntArray
    mark_finding: IntArray
    mark_score: FloatArray
    mark_hit: Hits
    mask_hit: Hits
    mask_iou: FloatArray
    thresholds: FloatArray
    criterion: str = "centre"
    notes: tuple[str, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    place_of: IntArray = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)

    @override
    def __len__(self) -> int:
        return len(self.images)

    @property
    @override
    def groups(self) -> tuple[str, ...]:
        """The findings."""
        return self.findings

    @override
    def metrics(self) -> list[str]:
        """Return the metrics that apply; metrics of overlap need boxes or masks, areas below curves a detection."""
        without = {name for note in self.notes for name in _LEFT_OUT[note]}
        without.update(() if self._has_masks else _BY_MASK)
        return [name for name in _DETECTION if name not in without]

    @property
    def _has_masks(self) -> bool:
        return len(self.mask_hit) == len(self.mark_score) > 0

    @override
    def estimates(
        self,
        resampling: Resampling,
        *,
        stratum: str | None = None,
        groups: Sequence[str] | None = None,
        metrics: Collection[str] | None = None,
    ) -> list[Estimate]:
        """Return every score with its interval, for all images and lesions or for a stratum.

        Raises
        ------
        ValueError
            If the stratum, unit, finding or interval is unknown.
        """
        check_interval(resampling.interval, resampling.n_resamples)
        rows = self if stratum is None else self._stratum(stratum)
        chosen = tuple(self.findings if groups is None else groups)
        names = [name for name in self.metrics() if metrics is None or name in metrics]
        (figures,) = self.resample([rows], resampling, metrics=names, groups=chosen)
        estimates: list[Estimate] = []
        for name, of_groups in figures.items():
            recipe = resampling.signature(name)
            estimates += estimates_from(of_groups, chosen, recipe=recipe, interval=resampling.interval)
        return estimates

    @override
    def strata(self) -> dict[str, BoolArray]:
        """Return stratum -> bool array (n_images,): the images of each view, and all images for each size of lesion."""
        views = np.array([self.views.get(image, "") for image, _ in self.images], object)
        parts = {f"view: {view}": views == view for view in VIEWS}
        for name, low, high in SIZES:
            has_any = bool(((self.lesion_share >= low) & (self.lesion_share < high)).any())
            parts[f"size: {name}"] = np.full(len(self), has_any)
        return {name: part for name, part in parts.items() if part.any()}

    def _stratum(self, name: str) -> DetectionRows:
        part = self.stratum(name)
        sizes = {f"size: {size}": (low, high) for size, low, high in SIZES}
        if name not in sizes:
            return replace(self, known=self.known & part[:, None])
        low, high = sizes[name]
        return self._of_lesions((self.lesion_share >= low) & (self.lesion_share < high))

    def _of_lesions(self, kept: BoolArray) -> DetectionRows:
        """Return the rows with only the lesions in `kept`, and without detections that hit other lesions by
        `criterion`.
        """
        place = _renumbered(kept)
        hits = self.mark_hit[RULES.index(self.criterion)]
        other = (hits >= 0) & (place[hits] < 0)
        return replace(
            self,
            lesion_image=self.lesion_image[kept],
            lesion_finding=self.lesion_finding[kept],
            lesion_share=self.lesion_share[kept],
            **self._marks(~other, place),
        )

    def _marks(self, kept: BoolArray, place: Hits) -> dict[str, Any]:
        """Return the columns of the detections in `kept`; `place` is the new index of each lesion, with a last entry
        for no lesion.
        """
        chosen = {name: getattr(self, name)[kept] for name in ("mark_image", "mark_finding", "mark_score")}
        further: dict[str, Any] = {"place_of": self.place_of[kept]} if len(self.place_of) else {}
        if self._has_masks:
            further |= {"mask_hit": place[self.mask_hit[kept]], "mask_iou": self.mask_iou[kept]}
        return {**chosen, "mark_hit": place[self.mark_hit[:, kept]], **further}

    @override
    def to_table(self) -> pa.Table:
        """Return a row per detection: image_id, patient_id, finding, score, and for each rule, if it hits (null if
        unknown).
        """
        import pyarrow as pa

        is_known = self.known[self.mark_image, self.mark_finding]
        columns: dict[str, Any] = {
            "image_id": [self.images[i][0] for i in self.mark_image.tolist()],
            "patient_id": [self.images[i][1] for i in self.mark_image.tolist()],
            "finding": [self.findings[i] for i in self.mark_finding.tolist()],
            "score": self.mark_score,
        }
        for name in ("iou_40", "iou_50", "iou_75", "centre"):
            columns[f"hit_{name}"] = pa.array(self.mark_hit[RULES.index(name)] >= 0, mask=~is_known)
        return pa.table(columns)

    @classmethod
    @override
    def resample(
        cls, systems: Sequence[DetectionRows], resampling: Resampling, *, metrics: Sequence[str], groups: Sequence[str]
    ) -> list[dict[str, Figures]]:
        """Return scores per finding of several systems on one split, in the data and in the same replicates.

        Raises
        ------
        ValueError
            If a metric, finding or unit is unknown, or the systems were scored on different images.
        """
        unit = resampling.unit
        if unit not in ("patient", "image"):
            raise ArgumentError("unit", "must be 'patient' or 'image'", repr(unit))
        first = systems[0]
        for rows in systems:
            if unknown := [name for name in groups if name not in rows.findings]:
                raise ArgumentError("findings", f"must be among {list(rows.findings)}", unknown)
            if missing := [name for name in metrics if name not in rows.metrics()]:
                raise ArgumentError("metrics", f"must be among {rows.metrics()}", missing)
            if rows.images != first.images:
                raise ValueError("all systems must be scored on the same images, in the same order")
        names = [image[1 if unit == "patient" else 0] for image in first.images]
        code = {name: i for i, name in enumerate(sorted(set(names)))}
        units = np.array([code[name] for name in names], np.int64)
        matched = [[rows.matched(group, units) for group in groups] for rows in systems]
        values: dict[tuple[int, str], list[float]] = {}

        def replicates(counts: Counts) -> dict[tuple[int, str], FloatArray]:
            drawn = {}
            for i, of_groups in enumerate(matched):
                made = [detection_figures(group, metrics, counts) for group in of_groups]
                for name in metrics:
                    values[i, name] = [figures[name][0] for figures in made]
                    drawn[i, name] = np.column_stack([figures[name][1] for figures in made])
            return drawn

        drawn = replicates_of(replicates, blocks_of_counts(len(code), resampling))
        return [
            {name: _figures(name, values[i, name], drawn[i, name], of_groups) for name in metrics}
            for i, of_groups in enumerate(matched)
        ]

    def matched(self, finding: str, units: IntArray | None = None) -> Matched:
        """Return the detections and lesions of one finding, on the images in which the finding is known."""
        code = self.findings.index(finding)
        images = np.flatnonzero(self.known[:, code])
        place = np.full(len(self), -1)
        place[images] = np.arange(len(images))
        kept = (self.mark_finding == code) & (place[self.mark_image] >= 0)
        own = (self.lesion_finding == code) & (place[self.lesion_image] >= 0)
        lesions = _renumbered(own)
        return Matched(
            units=(np.arange(len(self)) if units is None else units)[images],
            mark_image=place[self.mark_image[kept]],
            score=self.mark_score[kept],
            hit=lesions[self.mark_hit[:, kept]],
            lesion_image=place[self.lesion_image[own]],
            threshold=float(self.thresholds[code]),
            mask_hit=lesions[self.mask_hit[kept]] if self._has_masks else None,
            mask_iou=self.mask_iou[kept] if self._has_masks else None,
            by=RULES.index(self.criterion),
        )

    @classmethod
    @override
    def answers(cls, systems: Sequence[DetectionRows], metric: str, groups: Sequence[str]) -> FloatArray:
        """Return, for each system, image and finding, the number of detections, the sum of their scores, and that of
        the hits.
        """
        columns = [systems[0].findings.index(group) for group in groups]

        def own(rows: DetectionRows) -> FloatArray:
            table = np.zeros((3, *rows.known.shape))
            hits = rows.mark_hit[CENTRE] >= 0
            for layer, weights in zip(table, (1.0, rows.mark_score, rows.mark_score * hits), strict=True):
                np.add.at(layer, (rows.mark_image, rows.mark_finding), weights)
            return table[..., columns].ravel()

        return np.array([own(rows) for rows in systems])

    @override
    def patients(self) -> frozenset[str]:
        """Return all patients of the split."""
        return frozenset(patient for _, patient in self.images)

    @override
    def of_patients(self, patients: Collection[str]) -> DetectionRows:
        """Return the rows as if the split contained only `patients`."""
        chosen = frozenset(patients)
        return self._of_images(np.array([patient in chosen for _, patient in self.images], bool))

    @override
    def without(self, questions: Collection[tuple[str, str]]) -> DetectionRows:
        """Return the rows without the images of `questions`."""
        chosen = {image_id for image_id, _ in questions}
        return self._of_images(np.array([image_id not in chosen for image_id, _ in self.images], bool))

    def _of_images(self, kept: BoolArray) -> DetectionRows:
        place = np.cumsum(kept) - 1
        own = kept[self.lesion_image]
        lesions = _renumbered(own)
        marks = self._marks(kept[self.mark_image], lesions)
        return replace(
            self,
            images=tuple(image for image, is_kept in zip(self.images, kept.tolist(), strict=True) if is_kept),
            known=self.known[kept],
            lesion_image=place[self.lesion_image[own]],
            lesion_finding=self.lesion_finding[own],
            lesion_share=self.lesion_share[own],
            **marks | {"mark_image": place[marks["mark_image"]]},
        )

    @override
    def confidences(self) -> Confidences | None:
        """Return the highest score per image and finding (0 without a detection), with the finding's presence."""
        scores = np.zeros(self.known.shape)
        np.maximum.at(scores, (self.mark_image, self.mark_finding), self.mark_score)
        present = np.zeros(self.known.shape, bool)
        present[self.lesion_image, self.lesion_finding] = True
        images, findings = np.nonzero(self.known)
        probabilities, happened = scores[images, findings], present[images, findings]
        predicted = probabilities >= self.thresholds[findings]
        return Confidences(
            event="findings present",
            whole_split=True,
            groups=self.findings,
            case_groups=[self.findings[i] for i in findings.tolist()],
            case_patients=[self.images[i][1] for i in images.tolist()],
            all_patients=self.patients(),
            probabilities=probabilities,
            happened=happened,
            sureness=np.where(predicted, probabilities, 1 - probabilities),
            right=predicted == happened,
            n_without_confidence=0,
        )


def _figures(name: str, values: Sequence[float], replicates: FloatArray, groups: Sequence[Matched]) -> Figures:
    counted = [group.n_images if name in _OF_IMAGES else group.n_lesions for group in groups]
    n = [0 if math.isnan(value) else count for value, count in zip(values, counted, strict=True)]
    behind = [_n_supporting(name, group) for group in groups]
    return Figures(np.array(values), replicates, np.array(n), behind=np.array(behind, np.int64))


def _n_supporting(name: str, group: Matched) -> int:
    """Return the number of units that support a metric: those with lesions, for image AUROC the rarer class, or all."""
    if name == "false_alarms":
        return len(np.unique(group.units))
    having = np.unique(group.units[group.lesion_image])
    if name == "image_auroc":
        normal = np.setdiff1d(np.arange(group.n_images), group.lesion_image)
        return min(len(having), len(np.unique(group.units[normal])))
    return len(having)


def _renumbered(kept: BoolArray) -> Hits:
    """Return the new index of each lesion in `kept`, -1 for other lesions, and a last entry of -1 for no lesion."""
    return np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)


def score_detections(
    predictions: Sequence[LocalizationPrediction],
    records: Sequence[LocalizationRecord],
    *,
    findings: Sequence[str],
    thresholds: Thresholds | None = None,
    criterion: str = "centre",
) -> DetectionRows:
    """Match checked detections with the lesions of the references.

    Parameters
    ----------
    predictions : detections with a score, and a box, a mask or a point; those on other images are ignored
    records : references; only their ground truth is used
    findings : all findings of the benchmark
    thresholds : lowest score at which a detection counts: one number, or one per finding (by default 0.5)
    criterion : member of :data:`CRITERIA` that decides hits for FROC, related metrics and metrics at a threshold

    Raises
    ------
    ValueError
        If the criterion is unknown, or is "mask" and a lesion has no mask of its own; if an image is listed twice, a
        detection has no score or location, or a threshold is out of range or names an unknown finding.
    """
    images = {record.image_id: i for i, record in enumerate(records)}
    if len(images) != len(records):
        raise ArgumentError("records", "must name each image once")
    codes = {finding: i for i, finding in enumerate(findings)}
    known = np.array([[is_known(record, finding) for finding in findings] for record in records], bool)
    known = known.reshape(len(records), len(findings))
    lesions = [
        (i, codes[finding], box, (box[2] * box[3]) / (record.width * record.height))
        for i, record in enumerate(records)
        for finding in findings
        if known[i, codes[finding]]
        for box in instances(record, finding)
    ]
    lesion_image = np.array([one[0] for one in lesions], np.int64)
    lesion_finding = np.array([one[1] for one in lesions], np.int64)
    lesion_boxes = np.array([one[2] for one in lesions], np.float64).reshape(-1, 4)
    kept = [k for k, one in enumerate(predictions) if one.image_id in images]
    place = np.array(sorted(kept, key=lambda k: images[predictions[k].image_id]), np.int64)
    chosen = [predictions[k] for k in place.tolist()]
    boxes, points = _places(chosen)
    scores = np.array([math.nan if one.score is None else one.score for one in chosen], np.float64)
    image = np.array([images[one.image_id] for one in chosen], np.int64)
    finding = np.array([codes[one.finding] for one in chosen], np.int64)
    n = len(findings)
    hits = match_marks(boxes, points, scores, image * n + finding, lesion_boxes, lesion_image * n + lesion_finding)
    cases = image * n + finding, lesion_image * n + lesion_finding
    masks = _lesion_masks(records, findings, known)
    if criterion not in CRITERIA or (criterion == "mask" and masks is None):
        rule = f"must be one of {', '.join(CRITERIA)}, but not mask if a lesion has no mask of its own"
        raise ArgumentError("criterion", rule, repr(criterion))
    if masks:
        hits[RULES.index("mask")] = _match_in_masks(points, cases, masks)
    mask_hit, mask_iou = _match_masks(chosen, scores, cases, masks)
    notes = () if (~np.isnan(boxes[:, 0])).any() else (_POINTS_ALONE if chosen else _SILENT,)
    return DetectionRows(
        findings=tuple(findings),
        images=tuple((record.image_id, record.patient_id) for record in records),
        known=known,
        lesion_image=lesion_image,
        lesion_finding=lesion_finding,
        lesion_share=np.array([one[3] for one in lesions], np.float64),
        mark_image=image,
        mark_finding=finding,
        mark_score=scores,
        mark_hit=hits,
        mask_hit=mask_hit,
        mask_iou=mask_iou,
        thresholds=_thresholds(thresholds, findings),
        criterion=criterion,
        notes=notes,
        views={record.image_id: record.view for record in records},
        place_of=place,
    )


def _places(detections: Sequence[LocalizationPrediction]) -> tuple[FloatArray, FloatArray]:
    """Return (boxes, points): boxes (n, 4), tight around masks, NaN for a point or an empty mask; points (n, 2)."""
    boxes = np.full((len(detections), 4), np.nan)
    masks = []
    for i, one in enumerate(detections):
        if one.box is not None:
            boxes[i] = one.box
        elif one.mask is not None:
            masks.append(i)
    for start in range(0, len(masks), _MASKS_AT_ONCE):
        batch = masks[start : start + _MASKS_AT_ONCE]
        boxes[batch] = pack_masks([mask for i in batch if (mask := detections[i].mask) is not None]).boxes_xywh()
    points = boxes[:, :2] + boxes[:, 2:] / 2
    for i, one in enumerate(detections):
        if one.points:
            points[i] = one.points[0]
    return boxes, points


def _lesion_masks(records: Sequence[LocalizationRecord], findings: Sequence[str], known: BoolArray) -> list[Rle] | None:
    """Return the masks of all lesions, in their order; None if a lesion has no mask of its own."""
    masks: list[Rle] = []
    for i, record in enumerate(records):
        for code in np.flatnonzero(known[i]).tolist():
            own = instance_masks(record, findings[code])
            if len(own) != len(instances(record, findings[code])):
                return None
            masks += own
    return masks


def _match_in_masks(points: FloatArray, cases: tuple[IntArray, IntArray], lesions: list[Rle]) -> Hits:
    """See :func:`~reveal_bench.metrics.detection_matching.match_points`."""
    of_case: dict[int, list[int]] = {}
    for lesion, case in enumerate(cases[1].tolist()):
        of_case.setdefault(case, []).append(lesion)
    pairs = [
        (mark, lesion)
        for mark, (case, point) in enumerate(zip(cases[0].tolist(), points.tolist(), strict=True))
        if point[0] == point[0]
        for lesion in of_case.get(case, ())
    ]
    marks, lesion_indices = (np.array(part, np.int64) for part in (zip(*pairs, strict=True) if pairs else ((), ())))
    inside = [np.zeros(0, bool)]
    for start in range(0, len(pairs), _MASKS_AT_ONCE):
        batch = slice(start, start + _MASKS_AT_ONCE)
        masks = pack_masks([lesions[k] for k in lesion_indices[batch].tolist()])
        inside.append(point_hit([[tuple(points[k])] for k in marks[batch].tolist()], masks) == 1)
    return match_points(np.concatenate(inside), marks, lesion_indices, len(points))


def _match_masks(
    detections: Sequence[LocalizationPrediction],
    scores: FloatArray,
    cases: tuple[IntArray, IntArray],
    lesions: list[Rle] | None,
) -> tuple[Hits, FloatArray]:
    """Return the result of :func:`~reveal_bench.metrics.detection_matching.match_masks`; empty if either side has no
    masks.
    """
    if not lesions or all(one.mask is None for one in detections):
        return np.zeros(0, np.int32), np.zeros(0)
    of_case: dict[int, list[int]] = {}
    for lesion, case in enumerate(cases[1].tolist()):
        of_case.setdefault(case, []).append(lesion)
    pairs = [
        (mark, lesion, one.mask)
        for mark, (one, case) in enumerate(zip(detections, cases[0].tolist(), strict=True))
        if one.mask is not None
        for lesion in of_case.get(case, ())
    ]
    overlaps = [np.zeros(0)]
    for start in range(0, len(pairs), _MASKS_AT_ONCE):
        batch = pairs[start : start + _MASKS_AT_ONCE]
        own, others = pack_masks([mask for *_, mask in batch]), pack_masks([lesions[k] for _, k, _ in batch])
        overlaps.append(mask_iou(own, others, slice="all"))
    marks, lesion_indices = (
        np.array([mark for mark, *_ in pairs], np.int64),
        np.array([k for _, k, _ in pairs], np.int64),
    )
    return match_masks(np.nan_to_num(np.concatenate(overlaps)), marks, lesion_indices, scores, cases[0], len(lesions))


def _thresholds(thresholds: Thresholds | None, findings: Sequence[str]) -> FloatArray:
    thresholds = 0.5 if thresholds is None else thresholds
    by_finding = thresholds if isinstance(thresholds, Mapping) else dict.fromkeys(findings, thresholds)
    for value in by_finding.values():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ArgumentError("thresholds", "must be a number in [0, 1], or one for each finding named", repr(value))
    if unknown := sorted(set(by_finding) - set(findings)):
        raise ArgumentError("thresholds", "must name findings of the benchmark", unknown)
    return np.array([float(by_finding.get(finding, 0.5)) for finding in findings])


def disclose_detections(
    rows: DetectionRows,
    released: Sequence[str],
    resampling: Resampling,
    *,
    min_cell: int,
    left_out: Collection[str] = (),
) -> Disclosure:
    """Return macros over the findings that at least `min_cell` images have and as many lack, according to the
    references.
    """
    having = np.zeros(rows.known.shape, bool)
    having[rows.lesion_image, rows.lesion_finding] = True
    n_having = (having & rows.known).sum(axis=0)
    smaller = np.minimum(n_having, rows.known.sum(axis=0) - n_having)
    counts = zip(rows.findings, smaller.tolist(), strict=True)
    allowed_findings = tuple(finding for finding, n in counts if n >= min_cell and finding not in left_out)
    allowed: list[Estimate] = []
    if allowed_findings:
        estimates = rows.estimates(resampling.by("percentile"), groups=allowed_findings)
        allowed = [one for one in estimates if one.metric in released and one.finding == MACRO]
    counted = "images with it or without it"
    return disclosure_of_findings(allowed, rows.findings, allowed_findings, counted=counted, min_cell=min_cell)
