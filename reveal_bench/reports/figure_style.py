"""The look of every figure of a report, and how it is written: the same input gives the same bytes.

Conventions
-----------
Figures are made for print at a width of 180 mm, their text is 8 pt. Colours differ in lightness as well as in hue,
so that they can be told apart by colour-blind readers and in grey; beyond the first six, hatching tells them apart.
PNG has 200 pixels per inch. SVG keeps text as text, which other fonts may stand in for. Nothing here uses
pyplot, which keeps state; matplotlib is imported inside functions.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "INCH", "INK", "SOFT", "WIDTH", "Paint", "columns_for", "cut", "missing_glyphs", "new_figure", "paints",
    "plain_axes", "render", "style", "wrap",
]  # fmt: skip

WIDTH = 180.0
"""Millimetres: of a figure across the whole page."""
INCH = 25.4
DPI = 200
INK, SOFT, RULE = "#1b1f24", "#57606a", "#d0d7de"
_COLOURS = ("#17305e", "#e0792f", "#8cc0e6", "#8a2f55", "#f6e08a", "#2f7f6f")
_DARK = ("#17305e", "#8a2f55", "#2f7f6f")
_HATCHES = ("", "////", "....")
_FONT = b"font-family: 'DejaVu Sans'"
_SETTINGS: Any = {
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same everywhere
    "font.size": 8,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "reveal-bench",
    "text.color": INK,
    "text.parse_math": False,  # a label may hold dollar signs
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@dataclass(frozen=True, slots=True)
class Paint:
    """How the bars of one series look."""

    colour: str
    hatch: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of matplotlib's bars; hatching has the colour of the edge."""
        edge = "white" if self.hatch and self.colour in _DARK else INK
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": edge, "linewidth": 0.4}


def paints(n: int) -> list[Paint]:
    """Looks of `n` series, each its own.

    Examples
    --------
    >>> len(set(paints(12)))
    12
    """
    return [Paint(_COLOURS[i % len(_COLOURS)], _HATCHES[i // len(_COLOURS) % len(_HATCHES)]) for i in range(n)]


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of `width` x `height` millimetres; use it inside :func:`style`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / INCH, height / INCH), facecolor="white")


def style() -> Any:
    """Context in which figures are drawn and rendered; settings of the caller come back after it."""
    import matplotlib

    return matplotlib.rc_context(_SETTINGS)


def plain_axes(axes: Axes) -> None:
    """Only the left and lower edge, and thin horizontal lines behind the data."""
    axes.grid(axis="y", color=RULE, linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    axes.tick_params(length=2.5, width=0.6)


def render(figure: Figure, kind: str) -> bytes:
    """Bytes of the figure as "png" or "svg", without dates or names of programs."""
    metadata: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # said once, by the report
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    data = buffer.getvalue()
    return data.replace(_FONT, _FONT + b", Verdana, sans-serif") if kind == "svg" else data


def wrap(name: str, width: int = 18) -> str:
    """`name` broken into lines of about `width` characters, at spaces and after slashes, hyphens and underscores.

    Words that are still too long are cut with a hyphen, so that labels never run into each other.

    Examples
    --------
    >>> wrap("Enlarged Cardiomediastinum").split(chr(10))
    ['Enlarged', 'Cardiomediastinum']
    >>> wrap("abcdefgh", 5).split(chr(10))
    ['abcd-', 'efgh']
    """
    pieces: list[str] = []
    for word in name.replace("/", "/\0").replace("-", "-\0").replace("_", "_\0").replace(" ", " \0").split("\0"):
        while len(word.rstrip()) > width:
            pieces.append(word[: width - 1] + "-\n")
            word = word[width - 1 :]
        pieces.append(word)
    lines, line = [], ""
    for piece in pieces:
        if line and len(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
        if line.endswith("\n"):
            lines.append(line.rstrip("\n"))
            line = ""
    return "\n".join([*lines, *([line.rstrip()] if line.strip() else [])])


def cut(label: str, most: int = 60) -> str:
    """`label`, its end replaced by an ellipsis if it has more than `most` characters."""
    return label if len(label) <= most else label[: most - 1] + "…"


def missing_glyphs(texts: Iterable[str]) -> str:
    """Characters of `texts` that the figures' font does not have, in order; a PNG shows boxes for them."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont("DejaVu Sans")).get_charmap()
    return "".join(sorted({char for text in texts for char in text if ord(char) not in known}))


def columns_for(n: int, most: int) -> int:
    """Columns of panels so that `n` of them fill rows of at most `most` evenly.

    Examples
    --------
    >>> columns_for(11, 5), columns_for(10, 5), columns_for(3, 5)
    (4, 5, 3)
    """
    rows = -(-n // most)
    return -(-n // rows)
