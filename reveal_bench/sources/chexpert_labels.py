"""CheXpert's tables of labels: reference labels of studies and labels of individual readers, without pictures.

Source: Irvin et al. 2019; ``groundtruth.csv`` and the readers' tables of rajpurkarlab/cheXpert-test-set-labels, and
``test_labels.csv``, ``val_labels.csv`` and ``valid.csv`` as Stanford AIMI distributes them.

Conventions
-----------
* A table has a column ``Study`` or ``Path``, such as ``CheXpert-v1.0/test/patient64741/study1`` or
  ``test/patient64741/study1/view1_frontal.jpg``, and the fourteen observations, in any order, as 0 or 1.
* A table contains references if its name is in :data:`REFERENCES`, or if `root` is that table. Any other table with the
  fourteen columns has the labels of one reader, who is named after the file. These labels become rows of the config
  ``readers``.
* The id of a study is, for example, ``patient64741_study1``. If a table has a row per radiograph, all rows of a study
  must agree.
* The split is the name of the folder before the patient's folder; "valid" and "val" become "validation".
* A row with an uncertain (-1) or blank label is a problem, because such a label is not a reference. CheXpert's
  ``train.csv`` has many such labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import leads_out
from reveal_bench.findings import CHEXPERT_LABELS, canonical_finding
from reveal_bench.kinds.findings.records import UNKNOWN, StudyRecord, age_band
from reveal_bench.sources.source import (
    BuildError,
    DownloadProblems,
    Inspection,
    Pixels,
    Problem,
    SourceData,
    finish,
    is_synthetic,
)
from reveal_bench.sources.study_labels import reader_labels
from reveal_bench.tables import InputTable, TableRow, scan_table

PUBLISHED = {"studies of test": 500, "studies of validation": 200}
"""Counts of the published test and validation sets."""
REFERENCES = re.compile(r"(ground_?truth.*|(test|val|valid)(_labels)?)\.csv", re.IGNORECASE)
"""File names of tables of references."""
KEYS = ("Study", "Path")

_STUDY = re.compile(r"(?:.*/)?(?P<split>[^/]+)/(?P<patient>patient\d+)/(?P<study>study\d+)(?:/.*)?")
_SPLITS = {"valid": "validation", "val": "validation"}
_VALUES = {"0": False, "0.0": False, "1": True, "1.0": True}
_SEXES = {"Female": "F", "Male": "M", "Unknown": UNKNOWN}
"""Text in CheXpert's tables -> text in the records."""


@dataclass(frozen=True, slots=True)
class _StudyLabels:
    """Split, patient, labels and demographics of a study."""

    split: str
    patient_id: str
    labels: tuple[str, ...]
    sex: str
    age_band: str


@dataclass
class _ChexpertTables:
    """Parsed tables of a folder: study id -> reference, and reader -> study id -> labels."""

    references: dict[str, _StudyLabels] = field(default_factory=dict)
    readers: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    problems: DownloadProblems = field(default_factory=DownloadProblems)

    @property
    def counts(self) -> dict[str, int]:
        splits = sorted({study.split for study in self.references.values()})
        counts = {f"studies of {split}": sum(s.split == split for s in self.references.values()) for split in splits}
        return {**counts, "readers": len(self.readers)}


def detect(root: Path) -> float:
    """Return 0.7 if `root` is or directly contains a table with CheXpert's columns, else 0."""
    return 0.7 if next(_tables_of(Path(root)), None) is not None else 0.0


def inspect(root: Path) -> Inspection:
    """Return the counts and problems of all tables of labels.

    Raises
    ------
    ValueError
        If `root` has no table of references.
    """
    tables = _read_all(Path(root))
    return Inspection(
        source="chexpert-labels",
        root=Path(root),
        files=tables.files,
        counts=tables.counts,
        expected=PUBLISHED,
        problems=tables.problems,
        synthetic=is_synthetic(Path(root)),
    )


def read(root: Path, *, pixels: Pixels = "embed", keep_going: bool = False) -> SourceData:
    """Return the records of every split, with the readers' labels as the config ``readers``.

    Parameters
    ----------
    root : a folder with tables, or one table of references
    pixels : ignored, because the source has only tables
    keep_going : leave out studies with a problem instead of raising

    Raises
    ------
    BuildError
        With every problem of the rows.
    ValueError
        If `root` has no table of references.
    """
    tables = _read_all(Path(root))
    warnings: list[str] = []
    finish(tables.problems, warnings, keep_going=keep_going)
    splits: dict[str, list[StudyRecord]] = {}
    for study_id, study in tables.references.items():
        record = StudyRecord(study_id, study.patient_id, study.labels, sex=study.sex, age_band=study.age_band)
        splits.setdefault(study.split, []).append(record)
    if not splits:
        raise BuildError([Problem(".", None, "rows", "must include a study without a problem", "none")])
    by_readers = (
        (study_id, reader, labels) for reader, studies in tables.readers.items() for study_id, labels in studies.items()
    )
    return SourceData(splits, warnings, extras=reader_labels(by_readers), synthetic=is_synthetic(Path(root)))


def _tables_of(root: Path) -> Iterator[Path]:
    """Yield the tables with CheXpert's columns: `root` itself, or files directly in it."""
    for path in [root] if root.is_file() else sorted(root.glob("*.csv")):
        if path.is_file() and path.suffix.lower() == ".csv" and not leads_out(path):
            with path.open(encoding="utf-8-sig", errors="replace") as file:
                head = file.readline(10_000).rstrip("\n")
            names = {canonical_finding(name.strip().strip('"'), CHEXPERT_LABELS) for name in re.split(r"[,;\t]", head)}
            if names.issuperset(CHEXPERT_LABELS) and re.search(rf"\b({'|'.join(KEYS)})\b", head):
                yield path


def _read_all(root: Path) -> _ChexpertTables:
    paths = list(_tables_of(root))
    references = [path for path in paths if root.is_file() or REFERENCES.fullmatch(path.name)]
    if not references:
        rule = "must be or contain a table of references, such as groundtruth.csv or test_labels.csv"
        raise ArgumentError("root", rule, ", ".join(path.name for path in paths) or root)
    tables = _ChexpertTables()
    for path in references:
        tables.files[f"references {path.stem}"] = path.name
        tables.references |= _by_study(path, tables.references, tables.problems)
    for path in (path for path in paths if path not in references):
        tables.files[f"reader {path.stem}"] = path.name
        own = _by_study(path, {}, tables.problems)
        for study_id in own.keys() - tables.references.keys():
            rule = "must be in a table of references"
            tables.problems.append(Problem(path.name, study_id, "study", rule, "none"))
        tables.readers[path.stem] = {name: study.labels for name, study in own.items() if name in tables.references}
    return tables


def _by_study(path: Path, before: dict[str, _StudyLabels], problems: list[Problem]) -> dict[str, _StudyLabels]:
    """Return a dict from study id to the labels of a table.

    Studies whose rows contradict each other or `before` (studies of earlier tables) are left out, and removed from
    `before`.
    """
    studies: dict[str, _StudyLabels] = {}
    contradicted = set()
    for study_id, row, study in _read_table(path, problems):
        if before.get(study_id, study) != study or studies.setdefault(study_id, study) != study:
            rule = "must agree in all rows of a study"
            problems.append(Problem(path.name, row.number, "labels", rule, f"others of {study_id}"))
            contradicted.add(study_id)
    for study_id in contradicted:
        studies.pop(study_id, None)
        before.pop(study_id, None)
    return studies


def _read_table(path: Path, problems: list[Problem]) -> Iterator[tuple[str, TableRow, _StudyLabels]]:
    """Yield (study id, row, labels and demographics) of each row without a problem."""
    table = scan_table(path, path.name, problems)
    if table is None:
        return
    columns = {label: name for name in table.columns if (label := canonical_finding(name, CHEXPERT_LABELS))}
    key = next(name for name in KEYS if name in table)
    for row in table.rows:
        match = _STUDY.fullmatch(row[key].replace("\\", "/"))
        if match is None:
            rule = "must end like test/patient64741/study1"
            problems.append(Problem(table.file, row.number, key, rule, repr(row[key])))
            continue
        n_before = len(problems)
        labels = _labels(table, row, columns, problems)
        facts = _facts(table, row, problems)
        if len(problems) == n_before:
            split = _SPLITS.get(match["split"], match["split"])
            yield f"{match['patient']}_{match['study']}", row, _StudyLabels(split, match["patient"], labels, *facts)


def _labels(table: InputTable, row: TableRow, columns: dict[str, str], problems: list[Problem]) -> tuple[str, ...]:
    present = []
    for label in CHEXPERT_LABELS:
        text = row[columns[label]].strip()
        if text not in _VALUES:
            rule = "must be 0 or 1, because an uncertain or blank label is not a reference"
            problems.append(Problem(table.file, row.number, columns[label], rule, repr(text)))
        elif _VALUES[text]:
            present.append(label)
    return tuple(present)


def _facts(table: InputTable, row: TableRow, problems: list[Problem]) -> tuple[str, str]:
    """Return (sex, age band) of a row; each is unknown if the table has no such column."""
    sex, band = UNKNOWN, UNKNOWN
    if "Sex" in table:
        text = row["Sex"].strip()
        if text not in _SEXES:
            problems.append(Problem(table.file, row.number, "Sex", f"must be one of {', '.join(_SEXES)}", repr(text)))
        sex = _SEXES.get(text, UNKNOWN)
    if "Age" in table:
        try:
            band = age_band(float(row["Age"]))
        except ValueError:
            problems.append(Problem(table.file, row.number, "Age", "must be a number (of years)", repr(row["Age"])))
    return sex, band
