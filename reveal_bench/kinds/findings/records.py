"""Studies with labels: the records of findings-type benchmarks, and how they are read from a dataset folder.

The unit is the study, which may have several images (paper 004). This module reads these files of a dataset folder:

* ``manifest/<split>.parquet``: study_id (string), image_ids and views (lists of strings);
* ``multilabel/<split>-*.parquet``: the columns of :class:`StudyRecord`; labels, agreement, views and demographics are
  ClassLabel codes into the folder's findings and the vocabularies below.

Only bands of the patient's age are kept (paper 004, Table S2): no age in years, no date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import select_names
from reveal_bench.kinds.folder import AnyFolder, OpenFolder, open_split, read_rows, split_shards
from reveal_bench.kinds.images import StudyImage, image_from_facts

AGREEMENTS = ("two_of_three", "three_of_three")
"""Values that say how many of the three readers agreed on all labels (paper 004, section 2.4)."""

_ROWS_AT_ONCE = 4096  # rows have no pixels
UNKNOWN = "unknown"
AGE_BANDS = (*(f"{low}-{low + 9}" for low in range(0, 80, 10)), "80+", UNKNOWN)
SEXES = ("F", "M", "other", UNKNOWN)
RACES = ("Asian", "Black or African American", "White", "Other", UNKNOWN)
PATIENT_CLASSES = ("inpatient", "outpatient", "emergency", UNKNOWN)


def age_band(years: float | None) -> str:
    """Return the band of an age in years.

    Raises
    ------
    ValueError
        If the age is negative or above 150.

    Examples
    --------
    >>> age_band(79.5), age_band(80), age_band(None)
    ('70-79', '80+', 'unknown')
    """
    if years is None:
        return UNKNOWN
    if not 0 <= years <= 150:
        raise ArgumentError("years", "must be in [0, 150]", years)
    return AGE_BANDS[min(int(years // 10), 8)]


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """One study with its reference labels.

    Attributes
    ----------
    agreement : member of :data:`AGREEMENTS`, or None if unknown
    n_agree_all : number of readers who agreed on all labels (0 to 3), or None
    age_band, sex, race, patient_class : members of the vocabularies above
    unknown : labels without a reference, which are not scored in this study
    """

    study_id: str
    patient_id: str
    labels: tuple[str, ...]
    agreement: str | None = None
    images: tuple[StudyImage, ...] = ()
    n_agree_all: int | None = None
    age_band: str = UNKNOWN
    sex: str = UNKNOWN
    race: str = UNKNOWN
    patient_class: str = UNKNOWN
    unknown: tuple[str, ...] = ()

    @property
    def views(self) -> tuple[str, ...]:
        """View of every image."""
        return tuple(image.view for image in self.images)


@dataclass(frozen=True)
class StudyManifest:
    """The questions of a findings-type split: every label of every study. The linter uses nothing else.

    Attributes
    ----------
    labels, studies : labels and studies asked
    other_labels, other_studies : labels of the benchmark and studies of the split that are not asked
    """

    kind: ClassVar[str] = "findings"

    benchmark: str
    version: str
    split: str
    labels: tuple[str, ...]
    studies: tuple[str, ...] = field(repr=False)
    other_labels: tuple[str, ...] = ()
    other_studies: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class FindingsPrediction:
    """One study's prediction as the linter returns it: either `labels`, or `probabilities` of all labels.

    Attributes
    ----------
    labels : canonical labels called present, or None if probabilities are given
    probabilities : dict from every canonical label to a number in [0, 1], or None if labels are given
    line : line of the prediction in the file
    """

    study_id: str
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] | None = None
    line: int = 0


def read_study_manifest(folder: AnyFolder, split: str) -> StudyManifest:
    """Read the public manifest of a findings-type split.

    Raises
    ------
    ValueError
        If the folder has no such split, or its manifest lists images instead of studies.
    """
    import pyarrow.parquet as pq

    opened = open_split(folder, split)
    info, selection = opened.info, opened.selection
    path = Path(folder) / "manifest" / f"{split}.parquet"
    if "study_id" not in pq.read_schema(path).names or "image_id" in pq.read_schema(path).names:
        raise ValueError(f"{folder} is not a findings-type dataset: its manifest lists images, not studies")
    studies = [row["study_id"] for row in read_rows(path, ["study_id"], at_once=_ROWS_AT_ONCE)]
    asked = selection.findings
    others = () if asked is None else select_names(info.findings, set(info.findings) - set(asked))
    return StudyManifest(
        info.benchmark,
        info.version,
        split,
        opened.findings,
        tuple(filter(selection.has, studies)),
        (*others, *info.not_asked) if info.not_asked else others,
        tuple(study for study in studies if not selection.has(study)),
    )


def read_studies(folder: AnyFolder, split: str) -> list[StudyRecord]:
    """Read the reference labels of `split`, in file order.

    Raises
    ------
    ValueError
        If the folder has no such split, or contains only its manifest because its references are private.
    """
    opened = open_split(folder, split)
    shards = split_shards(folder, "multilabel", split)
    if not shards:
        raise ValueError(f"{folder} holds no labels of split {split!r}: they are private, kept by the maintainer")
    rows = (row for shard in shards for row in read_rows(shard, leave_out=["images"], at_once=_ROWS_AT_ONCE))
    return [_record(row, opened) for row in rows if opened.selection.has(row["study_id"])]


def _record(row: dict[str, Any], folder: OpenFolder) -> StudyRecord:
    labels = [folder.info.findings[code] for code in row["labels"]]
    agreement, vector = row["agreement"], row["label_vector"] or ()
    return StudyRecord(
        study_id=row["study_id"],
        patient_id=row["patient_id"],
        labels=tuple(label for label in labels if label in folder.findings),
        agreement=None if agreement is None else AGREEMENTS[agreement],
        images=tuple(image_from_facts(facts) for facts in row["image_facts"]),
        n_agree_all=row["n_agree_all"],
        age_band=AGE_BANDS[row["age_band"]],
        sex=SEXES[row["sex"]],
        race=RACES[row["race"]],
        patient_class=PATIENT_CLASSES[row["patient_class"]],
        unknown=tuple(
            label
            for label, value in zip(folder.info.findings, vector, strict=False)
            if value is None and label in folder.findings
        )
        if None in vector
        else (),
    )
