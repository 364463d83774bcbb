"""The anatomy behind synthetic films as a file: what tells a wrong place from an impossible one.

JSON Lines, a line per film: ``{"image_id", "size": [height, width], "regions": {"heart": [[x, y], ...], ...}}``; closed
contours in pixels of the picture, with two decimals like the annotations; they may leave the picture. Left and right
are the patient's. A lung's contour is that of the whole pleural space, and runs on behind the heart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from reveal_bench.files import replacing
from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.patients import Film, draw_film, films

__all__ = ["SHOWN", "write_anatomy"]

SHOWN = {
    "body": "body",
    "heart": "heart",
    "lung": "lung",
    "lung_left": "lung_left",
    "lung_right": "lung_right",
    "mediastinum": "mediastinum",
    "shoulder_-1": "shoulder_right",
    "shoulder_1": "shoulder_left",
    "trachea": "trachea",
}
"""Contour of :class:`~reveal_bench.phantom.anatomy.Anatomy` -> name of the region; other contours are not written."""


def write_anatomy(path: Path, n_images: int, *, n_val: int | None = None, seed: int = 0, long_side: int = 2828) -> int:
    """Write the anatomy of the films that `write_chexlocalize` makes of the same arguments, without drawing them.

    Parameters
    ----------
    path : file to write; an older one is replaced
    n_images, n_val : films of the test and of the validation split
    seed, long_side : as given to `write_chexlocalize`

    Returns
    -------
    int, lines written: validation first

    Raises
    ------
    ValueError
        If a number is out of range.
    """
    if n_images < 1 or (n_val or 0) < 0 or not 64 <= long_side <= 8192:
        values = f"{n_images}, {n_val}, {long_side}"
        raise ValueError(f"`n_images`, `n_val`, `long_side` must be >= 1, >= 0 and in [64, 8192], got {values}")
    drawn = (
        _line(film, draw_film(film)[0], long_side)
        for split, n_films in (("val", n_val or 0), ("test", n_images))
        for film in islice(films(split, seed=seed), n_films)
    )
    _write_lines(Path(path), drawn)
    return n_images + (n_val or 0)


def _line(film: Film, anatomy: Anatomy, long_side: int) -> str:
    """The line of one film, without a line feed."""
    size = [round(side * long_side) for side in film.size]
    regions = {
        SHOWN[name]: (contour * long_side).round(2).tolist()
        for name, contour in sorted(anatomy.contours.items())
        if name in SHOWN
    }
    return json.dumps({"image_id": film.image_id, "size": size, "regions": regions})


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write `lines` to `path`, whole or not at all."""
    with replacing(path) as new, new.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
