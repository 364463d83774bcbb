"""CSV, TSV and Parquet files with flattened columns.

Conventions
-----------
One row is one prediction. Columns, in any order, of which ``image_id``, ``finding`` and one geometry must be there:
``x, y`` (a point) · ``x, y, width, height`` (a box) · ``cell`` · ``size_h, size_w, counts`` (a mask) · ``score``.
In a file with all of ``x, y, width, height``, a row that leaves width and height empty is a point. An empty cell of the
table, or a null, means "not given"; "NaN" does not.

Text is never converted by guessing: ids stay text ("007" is not 7), numbers are ASCII decimals.
Parquet is judged by its footer first, then read in batches with dictionary-encoded text, so that repeated strings are
held once and their expanded size is known before they are expanded.
"""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from reveal_bench.entries.hints import name_hint
from reveal_bench.entries.jsonl import Entry
from reveal_bench.entries.report import ProblemLog
from reveal_bench.entries.source import Limits

_TEXT_COLUMNS = ("image_id", "finding", "cell", "counts")
_NUMBER_COLUMNS = ("x", "y", "width", "height", "size_h", "size_w", "score")
_COLUMNS = _TEXT_COLUMNS + _NUMBER_COLUMNS
_GROUPS = (("x", "y"), ("x", "y", "width", "height"), ("cell",), ("size_h", "size_w", "counts"))

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_NUMBER_CHARACTERS = 40
_BATCH_ROWS = 1024
_LIMIT = threading.Lock()
_FIELD_BYTES = [csv.field_size_limit()]
"""What the tables that are being read want of :func:`csv.field_size_limit`, after what it is otherwise."""


def read_csv(data: bytes, separator: str, limits: Limits, log: ProblemLog) -> Iterator[Entry]:
    """Yield the rows of a CSV or TSV file; `line` is the line on which a row ends, the header being line 1."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"must be UTF-8; byte {error.start + 1} of the file is 0x{data[error.start]:02x}"
        log.refuse("encoding", message, line=line, hint="save the table as CSV UTF-8")
        return
    reader = csv.reader(_lines(text, limits, log), delimiter=separator, strict=True)
    try:
        with _fields_up_to(limits.line_bytes):
            header = next(reader, [])
            if _check_columns(header, limits, log):
                yield from _csv_rows(reader, header, limits, log)
    except csv.Error as error:
        hint = "is there a quotation mark without its partner?"
        log.refuse("table-syntax", f"not a table: {error}", line=reader.line_num, hint=hint)


@contextmanager
def _fields_up_to(n_bytes: int) -> Iterator[None]:
    """Let fields be so large, as masks are: the standard library's limit is one for the process, and comes back."""
    with _LIMIT:
        _FIELD_BYTES.append(n_bytes)
        csv.field_size_limit(max(_FIELD_BYTES))
    try:
        yield
    finally:
        with _LIMIT:
            _FIELD_BYTES.remove(n_bytes)
            csv.field_size_limit(max(_FIELD_BYTES))


def _lines(text: str, limits: Limits, log: ProblemLog) -> Iterator[str]:
    """The lines of `text`, ends included, until one is too long; without splitting all of it at once."""
    start = 0
    number = 1
    while start < len(text):
        stop = text.find("\n", start) + 1 or len(text)
        if stop - start > limits.line_bytes:
            log.refuse("line-length", f"a line must have at most {limits.line_bytes} bytes", line=number)
            return
        yield text[start:stop]
        start = stop
        number += 1


def _csv_rows(reader: Any, header: Sequence[str], limits: Limits, log: ProblemLog) -> Iterator[Entry]:
    for n_rows, row in enumerate(reader, start=1):
        line = reader.line_num
        if n_rows > limits.entries:
            log.refuse("entries", f"a file may have at most {limits.entries} rows", line=line)
            return
        if len(row) != len(header):
            if row:
                message = f"a row must have {len(header)} values, as the header has"
                log.error("row-length", message, line=line, value=row)
            continue
        values = {
            name: parse_number(value) if name in _NUMBER_COLUMNS else value
            for name, value in zip(header, row, strict=True)
            if value
        }
        yield Entry(line, _fields(values))


def parse_number(text: str) -> object:
    """The number that `text` writes, or `text` itself for the checks to refuse."""
    plain = text.strip(" ")
    if len(plain) > _NUMBER_CHARACTERS:
        return text
    if _NUMBER.fullmatch(plain):
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    return float(plain) if _NOT_FINITE.fullmatch(plain) else text


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the canonical form; what is not given is left out, or None inside a geometry."""
    fields = {name: values[name] for name in ("image_id", "finding", "cell", "score") if name in values}
    if "width" in values or "height" in values:
        fields["box"] = [values.get(name) for name in ("x", "y", "width", "height")]
    elif "x" in values or "y" in values:
        fields["point"] = [values.get("x"), values.get("y")]
    if "size_h" in values or "size_w" in values or "counts" in values:
        fields["rle"] = {"size": [values.get("size_h"), values.get("size_w")], "counts": values.get("counts")}
    return fields


def _check_columns(names: Sequence[str], limits: Limits, log: ProblemLog) -> bool:
    """Whether the header is one to go on with."""
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
        log.error("duplicate-column", "a column may stand only once", line=1, field=name[:50], value=name)
    for name in ("image_id", "finding"):
        if name not in names:
            log.error("missing-column", f"the column `{name}` is missing", line=1, field=name, value=list(names))
    if not any(set(group) <= set(names) for group in _GROUPS):
        groups = " · ".join(",".join(group) for group in _GROUPS)
        log.error("missing-column", f"one of these is needed: {groups}", line=1, value=list(names))
    if len(log.problems) > before:
        log.stopped = True  # every row would repeat it
    return not log.stopped


def read_parquet(data: bytes, limits: Limits, log: ProblemLog) -> Iterator[Entry]:
    """Yield the rows of a Parquet file; `line` is the 1-based row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pa.BufferReader(data)
    small = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 20}  # of the footer
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
            log.error("column-type", f"must hold {wanted}", line=1, field=column.name, value=str(kind))
            log.stopped = True
    return not log.stopped


def _parquet_rows(file: Any, limits: Limits, log: ProblemLog) -> Iterator[Entry]:
    n_rows = n_bytes = 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
        n_bytes += sum(_expanded_bytes(column) for column in batch.columns)
        if n_bytes > limits.expanded_bytes:
            message = f"the table may have at most {limits.expanded_bytes} bytes when expanded"
            log.refuse("expanded-size", message, line=n_rows + 1)
            return
        columns = [_values(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        for row in zip(*columns, strict=True):
            n_rows += 1
            values = {name: value for name, value in zip(batch.schema.names, row, strict=True) if value is not None}
            yield Entry(n_rows, _fields(values))


def _expanded_bytes(column: Any) -> int:
    """Bytes of a text column when every repetition is written out."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    if not types.is_dictionary(column.type):
        return int(column.nbytes)
    return int(pc.sum(pc.take(pc.binary_length(column.dictionary), column.indices)).as_py() or 0)


def _values(name: str, column: Any) -> Iterable[Any]:
    """Python values of a column; repeated text is one object."""
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        import pyarrow.compute as pc

        used = pc.unique(column.indices).drop_null()  # a dictionary may be far larger than what a batch uses
        texts = dict(zip(used.to_pylist(), column.dictionary.take(used).to_pylist(), strict=True))
        return [None if index is None else texts[index] for index in column.indices.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]
