"""Raw download -> records -> dataset folder.

:data:`BUILDERS` lists the sources that are understood, one for each row of :data:`reveal_bench.benchmarks.SOURCES`;
:func:`detect_builder` finds which of them a folder is. Each reads its download into records, and
:func:`reveal_bench.dataset.build.build_folder` writes those.

To add a source: its module here, its row in :data:`reveal_bench.benchmarks.BENCHMARKS`, for a new benchmark its card
``dataset_cards/<benchmark>.md``, a function of :mod:`reveal_bench.phantom` that writes its layout, and a section of
``docs/sources.md``. Whatever lists sources is made of the rows.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import SOURCES
from reveal_bench.sources.source import Builder, BuildError, Inspection, Problem, Reading

__all__ = ["BUILDERS", "BuildError", "Builder", "Inspection", "Problem", "Reading", "detect_builder"]


def _builder(name: str) -> Builder:
    source, benchmark = SOURCES[name]
    module = import_module(f"reveal_bench.sources.{name.replace('-', '_')}")
    return Builder(
        name, benchmark.name, source.holdout_split, module.detect, module.inspect, module.read, source.options
    )


BUILDERS: dict[str, Builder] = {name: _builder(name) for name in SOURCES}
"""Name of a source -> the functions that read it."""


def detect_builder(root: Path) -> Builder:
    """The builder whose download `root` is.

    Raises
    ------
    ValueError
        If `root` does not exist, or no builder recognises it.
    """
    root = Path(root)
    if not root.exists():
        raise ArgumentError("root", "must exist", root)
    confidence = {name: builder.detect(root) for name, builder in BUILDERS.items()}
    best = max(confidence, key=lambda name: confidence[name])
    if confidence[best] <= 0:
        raise ArgumentError("root", f"must be a download of one of {', '.join(BUILDERS)}, recognised none in {root}")
    return BUILDERS[best]
