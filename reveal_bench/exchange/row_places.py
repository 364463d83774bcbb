"""Read the position of a finding in a row of another program: a box, points, a mask or contours.

A position becomes pixels of the full-size image, x to the right and y down. Fractions of the image's sides must be
announced; positions that are all at most 1 are refused otherwise, because as pixels they would hit nothing.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.challenge_tables import MASK
from reveal_bench.geometry import box_around, stated_rotation
from reveal_bench.masks import pack_masks, union_masks
from reveal_bench.masks.relative_runs import MaskError, decode_relative
from reveal_bench.words import count_text

BoxForm = Literal["xywh", "xyxy", "cxcywh"]
BOX_COLUMNS: dict[tuple[str, ...], BoxForm] = {
    ("x_min", "y_min", "x_max", "y_max"): "xyxy", ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x1", "y1", "x2", "y2"): "xyxy", ("left", "top", "right", "bottom"): "xyxy",
    ("box.x1", "box.y1", "box.x2", "box.y2"): "xyxy",
    ("cx", "cy", "w", "h"): "cxcywh", ("x_center", "y_center", "width", "height"): "cxcywh",
    ("x", "y", "width", "height"): "xywh", ("x", "y", "w", "h"): "xywh",
}  # fmt: skip
"""Names of the four numbers of a box, as columns or in a mapping -> their meaning."""
PLACES = ("point", "points", "cell", "box", "rle", "polygons", "mask")
"""Fields of a prediction line that locate a finding."""
_SCALAR = re.compile(r"\b(?:np|numpy)\.\w+\(([^()]*)\)")  # as numpy 2 writes a number in a list
_ARRAY = re.compile(r"\b(?:tensor|array)\((\[.*?\])(?:, \w+=[^()]*)*\)", re.DOTALL)
_LARGEST_FRACTION = 1.01  # fractions may exceed 1 by rounding
_THOUSANDTHS = (800, 1000, 1100)  # the largest coordinate is between the first two, on images longer than the third


class RowPlaces:
    """Reads positions in the rows of one source.

    Parameters
    ----------
    entries : id -> entry of the manifest
    box_form : meaning of a box's four numbers
    is_normalised : True if coordinates are fractions of the image's sides
    """

    def __init__(self, entries: Mapping[str, Any], box_form: BoxForm, *, is_normalised: bool) -> None:
        self.box_form = box_form
        self._entries, self._is_normalised = entries, is_normalised
        self._n_rotated = 0
        self._largest, self._is_whole, self._longest = -math.inf, True, 0

    def read(self, row: Mapping[str, Any], one: str, number: int) -> dict[str, Any]:
        """Return the fields that locate the finding in row `number`, of the id `one`."""
        place = {name: structure(row[name]) for name in PLACES if row.get(name) is not None and name != "box"}
        if "point.0" in row and "point.1" in row:
            place["point"] = [number_from(row["point.0"]), number_from(row["point.1"])]
        if "point" in place:
            place["point"] = self._point(place["point"], one, number)
        if _is_list(place.get("points")):
            place["points"] = [self._point(point, one, number) for point in place["points"]]
        if _is_list(place.get("polygons")):
            place["polygons"] = [self._points(contour, one, number) for contour in place["polygons"]]
        corners = [row.get(f"box.{i}") for i in range(4)]
        box = row.get("box", None if corners == [None] * 4 else corners)
        degrees = number_from(stated_rotation(row))
        if not isinstance(degrees, int | float) or not math.isfinite(degrees):
            raise ArgumentError("source", "must have a number of degrees as `rotation`", f"{degrees!r} in row {number}")
        if box is not None:
            place["box"] = self._box(structure(box), one, number)
            if degrees % 360:
                place["box"] = list(box_around(place["box"], degrees))
                self._n_rotated += 1
        elif degrees % 360:
            raise ArgumentError("source", "must have a box in each row with a `rotation`", f"none in row {number}")
        if texts := row.get(MASK):
            place["rle"] = self._mask(texts, one)
        shape = structure(row.get("segmentation"))
        if isinstance(shape, Mapping):
            place["rle"] = dict(shape)
        elif isinstance(shape, Sequence) and shape:
            place["polygons"] = [self._contour(contour, one, number) for contour in shape]
        return place

    def notes(self) -> list[str]:
        """Return sentences on the positions read.

        Raises
        ------
        ArgumentError
            If all coordinates look like fractions of the image's sides, but pixels were announced.
        """
        if not self._is_normalised and self._largest <= _LARGEST_FRACTION and not self._is_whole:
            rule = "must have positions in pixels; for fractions of the image's sides, set `normalised`"
            raise ArgumentError("source", rule, f"no coordinate above {self._largest:g}", ("normalised",))
        boxes = count_text(self._n_rotated, "rotated box")
        notes = [f"{boxes}: a prediction has the upright box around it"] if self._n_rotated else []
        least, most, longest = _THOUSANDTHS
        if least < self._largest <= most and self._longest > longest:
            notes.append(
                f"no coordinate exceeds {most}, though images have up to {self._longest:,} pixels a side: if "
                "coordinates are thousandths of the sides, divide by 1000 and set `normalised`"
            )
        return notes

    def _box(self, sides: Any, one: str, number: int) -> list[float]:
        form = self.box_form
        if isinstance(sides, Mapping):
            names = next((names for names in BOX_COLUMNS if set(names) == set(sides)), None)
            form = BOX_COLUMNS[names] if names else form
            sides = [sides[name] for name in names] if names else [str(dict(sides))]
        listed = [number_from(side) for side in sides] if _is_list(sides) else [number_from(sides)]
        if len(listed) != 4 or not all(_is_real(side) for side in listed):
            raise ArgumentError("source", "must have four numbers in each box", f"{listed} in row {number}, {one}")
        a, b = self._pixels(listed[:2], one, number)
        c, d = self._pixels(listed[2:], one, number)
        if form == "xyxy":
            return [a, b, c - a, d - b]
        return [a - c / 2, b - d / 2, c, d] if form == "cxcywh" else [a, b, c, d]

    def _pixels(self, pair: Sequence[Any], one: str, number: int) -> tuple[float, float]:
        """Return two coordinates, or a width and a height, in pixels."""
        x, y = (float(side) for side in pair)
        self._largest = max(self._largest, x, y)
        self._is_whole &= x.is_integer() and y.is_integer()
        entry = self._entries[one]
        if not self._is_normalised:
            self._longest = max(self._longest, entry.get("width", 0), entry.get("height", 0))
            return x, y
        if "width" not in entry:
            raise ArgumentError("normalised", "must belong to images whose size is in the manifest")
        if max(x, y) > 1 or min(x, y) < 0:
            raise ArgumentError("normalised", "must have fractions in [0, 1]", f"{[x, y]} in row {number}, {one}")
        return x * entry["width"], y * entry["height"]

    def _point(self, point: Any, one: str, number: int) -> Any:
        """Return a point in pixels; anything else is left for the linter."""
        if not _is_list(point) or len(point) != 2 or not all(_is_real(side) for side in point):
            return point
        scaled = self._pixels(point, one, number)
        return list(scaled) if self._is_normalised else point

    def _points(self, contour: Any, one: str, number: int) -> Any:
        return [self._point(point, one, number) for point in contour] if _is_list(contour) else contour

    def _contour(self, contour: Any, one: str, number: int) -> list[Any]:
        if not _is_list(contour) or len(contour) % 2:
            rule = "must have contours that are lists x, y, x, y, ... in `segmentation`"
            raise ArgumentError("source", rule, f"{repr(contour)[:60]} in row {number}")
        return [self._point(pair, one, number) for pair in zip(contour[0::2], contour[1::2], strict=True)]

    def _mask(self, texts: Sequence[str], one: str) -> dict[str, Any]:
        """Return the union of masks that are written as SIIM-ACR's pairs of gap and length."""
        entry = self._entries[one]
        if "width" not in entry:
            raise ArgumentError("source", f"must not have `{MASK}`, because the manifest states no size of images", one)
        try:
            masks = [decode_relative(text, (entry["height"], entry["width"])).rle(0) for text in texts]
        except MaskError as error:
            raise ArgumentError("source", f"{error.rule} in `{MASK}`", f"{error.value} for {one}") from None
        return asdict(union_masks(pack_masks(masks)))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def structure(value: Any) -> Any:
    """Return a list or mapping from a cell that has it as text, as CSV files do, and any other value unchanged.

    Examples
    --------
    >>> structure("[10, 20, 30, 40]"), structure("10 20 30 40"), structure("[1. 2.]"), structure("D5 or E5")
    ([10, 20, 30, 40], [10, 20, 30, 40], [1.0, 2.0], 'D5 or E5')
    >>> structure("[np.float64(1.5), np.int64(2)]"), structure("tensor([1., 2.], device='cuda:0')")
    ([1.5, 2], [1.0, 2.0])
    """
    if not isinstance(value, str):
        is_mask = str(getattr(value, "dtype", "")).endswith("bool")  # as a list it would need much memory
        return value.tolist() if hasattr(value, "tolist") and not is_mask else value
    text = _ARRAY.sub(r"\1", _SCALAR.sub(r"\1", value.strip()))
    if text.startswith(("[", "(", "{")):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(text)
    numbers = [number_from(word) for word in text.strip("[]()").replace(",", " ").split()]
    return numbers if len(numbers) > 1 and not any(isinstance(number, str) for number in numbers) else value


def number_from(value: Any) -> Any:
    """Return numeric text, or another library's number, as a Python number, and any other value unchanged."""
    if isinstance(value, str):
        from reveal_bench.predictions.tables import parse_number

        return parse_number(value)
    is_number = hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1
    return value.item() if is_number and not isinstance(value, bool | int | float) else value
