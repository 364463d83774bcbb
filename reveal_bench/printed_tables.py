"""Tables for display: plain text for terminals, HTML, Markdown and LaTeX.

Cells are text. They may contain names that submitters choose, so each output function escapes the special characters of
its format. If the cells are already Markdown or LaTeX, pass `escape=str`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from textwrap import wrap

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
}  # fmt: skip
_NARROWEST = 12
_UNBOUNDED = 10_000  # line length if the width is unlimited
_MINUS = re.compile(r"(?<![^\s(])-(?=[\d ])")
_JOINING = re.compile("-(?=-)")  # LaTeX joins two hyphens to a dash
_OPTION = re.compile(r"^(?=[\[*])")  # LaTeX would read a bracket as an option of the preceding line end
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~&$@#]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def escape_latex(text: str) -> str:
    r"""Return LaTeX (T1 fonts) that prints `text` literally.

    Examples
    --------
    >>> print(escape_latex(r"50% of_A&B \input{x}"))
    50\% of\_A\&B \textbackslash{}input\{x\}
    >>> print(escape_latex("-0.3 (-5.4 to 4.8), two-sided, a--b"))
    $-$0.3 ($-$5.4 to 4.8), two-sided, a-{}-b
    """
    plain = "".join(_LATEX.get(character, character) for character in one_line(text))
    return _JOINING.sub("-{}", _MINUS.sub("$-$", plain))


def escape_markdown(text: str) -> str:
    r"""Return Markdown that shows `text` literally, also in a table cell.

    Examples
    --------
    >>> print(escape_markdown("a|b <i>*c*"))
    a\|b \<i\>\*c\*
    """
    return _MARKDOWN.sub(lambda match: f"\\{match[0]}", one_line(text))


def one_line(text: str) -> str:
    """Return a text with spaces instead of line ends and "?" instead of other unprintable characters."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return a text with "?" instead of each unprintable character, such as a line end or a control character."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


@dataclass(frozen=True)
class PrintedTable:
    """A table of texts with column names and a caption.

    Attributes
    ----------
    head : column names
    rows : cells of each row, which may be shorter than the head; a row with only a first cell is a heading across the
        table
    caption : description of the table in one line
    n_left : number of leading columns that are aligned left on a terminal; the other columns are aligned right
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    n_left: int = 1

    def first(self, n: int) -> PrintedTable:
        """Return the table with only its first `n` rows."""
        return replace(self, rows=self.rows[:n])

    @property
    def width(self) -> int:
        """Width of the table on a terminal, in characters."""
        return sum(self._widths()) + 2 * (len(self.head) - 1)

    def _is_heading(self, row: Sequence[str]) -> bool:
        return len(self.head) > 1 and not any(row[1:])

    def _widths(self) -> list[int]:
        lines = [self.head, *(row for row in self.rows if not self._is_heading(row))]
        return [max(len(line[i]) for line in lines if i < len(line)) for i in range(len(self.head))]

    def to_lines(self, width: int | None = None) -> list[str]:
        """Return the head and the rows as lines with aligned columns that keep to `width`, if columns can be so narrow.

        First names are wrapped, then columns stand closer together, then other columns are wrapped.

        Examples
        --------
        >>> print("\\n".join(PrintedTable(["finding", "n"], [["Edema", "7"], ["Mass", "12"]]).to_lines()))
        finding   n
        Edema     7
        Mass     12
        """
        widths, gap = self._fitted(_UNBOUNDED if width is None else width)
        align = [str.ljust if i < self.n_left else str.rjust for i in range(len(self.head))]
        lines = []
        for row in (self.head, *self.rows):
            if self._is_heading(row):
                lines.append("\n".join(wrap(printable(row[0]), width or _UNBOUNDED)))
                continue
            texts = zip(map(printable, row), widths, strict=False)
            cells = [wrap(text, n) if len(text) > n else [text] for text, n in texts]
            parts = [
                gap.join(set_to(text, n) for set_to, text, n in zip(align, part, widths, strict=False)).rstrip()
                for part in zip_longest(*cells, fillvalue="")
            ]
            lines.append("\n".join(parts))
        return lines

    def _fitted(self, width: int) -> tuple[list[int], str]:
        """Return (widths of the columns, spaces between them), so that lines keep to `width` as far as possible."""
        n_gaps = len(self.head) - 1
        for n_columns, gap in ((0, 2), (self.n_left, 2), (self.n_left, 1), (len(self.head), 1), (len(self.head), 2)):
            widths = self._widths()
            excess = sum(widths) + gap * n_gaps - width
            for column in sorted(range(n_columns), key=lambda column: -widths[column]):
                own = widths[column]
                widths[column] = max(own - max(excess, 0), min(own, _NARROWEST))
                excess -= own - widths[column]
            if excess <= 0:
                break
        return widths, " " * gap

    def to_markdown(self, *, escape: Callable[[str], str] = escape_markdown) -> str:
        """Return the table in Markdown.

        Examples
        --------
        >>> print(PrintedTable(["a", "b"], [["1|2", "3"]]).to_markdown())
        | a | b |
        | --- | --- |
        | 1\\|2 | 3 |
        """
        lines = [self.head, ["---"] * len(self.head), *([escape(cell) for cell in row] for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_latex(self, *, escape: Callable[[str], str] = escape_latex) -> str:
        r"""Return the table and its caption in LaTeX, which only needs ``\usepackage[T1]{fontenc}``."""
        lines = (" & ".join(map(escape, line)) for line in (self.head, *self.rows))
        head, *body = (_OPTION.sub("{}", line) + r" \\" for line in lines)
        begin = rf"\begin{{tabular}}{{{'l' * len(self.head)}}}"
        note = rf"{{\footnotesize {escape(self.caption)}}}"
        return "\n".join([begin, r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}", "", note])

    def to_html(self) -> str:
        """Return the table and its caption in HTML."""
        head, *body = (
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
            for tag, line in (("th", self.head), *(("td", row) for row in self.rows))
        )
        rows = "".join(f"<tr>{cells}</tr>" for cells in body)
        caption = f"<caption style='text-align: left'>{html.escape(self.caption)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
