"""Which format a prediction file has, found by looking at its content, and its entries.

Formats
-------
``jsonl``, ``csv``, ``tsv``, ``parquet``, ``chexlocalize-segmentations``, ``chexlocalize-points``,
``chexlocalize-annotations``, ``coco-results``; any of them may be compressed (:mod:`reveal_bench.predictions.source`).
The name of the file plays no part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from reveal_bench.predictions.documents import chexlocalize_format, load_document, read_chexlocalize, read_coco
from reveal_bench.predictions.jsonl import FIELDS, Entry, read_jsonl
from reveal_bench.predictions.report import ProblemLog
from reveal_bench.predictions.source import Limits
from reveal_bench.predictions.tables import read_csv, read_parquet
from reveal_bench.records import Manifest

__all__ = ["read_entries"]

_LOOKED_AT = 1 << 16
_FIRST_MEMBER = re.compile(rb'\{\s*+"((?:[^"\\]|\\.)*+)"\s*+:\s*+(.)', re.DOTALL)
_COCO_DATASET = (b"images", b"annotations", b"categories", b"info", b"licenses")
_KNOWN = "JSONL, CSV, TSV, Parquet, CheXlocalize JSON or COCO results JSON"
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive (or spreadsheet): unpack it, or save it as CSV",
    b"\x80": "perhaps a Python pickle, which is never opened: it can run code",
    b"\x89PNG": "an image",
    b"\xff\xd8": "an image",
    b"BZh": "bzip2: use gzip or zstd",
    b"\xfd7zXZ": "xz: use gzip or zstd",
}


def read_entries(data: bytes, manifest: Manifest, limits: Limits, log: ProblemLog) -> tuple[str, Iterator[Entry]]:
    """Find the format of `data` and read it.

    Returns
    -------
    format : str, "unknown" if none fits
    entries : iterator; reading happens, and problems are noted, while it is used
    """
    if data.startswith(b"PAR1"):
        return "parquet", read_parquet(data, limits, log)
    for mark, what in _FOREIGN.items():
        if data.startswith(mark):
            log.refuse("format", f"the file must be {_KNOWN}", value=data[:8].decode("latin-1"), hint=what)
            return "unknown", iter(())
    head = data[:_LOOKED_AT].lstrip()
    first = head[:1]
    if first == b"[" or (first == b"{" and _is_document(head)):
        return _read_document(data, manifest, limits, log)
    if first == b"{":
        return "jsonl", read_jsonl(data, limits, log)
    separator = "\t" if b"\t" in head.split(b"\n", 1)[0] else ","
    return {"\t": "tsv", ",": "csv"}[separator], read_csv(data, separator, limits, log)


def _is_document(head: bytes) -> bool:
    """Whether text that begins so, with `{`, is one object of objects, and not one prediction per line."""
    member = _FIRST_MEMBER.match(head)
    if member is None or member[1].decode("utf-8", "replace") in FIELDS or b'"image_id"' in head:
        return member is not None and member[1] in _COCO_DATASET
    return member[2] == b"{" or member[1] in _COCO_DATASET


def _read_document(data: bytes, manifest: Manifest, limits: Limits, log: ProblemLog) -> tuple[str, Iterator[Entry]]:
    document = load_document(data, limits, log)
    if isinstance(document, list):
        return "coco-results", read_coco(document, manifest, limits, log)
    if not isinstance(document, dict):  # refused
        return "unknown", iter(())
    if any(name.decode() in document for name in _COCO_DATASET):
        hint = "COCO results are a list of {image_id, category_id, bbox or segmentation, score}"
        log.refuse("format", "a COCO dataset is not a file of predictions", value=list(document), hint=hint)
        return "unknown", iter(())
    file_format = chexlocalize_format(document)
    return file_format, read_chexlocalize(document, file_format, manifest, limits, log)
