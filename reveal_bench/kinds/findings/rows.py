"""Rows of a findings-type dataset, one per study: their Features, conversion from records, rules and counts.

The columns are the fields of :class:`reveal_bench.kinds.findings.records.StudyRecord`. `images`, `image_ids`, `views`
and `image_facts` are parallel: element i of each belongs to the same image. Where pixels are withheld the elements of
`images` are null.

In a *blank* row (the inputs of a holdout) all answers, all facts about the patient and the hashes of the source files
are null or empty.

A fault is a tuple (field, rule, value). Pictures are checked elsewhere. Codes without a name and missing lists are
reported by an earlier check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import conflict
from reveal_bench.kinds.findings.records import AGE_BANDS, AGREEMENTS, PATIENT_CLASSES, RACES, SEXES, StudyRecord
from reveal_bench.kinds.images import VIEWS, PublishedPicture
from reveal_bench.kinds.parts import override
from reveal_bench.kinds.rows import (
    Fault,
    Row,
    code_of,
    facts_faults,
    image_cell,
    image_facts_features,
    image_facts_row,
    one_value,
    parallel_faults,
    without_hashes,
)
from reveal_bench.kinds.split_counts import Tally, markdown_table
from reveal_bench.words import share_text

if TYPE_CHECKING:
    from datasets import Features

MEANINGS = {
    "label_vector": "per label, in the order of the label codes, 1 present, 0 absent, null without a reference",
    "agreement": "how many of the three readers agreed to all labels (null where it is unknown)",
    "n_agree_all": "readers who agreed to all labels",
    "age_band": "ten-year band of the patient's age; no age in years is kept",
    "sex": "of the patient, as recorded",
    "race": "of the patient, as recorded",
    "patient_class": "inpatient, outpatient or emergency",
}
"""Column -> its meaning, for the card; columns that other kinds share are in `dataset/card_tables.py`."""


COLUMNS = (
    "study_id", "patient_id", "images", "image_ids", "views", "labels", "label_vector", "agreement", "n_agree_all",
    "manufacturer", "model", "age_band", "sex", "race", "patient_class", "image_facts",
)  # fmt: skip
"""Columns of the config `multilabel`."""


def study_features(findings: Sequence[str]) -> Features:
    """Return the Features of the config `multilabel`."""
    from datasets import ClassLabel, Features, Image, List, Value

    return Features(
        {
            "study_id": Value("string"),
            "patient_id": Value("string"),
            "images": List(Image()),
            "image_ids": List(Value("string")),
            "views": List(ClassLabel(names=list(VIEWS))),
            "labels": List(ClassLabel(names=list(findings))),
            "label_vector": List(Value("int8")),
            "agreement": ClassLabel(names=list(AGREEMENTS)),
            "n_agree_all": Value("int8"),
            "manufacturer": Value("string"),
            "model": Value("string"),
            "age_band": ClassLabel(names=list(AGE_BANDS)),
            "sex": ClassLabel(names=list(SEXES)),
            "race": ClassLabel(names=list(RACES)),
            "patient_class": ClassLabel(names=list(PATIENT_CLASSES)),
            "image_facts": List(image_facts_features()),
        }
    )


def study_row(record: StudyRecord, findings: Sequence[str], developed: Sequence[PublishedPicture | None]) -> Row:
    """Return the row of a study; `developed` contains the picture of each image, or None.

    Raises
    ------
    ValueError
        If a label or another coded value is outside its vocabulary.
    """
    labels = sorted(code_of(findings, label, "labels") for label in set(record.labels))
    if len(labels) != len(record.labels):
        raise ArgumentError("labels", "must name each finding once", ", ".join(record.labels))
    agreement = record.agreement
    return {
        "study_id": record.study_id,
        "patient_id": record.patient_id,
        "images": [image_cell(picture) for picture in developed],
        "image_ids": [image.image_id for image in record.images],
        "views": [code_of(VIEWS, image.view, "view") for image in record.images],
        "labels": labels,
        "label_vector": [None if name in record.unknown else int(i in labels) for i, name in enumerate(findings)],
        "agreement": None if agreement is None else code_of(AGREEMENTS, agreement, "agreement"),
        "n_agree_all": record.n_agree_all,
        "manufacturer": one_value([image.manufacturer for image in record.images]),
        "model": one_value([image.model for image in record.images]),
        "age_band": code_of(AGE_BANDS, record.age_band, "age_band"),
        "sex": code_of(SEXES, record.sex, "sex"),
        "race": code_of(RACES, record.race, "race"),
        "patient_class": code_of(PATIENT_CLASSES, record.patient_class, "patient_class"),
        "image_facts": [image_facts_row(image) for image in record.images],
    }


def blank_study(row: Row) -> Row:
    """Return a study's row without references: no labels, no demographics, no hashes of source files."""
    unknown = {"age_band": AGE_BANDS, "sex": SEXES, "race": RACES, "patient_class": PATIENT_CLASSES}
    return {
        **row,
        "labels": [],
        "label_vector": None,
        "agreement": None,
        "n_agree_all": None,
        **{name: len(names) - 1 for name, names in unknown.items()},
        "image_facts": without_hashes(row["image_facts"]),
    }


N_AGREE_ALL = {0: 2, 1: 3}
"""Code of AGREEMENTS -> number of readers who agreed."""


def study_faults(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    """Yield the problems of a study's row."""
    yield from parallel_faults(row, "image_ids", {"images": "images", "views": "views", "image_facts": "image_facts"})
    yield from facts_faults(row["image_facts"], row["image_ids"], "image_facts")
    if [facts["view"] for facts in row["image_facts"]] != row["views"]:
        yield "views", "must be those of `image_facts`", str(row["views"])
    unknown = {code for code, value in enumerate(row["label_vector"] or ()) if value is None} - {*row["labels"]}
    vector = [None if code in unknown else int(code in row["labels"]) for code in range(len(findings))]
    if row["label_vector"] != vector:
        yield "label_vector", f"must be {vector}, as `labels` say", str(row["label_vector"])
    if row["labels"] != sorted(set(row["labels"])):
        yield "labels", "must be in order, each once", str(row["labels"])
    if lone := conflict((findings[code] for code in row["labels"]), findings):
        yield "labels", f"must not contain {lone} together with another label", str(row["labels"])
    n_agree = row["n_agree_all"]
    if n_agree is not None and not 0 <= n_agree <= 3:
        yield "n_agree_all", "must be from 0 to 3", str(n_agree)
    if n_agree is not None and row["agreement"] is not None and N_AGREE_ALL[row["agreement"]] != n_agree:
        yield "agreement", f"must agree with `n_agree_all`, which is {n_agree}", AGREEMENTS[row["agreement"]]


@dataclass
class FindingsTally(Tally):
    """Counts of the studies of a split.

    Attributes
    ----------
    n_labels, n_images_per_study : number of labels, or of images, in a study -> number of studies
    unknown : code of a label -> number of studies without a reference for it
    agreement : code of the agreement, None if unknown -> number of studies
    """

    items: ClassVar[str] = "studies"
    agreement_heads: ClassVar[tuple[str, ...]] = (*(name.replace("_", " ") for name in AGREEMENTS), "unknown")
    vocabularies: ClassVar[Mapping[str, Sequence[str]]] = {
        "age_band": AGE_BANDS,
        "sex": SEXES,
        "race": RACES,
        "patient_class": PATIENT_CLASSES,
    }

    n_labels: Counter[int] = field(default_factory=Counter)
    n_images_per_study: Counter[int] = field(default_factory=Counter)
    unknown: Counter[int] = field(default_factory=Counter)
    agreement: Counter[int | None] = field(default_factory=Counter)

    @override
    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count one study and its labels."""
        super().add(row, asked)
        labels = sorted(row["labels"])
        self.positives.update(labels)
        self.pairs.update(combinations(labels, 2))
        self.unknown.update(code for code, value in enumerate(row["label_vector"] or ()) if value is None)
        self.n_labels[len(labels)] += 1
        self.n_images_per_study[len(row["image_ids"])] += 1
        self.agreement[row["agreement"]] += 1

    @override
    def findings_text(self, findings: Sequence[str]) -> str:
        """Return a table of studies per label, and the numbers of labels and images per study, in Markdown."""
        rows = [
            [name, self.positives[i], share_text(self.positives[i], self.n_rows - self.unknown[i])]
            for i, name in enumerate(findings)
        ]
        labels = ", ".join(f"{n} in {count:,}" for n, count in sorted(self.n_labels.items()))
        images = ", ".join(f"{n} in {count:,}" for n, count in sorted(self.n_images_per_study.items()))
        table = markdown_table(["label", "studies", "of studies"], rows)
        return f"{table}\n\nLabels per study: {labels}. Images per study: {images}."

    @override
    def missing(self, findings: Sequence[str]) -> str:
        """Return, in words, how many studies lack agreement or demographics, and which labels no study has."""
        never = [name for i, name in enumerate(findings) if self.positives[i] == 0]
        unknown = {"agreement": self.agreement[None]}
        unknown |= {name: self.demographics[name][len(values) - 1] for name, values in self.vocabularies.items()}
        parts = [f"{name.replace('_', ' ')} unknown in {n:,} of {self.n_rows:,}" for name, n in unknown.items() if n]
        parts += [f"no study with {', '.join(never)}"] if never else []
        parts += [f"{findings[code]} without a reference in {n:,}" for code, n in sorted(self.unknown.items())]
        return "; ".join(parts) or super().missing(findings)

    @override
    def agreement_cells(self) -> list[object]:
        """Return the number of studies for each agreement, with unknown agreement last."""
        return [*(self.agreement[code] for code in range(len(AGREEMENTS))), self.agreement[None]]

    @override
    def _images_of(self, row: Row) -> Iterable[Mapping[str, object]]:
        return list(row["image_facts"])
