"""Report that compares a model with benchmark readers as in paper 002, from predictions or heat maps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from reveal_bench.analyses.relative_decrease import decreases_csv, in_printed_order
from reveal_bench.api.analyses import pixels
from reveal_bench.api.bench import Bench
from reveal_bench.api.comparison_tables import Comparisons
from reveal_bench.api.heat_maps import asked_of, saliency, tune_gates, tune_saliency
from reveal_bench.api.result_table import RoundedTable, TableResult
from reveal_bench.api.scoring import compare, score
from reveal_bench.api.shape_features import Shapes, assurances_of, confidence_table, shapes
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.baselines import human_baseline
from reveal_bench.evaluation.compare import relative_decrease
from reveal_bench.evaluation.score import ScoredFile
from reveal_bench.files import write_whole
from reveal_bench.kinds.localization.records import each_localization
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.scales import value_text
from reveal_bench.reports.beside_readers import (
    choose_cases,
    figure_beside_auroc,
    figure_of_shapes,
    figures_of_both,
    figures_of_decreases,
    films_of,
)
from reveal_bench.reports.curves import figure_of_curves, read_curves
from reveal_bench.reports.page import (
    Csv,
    Page,
    PageTable,
    Section,
    check_target,
    notices,
    printed_table,
    section,
    write_page,
)
from reveal_bench.reports.style import Illustration
from reveal_bench.saliency_maps.tuning import Tuned

_METRICS = ("mask_iou", "point_hit", "mask_iou_all")
_TUNED = (
    ("tuning", "threshold", "thresholds", "Threshold (% of the map's value range)", "As Extended Data Fig. 1a"),
    ("gates", "gate", "gates", "Probability below which a mask is empty (%)", "As in Extended Data Fig. 4"),
)
"""Tuning curves: (suffix of their file, option, plural noun, axis title, source in the paper)."""
_BOTH = "Hit rate, IoU of true positives, and IoU of all images, with 95% intervals."


def human_report(
    model: str | Path,
    human: str | Path,
    bench: Bench,
    out: Path,
    *,
    label: str = "",
    missing: str = "miss",
    **draw: Any,
) -> tuple[Path, list[str]]:
    """Write the report from predictions; return its path, and warnings.

    Parameters
    ----------
    model, human : prediction files; the readers' file is written by ``reveal-bench baseline human``
    out : folder, created if missing; files of an earlier report are replaced
    label : name of the model; by default its file's
    missing : as in :func:`score`
    draw : n_resamples, seed
    """
    check_target(bench.folder, out)
    compared = compare(model, human, bench, relative=True, missing=missing, **draw)
    compared = replace(compared, a=label or compared.a)
    lacking = [name for name, one in _systems(compared).items() if not _masks(one)]
    chapters = _comparison_chapters(compared, _METRICS, _BOTH)
    if not lacking:
        chapters += _film_chapters(compared, bench)
        shape_tables = shapes(bench, compared.scored_a, compared.scored_b)
        chapters += [*_shape_chapters(shape_tables), *_confidence_chapter(shape_tables.confidence)]
    chapters += _curves_beside(Path(model))
    if not lacking:
        chapters.append(_pixel_chapter(compared, bench))
    warnings = [f"{name} has no masks, so figures of pixels and shapes are missing." for name in lacking]
    warnings += _unanswered(compared, missing)
    return _write(out, bench, f"{compared.a} beside {compared.b}", chapters, warnings)


def _write(
    out: Path, bench: Bench, title: str, sections: Sequence[Section], warnings: list[str]
) -> tuple[Path, list[str]]:
    info = bench.info
    lead = f"{info.benchmark} {info.version}, split {bench.split}"
    return write_page(out, Page(title, lead, sections, notices(synthetic=info.synthetic, warnings=warnings))), warnings


def _unanswered(compared: Comparisons, missing: str) -> list[str]:
    """Return warnings about a system's unanswered questions on images with the finding, and their score."""
    warnings = []
    for name, one in _systems(compared).items():
        n_missing = cast(CaseRows, one.rows).with_reference().point_kinds.count("none")
        if n_missing:
            how = "misses" if missing == "miss" else "misses, and as empty masks"
            warnings.append(f"{name} has no answer to {n_missing:,} questions, which count as {how}.")
    return warnings


def _systems(compared: Comparisons) -> dict[str, ScoredFile]:
    """Return name -> predictions, the model first."""
    return {compared.a: compared.scored_a, compared.b: compared.scored_b}


def _masks(scored: ScoredFile) -> bool:
    return any(prediction.mask is not None for prediction in scored.report.predictions)


def _comparison_chapters(
    compared: Comparisons,
    metrics: Sequence[str],
    words: str,
    tables: Sequence[PageTable] = (),
    others: Mapping[str, Sequence[Estimate]] | None = None,
) -> list[Section]:
    """Return a section on the scores of both systems and `others`, and one on the decrease from readers to model."""
    chosen = in_printed_order([one for one in compared.comparisons if one.metric in metrics])
    source = "As Table 1 and Fig. 2 of paper 002" if tables else "As Fig. 2 of paper 002"
    selection = replace(compared, comparisons=chosen)
    systems = {compared.b: compared.scored_b.estimates, **(others or {}), compared.a: compared.scored_a.estimates}
    table = printed_table(
        "decrease", "Relative decrease", compared.caption, selection.printed_rows(), decreases_csv(chosen)
    )
    return [
        section("localization", "Localization", source, words, *figures_of_both(chosen, systems), *tables),
        section(
            "decrease",
            f"Decrease from {compared.b}",
            "As Extended Data Figs. 5 and 6",
            "Decreases whose interval excludes 0 come first, then inconclusive ones, then gains whose interval "
            "excludes 0.",
            *figures_of_decreases(chosen, compared.a, compared.b),
            table,
        ),
    ]


def _film_chapters(compared: Comparisons, bench: Bench) -> list[Section]:
    """Return a section of cases in which the model trails readers most, or leads; empty without such cases."""
    if bench.info.splits[bench.split].get("references") == "private":
        return []
    row_sets = [cast(CaseRows, one.rows) for one in (compared.scored_a, compared.scored_b)]
    ious = [
        dict(
            zip(zip(rows.image_ids, rows.case_findings, strict=True), rows.values["mask_iou_all"].tolist(), strict=True)
        )
        for rows in row_sets
    ]
    systems = {name: one.report.predictions for name, one in _systems(compared).items()}
    drawn = [{(p.image_id, p.finding) for p in own if p.mask is not None} for own in systems.values()]
    both = set.intersection(*drawn) & ious[0].keys() & ious[1].keys()
    cases = choose_cases({pair: (ious[0][pair], ious[1][pair]) for pair in both})
    if not cases:
        return []
    selected = {one.image_id for one in cases}
    every = each_localization(bench.folder, bench.split, contours=False)
    records = [record for record in every if record.image_id in selected]
    films = films_of(cases, bench.folder, bench.split, records, systems)
    words = (
        "First the cases in which the model is furthest behind the readers, then those in which it is furthest ahead, "
        "among the cases with masks of both; one case per finding in each group."
    )
    return [section("films", "Example images", "As Fig. 3a", words, films)]


def _curves_beside(model: Path, *others: Illustration, source: str = "", note: str = "") -> list[Section]:
    """Return the tuning curves in files beside the predictions, if the tuned values were used for the predictions."""
    chapters = []
    for kind, option, words, axis, own_source in _TUNED:
        tuned, record = (model.with_name(f"{model.name}.{ending}") for ending in (f"{kind}.csv", "options.json"))
        if not tuned.is_file():
            continue
        curves = read_curves(tuned)
        if record.is_file():
            used = json.loads(record.read_text(encoding="utf-8"))["options"][option]
            if not isinstance(used, dict) or any(curves[name].best != used.get(name) for name in curves):
                continue
        caption = f"Tuning of the heat maps' {words}, from {tuned.name} beside the predictions."
        figure = figure_of_curves(curves, kind, words, axis)
        chapters.append(section(kind, words.capitalize(), source or own_source, caption + note, figure, *others))
    return chapters


def _pixel_chapter(compared: Comparisons, bench: Bench) -> Section:
    """Return the table of both systems' pixel statistics."""
    tables = [
        _printed(key, f"Pixels of {name}", pixels(one, bench))
        for key, (name, one) in zip(("pixels_model", "pixels_human"), _systems(compared).items(), strict=True)
    ]
    words = "Pixels pooled over the images with a finding; a missing mask is empty. Percent, with 95% intervals."
    return section("pixels", "Pixels", "As Extended Data Fig. 2", words, *tables)


def _shape_chapters(shape_tables: Shapes) -> list[Section]:
    """Return sections on the shapes of the references, and on regressions on shape features."""
    simple = _printed("regressions", "Slopes on shapes", shape_tables.regressions_of("simple"))
    return [
        section(
            "shapes",
            "Shapes of the references",
            "As Extended Data Fig. 8",
            "Number of instances, size, elongation and irrectangularity of the reference masks.",
            figure_of_shapes(shape_tables.shapes, shape_tables.findings),
            _printed("shapes", "Medians per finding", shape_tables),
        ),
        section(
            "regressions",
            "Features associated with poor localization",
            "As Table 2",
            "Slopes on one feature at a time, scaled to 0 to 1 over all cases; standard errors are clustered by "
            "patient. The CSV file also has intervals as published, slopes within findings, and multiple and "
            "logistic regressions.",
            replace(simple, csv=Csv("regressions", shape_tables.regressions.to_csv())),
        ),
    ]


def _confidence_chapter(rounded: RoundedTable, figures: Sequence[Illustration] = (), words: str = "") -> list[Section]:
    """Return a section of slopes and correlations with the score; empty without scores. `words` describe the masks."""
    if not rounded.rows:
        return []
    caption = (
        f"Slope and Spearman's correlation of IoU (all images) and hit with the score{words}; p values "
        f"are not corrected."
    )
    table = _printed("confidence", "Slopes and correlations with the score", rounded)
    return [section("confidence", "Confidence", "As Table 3 and Extended Data Fig. 9", caption, *figures, table)]


def _printed(name: str, title: str, result: TableResult) -> PageTable:
    rows: Sequence[dict[str, str]] = result.printed_rows()
    return printed_table(name, title, result.caption, rows, result.to_csv())


_OF_MAPS = ("mask_iou", "point_hit")
_PREDICTIONS, _HUMAN = "predictions", "human"


@dataclass(frozen=True)
class _Work:
    """The inputs that every step of the report uses."""

    bench: Bench
    predictions: Path
    human: str | Path | ScoredFile
    missing: str
    draw: Mapping[str, Any]
    how: Mapping[str, Any]

    @property
    def findings(self) -> list[str]:
        """The findings asked."""
        asked = {finding for _, finding in asked_of(self.bench).asked_pairs()}
        return [finding for finding in self.bench.info.findings if finding in asked]

    def predicted(self, name: str, maps: Path, **options: Any) -> Path:
        """Write the prediction file for a folder of maps; return its path."""
        out = self.predictions / f"{name}.jsonl"
        return saliency(maps, self.bench, out=out, **options, **self.how).path

    def compared(self, file: Path, metric: str | None = None) -> Comparisons:
        """Return the comparison of a prediction file with the readers."""
        options = {"relative": True, "missing": self.missing, **self.draw}
        return compare(file, self.human, self.bench, metric=metric, **options)


def saliency_report(
    maps: Mapping[str, Path],
    bench: Bench,
    out: Path,
    *,
    human: str | Path | None = None,
    tune_split: str | None = None,
    missing: str = "miss",
    n_processes: int = 1,
    progress: Callable[..., None] | None = None,
    **draw: Any,
) -> tuple[Path, list[str]]:
    """Write the report from heat maps; return its path, and warnings.

    Parameters
    ----------
    maps : name -> folder of heat maps; all are shown beside the readers, and the first is compared with them
    out : folder, created if missing, for the report and the prediction files; files of an earlier report are replaced
    human : prediction file of benchmark readers; by default the readers of the dataset
    tune_split : split with references for tuning, whose maps are in the same folder; None tunes neither thresholds nor
        gates
    missing : as in :func:`score`
    n_processes, progress : as in :func:`saliency`
    draw : n_resamples, seed

    Raises
    ------
    ArgumentError
        If an argument breaks its rule, the maps do not fit the split, or readers are neither given nor in the dataset.
    """
    check_target(bench.folder, out)
    for name in maps:
        if name in ("", _HUMAN) or Path(name).name != name:
            raise ArgumentError(
                "maps", f"must have names that are valid as file names, other than {_HUMAN!r}", repr(name)
            )
    made = out / _PREDICTIONS
    made.mkdir(parents=True, exist_ok=True)
    readers = _readers(bench, made / f"{_HUMAN}.jsonl") if human is None else human
    how = {"n_processes": n_processes, "progress": progress}
    work = _Work(bench, made, readers, missing, draw, how)
    files = {name: work.predicted(name, folder) for name, folder in maps.items()}
    (first, file), *others = files.items()
    own = {name: score(one, bench, missing=missing, n_resamples=1).estimates for name, one in others}
    compared = work.compared(file)
    methods = {first: compared.scored_a.estimates} | own | {compared.b: compared.scored_b.estimates}
    words = f"Masks at Otsu's threshold, points at the maximum, beside {compared.b}, with 95% intervals."
    chapters = _comparison_chapters(compared, _OF_MAPS, words, [_methods(methods, bench)], own)
    chapters += _film_chapters(compared, bench)
    pixel_chapter = _pixel_chapter(compared, bench)
    has_scores = all(prediction.score is not None for prediction in compared.scored_a.report.predictions)
    compared = _without_masks(compared)
    work = replace(work, human=compared.scored_b)
    chapters += _shape_chapters(shapes(bench, compared.scored_a, compared.scored_b))
    tuned: list[Section] = []
    gates: list[Section] = []
    warnings = _unanswered(compared, missing)
    judged, of_what = compared, ", for masks at Otsu's threshold"
    if tune_split is not None:
        tuned, left_out = _tuned(work, first, maps[first], tune_split)
        warnings += left_out
        if has_scores:
            gates, judged, left_out = _gated(work, first, maps[first], tune_split)
            warnings += left_out
            of_what = ", for the gated masks"
    confidence = confidence_table(assurances_of(cast(CaseRows, judged.scored_a.rows)))
    chapters += _confidence_chapter(confidence, _auroc(compared, first, draw), of_what)
    chapters += [*tuned, pixel_chapter, *gates]
    if tune_split is None:
        warnings.append("Thresholds and gates are missing because no split for tuning was given.")
    elif not has_scores:
        warnings.append(f"Gates are missing because the maps of {first} have no probability.")
    return _write(out, bench, f"{first} beside {compared.b}", chapters, warnings)


def _without_masks(compared: Comparisons) -> Comparisons:
    """Return a comparison without its predictions, to free the memory of a whole split's masks."""
    bare = [replace(one, report=replace(one.report, predictions=())) for one in _systems(compared).values()]
    return replace(compared, scored_a=bare[0], scored_b=bare[1])


def _readers(bench: Bench, path: Path) -> Path:
    """Write the answers of the dataset's benchmark readers as a prediction file; return its path."""
    references = list(bench.kind.data.read_references(bench.folder, bench.split))
    predictions = human_baseline(asked_of(bench), references)
    write_whole(path, bench.kind.predictions.to_jsonl(predictions))
    return path


def _methods(estimates: Mapping[str, Sequence[Estimate]], bench: Bench) -> PageTable:
    """Return a table with every system's scores side by side; its CSV file also has the intervals."""
    by_key = {(name, e.metric, e.finding): e for name, own in estimates.items() for e in own if e.metric in _OF_MAPS}
    rows, figures = [], []
    for metric in _OF_MAPS:
        for finding in (*bench.info.findings, MACRO):
            own = {name: by_key[name, metric, finding] for name in estimates if (name, metric, finding) in by_key}
            if any(one.value == one.value for one in own.values()):
                values = {name: value_text(metric, own[name].value) if name in own else "-" for name in estimates}
                rows.append({"metric": METRICS[metric].title, "finding": finding} | values)
                figures += [
                    {"system": name, "metric": metric, "finding": finding, "value": one.value, "value_low": one.low,
                     "value_high": one.high, "n": one.n}
                    for name, one in own.items()
                ]  # fmt: skip
    caption = "Means per finding and over findings; the CSV file also has 95% intervals"
    return printed_table("methods", "Localization by method", caption, rows, RoundedTable(caption, figures).to_csv())


def _tuned(work: _Work, name: str, maps: Path, split: str) -> tuple[list[Section], list[str]]:
    """Return (chapters, omissions).

    The sections show threshold curves, and compare masks at the best thresholds with the readers' masks.
    """
    tuned = tune_saliency(maps, work.bench.folder, split=split, progress=work.how["progress"])
    file = work.predicted(f"{name}-tuned", maps, threshold=tuned)
    compared, omissions = _of_tuned(work, file, "mask_iou", tuned, "threshold")
    figures = _figures_of_both(compared, "tuned")
    return _with_curves(file, "tuning", tuned, *figures, source="As Extended Data Fig. 1"), omissions


def _gated(work: _Work, name: str, maps: Path, split: str) -> tuple[list[Section], Comparisons, list[str]]:
    """Return (chapters, comparison, omissions).

    The sections show gate curves, and compare gated masks with the readers' masks.
    """
    tuned = tune_gates(maps, work.bench.folder, split=split, progress=work.how["progress"])
    file = work.predicted(f"{name}-gated", maps, gate=tuned)
    compared, omissions = _of_tuned(work, file, "mask_iou_all", tuned, "gate")
    asks_all = work.bench.info.asks == "all"
    whole = "" if asks_all else " Absent findings are not asked about here, so masks of absent findings do not count."
    chapters = _with_curves(file, "gates", tuned, *_figures_of_both(compared, "gated"), note=whole)
    return chapters, compared, omissions


def _of_tuned(work: _Work, file: Path, metric: str, tuned: Tuned, what: str) -> tuple[Comparisons, list[str]]:
    """Return the comparison with readers on findings with a tuned value, and a note on omitted findings."""
    compared = _without_masks(work.compared(file, metric))
    lacking = tuned.lacking(work.findings)
    if not lacking:
        return compared, []
    kept = [one for one in work.findings if one not in lacking]
    sides, resampling = (compared.scored_a, compared.scored_b), compared.resampling
    model, human = (one.rows for one in sides)
    fewer = relative_decrease(model, human, resampling, metrics=[metric], findings=kept)
    a, b = (replace(one, groups=kept, options=replace(one.options, **asdict(resampling))) for one in sides)
    omission = f"No {what} could be tuned for {', '.join(lacking)} on split {tuned.split!r}; results with "
    omission += f"tuned {what}s, and means over findings, omit these findings."
    return replace(compared, comparisons=fewer, scored_a=a, scored_b=b), [omission]


def _with_curves(
    file: Path, ending: str, tuned: Tuned, *others: Illustration, source: str = "", note: str = ""
) -> list[Section]:
    write_whole(file.with_name(f"{file.name}.{ending}.csv"), tuned.to_csv())
    return _curves_beside(file, *others, source=source, note=note)


def _estimates(compared: Comparisons) -> dict[str, Sequence[Estimate]]:
    """Return name -> estimates, the readers first."""
    return {compared.b: compared.scored_b.estimates, compared.a: compared.scored_a.estimates}


def _figures_of_both(compared: Comparisons, word: str) -> list[Illustration]:
    drawn = figures_of_both(compared.comparisons, _estimates(compared))
    return [replace(one, name=f"{word}_{one.name}") for one in drawn]


def _auroc(compared: Comparisons, name: str, draw: Mapping[str, Any]) -> list[Illustration]:
    """Return a figure of AUROC beside localization, if all findings are asked about and maps have probabilities."""
    scored = compared.scored_a
    rows = cast(CaseRows, scored.rows)
    if rows.presence is None:
        return []
    aurocs = rows.presence.estimates(rows.findings, rows.all_images, Resampling(**draw))
    return [figure_beside_auroc([*(e for e in scored.estimates if e.metric != "auroc"), *aurocs], name)]
