"""Draw docs/coverage.svg: coverage against skill, number of patients and prevalence, before and new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

METRICS = {
    "f1": "F1",
    "cohen_kappa": "kappa",
    "recall": "recall",
    "auroc": "AUROC",
    "average_precision": "av. precision",
    "point_hit": "hit rate",
    "mask_iou": "IoU",
}
SKILLS = {
    "reveal-chance": "chance",
    "reveal-poor": ".75",
    "reveal-good": ".95",
    "reveal-very-good": ".99",
    "reveal-excellent": ".998",
}
"""World -> AUROC of its systems, for the axis."""
LEAST = 0.7
WIDTH, LEFT, TOP, PANEL, HEIGHT, GAP = 760, 96, 58, 196, 62, 20
STYLES = {"before": 'fill="#fff" stroke="#b4651e" stroke-width="1.4"', "new": 'fill="#1b6ca8"'}

Point = tuple[float, float]


class Column(NamedTuple):
    """One column of panels: title, ticks of the axis, and the cells and figure that each tick shows."""

    title: str
    ticks: Sequence[str]
    selected: Sequence[tuple[str, int, str]]


def columns(cells: list[dict[str, Any]]) -> list[Column]:
    """Return the three columns of panels; a selection is (world, number of patients, figure)."""
    of_good = [c for c in cells if (c["task"], c["world"], c["n_patients"]) == ("score", "reveal-good", 100)]
    findings = [row["figure"] for cell in of_good[:1] for row in cell["rows"] if row["figure"] != "macro"]
    sizes = (50, 100, 200, 300)
    return [
        Column("macro, 100 patients, by AUROC", list(SKILLS.values()), [(world, 100, "macro") for world in SKILLS]),
        Column("macro, AUROC .998, by patients", list(map(str, sizes)),
               [("reveal-excellent", n, "macro") for n in sizes]),
        Column("finding, AUROC .95, by prevalence in %", [name.split()[0] for name in findings],
               [("reveal-good", 100, name) for name in findings]),
    ]  # fmt: skip


def draw(cells: list[dict[str, Any]]) -> str:
    """Return the plot as SVG text."""
    rates = {
        (c["metric"], c["label"], c["world"], c["n_patients"], row["figure"]): row["coverage"]
        for c in cells
        if c["task"] == "score"
        for row in c["rows"]
        if row.get("printed", 0) * c["n_trials"] >= 200 and "coverage" in row
    }
    height = TOP + len(METRICS) * (HEIGHT + GAP) + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        ' font-size="11">',
        "<title>Coverage of 95% intervals in the simulated worlds, new and before</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<circle cx="{LEFT + 4}" cy="14" r="3.5" {STYLES["new"]}/><text x="{LEFT + 12}" y="18">new</text>',
        f'<circle cx="{LEFT + 64}" cy="14" r="3.5" {STYLES["before"]}/><text x="{LEFT + 72}" y="18">before</text>',
        f'<text x="{LEFT + 130}" y="18" fill="#555">'
        f"coverage; green: 0.93 to 0.97; at the lower edge: {LEAST:g} or less</text>",
    ]
    for i, column in enumerate(columns(cells)):
        x = LEFT + i * (PANEL + GAP + 5)
        out.append(f'<text x="{x}" y="{TOP - 12}" font-size="10">{column.title}</text>')
        for j, metric in enumerate(METRICS):
            y = TOP + j * (HEIGHT + GAP)
            out += _panel(x, y, column, metric, rates)
            if i == 0:
                out.append(f'<text x="4" y="{y + HEIGHT / 2 + 4}">{METRICS[metric]}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _panel(x: float, y: float, column: Column, metric: str, rates: dict[Any, float]) -> list[str]:
    def down(coverage: float) -> float:
        return round(y + HEIGHT * (1 - (max(coverage, LEAST) - LEAST) / (1 - LEAST)), 1)

    out = [
        f'<rect x="{x}" y="{y}" width="{PANEL}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
        f'<rect x="{x}" y="{down(0.97)}" width="{PANEL}" height="{down(0.93) - down(0.97):.1f}" fill="#dcebd5"/>',
    ]
    out += [
        f'<text x="{x - 4}" y="{down(v) + 3}" text-anchor="end" font-size="9">{v:g}</text>' for v in (0.7, 0.8, 0.9)
    ]
    step = PANEL / max(len(column.ticks), 1)
    across = [round(x + step * (k + 0.5), 1) for k in range(len(column.ticks))]
    for at, tick in zip(across, column.ticks, strict=True):
        out.append(f'<text x="{at}" y="{y + HEIGHT + 11}" text-anchor="middle" font-size="9">{tick}</text>')
    for label, style in STYLES.items():
        points = [
            (at, down(rates[metric, label, *where]))
            for at, where in zip(across, column.selected, strict=True)
            if (metric, label, *where) in rates
        ]
        out += [f'<circle cx="{at}" cy="{level}" r="3.2" {style}/>' for at, level in points]
    return out
