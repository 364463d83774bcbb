"""Find the studies of a pool that cannot be built, so that no reader is asked to read them.

A study can be built if exactly one study of the folder has its id, nothing in its headers forbids publishing it, and at
least one of its films can be read and shows something. Its films are read one after the other, frontal views first,
until one is usable: a study with a bad film and a good one stays.

Hashes of each usable film's file state and of the software are stored in :data:`CACHE_NAME` in the curation folder.
After an interruption, or with other settings of the sample, only the other films are read again: a film may have been
unreadable because of an interruption, a lack of memory or the network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import IO

from reveal_bench.curation.folder import CurationError, Progress
from reveal_bench.dataset.row_pool import KILLED, WorkerPool, file_state, software_versions
from reveal_bench.kinds.images import PictureFile
from reveal_bench.sources.mapping import KEY_FACTS
from reveal_bench.sources.pictures import film_fault
from reveal_bench.sources.source import Problem
from reveal_bench.sources.study_tree import StudyTree, TreeStudy, read_pictures, read_tree

CACHE_NAME = os.path.join("cache", "usable_films.txt")


@dataclass(frozen=True, slots=True)
class FilmPool:
    """The films of a pool of studies.

    Attributes
    ----------
    root : folder of DICOM files or, without any, of PNG and JPEG files
    study_key : meaning of the study ids, from `reveal_bench.sources.mapping.KEY_FACTS`
    workers : processes that read films
    """

    root: Path
    study_key: str = KEY_FACTS[0]
    workers: int = 1


def unusable_studies(
    films: FilmPool, study_ids: Sequence[str], cache: Path, progress: Progress | None = None
) -> tuple[dict[str, str], list[Problem]] | None:
    """Return (study that cannot be built -> reason, files that stop a build); None if the folder has no films.

    Files that stop a build are unreadable or have the SOPInstanceUID of another picture; ``build --keep-going`` leaves
    them out.

    Parameters
    ----------
    cache : file of results, see the module's docstring
    progress : called with (studies done, all studies)

    Raises
    ------
    CurationError
        If the folder has none of the studies.
    """
    tree = read_tree(films.root, workers=films.workers)
    if not tree.studies and not tree.problems:
        tree = read_pictures(films.root, one_per_study=films.study_key == "file")
    if not tree.studies and not tree.problems:
        return None
    by_key = tree.by_key(films.study_key)
    if study_ids and by_key.keys().isdisjoint(study_ids):
        rule = f"`{films.study_key}` of the films below {films.root} must be the studies' ids"
        raise CurationError(f"{rule}, got none of {len(study_ids):,}, the first of them {study_ids[0]!r}")
    with _FilmReader(cache, films.workers) as reader:

        def reason(study_id: str) -> str:
            matches = by_key.get(study_id, [])
            if len(matches) != 1:
                which = f"{len(matches)} studies have" if matches else "no film has"
                return f"{which} this {films.study_key}{'' if matches else _unread(tree)}"
            return reader.study_fault(tree, matches[0])

        reasons = {}
        for done, (study_id, why) in enumerate(zip(study_ids, reader.map(reason, study_ids), strict=True), start=1):
            if why:
                reasons[study_id] = why
            if progress is not None:
                progress(done, len(study_ids))
    return reasons, _unread_files(tree)


def _unread_files(tree: StudyTree) -> list[Problem]:
    return [problem for problem in tree.problems if problem.field == "file"]


def _unread(tree: StudyTree) -> str:
    """Return the first of the unreadable files, any of which may belong to a study without films."""
    unread = _unread_files(tree)
    more = f" and {len(unread) - 1:,} more" if len(unread) > 1 else ""
    return f"; unreadable files: {unread[0].file} ({unread[0].value}){more}" if unread else ""


class _FilmReader(WorkerPool):
    """Pool of processes that read films; the usable ones are stored in the file `path`."""

    def __init__(self, path: Path, workers: int) -> None:
        super().__init__(film_fault, workers)
        self._software = software_versions()
        self._lock = Lock()
        path.parent.mkdir(exist_ok=True)
        self._usable = set(path.read_text(errors="replace").split()) if path.is_file() else set()
        self._file: IO[str] = path.open("a", encoding="utf-8")
        self._file.write("\n")  # ends a line that a killed process left incomplete

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._file.close()

    def study_fault(self, tree: StudyTree, study: TreeStudy) -> str:
        """Return why a study cannot be built, "" if it can."""
        if study.uid in tree.problem_studies:
            return "; ".join(map(str, tree.problem_studies[study.uid]))
        faults = []
        for image in study.images:
            fault = self._fault(image.picture(""))
            if not fault:
                return ""
            faults.append(f"{image.source_path}: {fault}")
        return "; ".join(faults)

    def _fault(self, picture: PictureFile) -> str:
        state = picture.source_path, file_state(picture.path), self._software
        digest = sha256(repr(state).encode()).hexdigest()
        if digest in self._usable:
            return ""
        fault: str | None = self.ask(picture)
        if fault == "":
            self._usable.add(digest)
            with self._lock:
                self._file.write(digest + "\n")
                self._file.flush()
        return KILLED if fault is None else fault
