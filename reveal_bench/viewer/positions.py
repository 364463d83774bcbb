"""Where a system says that a finding is: how often its answers cover each place, over the mean film of a gallery.

Conventions
-----------
Of every case the first film, unless it is a lateral one. Films are stretched to one square, so that places are shares
of width and height. A map is a float array (CELLS, CELLS) in [0, 1], row 0 at the top: in what share of the finding's
cases the place lies in an answer's mask or box, or within :data:`REACH` cells of its point. Cases without an answer
count and cover nothing. The references' map, of the same cases, stands beside it. What is drawn is scaled to the map's
own maximum.
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
"""Cases; a map of fewer would show single answers."""
LATERAL = "LATERAL"
COLOUR = np.array([255.0, 196.0, 0.0])

Maps = dict[tuple[str, str], tuple[FloatArray, int]]
"""(system or REFERENCE, group) -> its map, and how many cases are behind it."""


def answer_maps(cases: Sequence[Case], given: Sequence[Mapping[str, Sequence[CaseAnswer]]]) -> Maps:
    """Maps of every system and of the references, of the groups that enough cases have; none if nobody draws.

    Parameters
    ----------
    given : per case, system -> its answers
    """
    totals: dict[tuple[str, str], FloatArray] = defaultdict(lambda: np.zeros((CELLS, CELLS)))
    n_cases: dict[str, int] = defaultdict(int)
    for case, answers in zip(cases, given, strict=True):
        if case.films[0].view == LATERAL:
            continue
        drawn = {name: [mark for one in own for mark in one.marks] for name, own in answers.items()}
        drawn[REFERENCE] = list(case.marks.get(REFERENCE, ()))
        for group in case.groups:
            n_cases[group] += 1
            for name, marks in drawn.items():
                totals[name, group] += _covered(case.films, [mark for mark in marks if mark.group == group])
    return {
        (name, group): (total / n_cases[group], n_cases[group])
        for (name, group), total in totals.items()
        if n_cases[group] >= FEWEST and totals[REFERENCE, group].any()
    }


def _covered(films: Sequence[CaseFilm], marks: Iterable[Mark]) -> BoolArray:
    """Cells of the first film in any of the marks, (CELLS, CELLS)."""
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
    """The mean of grey pictures, each stretched to (SIDE, SIDE), in [0, 255]; 0 without one."""
    total, n = np.zeros((SIDE, SIDE)), 0
    for data in pictures:
        with Image.open(io.BytesIO(data)) as picture:
            total += np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), np.float64)
        n += 1
    return total / max(n, 1)


def draw_map(film: FloatArray, shares: FloatArray) -> bytes:
    """A JPEG of the film with the map over it: the more often a place is covered, the more of the colour."""
    most = shares.max()
    level = Image.fromarray((255 * shares / most if most else shares).astype(np.uint8))
    strength = np.asarray(level.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float64)[..., None] / 255
    mixed = film[..., None] * (1 - 0.75 * strength) + COLOUR * 0.75 * strength
    buffer = io.BytesIO()
    Image.fromarray(mixed.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
