"""Make the images that a model sees: the central square with its grid, the bare square, or the whole image.

Conventions
-----------
:class:`reveal_bench.geometry.Grid` defines the central square. If the long side exceeds the short side by an odd number
of pixels, half a pixel is cut on either side. The square is resized to `side` x `side` pixels (256 in paper 000,
section 3.2). For answers of the form "cell", a margin around the square has a letter above and below every column and a
number on either side of every row. A line between cells is a dark and a light stripe that meet at the edge of the
scoring `Grid`, rounded to the nearest pixel. One of the stripes is visible on any image, and the yellow of the light
one is not a colour of catheters. Cells of 28 pixels and more show their name in the top left corner, translucent, and
dark or light depending on the image below. In a finer grid, names would cover the image, so every fourth line is
stronger instead.

Coordinates (x, y) of a shown image count its pixels from its top left corner, including the margin.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.geometry import Grid

if TYPE_CHECKING:
    from PIL.Image import Image

SMALLEST_CELL = 9.5
"""Minimum side of a cell in pixels; the row numbers of smaller cells would touch each other."""
NAMED_CELL = 28
"""Minimum side in pixels of a cell that shows its name: a readable name covers less than a sixth of the cell."""
STRONG_EVERY = 4
LIGHT, DARK, MARGIN, LETTER = (255, 225, 70), (0, 0, 0), (24, 24, 24), (255, 255, 255)
LINE_OPACITY, STRONG_OPACITY, NAME_OPACITY, HALO_OPACITY = 140, 215, 215, 110
"""Opacities, from 0 to 255."""


@dataclass(frozen=True, slots=True)
class SquareView:
    """Maps between the pixels of an image and its central square, shown at `side` x `side` pixels inside a margin.

    Parameters
    ----------
    size : (height, width) of the image, in pixels
    side : side of the shown square, in pixels
    margin : pixels between the edge of the shown image and the square; 0 without a grid

    Raises
    ------
    ValueError
        If a length is below 1, or the margin below 0.

    Examples
    --------
    >>> view = SquareView(size=(512, 768), side=256)
    >>> view.to_full(128, 128), view.to_view(384, 256), view.box_to_full((0, 0, 32, 64))
    ((384.0, 256.0), (128.0, 128.0), (128.0, 0.0, 64.0, 128.0))
    """

    size: tuple[int, int]
    side: int
    margin: int = 0

    def __post_init__(self) -> None:
        if min(self.size) < 1:
            raise ArgumentError("size", "must be (height, width) of at least 1 pixel", self.size)
        if self.side < 1:
            raise ArgumentError("side", "must be at least 1", self.side)
        if self.margin < 0:
            raise ArgumentError("margin", "must be at least 0", self.margin)

    @property
    def box(self) -> tuple[float, float, float]:
        """(left, top, side) of the square, in pixels of the full image."""
        return Grid(1).square(self.size)

    def to_full(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the full image that is shown at (x, y); it may be outside the image."""
        left, top, side = self.box
        return left + (x - self.margin) * side / self.side, top + (y - self.margin) * side / self.side

    def to_view(self, x: float, y: float) -> tuple[float, float]:
        """Return the position in the shown image of the full image's point (x, y); it may be outside the square."""
        left, top, side = self.box
        return (x - left) * self.side / side + self.margin, (y - top) * self.side / side + self.margin

    def box_to_full(self, box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """Convert a box [x, y, width, height] from pixels of the shown image to pixels of the full image."""
        x, y, width, height = box
        scale = self.box[2] / self.side
        return (*self.to_full(x, y), width * scale, height * scale)


def square_picture(image: Image, *, side: int) -> Image:
    """Return the central square of a grey or RGB image, resized to `side` x `side` pixels, as RGB.

    Raises
    ------
    ValueError
        If the image has another mode, or `side` is below 1.
    """
    left, top, length = SquareView((image.height, image.width), side).box
    return _resized(image, (side, side), (left, top, left + length, top + length))


def whole_picture(image: Image, *, side: int) -> Image:
    """Return a grey or RGB image with its long side reduced to `side` pixels, never enlarged, as RGB.

    Raises
    ------
    ValueError
        If the image has another mode, or `side` is below 1.
    """
    if side < 1:
        raise ArgumentError("side", "must be at least 1", side)
    height, width = whole_size((image.height, image.width), side)
    return _resized(image, (width, height), (0, 0, image.width, image.height))


def whole_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return the (height, width) at which a whole image is shown: `size` reduced to a long side of at most `side`.

    Examples
    --------
    >>> whole_size((2000, 3000), 1024)
    (683, 1024)
    """
    scale = min(1.0, side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def cells_are_named(side: int, grid: Grid) -> bool:
    """Return True if every cell of a shown square shows its name, and not only the columns and rows."""
    return side >= NAMED_CELL * grid.n


def grid_margin(side: int, grid: Grid) -> int:
    """Return the width in pixels of the margin that :func:`draw_grid` adds around a square of `side` pixels."""
    return round(1.5 * _letter_size(side, grid))


def check_side(side: int, grid: Grid) -> None:
    """Raise ValueError if the cells of a square of `side` pixels are too small for readable names."""
    least = math.ceil(SMALLEST_CELL * grid.n)
    if side < least:
        raise ArgumentError("side", f"must be at least {least} for a grid of {grid.n} cells per side", side)


def draw_grid(image: Image, grid: Grid) -> Image:
    """Return a square image with the lines of `grid`, names in its cells, and a margin with letters and numbers.

    Parameters
    ----------
    image : square, of mode L or RGB; not modified
    grid : the scoring grid, whose `box` gives the edges

    Returns
    -------
    RGB image, wider and higher than `image` by twice :func:`grid_margin`.

    Raises
    ------
    ValueError
        If the image is not square, has another mode, or is too small for readable names.
    """
    from PIL import Image

    _check_mode(image)
    if image.width != image.height:
        raise ArgumentError("image", "must be square", f"{image.width} x {image.height}")
    side = image.width
    check_side(side, grid)
    margin = grid_margin(side, grid)
    edges = [round(grid.box(grid.name(k, 0), size=(side, side))[0]) + margin for k in range(grid.n)] + [side + margin]
    drawn = Image.new("RGB", (side + 2 * margin,) * 2, MARGIN)
    drawn.paste(image.convert("RGB"), (margin, margin))
    film = drawn.convert("L")
    _draw_lines(drawn, edges, named=cells_are_named(side, grid))
    _draw_letters(drawn, edges, _letter_size(side, grid))
    if cells_are_named(side, grid):
        _draw_names(drawn, film, edges, grid)
    return drawn


def shown_png(image: Image, *, form: Form, side: int, grid: Grid | int) -> bytes:
    """Return the image that a model sees as PNG bytes, which contain the pixels and no metadata.

    Answers of the form "cell" get the square with its grid, "point" and "box" the bare square, and "boxes", "labels"
    and "text" the whole image.

    Raises
    ------
    ValueError
        If the image has another mode, or `side` is too small.
    """
    if form == "cell":
        picture = draw_grid(square_picture(image, side=side), Grid(grid) if isinstance(grid, int) else grid)
    elif form in ("point", "box"):
        picture = square_picture(image, side=side)
    else:
        picture = whole_picture(image, side=side)
    picture.info = {}  # the source file's metadata must not be sent
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def _resized(image: Image, size: tuple[int, int], box: tuple[float, float, float, float]) -> Image:
    from PIL import Image

    _check_mode(image)
    return image.resize(size, Image.Resampling.LANCZOS, box=box).convert("RGB")


def _check_mode(image: Image) -> None:
    if image.mode not in ("L", "RGB"):
        raise ArgumentError("image", "must have mode L or RGB", image.mode)


def _letter_size(side: int, grid: Grid) -> int:
    """Return the font size in the margin: about a 28th of the image, smaller for small cells, but at least 11."""
    return max(11, min(side // 28, round(0.7 * side / grid.n)))


def _line_width(edges: list[int]) -> int:
    """Return the width in pixels of each stripe of a line: 1 up to a side of 700, then proportional to the side."""
    side = edges[-1] - edges[0]
    return max(1, min(round(side / 500), side // (16 * (len(edges) - 1))))


def _draw_lines(drawn: Image, edges: list[int], *, named: bool) -> None:
    """Draw lines along the edges; a line's dark stripe ends, and its light stripe begins, at the edge."""
    from PIL import Image, ImageChops, ImageDraw

    width = _line_width(edges)
    first, last = edges[0] - width, edges[-1] + width - 1
    stripes = {LIGHT: Image.new("L", drawn.size), DARK: Image.new("L", drawn.size)}
    strong = {0, len(edges) - 1} | (set() if named else set(range(0, len(edges), STRONG_EVERY)))
    strengths = [STRONG_OPACITY if k in strong else LINE_OPACITY for k in range(len(edges))]
    for edge, strength in sorted(zip(edges, strengths, strict=True), key=lambda line: line[1]):
        for colour, low in ((DARK, edge - width), (LIGHT, edge)):
            pen = ImageDraw.Draw(stripes[colour])
            pen.rectangle((low, first, low + width - 1, last), fill=strength)
            pen.rectangle((first, low, last, low + width - 1), fill=strength)
    is_light = stripes[LIGHT].point(lambda value: 255 if value else 0)
    drawn.paste(DARK, mask=ImageChops.subtract(stripes[DARK], is_light))
    drawn.paste(LIGHT, mask=stripes[LIGHT])


def _draw_letters(drawn: Image, edges: list[int], size: int) -> None:
    """Draw the letter of every column above and below, and the number of every row left and right."""
    from PIL import ImageDraw, ImageFont

    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(size)
    grid = Grid(len(edges) - 1)
    for k in range(grid.n):
        letter, number = grid.name(k, 0)[0], grid.name(0, k)[1:]
        centre = (edges[k] + edges[k + 1]) / 2
        for across in (edges[0] / 2, drawn.width - edges[0] / 2):
            pen.text((centre, across), letter, LETTER, font, anchor="mm")
            pen.text((across, centre), number, LETTER, font, anchor="mm")


def _draw_names(drawn: Image, film: Image, edges: list[int], grid: Grid) -> None:
    """Draw every cell's name in its top left corner, dark on a bright `film` and light on a dark one, with a halo."""
    from PIL import Image, ImageChops, ImageStat

    names, halos, places = _names_of(drawn.size, tuple(edges), grid)
    is_bright = Image.new("L", drawn.size)
    for place in places:
        if ImageStat.Stat(film.crop(place)).mean[0] > 127.5:
            is_bright.paste(255, place)
    is_dark = ImageChops.invert(is_bright)
    drawn.paste(LETTER, mask=ImageChops.multiply(halos, is_bright))
    drawn.paste(DARK, mask=ImageChops.multiply(halos, is_dark))
    drawn.paste(DARK, mask=ImageChops.multiply(names, is_bright))
    drawn.paste(LIGHT, mask=ImageChops.multiply(names, is_dark))


@lru_cache(maxsize=8)
def _names_of(
    size: tuple[int, int], edges: tuple[int, ...], grid: Grid
) -> tuple[Image, Image, tuple[tuple[int, int, int, int], ...]]:
    """Return the opacity of names and of halos, and the box of each name, for all images of one size."""
    from PIL import Image, ImageDraw, ImageFont

    points = max(10, round(0.2 * (edges[-1] - edges[0]) / grid.n))
    font, stroke = ImageFont.load_default(points), max(1, points // 10)
    inset = _line_width(list(edges)) + stroke
    names, halos = Image.new("L", size), Image.new("L", size)
    name_pen, halo_pen = ImageDraw.Draw(names), ImageDraw.Draw(halos)
    boxes = []
    for cell in grid.cells:
        column, row = grid.parse(cell)
        place = (edges[column] + inset, edges[row] + inset)
        left, top, right, bottom = halo_pen.textbbox(place, cell, font, anchor="lt", stroke_width=stroke)
        boxes.append((int(left), int(top), int(right), int(bottom)))
        halo_pen.text(place, cell, HALO_OPACITY, font, anchor="lt", stroke_width=stroke)
        name_pen.text(place, cell, NAME_OPACITY, font, anchor="lt")
    return names, halos, tuple(boxes)


Form = Literal["cell", "point", "box", "boxes", "labels", "text"]
