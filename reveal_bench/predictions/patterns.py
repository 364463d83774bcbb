"""What only the whole file shows: suspicious patterns of coordinates, collapsed predictions, and statistics.

Conventions
-----------
A pattern is a warning, never an error: a file may be odd and right. Nothing here knows a reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from reveal_bench.predictions.checks import Draft
from reveal_bench.predictions.report import ProblemLog
from reveal_bench.records import Manifest, Point

__all__ = ["AREA_SHARES", "describe", "note_patterns"]

AREA_SHARES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Bounds of the histogram of mask area / image area; empty masks have a bin of their own."""

_FEW = 10  # located predictions below which coordinates form no pattern
_RESIZED_TO = 1024
_MUCH_LARGER = 1.5
_COLLAPSED_SHARE = 0.9
_COLLAPSED_OF = 20


def note_patterns(drafts: Sequence[Draft], log: ProblemLog) -> None:
    """Warn of coordinates that look normalised, resized or exchanged, and of findings answered always alike."""
    located = [draft for draft in drafts if draft.row is not None and draft.coordinates]
    if located and all(_within(draft.coordinates, 1) for draft in located):
        log.warning(
            "normalised-coordinates",
            f"all coordinates of {len(located)} predictions lie in [0, 1]: they look normalised",
            hint="give pixels of the full-size image",
        )
    elif len(located) >= _FEW and all(_looks_resized(draft) for draft in located):
        log.warning(
            "resized-coordinates",
            f"all coordinates of {len(located)} predictions lie within {_RESIZED_TO} pixels though their images are "
            f"much larger: they look like those of resized images",
            hint="scale them to the full-size image",
        )
    _note_exchanged(located, log)
    _note_collapse(drafts, log)


def _within(points: Iterable[Point], most: float) -> bool:
    return all(0 <= x <= most and 0 <= y <= most for x, y in points)


def _looks_resized(draft: Draft) -> bool:
    assert draft.row is not None
    return min(draft.row.size) > _MUCH_LARGER * _RESIZED_TO and _within(draft.coordinates, _RESIZED_TO)


def _note_exchanged(located: Sequence[Draft], log: ProblemLog) -> None:
    n_outside = n_cured = 0
    for draft in located:
        assert draft.row is not None
        height, width = draft.row.size
        if any(not (0 <= x <= width and 0 <= y <= height) for x, y in draft.coordinates):
            n_outside += 1
            n_cured += all(0 <= y <= width and 0 <= x <= height for x, y in draft.coordinates)
    if n_outside >= 5 and n_cured >= 0.9 * n_outside:
        log.warning(
            "exchanged-axes",
            f"{n_cured} of the {n_outside} predictions outside their image are inside with x and y exchanged",
            hint="points are [x, y]: from the left edge, then from the top",
        )


def _commonest(drafts: Iterable[Draft]) -> dict[str, tuple[Draft, int, int]]:
    """Per finding: a draft with its commonest answer (all but the score), how often it stands, the number of answers.

    Empty masks do not count: they say that there is nothing to show.
    """
    alike: dict[str, dict[object, list[Draft]]] = defaultdict(lambda: defaultdict(list))
    for draft in drafts:
        if draft.finding is not None and draft.area != 0:
            answer = draft.points, draft.cell, draft.box, draft.rle, draft.polygons
            alike[draft.finding][answer].append(draft)
    commonest = {}
    for finding, groups in alike.items():
        largest = max(groups.values(), key=len)
        commonest[finding] = largest[0], len(largest), sum(map(len, groups.values()))
    return commonest


def _note_collapse(drafts: Sequence[Draft], log: ProblemLog) -> None:
    """The collapse that MedGemma showed in paper 000: one cell for nearly every image."""
    pointed = [draft for draft in drafts if draft.cell is not None or draft.points]
    for finding, (draft, n_same, n) in _commonest(pointed).items():
        if n >= _COLLAPSED_OF and n_same > _COLLAPSED_SHARE * n:
            log.warning(
                "same-answer",
                f"{n_same} of {n} predictions of {finding} are the same",
                field="point" if draft.cell is None else "cell",
                value=draft.points[0] if draft.cell is None else draft.cell,
                hint="did the model look at the images?",
            )


def describe(drafts: Sequence[Draft], manifest: Manifest, n_missing: int) -> dict[str, Any]:
    """Figures for a person's eye.

    Returns
    -------
    dict with
        ``per_finding``: predictions of each finding;
        ``kinds``: how many give a point, cell, box, rle or polygons;
        ``mask_area_share``: histogram of mask area / image area, bins as text;
        ``same_answer_share``: per finding, the share of its commonest answer among its predictions;
        ``share_missing``: missing pairs / asked pairs (0 if none is asked).
    """
    found = Counter(draft.finding for draft in drafts if draft.finding is not None)
    kinds = Counter(kind for draft in drafts for kind in _kinds(draft))
    areas: Counter[str] = Counter()
    for draft in drafts:
        if draft.area is not None and draft.rle is not None:
            height, width = draft.rle.size
            areas[_area_bin(draft.area / (height * width))] += 1
    n_asked = sum(len(row.asked) for row in manifest.rows.values())
    return {
        "per_finding": {finding: found[finding] for finding in manifest.findings if finding in found},
        "kinds": {kind: kinds[kind] for kind in ("point", "cell", "box", "rle", "polygons") if kind in kinds},
        "mask_area_share": {name: areas[name] for name in _AREA_BINS if name in areas},
        "same_answer_share": {finding: n_same / n for finding, (_, n_same, n) in sorted(_commonest(drafts).items())},
        "share_missing": n_missing / n_asked if n_asked else 0.0,
    }


def _kinds(draft: Draft) -> list[str]:
    given = {
        "point": draft.points,
        "cell": draft.cell,
        "box": draft.box,
        "rle": draft.rle,
        "polygons": draft.polygons,
    }
    return [kind for kind, value in given.items() if value]


_AREA_BINS = ["empty", *(f"{low:g}-{high:g}" for low, high in pairwise(AREA_SHARES))]


def _area_bin(share: float) -> str:
    """Bins are open below and closed above."""
    return _AREA_BINS[sum(share > bound for bound in AREA_SHARES)]
