"""Write and read Label Studio's ``tasks.json``, with the labelling setup ``config.xml`` (labelstud.io).

A task is an image or, if studies are labelled, a study of several images. A reader's drawings and labels are an
annotation of the task; a model's are a prediction. Label Studio stores coordinates in percent of the image's sides, and
a mask as a "brush": a bit stream of runs over the four channels of a picture. Contours in addition to a mask are left
out. When a file is read, relations, texts, ratings and choices that name no finding are left out and counted.

Tasks refer to pictures as local files of Label Studio, which must be started with
LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT set to the folder.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.regions import Points, RegionChecks
from reveal_bench.exchange.shapes import finite, joined, listed, mapped, pairs, pixels, read_json, word
from reveal_bench.files import write_whole
from reveal_bench.kinds.cases import PREDICTION, AnnotatedImage, Annotations, Drawing, StudyLabels
from reveal_bench.masks import Rle, decode_mask, encode_mask

FILE, IMAGES, CONFIG = "tasks.json", "images", "config.xml"
LOCAL = "/data/local-files/?d="
CHANNELS = 4
LEFT_OUT = {"relation": "relation", "textarea": "text", "rating": "rating", "number": "number", "taxonomy": "taxonomy"}
"""Types of results without a region -> what one is called."""


def write(annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
    """Write ``tasks.json`` and ``config.xml``."""
    results: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for group, drawing in enumerate(annotations.drawings, start=1):
        film = annotations.films[drawing.image_id]
        results[film.image_id][drawing.reader] += _regions(drawing, film, group)
    tasks = []
    by_study: dict[str, list[AnnotatedImage]] = defaultdict(list)
    for film in annotations.films.values():
        by_study[film.study_id].append(film)
    if annotations.studies:
        for study in annotations.studies:
            results[study.study_id][study.reader].append(_choices(study))
        for study_id, films in by_study.items():
            urls = [f"{LOCAL}{IMAGES}/{pictures[film.image_id]}" for film in films]
            tasks.append(_task({"images": urls, "study_id": study_id}, results[study_id]))
    else:
        for film in annotations.films.values():
            data = {"image": f"{LOCAL}{IMAGES}/{pictures[film.image_id]}", "study_id": film.study_id}
            tasks.append(_task({**data, "image_id": film.image_id}, results[film.image_id]))
    write_whole(out / FILE, json.dumps(tasks, allow_nan=False) + "\n")
    write_whole(out / CONFIG, _config(annotations))
    n_contours = sum(bool(drawing.polygons) and drawing.mask is not None for drawing in annotations.drawings)
    return [f"contours of {n_contours} drawings, whose masks are exported"] if n_contours else []


def _task(data: dict[str, Any], by_reader: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    task: dict[str, Any] = {"data": data, "annotations": [], "predictions": []}
    for reader, result in by_reader.items():
        if reader == PREDICTION:
            task["predictions"].append({"model_version": PREDICTION, "result": result})
        else:
            is_truth = reader == "ground_truth"
            task["annotations"].append({"ground_truth": is_truth, "was_cancelled": False, "result": result})
    return task


def _regions(drawing: Drawing, film: AnnotatedImage, group: int) -> Iterator[dict[str, Any]]:
    """Yield the regions of a drawing: mask, boxes and points, or the cell if there are none of these."""
    mark = {
        key: value for key, value in (("reader", drawing.reader), ("cell", drawing.cell), ("group", group)) if value
    }
    parts: list[tuple[str, dict[str, Any]]] = []
    if drawing.mask is not None:
        parts.append(("brushlabels", {"format": "rle", "rle": encode_brush(decode_mask(drawing.mask)).tolist()}))
    else:
        parts += [("polygonlabels", {"points": _shares(contour, film), "closed": True}) for contour in drawing.polygons]
    for x, y, width, height in drawing.boxes:
        place = {"x": x / film.width, "width": width / film.width, "y": y / film.height, "height": height / film.height}
        parts.append(("rectanglelabels", {**_percents(place), "rotation": 0}))
    for x, y in drawing.points:
        place = {"x": x / film.width, "y": y / film.height}
        parts.append(("keypointlabels", {**_percents(place), "width": 0.5}))
    if not parts and drawing.cell is not None:
        parts.append(("choices", {}))
    for n, (kind, value) in enumerate(parts):
        region = {
            "id": f"{group}-{n}",
            "type": kind,
            "from_name": "cell" if kind == "choices" else kind.removesuffix("labels"),
            "to_name": "image",
            "original_width": film.width,
            "original_height": film.height,
            "image_rotation": 0,
            "value": {**value, kind: [drawing.finding]},
            "meta": mark,
        }
        yield region if drawing.score is None else {**region, "score": drawing.score}


def _shares(contour: Sequence[tuple[float, float]], film: AnnotatedImage) -> list[list[float]]:
    return [[100 * x / film.width, 100 * y / film.height] for x, y in contour]


def _percents(shares: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * share for name, share in shares.items()}


def _choices(study: StudyLabels) -> dict[str, Any]:
    present = [label for label, value in study.values.items() if value >= 0.5]
    meta: dict[str, Any] = {"reader": study.reader}
    if study.are_probabilities:
        meta["probabilities"] = dict(study.values)
    kind = {"type": "choices", "from_name": "labels", "to_name": "image"}
    return {"id": "labels", **kind, "value": {"choices": present}, "meta": meta}


def _config(annotations: Annotations) -> str:
    """Return the labelling setup: one control per kind of region."""
    lines = ["<View>"]
    if annotations.studies:
        lines += [
            '  <Image name="image" valueList="$images"/>',
            '  <Choices name="labels" toName="image" choice="multiple">',
        ]
        lines += [f"    <Choice value={quoteattr(name)}/>" for name in annotations.names]
        lines += ["  </Choices>"]
    else:
        lines.append(
            '  <Image name="image" value="$image" zoom="true" brightnessControl="true" contrastControl="true"/>'
        )
        for control in ("Brush", "Rectangle", "KeyPoint", "Polygon"):
            lines.append(f'  <{control}Labels name="{control.lower()}" toName="image">')
            lines += [f"    <Label value={quoteattr(name)}/>" for name in annotations.names]
            lines.append(f"  </{control}Labels>")
        if any(one.cell is not None for one in annotations.drawings):
            lines.append('  <Choices name="cell" toName="image" choice="multiple">')
            lines += [f"    <Choice value={quoteattr(name)}/>" for name in annotations.names]
            lines.append("  </Choices>")
    return "\n".join([*lines, "</View>", ""])


def read(path: Path, known: Annotations) -> Annotations:
    """Read a JSON export of Label Studio, or the tasks that :func:`write` wrote."""
    tasks = read_json(path, FILE)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) and "data" in task for task in tasks):
        rule = "must be Label Studio's JSON, not JSON-MIN: a list of tasks with `data`"
        raise ArgumentError("file", rule, path)
    drawings: dict[object, Drawing] = {}
    studies = []
    regions = RegionChecks(known)
    for number, task in enumerate(tasks, start=1):
        data = mapped(task["data"], "data")
        for n, (author, region) in enumerate(_regions_of(task, regions), start=1):
            meta: dict[str, Any] = region["meta"] if isinstance(region.get("meta"), dict) else {}
            reader = word(meta.get("reader"), "reader") or author
            left_out = _left_out(region, meta, known)
            if left_out is not None:
                regions.leave_out(left_out)
                continue
            if region.get("type") == "choices" and "cell" not in meta:
                studies.append(_labels(region, meta, reader, data, regions))
                continue
            drawing = _drawing(region, meta, reader, _film(data, regions), f"region {n} of task {number}", regions)
            group = word(meta.get("group"), "group")
            key = (number, group) if group else (number, "alone", n)
            drawings[key] = joined(drawings.get(key), drawing)
    return replace(known, drawings=tuple(drawings.values()), studies=tuple(studies), notes=regions.notes)


def _left_out(region: dict[str, Any], meta: dict[str, Any], known: Annotations) -> str | None:
    """Return the name of a result that is neither a drawing nor a label of a study; None for drawings and labels."""
    kind, value = str(region.get("type")), region.get("value")
    if kind != "choices" or not isinstance(value, dict) or meta.keys() & {"reader", "cell", "probabilities"}:
        return LEFT_OUT.get(kind)
    findings = {name.casefold() for name in known.names}
    names = {str(name).replace("_", " ").casefold() for name in listed(value.get("choices"), "choices")}
    is_of_region = "x" in value or "points" in value or "rle" in value
    return "choice" if is_of_region or (names and not names & findings) else None


def _regions_of(task: dict[str, Any], regions: RegionChecks) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (reader, region) of all annotations and predictions; cancelled ones and drafts are counted as left out."""
    for _ in listed(task.get("drafts"), "drafts"):
        regions.leave_out("draft")
    for part, author in (("annotations", "completed_by"), ("predictions", "model_version")):
        for one in listed(task.get(part), part):
            if mapped(one, f"one of {part}").get("was_cancelled"):
                regions.leave_out("cancelled annotation")
                continue
            who = one.get(author)
            name = who.get("email", who.get("id")) if isinstance(who, dict) else who
            reader = PREDICTION if part == "predictions" else f"individual:{name}" if name is not None else "individual"
            yield from ((reader, mapped(region, "region")) for region in listed(one.get("result"), "result"))


def _film(data: dict[str, Any], regions: RegionChecks) -> AnnotatedImage:
    image_id = data.get("image_id")
    return regions.known.films.get(str(image_id)) or regions.film(str(image_id or data.get("image") or ""))


def _labels(
    region: dict[str, Any], meta: dict[str, Any], reader: str, data: dict[str, Any], regions: RegionChecks
) -> StudyLabels:
    known = regions.known
    images = listed(data.get("images"), "images") or [data.get("image") or ""]
    study = str(data.get("study_id") or regions.film(str(images[0])).study_id)
    if study not in known.first_films:
        raise ArgumentError("file", f"must have only studies of split {known.split!r}", repr(study)[:100])
    probabilities = meta.get("probabilities")
    if isinstance(probabilities, dict):
        values = {known.finding_of(name): finite(value, "probabilities") for name, value in probabilities.items()}
        return StudyLabels(study, reader, values, are_probabilities=True)
    choices = listed(mapped(region.get("value"), "value").get("choices"), "choices")
    present = {known.finding_of(name) for name in choices}
    return StudyLabels(study, reader, {name: float(name in present) for name in known.names})


def _drawing(
    region: dict[str, Any], meta: dict[str, Any], reader: str, film: AnnotatedImage, where: str, regions: RegionChecks
) -> Drawing:
    kind, value = str(region.get("type")), region.get("value")
    names = value.get(kind) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(names, list) or len(names) != 1:
        raise ArgumentError("file", "must have regions with one label each", f"{kind} of {film.image_id}")
    if kind not in ("brushlabels", "rectanglelabels", "keypointlabels", "polygonlabels", "choices"):
        raise ArgumentError("file", "must have regions of brush, rectangle, keypoint or polygon labels", kind)
    size = region.get("original_width"), region.get("original_height")
    regions.check_image(film, where, *size, region.get("image_rotation"))
    is_box, rotation = kind == "rectanglelabels", value.get("rotation")
    if not is_box:
        regions.check_upright(film, where, rotation)
    point = [[value.get("x"), value.get("y")]] if kind == "keypointlabels" else []
    is_contour = kind == "polygonlabels"
    score = region.get("score")
    return Drawing(
        film.image_id,
        regions.known.finding_of(names[0]),
        reader,
        _mask(value, film) if kind == "brushlabels" else None,
        (regions.contour(film, where, _points(value.get("points"), film)),) if is_contour else (),
        (regions.box(film, where, _box(value, film), rotation, about="corner"),) if is_box else (),
        regions.points(film, where, _points(point, film)),
        word(meta.get("cell"), "cell"),
        None if score is None else finite(score, "score"),
    )


def _box(value: dict[str, Any], film: AnnotatedImage) -> tuple[float, ...]:
    sides = {"x": film.width, "y": film.height, "width": film.width, "height": film.height}
    return tuple(pixels(finite(value.get(name), name) / 100 * side) for name, side in sides.items())


def _points(percents: Any, film: AnnotatedImage) -> Points:
    return tuple((pixels(x / 100 * film.width), pixels(y / 100 * film.height)) for x, y in pairs(percents, "points"))


def _mask(value: dict[str, Any], film: AnnotatedImage) -> Rle:
    try:
        data = bytes(listed(value.get("rle"), "rle"))
    except (TypeError, ValueError):
        raise ArgumentError("file", "must have brushes of bytes (`rle`)", film.image_id) from None
    return encode_mask(decode_brush(np.frombuffer(data, dtype=np.uint8), (film.height, film.width)))


def encode_brush(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """Return a mask as Label Studio's brush: every pixel four times, as runs of 0 and 255.

    The stream begins with 32 bits for the number of words, 5 bits for the word's number of bits minus one, and four
    times 4 bits for the four possible numbers of bits of a length, minus one. Each run then has one bit 1 (a run, not
    single words), 2 bits for one of the four numbers of bits, the length minus one, and the word.
    """
    flat = mask.ravel()
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    starts = np.concatenate([[0], edges])
    lengths = np.diff(np.concatenate([starts, [flat.size]])) * CHANNELS
    longest = 1 << 16
    n_parts = -(-lengths // longest)  # a longer run is split
    parts = np.full(n_parts.sum(), longest)
    parts[np.cumsum(n_parts) - 1] = lengths - (n_parts - 1) * longest
    runs = 0b110 << 24 | parts - 1 << 8 | np.where(np.repeat(flat[starts], n_parts), 255, 0)
    runs_bits = np.unpackbits(runs.astype(">u4").view(np.uint8)).reshape(-1, 32)[:, 32 - 27 :]
    head = f"{flat.size * CHANNELS:032b}{8 - 1:05b}" + "".join(f"{n - 1:04b}" for n in (4, 8, 16, 16))
    head_bits = np.frombuffer(head.encode("ascii"), dtype=np.uint8) - ord("0")
    return np.packbits(np.concatenate([head_bits, runs_bits.ravel()]))


def decode_brush(data: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Return the mask (height, width) of a brush.

    Raises
    ------
    ArgumentError
        If the brush is cut off, or belongs to an image of another size.
    """
    packed = data.tobytes()
    place = 0  # index of the next bit

    def take(n: int) -> int:
        nonlocal place
        first, last = place // 8, -(-(place + n) // 8)
        if last > len(packed):
            raise ArgumentError("file", "must have brushes that are whole (`rle`)", f"one of {data.size} bytes")
        place += n
        return int.from_bytes(packed[first:last], "big") >> (last * 8 - place) & ((1 << n) - 1)

    n_words, width = take(32), take(5) + 1
    lengths = [take(4) + 1 for _ in range(4)]
    height_px, width_px = size
    if n_words != height_px * width_px * CHANNELS:
        rule = f"must have brushes of four channels of {width_px} x {height_px} pixels"
        raise ArgumentError("file", rule, f"{n_words} words")
    words = np.zeros(n_words, dtype=bool)
    at = 0
    while at < n_words:
        is_run, length = take(1), take(lengths[take(2)]) + 1
        if at + length > n_words:
            raise ArgumentError("file", "must have brushes whose runs fill the image", f"one of {data.size} bytes")
        if is_run:
            words[at : at + length] = take(width) != 0
        else:
            single = f"{take(length * width):0{length * width}b}"
            words[at : at + length] = ["1" in single[n : n + width] for n in range(0, len(single), width)]
        at += length
    return words.reshape(height_px, width_px, CHANNELS)[..., CHANNELS - 1]
