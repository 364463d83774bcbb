"""Rows of a table joined with studies of a DICOM tree: the records of a findings-type benchmark.

Rows and studies must fit one to one; what does not is a problem of the row, or of the first file of the study. Ids are
keyed hashes (:mod:`reveal_bench.builders.ids`) unless the mapping names columns with public ids. Of a header go on:
view, size, spacing, manufacturer, model, detector type, kVp and mAs, and, where the mapping says so, age (as a band)
and sex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.builders.dicom_tree import StudyTree, TreeImage, TreeStudy
from reveal_bench.builders.ids import IdKind, check_collisions, keyed_id
from reveal_bench.builders.mapping import StudyMapping
from reveal_bench.builders.source import Extra, Problem
from reveal_bench.builders.study_labels import LabelledStudy
from reveal_bench.findings import REVEAL_TERMS, hint
from reveal_bench.records import PictureFile
from reveal_bench.study_records import UNKNOWN, StudyImage, StudyRecord, age_band

if TYPE_CHECKING:
    from datasets import Features

__all__ = ["UNDIVIDED", "Facts", "Joined", "Namer", "join_rows", "label_terms", "make_records"]

UNDIVIDED = "test"
"""Name of the only split of a source that names none ("all" is taken by `datasets`)."""

MOST_HINTS = 20
"""So many unknown keys get the nearest spelling; for all rows of a wrong column the search would take hours."""
DETECTORS = ("DIRECT", "SCINTILLATOR", "STORAGE", "FILM")
"""Values that DICOM defines for DetectorType (PS3.3 C.8.11.4); another text is not passed on."""
SEX_OF_HEADER = {"F": "F", "M": "M", "O": "other"}

Facts = dict[str, str]
"""What is known of a study beside its row, by field of a StudyRecord; and `patient_key`, which is not published."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A row and its study."""

    row: LabelledStudy
    study: TreeStudy


def join_rows(
    mapping: StudyMapping,
    file: str,
    rows: Sequence[LabelledStudy],
    tree: StudyTree,
    problems: list[Problem],
    *,
    spoiled: Iterable[str] = (),
) -> list[Joined]:
    """Rows with their studies, in the order of the rows, but for those with a problem.

    `spoiled` are the keys of rows that have a problem already: their studies are not also reported as without a row.
    """
    by_key: dict[str, list[TreeStudy]] = {}
    for study in tree.studies.values():
        for key in study.keys(mapping.key_matches):
            by_key.setdefault(key, []).append(study)
    taken = {study.uid: 0 for key in spoiled for study in by_key.get(key, ())}
    joined, n_hints = [], 0
    for row in rows:
        found = by_key.get(row.key, [])
        if len(found) != 1:
            what = f"must match one study by {mapping.key_matches}"
            n_hints += 1
            shown = hint(row.key, list(by_key)) if n_hints <= MOST_HINTS else repr(row.key)
            value = f"{shown}, which matches {len(found) or 'none'}"
            problems.append(Problem(file, row.row, mapping.key_column, what, value))
            taken.update({study.uid: row.row for study in found})
            continue
        study = found[0]
        if study.uid in taken:
            value = f"{row.key!r}, the study of row {taken[study.uid]}" if taken[study.uid] else repr(row.key)
            problems.append(Problem(file, row.row, mapping.key_column, "must match a study of its own", value))
            continue
        taken[study.uid] = row.row
        if study.uid not in tree.problem_studies:
            joined.append(Joined(row, study))
    for study in tree.studies.values():
        if study.uid not in taken and not mapping.leaves_out_others:
            keys = ", ".join(sorted(study.keys(mapping.key_matches))) or "no value"
            value = f"none with {mapping.key_matches} {keys}"[:200]
            problems.append(Problem(study.images[0].shown, None, "study", f"must have a row in {file}", value))
    if mapping.leaves_out_others:  # and what is wrong with their files is no matter here
        others = [study for study in tree.studies.values() if study.uid not in taken]
        spare = {image.shown for study in others for image in study.images}
        tree.problems[:] = [problem for problem in tree.problems if problem.file not in spare]
    return joined


@dataclass
class Namer:
    """Gives ids, and keeps what they were made of, to find two that are the same.

    `key` is the publisher's secret; None if the mapping names public ids of studies and patients.
    """

    key: bytes | None
    _made_of: dict[IdKind, set[str]] = field(default_factory=dict)

    def name(self, kind: IdKind, uid: str) -> str:
        """The keyed id of `uid`."""
        if self.key is None:
            raise ValueError("`id_key` must be given where an id is not public")
        self._made_of.setdefault(kind, set()).add(uid)
        return keyed_id(self.key, kind, uid)

    def problems(self, file: str) -> list[Problem]:
        """Ids that two identifiers share."""
        if self.key is None:
            return []
        return [
            Problem(
                file, None, f"{kind}_id", "must differ for different identifiers; take another key", f"{shared} twice"
            )
            for kind, uids in self._made_of.items()
            for shared in check_collisions(self.key, kind, uids)
        ]


def make_records(
    mapping: StudyMapping,
    file: str,
    joined: Sequence[Joined],
    namer: Namer,
    problems: list[Problem],
    warnings: list[str],
    *,
    more_facts: Callable[[Joined], Facts] | None = None,
) -> dict[str, list[StudyRecord]]:
    """Records per split.

    `more_facts` adds what the source gives elsewhere: age_band, sex, race, patient_class and patient_key; the mapping's
    come first.
    """
    splits: dict[str, list[StudyRecord]] = {}
    rows_of: dict[str, int] = {}
    n_alone = 0
    for pair in joined:
        row, study = pair.row, pair.study
        found = len(problems)
        facts = {
            **(more_facts(pair) if more_facts else {}),
            **_header_facts(mapping, pair, file, problems),
            **row.facts,
        }
        study_id = row.ids.get("study") or namer.name("study", study.uid)
        if rows_of.setdefault(study_id, row.row) != row.row:
            value = f"{study_id!r} again, first in row {rows_of[study_id]}"
            problems.append(Problem(file, row.row, "study_id", "must be of one study only", value))
        patient = row.patient_key or facts.pop("patient_key", "") or next(iter(study.patients), None)
        n_alone += patient is None and "patient" not in row.ids
        if len(problems) > found:
            continue
        record = StudyRecord(
            study_id=study_id,
            patient_id=row.ids.get("patient") or namer.name("patient", patient or f"study {study.uid}"),
            labels=row.labels,
            agreement=row.agreement,
            images=tuple(_image(image, study_id, i, namer) for i, image in enumerate(study.images, start=1)),
            n_agree_all=row.n_agree_all,
            **{name: facts.get(name, UNKNOWN) for name in ("age_band", "sex", "race", "patient_class")},
        )
        splits.setdefault(row.split or UNDIVIDED, []).append(record)
    problems += namer.problems(file)
    if n_alone:
        warnings.append(f"{n_alone:,} studies name no patient: each counts as a patient of its own")
    return splits


def label_terms() -> Extra:
    """The table `labels`: definition and codes of every label."""
    rows = [
        {name: getattr(term, name) for name in ("name", "definition", "radlex", "snomed", "loinc")}
        for term in REVEAL_TERMS
    ]
    return Extra("labels", _term_features, rows, split="terms")


def _term_features() -> Features:
    from datasets import Features, Value

    return Features({name: Value("string") for name in ("name", "definition", "radlex", "snomed", "loinc")})


def _header_facts(mapping: StudyMapping, pair: Joined, file: str, problems: list[Problem]) -> Facts:
    """Age band and sex, where the mapping takes them from the headers."""
    facts: Facts = {}
    headers = [image.header for image in pair.study.images]
    known = {
        "age": {age_band(header.age_years) for header in headers if header.age_years is not None},
        "sex": {SEX_OF_HEADER[header.sex] for header in headers if header.sex in SEX_OF_HEADER},
    }
    for name, values in known.items():
        rule = mapping.rules.get(name)
        if rule is None or not rule.from_header:
            continue
        if len(values) > 1:
            rule_text = f"must be the same in all headers of study {pair.row.key}"
            problems.append(Problem(file, pair.row.row, name, rule_text, ", ".join(sorted(values))))
        elif values:
            facts["age_band" if name == "age" else name] = values.pop()
    return facts


def _image(image: TreeImage, study_id: str, number: int, namer: Namer) -> StudyImage:
    header = image.header
    assert header.sop_uid is not None
    image_id = namer.name("image", header.sop_uid) if namer.key is not None else f"{study_id}_image{number}"
    path: Path = image.file.path
    return StudyImage(
        image_id=image_id,
        view=header.view,
        width=header.columns or 0,
        height=header.rows or 0,
        view_raw=header.view_raw,
        manufacturer=header.manufacturer,
        manufacturer_raw=header.manufacturer_raw,
        model=header.model,
        model_raw=header.model_raw,
        detector_type=header.detector_type if header.detector_type in DETECTORS else None,
        kvp=header.kvp,
        exposure_mas=header.exposure_mas,
        spacing_mm=header.spacing_mm,
        spacing_source=header.spacing_source,
        picture=PictureFile(path, f"{image_id}.png", image.shown, kind="dicom", member=image.file.member),
    )
