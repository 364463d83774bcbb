"""Conversion of localization predictions and scored rows to arrays (:mod:`reveal_bench.kinds.arrays`), and their marks.

A mask has the size of its image. Masks are stored as run-length text in one array, in one normal form whatever the
sender wrote: COCO's compressed run lengths as pycocotools writes them, with no zero-length run except the first, and no
code longer than necessary. Mask i is ``text[offsets[i]:offsets[i + 1]]``.

Marks do not contain confidences, which are not scored. Items have positions in 16ths of the image.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, IntArray
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.geometry import Grid, box_centre, is_inside
from reveal_bench.kinds.arrays import Arrays, Codec, Fields, Item, Marks, exact, names_from, require, text_of_names
from reveal_bench.kinds.localization.records import (
    Annotation,
    ImageManifest,
    LocalizationPrediction,
    LocalizationRecord,
    ManifestRow,
)
from reveal_bench.kinds.localization.scoring import SHARE, CaseRows, score_localization
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.scored import Rows
from reveal_bench.masks import Rle, empty_rle, encode_mask, pack_masks, parse_masks, rasterize_polygons, union_masks
from reveal_bench.predictions.limits import Limits

_KINDS = ("point", "box", "cell", "mask", "none")
_TEXT_AT_ONCE = 1 << 20  # number of characters whose arrays fit into the processor's cache
_MOST_CHARACTERS = 7  # of one run

Text = npt.NDArray[np.uint8]


ImagesT = TypeVar("ImagesT", bound=ImageManifest)
RowsT = TypeVar("RowsT", bound=Rows)


class ImageCodec(Codec[LocalizationPrediction, ImagesT, RowsT]):
    """Points, cells, boxes and masks on images."""

    predictions: ClassVar[Fields] = {
        "image": ("<u4", 1),
        "finding": ("<u2", 1),
        "n_points": ("<u2", 1),
        "points": ("<f8", 2),
        "cell": ("<i2", 1),
        "has_box": ("|b1", 1),
        "boxes": ("<f8", 2),
        "score": ("<f8", 1),
        "has_mask": ("|b1", 1),
        "mask_offsets": ("<i8", 1),
        "mask_text": ("|u1", 1),
    }

    @override
    def arrays_of(self, predictions: Sequence[LocalizationPrediction], manifest: ImagesT) -> Arrays:
        """Return the arrays of checked predictions."""
        images = {image_id: i for i, image_id in enumerate(manifest.rows)}
        findings = {finding: i for i, finding in enumerate(manifest.findings)}
        cells = {cell: i for i, cell in enumerate(Grid(manifest.grid).cells)}
        try:
            image = [images[p.image_id] for p in predictions]
            finding = [findings[p.finding] for p in predictions]
            cell = [-1 if p.cell is None else cells[p.cell] for p in predictions]
        except KeyError as error:
            raise ValueError(f"predictions must have the manifest's images, findings and cells, got {error}") from None
        text, offsets = text_of_masks([p.mask for p in predictions if p.mask is not None])
        return {
            "image": np.array(image, np.uint32),
            "finding": np.array(finding, np.uint16),
            "n_points": np.array([len(p.points) for p in predictions], np.uint16),
            "points": np.array([point for p in predictions for point in p.points], np.float64).reshape(-1, 2),
            "cell": np.array(cell, np.int16),
            "has_box": np.array([p.box is not None for p in predictions], np.bool_),
            "boxes": np.array([p.box for p in predictions if p.box is not None], np.float64).reshape(-1, 4),
            "score": np.array([np.nan if p.score is None else p.score for p in predictions], np.float64),
            "has_mask": np.array([p.mask is not None for p in predictions], np.bool_),
            "mask_offsets": offsets,
            "mask_text": text,
        }

    @override
    def predictions_from(self, arrays: Arrays, manifest: ImagesT, limits: Limits) -> tuple[LocalizationPrediction, ...]:
        """Return the predictions that the arrays contain; a mask may have as many runs as `limits` allow."""
        rows, cells = list(manifest.rows.values()), Grid(manifest.grid).cells
        _check_shapes(arrays)
        require(bool((arrays["image"] < len(rows)).all()), "`image` must be an index into the manifest")
        require(
            bool((arrays["finding"] < len(manifest.findings)).all()), "`finding` must be an index into the manifest"
        )
        cell = arrays["cell"]
        require(bool(((cell >= -1) & (cell < len(cells))).all()), "`cell` must be in the grid")
        score = arrays["score"]
        require(bool((np.isnan(score) | ((score >= 0) & (score <= 1))).all()), "`score` must be in [0, 1]")
        self.check_pairs(arrays, manifest)
        sizes = [rows[i].size for i in arrays["image"][arrays["has_mask"]].tolist()]
        offsets = arrays["mask_offsets"]
        masks = iter(masks_from_text(arrays["mask_text"], offsets, sizes, most_runs=limits.mask_runs))
        points = iter(map(tuple, arrays["points"].tolist()))
        boxes = iter(map(tuple, arrays["boxes"].tolist()))
        predictions = []
        columns = [
            arrays[name].tolist() for name in ("image", "finding", "n_points", "cell", "has_box", "score", "line")
        ]
        for image, finding, n_points, cell, has_box, score, line, has_mask in zip(
            *columns, arrays["has_mask"].tolist(), strict=True
        ):
            prediction = LocalizationPrediction(
                rows[image].image_id,
                manifest.findings[finding],
                points=tuple(next(points) for _ in range(n_points)),
                cell=None if cell < 0 else cells[cell],
                box=next(boxes) if has_box else None,
                mask=next(masks) if has_mask else None,
                score=None if score != score else score,
                line=line,
            )
            _check_place(prediction, rows[image])
            predictions.append(prediction)
        return tuple(predictions)

    @abstractmethod
    def check_pairs(self, arrays: Arrays, manifest: ImagesT) -> None:
        """Raise ValueError if a pair (image, finding) has more predictions than a file may have."""


class LocalizationCodec(ImageCodec[ImageManifest, CaseRows]):
    """Points, cells, boxes and masks of findings that are asked for."""

    rows: ClassVar[Fields] = {
        "text": ("|u1", 1),
        "image": ("<u4", 1),
        "finding": ("<u2", 1),
        "point_kind": ("|u1", 1),
        "cell_kind": ("|u1", 1),
        "values": ("<f8", 2),
    }

    @override
    def manifest_from(self, raw: dict[str, Any]) -> ImageManifest:
        """Return the manifest, whose rows are by image id, in order."""
        return ImageManifest(**manifest_fields(raw))

    @override
    def check_pairs(self, arrays: Arrays, manifest: ImageManifest) -> None:
        """Raise ValueError unless each predicted (image, finding) is asked for and predicted once."""
        n = len(manifest.findings)
        pairs = arrays["image"].astype(np.int64) * n + arrays["finding"]
        require(len(np.unique(pairs)) == len(pairs), "each (image, finding) must be predicted once")
        rows = manifest.rows.values()
        asked = {i * n + manifest.findings.index(finding) for i, row in enumerate(rows) for finding in row.asked}
        require(asked.issuperset(pairs.tolist()), "every (image, finding) must be asked for by the manifest")

    @override
    def arrays_of_rows(self, rows: CaseRows) -> Arrays:
        """Return names as indices, every metric's values, and the proportions of images that references cover."""
        columns = rows.values | ({SHARE: rows.shares} if len(rows.shares) else {})
        images = {pair: i for i, pair in enumerate(rows.all_images)}
        findings = {finding: i for i, finding in enumerate(rows.findings)}
        names = {
            "findings": rows.findings,
            "metrics": list(columns),
            "all_images": rows.all_images,
            "notes": rows.notes,
        }
        pairs = zip(rows.image_ids, rows.patient_ids, strict=True)
        return {
            "text": text_of_names(names),
            "image": np.array([images[pair] for pair in pairs], np.uint32),
            "finding": np.array([findings[finding] for finding in rows.case_findings], np.uint16),
            "point_kind": np.array([_KINDS.index(kind) for kind in rows.point_kinds], np.uint8),
            "cell_kind": np.array([_KINDS.index(kind) for kind in rows.cell_kinds], np.uint8),
            "values": np.array(list(columns.values()), np.float64).reshape(len(columns), len(rows)),
        }

    @override
    def rows_from(self, arrays: Arrays) -> CaseRows:
        """Rebuild the rows."""
        names = names_from(arrays["text"])
        images = tuple((image, patient) for image, patient in names["all_images"])
        findings = tuple(names["findings"])
        n = len(arrays["image"])
        if arrays["values"].shape != (len(names["metrics"]), n):
            raise ArgumentError("values", f"must have shape ({len(names['metrics'])}, {n})", arrays["values"].shape)
        limits = {"image": len(images), "finding": len(findings), "point_kind": len(_KINDS), "cell_kind": len(_KINDS)}
        for name, limit in limits.items():
            if len(arrays[name]) != n or (n and int(arrays[name].max()) >= limit):
                raise ValueError(f"`{name}` must be {n} indices below {limit}")
        chosen = [images[i] for i in arrays["image"].tolist()]
        values = dict(zip(names["metrics"], arrays["values"], strict=True))
        return CaseRows(
            findings=findings,
            image_ids=[image for image, _ in chosen],
            patient_ids=[patient for _, patient in chosen],
            case_findings=[findings[i] for i in arrays["finding"].tolist()],
            point_kinds=[_KINDS[i] for i in arrays["point_kind"].tolist()],
            cell_kinds=[_KINDS[i] for i in arrays["cell_kind"].tolist()],
            shares=values.pop(SHARE, np.zeros(0)),
            values=values,
            all_images=images,
            notes=tuple(names["notes"]),
        )


def manifest_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a manifest of images from its JSON values."""
    rows = {key: ManifestRow(**{**row, "asked": tuple(row["asked"])}) for key, row in raw["rows"].items()}
    others = tuple(raw.get("others", ()))
    return {**raw, "findings": tuple(raw["findings"]), "rows": rows, "others": others}


def _check_shapes(arrays: Arrays) -> None:
    n = len(arrays["line"])
    for name in ("image", "finding", "n_points", "cell", "has_box", "score", "has_mask"):
        require(len(arrays[name]) == n, f"`{name}` must have one value per prediction, {n}, got {len(arrays[name])}")
    n_points, n_boxes = int(arrays["n_points"].sum(dtype=np.int64)), int(arrays["has_box"].sum())
    require(arrays["points"].shape == (n_points, 2), f"`points` must have shape ({n_points}, 2)")
    require(arrays["boxes"].shape == (n_boxes, 4), f"`boxes` must have shape ({n_boxes}, 4)")


def _check_place(prediction: LocalizationPrediction, row: ManifestRow) -> None:
    for x, y in prediction.points:
        require(is_inside(x, y, size=row.size), "`points` must be inside the image")
    if prediction.box is not None:
        x, y, width, height = prediction.box
        fits = 0 <= x <= x + width <= row.width and 0 <= y <= y + height <= row.height and width > 0 and height > 0
        require(fits and is_inside(*box_centre(prediction.box), size=row.size), "`boxes` must be inside the image")
    place = prediction.points or prediction.cell or prediction.box or prediction.mask
    require(bool(place), "a prediction must hold a point, cell, box or mask")


def text_of_masks(masks: Sequence[Rle]) -> tuple[Text, IntArray]:
    """Return (text, offsets): the text of all masks, and the offsets at which each mask begins and the last ends, shape
    (n + 1,).

    Raises
    ------
    ValueError
        If a mask is malformed.
    """
    texts, lengths = [np.zeros(0, np.uint8)], [np.zeros(1, np.int64)]
    for batch in _batches([len(rle.counts) for rle in masks]):
        packed = pack_masks(masks[batch])
        text, n_characters = _spell(packed.ends, packed.offsets)
        texts.append(text)
        lengths.append(n_characters)
    return np.concatenate(texts), np.cumsum(np.concatenate(lengths))


def masks_from_text(
    text: Text, offsets: IntArray, sizes: Sequence[tuple[int, int]], *, most_runs: int
) -> tuple[Rle, ...]:
    """Rebuild the masks.

    Parameters
    ----------
    sizes : (height, width) of each mask
    most_runs : largest number of runs in one mask

        If offsets do not fit the text, or a mask is malformed, does not fill its size or has too many runs.
    """
    if len(offsets) != len(sizes) + 1 or offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets) < 0).any():
        raise ValueError(f"the offsets of {len(sizes)} masks must rise from 0 to {len(text)}")
    spelt = text.tobytes().decode("latin-1")
    places = offsets.tolist()
    masks = tuple(Rle(size, spelt[a:b]) for size, a, b in zip(sizes, places[:-1], places[1:], strict=True))
    for batch in _batches(np.diff(offsets).tolist()):
        packed, problems = parse_masks(masks[batch])
        if problems:
            raise ValueError(f"a mask is malformed: {next(iter(problems.values()))}")
        if (np.diff(packed.offsets) > most_runs).any():
            raise ValueError(f"a mask may have at most {most_runs} runs, got {int(np.diff(packed.offsets).max())}")
    return masks


def _batches(lengths: Sequence[int]) -> Iterator[slice]:
    start = n_characters = 0
    for i, length in enumerate(lengths):
        n_characters += length
        if n_characters >= _TEXT_AT_ONCE:
            yield slice(start, i + 1)
            start, n_characters = i + 1, 0
    if start < len(lengths):
        yield slice(start, len(lengths))


def _spell(ends: npt.NDArray[np.int32], offsets: IntArray) -> tuple[Text, IntArray]:
    """Return (text, lengths): the text of packed masks, and the number of characters of each."""
    runs = np.diff(ends, prepend=ends.dtype.type(0))
    runs[offsets[:-1]] = ends[offsets[:-1]]
    values = runs.copy()
    values[2:] -= runs[:-2]  # a code is the difference from the run two places before
    for place in range(3):  # the first three codes of a mask are not differences
        early = offsets[:-1] + place
        early = early[early < offsets[1:]]
        values[early] = runs[early]
    # 5 bits per character, lowest first, sign-extended
    n_characters = np.ones(len(values), np.int8)
    for more in range(1, _MOST_CHARACTERS):
        n_characters += (values >= 1 << 5 * more - 1) | (values < -(1 << 5 * more - 1))
    stops = np.cumsum(n_characters, dtype=np.int64)
    starts = stops - n_characters
    text = np.empty(int(stops[-1]), np.uint8)
    which = np.arange(len(values))
    for place in range(_MOST_CHARACTERS):
        continued = n_characters[which] > place + 1
        text[starts[which] + place] = (values[which] & 0x1F) + 48 + (continued.astype(np.int32) << 5)
        which = which[continued]
        if len(which) == 0:
            break
        values[which] >>= 5
    return text, np.diff(stops[offsets[1:] - 1], prepend=0)


PARTS = 16  # number of positions along an image's side
MANY_POINTS = 4  # mean number of points per finding and image
NEARLY_ALL = 0.95
_MASKS_AT_ONCE = 256


def marks_of(
    predictions: Sequence[LocalizationPrediction], manifest: ImageManifest, thresholds: float | Mapping[str, float]
) -> Marks:
    """Return the point, cell, box and mask of each prediction; items are their rounded locations."""
    cases = sorted(predictions, key=lambda p: (p.image_id, p.finding))
    return Marks([case_answer(p) for p in cases], set(case_items(cases, manifest)))


def signs_of(cases: Sequence[LocalizationPrediction], manifest: ImageManifest) -> list[str]:
    """Return signs of probing: points at one place, lattices of points, and masks that are empty, whole images or
    rectangles.
    """
    if not cases:
        return ["Nothing is predicted."]
    signs = []
    points = [(p, point) for p in cases for point in p.points]
    n_pointed = len({(p.image_id, p.finding) for p, _ in points})
    places = Counter(_place(point, manifest.rows[p.image_id].size) for p, point in points)
    if n_pointed >= 20 and max(places.values()) >= NEARLY_ALL * n_pointed:
        signs.append("Nearly all points are at the same place of their images.")
    if n_pointed and len(points) >= MANY_POINTS * n_pointed:
        signs.append(f"{MANY_POINTS} points or more for a finding, on average.")
    masks = [(size[0] * size[1], area, box[2] * box[3]) for _, size, area, box in _masks(cases)]
    if masks and not any(area for _, area, _ in masks):
        signs.append("Every mask is empty.")
    if sum(area >= 0.95 * pixels for pixels, area, _ in masks) >= max(1, 0.05 * len(masks)):
        signs.append("At least one mask in twenty covers the whole image.")
    if sum(area == full > 0 for _, area, full in masks) >= max(1, 0.5 * len(masks)):
        signs.append("At least half of the masks are plain rectangles.")
    boxes = [(p.box[2] * p.box[3], manifest.rows[p.image_id].size) for p in cases if p.box is not None]
    if sum(area >= 0.95 * height * width for area, (height, width) in boxes) >= max(1, 0.05 * len(boxes)):
        signs.append("At least one box in twenty covers the whole image.")
    return signs


def case_answer(p: LocalizationPrediction) -> Item:
    """Return all parts of a prediction except its score."""
    return (
        p.image_id,
        p.finding,
        sorted((exact(x), exact(y)) for x, y in p.points),
        p.cell,
        None if p.box is None else [exact(side) for side in p.box],
        None if p.mask is None else (p.mask.size, p.mask.counts),
    )


def case_items(cases: Sequence[LocalizationPrediction], manifest: ImageManifest) -> Iterator[Item]:
    """Yield the rounded locations of predictions."""
    for p in cases:
        case, size = (p.image_id, p.finding), manifest.rows[p.image_id].size
        if p.points:
            yield (*case, "point", *sorted({_place(point, size) for point in p.points}))
        if p.cell is not None:
            yield (*case, "cell", p.cell)
        if p.box is not None:
            yield (*case, "box", *_corners(p.box, size))
    for p, size, area, box in _masks(cases):
        full = max(box[2] * box[3], 1.0)
        yield (p.image_id, p.finding, "mask", *_corners(box, size), round(8 * area / full))


def _masks(
    cases: Sequence[LocalizationPrediction],
) -> Iterator[tuple[LocalizationPrediction, tuple[int, int], int, tuple[float, ...]]]:
    """Yield prediction, size, area in pixels and tight box (zeros if empty) of each mask, unpacking a few at a time."""
    remaining = iter([(p, p.mask) for p in cases if p.mask is not None])
    while batch := list(islice(remaining, _MASKS_AT_ONCE)):
        packed = pack_masks([mask for _, mask in batch])
        boxes = np.nan_to_num(packed.boxes_xywh())
        for (p, mask), area, box in zip(batch, packed.areas.tolist(), boxes.tolist(), strict=True):
            yield p, mask.size, area, tuple(box)


def _place(point: tuple[float, float], size: tuple[int, int]) -> tuple[int, int]:
    height, width = size
    return int(PARTS * point[0] / width), int(PARTS * point[1] / height)


def _corners(box: Sequence[float], size: tuple[int, int]) -> Item:
    x, y, width, height = box
    return *_place((x, y), size), *_place((x + width, y + height), size)


def example_upload() -> tuple[ImageManifest, str]:
    """Return (manifest, file): the file has a mask as run lengths, a mask as a contour, and a point."""
    finding = CHEXLOCALIZE_FINDINGS[0]
    rows = {name: ManifestRow(name, name, "AP", 8, 8, (finding,)) for name in ("a", "b")}
    manifest = ImageManifest("warm-up", "1", "test", 8, CHEXLOCALIZE_FINDINGS, rows)
    square = rasterize_polygons([[(1, 1), (5, 1), (5, 5)]], (8, 8))
    union_masks(pack_masks([square, empty_rle((8, 8))]))
    rle = json.dumps({"size": list(square.size), "counts": square.counts})
    lines = [
        f'{{"image_id": "a", "finding": "{finding}", "rle": {rle}, "point": [1, 1], "score": 0.5}}',
        f'{{"image_id": "b", "finding": "{finding}", "polygons": [[[1, 1], [5, 1], [5, 5]]]}}',
    ]
    return manifest, "\n".join(lines)


def example_images(*, by_box: bool = False) -> list[LocalizationRecord]:
    """Return two images with a finding, drawn as a mask or as a box."""
    finding, box = CHEXLOCALIZE_FINDINGS[0], (1.0, 2.0, 4.0, 4.0)
    rle, boxes = (None, (box,)) if by_box else (encode_mask(_mask()), ())
    drawn = Annotation(finding, "ground_truth", rle, (), box, 1, 16, boxes)
    status = dict.fromkeys(CHEXLOCALIZE_FINDINGS, 0) | {finding: 1}
    return [LocalizationRecord(name, name, name, "AP", 8, 12, status, annotations=(drawn,)) for name in ("a", "b")]


def example_rows() -> list[CaseRows]:
    """Return example rows of points, boxes and masks, scored against masks and against boxes."""
    finding, mask = CHEXLOCALIZE_FINDINGS[0], encode_mask(_mask())
    predictions = [
        LocalizationPrediction("a", finding, points=((1.0, 1.0),), box=(1.0, 2.0, 4.0, 4.0), mask=mask),
        LocalizationPrediction("b", finding, mask=mask),
    ]
    both = (example_images(by_box=by_box) for by_box in (False, True))
    return [score_localization(predictions, images, findings=CHEXLOCALIZE_FINDINGS) for images in both]


def _mask() -> BoolArray:
    mask = np.zeros((12, 8), np.bool_)
    mask[2:6, 1:5] = True
    return mask
