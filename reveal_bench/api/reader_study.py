"""``rb.readers``: a reader study from a table of readings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reveal_bench.api.conversion import rows_of
from reveal_bench.api.shown import Shown
from reveal_bench.arguments import ArgumentError
from reveal_bench.metrics.words import p_text
from reveal_bench.reader_studies.analysis import Analysis, Sample, analyse
from reveal_bench.reader_studies.study import beside_readers, figures_of, read_study

__all__ = ["ReaderStudyResult", "readers"]

_MERITS = {"auc": "AUC", "lroc": "LROC area", "hit_rate": "Hit rate"}


@dataclass(frozen=True, repr=False)
class ReaderStudyResult(Shown):
    """What a reader study says: the mean of every modality over readers, and the differences.

    Attributes
    ----------
    analysis : components, F test, means and differences
    merit : the figure of merit
    n_cases, n_patients : read by every reader
    margin : how much worse than the second a first modality may be, if it was said
    system : who was compared with the readers, if that was asked for
    n_read : fewest and most cases that a reader read
    """

    analysis: Analysis
    merit: str
    n_cases: int
    n_patients: int
    margin: float | None = None
    system: str | None = None
    n_read: tuple[int, int] = (0, 0)

    @property
    def caption(self) -> str:
        """What was read, what is a sample, and the test of all modalities."""
        found = self.analysis
        samples = f"readers {found.readers_are}, cases {found.cases_are}"
        shown = (
            f"{_MERITS.get(self.merit, self.merit.capitalize())} of {_counted(len(found.readers), 'reader')}"
            f"{'' if self.system is None else f' and {self.system}'} on "
            f"{_counted(self.n_cases, 'case')} of {_counted(self.n_patients, 'patient')}{self._each()}, {samples}: "
            "95 % intervals "
            "after Obuchowski and Rockette"
        )
        if len(found.modalities) > 2 and not math.isnan(found.f):
            below = "" if math.isinf(found.freedom[1]) else f", {found.freedom[1]:.1f}"
            shown += f"; all modalities equal: F({found.freedom[0]:g}{below}) = {found.f:.2f}, p = {p_text(found.p)}"
        return shown + ("" if self.margin is None else f"; margin {self.margin:g}")

    @property
    def is_crossed(self) -> bool:
        """Whether every reader read every case."""
        return self.n_read == (self.n_cases, self.n_cases)

    def _each(self) -> str:
        few, most = self.n_read
        return "" if self.is_crossed else f", {few:,} to {most:,} by each" if few < most else f", {few:,} by each"

    @property
    def records(self) -> list[dict[str, Any]]:
        """A row per modality, then one per pair: `value` is a mean, or the first minus the second."""
        means: list[dict[str, Any]] = [
            {"what": "mean", "modality": one.modality, "minus": None, **_figures(asdict(one)), "p": None}
            for one in self.analysis.means
        ]
        differences: list[dict[str, Any]] = [
            {"what": "difference", "modality": one.a, "minus": one.b, **_figures(asdict(one)), "p": one.p}
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
        """Variances of the model and the number of cases: what a study is planned from, `rb.plan_readers`."""
        return asdict(self.analysis.components) | {"n_cases": self.n_cases}

    def by_reader(self) -> list[dict[str, Any]]:
        """The figure of every reader with every modality."""
        found = self.analysis
        return [
            {"modality": modality, "reader": reader, "value": float(found.figures[i, j])}
            for i, modality in enumerate(found.modalities)
            for j, reader in enumerate(found.readers)
        ]

    def rows_shown(self) -> list[dict[str, str]]:
        """The rows with three decimals."""
        shown = []
        for row in self.records:
            name = row["modality"] if row["minus"] is None else f"{row['modality']} - {row['minus']}"
            freedom = "inf" if math.isinf(row["freedom"]) else f"{row['freedom']:.1f}"
            p = row["p"]
            told = {
                "modality": name,
                "value": f"{row['value']:.3f}",
                "95 % interval": f"({row['low']:.3f} to {row['high']:.3f})",
                "SE": f"{row['error']:.4f}",
                "df": freedom,
                "p": "" if p is None else p_text(p),
            }
            shown.append(told | ({} if self.margin is None else {"verdict": row["verdict"] or ""}))
        return shown


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: found[name] for name in ("value", "low", "high", "error", "freedom")}


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def readers(
    table: Any,
    *,
    merit: str = "auc",
    columns: Mapping[str, str] | None = None,
    system: str | None = None,
    partly_crossed: bool = False,
    readers_are: Sample = "random",
    cases_are: Sample = "random",
    margin: float | None = None,
) -> ReaderStudyResult:
    """Analyse a reader study: modalities compared over several readers of the same cases.

    Parameters
    ----------
    table : a row per reader, case and modality, with the columns ``reader``, ``case``, ``score`` and, where there are
        several modalities, ``modality``; ``truth`` (0 or 1), and ``patient`` where a patient has several cases. A path
        (CSV, TSV, Parquet, JSON), a DataFrame or a list of mappings
    merit : "auc"; "lroc", with a column ``located`` that says 0 or 1 of cases with; or of scores of 0 and 1
        "sensitivity", "specificity", "accuracy", "kappa" with the truth, "hit_rate"
    columns : one of these names -> what the table calls it
    system : one of the readers that is compared with all others, such as a model that read the same cases
    partly_crossed : whether readers may have read different cases, each the same ones with every modality
    readers_are, cases_are : "random" if the result is to hold for others like them, "fixed" if for these alone
    margin : how much worse than the second the first modality may be: differences get a verdict on non-inferiority

    Raises
    ------
    ArgumentError
        If the table is not a study of that design, or the figure of merit is not defined.
    ImportError
        If scipy is not installed.
    """
    if margin is not None and not margin > 0:
        raise ArgumentError("margin", "must be above 0", margin)
    study = read_study(rows_of(table), columns, partly_crossed=partly_crossed)
    if system is not None:
        study = beside_readers(study, system)
    figures, covariance = figures_of(study, merit)
    found = analyse(
        figures,
        covariance,
        modalities=study.modalities,
        readers=study.readers,
        readers_are=readers_are,
        cases_are=cases_are,
    )
    n_patients = int(study.patients.max()) + 1
    each = (~np.isnan(study.scores[0])).sum(axis=1)
    n_read = int(each.min()), int(each.max())
    return ReaderStudyResult(found, merit, len(study.cases), n_patients, margin, system, n_read)
