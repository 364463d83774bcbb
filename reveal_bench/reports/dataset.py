"""HTML report of a dataset folder: counts, prevalence, acquisition and example radiographs.

The page shows the folder's images and labels, so the dataset's terms apply to the page. :func:`write_report` warns if
these terms restrict the images. The dataset folder is never changed. :mod:`reveal_bench.kinds.split_counts` counts,
:mod:`reveal_bench.dataset.card_tables` makes the tables of the dataset card. Proportions have 95% Wilson score
intervals (Wilson 1927, J Am Stat Assoc 22:209).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset import card_tables
from reveal_bench.dataset.tables import INPUTS, DatasetFolder, TableFile, open_folder, read_table, tables_of
from reveal_bench.files import write_whole
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.split_counts import LONG_VOCABULARY, Tally
from reveal_bench.kinds.tasks.records import CATEGORIES
from reveal_bench.metrics.jackknife import Z, wilson
from reveal_bench.reports.figures import ValueBar, bars
from reveal_bench.reports.films import Example, ExampleSampler, example, view_in_words
from reveal_bench.reports.noted_films import noted_sections
from reveal_bench.reports.page import (
    Custom,
    Lines,
    Note,
    Page,
    PageTable,
    Part,
    Progress,
    Section,
    Text,
    check_target,
    notices,
    render_page,
)
from reveal_bench.reports.style import Illustration, interval_of
from reveal_bench.words import share_text, typeset


@dataclass(frozen=True, slots=True)
class Proportion:
    """The proportion `n` / `of` with its Wilson interval; NaN if `of` is 0."""

    name: str
    n: int
    of: int

    @property
    def value(self) -> float:
        """The proportion in [0, 1]."""
        return self.n / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds (low, high)."""
        if not self.of:
            return math.nan, math.nan
        low, high = wilson(*np.array([[self.value], [self.of], [Z]])).clip(0, 1)
        return float(low[0]), float(high[0])

    @property
    def short(self) -> str:
        """Text such as ``187 · 28.0%``."""
        return f"{self.n:,}" + (f" · {typeset(share_text(self.n, self.of))}" if self.of else "")

    @property
    def text(self) -> str:
        """Text such as ``187 of 668, 28.0% (24.7 to 31.5)``."""
        if not self.of:
            return "0 of 0"
        return f"{self.n:,} of {self.of:,}, {share_text(self.n, self.of)} ({interval_of(*self.interval)})"


def write_report(folder: Path, out: Path, *, split: str | None = None, progress: Progress | None = None) -> list[str]:
    """Write the report of a dataset folder, or of one split, to the HTML file `out`.

    Returns
    -------
    Warnings about images or labels that must not be passed on

    Raises
    ------
    ValueError
        If `out` is in the dataset folder, which it would change, or is not a file name; or as :func:`render_report`.
    ImportError
        Without the extra [report].
    """
    folder, out = Path(folder), Path(out)
    check_target(folder, out)
    if out.is_dir():
        raise ArgumentError("out", "must be a file", f"the folder {out}")
    page = render_report(folder, split=split, progress=progress)
    write_whole(out, page)
    return _terms(open_folder(folder))


def render_report(folder: Path, *, split: str | None = None, progress: Progress | None = None) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    split : all splits with references by default
    progress : called with (what, rows done, rows in all)

    Raises
    ------
    ValueError
        If `folder` is not a dataset folder, or has no references of `split`.
    """
    opened = open_folder(Path(folder))
    tables: dict[str, list[TableFile]] = {}
    for table in tables_of(opened):
        if table.config == opened.kind.config:
            tables.setdefault(table.split, []).append(table)
    if split is not None and split not in tables:
        raise ArgumentError("split", f"must be one with references in {folder} ({', '.join(tables)})", repr(split))
    if split is not None:
        tables = {split: tables[split]}
    sampler = ExampleSampler(opened)
    tallies = {name: _counted(opened, name, files, sampler, progress) for name, files in tables.items()}
    _count_ratings(opened, tallies)
    examples = [example(row, opened, sampler.keys[row[opened.kind.key]]) for files in tables.values()
             for row in sampler.rows(files)]  # fmt: skip
    if split is None:
        every = [table for table in tables_of(opened) if table.config in (opened.kind.config, INPUTS)]
        noted = noted_sections(opened, every)
    else:
        noted = noted_sections(opened, tables[split], tallies[split].images)
    return _page(opened, tallies, noted, examples)


def _counted(
    folder: DatasetFolder, split: str, tables: Sequence[TableFile], sampler: ExampleSampler, progress: Progress | None
) -> Tally:
    kind = folder.kind
    tally = kind.table.tally()
    columns = [name for name in kind.table.features(folder.benchmark) if name not in kind.table.image_columns]
    for table in tables:
        for batch in read_table(table, columns):
            for row in batch:
                tally.add(row, kind.questions.asked_of(row, folder.info.findings, folder.info.asks))
                sampler.offer(row)
            if progress is not None:
                progress(split, tally.n_rows, folder.info.splits[split].get(kind.counted))
    return tally


def _count_ratings(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> None:
    for table in tables_of(folder):
        if table.config == "ratings" and table.split in tallies:
            for row in (row for batch in read_table(table) for row in batch):
                tallies[table.split].add_extra(table.config, row)


def _terms(folder: DatasetFolder) -> list[str]:
    """Return warnings against sharing the page."""
    known = BENCHMARKS.get(folder.info.benchmark)
    warnings = []
    if folder.is_private:
        warnings.append("it shows the references of a private holdout: only the dataset's maintainer may see the page")
    if not folder.info.synthetic and (known is None or known.licence == "restricted"):
        warnings.append("it shows images and labels whose terms forbid redistribution: keep the page with the data")
    return warnings


_Titled = tuple[str, Sequence[Part]]
"""Title and parts of a section."""


def _page(
    folder: DatasetFolder, tallies: Mapping[str, Tally], noted: Sequence[_Titled], examples: Sequence[Example]
) -> str:
    info = folder.info
    title = ("Synthetic stand-in for " if info.synthetic else "") + folder.benchmark.title
    notes = notices(synthetic=info.synthetic)
    notes += [Note("Do not pass this page on:", f"{text}.", is_warning=True) for text in _terms(folder)]
    sections = [
        Section(f"s{n}", heading, parts)
        for n, (heading, parts) in enumerate(_sections(folder, tallies, noted, examples))
        if parts
    ]
    return render_page(Page(title, f"{info.benchmark}, version {info.version}", sections, notes))


def _sections(
    folder: DatasetFolder, tallies: Mapping[str, Tally], noted: Sequence[_Titled], examples: Sequence[Example]
) -> Iterator[_Titled]:
    findings = folder.benchmark.findings
    n_holdout = None
    if not folder.is_private:
        private = [entry for entry in folder.info.splits.values() if entry.get("references") == "private"]
        n_holdout = private[0][folder.kind.counted] if private else None
    yield "Counts", [_tiles(folder, tallies), *from_markdown(card_tables.splits_table(tallies, n_holdout))]
    yield ("Prevalence" if findings else "Categories"), _prevalence(folder, tallies)
    yield "Findings together", _co_occurrence_parts(folder, tallies)
    if findings:
        yield "Findings in numbers", from_markdown(card_tables.findings_table(tallies, findings))
    else:
        yield "Tasks", from_markdown(card_tables.categories_table(tallies))
        yield "Ratings", from_markdown(card_tables.ratings_table(tallies))
    yield "Missing", from_markdown(card_tables.missing_list(tallies, findings))
    if findings:
        yield "Agreement", from_markdown(card_tables.agreement_table(tallies))
    yield "Views", [*from_markdown(card_tables.views_table(tallies)), *_by_view(folder, tallies)]
    yield "Acquisition", from_markdown(card_tables.acquisition_table(tallies))
    if any(tally.demographics for tally in tallies.values()):
        yield "Demographics", from_markdown(card_tables.demographics_table(tallies))
    yield from noted
    has_layer = any(one.film.layer for row in examples for one in row.films)
    yield "Examples", [Custom("examples", {"rows": examples, "has_layer": has_layer})] if examples else []


def _tiles(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> Custom:
    every = list(tallies.values())
    unique = {
        _unit(folder): sum(tally.n_rows for tally in every),
        "images": sum(len(tally.images) for tally in every),
        "patients": sum(len(tally.patients) for tally in every),
        "questions": sum(tally.n_asked for tally in every),
    }
    return Custom("tiles", [(f"{n:,}", _noun(name, n)) for name, n in unique.items()])


def _unit(folder: DatasetFolder) -> str:
    """Return the plural noun for a dataset's rows: images, studies or tasks."""
    return folder.kind.counted.removeprefix("n_")


def _noun(plural: str, n: int) -> str:
    """Return the singular or plural of `unit` for `n`."""
    return plural if n != 1 else {"studies": "study"}.get(plural, plural.removesuffix("s"))


def _prevalence(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> list[Part]:
    unit = _unit(folder)
    names, never = _named_findings(folder, tallies)
    parts: list[Part] = []
    for split, tally in tallies.items():
        counts = {name: tally.positives[code] for code, name in names.items()}
        shares = [Proportion(name, n, tally.n_rows) for name, n in counts.items()]
        parts.append(draw_shares(shares, split, tally.n_rows, unit))
    if any(sum(tally.unlabelled.values()) for tally in tallies.values()):
        parts.append(Text("A finding that was not labelled, or is uncertain, counts as absent here."))
    if never:
        parts.append(Text(f"Omitted because no row has them: {', '.join(never)}."))
    return parts


def _by_view(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> list[Part]:
    """Return one table of images by finding and view per split, if rows are images (paper 000, Figures 9 and 10)."""
    names, _ = _named_findings(folder, tallies)
    unit = _unit(folder)
    parts: list[Part] = []
    for split, tally in tallies.items():
        views = sorted({view for _, view in tally.positive_views})
        if not views:
            continue
        kinds = [view_in_words(VIEWS[view]) for view in views]
        counts = {name: [tally.positive_views[code, view] for view in views] for code, name in names.items()}
        rows = [(name, [ValueBar(n, f"{n:,}") for n in of_views]) for name, of_views in counts.items()]
        listed = "; ".join(
            f"{name} {', '.join(f'{n} {kind}' for n, kind in zip(of_views, kinds, strict=True))}"
            for name, of_views in counts.items()
        )
        title = f"Split {split}: {unit} by finding and view"
        words = f"{unit.capitalize()} of split {split} with each finding, by view."
        parts.append(
            Illustration(
                f"views-{split}", title, words, f"{words} {listed}.", partial(bars, rows, axis=unit, kinds=kinds)
            )
        )
    return parts


def _named_findings(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> tuple[dict[int, str], list[str]]:
    """Return (code -> name of the findings to show, names of omitted findings)."""
    names = folder.benchmark.findings or tuple(name.replace("_", " ") for name in CATEGORIES)
    present = {code for tally in tallies.values() for code, n in tally.positives.items() if n}
    if len(names) <= LONG_VOCABULARY:
        present = set(range(len(names)))
    named = {code: name for code, name in enumerate(names) if code in present}
    return named, [name for code, name in enumerate(names) if code not in present]


def draw_shares(shares: Sequence[Proportion], split: str, n: int, unit: str) -> Illustration:
    """Return a bar chart of one split's proportions with intervals."""
    rows = [
        (share.name, [ValueBar(None if not share.of else 100 * share.value, share.short, (100 * low, 100 * high))])
        for share, (low, high) in ((share, share.interval) for share in shares)
    ]
    alt = f"Proportion of {unit} of split {split}. " + "; ".join(f"{share.name} {share.text}" for share in shares)
    return Illustration(
        f"shares-{split}",
        f"Split {split}, {n:,} {_noun(unit, n)}",
        "Lines: 95% intervals.",
        alt,
        lambda width: bars(rows, width, axis=f"proportion of {unit} (%)"),
    )


def _co_occurrence_parts(folder: DatasetFolder, tallies: Mapping[str, Tally]) -> list[Part]:
    tables = []
    for split, tally in tallies.items():
        pairs = co_occurrence(folder.benchmark.findings, tally.positives, tally.pairs)
        tables += [Custom("pairs", {"split": split, **pairs})] if pairs else []
    if not tables:
        return []
    unit = _unit(folder).capitalize()
    words = (
        f"{unit} with both the row's and the column's finding; darker cells are larger proportions of the row's "
        "finding."
    )
    return [Text(words), *tables]


def co_occurrence(
    names: Sequence[str], positives: Mapping[int, int], pairs: Mapping[tuple[int, int], int]
) -> dict[str, Any]:
    """Return the co-occurrence of findings: `names`, and `rows` of (name, cells). A cell is (count, proportion of the
    row's finding or None on the diagonal, tooltip).

    Findings that never occur are omitted. The result is empty if fewer than two findings remain.
    """
    used = [i for i in range(len(names)) if positives.get(i, 0)]
    if len(used) < 2:
        return {}
    rows = []
    for i in used:
        cells = []
        for j in used:
            both = positives[i] if i == j else pairs.get((min(i, j), max(i, j)), 0)
            words = f"{both:,} of {positives[i]:,} with {names[i]} also have {names[j]}"
            cells.append((f"{both:,}", None if i == j else f"{100 * both / positives[i]:.0f}", words))
        rows.append((names[i], cells))
    return {"names": [names[i] for i in used], "rows": rows}


def from_markdown(text: str) -> list[Part]:
    """Return the Markdown tables, lists and paragraphs of a dataset card as parts of a page."""
    parts: list[Part] = []
    for block in re.split(r"\n\s*\n", text.strip().replace("`", "")):
        lines = block.splitlines()
        if not lines:
            continue
        if lines[0].startswith("|"):
            cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
            clean = [[cell.strip().replace("\\|", "|") for cell in line] for line in cells]
            parts.append(PageTable(clean[0], clean[2:], "Counts", is_caption_shown=False))
        elif lines[0].startswith("* "):
            parts.append(Lines([line[2:] for line in lines]))
        else:
            parts.append(Text(" ".join(lines)))
    return parts
