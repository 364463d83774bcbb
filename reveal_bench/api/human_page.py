"""The report of a model beside the benchmark readers: everything paper 002 says of one, on one page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from reveal_bench.api.bench import Bench
from reveal_bench.api.pixel_counts import pixels
from reveal_bench.api.shape_features import Shapes, shapes
from reveal_bench.api.shown import FigureTable, Shown
from reveal_bench.api.verbs import Comparisons, compare
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.decrease import decreases_csv, in_printed_order
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.reports.chapters import Chapter, PrintedTable, write_chapters
from reveal_bench.reports.decrease import figures_of, figures_of_both
from reveal_bench.reports.example_cases import choose_cases, films_of
from reveal_bench.reports.shapes import figure_of
from reveal_bench.reports.style import Illustration, check_extra
from reveal_bench.reports.tuning import figure_of as curves_figure
from reveal_bench.reports.tuning import read_curves

__all__ = [
    "check_target", "comparison_chapters", "confidence_chapter", "curves_beside", "film_chapters", "human_report",
    "pixel_chapter", "shape_chapters", "unanswered",
]  # fmt: skip

_METRICS = ("mask_iou", "point_hit", "mask_iou_all")
_TUNED = (
    ("tuning", "threshold", "thresholds", "Threshold (% of the map's range)", "As Extended Data Fig. 1a"),
    ("gates", "gate", "gates", "Probability below which a mask is empty (%)", "As in Extended Data Fig. 4"),
)
"""Curves beside predictions: their file, the option they are of, what they are called, their axis, and the paper."""
_BOTH = "Hit rate, IoU of true positives, and IoU of all images, each with its 95 % interval."


def human_report(
    model: str | Path, human: str | Path, bench: Bench, out: Path, *, missing: str = "miss", **draw: Any
) -> tuple[Path, list[str]]:
    """Write the page; its path, and what a reader of it should know.

    Parameters
    ----------
    model, human : prediction files; the second as ``reveal-bench baseline human`` writes it
    out : folder, made if need be; files of an earlier report are replaced
    missing : as of :func:`score`
    draw : n_resamples, seed
    """
    check_target(bench, out)
    compared = compare(model, human, bench, relative=True, missing=missing, **draw)
    systems = {compared.a: compared.scored_a, compared.b: compared.scored_b}
    lacking = [name for name, one in systems.items() if not _masks(one)]
    chapters = comparison_chapters(compared, _METRICS, _BOTH)
    if not lacking:
        chapters += film_chapters(compared, bench)
        found = shapes(bench, model, human, missing=missing)
        chapters += [*shape_chapters(found), *confidence_chapter(found.confidence)]
    chapters += curves_beside(Path(model))
    if not lacking:
        chapters.append(pixel_chapter({compared.a: model, compared.b: human}, bench))
    warnings = [f"{name} has no masks: nothing is said of pixels and shapes." for name in lacking]
    warnings += unanswered(compared, missing)
    info = bench.info
    place = f"{info.benchmark} {info.version}, split {bench.split}"
    title = f"{compared.a} beside {compared.b}"
    path = write_chapters(out, title, place, chapters, synthetic=info.synthetic, warnings=warnings)
    return path, warnings


def check_target(bench: Bench, out: Path) -> None:
    """Raise unless a page can be drawn, and written to `out`."""
    check_extra()
    if bench.folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise ArgumentError("out", "must not lie in the dataset folder, of which it would become a part", out)


def unanswered(compared: Comparisons, missing: str) -> list[str]:
    """How many images with a finding each system leaves without an answer, and how these count."""
    warnings = []
    for name, one in ((compared.a, compared.scored_a), (compared.b, compared.scored_b)):
        n_missing = cast(CaseRows, one.rows).with_reference().point_kinds.count("none")
        if n_missing:
            how = "misses" if missing == "miss" else "misses of hits, and as empty masks"
            warnings.append(f"{name} leaves {n_missing:,} questions without an answer: they count as {how}.")
    return warnings


def _masks(scored: Any) -> bool:
    return any(prediction.mask is not None for prediction in scored.report.predictions)


def comparison_chapters(
    compared: Comparisons, metrics: Sequence[str], words: str, others: Sequence[PrintedTable] = ()
) -> list[Chapter]:
    """Both systems, beside `others`; then the decrease from one to the other."""
    chosen = in_printed_order([one for one in compared.comparisons if one.metric in metrics])
    both = {name: one.estimates for name, one in ((compared.b, compared.scored_b), (compared.a, compared.scored_a))}
    source = "As Table 1 and Fig. 2 of paper 002" if others else "As Fig. 2 of paper 002"
    shown = replace(compared, comparisons=chosen)
    table = PrintedTable("decrease", "Relative decrease", compared.caption, shown.rows_shown(), decreases_csv(chosen))
    return [
        Chapter("localization", "Localization", source, words, figures_of_both(chosen, both), others),
        Chapter(
            "decrease",
            f"Decrease from {compared.b}",
            "As Extended Data Figs. 5 and 6",
            "Decreases whose interval leaves out 0 come first, then what is not told apart, then gains that are.",
            figures_of(chosen, compared.a, compared.b),
            [table],
        ),
    ]


def film_chapters(compared: Comparisons, bench: Bench) -> list[Chapter]:
    """Cases in which the model is furthest behind the readers, and ahead of them; none without such, or private."""
    if bench.info.splits[bench.split].get("references") == "private":
        return []
    found = [cast(CaseRows, one.rows) for one in (compared.scored_a, compared.scored_b)]
    ious = [
        dict(
            zip(zip(rows.image_ids, rows.case_findings, strict=True), rows.values["mask_iou_all"].tolist(), strict=True)
        )
        for rows in found
    ]
    cases = choose_cases({pair: (value, ious[1][pair]) for pair, value in ious[0].items() if pair in ious[1]})
    if not cases:
        return []
    records = bench.kind.read_references(bench.folder, bench.split)
    systems = {compared.a: compared.scored_a.report.predictions, compared.b: compared.scored_b.report.predictions}
    films = films_of(cases, bench.folder, bench.split, records, systems)
    words = "First where the model is furthest behind the readers, each of another finding, then where it is ahead."
    return [Chapter("films", "Example films", "As Fig. 3a", words, others=[films])]


def curves_beside(model: Path) -> list[Chapter]:
    """The curves beside the predictions, if these were made with the thresholds and gates found on them."""
    chapters = []
    for kind, option, words, axis, source in _TUNED:
        tuned, record = (model.with_name(f"{model.name}.{ending}") for ending in (f"{kind}.csv", "options.json"))
        if not tuned.is_file():
            continue
        curves = read_curves(tuned)
        if record.is_file():
            used = json.loads(record.read_text(encoding="utf-8"))["options"][option]
            if not isinstance(used, dict) or any(curves[name].best != used.get(name) for name in curves):
                continue
        told = f"How the {words} of the heat maps were found, from {tuned.name} beside the predictions."
        chapters.append(Chapter(kind, words.capitalize(), source, told, [curves_figure(curves, kind, words, axis)]))
    return chapters


def pixel_chapter(files: Mapping[str, str | Path], bench: Bench) -> Chapter:
    """Pixels of the systems by name, the model first."""
    tables = [
        _printed(key, f"Pixels of {name}", pixels(file, bench, allow_missing=True))
        for key, (name, file) in zip(("pixels_model", "pixels_human"), files.items(), strict=True)
    ]
    words = "Pixels pooled over the images with a finding; a missing mask is empty. Percent, with 95 % intervals."
    return Chapter("pixels", "Pixels", "As Extended Data Fig. 2", words, tables=tables)


def shape_chapters(found: Shapes) -> list[Chapter]:
    """Shapes of the references, and regressions on them."""
    simple = _printed("regressions", "Slopes on shapes", found.regressions_of("simple"))
    return [
        Chapter(
            "shapes",
            "Shapes of the references",
            "As Extended Data Fig. 8",
            "Number of instances, size, elongation and irrectangularity of the reference masks.",
            [figure_of(found.shapes, found.findings)],
            [_printed("shapes", "Medians per finding", found)],
        ),
        Chapter(
            "regressions",
            "What goes with a bad localization",
            "As Table 2",
            "Slopes on one feature at a time, from 0 to 1 over all cases; standard errors are clustered by patient. "
            "The file also has published intervals, slopes within findings, multiple and logistic regressions.",
            tables=[replace(simple, csv=found.regressions.to_csv())],
        ),
    ]


def confidence_chapter(found: FigureTable, figures: Sequence[Illustration] = (), words: str = "") -> list[Chapter]:
    """Slopes and correlations with the score; none without scores. `words` say of which masks they are."""
    if not found.rows:
        return []
    told = f"Slope and Spearman's correlation of IoU (all images) and hit with the score{words}; p as they are."
    tables = [_printed("confidence", "Slopes and correlations with the score", found)]
    return [Chapter("confidence", "Confidence", "As Table 3 and Extended Data Fig. 9", told, figures, tables)]


def _printed(name: str, title: str, result: Shown) -> PrintedTable:
    rows: Sequence[dict[str, str]] = result.rows_shown()
    return PrintedTable(name, title, result.caption, rows, result.to_csv())
