"""Prepare the readers' app: write the reading database from a curation folder, or a file of misses or answers.

Preparation runs in its own process before the server, because the server must never open the curation folder, which
contains reports and votes of earlier rounds. A second preparation of the same input changes nothing. Different input is
refused, since the stored answers would then belong to other items.

Images are DICOM radiographs below a root, found by StudyInstanceUID, without duplicates. For datasets without DICOM, a
table lists the images (columns `study`, `file` and optionally `view`; paths relative to the root).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.tables import Assignment, Sampled, read_table
from reveal_bench.sources.source import BuildError, Problem
from reveal_bench.tables import scan_table
from reveal_leaderboard.readers.store import FILE_NAME, Item, ItemImage, Readings, UnpreparedError

VIEW_ORDER = ("PA", "AP", "UNKNOWN", "LATERAL")
_SHOWN = 3

Films = Mapping[str, tuple[ItemImage, ...]]
Progress = Callable[[int, int], None]


class PreparationError(ValueError):
    """Data that readers need are missing."""


def prepare_votes(
    data: Path, curation: Path, images: Path, *, pictures: Path | None = None, progress: Progress | None = None
) -> Readings:
    """Create the database for a curation with an assignment.

    Parameters
    ----------
    data : folder of the readers' app
    images : root of the images
    pictures : table of images; None to search for DICOM files

    Raises
    ------
    CurationError
        If the curation has no assignment.
    PreparationError
        If a study has no image.
    BuildError
        If the table of images is wrong.
    UnpreparedError
        If the data folder was prepared from different input.
    """
    folder = CurationFolder(curation)
    made = {**folder.need("sample").outputs, **folder.need("assign").outputs}
    digest = _digest({name: made[name] for name in ("sample.parquet", "assignments.parquet")})
    there = _same(data, digest, "votes")
    if there is not None:
        return there
    lists = [
        (one.reader, one.position, one.study_id) for one in read_table(folder.path("assignments.parquet"), Assignment)
    ]
    studies = {item for _, _, item in lists}
    labels = {one.study_id: one.labels for one in read_table(folder.path("sample.parquet"), Sampled)}
    films = find_films(images, studies, progress) if pictures is None else read_pictures(pictures, images)
    lacking = sorted(studies - {study for study in films if films[study]})
    if lacking:
        raise PreparationError(
            f"every study must have an image below {images}, got {len(lacking):,} without, the first of them "
            f"{', '.join(lacking[:_SHOWN])}"
        )
    items = [Item(study, {"labels": list(labels[study])}, films[study]) for study in sorted(studies)]
    return Readings.create(
        data, items, lists, form="votes", name=folder.name, seed=folder.seed, digest=digest, root=images
    )


def put(
    data: Path, items: list[Item], lists: list[tuple[str, int, str]], *, form: str, seed: int, root: Path
) -> Readings:
    """Create the database for a form, or return the existing database."""
    content = [[one.item, one.content, [film.file for film in one.films]] for one in items]
    digest = _digest({"items": json.dumps(content, sort_keys=True), "lists": json.dumps(lists)})
    there = _same(data, digest, form)
    if there is not None:
        return there
    return Readings.create(data, items, lists, form=form, name=form, seed=seed, digest=digest, root=root)


def find_films(root: Path, studies: Collection[str], progress: Progress | None = None) -> Films:
    """Return the radiographs of `studies` below `root`, frontal views first."""
    from reveal_bench.dicom import DicomError, develop_dicom, find_duplicates, scan_tree

    scan = scan_tree(Path(root), progress=progress)
    asked = [(file, header) for file, header in scan.headers if header.study_uid in studies and header.has_pixels]
    n_films = Counter(header.study_uid for _, header in asked)
    hashes = {}
    for file, header in asked:
        if n_films[header.study_uid] > 1:
            with suppress(DicomError):  # the app reports images that cannot be shown
                hashes[file] = develop_dicom(file).pixel_sha256
    doubles = {one.file for one in find_duplicates(asked, hashes)}
    by_study: dict[str, list[tuple[tuple[int, int, str], ItemImage]]] = {}
    displayed = {(header.study_uid, header.exposure_key) for _, header in asked if header.intent != "PROCESSING"}
    for file, header in asked:
        is_raw = header.intent == "PROCESSING" and header.exposure_key is not None
        if file not in doubles and not (is_raw and (header.study_uid, header.exposure_key) in displayed):
            name = file.path.relative_to(root).as_posix()
            order = (VIEW_ORDER.index(header.view), header.instance_number or 0, file.path_text(root))
            by_study.setdefault(str(header.study_uid), []).append((order, ItemImage(name, file.member, header.view)))
    return {
        study: tuple(film for _, film in sorted(films, key=lambda one: one[0])) for study, films in by_study.items()
    }


def read_pictures(table: Path, root: Path) -> Films:
    """Return the images that a table lists.

    Raises
    ------
    BuildError
        If the table breaks a rule; the error lists every problem.
    """
    problems: list[Problem] = []
    read = scan_table(table, table.name, problems)
    if read is None:
        raise BuildError(problems)
    lacking = [name for name in ("study", "file") if name not in read]
    problems += [Problem(table.name, None, "columns", f"must have {name}", ", ".join(read.columns)) for name in lacking]
    by_study: dict[str, list[ItemImage]] = {}
    for row in read.rows if not lacking else ():
        study, name = row["study"], row["file"]
        path = (root / name).resolve()
        if not study or not name:
            problems.append(Problem(table.name, row.number, "study, file", "must not be blank", "a blank cell"))
        elif not path.is_relative_to(root.resolve()) or not path.is_file():
            problems.append(Problem(table.name, row.number, "file", "must be a file below the root", repr(name)))
        else:
            view = (row["view"] if "view" in read else "") or "UNKNOWN"
            by_study.setdefault(study, []).append(ItemImage(name, None, view[:20]))
    if problems:
        raise BuildError(problems)
    return {study: tuple(films) for study, films in by_study.items()}


def _same(data: Path, digest: str, form: str) -> Readings | None:
    """Return the folder's database, which must have been prepared from the same input; None without a database."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (data / FILE_NAME).exists():
        return None
    there = Readings(data)
    if (there.form, there.digest) != (form, digest):
        there.engine.dispose()
        raise UnpreparedError(
            f"{data} was prepared from different input (form {there.form}), or the assignment has changed: "
            f"use a new data folder"
        )
    return there


def _digest(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(parts), sort_keys=True).encode()).hexdigest()
