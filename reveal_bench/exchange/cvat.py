"""Write and read CVAT for images 1.1: an XML file of images, masks, boxes, points, polygons and tags (docs.cvat.ai).

A mask is stored as the lengths of runs along the rows of its tight box, beginning with a run of background. Reader,
score, cell and probability are attributes of a shape; a study's labels are tags of the study's first image. Empty masks
are left out, because CVAT cannot store them. Contours from which a mask was filled are left out, too, because CVAT
would show such contours as separate shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.regions import RegionChecks
from reveal_bench.exchange.shapes import (
    finite,
    joined,
    mask_in_box,
    mask_of_runs,
    pixels,
    read_bytes,
    runs_of_mask,
    whole,
)
from reveal_bench.files import write_whole
from reveal_bench.kinds.cases import PREDICTION, AnnotatedImage, Annotations, Drawing, StudyLabels
from reveal_bench.masks import Rle

FILE, IMAGES = "annotations.xml", "images"
ATTRIBUTES = ("reader", "score", "cell", "group", "value")
SHAPES = ("mask", "box", "points", "polygon", "tag")


def write(annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
    """Write ``annotations.xml``, for upload to a task that has images with the same names."""
    root = ET.Element("annotations")
    ET.SubElement(root, "version").text = "1.1"
    root.append(_meta(annotations))
    images = {
        film.image_id: ET.SubElement(
            root, "image", id=str(n), name=pictures[film.image_id], width=str(film.width), height=str(film.height)
        )
        for n, film in enumerate(annotations.films.values())
    }
    n_empty = n_contours = 0
    for group, drawing in enumerate(annotations.drawings, start=1):
        n_empty += not _add_drawing(images[drawing.image_id], drawing, group)
        n_contours += bool(drawing.polygons) and drawing.mask is not None
    first = annotations.first_films
    for study in annotations.studies:
        _add_tags(images[first[study.study_id]], study)
    ET.indent(root)
    write_whole(out / FILE, ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n")
    lost = {
        f"{n_empty} empty masks, which CVAT cannot store": n_empty,
        f"contours of {n_contours} drawings, whose masks are exported": n_contours,
    }
    return [part for part, n in lost.items() if n]


def _meta(annotations: Annotations) -> ET.Element:
    meta = ET.Element("meta")
    task = ET.SubElement(meta, "task")
    ET.SubElement(task, "name").text = f"{annotations.benchmark} {annotations.version} {annotations.split}"
    ET.SubElement(task, "size").text = str(len(annotations.films))
    ET.SubElement(task, "mode").text = "annotation"
    labels = ET.SubElement(task, "labels")
    for name in annotations.names:
        label = ET.SubElement(labels, "label")
        ET.SubElement(label, "name").text = name
        attributes = ET.SubElement(label, "attributes")
        for attribute in ATTRIBUTES:
            one = ET.SubElement(attributes, "attribute")
            ET.SubElement(one, "name").text = attribute
            ET.SubElement(one, "mutable").text = "False"
            ET.SubElement(one, "input_type").text = "text"
            ET.SubElement(one, "default_value")
            ET.SubElement(one, "values")
    return meta


def _add_drawing(image: ET.Element, drawing: Drawing, group: int) -> bool:
    """Add the shapes of a drawing; return True if the shapes represent the whole drawing."""
    attributes = {"reader": drawing.reader, "score": drawing.score, "cell": drawing.cell, "group": group}
    region = None if drawing.mask is None else mask_in_box(drawing.mask)
    if region is not None:
        (left, top, width, height), part = region
        runs = ", ".join(map(str, runs_of_mask(part)))
        _add(image, "mask", drawing.finding, attributes, rle=runs, left=left, top=top, width=width, height=height)
    else:
        for contour in drawing.polygons:
            _add(image, "polygon", drawing.finding, attributes, points=_pairs(contour))
    for x, y, wide, high in drawing.boxes:
        _add(image, "box", drawing.finding, attributes, xtl=x, ytl=y, xbr=x + wide, ybr=y + high)
    if drawing.points:
        _add(image, "points", drawing.finding, attributes, points=_pairs(drawing.points))
    if drawing.cell is not None and not (drawing.mask or drawing.polygons or drawing.boxes or drawing.points):
        _add(image, "tag", drawing.finding, attributes)
    return drawing.mask is None or region is not None


def _add(image: ET.Element, shape: str, label: str, attributes: Mapping[str, object], **place: object) -> None:
    fixed = {"source": "manual"} if shape == "tag" else {"source": "manual", "occluded": "0", "z_order": "0"}
    element = ET.SubElement(image, shape, {"label": label, **fixed, **{name: str(at) for name, at in place.items()}})
    for name, value in attributes.items():
        if value is not None:
            ET.SubElement(element, "attribute", name=name).text = str(value)


def _add_tags(image: ET.Element, study: StudyLabels) -> None:
    for label, value in study.values.items():
        _add(image, "tag", label, {"reader": study.reader, "value": value if study.are_probabilities else int(value)})


def _pairs(points: Iterable[tuple[float, float]]) -> str:
    return ";".join(f"{x},{y}" for x, y in points)


def read(path: Path, known: Annotations) -> Annotations:
    """Read an export of CVAT in the format "CVAT for images 1.1"."""
    data = read_bytes(path, FILE)
    if b"\0" in data:  # in UTF-16 the check below would miss a DOCTYPE
        raise ArgumentError("file", "must be XML in UTF-8", path)
    if b"<!" in data.replace(b"<!--", b""):  # a DOCTYPE may expand without end
        raise ArgumentError("file", "must be XML without a DOCTYPE", path)
    try:
        root = ET.fromstring(data)
    except (ET.ParseError, ValueError) as error:  # ValueError means an unknown encoding
        raise ArgumentError("file", f"must be XML: {error}", path) from None
    if root.tag != "annotations" or root.find("track") is not None:
        raise ArgumentError("file", "must be exported as CVAT for images 1.1, not for video", path)
    drawings: dict[object, Drawing] = {}
    values: dict[tuple[str, str], dict[str, float]] = {}
    regions = RegionChecks(known)
    for image in root.iter("image"):
        film = regions.film(image.get("name", ""))
        regions.check_image(film, f"<image> {image.get('id', '')}", image.get("width"), image.get("height"))
        for number, element in enumerate(image, start=1):
            if element.tag not in SHAPES:
                raise ArgumentError("file", f"must have shapes of {', '.join(SHAPES)}", f"<{element.tag}>")
            drawing, value = _drawing(element, film, f"<{element.tag}> {number}", regions)
            if value is not None:
                values.setdefault((film.study_id, drawing.reader), {})[drawing.finding] = value
                continue
            group = _attributes(element).get("group")
            key = (film.image_id, group) if group else len(drawings)
            drawings[key] = joined(drawings.get(key), drawing)
    studies = tuple(
        StudyLabels(study, reader, of, are_probabilities=any(value not in (0, 1) for value in of.values()))
        for (study, reader), of in values.items()
    )
    return replace(known, drawings=tuple(drawings.values()), studies=studies, notes=regions.notes)


def _attributes(element: ET.Element) -> dict[str, str]:
    return {one.get("name", ""): (one.text or "").strip() for one in element.iter("attribute")}


def _drawing(
    element: ET.Element, film: AnnotatedImage, where: str, regions: RegionChecks
) -> tuple[Drawing, float | None]:
    """Return a shape as a drawing, or a tag as a study's label and value."""
    attributes = _attributes(element)
    finding = regions.known.finding_of(element.get("label"))
    rotation = element.get("rotation")
    if element.tag != "box":
        regions.check_upright(film, where, rotation)
    score = finite(attributes["score"], "score") if attributes.get("score") else None
    drawing = Drawing(
        film.image_id,
        finding,
        attributes.get("reader") or PREDICTION,
        _mask(element, film) if element.tag == "mask" else None,
        (regions.contour(film, where, _points(element)),) if element.tag == "polygon" else (),
        (regions.box(film, where, _box(element), rotation),) if element.tag == "box" else (),
        regions.points(film, where, _points(element)) if element.tag == "points" else (),
        attributes.get("cell") or None,
        score,
    )
    is_label = element.tag == "tag" and drawing.cell is None
    return drawing, finite(attributes.get("value") or 1, "value") if is_label else None


def _mask(element: ET.Element, film: AnnotatedImage) -> Rle:
    runs = [whole(run, "rle") for run in element.get("rle", "").split(",")]
    left, top, width, height = (whole(element.get(name), name) for name in ("left", "top", "width", "height"))
    return mask_of_runs(runs, (left, top, width, height), film)


def _box(element: ET.Element) -> tuple[float, float, float, float]:
    left, top, right, bottom = (finite(element.get(name), name) for name in ("xtl", "ytl", "xbr", "ybr"))
    return left, top, pixels(right - left), pixels(bottom - top)


def _points(element: ET.Element) -> tuple[tuple[float, float], ...]:
    region = []
    for pair in element.get("points", "").split(";"):
        x, _, y = pair.partition(",")
        region.append((finite(x, "points"), finite(y, "points")))
    return tuple(region)
