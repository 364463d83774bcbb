"""CheXpert's tables of labels: reference labels of studies and labels of individual readers, without pictures.

Source: Irvin et al. 2019; ``groundtruth.csv`` and the readers' tables of rajpurkarlab/cheXpert-test-set-labels, and
``test_labels.csv``, ``val_labels.csv`` and ``valid.csv`` as Stanford AIMI distributes them.

Conventions
-----------
* A table has a column ``Study`` or ``Path``, such as ``CheXpert-v1.0/test/patient64741/study1`` or
  ``test/patient64741/study1/view1_frontal.jpg``, and the fourteen observations, in any order, as 0 or 1.
* A table in the folder contains references if its name is in :data:`REFERENCES`, or if `root` is that table. Any other
  table with the fourteen columns, in the folder itself or below a folder in :data:`READER_FOLDERS`, has the labels of
  one reader, who is named after the file (after the path if several files have the name). These labels become rows of
  the config ``readers``. Further tables below the folder are set aside, with the reason.
* The id of a study is, for example, ``patient64741_study1``. If a table has a row per radiograph, all rows of a study
  must agree.
* The split is the name of the folder before the patient's folder; "valid" and "val" become "validation".
* A blank or uncertain (-1) label is a problem unless `blank` or `uncertain` states its meaning. Missing labels are
  counted. A reference without some labels is scored on the others; a row without any label, and a reader's row with a
  missing label, is left out.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import leads_out
from reveal_bench.findings import CHEXPERT_LABELS, LabelPolicy, canonical_finding
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
    set_aside_lines,
)
from reveal_bench.sources.study_labels import reader_labels
from reveal_bench.tables import InputTable, TableRow, scan_table
from reveal_bench.words import count_text

PUBLISHED = {"studies of test": 500, "studies of validation": 200}
"""Counts of the published test and validation sets."""
REFERENCES = re.compile(r"(ground_?truth.*|(test|val|valid)(_labels)?)\.csv", re.IGNORECASE)
"""File names of tables of references."""
READER_FOLDERS = re.compile(r".*(radiologist|reader|rater|annotator).*", re.IGNORECASE)
"""Names of folders whose tables, at any depth, are of readers."""
KEYS = ("Study", "Path")

_STUDY = re.compile(r"(?:.*/)?(?P<split>[^/]+)/(?P<patient>patient\d+)/(?P<study>study\d+)(?:/.*)?")
_PATIENT = re.compile(r"patient\d+|\..*|__MACOSX")  # folders of pictures, and hidden folders
_SPLITS = {"valid": "validation", "val": "validation"}
_SEXES = {"Female": "F", "Male": "M", "Unknown": UNKNOWN}
"""Text in CheXpert's tables -> text in the records."""


@dataclass(frozen=True, slots=True)
class _StudyLabels:
    """Split, patient, labels and demographics of a study."""

    split: str
    patient_id: str
    labels: tuple[str, ...]
    unknown: tuple[str, ...]
    sex: str
    age_band: str


@dataclass
class _ChexpertTables:
    """Parsed tables of a folder: study id -> reference, and reader -> study id -> labels."""

    references: dict[str, _StudyLabels] = field(default_factory=dict)
    readers: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    set_aside: list[tuple[str, str]] = field(default_factory=list)
    findings: Sequence[str] = CHEXPERT_LABELS
    policy: LabelPolicy = field(default_factory=LabelPolicy)
    n_missing: Counter[str] = field(default_factory=Counter)
    """Table -> number of rows left out because labels are missing."""
    n_unknown: Counter[str] = field(default_factory=Counter)
    """Table of references -> number of missing labels in the other rows."""
    problems: DownloadProblems = field(default_factory=DownloadProblems)

    @property
    def counts(self) -> dict[str, int]:
        splits = sorted({study.split for study in self.references.values()})
        counts = {f"studies of {split}": sum(s.split == split for s in self.references.values()) for split in splits}
        return {**counts, "readers": len(self.readers)}

    @property
    def warnings(self) -> list[str]:
        """Sentences on missing labels, and on rows that are left out because of them."""
        return [
            *(f"{name}: {count_text(n, 'label')} missing: not scored" for name, n in self.n_unknown.items()),
            *(f"{name}: {count_text(n, 'row')} left out: labels are missing" for name, n in self.n_missing.items()),
        ]


def detect(root: Path) -> float:
    """Return 0.7 if `root` is or directly contains a table with CheXpert's columns, else 0."""
    return 0.7 if any(_lacks(path) is None for path in _tables_in(Path(root))) else 0.0


def inspect(root: Path, *, findings: Sequence[str] = CHEXPERT_LABELS, **policy: Any) -> Inspection:
    """Return the counts and problems of all tables of labels, and the tables that are set aside.

    Parameters
    ----------
    findings : labels that are read
    policy : `blank` and `uncertain`, see :class:`reveal_bench.findings.LabelPolicy`

    Raises
    ------
    ValueError
        If `root` has no table of references.
    """
    tables = _read_all(Path(root), findings, LabelPolicy(**policy))
    return Inspection(
        source="chexpert-labels",
        root=Path(root),
        files=tables.files,
        counts=tables.counts,
        expected=PUBLISHED,
        problems=tables.problems,
        warnings=[*tables.warnings, *set_aside_lines(tables.set_aside)],
        synthetic=is_synthetic(Path(root)),
    )


def read(
    root: Path,
    *,
    pixels: Pixels = "embed",
    keep_going: bool = False,
    findings: Sequence[str] = CHEXPERT_LABELS,
    **policy: Any,
) -> SourceData:
    """Return the records of every split, with the readers' labels as the config ``readers``.

    Parameters
    ----------
    root : a folder with tables, or one table of references
    pixels : ignored, because the source has only tables
    keep_going : leave out studies with a problem instead of raising
    findings : labels that are read
    policy : `blank` and `uncertain`, see :class:`reveal_bench.findings.LabelPolicy`

    Raises
    ------
    BuildError
        With every problem of the rows.
    ValueError
        If `root` has no table of references.
    """
    tables = _read_all(Path(root), findings, LabelPolicy(**policy))
    warnings = tables.warnings
    left_out = finish(tables.problems, warnings, keep_going=keep_going)
    splits: dict[str, list[StudyRecord]] = {}
    for study_id, study in tables.references.items():
        record = StudyRecord(
            study_id, study.patient_id, study.labels, sex=study.sex, age_band=study.age_band, unknown=study.unknown
        )
        splits.setdefault(study.split, []).append(record)
    if not splits:
        raise BuildError([Problem(".", None, "rows", "must include a study without a problem", "none")])
    by_readers = (
        (study_id, reader, labels) for reader, studies in tables.readers.items() for study_id, labels in studies.items()
    )
    return SourceData(
        splits,
        warnings,
        extras=reader_labels(by_readers),
        set_aside=tables.set_aside,
        left_out=left_out,
        synthetic=is_synthetic(Path(root)),
    )


def _tables_in(folder: Path) -> list[Path]:
    """Return the CSV files directly in a folder; `folder` itself if it is a file."""
    paths = [folder] if folder.is_file() else sorted(folder.glob("*.[cC][sS][vV]"))
    return [path for path in paths if path.suffix.lower() == ".csv" and path.is_file() and path.name[0] != "."]


def _tables_below(root: Path) -> Iterator[Path]:
    """Yield the CSV files in the folders below `root`, except in folders of patients' pictures."""
    for folder, subfolders, _ in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if not _PATIENT.fullmatch(name))
        yield from _tables_in(Path(folder)) if Path(folder) != root else ()


def _lacks(path: Path) -> str | None:
    """Return the reason why a file is no table with CheXpert's columns; None if it is."""
    if leads_out(path):
        return "a link out of the download"
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        head = file.readline(10_000).rstrip("\n")
    names = {canonical_finding(name.strip().strip('"'), CHEXPERT_LABELS) for name in re.split(r"[,;\t]", head)}
    if not re.search(rf"\b({'|'.join(KEYS)})\b", head):
        return f"no column {' or '.join(KEYS)}"
    n = len(names & {*CHEXPERT_LABELS})
    return None if n == len(CHEXPERT_LABELS) else f"{n} of the {len(CHEXPERT_LABELS)} labels; a system's? use `convert`"


def _choose_tables(root: Path) -> tuple[list[Path], list[Path], list[tuple[str, str]]]:
    """Return (tables of references, tables of readers, tables that are set aside with the reason)."""
    references, readers, set_aside = [], [], []
    for path in [*_tables_in(root), *_tables_below(root)]:
        name = path.relative_to(root)
        is_below = len(name.parts) > 1
        reason = _lacks(path)
        if reason is None and is_below and not any(map(READER_FOLDERS.fullmatch, name.parts[:-1])):
            reason = "not in a folder of readers, such as radiologists; a system's? use `convert`"
        if reason is not None:
            set_aside.append((name.as_posix(), reason))
        elif root.is_file() or (REFERENCES.fullmatch(path.name) and not is_below):
            references.append(path)
        else:
            readers.append(path)
    return references, readers, set_aside


def _reader_names(root: Path, paths: Sequence[Path]) -> dict[Path, str]:
    """Return each reader's table with the reader's name: the file's stem, or its whole path if stems repeat."""
    stems = Counter(path.stem for path in paths)
    whole = {path: "_".join(path.relative_to(root).with_suffix("").parts) for path in paths}
    return {path: path.stem if stems[path.stem] == 1 else whole[path] for path in paths}


def _read_all(root: Path, findings: Sequence[str], policy: LabelPolicy) -> _ChexpertTables:
    references, readers, set_aside = _choose_tables(root)
    if not references:
        rule = "must be or contain a table of references, such as groundtruth.csv or test_labels.csv"
        raise ArgumentError("root", rule, ", ".join(path.name for path in readers) or root)
    tables = _ChexpertTables(set_aside=set_aside, findings=findings, policy=policy)
    missing: set[str] = set()
    for path in references:
        tables.files[f"references {path.stem}"] = path.name
        own = _by_study(path, path.name, tables, tables.references, missing)
        tables.n_unknown[path.name] += sum(len(study.unknown) for study in own.values())
        tables.references |= own
    tables.n_unknown = +tables.n_unknown
    for path, reader in _reader_names(root, readers).items():
        name = path.relative_to(root).as_posix()
        tables.files[f"reader {reader}"] = name
        read = _by_study(path, name, tables, {}, set())
        own = {study_id: study for study_id, study in read.items() if not study.unknown}
        tables.n_missing[name] += len(read) - len(own)
        for study_id in own.keys() - tables.references.keys() - missing:
            rule = "must be in a table of references"
            tables.problems.append(Problem(name, study_id, "study", rule, "none"))
        tables.readers[reader] = {name: study.labels for name, study in own.items() if name in tables.references}
    tables.n_missing = +tables.n_missing
    return tables


def _by_study(
    path: Path, file: str, tables: _ChexpertTables, before: dict[str, _StudyLabels], missing: set[str]
) -> dict[str, _StudyLabels]:
    """Return a dict from study id to the labels of a table.

    Studies whose rows contradict each other or `before` (studies of earlier tables) are left out, and removed from
    `before`. Studies without any label are left out, counted and added to `missing`.
    """
    studies: dict[str, _StudyLabels] = {}
    contradicted = set()
    problems = tables.problems
    for study_id, row, study in _read_table(path, file, tables):
        if study is None:
            tables.n_missing[file] += 1
            missing.add(study_id)
        elif before.get(study_id, study) != study or studies.setdefault(study_id, study) != study:
            rule = "must agree in all rows of a study"
            problems.append(Problem(file, row.number, "labels", rule, f"others of {study_id}"))
            contradicted.add(study_id)
    for study_id in contradicted | missing:
        studies.pop(study_id, None)
        before.pop(study_id, None)
    return studies


def _read_table(path: Path, file: str, tables: _ChexpertTables) -> Iterator[tuple[str, TableRow, _StudyLabels | None]]:
    """Yield (study id, row, labels and demographics) of each row without a problem; None if all labels are missing."""
    problems = tables.problems
    table = scan_table(path, file, problems)
    if table is None:
        return
    columns = {label: name for name in table.columns if (label := canonical_finding(name, CHEXPERT_LABELS))}
    columns = {label: columns[label] for label in tables.findings}
    key = next(name for name in KEYS if name in table)
    for row in table.rows:
        match = _STUDY.fullmatch(row[key].replace("\\", "/"))
        if match is None:
            rule = "must end like test/patient64741/study1"
            problems.append(Problem(table.file, row.number, key, rule, repr(row[key])))
            continue
        n_before = len(problems)
        labels = _labels(table, row, columns, tables.policy, problems)
        facts = _facts(table, row, problems)
        if len(problems) == n_before:
            split = _SPLITS.get(match["split"], match["split"])
            study = None if labels is None else _StudyLabels(split, match["patient"], *labels, *facts)
            yield f"{match['patient']}_{match['study']}", row, study


def _labels(
    table: InputTable, row: TableRow, columns: dict[str, str], policy: LabelPolicy, problems: list[Problem]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return (positive labels, labels without a value) of a row, None if no label has a value; note invalid cells."""
    values: dict[str, float] = {}
    for label, column in columns.items():
        text, rule = row[column], "must be 0 or 1"
        try:
            value = policy.value(text)
        except ArgumentError as error:
            value, rule = None, f"{rule} unless `{error.argument}` (--{error.argument}) states what it means"
        if value is None:
            problems.append(Problem(table.file, row.number, column, rule, repr(text)))
        else:
            values[label] = value
    unknown = tuple(label for label, value in values.items() if math.isnan(value))
    if values and len(unknown) == len(values):
        return None
    return tuple(label for label, value in values.items() if value > 0), unknown


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
