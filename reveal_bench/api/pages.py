"""Implement ``rb.report``, which writes an HTML report of a dataset or of models' answers."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.api.bench import AnyBench, Bench, as_bench, as_whole_bench
from reveal_bench.api.inputs import type_of
from reveal_bench.api.scoring import read_ratings_given
from reveal_bench.arguments import ArgumentError

if TYPE_CHECKING:
    from reveal_bench.kinds.folder import AnyFolder
    from reveal_bench.kinds.tasks.records import Rating

Progress = Callable[..., None]
_RUNS_RULE = (
    'must be paths of run folders and prediction files (`rb.convert(table, bench).write("a.jsonl")` writes one)'
)


@dataclass(frozen=True)
class WrittenReport:
    """A written report, and warnings about it.

    Attributes
    ----------
    path : the HTML file
    warnings : sentences for the user
    """

    path: Path
    warnings: tuple[str, ...]

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{html.escape(warning)}</li>" for warning in self.warnings)
        link = f"<a href='{html.escape(str(self.path), quote=True)}'>{html.escape(str(self.path))}</a>"
        return f"<p>wrote {link}</p><ul>{items}</ul>"


def report(
    runs: str | Path | Bench | Mapping[str, str | Path] | Sequence[str | Path | tuple[str, Path]],
    bench: AnyBench | None = None,
    *,
    out: str | Path | None = None,
    split: str | None = None,
    human: str | Path | None = None,
    saliency: bool = False,
    ratings: str | Path | Sequence[Rating] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> WrittenReport:
    """Write an HTML report: a dataset's counts and images, or runs' scores, errors and heat maps.

    Parameters
    ----------
    runs : with `bench`, run folders and prediction files: one, several, (label, path) pairs, or label -> path; an empty
        label is derived from the run. Without `bench`, a dataset folder
    bench : dataset that the runs answered, or for a report of runs a part of it (:meth:`Bench.select`)
    out : folder for `report.html` and its files; for a dataset also the HTML file itself, by default
        ``<folder>-report.html``
    split : split with references; by default all splits of a dataset, or the runs' split
    human : prediction file of benchmark readers, for a report that compares one prediction file with the readers (paper
        002); further options are `missing`, `n_resamples` and `seed`
    saliency : True if `runs` are folders of heat maps, for the report of paper 002: the first folder is compared with
        `human` (by default, with the dataset's readers), and one table shows all folders. Further options are
        `tune_split` and `n_processes`
    ratings : readers' ratings of answers to open tasks, a list of them, a table, or a dataset folder with ratings, for
        a report about ratings only. `runs` may then be empty, or determine the tasks that each model answered
    progress : called with (what, done, total)
    options : options for runs, see :func:`reveal_bench.reports.run_page.write_run_report`

    Raises
    ------
    ValueError
        If `out` is needed and not given, or as in the functions that write the report.
    LintError
        If a prediction file has errors.
    """
    if bench is None:
        from reveal_bench.reports.dataset import write_report
        from reveal_bench.reports.page import PAGE

        if isinstance(runs, Mapping) or not isinstance(runs, str | Path | Bench):
            raise ArgumentError("bench", "must be given: the dataset that the runs answered")
        folder = runs.folder if isinstance(runs, Bench) else Path(runs)
        target = folder.resolve().with_name(f"{folder.resolve().name}-report.html") if out is None else Path(out)
        target = target if target.suffix == ".html" else target / PAGE
        return WrittenReport(target, tuple(write_report(folder, target, split=split, progress=progress, **options)))
    from reveal_bench.reports.page import PAGE
    from reveal_bench.reports.run_page import write_run_report

    if out is None:
        raise ArgumentError("out", "must be given: the folder of a report of runs")
    if saliency:
        from reveal_bench.api.human_page import saliency_report

        maps = {label or path.name: path for label, path in _labelled(runs)}
        page, notes = saliency_report(
            maps, as_whole_bench(bench, split), Path(out), human=human, progress=progress, **options
        )
        return WrittenReport(page, tuple(notes))
    if human is not None:
        from reveal_bench.api.human_page import human_report

        if len(models := _labelled(runs)) != 1:
            raise ArgumentError("human", "must be given with one prediction file", f"{len(models)} of them")
        ((label, model),) = models
        opened = as_whole_bench(bench, split, runs=[model])
        path, notes = human_report(model, human, opened, Path(out), label=label, **options)
        return WrittenReport(path, tuple(notes))
    if ratings is not None:
        from reveal_bench.reports.rubric import write_rubric_report

        opened = as_whole_bench(bench, split, runs=[path for _, path in _labelled(runs)])
        rating_list = read_ratings_given(ratings, opened.split) or ()
        notes = write_rubric_report(opened.folder, rating_list, Path(out), runs=_labelled(runs), split=opened.split)
        return WrittenReport(Path(out) / PAGE, tuple(notes))
    dataset: AnyFolder
    if isinstance(bench, str | Path) and Path(bench).exists():
        dataset = Path(bench)  # not opened, because the runs determine the split
    else:
        opened = as_bench(bench, split)
        dataset, split = opened.dataset, opened.split
    warnings = write_run_report(_labelled(runs), dataset, Path(out), split=split, progress=progress, **options)
    return WrittenReport(Path(out) / PAGE, tuple(warnings))


def _labelled(runs: Any) -> list[tuple[str, Path]]:
    if isinstance(runs, str | Path):
        return [("", Path(runs))]
    if not isinstance(runs, Mapping | list | tuple):
        raise ArgumentError("runs", _RUNS_RULE, type_of(runs))
    named = runs.items() if isinstance(runs, Mapping) else runs
    pairs = [one if isinstance(one, tuple) else ("", one) for one in named]
    wrong = next((path for _, path in pairs if not isinstance(path, str | Path)), None)
    if wrong is not None:
        raise ArgumentError("runs", _RUNS_RULE, type_of(wrong))
    return [(label, Path(path)) for label, path in pairs]
