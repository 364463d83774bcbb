"""ChestX-Det: boxes and polygons of thirteen findings on NIH ChestX-ray14 frames.

Source: Deepwise-AILab/ChestX-Det-Dataset, ``ChestX_Det_test.json`` (and ``_train``), annotations under Apache-2.0.
A JSON list, one entry per image: ``{"file_name": "36302.png", "syms": [...], "boxes": [[x0, y0, x1, y1], ...],
"polygons": [[[x, y], ...], ...]}``, three parallel lists with one element per instance.

Conventions
-----------
* Every picture is 1024 x 1024 pixels; coordinates are whole pixels in [0, 1024].
* Several instances of one finding become one annotation: the union of their polygons, filled by
  :func:`reveal_bench.masks.rasterize_polygons`; `n_instances` counts them; the box is the tight box of the union.
  The source's own boxes are kept in `boxes_xywh`.
* All thirteen findings were looked for in every image, so a finding without an instance is absent (0).
* The source publishes neither patients, studies nor views: `patient_id` and `study_id` repeat the image id.
* Pixels are not part of the download. With ``pictures=`` (a folder of the PNG files) they are read and hashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reveal_bench.builders.source import SYNTHETIC_MARKER, Inspection, Pixels, Problem, Reading, Records, finish
from reveal_bench.builders.strict_json import parse_json
from reveal_bench.findings import CHESTX_DET_FINDINGS, canonical_finding, nearest_names
from reveal_bench.masks import pack_masks, rasterize_polygons
from reveal_bench.records import Annotation, LocalizationRecord, PictureFile

__all__ = ["PUBLISHED", "SIDE", "detect", "inspect", "read"]

SIDE = 1024
"""Width and height of every picture, in pixels."""

PUBLISHED = {"test images": 553, "test instances": 1734, "test images without a finding": 64}
"""Counts of the published test file."""

FILE_NAME = "ChestX_Det_{split}.json"
SPLITS = ("train", "test")
KEYS = {"file_name", "syms", "boxes", "polygons"}
Entry = dict[str, Any]


def detect(root: Path) -> float:
    """1 if `root` is, or holds, an annotation file with its published name; else 0."""
    return 1.0 if _annotation_files(Path(root)) else 0.0


def inspect(root: Path) -> Inspection:
    """Count images, instances and images without a finding, and list what is wrong with the file."""
    root = Path(root)
    files = _annotation_files(root)
    problems: list[Problem] = []
    counts: dict[str, int] = {}
    for split, path in files.items():
        entries = _read_entries(path, problems)
        good = [entry for i, entry in enumerate(entries, start=1) if not _entry_problems(entry, i, path.name)]
        problems += _problems_of(entries, path.name)
        counts[f"{split} images"] = len(entries)
        counts[f"{split} instances"] = sum(len(entry["syms"]) for entry in good)
        counts[f"{split} images without a finding"] = sum(not entry["syms"] for entry in good)
    synthetic = _is_synthetic(root)
    return Inspection(
        builder="chestx-det",
        root=root,
        files={f"annotations_{split}": path.name for split, path in files.items()},
        counts=counts,
        expected=PUBLISHED,
        problems=problems,
        warnings=[] if synthetic else _count_warnings(counts),
        synthetic=synthetic,
    )


def read(root: Path, *, pixels: Pixels = "withhold", keep_going: bool = False, pictures: Path | None = None) -> Reading:
    """Records per split: "train", "test", those whose file is there.

    Parameters
    ----------
    root : the annotation file or the folder that holds it
    pixels : "embed" needs `pictures`
    keep_going : leave out entries with a problem instead of raising
    pictures : folder with the PNG files, at any depth

    Raises
    ------
    BuildError
        With every problem of the annotation files, and every picture that is not there.
    ValueError
        If there is no annotation file, or pixels are to be embedded and `pictures` is None.
    """
    root = Path(root)
    files = _annotation_files(root)
    if not files:
        raise ValueError(f"`root` must hold {FILE_NAME.format(split='test')}, got {root}")
    if pixels == "embed" and pictures is None:
        raise ValueError("`pictures` must name the folder of the PNG files when pixels are embedded, got None")
    problems: list[Problem] = []
    warnings = list(inspect(root).warnings)
    found = None if pictures is None else {path.name: path for path in sorted(Path(pictures).rglob("*.png"))}
    entries_of: dict[str, list[Entry]] = {}
    for split, path in files.items():
        entries = _read_entries(path, problems)
        wrong = _problems_of(entries, path.name)
        bad = {problem.row for problem in wrong}
        good = [entry for i, entry in enumerate(entries, start=1) if i not in bad]
        entries_of[split] = [entry for entry in good if found is None or entry["file_name"] in found]
        problems += wrong
        problems += [
            Problem(path.name, entry["file_name"], "picture", "must be there", "no such file")
            for entry in good
            if found is not None and entry["file_name"] not in found
        ]
    finish(problems, warnings, keep_going=keep_going)
    return Reading(
        {
            split: Records(partial(_records, entries, found, pictures), len(entries))
            for split, entries in entries_of.items()
        },
        warnings,
    )


def _annotation_files(root: Path) -> dict[str, Path]:
    if root.is_file():
        return {split: root for split in SPLITS if root.name == FILE_NAME.format(split=split)}
    paths = {split: root / FILE_NAME.format(split=split) for split in SPLITS}
    return {split: path for split, path in paths.items() if path.is_file()}


def _is_synthetic(root: Path) -> bool:
    return ((root if root.is_dir() else root.parent) / SYNTHETIC_MARKER).exists()


def _read_entries(path: Path, problems: list[Problem]) -> list[Entry]:
    try:
        entries = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        problems.append(Problem(path.name, None, "file", "must be UTF-8 JSON", str(error)))
        return []
    if not isinstance(entries, list):
        problems.append(Problem(path.name, None, "file", "must be a JSON list", type(entries).__name__))
        return []
    return entries


def _problems_of(entries: list[Entry], file: str) -> list[Problem]:
    problems: list[Problem] = []
    first_of: dict[str, int] = {}
    for i, entry in enumerate(entries, start=1):
        found = _entry_problems(entry, i, file)
        problems += found
        if found:
            continue
        name = entry["file_name"]
        if name in first_of:
            value = f"{name!r}, also entry {first_of[name]}"
            problems.append(Problem(file, i, "file_name", "must be unique", value))
        first_of.setdefault(name, i)
    return problems


def _entry_problems(entry: Any, number: int, file: str) -> list[Problem]:
    """What is wrong with one entry; later rules assume the earlier ones."""

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
        return [problem("syms, boxes, polygons", "must be lists of one length", lengths)]
    problems = []
    for sym, box, polygon in zip(*lists, strict=True):
        if not isinstance(sym, str) or canonical_finding(sym, CHESTX_DET_FINDINGS) is None:
            near = nearest_names(str(sym), CHESTX_DET_FINDINGS, most=1)
            hint = f" (nearest: {near[0]!r})" if near else ""
            problems.append(problem("syms", "must be one of the 13 findings", f"{sym!r}{hint}"))
        if not _is_box(box):
            problems.append(problem("boxes", f"must be x0 < x1, y0 < y1 in [0, {SIDE}]", box))
        if not isinstance(polygon, list) or len(polygon) < 2:
            problems.append(problem("polygons", "must have at least 2 vertices", str(polygon)[:80]))
        else:
            outside = next((vertex for vertex in polygon if not _is_vertex(vertex)), None)
            if outside is not None:
                problems.append(problem("polygons", f"must have vertices [x, y] in [0, {SIDE}]", outside))
    return problems


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= SIDE


def _is_vertex(vertex: object) -> bool:
    return isinstance(vertex, list) and len(vertex) == 2 and all(_is_number(value) for value in vertex)


def _is_box(box: object) -> bool:
    if not isinstance(box, list) or len(box) != 4 or not all(_is_number(value) for value in box):
        return False
    return bool(box[0] < box[2] and box[1] < box[3])


def _count_warnings(counts: dict[str, int]) -> list[str]:
    return [
        f"{what}: the published file has {expected:,}, this one {counts[what]:,}"
        for what, expected in PUBLISHED.items()
        if what in counts and counts[what] != expected
    ]


def _records(
    entries: list[Entry], found: dict[str, Path] | None, pictures: Path | None
) -> Iterator[LocalizationRecord]:
    for entry in entries:
        picture = None
        if found is not None and pictures is not None:
            path = found[entry["file_name"]]
            picture = PictureFile(path, path.name, path.relative_to(pictures).as_posix())
        yield _record(entry, picture)


def _record(entry: Entry, picture: PictureFile | None) -> LocalizationRecord:
    image_id = entry["file_name"].removesuffix(".png")
    drawn: dict[str, list[int]] = {}
    for i, sym in enumerate(entry["syms"]):
        drawn.setdefault(canonical_finding(sym, CHESTX_DET_FINDINGS) or sym, []).append(i)
    return LocalizationRecord(
        image_id=image_id,
        patient_id=image_id,
        study_id=image_id,
        view="UNKNOWN",
        width=SIDE,
        height=SIDE,
        label_status={finding: int(finding in drawn) for finding in CHESTX_DET_FINDINGS},
        annotations=tuple(_annotation(f, entry, drawn[f]) for f in CHESTX_DET_FINDINGS if f in drawn),
        picture=picture,
    )


def _annotation(finding: str, entry: Entry, instances: list[int]) -> Annotation:
    polygons = tuple(tuple((float(x), float(y)) for x, y in entry["polygons"][i]) for i in instances)
    corners = [[float(value) for value in entry["boxes"][i]] for i in instances]
    rle = rasterize_polygons(polygons, (SIDE, SIDE))
    mask = pack_masks([rle])
    x, y, width, height = mask.boxes_xywh()[0].tolist()
    return Annotation(
        finding=finding,
        reader="ground_truth",
        rle=rle,
        polygons=polygons,
        bbox_xywh=(x, y, width, height),
        n_instances=len(instances),
        area_px=int(mask.areas[0]),
        boxes_xywh=tuple((x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in corners),
    )
