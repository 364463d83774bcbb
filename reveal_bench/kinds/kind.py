"""What a kind of benchmark is: everything that differs between kinds, in typed parts, and nothing else.

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
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from reveal_bench.kinds.parts import (
    Data,
    Display,
    Exchange,
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


@dataclass(frozen=True)
class Kind(Generic[RecordT, PredictionT, ManifestT, RowsT, ReadingT]):
    """A kind of benchmark.

    Attributes
    ----------
    name : key in KINDS, and `Benchmark.kind`
    config, key : main config of a dataset folder, and the column that names a row
    counted : what the manifest calls the number of rows
    unit : what a row is, and what may be resampled instead of patients
    data, table : records, and the rows that a dataset folder keeps of them
    questions, predictions, scoring : what is asked, what is answered, and how answers are scored
    release, display : what a board may show, and what people see of cases and on cards
    readers : single readers as references; None if datasets of this kind keep no readings
    exchange : to annotation tools and back; None if nothing can be drawn on images or said as labels
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
    exchange: Exchange[RecordT, PredictionT, ManifestT] | None = None

    @property
    def items(self) -> str:
        """What rows are called, such as "images"."""
        return self.counted.removeprefix("n_")


AnyKind: TypeAlias = Kind[Any, Any, Any, Any, Any]
"""A kind whose types are not known, as those of KINDS."""
Readings = Mapping[str, Mapping[str, object]]
"""Reader -> key of a record -> what that reader said of it, in a form that the kind alone looks into."""
