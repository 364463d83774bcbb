"""Write and read FiftyOne's format on disk: ``samples.json``, ``metadata.json`` and pictures (docs.voxel51.com).

Each reader has four fields: detections, keypoints (``..._points``), contours without a mask (``..._contours``) and
classifications (``..._labels``). FiftyOne stores coordinates as fractions of the image's sides; a mask covers its tight
box. The format cannot store empty masks, or contours in addition to a mask. Open a folder with
``fiftyone.Dataset.from_dir(FOLDER, dataset_type=fiftyone.types.FiftyOneDataset)``.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import read_npy
from reveal_bench.exchange.regions import RegionChecks
from reveal_bench.exchange.shapes import finite, joined, listed, mapped, mask_in_box, pairs, pixels, read_json, word
from reveal_bench.files import write_whole
from reveal_bench.geometry import stated_rotation
from reveal_bench.kinds.cases import AnnotatedImage, Annotations, Drawing, StudyLabels
from reveal_bench.masks import Rle, encode_mask

FILE, IMAGES, METADATA = "samples.json", "data", "metadata.json"
LISTS = {
    "Detections": "detections",
    "Keypoints": "keypoints",
    "Polylines": "polylines",
    "Classifications": "classifications",
}
NO_LABELS = ("ImageMetadata", "DynamicEmbeddedDocument")
"""Classes of fields without annotations."""
ENDINGS = {"Detections": "", "Keypoints": "_points", "Polylines": "_contours", "Classifications": "_labels"}
VERSION = "1.0.0"
"""Release of FiftyOne with this format; later releases convert the files when opening them."""
FIELD = "fiftyone.core.fields."


def write(annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
    """Write ``samples.json`` and ``metadata.json``."""
    content: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    n_empty = n_contours = 0
    for group, drawing in enumerate(annotations.drawings, start=1):
        film = annotations.films[drawing.image_id]
        parts = list(_parts(drawing, film, group))
        n_empty += drawing.mask is not None and not any("mask" in part for _, part in parts)
        n_contours += bool(drawing.polygons) and drawing.mask is not None
        for kind, part in parts:
            content[film.image_id][drawing.reader, kind].append(part)
    names = _field_names(annotations.readers)
    first = annotations.first_films
    for study in annotations.studies:
        labels = content[first[study.study_id]][study.reader, "Classifications"]
        labels += [_label(label, value, study) for label, value in study.values.items()]
    samples = [
        _sample(film, pictures[film.image_id], content[film.image_id], names) for film in annotations.films.values()
    ]
    fields = sorted({key for of in content.values() for key in of})
    write_whole(out / FILE, json.dumps({"samples": samples}, allow_nan=False) + "\n")
    write_whole(out / METADATA, json.dumps(_metadata(annotations, fields, names)) + "\n")
    lost = {
        f"{n_empty} empty masks, which FiftyOne cannot store": n_empty,
        f"contours of {n_contours} drawings, whose masks are exported": n_contours,
    }
    return [loss for loss, n in lost.items() if n]


def _parts(drawing: Drawing, film: AnnotatedImage, group: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (kind of list, label) for each mask, box and set of points, or for a cell if there are none of these."""
    more: dict[str, Any] = {"label": drawing.finding, "reader": drawing.reader, "group": group, "tags": []}
    if drawing.score is not None:
        more["confidence"] = drawing.score
    if drawing.cell is not None:
        more["cell"] = drawing.cell
    region = None if drawing.mask is None else mask_in_box(drawing.mask)
    if region is not None:
        box, mask = region
        yield "Detections", {**more, "bounding_box": _shares(box, film), "mask": _binary(mask)}
    if drawing.mask is None and drawing.polygons:
        contours = [[[x / film.width, y / film.height] for x, y in contour] for contour in drawing.polygons]
        yield "Polylines", {**more, "points": contours, "closed": True, "filled": True}
    for box_xywh in drawing.boxes:
        yield "Detections", {**more, "bounding_box": _shares(box_xywh, film)}
    if drawing.points:
        points = [[x / film.width, y / film.height] for x, y in drawing.points]
        yield "Keypoints", {**more, "points": points, "confidence": None, "score": drawing.score}
    if drawing.cell is not None and not (region or drawing.polygons or drawing.boxes or drawing.points):
        yield "Classifications", more


def _shares(box: Sequence[float], film: AnnotatedImage) -> list[float]:
    x, y, width, height = box
    return [x / film.width, y / film.height, width / film.width, height / film.height]


def _binary(mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    buffer = io.BytesIO()
    np.save(buffer, mask, allow_pickle=False)
    packed = base64.b64encode(zlib.compress(buffer.getvalue())).decode("ascii")
    return {"$binary": {"base64": packed, "subType": "00"}}


def _label(label: str, value: float, study: StudyLabels) -> dict[str, Any]:
    more = {"reader": study.reader, "study_id": study.study_id, "tags": []}
    if study.are_probabilities:
        return {"label": label, "confidence": value, "is_probability": True, **more}
    return {"label": label, "confidence": None, "is_present": bool(value), **more}


def _sample(
    film: AnnotatedImage, picture: str, of: Mapping[tuple[str, str], list[dict[str, Any]]], names: Mapping[str, str]
) -> dict[str, Any]:
    sample: dict[str, Any] = {
        "_id": _object_id(film.image_id),
        "filepath": f"{IMAGES}/{picture}",
        "tags": [],
        "metadata": {"_cls": "ImageMetadata", "width": film.width, "height": film.height},
        "_media_type": "image",
        "_rand": 0.5,
        "image_id": film.image_id,
        "study_id": film.study_id,
    }
    for (reader, kind), parts in of.items():
        numbered = [
            {"_id": _object_id(film.image_id, reader, kind, str(n)), "_cls": kind.removesuffix("s"), **part}
            for n, part in enumerate(parts)
        ]
        sample[names[reader] + ENDINGS[kind]] = {"_cls": kind, LISTS[kind]: numbered}
    return sample


def _object_id(*texts: str) -> dict[str, str]:
    return {"$oid": hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]}


def _field_names(readers: Sequence[str]) -> dict[str, str]:
    """Return reader -> unique name of the reader's field of detections, a prefix of its other fields' names."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for reader in readers:
        name = re.sub(r"\W", "_", reader)
        while taken & {name + ending for ending in ENDINGS.values()}:
            name += "_"
        taken |= {name + ending for ending in ENDINGS.values()}
        names[reader] = name
    return names


def _metadata(annotations: Annotations, fields: Sequence[tuple[str, str]], names: Mapping[str, str]) -> dict[str, Any]:
    name = f"{annotations.benchmark}-{annotations.version}-{annotations.split}"
    embedded = FIELD + "EmbeddedDocumentField"
    schema = [
        _field("id", "ObjectIdField", db_field="_id"),
        _field("filepath", "StringField"),
        _field("tags", "ListField", subfield=FIELD + "StringField"),
        {**_field("metadata", "EmbeddedDocumentField"), "embedded_doc_type": "fiftyone.core.metadata.ImageMetadata"},
        _field("_media_type", "StringField"),
        _field("_rand", "FloatField"),
        _field("image_id", "StringField"),
        _field("study_id", "StringField"),
    ]
    for reader, kind in fields:
        document = {"ftype": embedded, "embedded_doc_type": f"fiftyone.core.labels.{kind}"}
        schema.append({**_field(names[reader] + ENDINGS[kind], "EmbeddedDocumentField"), **document})
    info = {"benchmark": annotations.benchmark, "version": annotations.version, "split": annotations.split}
    return {
        "name": name,
        "version": VERSION,
        "media_type": "image",
        "info": info,
        "tags": [],
        "default_classes": list(annotations.names),
        "sample_fields": schema,
        "app_config": {"media_fields": ["filepath"], "grid_media_field": "filepath", "modal_media_field": "filepath"},
    }


def _field(name: str, kind: str, *, db_field: str | None = None, subfield: str | None = None) -> dict[str, Any]:
    return {
        "name": name, "ftype": FIELD + kind, "embedded_doc_type": None, "subfield": subfield, "fields": [],
        "db_field": db_field or name, "description": None, "info": None,
    }  # fmt: skip


def read(path: Path, known: Annotations) -> Annotations:
    """Read an export by FiftyOne of the type FiftyOneDataset."""
    document = read_json(path, FILE)
    samples = document.get("samples") if isinstance(document, dict) else None
    if not isinstance(samples, list):
        raise ArgumentError("file", "must be samples.json of a FiftyOneDataset, with `samples`", path)
    drawings: dict[object, Drawing] = {}
    studies: dict[tuple[str, str, bool], dict[str, float]] = {}
    regions = RegionChecks(known)
    for number, sample in enumerate(samples, start=1):
        film = regions.film(str(mapped(sample, "sample").get("filepath", "")))
        size = mapped(sample.get("metadata") or {}, "metadata")
        regions.check_image(film, f"sample {number}", size.get("width"), size.get("height"))
        for n, (name, kind, part) in enumerate(_labels_of(sample, regions), start=1):
            reader = word(part.get("reader"), "reader") or name
            finding = known.finding_of(part.get("label"))
            if kind == "Classifications" and "cell" not in part:
                is_probability = bool(part.get("is_probability"))
                value = part.get("confidence") if is_probability else int(part.get("is_present") is not False)
                studies.setdefault((film.study_id, reader, is_probability), {})[finding] = finite(value, "confidence")
                continue
            where = f"label {n} of sample {number}"
            drawing = _drawing(part, film, finding, reader, where, regions, is_contour=kind == "Polylines")
            drawing = regions.drawing(where, drawing)
            group = word(part.get("group"), "group")
            key = (film.image_id, group) if group else len(drawings)
            drawings[key] = joined(drawings.get(key), drawing)
    labels_by_study = tuple(StudyLabels(study, reader, of, is_p) for (study, reader, is_p), of in studies.items())
    return replace(known, drawings=tuple(drawings.values()), studies=labels_by_study, notes=regions.notes)


def _labels_of(sample: Any, regions: RegionChecks) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (field, kind of list, label) of every label of a sample; fields of other labels are counted as left out."""
    for name, value in sample.items():
        kind = value.get("_cls") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in LISTS:
            yield from ((name, kind, mapped(part, "label")) for part in listed(value.get(LISTS[kind]), LISTS[kind]))
        elif kind == "Classification" and value.get("label") not in regions.known.names:  # such as the view
            regions.leave_out("classification")
        elif isinstance(kind, str) and f"{kind}s" in LISTS:  # a single label
            yield name, f"{kind}s", value
        elif isinstance(kind, str) and kind not in NO_LABELS:
            regions.leave_out(f"{kind} field")


def _drawing(
    part: dict[str, Any],
    film: AnnotatedImage,
    finding: str,
    reader: str,
    where: str,
    regions: RegionChecks,
    *,
    is_contour: bool,
) -> Drawing:
    sides = (film.width, film.height, film.width, film.height)
    shares = listed(part.get("bounding_box"), "bounding_box")
    mask_of = part.get("mask") or None
    if len(shares) != 4 and (shares or mask_of):
        raise ArgumentError("file", "must have boxes of four fractions as bounding_box", repr(shares)[:100])
    box = tuple(pixels(finite(share, "bounding_box") * side) for share, side in zip(shares, sides, strict=False))
    lists = listed(part.get("points"), "points")
    contours = tuple(regions.contour(film, where, _points(one, film)) for one in lists) if is_contour else ()
    points = () if is_contour else regions.points(film, where, _points(lists, film))
    if part.get("mask_path"):
        raise ArgumentError("file", "must contain its masks, not refer to files (`mask_path`)", film.image_id)
    mask = None if mask_of is None else _mask(mask_of, box, film)
    is_box = bool(box) and mask is None
    if not is_box:
        regions.check_upright(film, where, stated_rotation(part))
    score = part.get("score") if points else part.get("confidence")
    return Drawing(
        film.image_id,
        finding,
        reader,
        mask,
        contours,
        (regions.box(film, where, box, stated_rotation(part)),) if is_box else (),
        points,
        word(part.get("cell"), "cell"),
        None if score is None else finite(score, "confidence"),
    )


def _points(shares: Any, film: AnnotatedImage) -> tuple[tuple[float, float], ...]:
    return tuple((pixels(x * film.width), pixels(y * film.height)) for x, y in pairs(shares, "points"))


def _mask(binary: Any, box: Sequence[float], film: AnnotatedImage) -> Rle:
    left, top, width, height = (round(side) for side in box)
    is_inside = min(left, top, width, height) >= 0 and left + width <= film.width and top + height <= film.height
    if not is_inside:
        raise ArgumentError("file", f"must have masks within their image, {film.image_id}", list(box))
    limit = width * height * 8 + 1024  # size of an array of 64-bit numbers, and its header
    try:
        packed = base64.b64decode(binary["$binary"]["base64"], validate=True)
        data = zlib.decompressobj().decompress(packed, limit)
        part = read_npy(io.BytesIO(data), len(data))
    except (KeyError, TypeError, ValueError, EOFError, zlib.error) as error:
        raise ArgumentError("file", f"must have masks that can be read: {error}", film.image_id) from None
    if part.shape != (height, width):
        rule = "must have masks of as many pixels as their bounding box"
        raise ArgumentError("file", rule, f"{part.shape} in {width} x {height} of {film.image_id}")
    mask = np.zeros((film.height, film.width), dtype=bool)
    mask[top : top + height, left : left + width] = part != 0
    return encode_mask(mask)
