"""Hints of the linter on the likely meaning of a wrong name, id, cell or size.

Conventions
-----------
A hint is a short text, empty if there is nothing to suggest. Hints never correct anything.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from reveal_bench.findings import nearest_names
from reveal_bench.predictions.number_ids import ADVICE, number_of

_SEARCHED_IDS = 1000
_SEARCHED_CHARACTERS = 100
_SEARCHED_DIGITS = 16


def name_hint(name: str, known: Sequence[str]) -> str:
    """Return a hint on an unknown `name`: that it is a DataFrame index, similar known names, or all known names.

    Examples
    --------
    >>> name_hint("Unnamed: 0", ["x", "y"]), name_hint("X", ["x", "y"])
    ('is this the index of a DataFrame? Leave it out: df.to_csv(..., index=False)', 'did you mean x?')
    """
    if not name or name.startswith("Unnamed: "):
        return "is this the index of a DataFrame? Leave it out: df.to_csv(..., index=False)"
    near = nearest_names(name[:_SEARCHED_CHARACTERS], known)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"


def id_hint(image_id: str, sorted_ids: Sequence[str], rows: Mapping[str, object]) -> str:
    """Return a hint on an unknown `image_id`: known ids that a path or a typing error may mean, else an example id.

    Examples
    --------
    >>> rows = {"p1_study1_view1": None}
    >>> id_hint("valid/p1/study1/view1.jpg", sorted(rows), rows)
    'did you mean p1_study1_view1?'
    >>> id_hint("p2_study1_view1", sorted(rows), rows)
    'ids of this split look like p1_study1_view1'
    """
    if numbered := _number_hint(image_id, rows):
        return numbered
    stem = image_id.strip().removesuffix(".jpg").removesuffix(".png").strip("/")
    spellings = {stem, stem.replace("/", "_"), "_".join(stem.split("/")[-3:]), stem.split("/")[-1]}
    near = sorted(spellings & rows.keys())
    if not near:
        place = bisect_left(sorted_ids, image_id)  # in a large split only ids that sort nearby are compared
        around = sorted_ids[max(0, place - _SEARCHED_IDS // 2) : place + _SEARCHED_IDS // 2]
        near = _slips(image_id, around)[:2]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"ids of this split look like {sorted_ids[0]}" if sorted_ids else ""


def _number_hint(name: str, known: Collection[str]) -> str:
    """Return a hint if `name` is one known id that became a number, as 36199.0 or without its leading zeros."""
    digits = str(number_of(name) or name)
    if not (digits.isascii() and digits.isdecimal() and len(digits) < _SEARCHED_DIGITS):
        return ""
    same = [one for length in range(1, _SEARCHED_DIGITS) if (one := digits.zfill(length)) in known]
    near = list(dict.fromkeys(same))
    if not near:
        return ""
    are_floats = number_of(name) is not None and near == [digits]
    advice = "Ids became floats: write them with df[column].astype(int)" if are_floats else f"Then {ADVICE}"
    return f"did you mean {' or '.join(near[:2])}? {advice}"


def _slips(name: str, known: Sequence[str]) -> list[str]:
    """Return the `names` that resemble `name` and contain the same numbers, because another number means another
    patient.
    """
    near = difflib.get_close_matches(name, known, n=10, cutoff=0.8)
    return [one for one in near if _numbers(one) == _numbers(name)]


def _numbers(name: str) -> list[str]:
    return [digits.lstrip("0") for digits in re.findall(r"[0-9]+", name)]


def study_hint(study_id: str, studies: Sequence[str]) -> str:
    """Return a hint on an unknown `study_id`: a study that it may mean, else an example id.

    Examples
    --------
    >>> study_hint("study-12", ["study-011", "study-012"])
    'did you mean study-012?'
    """
    if numbered := _number_hint(study_id, frozenset(studies)):
        return numbered
    searched = studies[:_SEARCHED_IDS]
    near = _slips(study_id[:_SEARCHED_CHARACTERS], searched)
    if near:
        return f"did you mean {near[0]}?"
    return f"ids of this split look like {studies[0]}" if studies else ""
