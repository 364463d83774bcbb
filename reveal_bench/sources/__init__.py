"""Raw download -> records -> dataset folder.

:data:`BUILDERS` lists the sources that are understood; :func:`detect_builder` finds which of them a folder is. Each
reads its download into records, and :func:`reveal_bench.dataset.build.build_folder` writes those.
"""

from __future__ import annotations

from pathlib import Path

from reveal_bench.sources import (
    chestx_det,
    chexlocalize,
    midrc,
    ms_cxr,
    nih_boxes,
    padchest_gr,
    reveal_cxr,
    rexecution,
    rsna_pneumonia,
    siim_acr,
    vindr_cxr,
)
from reveal_bench.sources.reveal_cxr import UNDIVIDED
from reveal_bench.sources.source import Builder, BuildError, Inspection, Problem, Reading

__all__ = ["BUILDERS", "BuildError", "Builder", "Inspection", "Problem", "Reading", "detect_builder"]

_PICTURES = ("pictures",)
_DICOM_PICTURES = ("pictures", "workers")
_STUDIES = ("mapping", "id_key", "workers")
_MODULES = (
    # name, benchmark, split that a holdout is taken from, module, options
    ("chexlocalize", "chexlocalize", "test", chexlocalize, _PICTURES),
    ("chestx-det", "chestx-det", "test", chestx_det, _PICTURES),
    ("nih-boxes", "nih-boxes", "test", nih_boxes, _PICTURES),
    ("ms-cxr", "ms-cxr", "test", ms_cxr, _PICTURES),
    ("vindr-cxr", "vindr-cxr", "test", vindr_cxr, _DICOM_PICTURES),
    ("rsna-pneumonia", "rsna-pneumonia", "train", rsna_pneumonia, _DICOM_PICTURES),
    ("siim-acr", "siim-acr", "train", siim_acr, _DICOM_PICTURES),
    ("padchest-gr", "padchest-gr", "test", padchest_gr, _PICTURES),
    ("reveal-cxr", "reveal-cxr", UNDIVIDED, reveal_cxr, _STUDIES),
    ("midrc", "reveal-cxr", UNDIVIDED, midrc, _STUDIES),
    ("rexecution", "rexecution", "test", rexecution, _PICTURES),
)

BUILDERS: dict[str, Builder] = {
    name: Builder(name, benchmark, split, module.detect, module.inspect, module.read, options)
    for name, benchmark, split, module, options in _MODULES
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
