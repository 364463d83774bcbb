"""DICOM files: finds them, reads whitelisted header facts, and makes display pictures. No other room imports pydicom.

The three main modules, in the order of their work:

- :mod:`~reveal_bench.dicom.scan`: walk a folder, find the DICOM files in it (by content, also inside zip archives), set
  aside files that are not original projection radiographs, and duplicates;
- :mod:`~reveal_bench.dicom.header`: read a header into a :class:`Header`, a whitelist: no other values are returned;
- :mod:`~reveal_bench.dicom.pixels`: develop one file into an 8-bit grey PNG by one named pipeline (:data:`PIPELINE`).

:func:`write_dicom` makes files, for synthetic data and tests. pydicom is imported by the first call that
needs it; without it that call raises ``ImportError`` naming the extra to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.lazy import getter

if TYPE_CHECKING:
    from reveal_bench.dicom.files import DicomError, DicomFile
    from reveal_bench.dicom.header import Header, read_header
    from reveal_bench.dicom.pixels import PIPELINE, DicomPng, develop_dicom
    from reveal_bench.dicom.scan import Scan, deid_warnings, find_duplicates, scan_tree, set_aside
    from reveal_bench.dicom.write import write_dicom

__all__ = [
    "PIPELINE",
    "DicomPng",
    "DicomError",
    "DicomFile",
    "Header",
    "Scan",
    "deid_warnings",
    "develop_dicom",
    "find_duplicates",
    "read_header",
    "scan_tree",
    "set_aside",
    "write_dicom",
]

_HOME = {
    "PIPELINE": "pixels",
    "DicomPng": "pixels",
    "DicomError": "files",
    "DicomFile": "files",
    "Header": "header",
    "Scan": "scan",
    "deid_warnings": "scan",
    "develop_dicom": "pixels",
    "find_duplicates": "scan",
    "read_header": "header",
    "scan_tree": "scan",
    "set_aside": "scan",
    "write_dicom": "write",
}


if not TYPE_CHECKING:  # a checker then refuses a name that is misspelt
    __getattr__ = getter(__name__, _HOME)
