"""The report of runs: one HTML page, its figures as PNG and SVG, its tables as CSV.

It shows what paper 000 shows in Figures 2 to 4 and 6 to 8 and Tables 1 and 2, in this project's own look. The numbers
are those of ``reveal-bench score``; the page and its files depend on the runs, the folder and the options alone: no
time of day, no path. Nothing in it names an image or a patient.

The page of a report: one HTML file that holds all it shows, for screen, telephone and paper, without a script.

Every text that comes from a run is escaped. Figures are PNG in data URIs on white cards; figures and tables that are
wider than the screen scroll in boxes of their own, which the keyboard reaches.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import reveal_bench
from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.files import write_all
from reveal_bench.geometry import Grid
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.reports.anatomy import Regions
from reveal_bench.reports.figure_style import missing_glyphs, render
from reveal_bench.reports.heat import average_picture, prediction_shares, truth_shares
from reveal_bench.reports.run_errors import CATEGORIES, Reviews, Share, categorize
from reveal_bench.reports.run_errors import shares as shares_of
from reveal_bench.reports.run_figures import (
    ErrorShares,
    Illustration,
    by_difference,
    draw_errors,
    draw_grids,
    draw_heat,
    draw_hit_rates,
    draw_prompts,
    percent,
)
from reveal_bench.reports.run_tables import (
    NOTHING,
    Table,
    costs_table,
    errors_table,
    heat_rows,
    means_table,
    rates_table,
    runs_table,
    to_csv,
)
from reveal_bench.reports.runs import (
    Progress,
    Scores,
    World,
    core_runs,
    load_runs,
    open_world,
    score_runs,
    short_names,
)

__all__ = ["PAGE", "write_run_report"]

MOST_ON_PORTRAIT = 9
"""Columns of a table that fit on upright paper; wider ones are printed across."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --line: #d0d7de; --link: #1f5fa8;
  --panel: #f6f8fa; --warn: #6b4200; --warn-paper: #fff4db; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #a3adb8; --paper: #0f1318; --line: #333c46;
  --link: #7db8f0; --panel: #171d24; --warn: #ffd58a; --warn-paper: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 1rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.65rem; line-height: 1.2; margin: .6rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
a { color: var(--link); }
.sub, figcaption, .made { color: var(--soft); }
.sub { margin: .3rem 0 .8rem; }
.notice { margin: .4rem 0; padding: .5rem .8rem; color: var(--warn); background: var(--warn-paper); border-radius: 6px;
  font-weight: 600; }
.abstract { margin: 1rem 0; padding: .2rem 1rem; background: var(--panel); border-radius: 8px; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .8rem; }
p, li, figcaption, .abstract { max-width: 54rem; }
figure { margin: 1.4rem 0 2.2rem; max-width: 54rem; }
.scroll { overflow-x: auto; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.card { background: #ffffff; border: 1px solid var(--line); border-radius: 8px; padding: .6rem; }
.card img { display: block; width: 100%; min-width: 660px; height: auto; }
figcaption { margin-top: .5rem; font-size: .92em; }
figcaption strong, .head strong { color: var(--ink); }
.head { margin: 1.4rem 0 .4rem; font-size: .92em; color: var(--soft); }
table { border-collapse: collapse; font-size: .84em; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .3rem .45rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { vertical-align: bottom; font-weight: 600; border-bottom: 2px solid var(--soft); max-width: 9rem; }
tbody th { font-weight: 400; min-width: 8.5rem; max-width: 14rem; position: sticky; left: 0; background: var(--paper); }
thead th:first-child, tbody th, .words td, .words thead th { text-align: left; }
td small { display: block; color: var(--soft); white-space: nowrap; font-size: .9em; }
td.best { font-weight: 700; }
td.best small { font-weight: 400; }
code { font-size: .88em; }
@page wide { size: A4 landscape; }
@media print { .wide { page: wide; }
  body { max-width: none; font-size: 10pt; } .card { border: 0; padding: 0; }
  nav { display: none; }
  figure, tr { break-inside: avoid; } .scroll { overflow: visible; } .card img { min-width: 0; }
  table { font-size: 7pt; } tbody th { position: static; min-width: 0; } th, td { padding: .15rem .3rem; } }
"""


@dataclass(frozen=True)
class ShownFigure:
    """A figure on the page: its PNG, and the paths of its files relative to the page."""

    title: str
    caption: str
    alt: str
    png: bytes
    files: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it; `key` is its anchor."""

    key: str
    heading: str
    html: str


def figure_html(number: int, figure: ShownFigure) -> str:
    """The figure with its number, caption and links to its files."""
    data = base64.b64encode(figure.png).decode("ascii")
    links = ", ".join(
        f'<a href="{escape(file)}">{escape(file.rpartition(".")[2].upper())}</a>' for file in figure.files
    )
    return (
        f'<figure><div class="card scroll" tabindex="0" role="group" aria-label="Figure {number}">'
        f'<img alt="{escape(figure.alt)}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption><strong>Figure {number}. {escape(figure.title)}.</strong> {_text(figure.caption)} "
        f"Files: {links}.</figcaption></figure>\n"
    )


def table_html(number: int, table: Table, file: str) -> str:
    """The table with its number, caption and a link to its CSV; words are set left, numbers right."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "".join(_row_html(table, i) for i in range(len(table.rows)))
    label = f"Table {number}. {table.title}"
    kind = ' class="words"' if table.is_words else ""
    wide = " wide" if len(table.head) > MOST_ON_PORTRAIT else ""
    return (
        f'<p class="head"><strong>{escape(label)}.</strong> {_text(table.caption)} '
        f'File: <a href="{escape(file)}">CSV</a>.</p>'
        f'<div class="scroll{wide}" tabindex="0" role="group" aria-label="{escape(label)}"><table{kind}>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )


def _text(text: str) -> str:
    """Escaped; a grid such as 8 × 8 is not broken."""
    return escape(text.replace(" × ", "\u00a0×\u00a0"))


def _row_html(table: Table, index: int) -> str:
    first, *rest = table.rows[index]
    cells = []
    for column, text in enumerate(rest, start=1):
        value, *below = text.split("\n")
        small = "".join(f"<small>{escape(line)}</small>" for line in below if line != NOTHING)
        best = ' class="best"' if (index, column) in table.best else ""
        cells.append(f"<td{best}>{_text(value)}{small}</td>")
    return f'<tr><th scope="row">{_text(first)}</th>{"".join(cells)}</tr>'


def page_html(title: str, subtitle: str, notices: Sequence[str], abstract: str, sections: Sequence[Section]) -> str:
    """The whole page; `abstract` and the sections are HTML, the rest is text."""
    told = "".join(f'<p class="notice">{escape(text)}</p>' for text in notices)
    links = "".join(f'<a href="#{section.key}">{escape(section.heading)}</a>' for section in sections)
    parts = "".join(
        f'<section id="{section.key}"><h2>{escape(section.heading)}</h2>\n{section.html}</section>\n'
        for section in sections
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
        f'<style>{STYLE}</style></head>\n<body><header><h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p>'
        f'{told}<div class="abstract">{abstract}</div><nav aria-label="Sections">{links}</nav></header>\n'
        f"<main>{parts}</main></body></html>\n"
    )


def methods_html(scores: Scores, world: World) -> str:
    """HTML paragraphs; what they say of hits, chance and categories is how this package computes them."""
    grids = sorted({run.grid for run in scores.runs})
    named = " and ".join(f"{grid} × {grid}" for grid in grids)
    metrics = sorted({run.metric for run in scores.runs} | {"grid_chance"})
    several = max(len(run.epochs) for run in scores.runs) > 1
    what = (
        "Each question names one image and one finding that is present in it"
        if world.info.asks == "present"
        else "Scored are the pairs of an image and a finding that have a reference"
    )
    paragraphs = [
        f"{what}. The central square of the image, whose side is its short side, is divided into {named} equal cells. "
        "A predicted cell is a hit if the reference covers at least half of its area; where the reference covers half "
        "of no cell, any cell that it touches is a hit. A run that predicts points, boxes or masks is scored by the "
        "point that it names, or else the centre of its box or the pixel deepest in its mask: a hit if the point lies "
        "in the reference. Questions without a usable answer are misses. The mean hit rate is the unweighted mean over "
        "pathologies."
        + (" A run of several epochs has, for each question, the mean of its epochs." if several else ""),
        "The chance level of an image is the share of its cells that would be hits; of a pathology, the mean over its "
        "images.",
        f"Patients, all {len({record.patient_id for record in world.records}):,} of the split, were resampled with "
        f"replacement {scores.n_resamples:,} times (seed {scores.seed}); one draw serves all runs, so that differences "
        "are paired. Standard deviations are those of the resampled means; intervals run from their 2.5th to their "
        "97.5th percentile.",
        "Errors were categorized on frontal images: full hit, as above; partial hit, a cell that the reference touches "
        "but that is no hit; else position error if the finding could lie in the cell, and anatomy error if it could "
        "not, as readers or known anatomy say; what neither says is not reviewed.",
        "The definitions follow Gosai et al., Beyond Diagnosis: Evaluating Multimodal LLMs for Pathology Localization "
        "in Chest Radiographs (arXiv 2509.18015), sections 3.3, 3.4 and 4.1, except that patients are resampled, "
        "not images.",
    ]
    recipes = "".join(f"<li><code>{escape(scores.recipe(metric))}</code></li>" for metric in metrics)
    made = f"{world.info.benchmark} {world.info.version}, split {world.split}; reveal-bench {reveal_bench.__version__}."
    return (
        "".join(f"<p>{escape(text)}</p>\n" for text in paragraphs)
        + f'<p>Signatures of the numbers:</p><ul>{recipes}</ul>\n<p class="made">{escape(made)}</p>\n'
    )


PAGE = "report.html"
FIGURES, TABLES = "figures", "tables"


@dataclass
class _Material:
    """What the report is made of, and what it becomes."""

    world: World
    scores: Scores
    core: list[int]
    order: list[str]
    reference: int
    errors: dict[str, list[list[Share]]]
    texts: dict[str, str | bytes] = field(default_factory=dict)
    n_figures: int = 0
    n_tables: int = 0


def write_run_report(
    runs: Sequence[tuple[str, Path]],
    folder: Path,
    out: Path,
    *,
    split: str | None = None,
    reference: str | None = None,
    anatomy: Mapping[str, Regions] | None = None,
    reviews: Reviews | None = None,
    findings: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[str]:
    """Write ``report.html`` and the folders ``figures`` and ``tables`` into `out`.

    Parameters
    ----------
    runs : (label, run folder or prediction file); an empty label is filled in
    folder : dataset folder with the references of the split
    out : folder, made if need be; files of an earlier report are replaced
    split : by default that of the run folders, or "released"
    reference : label of the run that others are compared with; the last one by default
    anatomy : known regions by image (:func:`reveal_bench.reports.anatomy.read_anatomy`)
    reviews : readers' answers about misses (:func:`reveal_bench.reports.misses.read_reviews`)
    findings : those to report, all by default; means over pathologies are over these alone
    n_resamples, seed : of the bootstrap of patients
    progress : called with (what, done, in all)

    Returns
    -------
    Warnings, for people

    Raises
    ------
    ValueError
        If a run does not belong to the folder's benchmark, version and split, the references are not there, a label is
        unknown or taken twice, or `out` lies in the dataset folder.
    LintError
        If a prediction file has errors.
    ImportError
        Without the extra [report].
    """
    folder, out = Path(folder), Path(out)
    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise ArgumentError("out", "must not lie in the dataset folder, of which it would become a part", out)
    if find_spec("matplotlib") is None:
        raise ImportError("a report needs matplotlib: pip install 'reveal-bench[report]'")
    world = open_world(folder, runs, split)
    loaded = load_runs(runs, world, progress=progress)
    labels = [run.label for run in loaded]
    if reference is not None and reference not in labels:
        raise ValueError(f"`reference` must be the label of a run ({', '.join(labels)}), got {reference!r}")
    scores = score_runs(loaded, world, findings=findings, n_resamples=n_resamples, seed=seed)
    place = len(labels) - 1 if reference is None else labels.index(reference)
    grids = [run.grid for run in loaded]
    core = core_runs(loaded, world.info.grid if world.info.grid in grids else grids[0])
    errors = _errors(scores, core, world, anatomy, reviews)
    material = _Material(world, scores, core, by_difference(scores, 0, place), place, errors)
    warnings = _warnings(material)
    sections = [
        Section("hit-rates", "Hit rates", _hit_rates(material)),
        Section("errors", "Errors", _error_section(material, anatomy is not None or reviews is not None)),
        Section("places", "Where", _heat_section(material, progress)),
        *_comparisons(material),
        Section("runs", "Runs, failures and costs", _run_section(material)),
        Section("methods", "Methods", methods_html(scores, world)),
    ]
    title = f"Localization on {world.title}: {len(loaded)} run{'s' * (len(loaded) != 1)} compared"
    subtitle = f"{world.info.benchmark} {world.info.version}, split {world.split}"
    material.texts[PAGE] = page_html(title, subtitle, _notices(world, warnings), _abstract(material), sections)
    _write(out, material.texts)
    return warnings


def _errors(
    scores: Scores,
    core: Sequence[int],
    world: World,
    anatomy: Mapping[str, Regions] | None,
    reviews: Reviews | None,
) -> dict[str, list[list[Share]]]:
    """Run label -> per epoch, the shares of the error categories."""
    found = {}
    options: dict[str, Any] = {"n_resamples": scores.n_resamples, "seed": scores.seed}
    for run in (scores.runs[i] for i in core):
        epochs = [
            categorize(predictions, world.records, grid=run.grid, anatomy=anatomy, reviews=reviews)
            for predictions in run.predictions
        ]
        present = {case.finding for case in epochs[0]}
        names = [name for name in scores.findings if name in present]
        if names:
            found[run.label] = [shares_of(cases, findings=names, **options) for cases in epochs]
    return found


def _add_figure(material: _Material, drawn: Illustration) -> str:
    material.n_figures += 1
    files = {f"{FIGURES}/{drawn.name}.{kind}": render(drawn.figure, kind) for kind in ("png", "svg")}
    material.texts.update(files)
    shown = ShownFigure(drawn.title, drawn.caption, drawn.alt, files[f"{FIGURES}/{drawn.name}.png"], tuple(files))
    return figure_html(material.n_figures, shown)


def _add_table(material: _Material, table: Table | None) -> str:
    if table is None:
        return ""
    material.n_tables += 1
    file = f"{TABLES}/{table.name}.csv"
    material.texts[file] = to_csv(table.plain_head, table.plain_rows)
    return table_html(material.n_tables, table, file)


def _hit_rates(material: _Material) -> str:
    scores, order = material.scores, material.order
    first, last = scores.runs[0].label, scores.runs[material.reference].label
    ranked = (
        ""
        if material.reference == 0
        else f"Pathologies are in falling order of the difference between {first} and {last}."
    )
    drawn = draw_hit_rates(scores, material.world, material.core, order, ranked)
    return (
        _add_figure(material, drawn)
        + _add_table(material, means_table(scores, material.reference))
        + _add_table(material, rates_table(scores, order))
    )


def _error_section(material: _Material, is_reviewed: bool) -> str:
    if not material.errors:
        return "<p>No question is on a frontal image; errors are categorized on frontal images alone.</p>\n"
    names = dict(zip(material.errors, short_names([material.scores.runs[i] for i in material.core]), strict=True))
    n: dict[str, int] = {}
    means: dict[str, dict[str, dict[str, float]]] = {}
    for label, epochs in material.errors.items():
        table = means.setdefault(names[label], {})
        for share in (share for epoch in epochs for share in epoch if share.finding != MACRO):
            n[share.finding] = share.n
            part = table.setdefault(share.finding, dict.fromkeys(CATEGORIES, 0.0))
            part[share.category] += (0.0 if math.isnan(share.value) else share.value) / len(epochs)
    figures = "".join(
        _add_figure(material, drawn) for drawn in draw_errors(ErrorShares(means, n, is_reviewed), material.order)
    )
    return figures + _add_table(material, errors_table(material.errors))


def _heat_section(material: _Material, progress: Progress | None) -> str:
    world, runs = material.world, [material.scores.runs[i] for i in material.core]
    grid = Grid(runs[0].grid)
    truths = truth_shares(world.records, material.scores.findings, grid)
    if not truths:
        return "<p>No question is on a frontal image; heat maps are drawn of frontal images alone.</p>\n"
    picture = average_picture(world.folder, world.split, progress=progress)
    if not world.info.synthetic:
        picture = picture.without_few()
    n = {name: len(truth.image_ids) for name, truth in truths.items()}
    sizes = {record.image_id: record.size for record in world.records}
    rows = heat_rows("ground truth", {name: truth.shares for name, truth in truths.items()}, n)
    for run in runs:
        rows += heat_rows(run.label, prediction_shares(run.predictions, sizes, truths, grid), n)
    file = f"{TABLES}/heat-maps.csv"
    material.texts[file] = to_csv(("run", "finding", "cell", "share", "n"), rows)
    figures = "".join(_add_figure(material, drawn) for drawn in draw_heat(runs, world, truths, picture, material.order))
    return f'{figures}<p>The share of every cell: <a href="{file}">CSV</a>.</p>\n'


def _comparisons(material: _Material) -> Iterator[Section]:
    """Grids and prompts, where runs of one model differ in nothing else."""
    runs = material.scores.runs
    by_grid: dict[tuple[str, str | None], dict[int, int]] = {}
    by_style: dict[str, dict[str | None, int]] = {}
    for i, run in enumerate(runs):
        if run.run is None:
            continue
        by_grid.setdefault((run.model, run.style), {}).setdefault(run.grid, i)
        if run.grid == runs[material.core[0]].grid:
            by_style.setdefault(run.model, {}).setdefault(run.style, i)
    pairs = [[places[grid] for grid in sorted(places)] for places in by_grid.values() if len(places) > 1]
    if pairs:
        drawn = draw_grids(material.scores, material.order, pairs)
        yield Section("grids", "Grid size", _add_figure(material, drawn))
    if any(len(places) > 1 for places in by_style.values()):
        shown = [i for places in by_style.values() for i in places.values()]
        drawn = draw_prompts(material.scores, shown)
        yield Section("prompts", "Prompts", _add_figure(material, drawn))


def _run_section(material: _Material) -> str:
    runs = material.scores.runs
    return _add_table(material, runs_table(runs)) + _add_table(material, costs_table(runs, material.scores.findings))


def _abstract(material: _Material) -> str:
    scores, world = material.scores, material.world
    n_patients = len({record.patient_id for record in world.records})
    n_questions = int(scores.chance[0].n.sum())
    names = short_names([scores.runs[i] for i in material.core])
    macros = [(scores.estimates(i)[MACRO], name) for i, name in zip(material.core, names, strict=True)]
    ranked = sorted(macros, key=lambda pair: -math.inf if math.isnan(pair[0].value) else pair[0].value, reverse=True)
    told = "; ".join(
        f"{escape(name)} {percent(e.value)} ({100 * e.low:.1f} to {100 * e.high:.1f})" for e, name in ranked
    )
    others = len(scores.runs) - len(material.core)
    told += f". {others} more, with other prompts or grids, in Table 1" if others else ""
    chance = scores.estimates(material.core[0], chance=True)[MACRO].value
    grid = scores.runs[material.core[0]].grid
    return (
        f"<p><strong>Summary.</strong> {len(scores.runs)} run{'s' * (len(scores.runs) != 1)} located "
        f"{len(scores.findings)} pathologies in {escape(world.title)} {escape(world.info.version)}, split "
        f"{escape(world.split)}: {n_questions:,} questions with a reference on {len(world.records):,} images of "
        f"{n_patients:,} patients. Mean hit rate over pathologies, with 95 % interval: {told}. Chance is "
        f"{percent(chance)} on the {grid} × {grid} grid. Intervals: {scores.n_resamples:,} bootstrap resamples of "
        f"{scores.unit}s, seed {scores.seed}.</p>"
    )


def _notices(world: World, warnings: Sequence[str]) -> list[str]:
    synthetic = ["Synthetic: every picture and every reference was drawn by a program."] * world.info.synthetic
    return [*synthetic, "Not for clinical use.", *(f"{text[0].upper()}{text[1:]}." for text in warnings)]


def _warnings(material: _Material) -> list[str]:
    """What a reader of the report should know before using it."""
    warnings = []
    for run in material.scores.runs:
        if run.run is None:
            if run.n_missing:
                warnings.append(f"{run.label} leaves {run.n_missing:,} questions without a prediction: misses")
            continue
        info, left = run.run.info, run.run.summary.by_status.get("not_asked", 0)
        if info.n_asked < info.n_questions:
            warnings.append(
                f"{run.label} asked {info.n_asked:,} of {info.n_questions:,} questions: the rest are misses"
            )
        if left:
            warnings.append(f"{run.label} is not finished: {left:,} questions were not asked and are misses")
    lacking = missing_glyphs(run.label for run in material.scores.runs)
    if lacking:
        warnings.append(f"PNG figures show boxes for {lacking}: give such runs another LABEL=PATH")
    known = BENCHMARKS.get(material.world.info.benchmark)
    if material.world.info.splits[material.world.split].get("references") == "private":
        warnings.append("this shows the references of a private holdout: nobody but the maintainer may see it")
    if not material.world.info.synthetic and (known is None or known.licence == "restricted"):
        warnings.append("the average image and the heat maps come from data whose terms may forbid passing them on")
    return warnings


def _write(out: Path, texts: Mapping[str, str | bytes]) -> None:
    """Write all files beside their names, then bring them to these; figures and tables of an earlier report go."""
    files = {out / name: content for name, content in texts.items()}
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_all(files)
    for part, suffixes in ((FIGURES, (".png", ".svg")), (TABLES, (".csv",))):
        for path in (out / part).iterdir():
            if path.suffix in suffixes and f"{part}/{path.name}" not in texts:
                path.unlink()
