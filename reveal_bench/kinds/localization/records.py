"""Records, manifest and predictions of localization, and how they are read from a dataset folder.

Conventions
-----------
A *dataset folder* is a Hugging Face dataset repository on disk. This module reads these files of the folder

* ``manifest/benchmark.json``: benchmark, version, findings, protocol, and one entry per split;
* ``manifest/<split>.parquet``: the public manifest: image_id, study_id, view, width, height, asked (finding names);
* ``localization/<split>-*.parquet``: the references, one row per image (columns of :class:`LocalizationRecord`).

A public folder contains the manifest of its holdout but not the holdout's references; these are in a separate folder.
Points and boxes are in pixels of the full-size image, see :mod:`reveal_bench.geometry`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from sys import intern
from typing import Any, ClassVar, Literal

from reveal_bench.kinds.folder import WHOLE_SPLIT, AnyFolder, open_split, read_rows, split_shards
from reveal_bench.kinds.images import SPACING_SOURCES, VIEWS, PictureFile
from reveal_bench.masks import Rle

Reader = Literal["ground_truth", "human_benchmark", "individual"]
READERS: tuple[Reader, ...] = ("ground_truth", "human_benchmark", "individual")
"""Kinds of reader: consensus or reference reader, readers with whom models are compared, and single readers before a
consensus.
"""
Point = tuple[float, float]
Box = tuple[float, float, float, float]
Polygons = tuple[tuple[Point, ...], ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """The drawing of one finding on one image by one reader, or by the consensus of readers.

    Attributes
    ----------
    finding : str
    reader : {"ground_truth", "human_benchmark", "individual"}
    rle : Rle or None
        Mask; None for sources that have boxes only.
    polygons : contours of (x, y), may be empty
    bbox_xywh : tight box [x, y, width, height] of the mask or of all boxes; None for an empty mask
    n_instances : int
        Number of contours (or boxes) drawn.
    area_px : int
        Number of foreground pixels of the mask; without a mask, of the union of the boxes in whole pixels.
    boxes_xywh : boxes as the source draws them, one per instance; empty if it draws none
    reader_id : id of an individual reader; None for other kinds of reader
    """

    finding: str
    reader: Reader
    rle: Rle | None
    polygons: Polygons = ()
    bbox_xywh: Box | None = None
    n_instances: int = 0
    area_px: int = 0
    boxes_xywh: tuple[Box, ...] = ()
    reader_id: str | None = None


@dataclass(frozen=True, slots=True)
class SalientPoint:
    """The point (x, y) that one reader named as most representative of a finding."""

    finding: str
    reader: Reader
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class LocalizationRecord:
    """One image with its references.

    Attributes
    ----------
    label_status : dict from finding to 1 (present), 0 (absent) or None (unlabelled)
    missing : findings that are present but have no ground-truth mask
    picture : the file of the pixels, set by a source; the folder writer reads it and fills in the hashes, the pipeline
        and, if the record has none, the spacing
    image : bytes of the file if there is no `picture`, or None if pixels are withheld; `image_name` is its file name in
        the source
    source_sha256 : hash of the file that the user holds
    pixel_pipeline : how the published pixels were made; "original bytes" for an unchanged JPEG or PNG
    """

    image_id: str
    patient_id: str
    study_id: str
    view: str
    width: int
    height: int
    label_status: Mapping[str, int | None]
    annotations: tuple[Annotation, ...] = ()
    points: tuple[SalientPoint, ...] = ()
    missing: tuple[str, ...] = ()
    view_raw: str | None = None
    image: bytes | None = field(default=None, repr=False)
    image_name: str | None = None
    source_sha256: str | None = None
    pixel_sha256: str | None = None
    pixel_pipeline: str = "withheld"
    spacing_mm: tuple[float, float] | None = None
    spacing_source: str = "none"
    picture: PictureFile | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width

    @property
    def labels(self) -> list[str]:
        """Findings that are present, in the order of `label_status`."""
        return [finding for finding, status in self.label_status.items() if status == 1]

    def reference(self, finding: str, reader: Reader = "ground_truth") -> Annotation | None:
        """Return the annotation of `finding` by `reader`, if there is one."""
        for annotation in self.annotations:
            if annotation.finding == finding and annotation.reader == reader:
                return annotation
        return None

    def asked(self, asks: str) -> list[str]:
        """Return the findings that a model is asked for: those with a non-empty ground truth, or all findings."""
        if asks == "all":
            return list(self.label_status)
        drawn = {a.finding for a in self.annotations if a.reader == "ground_truth" and a.area_px > 0}
        return [finding for finding in self.label_status if finding in drawn]


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """Image of the public manifest, with its size and the findings that a model is asked for."""

    image_id: str
    study_id: str
    view: str
    width: int
    height: int
    asked: tuple[str, ...]

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width


@dataclass(frozen=True)
class ImageManifest:
    """Questions of a split of images; the linter uses nothing else.

    An image that is not asked has a row without asked findings. `selected` contains the asked findings, if they are not
    all `findings` of the benchmark. `is_part` is True if only a part of the split is asked.
    """

    kind: ClassVar[str] = "localization"

    benchmark: str
    version: str
    split: str
    grid: int
    findings: tuple[str, ...]
    rows: Mapping[str, ManifestRow] = field(repr=False)
    selected: tuple[str, ...] | None = None
    is_part: bool = False
    others: tuple[str, ...] = ()

    @property
    def scored(self) -> tuple[str, ...]:
        """The findings that have scores, in table order."""
        return self.findings if self.selected is None else self.selected

    def asked_pairs(self) -> list[tuple[str, str]]:
        """Return every (image_id, finding) asked, in manifest order."""
        return [(row.image_id, finding) for row in self.rows.values() for finding in row.asked]


@dataclass(frozen=True, slots=True)
class LocalizationPrediction:
    """One prediction as the linter returns it, with coordinates checked and polygons filled.

    Attributes
    ----------
    points : tuple of (x, y)
    box : [x, y, width, height]
    cell : grid cell
    mask : Rle
        At least one of points, box, cell and mask is given.
    score : float or None
        The model's confidence that the finding is present.
    line : int
        Line (or entry, counted from 1) of the prediction in its file.
    """

    image_id: str
    finding: str
    points: tuple[Point, ...] = ()
    cell: str | None = None
    box: Box | None = None
    mask: Rle | None = None
    score: float | None = None
    line: int = 0


def read_manifest(folder: AnyFolder, split: str) -> ImageManifest:
    """Read the public manifest of `split`.

    Raises
    ------
    ValueError
        If the folder has no such split; the message lists those it has.
    """
    opened = open_split(folder, split)
    info, selection = opened.info, opened.selection
    entries = read_rows(Path(folder) / "manifest" / f"{split}.parquet", at_once=4096)
    rows = {}
    for row in entries:
        asked = selection.findings_of(row["image_id"], row["asked"])
        row |= {"view": intern(row["view"]), "asked": tuple(map(intern, asked))}
        rows[row["image_id"]] = ManifestRow(**row)
    selected, is_part = selection.findings, selection != WHOLE_SPLIT
    part = selected, is_part, info.not_asked
    return ImageManifest(info.benchmark, info.version, split, info.grid, info.findings, rows, *part)


def read_localization(
    folder: AnyFolder, split: str, *, config: str = "localization", contours: bool = True
) -> list[LocalizationRecord]:
    """Read the references of `split`, without pixels, in file order.

    Parameters
    ----------
    config : config with the references
    contours : True to read the polygons of annotations, which scoring does not use and which take most of the time

    Raises
    ------
    ValueError
        If the folder has no such split, or contains only its manifest because its references are private.
    """
    return list(each_localization(folder, split, config=config, contours=contours))


def each_localization(
    folder: AnyFolder, split: str, *, config: str = "localization", contours: bool = True
) -> Iterator[LocalizationRecord]:
    """Yield the records of :func:`read_localization`, with only a few images in memory at a time."""
    opened = open_split(folder, split)
    selection = opened.selection
    shards = split_shards(folder, config, split)
    if not shards:
        raise ValueError(f"{folder} holds no references of split {split!r}: they are private, kept by the maintainer")
    how: dict[str, Any] = {"leave_out": ["image", "annotations.polygons"]}
    if contours:  # the contours of one image take a megabyte or more
        how = {"leave_out": ["image"], "at_once": 16}
    for shard in shards:
        for row in read_rows(shard, **how):
            if selection.has(row["image_id"]):
                record = _record_from_row(row, opened.info.findings)
                asked = selection.findings_of(row["image_id"], opened.findings)
                if len(asked) < len(opened.info.findings):
                    record = with_findings(record, asked)
                    # Findings that were not asked about this image alone are unlabelled
                    record = replace(record, label_status=dict.fromkeys(opened.findings) | dict(record.label_status))
                yield record


def with_findings(record: LocalizationRecord, findings: Sequence[str]) -> LocalizationRecord:
    """Return a record with the references of only some findings."""
    return replace(
        record,
        label_status={finding: record.label_status[finding] for finding in findings},
        annotations=tuple(annotation for annotation in record.annotations if annotation.finding in findings),
        points=tuple(point for point in record.points if point.finding in findings),
        missing=tuple(finding for finding in record.missing if finding in findings),
    )


def _record_from_row(row: dict[str, Any], findings: tuple[str, ...]) -> LocalizationRecord:
    annotations = tuple(_annotation_from_row(raw, findings) for raw in row["annotations"])
    points = tuple(SalientPoint(findings[p["label"]], READERS[p["reader"]], p["x"], p["y"]) for p in row["points"])
    plain = {name: row[name] for name in _PLAIN_COLUMNS}
    return LocalizationRecord(
        **plain,
        view=VIEWS[row["view"]],
        label_status={finding: row["label_status"][finding] for finding in findings},
        annotations=annotations,
        points=points,
        missing=tuple(findings[code] for code in row["missing"]),
        spacing_mm=tuple(row["spacing_mm"]) if row["spacing_mm"] else None,
        spacing_source=SPACING_SOURCES[row["spacing_source"]],
    )


_PLAIN_COLUMNS = (
    "image_id",
    "patient_id",
    "study_id",
    "width",
    "height",
    "view_raw",
    "source_sha256",
    "pixel_sha256",
    "pixel_pipeline",
)


def _annotation_from_row(raw: dict[str, Any], findings: tuple[str, ...]) -> Annotation:
    rle = raw["rle"]
    height_width = rle["size"] if rle else None
    return Annotation(
        finding=findings[raw["label"]],
        reader=READERS[raw["reader"]],
        rle=Rle((height_width[0], height_width[1]), rle["counts"]) if height_width else None,
        polygons=tuple(tuple((x, y) for x, y in contour) for contour in raw.get("polygons", ())),
        bbox_xywh=tuple(raw["bbox_xywh"]) if raw["bbox_xywh"] else None,
        n_instances=raw["n_instances"],
        area_px=raw["area_px"],
        boxes_xywh=tuple((x, y, width, height) for x, y, width, height in raw.get("boxes_xywh") or ()),
        reader_id=raw.get("reader_id"),
    )
