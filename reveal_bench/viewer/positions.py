"""Draw maps of how often a system's answers cover each image position, over the mean image of a gallery.

Conventions
-----------
Only the first image of a case is used, and none if it is lateral. Images are stretched to a square, so that positions
are fractions of width and height. A map is a float array (CELLS, CELLS) in [0, 1], row 0 at the top: the proportion of
the finding's cases in which the position is inside an answer's mask or box, or within :data:`REACH` cells of its point.
Cases without an answer are included and cover nothing. The map of the references uses the same cases. Colours are
scaled to the maximum of each map.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from PIL import Image

from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.kinds.cases import REFERENCE, Case, CaseAnswer, CaseFilm, Mark
from reveal_bench.masks import decode_mask, shrink_mask

CELLS, SIDE = 48, 192
REACH = 1.5
FEWEST = 10
"""Minimum number of cases of a map; a map of fewer cases would show single answers."""
LATERAL = "LATERAL"
COLOUR = np.array([255.0, 196.0, 0.0])

Maps = dict[tuple[str, str], tuple[FloatArray, int]]
"""(system or REFERENCE, group) -> (map, number of cases)."""


def answer_maps(cases: Sequence[Case], answers_by_case: Sequence[Mapping[str, Sequence[CaseAnswer]]]) -> Maps:
    """Return maps of every system and of the references, for groups with enough cases and at least one drawn reference.

    Parameters
    ----------
    answers_by_case : for each case, system -> its answers
    """
    totals: dict[tuple[str, str], FloatArray] = defaultdict(lambda: np.zeros((CELLS, CELLS)))
    n_cases: dict[str, int] = defaultdict(int)
    for case, answers in zip(cases, answers_by_case, strict=True):
        if case.films[0].view == LATERAL:
            continue
        marks_by_system = {name: [mark for one in own for mark in one.marks] for name, own in answers.items()}
        marks_by_system[REFERENCE] = list(case.marks.get(REFERENCE, ()))
        for group in case.groups:
            n_cases[group] += 1
            for name, marks in marks_by_system.items():
                totals[name, group] += _covered(case.films, [mark for mark in marks if mark.group == group])
    return {
        (name, group): (total / n_cases[group], n_cases[group])
        for (name, group), total in totals.items()
        if n_cases[group] >= FEWEST and totals[REFERENCE, group].any()
    }


def _covered(films: Sequence[CaseFilm], marks: Iterable[Mark]) -> BoolArray:
    """Return a mask (CELLS, CELLS) of the first image's cells that any mark covers."""
    covered = np.zeros((CELLS, CELLS), bool)
    rows, columns = np.mgrid[:CELLS, :CELLS] + 0.5
    film = films[0]
    across, down = CELLS / film.width, CELLS / film.height
    for mark in marks:
        if mark.film != 0:
            continue
        for rle in mark.masks:
            covered |= shrink_mask(decode_mask(rle), (CELLS, CELLS))
        for x, y, width, height in mark.boxes:
            is_across = (columns >= x * across) & (columns <= (x + width) * across)
            covered |= is_across & (rows >= y * down) & (rows <= (y + height) * down)
        for x, y in mark.points:
            covered |= (columns - x * across) ** 2 + (rows - y * down) ** 2 <= REACH**2
    return covered


def mean_film(pictures: Iterable[bytes]) -> FloatArray:
    """Return the mean of grey images, stretched to (SIDE, SIDE), in [0, 255]; zeros without images."""
    total, n = np.zeros((SIDE, SIDE)), 0
    for data in pictures:
        with Image.open(io.BytesIO(data)) as picture:
            total += np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), np.float64)
        n += 1
    return total / max(n, 1)


def draw_map(film: FloatArray, shares: FloatArray) -> bytes:
    """Return a JPEG of the map over the image; positions that are covered more often have a stronger colour."""
    most = shares.max()
    level = Image.fromarray((255 * shares / most if most else shares).astype(np.uint8))
    strength = np.asarray(level.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float64)[..., None] / 255
    mixed = film[..., None] * (1 - 0.75 * strength) + COLOUR * 0.75 * strength
    buffer = io.BytesIO()
    Image.fromarray(mixed.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
