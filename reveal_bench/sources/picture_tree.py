"""A tree of PNG and JPEG files -> studies, where a mapping says ``pictures: true``.

A study is one file, or all files of one folder, as the mapping's study key matches ``file`` or ``folder``. A picture
has no header: its view is unknown, its patient is the table's to tell, and in place of UIDs stands its path below the
root, which is never published.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from reveal_bench.dicom.files import DicomFile
from reveal_bench.dicom.header import Header
from reveal_bench.dicom.scan import walk
from reveal_bench.sources.dicom_tree import StudyTree, TreeImage, TreeStudy
from reveal_bench.sources.pictures import SUFFIXES, picture_size
from reveal_bench.sources.source import Problem


def read_pictures(root: Path, *, one_per_study: bool) -> StudyTree:
    """Read the sizes of all visible pictures below `root` and group them.

    Parameters
    ----------
    one_per_study : each file is a study; otherwise each folder that holds files is one
    """
    tree = StudyTree()
    aside: list[tuple[DicomFile, str]] = []
    unreadable: list[tuple[DicomFile, str]] = []
    files = [file for file in walk(root, aside, unreadable) if file.member is None]
    for file in sorted(files, key=lambda file: file.path):
        if file.path.suffix.lower() not in SUFFIXES:
            continue
        shown = file.path.relative_to(root)
        uid = (shown if one_per_study else shown.parent).as_posix()
        try:
            height, width = picture_size(file.path)
        except ValueError as error:
            tree.problems.append(Problem(shown.as_posix(), None, "file", "must be a PNG or JPEG file", str(error)))
            tree.problem_studies.add(uid)
            height, width = 0, 0
        header = _header(uid, shown.as_posix(), height, width)
        study = tree.studies.setdefault(uid, TreeStudy(uid))
        study.images.append(TreeImage(file, header, shown.as_posix(), is_dicom=False))
    tree.set_aside = [(file.shown(root), reason) for file, reason in aside]
    rule = "must be a file that can be read"
    tree.problems += [Problem(file.shown(root), None, "file", rule, reason) for file, reason in unreadable]
    tree.warnings.append("pictures have no header that tells of names in the pixels: look at them before publishing")
    return tree


def _header(study: str, image: str, height: int, width: int) -> Header:
    """All that is known of a picture."""
    known: dict[str, Any] = dict.fromkeys(item.name for item in fields(Header))
    known |= dict.fromkeys(("image_type", "deid_methods", "source_uids"), ())
    known |= {"study_uid": study, "sop_uid": image, "rows": height, "columns": width, "has_pixels": True}
    return Header(**{**known, "view": "UNKNOWN", "spacing_source": "none", "transfer_syntax": ""})
