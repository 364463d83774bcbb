"""Groups of patients defined by columns of a dataset folder, such as women and men, or women above 65.

The value of the column is the group of a row. A patient whose rows have several values is in the group "several", a
patient whose rows have no value in the group "missing". Columns joined by commas, such as "sex,age", define crossed
groups, one for each combination of values that occurs in a patient.
"""

from __future__ import annotations

import bisect
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.folder import read_rows, split_shards

MISSING, SEVERAL = "missing", "several"
"""Names of the group for patients whose rows have no value, and of the group for those whose rows have several values.
"""
_BETWEEN = ", "  # separates the columns, and the values, in the name of a crossed group
_MOST_GROUPS = 30
# Suffixes of columns that identify a patient or contain the answer
_NO_GROUPS = ("_id", "_ids", "_sha256", "labels", "label_vector")


def group_patients(
    folder: Path, config: str, split: str, by: Sequence[str], bands: Sequence[float] | None = None
) -> dict[str, dict[str, str]]:
    """Return the group of each patient for every element of `by`: ``{by: {patient_id: group}}``.

    Parameters
    ----------
    by : names of columns; several columns joined by commas define crossed groups
    bands : increasing limits that divide a column of numbers: 40 and 65 give "below 40", "40 to below 65", "65 or
        more". If `by` names several columns, exactly one must contain numbers

    Raises
    ------
    ArgumentError
        If a column is missing or unsuitable for groups, or `bands` cannot divide it.
    """
    if not by or not all(isinstance(column, str) for column in by):
        raise ArgumentError("by", "must name at least one column, such as 'sex'", repr(by[0]) if by else "none")
    limits = _limits(bands)
    shards = split_shards(folder, config, split)
    useful = _useful_columns(shards[0])
    columns_of = {crossed: [column.strip() for column in crossed.split(",")] for crossed in by}
    columns = list(dict.fromkeys(column for parts in columns_of.values() for column in parts))
    for column in columns:
        if column not in useful:
            raise ArgumentError("by", f"must be a column of the dataset folder: {', '.join(useful)}", repr(column))
    banded = _banded_column(columns, useful) if limits else ""
    names = {column: _names_of(useful[column]) or () for column in columns}
    own = {column: _groups_of_column(shards, column, names[column], limits * (column == banded)) for column in columns}
    groups = {}
    for parts in columns_of.values():
        joined = _BETWEEN.join(parts)
        groups[joined] = {patient: _BETWEEN.join(own[column][patient] for column in parts) for patient in own[parts[0]]}
        n_groups = len(set(groups[joined].values()))
        if n_groups > _MOST_GROUPS:
            rule = f"must have at most {_MOST_GROUPS} different values, or be divided by `bands`"
            raise ArgumentError("by", rule, f"{joined}, which has {n_groups}")
    return groups


def group_order(group: str) -> list[tuple[bool, bool, float, str]]:
    """Return the sort key of a group: bands by their numbers, then names, then "several" and "missing"."""
    return [_order_of_value(value) for value in group.split(_BETWEEN)]


def _order_of_value(name: str) -> tuple[bool, bool, float, str]:
    number = re.match(r"-?\d+(\.\d+)?", name)
    return name in (MISSING, SEVERAL), not name.startswith("below "), float(number[0]) if number else math.inf, name


def _useful_columns(shard: Path) -> dict[str, Any]:
    """Return name -> feature of the columns that can define groups."""
    from datasets import Features
    from pyarrow import parquet

    features = Features.from_arrow_schema(parquet.read_schema(shard))
    return {
        name: feature
        for name, feature in features.items()
        if not name.endswith(_NO_GROUPS) and _names_of(feature) is not None
    }


def _banded_column(columns: Sequence[str], useful: Mapping[str, Any]) -> str:
    """Return the column that the bands divide: the only column, or the only column of numbers."""
    numbers = [column for column in columns if len(columns) == 1 or _has_numbers(useful[column])]
    if len(numbers) != 1:
        rule = "needs exactly one column of numbers in `by`"
        raise ArgumentError("bands", rule, ", ".join(numbers) or "none", ("by",))
    if names := _names_of(useful[numbers[0]]):
        raise ArgumentError("bands", f"needs a column of numbers, {numbers[0]} has names", ", ".join(names))
    return numbers[0]


def _has_numbers(feature: Any) -> bool:
    dtype = getattr(getattr(feature, "feature", feature), "dtype", "")
    return not _names_of(feature) and dtype.startswith(("int", "uint", "float"))


def _groups_of_column(
    shards: Sequence[Path], column: str, names: Sequence[str], limits: Sequence[float]
) -> dict[str, str]:
    values: dict[str, set[str]] = defaultdict(set)
    for row in (row for shard in shards for row in read_rows(shard, ["patient_id", column])):
        own = values[row["patient_id"]]
        for value in row[column] if isinstance(row[column], list) else [row[column]]:
            if value is not None and value != "":
                own.add(_banded(column, value, limits) if limits else _named(value, names))
    return {patient: MISSING if not own else SEVERAL if len(own) > 1 else min(own) for patient, own in values.items()}


def _limits(bands: Sequence[float] | None) -> list[float]:
    if bands is None:
        return []
    limits = list(bands)
    numbers = all(isinstance(one, Real) and not isinstance(one, bool) and math.isfinite(one) for one in limits)
    if not limits or not numbers or limits != sorted(set(limits)):
        raise ArgumentError("bands", "must be increasing numbers, such as 40,65", repr(bands))
    return limits


def _names_of(feature: Any) -> Sequence[str] | None:
    """Return the category names of a coded column, an empty sequence for other scalar columns, None for unsuitable
    columns.
    """
    from datasets import ClassLabel, List, Value

    inner = feature.feature if isinstance(feature, List) else feature
    if isinstance(inner, ClassLabel):
        return list(inner.names)
    return () if isinstance(inner, Value) else None


def _named(value: Any, names: Sequence[str]) -> str:
    return (
        names[value] if names else {True: "yes", False: "no"}.get(value, "") if isinstance(value, bool) else str(value)
    )


def _banded(column: str, value: Any, limits: Sequence[float]) -> str:
    if isinstance(value, bool | str):
        raise ArgumentError("bands", f"needs a column of numbers, {column} has other values", repr(value))
    at = bisect.bisect_right(limits, value)
    if at == 0:
        return f"below {limits[0]:g}"
    return f"{limits[at - 1]:g} or more" if at == len(limits) else f"{limits[at - 1]:g} to below {limits[at]:g}"
