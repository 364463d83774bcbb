"""Common arguments and options of commands, and functions that print tables, progress and errors."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli.progress import progress as progress  # commands write `terminal.progress`
from reveal_bench.printed_tables import PrintedTable

if TYPE_CHECKING:
    from reveal_bench.api.bench import Bench
    from reveal_bench.api.comparison_tables import Comparisons
    from reveal_bench.api.result_table import TableResult, TablesResult
    from reveal_bench.dataset.balance import Balance
    from reveal_bench.evaluation.compare import Comparison
    from reveal_bench.metrics.intervals import Estimate
    from reveal_bench.models.prices import Prices
    from reveal_bench.models.run_folder import RunSummary
    from reveal_bench.predictions.report import LintProblem

_UNBOUNDED = 10_000  # width, in characters, of tables that need not fit the terminal

Folder = Annotated[Path, typer.Argument(help="Dataset folder that `build` wrote.", show_default=False)]
PredictionFile = Annotated[
    Path, typer.Argument(help="Prediction file (JSONL, COCO results, CSV, Parquet) or run folder.", show_default=False)
]
Split = Annotated[
    str | None, typer.Option(help="Split of the folder; by default the run's, `released` or the only split.")
]
Findings = Annotated[
    str | None, typer.Option(help="Only ask about these findings or groups of findings, separated by commas.")
]
Subset = Annotated[Path | None, typer.Option(help="Only ask about images, studies or tasks with ids in this file.")]
FirstItems = Annotated[
    int | None, typer.Option("--limit", min=1, help="Only score the first images, studies or tasks (not questions).")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
AllowMissing = Annotated[bool, typer.Option("--allow-missing", help="Count unanswered questions as misses.")]
Metadata = Annotated[Path | None, typer.Option(help="submission.json with `thresholds` to apply; without it, 0.5.")]
Missing = Annotated[
    str | None,
    typer.Option(help="Count unanswered questions as a miss, or as an empty mask (undefined in mIoU)."),
]
GridSize = Annotated[int | None, typer.Option("--grid", help="Cells per side; by default the folder's.")]
Resamples = Annotated[int, typer.Option(min=1, max=100_000, help="Bootstrap replicates.")]
ResamplingUnit = Annotated[
    str, typer.Option(help="Resampled unit: patient, or the benchmark's unit (image, study or task).")
]
Ratings = Annotated[
    Path | None,
    typer.Option(help="Table of readers' ratings, for task benchmarks; models have the names of the files."),
]
Endpoint = Annotated[
    str | None, typer.Option(help="Base URL of an OpenAI-compatible API; its key is read from REVEAL_MODEL_KEY.")
]
OutputFormat = Literal["text", "csv", "markdown", "latex", "json"]
Format = Annotated[
    OutputFormat | None,
    typer.Option("--format", help="Format of the tables; text by default. CSV and JSON have unrounded fractions."),
]
FindingGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--finding-groups",
        help="Also print macro means of groups of findings: prevalence (head, medium, tail), NAME=FINDING,FINDING "
        "(repeatable) or a JSON file; by default the folder's groups.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Wide = Annotated[bool, typer.Option("--wide", help="Show every metric, even on a narrow terminal.")]
PriceIn = Annotated[str | None, typer.Option(help="Price per million input tokens, to compute the cost.")]
PriceOut = Annotated[str | None, typer.Option(help="Price per million output tokens, to compute the cost.")]
PriceCached = Annotated[str | None, typer.Option(help="Price per million cached input tokens, to compute the cost.")]

_NO_INTERVAL = (
    "no interval if too few patients support a score, if they have very unequal numbers of images, or if it would be "
    "too wide: docs/statistics.md"
)


def write_tables(result: TablesResult | Comparisons, out: Path | None) -> None:
    """Write the tables and figures of a result into a folder, if given, and print the paths."""
    for path in () if out is None else result.write(out):
        typer.echo(f"wrote {path}", err=True)


def tables_document(result: TablesResult) -> dict[str, Any]:
    """Return all tables of a result as one JSON document."""
    return {"caption": result.caption} | {name: table.plain for name, table in result.tables.items()}


def asked_part(
    folder: Path,
    split: str | None,
    findings: str | None,
    subset: Path | None,
    runs: Iterable[Path],
    *,
    limit: int | None = None,
) -> Path | Bench:
    """Return the folder, or the benchmark with the part that ``--findings``, ``--subset`` and ``--limit`` select.

    Parameters
    ----------
    subset : file with an id on each line; blank lines are ignored
    runs : prediction files or run folders, which may determine the split
    """
    if findings is None and subset is None and limit is None:
        return folder
    from reveal_bench.api.bench import as_bench
    from reveal_bench.predictions.files import read_ids

    ids = None if subset is None else read_ids(subset)
    return as_bench(folder, split, runs=runs).select(findings, ids=ids, limit=limit)


def format_of(form: OutputFormat | None, as_json: bool) -> OutputFormat:
    """Return the format selected by ``--format`` or its short form ``--json``.

    Raises
    ------
    ValueError
        If both are given and differ.
    """
    if as_json and form not in (None, "json"):
        raise ValueError(f"give one of --json and --format {form}")
    return "json" if as_json else form or "text"


def printed_as(result: TableResult, form: OutputFormat, document: Mapping[str, Any] | None = None) -> bool:
    """Print a result in a format for programs; return False for text, which commands print themselves.

    `document` is the JSON document without its `schema`; by default JSON is a list of the result's records.
    """
    if form == "json" and document is not None:
        typer.echo(json.dumps({"schema": 1, **document}, indent=2))
        return True
    writers = {"json": result.to_json, "csv": result.to_csv, "markdown": result.to_markdown, "latex": result.to_latex}
    if form in writers:
        typer.echo(writers[form](), nl=False)
    return form in writers


def print_scores(
    estimates: Sequence[Estimate],
    caption: Callable[[str], str],
    strata: Mapping[str, tuple[Estimate, int]] | None = None,
    *,
    positives: Mapping[str, int] | None = None,
    wide: bool = False,
) -> None:
    """Print scores with intervals, findings as rows and metrics as columns; then pooled scores, and strata.

    `caption` is given the units of the scores that are printed.
    """
    from reveal_bench.metrics.bootstrap import MACRO
    from reveal_bench.metrics.estimates import POOLED
    from reveal_bench.metrics.scales import estimate_text, groups_text, scale_text
    from reveal_bench.words import part_text

    pooled = [e for e in estimates if e.finding == POOLED]
    by_finding = [e for e in estimates if e.finding != POOLED]
    held = positives or {}
    by_finding = [replace(e, n=e.n_rows) if e.finding in held else e for e in by_finding]
    first = (by_finding or estimates)[0].metric  # some kinds only have pooled scores
    n = {e.finding: e.n for e in by_finding if e.metric == first}
    alike = {metric: own for metric in {e.metric for e in by_finding}
             if (own := _other_n(by_finding, metric, n))}  # fmt: skip
    cells = {}
    for e in by_finding:
        is_noted = e.n not in (0, n[e.finding]) and (e.finding == MACRO or e.metric not in alike)
        note = f" n={e.n}" if is_noted else ""
        cells[e.finding, e.metric] = estimate_text(e.metric, e.value, e.low, e.high) + note
    counts = {
        name: groups_text(first, count) if name == MACRO else part_text(held.get(name), count)
        for name, count in n.items()
    }
    in_pooled = [e.metric for e in pooled]
    _print_grid(cells, counts, lambda fitting: caption(scale_text([*fitting, *in_pooled])), alike, wide=wide)
    _print_pooled(pooled, strata or {})
    if any(e.missing_interval for e in estimates):
        say(_NO_INTERVAL)


def print_group_macros(macros: Mapping[str, Sequence[Estimate]], *, wide: bool = False) -> None:
    """Print macros over groups of findings, groups as rows and metrics as columns."""
    from reveal_bench.metrics.scales import estimate_text, groups_text

    if not macros:
        return
    cells = {
        (name, e.metric): estimate_text(e.metric, e.value, e.low, e.high) for name, part in macros.items() for e in part
    }
    counts = {name: groups_text(part[0].metric, part[0].n) for name, part in macros.items()}
    typer.echo()
    _print_grid(cells, counts, lambda _: "macros over groups of findings", head="group", wide=wide)


def _other_n(estimates: Sequence[Estimate], metric: str, n: Mapping[str, int]) -> int | None:
    """Return a metric's number of cases if it is equal for all findings and differs from the table's `n`."""
    from reveal_bench.metrics.bootstrap import MACRO

    own = {e.finding: e.n for e in estimates if e.metric == metric and e.finding != MACRO}
    return next(iter(own.values())) if len({*own.values()}) == 1 and any(n[name] != own[name] for name in own) else None


def _print_pooled(pooled: Sequence[Estimate], strata: Mapping[str, tuple[Estimate, int]]) -> None:
    """Print pooled scores over all labels, and the first metric's macro in every stratum."""
    from reveal_bench.metrics import METRICS
    from reveal_bench.metrics.scales import estimate_text, groups_text

    rows = [(METRICS[e.metric].title, estimate_text(e.metric, e.value, e.low, e.high), str(e.n)) for e in pooled]
    for name, (macro, size) in strata.items():
        n = str(size) if pooled else groups_text(macro.metric, macro.n)
        score = estimate_text(macro.metric, macro.value, macro.low, macro.high)
        rows.append((f"{METRICS[macro.metric].title}, macro; {name}", score, n))
    if not rows:
        return
    heads = ["over all labels"] * bool(pooled) + ["in a stratum"] * bool(strata)
    typer.echo()
    _print_table(PrintedTable((", or ".join(heads), "", "n"), rows))


def print_released(document: dict[str, Any]) -> None:
    """Print the scores that a leaderboard released for a submission, in the layout of :func:`print_scores`."""
    from reveal_bench.metrics.scales import estimate_text

    figures = document["score"]["figures"]
    cells = {}
    counts: dict[str, str] = {}
    for figure in figures:
        numbers = figure["value"], figure["low"], figure["high"]
        cells[figure["finding"], figure["metric"]] = estimate_text(figure["metric"], *numbers, decimals=0)
        counts.setdefault(figure["finding"], figure["n"])
    # Order findings as in the benchmark, after the averages, because the first metric may lack some findings
    places = {finding: i for i, finding in enumerate(document["score"]["shown"])}
    counts = {finding: counts[finding] for finding in sorted(counts, key=lambda finding: places.get(finding, -1))}
    caption = f"submission {document['id']}: released figures, percent with 95% intervals"
    _print_grid(cells, counts, lambda _: caption)
    say(document["score"]["note"])


def _print_grid(
    cells: dict[tuple[str, str], str],
    counts: dict[str, str],
    caption: Callable[[Sequence[str]], str],
    others: Mapping[str, int] = {},
    *,
    head: str = "finding",
    wide: bool = False,
) -> None:
    """Print a table of cells with keys (finding, metric); omit metrics that do not fit on the terminal, unless `wide`.

    `caption` is given the metrics that fit; `others` maps metrics to their number of cases if it differs from `counts`.
    """
    from reveal_bench.metrics import METRICS
    from reveal_bench.metrics.bootstrap import MACRO

    metrics = list(dict.fromkeys(metric for _, metric in cells))
    titles = {metric: METRICS[metric].title if metric in METRICS else metric for metric in metrics}
    heads = titles | {metric: f"{titles[metric]}, n={own}" for metric, own in others.items()}
    columns = {metric: [cells.get((finding, metric), "-") for finding in counts] for metric in metrics}
    width = _width(wide=wide)
    fitting = metrics if wide else _that_fit(width, counts, metrics, columns, heads)
    # Moving the macro's count next to its name leaves space for another metric
    if len(fitting) < len(metrics) and MACRO in counts:
        counts = {f"{MACRO} of {n}" if finding == MACRO else finding: "" if finding == MACRO else n
                  for finding, n in counts.items()}  # fmt: skip
        fitting = _that_fit(width, counts, metrics, columns, heads)
    rows = [(finding, n, *(columns[metric][i] for metric in fitting)) for i, (finding, n) in enumerate(counts.items())]
    table = PrintedTable((head, "n", *(heads[metric] for metric in fitting)), rows, caption(fitting))
    _print_table(table, [finding.split(" of ")[0] == MACRO for finding in counts], wide=True)
    _print_left_out(titles[metric] for metric in metrics if metric not in fitting)


def _that_fit(
    width: int,
    counts: Mapping[str, str],
    metrics: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    heads: Mapping[str, str],
) -> list[str]:
    """Return the leading metrics that fit beside findings and counts, at least one."""
    left = width - max(map(len, ("finding", *counts))) - max(map(len, ("n", *counts.values()))) - 2
    fitting: list[str] = []
    for metric in metrics:
        left -= 2 + max(map(len, (heads[metric], *columns[metric])))
        if left < 0 and fitting:
            break
        fitting.append(metric)
    return fitting


def print_comparisons(comparisons: Sequence[Comparison], caption: str, *, what: str, wide: bool = False) -> None:
    """Print the comparison of two systems in percent, one block per metric; `what` is the heading of differences.

    Unless `wide`, a long comparison shows the findings of only the first metric, and the macros of the others. On a
    narrow terminal, the systems' values are omitted, then the numbers of cases.
    """
    from reveal_bench.api.comparison_tables import in_short
    from reveal_bench.metrics import METRICS
    from reveal_bench.words import count_text

    every, comparisons = comparisons, comparisons if wide else in_short(comparisons)
    is_short = len(comparisons) < len(every)
    for left_out in ((), ("A", "B"), ("n", "A", "B")):
        table, is_strong = _of_comparisons(comparisons, caption, what, left_out, is_short=is_short)
        wrapped = max(0, max(len(row[0]) for row in table.rows if len(row) > 1) - 18)  # characters of the longest name
        if table.width - wrapped <= _width(wide=wide):
            break
    _print_table(table, is_strong, wide=wide)
    if is_short:
        say(f"--wide also shows {count_text(len(every) - len(comparisons), 'more difference')}")
    _print_left_out(left_out)
    if any(not math.isnan(one.estimate.value) and math.isnan(one.low_adjusted) for one in comparisons):
        say("no interval where too few patients differ or have the finding: docs/statistics.md")
    for one in comparisons:
        if one.reason and math.isnan(one.p_adjusted) and one.verdict is None:  # a verdict includes the reason
            say(f"{METRICS[one.metric].title}, {one.finding}: not tested, {one.reason}")


def _of_comparisons(
    comparisons: Sequence[Comparison], caption: str, what: str, left_out: Sequence[str], *, is_short: bool = False
) -> tuple[PrintedTable, list[bool]]:
    """Return (table without the columns `left_out`, True for each row to print in bold)."""
    from reveal_bench.metrics import METRICS
    from reveal_bench.metrics.bootstrap import MACRO
    from reveal_bench.metrics.scales import ends_text, groups_text, value_text
    from reveal_bench.words import p_text

    judged = ["verdict"] * any(c.verdict for c in comparisons)
    names = [name for name in ("n", "A", "B", what, "95% interval", "p", *judged) if name not in left_out]
    rows: list[tuple[str, ...]] = []
    is_strong, heading = [], ""
    for c in comparisons:
        is_other = is_short and c.metric != comparisons[0].metric
        title, label = METRICS[c.metric].title, c.finding
        if is_other:
            title, label = "other metrics, macro", title
        if title != heading:
            heading = title
            rows.append((heading,))
            is_strong.append(True)
        is_macro = c.finding.split(" ")[0] == MACRO  # macro of all findings or of a group
        n = str(c.n_a) if c.n_a == c.n_b else f"{c.n_a}, {c.n_b}"
        cells = {
            "n": groups_text(c.metric, n) if is_macro else n,
            "A": value_text(c.metric, c.a),
            "B": value_text(c.metric, c.b),
            what: value_text(c.metric, c.estimate.value),
            "95% interval": ends_text(c.metric, c.adjusted.low, c.adjusted.high),
            "p": p_text(c.p_adjusted),
            "verdict": c.verdict.word if c.verdict else "",
        }
        rows.append((label, *(cells[name] for name in names)))
        is_strong.append(is_macro)
    return PrintedTable(("finding", *names), rows, caption), is_strong


def print_balance(balance: Balance) -> None:
    """Print the balance of two halves: the chosen draw, and the eight categories that differ most."""
    shares, values = balance.categories, balance.values
    of_all = f" (draw {balance.taken} of {len(values)}, the worst {max(values):.2f})" if len(values) > 1 else ""
    say(f"largest standardized difference between the halves: {values[balance.taken - 1]:.2f}{of_all}")
    head = (f"the {min(8, len(shares))} largest of {len(shares)}", "released", "holdout", "difference")
    rows = [
        (
            share.column if share.category == "present" else f"{share.column}: {share.category or 'not known'}",
            f"{share.released:,} of {balance.released:,}",
            f"{share.holdout:,} of {balance.holdout:,}",
            f"{share.difference:+.2f}",
        )
        for share in shares[:8]
    ]
    _print_table(PrintedTable(head, rows))


def print_shown(result: TableResult, *, wide: bool | None = None) -> None:
    """Print a result's rows under its caption.

    `wide` is the value of ``--wide``, if the command has this option. False omits columns that do not fit, starting
    with the last of those that no option requested.
    """
    rows = result.printed_rows()
    first, *others = rows[0]
    requested = [name for name in result.requested if name in others]
    by_need = [first, *requested, *(name for name in others if name not in requested)]

    def table_of(n_columns: int) -> PrintedTable:
        names = [name for name in rows[0] if name in by_need[:n_columns]]
        return PrintedTable(names, [[row[name] for name in names] for row in rows], result.caption)

    n_columns = len(by_need)
    while wide is False and n_columns > 1 and table_of(n_columns).width > _width():
        n_columns -= 1
    _print_table(table_of(n_columns), wide=bool(wide))
    _print_left_out(name for name in rows[0] if name in by_need[n_columns:])
    if any(record.get("flag") for record in result.records):
        say(_NO_INTERVAL)


def print_run(summary: RunSummary) -> None:
    """Print the outcomes of a run's questions, by finding if there are several, and tokens and cost."""
    from reveal_bench.models.answer_words import STATUSES

    statuses = [name for name in (*STATUSES, "not_asked") if name in summary.by_status]
    counts_of = {"all": summary.by_status, **summary.by_finding}
    rows = [
        (finding, str(sum(counts.values())), *(str(counts.get(name, 0)) for name in statuses))
        for finding, counts in counts_of.items()
    ]
    counted = "questions" if "not_asked" in statuses else "asked"
    head = ("finding" if summary.by_finding else "", counted, *(name.replace("_", " ") for name in statuses))
    _print_table(PrintedTable(head, rows), [finding == "all" for finding in counts_of])
    say(usage_text(summary) + "; no cost, because no prices were given" * (summary.cost is None))


def usage_text(summary: RunSummary) -> str:
    """Return the tokens and the cost of a run, in words."""
    from reveal_bench.words import count_text

    cached = f" ({summary.tokens_cached:,} of them cached)" if summary.tokens_cached else ""
    cost = "" if summary.cost is None else f"; cost {summary.cost.normalize():f}"
    unknown = f"; {count_text(summary.without_usage, 'reply')} without token counts" if summary.without_usage else ""
    return f"tokens: {summary.tokens_in:,} in{cached}, {summary.tokens_out:,} out{cost}{unknown}"


def _print_table(table: PrintedTable, is_strong: Sequence[bool] = (), *, wide: bool = False) -> None:
    """Print a table under its caption, with strong rows in bold; it fits the terminal unless `wide`."""
    if table.caption:
        say(table.caption)
    head, *rows = table.to_lines(None if wide else _width())
    typer.secho(head, bold=True)
    for row, strong in zip_longest(rows, is_strong, fillvalue=False):
        typer.secho(row, bold=bool(strong) or None)


def say(text: str, **style: Any) -> None:
    """Print a text; if there is a width, wrap its lines at spaces and indent the continuation lines further."""
    width = _terminal_width() or _UNBOUNDED
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        wrapped = fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        typer.secho(wrapped if len(line) > width else line, **style)


def _print_left_out(columns: Iterable[str]) -> None:
    """Print the names of omitted columns, if any."""
    if names := ", ".join(columns):
        say(f"--wide also shows {names}")


def _width(*, wide: bool = False) -> int:
    """Return the width of the terminal in characters, or COLUMNS; 200 if output goes to a pipe without COLUMNS."""
    return _UNBOUNDED if wide else _terminal_width() or 200


def _terminal_width() -> int | None:
    """Return COLUMNS or the width of the terminal in characters; None if output goes to a pipe without COLUMNS."""
    has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return shutil.get_terminal_size().columns if has_width else None


def print_refusal(problem: dict[str, Any]) -> None:
    """Print a problem document's details, one per line: invalid metadata fields, or the linter's problems."""
    for entry in problem.get("errors", []):
        typer.echo(f"  {entry.get('field')}: {entry.get('rule')}", err=True)
    from reveal_bench.predictions.report import lines_by_rule

    report = problem.get("report") or {}
    for line in lines_by_rule(problems_of(report), report.get("format", "")):
        typer.echo(line, err=True)


def warnings_of(problems: Iterable[LintProblem], file_format: str) -> list[str]:
    """Return the first warnings among a file's problems, one line each, and the number of others."""
    lines = [one.to_line(file_format, with_severity=False) for one in problems if one.severity == "warning"]
    left = len(lines) - 3
    return [*lines[:3], *[f"and {left} more; `reveal-bench lint` lists them"] * (left > 0)]


def problems_of(report: Mapping[str, Any]) -> list[LintProblem]:
    """Return the problems in the JSON document of a lint report."""
    from reveal_bench.predictions.report import LintProblem

    # A server's report omits nulls and may have additional fields
    names = [field.name for field in fields(LintProblem)]
    return [LintProblem(**{name: entry.get(name) for name in names}) for entry in report.get("problems", [])]


def shortened(lines: Sequence[str]) -> list[str]:
    """Return the first fifty lines, and a line with the number of others."""
    return list(lines) if len(lines) <= 50 else [*lines[:50], f"... and {len(lines) - 50:,} more"]


def warn(warnings: Sequence[str]) -> None:
    """Print warnings to standard error, a line each."""
    for warning in warnings:
        say(f"warning: {warning}", fg="yellow", err=True)


def prices_of(price_in: str | None, price_out: str | None, price_cached: str | None = None) -> Prices | None:
    """Return the prices given as options; None if none are given.

    Raises
    ------
    ValueError
        If one price is given without the other, or a price is not a number of at least 0.
    """
    if price_in is None or price_out is None:
        if (price_in, price_out, price_cached) != (None, None, None):
            raise ValueError("give both of `--price-in` and `--price-out`, or neither")
        return None
    from reveal_bench.models.prices import Prices

    try:
        return Prices.from_text(price_in, price_out, price_cached)
    except ArgumentError as error:
        raise ValueError(error.spelled(lambda name: f"`--price-{name.removeprefix('tokens_')}`")) from None


def numbers_of(argument: str, text: str) -> list[float]:
    """Return the numbers in a text that are separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(argument, "must be increasing numbers, such as 40,65", repr(text)) from None


def check_outside_datasets(out: Path | None, option: str) -> None:
    """Raise ValueError if `out` is inside a dataset folder, and so might be published."""
    for place in () if out is None else (out.resolve(), *out.resolve().parents):
        if (place / "manifest" / "benchmark.json").is_file():
            raise ValueError(f"`{option}` must be outside dataset folders, which may be published, got {out}")
