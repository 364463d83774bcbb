"""Sources: they read a raw download into records, from which a dataset folder is built.

:data:`SOURCE_MODULES` lists the sources that are understood, one for each row of
:data:`reveal_bench.benchmarks.SOURCES`; :func:`detect_source` finds the one whose download a folder is. Each source
reads its download into records, and :func:`reveal_bench.dataset.build.build_folder` writes those.

To add a source: its module here, its row in :data:`reveal_bench.benchmarks.BENCHMARKS`, for a new benchmark its card
``dataset_cards/<benchmark>.md``, a function of :mod:`reveal_bench.phantom` that writes its layout, and a section of
``docs/sources.md``. All lists of sources are made from the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import SOURCES
from reveal_bench.dicom.files import is_dicom
from reveal_bench.files import reading_download
from reveal_bench.sources.own_boxes_files import is_of_boxes
from reveal_bench.sources.source import BuildError, Inspection, Problem, SourceData, SourceModule

__all__ = ["SOURCE_MODULES", "BuildError", "SourceModule", "Inspection", "Problem", "SourceData", "detect_source"]

Result = TypeVar("Result")

_LOOKED_AT = 200  # files of a folder that no source recognises
_DICOM_START = 140  # bytes that show whether a file is DICOM


def _within_download(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return the function of a source so that it follows no link out of the download, and refuses endless nesting."""

    @wraps(function)
    def guarded(root: Path, **options: Any) -> Result:
        root, mapping = Path(root), options.get("mapping")
        beside = [root.parent if root.is_file() else None, mapping and Path(mapping).parent]
        try:
            with reading_download(root, *beside, mapping, options.get("pictures")):
                return function(root, **options)
        except RecursionError:
            rule = "must not have folders or documents that are nested hundreds of levels deep"
            raise ArgumentError("root", rule, root) from None

    return guarded


def _source_module(name: str) -> SourceModule:
    source, benchmark = SOURCES[name]
    module = import_module(f"reveal_bench.sources.{name.replace('-', '_')}")
    return SourceModule(
        name,
        benchmark.name,
        source.holdout_split,
        _within_download(module.detect),
        _within_download(module.inspect),
        _within_download(module.read),
        source.options,
    )


SOURCE_MODULES: dict[str, SourceModule] = {name: _source_module(name) for name in SOURCES}
"""Name of a source -> the functions that read it."""


def detect_source(root: Path, mapping: Path | None = None) -> SourceModule:
    """Return the source whose download `root` is; if `mapping` names a mapping of boxes, that is own-boxes.

    Raises
    ------
    ValueError
        If `root` does not exist, or no source recognises it.
    """
    root = Path(root)
    if not root.exists():
        raise ArgumentError("root", "must exist", root)
    if mapping is not None and is_of_boxes(mapping):
        return SOURCE_MODULES["own-boxes"]
    confidence = {name: source.detect(root) for name, source in SOURCE_MODULES.items()}
    best = max(confidence, key=lambda name: confidence[name])
    if confidence[best] <= 0:
        film = _first_dicom(root)
        if film is not None:
            rule = "must hold a table of labels beside its DICOM files (CSV, TSV, Excel or JSON, a row per study)"
            raise ArgumentError("root", rule, f"{film} and no table")
        names = ", ".join(SOURCE_MODULES)
        raise ArgumentError("root", f"must be a download of one of {names}, recognised none in {root}")
    return SOURCE_MODULES[best]


def _first_dicom(root: Path) -> Path | None:
    """Return a DICOM file among the first files of a folder, or None."""
    paths = (Path(folder) / name for folder, _, names in os.walk(root) for name in sorted(names))
    for path in islice(paths, _LOOKED_AT):
        if path.is_file():  # no pipe
            with path.open("rb") as file:
                if is_dicom(file.read(_DICOM_START)):
                    return path
    return None
