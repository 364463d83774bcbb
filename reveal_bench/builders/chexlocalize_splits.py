"""One split of CheXlocalize: its files parsed and held against each other, without decoding a picture.

What the files say of one image must fit: every id has a label row, every file one size per image, every picture the
size of its masks. A reader's point on or past the edge of its picture is left out and told; its image stays. Where
labels, masks, readers and study-level labels disagree about findings nothing is dropped: :func:`contradictions` and a
``groundtruth.csv`` only count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.builders.box_files import counted
from reveal_bench.builders.chexlocalize_files import (
    LabelRow,
    Masks,
    Size,
    parse_annotations,
    parse_groundtruth,
    parse_labels,
    parse_masks_file,
    parse_points,
)
from reveal_bench.builders.chexlocalize_places import FOLDERS, LABELS, Download, index_pictures, study_of
from reveal_bench.builders.pictures import picture_size
from reveal_bench.builders.source import Problem
from reveal_bench.findings import hint
from reveal_bench.records import Polygons

__all__ = ["SPLITS", "SplitFiles", "check_sizes", "contradictions", "parse_splits"]

SPLITS = {"validation": "val", "test": "test"}
"""Name of a split here -> in the download."""


@dataclass
class SplitFiles:
    """Everything parsed of one split."""

    name: str
    download: Download
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
    download: Download, problems: list[Problem], warnings: list[str], *, need_pictures: bool
) -> dict[str, SplitFiles]:
    """The splits whose files are there, each parsed as a whole."""
    splits = {}
    for split, suffix in SPLITS.items():
        labels = download.labels(suffix)
        truth = download.annotations / f"gt_segmentations_{suffix}.json"
        if labels is None and not truth.exists():
            warnings.append(f"split {split!r} is not here: neither {LABELS[suffix][0]} nor {truth.name}")
            continue
        absent = [name for name, here in ((LABELS[suffix][0], labels), (truth.name, truth.exists())) if not here]
        problems += [Problem(name, None, "file", f"must be there for split {split!r}", "none") for name in absent]
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
            problems.append(Problem(parsed.label_file, image_id, "picture", rule, "none"))


def _differences(studies: dict[str, dict[str, int | None]], parsed: SplitFiles) -> list[str]:
    """Where the labels of studies and those of their images differ, counted."""
    unlike = [
        f"{finding} of {image_id}"
        for image_id, row in parsed.labels.items()
        for finding, status in studies.get(study_of(image_id), row.status).items()
        if row.status[finding] != status
    ]
    of_images = {study_of(image_id) for image_id in parsed.labels}
    found = {
        f"labels differ from groundtruth.csv (kept), first {', '.join(unlike[:1])}": len(unlike),
        "studies have no row in groundtruth.csv": len(of_images - studies.keys()),
        "studies of groundtruth.csv have no image": len(studies.keys() - of_images),
    }
    return [f"split {parsed.name!r}: {n:,} {what}" for what, n in found.items() if n and studies]


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


def _check_ids(parsed: SplitFiles, keys: dict[str, set[str]], problems: list[Problem]) -> None:
    for file, ids in keys.items():
        for image_id in sorted(ids - set(parsed.labels)):
            value = hint(image_id, parsed.labels)
            problems.append(Problem(file, image_id, "image id", "must be in the label file", value))


def check_sizes(parsed: SplitFiles, problems: list[Problem], warnings: list[str], *, need_all: bool) -> None:
    """Sizes from the pictures' headers must be those of the masks; points beside their pictures are left out.

    Without pictures the masks' sizes are all there is; with `need_all` an image of unknown size is a problem.
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
        name = parsed.download.shown(path)
        try:
            size = picture_size(path)
        except ValueError as error:
            problems.append(Problem(name, image_id, "picture", "must be readable", str(error)))
            continue
        expected = parsed.sizes.setdefault(image_id, size)
        if size != expected:
            rule = f"must be {expected[1]} x {expected[0]} pixels as its masks (CheXpert-small does not fit them)"
            problems.append(Problem(name, image_id, "size", rule, f"{size[1]} x {size[0]}"))
    warnings += _drop_points_outside(parsed)


def _drop_points_outside(parsed: SplitFiles) -> list[str]:
    """Take out the points that do not lie in their picture, from 0 to below its sides; a warning that lists them."""
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
    left = f"{counted(len(outside), 'point')} on or past the edge of the picture left out, the image stays"
    return [f"{file}: {left}: {'; '.join(outside)}"]


def contradictions(split: str, parsed: SplitFiles) -> list[str]:
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
