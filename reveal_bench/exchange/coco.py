"""Write and read COCO files: a dataset of images, categories and annotations (cocodataset.org), and results.

An annotation is one mask or one box, or one instance if the benchmark scores instances one by one. Facts for which COCO
has no field are in additional fields, which COCO's tools ignore: `reader`, `score`, `points`, `cell`, `boxes` and
`contours` of a mask, and `group`, a number that all annotations of a drawing share. COCO cannot store labels of
studies.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.regions import Points, RegionChecks
from reveal_bench.exchange.shapes import (
    finite,
    joined,
    listed,
    mapped,
    mask_of_runs,
    pairs,
    read_json,
    whole,
    word,
)
from reveal_bench.files import write_whole
from reveal_bench.geometry import stated_rotation
from reveal_bench.kinds.cases import PREDICTION, AnnotatedImage, Annotations, Drawing
from reveal_bench.masks import Box, Rle, encode_mask, pack_masks

FILE, IMAGES, RESULTS = "annotations.json", "images", "results.json"


def write(annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
    """Write ``annotations.json``.

    For predictions, also write ``results.json``, for tools that match results with references.
    """
    if annotations.studies:
        raise ArgumentError("to", "must be a form that can store labels of studies", "coco, which stores only drawings")
    numbers = {image_id: n for n, image_id in enumerate(annotations.films, start=1)}
    categories = {name: n for n, name in enumerate(annotations.names, start=1)}
    rows: list[dict[str, Any]] = []
    for group, drawing in enumerate(annotations.drawings, start=1):
        is_lesion = annotations.by_instance and bool(drawing.boxes)
        for row in [_instance(drawing)] if is_lesion else _rows(drawing):
            place = {"image_id": numbers[drawing.image_id], "category_id": categories[drawing.finding]}
            rows.append({"id": len(rows) + 1, **place, **row} | ({} if is_lesion else {"group": group}))
    document = {
        "info": {
            "description": f"{annotations.benchmark}, split {annotations.split}",
            "version": annotations.version,
        },
        "licenses": [],
        "images": [_image(film, numbers[film.image_id], pictures) for film in annotations.films.values()],
        "categories": [{"id": n, "name": name, "supercategory": "finding"} for name, n in categories.items()],
        "annotations": rows,
    }
    write_whole(out / FILE, json.dumps(document, allow_nan=False) + "\n")
    if annotations.readers != [PREDICTION]:
        return []
    kept = ("image_id", "category_id", "segmentation", "bbox", "score")
    drawn = [row for row in rows if row["area"] > 0]
    results = [{name: row[name] for name in kept if row.get(name)} | {"score": row.get("score", 1.0)} for row in drawn]
    write_whole(out / RESULTS, json.dumps(results, allow_nan=False) + "\n")
    n_without = sum("score" not in row for row in drawn)
    return [f"{n_without} predictions without a score: {RESULTS} gives them the score 1"] if n_without else []


def _image(film: AnnotatedImage, number: int, pictures: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": number,
        "file_name": pictures[film.image_id],
        "width": film.width,
        "height": film.height,
        "name": film.image_id,
        "study_id": film.study_id,
    }


def _rows(drawing: Drawing) -> Iterator[dict[str, Any]]:
    """Yield the annotations of a drawing.

    A drawing has one annotation for its mask, otherwise one per box, otherwise one for its points or cell.
    """
    more: dict[str, Any] = {"iscrowd": 0, "reader": drawing.reader}
    if drawing.score is not None:
        more["score"] = drawing.score
    if drawing.cell is not None:
        more["cell"] = drawing.cell
    if drawing.points:
        more["points"] = [list(point) for point in drawing.points]
    if drawing.polygons:
        more["contours"] = [[side for point in contour for side in point] for contour in drawing.polygons]
    if drawing.mask is not None:
        packed = pack_masks([drawing.mask])
        area = int(packed.areas[0])
        box = packed.boxes_xywh()[0].tolist() if area else [0, 0, 0, 0]
        if drawing.boxes:
            more["boxes"] = [list(box) for box in drawing.boxes]
        rle = {"size": list(drawing.mask.size), "counts": drawing.mask.counts}
        yield {"segmentation": rle, "bbox": box, "area": area, **more}
    elif drawing.boxes:
        for box in drawing.boxes:
            yield {"segmentation": [], "bbox": list(box), "area": box[2] * box[3], **more}
            more.pop("points", None)  # points are written only once
    else:
        yield {"segmentation": [], "bbox": [0, 0, 0, 0], "area": 0, **more}


def _instance(drawing: Drawing) -> dict[str, Any]:
    """Return the annotation of a lesion, with its own box, and its contour or mask."""
    (box,) = drawing.boxes
    (row,) = _rows(replace(drawing, mask=None if drawing.polygons else drawing.mask))
    segmentation = row.pop("contours", row["segmentation"])
    return row | {"segmentation": segmentation, "bbox": list(box), "area": box[2] * box[3]}


def read(path: Path, known: Annotations) -> Annotations:
    """Read a COCO dataset; categories are matched with findings by name, images by file name.

    Categories without annotations, such as the one in which Roboflow groups the others, may have any name. Results
    are read with the images and categories of the ``annotations.json`` beside them, which :func:`write` also writes.
    """
    document = read_json(path, FILE)
    if isinstance(document, list) and (path.parent / FILE).is_file():
        document = mapped(read_json(path.parent, FILE), FILE) | {"annotations": document}
    parts = ("images", "categories", "annotations")
    if not isinstance(document, dict) or not all(isinstance(document.get(part), list) for part in parts):
        rule = f"must be a COCO dataset with {', '.join(parts)} (results without {FILE} need `--from table`)"
        raise ArgumentError("file", rule, path)
    _check_ids(document["images"])
    _check_ids(document["categories"])
    regions = RegionChecks(known)
    films = {_field(row, "id"): _film(row, n, regions) for n, row in enumerate(document["images"], start=1)}
    used = {_field(row, "category_id") for row in document["annotations"]}
    findings = {
        number: known.finding_of(_field(row, "name"))
        for row in document["categories"]
        if (number := _field(row, "id")) in used
    }
    drawings: dict[object, Drawing] = {}
    for number, row in enumerate(document["annotations"], start=1):
        film, finding = films.get(_field(row, "image_id")), findings.get(_field(row, "category_id"))
        if film is None or finding is None:
            raise ArgumentError("file", "must have images and categories of every annotation", f"annotation {number}")
        where = f"annotation {number}"
        drawing = regions.drawing(where, _drawing(row, film, finding, where, regions))
        key = word(row.get("group"), "group") or number
        drawings[key] = joined(drawings.get(key), drawing)
    return replace(known, drawings=tuple(drawings.values()), studies=(), notes=regions.notes)


def _field(row: Any, name: str) -> Any:
    if not isinstance(row, dict) or name not in row or isinstance(row[name], (dict, list)):
        raise ArgumentError("file", f"must have `{name}` in every image, category and annotation", repr(row)[:100])
    return row[name]


def _check_ids(rows: list[Any]) -> None:
    ids = [_field(row, "id") for row in rows]
    for repeated in (one for one, n in Counter(ids).items() if n > 1):
        raise ArgumentError("file", "must have every `id` of images and of categories once", repr(repeated)[:100])


def _film(row: dict[str, Any], number: int, regions: RegionChecks) -> AnnotatedImage:
    film = regions.film(str(_field(row, "file_name")))
    regions.check_image(film, f"image {number}", row.get("width"), row.get("height"))
    return film


def _drawing(row: dict[str, Any], film: AnnotatedImage, finding: str, where: str, regions: RegionChecks) -> Drawing:
    segmentation = row.get("segmentation") or None
    is_contours = isinstance(segmentation, list)
    flat = listed(row.get("contours"), "contours") or (segmentation if isinstance(segmentation, list) else [])
    contours = tuple(regions.contour(film, where, _contour(contour)) for contour in flat)
    mask = None if segmentation is None or is_contours else _mask(segmentation, film)
    boxes = [regions.box(film, where, _box(one)) for one in listed(row.get("boxes"), "boxes")]
    sides = _box(row["bbox"]) if row.get("bbox") else (0.0, 0.0, 0.0, 0.0)
    if any(sides) and not (segmentation and _is_around(sides, mask, contours)):
        boxes = [regions.box(film, where, sides, 0 if segmentation else stated_rotation(row))]
    if segmentation or not any(sides):
        regions.check_upright(film, where, stated_rotation(row))
    score = row.get("score")
    return Drawing(
        film.image_id,
        finding,
        word(row.get("reader"), "reader") or PREDICTION,
        mask,
        contours,
        tuple(boxes),
        regions.points(film, where, pairs(row.get("points"), "points")),
        word(row.get("cell"), "cell"),
        None if score is None else finite(score, "score"),
    )


def _box(sides: Any) -> Box:
    if not isinstance(sides, list) or len(sides) != 4:
        raise ArgumentError("file", "must have boxes [x, y, width, height]", repr(sides)[:100])
    x, y, width, height = (finite(side, "bbox") for side in sides)
    return x, y, width, height


def _is_around(sides: Box, mask: Rle | None, contours: Sequence[Points]) -> bool:
    """Return True if a box is only the bounding box of its segmentation, up to a pixel of rounding."""
    if mask is not None:
        x, y, width, height = pack_masks([mask]).boxes_xywh()[0].tolist()
    else:
        xs, ys = zip(*(point for contour in contours for point in contour), strict=True)
        x, y, width, height = min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)
    corners = zip((x, y, x + width, y + height), (*sides[:2], sides[0] + sides[2], sides[1] + sides[3]), strict=True)
    return all(abs(a - b) <= 1 for a, b in corners)


def _contour(flat: Any) -> tuple[tuple[float, float], ...]:
    if not isinstance(flat, list) or len(flat) < 6 or len(flat) % 2:
        raise ArgumentError(
            "file", "must have contours of three points or more [x1, y1, x2, y2, ...]", repr(flat)[:100]
        )
    sides = [finite(side, "contours") for side in flat]
    return tuple(zip(sides[0::2], sides[1::2], strict=True))


def _mask(segmentation: Any, film: AnnotatedImage) -> Rle:
    segmentation = mapped(segmentation, "segmentation")
    size, counts = segmentation.get("size"), segmentation.get("counts")
    if size != [film.height, film.width]:
        rule = f"must have masks of the size of their image, {film.image_id} has [{film.height}, {film.width}]"
        raise ArgumentError("file", rule, size)
    if isinstance(counts, list):  # COCO's runs follow columns, which are the rows of the transposed mask
        turned = AnnotatedImage(film.image_id, film.study_id, film.patient_id, film.height, film.width)
        runs = [whole(run, "counts") for run in counts]
        return encode_mask(pack_masks([mask_of_runs(runs, (0, 0, film.height, film.width), turned)]).dense(0).T)
    rle = Rle((film.height, film.width), str(counts))
    try:
        pack_masks([rle])
    except ValueError as error:
        raise ArgumentError("file", f"must have masks that can be read: {error}", film.image_id) from None
    return rle
