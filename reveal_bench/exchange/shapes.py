"""Share among formats: reading files within limits, masks as runs, and conversion of coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.cases import AnnotatedImage, Drawing
from reveal_bench.masks import Rle, encode_mask, pack_masks
from reveal_bench.predictions.files import open_source
from reveal_bench.predictions.jsonl import JsonError, parse_json
from reveal_bench.predictions.limits import Limits

DECIMALS = 9
"""Number of decimals of pixel coordinates converted from other units, such as percent of the width."""


def read_bytes(path: Path, name: str) -> bytes:
    """Return the file `path`, or the file `name` in the folder `path`, decompressed.

    Raises
    ------
    ArgumentError
        If the file is too large, or its compressed data are damaged.
    """
    file = path / name if path.is_dir() else path
    log, data = open_source(file, Limits())
    if data is None:
        raise ArgumentError("file", log.problems[0].message, file)
    return data


def read_json(path: Path, name: str) -> Any:
    """Return the JSON document in a file that :func:`read_bytes` can read.

    Raises
    ------
    ArgumentError
        If the file is not JSON, or an object has a key twice.
    """
    try:
        value, repeated = parse_json(read_bytes(path, name))
    except JsonError as error:
        raise ArgumentError("file", f"must be JSON: {error}", path) from None
    if repeated:
        raise ArgumentError("file", "must not have a key twice in one object", repr(repeated[0]))
    return value


def finite(value: object, what: str) -> float:
    """Return a finite number from a file, where the number may be written as text.

    Raises
    ------
    ArgumentError
        If the value is not a number, or is NaN or infinite.
    """
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ArgumentError("file", f"must have finite numbers as {what}", _short(value))
    return number


def whole(value: object, what: str) -> int:
    """Return a whole number from a file, where the number may be written as text. Raises as :func:`finite`."""
    number = finite(value, what)
    if number != int(number):
        raise ArgumentError("file", f"must have whole numbers as {what}", _short(value))
    return int(number)


def mapped(value: object, what: str) -> dict[str, Any]:
    """Return an object from a JSON document.

    Raises
    ------
    ArgumentError
        If the value is not an object.
    """
    if not isinstance(value, dict):
        raise ArgumentError("file", f"must have an object as {what}", _short(value))
    return value


def listed(value: object, what: str) -> list[Any]:
    """Return a list from a JSON document, [] if it is missing or null; raises as :func:`mapped`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ArgumentError("file", f"must have a list as {what}", _short(value))
    return value


def pairs(value: object, what: str) -> tuple[tuple[float, float], ...]:
    """Return points [[x, y], ...] from a JSON document; raises as :func:`mapped` and :func:`finite`."""
    values = []
    for pair in listed(value, what):
        if not isinstance(pair, list) or len(pair) != 2:
            raise ArgumentError("file", f"must have pairs [x, y] as {what}", _short(pair))
        values.append((finite(pair[0], what), finite(pair[1], what)))
    return tuple(values)


def word(value: object, what: str) -> str | None:
    """Return a name or number from a JSON document as text; None if it is missing or empty.

    Raises as :func:`mapped`.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, (str, int, float))):
        raise ArgumentError("file", f"must have text or a number as {what}", _short(value))
    return str(value) if value or value == 0 else None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]} ..."


def pixels(value: float) -> float:
    """Return a coordinate converted from another unit, rounded to :data:`DECIMALS` decimals.

    Raises
    ------
    ArgumentError
        If the coordinate is too large for a float.
    """
    return round(finite(value, "coordinates"), DECIMALS) + 0.0


def runs_of_mask(mask: npt.NDArray[np.bool_]) -> list[int]:
    """Return the lengths of the runs along a mask's rows, background first (the first run may be 0)."""
    flat = mask.ravel()
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    places = [0, *edges.tolist(), flat.size]
    lengths = [stop - start for start, stop in pairwise(places)]
    return [0, *lengths] if flat.size and flat[0] else lengths


def mask_of_runs(runs: Sequence[int], box: tuple[int, int, int, int], film: AnnotatedImage) -> Rle:
    """Return an image's mask from the lengths of runs along the rows of `box` (left, top, width, height).

    Raises
    ------
    ArgumentError
        If the runs do not fill the box, or the box is not within the image.
    """
    left, top, width, height = box
    inside = 0 <= left < left + width <= film.width and 0 <= top < top + height <= film.height
    if not inside:
        rule = f"must have masks within their image, {film.image_id} has {film.width} x {film.height} pixels"
        raise ArgumentError("file", rule, list(box))
    if min(runs, default=-1) < 0 or sum(runs) != width * height:
        rule = f"must have runs that fill the box of their mask ({width} x {height} pixels)"
        raise ArgumentError("file", rule, f"{sum(runs)} pixels of {film.image_id}")
    mask = np.zeros((film.height, film.width), dtype=bool)
    part = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width)
    mask[top : top + height, left : left + width] = part
    return encode_mask(mask)


def joined(a: Drawing | None, b: Drawing) -> Drawing:
    """Join two parts of a drawing, such as its mask and its points; `a` is None for the first part.

    Raises
    ------
    ArgumentError
        If the parts have different images, findings or readers, or both have a mask.
    """
    if a is None:
        return b
    if (a.image_id, a.finding, a.reader) != (b.image_id, b.finding, b.reader):
        rule = "must have one image, finding and reader in all parts of a drawing (`group`)"
        raise ArgumentError("file", rule, f"{a.image_id}, {a.finding} and {b.image_id}, {b.finding}")
    if a.mask is not None and b.mask is not None:
        raise ArgumentError("file", "must have one mask in a drawing (`group`)", f"two of {a.image_id}, {a.finding}")
    return Drawing(
        a.image_id,
        a.finding,
        a.reader,
        a.mask or b.mask,
        (*a.polygons, *b.polygons),
        (*a.boxes, *b.boxes),
        (*a.points, *b.points),
        a.cell or b.cell,
        b.score if a.score is None else a.score,
    )


def mask_in_box(rle: Rle) -> tuple[tuple[int, int, int, int], npt.NDArray[np.bool_]] | None:
    """Return a mask's tight box (left, top, width, height), and the mask within it; None for an empty mask."""
    packed = pack_masks([rle])
    if not packed.areas[0]:
        return None
    left, top, width, height = (int(side) for side in packed.boxes_xywh()[0])
    return (left, top, width, height), packed.dense(0)[top : top + height, left : left + width]
