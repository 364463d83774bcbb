"""A tree of PNG and JPEG files -> studies, where a mapping says ``pictures: true``.

A study is one file, or all files of one folder, as the mapping's study key matches ``file`` or ``folder``. A picture
has no header: its view is unknown, its patient is the table's to tell, and in place of UIDs stands its path below the
root, which is never published.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from reveal_bench.dicom.files import DicomFile
from reveal_bench.dicom.header import Header
from reveal_bench.sources.dicom_tree import StudyTree, TreeImage, TreeStudy
from reveal_bench.sources.pictures import SUFFIXES, picture_size
from reveal_bench.sources.source import Problem

__all__ = ["read_pictures"]


def read_pictures(root: Path, *, one_per_study: bool) -> StudyTree:
    """Read the sizes of all visible pictures below `root` and group them.

    Parameters
    ----------
    one_per_study : each file is a study; otherwise each folder that holds files is one
    """
    tree = StudyTree()
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            shown = path.relative_to(root)
            uid = (shown if one_per_study else shown.parent).as_posix()
            try:
                height, width = picture_size(path)
            except ValueError as error:
                tree.problems.append(Problem(shown.as_posix(), None, "file", "must be a PNG or JPEG file", str(error)))
                tree.problem_studies.add(uid)
                height, width = 0, 0
            header = _header(uid, shown.as_posix(), height, width)
            study = tree.studies.setdefault(uid, TreeStudy(uid))
            study.images.append(TreeImage(DicomFile(path), header, shown.as_posix(), is_dicom=False))
    tree.warnings.append("pictures have no header that tells of names in the pixels: look at them before publishing")
    return tree


def _header(study: str, image: str, height: int, width: int) -> Header:
    """All that is known of a picture."""
    known: dict[str, Any] = dict.fromkeys(item.name for item in fields(Header))
    known |= dict.fromkeys(("image_type", "deid_methods", "source_uids"), ())
    known |= {"study_uid": study, "sop_uid": image, "rows": height, "columns": width, "has_pixels": True}
    return Header(**{**known, "view": "UNKNOWN", "spacing_source": "none", "transfer_syntax": ""})
