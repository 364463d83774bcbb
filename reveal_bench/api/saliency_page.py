"""The report of heat maps: from their files to every figure and table that paper 002 has, in its order, on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from reveal_bench.api.bench import Bench
from reveal_bench.api.heat_maps import asked_of, saliency, tune_gates, tune_saliency
from reveal_bench.api.human_page import (
    check_target,
    comparison_chapters,
    confidence_chapter,
    curves_beside,
    film_chapters,
    pixel_chapter,
    shape_chapters,
    unanswered,
)
from reveal_bench.api.shape_features import assurances_of, confidence_table, shapes
from reveal_bench.api.shown import FigureTable
from reveal_bench.api.verbs import Comparisons, compare, score
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.baselines import human_baseline
from reveal_bench.files import write_whole
from reveal_bench.kinds.localization.scoring import CaseRows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, Estimate
from reveal_bench.metrics.words import value_text
from reveal_bench.reports.chapters import Chapter, PrintedTable, write_chapters
from reveal_bench.reports.confidence import figure_beside_auroc
from reveal_bench.reports.decrease import figures_of_both
from reveal_bench.reports.style import Illustration
from reveal_bench.saliency_maps.tuning import Tuned

__all__ = ["saliency_report"]

_METRICS = ("mask_iou", "point_hit")
_PREDICTIONS, _HUMAN = "predictions", "human"


@dataclass(frozen=True)
class _Work:
    """What every step of the page needs."""

    bench: Bench
    predictions: Path
    human: str | Path
    missing: str
    draw: Mapping[str, Any]
    how: Mapping[str, Any]

    @property
    def findings(self) -> list[str]:
        """Those that are asked."""
        asked = {finding for _, finding in asked_of(self.bench).asked_pairs()}
        return [finding for finding in self.bench.info.findings if finding in asked]

    def predicted(self, name: str, maps: Path, **options: Any) -> Path:
        """The prediction file of a folder of maps."""
        out = self.predictions / f"{name}.jsonl"
        return saliency(maps, self.bench, out=out, **options, **self.how).path

    def compared(self, file: Path, metric: str | None = None) -> Comparisons:
        """Predictions beside the readers."""
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
    """Write the page; its path, and what a reader of it should know.

    Parameters
    ----------
    maps : name -> folder of heat maps. All stand in the first table; the first is compared with the readers
    out : folder, made if need be; in it also the prediction files that were made. Of an earlier report, files are
        replaced
    human : prediction file of benchmark readers; by default the readers of the dataset
    tune_split : with references and maps in the same folder, for thresholds and gates; without it neither is tuned
    missing : as of :func:`score`
    n_processes, progress : as of :func:`saliency`
    draw : n_resamples, seed

    Raises
    ------
    ArgumentError
        If an argument is not what it must be, the maps do not fit, or the dataset has no readers and none are given.
    """
    check_target(bench, out)
    for name in maps:
        if name in ("", _HUMAN) or Path(name).name != name:
            raise ArgumentError("maps", f"must have names that files can have, other than {_HUMAN!r}", repr(name))
    made = out / _PREDICTIONS
    made.mkdir(parents=True, exist_ok=True)
    readers = _readers(bench, made / f"{_HUMAN}.jsonl") if human is None else human
    how = {"n_processes": n_processes, "progress": progress}
    work = _Work(bench, made, readers, missing, draw, how)
    files = {name: work.predicted(name, folder) for name, folder in maps.items()}
    (first, file), *others = files.items()
    compared = work.compared(file)
    methods = {first: compared.scored_a.estimates}
    methods |= {name: score(one, bench, missing=missing, n_resamples=1).estimates for name, one in others}
    table = _methods(methods | {compared.b: compared.scored_b.estimates}, bench)
    words = f"Masks at Otsu's level and the largest pixels of {first} beside {compared.b}, with 95 % intervals."
    chapters = comparison_chapters(compared, _METRICS, words, [table])
    chapters += film_chapters(compared, bench)
    chapters += shape_chapters(shapes(bench, file, readers, missing=missing))
    has_scores = all(prediction.score is not None for prediction in compared.scored_a.report.predictions)
    tuned: list[Chapter] = []
    gates: list[Chapter] = []
    warnings = unanswered(compared, missing)
    judged, of_what = compared, ", of masks at Otsu's level"
    if tune_split is not None:
        tuned, left_out = _tuned(work, first, maps[first], tune_split)
        warnings += left_out
        if has_scores:
            gates, judged = _gated(work, first, maps[first], tune_split)
            of_what = ", of the gated masks"
    said = confidence_table(assurances_of(cast(CaseRows, judged.scored_a.rows)))
    chapters += confidence_chapter(said, _auroc(compared, first, draw), of_what)
    chapters += [*tuned, pixel_chapter({compared.a: file, compared.b: readers}, bench), *gates]
    if tune_split is None:
        warnings.append("No split for tuning was given: thresholds and gates are left out.")
    elif not has_scores:
        warnings.append(f"Maps of {first} have no probability: gates are left out.")
    info = bench.info
    title = f"{first} beside {compared.b}"
    place = f"{info.benchmark} {info.version}, split {bench.split}"
    return write_chapters(out, title, place, chapters, synthetic=info.synthetic, warnings=warnings), warnings


def _readers(bench: Bench, path: Path) -> Path:
    """The dataset's benchmark readers as a prediction file."""
    predictions = human_baseline(asked_of(bench), bench.kind.read_references(bench.folder, bench.split))
    write_whole(path, bench.kind.to_jsonl(predictions))
    return path


def _methods(estimates: Mapping[str, Sequence[Estimate]], bench: Bench) -> PrintedTable:
    """Every system's figures side by side; with intervals in the file."""
    by_key = {(name, e.metric, e.finding): e for name, own in estimates.items() for e in own if e.metric in _METRICS}
    rows, figures = [], []
    for metric in _METRICS:
        for finding in (*bench.info.findings, MACRO):
            own = {name: by_key[name, metric, finding] for name in estimates if (name, metric, finding) in by_key}
            if any(one.value == one.value for one in own.values()):
                shown = {name: value_text(metric, own[name].value) if name in own else "-" for name in estimates}
                rows.append({"metric": METRICS[metric].title, "finding": finding} | shown)
                figures += [
                    {"system": name, "metric": metric, "finding": finding, "value": one.value, "value_low": one.low,
                     "value_high": one.high, "n": one.n}
                    for name, one in own.items()
                ]  # fmt: skip
    caption = "Means per finding, and over the findings; the file has their 95 % intervals"
    return PrintedTable("methods", "Localization by method", caption, rows, FigureTable(caption, figures).to_csv())


def _tuned(work: _Work, name: str, maps: Path, split: str) -> tuple[list[Chapter], list[str]]:
    """The curves of thresholds, and what the best of them make beside the readers; what is left out."""
    found = tune_saliency(maps, work.bench.folder, split=split, progress=work.how["progress"])
    file = work.predictions / f"{name}-tuned.jsonl"
    lacking = [one for one in work.findings if one not in found.thresholds]
    figures = []
    if not lacking:
        work.predicted(file.stem, maps, threshold=found)
        figures = _both(work.compared(file, "mask_iou"), "tuned")
    (chapter,) = _with_curves(file, "tuning", found)
    told = f"Split {split!r} has no reference of {', '.join(lacking)}: masks at tuned thresholds are left out."
    return [replace(chapter, source="As Extended Data Fig. 1", figures=[*chapter.figures, *figures])], [told] * bool(
        lacking
    )


def _gated(work: _Work, name: str, maps: Path, split: str) -> tuple[list[Chapter], Comparisons]:
    """The curves of gates, and the IoU of all images of the gated masks beside the readers'."""
    found = tune_gates(maps, work.bench.folder, split=split, progress=work.how["progress"])
    file = work.predicted(f"{name}-gated", maps, gate=found)
    (chapter,) = _with_curves(file, "gates", found)
    compared = work.compared(file, "mask_iou_all")
    asks_all = work.bench.info.asks == "all"
    whole = "" if asks_all else " Absent findings are not asked here, so that no mask of one counts."
    figures = [*chapter.figures, *_both(compared, "gated")]
    return [replace(chapter, words=chapter.words + whole, figures=figures)], compared


def _with_curves(file: Path, ending: str, found: Tuned) -> list[Chapter]:
    write_whole(file.with_name(f"{file.name}.{ending}.csv"), found.to_csv())
    return curves_beside(file)


def _both(compared: Comparisons, word: str) -> list[Illustration]:
    both = {name: one.estimates for name, one in ((compared.b, compared.scored_b), (compared.a, compared.scored_a))}
    return [replace(drawn, name=f"{word}_{drawn.name}") for drawn in figures_of_both(compared.comparisons, both)]


def _auroc(compared: Comparisons, name: str, draw: Mapping[str, Any]) -> list[Illustration]:
    """AUROC beside localization, where a benchmark asks for all findings and the maps have probabilities."""
    scored = compared.scored_a
    rows = cast(CaseRows, scored.rows)
    if rows.presence is None:
        return []
    options: dict[str, Any] = {"n_resamples": 1000, "seed": 0} | dict(draw)
    aurocs = rows.presence.estimates(rows.findings, rows.all_images, unit="patient", **options)
    return [figure_beside_auroc([*(e for e in scored.estimates if e.metric != "auroc"), *aurocs], name)]
