"""Kinds of benchmark: all that differs between kinds is in the typed parts of a :class:`Kind`.

======================  ===============  ==========================  ==================  =================
kind (`Benchmark.kind`)  a row is         main config                 key                 also resampled by
======================  ===============  ==========================  ==================  =================
localization            an image         ``localization``            ``image_id``        image
findings                a study          ``multilabel``              ``study_id``        study
tasks                   a task           ``tasks``                   ``task_id``         task
detection               an image         ``detection``               ``image_id``        image
======================  ===============  ==========================  ==================  =================

A kind is a package beside this file; :data:`reveal_bench.kinds.KINDS` lists them. The parts are in
:mod:`reveal_bench.kinds.parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from reveal_bench.arguments import ArgumentError
from reveal_bench.geometry import MAX_CELLS
from reveal_bench.kinds.parts import (
    AnnotationExchange,
    Data,
    Display,
    ManifestT,
    Predictions,
    PredictionT,
    Questions,
    Readers,
    ReadingT,
    RecordT,
    Release,
    RowsT,
    Scoring,
    Table,
)

if TYPE_CHECKING:
    from reveal_bench.kinds.folder import FolderInfo
    from reveal_bench.kinds.options import ScoringOptions
    from reveal_bench.metrics.intervals import Interval


@dataclass(frozen=True)
class Kind(Generic[RecordT, PredictionT, ManifestT, RowsT, ReadingT]):
    """A kind of benchmark.

    Attributes
    ----------
    name : key in KINDS, and `Benchmark.kind`
    config, key : main config of a dataset folder, and the column with the ids of its rows
    counted : the manifest's field with the number of rows
    unit : name of a row, which may be resampled instead of patients
    data, table : records, and their rows in a dataset folder
    questions, predictions, scoring : the questions, their answers, and the scores of answers
    release, display : scores that a board may show, and the display of cases and dataset cards
    readers : single readers' annotations as references; None if datasets of this kind have none
    exchange : exchange with annotation tools; None if answers are neither drawings nor labels
    """

    name: str
    config: str
    key: str
    counted: str
    unit: str
    data: Data[RecordT]
    table: Table[RecordT]
    questions: Questions[RecordT, ManifestT]
    predictions: Predictions[PredictionT, ManifestT, RowsT]
    scoring: Scoring[RecordT, PredictionT, ManifestT, RowsT]
    release: Release[PredictionT, ManifestT, RowsT]
    display: Display[RecordT, PredictionT, RowsT]
    readers: Readers[RecordT, PredictionT, ReadingT] | None = None
    exchange: AnnotationExchange[RecordT, PredictionT, ManifestT] | None = None

    def resolve(self, options: ScoringOptions, info: FolderInfo) -> ScoringOptions:
        """Return scoring options for a dataset folder of this kind, with all defaults filled in.

        Groups of findings that a user requested are not checked.

        Raises
        ------
        ArgumentError
            If the kind cannot be scored with these options.
        """
        from reveal_bench.metrics.intervals import check_interval

        interval = self.scoring.intervals[0] if options.interval is None else options.interval
        for name, value, known in (
            ("unit", options.unit, ("patient", self.unit)),
            ("interval", interval, self.scoring.intervals),
            ("missing", options.missing, self.scoring.missing_as),
            ("criterion", options.criterion, self.scoring.criteria),
        ):
            if value not in known and (value is not None or name == "unit"):
                rule = f"be {' or '.join(map(repr, known))}" if known else "be left out"
                raise ArgumentError(name, f"must {rule} for a benchmark of {self.name}", repr(value))
        check_interval(cast("Interval", interval), options.n_resamples)
        if options.grid is not None and not 1 <= options.grid <= MAX_CELLS:
            raise ArgumentError("grid", f"must be in [1, {MAX_CELLS}]", options.grid)
        return replace(
            options,
            **asdict(replace(options, interval=interval).resampling),
            grid=info.grid if options.grid is None else options.grid,
            allow_missing=options.allow_missing or options.missing is not None,
            strata=self.scoring.has_strata if options.strata is None else options.strata,
            asks=info.asks,
            finding_groups=info.finding_groups if options.finding_groups is None else options.finding_groups,
        )

    def protocol(self, options: ScoringOptions) -> dict[str, Any]:
        """Return the `protocol` of a scored document: the options on which scores of this kind depend."""
        protocol = {
            **self.scoring.protocol(options),
            **asdict(options.resampling),
            "allow_missing": options.allow_missing,
        }
        if not options.part:
            del protocol["part"]
        if options.missing not in (None, *self.scoring.missing_as[:1]):
            protocol["missing"] = options.missing
        if options.criterion not in (None, *self.scoring.criteria[:1]):
            protocol["criterion"] = options.criterion
        return protocol

    @property
    def items(self) -> str:
        """The name of rows, such as "images"."""
        return self.counted.removeprefix("n_")


AnyKind: TypeAlias = Kind[Any, Any, Any, Any, Any]
"""Kind with unknown type parameters, such as the members of KINDS."""
Readings = Mapping[str, Mapping[str, object]]
"""Reader -> key of a record -> annotation by that reader, whose type only the kind knows."""
