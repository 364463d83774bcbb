"""NIH ChestX-ray14 boxes: 984 hand-drawn boxes of eight findings on 880 images.

Source: NIH Clinical Center, ``BBox_List_2017.csv`` (Wang et al. 2017), plain or gzip, and the collection's PNG files.

Conventions
-----------
* Every picture is 1024 x 1024 pixels; coordinates are pixels with decimals. In the table's header the columns of a box
  are ``Bbox [x``, ``y``, ``w`` and ``h]``; three more columns have neither names nor values.
* The table spells "Infiltrate" where the collection's labels have "Infiltration"; "Infiltration" is used.
* Only images with a box are part of the dataset. Not every finding of these images was boxed, so a finding without a
  box is unlabelled, not absent. The collection's own labels, which a program extracted from reports, are not used.
* A picture's name begins with the id of the patient. The view is known if ``Data_Entry_2017*.csv`` is in the download.
* The pixel spacing that the collection publishes refers to the original images, not to these rescaled pictures, so
  records have no spacing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.findings import NIH_BOX_FINDINGS
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    NIH_SIDE,
    BoxRow,
    Faults,
    annotate_boxes,
    count_views,
    find_file,
    find_files,
    known_finding,
    nih_record,
    read_box,
    read_table,
)
from reveal_bench.sources.source import Extra

PUBLISHED = {"boxes": 984, "images": 880}
"""Numbers of boxes and images in the published table."""

LIST, ENTRIES = ("BBox_List_2017*.csv", "BBox_List_2017*.csv.gz"), ("Data_Entry_2017*.csv", "Data_Entry_2017*.csv.gz")
NAME, LABEL, BOX = "Image Index", "Finding Label", ("Bbox [x", "y", "w", "h]")
_FILE = re.compile(r"(\d{8})_\d{3}\.png")


@dataclass(frozen=True)
class _List:
    """Boxes by image id and finding, and the first row of each image."""

    boxes: dict[str, dict[str, list[Box]]] = field(default_factory=dict)
    first_of: dict[str, BoxRow] = field(default_factory=dict)


def _make(build: BoxBuild[_List]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
    boxes, first_of = build.parsed.boxes, build.parsed.first_of
    entries = find_file(build.root if build.root.is_dir() else build.root.parent, *ENTRIES)
    views = {} if entries is None else _read_views(entries, boxes.keys(), build)
    films = build.films([".png"])
    files = films.pictures_of(first_of, build.faults)
    build.warnings += films.warnings(first_of)
    build.settle()
    records = [
        _record(image_id, own_boxes, views.get(image_id), files.get(image_id))
        for image_id, own_boxes in boxes.items()
        if image_id not in build.faults.bad
    ]
    return {"test": records}, []


def _parse(files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> _List:
    parsed = _List()
    for row in read_table(files["boxes"], (NAME, LABEL, *BOX), faults, warnings):
        if _FILE.fullmatch(row[NAME]) is None:
            faults.add(row.problem(NAME, "must look like 00000001_000.png", repr(row[NAME])), None)
            continue
        image_id = row[NAME].removesuffix(".png")
        parsed.first_of.setdefault(image_id, row)
        finding, value = known_finding(row[LABEL], NIH_BOX_FINDINGS)
        if finding is None:
            faults.add(row.problem(LABEL, f"must be one of the {len(NIH_BOX_FINDINGS)} findings", value), image_id)
        box = read_box(row, BOX, faults, image_id, form="xywh", size=(NIH_SIDE, NIH_SIDE))
        if finding is not None and box is not None:
            parsed.boxes.setdefault(image_id, {}).setdefault(finding, []).append(box)
    return parsed


def _counts(parsed: _List) -> dict[str, int]:
    n_boxes = sum(len(own_boxes) for by_finding in parsed.boxes.values() for own_boxes in by_finding.values())
    patients = {_patient(image_id) for image_id in parsed.first_of}
    return {"boxes": n_boxes, "images": len(parsed.boxes), "patients": len(patients)}


def _read_views(path: Path, image_ids: Set[str], build: BoxBuild[_List]) -> dict[str, str]:
    """Return a dict from image id to view, from the collection's table of all images."""
    ignored: list[str] = []  # the other columns are known, but not needed here
    rows = read_table(path, ("Image Index", "View Position"), build.faults, ignored)
    views = {row["Image Index"].removesuffix(".png"): row["View Position"] for row in rows}
    own = (views.get(image_id, "") for image_id in image_ids)
    build.warnings += count_views(path.name, (view for view in own if view not in ("AP", "PA")), "without a known view")
    return views


def _patient(image_id: str) -> str:
    return image_id.split("_")[0]


def _record(
    image_id: str, boxes: dict[str, list[Box]], view: str | None, picture: PictureFile | None
) -> LocalizationRecord:
    return nih_record(
        image_id,
        {finding: 1 if finding in boxes else None for finding in NIH_BOX_FINDINGS},
        (annotate_boxes(f, boxes[f], (NIH_SIDE, NIH_SIDE)) for f in NIH_BOX_FINDINGS if f in boxes),
        picture,
        patient_id=_patient(image_id),
        view=view if view in ("AP", "PA") else "UNKNOWN",
        view_raw=view or None,
    )


SOURCE = BoxSource(
    name="nih-boxes",
    needs="BBox_List_2017.csv",
    published=PUBLISHED,
    find=lambda root: find_files(root, {"boxes": LIST}),
    parse=_parse,
    count=_counts,
    pictured=lambda build: build.films([".png"]).present(build.parsed.first_of),
    make=_make,
)
detect, inspect, read = SOURCE.detect, SOURCE.inspect, SOURCE.read
