"""Write the tables of simulated error rates and their picture from the results of `calibration.py`.

docs/statistics.md gets the summaries, benchmarks/calibration.md all tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from calibration_picture import draw  # in this folder

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- Written by benchmarks/calibration.py: change that. -->", "<!-- End of what it writes. -->"
TITLES = {
    "f1": "F1",
    "cohen_kappa": "kappa",
    "recall": "recall",
    "specificity": "specificity",
    "precision": "precision",
    "npv": "NPV",
    "auroc": "AUROC",
    "average_precision": "average precision",
    "point_hit": "hit rate",
    "mask_iou": "IoU",
}
LEAST_PRINTED = 200
"""Minimum number of trials with an interval, p or verdict for judging a cell."""

Cell = dict[str, Any]


class Judged(NamedTuple):
    """One simulated rate: its cell, `figure` (a finding or "macro"), the rate and its number of trials."""

    cell: Cell
    figure: str
    rate: float
    n_trials: float

    @property
    def error(self) -> float:
        """Standard error of the rate, given the number of trials."""
        return math.sqrt(max(self.rate * (1 - self.rate), 1e-9) / self.n_trials)


def write_pages(cells: list[Cell]) -> None:
    """Replace the part between the markers in docs/statistics.md and calibration.md, and draw docs/coverage.svg."""
    picture = "![Coverage of the true value by 95% intervals](coverage.svg)"
    _replace_tables(DOCS / "statistics.md", [_summary(cells), picture, _generators(cells)])
    tables = [_macros(cells), _findings(cells), _differences(cells), _margins(cells), _tiers(cells), _misses(cells)]
    _replace_tables(Path(__file__).with_name("calibration.md"), tables)
    (DOCS / "coverage.svg").write_text(draw(cells), encoding="utf-8")


def _replace_tables(page: Path, parts: list[str]) -> None:
    head, rest = page.read_text(encoding="utf-8").split(BEGIN)
    tail = rest.split(END)[1]
    text = "\n\n".join(filter(None, parts))
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", encoding="utf-8")


def judged(cells: Iterable[Cell], label: str, rate: str, printed: str = "printed") -> Iterator[Judged]:
    """Yield every rate of a label with enough trials; `printed` names the proportion of trials with a result."""
    for cell in cells:
        if cell["label"] == label:
            for row in cell["rows"]:
                n = row.get(printed, 1.0) * cell["n_trials"]
                if rate in row and n >= LEAST_PRINTED:
                    yield Judged(cell, row["figure"], row[rate], n)


class Goal(NamedTuple):
    """A target range for a rate; `is_asked` selects the cells and figures to which it applies."""

    title: str
    task: str
    rate: str
    printed: str
    low: float
    high: float
    is_asked: Callable[[Judged], bool] = lambda _: True

    def rates(self, cells: list[Cell], label: str) -> list[Judged]:
        own = [cell for cell in cells if cell["task"] == self.task]
        return [one for one in judged(own, label, self.rate, self.printed) if self.is_asked(one)]

    def is_kept(self, one: Judged) -> bool:
        return self.low <= round(one.rate, 3) <= self.high

    def is_clearly_missed(self, one: Judged) -> bool:
        return max(self.low - one.rate, one.rate - self.high) > 2 * one.error


def _is_macro(one: Judged) -> bool:
    return one.figure == "macro"


def _has_equal_systems(one: Judged) -> bool:
    return not one.cell["world"].endswith("worse")


GOALS = (
    Goal("intervals of macros cover 0.92 to 0.98", "score", "coverage", "printed", 0.92, 0.98, _is_macro),
    Goal(
        "intervals of findings cover 0.92 to 0.98",
        "score",
        "coverage",
        "printed",
        0.92,
        0.98,
        lambda x: not _is_macro(x),
    ),
    Goal("intervals of macros cover 0.93 to 0.97", "score", "coverage", "printed", 0.93, 0.97, _is_macro),
    Goal(
        "intervals of findings cover 0.93 to 0.97",
        "score",
        "coverage",
        "printed",
        0.93,
        0.97,
        lambda x: not _is_macro(x),
    ),
    Goal("intervals of differences cover 0.92 to 0.98", "compare", "coverage", "printed", 0.92, 0.98),
    Goal("p <= 0.05 of equal systems: in at most 0.055", "compare", "p_05", "p_printed", 0, 0.055, _has_equal_systems),
    Goal("p <= 0.01 of equal systems: in at most 0.013", "compare", "p_01", "p_printed", 0, 0.013, _has_equal_systems),
    Goal("non-inferior at the margin: in at most 0.03", "margin", "non_inferior", "p_printed", 0, 0.03),
    Goal("equal systems in different tiers: in at most 0.055", "tiers", "parted", "-", 0, 0.055, _has_equal_systems),
)


def _summary(cells: list[Cell]) -> str:
    rows = []
    for goal in GOALS:
        row = [goal.title]
        for label in ("new", "before"):
            rates = goal.rates(cells, label)
            row += [f"{sum(map(goal.is_kept, rates))} of {len(rates)}" if rates else "-"]
            row += [str(sum(map(goal.is_clearly_missed, rates))) if rates else "-"]
        rows.append(tuple(row))
    heads = ("goal", "new", "clearly missed", "before", "clearly missed")
    about = (
        "How many cells meet each goal, and how many clearly miss it, by more than two standard errors of the "
        "simulation. Goals are proportions of trials:"
    )
    return f"{about}\n\n{_table(heads, rows)}"


def _generators(cells: list[Cell]) -> str:
    """Return the new macros of a REVEAL half side by side: of the first and of the second generator."""
    rates = (("score", "coverage", "printed", 1), ("compare", "p_05", "p_printed", 2), ("tiers", "parted", "-", 10))
    rows = []
    for skill in ("good", "excellent"):
        for metric, title in TITLES.items():
            row = []
            for task, rate, printed, n_systems in rates:
                for world in (f"reveal-{skill}", f"second-{skill}"):
                    key = (task, world, 100, metric, n_systems)
                    own = [c for c in cells if _key(c) == key]
                    values = [one.rate for one in judged(own, "new", rate, printed) if _is_macro(one)]
                    row.append(_number(values[0]) if values else "-")
            if set(row) != {"-"}:
                rows.append((skill, title, *row))
    if not any(cell["world"].startswith("second-") for cell in cells):
        return ""
    titles = ("coverage", "p <= 0.05", "ten systems in different tiers")
    heads = ("skill", "metric", *(f"{title}, {which}" for title in titles for which in ("first", "second")))
    about = (
        "Macros of 100 patients (new), both generators (first: `reveal-` worlds, second: `second-` worlds): "
        "coverage of the interval, and how often equal systems have a small p or are in different tiers:"
    )
    return f"{about}\n\n{_table(heads, rows)}"


def _key(cell: Cell) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("task", "world", "n_patients", "metric", "n_systems"))


def _macros(cells: list[Cell]) -> str:
    own = [cell for cell in cells if cell["task"] == "score"]
    metrics = [name for name in TITLES if any(cell["metric"] == name for cell in own)]
    rows = []
    for world in dict.fromkeys(cell["world"] for cell in own):
        for n in sorted({cell["n_patients"] for cell in own if cell["world"] == world}):
            here = [cell for cell in own if (cell["world"], cell["n_patients"]) == (world, n)]
            row = [world, str(n)]
            for metric in metrics:
                values = [_only(here, metric, label, "coverage") for label in ("new", "before")]
                row.append("-" if values == [None, None] else " / ".join(map(_number_or_dash, values)))
            if set(row[2:]) != {"-"}:
                rows.append(tuple(row))
    heads = ("world", "patients", *(TITLES[name] for name in metrics))
    about = "Coverage of macros, new / before; a dash means that the cell was not simulated, or is not judged:"
    return f"{about}\n\n{_table(heads, rows)}"


def _only(cells: list[Cell], metric: str, label: str, rate: str, figure: str = "macro") -> float | None:
    rates = judged((cell for cell in cells if cell["metric"] == metric), label, rate)
    return next((one.rate for one in rates if one.figure == figure), None)


def _findings(cells: list[Cell]) -> str:
    """Return coverage and proportion of trials with an interval by prevalence, in a REVEAL half."""
    tables = []
    for world in ("reveal-good", "reveal-excellent", "second-good", "second-excellent"):
        own = [c for c in cells if (c["task"], c["world"], c["n_patients"]) == ("score", world, 100)]
        metrics = [name for name in TITLES if any(cell["metric"] == name for cell in own)]
        figures = [row["figure"] for cell in own[:1] for row in cell["rows"]]
        rows = []
        for figure in figures:
            row = [figure]
            for metric in metrics:
                cell = next((c for c in own if (c["metric"], c["label"]) == (metric, "new")), None)
                printed = {} if cell is None else {r["figure"]: r["printed"] for r in cell["rows"]}
                coverage = _only(own, metric, "new", "coverage", figure)
                text = "-" if coverage is None else _number(coverage)
                row.append(f"{text}, {100 * printed.get(figure, 0):.0f} %")
            rows.append(tuple(row))
        if rows:
            heads = ("finding", *(TITLES[name] for name in metrics))
            tables.append(f"`{world}`, 100 patients, by prevalence: coverage, and % of trials with an interval.\n\n"
                          + _table(heads, rows))  # fmt: skip
    return "\n\n".join(tables)


def _differences(cells: list[Cell]) -> str:
    rows = []
    for metric, title in TITLES.items():
        own = [cell for cell in cells if (cell["task"], cell["metric"]) == ("compare", metric)]
        equal = [cell for cell in own if not cell["world"].endswith("worse")]
        for n in sorted({cell["n_patients"] for cell in own}):
            row = [title, str(n)]
            for rate, printed, among in (("coverage", "printed", own), *(
                (name, "p_printed", equal) for name in ("p_05", "p_01", "any_finding", "any_finding_adjusted")
            )):  # fmt: skip
                at = [cell for cell in among if cell["n_patients"] == n]
                labels = ("new",) if rate == "any_finding_adjusted" else ("new", "before")
                row += [_range([one.rate for one in judged(at, label, rate, printed)]) for label in labels]
            rows.append(tuple(row))
    if not rows:
        return ""
    heads = (
        *("metric", "patients", "coverage", "before", "p <= 0.05", "before", "p <= 0.01", "before"),
        *("any finding p <= 0.05", "before", "any adjusted p <= 0.05"),
    )
    about = (
        "Differences of two systems: coverage, and how often equal systems have a small p, each from the lowest to the "
        "highest of all worlds, macros and findings. The last columns show how often at least one finding of two equal "
        "systems has a small p:"
    )
    return f"{about}\n\n{_table(heads, rows)}"


def _margins(cells: list[Cell]) -> str:
    return _pairs(
        [cell for cell in cells if cell["task"] == "margin"],
        {"non_inferior": "non-inferior"},
        "How often the macro is called non-inferior at a margin that equals its true loss (nominal 0.025):",
    )


def _tiers(cells: list[Cell]) -> str:
    return _pairs(
        [cell for cell in cells if cell["task"] == "tiers"],
        {"parted": "any two in different tiers", "worse_parted": "first differs from all others"},
        "How often `rank` separates systems (nominal 0.05 for equal systems; in worlds named worse the first system is "
        "worse, and the last columns are the power):",
    )


def _pairs(cells: list[Cell], rates: dict[str, str], about: str) -> str:
    rows: dict[tuple[Any, ...], dict[tuple[str, str], str]] = {}
    for rate in rates:
        for label in ("new", "before"):
            for one in judged(cells, label, rate, "p_printed"):
                cell = one.cell
                key = cell["world"], cell["n_systems"], cell["n_patients"], TITLES[cell["metric"]]
                rows.setdefault(key, {})[rate, label] = _number(one.rate)
    columns = [(rate, label) for rate in rates for label in ("new", "before")]
    heads = ("world", "systems", "patients", "metric", *(
        rates[rate] if label == "new" else label for rate, label in columns
    ))  # fmt: skip
    lines = [(*map(str, key), *(own.get(column, "-") for column in columns)) for key, own in sorted(rows.items())]
    return f"{about}\n\n{_table(heads, lines)}" if lines else ""


def _misses(cells: list[Cell]) -> str:
    rows, n_longer = [], 0
    for goal in GOALS:
        if "0.93" in goal.title:
            continue
        for one in goal.rates(cells, "new"):
            if goal.is_clearly_missed(one) and "differences cover" in goal.title and one.rate > 0.98:
                n_longer += 1
            elif goal.is_clearly_missed(one):
                where = (one.cell["world"], str(one.cell["n_patients"]), TITLES[one.cell["metric"]], one.figure)
                rows.append((*where, goal.title, _number(one.rate), f"{one.n_trials:.0f}"))
    heads = ("world", "patients", "metric", "finding", "goal", "simulated", "trials")
    longer = (
        f"In {n_longer} new cells, intervals of differences clearly cover more than 0.98: they are longer than needed."
    )
    about = (
        "Other new cells that miss a goal by more than two standard errors, except for the narrower goals of coverage:"
    )
    others = (
        f"{about}\n\n{_table(heads, rows)}"
        if rows
        else "No other cell misses its goal by more than two standard errors."
    )
    return f"{longer}\n\n{others}"


def _number(value: float) -> str:
    return f"{value:.3f}"


def _number_or_dash(value: float | None) -> str:
    return "-" if value is None else _number(value)


def _range(values: list[float]) -> str:
    if not values:
        return "-"
    ends = _number(min(values)), _number(max(values))
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
