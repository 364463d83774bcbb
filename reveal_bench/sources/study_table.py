"""A table of studies in any of the usual forms: csv, tsv, xlsx, json, jsonl, parquet.

Every cell is text, so that no identifier ever passes through a number: blank cells are "", numbers keep their digits.
Cells of JSON files that hold a list stay lists. A row knows its place: the line of a text file, the row of a sheet, the
entry of a JSON list, all counted from 1.
"""

from __future__ import annotations

import csv
import json
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench.files import parse_json, where_not_utf8
from reveal_bench.findings import hint
from reveal_bench.kinds.folder import read_rows
from reveal_bench.sources.source import Problem

Cell = str | list[Any]
TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".parquet")
SEPARATORS = ",;\t|"
MOST_EXACT = 10**15
"""From here on a number in a sheet may have lost digits."""
MAX_BYTES = 1 << 30
"""A table larger than this (1 GiB) is none of studies."""
MOST_SHEET_ROWS = 1 << 20
"""As many as a sheet has."""
MAX_SHEET_BYTES = 1 << 28
"""What the parts of an xlsx may hold together, unpacked: 256 MiB; openpyxl itself has no bound."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its `number`, and column -> cell."""

    number: int
    cells: dict[str, Cell]

    def text(self, column: str) -> str:
        """A cell as text; a list as JSON."""
        cell = self.cells[column]
        return cell if isinstance(cell, str) else json.dumps(cell)


@dataclass(frozen=True, slots=True)
class StudyTable:
    """A table that was read; `file` is its name for messages."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


def missing_columns(table: StudyTable, columns: Iterable[str], *, named_in: str = "") -> list[Problem]:
    """A problem for each of `columns` that the table does not have; `named_in` is the file that asks for them."""
    return [
        Problem(
            named_in or table.file,
            None,
            "column",
            f"must be a column of {table.file}",
            f"{hint(column, table.columns)}; it has {', '.join(table.columns)}"[:300],
        )
        for column in dict.fromkeys(columns)
        if column not in table.columns
    ]


def read_table(
    path: Path, file: str, problems: list[Problem], *, sheet: str | None = None, within: Path | None = None
) -> StudyTable | None:
    """Read a table; None if it cannot be read at all.

    Parameters
    ----------
    path : Path
        Its suffix tells the form; the separator of a .csv may be a comma, semicolon, tab or bar.
    file : name for messages
    problems : what is wrong is added here; a row with a problem is left out
    sheet : name of an xlsx file's sheet; needed if it has several
    within : a folder that the file must lie below, also where links lead there

    Raises
    ------
    ImportError
        If the file is an xlsx and openpyxl is not installed.
    """
    reading = _Reading(file, problems)
    suffix = path.suffix.lower()
    try:
        if suffix not in TABLE_SUFFIXES:
            reading.fail("suffix", f"must be one of {', '.join(TABLE_SUFFIXES)}", suffix or "none")
            return None
        status = path.stat()
        if within is not None and not path.resolve().is_relative_to(within.resolve()):
            reading.fail("file", "must lie within the download", "a place outside of it")
            return None
        if not stat.S_ISREG(status.st_mode):  # reading from a pipe would wait for ever
            reading.fail("file", "must be a regular file", "something else")
            return None
        if status.st_size > MAX_BYTES:
            reading.fail("size", f"must be at most {MAX_BYTES:,} bytes", f"{status.st_size:,}")
            return None
        if suffix == ".xlsx":
            return reading.grid(_sheet_rows(path, sheet, reading))
        if suffix in (".csv", ".tsv"):
            return reading.grid(_separated_rows(path, "\t" if suffix == ".tsv" else None))
        if suffix == ".parquet":
            return reading.entries(enumerate(read_rows(path), start=1))
        text = path.read_text(encoding="utf-8-sig")
        return reading.entries(_json_lines(text, reading) if suffix == ".jsonl" else _json_list(text, reading))
    except FileNotFoundError:
        reading.fail("file", "must exist", "none")
    except UnicodeDecodeError:
        number, byte = where_not_utf8(path.read_bytes())
        form = "CSV UTF-8" if suffix == ".csv" else "UTF-8"
        reading.fail("file", f"must be UTF-8: save the table as {form}", f"the byte {byte}", number)
    except (OSError, csv.Error, ValueError, RecursionError) as error:
        reading.fail("file", f"must be readable as {suffix.removeprefix('.')} in UTF-8", str(error)[:200])
    return None


class _Reading:
    """Rows -> table; what is wrong goes to `problems`."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems

    def fail(self, field: str, rule: str, value: str, row: int | None = None) -> None:
        self.problems.append(Problem(self.file, row, field, rule, value))

    def grid(self, numbered: Iterable[tuple[int, Sequence[str]]]) -> StudyTable | None:
        """A table whose first row that is not blank names the columns."""
        rows = ((number, cells) for number, cells in numbered if any(cell.strip() for cell in cells))
        number, head = next(iter(rows), (0, ()))
        columns = [name.strip() for name in head]
        while columns and not columns[-1]:
            columns.pop()
        if not self._are_columns(columns, number):
            return None
        found = []
        for number, cells in rows:
            bare = [cell.strip() for cell in cells]
            if len(bare) < len(columns) or any(bare[len(columns) :]):
                self.fail("row", f"must have {len(columns)} cells, as the head has", str(len(bare)), number)
                continue
            found.append(TableRow(number, dict(zip(columns, bare, strict=False))))
        return self._table(columns, found)

    def entries(self, numbered: Iterable[tuple[int, Any]]) -> StudyTable | None:
        """A table of JSON objects; a key that an object lacks is blank."""
        columns: dict[str, None] = {}
        found = []
        for number, entry in numbered:
            if not isinstance(entry, dict):
                self.fail("entry", "must be a JSON object", type(entry).__name__, number)
                continue
            cells = {str(name).strip(): _cell(value) for name, value in entry.items()}
            nested = [name for name, value in cells.items() if value is None]
            if nested:
                self.fail(nested[0], "must be text, a number, true, false, null or a list", "an object", number)
                continue
            columns.update(dict.fromkeys(cells))
            found.append(TableRow(number, {name: value for name, value in cells.items() if value is not None}))
        rows = [TableRow(row.number, {name: row.cells.get(name, "") for name in columns}) for row in found]
        return self._table(list(columns), rows) if rows or not self.problems else None

    def _are_columns(self, columns: list[str], number: int) -> bool:
        if not columns and not any(p.file == self.file and p.field == "sheet" for p in self.problems):
            self.fail("file", "must have a row of column names", "an empty table")
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            shown = ", ".join(name or "a blank" for name in twice)
            rule = (
                "must all have names, different ones, in the first row" if "" in twice else "must have different names"
            )
            self.fail("columns", rule, f"{shown} more than once", number)
        return bool(columns) and not twice

    def _table(self, columns: list[str], rows: list[TableRow]) -> StudyTable:
        if not rows:
            self.fail("rows", "must hold at least one study", "none")
        return StudyTable(self.file, tuple(columns), tuple(rows))


def _separated_rows(path: Path, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        if separator is None:
            head = file.readline()
            separator = max(SEPARATORS, key=head.count)
            file.seek(0)
        reader = csv.reader(file, delimiter=separator, strict=True)
        first_line = 1
        for cells in reader:
            yield first_line, cells
            first_line = reader.line_num + 1


def _sheet_rows(path: Path, sheet: str | None, reading: _Reading) -> Iterator[tuple[int, list[str]]]:
    try:
        import openpyxl
    except ImportError:
        raise ImportError("xlsx tables need openpyxl: pip install 'reveal-bench[tables]'") from None
    with _damage_refused():
        _check_unpacked_size(path)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        names = book.sheetnames
        if sheet is None and len(names) > 1:
            reading.fail("sheet", "must be named in the mapping where there are several", ", ".join(names))
            return
        if sheet is not None and sheet not in names:
            reading.fail("sheet", f"must be one of {', '.join(names)}", sheet)
            return
        with _damage_refused():
            table, width = book[sheet or names[0]], 0
            table.reset_dimensions()  # its head may claim 16,384 columns, and every row would be filled up to them
            for number, cells in enumerate(table.iter_rows(values_only=True), start=1):
                if number > MOST_SHEET_ROWS:
                    raise OSError(f"more than {MOST_SHEET_ROWS:,} rows")
                for cell in cells:
                    if isinstance(cell, int | float) and abs(cell) >= MOST_EXACT:
                        rule = "must be text where it has more than 15 digits: a sheet's number loses some"
                        reading.fail("cell", rule, _plain(cell), number)
                width = max(width, len(cells))
                yield number, [*map(_plain, cells), *[""] * (width - len(cells))]
    finally:
        book.close()


@contextmanager
def _damage_refused() -> Iterator[None]:
    """Whatever openpyxl, zipfile and the XML parser meet in a damaged workbook becomes an OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # KeyError, ParseError, BadZipFile, zlib.error, MemoryError, ...
        raise OSError(f"not an xlsx file: {type(error).__name__} {error}".rstrip()) from None


def _check_unpacked_size(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())  # zipfile never unpacks more than it says here
    if size > MAX_SHEET_BYTES:
        raise OSError(f"{size:,} bytes unpacked; at most {MAX_SHEET_BYTES:,} are read")


def _json_lines(text: str, reading: _Reading) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except (ValueError, RecursionError) as error:
                reading.fail("line", "must be JSON", str(error)[:200], number)


def _json_list(text: str, reading: _Reading) -> Iterator[tuple[int, Any]]:
    entries = parse_json(text)
    if not isinstance(entries, list):
        reading.fail("file", "must be a JSON list of objects", type(entries).__name__)
        return
    yield from enumerate(entries, start=1)


def _cell(value: Any) -> Cell | None:
    """A JSON value as a cell; None for an object."""
    if isinstance(value, dict):
        return None
    return value if isinstance(value, list) else _plain(value)


def _plain(value: Any) -> str:
    """A scalar as text: whole numbers without a point, True as "true"."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
