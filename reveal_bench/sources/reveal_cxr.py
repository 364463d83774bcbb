"""REVEAL-CXR and similar datasets: DICOM files, one table of labels, and a mapping that explains the table's columns.

Source: arXiv 2601.15129 (paper 004); RSNA gives the released half to anyone who signs its agreement. The layout of that
release is not public, so no layout is assumed.

Images are grouped into studies by their headers (:mod:`reveal_bench.sources.study_tree`), the table can have any common
format (:mod:`reveal_bench.tables`), and a YAML file explains its columns (:mod:`reveal_bench.sources.mapping`). This
mapping is ``mapping.yaml`` at the root of the download, or another file that the user names. Without a mapping,
`inspect` suggests one and `read` fails, because a guess must be confirmed by a person.

Conversion
-----------------
* There is one record per row of the table, or per study if the table has a row per reader. Rows of the table and
  studies of images must match one to one. A row without a study is a problem of the row; a study without a row is a
  problem of its first file.
* Splits come from the mapping; if it names no column of splits, the only split is "test".
* Duplicates and files that are not original radiographs are set aside and listed with the reason.
* Ids are keyed hashes (:mod:`reveal_bench.sources.ids`), unless the mapping names columns with public ids. Of the
  headers, a record contains only view, size, spacing, manufacturer, model, detector type, kVp and mAs and, if the
  mapping says so, age (as a band) and sex.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

from reveal_bench.arguments import ArgumentError
from reveal_bench.dicom.header import canonical_manufacturer, canonical_model
from reveal_bench.findings import REVEAL_TERMS, hint
from reveal_bench.kinds.findings.records import UNKNOWN, StudyRecord, age_band
from reveal_bench.kinds.images import StudyImage
from reveal_bench.sources.boxes import count_warnings
from reveal_bench.sources.ids import KINDS, IdKind, check_collisions, keyed_id
from reveal_bench.sources.mapping import EQUIPMENT, KEY_FACTS, StudyMapping, read_mapping
from reveal_bench.sources.source import (
    READERS_PUBLISHED,
    BuildError,
    DownloadProblems,
    Extra,
    Inspection,
    Pixels,
    Problem,
    SourceData,
    finish,
    is_synthetic,
    published_texts,
    set_aside_lines,
    table_features,
)
from reveal_bench.sources.study_labels import (
    LabelledStudy,
    check_columns,
    labelled_studies,
    reader_labels,
    reader_warnings,
)
from reveal_bench.sources.study_tree import (
    StudyTree,
    TreeImage,
    TreeStudy,
    film_warnings,
    guess_mapping,
    read_pictures,
    read_tree,
    tables_below,
)
from reveal_bench.tables import InputTable, scan_table

UNDIVIDED = "test"
"""Name of the only split if a source has no splits (`datasets` reserves "all")."""

MOST_HINTS = 20
"""Number of unknown study keys, UIDs excepted, for which a message shows the nearest spelling; the search is slow."""
DETECTORS = ("DIRECT", "SCINTILLATOR", "STORAGE", "FILM")
"""Values that DICOM defines for DetectorType (PS3.3 C.8.11.4); any other text is dropped."""
DEVICES_PUBLISHED = (
    "manufacturer and model are published as in the headers; check them for names of persons and rooms "
    "(`equipment` in the mapping leaves out or renames values); rarest first"
)
SEX_OF_HEADER = {"F": "F", "M": "M", "O": "other"}

Facts = dict[str, str]
"""Facts about a study by field of :class:`StudyRecord`, and `patient_key`, which is not published."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A row of the table and the study that it matches."""

    row: LabelledStudy
    study: TreeStudy


def join_rows(
    mapping: StudyMapping,
    file: str,
    rows: Sequence[LabelledStudy],
    tree: StudyTree,
    problems: list[Problem],
    *,
    faulty: Iterable[str] = (),
) -> list[Joined]:
    """Return pairs of row and study, in the order of the rows; a row without exactly one study is noted as a problem.

    `faulty` contains the study keys of rows with a problem; studies with these keys are not reported as lacking a row.
    """
    by_key = tree.by_key(mapping.key_matches)
    taken = {study.uid: 0 for key in faulty for study in by_key.get(key, ())}
    joined, n_hints = [], 0
    for row in rows:
        matches = by_key.get(row.key, [])
        if len(matches) != 1:
            what = f"must match one study by {mapping.key_matches}"
            n_hints += 1
            is_near = n_hints <= MOST_HINTS and not mapping.key_matches.endswith("UID")
            key_text = hint(row.key, list(by_key)) if is_near else repr(row.key)
            value = f"{key_text}, which matches {len(matches) or 'none'}"
            problems.append(Problem(file, row.row, mapping.key_column, what, value))
            taken.update({study.uid: row.row for study in matches})
            continue
        study = matches[0]
        if study.uid in taken:
            value = f"{row.key!r}, the study of row {taken[study.uid]}" if taken[study.uid] else repr(row.key)
            problems.append(
                Problem(file, row.row, mapping.key_column, "must match a study that no earlier row matches", value)
            )
            continue
        taken[study.uid] = row.row
        if study.uid not in tree.problem_studies:
            joined.append(Joined(row, study))
    for study in tree.studies.values():
        if study.uid not in taken and not mapping.leaves_out_others:
            keys = ", ".join(sorted(study.keys(mapping.key_matches))) or "no value"
            value = f"none with {mapping.key_matches} {keys}"[:200]
            problems.append(Problem(study.images[0].source_path, None, "study", f"must have a row in {file}", value))
    if mapping.leaves_out_others:  # problems of files of other studies do not matter then
        others = [study for study in tree.studies.values() if study.uid not in taken]
        spare = {image.source_path for study in others for image in study.images}
        tree.problems[:] = [problem for problem in tree.problems if problem.file not in spare]
    return joined


@dataclass
class Namer:
    """Generator of keyed ids, which remembers the identifier of each id to detect collisions.

    `key` is the publisher's secret; None if the mapping names columns with public ids of studies and patients.
    """

    key: bytes | None
    ids: dict[tuple[str, str], str] = field(default_factory=dict)

    def name(self, kind: IdKind, uid: str) -> str:
        """Return the keyed id of the identifier `uid`."""
        if self.key is None:
            raise ArgumentError("id_key", "must be given if an id is not public")
        return self.ids.setdefault((kind, uid), keyed_id(self.key, kind, uid))

    def study_id(self, joined: Joined) -> str:
        """Return the study's public id from the table, or else its keyed id."""
        return joined.row.ids.get("study") or self.name("study", joined.study.uid)

    def problems(self, file: str) -> list[Problem]:
        """Return a problem for each id that belongs to two identifiers."""
        if self.key is None:
            return []
        return [
            Problem(
                file, None, f"{kind}_id", "must differ for different identifiers; use another key", f"{shared} twice"
            )
            for kind in KINDS
            for shared in check_collisions(self.key, kind, (uid for of, uid in self.ids if of == kind))
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
    """Return a dict from split to records, made from pairs of row and study.

    `more_facts` returns facts about a study from outside the table: age_band, sex, race, patient_class and patient_key.
    Facts that the mapping takes from the table or the headers take precedence.
    """
    splits: dict[str, list[StudyRecord]] = {}
    rows_of: dict[str, int] = {}
    n_alone = 0
    for pair in joined:
        row, study = pair.row, pair.study
        n_before = len(problems)
        known = more_facts(pair) if more_facts else {}
        facts = {**known, **_header_facts(mapping, pair, file, problems), **row.facts}
        study_id = namer.study_id(pair)
        if rows_of.setdefault(study_id, row.row) != row.row:
            value = f"{study_id!r} again, first in row {rows_of[study_id]}"
            problems.append(Problem(file, row.row, "study_id", "must belong to only one study", value))
        patient = row.patient_key or facts.pop("patient_key", "") or next(iter(study.patients), None)
        n_alone += patient is None and "patient" not in row.ids
        if len(problems) > n_before:
            continue
        record = StudyRecord(
            study_id=study_id,
            patient_id=row.ids.get("patient") or namer.name("patient", patient or f"study {study.uid}"),
            labels=row.labels,
            agreement=row.agreement,
            images=tuple(_image(image, study_id, i, namer, mapping) for i, image in enumerate(study.images, start=1)),
            n_agree_all=row.n_agree_all,
            unknown=row.unknown,
            **{name: facts.get(name, UNKNOWN) for name in ("age_band", "sex", "race", "patient_class")},
        )
        splits.setdefault(row.split or UNDIVIDED, []).append(record)
    problems += namer.problems(file)
    if n_alone:
        warnings.append(f"{n_alone:,} studies have no patient id, so each counts as a separate patient")
    images = [image for records in splits.values() for record in records for image in record.images]
    texts = (text for image in images for text in (image.manufacturer_raw, image.model_raw))
    headers = [image.header for pair in joined for image in pair.study.images]
    warnings += [*mapping.unused_equipment(headers), *published_texts(DEVICES_PUBLISHED, texts)]
    return splits


def label_terms() -> Extra:
    """Return the extra table ``labels`` with the definition and codes of each of REVEAL-CXR's labels."""
    rows = [asdict(term) for term in REVEAL_TERMS]
    return Extra("labels", table_features(**dict.fromkeys(rows[0], "string")), rows, split="terms")


def _header_facts(mapping: StudyMapping, pair: Joined, file: str, problems: list[Problem]) -> Facts:
    """Return the facts (age_band, sex) that the mapping takes from the headers."""
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


def _image(image: TreeImage, study_id: str, number: int, namer: Namer, mapping: StudyMapping) -> StudyImage:
    header = image.header
    maker, model = (mapping.published_equipment(name, getattr(header, f"{name}_raw")) for name in EQUIPMENT)
    assert header.sop_uid is not None
    image_id = namer.name("image", header.sop_uid) if namer.key is not None else f"{study_id}_image{number}"
    return StudyImage(
        image_id=image_id,
        view=header.view,
        width=header.columns or 0,
        height=header.rows or 0,
        view_raw=header.view_raw,
        manufacturer=canonical_manufacturer(maker),
        manufacturer_raw=maker,
        model=canonical_model(model),
        model_raw=model,
        detector_type=header.detector_type if header.detector_type in DETECTORS else None,
        kvp=header.kvp,
        exposure_mas=header.exposure_mas,
        spacing_mm=header.spacing_mm,
        spacing_source=header.spacing_source,
        picture=image.picture(image_id),
    )


MAPPING_NAME = "mapping.yaml"
WANTED = "DICOM radiographs and a table of labels, or a table of labels and a mapping with `pictures: none`"

PUBLISHED = {"studies": 100, "images": 109}
"""Counts of the released half (paper 004, Tables 1 and S2), compared if the download claims to be that half."""

CLAIM = re.compile(r"reveal[\s_-]*cxr", re.IGNORECASE)
DICOM_SUFFIXES = (".dcm", ".dicom")
LOOKED_AT = 5000
"""Number of files whose names :func:`detect` checks."""


def detect(root: Path) -> float:
    """Return 0.6 for a mapping and a table, 0.3 for DICOM files (by suffix) and a table, 0 for anything else.

    If the folder is named after REVEAL-CXR, 0.2 is added to a positive value.
    """
    root = Path(root)
    if not root.is_dir() or next(tables_below(root), None) is None:
        return 0.0
    named = 0.2 if CLAIM.search(root.name) else 0.0
    if (root / MAPPING_NAME).is_file():
        return 0.6 + named
    names = (name for _, _, names in os.walk(root) for name in names)
    return 0.3 + named if any(n.lower().endswith(DICOM_SUFFIXES) for n in islice(names, LOOKED_AT)) else 0.0


def inspect(
    root: Path, *, mapping: Path | None = None, workers: int = 1, include_secondary: bool = False
) -> Inspection:
    """Return counts, problems and mismatches of headers and table.

    Without a mapping, the last warning starts with "no mapping" and suggests one.

    Raises
    ------
    ValueError
        If `root` is not a folder or contains no DICOM file.
    """
    root = checked_folder(Path(root), WANTED)
    joining = join(root, mapping_path(root, mapping), workers=workers, include_secondary=include_secondary)
    if joining.is_empty:
        if guess_mapping(root, joining.tree) is None:
            raise ArgumentError("root", f"must contain {WANTED}", root)
        joining.problems.clear()  # the table of labels is enough
    warnings = joining.inspected
    if joining.mapping is None and not joining.problems:
        warnings.append(f"no mapping explains the columns of the table. {suggestion(root, joining.tree)}")
    counts = joining.counts
    return Inspection(
        source="reveal-cxr",
        root=root,
        files=joining.files,
        counts=counts,
        expected=PUBLISHED if joining.claims else {},
        problems=[*joining.tree.problems, *joining.problems],
        warnings=warnings,
        synthetic=is_synthetic(root),
    )


def read(
    root: Path,
    *,
    pixels: Pixels = "embed",
    keep_going: bool = False,
    mapping: Path | None = None,
    id_key: bytes | None = None,
    workers: int = 1,
    include_secondary: bool = False,
) -> SourceData:
    """Return the records of every split, with the files that were set aside.

    Parameters
    ----------
    root : a folder with a table, and with DICOM files at any depth, also in zip archives
    pixels : ignored, because records contain no pixels
    keep_going : leave out rows, studies and files with a problem instead of raising
    mapping : YAML file; by default ``mapping.yaml`` in `root`
    id_key : secret of the ids, see :func:`reveal_bench.sources.ids.read_id_key`; not needed if all ids are public
    workers : processes that read headers
    include_secondary : also accept secondary captures whose modality is CR, DX or missing

    Raises
    ------
    BuildError
        With every problem of mapping, table and headers.
    ValueError
        If `id_key` is missing, or the mapping, which the message then suggests.
    """
    root = checked_folder(Path(root), WANTED)
    path = mapping_path(root, mapping)
    if path is None:
        text = suggestion(root, read_tree(root, workers=workers, include_secondary=include_secondary))
        raise ArgumentError("mapping", "must explain the columns of the table", f"none. {text}")
    joining = join(root, path, workers=workers, include_secondary=include_secondary)
    needs_key(joining.mapping, id_key)
    problems = [*joining.tree.problems, *joining.problems]
    return collect_data(joining, problems, list(joining.warnings), Namer(id_key), keep_going=keep_going)


def collect_data(
    joining: Joining,
    problems: list[Problem],
    warnings: list[str],
    namer: Namer,
    *,
    keep_going: bool,
    more_facts: Callable[[Joined], Facts] | None = None,
) -> SourceData:
    """Return the records of a joined download; raise the earlier `problems` together with new ones.

    :func:`make_records` explains `namer` and `more_facts`.

    Raises
    ------
    BuildError
        With all problems; with `keep_going` only if mapping or table are unreadable, or if no study is left.
    """
    if joining.mapping is None or joining.table is None:
        raise BuildError(problems)
    file = joining.table.file
    splits = make_records(joining.mapping, file, joining.joined, namer, problems, warnings, more_facts=more_facts)
    left_out = finish(problems, warnings, keep_going=keep_going)
    if not splits:
        raise BuildError([Problem(file, None, "rows", "must include a study without a problem", "none")])
    study_ids = {record.study_id for records in splits.values() for record in records}
    by_readers = (
        (study_id, reader, labels)
        for pair in joining.joined
        if (study_id := namer.study_id(pair)) in study_ids
        for reader, labels in pair.row.labels_by_reader.items()
    )
    readers = (reader for pair in joining.joined for reader in pair.row.labels_by_reader)
    warnings += published_texts(READERS_PUBLISHED, readers)
    terms = [] if joining.mapping.has_own_findings else [label_terms()]
    return SourceData(
        splits,
        warnings,
        extras=[*terms, *reader_labels(by_readers)],
        set_aside=joining.tree.set_aside,
        left_out=left_out,
        synthetic=is_synthetic(joining.root),
        benchmark=joining.mapping.benchmark,
        ids=namer.ids,
    )


@dataclass
class Joining:
    """Parsed parts of a download, with rows joined to studies; `mapping` and `table` are None if unreadable."""

    root: Path
    tree: StudyTree
    mapping: StudyMapping | None = None
    table: InputTable | None = None
    rows: list[LabelledStudy] = field(default_factory=list)
    joined: list[Joined] = field(default_factory=list)
    problems: DownloadProblems = field(default_factory=DownloadProblems)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if the download has no studies, no files with problems and no files set aside."""
        return not (self.tree.studies or self.tree.problems or self.tree.set_aside or self.mapping)

    @property
    def claims(self) -> bool:
        """True if the download claims to be REVEAL-CXR's released half and is not synthetic."""
        named = CLAIM.search(self.root.name) or (self.mapping and CLAIM.search(self.mapping.source or ""))
        return bool(named) and not is_synthetic(self.root)

    @property
    def inspected(self) -> list[str]:
        """Warnings of an inspection; `build` itself lists files set aside and notes on films."""
        return [*set_aside_lines(self.tree.set_aside), *self.warnings, *film_warnings(self.tree.headers)]

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of studies, images, files set aside and rows."""
        counts = {"studies": len(self.tree.studies), "images": self.tree.n_images}
        counts["files set aside"] = len(self.tree.set_aside)
        if self.table is not None:
            counts["rows of the table"] = len(self.table.rows)
            counts["rows with a study"] = len(self.joined)
        return counts

    @property
    def files(self) -> dict[str, str]:
        """Names of the files with the roles "mapping" and "table"."""
        named = {"mapping": self.mapping and self.mapping.file, "table": self.table and self.table.file}
        return {role: name for role, name in named.items() if name}


def join(root: Path, mapping: Path | None, *, workers: int, include_secondary: bool = False) -> Joining:
    """Read headers, mapping and table, and join rows with studies; return also the problems of mapping and table."""
    read = None
    early: list[Problem] = []
    if mapping is not None:
        try:
            read = read_mapping(mapping)
        except BuildError as error:
            early = error.problems
    require_deidentified = read is not None and read.require_deidentified
    leave_out = () if read is None else read.leave_out
    if read is not None and read.of_labels_only:
        tree = StudyTree()
    elif read is not None and read.of_pictures:
        tree = read_pictures(root, one_per_study=read.key_matches == "file", leave_out=leave_out)
    else:
        tree = read_tree(
            root,
            workers=workers,
            require_deidentified=require_deidentified,
            include_secondary=include_secondary,
            leave_out=leave_out,
        )
    warnings = [*tree.warnings, *_passed_over(tree)]
    joining = Joining(root, tree, mapping=read, problems=DownloadProblems(early), warnings=warnings)
    if read is not None:
        joining.problems += _not_found(read, tree)
        if absent := read.without_column:
            warning = f"{', '.join(absent)}: absent in every study, because `labels.wide` has no column for them"
            joining.warnings.append(f"{warning}; list your own `findings` to leave them out")
        base = _folder_of_table(root, mapping, read)
        path = base / read.table
        joining.table = scan_table(path, read.table, joining.problems, sheet=read.sheet, within=base)
        # An unreadable row may belong to any study, whose labels would then lack a reader
        lacks_rows = "reader" in read.rules and bool(joining.problems)
        if joining.table is not None and check_columns(read, joining.table, joining.problems) and not lacks_rows:
            joining.rows, faulty = labelled_studies(read, joining.table, joining.problems)
            if read.of_labels_only:
                tree.studies = {row.key: TreeStudy(row.key) for row in joining.rows}
                joining.joined = [Joined(row, tree.studies[row.key]) for row in joining.rows]
            else:
                joining.joined = join_rows(
                    read, joining.table.file, joining.rows, tree, joining.problems, faulty=faulty
                )
            joining.warnings += [*_left_out(joining, faulty), *reader_warnings(joining.rows)]
        else:
            joining.table = None
    if not tree.studies and not tree.problems and not (read is not None and read.of_labels_only):
        rule = "must be DICOM radiographs or, if the mapping says `pictures: true`, PNG and JPEG files"
        joining.problems.append(Problem(".", None, "images", rule, "none"))
    if joining.claims:
        joining.warnings += count_warnings(joining.counts, PUBLISHED)
    return joining


def _not_found(read: StudyMapping, tree: StudyTree) -> list[Problem]:
    """Return a problem for each file that the mapping leaves out and the download does not have."""
    unknown = sorted(set(read.leave_out) - {path for path, _ in tree.set_aside})
    rule = "must be files below the download"
    return [Problem(read.file, None, "leave_out", rule, repr(path)) for path in unknown]


def _folder_of_table(root: Path, mapping: Path | None, read: StudyMapping) -> Path:
    """Return the mapping's folder if it contains the table, else the download's."""
    is_beside = mapping is not None and (mapping.parent / read.table).is_file()
    return mapping.parent if mapping is not None and is_beside else root


def _left_out(joining: Joining, faulty: set[str]) -> list[str]:
    """Return a warning with the number of studies without a row, if the mapping allows such studies."""
    if joining.mapping is None or not joining.mapping.leaves_out_others:
        return []
    keys = {row.key for row in joining.rows} | faulty
    n = sum(not keys & set(study.keys(joining.mapping.key_matches)) for study in joining.tree.studies.values())
    return [f"{n:,} studies have no row and are left out (`other_studies` in the mapping)"] if n else []


def needs_key(mapping: StudyMapping | None, id_key: bytes | None) -> None:
    """Raise ValueError if the mapping has no public ids and `id_key` is missing."""
    if mapping is not None and id_key is None and not {"study", "patient"} <= mapping.ids.keys():
        raise ArgumentError(
            "id_key",
            "must be given (a secret from which ids are made) unless the mapping names columns with public ids "
            "(ids: {study: COLUMN, patient: COLUMN})",
            "neither",
        )


def suggestion(root: Path, tree: StudyTree) -> str:
    """Return a text with a suggested mapping, or with the reason why none can be suggested."""
    guess = guess_mapping(root, tree)
    if guess is None:
        read = [path.relative_to(root).as_posix() for path in tables_below(root)]
        looked = f"none of {', '.join(read[:3])}{' ...' * (len(read) > 3)}" if read else "there is no table"
        return (
            f"No table below {root.name or root} matches any of the {len(tree.studies):,} studies: {looked}. "
            f"A column must contain one of {', '.join(KEY_FACTS)}; accession numbers are never read from the files."
        )
    return f"Save this text as {MAPPING_NAME}, then check and correct it:\n{guess.text}"


def mapping_path(root: Path, mapping: Path | None) -> Path | None:
    """Return the path of the user's mapping, by default of ``mapping.yaml`` in `root`; None without a mapping."""
    if mapping is not None:
        return Path(mapping)
    own = root / MAPPING_NAME
    return own if own.is_file() else None


def checked_folder(root: Path, contents: str) -> Path:
    """Return `root`; raise ValueError if it is not a folder. `contents` says in the message what it must contain."""
    if not root.is_dir():
        raise ArgumentError("root", f"must be a folder with {contents}", root)
    return root


def _passed_over(tree: StudyTree) -> list[str]:
    """Return warnings on secondary captures that were set aside, and on files that are not DICOM."""
    hint_text = "--include-secondary (`include_secondary=True`) accepts secondary captures of modality CR, DX or none"
    warnings = [hint_text] * any("secondary" in reason for _, reason in tree.set_aside)
    if tree.n_others:
        kinds = ", ".join(f"{n:,} {suffix}" for suffix, n in tree.n_others.most_common(6))
        warnings.append(f"{sum(tree.n_others.values()):,} files are not DICOM: {kinds}")
    return warnings
