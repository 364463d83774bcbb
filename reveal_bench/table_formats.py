"""Readers of table formats (CSV, JSON, XLSX, Parquet): conversion of a file to numbered rows of cells, within limits.

The rules for columns and cells are the same for all formats, see :mod:`reveal_bench.tables`.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
import stat
import threading
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from reveal_bench.arguments import Problem
from reveal_bench.files import leads_out, parse_json, where_not_utf8

JSON_BYTES = 1 << 26
"""Largest JSON document that is parsed as a whole, in bytes; its values take about ten times as much memory."""
MOST_EXACT = 10**15
"""Number from which a spreadsheet may have lost digits (more than 15)."""

_SEPARATORS = ",;|"
_REMEDY = ": save the table as CSV UTF-8"
_SEPARATOR_LINE = re.compile(r'"?sep=([,;|\t])"?\s*', re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_ALWAYS_UNPACKED = 64 << 20  # bytes that are always unpacked, whatever the compression ratio
_BATCH_ROWS = 1024
_LIMIT = threading.Lock()
_FIELD_BYTES = [csv.field_size_limit()]
"""Field size limits of the process (first) and of the tables that are being read."""

Numbered = Iterator[tuple[int, Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class TableLimits:
    """Limits on the size of a table; with the defaults a complete table takes less than a gigabyte of memory.

    Attributes
    ----------
    file_bytes : size of the file
    unpacked_bytes : size of compressed text after unpacking, or of the texts in a Parquet file
    expansion : unpacked size per byte of the file, beyond 64 MiB
    json_bytes, workbook_bytes : size of a JSON list and of an unpacked workbook, which are parsed as a whole
    rows, columns : number of rows below the header, and of columns
    cells : total number of cells
    line_bytes : size of a line and of a cell
    """

    file_bytes: int = 1 << 28
    unpacked_bytes: int = 1 << 28
    expansion: int = 100
    json_bytes: int = JSON_BYTES
    workbook_bytes: int = 1 << 28
    rows: int = 1_250_000
    columns: int = 16_384
    cells: int = 8_000_000
    line_bytes: int = 16 << 20


class TableError(ValueError):
    """The error of an invalid table or row; `problem` states where it is and which rule is broken."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class ProblemSink(Protocol):
    """A collection to which problems can be appended, such as a list."""

    def append(self, problem: Problem, /) -> None:
        """Add a problem."""


class TableNotes:
    """Name, limits and format of a table, with the collection for its problems."""

    def __init__(self, file: str, problems: ProblemSink | None, limits: TableLimits) -> None:
        self.file, self.limits = file, limits
        self.format = "csv"
        self.separator = ","
        self.is_broken = False
        self._problems = problems

    def note(self, field: str, rule: str, value: object, number: int | None = None) -> None:
        """Add a problem to the collection; without a collection, raise it."""
        error = self.error(field, rule, value, number)
        if self._problems is None:
            raise error from None
        self._problems.append(error.problem)

    def error(self, field: str, rule: str, value: object, number: int | None = None) -> TableError:
        """Return the exception for a problem that ends the reading."""
        return TableError(Problem(self.file, number, field, rule, str(value)))

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Add an error that ends the reading of a file in the block to the problems; without a collection, raise it."""
        try:
            yield
        except TableError as error:
            self.is_broken = True
            if self._problems is None:
                raise
            self._problems.append(error.problem)
        except FileNotFoundError:
            self.is_broken = True
            self.note("file", "must exist", "none")
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError, RecursionError) as error:
            self.is_broken = True
            encoding = "" if self.format in ("xlsx", "parquet") else " in UTF-8"
            is_lines = self.format == "json" and str(error).startswith("Extra data")
            remedy = "; rename a file of JSON lines to .jsonl" if is_lines else ""
            self.note("file", f"must be readable as {self.format}{encoding}{remedy}", str(error)[:200])


def numbered_rows(
    source: Path | bytes,
    notes: TableNotes,
    opened: ExitStack,
    *,
    sheet: str | None,
    within: Path | None,
    only: Collection[str] | None,
) -> Iterator[tuple[int, Any]]:
    """Return an iterator of numbered rows, the header first; suffix and content determine the format."""
    limits = notes.limits
    if isinstance(source, bytes):
        line, byte = where_not_utf8(source)
        if byte != "none":  # before any row is read
            raise notes.error("file", f"must be UTF-8{_REMEDY}", f"the byte {byte}", line)
        return _text_rows(io.BytesIO(source), limits.unpacked_bytes, notes, opened)
    size = _file_size(source, within, notes)
    file = opened.enter_context(source.open("rb"))
    head, suffix = file.read(1 << 12), source.suffix.lower()
    file.seek(0)
    if suffix == ".parquet" or head.startswith(b"PAR1"):
        notes.format = "parquet"
        return _parquet_rows(source, notes, opened, only)
    allowed = min(limits.unpacked_bytes, max(_ALWAYS_UNPACKED, limits.expansion * size))
    if suffix in (".xlsx", ".zip") or head.startswith(b"PK\x03\x04"):
        if suffix != ".xlsx":
            with zipfile.ZipFile(source) as archive:
                names = archive.namelist()
            if "[Content_Types].xml" not in names:
                return _text_rows(_only_table(source, names, opened), allowed, notes, opened)
        notes.format = "xlsx"
        return _sheet_rows(source, sheet, notes, opened)
    if head.startswith(b"\x1f\x8b"):
        return _text_rows(opened.enter_context(gzip.GzipFile(fileobj=file)), allowed, notes, opened)
    if suffix == ".json" or (suffix not in (".csv", ".tsv", ".jsonl") and head.lstrip()[:1] == b"["):
        notes.format = "json"
        return _json_list(file, size, notes)
    if suffix == ".jsonl" or (suffix not in (".csv", ".tsv") and head.lstrip()[:1] == b"{"):
        notes.format = "jsonl"
        return _json_lines(file, notes)
    return _text_rows(file, limits.file_bytes, notes, opened)


def _file_size(path: Path, within: Path | None, notes: TableNotes) -> int:
    status = path.stat()
    if leads_out(path) or (within is not None and not path.resolve().is_relative_to(within.resolve())):
        raise notes.error("file", "must be within the download", "a file outside of the download")
    if not stat.S_ISREG(status.st_mode):  # reading from a pipe could wait for ever
        raise notes.error("file", "must be a regular file", "something else")
    if status.st_size > notes.limits.file_bytes:
        raise notes.error("size", f"must be at most {notes.limits.file_bytes:,} bytes", f"{status.st_size:,}")
    return status.st_size


def _lines(stream: BinaryIO, most_bytes: int, notes: TableNotes, remedy: str = "") -> Iterator[str]:
    """Yield lines of UTF-8 text with their line ends; the size of each line is checked before it is stored."""
    n_bytes, most = 0, notes.limits.line_bytes
    for number in itertools.count(1):
        raw = stream.readline(most + 1)
        n_bytes += len(raw)
        if len(raw) > most:
            raise notes.error("line", f"must have at most {most:,} bytes", "more", number)
        if n_bytes > most_bytes:
            raise notes.error("size", f"must be at most {most_bytes:,} bytes unpacked", "more", number)
        if not raw:
            return
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
            if b"\0" in raw[:2] or raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise notes.error("file", f"must be UTF-8{remedy}", "UTF-16, or not text", 1)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            byte = f"the byte 0x{raw[error.start]:02x}"
            raise notes.error("file", f"must be UTF-8{remedy}", byte, number) from None
        if "\r" in text and "\r" in text[:-2]:  # old line ends
            yield from io.StringIO(text, newline="")
        else:
            yield text


def _text_rows(stream: Any, most_bytes: int, notes: TableNotes, opened: ExitStack) -> Numbered:
    opened.enter_context(_fields_up_to(notes.limits.line_bytes))
    lines = _lines(stream, most_bytes, notes, _REMEDY)
    first, head = 1, next(lines, "")
    declared = _SEPARATOR_LINE.fullmatch(head)
    if declared is not None:
        first, head = 2, next(lines, "")
    blank = []
    while head and not head.strip():
        blank.append(head)
        head = next(lines, "")
    notes.separator = declared[1] if declared is not None else _separator(head)
    bare = _QUOTED.sub("", head)
    if notes.separator not in bare and _separator(head) in bare:
        rule = f"must be separated as its line sep={notes.separator} says"
        raise notes.error("file", rule, repr(head.strip()[:80]), 1)
    return _records(itertools.chain(blank, [head], lines), first, notes)


def _separator(head: str) -> str:
    bare = _QUOTED.sub("", head)
    return "\t" if "\t" in bare else max(_SEPARATORS, key=bare.count)


def _records(lines: Iterable[str], first: int, notes: TableNotes) -> Numbered:
    """Yield (number of the line in which the row begins, cells) of each row."""
    records = csv.reader(lines, delimiter=notes.separator, strict=True)
    number = first
    try:
        for cells in records:
            yield number, cells
            number = first + records.line_num
    except csv.Error as error:  # such as an unmatched quotation mark
        raise notes.error("file", "must be readable as csv in UTF-8", error, number) from None


@contextmanager
def _fields_up_to(n_bytes: int) -> Iterator[None]:
    """Allow fields of this size, such as masks, in the block; the standard library's limit applies to the process."""
    with _LIMIT:
        _FIELD_BYTES.append(n_bytes)
        csv.field_size_limit(max(_FIELD_BYTES))
    try:
        yield
    finally:
        with _LIMIT:
            _FIELD_BYTES.remove(n_bytes)
            csv.field_size_limit(max(_FIELD_BYTES))


def _only_table(path: Path, names: Sequence[str], opened: ExitStack) -> Any:
    tables = [name for name in names if name.endswith((".csv", ".tsv")) and not name.startswith("__MACOSX")]
    if len(tables) != 1:
        raise OSError(f"{len(tables)} CSV files in the archive instead of one")
    return opened.enter_context(opened.enter_context(zipfile.ZipFile(path)).open(tables[0]))


def _json_list(file: BinaryIO, size: int, notes: TableNotes) -> Iterator[tuple[int, Any]]:
    if size > notes.limits.json_bytes:
        raise notes.error("size", f"must be at most {notes.limits.json_bytes:,} bytes", f"{size:,}")
    entries = parse_json("".join(_lines(file, size, notes)))
    if not isinstance(entries, list):
        raise notes.error("file", "must be a JSON list of objects", type(entries).__name__)
    return enumerate(entries, start=1)


def _json_lines(file: BinaryIO, notes: TableNotes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_lines(file, notes.limits.file_bytes, notes), start=1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except (ValueError, RecursionError) as error:
                notes.note("line", "must be JSON", str(error)[:200], number)


def _sheet_rows(path: Path, sheet: str | None, notes: TableNotes, opened: ExitStack) -> Numbered:
    try:
        import openpyxl
    except ImportError:
        raise ImportError("xlsx tables need openpyxl: pip install 'reveal-bench[tables]'") from None
    with _workbook_errors():
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())  # zipfile never unpacks more bytes than this size
        if size > notes.limits.workbook_bytes:
            raise OSError(f"{size:,} bytes unpacked; at most {notes.limits.workbook_bytes:,} are read")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    opened.callback(book.close)
    names = book.sheetnames
    if sheet is None and len(names) > 1:
        rule = "must be named (`sheet` in the mapping, or `--sheet`) or be the only sheet of its workbook"
        raise notes.error("sheet", rule, ", ".join(names))
    if sheet is not None and sheet not in names:
        raise notes.error("sheet", f"must be one of {', '.join(names)}", sheet)
    return _sheet_cells(book, sheet, notes)


def _sheet_cells(book: Any, sheet: str | None, notes: TableNotes) -> Numbered:
    width = 0
    with _workbook_errors():
        table = book[sheet or book.sheetnames[0]]
        table.reset_dimensions()  # the stated dimensions may be 16,384 columns, to which every row would be padded
        for number, cells in enumerate(table.iter_rows(values_only=True), start=1):
            for cell in cells:
                if isinstance(cell, int | float) and abs(cell) >= MOST_EXACT:
                    rule = (
                        "must be text if it has more than 15 digits, because a spreadsheet stores only 15 "
                        "digits of a number"
                    )
                    notes.note("cell", rule, f"{cell:.0f}", number)
            width = max(width, len(cells))
            bare = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
            yield number, [*bare, *[None] * (width - len(bare))]


@contextmanager
def _workbook_errors() -> Iterator[None]:
    """Turn any exception of openpyxl, zipfile or the XML parser about a damaged workbook into an OSError."""
    try:
        yield
    except (OSError, TableError):
        raise
    except Exception as error:  # KeyError, ParseError, BadZipFile, zlib.error, MemoryError, ...
        raise OSError(f"not an xlsx file: {type(error).__name__} {error}".rstrip()) from None


def _parquet_rows(path: Path, notes: TableNotes, opened: ExitStack, only: Collection[str] | None) -> Numbered:
    """Yield (0, names of the columns), then (1-based number, values) of each row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    small = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 20}  # of the footer
    try:
        with pq.ParquetFile(path, **small) as footer:
            leaves = [footer.schema.column(i) for i in range(len(footer.schema))]
            _check_footer(footer, leaves, only, notes)
            texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        # repeated texts are stored once, so that their expanded size is known before they are expanded
        file = opened.enter_context(pq.ParquetFile(path, read_dictionary=texts, **small))
        names = [name for name in file.schema_arrow.names if only is None or name in only]
        yield 0, [name.strip() for name in names]
        n_rows = n_bytes = 0
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=False):
            n_bytes += sum(map(expanded_bytes, batch.columns))
            if n_bytes > notes.limits.unpacked_bytes:
                rule = f"must be at most {notes.limits.unpacked_bytes:,} bytes unpacked"
                raise notes.error("size", rule, "more", n_rows + 1)
            for row in zip(*map(values_of, batch.columns), strict=True):
                n_rows += 1
                yield n_rows, row
    except (pa.ArrowException, MemoryError) as error:
        raise OSError(str(error)) from None


def _check_footer(file: Any, leaves: Sequence[Any], only: Collection[str] | None, notes: TableNotes) -> None:
    """Check the sizes in the footer; each value of a list, and each list in a list, is a cell."""
    metadata, limits = file.metadata, notes.limits
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    n_cells = sum(
        max(1, leaf.max_repetition_level) * group.column(i).num_values
        for i, leaf in enumerate(leaves)
        if only is None or any(f"{leaf.path}.".startswith(f"{name}.") for name in only)
        for group in groups
    )
    sizes = {
        "rows": (sum(group.num_rows for group in groups), limits.rows),
        "columns": (metadata.num_columns, limits.columns),
        "cells": (n_cells, limits.cells),
        "size": (sum(group.total_byte_size for group in groups), limits.unpacked_bytes),
    }
    for field, (size, most) in sizes.items():
        if size > most:
            raise notes.error(field, f"must be at most {most:,}", f"{size:,}")


def expanded_bytes(column: Any) -> int:
    """Return the size in bytes of a Parquet column in which repeated texts are expanded."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary)
        return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)
    if types.is_list(column.type) or types.is_large_list(column.type):
        return 8 * len(column) + expanded_bytes(column.flatten())
    if types.is_struct(column.type):
        return sum(map(expanded_bytes, column.flatten()))
    return int(column.nbytes)


def values_of(column: Any) -> Sequence[Any]:
    """Return the Python values of a column; repeated texts share one object."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        used = pc.unique(column.indices).drop_null()  # a dictionary may be far larger than the part that a batch uses
        texts = dict(zip(used.to_pylist(), column.dictionary.take(used).to_pylist(), strict=True))
        return [None if index is None else texts[index] for index in column.indices.to_pylist()]
    if types.is_list(column.type) or types.is_large_list(column.type):
        values = iter(values_of(column.flatten()))
        return [None if n is None else list(itertools.islice(values, n)) for n in column.value_lengths().to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]
