"""Rows of a localization dataset: their Features, conversion from records, rules and counts.

The columns are the fields of :class:`reveal_bench.kinds.localization.records.LocalizationRecord`, one row per image.
ClassLabel codes are positions in the benchmark's findings and in `records.READERS`, `records.VIEWS`,
`records.SPACING_SOURCES`. Coordinates are float64: if a polygon is rounded to float32, filling it no longer gives the
mask that was published with it.

In a *blank* row (the inputs of a holdout) all columns about findings are null or empty. The hashes of file and pixels
are null, too, because they would identify images to those who have the files.

A fault is a tuple (field, rule, value). Masks and pictures are checked elsewhere. Codes without a name and missing
lists are reported by an earlier check.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.images import SPACING_SOURCES, VIEWS
from reveal_bench.kinds.localization.records import READERS, Annotation, LocalizationRecord, SalientPoint
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.rows import Fault, Row, code_of, size_faults
from reveal_bench.kinds.split_counts import LONG_VOCABULARY, Tally, markdown_table
from reveal_bench.masks import pack_masks
from reveal_bench.words import share_text

if TYPE_CHECKING:
    from datasets import Features

MEANINGS = {
    "label_status": "per finding 1 present, 0 absent, -1 uncertain, null unlabelled",
    "annotations": (
        "per finding and reader: mask (COCO run lengths), contours (x, y), tight box, instances drawn, area, boxes as "
        "the source draws them"
    ),
    "points": "most representative point (x, y) of a finding, per reader",
    "missing": "findings that are present but were not drawn: unknown masks, not empty ones",
}
"""Column -> its meaning, for the card; columns that other kinds share are in `dataset/card_tables.py`."""


COLUMNS = (
    "image", "image_id", "patient_id", "study_id", "view", "view_raw", "width", "height", "labels", "label_status",
    "annotations", "points", "missing", "source_sha256", "pixel_sha256", "pixel_pipeline", "spacing_mm",
    "spacing_source",
)  # fmt: skip
"""Columns of the main config."""


def localization_features(findings: Sequence[str]) -> Features:
    """Return the Features of the config `localization` for a benchmark's findings."""
    from datasets import ClassLabel, Features, Image, List, Value

    label = ClassLabel(names=list(findings))
    reader = ClassLabel(names=list(READERS))
    return Features(
        {
            "image": Image(),
            "image_id": Value("string"),
            "patient_id": Value("string"),
            "study_id": Value("string"),
            "view": ClassLabel(names=list(VIEWS)),
            "view_raw": Value("string"),
            "width": Value("int32"),
            "height": Value("int32"),
            "labels": List(label),
            "label_status": {finding: Value("int8") for finding in findings},
            "annotations": List(
                {
                    "label": label,
                    "reader": reader,
                    "rle": {"size": List(Value("int32")), "counts": Value("string")},
                    "polygons": List(List(List(Value("float64")))),
                    "bbox_xywh": List(Value("float64")),
                    "n_instances": Value("int32"),
                    "area_px": Value("int64"),
                    "boxes_xywh": List(List(Value("float64"))),
                    "reader_id": Value("string"),
                }
            ),
            "points": List({"label": label, "reader": reader, "x": Value("float64"), "y": Value("float64")}),
            "missing": List(label),
            "source_sha256": Value("string"),
            "pixel_sha256": Value("string"),
            "pixel_pipeline": Value("string"),
            "spacing_mm": List(Value("float64")),
            "spacing_source": ClassLabel(names=list(SPACING_SOURCES)),
        }
    )


def localization_row(record: LocalizationRecord, findings: Sequence[str]) -> Row:
    """Return the row of `record`; without an image, `pixel_pipeline` says that pixels are withheld.

    Raises
    ------
    ValueError
        If a finding, reader, view or spacing source is outside its vocabulary.
    """
    code = {finding: i for i, finding in enumerate(findings)}
    unknown = (set(record.label_status) ^ set(findings)) | _findings_used(record) - set(findings)
    if unknown:
        raise ArgumentError("label_status", f"must have one entry per finding of the benchmark, differs in {unknown}")
    image = {"bytes": record.image, "path": record.image_name} if record.image is not None else None
    return {
        "image": image,
        "image_id": record.image_id,
        "patient_id": record.patient_id,
        "study_id": record.study_id,
        "view": code_of(VIEWS, record.view, "view"),
        "view_raw": record.view_raw,
        "width": record.width,
        "height": record.height,
        "labels": sorted(code[finding] for finding in record.labels),
        "label_status": {finding: record.label_status[finding] for finding in findings},
        "annotations": [_annotation_row(annotation, code) for annotation in record.annotations],
        "points": [_point_row(point, code) for point in record.points],
        "missing": [code[finding] for finding in record.missing],
        "source_sha256": record.source_sha256,
        "pixel_sha256": record.pixel_sha256,
        "pixel_pipeline": record.pixel_pipeline if image is not None else "withheld",
        "spacing_mm": list(record.spacing_mm) if record.spacing_mm is not None else None,
        "spacing_source": code_of(SPACING_SOURCES, record.spacing_source, "spacing_source"),
    }


def blank_row(row: Row) -> Row:
    """Return `row` without references: no findings and no hashes of its file and pixels."""
    empty: Row = {
        "labels": [],
        "label_status": None,
        "annotations": [],
        "points": [],
        "missing": [],
        "source_sha256": None,
        "pixel_sha256": None,
    }
    return {**row, **empty}


def mask_features(findings: Sequence[str]) -> Features:
    """Return the Features of the config `masks`, which has a picture for viewing per image and finding."""
    from datasets import ClassLabel, Features, Image, Value

    label = ClassLabel(names=list(findings))
    return Features({"image_id": Value("string"), "label": label, "mask": Image(mode="L")})


def mask_rows(record: LocalizationRecord, findings: Sequence[str]) -> list[Row]:
    """Return the ground-truth masks of an image as PNG pictures of its size, 255 inside the finding and 0 elsewhere."""
    rows = []
    for annotation in record.annotations:
        if annotation.reader != "ground_truth" or annotation.rle is None or annotation.area_px == 0:
            continue
        picture = {"bytes": pack_masks([annotation.rle]).png(0), "path": f"{record.image_id}_{annotation.finding}.png"}
        label = code_of(findings, annotation.finding, "label")
        rows.append({"image_id": record.image_id, "label": label, "mask": picture})
    return sorted(rows, key=lambda row: row["label"])


def _findings_used(record: LocalizationRecord) -> set[str]:
    used = {annotation.finding for annotation in record.annotations} | {point.finding for point in record.points}
    return used | set(record.missing)


def _annotation_row(annotation: Annotation, code: dict[str, int]) -> Row:
    rle = annotation.rle
    return {
        "label": code[annotation.finding],
        "reader": code_of(READERS, annotation.reader, "reader"),
        "rle": {"size": list(rle.size), "counts": rle.counts} if rle is not None else None,
        "polygons": [[list(point) for point in contour] for contour in annotation.polygons],
        "bbox_xywh": list(annotation.bbox_xywh) if annotation.bbox_xywh is not None else None,
        "n_instances": annotation.n_instances,
        "area_px": annotation.area_px,
        "boxes_xywh": [list(box) for box in annotation.boxes_xywh],
        "reader_id": annotation.reader_id,
    }


def _point_row(point: SalientPoint, code: dict[str, int]) -> Row:
    return {
        "label": code[point.finding],
        "reader": code_of(READERS, point.reader, "reader"),
        "x": point.x,
        "y": point.y,
    }


INDIVIDUAL = READERS.index("individual")


GROUND_TRUTH = READERS.index("ground_truth")


TOLERANCE_PX = 1e-6


def image_faults(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    """Yield the problems of an image's row."""
    yield from size_faults(row["width"], row["height"], "size")
    statuses = list((row["label_status"] or {}).values())
    present = [code for code, status in enumerate(statuses) if status == 1]
    if sorted(row["labels"]) != present:
        yield "labels", f"must be {present}, the codes whose `label_status` is 1", str(row["labels"])
    if stray := sorted({str(status) for status in statuses} - {"-1", "0", "1", "None"}):
        yield "label_status", "must be 1, 0, -1 or null", ", ".join(stray)
    yield from _drawings(row, findings)
    for point in row["points"]:
        if not (0 <= point["x"] < row["width"] and 0 <= point["y"] < row["height"]):
            yield "points", "must be in the image", f"({point['x']}, {point['y']})"
    drawn = {a["label"] for a in row["annotations"] if a["reader"] == GROUND_TRUTH and a["area_px"] > 0}
    for code in row["missing"]:
        if code in drawn:
            yield "missing", "must have no ground-truth mask", findings[code]
        if code not in row["labels"]:
            yield "missing", "must be present", findings[code]


def _drawings(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    seen = set()
    for annotation in row["annotations"]:
        name = f"{findings[annotation['label']]}, {READERS[annotation['reader']]}"
        who = (annotation["label"], annotation["reader"], annotation["reader_id"])
        if who in seen:
            yield "annotations", "must be one per finding and reader", f"{name} again"
        seen.add(who)
        if (annotation["reader"] == INDIVIDUAL) != (annotation["reader_id"] is not None):
            rule = "must be given for individual readers' drawings, and only for these"
            yield f"annotations[{name}].reader_id", rule, str(annotation["reader_id"])
        yield from _boxes(annotation, row["width"], row["height"], f"annotations[{name}]")
        for contour in annotation["polygons"]:
            if len(contour) < 2 or not all(math.isfinite(value) for point in contour for value in point):
                yield f"annotations[{name}].polygons", "must have two or more finite points", str(contour)[:60]


def _boxes(annotation: Row, width: int, height: int, name: str) -> Iterator[Fault]:
    boxes = annotation["boxes_xywh"]
    for box in boxes:
        x, y, wide, high = box
        # a source's boxes may extend beyond the picture, but must overlap it
        if not (wide > 0 and high > 0 and x < width and y < height and x + wide > 0 and y + high > 0):
            yield f"{name}.boxes_xywh", "must have an area in the image", str(box)
    if annotation["rle"] is not None or not boxes:
        return
    if annotation["n_instances"] != len(boxes):
        yield f"{name}.n_instances", f"must be {len(boxes)}, the number of boxes", str(annotation["n_instances"])
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    whole = [left, top, right - left, bottom - top]
    whole_box = annotation["bbox_xywh"]
    if whole_box is None or any(abs(a - b) > TOLERANCE_PX for a, b in zip(whole_box, whole, strict=True)):
        yield f"{name}.bbox_xywh", f"must be {whole}, around all boxes", str(whole_box)


def findings_drawn(row: Row, findings: Sequence[str]) -> list[str]:
    """Return the findings that have a ground truth."""
    drawn = {a["label"] for a in row["annotations"] if a["reader"] == GROUND_TRUTH and a["area_px"] > 0}
    return [finding for code, finding in enumerate(findings) if code in drawn]


@dataclass
class LocalizationTally(Tally):
    """Counts of the images of a split.

    Attributes
    ----------
    drawn, masks : per (finding, reader), images with a non-empty drawing, and images with a mask, not only boxes
    instances : per finding, contours or boxes of the ground truth
    points, not_drawn : per finding, images with a point, and images on which it is present but was not drawn
    readers_per_image : number of individual readers who drew something -> number of images
    reader_ids : the individual readers
    """

    items: ClassVar[str] = "images"
    agreement_heads: ClassVar[tuple[str, ...]] = (
        "individual readers",
        "readers who drew something on how many images",
    )

    drawn: Counter[tuple[int, str]] = field(default_factory=Counter)
    masks: Counter[tuple[int, str]] = field(default_factory=Counter)
    instances: Counter[int] = field(default_factory=Counter)
    points: Counter[int] = field(default_factory=Counter)
    not_drawn: Counter[int] = field(default_factory=Counter)
    readers_per_image: Counter[int] = field(default_factory=Counter)
    reader_ids: set[str] = field(default_factory=set)

    @override
    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one image and the findings asked of it."""
        super().add(row, asked)
        self.positives.update(row["labels"])
        self.positive_views.update((code, row["view"]) for code in row["labels"])
        self.pairs.update(combinations(sorted(row["labels"]), 2))
        self.not_drawn.update(row["missing"])
        self.points.update({point["label"] for point in row["points"]})
        statuses = (row["label_status"] or {}).values()
        self.unlabelled.update(code for code, status in enumerate(statuses) if status not in (0, 1))
        drawn = [a for a in row["annotations"] if a["area_px"] > 0]
        self.drawn.update({(a["label"], READERS[a["reader"]]) for a in drawn})
        self.masks.update({(a["label"], READERS[a["reader"]]) for a in drawn if a["rle"] is not None})
        for annotation in row["annotations"]:
            if READERS[annotation["reader"]] == "ground_truth":
                self.instances[annotation["label"]] += annotation["n_instances"]
        readers = {a["reader_id"] for a in row["annotations"]} - {None}
        self.readers_per_image[len(readers)] += 1
        self.reader_ids |= readers

    @override
    def findings_text(self, findings: Sequence[str]) -> str:
        """Return a Markdown table of how often each finding is present, drawn and not drawn."""
        n = len(findings)

        def by(reader: str) -> list[int]:
            return [self.drawn[i, reader] for i in range(n)]

        drawn = self._what_is_drawn()
        columns: dict[str, list[object]] = {
            "finding": list(findings),
            "present": [self.positives[i] for i in range(n)],
            "of images": [share_text(self.positives[i], self.n_rows) for i in range(n)],
            drawn: list(by("ground_truth")),
            "instances": [self.instances[i] for i in range(n)],
            "not drawn": [self.not_drawn[i] for i in range(n)],
            "unlabelled": [self.unlabelled[i] for i in range(n)],
            "benchmark readers": list(by("human_benchmark")),
            "benchmark points": [self.points[i] for i in range(n)],
            "individual readers": list(by("individual")),
        }
        always = {"finding", "present", "of images", drawn, "not drawn"}
        kept = {name: cells for name, cells in columns.items() if name in always or any(cells)}
        rows = list(zip(*kept.values(), strict=True))
        if n <= LONG_VOCABULARY:
            return markdown_table(list(kept), rows)
        used = [bool(self.positives[i]) or any(self.drawn[i, reader] for reader in READERS) for i in range(n)]
        never = ", ".join(name for name, is_used in zip(findings, used, strict=True) if not is_used)
        table = markdown_table(list(kept), [row for row, is_used in zip(rows, used, strict=True) if is_used])
        return f"{table}\n\nNever present or drawn in this split: {never or 'none'}."

    @override
    def missing(self, findings: Sequence[str]) -> str:
        """Return, in words, how often a finding is present without a drawing."""
        total = sum(self.not_drawn.values())
        each = ", ".join(f"{findings[i]} {n:,}" for i, n in sorted(self.not_drawn.items()) if n)
        if not each:
            return "every finding that is present has a ground-truth drawing"
        return f"{total:,} times a finding is present without a ground-truth drawing ({each})"

    @override
    def agreement_cells(self) -> list[object]:
        """Return the number of individual readers, and how many of them drew on how many images."""
        spread = ", ".join(f"{n} on {count:,}" for n, count in sorted(self.readers_per_image.items()))
        return [len(self.reader_ids), spread] if self.reader_ids else []

    def _what_is_drawn(self) -> str:
        """Return "masks", "boxes", "masks or boxes" or "drawn", according to the ground truth, otherwise to the
        readers' drawings.
        """
        truth = {place for place in self.drawn if place[1] == "ground_truth"} or set(self.drawn)
        n_drawn, n_masks = (sum(counts[place] for place in truth) for counts in (self.drawn, self.masks))
        if n_drawn == 0:
            return "drawn"
        return "masks" if n_drawn == n_masks else ("masks or boxes" if n_masks else "boxes")

    @override
    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return (row,)
