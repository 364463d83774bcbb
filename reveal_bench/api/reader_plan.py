"""``rb.plan_readers``: how many readers and cases a study needs, foretold from a pilot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any

from reveal_bench.api.reader_study import ReaderStudyResult, readers
from reveal_bench.api.shown import Shown
from reveal_bench.arguments import ArgumentError
from reveal_bench.reader_studies.analysis import Components, Sample
from reveal_bench.reader_studies.sizing import MOST_CASES, Pilot, Planned, Target, fewest_cases, power_of

__all__ = ["ReaderPlan", "plan_readers"]

_COMPONENTS = ("variance", "cov_1", "cov_2", "cov_3", "interaction")
_MOST_READERS = 1000


@dataclass(frozen=True, repr=False)
class ReaderPlan(Shown):
    """Planned reader studies: the power of each, or the cases that it needs.

    Attributes
    ----------
    studies : readers, cases, readings, power, and the expected standard error of the difference
    target : what they are to show, and of whom
    pilot : what they are foretold from
    power : that the cases were looked for, None where the cases were given
    """

    studies: tuple[Planned, ...]
    target: Target
    pilot: Pilot
    power: float | None

    @property
    def caption(self) -> str:
        """What is to be shown, of whom, and from which pilot."""
        target = self.target
        shown = f"a difference of {abs(target.true_difference):g} (two-sided test at .05)"
        if target.margin is not None:
            shown = f"non-inferiority by a margin of {target.margin:g} where the true difference is "
            shown += f"{target.true_difference:g}"
        chance = "Power" if self.power is None else f"Fewest cases for a power of {self.power:g}"
        samples = f"readers {target.readers_are}, cases {target.cases_are}"
        return f"{chance} to show {shown}, {samples}: from a pilot of {self.pilot.n_cases:,} cases"

    @property
    def records(self) -> list[dict[str, Any]]:
        """Of each study n_readers, n_cases, n_readings, power, error, freedom and noncentrality.

        Where no number of cases up to 2,000 is enough, n_cases is None and power is that with 2,000.
        """
        return [asdict(study) for study in self.studies]

    def rows_shown(self) -> list[dict[str, str]]:
        """The studies with two decimals of their power."""
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
    """Plan a reader study of two modalities: how many cases it needs, or what power it has.

    Parameters
    ----------
    pilot : a table of readings as for :func:`~reveal_bench.api.reader_study.readers`, what that function returned, or
        its `components`, or others that are supposed: a mapping with "variance", "cov_1", "cov_2", "cov_3",
        "interaction" and "n_cases"
    difference : true difference that is to be shown; with a margin, 0 unless given
    margin : show non-inferiority by this margin instead of a difference
    n_readers : one number or several
    n_cases : numbers of cases whose power is asked; by default the fewest that are enough are looked for
    power : that is to be reached, .8 by default; not with `n_cases`
    merit, columns, system : of a table of readings
    readers_are, cases_are : "random" if the result is to hold for others like them, "fixed" if for these alone

    Raises
    ------
    ArgumentError
        If the pilot has not what is needed, or a number is out of range.
    ImportError
        If scipy is not installed.
    """
    target = Target(_number("difference", difference), _number("margin", margin), readers_are, cases_are)
    if power is not None and n_cases is not None:
        rule = "must be left out where `n_cases` says how many there are: the power of these is told"
        raise ArgumentError("power", rule, power, ("n_cases",))
    sizes = _numbers("n_readers", n_readers, _MOST_READERS)
    cases = None if n_cases is None else _numbers("n_cases", n_cases, 50 * MOST_CASES)
    found = _pilot(pilot, merit, columns, system)
    if cases is None:
        wanted = 0.8 if power is None else power
        studies = tuple(fewest_cases(found, target, n_readers=r, power=wanted) for r in sizes)
        return ReaderPlan(studies, target, found, wanted)
    studies = tuple(power_of(found, target, n_readers=r, n_cases=n) for r in sizes for n in cases)
    return ReaderPlan(studies, target, found, None)


def _pilot(given: Any, merit: str, columns: Mapping[str, str] | None, system: str | None) -> Pilot:
    if isinstance(given, Mapping) and not any(isinstance(value, list | tuple | Mapping) for value in given.values()):
        return _supposed(given)
    if isinstance(given, ReaderStudyResult):
        study = given
    else:
        study = readers(given, merit=merit, columns=columns, system=system, partly_crossed=True)  # refused below
    if not study.is_crossed:
        rule = "must be a study in which every reader read every case, as in the one that is planned"
        raise ArgumentError("pilot", rule, f"{study.n_read[0]:,} or more of {study.n_cases:,}")
    return Pilot(study.analysis.components, study.n_cases, n_read=2 if study.system is None else 1)


def _supposed(given: Mapping[str, Any]) -> Pilot:
    """A pilot that was not made: its components are supposed."""
    names = (*_COMPONENTS, "n_cases")
    wrong = [name for name in given if name not in (*names, "reader")] or [name for name in names if name not in given]
    if wrong:
        rule = f"must be a table of readings, or have a number for each of {', '.join(names)}"
        raise ArgumentError("pilot", rule, f"{'no ' if wrong[0] in names else ''}{wrong[0]}")
    values = {name: _number(f"pilot[{name}]", math.nan if given[name] is None else given[name]) for name in _COMPONENTS}
    (n_cases,) = _numbers("pilot[n_cases]", given["n_cases"], 50 * MOST_CASES)
    return Pilot(Components(**values, reader=math.nan), n_cases)  # type: ignore[arg-type]


def _number(name: str, value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value)):
        raise ArgumentError(name, "must be a number", repr(value))
    return None if value is None else float(value)


def _numbers(name: str, given: Any, most: int) -> list[int]:
    values = [given] if isinstance(given, Integral) else list(given) if isinstance(given, Sequence) else [given]
    for value in values or [given]:
        if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
            raise ArgumentError(name, f"must be whole numbers from 1 to {most:,}", repr(value))
    return [int(value) for value in values]
