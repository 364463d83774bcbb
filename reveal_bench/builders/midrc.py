"""MIDRC: chest radiographs of the Medical Imaging and Data Resource Center, with a table of labels of your own.

Source: data.midrc.org (gen3). Images lie as ``<case>/<study uid>/<series uid>/<sop uid>.dcm`` or as one zip per series;
beside them a manifest and tables per node (:mod:`reveal_bench.builders.midrc_files`). MIDRC does not say which of the
twelve labels a study has, so a table of labels and its mapping are needed, as for
:mod:`reveal_bench.builders.reveal_cxr`: without them `inspect` works and `read` refuses.

What becomes what
-----------------
* Studies, ids, labels: as in a REVEAL-CXR style build.
* Age (as a band), sex and race come from the tables `case` and `imaging_study` unless the mapping names columns of its
  own; the patient is the case.
* Files whose md5sum the download knows are verified; a listed file that is missing is a problem.
* ``mRALE_annotations.csv``, where it is there, becomes the config `mrale`: study_id, mrale_score.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.builders.midrc_files import Nodes, check_files, find_nodes, read_nodes
from reveal_bench.builders.reveal_cxr import Joining, finish_reading, join, mapping_path, needs_key, suggestion
from reveal_bench.builders.reveal_records import Joined, Namer
from reveal_bench.builders.source import Extra, Inspection, Pixels, Problem, Reading, is_synthetic
from reveal_bench.study_records import StudyRecord

if TYPE_CHECKING:
    from datasets import Features

__all__ = ["detect", "inspect", "read"]

WANTED = "tables of MIDRC (imaging_study, cr_series_file, dx_series_file) and DICOM radiographs"


def detect(root: Path) -> float:
    """0.9 if a table of studies or series files lies in `root`, as gen3 names them; else 0."""
    names = [name.lower() for name in find_nodes(Path(root))]
    return 0.9 if any(node in name for name in names for node in ("imaging_study", "series_file")) else 0.0


def inspect(root: Path, *, mapping: Path | None = None, workers: int = 1) -> Inspection:
    """Read headers, tables and manifest, and the labels if there is a mapping; list what does not fit.

    Raises
    ------
    ValueError
        If `root` holds neither a table or manifest of MIDRC nor a DICOM file.
    """
    root = _folder(Path(root))
    problems: list[Problem] = []
    nodes = read_nodes(root, problems)
    path = mapping_path(root, mapping)
    joining = join(root, path, workers=workers)
    if joining.is_empty and not nodes.files:
        raise ValueError(f"`root` must hold {WANTED}, got {root}")
    warnings = [*joining.warnings, *check_files(root, nodes, problems, verify=False, workers=workers)]
    warnings += _mismatches(joining, nodes)
    if path is None:
        warnings.append(
            "no mapping: MIDRC gives none of the twelve labels; a table of labels and a mapping of its columns are "
            f"needed to build. {suggestion(root, joining.tree)}"
        )
    counts = {**joining.counts, "cases": len(nodes.cases), "listed studies": len(nodes.studies)}
    return Inspection(
        builder="midrc",
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
) -> Reading:
    """Records of every split; parameters and errors as :func:`reveal_bench.builders.reveal_cxr.read`.

    Raises
    ------
    BuildError
        With every problem of mapping, tables, manifest and headers.
    ValueError
        If there is no mapping of a table of labels, or `id_key` is missing.
    """
    root = _folder(Path(root))
    path = mapping_path(root, mapping)
    if path is None:
        raise ValueError(
            "`mapping` must say where the labels are: MIDRC gives none of the twelve, so a table of labels and a "
            "mapping of its columns are needed, got none; `inspect` suggests a mapping if a table is there"
        )
    problems: list[Problem] = []
    nodes = read_nodes(root, problems)
    joining = join(root, path, workers=workers)
    needs_key(joining.mapping, id_key)
    warnings = [*joining.warnings, *_mismatches(joining, nodes)]
    warnings += check_files(root, nodes, problems, verify=True, workers=workers)
    problems = [*joining.tree.problems, *problems, *joining.problems]
    namer = Namer(id_key)
    reading = finish_reading(
        joining,
        problems,
        warnings,
        namer,
        keep_going=keep_going,
        more_facts=lambda pair: nodes.studies.get(pair.study.uid, {}),
    )
    records = [record for split in reading.splits.values() for record in split]
    kept = {record.study_id for record in records if isinstance(record, StudyRecord)}
    scores = _scores(joining.joined, kept, nodes, namer)
    if scores:
        reading.extras = [*reading.extras, Extra("mrale", _score_features, scores, key="study_id")]
    return reading


def _folder(root: Path) -> Path:
    if not root.is_dir():
        raise ValueError(f"`root` must be a folder with {WANTED}, got {root}")
    return root


def _mismatches(joining: Joining, nodes: Nodes) -> list[str]:
    """Where images, tables and scores do not cover each other, counted."""
    images = set(joining.tree.studies)
    cases = {uid: facts.get("patient_key") for uid, facts in nodes.studies.items()}
    other_case = sum(
        bool(study.patients) and cases.get(uid) is not None and cases[uid] not in study.patients
        for uid, study in joining.tree.studies.items()
    )
    found = {
        "studies have images and are not in the table imaging_study: their demographics are unknown": images
        - set(nodes.studies),
        "studies of the table imaging_study have no image here": set(nodes.studies) - images,
        "mRALE scores are of studies without an image here": set(nodes.mrale) - images,
    }
    warnings = [f"{len(uids):,} {what}" for what, uids in found.items() if uids and (nodes.studies or nodes.mrale)]
    if other_case:
        warnings.append(f"{other_case:,} studies have another PatientID than their case: the case is taken")
    return warnings


def _scores(joined: list[Joined], kept: set[str], nodes: Nodes, namer: Namer) -> list[dict[str, object]]:
    """Rows of the config `mrale`, of the studies `kept`, those that became a record."""
    rows: list[dict[str, object]] = []
    for pair in joined:
        if pair.study.uid in nodes.mrale:
            study_id = pair.row.ids.get("study") or namer.name("study", pair.study.uid)
            if study_id in kept:
                rows.append({"study_id": study_id, "mrale_score": nodes.mrale[pair.study.uid]})
    return rows


def _score_features() -> Features:
    from datasets import Features, Value

    return Features({"study_id": Value("string"), "mrale_score": Value("int8")})
