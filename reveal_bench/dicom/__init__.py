"""DICOM files: finding them, reading whitelisted header values, and converting them to grey PNG pictures.

No other package imports pydicom.

The three main modules, in the order in which they work:

- :mod:`~reveal_bench.dicom.scan`: finds the DICOM files of a folder by content, also inside zip archives, and sets
  aside duplicates and files that are not original projection radiographs;
- :mod:`~reveal_bench.dicom.header`: reads a header into a :class:`Header`, which has only whitelisted values;
- :mod:`~reveal_bench.dicom.pixels`: converts a file to an 8-bit grey PNG by a fixed, named pipeline (:data:`PIPELINE`).

:func:`write_dicom` writes files for synthetic data and tests. The first call that needs pydicom imports it; without
pydicom the call raises an ``ImportError`` that names the extra to install.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.lazy import getter

if TYPE_CHECKING:
    from reveal_bench.dicom.files import DicomError, DicomFile
    from reveal_bench.dicom.header import Header, read_header
    from reveal_bench.dicom.pixels import PIPELINE, DicomPng, develop_dicom
    from reveal_bench.dicom.scan import Scan, find_duplicates, header_warnings, scan_tree, set_aside
    from reveal_bench.dicom.write import write_dicom

__all__ = [
    "PIPELINE",
    "DicomPng",
    "DicomError",
    "DicomFile",
    "Header",
    "Scan",
    "header_warnings",
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
    "header_warnings": "scan",
    "develop_dicom": "pixels",
    "find_duplicates": "scan",
    "read_header": "header",
    "scan_tree": "scan",
    "set_aside": "scan",
    "write_dicom": "write",
}


if not TYPE_CHECKING:  # so that a type checker rejects misspelt names
    __getattr__ = getter(__name__, _HOME)
