"""Style of all report figures, and functions that render figures and format numbers.

Conventions
-----------
Figures are laid out in millimetres, for print and for a large screen at :data:`WIDE`, for a telephone at
:data:`NARROW`. Text is 8 pt and is measured, so that labels are not cut and do not overlap. Colours differ in
lightness as well as in hue, for colour-blind readers and for print in grey. Series beyond the first six also differ in
hatching. PNG files have 300 pixels per inch. SVG files keep text as text, and ``report.css`` inverts their colours in
the dark theme. The same input gives the same bytes. This module avoids pyplot, which has global state, and imports
matplotlib only inside functions.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from reveal_bench.words import (
    NBSP,
    interval_text,
    number_text,
    percent_interval,
    percent_number,
    percent_text,
    typeset,
    with_interval,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = 180.0, 90.0
INCH = 25.4
LINE = 3.4
"""Line spacing of text in millimetres."""
DPI = 300
INK, SOFT, RULE, PANEL = "#16202b", "#4c5a69", "#d5dce3", "#f1f4f7"
DASHED = (0, (2.2, 1.2))
NOTHING = "–"
_COLOURS = ("#0b4f48", "#e0792f", "#8fd0c6", "#8a2f55", "#f6e08a", "#17305e")
DARK = ("#0b4f48", "#8a2f55", "#17305e")
_HATCHES = ("", "////", "....")
_FONT = b"font-family: 'DejaVu Sans'"
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)  # `plain` replaces these by U+FFFD
_BLANK = re.compile(r"[ \t\r\n]+")  # becomes one space; non-breaking spaces stay
_SETTINGS: Any = {
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "font.family": ["DejaVu Sans"],  # bundled with matplotlib, so figures are equal on all machines
    "font.size": 8,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # a label may contain dollar signs
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@dataclass(frozen=True)
class Illustration:
    """A figure of a report with its title, caption and alternative text.

    Attributes
    ----------
    name : name of the figure's files, without suffix
    title, caption : texts on the page
    alt : description for users who cannot see the figure
    draw : function from a width in millimetres to the figure
    has_narrow : True if the figure can be drawn narrow, for a telephone
    """

    form: ClassVar[str] = "figure"
    name: str
    title: str
    caption: str
    alt: str
    draw: Callable[[float], Figure]
    has_narrow: bool = True

    @cached_property
    def _wide(self) -> Figure:
        """The wide figure, drawn once for its files and the page because drawing takes as long as rendering."""
        return self.draw(WIDE)

    @cached_property
    def _svg(self) -> bytes:
        """The wide figure as SVG, rendered once for its file and the page."""
        return render(
            self._wide, "svg", title=self.title, description=f"{self.alt} {self.caption}", salt=f"{self.name}-wide"
        )

    def file(self, kind: str) -> bytes:
        """Return the bytes of the wide figure, as "png" or "svg"."""
        return self._svg if kind == "svg" else render(self._wide, kind)

    def for_page(self) -> list[tuple[str, str]]:
        """Return ("wide" or "narrow", SVG element) pairs; the page shows the one that fits the screen."""
        drawings = [("wide", _inline(self._svg))]
        if self.has_narrow:
            narrow = render(self.draw(NARROW), "svg", salt=f"{self.name}-narrow")
            drawings.append(("narrow", _inline(narrow)))
        return drawings


@dataclass(frozen=True, slots=True)
class Paint:
    """Colour and hatching of one series of bars."""

    colour: str
    hatch: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for matplotlib's bars; the edge's colour is also the hatching's."""
        edge = "white" if self.hatch and self.colour in DARK else INK
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": edge, "linewidth": 0.4}


def paints(n: int) -> list[Paint]:
    """Return `n` distinguishable looks for series.

    Examples
    --------
    >>> len(set(paints(12)))
    12
    """
    return [Paint(_COLOURS[i % len(_COLOURS)], _HATCHES[i // len(_COLOURS) % len(_HATCHES)]) for i in range(n)]


def check_extra(*needed: str) -> None:
    """Raise an error with the install command if a library for reports, or one of `needed`, is missing.

    Raises
    ------
    ImportError
        Without the extra [report].
    """
    missing = [name for name in needed or ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ImportError(f"a report needs {' and '.join(missing)}: pip install 'reveal-bench[report]'")


def new_figure(height: float, width: float = WIDE) -> Figure:
    """Return an empty figure of `width` x `height` millimetres, for use inside :func:`style`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / INCH, height / INCH), facecolor="white")


def style(salt: str = "reveal-bench") -> Any:
    """Return a context manager with the figures' style; it restores the caller's settings on exit."""
    import matplotlib

    return matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": salt})


def place_axes(figure: Figure, left: float, low: float, width: float, height: float) -> Axes:
    """Return axes at a position in millimetres from the lower left corner."""
    whole_width, whole_height = (side * INCH for side in figure.get_size_inches())
    return figure.add_axes((left / whole_width, low / whole_height, width / whole_width, height / whole_height))


def plain_axes(axes: Axes, *, across: str = "y") -> None:
    """Remove the upper and right edges, and draw thin grid lines behind the data at the ticks of axis `across`."""
    axes.grid(axis=across, color=RULE, linewidth=0.5)  # type: ignore[arg-type]
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_axisbelow(True)
    axes.tick_params(length=2.5, width=0.6)


def render(figure: Figure, kind: str, *, title: str = "", description: str = "", salt: str = "reveal-bench") -> bytes:
    """Return the figure as PNG or SVG bytes without dates or program names; SVG has title and description."""
    metadata: dict[str, Any] = {"Software": None}
    if kind == "svg":
        metadata = {"Date": None, "Creator": None, "Title": plain(title), "Description": plain(description)}
    with style(salt), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font"
        )  # the report has one warning for all missing glyphs
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    data = buffer.getvalue()
    return data.replace(_FONT, _FONT + b", Verdana, sans-serif") if kind == "svg" else data


def _inline(svg: bytes) -> str:
    """Return an SVG element for an HTML page, on the page's background; `salt` makes its ids unique."""
    text = svg.decode("utf-8")
    text = re.sub(
        r"<(metadata|style|title)\b.*?</\1>|<title/>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL
    )
    text = text.replace("fill: #ffffff", "fill: none", 1)  # the background is the first patch
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # ids of groups, the same in every figure
    return re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", text, count=1))


def plain(value: object) -> str:
    """Return a value as text; characters that XML forbids or that change the writing direction become U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", str(value))


@lru_cache(maxsize=4096)
def width_of(text: str, *, bold: bool = False) -> float:
    """Return the width in millimetres of a line of text in a figure."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a character that the font lacks is drawn as a box of this width
        font.set_size(8, 72)
        font.set_text(text)
    return float(font.get_width_height()[0]) / 64 / 72 * INCH


def wrap(text: str, width: float, *, most: int | None = None, bold: bool = False) -> str:
    """Return `text` in lines of at most `width` millimetres, broken at spaces and after slashes, hyphens, underscores.

    Words that are still too long are cut with a hyphen, so that labels never overlap. An ellipsis replaces the lines
    beyond `most`.

    Examples
    --------
    >>> wrap("Enlarged Cardiomediastinum", 32).split(chr(10))
    ['Enlarged', 'Cardiomediastinum']
    """

    def fits(line: str) -> bool:
        return width_of(line.rstrip(), bold=bold) <= width

    lines = [""]
    for piece in re.findall(r"[^ /_-]*[ /_-]?", _BLANK.sub(" ", plain(text))):
        if lines[-1] and not fits(lines[-1] + piece):
            lines.append("")
        while not fits(piece) and len(piece) > 1:
            n = next(n for n in range(len(piece) - 1, 0, -1) if n == 1 or fits(piece[:n] + "-"))
            lines[-1:] = [piece[:n] + "-", ""]
            piece = piece[n:]
        lines[-1] += piece
    lines = [line.rstrip() for line in lines if line.strip()] or [""]
    if most is None or len(lines) <= most:
        return "\n".join(lines)
    last = lines[most - 1]
    while last and not fits(last + "…"):
        last = last[:-1]
    return "\n".join([*lines[: most - 1], last.rstrip() + "…"])


def cut(label: str, width: float) -> str:
    """Return `label` in one line of at most `width` millimetres, shortened by an ellipsis if necessary."""
    label = _BLANK.sub(" ", plain(label))
    whole = label
    while label and width_of(label if label == whole else label + "…") > width:
        label = label[:-1]
    return label if label == whole else label.rstrip() + "…"


def missing_glyphs(texts: Iterable[str]) -> str:
    """Return the characters of `texts` that the figures' font lacks, in order; a PNG shows boxes for them."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont("DejaVu Sans")).get_charmap()
    return "".join(sorted({char for text in texts for char in text if ord(char) not in known}))


def columns_for(n: int, most: int) -> int:
    """Return the number of columns that spreads `n` panels evenly over rows of at most `most`.

    Examples
    --------
    >>> columns_for(11, 5), columns_for(10, 5), columns_for(3, 5)
    (4, 5, 3)
    """
    rows = -(-n // most)
    return -(-n // rows)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number as text; "undefined" if it is None."""
    return "undefined" if value is None or math.isnan(value) else typeset(number_text(value, digits))


def interval(estimate: Mapping[str, Any], digits: int = 3, *, scale: float = 1.0) -> str:
    """Return a value and its interval as text, both multiplied by `scale`.

    A zero-width interval is not printed because equal replicates say nothing about uncertainty.

    Examples
    --------
    >>> interval({"value": 0.484, "low": 0.44, "high": 0.524}), interval({"value": 1.0, "low": 1.0, "high": 1.0}, 2)
    ('0.484 (0.440 to 0.524)', '1.00 (no spread)')
    """
    value, low, high = (None if estimate[end] is None else scale * estimate[end] for end in ("value", "low", "high"))
    ends = "no spread" if None not in (value, low) and low == high else typeset(interval_text(low, high, digits))
    return with_interval(number(value, digits), ends)


def percent(fraction: float | None, digits: int = 1) -> str:
    """Return a fraction in percent as text; "undefined" if it is None."""
    is_known = fraction is not None and not math.isnan(fraction)
    return typeset(percent_text(fraction, digits)) if is_known else "undefined"


def share(n: int, of: int) -> str:
    """Return a count and its share as text, such as "23 (23%)"."""
    if not of:
        return f"{n:,}"
    text = percent(n / of, 0)
    return f"{n:,} (<{NBSP}1%)" if n and text.startswith("0") else f"{n:,} ({text})"


def interval_of(low: float, high: float) -> str:
    """Return an interval of fractions in percent as text."""
    return typeset(percent_interval(low, high)) or NOTHING


def difference_of(value: float, low: float, high: float) -> str:
    """Return a difference in percentage points, with its interval, if any, on a second line."""
    interval = typeset(percent_interval(low, high, signed=True))
    return signed(value) + f"\n{interval}" * bool(interval)


def signed(value: float) -> str:
    """Return a difference of fractions in percentage points as text."""
    return typeset(percent_number(value, signed=True))


def percent_cell(value: float) -> str:
    """Return a fraction in percent, without the percent sign, for a table cell."""
    return typeset(percent_number(value))
