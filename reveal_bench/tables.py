"""Reader of users' tables: CSV, TSV, XLSX, Parquet, and JSON lists of rows.

Rules
-----
* Text is UTF-8, with or without a byte order mark. For another encoding, the error states the line and the remedy.
* Cells are separated by tabs if the header contains a tab, otherwise by the most frequent character in the header among
  comma, semicolon and bar. A first line such as ``sep=;``, which Excel writes, determines the separator.
* The first row that is not blank contains the names of the columns. Names are stripped, and their case does not matter.
  A repeated name is an error.
* Blank rows are skipped. A row with too few or too many cells is a problem; additional blank cells at its end are
  allowed.
* Cells are stripped. A decimal comma is a problem if commas do not separate cells. Tables of free text are read with
  `verbatim`, which keeps spaces and commas in cells.
* Identifiers are never converted to numbers: ``row["id"]`` is text with the digits in the file.
* The number of a row is that of the line in which it begins, of the row in a sheet, or of the entry in a JSON list.

:class:`TableLimits` limits the memory and time of reading, whatever sizes a file states.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench.arguments import Problem
from reveal_bench.findings import hint
from reveal_bench.table_formats import Numbered, ProblemSink, TableError, TableLimits, TableNotes, numbered_rows

__all__ = [
    "TABLE_SUFFIXES",
    "DECIMAL_POINT",
    "InputTable",
    "Problem",
    "TableError",
    "TableLimits",
    "TableReader",
    "TableRow",
    "columns_of",
    "has_decimal_comma",
    "missing_columns",
    "open_table",
    "plain_text",
    "read_table",
    "scan_table",
]

TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".parquet")
DECIMAL_POINT = "must have a decimal point, not a decimal comma"
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")


class _Header:
    """The file name and the columns of a table, which its rows share."""

    def __init__(self, file: str, columns: Sequence[str]) -> None:
        self.file, self.columns = file, tuple(columns)
        self._positions = {name.casefold(): i for i, name in enumerate(columns)}
        self._positions |= {name: i for i, name in enumerate(columns)}

    def position(self, column: str) -> int | None:
        """Return the index of a column, whose name is compared without case, or None."""
        position = self._positions.get(column)
        return self._positions.get(column.casefold()) if position is None else position


class TableRow(Mapping[str, str]):
    """One row: column -> text. `number` is that of its line, row or entry; `file` is the table's name for messages."""

    __slots__ = ("_header", "_values", "number")

    def __init__(self, header: _Header, number: int, values: Sequence[Any]) -> None:
        self._header, self.number, self._values = header, number, values

    @property
    def file(self) -> str:
        """The name of the table."""
        return self._header.file

    def value(self, column: str) -> Any:
        """Return the cell as stored in the file: text or, in a typed format, a number, list, boolean or None."""
        position = self._header.position(column)
        if position is None:
            raise KeyError(column)
        return self._values[position]

    def cell(self, column: str) -> str | list[Any]:
        """Return the cell as text, or a list unchanged."""
        value = self.value(column)
        return value if isinstance(value, list) else plain_text(value)

    def __getitem__(self, column: str) -> str:
        value = self.value(column)
        return value if isinstance(value, str) else plain_text(value)

    @property
    def texts(self) -> list[str]:
        """All cells as text, in the order of the columns."""
        return [value if isinstance(value, str) else plain_text(value) for value in self._values]

    def __iter__(self) -> Iterator[str]:
        return iter(self._header.columns)

    def __len__(self) -> int:
        return len(self._header.columns)

    def problem(self, column: str, rule: str, value: object) -> Problem:
        """Return a problem with this row's file and number."""
        return Problem(self.file, self.number, column, rule, str(value))


@dataclass(frozen=True, slots=True)
class InputTable:
    """A complete table in memory; `file` is its name for messages."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]

    def __contains__(self, column: str) -> bool:
        return column.casefold() in {name.casefold() for name in self.columns}

    def renamed(self, rename: Callable[[str], str]) -> InputTable:
        """Return the table with its columns renamed by `rename`."""
        header = _Header(self.file, [rename(name) for name in self.columns])
        rows = tuple(TableRow(header, row.number, row._values) for row in self.rows)
        return InputTable(self.file, header.columns, rows)


def has_decimal_comma(text: str) -> bool:
    """Return True if a cell is a number written with a decimal comma, such as "0,5"."""
    return "," in text and _DECIMAL_COMMA.fullmatch(text) is not None


def missing_columns(table: InputTable, columns: Iterable[str], *, named_in: str = "") -> list[Problem]:
    """Return a problem for each of `columns` that the table lacks; `named_in` is the file that names the columns."""
    return [
        Problem(
            named_in or table.file,
            None,
            "column",
            f"must be a column of {table.file}",
            f"{hint(column, table.columns)}; it has {', '.join(table.columns)}"[:300],
        )
        for column in dict.fromkeys(columns)
        if column not in table
    ]


def plain_text(value: Any) -> str:
    """Return a value as text: whole numbers without a decimal point, True as "true", None as "", lists as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value).strip()


def columns_of(path: Path) -> tuple[str, ...]:
    """Return the names of a table's columns; () if the table cannot be read."""
    with open_table(path, problems=[]) as reader:
        return reader.columns


def read_table(path: Path, name: str | None = None, **options: Any) -> InputTable:
    """Return a table, and raise an error for its first problem; :func:`open_table` explains the options.

    Raises
    ------
    TableError
        At the first problem.
    """
    with open_table(path, name, **options) as reader:
        return InputTable(reader.file, reader.columns, tuple(reader))


def scan_table(
    path: Path, name: str, problems: list[Problem], *, may_be_empty: bool = False, **options: Any
) -> InputTable | None:
    """Return a table with its valid rows, or None if it cannot be read; its problems are added to `problems`."""
    with open_table(path, name, problems, **options) as reader:
        rows = tuple(reader)
    if reader.is_broken:
        return None
    if not rows and not may_be_empty:
        reader.note("rows", "must contain at least one row", "none")
    return InputTable(reader.file, reader.columns, rows)


@contextmanager
def open_table(
    source: Path | bytes,
    name: str | None = None,
    problems: ProblemSink | None = None,
    *,
    columns: Collection[str] | None = None,
    limits: TableLimits = TableLimits(),
    sheet: str | None = None,
    within: Path | None = None,
    verbatim: bool = False,
    objects: bool = False,
    only: Collection[str] | None = None,
) -> Iterator[TableReader]:
    """Open a table, and read its rows one by one.

    Parameters
    ----------
    source : a file, whose content and suffix determine the format; or the content of a text table
    name : name of the table for messages; by default the name of the file
    problems : collection to which problems are added while rows with a problem are left out; without a collection, the
        first problem is raised
    columns : the table must have exactly these columns, in any order
    limits : largest sizes of the table
    sheet : name of a sheet; required if a workbook has several sheets
    within : folder that must contain the file (after following links)
    verbatim : True to keep spaces in cells, and not to check for decimal commas
    objects : True if cells in JSON and Parquet may be objects
    only : columns of a Parquet file to read; all by default

    Yields
    ------
    TableReader
        The open table; without columns if the table cannot be read.

    Raises
    ------
    TableError
        At the first problem, if `problems` is not given.
    ImportError
        If the file is a workbook and openpyxl is not installed.
    """
    file = name if name is not None else source.name if isinstance(source, Path) else "table"
    reader = TableReader(file, problems, limits, verbatim=verbatim, objects=objects)
    with ExitStack() as opened:
        with reader.noting():
            reader.start(numbered_rows(source, reader, opened, sheet=sheet, within=within, only=only))
            if columns is not None:
                reader.check_columns(columns)
        yield reader


class TableReader(TableNotes):
    """An open table with its `columns`; iteration, possible only once, yields its rows."""

    def __init__(
        self, file: str, problems: ProblemSink | None, limits: TableLimits, *, verbatim: bool, objects: bool
    ) -> None:
        super().__init__(file, problems, limits)
        self.columns: tuple[str, ...] = ()
        self._verbatim, self._objects = verbatim, objects
        self._rows: Numbered = iter(())

    def __contains__(self, column: str) -> bool:
        return column.casefold() in {name.casefold() for name in self.columns}

    def __iter__(self) -> Iterator[TableRow]:
        header = _Header(self.file, self.columns)
        with self.noting():
            for number, values in self._rows:
                yield TableRow(header, number, values)

    def start(self, numbered: Numbered | Iterator[tuple[int, Any]]) -> None:
        """Read the names of the columns, and prepare the iteration over the rows."""
        if self.format in ("json", "jsonl"):
            self._start_entries(numbered)
        elif self.format == "parquet":
            self._set_columns(next(numbered)[1], None)
            self._rows = numbered if self.columns else iter(())
        else:
            self._start_grid(self._not_blank(numbered))

    def check_columns(self, columns: Collection[str]) -> None:
        """Raise TableError unless the table has exactly the given columns."""
        if {name.casefold() for name in self.columns} != {name.casefold() for name in columns}:
            raise self.error("columns", f"must be {','.join(columns)}", ",".join(self.columns)[:300], 1)

    def _start_grid(self, rows: Numbered) -> None:
        number, head = next(rows, (0, ()))
        if len(head) > self.limits.columns:
            raise self.error("columns", f"must be at most {self.limits.columns:,}", f"{len(head):,}", number)
        columns = [plain_text(name) for name in head]
        while columns and not columns[-1]:
            columns.pop()
        if not columns:
            raise self.error("file", "must have a row of column names", "an empty table")
        self._set_columns(columns, number)
        self._rows = self._cells(rows, len(columns))

    def _set_columns(self, columns: Sequence[str], number: int | None) -> None:
        times = Counter(name.casefold() for name in columns)
        twice = list(dict.fromkeys(name for name in columns if times[name.casefold()] > 1))
        if twice:
            rule = "must have different names"
            if "" in twice:
                rule = "must all have different, non-blank names in the first row"
            names = ", ".join(name or "a blank" for name in twice[:10])
            raise self.error("columns", rule, f"{names} more than once", number)
        self.columns = tuple(columns)

    def _not_blank(self, numbered: Numbered) -> Numbered:
        """Yield the rows that are not blank; blank rows count towards the limit."""
        strip = str.strip if self.format == "csv" else plain_text
        n_cells = 0
        for n_rows, (number, cells) in enumerate(numbered):
            n_cells += len(cells)
            if n_rows > self.limits.rows:
                raise self.error("rows", f"must be at most {self.limits.rows:,}", "more", number)
            if n_cells > self.limits.cells:
                raise self.error("cells", f"must be at most {self.limits.cells:,}", "more", number)
            if any(map(strip, cells)):
                yield number, cells

    def _cells(self, rows: Numbered, n_columns: int) -> Numbered:
        """Yield the rows with exactly one cell per column; note the others."""
        is_stripped = self.format == "csv" and not self._verbatim
        for number, cells in rows:
            values = list(map(str.strip, cells)) if is_stripped else cells
            if len(values) != n_columns:
                if len(values) < n_columns or any(plain_text(value) for value in values[n_columns:]):
                    self.note("row", f"must have {n_columns} cells, like the header", len(values), number)
                    continue
                values = values[:n_columns]
            if is_stripped and self.separator != "," and self._has_decimal_comma(values, number):
                continue
            yield number, values

    def _has_decimal_comma(self, values: Sequence[str], number: int) -> bool:
        for column, value in zip(self.columns, values, strict=True):
            if has_decimal_comma(value):
                self.note(column, DECIMAL_POINT, repr(value), number)
                return True
        return False

    def _start_entries(self, numbered: Iterator[tuple[int, Any]]) -> None:
        """Read the columns and rows of JSON objects; a missing key is a blank cell."""
        columns: dict[str, None] = {}
        entries: list[tuple[int, dict[str, Any]]] = []
        for number, entry in numbered:
            if len(entries) == self.limits.rows:
                raise self.error("rows", f"must be at most {self.limits.rows:,}", "more", number)
            if not isinstance(entry, dict):
                self.note("entry", "must be a JSON object", type(entry).__name__, number)
                continue
            values = {str(name).strip(): self._value(value) for name, value in entry.items()}
            nested = None if self._objects else next((n for n, v in values.items() if isinstance(v, dict)), None)
            if nested is not None:
                self.note(nested, "must be text, a number, true, false, null or a list", "an object", number)
                continue
            columns.update(dict.fromkeys(values))
            if len(columns) > self.limits.columns:
                raise self.error("columns", f"must be at most {self.limits.columns:,}", "more", number)
            entries.append((number, values))
        self._set_columns(list(columns), None)
        self._rows = ((number, tuple(values.get(name) for name in columns)) for number, values in entries)

    def _value(self, value: Any) -> Any:
        return value.strip() if isinstance(value, str) and not self._verbatim else value
