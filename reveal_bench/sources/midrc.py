"""MIDRC: chest radiographs of the Medical Imaging and Data Resource Center, with a table of labels of your own.

Source: data.midrc.org (gen3). Images are ``<case>/<study uid>/<series uid>/<sop uid>.dcm`` or one zip archive per
series. Beside them are a manifest and a table for each node of MIDRC's data model, such as ``imaging_study``. MIDRC
does not say which of the twelve labels a study has, so a table of labels and its mapping are needed, as for
:mod:`reveal_bench.sources.reveal_cxr`: without them, `inspect` works but `read` raises an error.

Conversion
-----------------
* Studies, ids and labels are built as in :mod:`reveal_bench.sources.reveal_cxr`.
* Age (as a band), sex and race come from the tables `case` and `imaging_study` unless the mapping names columns with
  these facts. MIDRC's case identifies the patient.
* Files for which the download lists an md5sum are verified; a listed file that is missing is a problem.
* ``mRALE_annotations.csv``, if it exists, becomes the config `mrale` with the columns study_id and mrale_score.

The files beside the images
---------------------------
* The manifest is a JSON list whose entries always have `object_id`, and may have `file_name`, `file_size` and `md5sum`.
  The tables of series files repeat these entries.
* Tables are tab separated; names of required columns have a leading ``*``; arrays are Python literals
  (``['419639-002973']``), which are parsed and never executed.
* An age above 89 is given by a flag (``age_at_index_gt89``).
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import hint
from reveal_bench.kinds.findings.records import RACES, UNKNOWN, age_band
from reveal_bench.sources.mapping import folded
from reveal_bench.sources.reveal_cxr import (
    Joined,
    Joining,
    Namer,
    checked_folder,
    collect_data,
    join,
    mapping_path,
    needs_key,
    suggestion,
)
from reveal_bench.sources.source import (
    DownloadProblems,
    Extra,
    Inspection,
    Pixels,
    Problem,
    SourceData,
    is_synthetic,
    read_json,
    table_features,
)
from reveal_bench.sources.study_labels import age_of
from reveal_bench.tables import InputTable, TableRow, scan_table

NODE_NAMES = ("imaging_study", "cr_series_file", "dx_series_file", "case")
_NODE = re.compile(rf"(?:^|[_\W])({'|'.join(NODE_NAMES)})(?=[_\W]|$)", re.IGNORECASE)
_MRALE = re.compile(r"mrale", re.IGNORECASE)
MRALE_RANGE = range(25)
"""Possible mRALE scores: extent (0 to 4) times density (0 to 3), summed over the two lungs."""

_SEXES = {"female": "F", "male": "M", "other": "other"}
_RACES = {
    **{folded(race): race for race in RACES},
    "american indian or alaska native": "Other",
    "native hawaiian or other pacific islander": "Other",
    "multiple": "Other",
    "other": "Other",
}
_UNKNOWN = ("", "unknown", "not reported", "not allowed to collect", "refused", "undifferentiated")
_YES = ("yes", "true", "1")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that the manifest or a table lists."""

    source: str
    row: int
    name: str
    size: int | None = None
    md5: str | None = None


@dataclass
class Nodes:
    """Contents of the manifest and of all tables.

    Attributes
    ----------
    files : dict from path, relative to the root, to role of every file that was read
    cases : dict from submitter_id to facts (age_band, sex, race)
    studies : dict from StudyInstanceUID to submitter_id (`patient_key`) and facts
    entries : files that should be in the download; `n_nameless` counts entries without a name
    mrale : dict from StudyInstanceUID to mRALE score
    """

    files: dict[str, str] = field(default_factory=dict)
    cases: dict[str, dict[str, str]] = field(default_factory=dict)
    studies: dict[str, dict[str, str]] = field(default_factory=dict)
    entries: list[FileEntry] = field(default_factory=list)
    n_nameless: int = 0
    mrale: dict[str, int] = field(default_factory=dict)


def find_nodes(root: Path) -> dict[str, Path]:
    """Return the manifests, node tables and tables of mRALE scores, by path relative to `root`.

    Only `root` and the folders directly in it are searched.
    """
    paths = {}
    for pattern in ("*", "*/*"):
        for path in sorted(root.glob(pattern)):
            if path.suffix.lower() in (".tsv", ".json", ".csv") and _role(path) is not None:
                paths[path.relative_to(root).as_posix()] = path
    return paths


def read_nodes(root: Path, problems: list[Problem]) -> Nodes:
    """Return the parsed contents of all files that :func:`find_nodes` finds."""
    nodes = Nodes()
    tables: list[tuple[str, InputTable]] = []
    for name, path in find_nodes(root).items():
        role = _role(path)
        assert role is not None
        nodes.files[name] = role
        if role == "manifest":
            _read_manifest(nodes, path, name, problems)
            continue
        table = scan_table(path, name, problems)
        if table is not None:
            tables.append((role, _bare(table)))
    for role, table in sorted(tables, key=lambda pair: ("case", "imaging_study").count(pair[0]), reverse=True):
        readers = {"case": _read_cases, "imaging_study": _read_studies, "mrale": _read_mrale}
        readers.get(role, _read_series)(nodes, table, problems)
    return nodes


def check_files(root: Path, nodes: Nodes, problems: list[Problem], *, verify: bool, workers: int) -> list[str]:
    """Note each listed file that is missing or has a wrong size or, with `verify`, a wrong md5sum; return warnings."""
    entries: dict[str, FileEntry] = {}
    for entry in nodes.entries:
        known = entries.setdefault(entry.name, entry)
        if known.md5 is None and entry.md5 is not None:
            entries[entry.name] = entry
    there = []
    for entry in entries.values():
        path = root / entry.name
        if not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
            problems.append(Problem(entry.source, entry.row, "file_name", "must be in the download", repr(entry.name)))
        elif entry.size is not None and path.stat().st_size != entry.size:
            value = f"{path.stat().st_size:,} in {entry.name}"
            problems.append(Problem(entry.source, entry.row, "file_size", f"must be {entry.size:,} bytes", value))
        elif entry.md5 is not None:
            there.append((entry, path))
    if verify:
        with ThreadPoolExecutor(workers) as pool:
            for (entry, _), md5 in zip(there, pool.map(lambda pair: _md5(pair[1]), there), strict=True):
                if md5 != entry.md5:
                    value = f"{md5} in {entry.name}"
                    problems.append(Problem(entry.source, entry.row, "md5sum", f"must be {entry.md5}", value))
    warnings = [f"{nodes.n_nameless:,} entries of the manifest name no file"] if nodes.n_nameless else []
    done = "verified" if verify else "a build will verify them"
    return (
        [*warnings, f"{len(there):,} of {len(entries):,} listed files have an md5sum: {done}"] if entries else warnings
    )


def text_list(cell: str) -> list[str] | None:
    """Return the texts in a cell, which is a Python list literal or a plain text; None if the literal is invalid.

    Examples
    --------
    >>> text_list("['419639-002973']"), text_list("419639-002973"), text_list(""), text_list("[a")
    (['419639-002973'], ['419639-002973'], [], None)
    """
    if not cell.startswith("["):
        return [cell] if cell else []
    try:
        values = ast.literal_eval(cell) if len(cell) < 10_000 else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return values if isinstance(values, list) and all(isinstance(value, str) for value in values) else None


def _role(path: Path) -> str | None:
    name = path.stem
    if path.suffix.lower() == ".json":
        return "manifest" if "manifest" in name.lower() else None
    if _MRALE.search(name):
        return "mrale"
    match = _NODE.search(name) if path.suffix.lower() == ".tsv" else None
    return match[1].lower() if match else None


def _bare(table: InputTable) -> InputTable:
    """Return the table without the ``*`` with which the names of required columns begin."""
    return table.renamed(lambda name: name.lstrip("*"))


def _read_manifest(nodes: Nodes, path: Path, name: str, problems: list[Problem]) -> None:
    entries = read_json(path, list, problems.append, file=name)
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or "object_id" not in entry:
            problems.append(Problem(name, number, "entry", "must be an object with `object_id`", str(entry)[:80]))
        elif not isinstance(entry.get("file_name"), str) or not entry["file_name"]:
            nodes.n_nameless += 1
        else:
            nodes.entries.append(_entry(name, number, entry))


def _entry(source: str, number: int, cells: dict[str, Any]) -> FileEntry:
    size, md5 = str(cells.get("file_size") or ""), str(cells.get("md5sum") or "").lower()
    return FileEntry(source, number, cells["file_name"], int(size) if size.isdigit() else None, md5 or None)


def _read_series(nodes: Nodes, table: InputTable, _: list[Problem]) -> None:
    for row in table.rows:
        if row.get("file_name"):
            nodes.entries.append(_entry(table.file, row.number, dict(row)))


def _read_cases(nodes: Nodes, table: InputTable, problems: list[Problem]) -> None:
    for row, case in _keyed(table, "submitter_id", nodes.cases, problems):
        nodes.cases[case] = {
            "age_band": _age(row, table.file, "age_at_index", problems),
            "sex": _word(row, table.file, "sex", _SEXES, problems),
            "race": _word(row, table.file, "race", _RACES, problems),
        }


def _read_studies(nodes: Nodes, table: InputTable, problems: list[Problem]) -> None:
    for row, uid in _keyed(table, "study_uid", nodes.studies, problems):
        column = next((name for name in ("case_ids", "cases.submitter_id", "case_id") if name in table), "")
        cases = text_list(row[column]) if column else []
        if cases is None or len(cases) > 1:
            problems.append(Problem(table.file, row.number, column, "must name only one case", repr(row[column][:80])))
            continue
        facts = dict(nodes.cases.get(cases[0], {})) if cases else {}
        age = _age(row, table.file, "age_at_imaging", problems)
        nodes.studies[uid] = {**facts, **({"age_band": age} if age != UNKNOWN else {})}
        if cases:
            nodes.studies[uid]["patient_key"] = cases[0]


def _read_mrale(nodes: Nodes, table: InputTable, problems: list[Problem]) -> None:
    column = next((name for name in table.columns if folded(name.replace("_", " ")) == "mrale score"), None)
    if column is None:
        value = ", ".join(table.columns)[:200]
        problems.append(Problem(table.file, None, "columns", "must have `mRALE Score`", value))
        return
    for row, uid in _keyed(table, "StudyInstanceUID", nodes.mrale, problems):
        text = row[column]
        if not text.isdigit() or int(text) not in MRALE_RANGE:
            problems.append(Problem(table.file, row.number, column, "must be a whole number from 0 to 24", repr(text)))
        else:
            nodes.mrale[uid] = int(text)


def _keyed(
    table: InputTable, column: str, known: dict[str, Any], problems: list[Problem]
) -> Iterator[tuple[TableRow, str]]:
    """Yield (row, key) of each row with the key in `column`; note a missing or repeated key as a problem."""
    if column not in table:
        problems.append(Problem(table.file, None, "columns", f"must have `{column}`", hint(column, table.columns)))
        return
    for row in table.rows:
        key = row[column]
        if not key or key in known:
            value = f"{key!r} again" if key else "a blank cell"
            problems.append(Problem(table.file, row.number, column, "must be present and unique", value))
        else:
            yield row, key


def _age(row: TableRow, file: str, column: str, problems: list[Problem]) -> str:
    if folded(row.get(f"{column}_gt89", "")) in _YES:
        return age_band(90)
    text = row.get(column, "")
    years = age_of(text)
    if years is not None and years <= 150:
        return age_band(years)
    if folded(text) not in _UNKNOWN:
        problems.append(Problem(file, row.number, column, "must be an age in years", repr(text)))
    return UNKNOWN


def _word(row: TableRow, file: str, column: str, words: dict[str, str], problems: list[Problem]) -> str:
    text = row.get(column, "")
    if folded(text) in words:
        return words[folded(text)]
    if folded(text) not in _UNKNOWN:
        known: Sequence[str] = [*words, *_UNKNOWN[1:]]
        problems.append(Problem(file, row.number, column, f"must be one of {', '.join(known)}", hint(text, known)))
    return UNKNOWN


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


WANTED = "tables of MIDRC (imaging_study, cr_series_file, dx_series_file) and DICOM radiographs"


def detect(root: Path) -> float:
    """Return 0.9 if `root` has a MIDRC table of studies or series files, recognised by its name; else 0."""
    names = [name.lower() for name in find_nodes(Path(root))]
    return 0.9 if any(node in name for name in names for node in ("imaging_study", "series_file")) else 0.0


def inspect(
    root: Path, *, mapping: Path | None = None, workers: int = 1, include_secondary: bool = False
) -> Inspection:
    """Return counts, mismatches and problems of headers, tables and manifest, and of the labels if there is a mapping.

    Raises
    ------
    ValueError
        If `root` contains no table or manifest of MIDRC and no DICOM file.
    """
    root = checked_folder(Path(root), WANTED)
    problems = DownloadProblems()
    nodes = read_nodes(root, problems)
    path = mapping_path(root, mapping)
    joining = join(root, path, workers=workers, include_secondary=include_secondary)
    if joining.is_empty and not nodes.files:
        raise ArgumentError("root", f"must hold {WANTED}", root)
    warnings = joining.inspected
    warnings += check_files(root, nodes, problems, verify=False, workers=workers)
    warnings += _mismatches(joining, nodes)
    if path is None:
        warnings.append(
            "no mapping: MIDRC has none of the twelve labels, so a build needs a table of labels and a "
            f"mapping of its columns. {suggestion(root, joining.tree)}"
        )
    counts = {**joining.counts, "cases": len(nodes.cases), "listed studies": len(nodes.studies)}
    return Inspection(
        source="midrc",
        root=root,
        files={**joining.files, **{role: name for name, role in nodes.files.items()}},
        counts={**counts, "mRALE scores": len(nodes.mrale)},
        problems=[*joining.tree.problems, *problems, *joining.problems],
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
    """Return the records of every split; :func:`reveal_bench.sources.reveal_cxr.read` explains the parameters.

    Raises
    ------
    BuildError
        With every problem of mapping, tables, manifest and headers.
    ValueError
        If the mapping of a table of labels, or `id_key`, is missing.
    """
    root = checked_folder(Path(root), WANTED)
    path = mapping_path(root, mapping)
    if path is None:
        raise ArgumentError(
            "mapping",
            "must be given, and explain the columns of a table of labels, because MIDRC has none of the twelve labels",
            "none; `inspect` suggests a mapping if the download has a table of labels",
        )
    problems = DownloadProblems()
    nodes = read_nodes(root, problems)
    joining = join(root, path, workers=workers, include_secondary=include_secondary)
    needs_key(joining.mapping, id_key)
    warnings = [*joining.warnings, *_mismatches(joining, nodes)]
    warnings += check_files(root, nodes, problems, verify=True, workers=workers)
    problems[:0] = joining.tree.problems
    problems += joining.problems
    namer = Namer(id_key)
    source_data = collect_data(
        joining,
        problems,
        warnings,
        namer,
        keep_going=keep_going,
        more_facts=lambda pair: nodes.studies.get(pair.study.uid, {}),
    )
    records = [record for split in source_data.splits.values() for record in split]
    study_ids = {record.study_id for record in records}
    scores = _scores(joining.joined, study_ids, nodes, namer)
    if scores:
        features = table_features(study_id="string", mrale_score="int8")
        source_data.extras = [*source_data.extras, Extra("mrale", features, scores, key="study_id")]
    return source_data


def _mismatches(joining: Joining, nodes: Nodes) -> list[str]:
    """Return warnings that count studies with incomplete or contradictory data.

    They lack images or a row in the table, or have a PatientID that differs from their case.
    """
    images = set(joining.tree.studies)
    cases = {uid: facts.get("patient_key") for uid, facts in nodes.studies.items()}
    other_case = sum(
        bool(study.patients) and cases.get(uid) is not None and cases[uid] not in study.patients
        for uid, study in joining.tree.studies.items()
    )
    uncovered = {
        "studies with images are not in the table imaging_study, so their demographics are unknown": images
        - set(nodes.studies),
        "studies of the table imaging_study have no image here": set(nodes.studies) - images,
        "mRALE scores belong to studies without an image here": set(nodes.mrale) - images,
    }
    warnings = [f"{len(uids):,} {what}" for what, uids in uncovered.items() if uids and (nodes.studies or nodes.mrale)]
    if other_case:
        warnings.append(
            f"{other_case:,} studies have a PatientID that differs from their case; the case identifies the patient"
        )
    return warnings


def _scores(joined: list[Joined], study_ids: set[str], nodes: Nodes, namer: Namer) -> list[dict[str, object]]:
    """Return the rows of the config `mrale` for the studies in `study_ids`, the ids of the records."""
    rows: list[dict[str, object]] = []
    for pair in joined:
        if pair.study.uid in nodes.mrale:
            study_id = pair.row.ids.get("study") or namer.name("study", pair.study.uid)
            if study_id in study_ids:
                rows.append({"study_id": study_id, "mrale_score": nodes.mrale[pair.study.uid]})
    return rows
