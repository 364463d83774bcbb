"""Check the geometry of annotation files: every format reads its images, boxes, points and contours here.

Conventions
-----------
A file may state the size of an image only as it is; it may not annotate a rotated view of the image. A rotated box
becomes the upright box around it, and a box that extends beyond its image by at most
:data:`reveal_bench.geometry.SLACK` pixels is cut at the border; both are counted. Other boxes, points and contours
outside their image are refused with the place in the file. Rotations are in degrees, clockwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.shapes import finite, pixels, whole
from reveal_bench.geometry import SLACK, box_around, extent_problem, is_inside
from reveal_bench.kinds.cases import AnnotatedImage, Annotations, Drawing
from reveal_bench.masks import Box
from reveal_bench.words import count_text

ROUNDING = 1e-6
"""Pixels beyond the image that are rounding of other units, such as percent, and not counted as cut."""
Points = tuple[tuple[float, float], ...]
_UPLOADED = re.compile(r"(?:.*[/\\])?[0-9a-f]{8}-(?P<stem>.+?)(?P<suffix>\.\w+)?")
_ROBOFLOW = re.compile(
    r"(?:.*[/\\])?(?P<stem>.+)_(?P<suffix>png|jpe?g|tiff?|bmp|webp)\.rf\.\w+(?:\.\w+)?", re.IGNORECASE
)


def original_name(file_name: str) -> str | None:
    """Return the file name before an upload to Label Studio or Roboflow; None if it was not changed by either.

    Examples
    --------
    >>> original_name("/data/upload/3/624cb493-p1.png"), original_name("p1_png.rf.0123456789abcdef.jpg")
    ('p1.png', 'p1.png')
    """
    roboflow, uploaded = _ROBOFLOW.fullmatch(file_name), _UPLOADED.fullmatch(file_name)
    if roboflow is not None:
        return f"{roboflow['stem']}.{roboflow['suffix']}"
    return None if uploaded is None else uploaded["stem"] + (uploaded["suffix"] or "")


class RegionChecks:
    """Checks the images and regions of one file, and counts what was changed or left out.

    Parameters
    ----------
    known : images and names of the split to which the file belongs
    """

    def __init__(self, known: Annotations) -> None:
        self.known = known
        self._renamed: dict[str, str] = {}
        self._n_rotated = self._n_cut = 0
        self._left_out: Counter[str] = Counter()

    def film(self, file_name: str) -> AnnotatedImage:
        """Return the image of a file name, also as Label Studio and Roboflow change the names of uploads.

        Raises
        ------
        ArgumentError
            If the split has no such image.
        """
        try:
            return self.known.film_of(file_name)
        except ArgumentError:
            original = original_name(file_name)
            with suppress(ArgumentError):
                if original is not None:
                    film = self.known.film_of(original)
                    self._renamed.setdefault(file_name, film.image_id)
                    return film
            raise

    def check_image(self, film: AnnotatedImage, where: str, width: object, height: object, rotation: Any = 0) -> None:
        """Raise an ArgumentError if a file states another size of an image, or annotates a rotated view of it."""
        sides = [side if side is None else whole(side, "width and height") for side in (width, height)]
        if sides not in ([film.width, film.height], [None, None]):
            rule = f"must refer to images at full size, {film.image_id} has {film.width} x {film.height} pixels"
            raise ArgumentError("file", rule, f"{sides[0]} x {sides[1]} at {where}")
        if rotation and finite(rotation, "rotation of an image") % 360:
            raise ArgumentError("file", f"must annotate {film.image_id} upright", f"rotated by {rotation} at {where}")

    def check_upright(self, film: AnnotatedImage, where: str, rotation: Any) -> None:
        """Raise an ArgumentError if a region that is not a box is rotated."""
        if rotation and finite(rotation, "rotation") % 360:
            rule = f"at {where} ({film.image_id}): only boxes may be rotated"
            raise ArgumentError("file", rule, f"a rotation of {rotation}")

    def box(
        self,
        film: AnnotatedImage,
        where: str,
        sides: Sequence[float],
        rotation: Any = 0,
        *,
        about: Literal["centre", "corner"] = "centre",
    ) -> Box:
        """Return a box [x, y, width, height] in its image.

        Raises
        ------
        ArgumentError
            If the box has no area, or is not in the image.
        """
        degrees = finite(rotation or 0, "rotation") % 360
        size = film.height, film.width
        problem = extent_problem(sides, None)
        x, y, width, height = box_around(sides, degrees, about=about) if degrees and not problem else sides
        problem = problem or extent_problem((x, y, width, height), size)
        if problem:
            value = f"{list(sides)}" + f" rotated by {rotation}" * bool(degrees)
            raise ArgumentError("file", f"at {where} ({film.image_id}): a box {problem}", value)
        self._n_rotated += bool(degrees)
        excess = max(-x, -y, x + width - film.width, y + height - film.height)
        if excess <= 0:
            return x, y, width, height
        self._n_cut += excess > ROUNDING
        left, top = max(x, 0.0), max(y, 0.0)
        right, bottom = min(x + width, film.width), min(y + height, film.height)
        return left, top, pixels(right - left), pixels(bottom - top)

    def drawing(self, where: str, drawing: Drawing) -> Drawing:
        """Return a drawing; raise an ArgumentError if it has neither a region nor a cell."""
        if drawing.mask or drawing.polygons or drawing.boxes or drawing.points or drawing.cell is not None:
            return drawing
        raise ArgumentError("file", f"at {where} ({drawing.image_id}): there must be a box, mask, contour or point")

    def points(self, film: AnnotatedImage, where: str, points: Points) -> Points:
        """Return points; raise an ArgumentError if a point is not in the image."""
        for x, y in points:
            if not is_inside(x, y, size=(film.height, film.width)):
                raise ArgumentError("file", f"at {where} ({film.image_id}): a point {_inside(film)}", [x, y])
        return points

    def contour(self, film: AnnotatedImage, where: str, points: Points) -> Points:
        """Return a contour; raise an ArgumentError if it has no three vertices, or a vertex outside the image."""
        if len(points) < 3:
            rule = f"at {where} ({film.image_id}): a contour must have three points or more"
            raise ArgumentError("file", rule, len(points))
        for x, y in points:
            if not (-SLACK <= x <= film.width + SLACK and -SLACK <= y <= film.height + SLACK):
                raise ArgumentError("file", f"at {where} ({film.image_id}): a contour {_inside(film)}", [x, y])
        return points

    def leave_out(self, what: str) -> None:
        """Count a part of the file that is neither a drawing nor a label."""
        self._left_out[what] += 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the names, boxes and parts of the file that were read otherwise than written."""
        notes = []
        if self._renamed:
            theirs, ours = next(iter(self._renamed.items()))
            notes.append(f"{count_text(len(self._renamed), 'image')} read under another name: {theirs!r} as {ours!r}")
        if self._n_rotated:
            boxes = count_text(self._n_rotated, "rotated box")
            notes.append(f"{boxes}: a prediction has the upright box around it")
        if self._n_cut:
            notes.append(f"{count_text(self._n_cut, 'box')} cut at the border of the image, by at most {SLACK:g} pixel")
        if self._left_out:
            parts = ", ".join(count_text(n, what) for what, n in self._left_out.items())
            notes.append(f"left out: {parts}")
        return tuple(notes)


def _inside(film: AnnotatedImage) -> str:
    return f"must be in the image of {film.width} x {film.height} pixels"
