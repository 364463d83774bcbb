"""Raw download -> records -> dataset folder.

:data:`BUILDERS` lists the sources that are understood; :func:`detect_builder` finds which of them a folder is. Each
reads its download into records, and :func:`reveal_bench.builders.folder.build_folder` writes those.
"""

from __future__ import annotations

from pathlib import Path

from reveal_bench.builders import chestx_det, chexlocalize
from reveal_bench.builders.source import Builder, BuildError, Inspection, Problem

__all__ = ["BUILDERS", "BuildError", "Builder", "Inspection", "Problem", "detect_builder"]

BUILDERS: dict[str, Builder] = {
    builder.name: builder
    for builder in (
        Builder("chexlocalize", "chexlocalize", "test", chexlocalize.detect, chexlocalize.inspect, chexlocalize.read),
        Builder("chestx-det", "chestx-det", "test", chestx_det.detect, chestx_det.inspect, chestx_det.read),
    )
}


def detect_builder(root: Path) -> Builder:
    """The builder whose download `root` is.

    Raises
    ------
    ValueError
        If `root` does not exist, or no builder recognises it.
    """
    root = Path(root)
    if not root.exists():
        raise ValueError(f"`root` must exist, got {root}")
    confidence = {name: builder.detect(root) for name, builder in BUILDERS.items()}
    best = max(confidence, key=lambda name: confidence[name])
    if confidence[best] <= 0:
        raise ValueError(f"`root` must be a download of one of {', '.join(BUILDERS)}, recognised none in {root}")
    return BUILDERS[best]
