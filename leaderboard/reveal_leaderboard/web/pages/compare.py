"""The page Compare: differences between the shown scores of two entries per finding, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import Request

from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS
from reveal_bench.words import count_text
from reveal_leaderboard.boards.comparisons import compare_released
from reveal_leaderboard.boards.standings import BoardEntry, standings
from reveal_leaderboard.release.release import ReleasedEstimate, primary_figure
from reveal_leaderboard.store.metadata import versioned
from reveal_leaderboard.web.pages.drawing import draw, message, percent, rating
from reveal_leaderboard.web.pages.entry import may_see
from reveal_leaderboard.web.pages.first_sentences import opening
from reveal_leaderboard.web.pages.plain import ReadPage, titled
from reveal_leaderboard.web.pages.rubric_view import TITLES
from reveal_leaderboard.web.services import Services

CHOOSE = message("info", "Choose two entries.", "The page then shows their differences per finding.")
NOT_THERE = (
    "The entry was withdrawn, its team shows another entry of this model, or the entry has no score on the current "
    "version."
)

RATED = [kind.name for kind in KINDS.values() if kind.scoring.scored_by == "readers"]
LEAST_REACH, LEAST_RATED_REACH = 0.05, 0.25
"""Smallest range of the scale of differences, for fractions and for ratings from 1 to 5."""


def show(services: Services, request: Request) -> ReadPage:
    """Return the comparison of the entries that the address names, or of a board's first two ranked entries."""
    query = request.query_params
    a, b = query.get("a", "")[:64], query.get("b", "")[:64]
    actor, store = services.actor(request), services.store
    named = [one for one in map(store.get, (a, b)) if one is not None and may_see(one, store.scores_of(one.id), actor)]
    benchmark = query.get("benchmark") or next((one.benchmark for one in named), None)
    name = benchmark if benchmark in services.names else services.names[0]
    published = services.catalogue.current(name)
    entries = {entry.submission_id: entry for entry in standings(services.store, published).entries}
    if not a and not b and "a" not in query:
        ranked = [entry.submission_id for entry in entries.values() if entry.rank is not None]
        a, b = ranked[:2] if len(ranked) > 1 else ("", "")
    choices = [("Choose an entry", ""), *((_named(entry), entry.submission_id) for entry in entries.values())]
    selected = [entry_id if entry_id in entries else "" for entry_id in (a, b)]
    controls = draw("compare.html", "controls", services.names, name, choices, *selected)
    view = _compared(published.kind, entries, a, b)
    return titled("/compare", f'{opening("/compare")}{controls}<div id="compare">{view}</div>')


def _compared(kind: str, entries: Mapping[str, BoardEntry], a: str, b: str) -> str:
    """Return the comparison of two entries as HTML, or a notice if an entry is not on the board."""
    if not entries:
        return message("info", "No submission is scored yet.", "A comparison needs two entries.")
    if a not in entries or b not in entries:
        is_missing = any(entry_id and entry_id not in entries for entry_id in (a, b))
        notice = message("info", "An entry in the address is not on this board.", NOT_THERE) if is_missing else ""
        return notice + CHOOSE
    if a == b:
        return message("info", "You chose the same entry twice.", "Choose another entry to compare it with.")
    document = compare_released(entries[a].score, entries[b].score, kind, ids=(a, b))
    return compare_view(document, entries[a], entries[b])


def _named(entry: BoardEntry) -> str:
    return f"{versioned(entry.model, entry.model_version)}, {entry.team}"


def compare_view(document: Mapping[str, Any], a: BoardEntry, b: BoardEntry) -> str:
    """Return a comparison as a table of differences A minus B, in percentage points or points of the rating scale."""
    rows: Sequence[Mapping[str, Any]] = document["rows"]
    note = str(document.get("note") or "")
    if not rows:
        return message("info", "These entries have no shown score in common.", note)
    is_rated = document.get("kind") in RATED
    reach = max((abs(row[end]) for row in rows for end in ("value", "low", "high") if row[end] is not None), default=0)
    reach = max(reach, LEAST_RATED_REACH if is_rated else LEAST_REACH)
    if is_rated:
        head = ["Criterion", "A, 1 to 5", "B, 1 to 5"]
        groups = [("", [_rated_row(row, a, b, reach) for row in rows])]
    else:
        head = ["Finding", "A, %", "B, %"]
        groups = [
            (
                METRICS[metric].title if metric in METRICS else metric,
                [_row(row, a, b, reach) for row in rows if row["metric"] == metric],
            )
            for metric in dict.fromkeys(str(row["metric"]) for row in rows)
        ]
    links = [(_named(entry), entry.submission_id, _placed(entry)) for entry in (a, b)]
    return draw("compare.html", "page", *links, head, groups, *_verdict(rows, a, b, is_rated=is_rated), note)


def _placed(entry: BoardEntry) -> str:
    return "" if entry.tier is None else f"rank {entry.place.replace('-', '–')}, tier {entry.tier}"


def _verdict(rows: Sequence[Mapping[str, Any]], a: BoardEntry, b: BoardEntry, *, is_rated: bool) -> tuple[str, str]:
    """Return a sentence on the ranked macro, and a sentence on the number of significant differences and the tiers."""
    primary = primary_figure(a.score)
    key = None if primary is None else (primary.metric, primary.finding)
    macro = next((row for row in rows if (row["metric"], row["finding"]) == key), None)
    n_significant = sum(bool(row["told_apart"]) for row in rows)
    differences = count_text(len(rows), "difference")
    counted = f"{n_significant} of {differences} significant" if n_significant else "No difference is significant"
    n_tested = sum(row["low"] is not None for row in rows)
    counted += ". Tests are corrected for the number of findings per metric." if n_tested > 1 else "."
    if macro is None or macro["value"] is None:
        return counted, ""
    words, unit = (_rated_points, "") if is_rated else (_points, " points")
    interval = "" if macro["low"] is None else f" ({words(macro['low'])} to {words(macro['high'])})"
    verdict = "significant" if macro["told_apart"] else "not significant"
    metric = METRICS[str(macro["metric"])].in_words
    headline = f"Macro {metric}: A − B is {words(macro['value'])}{unit}{interval}, {verdict}."
    if a.tier is None or b.tier is None or (a.tier != b.tier) == bool(macro["told_apart"]):
        return headline, counted
    why = (
        "Yet the tiers differ. Tiers test only the macro, over all pairs of entries. Two entries can be "
        "in different tiers because one of them differs significantly from a third entry."
        if a.tier != b.tier
        else "Yet both entries are in one tier, because tiers are corrected for all pairs of entries on the board."
    )
    return headline, f"{counted} {why}"


def _row(row: Mapping[str, Any], a: BoardEntry, b: BoardEntry, reach: float) -> dict[str, Any]:
    metric, finding = str(row["metric"]), str(row["finding"])
    cells = []
    for entry, key in ((a, "a"), (b, "b")):
        figure = entry.figure(metric, finding)
        is_same = figure is not None and figure.value == row.get(key)
        cells.append((figure if is_same else None, row.get(key)))
    name = "Macro" if finding == "macro" else finding
    return _template_row(row, name, cells, _points, reach, "no interval, see below")


def _rated_row(row: Mapping[str, Any], a: BoardEntry, b: BoardEntry, reach: float) -> dict[str, Any]:
    cells = [(entry.figure(str(row["metric"]), str(row["finding"])), None) for entry in (a, b)]
    name = TITLES[str(row["finding"])]
    return _template_row(row, name, cells, _rated_points, reach, "too few answers differ")


def _rated_points(difference: float) -> str:
    return rating(difference, signed=True)


def _template_row(
    row: Mapping[str, Any],
    name: str,
    cells: Sequence[tuple[ReleasedEstimate | None, float | None]],
    words: Callable[[float], str],
    reach: float,
    no_interval: str,
) -> dict[str, Any]:
    """Return the values of a row for its template; `words` formats a difference."""
    value, low, high = row["value"], row["low"], row["high"]
    has_bar = None not in (value, low, high) and low != high  # a bar of constant values would suggest certainty
    return {
        "name": name,
        "cells": cells,
        "difference": None if value is None else words(value),
        "bar": (value, low, high, reach) if has_bar else None,
        "interval": f"{words(low)} to {words(high)}" if has_bar else "",
        "no_interval": no_interval,
        "told_apart": row["told_apart"],
    }


def _points(fraction: float) -> str:
    return percent(fraction, signed=True)
