"""Synthetic radiographs, masks, readers, reports and model outputs, seeded: the demo's and the tests' world.

Everything here is made up and says so. A film is drawn from smooth contours of a body (:mod:`.anatomy`), findings are
drawn into it with exact outlines (:mod:`.findings_drawn`, :mod:`.devices`) and rendered (:mod:`.radiograph`); a second
reader disagrees by a known amount (:mod:`.readers`). :data:`LAYOUTS` writes such films in the layouts of the real
downloads, and :func:`model_predictions` and
:func:`study_predictions` answer as models of some quality would.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from reveal_bench.phantom.anatomy_file import write_anatomy
from reveal_bench.phantom.curation import write_pool, write_readers
from reveal_bench.phantom.layouts import TRAPS, write_chexlocalize
from reveal_bench.phantom.models import model_predictions, study_predictions
from reveal_bench.phantom.reveal import write_reveal
from reveal_bench.phantom.rexecution import write_rexecution
from reveal_bench.phantom.sources import SOURCES

__all__ = [
    "LAYOUTS",
    "SOURCES",
    "TRAPS",
    "model_predictions",
    "study_predictions",
    "write_anatomy",
    "write_chexlocalize",
    "write_curation_world",
    "write_reveal",
    "write_rexecution",
]


def _counting(counted: str, write: Callable[..., Any]) -> Callable[..., Any]:
    """`write` with the number of things to make as its second argument, whatever it calls them."""

    def write_n(out: Path, n: int, **options: Any) -> Any:
        return write(out, **{counted: n}, **options)

    return write_n


def write_curation_world(
    out: Path,
    *,
    n_studies: int,
    seed: int = 0,
    long_side: int = 3056,
    pixels: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write what a curation begins with: reports, facts and readers, and with `pixels` the films of the same studies.

    ``reports.csv``, ``facts.csv``, ``suggested.csv``, ``truth.jsonl`` of :func:`.curation_pool.write_pool`,
    ``readers.csv``, and below ``films`` the DICOM files of ``write_reveal(stage="pool")``.
    """
    write_pool(out, n_studies, seed, progress=None if pixels else progress)
    write_readers(out / "readers.csv")
    if pixels:
        pool = partial(write_reveal, stage="pool", traps=False, progress=progress)
        pool(out / "films", n_studies=n_studies, seed=seed, long_side=long_side)


LAYOUTS: dict[str, Callable[..., Any]] = {
    "chexlocalize": _counting("n_images", write_chexlocalize),
    "reveal-cxr": _counting("n_studies", write_reveal),
    "reveal-pool": _counting("n_studies", write_curation_world),
    "midrc": _counting("n_studies", partial(write_reveal, layout="midrc")),
    "rexecution": _counting("n_tasks", write_rexecution),
    **{name: _counting("n_images", write) for name, write in SOURCES.items()},
}
"""Source -> ``write(out, n, *, seed, long_side, progress)``: n images, studies or tasks in the source's own layout."""
