"""Limits and options for checking prediction files, which come from unknown senders.

A limit is checked before the memory that it protects is used, and a file that exceeds it is refused with one clear
error. The limits were chosen by measuring real decompression bombs: a 305-byte Parquet file that expands to 20 GB, 2 MB
of gzip that contain 8 GB of CSV, and 48 MB of ``[],``.
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


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
