"""CheXlocalize: masks, contours and readers' points for ten findings on CheXpert's validation and test pictures.

Source: Stanford AIMI download (per-user link) as described in the README of rajpurkarlab/cheXlocalize; Saporta et al.
2022 (paper 002). The download's files and traps are in :mod:`reveal_bench.builders.chexlocalize_files`.

What becomes what
-----------------
* One record per row of ``val_labels.csv`` ("validation") and ``test_labels.csv`` ("test"). A picture without an entry
  in the JSON files has no positive finding, unless its labels say otherwise.
* `label_status` is the CSV's; masks are ``gt_segmentations``'; contours are ``gt_annotations``'. Where they contradict
  each other nothing is dropped: a finding that is labelled present and has no mask is `missing`; a mask of a finding
  that is labelled absent stays; both are counted in the warnings, and so are contours that do not fill to their mask.
* The human benchmark's masks, contours and points are of the reader "human_benchmark". A reader's annotation whose
  segmentation is missing keeps its contours and the box around them, without a mask.
* JPEG bytes pass unchanged. A picture whose size is not that of its masks is an error; the smaller pictures of
  CheXpert-small are refused by this.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.builders.chexlocalize_files import (
    ANNOTATIONS,
    PARTIAL,
    PICTURES,
    LabelRow,
    Masks,
    Size,
    find_download,
    index_pictures,
    parse_annotations,
    parse_labels,
    parse_masks_file,
    parse_points,
)
from reveal_bench.builders.pictures import ORIGINAL, Picture, picture_size, read_picture
from reveal_bench.builders.source import SYNTHETIC_MARKER, Inspection, Pixels, Problem, Reading, finish
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.masks import rasterize_polygons
from reveal_bench.records import Annotation, LocalizationRecord, Polygons, Reader, SalientPoint

__all__ = ["PUBLISHED", "SPLITS", "detect", "inspect", "read"]

SPLITS = {"validation": "val", "test": "test"}
"""Name of a split here -> in the download."""

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


def inspect(root: Path) -> Inspection:
    """Parse every file but the pictures' pixels; list counts, problems and warnings."""
    root = Path(root)
    download = find_download(root)
    if download is None:
        problem = Problem(str(ANNOTATIONS), None, "folder", "must hold gt_segmentations_*.json", "none")
        return Inspection(builder="chexlocalize", root=root, problems=[problem])
    problems: list[Problem] = []
    warnings: list[str] = []
    splits = _parse(download, problems, warnings, need_pictures=False)
    counts: dict[str, int] = {}
    for split, parsed in splits.items():
        counts[f"{split} images"] = len(parsed.labels)
        counts[f"{split} patients"] = len({_patient(image_id) for image_id in parsed.labels})
        counts[f"{split} images with masks"] = len({image_id for image_id, _ in parsed.truth.index})
        counts[f"{split} masks"] = sum(area > 0 for area in parsed.truth.areas)
        counts[f"{split} pictures"] = len(parsed.pictures)
        warnings += _contradictions(split, parsed)
    synthetic = _is_synthetic(root, download)
    if not synthetic:
        warnings += [
            f"{what}: published are {expected:,}, here are {counts[what]:,}"
            for what, expected in PUBLISHED.items()
            if what in counts and counts[what] != expected
        ]
    return Inspection(
        builder="chexlocalize",
        root=root,
        files={path.stem: path.relative_to(root).as_posix() for path in _files(download)},
        counts=counts,
        expected=PUBLISHED,
        problems=problems,
        warnings=[*warnings, *_passed_over(download)],
        synthetic=synthetic,
    )


def read(root: Path, *, pixels: Pixels = "embed", keep_going: bool = False) -> Reading:
    """Records per split ("validation", "test": those whose files are there) and warnings.

    Parameters
    ----------
    root : the download, however nested
    pixels : "withhold" needs no pictures where an image's size is known from its annotations
    keep_going : leave out images with a problem instead of raising

    Raises
    ------
    BuildError
        With every problem that shows without decoding pictures. An iterator raises another at its end for pictures
        that turned out to be unreadable.
    ValueError
        If `root` does not hold the download.
    """
    download = find_download(Path(root))
    if download is None:
        raise ValueError(f"`root` must hold {ANNOTATIONS}/gt_segmentations_*.json, got {root}")
    problems: list[Problem] = []
    warnings: list[str] = []
    splits = _parse(download, problems, warnings, need_pictures=pixels == "embed")
    for parsed in splits.values():
        _check_sizes(parsed, problems, need_pictures=pixels == "embed")
    whole = [problem for problem in problems if not isinstance(problem.row, str)]
    if whole:  # a broken file or line belongs to no image that could be left out
        finish(problems, warnings, keep_going=False)
    bad = {str(problem.row) for problem in problems}
    finish(problems, warnings, keep_going=keep_going)
    for split, parsed in splits.items():
        parsed.labels = {image_id: row for image_id, row in parsed.labels.items() if image_id not in bad}
        warnings += _contradictions(split, parsed)
    return {
        split: _records(parsed, warnings, embed=pixels == "embed", keep_going=keep_going)
        for split, parsed in splits.items()
    }, warnings


@dataclass
class _Split:
    """Everything parsed of one split."""

    name: str
    root: Path
    labels: dict[str, LabelRow] = field(default_factory=dict)
    truth: Masks = field(default_factory=Masks)
    truth_polygons: dict[str, dict[str, Polygons]] = field(default_factory=dict)
    readers: Masks = field(default_factory=Masks)
    reader_polygons: dict[str, dict[str, Polygons]] = field(default_factory=dict)
    points: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    pictures: dict[str, Path] = field(default_factory=dict)


def _files(download: Path) -> list[Path]:
    paths = [*(download / ANNOTATIONS).glob("*.json"), *(download / PICTURES).glob("*.csv")]
    return sorted(path for path in paths if not path.name.startswith("."))


def _is_synthetic(root: Path, download: Path) -> bool:
    return (root / SYNTHETIC_MARKER).exists() or (download / SYNTHETIC_MARKER).exists()


def _passed_over(download: Path) -> list[str]:
    parts = sum(1 for _ in download.rglob(f"{PARTIAL}*"))
    pickles = sum(1 for _ in download.rglob("*.pkl"))
    found = [f"{parts:,} interrupted downloads ({PARTIAL}*) are passed over"] if parts else []
    return found + ([f"{pickles:,} pickled heat maps are never opened (a pickle can run code)"] if pickles else [])


def _patient(image_id: str) -> str:
    return image_id.split("_")[0]


def _parse(download: Path, problems: list[Problem], warnings: list[str], *, need_pictures: bool) -> dict[str, _Split]:
    splits = {}
    for split, suffix in SPLITS.items():
        labels = download / PICTURES / f"{suffix}_labels.csv"
        truth = download / ANNOTATIONS / f"gt_segmentations_{suffix}.json"
        if not labels.exists() and not truth.exists():
            warnings.append(f"split {split!r} is not here: neither {labels.name} nor {truth.name}")
            continue
        absent = [path for path in (labels, truth) if not path.exists()]
        problems += [Problem(path.name, None, "file", f"must be there for split {split!r}", "none") for path in absent]
        if not absent:
            splits[split] = _parse_split(download, split, suffix, problems, warnings, need_pictures=need_pictures)
    return splits


def _parse_split(
    download: Path, split: str, suffix: str, problems: list[Problem], warnings: list[str], *, need_pictures: bool
) -> _Split:
    folder = download / ANNOTATIONS
    parsed = _Split(split, download)
    parsed.labels = parse_labels(download / PICTURES / f"{suffix}_labels.csv", problems, warnings)
    parsed.truth = parse_masks_file(folder / f"gt_segmentations_{suffix}.json", problems)
    keys: dict[str, set[str]] = {f"gt_segmentations_{suffix}.json": set(parsed.truth.sizes)}
    sizes: list[tuple[str, dict[str, Size]]] = [(f"gt_segmentations_{suffix}.json", parsed.truth.sizes)]
    for reader in ("gt", "hb"):
        path = folder / f"{reader}_annotations_{suffix}.json"
        if path.exists():
            polygons, found = parse_annotations(path, problems, warnings)
            keys[path.name] = set(polygons)
            sizes.append((path.name, found))
            if reader == "gt":
                parsed.truth_polygons = polygons
            else:
                parsed.reader_polygons = polygons
        elif reader == "gt" or suffix == "test":
            warnings.append(f"{path.name} is not here: no contours of it")
    path = folder / f"hb_segmentations_{suffix}.json"
    if path.exists():
        parsed.readers = parse_masks_file(path, problems)
        keys[path.name] = set(parsed.readers.sizes)
        sizes.append((path.name, parsed.readers.sizes))
    path = folder / f"hb_salient_pt_{suffix}.json"
    if path.exists():
        parsed.points = parse_points(path, problems)
        keys[path.name] = set(parsed.points)
    parsed.sizes = _one_size(sizes, problems)
    _check_ids(parsed, keys, problems)
    _check_points(parsed, path.name, problems)
    parsed.pictures = index_pictures(download, suffix, problems)
    extra = sorted(set(parsed.pictures) - set(parsed.labels))
    if extra:
        warnings.append(f"split {split!r}: {len(extra):,} pictures have no row in the label file, first {extra[0]}")
    for image_id in parsed.labels if need_pictures else ():
        if image_id not in parsed.pictures:
            rule = f"must be in {PICTURES}/{suffix} when pixels are embedded"
            problems.append(Problem(f"{suffix}_labels.csv", image_id, "picture", rule, "none"))
    return parsed


def _one_size(sizes: list[tuple[str, dict[str, Size]]], problems: list[Problem]) -> dict[str, Size]:
    """(height, width) per image, the same in every file."""
    first: dict[str, tuple[Size, str]] = {}
    for file, found in sizes:
        for image_id, size in found.items():
            before, other = first.setdefault(image_id, (size, file))
            if before != size:
                rule = f"must be {list(before)} ([h, w]) as in {other}"
                problems.append(Problem(file, image_id, "size", rule, str(list(size))))
    return {image_id: size for image_id, (size, _) in first.items()}


def _check_ids(parsed: _Split, keys: dict[str, set[str]], problems: list[Problem]) -> None:
    for file, ids in keys.items():
        for image_id in sorted(ids - set(parsed.labels)):
            near = difflib.get_close_matches(image_id, parsed.labels, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            problems.append(Problem(file, image_id, "image id", "must be in the label file", f"{image_id}{hint}"))


def _check_points(parsed: _Split, file: str, problems: list[Problem]) -> None:
    for image_id, by_finding in parsed.points.items():
        height, width = parsed.sizes.get(image_id, (0, 0))
        for finding, points in by_finding.items():
            for x, y in points:
                if height and not (0 <= x < width and 0 <= y < height):
                    rule = f"must lie in the picture of {width} x {height}"
                    problems.append(Problem(file, image_id, finding, rule, f"({x}, {y})"))


def _check_sizes(parsed: _Split, problems: list[Problem], *, need_pictures: bool) -> None:
    """Sizes from the pictures' headers must be those of the masks; without pictures the masks' are all there is."""
    for image_id in parsed.labels:
        path = parsed.pictures.get(image_id)
        if path is None:
            if image_id not in parsed.sizes and not need_pictures:
                file = f"{SPLITS[parsed.name]}_labels.csv"
                problems.append(
                    Problem(file, image_id, "size", "must be known from a picture or an annotation", "none")
                )
            continue
        name = path.relative_to(parsed.root).as_posix()
        try:
            size = picture_size(path)
        except ValueError as error:
            problems.append(Problem(name, image_id, "picture", "must be readable", str(error)))
            continue
        expected = parsed.sizes.setdefault(image_id, size)
        if size != expected:
            rule = f"must be {expected[1]} x {expected[0]} pixels as its masks (CheXpert-small does not fit them)"
            problems.append(Problem(name, image_id, "size", rule, f"{size[1]} x {size[0]}"))


def _contradictions(split: str, parsed: _Split) -> list[str]:
    """Where labels, masks and readers do not agree, counted."""
    undrawn = unlabelled = 0
    for image_id, row in parsed.labels.items():
        for finding, status in row.status.items():
            has_mask = parsed.truth.area(image_id, finding) > 0
            undrawn += status == 1 and not has_mask
            unlabelled += status != 1 and has_mask
    without = [image_id for image_id in parsed.reader_polygons if image_id not in parsed.readers.sizes]
    found = {
        "findings are labelled present and have no mask (kept as `missing`)": undrawn,
        "findings have a mask and are not labelled present (kept)": unlabelled,
        "images have a reader's annotation without a segmentation (kept without a mask)": len(without),
    }
    return [f"split {split!r}: {n:,} {what}" for what, n in found.items() if n]


def _records(parsed: _Split, warnings: list[str], *, embed: bool, keep_going: bool) -> Iterator[LocalizationRecord]:
    problems: list[Problem] = []
    unlike: Counter[str] = Counter()
    for row in parsed.labels.values():
        path = parsed.pictures.get(row.image_id)
        picture = None
        if path is not None:
            try:
                picture = read_picture(path)
            except ValueError as error:
                name = path.relative_to(parsed.root).as_posix()
                problems.append(Problem(name, row.image_id, "picture", "must be readable", str(error)))
                continue
        yield _record(row, parsed, picture, unlike, embed=embed)
    if unlike["differ"]:
        warnings.append(
            f"split {parsed.name!r}: {unlike['differ']:,} of {unlike['compared']:,} ground-truth contours do not fill "
            "to their published mask (the mask is used)"
        )
    finish(problems, warnings, keep_going=keep_going)


def _record(
    row: LabelRow, parsed: _Split, picture: Picture | None, unlike: Counter[str], *, embed: bool
) -> LocalizationRecord:
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
    patient, study, _ = image_id.split("_", 2)
    return LocalizationRecord(
        image_id=image_id,
        patient_id=patient,
        study_id=f"{patient}_{study}",
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
        image=picture.data if picture is not None and embed else None,
        image_name=f"{image_id}.jpg",
        source_sha256=picture.source_sha256 if picture is not None else None,
        pixel_sha256=picture.pixel_sha256 if picture is not None else None,
        pixel_pipeline=ORIGINAL if picture is not None and embed else "withheld",
    )


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
