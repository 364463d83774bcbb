"""The report's page: sections in the order in which a reader wants to know them.

The report's style sheet: one column on a telephone, two figures abreast on a desk; light and dark.

A dataset folder as one HTML page to look at: counts, prevalence, acquisition, and example radiographs.

The page needs nothing from the network: style and pictures are in it. It shows what the folder holds, so it is bound
by the same terms; :func:`write_report` says so when they restrict the pictures, and never writes into the folder.

* :mod:`.numbers`: shares with intervals;
* :mod:`.figures`: bars, co-occurrence, tables;
* :mod:`.films`: radiographs with what was drawn on them;
* :mod:`.examples`: which rows are shown;
* :mod:`.page`: the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset import card_tables
from reveal_bench.dataset.tables import DatasetFolder, TableFile, open_folder, read_table, tables_of
from reveal_bench.dataset.tally import FindingsTally, LocalizationTally, Tally, TasksTally, new_tally
from reveal_bench.files import write_whole
from reveal_bench.kinds.tasks.records import CATEGORIES
from reveal_bench.reports.dataset_figures import Share, bars, co_occurrence, from_markdown
from reveal_bench.reports.films import Chosen, example

__all__ = ["render_report", "write_report"]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --paper: #ffffff; --line: #d0d7de; --bar: #2b6cb0;
  --panel: #f6f8fa; --warn: #7a4b00; --warn-paper: #fff4db; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --paper: #0f1318; --line: #333c46;
  --bar: #5fa8e8; --panel: #171d24; --warn: #ffd58a; --warn-paper: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1160px; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1rem 0 .4rem; }
h4 { font-size: 1rem; margin: .2rem 0; overflow-wrap: anywhere; }
a { color: var(--bar); }
code { font-size: .92em; }
.sub, figcaption, .subjects, caption { color: var(--soft); }
.sub { margin: .2rem 0 .8rem; }
.notice { margin: .4rem 0; padding: .5rem .8rem; color: var(--warn); background: var(--warn-paper); border-radius: 6px;
  font-weight: 600; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .8rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; list-style: none; margin: 0 0 1rem; padding: 0; }
.tiles li { flex: 1 1 8rem; padding: .6rem .9rem; background: var(--panel); border-radius: 8px; color: var(--soft); }
.tiles strong { display: block; font-size: 1.5rem; color: var(--ink); font-variant-numeric: tabular-nums; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem 2.5rem; }
.figures > div { max-width: 46rem; min-width: 0; }
svg.bars { display: block; width: 100%; overflow: visible; font-size: 13px; }
svg text { fill: var(--ink); }
svg .axis, svg .value { fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .axis { font-size: 12px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .bar { fill: var(--bar); opacity: .75; }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
.scroll { overflow-x: auto; margin: .4rem 0 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; font-size: .92em; }
th, td { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 400; }
td.number { text-align: right; }
.heat td, .heat thead th { text-align: right; padding: .25rem .45rem; }
.heat tbody th { white-space: nowrap; }
.heat td { background: color-mix(in srgb, var(--bar) calc(var(--share, 0%) * .55), transparent); }
.heat td.self { color: var(--soft); background: var(--panel); }
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem;
  align-items: start; }
.example { min-width: 0; padding: .8rem; background: var(--panel); border-radius: 10px; }
.subjects { margin: 0 0 .4rem; font-size: .92em; }
.films { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 10rem), 1fr)); gap: .8rem; }
figure { margin: 0; }
.film { position: relative; background: #000; border-radius: 4px; overflow: hidden; }
.film img { display: block; width: 100%; height: auto; }
.film .layer { position: absolute; inset: 0; height: 100%; }
.withheld { display: grid; place-items: center; width: 100%; color: #9aa4af; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .2rem 1rem; font-size: .87em;
  padding-top: .3rem; overflow-wrap: anywhere; }
figcaption span { min-width: 0; }
figcaption label, label.all { white-space: nowrap; color: var(--ink); }
label.all { display: inline-block; margin-bottom: .8rem; }
figure:has(input:not(:checked)) .layer, section:has(label.all input:not(:checked)) .layer { visibility: hidden; }
.legend { list-style: none; margin: .3rem 0 0; padding: 0; font-size: .9em; }
.legend li { display: flex; gap: .5rem; align-items: baseline; }
.swatch { flex: none; width: 1.1em; height: .75em; border: 2px solid var(--c);
  background: color-mix(in srgb, var(--c) 45%, transparent); }
.swatch.line { background: none; }
.chips { display: flex; flex-wrap: wrap; gap: .3rem; list-style: none; margin: .3rem 0; padding: 0; }
.chip { padding: .05rem .6rem; border: 1px solid var(--bar); border-radius: 999px; font-size: .9em; }
blockquote { margin: .4rem 0; padding-left: .8rem; border-left: 3px solid var(--bar); }
dl { margin: .4rem 0; }
dt { color: var(--soft); font-size: .87em; }
dd { margin: 0 0 .4rem; }
@media print { .example { break-inside: avoid; } nav, label { display: none; } }
"""


Progress = Callable[[str, int, int | None], None]
UNITS = {"localization": "images", "findings": "studies", "tasks": "tasks"}


def write_report(folder: Path, out: Path, *, split: str | None = None, progress: Progress | None = None) -> list[str]:
    """Write the report of a dataset folder, or of one of its splits, to the HTML file `out`.

    Returns
    -------
    Warnings: whether the page shows pictures or labels that may not be passed on

    Raises
    ------
    ValueError
        If `out` lies in the folder, where it would become part of the dataset, or is no file name; or as
        :func:`render_report`.
    """
    folder, out = Path(folder), Path(out)
    if folder.resolve() in out.resolve().parents:
        raise ArgumentError("out", "must not lie in the dataset folder, of which it would become a part", out)
    if out.is_dir():
        raise ArgumentError("out", "must be a file", f"the folder {out}")
    page = render_report(folder, split=split, progress=progress)
    write_whole(out, page)
    return _terms(open_folder(folder))


def render_report(folder: Path, *, split: str | None = None, progress: Progress | None = None) -> str:
    """The page as text.

    Parameters
    ----------
    split : all splits with references by default
    progress : called with (what, rows done, rows in all)

    Raises
    ------
    ValueError
        If `folder` is no dataset folder, or holds no references of `split`.
    """
    opened = open_folder(Path(folder))
    tables: dict[str, list[TableFile]] = {}
    for table in tables_of(opened):
        if table.config == opened.kind.config:
            tables.setdefault(table.split, []).append(table)
    if split is not None and split not in tables:
        raise ValueError(f"`split` must be one with references in {folder} ({', '.join(tables)}), got {split!r}")
    if split is not None:
        tables = {split: tables[split]}
    chosen = Chosen(opened)
    tallies = {name: _counted(opened, name, files, chosen, progress) for name, files in tables.items()}
    _count_ratings(opened, tallies)
    shown = [example(row, opened, chosen.keys[row[opened.kind.key]]) for files in tables.values()
             for row in chosen.rows(files)]  # fmt: skip
    return _page(opened, tallies, shown)


def _counted(
    folder: DatasetFolder, split: str, tables: Sequence[TableFile], chosen: Chosen, progress: Progress | None
) -> Tally:
    tally, kind = new_tally(folder.kind_name), folder.kind
    columns = [name for name in kind.features(folder.benchmark) if name not in kind.image_columns]
    for table in tables:
        for batch in read_table(table, columns):
            for row in batch:
                tally.add(row, kind.asked_of(row, folder.info.findings, folder.info.asks))
                chosen.offer(row)
            if progress is not None:
                progress(split, tally.n_rows, folder.info.splits[split].get(kind.counted))
    return tally


def _count_ratings(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> None:
    for table in tables_of(folder):
        if table.config == "ratings" and table.split in tallies:
            for row in (row for batch in read_table(table) for row in batch):
                tallies[table.split].add_extra(table.config, row)


def _terms(folder: DatasetFolder) -> list[str]:
    """What a reader of the page has to know before passing it on."""
    known = BENCHMARKS.get(folder.info.benchmark)
    warnings = []
    if folder.is_private:
        warnings.append("it shows the references of a private holdout: nobody but the maintainer may see it")
    if not folder.info.synthetic and (known is None or known.licence == "restricted"):
        warnings.append("it shows pictures and labels whose terms forbid passing them on: keep it where the data are")
    return warnings


def _page(folder: DatasetFolder, tallies: Mapping[str, Tally], shown: Sequence[str]) -> str:
    info = folder.info
    title = ("Synthetic stand-in for " if info.synthetic else "") + folder.benchmark.title
    notices = ["Not for clinical use."]
    if info.synthetic:
        notices.insert(0, "Synthetic: every picture and every reference was drawn by a program.")
    notices += [f"Do not pass this page on: {text}." for text in _terms(folder)]
    head = "".join(f'<p class="notice">{escape(text)}</p>' for text in notices)
    parts = "".join(
        f'<section id="s{n}"><h2>{heading}</h2>{text}</section>'
        for n, (heading, text) in enumerate(_sections(folder, tallies, shown))
        if text
    )
    links = " ".join(
        f'<a href="#s{n}">{heading}</a>' for n, (heading, text) in enumerate(_sections(folder, tallies, shown)) if text
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} {escape(info.version)}'
        f'</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="robots" content="noindex"><style>{STYLE}</style></head><body><header><h1>{escape(title)}</h1>'
        f'<p class="sub">{escape(info.benchmark)} · version {escape(info.version)}</p>'
        f"{head}<nav>{links}</nav></header><main>{parts}</main></body></html>\n"
    )


def _sections(folder: DatasetFolder, tallies: Mapping[str, Tally], shown: Sequence[str]) -> Iterator[tuple[str, str]]:
    findings = folder.benchmark.findings
    n_holdout = None
    if not folder.is_private:
        private = [entry for entry in folder.info.splits.values() if entry.get("references") == "private"]
        n_holdout = private[0][folder.kind.counted] if private else None
    yield "Counts", _tiles(folder, tallies) + from_markdown(card_tables.splits_table(tallies, n_holdout))
    yield ("Categories" if folder.kind_name == "tasks" else "Prevalence"), _prevalence(folder, tallies)
    yield "Together", _together(folder, tallies)
    if folder.kind_name == "tasks":
        yield "Tasks", from_markdown(card_tables.categories_table(tallies))
        yield "Ratings", from_markdown(card_tables.ratings_table(tallies))
    else:
        yield "Findings in numbers", from_markdown(card_tables.findings_table(tallies, findings))
    yield "Missing", from_markdown(card_tables.missing_list(tallies, findings))
    if folder.kind_name != "tasks":
        yield "Agreement", from_markdown(card_tables.agreement_table(tallies))
    yield "Views", from_markdown(card_tables.views_table(tallies))
    yield "Acquisition", from_markdown(card_tables.acquisition_table(tallies))
    if folder.kind_name == "findings":
        yield "Demographics", from_markdown(card_tables.demographics_table(tallies))
    yield "Examples", _examples(shown)


def _examples(shown: Sequence[str]) -> str:
    if not shown:
        return ""
    told = ""
    if any('class="layer"' in text for text in shown):
        told = (
            "<p>Filled: ground truth or reference. Line: another reader. Ring: the most representative point. Numbers "
            'are those of the legend.</p><label class="all"><input type="checkbox" checked> drawings on all pictures'
            "</label>"
        )
    return f'{told}<div class="examples">{"".join(shown)}</div>'


def _tiles(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> str:
    every = list(tallies.values())
    counts = [
        (UNITS[folder.kind_name], sum(tally.n_rows for tally in every)),
        ("images", sum(len(tally.images) for tally in every)),
        ("patients", sum(len(tally.patients) for tally in every)),
        ("questions", sum(tally.n_asked for tally in every)),
    ]
    unique = dict(counts)
    tiles = "".join(f"<li><strong>{n:,}</strong> {_counted_as(name, n)}</li>" for name, n in unique.items())
    return f'<ul class="tiles">{tiles}</ul>'


def _counted_as(plural: str, n: int) -> str:
    """The word that goes with the number."""
    return plural if n != 1 else {"studies": "study"}.get(plural, plural.removesuffix("s"))


def _prevalence(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> str:
    unit = UNITS[folder.kind_name]
    names, never = _shown_findings(folder, tallies)
    parts = []
    for split, tally in tallies.items():
        if isinstance(tally, TasksTally):
            counts = {name.replace("_", " "): tally.categories[code] for code, name in enumerate(CATEGORIES)}
        elif isinstance(tally, LocalizationTally | FindingsTally):
            counts = {name: tally.positives[code] for code, name in names.items()}
        else:
            continue
        shares = [Share(name, n, tally.n_rows) for name, n in counts.items()]
        figure = bars(shares, unit=unit, label=f"Share of {unit} of split {split}")
        parts.append(f"<div><h3>{escape(split)}, {tally.n_rows:,} {unit}</h3>{figure}</div>")
    notes = ""
    if any(sum(getattr(tally, "unlabelled", Counter()).values()) for tally in tallies.values()):
        notes += "<p>A finding that was not labelled, or is uncertain, counts as not present here.</p>"
    if never:
        notes += f"<p>Never present, and not shown: {escape(', '.join(never))}.</p>"
    return f'<div class="figures">{"".join(parts)}</div>{notes}' if parts else ""


def _shown_findings(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> tuple[dict[int, str], list[str]]:
    """Code -> finding of those that are shown; of a long vocabulary those that never occur are only named."""
    findings = folder.benchmark.findings
    present = {code for tally in tallies.values() for code, n in getattr(tally, "positives", Counter()).items() if n}
    if len(findings) <= card_tables.LONG_VOCABULARY:
        present = set(range(len(findings)))
    shown = {code: name for code, name in enumerate(findings) if code in present}
    return shown, [name for code, name in enumerate(findings) if code not in present]


def _together(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> str:
    parts = []
    for split, tally in tallies.items():
        if isinstance(tally, LocalizationTally | FindingsTally):
            figure = co_occurrence(folder.benchmark.findings, tally.positives, tally.pairs)
            parts += [f"<div><h3>{escape(split)}</h3>{figure}</div>"] if figure else []
    if not parts:
        return ""
    unit = UNITS[folder.kind_name]
    told = f"{unit.capitalize()} with the findings of row and column; the shade is the share of the row's finding."
    return f'<p>{told}</p><div class="figures">{"".join(parts)}</div>'
