"""Columns beside a ranking: the number of readers below each ROC curve, and scores that a published board printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reveal_bench.analyses.operating import confidences_of_decisions
from reveal_bench.analyses.roc import count_below, reader_points, roc_curves
from reveal_bench.api.conversion import rows_of
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate

READERS_BELOW = "readers below"
"""Column with the mean number of readers below a system's ROC curves."""
_KEY = "system"


def readers_below(scored: Mapping[str, ScoredFile], estimates: Mapping[str, Sequence[Estimate]]) -> dict[str, float]:
    """Return system -> number of readers below its ROC curve, the mean over findings; only of probabilities.

    Parameters
    ----------
    estimates : reader -> scores, with recall and specificity
    """
    counts = {}
    for name, one in scored.items():
        if "average_precision" not in one.rows.metrics():
            continue
        roc = roc_curves(confidences_of_decisions(one.rows))
        points = [point for reader, own in estimates.items() for point in reader_points(roc, reader, own)]
        counts[name] = round(count_below(points, roc)[MACRO], 4)
    if not counts:
        raise ArgumentError("readers", "must be omitted: no system has probabilities of findings")
    return counts


def read_printed(table: Any, systems: Sequence[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return (column -> system -> value, names of the table's other systems) of a published board.

    Parameters
    ----------
    table : a path, a DataFrame or a list of rows, with a column `system`
    systems : names of the ranked systems

    Raises
    ------
    ArgumentError
        If the column is missing, a system is in two rows, or the table has none of the ranked systems.
    """
    rows = rows_of(table, [_KEY])
    if any(_KEY not in row for row in rows):
        raise ArgumentError("printed", f"must have a `{_KEY}` in every row", ", ".join(map(str, rows[0])))
    by_system = {str(row[_KEY]): row for row in rows}
    if len(by_system) < len(rows):
        raise ArgumentError("printed", "must name each system once", f"{len(rows)} rows of {len(by_system)} systems")
    if not by_system.keys() & set(systems):
        raise ArgumentError("printed", f"must have a ranked system ({', '.join(systems)})", ", ".join(by_system))
    columns = dict.fromkeys(name for row in rows for name in row if name != _KEY)
    values = {
        str(name): {system: row[name] for system, row in by_system.items() if name in row and system in systems}
        for name in columns
    }
    return values, [system for system in by_system if system not in systems]
