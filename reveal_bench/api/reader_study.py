"""Implement ``rb.readers``, ``rb.plan_readers`` and ``rb.readings``: analyse and plan studies, make their tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.analyses.reader_reference import ReadingRow, readings_of
from reveal_bench.api.bench import AnyBench, as_whole_bench
from reveal_bench.api.conversion import rows_of
from reveal_bench.api.inputs import name_of
from reveal_bench.api.result_table import TableResult
from reveal_bench.api.scoring import once, read_readers, score_inputs
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.options import ScoringOptions, Thresholds
from reveal_bench.metrics.intervals import as_record
from reveal_bench.reader_studies.analysis import Analysis, Components, Sample, analyse
from reveal_bench.reader_studies.sizing import MOST_CASES, Pilot, Planned, Target, fewest_cases, power_of
from reveal_bench.reader_studies.study import (
    COLUMNS,
    TwoValuedReadings,
    beside_readers,
    figures_of,
    read_study,
    two_valued_readings,
)
from reveal_bench.reader_studies.study_files import study_rows
from reveal_bench.words import count_text, interval_text, number_text, p_text

_MERITS = {"auc": "AUC", "lroc": "LROC area", "hit_rate": "Hit rate"}


@dataclass(frozen=True, repr=False)
class ReaderStudyResult(TableResult):
    """Result of a reader study: each modality's mean over readers, and the differences between modalities.

    Attributes
    ----------
    analysis : variance components, F test, means and differences
    merit : the figure of merit
    n_cases, n_patients : numbers of cases and patients read by every reader
    margin : largest acceptable loss of the first modality against the second; None if not tested
    system : name of the system compared with the readers, if any
    n_read : smallest and largest number of cases that a reader read
    two_valued : readers whose curves have a single point, if areas of others' scores are compared with theirs
    n_findings : number of findings whose readings are pooled
    """

    analysis: Analysis
    merit: str
    n_cases: int
    n_patients: int
    margin: float | None = None
    system: str | None = None
    n_read: tuple[int, int] = (0, 0)
    two_valued: TwoValuedReadings | None = None
    n_findings: int = 1

    @property
    def caption(self) -> str:
        """Numbers of cases and readers, whether each is random or fixed, and the test of all modalities."""
        analysis = self.analysis
        readers = count_text(len(analysis.readers), "reader")
        readers += ", each with one modality," if np.isnan(analysis.figures).any() else ""
        samples = f"readers {analysis.readers_are}, cases {analysis.cases_are}"
        text = (
            f"{_MERITS.get(self.merit, self.merit.capitalize())} of {readers}"
            f"{'' if self.system is None else f' and {self.system}'} on "
            f"{count_text(self.n_cases, 'case')} of {count_text(self.n_patients, 'patient')}{self._each()}, {samples}: "
            "95% intervals "
            "after Obuchowski and Rockette"
        )
        if len(analysis.modalities) > 2 and not math.isnan(analysis.f):
            below = "" if math.isinf(analysis.freedom[1]) else f", {analysis.freedom[1]:.1f}"
            test = f"F({analysis.freedom[0]:g}{below}) = {analysis.f:.2f}, p = {p_text(analysis.p)}"
            text += f"; all modalities equal: {test}"
        least = -1 if self.merit == "kappa" else 0
        if any(one.estimate.low < least or one.estimate.high > 1 for one in analysis.means):
            text += "; intervals are symmetrical, as in publications, and may exceed the scale"
        text += "" if self.margin is None else f"; margin {self.margin:g}"
        return text + (
            "" if self.two_valued is None else "; scores are compared with two-valued readings: see `warnings`"
        )

    @property
    def warnings(self) -> list[str]:
        """Sentences about comparisons that this figure of merit does not allow."""
        if self.two_valued is None:
            return []
        readers, others = (_first_names(names) for names in (self.two_valued.readers, self.two_valued.others))
        rate = self.two_valued.specificity
        mean, at = ("", "") if math.isnan(rate) else (f", {rate:.3f} on average", f" {rate:.3f}")
        return [
            f"{_MERITS[self.merit]} is not comparable between the scores of {others} and the readings of {readers}, "
            "which have two values: the curve of two values is one point joined by lines, so its area is too small. "
            f"Instead, compare the sensitivity at the readers' specificity{mean} (`operating-points --specificity"
            f"{at}`), count the readers below the system's ROC curve (`curves --reader`), or turn scores into 0 or 1 "
            "and use `--merit sensitivity` or `--merit specificity`"
        ]

    @property
    def is_crossed(self) -> bool:
        """True if every reader read every case."""
        return self.n_read == (self.n_cases, self.n_cases)

    def _each(self) -> str:
        few, most = self.n_read
        each = "" if self.is_crossed else f", {few:,} to {most:,} by each" if few < most else f", {few:,} by each"
        if self.n_findings == 1:
            return each
        return f"{each} ({self.n_findings:,} findings pooled; `readings` with `finding` selects one)"

    @property
    def records(self) -> list[dict[str, Any]]:
        """One row per modality with its mean as `value`, then one per pair with the difference, first minus second."""
        means: list[dict[str, Any]] = [
            {"what": "mean", "modality": one.modality, "minus": None, **_figures(as_record(one))}
            | {"p": None, "p_adjusted": None}
            for one in self.analysis.means
        ]
        differences: list[dict[str, Any]] = [
            {"what": "difference", "modality": one.a, "minus": one.b, **_figures(as_record(one))}
            | {"p": one.p, "p_adjusted": one.p_adjusted}
            for one in self.analysis.differences
        ]
        if self.margin is None:
            return means + differences
        return [row | {"verdict": None} for row in means] + [
            row | {"verdict": one.against(self.margin)}
            for row, one in zip(differences, self.analysis.differences, strict=True)
        ]

    @property
    def components(self) -> dict[str, float]:
        """Variance components and number of cases, for `rb.plan_readers`."""
        return asdict(self.analysis.components) | {"n_cases": self.n_cases}

    def by_reader(self) -> list[dict[str, Any]]:
        """Return the figure of merit of every reader with every modality with which the reader read."""
        analysis = self.analysis
        return [
            {"modality": modality, "reader": reader, "value": float(analysis.figures[i, j])}
            for i, modality in enumerate(analysis.modalities)
            for j, reader in enumerate(analysis.readers)
            if not math.isnan(analysis.figures[i, j])
        ]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return the rows with three decimals."""
        rows = []
        for row in self.records:
            name = row["modality"] if row["minus"] is None else f"{row['modality']} - {row['minus']}"
            freedom = "inf" if math.isinf(row["freedom"]) else f"{row['freedom']:.1f}"
            p = row["p"]
            cells = {
                "modality": name,
                "value": number_text(row["value"]),
                "95% interval": interval_text(row["low"], row["high"]),
                "SE": f"{row['error']:.4f}",
                "df": freedom,
                "p": "" if p is None else p_text(p),
            }
            if len(self.analysis.differences) > 1:
                cells["p (Holm)"] = "" if p is None else p_text(row["p_adjusted"])
            rows.append(cells | ({} if self.margin is None else {"verdict": row["verdict"] or ""}))
        return rows


def _first_names(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _figures(analysis: Mapping[str, Any]) -> dict[str, float]:
    return {name: analysis[name] for name in ("value", "low", "high", "error", "freedom")}


def readers(
    table: Any,
    *,
    merit: str = "auc",
    columns: Mapping[str, str] | None = None,
    system: str | None = None,
    partly_crossed: bool = False,
    nested: bool = False,
    readers_are: Sample = "random",
    cases_are: Sample = "random",
    margin: float | None = None,
) -> ReaderStudyResult:
    """Analyse a multi-reader multi-case study: compare modalities over readers of the same cases.

    Parameters
    ----------
    table : one row per reader, case and modality, with the columns ``reader``, ``case``, ``score``, ``truth`` (0 or 1),
        ``modality`` if there are several, and ``patient`` if a patient has several cases. A path (CSV, TSV, XLSX,
        Parquet, JSON, and files of iMRMC and RJafroc), a DataFrame, a list of mappings, or a result of :func:`readings`
    merit : "auc"; "lroc", with a column ``located`` (0 or 1) for cases with `truth` 1; or for scores of 0 and 1
        "sensitivity", "specificity", "accuracy", "kappa" with the truth, "hit_rate"
    columns : one of these names -> name of the column in the table
    system : a reader to compare with all others, such as a model that read the same cases; by default the system of
        :func:`readings`
    partly_crossed : allow readers with different cases; each reader must have read the same cases with every modality
    nested : True if each reader read with only one modality (split plot), such as hospitals with and without a model
    readers_are, cases_are : "random" to generalise to similar readers or cases, "fixed" to conclude only about these
    margin : largest acceptable loss of the first modality against the second; differences then get a verdict on
        non-inferiority

    Raises
    ------
    ArgumentError
        If the table does not have this design, or the figure of merit is undefined.
    ImportError
        If scipy is not installed.
    """
    if margin is not None and not margin > 0:
        raise ArgumentError("margin", "must be above 0", margin)
    rows: Sequence[Mapping[str, Any]] | None = study_rows(Path(table)) if isinstance(table, str | Path) else None
    if isinstance(table, ReadingsTable) and system is None:
        system = table.system
    if rows is None:
        rows = rows_of(table, [*COLUMNS, *(columns or {}).values()])
    study = read_study(rows, columns, partly_crossed=partly_crossed, nested=nested)
    two_valued = two_valued_readings(study) if merit in ("auc", "lroc") else None
    if system is not None:
        study = beside_readers(study, system)
    figures, covariance = figures_of(study, merit)
    analysis = analyse(
        figures,
        covariance,
        modalities=study.modalities,
        readers=study.readers,
        readers_are=readers_are,
        cases_are=cases_are,
    )
    n_patients = int(study.patients.max()) + 1
    each = (~np.isnan(study.scores)).any(axis=0).sum(axis=1)
    n_read = int(each.min()), int(each.max())
    n_findings = len({row.get("finding") for row in rows})
    n_cases = len(study.cases)
    return ReaderStudyResult(analysis, merit, n_cases, n_patients, margin, system, n_read, two_valued, n_findings)


_COMPONENTS = ("variance", "cov_1", "cov_2", "cov_3", "interaction")
_MOST_READERS = 1000


@dataclass(frozen=True, repr=False)
class ReaderPlan(TableResult):
    """Planned reader studies: the power of each, or the number of cases that it needs.

    Attributes
    ----------
    studies : readers, cases, readings, power, and the expected standard error of the difference
    target : difference or non-inferiority to show, and whether readers and cases are random or fixed
    pilot : pilot study from which power is computed
    power : power for which the cases were computed; None if the cases were given
    """

    studies: tuple[Planned, ...]
    target: Target
    pilot: Pilot
    power: float | None

    @property
    def caption(self) -> str:
        """The difference to show, whether readers and cases are random or fixed, and the pilot."""
        target = self.target
        difference = f"a difference of {abs(target.true_difference):g} (two-sided test at 0.05)"
        if target.margin is not None:
            difference = f"non-inferiority by a margin of {target.margin:g} where the true difference is "
            difference += f"{target.true_difference:g}"
        chance = "Power" if self.power is None else f"Fewest cases for a power of {self.power:g}"
        samples = f"readers {target.readers_are}, cases {target.cases_are}"
        return f"{chance} to show {difference}, {samples}: from a pilot of {self.pilot.n_cases:,} cases"

    @property
    def records(self) -> list[dict[str, Any]]:
        """Columns n_readers, n_cases, n_readings, power, error, freedom and noncentrality, one row per study.

        If no number of cases up to 2,000 is enough, n_cases is None and power is that with 2,000 cases.
        """
        return [asdict(study) for study in self.studies]

    def printed_rows(self) -> list[dict[str, str]]:
        """Return the studies as text, power with two decimals."""
        return [
            {
                "readers": str(study.n_readers),
                "cases": f"over {MOST_CASES:,}" if study.n_cases is None else f"{study.n_cases:,}",
                "readings": "-" if study.n_readings is None else f"{study.n_readings:,}",
                "power": f"{study.power:.2f}" + (f" with {MOST_CASES:,}" if study.n_cases is None else ""),
                "SE": f"{study.error:.4f}",
                "df": "inf" if math.isinf(study.freedom) else f"{study.freedom:.1f}",
            }
            for study in self.studies
        ]


def plan_readers(
    pilot: Any,
    *,
    difference: float | None = None,
    margin: float | None = None,
    n_readers: int | Sequence[int] = (4, 6, 8, 10, 12),
    n_cases: int | Sequence[int] | None = None,
    power: float | None = None,
    merit: str = "auc",
    columns: Mapping[str, str] | None = None,
    system: str | None = None,
    readers_are: Sample = "random",
    cases_are: Sample = "random",
) -> ReaderPlan:
    """Plan a reader study of two modalities: compute the number of cases that it needs, or its power.

    Parameters
    ----------
    pilot : a table of readings as for :func:`~reveal_bench.api.reader_study.readers`, its result, the `components` of
        that result, or assumed components: a mapping with "variance", "cov_1", "cov_2", "cov_3", "interaction" and
        "n_cases"
    difference : true difference to show; by default 0 if `margin` is given
    margin : show non-inferiority with this margin instead of a difference
    n_readers : one number or several
    n_cases : numbers of cases for which power is computed; by default, the smallest sufficient number is computed
    power : power to reach, 0.8 by default; must not be given with `n_cases`
    merit, columns, system : as in :func:`readers`, for a table of readings
    readers_are, cases_are : "random" to generalise to similar readers or cases, "fixed" to conclude only about these

    Raises
    ------
    ArgumentError
        If the pilot lacks a component or column, or a number is out of range.
    ImportError
        If scipy is not installed.
    """
    target = Target(_number("difference", difference), _number("margin", margin), readers_are, cases_are)
    if power is not None and n_cases is not None:
        rule = "must be omitted if `n_cases` is given, because power is then computed"
        raise ArgumentError("power", rule, power, ("n_cases",))
    sizes = _numbers("n_readers", n_readers, _MOST_READERS)
    cases = None if n_cases is None else _numbers("n_cases", n_cases, 50 * MOST_CASES)
    source = _pilot(pilot, merit, columns, system)
    if cases is None:
        wanted = 0.8 if power is None else power
        studies = tuple(fewest_cases(source, target, n_readers=r, power=wanted) for r in sizes)
        return ReaderPlan(studies, target, source, wanted)
    studies = tuple(power_of(source, target, n_readers=r, n_cases=n) for r in sizes for n in cases)
    return ReaderPlan(studies, target, source, None)


def _pilot(inputs: Any, merit: str, columns: Mapping[str, str] | None, system: str | None) -> Pilot:
    if isinstance(inputs, Mapping) and not any(isinstance(value, list | tuple | Mapping) for value in inputs.values()):
        return _supposed(inputs)
    if isinstance(inputs, ReaderStudyResult):
        study = inputs
    else:
        study = readers(inputs, merit=merit, columns=columns, system=system, partly_crossed=True)  # refused below
    if not study.is_crossed:
        rule = "must be a study in which every reader read every case, as in the planned study"
        raise ArgumentError("pilot", rule, f"{study.n_read[0]:,} or more of {study.n_cases:,}")
    return Pilot(study.analysis.components, study.n_cases, n_read=2 if study.system is None else 1)


def _supposed(inputs: Mapping[str, Any]) -> Pilot:
    """Return a pilot made of assumed variance components."""
    names = (*_COMPONENTS, "n_cases")
    wrong = [name for name in inputs if name not in (*names, "reader")] or [
        name for name in names if name not in inputs
    ]
    if wrong:
        rule = f"must be a table of readings, or a mapping with a number for each of {', '.join(names)}"
        raise ArgumentError("pilot", rule, f"{'no ' if wrong[0] in names else ''}{wrong[0]}")
    values = {
        name: _number(f"pilot[{name}]", math.nan if inputs[name] is None else inputs[name]) for name in _COMPONENTS
    }
    (n_cases,) = _numbers("pilot[n_cases]", inputs["n_cases"], 50 * MOST_CASES)
    return Pilot(Components(**values, reader=math.nan), n_cases)  # type: ignore[arg-type]


def _number(name: str, value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value)):
        raise ArgumentError(name, "must be a number", repr(value))
    return None if value is None else float(value)


def _numbers(name: str, numbers: Any, most: int) -> list[int]:
    values = (
        [numbers] if isinstance(numbers, Integral) else list(numbers) if isinstance(numbers, Sequence) else [numbers]
    )
    for value in values or [numbers]:
        if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
            raise ArgumentError(name, f"must be whole numbers from 1 to {most:,}", repr(value))
    return [int(value) for value in values]


@dataclass(frozen=True, repr=False)
class ReadingsTable(TableResult):
    """Ratings of the same studies by readers and a system, with the reference standard: a table for `rb.readers`.

    Attributes
    ----------
    rows : reader, case, patient, finding, score and truth
    system : the name of the system among the readers
    n_left_out : number of studies omitted because at least one reader had not read them
    """

    rows: Sequence[ReadingRow]
    system: str
    n_left_out: int

    @property
    def caption(self) -> str:
        """Readers, and numbers of cases and omitted studies."""
        readers = dict.fromkeys(row.reader for row in self.rows)
        n_cases = len({row.case for row in self.rows})
        left_out = (
            f"; studies omitted because a reader did not read them: {self.n_left_out:,}" if self.n_left_out else ""
        )
        return f"{n_cases:,} cases read by {', '.join(readers)}{left_out}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows."""
        return [asdict(row) for row in self.rows]


def readings(
    predictions: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    finding: str | None = None,
    thresholds: Thresholds | None = None,
    allow_missing: bool = False,
    name: str | None = None,
    only_readers: Sequence[str] | None = None,
) -> ReadingsTable:
    """Return ratings of the same studies by the readers of a dataset folder and a system, for `rb.readers`.

    Parameters
    ----------
    predictions, bench, split, allow_missing : as in :func:`~reveal_bench.api.inputs.lint`
    finding : label whose readings are returned; by default all labels, with every pair of study and label as a case
    thresholds : probability from which a label counts as predicted: one number (0.5 by default), or one per label
    name : name of the system; by default the file's name
    only_readers : names of the readers to return, such as those who did not help to make the reference; by default all

    Raises
    ------
    LintError
        If the predictions have errors; its `report` lists all of them.
    ArgumentError
        If the folder has no readers' labels, the label or a reader is unknown, or a reader has the system's name.
    """
    system = name_of(predictions, "system") if name is None else name
    opened = as_whole_bench(bench, split, instead="; pass `finding` to select one finding")
    options = once(ScoringOptions(thresholds=thresholds, allow_missing=allow_missing))
    scored = score_inputs(predictions, opened, options, argument="predictions", name=system)
    records, by_reader = read_readers(opened)
    if only_readers is not None:
        unknown = [reader for reader in only_readers if reader not in by_reader]
        if unknown or not only_readers or isinstance(only_readers, str):
            raise ArgumentError("only_readers", f"must name some of {', '.join(by_reader)}", unknown or only_readers)
        by_reader = {reader: by_record for reader, by_record in by_reader.items() if reader in only_readers}
    rows, n_left_out = readings_of(opened.kind, by_reader, scored, records, system, finding)
    return ReadingsTable(rows, system, n_left_out)
