"""CheXlocalize: masks, contours and readers' points for ten findings on CheXpert's validation and test pictures.

Source: Stanford AIMI download (per-user link) as described in the README of rajpurkarlab/cheXlocalize; Saporta et al.
2022 (paper 002). :mod:`reveal_bench.sources.chexlocalize_files` describes the folders and files of the download.

Conversion
-----------------
* There is one record per row of ``val_labels.csv`` (or CheXpert's own ``valid.csv``; "validation") and
  ``test_labels.csv`` ("test"). An image may have no entry in the JSON files, usually because all its labels are
  negative.
* `label_status` comes from the CSV files, masks from ``gt_segmentations_*.json``, contours from
  ``gt_annotations_*.json``. Contradictions between them are counted in warnings, and nothing is dropped. A finding that
  is labelled present but has no mask is `missing`; a mask of a finding that is labelled absent is kept. Another warning
  counts contours whose filled area differs from their mask. If ``groundtruth.csv`` (labels of the test studies,
  published separately) is present, a warning counts labels that differ from it.
* The human benchmark's masks, contours and points belong to the reader "human_benchmark". If the segmentation of a
  reader's annotation is missing, the contours and the box around them are kept without a mask.
* The coded pixels of JPEG files are published unchanged. A picture whose size differs from that of its masks is an
  error; CheXpert-small is refused.
* Heat maps and masks made by models are not references and are set aside. Pickle files are never opened.

The files of a split are checked against each other without decoding a picture: every image id needs a row of labels,
all files must state the same size for an image, and every picture must have the size of its masks. A reader's point on
or beyond the edge of the picture is left out with a warning; the image is kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS, hint
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord, Polygons, Reader, SalientPoint
from reveal_bench.masks import rasterize_polygons
from reveal_bench.sources.boxes import absent_pictures, count_warnings, is_synthetic, no_pictures
from reveal_bench.sources.chexlocalize_files import (
    ANNOTATIONS,
    FOLDERS,
    LABELS,
    ChexlocalizeDownload,
    LabelRow,
    Masks,
    Size,
    find_download,
    index_pictures,
    parse_annotations,
    parse_groundtruth,
    parse_labels,
    parse_masks_file,
    parse_points,
    set_aside,
    study_of,
)
from reveal_bench.sources.pictures import picture_size
from reveal_bench.sources.source import (
    DownloadProblems,
    Inspection,
    MissingPicture,
    Pixels,
    Problem,
    Records,
    SourceData,
    finish,
    set_aside_lines,
)
from reveal_bench.words import count_text

SPLITS = {"validation": "val", "test": "test"}
"""Name of a split in this package -> name of the split in the download."""


@dataclass
class SplitFiles:
    """Parsed contents of the files of a split."""

    name: str
    download: ChexlocalizeDownload
    label_file: str
    labels: dict[str, LabelRow] = field(default_factory=dict)
    truth: Masks = field(default_factory=Masks)
    truth_polygons: dict[str, dict[str, Polygons]] = field(default_factory=dict)
    readers: Masks = field(default_factory=Masks)
    reader_polygons: dict[str, dict[str, Polygons]] = field(default_factory=dict)
    points: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    pictures: dict[str, Path] = field(default_factory=dict)


def parse_splits(
    download: ChexlocalizeDownload, problems: list[Problem], warnings: list[str], *, need_pictures: bool
) -> dict[str, SplitFiles]:
    """Return the parsed files of each split whose label file and mask file are in the download."""
    splits = {}
    for split, suffix in SPLITS.items():
        labels = download.labels(suffix)
        truth = download.annotations / f"gt_segmentations_{suffix}.json"
        if labels is None and not truth.exists():
            warnings.append(f"split {split!r} is missing: there is neither {LABELS[suffix][0]} nor {truth.name}")
            continue
        absent = [name for name, here in ((LABELS[suffix][0], labels), (truth.name, truth.exists())) if not here]
        problems += [Problem(name, None, "file", f"must exist for split {split!r}", "none") for name in absent]
        if labels is not None and not absent:
            parsed = SplitFiles(split, download, labels.name, parse_labels(labels, problems, warnings))
            _parse_annotations(parsed, suffix, problems, warnings)
            _find_pictures(parsed, suffix, problems, warnings, need_pictures=need_pictures)
            splits[split] = parsed
    groundtruth = download.groundtruth()
    if groundtruth is not None and "test" in splits:
        warnings += _differences(parse_groundtruth(groundtruth, problems, warnings), splits["test"])
    return splits


def _parse_annotations(parsed: SplitFiles, suffix: str, problems: list[Problem], warnings: list[str]) -> None:
    folder = parsed.download.annotations
    parsed.truth = parse_masks_file(folder / f"gt_segmentations_{suffix}.json", problems)
    keys: dict[str, set[str]] = {f"gt_segmentations_{suffix}.json": set(parsed.truth.sizes)}
    sizes: list[tuple[str, dict[str, Size]]] = [(f"gt_segmentations_{suffix}.json", parsed.truth.sizes)]
    for reader in ("gt", "hb"):
        path = folder / f"{reader}_annotations_{suffix}.json"
        if path.exists():
            polygons, image_sizes = parse_annotations(path, problems, warnings)
            keys[path.name] = set(polygons)
            sizes.append((path.name, image_sizes))
            if reader == "gt":
                parsed.truth_polygons = polygons
            else:
                parsed.reader_polygons = polygons
        elif reader == "gt" or suffix == "test":
            warnings.append(f"{path.name} is missing: no contours are read from it")
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


def _find_pictures(
    parsed: SplitFiles, suffix: str, problems: list[Problem], warnings: list[str], *, need_pictures: bool
) -> None:
    index = index_pictures(parsed.download, suffix, problems)
    parsed.pictures = index.paths
    warnings += [f"split {parsed.name!r}: {warning}" for warning in index.warnings]
    extra = sorted(set(parsed.pictures) - set(parsed.labels))
    if extra:
        warnings.append(
            f"split {parsed.name!r}: {len(extra):,} pictures have no row in the label file, first {extra[0]}"
        )
    for image_id in parsed.labels if need_pictures else ():
        if image_id not in parsed.pictures:
            rule = f"must be in CheXpert/{' or '.join(FOLDERS[suffix])} when pixels are embedded"
            problems.append(MissingPicture(parsed.label_file, image_id, "picture", rule, "none", image_id))


def _differences(studies: dict[str, dict[str, int | None]], parsed: SplitFiles) -> list[str]:
    """Return warnings that count differences between the labels in ``groundtruth.csv`` and the labels of images."""
    unlike = [
        f"{finding} of {image_id}"
        for image_id, row in parsed.labels.items()
        for finding, status in studies.get(study_of(image_id), row.status).items()
        if row.status[finding] != status
    ]
    of_images = {study_of(image_id) for image_id in parsed.labels}
    counts = {
        f"labels differ from groundtruth.csv (labels are kept), first {', '.join(unlike[:1])}": len(unlike),
        "studies have no row in groundtruth.csv": len(of_images - studies.keys()),
        "studies of groundtruth.csv have no image": len(studies.keys() - of_images),
    }
    return [f"split {parsed.name!r}: {n:,} {what}" for what, n in counts.items() if n and studies]


def _one_size(sizes: list[tuple[str, dict[str, Size]]], problems: list[Problem]) -> dict[str, Size]:
    """Return a dict from image id to (height, width); note a problem if two files state different sizes."""
    first: dict[str, tuple[Size, str]] = {}
    for file, image_sizes in sizes:
        for image_id, size in image_sizes.items():
            before, other = first.setdefault(image_id, (size, file))
            if before != size:
                rule = f"must be {list(before)} ([h, w]) as in {other}"
                problems.append(Problem(file, image_id, "size", rule, str(list(size))))
    return {image_id: size for image_id, (size, _) in first.items()}


def _check_ids(parsed: SplitFiles, keys: dict[str, set[str]], problems: list[Problem]) -> None:
    for file, ids in keys.items():
        for image_id in sorted(ids - set(parsed.labels)):
            value = hint(image_id, parsed.labels)
            problems.append(Problem(file, image_id, "image id", "must be in the label file", value))


def check_sizes(parsed: SplitFiles, problems: list[Problem], warnings: list[str], *, need_all: bool) -> None:
    """Check that pictures have the sizes of their masks, and drop points outside their pictures.

    If a picture is missing, its size comes from the annotations. With `need_all`, an image of unknown size is a
    problem.
    """
    for image_id in parsed.labels:
        path = parsed.pictures.get(image_id)
        if path is None:
            if image_id not in parsed.sizes and need_all:
                problems.append(
                    Problem(
                        parsed.label_file, image_id, "size", "must be known from a picture or an annotation", "none"
                    )
                )
            continue
        name = parsed.download.path_text(path)
        try:
            size = picture_size(path)
        except ValueError as error:
            problems.append(Problem(name, image_id, "picture", "must be readable", str(error)))
            continue
        expected = parsed.sizes.setdefault(image_id, size)
        if size != expected:
            rule = f"must be {expected[1]} x {expected[0]} pixels like its masks (CheXpert-small is smaller)"
            problems.append(Problem(name, image_id, "size", rule, f"{size[1]} x {size[0]}"))
    warnings += _drop_points_outside(parsed)


def _drop_points_outside(parsed: SplitFiles) -> list[str]:
    """Remove points outside their pictures; return a list with one warning about the removed points, or []."""
    outside: list[str] = []
    for image_id, by_finding in parsed.points.items():
        height, width = parsed.sizes.get(image_id, (math.inf, math.inf))
        for finding, points in by_finding.items():
            inside = [(x, y) for x, y in points if 0 <= x < width and 0 <= y < height]
            outside += [
                f"{finding} of {image_id} ({x:g}, {y:g}) in {width} x {height}"
                for x, y in points
                if (x, y) not in inside
            ]
            by_finding[finding] = inside
    if not outside:
        return []
    file = f"hb_salient_pt_{SPLITS[parsed.name]}.json"
    rule = f"{count_text(len(outside), 'point')} on or beyond the edge of the picture left out; the image is kept"
    return [f"{file}: {rule}: {'; '.join(outside)}"]


def contradictions(split: str, parsed: SplitFiles) -> list[str]:
    """Return warnings that count disagreements between labels, masks and readers."""
    undrawn = unlabelled = 0
    for image_id, row in parsed.labels.items():
        for finding, status in row.status.items():
            has_mask = parsed.truth.area(image_id, finding) > 0
            undrawn += status == 1 and not has_mask
            unlabelled += status != 1 and has_mask
    without = [image_id for image_id in parsed.reader_polygons if image_id not in parsed.readers.sizes]
    counts = {
        ("finding", "labelled present, without a mask (kept as `missing`)"): undrawn,
        ("finding", "with a mask, not labelled present (kept)"): unlabelled,
        ("image", "with a reader's contours but no segmentation (kept without a mask)"): len(without),
    }
    return [f"split {split!r}: {count_text(n, noun)} {what}" for (noun, what), n in counts.items() if n]


PUBLISHED = {
    "validation images": 234,
    "validation patients": 200,
    "validation images with masks": 187,
    "test images": 668,
    "test patients": 500,
    "test images with masks": 499,
}
"""Counts that the paper and the released files state."""


def detect(root: Path) -> float:
    """Return 1 if `root` contains the annotation files, directly or in folders named ``chexlocalize``; else 0."""
    return 1.0 if find_download(Path(root)) is not None else 0.0


def inspect(root: Path, *, pictures: Path | None = None) -> Inspection:
    """Return the counts, problems and warnings of all files; only the headers of pictures are read.

    Raises
    ------
    ValueError
        If `root` does not hold the download.
    """
    root = Path(root)
    download = _download(root, pictures)
    problems = DownloadProblems()
    warnings: list[str] = []
    splits = parse_splits(download, problems, warnings, need_pictures=False)
    counts: dict[str, int] = {}
    pictured: list[bool] = []
    for split, parsed in splits.items():
        check_sizes(parsed, problems, warnings, need_all=False)
        counts[f"{split} images"] = len(parsed.labels)
        counts[f"{split} patients"] = len({_patient(image_id) for image_id in parsed.labels})
        counts[f"{split} images with masks"] = len({image_id for image_id, _ in parsed.truth.index})
        counts[f"{split} masks"] = sum(area > 0 for area in parsed.truth.areas)
        counts[f"{split} pictures"] = len(parsed.pictures)
        pictured += [image_id in parsed.pictures for image_id in parsed.labels]
        warnings += contradictions(split, parsed)
    synthetic = is_synthetic(root, download.annotations.glob("*.json"))
    warnings += [] if synthetic else count_warnings(counts, PUBLISHED)
    return Inspection(
        source="chexlocalize",
        root=root,
        files={path.stem: _from(root, path, download) for path in _files(download)},
        counts=counts,
        expected=PUBLISHED,
        problems=problems,
        warnings=[*warnings, *absent_pictures(pictured), *set_aside_lines(set_aside(download))],
        synthetic=synthetic,
    )


def read(root: Path, *, pixels: Pixels = "embed", keep_going: bool = False, pictures: Path | None = None) -> SourceData:
    """Return records and warnings of the splits "validation" and "test"; a split without files is left out.

    Parameters
    ----------
    root : folder of the download, or a folder around it
    pixels : with "withhold", only images whose size no annotation states need a picture
    keep_going : leave out images with a problem instead of raising
    pictures : a folder with CheXpert's pictures, if they are not in the download

    Raises
    ------
    BuildError
        With every problem that can be found without decoding pictures.
    ValueError
        If `root` does not hold the download.
    """
    root = Path(root)
    download = _download(root, pictures)
    problems = DownloadProblems()
    warnings: list[str] = []
    splits = parse_splits(download, problems, warnings, need_pictures=pixels == "embed")
    for parsed in splits.values():
        check_sizes(parsed, problems, warnings, need_all=pixels == "withhold")
    whole = [problem for problem in problems if not isinstance(problem.row, str)]
    if whole:  # a broken file or line belongs to no single image, so no image can be left out for it
        finish(problems, warnings, keep_going=False)
    bad = {str(problem.row) for problem in problems}
    left_out = finish(problems, warnings, keep_going=keep_going)
    for split, parsed in splits.items():
        parsed.labels = {image_id: row for image_id, row in parsed.labels.items() if image_id not in bad}
        warnings += contradictions(split, parsed)
        if pixels == "withhold":
            n_without = len(parsed.labels.keys() - parsed.pictures.keys())
            warnings += [f"split {split!r}: {warning}" for warning in no_pictures(n_without)]
    return SourceData(
        {split: Records(partial(_records, parsed, warnings), len(parsed.labels)) for split, parsed in splits.items()},
        warnings,
        set_aside=set_aside(download),
        left_out=left_out,
        synthetic=is_synthetic(root, download.annotations.glob("*.json")),
    )


def _files(download: ChexlocalizeDownload) -> list[Path]:
    labels = [download.labels(suffix) for suffix in SPLITS.values()]
    paths = [*download.annotations.glob("*.json"), *labels, download.groundtruth()]
    return sorted(path for path in paths if path is not None and not path.name.startswith("."))


def _from(root: Path, path: Path, download: ChexlocalizeDownload) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else download.path_text(path)


def _download(root: Path, pictures: Path | None) -> ChexlocalizeDownload:
    download = find_download(root, pictures)
    if download is None:
        raise ArgumentError("root", f"must contain {ANNOTATIONS}/gt_segmentations_*.json", root)
    return download


def _patient(image_id: str) -> str:
    return image_id.split("_")[0]


def _records(parsed: SplitFiles, warnings: list[str]) -> Iterator[LocalizationRecord]:
    unlike: Counter[str] = Counter()
    for row in parsed.labels.values():
        yield _record(row, parsed, unlike)
    if unlike["differ"]:
        warning = (
            f"split {parsed.name!r}: {unlike['differ']:,} of {unlike['compared']:,} ground-truth contours "
            "differ from their published mask when filled (the mask is used)"
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
        for finding, clicks in parsed.points.get(image_id, {}).items()
        for x, y in clicks
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
    return PictureFile(path, f"{image_id}.jpg", parsed.download.path_text(path))


def _annotation(
    image_id: str, finding: str, reader: Reader, masks: Masks, polygons: dict[str, dict[str, Polygons]]
) -> Annotation | None:
    """Return the annotation of a finding on an image, or None if nothing was drawn."""
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
