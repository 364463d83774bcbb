"""Values of a row by the type of their column: codes, nulls, numbers and ids.

These rules come first: a row that breaks the first of them (:func:`value_faults`) is read by no other rule, which may
then rely on every code having a name and every list being there. Faults are (field, rule, value), as in
:mod:`reveal_bench.builders.validate_rows`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reveal_bench.builders.rows import Row
from reveal_bench.builders.validate_tables import IDS

__all__ = ["Fault", "id_faults", "quantity_faults", "value_faults"]

Fault = tuple[str, str, str]
ID = re.compile(r"[\w.+-]+")
OPTIONAL_CODES = {"agreement"}
NEEDED = {"width", "height", "x", "y", "area_px", "n_instances", "counts"}
"""Numbers and texts without which nothing can be said of their row or entry."""
QUANTITIES = ("kvp", "exposure_mas")


def value_faults(row: Row, features: Mapping[str, Any], *, is_input: bool = False) -> Iterator[Fault]:
    """Codes without a name, nulls where something must be, and numbers that are not finite, at any depth.

    Parameters
    ----------
    features : Features of the table; columns that are not in it are passed over
    is_input : whether the row may lack what tells something of the references
    """
    for name, feature in features.items():
        if name in row:
            yield from _faults(row[name], feature, name, is_input)


def _faults(value: Any, feature: Any, place: str, may_lack: bool) -> Iterator[Fault]:
    from datasets import ClassLabel, List

    if isinstance(feature, List):
        yield from _list_faults(value, feature, place, may_lack)
    elif isinstance(feature, Mapping):
        for inner, kind in feature.items() if value is not None else ():
            yield from _faults(value.get(inner), kind, f"{place}.{inner}", may_lack)
    elif value is None:
        name = place.rpartition(".")[2]
        is_needed = name not in OPTIONAL_CODES if isinstance(feature, ClassLabel) else name in NEEDED
        if is_needed and not may_lack:
            yield place, "must be there", "null"
    elif isinstance(feature, ClassLabel):
        if not 0 <= value < len(feature.names):
            yield place, f"must be a code from 0 to {len(feature.names) - 1}", str(value)
    elif isinstance(value, float) and not math.isfinite(value):
        yield place, "must be finite", str(value)


def _list_faults(value: Any, feature: Any, place: str, may_lack: bool) -> Iterator[Fault]:
    if value is None and feature.length == -1 and not may_lack:
        yield place, "must be a list, empty where there is nothing", "null"
    for entry in value or ():
        if entry is None and _is_entry(feature.feature):
            yield place, "must have no null among its entries", "null"
        else:
            yield from _faults(entry, feature.feature, place, may_lack)


def _is_entry(feature: Any) -> bool:
    """Whether an entry of a list must be there; a picture may be withheld, and a null code is told as such."""
    from datasets import ClassLabel, Image

    return not isinstance(feature, Image | ClassLabel)


def id_faults(row: Row, *, is_input: bool = False) -> Iterator[Fault]:
    """Ids that are missing, or hold more than letters, digits and `_ . + -`."""
    for column in IDS:
        if column not in row or (is_input and column == "patient_id" and row[column] is None):
            continue
        value = row[column]
        for text in (value or ()) if column.endswith("_ids") else [value]:
            if text is None or not ID.fullmatch(text):
                yield column, "must be an id of letters, digits and `_ . + -`", repr(text)


def quantity_faults(row: Row) -> Iterator[Fault]:
    """Physical quantities that are not positive, of the row and of the facts of its pictures."""
    told = [("", row)]
    for column in ("image_facts", "prior_image_facts"):
        told += [(f"{column}[{facts['image_id']}].", facts) for facts in row.get(column) or ()]
    for place, facts in told:
        for name in QUANTITIES:
            if facts.get(name) is not None and not facts[name] > 0:
                yield f"{place}{name}", "must be positive", str(facts[name])
        if facts.get("spacing_mm") is not None and not all(value > 0 for value in facts["spacing_mm"]):
            yield f"{place}spacing_mm", "must be positive", str(facts["spacing_mm"])
