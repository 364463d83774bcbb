"""From a path to the bytes of a prediction file: limits, compression, encoding marks.

Conventions
-----------
Files come from unknown senders. A limit is checked before the memory that it protects is used, and a file that exceeds
it is refused with one clear error. gzip is recognised by 1f 8b, zstd by 28 b5 2f fd, whatever the file is called; only
one layer is unpacked.

The limits were chosen by measuring real decompression bombs: a 305-byte Parquet file that expands to 20 GB, 2 MB of
gzip that contain 8 GB of CSV, and 48 MB of ``[],``.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reveal_bench.predictions.report import ProblemLog, escape

_MIB = 1 << 20
_CHUNK = _MIB
_ALWAYS_ALLOWED = 16 * _MIB  # whatever the ratio
_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest sizes of a prediction file and its parts.

    Attributes
    ----------
    file_bytes, expanded_bytes : size as given, and after decompression
    expansion : most bytes that one compressed byte may expand to, beyond 16 MiB; masks as text reach about 5
    entries : predictions (lines, rows, entries of a JSON document)
    line_bytes : bytes of one line of JSONL, CSV or TSV
    containers, values : opening brackets and commas of a JSON document, which limit its size in memory
    columns : columns of a table
    id_characters, finding_characters, counts_characters : length of these texts
    mask_runs : runs of one mask
    points, contours, vertices : parts of one prediction; vertices of all its contours together
    polygon_work : vertices times rows spanned, over the contours of all predictions, which is the cost of filling them
    problems : number of problems after which reading stops
    """

    file_bytes: int = 512 * _MIB
    expanded_bytes: int = 512 * _MIB
    expansion: int = 100
    entries: int = 1_000_000
    line_bytes: int = 4 * _MIB
    containers: int = 5_000_000
    values: int = 50_000_000
    columns: int = 32
    id_characters: int = 200
    finding_characters: int = 100
    counts_characters: int = 1_000_000
    mask_runs: int = 1_000_000
    points: int = 100
    contours: int = 1_000
    vertices: int = 100_000
    polygon_work: int = 20_000_000_000
    problems: int = 100_000


@dataclass(frozen=True, slots=True)
class LintOptions:
    """Options for checking a prediction file.

    Attributes
    ----------
    grid : cells per side that cells refer to, for kinds whose answers may be cells; the manifest's unless given
    allow_missing : True to warn of unanswered questions, False to refuse a file with unanswered questions
    leave_out_unknown : True to leave out answers to questions that the split does not ask, with a warning, instead of
        refusing them; useful for a file that answered another version of the split
    limits : largest sizes of the file and its parts
    name : name to show for the file, such as the one it was uploaded under; its own unless given
    """

    grid: int | None = None
    allow_missing: bool = False
    leave_out_unknown: bool = False
    limits: Limits = Limits()
    name: str | None = None


def open_source(path: Path, limits: Limits, name: str | None = None) -> tuple[ProblemLog, bytes | None]:
    """Return a log for the file, known by `name` or its own name, and its bytes.

    Returns
    -------
    log : ProblemLog
    data : bytes, decompressed and without a byte order mark; None if refused, with the reason in `log`

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    log = ProblemLog(escape(name if name is not None else Path(path).name)[:_NAME_CHARACTERS], limits.problems)
    return log, _read(Path(path), limits, log)


def _read(path: Path, limits: Limits, log: ProblemLog) -> bytes | None:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size  # 0 for a pipe
        data = file.read(size) if 0 < size <= limits.file_bytes else b""
        while size == 0 and len(data) <= limits.file_bytes and (chunk := file.read(_CHUNK)):
            data += chunk
    if max(size, len(data)) > limits.file_bytes:
        log.refuse("file-size", f"the file must have at most {limits.file_bytes} bytes", value=max(size, len(data)))
        return None
    expand = _expander(data)
    if expand is None:
        return _without_mark(data, log)
    expanded = _expanded(expand, data, limits, log)
    if expanded is not None and _expander(expanded) is not None:
        log.refuse("compression", "the file is compressed twice", hint="compress once")
        return None
    return None if expanded is None else _without_mark(expanded, log)


def _without_mark(data: bytes, log: ProblemLog) -> bytes | None:
    if data.startswith(b"\xef\xbb\xbf"):
        log.warning("byte-order-mark", "the file begins with a byte order mark, which was skipped", hint="plain UTF-8")
        return data[3:]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        log.refuse("encoding", "the file must be UTF-8; its first bytes are those of UTF-16", hint="save it as UTF-8")
        return None
    if not data or data.isspace():
        log.refuse("empty-file", "the file holds no predictions")
        return None
    return data


def _expander(data: bytes) -> Callable[[bytes], Iterator[bytes]] | None:
    if data.startswith(b"\x1f\x8b"):
        return _gunzip
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd
    return None


def _expanded(expand: Callable[[bytes], Iterator[bytes]], data: bytes, limits: Limits, log: ProblemLog) -> bytes | None:
    allowed = min(limits.expanded_bytes, max(_ALWAYS_ALLOWED, limits.expansion * len(data)))
    chunks = []
    n_bytes = 0
    try:
        for chunk in expand(data):
            chunks.append(chunk)
            n_bytes += len(chunk)
            if n_bytes > allowed:
                log.refuse(
                    "expanded-size",
                    f"a compressed file of {len(data)} bytes may expand to at most {allowed} bytes",
                    hint="if the content is right, send it uncompressed",
                )
                return None
    except (OSError, zlib.error, EOFError) as error:
        log.refuse("compression", f"the compressed file is damaged: {error}", hint="compress it again")
        return None
    return b"".join(chunks)


def _gunzip(data: bytes) -> Iterator[bytes]:
    import gzip

    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _unzstd(data: bytes) -> Iterator[bytes]:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
