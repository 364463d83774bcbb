"""The report's page: sections in the order in which a reader wants to know them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.builders import card_tables
from reveal_bench.builders.report.examples import Chosen, example
from reveal_bench.builders.report.figures import bars, co_occurrence, from_markdown
from reveal_bench.builders.report.numbers import Share
from reveal_bench.builders.report.style import STYLE
from reveal_bench.builders.tally import FindingsTally, LocalizationTally, Tally, TasksTally, new_tally
from reveal_bench.builders.validate_rows import asked_of
from reveal_bench.builders.validate_tables import DatasetFolder, Table, open_folder, read_table, tables_of
from reveal_bench.task_records import CATEGORIES

__all__ = ["render_report", "write_report"]

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
        raise ValueError(f"`out` must not lie in the dataset folder, of which it would become a part, got {out}")
    if out.is_dir():
        raise ValueError(f"`out` must be a file, got the folder {out}")
    page = render_report(folder, split=split, progress=progress)
    new = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        new.write_text(page, encoding="utf-8")
        new.replace(out)
    finally:
        new.unlink(missing_ok=True)
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
    tables: dict[str, list[Table]] = {}
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
    folder: DatasetFolder, split: str, tables: Sequence[Table], chosen: Chosen, progress: Progress | None
) -> Tally:
    tally, kind = new_tally(folder.kind_name), folder.kind
    columns = [name for name in kind.features(folder.benchmark) if name not in kind.image_columns]
    for table in tables:
        for batch in read_table(table, columns):
            for row in batch:
                tally.add(row, asked_of(folder.kind_name, row, folder.info.findings, folder.info.asks))
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
