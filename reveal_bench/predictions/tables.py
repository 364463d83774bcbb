"""Reader of predictions in CSV, TSV and Parquet tables.

Conventions
-----------
One row is one prediction. Columns may have any order; ``image_id``, ``finding`` and one geometry are required: ``x, y``
(a point) · ``x, y, width, height`` (a box) · ``cell`` · ``size_h, size_w, counts`` (a mask) · ``score``. If a file has
all of ``x, y, width, height``, a row with empty width and height is a point. An empty cell of the table, or a null,
means "not given"; "NaN" does not.

Values are never guessed: ids stay text ("007" is not 7), and numbers are ASCII decimals. The footer of a Parquet file
is checked first. Then the file is read in batches with dictionary-encoded text, so that repeated strings are stored
once and their expanded size is known before they are expanded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from reveal_bench.arguments import Problem
from reveal_bench.predictions.hints import name_hint
from reveal_bench.predictions.jsonl import RawPrediction
from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.report import ProblemLog
from reveal_bench.table_formats import expanded_bytes, values_of
from reveal_bench.tables import DECIMAL_POINT, TableLimits, TableReader, TableRow, has_decimal_comma, open_table

_TEXT_COLUMNS = ("image_id", "finding", "cell", "counts")
_NUMBER_COLUMNS = ("x", "y", "width", "height", "size_h", "size_w", "score")
_COLUMNS = _TEXT_COLUMNS + _NUMBER_COLUMNS
_GROUPS = (("x", "y"), ("x", "y", "width", "height"), ("cell",), ("size_h", "size_w", "counts"))

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_OF_NUMBERS = re.compile(r"[0-9.eE+-]+")  # among texts of these characters, Python reads the same numbers as _NUMBER
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_NUMBER_CHARACTERS = 40
_BATCH_ROWS = 1024


def read_csv(data: bytes, limits: Limits, log: ProblemLog) -> Iterator[RawPrediction]:
    """Yield the rows of a CSV or TSV file; `line` is the line on which a row begins."""
    with open_rows(data, limits, log, most_columns=limits.columns) as table:
        names = [name.casefold() if name.casefold() in _COLUMNS else name for name in table.columns]
        if table.is_broken or not _check_columns(names, limits, log):
            return
        for row in table:
            values = row_values(row, names, _NUMBER_COLUMNS, log)
            if values is not None:
                yield RawPrediction(row.number, _fields(values))


@contextmanager
def open_rows(data: bytes, limits: Limits, log: ProblemLog, *, most_columns: int) -> Iterator[TableReader]:
    """Open a table of predictions with :mod:`reveal_bench.tables`; problems are added to `log`."""
    bounds = TableLimits(
        unpacked_bytes=len(data),
        rows=limits.entries,
        columns=most_columns,
        cells=limits.entries * most_columns,
        line_bytes=limits.line_bytes,
    )
    with open_table(data, log.file, _Logged(log), limits=bounds, verbatim=True) as table:
        yield table


class _Logged:
    """Adapter that adds the problems of a table to the log of a prediction file."""

    _RULES: ClassVar = {
        "row ": "row-length",
        "line ": "line-length",
        "rows ": "entries",
        "columns must be at most": "columns",
        "columns ": "duplicate-column",
        "file must be UTF-8": "encoding",
        "file must have a row": "missing-column",
        "file ": "table-syntax",
    }
    """Beginning of a problem's text -> the linter's rule that is broken."""
    _HINTS: ClassVar = {
        "encoding": "save the table as CSV UTF-8",
        "table-syntax": "is a quotation mark missing its partner?",
    }

    def __init__(self, log: ProblemLog) -> None:
        self._log = log

    def append(self, problem: Problem) -> None:
        """Log a problem; a problem that affects more than one row stops reading."""
        message = f"{problem.field} {problem.rule}"
        rule = next(rule for start, rule in self._RULES.items() if message.startswith(start))
        line = problem.row if isinstance(problem.row, int) else None
        if rule == "row-length":
            self._log.error(rule, f"a {message}", line=line, value=problem.value)
        elif rule == "duplicate-column":
            names = problem.value.removesuffix(" more than once")
            self._log.error(rule, "a column may appear only once", line=line, field=names[:50], value=names)
            self._log.stopped = True
        else:
            hint = "" if "sep=" in message else self._HINTS.get(rule, "")
            self._log.refuse(rule, f"the {message}", line=line, value=problem.value, hint=hint)


def row_values(
    row: TableRow, names: Sequence[str], numbers: Collection[str], log: ProblemLog
) -> dict[str, object] | None:
    """Return column name -> value of the cells that are not empty, with numbers in the columns `numbers`; None after
    logging a decimal comma.
    """
    values: dict[str, object] = {}
    for name, text in zip(names, row.texts, strict=True):
        if not text:
            continue
        if name not in numbers:
            values[name] = text
        elif has_decimal_comma(text):
            log.error("wrong-type", DECIMAL_POINT, line=row.number, field=name, value=text)
            return None
        else:
            values[name] = parse_number(text)
    return values


def parse_probabilities(texts: Sequence[str]) -> list[float] | None:
    """Return what :func:`parse_number` reads in a row of probabilities, several times as fast; None for other texts.

    Examples
    --------
    >>> parse_probabilities(["0.25", "1"]), parse_probabilities(["0.25", "nan"]), parse_probabilities(["0.25", ""])
    ([0.25, 1.0], None, None)
    """
    if not texts or max(map(len, texts)) > _NUMBER_CHARACTERS or not _OF_NUMBERS.fullmatch("".join(texts)):
        return None
    try:
        values = list(map(float, texts))
    except ValueError:
        return None
    return values if min(values) >= 0 and max(values) <= 1 else None


def parse_number(text: str) -> object:
    """Return the number that `text` writes; `text` itself if it is not a number, so that the checks refuse it."""
    plain = text.strip(" ")
    if len(plain) > _NUMBER_CHARACTERS:
        return text
    if _NUMBER.fullmatch(plain):
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    return float(plain) if _NOT_FINITE.fullmatch(plain) else text


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in the names and shapes of JSONL; missing values are left out, or None inside a geometry."""
    fields = {name: values[name] for name in ("image_id", "finding", "cell", "score") if name in values}
    if "width" in values or "height" in values:
        fields["box"] = [values.get(name) for name in ("x", "y", "width", "height")]
    elif "x" in values or "y" in values:
        fields["point"] = [values.get("x"), values.get("y")]
    if "size_h" in values or "size_w" in values or "counts" in values:
        fields["rle"] = {"size": [values.get("size_h"), values.get("size_w")], "counts": values.get("counts")}
    return fields


def _check_columns(names: Sequence[str], limits: Limits, log: ProblemLog) -> bool:
    """Return True if the header is valid, so that the rows can be read."""
    if len(names) > limits.columns:
        log.refuse("columns", f"a table may have at most {limits.columns} columns", line=1, value=len(names))
        return False
    before = len(log.problems)
    for name in names:
        if name not in _COLUMNS:
            log.error(
                "unknown-column",
                "is not a column of a prediction table",
                line=1,
                field=name[:50],
                value=name,
                hint=name_hint(name, _COLUMNS),
            )
    for name in sorted({name for name in names if names.count(name) > 1}):
        log.error("duplicate-column", "a column may appear only once", line=1, field=name[:50], value=name)
    for name in ("image_id", "finding"):
        if name not in names:
            log.error("missing-column", f"the column `{name}` is missing", line=1, field=name, value=list(names))
    if not any(set(group) <= set(names) for group in _GROUPS):
        groups = " · ".join(",".join(group) for group in _GROUPS)
        log.error("missing-column", f"one of these groups of columns is required: {groups}", line=1, value=list(names))
    if len(log.problems) > before:
        log.stopped = True  # every row would repeat the problem
    return not log.stopped


def read_parquet(data: bytes, limits: Limits, log: ProblemLog) -> Iterator[RawPrediction]:
    """Yield the rows of a Parquet file; `line` is the 1-based row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pa.BufferReader(data)
    small = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 20}  # limits for the footer
    try:
        footer = pq.ParquetFile(source, **small)
        if _check_footer(footer, limits, log):
            texts = [name for name in footer.schema_arrow.names if name in _TEXT_COLUMNS]
            yield from _parquet_rows(pq.ParquetFile(source, read_dictionary=texts, **small), limits, log)
    except UnicodeDecodeError as error:
        log.refuse(
            "encoding", f"text must be UTF-8; byte {error.start + 1} of a text is 0x{error.object[error.start]:02x}"
        )
    except (pa.ArrowException, OSError, MemoryError) as error:
        log.refuse("table-syntax", f"not a readable Parquet file: {str(error)[:200]!r}")


def _check_footer(file: Any, limits: Limits, log: ProblemLog) -> bool:
    import pyarrow.types as types

    metadata = file.metadata
    if metadata.num_rows > limits.entries:
        log.refuse("entries", f"a file may have at most {limits.entries} rows", value=metadata.num_rows)
        return False
    expanded = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if expanded > limits.expanded_bytes:
        message = f"the table may have at most {limits.expanded_bytes} bytes when expanded"
        log.refuse("expanded-size", message, value=expanded)
        return False
    if not _check_columns(file.schema_arrow.names, limits, log):
        return False
    for column in file.schema_arrow:
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        is_text = types.is_string(kind) or types.is_large_string(kind)
        is_number = types.is_integer(kind) or types.is_floating(kind)
        if not (types.is_null(kind) or (is_text if column.name in _TEXT_COLUMNS else is_number)):
            wanted = "text" if column.name in _TEXT_COLUMNS else "numbers"
            log.error("column-type", f"must contain {wanted}", line=1, field=column.name, value=str(kind))
            log.stopped = True
    return not log.stopped


def _parquet_rows(file: Any, limits: Limits, log: ProblemLog) -> Iterator[RawPrediction]:
    n_rows = n_bytes = 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        n_bytes += sum(map(expanded_bytes, batch.columns))
        if n_bytes > limits.expanded_bytes:
            message = f"the table may have at most {limits.expanded_bytes} bytes when expanded"
            log.refuse("expanded-size", message, line=n_rows + 1)
            return
        for row in zip(*map(values_of, batch.columns), strict=True):
            n_rows += 1
            values = {name: value for name, value in zip(batch.schema.names, row, strict=True) if value is not None}
            yield RawPrediction(n_rows, _fields(values))
