"""Write the report of model runs: one HTML page, figures as PNG and SVG, tables as CSV.

The files are reproducible: they contain no time of day and no path. Nothing names an image or a patient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.folder import AnyFolder
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.models.run_folder import RUN
from reveal_bench.predictions.files import prediction_file
from reveal_bench.reports.anatomy import Regions
from reveal_bench.reports.page import Progress, check_target, write_page
from reveal_bench.reports.run_errors import Reviews
from reveal_bench.reports.run_localization import MOST_EXAMPLES, HitReport
from reveal_bench.reports.run_report import Options, RunReport
from reveal_bench.reports.run_scores import AnswerReport, ScoreReport
from reveal_bench.reports.runs import load_runs, open_split

REPORTS: dict[str, type[RunReport]] = {"hits": HitReport, "scores": ScoreReport, "answers": AnswerReport}
"""`Display.run_report` of a kind of benchmark -> its class of report."""


def write_run_report(
    runs: Sequence[tuple[str, Path]],
    folder: AnyFolder,
    out: Path,
    *,
    split: str | None = None,
    reference: str | None = None,
    anatomy: Mapping[str, Regions] | None = None,
    reviews: Reviews | None = None,
    findings: Sequence[str] | None = None,
    examples: int = 0,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[str]:
    """Write ``report.html`` and the folders ``figures`` and ``tables`` into `out`.

    Parameters
    ----------
    runs : (label, run folder or prediction file); an empty label is derived from the run
    folder : dataset folder with the references of the split, or a part of it
    out : folder, created if missing; files of an earlier report are replaced
    split : by default the split of the run folders, or "released"
    reference : label of the run with which others are compared; by default the last run
    anatomy : for localization: known regions by image (:func:`reveal_bench.reports.anatomy.read_anatomy`)
    reviews : for localization: readers' answers about misses (:func:`reveal_bench.reports.misses.read_reviews`)
    findings : findings to report and to average over; all by default
    examples : for localization: number of example images with every run's cell, at most 12; 0 by default
    n_resamples, seed : number of replicates of patients, and their seed
    progress : called with (unit, done, total)

    Returns
    -------
    Warnings for the user

    Raises
    ------
    ValueError
        If a run does not belong to the folder's benchmark, version and split, references are missing, a label is
        unknown or given twice, or `out` is in the dataset folder.
    LintError
        If a prediction file has errors.
    ImportError
        Without the extra [report].
    """
    out = Path(out)
    check_target(Path(folder), out)
    if not 0 <= examples <= MOST_EXAMPLES:
        raise ArgumentError("examples", f"must be from 0 to {MOST_EXAMPLES}", examples)
    runs = [(label, path if (path / RUN).is_file() else prediction_file(path)) for label, path in runs]
    opened = open_split(folder, runs, split)
    loaded = load_runs(runs, opened, progress=progress)
    labels = [run.label for run in loaded]
    if reference is not None and reference not in labels:
        raise ArgumentError("reference", f"must be the label of a run ({', '.join(labels)})", repr(reference))
    place = len(labels) - 1 if reference is None else labels.index(reference)
    resampling = Resampling(n_resamples, seed, part=opened.part)
    options = Options(place, anatomy, reviews, findings, examples, resampling, progress)
    report = REPORTS[opened.kind.display.run_report](opened, loaded, options)
    warnings = report.warnings()
    write_page(out, report.page(warnings))
    return warnings
