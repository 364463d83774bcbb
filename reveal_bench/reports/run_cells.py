"""What the grid does to hit rates: questions that the fallback rule decides, and runs that repeat a few cells.

Both after paper 000. Section 3.3: where the reference covers half of no cell, any cell that it touches is a hit; that
was so of 4.4 % of its images. Section 3.5: MedGemma at a temperature of 0 gave 96.7 % of its answers in two cells,
which is nearly no answer to the picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.kinds.localization.scoring import list_cases
from reveal_bench.masks import pack_regions
from reveal_bench.metrics.localization import cell_coverage
from reveal_bench.reports.heat import answered_cells
from reveal_bench.reports.page import Csv, PageTable
from reveal_bench.reports.run_hits import HitRun
from reveal_bench.reports.style import NOTHING, percent
from reveal_bench.words import count_text

TOP = (1, 2, 5)
"""How many of a run's commonest cells are counted together."""
FEW_CELLS, MOST_SHARE = 2, 0.9
"""More than this share of the answers in so few cells is warned of."""


def fallback_counts(
    records: Sequence[LocalizationRecord], findings: Sequence[str], grid: int
) -> dict[str, tuple[int, int]]:
    """Finding -> (questions whose reference covers half of no cell, questions whose reference covers some of one)."""
    counts = {finding: [0, 0] for finding in findings}
    for _, finding, reference in list_cases(records):
        if finding not in counts:
            continue
        most = int(cell_coverage(pack_regions([reference.region], [reference.size]), 0, Grid(grid)).max())
        if most > 0:
            counts[finding][0] += 2 * most < (2 * min(reference.size)) ** 2
            counts[finding][1] += 1
    return {finding: (n, of) for finding, (n, of) in counts.items()}


def fallback_table(counts: Mapping[str, tuple[int, int]], grid: int) -> PageTable:
    """How many questions the fallback rule decides, by pathology and in all."""
    n, of = (sum(pair[i] for pair in counts.values()) for i in (0, 1))
    lines = [("All", n, of), *((finding, *pair) for finding, pair in counts.items())]
    rows = [(name, f"{of:,}", f"{n:,}", percent(n / of) if of else NOTHING) for name, n, of in lines]
    caption = (
        f"Questions whose reference covers half of no cell of the {grid} × {grid} grid, so that any cell that it "
        "touches is a hit. Paper 000 reports 4.4 % of its images."
    )
    plain = Csv.of(
        "fallback-rule", ("finding", "questions", "by_fallback", "grid"), [(*line, grid) for line in _plain(lines)]
    )
    head = ("Pathology", "Questions", "By the fallback rule", "Share")
    return PageTable(head, rows, caption, "Questions that the fallback rule decides", csv=plain)


def _plain(lines: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    return [("all" if name == "All" else name, of, n) for name, n, of in lines]


def cell_counts(run: HitRun, sizes: Mapping[str, tuple[int, int]]) -> Counter[str]:
    """How often a run answers each cell, over all epochs; of points, the cells that hold them.

    Parameters
    ----------
    sizes : image_id -> (height, width)
    """
    grid = Grid(run.grid)
    cells = (cells for epoch in run.predictions for cells in answered_cells(epoch, sizes, grid))
    return Counter(cell for own in cells for cell in own if cell is not None)


def top_cells_table(counts: Mapping[str, Counter[str]]) -> PageTable:
    """The commonest cells of every run and what share of its answers they hold; `counts` by label."""
    rows, plain = [], []
    for label, cells in counts.items():
        names = [cell for cell, _ in cells.most_common(max(TOP))]
        shares = [_share_of(cells, k) for k in TOP]
        rows.append(
            (label, f"{cells.total():,}", f"{len(cells):,}", ", ".join(names) or NOTHING, *map(percent, shares))
        )
        plain += [(label, k, " ".join(names[:k]), share, cells.total()) for k, share in zip(TOP, shares, strict=True)]
    head = ("Run", "Answers", "Different cells", "Commonest first", *(f"In {count_text(k, 'cell')}" for k in TOP))
    caption = (
        "Share of a run's answers, of all findings and epochs, in its commonest cells. Paper 000 found 96.7 % of "
        "MedGemma’s answers at a temperature of 0 in two cells."
    )
    file = Csv.of("commonest-cells", ("run", "k", "cells", "share", "answers"), plain)
    return PageTable(head, rows, caption, "Commonest cells", csv=file)


def _share_of(cells: Counter[str], k: int) -> float | None:
    """Share of the answers that the `k` commonest cells hold; None without answers."""
    return sum(n for _, n in cells.most_common(k)) / cells.total() if cells else None


def repeated(counts: Mapping[str, Counter[str]]) -> list[str]:
    """A warning for every run whose answers nearly all fall in a few cells."""
    told = []
    for label, cells in counts.items():
        share = _share_of(cells, FEW_CELLS)
        if share is not None and share > MOST_SHARE and cells.total() > FEW_CELLS:
            names = " or ".join(cell for cell, _ in cells.most_common(FEW_CELLS))
            told.append(f"{label} gives {percent(share)} of its answers in {names}: they hardly depend on the image")
    return told
