"""Files of localization predictions: recognition of the format by content, reading of entries, and writing.

Formats
-------
``jsonl`` (the canonical form: one prediction per line), ``csv``, ``tsv``, ``parquet``, ``chexlocalize-segmentations``,
``chexlocalize-points``, ``chexlocalize-annotations``, ``coco-results``; any of them may be compressed
(:mod:`reveal_bench.predictions.limits`). The name of the file does not matter.

CheXlocalize (github.com/rajpurkarlab/cheXlocalize), as released::

    segmentations   {image_id: {finding: {"size": [h, w], "counts": "..."}}}
    salient points  {image_id: {finding: [[x, y], ...]}}
    annotations     {image_id: {"img_size": [h, w], finding: [[[x, y], ...], ...]}}

An empty list of points or contours is not a prediction. COCO results are a list of ``{"image_id", "category_id", "bbox"
| "segmentation", "score"}``. A results file does not contain its categories, so ``category_id`` must be the finding's
name; a number could count from 0 or from 1, in any order. The name may be in ``category``, ``name`` or ``finding``
instead. Polygons of COCO are flat lists [x1, y1, x2, y2, ...].

To add a field, extend :data:`FIELDS` here, the rules in ``checks.py``, the columns in ``predictions/tables.py``, and
the records in ``records.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction
from reveal_bench.predictions.jsonl import JsonError, RawPrediction, parse_json, read_jsonl, times_in
from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.report import ProblemLog
from reveal_bench.predictions.tables import read_csv, read_parquet

_GEOMETRY_OF = {
    "chexlocalize-segmentations": "rle",
    "chexlocalize-points": "points",
    "chexlocalize-annotations": "polygons",
}
_COCO_NAMES = ("category_id", "category", "name", "finding")
_COCO_KEPT = ("image_id", "score", "bbox", "segmentation")
_MOST_NAMED = 10  # largest number of unknown fields reported for one entry
_COCO_IGNORED = ("id", "area", "iscrowd")


def load_document(data: bytes, limits: Limits, log: ProblemLog) -> Any:
    """Return the value of a JSON document; None if it is refused."""
    n_lists, n_objects, n_commas = times_in(data, b"[{,")
    containers = n_lists + n_objects
    if containers > limits.containers:
        log.refuse("containers", f"a JSON document may have at most {limits.containers} brackets", value=containers)
        return None
    if n_commas > limits.values:
        log.refuse("containers", f"a JSON document may have at most {limits.values} commas", value=n_commas)
        return None
    try:
        value, duplicate_keys = parse_json(data)
    except JsonError as fault:
        log.refuse(fault.rule, str(fault), hint=fault.hint)
        return None
    for key in duplicate_keys:
        log.error("duplicate-key", "a key may appear only once in an object", field=key, value=key)
    return value


def chexlocalize_format(document: dict[str, Any]) -> str:
    """Return the CheXlocalize format of `document`, recognised by its first image with findings."""
    for findings in document.values():
        if isinstance(findings, dict) and findings:
            if "img_size" in findings:
                return "chexlocalize-annotations"
            first = next(iter(findings.values()))
            return "chexlocalize-points" if isinstance(first, list) else "chexlocalize-segmentations"
    return "chexlocalize-segmentations"


def read_chexlocalize(
    document: dict[str, Any], file_format: str, manifest: ImageManifest, limits: Limits, log: ProblemLog
) -> Iterator[RawPrediction]:
    """Yield every (image, finding) of a CheXlocalize document; entries are numbered in file order from 1."""
    geometry = _GEOMETRY_OF[file_format]
    number = 0
    for image_id, findings in document.items():
        if not isinstance(findings, dict):
            hint = "{image: {finding: ...}}"
            log.error("wrong-type", "must be an object of findings", field=image_id, value=findings, hint=hint)
            continue
        if geometry == "polygons":
            _check_img_size(image_id, findings, manifest, number + 1, log)
        for finding, value in findings.items():
            if (finding == "img_size" and geometry == "polygons") or value == []:
                continue
            number += 1
            if number > limits.entries:
                log.refuse("entries", f"a file may have at most {limits.entries} predictions")
                return
            fields = {"image_id": image_id, "finding": finding, geometry: value}
            yield RawPrediction(number, fields, f"{image_id}.{finding}")


def _check_img_size(
    image_id: str, findings: dict[str, Any], manifest: ImageManifest, number: int, log: ProblemLog
) -> None:
    field = f"{image_id}.img_size"
    row = manifest.rows.get(image_id)
    if "img_size" not in findings:
        log.error(
            "missing-field", "`img_size` is missing", line=number, field=field, hint='"img_size": [height, width]'
        )
    elif row is not None and findings["img_size"] != [row.height, row.width]:
        hint = "contours are given in pixels of the full-size image"
        message = f"must be the image's [height, width] = [{row.height}, {row.width}]"
        log.error("image-size", message, line=number, field=field, value=findings["img_size"], hint=hint)


def read_coco(document: list[Any], limits: Limits, log: ProblemLog) -> Iterator[RawPrediction]:
    """Yield the entries of COCO results; entries are numbered from 1."""
    if len(document) > limits.entries:
        log.refuse("entries", f"a file may have at most {limits.entries} predictions", value=len(document))
        return
    for number, result in enumerate(document, start=1):
        if not isinstance(result, dict):
            log.error("not-an-object", "a COCO result must be an object", line=number, value=result)
            continue
        for key in sorted(set(result) - {*_COCO_NAMES, *_COCO_KEPT, *_COCO_IGNORED})[:_MOST_NAMED]:
            hint = "in the canonical form, predictions are one per line, not in a list" if key in FIELDS else ""
            log.error("unknown-field", "is not a field of a COCO result", line=number, field=key, value=key, hint=hint)
        yield RawPrediction(number, _coco_fields(result), "")


def _coco_fields(result: dict[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in result.items() if key in _COCO_KEPT}
    for key in _COCO_NAMES:
        if key in result:
            fields["finding"] = result[key]
    if "bbox" in fields:
        fields["box"] = fields.pop("bbox")
    if isinstance(fields.get("segmentation"), list):
        fields["polygons"] = [_paired(contour) for contour in fields.pop("segmentation")]
    elif "segmentation" in fields:
        fields["rle"] = fields.pop("segmentation")
    return fields


def _paired(contour: Any) -> Any:
    if isinstance(contour, list) and len(contour) % 2 == 0:
        return [list(pair) for pair in zip(contour[0::2], contour[1::2], strict=True)]
    return contour


_LOOKED_AT = 1 << 16
_FIRST_MEMBER = re.compile(rb'\{\s*+"((?:[^"\\]|\\.)*+)"\s*+:\s*+(.)', re.DOTALL)
_COCO_DATASET = (b"images", b"annotations", b"categories", b"info", b"licenses")
TORCHVISION = ("boxes", "labels", "scores")
OF_TORCHVISION = (
    'write {"image_id", "category_id", "bbox", "score"} for each box, with the name of the finding as `category_id`, '
    "and read that with `reveal-bench convert FOLDER --from table --boxes xyxy`; or in Python, use "
    "rb.convert(outputs, bench, ids=image_ids, categories=names)"
)


def read_entries(
    data: bytes, manifest: ImageManifest, limits: Limits, log: ProblemLog
) -> tuple[str, Iterator[RawPrediction]]:
    """Find the format of `data` and read it.

    Returns
    -------
    format : str, "unknown" if none fits
    entries : iterator; entries are read, and problems logged, during iteration
    """
    if data.startswith(b"PAR1"):
        return "parquet", read_parquet(data, limits, log)
    head = data[:_LOOKED_AT].lstrip()
    first = head[:1]
    if first == b"[" or (first == b"{" and _is_document(head)):
        return _read_document(data, manifest, limits, log)
    if first == b"{":
        return "jsonl", read_jsonl(data, limits, log)
    return "tsv" if b"\t" in head.split(b"\n", 1)[0] else "csv", read_csv(data, limits, log)


def _is_document(head: bytes) -> bool:
    """Return True if text that begins with `{` is one object that contains objects, not one prediction per line."""
    member = _FIRST_MEMBER.match(head)
    if member is None or member[1].decode("utf-8", "replace") in FIELDS or b'"image_id"' in head:
        return member is not None and member[1] in _COCO_DATASET
    return member[2] == b"{" or member[1] in _COCO_DATASET or member[1].decode("utf-8", "replace") in TORCHVISION


def _read_document(
    data: bytes, manifest: ImageManifest, limits: Limits, log: ProblemLog
) -> tuple[str, Iterator[RawPrediction]]:
    member = _FIRST_MEMBER.match(data[:_LOOKED_AT].lstrip())
    is_of_torchvision = member is not None and member[1].decode("utf-8", "replace") in TORCHVISION  # maybe in lines
    document = None if is_of_torchvision else load_document(data, limits, log)
    if is_of_torchvision or _is_of_torchvision(document):
        rule = "the output of a torchvision detector (boxes, labels and scores) is not a file of predictions"
        log.refuse("format", rule, hint=OF_TORCHVISION)
        return "unknown", iter(())
    if isinstance(document, list):
        return "coco-results", read_coco(document, limits, log)
    if not isinstance(document, dict):  # refused
        return "unknown", iter(())
    if any(name.decode() in document for name in _COCO_DATASET):
        hint = "COCO results are a list of {image_id, category_id, bbox or segmentation, score}"
        log.refuse("format", "a COCO dataset is not a file of predictions", value=list(document), hint=hint)
        return "unknown", iter(())
    file_format = chexlocalize_format(document)
    return file_format, read_chexlocalize(document, file_format, manifest, limits, log)


def _is_of_torchvision(document: Any) -> bool:
    """Return True for torchvision's boxes and scores of one image, a list of these, or a mapping of images to these."""
    if isinstance(document, dict) and not set(TORCHVISION[::2]) <= set(document):
        document = next(iter(document.values()), None)
    elif isinstance(document, list):
        document = next(iter(document), None)
    return isinstance(document, dict) and set(TORCHVISION[::2]) <= set(document)


GEOMETRIES = ("point", "points", "cell", "box", "rle", "polygons")


FIELDS = ("image_id", "finding", *GEOMETRIES, "score")


def predictions_to_jsonl(predictions: Iterable[LocalizationPrediction]) -> str:
    r"""Return the canonical text of `predictions`, in their order; the same predictions always give the same bytes.

    Whole coordinates are written without a decimal point.

    Examples
    --------
    >>> predictions_to_jsonl([LocalizationPrediction("a", "Edema", points=((3.0, 4.5),), score=0.5)])
    '{"image_id": "a", "finding": "Edema", "point": [3, 4.5], "score": 0.5}\n'
    """
    return "".join(json.dumps(_line_fields(prediction)) + "\n" for prediction in predictions)


def _line_fields(prediction: LocalizationPrediction) -> dict[str, Any]:
    fields: dict[str, Any] = {"image_id": prediction.image_id, "finding": prediction.finding}
    points = [[_plain(x), _plain(y)] for x, y in prediction.points]
    if len(points) == 1:
        fields["point"] = points[0]
    elif points:
        fields["points"] = points
    if prediction.cell is not None:
        fields["cell"] = prediction.cell
    if prediction.box is not None:
        fields["box"] = [_plain(side) for side in prediction.box]
    if prediction.mask is not None:
        fields["rle"] = {"size": list(prediction.mask.size), "counts": prediction.mask.counts}
    if prediction.score is not None:
        fields["score"] = _plain(prediction.score)
    return fields


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else float(value)


def place_fields(place: Any) -> dict[str, Any]:
    """Return the fields of a line for a location given in Python without other fields.

    Examples
    --------
    >>> place_fields((3, 4.5)), place_fields("D5"), place_fields({"box": [1, 2, 3, 4]})
    ({'point': [3, 4.5]}, {'cell': 'D5'}, {'box': [1, 2, 3, 4]})
    """
    if isinstance(place, str):
        return {"cell": place}
    if isinstance(place, Mapping):
        return {"rle": dict(place)} if {"size", "counts"} & place.keys() else dict(place)
    if getattr(place, "ndim", 0) == 2 and (place.shape[1] != 2 or str(place.dtype).endswith("bool")):
        return {"mask": place}
    listed = place.tolist() if hasattr(place, "tolist") else list(place) if isinstance(place, Sequence) else place
    if isinstance(listed, int | float):
        rule = "must locate each finding, as {image: {finding: (x, y)}}: a probability alone has no place"
        raise ArgumentError("predictions", rule, listed)
    is_several = isinstance(listed, list) and listed and all(isinstance(one, Sequence) for one in listed)
    return {"points" if is_several else "point": listed}
