"""ChestX-Det: boxes and polygons of thirteen findings on NIH ChestX-ray14 images.

Source: Deepwise-AILab/ChestX-Det-Dataset, ``ChestX_Det_test.json`` (and ``_train``), annotations under Apache-2.0. Each
file is a JSON list with an entry per image: ``{"file_name": "36302.png", "syms": [...], "boxes": [[x0, y0, x1, y1],
...], "polygons": [[[x, y], ...], ...]}``, where the three lists have one element per instance.

Conventions
-----------
* Every picture is 1024 x 1024 pixels; coordinates are whole pixels in [0, 1024].
* Several instances of one finding become one annotation. Its mask is the union of their polygons, filled by
  :func:`reveal_bench.masks.rasterize_polygons`, its box is the tight box of that union, and `n_instances` is their
  number. The source's own boxes are kept in `boxes_xywh`.
* Readers searched every image for all thirteen findings, so a finding without an instance is absent (0).
* The source publishes neither patients, studies nor views: `patient_id` and `study_id` repeat the image id.
* An image must have exactly one entry in the two files together. With `keep_going`, an image with a faulty entry or two
  entries is left out.
* The published download contains no pictures. PNG files are searched for below `pictures`, by default below the
  download.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from reveal_bench.findings import CHESTX_DET_FINDINGS, canonical_finding
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import rasterize_polygons
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    NIH_SIDE,
    NO_PATIENTS,
    Faults,
    annotate_mask,
    find_files,
    known_finding,
    nih_record,
    xyxy_to_xywh,
)
from reveal_bench.sources.source import Extra, Problem, Records, read_json

PUBLISHED = {"test images": 553, "test instances": 1734, "test images without a finding": 64}
"""Counts of the published test file."""

FILES = {"annotations_train": ["ChestX_Det_train.json"], "annotations_test": ["ChestX_Det_test.json"]}
KEYS = {"file_name", "syms", "boxes", "polygons"}
Entry = dict[str, Any]


def _make(build: BoxBuild[_SplitEntries]) -> tuple[dict[str, Records], list[Extra]]:
    parsed, faults = build.parsed, build.faults
    films = build.films([".png"])
    images: dict[str, PictureFile | None] = {}
    for split, entries in parsed.entries.items():
        for image_id, number, _ in entries:
            file = build.files[f"annotations_{split}"].name
            images[image_id] = films.picture(image_id, faults, file=file, row=number)
    build.warnings += films.warnings(images)
    build.settle()
    build.warnings.append(NO_PATIENTS)
    records = {
        split: [(image_id, entry) for image_id, _, entry in entries if image_id not in faults.bad]
        for split, entries in parsed.entries.items()
    }
    return {split: Records(partial(_records, entries, images), len(entries)) for split, entries in records.items()}, []


@dataclass
class _SplitEntries:
    """Well-formed `entries` by split, each as (image id, 1-based number, entry).

    `first_of` is a dict from image id to (file, number) of the image's first entry.
    """

    entries: dict[str, list[tuple[str, int, Entry]]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    first_of: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> _SplitEntries:
        parsed = cls()
        for role, path in files.items():
            parsed._add(role.removeprefix("annotations_"), path, faults)
        return parsed

    def _add(self, split: str, path: Path, faults: Faults) -> None:
        everything = read_json(path, list, lambda problem: faults.add(problem, None))
        good = self.entries[split] = []
        for number, entry in enumerate(everything, start=1):
            problems = _entry_problems(entry, number, path.name)
            name = entry.get("file_name") if isinstance(entry, dict) else None
            image_id = name.removesuffix(".png") if isinstance(name, str) else f"entry {number} of {path.name}"
            if not problems and image_id in self.first_of:
                file, row = self.first_of[image_id]
                value = f"{name!r}, also entry {row}" + ("" if file == path.name else f" of {file}")
                problems = [Problem(path.name, number, "file_name", "must be unique", value)]
            self.first_of.setdefault(image_id, (path.name, number))
            for problem in problems:
                faults.add(problem, image_id)
            if not problems:
                good.append((image_id, number, entry))
        self.counts[f"{split} images"] = len(everything)
        self.counts[f"{split} instances"] = sum(len(entry["syms"]) for _, _, entry in good)
        self.counts[f"{split} images without a finding"] = sum(not entry["syms"] for _, _, entry in good)


def _entry_problems(entry: Any, number: int, file: str) -> list[Problem]:
    """Return the problems of one entry; its lists are only checked if its keys and file name are valid."""

    def problem(field: str, rule: str, value: object) -> Problem:
        return Problem(file, number, field, rule, str(value))

    if not isinstance(entry, dict) or KEYS - entry.keys():
        got = ", ".join(sorted(entry)) if isinstance(entry, dict) else type(entry).__name__
        return [problem("entry", f"must have the keys {', '.join(sorted(KEYS))}", got)]
    name, lists = entry["file_name"], [entry[key] for key in ("syms", "boxes", "polygons")]
    if not isinstance(name, str) or not name.endswith(".png") or "/" in name:
        return [problem("file_name", "must be a PNG file name", repr(name))]
    if not all(isinstance(values, list) for values in lists) or len({len(values) for values in lists}) > 1:
        lengths = ", ".join(str(len(values)) if isinstance(values, list) else repr(values) for values in lists)
        return [problem("syms, boxes, polygons", "must be lists of equal length", lengths)]
    problems = []
    for sym, box, polygon in zip(*lists, strict=True):
        finding, name_text = known_finding(str(sym), CHESTX_DET_FINDINGS)
        if finding is None or not isinstance(sym, str):
            problems.append(problem("syms", "must be one of the 13 findings", name_text))
        if not _is_box(box):
            problems.append(problem("boxes", f"must be x0 < x1, y0 < y1 in [0, {NIH_SIDE}]", box))
        if not isinstance(polygon, list) or len(polygon) < 2:
            problems.append(problem("polygons", "must have at least 2 vertices", str(polygon)[:80]))
        else:
            outside = next((vertex for vertex in polygon if not _is_vertex(vertex)), None)
            if outside is not None:
                problems.append(problem("polygons", f"must have vertices [x, y] in [0, {NIH_SIDE}]", outside))
    return problems


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= NIH_SIDE


def _is_vertex(vertex: object) -> bool:
    return isinstance(vertex, list) and len(vertex) == 2 and all(_is_number(value) for value in vertex)


def _is_box(box: object) -> bool:
    if not isinstance(box, list) or len(box) != 4 or not all(_is_number(value) for value in box):
        return False
    return bool(box[0] < box[2] and box[1] < box[3])


def _records(entries: list[tuple[str, Entry]], images: dict[str, PictureFile | None]) -> Iterator[LocalizationRecord]:
    for image_id, entry in entries:
        yield _record(image_id, entry, images[image_id])


def _record(image_id: str, entry: Entry, picture: PictureFile | None) -> LocalizationRecord:
    indices: dict[str, list[int]] = {}
    for i, sym in enumerate(entry["syms"]):
        indices.setdefault(canonical_finding(sym, CHESTX_DET_FINDINGS) or sym, []).append(i)
    return nih_record(
        image_id,
        {finding: int(finding in indices) for finding in CHESTX_DET_FINDINGS},
        (_annotation(f, entry, indices[f]) for f in CHESTX_DET_FINDINGS if f in indices),
        picture,
    )


def _annotation(finding: str, entry: Entry, instances: list[int]) -> Annotation:
    polygons = tuple(tuple((float(x), float(y)) for x, y in entry["polygons"][i]) for i in instances)
    corners = [[float(value) for value in entry["boxes"][i]] for i in instances]
    return annotate_mask(
        finding,
        rasterize_polygons(polygons, (NIH_SIDE, NIH_SIDE)),
        len(instances),
        polygons=polygons,
        boxes=[xyxy_to_xywh((x0, y0, x1, y1)) for x0, y0, x1, y1 in corners],
    )


SOURCE = BoxSource(
    name="chestx-det",
    needs="ChestX_Det_test.json",
    published=PUBLISHED,
    find=lambda root: find_files(root, FILES),
    parse=_SplitEntries.of,
    count=lambda parsed: parsed.counts,
    pictured=lambda build: build.films([".png"]).present(build.parsed.first_of),
    make=_make,
)
detect, inspect, read = SOURCE.detect, SOURCE.inspect, SOURCE.read
