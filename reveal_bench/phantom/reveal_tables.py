"""The tables of the synthetic REVEAL world, written study by study.

``labels.csv`` spells labels as the paper does, in more than one way; ``mapping.yaml`` says what its columns mean.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal_studies import RevealStudy
from reveal_bench.phantom.votes import Votes

__all__ = ["AGREEMENT", "Tables"]

AGREEMENT = {2: "Agree All: 2 of 3", 3: "Agree All: 3 of 3"}

SPELLINGS = {
    "Airspace opacity": "Airspace Opacity",
    "COPD": "copd",
    "Lung mass": "Lung Mass",
    "Lung nodule": "Lung Nodule",
    "Pleural effusion": "pleural effusion",
}
"""A second spelling of some labels; paper 004 has several in its text, figures and prompts."""

_TEXTS = {"F": "Female", "M": "Male", "unknown": "Unknown", "Black or African American": "African American"}

LABEL_COLUMNS = ("StudyInstanceUID", "Findings", "Agreement")
DEMOGRAPHIC_COLUMNS = ("AgeGroup", "Sex", "Race", "PatientClass")

MAPPING = """# What the columns of labels.csv mean.
table: labels.csv
study_key: {column: StudyInstanceUID, matches: StudyInstanceUID}
labels:
  list: {column: Findings, separator: ";"}
agreement:
  column: Agreement
  values:
    "Agree All: 2 of 3": two_of_three
    "Agree All: 3 of 3": three_of_three
"""
MAPPED_DEMOGRAPHICS = """demographics:
  age_band: {column: AgeGroup}
  sex: {column: Sex, values: {Female: F, Male: M}}
  race: {column: Race, values: {African American: Black or African American}}
  patient_class: {column: PatientClass}
"""


class Tables:
    """All tables below `root`; a context manager."""

    def __init__(self, root: Path, *, has_demographics: bool) -> None:
        self.root, self.has_demographics = root, has_demographics
        self._stack = ExitStack()

    def __enter__(self) -> Tables:
        demographics = DEMOGRAPHIC_COLUMNS if self.has_demographics else ()
        (self.root / "reports").mkdir()
        mapping = MAPPING + (MAPPED_DEMOGRAPHICS if self.has_demographics else "")
        (self.root / "mapping.yaml").write_text(mapping, encoding="utf-8")
        self._labels = self._csv("labels.csv", [*LABEL_COLUMNS, *demographics])
        self._votes = self._csv("votes.csv", ["study_uid", "suggested", "reader", "answer", "comment", "labels"])
        self._reports = self._csv("reports.csv", ["study_uid", "case_id", "file", "report", "labels"])
        self._truth = self._stack.enter_context((self.root / "truth.jsonl").open("w", encoding="utf-8"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(
        self,
        study: RevealStudy,
        votes: Votes,
        sides: Mapping[str, str],
        images: Sequence[Mapping[str, Any]],
        *,
        has_devices: bool,
    ) -> None:
        """Everything that is written down about a study."""
        self._labels.writerow(self._label_row(study, votes))
        for vote in votes.votes:
            labels = "" if vote.labels is None else _joined(vote.labels)
            row = [study.study_uid, _joined(votes.suggested), vote.reader, vote.answer, vote.comment, labels]
            self._votes.writerow(row)
        report = write_report(study, sides, has_devices=has_devices)
        file = f"reports/{study.study_uid}.txt"
        (self.root / file).write_text(report, encoding="utf-8")
        self._reports.writerow([study.study_uid, study.case_id, file, report, _joined(study.labels)])
        truth = {
            "study_uid": study.study_uid,
            "case_id": study.case_id,
            "labels": study.labels,
            "sides": dict(sides),
            "suggested": votes.suggested,
            "n_agree_all": votes.n_agree_all,
            "age": study.age,
            "sex": study.sex,
            "race": study.race,
            "patient_class": study.patient_class,
            "images": list(images),
        }
        self._truth.write(json.dumps(truth) + "\n")

    def _label_row(self, study: RevealStudy, votes: Votes) -> list[str]:
        labels = [
            SPELLINGS.get(label, label) if (study.index + i) % 3 else label for i, label in enumerate(votes.suggested)
        ]
        row = [study.study_uid, _joined(labels), AGREEMENT.get(votes.n_agree_all, "")]
        if self.has_demographics:
            row += [_age_group(study.age), *(_text(value) for value in (study.sex, study.race, study.patient_class))]
        return row

    def _csv(self, name: str, columns: Sequence[str]) -> Any:
        file = self._stack.enter_context((self.root / name).open("w", newline="", encoding="utf-8"))
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        return writer


def _joined(labels: Sequence[str]) -> str:
    assert all(label.casefold() in {known.casefold() for known in REVEAL_LABELS} for label in labels)
    return "; ".join(labels) or "None"


def _text(value: str) -> str:
    return _TEXTS.get(value, value.capitalize() if value.islower() else value)


def _age_group(age: int | None) -> str:
    """In the bands of paper 004, Table 1."""
    if age is None:
        return "Unknown"
    return "80+" if age >= 80 else f"{age // 10 * 10}-{age // 10 * 10 + 9}"
