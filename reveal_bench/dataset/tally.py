"""Counts over the rows of one split, made while they are written or read: for the manifest, the card and the report.

One class per kind of benchmark; rows have the form of :mod:`reveal_bench.kinds.localization.rows` and
:mod:`reveal_bench.kinds.findings.rows`, coded values stay codes. An image that several tasks show is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.rows import Row
from reveal_bench.kinds.tasks.records import CRITERIA, QUESTION_SCORES

__all__ = ["ACQUISITION", "DEMOGRAPHICS", "FindingsTally", "LocalizationTally", "Tally", "TasksTally", "new_tally"]

DEMOGRAPHICS = ("age_band", "sex", "race", "patient_class")
ACQUISITION = ("manufacturer", "model", "detector_type", "kvp")
"""Facts of an image that are counted, if its kind of benchmark has them."""


@dataclass
class Tally:
    """What every kind of benchmark counts.

    Attributes
    ----------
    n_rows, n_asked : rows, and questions they ask
    patients, studies, images : their ids
    views, spacings : per image, code of its view and of the source of its spacing
    sizes : (width, height) of every image
    acquisition : per name in ACQUISITION, the values of the images, None where unknown
    extras : config of an extra table -> its rows that belong to this split
    """

    n_rows: int = 0
    n_asked: int = 0
    patients: set[str] = field(default_factory=set)
    studies: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)
    views: Counter[int] = field(default_factory=Counter)
    spacings: Counter[int] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    acquisition: dict[str, Counter[object]] = field(default_factory=lambda: {name: Counter() for name in ACQUISITION})
    extras: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one row and what is asked of it."""
        self.n_rows += 1
        self.n_asked += len(asked)
        self.patients.add(row["patient_id"])
        self.studies.add(row["study_id"])
        for facts in self._images_of(row):
            if facts["image_id"] not in self.images:
                self._add_image(facts)

    def add_extra(self, config: str, row: Row) -> None:
        """Count one row of an extra table, such as a rating, that belongs to this split."""
        self.extras[config] += 1

    @property
    def size(self) -> dict[str, int]:
        """What the manifest says of the split."""
        raise NotImplementedError

    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return (row,)

    def _add_image(self, facts: Mapping[str, object]) -> None:
        self.images.add(str(facts["image_id"]))
        self.views[facts["view"]] += 1  # type: ignore[index]
        self.spacings[facts["spacing_source"]] += 1  # type: ignore[index]
        self.sizes[facts["width"], facts["height"]] += 1  # type: ignore[index]
        for name in ACQUISITION:
            if name in facts:
                self.acquisition[name][facts[name]] += 1


@dataclass
class LocalizationTally(Tally):
    """A row is an image.

    Attributes
    ----------
    positives, unlabelled : per finding (code), images where it is present, and where it is neither present nor absent
    drawn, masks : per (finding, reader), images with a non-empty drawing, and those of them with a mask, not just boxes
    instances : per finding, contours or boxes of the ground truth
    points, missing : per finding, images with a point, and images where it is present but was not drawn
    pairs : per (finding, finding) with the lower code first, images that have both
    readers_per_image : how many individual readers drew something -> images
    reader_ids : the individual readers
    """

    positives: Counter[int] = field(default_factory=Counter)
    unlabelled: Counter[int] = field(default_factory=Counter)
    drawn: Counter[tuple[int, str]] = field(default_factory=Counter)
    masks: Counter[tuple[int, str]] = field(default_factory=Counter)
    instances: Counter[int] = field(default_factory=Counter)
    points: Counter[int] = field(default_factory=Counter)
    missing: Counter[int] = field(default_factory=Counter)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    readers_per_image: Counter[int] = field(default_factory=Counter)
    reader_ids: set[str] = field(default_factory=set)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one image and the findings asked of it."""
        super().add(row, asked)
        self.positives.update(row["labels"])
        self.pairs.update(combinations(sorted(row["labels"]), 2))
        self.missing.update(row["missing"])
        self.points.update({point["label"] for point in row["points"]})
        statuses = (row["label_status"] or {}).values()
        self.unlabelled.update(code for code, status in enumerate(statuses) if status not in (0, 1))
        drawn = [a for a in row["annotations"] if a["area_px"] > 0]
        self.drawn.update({(a["label"], READERS[a["reader"]]) for a in drawn})
        self.masks.update({(a["label"], READERS[a["reader"]]) for a in drawn if a["rle"] is not None})
        for annotation in row["annotations"]:
            if READERS[annotation["reader"]] == "ground_truth":
                self.instances[annotation["label"]] += annotation["n_instances"]
        readers = {a["reader_id"] for a in row["annotations"]} - {None}
        self.readers_per_image[len(readers)] += 1
        self.reader_ids |= readers

    @property
    def size(self) -> dict[str, int]:
        """What the manifest says of the split."""
        return {"n_images": self.n_rows, "n_patients": len(self.patients), "n_asked": self.n_asked}


@dataclass
class FindingsTally(Tally):
    """A row is a study with one or more images.

    Attributes
    ----------
    positives : per label (code), studies that have it
    pairs : per (label, label) with the lower code first, studies that have both
    n_labels, n_images_per_study : how many studies have so many labels, or images
    agreement, n_agree_all : studies per value, None where it is unknown
    demographics : per name in DEMOGRAPHICS, studies per code
    """

    positives: Counter[int] = field(default_factory=Counter)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    n_labels: Counter[int] = field(default_factory=Counter)
    n_images_per_study: Counter[int] = field(default_factory=Counter)
    agreement: Counter[int | None] = field(default_factory=Counter)
    n_agree_all: Counter[int | None] = field(default_factory=Counter)
    demographics: dict[str, Counter[int]] = field(default_factory=lambda: {name: Counter() for name in DEMOGRAPHICS})

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one study and the labels asked of it."""
        super().add(row, asked)
        labels = sorted(row["labels"])
        self.positives.update(labels)
        self.pairs.update(combinations(labels, 2))
        self.n_labels[len(labels)] += 1
        self.n_images_per_study[len(row["image_ids"])] += 1
        self.agreement[row["agreement"]] += 1
        self.n_agree_all[row["n_agree_all"]] += 1
        for name in DEMOGRAPHICS:
            self.demographics[name][row[name]] += 1

    @property
    def size(self) -> dict[str, int]:
        """What the manifest says of the split."""
        return {
            "n_studies": self.n_rows,
            "n_images": len(self.images),
            "n_patients": len(self.patients),
            "n_asked": self.n_asked,
        }

    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return list(row["image_facts"])


@dataclass
class TasksTally(Tally):
    """A row is a task.

    Attributes
    ----------
    categories : tasks per code
    temporal, with_boxes, with_answer, risky : tasks that need a prior study, ask for boxes, have a reference answer,
        were judged risky
    question_scores : per (name, score), tasks
    ratings : per (model, criterion), scores given -> how often; `raters` are the readers
    """

    categories: Counter[int] = field(default_factory=Counter)
    temporal: int = 0
    with_boxes: int = 0
    with_answer: int = 0
    risky: int = 0
    question_scores: Counter[tuple[str, int]] = field(default_factory=Counter)
    ratings: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    raters: set[str] = field(default_factory=set)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one task."""
        super().add(row, asked)
        self.categories[row["category"]] += 1
        self.temporal += bool(row["temporal"])
        self.with_boxes += bool(row["requires_boxes"])
        self.with_answer += row["reference_answer"] is not None
        self.risky += bool(row["risk_flag"])
        for name in QUESTION_SCORES:
            score = (row["question_scores"] or {}).get(name)
            if score is not None:
                self.question_scores[name, score] += 1

    def add_extra(self, config: str, row: Row) -> None:
        """Count one row of an extra table; of ratings also their scores."""
        super().add_extra(config, row)
        if config != "ratings":
            return
        self.raters.add(row["reader"])
        for name in CRITERIA:
            scores = self.ratings.setdefault((row["model"], name), Counter())
            if row[name] is not None:
                scores[row[name]] += 1

    @property
    def size(self) -> dict[str, int]:
        """What the manifest says of the split."""
        return {
            "n_tasks": self.n_rows,
            "n_images": len(self.images),
            "n_patients": len(self.patients),
            "n_asked": self.n_asked,
        }

    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return [*row["image_facts"], *row["prior_image_facts"]]


_TALLIES: dict[str, type[Tally]] = {
    "localization": LocalizationTally,
    "findings": FindingsTally,
    "tasks": TasksTally,
}


def new_tally(kind_name: str) -> Tally:
    """An empty tally for a kind of benchmark: "localization", "findings" or "tasks".

    Raises
    ------
    ValueError
        If there is no such kind.
    """
    if kind_name not in _TALLIES:
        raise ValueError(f"`kind_name` must be one of {', '.join(_TALLIES)}, got {kind_name!r}")
    return _TALLIES[kind_name]()
