"""The same films without one of their findings: what a model that looks must answer otherwise.

A file per film and finding, ``<image_id>/<finding>.jpg``, of the films that
:func:`reveal_bench.phantom.layouts.write_chexlocalize` makes of the same arguments. Everything but the finding is where
it was, to the grain; with a finding go those that are cases of it, such as Edema with Airspace Opacity.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.phantom.findings_drawn import hidden_with
from reveal_bench.phantom.folders import check_sizes, start_folder
from reveal_bench.phantom.patients import Film, draw_film, films
from reveal_bench.phantom.radiograph import jpeg_bytes, render

__all__ = ["write_counterfactuals"]

NOTICE = (
    "SYNTHETIC DATA: films of a phantom, drawn by a program, each without one of its findings. Not for clinical use.\n"
)


def write_counterfactuals(
    out: Path,
    n_images: int,
    *,
    n_val: int | None = None,
    seed: int = 0,
    long_side: int = 2828,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the films without each of their findings.

    Parameters
    ----------
    out : new or empty folder
    n_images, n_val, seed, long_side : as given to `write_chexlocalize`
    progress : called with (films done, films in all)

    Returns
    -------
    int, pictures written

    Raises
    ------
    ValueError
        If `out` is not empty or a number is out of range.
    """
    check_sizes(n_images=n_images, long_side=long_side)
    out = start_folder(out, NOTICE)
    wanted = [("val", n_val or 0), ("test", n_images)]
    every = [film for split, n in wanted for film in islice(films(split, seed=seed), n)]
    n_written = 0
    for n_done, film in enumerate(every, start=1):
        _, drawn = draw_film(film)
        for finding in (name for name in CHEXLOCALIZE_FINDINGS if name in drawn.contours):
            path = out / film.image_id / f"{finding}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_without(film, finding, long_side))
            n_written += 1
        if progress is not None:
            progress(n_done, len(every))
    return n_written


def _without(film: Film, finding: str, long_side: int) -> bytes:
    size = round(film.size[0] * long_side), round(film.size[1] * long_side)
    anatomy, drawn = draw_film(film, without=hidden_with(finding))
    return jpeg_bytes(render(anatomy, drawn.shapes, film.rng(1), size))
