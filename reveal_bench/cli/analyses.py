"""Commands for analyses beyond scores: ``confidence``, ``curves``, ``shapes``, ``readers`` ..."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import output as terminal
from reveal_bench.cli.inputs import OUTPUT, require_files
from reveal_bench.cli.output import (
    AllowMissing,
    AsJson,
    Findings,
    Folder,
    Format,
    Metadata,
    Missing,
    PredictionFile,
    Split,
    Subset,
)
from reveal_bench.cli.score import thresholds_of

Tables = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for tables (CSV) and figures (SVG, PNG); replaces earlier ones."),
    OUTPUT,
]
ReaderNames = Annotated[
    list[Path] | None,
    typer.Option(help="Findings: a reader of the folder or a reader's file, to compare with ROC curves; repeatable."),
    OUTPUT,  # names of readers are no files
]


def confidence(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    out: Tables = None,
    n_bins: Annotated[int, typer.Option("--bins", help="Number of bins of probabilities.")] = 10,
    binning: Annotated[
        Literal["width", "count"], typer.Option(help="Bins of equal width, or with equal numbers of cases.")
    ] = "width",
    metadata: Metadata = None,
    allow_missing: AllowMissing = False,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a system's confidence: calibration, risk if uncertain cases are not answered, net benefit."""
    from reveal_bench import api
    from reveal_bench.analyses.confidence import POOLED

    form = terminal.format_of(form, as_json)
    terminal.check_outside_datasets(out, "--out")
    result = api.confidence(
        file,
        terminal.asked_part(folder, split, findings, subset, [file]),
        split=split,
        thresholds=thresholds_of(metadata),
        allow_missing=allow_missing,
        n_bins=n_bins,
        binning=binning,
    )
    terminal.write_tables(result, out)
    if not terminal.printed_as(result, form, terminal.tables_document(result)):
        terminal.print_shown(result)
        typer.echo()
        terminal.print_shown(result.coverage_of(POOLED))


def curves(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    findings: Findings = None,
    subset: Subset = None,
    out: Tables = None,
    metadata: Metadata = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="Prediction file of another system, shown in the figures only; repeatable."),
    ] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap replicates.")] = 1000,
    max_fpr: Annotated[
        float, typer.Option(help="Findings: false positive rate up to which partial areas are computed.")
    ] = 0.1,
    reader: ReaderNames = None,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Compute curves over all thresholds: FROC for detection; ROC and precision-recall for findings; with bands."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    terminal.check_outside_datasets(out, "--out")
    thresholds = thresholds_of(metadata)
    options: dict[str, Any] = {"n_resamples": resamples, "max_fpr": max_fpr}
    options["readers"] = reader_inputs(reader)
    asked = terminal.asked_part(folder, split, findings, subset, [file])
    result = api.curves(file, asked, split=split, thresholds=thresholds, beside=beside, **options)
    terminal.write_tables(result, out)
    if not terminal.printed_as(result, form, terminal.tables_document(result)):
        terminal.print_shown(result)


def reader_inputs(readers: Sequence[Path] | None) -> dict[str, Path | None]:
    """Return name -> prediction file, or None for a reader of the dataset folder."""
    from reveal_bench.api.inputs import name_of
    from reveal_bench.tables import TABLE_SUFFIXES

    files = [one for one in readers or () if one.exists() or one.suffix in TABLE_SUFFIXES]
    require_files(*files)
    named: dict[str, Path | None] = {str(one): None for one in readers or () if one not in files}
    return named | {name_of(one, "reader"): one for one in files}


FeatureScale = Literal["minmax", "zscore", "raw"]
"""Methods of scaling features over all cases."""


def shapes(
    folder: Folder,
    model: Annotated[
        Path | None, typer.Option(help="Prediction file whose IoU and hits are regressed on shape features.")
    ] = None,
    human: Annotated[
        Path | None,
        typer.Option(help="Prediction file of `baseline human`: also regress the readers' lead over the model."),
    ] = None,
    split: Split = None,
    missing: Missing = None,
    scale: Annotated[FeatureScale, typer.Option(help="How features are scaled.")] = "minmax",
    score_scale: Annotated[FeatureScale, typer.Option(help="How the scores of a finding are scaled.")] = "raw",
    out: Annotated[Path | None, typer.Option(help="Folder for tables (CSV) and the figure (SVG, PNG)."), OUTPUT] = None,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Measure shapes of reference masks, and how shape and confidence relate to localization."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    terminal.check_outside_datasets(out, "--out")
    result = api.shapes(folder, model, human, split=split, missing=missing, scale=scale, score_scale=score_scale)
    terminal.write_tables(result, out)
    if terminal.printed_as(result, form, terminal.tables_document(result)):
        return
    # Only one of several regressions is printed; the files contain all
    tables = result.tables | ({"regressions": result.regressions_of("simple")} if result.slopes else {})
    for table in tables.values():
        terminal.print_shown(table)
        typer.echo()


Merit = Literal["auc", "lroc", "sensitivity", "specificity", "accuracy", "kappa", "hit_rate"]
"""Figures of merit: the keys of :data:`reveal_bench.reader_studies.study.FIGURES`."""


MeritOption = Annotated[Merit, typer.Option(help="Figure of merit, computed per reader and modality.")]
Column = Annotated[list[str] | None, typer.Option(help="Column name in your table, such as score=rating; repeatable.")]
System = Annotated[str | None, typer.Option(help="Reader to compare with all others, such as a model.")]
FixedReaders = Annotated[
    bool, typer.Option("--fixed-readers", help="Treat readers as fixed: conclude only about these readers.")
]
FixedCases = Annotated[
    bool, typer.Option("--fixed-cases", help="Treat cases as fixed: conclude only about these cases.")
]


def readers(
    table: Annotated[
        Path,
        typer.Argument(
            help="Table with one row per reader, case and modality; columns: reader, case, modality, score, truth, "
            "patient.",
            dir_okay=False,
            show_default=False,
        ),
    ],
    merit: MeritOption = "auc",
    column: Column = None,
    system: System = None,
    partly_crossed: Annotated[
        bool, typer.Option("--partly-crossed", help="Allow readers who have read different cases.")
    ] = False,
    nested: Annotated[
        bool, typer.Option("--nested", help="Each reader has read with only one modality (split plot).")
    ] = False,
    fixed_readers: FixedReaders = False,
    fixed_cases: FixedCases = False,
    margin: Annotated[
        float | None, typer.Option(help="Margin for testing whether the first modality is non-inferior.")
    ] = None,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Analyse a multi-reader multi-case study: compare modalities over readers of the same cases."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    result = api.readers(
        table,
        merit=merit,
        columns=_named(column or []),
        system=system,
        partly_crossed=partly_crossed,
        nested=nested,
        readers_are="fixed" if fixed_readers else "random",
        cases_are="fixed" if fixed_cases else "random",
        margin=margin,
    )
    terminal.warn(result.warnings)
    document = {
        "merit": result.merit,
        "warnings": result.warnings,
        "readers": result.analysis.readers_are,
        "cases": result.analysis.cases_are,
        "results": result.plain,
        "by_reader": result.by_reader(),
        "components": {name: None if math.isnan(value) else value for name, value in result.components.items()},
    }
    if not terminal.printed_as(result, form, document):
        terminal.print_shown(result)


AgreementMetric = Literal[
    "cohen_kappa",
    "cohen_kappa_linear",
    "cohen_kappa_quadratic",
    "gwet_ac1",
    "percent_agreement",
    "mean_absolute_difference",
    "fleiss_kappa",
    "krippendorff_alpha",
    "krippendorff_alpha_ordinal",
    "krippendorff_alpha_interval",
    "icc_1_1",
    "icc_2_1",
    "icc_3_1",
    "icc_1_k",
    "icc_2_k",
    "icc_3_k",
]
"""Metrics of two readers, then of all readers: :data:`reveal_bench.api.reader_agreement.AGREEMENT_METRICS`."""


def agreement(
    table: Annotated[
        Path,
        typer.Argument(
            help="Table with one row per reader and case; columns: reader, case, score, optionally patient and "
            "finding.",
            dir_okay=False,
            show_default=False,
        ),
    ],
    metric: Annotated[AgreementMetric, typer.Option(help="Measure of agreement.")] = "cohen_kappa",
    categories: Annotated[
        str | None, typer.Option(help="All categories in order, such as absent,possible,present.")
    ] = None,
    column: Column = None,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Measure agreement (kappa, alpha, ICC) of every pair of readers, or of all together, with intervals."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    scale = None if categories is None else categories.split(",")
    result = api.agreement(table, metric=metric, categories=scale, columns=_named(column or []))
    rows = {"together" if result.together else "pairs": result.plain}
    document = {"metric": result.metric, "categories": result.categories} | rows
    if not terminal.printed_as(result, form, document):
        terminal.print_shown(result)


def readings(
    file: PredictionFile,
    folder: Folder,
    split: Split = None,
    finding: Annotated[
        str | None, typer.Option(help="Label whose readings are printed; by default all labels.")
    ] = None,
    metadata: Metadata = None,
    allow_missing: AllowMissing = False,
    only_readers: Annotated[
        str | None, typer.Option(help="Names of the readers to print, separated by commas; by default all.")
    ] = None,
) -> None:
    """Print a system's and readers' readings of the same studies as CSV, for `readers --system`."""
    from reveal_bench import api

    result = api.readings(
        file,
        folder,
        split=split,
        finding=finding,
        thresholds=thresholds_of(metadata),
        allow_missing=allow_missing,
        only_readers=None if only_readers is None else [name.strip() for name in only_readers.split(",")],
    )
    typer.echo(result.to_csv(), nl=False)
    typer.echo(result.caption, err=True)


def plan_readers(
    pilot: Annotated[
        Path | None,
        typer.Argument(
            help="Table of readings of a pilot study, as for `readers`; omit with --component.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    difference: Annotated[
        float | None, typer.Option(help="True difference to detect; by default 0 with --margin.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Plan a test of non-inferiority with this margin instead.")
    ] = None,
    n_readers: Annotated[str, typer.Option("--readers", help="Numbers of readers.")] = "4,6,8,10,12",
    n_cases: Annotated[
        str | None,
        typer.Option(
            "--cases", help="Numbers of cases for which power is computed; by default, the fewest cases needed are."
        ),
    ] = None,
    power: Annotated[float | None, typer.Option(help="Power to reach; 0.8 by default.")] = None,
    component: Annotated[
        list[str] | None,
        typer.Option(help="Assumed variance, such as cov_1=0.0003; give all that `readers --json` lists."),
    ] = None,
    merit: MeritOption = "auc",
    column: Column = None,
    system: System = None,
    fixed_readers: FixedReaders = False,
    fixed_cases: FixedCases = False,
    form: Format = None,
    as_json: AsJson = False,
) -> None:
    """Plan a reader study of two modalities: find how many readers and cases are needed."""
    from reveal_bench import api

    form = terminal.format_of(form, as_json)
    if (pilot is None) == (not component):
        raise ValueError("give either a table of readings, or `--component` for each variance")
    result = api.plan_readers(
        pilot or _components(component or []),
        difference=difference,
        margin=margin,
        n_readers=_whole_numbers("n_readers", n_readers),
        n_cases=None if n_cases is None else _whole_numbers("n_cases", n_cases),
        power=power,
        merit=merit,
        columns=_named(column or []),
        system=system,
        readers_are="fixed" if fixed_readers else "random",
        cases_are="fixed" if fixed_cases else "random",
    )
    document = {"pilot": result.pilot.n_cases, "studies": result.plain}
    if not terminal.printed_as(result, form, document):
        terminal.print_shown(result)


def _whole_numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(name, "must be whole numbers, such as 4,6,8", repr(text)) from None


def _components(texts: list[str]) -> dict[str, Any]:
    try:
        named = dict(text.split("=") for text in texts)
        return {name: int(text) if name == "n_cases" else float(text) for name, text in named.items()}
    except ValueError:
        rule = "must be NAME=NUMBER, repeated for each variance, such as cov_1=0.0003 and n_cases=114"
        raise ArgumentError("component", rule, ", ".join(texts)) from None


def _named(columns: list[str]) -> dict[str, Any]:
    wrong = [text for text in columns if text.count("=") != 1]
    if wrong:
        raise ValueError(f"`--column` must be NAME=COLUMN, such as score=rating, got {wrong[0]!r}")
    return dict(text.split("=") for text in columns)
