"""Readers of raw downloads: each source converts one kind of download into records for a dataset folder.

:data:`SOURCE_MODULES` has one source for each entry of :data:`reveal_bench.benchmarks.SOURCES`. :func:`detect_source`
returns the source that recognises a folder. :func:`reveal_bench.dataset.build.build_folder` writes the records to a
dataset folder.

To add a source, write its module here, its entry in :data:`reveal_bench.benchmarks.BENCHMARKS`, a function of
:mod:`reveal_bench.phantom` that writes a synthetic download, and a section of ``docs/sources.md``. A new benchmark also
needs its card ``dataset_cards/<benchmark>.md``. All lists of sources are made from these entries.
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

_LOOKED_AT = 200  # files searched for DICOM if no source recognises a folder
_DICOM_START = 140  # leading bytes that show whether a file is DICOM


def _within_download(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a source's function, wrapped to follow no link out of the download and to reject extreme nesting."""

    @wraps(function)
    def guarded(root: Path, **options: Any) -> Result:
        root, mapping = Path(root), options.get("mapping")
        beside = [root.parent if root.is_file() else None, mapping and Path(mapping).parent]
        try:
            with reading_download(root, *beside, mapping, options.get("pictures")):
                return function(root, **options)
        except RecursionError:
            rule = "must not contain folders or documents nested hundreds of levels deep"
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
"""Name of a source -> its functions for reading a download."""


def detect_source(root: Path, mapping: Path | None = None) -> SourceModule:
    """Return the source that recognises the download `root`, or own-boxes if `mapping` describes a table of boxes.

    Raises
    ------
    ValueError
        If `root` does not exist, or no source recognises it.
    """
    root = Path(root)
    if not root.exists():
        raise ArgumentError("root", "must exist", root)
    if (root / "manifest" / "benchmark.json").is_file():
        rule = "must be a download, not a dataset folder, which `reveal-bench report` and `validate` read"
        raise ArgumentError("root", rule, root)
    if mapping is not None and is_of_boxes(mapping):
        return SOURCE_MODULES["own-boxes"]
    confidence = {name: source.detect(root) for name, source in SOURCE_MODULES.items()}
    best = max(confidence, key=lambda name: confidence[name])
    if confidence[best] <= 0 and (mapping is not None or _has_studies(root)):
        return SOURCE_MODULES["reveal-cxr"]
    if confidence[best] <= 0:
        names = ", ".join(SOURCE_MODULES)
        raise ArgumentError("root", f"must be a download of one of {names}; none is recognised in {root}")
    return SOURCE_MODULES[best]


def _has_studies(root: Path) -> bool:
    """Return True if a folder has a DICOM file, or a table for which a mapping can be suggested."""
    from reveal_bench.sources.study_tree import StudyTree, guess_mapping

    with reading_download(root, None, None, None):
        return root.is_dir() and (_has_dicom(root) or guess_mapping(root, StudyTree()) is not None)


def _has_dicom(root: Path) -> bool:
    """Return True if a DICOM file is among the first files of a folder."""
    paths = (Path(folder) / name for folder, _, names in os.walk(root) for name in sorted(names))
    for path in islice(paths, _LOOKED_AT):
        if path.is_file():  # no pipe
            with path.open("rb") as file:
                if is_dicom(file.read(_DICOM_START)):
                    return True
    return False
