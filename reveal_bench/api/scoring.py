"""Implement ``rb.score``, ``rb.compare`` and ``rb.rank`` for predictions of any accepted type."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.analyses.patient_groups import group_patients
from reveal_bench.analyses.reader_reference import score_against_readers
from reveal_bench.analyses.subgroups import score_subgroups
from reveal_bench.api.bench import AnyBench, Bench, as_asked_bench
from reveal_bench.api.comparison_tables import Comparisons, Ranking, on_one_grid, scale_reason
from reveal_bench.api.inputs import frame_of, lint_inputs, name_of, named_systems, type_of
from reveal_bench.api.keywords import suggest_keywords
from reveal_bench.api.score_tables import AgainstReaders, Scores, Subgroups, beside_published
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation import compare as comparison
from reveal_bench.evaluation.finding_groups import compare_groups, rank_groups
from reveal_bench.evaluation.margin import Margin
from reveal_bench.evaluation.score import LintError, ScoredFile, resolve_options, score_report
from reveal_bench.kinds.kind import AnyKind, Readings
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.intervals import Interval
from reveal_bench.predictions.files import grid_of, prediction_file, prediction_files
from reveal_bench.predictions.limits import LintOptions

if TYPE_CHECKING:
    from reveal_bench.kinds.tasks.records import Rating


@suggest_keywords
def score(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    grid: int | None = None,
    thresholds: Any = None,
    ratings: Any = None,
    allow_missing: bool = False,
    missing: str | None = None,
    criterion: str | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: str = "patient",
    interval: str | None = None,
    strata: bool | None = None,
    finding_groups: Any = None,
    by: str | Sequence[str] | None = None,
    bands: Sequence[float] | None = None,
    readers: bool = False,
    published: bool = False,
    metric: str | None = None,
    name: str | None = None,
) -> Scores:
    """Score predictions by every metric, per finding and as macro mean, with 95% intervals.

    Parameters
    ----------
    predictions, bench, split, grid, allow_missing, name : as in :func:`~reveal_bench.api.inputs.lint`
    thresholds : for findings, probability at or above which a label counts as predicted: one number, a mapping of
        labels to numbers, or a vector in the order of ``bench.findings``; 0.5 by default, but scores outside [0, 1]
        make decisions only with given thresholds
    ratings : for tasks, readers' ratings of the answers: a table or a list
    missing : allow unanswered questions, which count as a "miss", or in localization also "empty": an empty mask, whose
        true-positive IoU is undefined
    criterion : criterion for a hit in FROC and related metrics: "centre" (the default), "mask", "iou_50" or "iobb_50"
    n_resamples, seed : number of bootstrap replicates, and their seed
    unit : resampled unit: "patient", or the benchmark's unit ("image", "study" or "task")
    interval : "jackknife" (the default), "percentile" or "bca", and for localization "chexlocalize"
    strata : also score the strata that the kind of benchmark defines, such as views; the default depends on the kind
    finding_groups : groups of findings with macro means: ``{"tail": ["Mass", "Nodule"]}``, a JSON file of such groups,
        or "prevalence" for head, medium and tail; by default the folder's groups
    by : column of the dataset folder, such as "sex", whose groups of patients are also scored, see `Scores.subgroups`.
        A list has several columns; "sex,age" crosses two columns
    bands : increasing limits that divide a numeric column: ``[40, 65]`` makes three groups
    readers : also score against single readers and their consensus, if the dataset folder has them; see
        `Scores.readers`
    published : also return published rows of the same data and metrics; see `Scores.published`
    metric : name or title of the only metric of the result, also for groups, readers and published rows; groups and
        readers have the ranking metric by default. Without readers and published rows, several metrics can be given,
        separated by commas

    Raises
    ------
    LintError
        If the predictions have errors; its `report` lists all of them.
    ValueError
        If an argument breaks its rule, or the references of the split are private.
    """
    return score_with(
        predictions,
        bench,
        ScoringOptions(
            n_resamples,
            seed,
            unit,
            interval,
            grid,
            thresholds,
            allow_missing,
            missing,
            criterion,
            strata,
            finding_groups=finding_groups,
        ),
        split=split,
        ratings=ratings,
        by=by,
        bands=bands,
        readers=readers,
        published=published,
        metric=metric,
        name=name,
    )


def score_with(
    predictions: Any,
    bench: AnyBench,
    options: ScoringOptions,
    *,
    split: str | None = None,
    ratings: Any = None,
    by: str | Sequence[str] | None = None,
    bands: Sequence[float] | None = None,
    readers: bool = False,
    published: bool = False,
    metric: str | None = None,
    name: str | None = None,
) -> Scores:
    """Score predictions like :func:`score`, with the options in one object."""
    name = name_of(predictions, "predictions") if name is None else name
    opened = as_asked_bench(bench, split, runs=[predictions])
    if published and opened.part:
        raise ArgumentError("published", "must be omitted for a selection of questions", str(opened))
    if by is None and bands is not None:
        raise ArgumentError("bands", "needs `by`, the column of groups", repr(bands), ("by",))
    if by is not None and options.unit != "patient":
        rule = "must be used with unit 'patient', because groups consist of patients"
        raise ArgumentError("by", rule, repr(options.unit), ("unit",))
    scored = score_inputs(predictions, opened, options, argument="predictions", name=name, ratings=ratings)
    selected = [] if metric is None else metrics_named(metric, [scored])
    if by is None and not readers and not published:
        return Scores(scored, selected=_that_has(selected, scored))
    if len(selected) > 1 and (readers or published):
        rule = "must be a single metric with `readers` or `published`"
        raise ArgumentError("metric", rule, repr(metric), ("readers", "published"))
    primary = selected or [_default_metric(opened.kind, {name: scored})]
    subgroups = None
    if by is not None:
        columns = [by] if isinstance(by, str) else list(by)
        group_of = group_patients(opened.folder, opened.kind.config, opened.split, columns, bands)
        scored_groups = score_subgroups(scored.rows, group_of, primary, scored.resampling)
        subgroups = Subgroups(scored_groups, len(next(iter(group_of.values()))))
    return Scores(
        scored,
        subgroups,
        _against_readers(scored, opened, primary[0]) if readers else None,
        beside_published(scored, opened.info, name, selected[0] if selected else None) if published else None,
    )


def _that_has(selected: Sequence[str], scored: ScoredFile) -> tuple[str, ...]:
    """Return the selected metrics; raises ArgumentError if the system has no score of one of them."""
    known = dict.fromkeys(one.metric for one in scored.estimates) if selected else {}
    for name in selected:
        if name not in known:
            rule = f"must be one that the system has: {', '.join(known)}"
            raise ArgumentError("metric", rule, f"{name!r}{scale_reason(scored)}")
    return tuple(selected)


def _against_readers(scored: ScoredFile, bench: Bench, metric: str) -> AgainstReaders:
    records, readings = read_readers(bench)
    predictions = scored.report.predictions
    return AgainstReaders(
        score_against_readers(bench.kind, readings, predictions, records, scored.manifest, scored.options, metric)
    )


def read_readers(bench: Bench) -> tuple[list[Any], Readings]:
    """Return the references with the columns that scoring omits, and each reader's readings.

    Raises
    ------
    ArgumentError
        If the folder has no readings of single readers.
    """
    records = bench.kind.data.read_records(bench.dataset, bench.split)
    readers = bench.kind.readers
    readings = {} if readers is None else readers.readings(bench.dataset, bench.split, records)
    if not readings:
        place = f"{bench.folder}, split {bench.split!r}, which has none"
        raise ArgumentError("readers", "must be used with a dataset folder that has readings of single readers", place)
    return records, readings


def score_readers(readers: Any, bench: Bench, scored: ScoredFile) -> dict[str, Rows]:
    """Return the rows of every reader, with the options of a scored system; `readers` as of :func:`curves`."""
    named = dict.fromkeys(read_readers(bench)[1]) if readers is True else named_systems(readers, "readers")
    return {reader: _score_reader(reader, inputs, bench, scored) for reader, inputs in named.items()}


def _score_reader(reader: str, inputs: Any, bench: Bench, scored: ScoredFile) -> Rows:
    """Return a reader's rows; None stands for the reader of the dataset folder, who must have read every case."""
    if inputs is not None:
        return score_inputs(inputs, bench, scored.options, argument="readers", name=reader).rows
    records, readings = read_readers(bench)
    readers = bench.kind.readers
    if reader not in readings or readers is None:
        raise ArgumentError("readers", f"must be files or readers of the folder, {', '.join(readings)}", repr(reader))
    by_key = {bench.kind.data.key_of(record): record for record in records}
    n_unread = sum(key not in readings[reader] for key in by_key)
    if n_unread:
        rule = "must have read every case; a selection can omit the others"
        raise ArgumentError("readers", rule, f"{reader!r}, who has not read {n_unread:,} of {len(by_key):,}")
    answers = [answer for key, record in by_key.items() for answer in readers.answers_of(record, readings[reader][key])]
    rows: Rows = bench.kind.scoring.score(answers, records, scored.manifest, scored.options)
    return rows


def score_inputs(
    predictions: Any, bench: Bench, options: ScoringOptions, *, argument: str, name: str, ratings: Any = None
) -> ScoredFile:
    """Read, check and score predictions of any type; `argument` is their name in errors.

    Predictions already scored on the same split with the same options are returned unchanged.
    """
    if isinstance(predictions, Scores):
        predictions = predictions.scored
    if isinstance(predictions, ScoredFile):
        return predictions
    if ratings is not None:
        ratings = _ratings_of(read_ratings_given(ratings, bench.split), name_of(predictions, name))
    if bench.kind.questions.uses_grid:
        options = replace(options, grid=grid_of(predictions, options.grid))
    options = resolve_options(options, bench.dataset, bench.split, ratings=ratings)
    at_home = LintOptions(options.grid, options.allow_missing, any_scale=True, name=name)
    report = lint_inputs(predictions, bench, at_home, argument)
    path = prediction_file(Path(predictions)) if isinstance(predictions, str | Path) else None
    return score_report(report, bench.dataset, bench.split, options, path=path, ratings=ratings)


def read_ratings_given(inputs: Any, split: str) -> Sequence[Rating] | None:
    """Return the ratings in a table, its path, a list, or a dataset folder with ratings of `split`; None for None."""
    if isinstance(inputs, list | tuple) and inputs and all(isinstance(one, Mapping) for one in inputs):
        import pandas as pd

        inputs = pd.DataFrame(list(inputs))
    if inputs is None or isinstance(inputs, list | tuple):
        return inputs
    if hasattr(inputs, "to_pandas") or hasattr(inputs, "to_csv"):
        with tempfile.TemporaryDirectory(prefix="reveal-bench-") as folder:
            path = Path(folder) / "ratings.csv"
            # a column of whole numbers with missing values has floats, so write 4.0 as 4
            frame_of(inputs, "ratings").convert_dtypes().to_csv(path, index=False)
            return read_ratings_given(path, split)
    if not isinstance(inputs, str | Path):
        rule = "must be a table, its path, the path of a dataset folder with ratings, or a list of ratings"
        raise ArgumentError("ratings", rule, type_of(inputs))
    if Path(inputs).is_dir():
        from reveal_bench.kinds.tasks.records import read_ratings

        return read_ratings(Path(inputs), split)
    from reveal_bench.sources.rexecution_files import read_ratings_table

    return read_ratings_table(Path(inputs))


def _ratings_of(ratings: Sequence[Rating] | None, model: str) -> Sequence[Rating] | None:
    """Return the ratings of `model`, or all ratings if the table only has one model."""
    if ratings is None or len({rating.model for rating in ratings}) <= 1:
        return ratings
    return _own_ratings(ratings, model)


def _own_ratings(ratings: Sequence[Rating], model: str, system: Any = None) -> Sequence[Rating]:
    """Return the ratings of `model`, one of several systems; a `system` that is an empty file needs none."""
    own = [rating for rating in ratings if rating.model == model]
    is_empty = isinstance(system, str | Path) and not prediction_file(Path(system)).stat().st_size
    if not own and not is_empty and not isinstance(system, Scores | ScoredFile):
        known = ", ".join(sorted({rating.model for rating in ratings}))
        raise ArgumentError(
            "ratings", f"must have ratings of {model!r}, the model named like the file", f"those of {known}"
        )
    return own


@suggest_keywords
def compare(
    a: Any,
    b: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    metric: str | None = None,
    relative: bool = False,
    grid: int | None = None,
    ratings: Any = None,
    allow_missing: bool = False,
    n_resamples: int = 1000,
    seed: int = 0,
    unit: str = "patient",
    interval: Interval = "jackknife",
    margin: float | None = None,
    equivalence: bool = False,
    missing: str | None = None,
    compat: str | None = None,
    finding_groups: Any = None,
) -> Comparisons:
    """Compare two systems on one split: paired differences ``a - b`` with intervals and p.

    Parameters
    ----------
    a, b : predictions of any type that :func:`~reveal_bench.api.inputs.lint` accepts, or results of :func:`score`,
        which are not scored again and may each have different thresholds
    metric : name or title of one metric; by default all metrics that both systems have and that have a better direction
    relative : True for relative decreases from b, ``(b - a) / b``, instead of differences
    bench, split, grid, ratings, allow_missing, n_resamples, seed, unit : as in :func:`score`
    interval : "jackknife", with intervals and p by swapping the systems' answers, or "percentile", with both from
        replicates
    margin : largest acceptable loss, such as 0.05 for five percentage points, for testing whether A is non-inferior to
        B
    equivalence : test equivalence: a gain must also be below the margin
    missing : as in :func:`score`, for both systems
    compat : "chexlocalize" or "chexlocalize-full" for relative decreases as in the published code, resampling images;
        see :mod:`reveal_bench.analyses.relative_decrease`
    finding_groups : as in :func:`score`; also compare the macros of these groups, unless `relative` is given

    Raises
    ------
    LintError, ValueError
        As :func:`score`.
    """
    return compare_with(
        a,
        b,
        bench,
        ScoringOptions(
            n_resamples,
            seed,
            unit,
            interval,
            grid,
            allow_missing=allow_missing,
            missing=missing,
            finding_groups=finding_groups,
        ),
        split=split,
        metric=metric,
        relative=relative,
        ratings=ratings,
        margin=margin,
        equivalence=equivalence,
        compat=compat,
    )


def compare_with(
    a: Any,
    b: Any,
    bench: AnyBench,
    options: ScoringOptions,
    *,
    split: str | None = None,
    metric: str | None = None,
    relative: bool = False,
    ratings: Any = None,
    margin: float | None = None,
    equivalence: bool = False,
    compat: str | None = None,
) -> Comparisons:
    """Compare two systems like :func:`compare`, with the options in one object."""
    judged_by = _margin(margin, equivalence, relative)
    if compat is not None and not relative:
        raise ArgumentError("compat", "must be given with `relative`", repr(compat), ("relative",))
    opened, names = as_asked_bench(bench, split, runs=[a, b]), two_names(a, b)
    ratings = read_ratings_given(ratings, opened.split)
    scored = [
        score_inputs(
            system,
            opened,
            once(options),
            argument=argument,
            name=name,
            ratings=None if ratings is None else _own_ratings(ratings, name, system),
        )
        for system, argument, name in zip((a, b), "ab", names, strict=True)
    ]
    one, other = scored = on_one_grid(scored)
    options = replace(options, part=_shared_part(scored, "b"))
    resampling = options.resampling if compat is None else replace(options.resampling, unit="image")
    metrics = None if metric is None else [metric_named(metric, scored)]
    for system, name in zip(scored, names, strict=True):
        if metrics and metrics[0] not in system.rows.metrics():
            shared = ", ".join(one for one in one.rows.metrics() if one in other.rows.metrics())
            rule = f"must be one that both systems have: {shared or 'none'}"
            raise ArgumentError("metric", rule, f"{metric!r}, which {name} lacks{scale_reason(system)}")
    if compat is not None:
        from reveal_bench.analyses.relative_decrease import published_decreases

        compared = published_decreases(one, other, compat, resampling=resampling, metrics=metrics)
    elif relative:
        compared = comparison.relative_decrease(one.rows, other.rows, resampling, metrics=metrics)
    else:
        compared = comparison.compare(one.rows, other.rows, resampling, margin=judged_by, metrics=metrics)
        groups = one.options.finding_groups or {}
        compared = compare_groups(one.rows, other.rows, groups, resampling, compared, margin=judged_by, metrics=metrics)
    return Comparisons(names[0], names[1], one, other, compared, relative, resampling, compat)


def _margin(width: float | None, equivalence: bool, relative: bool) -> Margin | None:
    if width is None:
        if equivalence:
            raise ArgumentError("equivalence", "must be given with a `margin`, such as 0.05")
        return None
    if relative:
        raise ArgumentError("margin", "must not be given with a relative decrease", others=("relative",))
    return Margin(width, equivalence)


def once(options: ScoringOptions = ScoringOptions()) -> ScoringOptions:
    """Return `options` with one replicate and no strata, for a score whose intervals are not needed."""
    return replace(options, n_resamples=1, seed=0, interval=None, strata=False)


def two_names(a: Any, b: Any) -> list[str]:
    """Return the names of two systems; files with the same name, as in run folders, are named with their folders."""
    names = [name_of(a, "a"), name_of(b, "b")]
    if names[0] == names[1]:
        names = [Path(system).parent.name if isinstance(system, str | Path) else name
                 for system, name in zip((a, b), names, strict=True)]  # fmt: skip
    return names


@suggest_keywords
def rank(
    systems: Mapping[str, Any] | str | Path,
    bench: AnyBench,
    *,
    split: str | None = None,
    metric: str | None = None,
    grid: int | None = None,
    ratings: Any = None,
    allow_missing: bool = False,
    n_resamples: int = 10_000,
    seed: int = 0,
    unit: str = "patient",
    interval: Interval = "jackknife",
    finding_groups: Any = None,
    readers: Any = None,
    printed: Any = None,
) -> Ranking:
    """Rank systems on one split, with rank intervals and tiers of systems without significant differences.

    Parameters
    ----------
    systems : name -> predictions or scores, as in :func:`compare`; or a folder of prediction files, of folders with one
        prediction file each, or of run folders
    metric : name or title of the metric to rank by; by default the leaderboard's
    bench, split, grid, ratings, allow_missing, n_resamples, seed, unit : as in :func:`score`
    interval : "jackknife", with p by swapping the systems' answers, or "percentile", with p from the replicates
    finding_groups : as in :func:`score`; also rank by the macro of each group, see `Ranking.by_group`
    readers : for probabilities of findings, readers to count below each system's ROC curve, as in :func:`curves`
    printed : table of a published board, shown beside the ranking: a column `system` with the names used here, and
        columns with any values

    Raises
    ------
    LintError, ValueError
        As :func:`score`; or if no system has `metric`.
    """
    return rank_with(
        systems,
        bench,
        ScoringOptions(
            n_resamples, seed, unit, interval, grid, allow_missing=allow_missing, finding_groups=finding_groups
        ),
        split=split,
        metric=metric,
        ratings=ratings,
        readers=readers,
        printed=printed,
    )


def rank_with(
    systems: Mapping[str, Any] | str | Path,
    bench: AnyBench,
    options: ScoringOptions,
    *,
    split: str | None = None,
    metric: str | None = None,
    ratings: Any = None,
    readers: Any = None,
    printed: Any = None,
) -> Ranking:
    """Rank systems like :func:`rank`, with the options in one object."""
    if not isinstance(systems, Mapping | str | Path) or not systems:
        rule = "must be a mapping of names to predictions, or a folder of prediction files"
        raise ArgumentError("systems", rule, type_of(systems) if not isinstance(systems, Mapping) else "none")
    inputs = systems if isinstance(systems, Mapping) else prediction_files(Path(systems))
    opened = as_asked_bench(bench, split, runs=inputs.values())
    ratings = read_ratings_given(ratings, opened.split)
    scored, empty = {}, []
    for name, system in inputs.items():
        own = None if ratings is None else _own_ratings(ratings, name, system)
        try:
            scored[name] = score_inputs(system, opened, once(options), argument="systems", name=name, ratings=own)
        except LintError as error:
            if any(problem.rule != "empty-file" for problem in error.report.problems):
                raise
            empty.append(name)
    if not scored:
        raise ArgumentError("systems", "must have predictions", f"only empty files: {', '.join(empty)}")
    scored = dict(zip(scored, on_one_grid(list(scored.values())), strict=True))
    options = replace(options, part=_shared_part(scored.values(), "systems"))
    by = _default_metric(opened.kind, scored) if metric is None else metric_named(metric, scored.values())
    applying = {name: one.rows for name, one in scored.items() if by in one.rows.metrics()}
    if not applying:
        known = ", ".join(dict.fromkeys(name for one in scored.values() for name in one.rows.metrics()))
        raise ArgumentError("metric", f"must be one that at least one file has: {known}", repr(by))
    ranked = comparison.rank(applying, metric=by, resampling=options.resampling)
    groups = next(iter(scored.values())).options.finding_groups or {}
    by_group = rank_groups(applying, groups, metric=by, resampling=options.resampling)
    left_out = [name for name in scored if name not in applying]
    if readers is None and printed is None:
        return Ranking(ranked, scored, by, left_out, options.resampling, by_group, empty)
    from reveal_bench.api.printed_board import READERS_BELOW, read_printed, readers_below

    below = {}
    if rows := score_readers(readers, opened, next(iter(scored.values()))):
        estimates = {reader: own.estimates(options.resampling) for reader, own in rows.items()}
        below[READERS_BELOW] = readers_below(scored, estimates)
    columns, others = ({}, []) if printed is None else read_printed(printed, [one.name for one in ranked])
    return Ranking(ranked, scored, by, left_out, options.resampling, by_group, empty, {**below, **columns}, others)


def _shared_part(scored: Iterable[ScoredFile], argument: str) -> str:
    """Return the part of the split that all systems were scored on; raises ArgumentError if the parts differ."""
    parts = list(dict.fromkeys(one.options.part for one in scored))
    if len(parts) > 1:
        got = " and ".join(part or "the whole split" for part in parts)
        raise ArgumentError(argument, "must be scored on the same part of the split", got)
    return parts[0]


def _default_metric(kind: AnyKind, scored: Mapping[str, ScoredFile]) -> str:
    """Return the metric of the protocol that all systems follow, by default the leaderboard's.

    If it does not apply to all systems, return the first metric that does.
    """
    leading = {one.rows.leading for one in scored.values()} - {""}
    primary = leading.pop() if len(leading) == 1 else kind.release.primary
    shared = [name for name in METRICS if all(name in one.rows.metrics() for one in scored.values())]
    return primary if primary in shared or not shared else shared[0]


def metric_named(name: str, scored: Iterable[ScoredFile]) -> str:
    """Return the metric with this name or title, ignoring case.

    Raises
    ------
    ArgumentError
        If the metric is unknown; the message lists the metrics that at least one of `scored` has.
    """
    titles = {metric.title.casefold(): key for key, metric in METRICS.items()}
    metric_key = name if name in METRICS else titles.get(name.casefold())
    if metric_key is None:
        known = ", ".join(dict.fromkeys(metric for one in scored for metric in one.rows.metrics()))
        raise ArgumentError("metric", f"must be one that applies: {known}", repr(name))
    return metric_key


def metrics_named(names: str, scored: Iterable[ScoredFile]) -> list[str]:
    """Return the metrics with these names or titles, separated by commas; see :func:`metric_named`."""
    scored = list(scored)
    return list(dict.fromkeys(metric_named(name.strip(), scored) for name in names.split(",")))
