"""Small images of shapes and text as SVG and PNG, with the displayed data stored in the file.

An SVG contains a title, a description and, in ``<metadata>``, the data as JSON; a PNG has all three as text chunks
`Title`, `Description` and `Recipe`. Texts are plain text, which `vector_image.html` escapes.
"""

from __future__ import annotations

import json
import unicodedata
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from typing import Any, Literal

from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from reveal_leaderboard.web.pages.drawing import draw

FONT = "DejaVuSans.ttf"
SUPERSAMPLED = 2  # Pillow draws without anti-aliasing, so the image is drawn larger and scaled down
ASCII = str.maketrans({"–": "-", "−": "-", "·": "|", "…": "...", "\u00a0": " "})


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1


@dataclass(frozen=True)
class Dot:
    """A disc, hollow or filled; `hint` is its tooltip."""

    x: float
    y: float
    r: float
    colour: str
    is_hollow: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Words:
    """A line of text; `y` is its baseline."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: Literal["start", "middle", "end"] = "start"
    is_bold: bool = False


@dataclass
class VectorImage:
    """Shapes on a background, drawn in order.

    Attributes
    ----------
    title, description : texts for people who cannot see the image
    recipe : the displayed data, as plain JSON values
    """

    width: int
    height: int
    title: str
    description: str
    recipe: Mapping[str, Any]
    ground: str = "#ffffff"
    shapes: list[Box | Line | Dot | Words] = field(default_factory=list)

    def to_svg(self) -> bytes:
        """Return the image as an SVG document, with texts as text elements."""
        named = [(type(shape).__name__, shape) for shape in self.shapes]
        return draw("vector_image.html", "picture", self, named, json.dumps(self.recipe, sort_keys=True)).encode()

    @property
    def data_address(self) -> str:
        """The SVG document as a ``data:`` URL."""
        return f"data:image/svg+xml;base64,{b64encode(self.to_svg()).decode()}"

    def to_png(self) -> bytes:
        """Return the image as a PNG whose size in pixels equals the SVG's size."""
        scale = SUPERSAMPLED
        image = Image.new("RGB", (self.width * scale, self.height * scale), self.ground)
        pen = ImageDraw.Draw(image)
        for shape in self.shapes:
            _PAINTERS[type(shape)](pen, shape, scale)
        chunks = PngImagePlugin.PngInfo()
        chunks.add_text("Title", self.title)
        chunks.add_text("Description", self.description)
        chunks.add_text("Recipe", json.dumps(self.recipe, sort_keys=True))
        out = BytesIO()
        image.resize((self.width, self.height), Image.Resampling.LANCZOS).save(
            out, "PNG", pnginfo=chunks, optimize=True
        )
        return out.getvalue()


def _paint_box(pen: ImageDraw.ImageDraw, box: Box, scale: int) -> None:
    corners = (box.x, box.y, box.x + box.width, box.y + box.height)
    pen.rectangle([round(scale * position) for position in corners], fill=box.fill)


def _paint_line(pen: ImageDraw.ImageDraw, line: Line, scale: int) -> None:
    ends = [scale * position for position in (line.x1, line.y1, line.x2, line.y2)]
    pen.line(ends, fill=line.colour, width=max(1, round(scale * line.width)))


def _paint_dot(pen: ImageDraw.ImageDraw, dot: Dot, scale: int) -> None:
    box = [scale * position for position in (dot.x - dot.r, dot.y - dot.r, dot.x + dot.r, dot.y + dot.r)]
    fill = "#ffffff" if dot.is_hollow else dot.colour
    pen.ellipse(box, fill=fill, outline=dot.colour, width=2 * scale)


def _paint_words(pen: ImageDraw.ImageDraw, words: Words, scale: int) -> None:
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[words.anchor]
    pen.text(
        (scale * words.x, scale * words.y),
        _drawable(words.text),
        font=_font(scale * words.size, is_bold=words.is_bold),
        fill=words.colour,
        anchor=anchor,
    )


_PAINTERS: Mapping[type, Any] = {Box: _paint_box, Line: _paint_line, Dot: _paint_dot, Words: _paint_words}


@cache
def _has_font() -> bool:
    try:
        ImageFont.truetype(FONT, 10)
    except OSError:
        return False
    return True


@cache
def _font(size: float, *, is_bold: bool = False) -> Any:
    if not _has_font():
        return ImageFont.load_default(size)
    return ImageFont.truetype(FONT.replace(".ttf", "-Bold.ttf") if is_bold else FONT, size)


def _drawable(text: str) -> str:
    """Return the text without characters that the font lacks.

    Pillow's own font, used if no other is available, has only ASCII.
    """
    if _has_font():
        return text
    plain = unicodedata.normalize("NFKD", text.translate(ASCII))
    return "".join(c for c in plain if not unicodedata.combining(c)).encode("ascii", "replace").decode()


def width_of(text: str, size: float, *, is_bold: bool = False) -> float:
    """Return the width of a text in pixels."""
    return float(_font(size, is_bold=is_bold).getlength(_drawable(text)))


def fitted(text: str, size: float, width: float, *, is_bold: bool = False) -> str:
    """Return the text on one line, cut at the end if it is wider than `width`."""
    text = "".join(c if c.isprintable() else " " for c in text)
    if width_of(text, size, is_bold=is_bold) <= width:
        return text
    while text and width_of(f"{text}…", size, is_bold=is_bold) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"
