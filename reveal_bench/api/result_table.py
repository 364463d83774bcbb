"""Base classes of results that print as a small table and convert to pandas, Markdown, LaTeX, CSV and JSON.

`records` are unrounded (fractions, NaN if undefined); `printed_rows` are the same rows as rounded text.
"""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import write_all
from reveal_bench.printed_tables import PrintedTable
from reveal_bench.words import count_text, interval_text, number_text, p_text

if TYPE_CHECKING:
    import pandas as pd

    from reveal_bench.reports.style import Illustration

_ROWS_IN_REPR = 7
_ROWS_IN_HTML = 20
_MOST_CHARACTERS = 30


class TableResult(ABC):
    """A result that prints as a small table.

    Attributes
    ----------
    caption : the contents, in one line
    records : the rows, all with the same columns
    """

    @property
    @abstractmethod
    def caption(self) -> str: ...  # noqa: D102

    @property
    @abstractmethod
    def records(self) -> Sequence[Mapping[str, Any]]: ...  # noqa: D102

    @property
    def requested(self) -> Sequence[str]:
        """Columns to keep longest, in order of importance, if the terminal is too narrow for all."""
        return ()

    @property
    def part_asked(self) -> str:
        """Part of the split that the rows are about, which CSV and Markdown name; empty for the whole split."""
        return ""

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences about the rows, shown below them."""
        return ()

    def printed_rows(self) -> list[dict[str, str]]:
        """Return the rows as rounded text: column -> text."""
        return [{name: _text(value) for name, value in record.items()} for record in self.records]

    def to_pandas(self) -> pd.DataFrame:
        """Return the records as a DataFrame: fractions, NaN where undefined."""
        import pandas as pd

        return pd.DataFrame.from_records(list(self.records))

    @property
    def table(self) -> pd.DataFrame:
        """The records as a DataFrame, like :meth:`to_pandas`."""
        return self.to_pandas()

    @property
    def plain(self) -> list[dict[str, Any]]:
        """The records for JSON: undefined and infinite values are None."""
        return [{name: _plain(value) for name, value in record.items()} for record in self.records]

    def to_json(self) -> str:
        """Return the records as JSON text: undefined and infinite values are null."""
        return json.dumps(self.plain, indent=2) + "\n"

    def to_csv(self) -> str:
        """Return the records as CSV text; undefined values are empty cells."""
        frame = self.to_pandas()
        if self.part_asked:
            frame["part"] = self.part_asked
        return str(frame.to_csv(index=False, lineterminator="\n"))

    def to_markdown(self) -> str:
        """Return the printed rows as a Markdown table, with the remarks below."""
        below = [*[f"Scores of {self.part_asked}"] * bool(self.part_asked), *self.remarks]
        return self._printed().to_markdown() + "\n" + "".join(f"\n{text}\n" for text in below)

    def to_latex(self) -> str:
        """Return the printed rows, caption and remarks as LaTeX, which only needs ``\\usepackage[T1]{fontenc}``."""
        return self._printed().to_latex() + "\n"

    def _printed(self) -> PrintedTable:
        rows = self.printed_rows()
        head = list(rows[0]) if rows else []
        return PrintedTable(
            head, [list(row.values()) for row in rows], ". ".join([self.caption, *self.remarks]), n_left=len(head)
        )

    if not TYPE_CHECKING:  # so that a type checker rejects misspelt names

        def __getattr__(self, name: str) -> Any:
            import pandas as pd

            in_table = not name.startswith("_") and hasattr(pd.DataFrame, name)
            hint = "; `.table` is a DataFrame, which has it" if in_table else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        table = self._printed()
        lines = [line.rstrip() for line in table.first(_ROWS_IN_REPR).to_lines()] if table.rows else ["(no rows)"]
        n_more = len(table.rows) - _ROWS_IN_REPR
        more = [f"... and {count_text(n_more, 'more row')}, in .table"] * (n_more > 0)
        width = shutil.get_terminal_size((0, 0)).columns  # 0 outside a terminal
        texts = ["\n".join(textwrap.wrap(text, width)) if width else text for text in (self.caption, *self.remarks)]
        return "\n".join([texts[0], *lines, *more, *texts[1:]])

    def _repr_html_(self) -> str:
        table = self._printed()
        n_more = len(table.rows) - _ROWS_IN_HTML
        more = f"<p>and {count_text(n_more, 'more row')}, in <code>.table</code></p>" if n_more > 0 else ""
        return table.first(_ROWS_IN_HTML).to_html() + more


class TablesResult(TableResult):
    """A result with several tables, and figures of them."""

    @property
    @abstractmethod
    def tables(self) -> dict[str, TableResult]: ...  # noqa: D102

    @abstractmethod
    def drawn(self) -> Sequence[Illustration]:
        """Return the figures that show the tables."""

    def write(self, folder: str | Path) -> list[Path]:
        """Write each table as CSV, and the figures as SVG and PNG, into `folder`; return their paths.

        Raises
        ------
        ImportError
            Without matplotlib, which the extra [report] brings.
        """
        files = {f"{name}.csv": table.to_csv().encode() for name, table in self.tables.items()}
        return written(Path(folder), files, self.drawn())


def written(folder: Path, files: Mapping[str, bytes], drawn: Sequence[Illustration]) -> list[Path]:
    """Write text files, and figures as SVG and PNG, into `folder`; return their paths."""
    if folder.suffix in (".csv", ".jpg", ".pdf", ".png", ".svg"):
        raise ArgumentError(
            "out", "must be a folder, into which tables are written as CSV, figures as SVG and PNG", folder
        )
    files = {**files, **{f"{figure.name}.{kind}": figure.file(kind) for figure in drawn for kind in ("svg", "png")}}
    write_all({folder / name: data for name, data in files.items()})
    return [folder / name for name in files]


@dataclass(frozen=True, repr=False)
class RoundedTable(TableResult):
    """A table of numbers; the interval of a mean `name` is in the columns `name_low` and `name_high`.

    Attributes
    ----------
    title : the contents, in one line
    rows : the numbers
    """

    title: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def caption(self) -> str:
        """The title."""
        return self.title

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The rows."""
        return self.rows

    def printed_rows(self) -> list[dict[str, str]]:
        """Return rows as text with three decimals and with intervals after means."""
        return [_format_row(row) for row in self.rows]


def _format_row(row: Mapping[str, Any]) -> dict[str, str]:
    cells = {}
    for name, value in row.items():
        if name.endswith(("_low", "_high")):
            continue
        is_p = name in ("p", "p_corrected") or name.endswith("_p")
        cells[name.replace("_", " ")] = p_text(value) if is_p else _figure(value)
        if f"{name}_low" in row:
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            cells[" " * len(cells)] = interval_text(low, high)
    return cells


def _figure(value: Any) -> str:
    return number_text(value) if value is None or isinstance(value, float) else str(value)


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
