"""The tables of a report: for the page as text in percent, for CSV as plain numbers in full precision.

After paper 000, Tables 1 and 2 (the same information). In CSV, hit rates are fractions, undefined is an empty field,
and every number stands beside the signature that it can be repeated by. No table names an image or a patient.

Published rows stand beside the user's own runs where dataset and metric are the same: which can, says
:mod:`reveal_bench.evaluation.published`. They were measured on the whole test split; a `released` split or a holdout is
a part of it, which the caption says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from reveal_bench.evaluation.published import (
    GRID,
    OwnScores,
    ReferenceRow,
    read_reference_rows,
    rows_beside,
    why_nothing_compares,
)
from reveal_bench.geometry import Grid
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.models.answer_words import STATUSES
from reveal_bench.reports.figures import CATEGORY_PAINTS
from reveal_bench.reports.page import Csv, PageTable, Part, Text, leading
from reveal_bench.reports.run_errors import CATEGORIES, Share
from reveal_bench.reports.run_hits import Scores
from reveal_bench.reports.runs import ReportRun, World
from reveal_bench.reports.style import NOTHING, interval_of, signed
from reveal_bench.words import percent_number, typeset

OWN = "this report"
"""In the place of a paper."""


def _percent(value: float) -> str:
    return typeset(percent_number(value))


def _both(estimate: Estimate) -> str:
    return f"{_percent(estimate.value)}\n{interval_of(estimate.low, estimate.high)}"


def _grids(scores: Scores) -> dict[int, int]:
    """Grid -> the first run on it, coarse grids first."""
    return {grid: next(i for i, run in enumerate(scores.runs) if run.grid == grid)
            for grid in sorted({run.grid for run in scores.runs})}  # fmt: skip


def means_table(scores: Scores, reference: int) -> PageTable:
    """Mean hit rate by model and prompt style, and the paired difference from the reference run."""
    rows: list[tuple[str, ...]] = []
    plain: list[tuple[Any, ...]] = []
    for grid, i in _grids(scores).items():
        chance, spread = scores.estimates(i, chance=True)[MACRO], scores.deviations(i, chance=True)[MACRO]
        cells = f"{grid} × {grid}"
        rows.append((f"Expected by chance, {cells}", NOTHING, cells, "cell", _both(chance), _percent(spread), NOTHING))
        plain.append(("chance", "", grid, "cell", chance.value, spread, chance.low, chance.high, None, None, None,
                      chance.signature))  # fmt: skip
    for i, run in enumerate(scores.runs):
        macro, spread = scores.estimates(i)[MACRO], scores.deviations(i)[MACRO]
        gain = scores.difference(i, reference) if i != reference else (math.nan,) * 3
        told = "reference" if i == reference else f"{signed(gain[0])}\n{signed(gain[1])} to {signed(gain[2])}"
        on = f"{run.grid} × {run.grid}" if run.metric == "grid_hit" else NOTHING
        rows.append((run.label, run.style or NOTHING, on, run.protocol, _both(macro), _percent(spread), told))
        plain.append((run.label, run.style or "", run.grid, run.protocol, macro.value, spread, macro.low, macro.high,
                      *gain, macro.signature))  # fmt: skip
    label = scores.runs[reference].label
    caption = (
        f"Mean hit rate over {len(scores.findings)} pathologies, in percent, with 95 % interval and bootstrap standard "
        f"deviation; difference from {label} in percentage points with its paired 95 % interval."
    )
    head = ("Run", "Prompt", "Grid", "Answers", "Mean hit rate (%)", "SD", "Difference")
    plain_head = ("run", "style", "grid", "protocol", "mean_hit_rate", "sd", "low", "high", "difference",
                  "difference_low", "difference_high", "signature")  # fmt: skip
    return PageTable(head, rows, caption, "Mean hit rate", csv=Csv.of("mean-hit-rates", plain_head, plain))


def rates_table(scores: Scores, order: Sequence[str]) -> PageTable:
    """Hit rate by run and pathology, with chance and counts."""
    names = [MACRO, *order]
    by_run = [scores.estimates(i) for i in range(len(scores.runs))]
    grids = _grids(scores)
    chances = [scores.estimates(i, chance=True) for i in grids.values()]
    counts = dict(zip(scores.findings, scores.chance[0].n.tolist(), strict=True))
    rows, best = [], set()
    for row, name in enumerate(names):
        told = ("Mean", NOTHING) if name == MACRO else (name, f"{counts[name]:,}")
        rows.append((*told, *(_both(found[name]) for found in (*by_run, *chances))))
        values = {2 + i: found[name].value for i, found in enumerate(by_run)}
        n_cases = sum(counts.values()) if name == MACRO else counts[name]
        best |= {(row, column) for column in leading(values, n_cases)}
    caption = (
        "Hit rate in percent by run and pathology, with 95 % interval; bold, the highest of the runs, from ten "
        "questions on. Each question is one image with one pathology."
    )
    plain_head = ("run", "model", "style", "grid", "protocol", "metric", "finding", "value", "sd", "low", "high", "n",
                  "n_undefined", "n_empty_replicates", "signature")  # fmt: skip
    plain = tuple(row for i in range(len(scores.runs)) for row in _plain_rates(scores, i, names))
    expected = (f"Expected by chance, {grid} × {grid}" for grid in grids)
    head = ("Pathology", "Questions", *(run.label for run in scores.runs), *expected)
    file = Csv.of("hit-rates", plain_head, plain)
    return PageTable(head, rows, caption, "Hit rate by pathology", frozenset(best), csv=file)


def _plain_rates(scores: Scores, index: int, names: Sequence[str]) -> list[tuple[Any, ...]]:
    run = scores.runs[index]
    rows: list[tuple[Any, ...]] = []
    for is_chance in (False, True):
        found, spread = scores.estimates(index, chance=is_chance), scores.deviations(index, chance=is_chance)
        for name in names:
            e = found[name]
            rows.append((run.label, run.model, run.style, run.grid, run.protocol, e.metric, name, e.value, spread[name],
                         e.low, e.high, e.n, e.n_undefined, e.n_empty_replicates, e.signature))  # fmt: skip
    return rows


def runs_table(
    runs: Sequence[ReportRun], own_names: Sequence[str] = (), own: Sequence[tuple[object, ...]] = ()
) -> PageTable:
    """What each run is: model, settings, versions, and the SHA-256 of what was scored; `own` columns of its kind."""
    rows, plain = [], []
    for run, own_values in zip(runs, own or [()] * len(runs), strict=True):
        info = run.run.info if run.run is not None else None
        settings = info.settings if info is not None else None
        sent = {} if info is None else {k: v for k, v in info.parameters.items() if v is not None}
        harness = {} if info is None else dict(info.harness)
        how = [f"{settings.shots} shots from {settings.shots_split}"] if settings is not None and settings.shots else []
        how += [f"{key} {value}" for key, value in sent.items()]
        n_epochs = len(run.predictions)
        versions = ", ".join(f"{name} {version}" for name, version in harness.items())
        picture = "" if settings is None else f"{settings.side} px, prompt {settings.prompt_version}"
        rows.append((run.label, run.model if info is not None else "prediction file", run.style or NOTHING,
                     picture or NOTHING, "; ".join(how) or NOTHING, f"{n_epochs}", f"{run.n_missing:,}",
                     versions or NOTHING, "\n".join(value[:12] for value in run.sha256)))  # fmt: skip
        plain.append((run.label, run.model, run.style, *own_values, n_epochs, run.n_missing,
                      picture, "; ".join(how), versions, " ".join(run.sha256)))  # fmt: skip
    head = ("Run", "Model", "Prompt", "Picture", "Settings", "Epochs", "Without prediction", "Harness", "SHA-256")
    plain_head = ("run", "model", "style", *own_names, "epochs", "n_missing", "picture",
                  "settings", "harness", "sha256")  # fmt: skip
    caption = (
        "The runs as they were read. Without prediction: questions, over all epochs, that have none. SHA-256: first "
        "digits, of each prediction file."
    )
    return PageTable(head, rows, caption, "Runs", csv=Csv.of("runs", plain_head, plain))


def costs_table(runs: Sequence[ReportRun], means: Mapping[str, Sequence[float]], unanswered: str) -> PageTable | None:
    """What became of the questions of the run folders, and what they cost; None without a run folder.

    Parameters
    ----------
    means : label -> mean hit rate by epoch; empty where answers are not scored so
    unanswered : what questions without an answer are
    """
    rows, plain = [], []
    folders = [run for run in runs if run.run is not None]
    summaries = [run.run.summary for run in folders if run.run is not None]
    used = [
        status for status in (*STATUSES, "not_asked") if any(summary.by_status.get(status) for summary in summaries)
    ]
    for run, summary in zip(folders, summaries, strict=True):
        cost = None if summary.cost is None else f"{summary.cost.normalize():f}"
        counts = [summary.by_status.get(status, 0) for status in used]
        tokens = (summary.tokens_in, summary.tokens_cached, summary.tokens_out)
        row = (run.label, f"{summary.n_expected:,}", *(f"{n:,}" for n in (*counts, *tokens, summary.without_usage)))
        told, values = _by_epoch(means[run.label]) if means else ((), ())
        rows.append((*row, cost or NOTHING, *told))
        plain.append((run.label, summary.n_expected, *counts, *tokens, summary.without_usage, cost, *values))
    if not rows:
        return None
    head = ("Run", "Asked", *(status.replace("_", " ").capitalize() for status in used), "Tokens in", "of these cached",
            "Tokens out", "Without usage", "Cost", *["Mean hit rate by epoch (%)"] * bool(means))  # fmt: skip
    plain_head = ("run", "asked", *used, "tokens_in", "tokens_cached", "tokens_out", "without_usage", "cost",
                  *(("epochs", "macro_mean_over_epochs", "macro_sd_over_epochs") if means else ()))  # fmt: skip
    caption = (
        "What became of every question of the run folders (times epochs), and what it cost in the currency of the "
        "prices given; without usage: replies without counts of tokens, which the cost leaves out. Questions without "
        f"an answer are {unanswered}." + (" SD: standard deviation over epochs." if means else "")
    )
    return PageTable(head, rows, caption, "Failures and costs", csv=Csv.of("failures-and-costs", plain_head, plain))


def _by_epoch(means: Sequence[float]) -> tuple[tuple[str], tuple[int, float, float]]:
    spread = float(np.std(means, ddof=1)) if len(means) > 1 else math.nan
    mean = float(np.mean(means))
    told = _percent(mean) + ("" if math.isnan(spread) else f"\nSD {_percent(spread)} of {len(means)}")
    return (told,), (len(means), mean, spread)


def errors_table(shares: Mapping[str, Sequence[Sequence[Share]]]) -> PageTable:
    """Mean share of each error category by run; the CSV has every pathology.

    Parameters
    ----------
    shares : run label -> per epoch, from :func:`reveal_bench.reports.run_errors.shares`; the text is of the first
    """
    used = [c for c in CATEGORIES if any(s.category == c and s.value > 0 for run in shares.values() for s in run[0])]
    rows, plain = [], []
    for label, epochs in shares.items():
        found = {share.category: share for share in epochs[0] if share.finding == MACRO}
        cells = [f"{_percent(found[c].value)}\n{interval_of(found[c].low, found[c].high)}" for c in used]
        rows.append((label + (" (epoch 1)" if len(epochs) > 1 else ""), *cells))
        plain += [
            (label, number, s.finding, s.category, s.value, s.sd, s.low, s.high, s.n, s.n_misses, s.n_reviewed)
            for number, epoch in enumerate(epochs, start=1)
            for s in epoch
        ]
    head = ("Run", *(CATEGORY_PAINTS[c][0].capitalize() for c in used))
    plain_head = ("run", "epoch", "finding", "category", "share", "sd", "low", "high", "n", "n_misses", "n_reviewed")
    caption = (
        "Mean share of each category over pathologies, in percent of the questions on frontal images, with 95 % "
        "percentile interval over resampled patients. A share is undefined for a pathology of whose misses none was "
        "reviewed."
    )
    return PageTable(head, rows, caption, "Error categories", csv=Csv.of("error-categories", plain_head, plain))


def heat_rows(label: str, shares: Mapping[str, Any], n: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """Rows of ``heat-maps.csv``: run, finding, cell, share and n."""
    rows: list[tuple[Any, ...]] = []
    for finding, cells in shares.items():
        grid = Grid(len(cells))
        flat = np.asarray(cells).ravel().tolist()
        rows += [(label, finding, cell, share, n[finding]) for cell, share in zip(grid.cells, flat, strict=True)]
    return rows


def published_parts(own: Sequence[OwnScores], world: World) -> Iterator[Part]:
    """Tables of published and own rows, one per metric, and why the other rows do not stand beside these runs."""
    rows = read_reference_rows(world.info.benchmark)
    if not rows:
        return
    whole = why_nothing_compares(rows, world.info, world.split)
    if whole:
        yield Text(whole)
        return
    shown = set()
    for metric in dict.fromkeys(one.metric for one in own):
        beside = [row for row in rows if metric in row.figures]
        of_grid = [one for one in own if one.metric == metric and (metric != "grid_hit" or one.grid == GRID)]
        others = [one.label for one in own if one.metric == metric and one not in of_grid]
        if beside and of_grid:
            shown |= {id(row) for row in beside}
            yield _published_table(metric, beside, of_grid, world)
        if beside and others:
            cells = f"{GRID} × {GRID}"
            yield Text(f"Not comparable: {', '.join(others)}, on another grid than the {cells} of the published rows.")
    left = [row for row in rows if id(row) not in shown]
    if left:
        metrics = "; ".join(sorted({METRICS[name].title for row in left for name in row.figures}))
        names = "; ".join(dict.fromkeys(row.name for row in left))
        yield Text(f"Of other systems only metrics are published that no run here is scored by ({metrics}): {names}.")


def _published_table(metric: str, beside: Sequence[ReferenceRow], own: Sequence[OwnScores], world: World) -> PageTable:
    findings, lines = rows_beside(metric, own, beside)
    rows, plain = [], []
    for line in lines:
        name, source, figures = line.system, line.source or OWN, [line.values[finding] for finding in findings]
        shown = f"{name} ({source})" if line.source else name
        rows.append((shown, *map(_percent, (line.mean, *figures))))
        plain.append((name, source, metric, "mean", line.mean))
        plain += [(name, source, metric, finding, value) for finding, value in zip(findings, figures, strict=True)]
    part = f"; these runs answer its part {world.split}, of {len(world.records):,} images" * (world.split != "test")
    caption = (
        f"{METRICS[metric].title} in percent; published rows as printed, of the whole test split{part}. Mean: over the "
        f"{len(findings)} findings that every row has. How the papers measured: "
        f"{' '.join(dict.fromkeys(row.protocol for row in beside))}"
    )
    csv = Csv.of(f"published-{metric.replace('_', '-')}", ("system", "source", "metric", "finding", "value"), plain)
    head = ("System", "Mean", *(name.replace("mediastinum", "\u00admediastinum") for name in findings))
    return PageTable(head, rows, caption, f"Published {METRICS[metric].title.lower()}", csv=csv)
