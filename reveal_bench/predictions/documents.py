"""JSON documents: the three kinds of CheXlocalize file, and COCO results.

Conventions
-----------
CheXlocalize (github.com/rajpurkarlab/cheXlocalize), as released::

    segmentations   {image_id: {finding: {"size": [h, w], "counts": "..."}}}
    salient points  {image_id: {finding: [[x, y], ...]}}
    annotations     {image_id: {"img_size": [h, w], finding: [[[x, y], ...], ...]}}

An empty list of points or contours is no prediction. COCO results are a list of ``{"image_id", "category_id", "bbox" |
"segmentation", "score"}``. A results file does not carry its categories: ``category_id`` may be the finding's name, or
its 1-based position in the benchmark's findings, and the latter is reported; ``category``, ``name`` and ``finding`` may
hold the name instead. Polygons of COCO are flat lists [x1, y1, x2, y2, ...].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reveal_bench.predictions.jsonl import FIELDS, Entry
from reveal_bench.predictions.report import ProblemLog
from reveal_bench.predictions.source import Limits
from reveal_bench.predictions.strict_json import JsonError, parse_json
from reveal_bench.records import Manifest

__all__ = ["chexlocalize_format", "load_document", "read_chexlocalize", "read_coco"]

_GEOMETRY_OF = {
    "chexlocalize-segmentations": "rle",
    "chexlocalize-points": "points",
    "chexlocalize-annotations": "polygons",
}
_COCO_NAMES = ("category_id", "category", "name", "finding")
_COCO_KEPT = ("image_id", "score", "bbox", "segmentation")
_MOST_NAMED = 10  # unknown fields of one entry
_COCO_IGNORED = ("id", "area", "iscrowd")


def load_document(data: bytes, limits: Limits, log: ProblemLog) -> Any:
    """The value of a JSON document; None if refused."""
    containers = data.count(b"[") + data.count(b"{")
    if containers > limits.containers:
        log.refuse("containers", f"a JSON document may have at most {limits.containers} brackets", value=containers)
        return None
    n_commas = data.count(b",")
    if n_commas > limits.values:
        log.refuse("containers", f"a JSON document may have at most {limits.values} commas", value=n_commas)
        return None
    try:
        value, duplicate_keys = parse_json(data)
    except JsonError as fault:
        log.refuse(fault.rule, str(fault), hint=fault.hint)
        return None
    for key in duplicate_keys:
        log.error("duplicate-key", "a key may stand only once in an object", field=key, value=key)
    return value


def chexlocalize_format(document: dict[str, Any]) -> str:
    """Which of the three kinds `document` is, by the first image that says so."""
    for findings in document.values():
        if isinstance(findings, dict) and findings:
            if "img_size" in findings:
                return "chexlocalize-annotations"
            first = next(iter(findings.values()))
            return "chexlocalize-points" if isinstance(first, list) else "chexlocalize-segmentations"
    return "chexlocalize-segmentations"


def read_chexlocalize(
    document: dict[str, Any], file_format: str, manifest: Manifest, limits: Limits, log: ProblemLog
) -> Iterator[Entry]:
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
            yield Entry(number, fields, f"{image_id}.{finding}")


def _check_img_size(image_id: str, findings: dict[str, Any], manifest: Manifest, number: int, log: ProblemLog) -> None:
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


def read_coco(document: list[Any], manifest: Manifest, limits: Limits, log: ProblemLog) -> Iterator[Entry]:
    """Yield the entries of COCO results; entries are numbered from 1."""
    if len(document) > limits.entries:
        log.refuse("entries", f"a file may have at most {limits.entries} predictions", value=len(document))
        return
    n_numbered = 0
    for number, result in enumerate(document, start=1):
        if not isinstance(result, dict):
            log.error("not-an-object", "a COCO result must be an object", line=number, value=result)
            continue
        for key in sorted(set(result) - {*_COCO_NAMES, *_COCO_KEPT, *_COCO_IGNORED})[:_MOST_NAMED]:
            hint = "predictions of the canonical form stand one per line, not in a list" if key in FIELDS else ""
            log.error("unknown-field", "is no field of a COCO result", line=number, field=key, value=key, hint=hint)
        n_numbered += type(result.get("category_id")) is int
        yield Entry(number, _coco_fields(result, manifest), "")
    if n_numbered:
        numbered = ", ".join(f"{i} {name}" for i, name in enumerate(manifest.findings, start=1))
        log.warning(
            "category-number",
            f"`category_id` was read as the position in the benchmark's findings in {n_numbered} entries: {numbered}",
            field="category_id",
            hint="give the finding's name to be sure",
        )


def _coco_fields(result: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    fields = {key: value for key, value in result.items() if key in _COCO_KEPT}
    for key in _COCO_NAMES:
        if key in result:
            fields["finding"] = result[key]
    if type(fields.get("finding")) is int and 1 <= fields["finding"] <= len(manifest.findings):
        fields["finding"] = manifest.findings[fields["finding"] - 1]
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
