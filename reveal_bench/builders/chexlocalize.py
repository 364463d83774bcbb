"""CheXlocalize: masks, contours and readers' points for ten findings on CheXpert's validation and test pictures.

Source: Stanford AIMI download (per-user link) as described in the README of rajpurkarlab/cheXlocalize; Saporta et al.
2022 (paper 002). Where its parts may lie is in :mod:`reveal_bench.builders.chexlocalize_places`, what the files hold in
:mod:`reveal_bench.builders.chexlocalize_files`.

What becomes what
-----------------
* One record per row of ``val_labels.csv`` (or CheXpert's own ``valid.csv``; "validation") and ``test_labels.csv``
  ("test"). A picture without an entry in the JSON files has no positive finding, unless its labels say otherwise.
* `label_status` is the CSV's; masks are ``gt_segmentations``'; contours are ``gt_annotations``'. Where they contradict
  each other nothing is dropped: a finding that is labelled present and has no mask is `missing`; a mask of a finding
  that is labelled absent stays; both are counted in the warnings, and so are contours that do not fill to their mask.
  A ``groundtruth.csv`` (labels of the test studies, published apart) is compared, and differences are counted.
* The human benchmark's masks, contours and points are of the reader "human_benchmark". A reader's annotation whose
  segmentation is missing keeps its contours and the box around them, without a mask.
* JPEG bytes pass unchanged. A picture whose size is not that of its masks is an error; CheXpert-small is refused.
* Heat maps and masks of models are no references: they are set aside, and pickles are never opened.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from reveal_bench.builders.box_files import count_warnings, is_synthetic
from reveal_bench.builders.box_pictures import no_pictures
from reveal_bench.builders.chexlocalize_files import LabelRow, Masks
from reveal_bench.builders.chexlocalize_places import (
    ANNOTATIONS,
    PARTIAL,
    Download,
    find_download,
    set_aside,
    study_of,
)
from reveal_bench.builders.chexlocalize_splits import SPLITS, SplitFiles, check_sizes, contradictions, parse_splits
from reveal_bench.builders.source import Inspection, Pixels, Problem, Reading, Records, finish
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.masks import rasterize_polygons
from reveal_bench.records import Annotation, LocalizationRecord, PictureFile, Polygons, Reader, SalientPoint

__all__ = ["PUBLISHED", "SPLITS", "detect", "inspect", "read"]

PUBLISHED = {
    "validation images": 234,
    "validation patients": 200,
    "validation images with masks": 187,
    "test images": 668,
    "test patients": 500,
    "test images with masks": 499,
}
"""Counts of the paper and of the released files."""


def detect(root: Path) -> float:
    """1 if `root` holds the annotation files in the download's layout, however nested; else 0."""
    return 1.0 if find_download(Path(root)) is not None else 0.0


def inspect(root: Path, *, pictures: Path | None = None) -> Inspection:
    """Parse every file, and of the pictures the headers; list counts, problems and warnings.

    Raises
    ------
    ValueError
        If `root` does not hold the download.
    """
    root = Path(root)
    download = _download(root, pictures)
    problems: list[Problem] = []
    warnings: list[str] = []
    splits = parse_splits(download, problems, warnings, need_pictures=False)
    counts: dict[str, int] = {}
    for split, parsed in splits.items():
        check_sizes(parsed, problems, warnings, need_all=False)
        counts[f"{split} images"] = len(parsed.labels)
        counts[f"{split} patients"] = len({_patient(image_id) for image_id in parsed.labels})
        counts[f"{split} images with masks"] = len({image_id for image_id, _ in parsed.truth.index})
        counts[f"{split} masks"] = sum(area > 0 for area in parsed.truth.areas)
        counts[f"{split} pictures"] = len(parsed.pictures)
        warnings += contradictions(split, parsed)
    synthetic = is_synthetic(root, download.annotations.glob("*.json"))
    warnings += [] if synthetic else count_warnings(counts, PUBLISHED)
    return Inspection(
        builder="chexlocalize",
        root=root,
        files={path.stem: _from(root, path, download) for path in _files(download)},
        counts=counts,
        expected=PUBLISHED,
        problems=problems,
        warnings=[*warnings, *_passed_over(download)],
        synthetic=synthetic,
    )


def read(root: Path, *, pixels: Pixels = "embed", keep_going: bool = False, pictures: Path | None = None) -> Reading:
    """Records per split ("validation", "test": those whose files are there) and warnings.

    Parameters
    ----------
    root : the download, however nested
    pixels : "withhold" needs no pictures where an image's size is known from its annotations
    keep_going : leave out images with a problem instead of raising
    pictures : a folder with CheXpert's pictures, if they do not lie in the download

    Raises
    ------
    BuildError
        With every problem that shows without decoding pictures.
    ValueError
        If `root` does not hold the download.
    """
    root = Path(root)
    download = _download(root, pictures)
    problems: list[Problem] = []
    warnings: list[str] = []
    splits = parse_splits(download, problems, warnings, need_pictures=pixels == "embed")
    for parsed in splits.values():
        check_sizes(parsed, problems, warnings, need_all=pixels == "withhold")
    whole = [problem for problem in problems if not isinstance(problem.row, str)]
    if whole:  # a broken file or line belongs to no image that could be left out
        finish(problems, warnings, keep_going=False)
    bad = {str(problem.row) for problem in problems}
    finish(problems, warnings, keep_going=keep_going)
    for split, parsed in splits.items():
        parsed.labels = {image_id: row for image_id, row in parsed.labels.items() if image_id not in bad}
        warnings += contradictions(split, parsed)
        if pixels == "withhold":
            n_without = len(parsed.labels.keys() - parsed.pictures.keys())
            warnings += [f"split {split!r}: {warning}" for warning in no_pictures(n_without)]
    return Reading(
        {split: Records(partial(_records, parsed, warnings), len(parsed.labels)) for split, parsed in splits.items()},
        warnings,
        set_aside=set_aside(download),
        synthetic=is_synthetic(root, download.annotations.glob("*.json")),
    )


def _files(download: Download) -> list[Path]:
    labels = [download.labels(suffix) for suffix in SPLITS.values()]
    found = [*download.annotations.glob("*.json"), *labels, download.groundtruth()]
    return sorted(path for path in found if path is not None and not path.name.startswith("."))


def _from(root: Path, path: Path, download: Download) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else download.shown(path)


def _download(root: Path, pictures: Path | None) -> Download:
    download = find_download(root, pictures)
    if download is None:
        raise ValueError(f"`root` must hold {ANNOTATIONS}/gt_segmentations_*.json, got {root}")
    return download


def _passed_over(download: Download) -> list[str]:
    counts = Counter(reason.split(",")[0] for _, reason in set_aside(download))
    found = {
        f"interrupted downloads ({PARTIAL}*) are passed over": counts["interrupted download"],
        "pickled heat maps are never opened (a pickle can run code)": counts["pickled heat map"],
        "heat maps of a model are not read: they are no references": counts["heat map of a model"],
    }
    return [f"{n:,} {what}" for what, n in found.items() if n]


def _patient(image_id: str) -> str:
    return image_id.split("_")[0]


def _records(parsed: SplitFiles, warnings: list[str]) -> Iterator[LocalizationRecord]:
    unlike: Counter[str] = Counter()
    for row in parsed.labels.values():
        yield _record(row, parsed, unlike)
    if unlike["differ"]:
        warning = (
            f"split {parsed.name!r}: {unlike['differ']:,} of {unlike['compared']:,} ground-truth contours do not fill "
            "to their published mask (the mask is used)"
        )
        if warning not in warnings:  # records may be iterated twice
            warnings.append(warning)


def _record(row: LabelRow, parsed: SplitFiles, unlike: Counter[str]) -> LocalizationRecord:
    image_id = row.image_id
    height, width = parsed.sizes[image_id]
    annotations = []
    for finding in CHEXLOCALIZE_FINDINGS:
        truth = _annotation(image_id, finding, "ground_truth", parsed.truth, parsed.truth_polygons)
        if truth is not None:
            annotations.append(truth)
            if truth.polygons:
                unlike["compared"] += 1
                unlike["differ"] += rasterize_polygons(truth.polygons, (height, width)) != truth.rle
        reader = _annotation(image_id, finding, "human_benchmark", parsed.readers, parsed.reader_polygons)
        if reader is not None:
            annotations.append(reader)
    points = [
        SalientPoint(finding, "human_benchmark", x, y)
        for finding, found in parsed.points.get(image_id, {}).items()
        for x, y in found
    ]
    return LocalizationRecord(
        image_id=image_id,
        patient_id=_patient(image_id),
        study_id=study_of(image_id),
        view=row.view,
        view_raw=row.view_raw,
        width=width,
        height=height,
        label_status=row.status,
        annotations=tuple(annotations),
        points=tuple(points),
        missing=tuple(
            finding
            for finding, status in row.status.items()
            if status == 1 and not parsed.truth.area(image_id, finding)
        ),
        picture=_picture(image_id, parsed),
    )


def _picture(image_id: str, parsed: SplitFiles) -> PictureFile | None:
    path = parsed.pictures.get(image_id)
    if path is None:
        return None
    return PictureFile(path, f"{image_id}.jpg", parsed.download.shown(path))


def _annotation(
    image_id: str, finding: str, reader: Reader, masks: Masks, polygons: dict[str, dict[str, Polygons]]
) -> Annotation | None:
    """The annotation of one finding; None where nothing was drawn."""
    contours = polygons.get(image_id, {}).get(finding, ())
    if masks.area(image_id, finding) > 0:
        i = masks.index[image_id, finding]
        x, y, width, height = masks.boxes[i]
        return Annotation(
            finding, reader, masks.rles[i], contours, (x, y, width, height), len(contours), masks.areas[i]
        )
    if reader == "ground_truth" or not contours:
        return None
    xs, ys = [x for contour in contours for x, _ in contour], [y for contour in contours for _, y in contour]
    left, top = math.floor(min(xs)), math.floor(min(ys))
    width, height = math.floor(max(xs)) + 1 - left, math.floor(max(ys)) + 1 - top
    return Annotation(finding, reader, None, contours, (left, top, width, height), len(contours), width * height)
