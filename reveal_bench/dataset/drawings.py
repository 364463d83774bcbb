"""Drawing of readers' masks, boxes and points as a transparent layer over a small copy of a radiograph.

Each finding of a picture has a number and a colour of :data:`PALETTE` (Okabe and Ito's palette, which colour-blind
people can distinguish). The number is drawn on the picture, so that nobody needs to rely on colour. Masks are drawn as
outlines (also filled for the ground truth), boxes as rectangles, points as rings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from reveal_bench.masks import BoolMask, Rle, decode_mask, pack_masks, shrink_mask
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from PIL import Image as PILImage
    from PIL import ImageDraw

PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
FILL_ALPHA = 80
TAG_PX = 17


@dataclass
class FindingDrawing:
    """Drawings of a finding by a reader (or by several readers of the same kind), in pixels of the full-size picture.

    Attributes
    ----------
    number : number of the finding on this picture, from 1
    is_reference : True for the ground truth, whose masks are filled
    """

    number: int
    finding: str
    reader: str
    is_reference: bool
    rles: list[Rle] = field(default_factory=list)
    boxes: list[Sequence[float]] = field(default_factory=list)
    points: list[tuple[float, float]] = field(default_factory=list)

    @property
    def colour(self) -> str:
        """Colour of the finding."""
        return PALETTE[(self.number - 1) % len(PALETTE)]

    @property
    def what(self) -> str:
        """Description of the shapes, such as "mask, 2 points"."""
        counts = (("mask", len(self.rles)), ("box", 0 if self.rles else len(self.boxes)), ("point", len(self.points)))
        return ", ".join(name if n == 1 else count_text(n, name) for name, n in counts if n)


def draw_layer(
    drawings: Sequence[FindingDrawing], size: tuple[int, int], full: tuple[int, int], *, fill: int = FILL_ALPHA
) -> PILImage.Image:
    """Return a transparent RGBA picture of `size` (width, height) with the drawings for a radiograph of size `full`.

    Parameters
    ----------
    fill : opacity of the ground truth's masks inside their outlines, 0 to 255
    """
    from PIL import Image

    canvas = Image.new("RGBA", size)
    for drawing in drawings:
        canvas = _drawn(canvas, drawing, size, full, fill)
    tags: list[tuple[float, float]] = []
    for drawing in drawings:
        _tag(canvas, drawing, tags, full)
    return canvas


def _drawn(
    canvas: PILImage.Image, drawing: FindingDrawing, size: tuple[int, int], full: tuple[int, int], fill: int
) -> PILImage.Image:
    from PIL import Image, ImageColor, ImageDraw

    colour = ImageColor.getrgb(drawing.colour)[:3]
    for mask in (shrink_mask(decode_mask(rle), size) for rle in drawing.rles):
        layer = Image.new("RGBA", size, (*colour, 0))
        layer.putalpha(_outline(mask, fill if drawing.is_reference else 0))
        canvas = Image.alpha_composite(canvas, layer)
    pen = ImageDraw.Draw(canvas)
    fx, fy = size[0] / full[0], size[1] / full[1]
    if not drawing.rles:
        for x, y, wide, high in drawing.boxes:
            corners = (x * fx, y * fy, (x + wide) * fx, (y + high) * fy)
            _box(pen, corners, colour, 3 if drawing.is_reference else 1)
    for x, y in drawing.points:
        for radius, shade, width in ((8, (0, 0, 0, 255), 5), (7, (*colour, 255), 3)):  # a ring
            ends = x * fx - radius, y * fy - radius, x * fx + radius, y * fy + radius
            pen.ellipse(ends, outline=shade, width=width)
    return canvas


def _box(
    pen: ImageDraw.ImageDraw, corners: tuple[float, float, float, float], colour: tuple[int, int, int], width: int
) -> None:
    left, top, right, bottom = corners
    pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline=(0, 0, 0, 255), width=width + 2)
    pen.rectangle((left, top, right, bottom), outline=(*colour, 255), width=width)


def _outline(mask: BoolMask, fill: int) -> PILImage.Image:
    """Return the opacity of each pixel of a mask: full along its edge (two pixels wide), `fill` inside."""
    from PIL import Image

    inner = mask.copy()
    for _ in range(2):
        padded = np.pad(inner, 1)
        inner = inner & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    alpha = np.where(mask & ~inner, 255, np.where(mask, fill, 0))
    return Image.fromarray(alpha.astype(np.uint8))


def _tag(
    canvas: PILImage.Image, drawing: FindingDrawing, tags: list[tuple[float, float]], full: tuple[int, int]
) -> None:
    """Write the finding's number in its mask or box or beside its point, without covering earlier `tags`."""
    from PIL import ImageDraw, ImageFont

    if not drawing.is_reference and drawing.rles:
        return
    width, height = canvas.size
    x, y = _tag_place(drawing, canvas.size, full)
    x, y = min(max(x, 10), width - 10), min(max(y, 10), height - 10)
    for _ in tags:
        if not any(abs(x - other_x) < TAG_PX and abs(y - other_y) < TAG_PX for other_x, other_y in tags):
            break
        x = x + TAG_PX if x + 2 * TAG_PX < width else TAG_PX
    tags.append((x, y))
    ImageDraw.Draw(canvas).text(
        (x, y), str(drawing.number), font=ImageFont.load_default(size=16), anchor="mm", fill=(255, 255, 255, 255),
        stroke_width=3, stroke_fill=(0, 0, 0, 255),
    )  # fmt: skip


def _tag_place(drawing: FindingDrawing, size: tuple[int, int], full: tuple[int, int]) -> tuple[float, float]:
    fx, fy = size[0] / full[0], size[1] / full[1]
    if drawing.rles:
        deepest = pack_masks(drawing.rles[:1]).deepest_xy([0])[0]
        return (float(deepest[0]) + 0.5) * fx, (float(deepest[1]) + 0.5) * fy
    if drawing.boxes:
        x, y, _, _ = drawing.boxes[0]
        return x * fx + 12, y * fy + 12
    x, y = drawing.points[0]
    return x * fx + 18, y * fy
