"""Conversion of the rows of a table of studies to labels, reader agreement and demographics, by a user's mapping.

The text of every cell must be in the mapping or in a vocabulary. An unknown text is reported as a problem with row,
column and the nearest known spelling. "None", "No finding" and "Normal" mean that no label is present; it is a problem
if one of them is given together with a label. A blank cell is also a problem in a column of labels, because the absence
of labels must be stated. If a mapping's own findings include one of these three texts, the text is a label.

If the mapping names a column of readers, the rows of a study are combined: a label is present if more than half of the
study's readers gave that label. For studies with three readers, the agreement is the number of readers who gave exactly
the combined labels (paper 004, section 2.4).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from reveal_bench.findings import REVEAL_LABELS, canonical_finding, conflict, hint
from reveal_bench.kinds.findings.records import AGREEMENTS, UNKNOWN, age_band
from reveal_bench.sources.mapping import (
    SPLIT_NAME,
    VOCABULARIES,
    ColumnRule,
    StudyMapping,
    folded,
    is_split_name,
    which_labels,
)
from reveal_bench.sources.pictures import SUFFIXES
from reveal_bench.sources.source import DownloadProblems, Extra, FindingColumn, Problem, table_features
from reveal_bench.tables import InputTable, TableRow, missing_columns

NO_LABEL = ("none", "no finding", "no findings", "normal", "normal exam")
"""Folded texts that mean that a study has none of the labels."""

PRESENT = frozenset(("1", "1.0", "yes", "y", "true", "t", "present", "positive"))
ABSENT = frozenset(("0", "0.0", "no", "n", "false", "f", "absent", "negative"))
"""Folded texts that mean "present" and "absent" in the column of a label."""

PUBLIC_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Pattern of public ids, which become part of file names."""

N_OF_AGREEMENT = {"two_of_three": 2, "three_of_three": 3}
_AGREEMENT_OF = {n: word for word, n in N_OF_AGREEMENT.items()}


@dataclass(frozen=True, slots=True)
class LabelledStudy:
    """A study of the table, from one row or from the rows of several readers.

    `key` is the study key. A field is None if the table has no column for it. `facts` contains those of age_band, sex,
    race and patient_class that the table states for this study. `labels_by_reader` is empty if the table has no
    readers. `unknown` has the labels without a value.
    """

    row: int
    key: str
    labels: tuple[str, ...]
    agreement: str | None
    n_agree_all: int | None
    split: str | None
    facts: dict[str, str] = field(default_factory=dict)
    patient_key: str | None = None
    ids: dict[str, str] = field(default_factory=dict)
    labels_by_reader: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


def check_columns(mapping: StudyMapping, table: InputTable, problems: list[Problem]) -> bool:
    """Return True if the table has every column that the mapping names; note missing columns as problems."""
    missing = missing_columns(table, mapping.columns, named_in=mapping.file)
    problems += missing
    return not missing


def labelled_studies(
    mapping: StudyMapping, table: InputTable, problems: list[Problem]
) -> tuple[list[LabelledStudy], set[str]]:
    """Return (studies whose rows have no problem, study keys of all other studies)."""
    by_key: dict[str, LabelledStudy] = {}
    faulty: set[str] = set()
    spelt: dict[str, str] = {}
    for row in table.rows:
        parser = _MappedRow(mapping, table.file, row)
        study = parser.read()
        for reader in study.labels_by_reader:
            if (first_spelt := spelt.setdefault(folded(reader), reader)) != reader:
                rule = "must be spelt the same in all rows of a reader"
                parser.fail(
                    mapping.rules["reader"].column or "", rule, f"{reader!r}, but {first_spelt!r} in an earlier row"
                )
        if study.key:
            first = by_key.setdefault(study.key, study)
            if first is not study:
                parser.join(first, study)
        problems += parser.problems
        if parser.problems:
            faulty.add(study.key)
    studies = (study for key, study in by_key.items() if key not in faulty)
    return [_agreed(study, mapping.findings) if study.labels_by_reader else study for study in studies], faulty


def _agreed(study: LabelledStudy, findings: Sequence[str]) -> LabelledStudy:
    """Return the study with the labels of more than half of its readers and, for three readers, their agreement."""
    votes = Counter(label for labels in study.labels_by_reader.values() for label in labels)
    labels = tuple(label for label in findings if 2 * votes[label] > len(study.labels_by_reader))
    if len(study.labels_by_reader) != 3:
        return replace(study, labels=labels)
    n = sum(own == labels for own in study.labels_by_reader.values())
    return replace(study, labels=labels, n_agree_all=n, agreement=_AGREEMENT_OF.get(n))


def reader_warnings(rows: Sequence[LabelledStudy]) -> list[str]:
    """Return warnings if the number of readers differs between studies, or if the readers of a study share no label."""
    warnings = []
    counted = Counter(len(row.labels_by_reader) for row in rows)
    if len(counted) > 1:
        numbers = ", ".join(
            f"{number:,} {'has' if number == 1 else 'have'} {n}" for n, number in sorted(counted.items())
        )
        warnings.append(f"studies have different numbers of readers: {numbers}")
    n = sum(bool(row.labels_by_reader) and not row.labels and all(row.labels_by_reader.values()) for row in rows)
    if n:
        warnings.append(f"{n:,} studies have no label from more than half of their readers: all count as absent")
    return warnings


def reader_labels(triples: Iterable[tuple[str, str, Sequence[str]]]) -> list[Extra]:
    """Return the extra table ``readers`` of `triples` (study_id, reader, labels); [] without triples."""
    rows = [{"study_id": study_id, "reader": reader, "labels": list(labels)} for study_id, reader, labels in triples]
    column = FindingColumn("labels", may_be_empty=True)
    features = table_features(study_id="string", reader="string", labels=["string"])
    return [Extra("readers", features, rows, key="study_id", findings=column)] if rows else []


Fail = Callable[[str, str, str], None]
"""Function that notes a problem of a cell, given (column, rule, value)."""


def labels_of_cell(
    entries: Iterable[object], column: str, fail: Fail, vocabulary: Sequence[str] = REVEAL_LABELS
) -> tuple[str, ...]:
    """Return the labels in a cell's `entries`, in the order of `vocabulary`; `fail` is called for each problem.

    Spelling follows :func:`reveal_bench.findings.canonical_finding`; a text of :data:`NO_LABEL` must be the only entry.
    """
    entries = list(entries)
    if "" in entries:
        fail(column, 'must name labels, or "None" for a study without labels', "a blank")
        return ()
    known, unknown = spelled_labels(entries, vocabulary)
    for text in unknown:
        fail(column, f"must be one of {which_labels(vocabulary)}", hint(text, vocabulary))
    twice = sorted({label for label in known if known.count(label) > 1})
    if twice:
        fail(column, "must name each label once", f"{', '.join(twice)} again")
    if known and len(known) + len(unknown) < len(entries):
        fail(column, 'must not contain both "None" and a label', ", ".join(map(str, entries))[:200])
    return tuple(label for label in vocabulary if label in known)


def spelled_labels(entries: Iterable[object], vocabulary: Sequence[str] = REVEAL_LABELS) -> tuple[list[str], list[str]]:
    """Return (labels, unknown texts) of a cell's `entries`; texts of :data:`NO_LABEL` are in neither list."""
    known, unknown = [], []
    for entry in entries:
        label = canonical_finding(entry, vocabulary) if isinstance(entry, str) else None
        if label is not None:
            known.append(label)
        elif not (isinstance(entry, str) and folded(entry) in NO_LABEL):
            unknown.append(entry if isinstance(entry, str) else json.dumps(entry))
    return known, unknown


def age_of(text: str) -> float | None:
    """Return the age in years of a text such as "67", "67.5", "067Y", ">89" or "90+"; None for other texts.

    Examples
    --------
    >>> age_of("067Y"), age_of("> 89"), age_of("90+"), age_of("old")
    (67.0, 90.0, 90.0, None)
    """
    bare = text.strip()
    above = re.fullmatch(r"> ?(\d{1,3})", bare)
    if above is not None:
        return float(above[1]) + 1
    match = re.fullmatch(r"(\d{1,3}(?:\.\d+)?) ?(?:y|years?|\+)?", bare, re.IGNORECASE | re.ASCII)
    return float(match[1]) if match is not None else None


def image_stem(name: str) -> str:
    """Return the name of an image without its folder and without the suffix of an image file.

    Examples
    --------
    >>> image_stem("films/a.png"), image_stem("1.2.3")
    ('a', '1.2.3')
    """
    path = PurePosixPath(name.replace("\\", "/"))
    return path.stem if path.suffix.lower() in (".dcm", ".dicom", *SUFFIXES) else path.name


class _MappedRow:
    """A row of the table, read by the rules of the mapping; problems are added to `problems`."""

    def __init__(self, mapping: StudyMapping, file: str, row: TableRow) -> None:
        self.mapping, self.file, self.row = mapping, file, row
        self.problems = DownloadProblems()

    def fail(self, column: str, rule: str, value: str) -> None:
        self.problems.append(Problem(self.file, self.row.number, column, rule, value))

    def read(self) -> LabelledStudy:
        rules = self.mapping.rules
        key = self.row[self.mapping.key_column]
        if self.mapping.key_matches == "file":
            key = image_stem(key)
        if not key:
            self.fail(self.mapping.key_column, "must name the study", "a blank cell")
        agreement = self._word(rules["agreement"], AGREEMENTS) if "agreement" in rules else None
        n_agree_all = self._n_agree_all(agreement)
        if agreement is None and n_agree_all is not None:
            agreement = _AGREEMENT_OF.get(n_agree_all)
        facts = {name: self._word(rules[name], words) for name, words in VOCABULARIES.items() if self._has(name)}
        if self._has("age"):
            facts["age_band"] = self._age_band(rules["age"])
        labels = self._consistent(self._labels())
        return LabelledStudy(
            row=self.row.number,
            key=key,
            labels=labels,
            agreement=agreement,
            n_agree_all=n_agree_all,
            split=self._split(),
            facts={name: word for name, word in facts.items() if word is not None},
            patient_key=self._needed("patient_key", rules["patient_key"].column) if "patient_key" in rules else None,
            ids={name: self._public_id(name, column) for name, column in self.mapping.ids.items()},
            labels_by_reader={self._needed("reader", rules["reader"].column): labels} if "reader" in rules else {},
            unknown=self._unknown(),
        )

    def join(self, first: LabelledStudy, study: LabelledStudy) -> None:
        """Add the reader and labels of this row (`study`) to `first`, the study's first row; note contradictions."""
        if "reader" not in self.mapping.rules:
            value = f"{study.key!r} again, first in row {first.row}"
            rule = "must be unique unless the mapping names a column of readers (`reader`)"
            self.fail(self.mapping.key_column, rule, value)
            return
        for reader, labels in study.labels_by_reader.items():
            if reader in first.labels_by_reader:
                value = f"{reader!r} again for {study.key!r}"
                self.fail(self.mapping.rules["reader"].column or "", "must be unique among the rows of a study", value)
            first.labels_by_reader[reader] = labels
        facts = {name: getattr(study, name) for name in ("split", "facts", "patient_key", "ids")}
        for name, value in facts.items():
            if value != getattr(first, name):
                rule = f"must be the same in every row of {study.key!r}"
                self.fail(name, rule, f"{value}, but {getattr(first, name)} in row {first.row}")

    def _has(self, name: str) -> bool:
        return name in self.mapping.rules and not self.mapping.rules[name].from_header

    def _word(self, rule: ColumnRule, words: tuple[str, ...]) -> str | None:
        """Return the term of `words` for the text of a cell; None for unknown."""
        column = rule.column or ""
        text = self.row[column]
        values = rule.values or {}
        if folded(text) in values:
            return values[folded(text)]
        own = {folded(word): word for word in words}
        if folded(text) in own:
            return own[folded(text)]
        if text:
            known = [*values, *words]
            self.fail(column, f"must be in the mapping's values or one of {', '.join(words)}", hint(text, known))
        return None

    def _n_agree_all(self, agreement: str | None) -> int | None:
        known = N_OF_AGREEMENT.get(agreement or "")
        if "n_agree_all" not in self.mapping.rules:
            return known
        column = self.mapping.rules["n_agree_all"].column or ""
        text = self.row[column]
        if not text:
            return known
        if text not in ("0", "1", "2", "3"):
            self.fail(column, "must be the number of readers who agreed, 0 to 3", repr(text))
            return None
        if agreement is not None and int(text) != known:
            self.fail(column, f"must be {known}, because the agreement is {agreement}", repr(text))
        return int(text)

    def _age_band(self, rule: ColumnRule) -> str | None:
        text = self.row[rule.column or ""]
        if not text or folded(text) == UNKNOWN:
            return None
        years = age_of(text)
        if years is None or years > 150:
            self.fail(rule.column or "", "must be an age in years up to 150", repr(text))
            return None
        return age_band(years)

    def _split(self) -> str | None:
        if "split" not in self.mapping.rules:
            return None
        rule = self.mapping.rules["split"]
        text = self._needed("split", rule.column)
        name = (rule.values or {}).get(folded(text), None if rule.values else text)
        if text and name is None:
            self.fail(rule.column or "", "must be in the mapping's values", hint(text, list(rule.values or ())))
        elif text and not is_split_name(name or ""):
            self.fail(rule.column or "", f"must be {SPLIT_NAME}; or give `values` in the mapping", repr(text))
        return name

    def _needed(self, what: str, column: str | None) -> str:
        text = self.row[column or ""]
        if not text:
            self.fail(
                column or "", f"must not be blank, because it states the {what.replace('_', ' ')}", "a blank cell"
            )
        return text

    def _public_id(self, name: str, column: str) -> str:
        text = self._needed(f"{name} id", column)
        if re.fullmatch(r"\d+(\.\d+){3,}", text):
            self.fail(column, "must be a public id, not a DICOM UID", repr(text))
        elif text and not PUBLIC_ID.fullmatch(text):
            rule = "must be an id of at most 64 letters, digits, _, - and dots, the first a letter or digit"
            self.fail(column, rule, repr(text[:80]))
        return text

    def _consistent(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return `labels`; note a problem if a label that excludes all others is not the only label."""
        if lone := conflict(labels, self.mapping.findings):
            self.fail(lone, "must be alone", ", ".join(labels))
        return labels

    def _labels(self) -> tuple[str, ...]:
        rule = self.mapping.labels
        if rule.form == "wide":
            return self._wide()
        cell = self.row.cell(rule.column)
        entries: list[object]
        if isinstance(cell, list):
            entries = cell
        elif rule.form == "list":
            if cell.endswith(rule.separator):
                cell = cell.removesuffix(rule.separator)
            entries = [entry.strip() for entry in cell.split(rule.separator)] if cell else [""]
        else:
            entries = self._json(cell)
        entries = [rule.synonyms.get(folded(one), one) if isinstance(one, str) else one for one in entries]
        return labels_of_cell(entries, rule.column, self.fail, self.mapping.findings)

    def _json(self, cell: str) -> list[object]:
        try:
            entries = json.loads(cell) if cell else [""]
        except (json.JSONDecodeError, RecursionError):
            entries = None
        if not isinstance(entries, list):
            self.fail(self.mapping.labels.column, "must be a JSON list of labels", repr(cell[:80]))
            return []
        return entries

    def _unknown(self) -> tuple[str, ...]:
        """Return the labels whose cells say that their value is unknown; readings and rows without any have none."""
        rule = self.mapping.labels
        columns = [column for column in rule.columns if rule.cells.get(folded(self.row[column])) == "unknown"]
        if columns and "reader" in self.mapping.rules:
            self.fail(columns[0], "must be present or absent in a reader's row", repr(self.row[columns[0]]))
        if columns and len(columns) == len(rule.columns):
            self.fail(columns[0], "must be present or absent in some column of labels", repr(self.row[columns[0]]))
        return tuple(rule.columns[column] for column in columns)

    def _wide(self) -> tuple[str, ...]:
        rule, present = self.mapping.labels, set()
        for column, label in rule.columns.items():
            text = folded(self.row[column])
            if rule.cells.get(text) == "present" or (text in PRESENT and text not in rule.cells):
                present.add(label)
            elif rule.cells.get(text) not in ("absent", "unknown") and text not in ABSENT:
                rule_text = "must be 1 or 0, yes or no, or a text in the mapping's `cells`"
                self.fail(column, rule_text, repr(text) if text else "a blank cell")
        return tuple(label for label in self.mapping.findings if label in present)
