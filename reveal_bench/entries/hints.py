"""What the linter suggests: the likely meaning of a name, an id, a cell or a size that is wrong.

Conventions
-----------
A hint is a short text, empty when there is nothing to suggest. Nothing is ever corrected by it.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from reveal_bench.findings import nearest_names
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import ManifestRow

__all__ = ["cell_hint", "edge_hint", "id_hint", "name_hint", "size_hint", "study_hint"]

_SEARCHED_IDS = 1000
_SEARCHED_CHARACTERS = 100
_RESIZED_SIDES = (224, 256, 320, 336, 384, 448, 512, 768, 1024)


def name_hint(name: str, known: Sequence[str]) -> str:
    """Known names that look like `name`, or all of them."""
    near = nearest_names(name[:_SEARCHED_CHARACTERS], known)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"


def id_hint(image_id: str, sorted_ids: Sequence[str], rows: Mapping[str, ManifestRow]) -> str:
    """Known ids that `image_id` may stand for: written as a path, or with a slip of the pen; else what ids look like.

    Examples
    --------
    >>> rows = {"p1_study1_view1": ManifestRow("p1_study1_view1", "p1_study1", "AP", 80, 96, ())}
    >>> id_hint("valid/p1/study1/view1.jpg", sorted(rows), rows)
    'did you mean p1_study1_view1?'
    """
    stem = image_id.strip().removesuffix(".jpg").removesuffix(".png").strip("/")
    spellings = {stem, stem.replace("/", "_"), "_".join(stem.split("/")[-3:]), stem.split("/")[-1]}
    near = sorted(spellings & rows.keys())
    if not near:
        place = bisect_left(sorted_ids, image_id)  # of a large split only the neighbourhood is searched
        around = sorted_ids[max(0, place - _SEARCHED_IDS // 2) : place + _SEARCHED_IDS // 2]
        near = difflib.get_close_matches(image_id, around, n=2, cutoff=0.8)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"ids of this split look like {sorted_ids[0]}" if sorted_ids else ""


def study_hint(study_id: str, studies: Sequence[str]) -> str:
    """Studies that `study_id` may stand for, else what ids look like.

    Examples
    --------
    >>> study_hint("study-12", ["study-011", "study-012"])
    'did you mean study-012?'
    """
    searched = studies[:_SEARCHED_IDS]
    near = difflib.get_close_matches(study_id[:_SEARCHED_CHARACTERS], searched, n=1, cutoff=0.8)
    if near:
        return f"did you mean {near[0]}?"
    return f"ids of this split look like {studies[0]}" if studies else ""


def cell_hint(cell: str, grid: Grid) -> str:
    """How a cell with its parts exchanged, in small letters or of a finer grid should be written."""
    plain = cell.strip().upper()
    for guess in (plain, plain[::-1]):
        if guess in grid.cells:
            return f"write {guess}: a capital letter for the column, then the row"
    return "a cell of a finer grid? name the grid of the submission" if plain in Grid(16).cells else ""


def edge_hint(x: float, y: float, row: ManifestRow) -> str:
    """For a point exactly on the right or lower border."""
    return "coordinates start at 0" if x == row.width or y == row.height else ""


def size_hint(size: tuple[int, int], row: ManifestRow) -> str:
    """For a mask whose (height, width) is not that of the image."""
    if size == (row.width, row.height):
        return "height comes first"
    if max(size) in _RESIZED_SIDES and max(row.size) > max(size):
        return f"a mask of an image resized to {max(size)} pixels: scale it to the full-size image before encoding"
    return ""
