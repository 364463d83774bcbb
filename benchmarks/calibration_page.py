"""Write the tables of docs/statistics.md and its figure from the results of `calibration.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- Written by benchmarks/calibration.py: change that. -->", "<!-- End of what it writes. -->"
TITLES = {"point_hit": "hit rate", "mask_iou": "IoU", "f1": "F1", "cohen_kappa": "kappa"}
LEAST_PRINTED = 200
"""Trials with an interval or p below which a cell is not judged."""

Cell = dict[str, Any]


def write_page(cells: list[Cell]) -> None:
    """Replace the part between the markers in docs/statistics.md, and draw docs/coverage.svg."""
    page = DOCS / "statistics.md"
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    tail = rest.split(END)[1]
    parts = [_summary(cells), "![Coverage](coverage.svg)", _coverage(cells), _errors(cells), _misses(cells)]
    parts += [_one_sided(cells), _off(cells), _again(cells)]
    page.write_text(
        head + BEGIN + "\n\n" + "\n\n".join(part for part in parts if part) + "\n\n" + END + tail, encoding="utf-8"
    )
    (DOCS / "coverage.svg").write_text(_figure(cells), encoding="utf-8")


def _judged(cells: Iterable[Cell], method: str, share: str = "printed") -> list[tuple[Cell, dict[str, Any], Any]]:
    """Return cell, score and rates if enough trials print them."""
    return [
        (cell, figure, figure[method])
        for cell in cells
        for figure in cell["figures"]
        if figure[method].get(share, 0) * _n_trials(cell, figure[method], share) >= LEAST_PRINTED
    ]


def _n_trials(cell: Cell, rates: dict[str, Any], share: str) -> int:
    """Return the number of trials of a rate: intervals, or p, may have been simulated again separately."""
    return int(rates.get("p_trials" if share == "p_printed" else "interval_trials", cell["n_trials"]))


Bounds = list[tuple[float, float, float, float]]
"""Each a rate, the ends it is to keep, and the share of the trials that it is of."""


def _of_coverage(rates: Any) -> Bounds:
    return [(rates["coverage"], 0.93, 0.97, 1.0)]


def _of_sides(rates: Any) -> Bounds:
    missed = rates["below"] + rates["above"]
    return [(rates["below"] / missed, 1 / 3, 2 / 3, missed)] if missed else []


def _of_p(rates: Any) -> Bounds:
    return [(rates["p_05"], 0.035, 0.055, 1.0), (rates["p_01"], 0.0, 0.012, 1.0)]


def _of_p_at_most(rates: Any) -> Bounds:
    return [(rates["p_05"], 0.0, 0.055, 1.0)]


def _of_tiers(rates: Any) -> Bounds:
    """Return the bounds for the second trials, if any: the first trials chose the cell."""
    return [(rates.get("family_again", rates["family"]), 0.0, 0.05, 1.0)] if "family" in rates else []


GOALS: tuple[tuple[str, str, Callable[[Any], Bounds]], ...] = (
    ("coverage 0.93 to 0.97", "printed", _of_coverage),
    ("misses on both sides within 2:1", "printed", _of_sides),
    ("p: 0.035 to 0.055 at 0.05, at most 0.012 at 0.01", "p_printed", _of_p),
    ("p: at most 0.055 at 0.05", "p_printed", _of_p_at_most),
    ("any of six equal systems in another tier in at most 0.05", "p_printed", _of_tiers),
)


def _is_kept(bounds: Bounds) -> bool:
    return all(low <= round(rate, 3) <= high for rate, low, high, _ in bounds)


def _is_clearly_missed(bounds: Bounds, n_trials: float) -> bool:
    """Return True if a rate is outside by more than twice its standard error."""
    return any(
        max(low - rate, rate - high) > 2 * math.sqrt(rate * (1 - rate) / (n_trials * part))
        for rate, low, high, part in bounds
    )


def misses_tiers(cell: Cell, rates: dict[str, Any]) -> bool:
    """Return True if tiers clearly separate equal systems too often in the first trials."""
    return "family" in rates and _is_clearly_missed([(rates["family"], 0.0, 0.05, 1.0)], cell["n_trials"])


def _summary(cells: list[Cell]) -> str:
    rows = []
    for title, share, bounds_of in GOALS:
        row = [title]
        for method in ("new", "old"):
            cells_found = [
                (_n_trials(c, r, share) * r[share], bounds_of(r)) for c, _, r in _judged(cells, method, share)
            ]
            judged = [(n, bounds) for n, bounds in cells_found if bounds]
            missed = sum(_is_clearly_missed(bounds, n) for n, bounds in judged)
            row += [f"{sum(_is_kept(bounds) for _, bounds in judged)} of {len(judged)}", str(missed)]
        rows.append(tuple(row))
    heads = ("goal", "new", "clearly missed", "old", "clearly missed")
    about = "Cells that meet a goal, and those that miss it by more than two standard errors of the simulation:"
    return f"{about}\n\n{_table(heads, rows)}"


def _coverage(cells: list[Cell]) -> str:
    rows = []
    for metric, title in TITLES.items():
        for name in ("macro", *_singles(cells)):
            row = [title, name]
            for n in _sizes(cells):
                columns = [[], []]  # type: list[list[Any]]
                for own, method in zip(columns, ("new", "old"), strict=True):
                    at = [c for c in cells if c["n_patients"] == n]
                    own += [r for _, f, r in _judged(at, method) if (f["metric"], f["figure"]) == (metric, name)]
                row += [_range([r["coverage"] for r in own]) for own in columns]
            rows.append(tuple(row))
    heads = ("figure", "prevalence", *(f"{m}, {n}" for n in _sizes(cells) for m in ("new", "old")))
    return "Coverage, lowest to highest over the worlds, by number of patients:\n\n" + _table(heads, rows)


def _errors(cells: list[Cell]) -> str:
    rows = []
    for metric, title in TITLES.items():
        for n in _sizes(cells):
            row = [title, str(n)]
            at = [c for c in cells if c["n_patients"] == n]
            for key in ("p_05", "p_01"):
                for method in ("new", "old"):
                    own = [r[key] for _, f, r in _judged(at, method, "p_printed") if f["metric"] == metric]
                    row.append(_range(own))
            for method in ("new", "old"):
                own = [
                    f[method]["family"]
                    for c in at
                    for f in c["figures"]
                    if f["metric"] == metric and f["figure"] == "macro"
                ]
                row.append(_range(own))
            rows.append(tuple(row))
    heads = ("figure", "patients", "p <= 0.05, new", "old", "p <= 0.01, new", "old", "tiers, new", "old")
    about = (
        "Significant differences of two equal systems (macros and findings), and any two of six equal systems in "
        "different tiers:"
    )
    return f"{about}\n\n{_table(heads, rows)}"


def _misses(cells: list[Cell]) -> str:
    rows = []
    for cell, figure, rates in _judged(cells, "new"):
        if not _is_kept(_of_coverage(rates)):
            where = (cell["world"], str(cell["n_patients"]), TITLES[figure["metric"]], figure["figure"])
            sides = f"{_number(rates['below'])} / {_number(rates['above'])}"
            rows.append((*where, f"{100 * rates['printed']:.0f} %", _number(rates["coverage"]), sides))
    heads = ("world", "patients", "figure", "prevalence", "printed", "coverage", "misses below / above")
    return "Every cell whose printed intervals miss the goal of coverage:\n\n" + _table(heads, rows)


def _one_sided(cells: list[Cell]) -> str:
    rows = []
    for cell, figure, rates in _judged(cells, "new"):
        if _is_clearly_missed(_of_sides(rates), _n_trials(cell, rates, "printed") * rates["printed"]):
            where = (TITLES[figure["metric"]], figure["figure"], cell["world"], str(cell["n_patients"]))
            rows.append((*where, _number(rates["coverage"]), _number(rates["below"]), _number(rates["above"])))
    heads = ("figure", "prevalence", "world", "patients", "coverage", "misses below", "above")
    return "Every cell that clearly misses more than twice as often on one side:\n\n" + _table(heads, sorted(rows))


def _off(cells: list[Cell]) -> str:
    rows = []
    for cell, figure, rates in _judged(cells, "new", "p_printed"):
        n = _n_trials(cell, rates, "p_printed") * rates["p_printed"]
        where = (TITLES[figure["metric"]], figure["figure"], cell["world"], str(cell["n_patients"]))
        if _is_clearly_missed(_of_p(rates), n):
            rows.append((*where, _number(rates["p_05"]), _number(rates["p_01"]), ""))
        elif _is_clearly_missed(_of_tiers(rates), n):
            rows.append((*where, "", "", _number(rates["family"])))
    heads = ("figure", "prevalence", "world", "patients", "p <= 0.05", "p <= 0.01", "tiers")
    return "Every cell in which p or tiers clearly miss their goals:\n\n" + _table(heads, sorted(rows))


def _again(cells: list[Cell]) -> str:
    rows = [
        (TITLES[figure["metric"]], cell["world"], str(cell["n_patients"]), *map(_number, (first, again)))
        for cell in cells
        for figure in cell["figures"]
        for first, again in [(figure["new"].get("family"), figure["new"].get("family_again"))]
        if again is not None
    ]
    about = "Cells whose tiers clearly missed the goal, and the results of the repeat trials, which decide:"
    return f"{about}\n\n{_table(('figure', 'world', 'patients', 'first', 'again'), rows)}" if rows else ""


def _sizes(cells: list[Cell]) -> list[int]:
    return sorted({cell["n_patients"] for cell in cells})


def _singles(cells: list[Cell]) -> list[str]:
    names = {f["figure"] for cell in cells for f in cell["figures"]} - {"macro"}
    return sorted(names, key=lambda name: float(name.split()[0]))


def _number(value: float) -> str:
    return f"{value:.3f}"


def _range(values: list[float]) -> str:
    if not values:
        return "-"
    ends = _number(min(values)), _number(max(values))
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _figure(cells: list[Cell]) -> str:
    """Return the figure: a dot per cell and method, coverage across, rows are scores, panels numbers of patients."""
    names = [(metric, name) for metric in TITLES for name in ("macro", *_singles(cells))]
    left, top, panel, line = 110, 46, 190, 17
    lowest, height = 0.7, top + line * len(names) + 34
    width = left + (panel + 26) * len(_sizes(cells))

    def across(i: int, coverage: float) -> float:
        return round(left + i * (panel + 26) + panel * (max(coverage, lowest) - lowest) / (1 - lowest), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="11">',
        "<title>Coverage of 95% intervals in the simulated worlds, new and old</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<circle cx="{left}" cy="14" r="3.5" fill="#1b6ca8"/><text x="{left + 8}" y="18">new, where printed</text>',
        f'<circle cx="{left + 130}" cy="14" r="3" fill="none" stroke="#888"/>'
        f'<text x="{left + 138}" y="18">old (percentile); left edge: {lowest:.0%} or less</text>',
    ]
    for row, (metric, name) in enumerate(names):
        out.append(f'<text x="4" y="{top + line * row + 12}">{TITLES[metric]}, {name}</text>')
    for i, n in enumerate(_sizes(cells)):
        bottom = top + line * len(names)
        low, high = across(i, 0.93), across(i, 0.97)
        out.append(f'<rect x="{low}" y="{top}" width="{high - low:.1f}" height="{bottom - top}" fill="#dcebd5"/>')
        out.append(f'<text x="{across(i, 0.7)}" y="{top - 8}">{n} patients</text>')
        for tick in (0.7, 0.8, 0.9, 1.0):
            x = across(i, tick)
            out.append(f'<path d="M{x} {top}V{bottom + 4}" stroke="#ccc"/>')
            out.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle" font-size="9">{tick:g}</text>')
        at = [cell for cell in cells if cell["n_patients"] == n]
        for method, style in (("old", 'r="3" fill="none" stroke="#888"'), ("new", 'r="3.5" fill="#1b6ca8"')):
            for _, figure, rates in _judged(at, method):
                row = names.index((figure["metric"], figure["figure"]))
                y = top + line * row + line / 2
                out.append(f'<circle cx="{across(i, rates["coverage"])}" cy="{y}" {style}/>')
    return "\n".join([*out, "</svg>"]) + "\n"
