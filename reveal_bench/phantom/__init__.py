"""Make synthetic radiographs, masks, readers, reports and model outputs, from a seed, for the demo and the tests.

All data are invented, and every folder contains a notice of this. An image starts from smooth contours of a body
(:mod:`.anatomy`). Findings with exact outlines are added (:mod:`.findings_drawn`), and all shapes are rendered
(:mod:`.radiograph`). A second reader disagrees by a known amount (:mod:`.readers`). :data:`LAYOUTS` writes such images
in the layouts of the real downloads. :func:`model_predictions` and :func:`study_predictions` return predictions of
imaginary models of a chosen quality.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from reveal_bench.benchmarks import SOURCES
from reveal_bench.phantom.curation import write_curation_world
from reveal_bench.phantom.layouts import TRAPS, write_anatomy, write_chexlocalize, write_counterfactuals
from reveal_bench.phantom.models import model_predictions, study_predictions
from reveal_bench.phantom.reveal import write_reveal
from reveal_bench.phantom.rexecution import write_rexecution

__all__ = [
    "LAYOUTS",
    "TRAPS",
    "model_predictions",
    "study_predictions",
    "write_anatomy",
    "write_chexlocalize",
    "write_counterfactuals",
    "write_curation_world",
    "write_reveal",
    "write_rexecution",
]


def _layout(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    write: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), function)
    return write


LAYOUTS: dict[str, Callable[..., Any]] = {
    style: _layout(place) for source, _ in SOURCES.values() for style, place in source.styles.items()
}
"""Style -> ``write(out, n, *, seed, progress)``: writes n images, studies or tasks in the source's layout.

Writers of images have `long_side`, too. :data:`reveal_bench.benchmarks.SOURCES` lists the styles.
"""
