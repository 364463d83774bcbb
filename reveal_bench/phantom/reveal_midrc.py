"""The layout of the Medical Imaging and Data Resource Center (MIDRC) around synthetic films.

``<case>/<study uid>/<series uid>.zip``, in older releases ``.../<series uid>/<sop uid>.dcm``; a manifest in JSON; one
table per node of the data model, tab separated, required columns with a leading ``*``, arrays as Python literals, ages
above 89 as a flag; mRALE scores in a CSV. As in the real thing nothing of it says which of the twelve labels a study
has: ``labels.csv`` does.
"""

from __future__ import annotations

import csv
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reveal_bench.phantom.reveal_studies import RevealImage, RevealStudy

__all__ = ["MidrcLayout"]

PROJECT = "Synthetic-R0"
_CAPITAL = {"F": "Female", "M": "Male", "unknown": "Not Reported"}
_RACES = {"Other": "Other", "unknown": "Not Reported"}
CASE = (
    "*submitter_id", "*project_id", "age_at_index", "age_at_index_gt89", "sex", "race", "ethnicity", "covid19_positive",
    "zip",
)  # fmt: skip
STUDY = (
    "*submitter_id", "*study_uid", "case_ids", "age_at_imaging", "age_at_imaging_gt89", "days_to_study",
    "study_description", "body_part_examined",
)  # fmt: skip
SERIES = (
    "*submitter_id", "*series_uid", "study_uid", "case_ids", "object_id", "file_name", "file_size", "md5sum",
    "modality", "view_position", "imager_pixel_spacing", "manufacturer", "manufacturer_model_name", "image_type",
)  # fmt: skip


class MidrcLayout:
    """Writes films below `root` in MIDRC's layout; every fifth study in its older form, without archives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: list[Any] = []
        self._case, self._study = self._tsv("case.tsv", CASE), self._tsv("imaging_study.tsv", STUDY)
        self._series = {name: self._tsv(f"{name}_series_file.tsv", SERIES) for name in ("cr", "dx")}
        mrale = (root / "mRALE_annotations.csv").open("w", newline="", encoding="utf-8")
        self._files.append(mrale)
        self._mrale = csv.writer(mrale, lineterminator="\n")
        self._mrale.writerow(["StudyInstanceUID", "mRALE Score"])
        self._manifest = (root / "manifest.json").open("w", encoding="utf-8")
        self._files.append(self._manifest)
        self._separator = "[\n"
        self._last_patient = self._last_study = -1

    def place(self, study: RevealStudy, image: RevealImage) -> Path:
        """Where a film is to be written; its folder exists."""
        series = study.uid("series", image.number)
        path = self.root / study.case_id / study.study_uid / series / f"{study.uid('image', image.number)}.dcm"
        path.parent.mkdir(parents=True)
        return path

    def add(self, study: RevealStudy, attributes: Mapping[str, Any], file: Path) -> str:
        """Put a film into the archive of its series, and into manifest and tables; its path in the download."""
        self._add_study(study)
        if study.index % 5 != 4:
            file, inner = file.parent.parent / f"{file.parent.name}.zip", file
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
                info = zipfile.ZipInfo("1-1.dcm", (1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_DEFLATED
                target.writestr(info, inner.read_bytes())
            inner.unlink()
            inner.parent.rmdir()
        name = file.relative_to(self.root).as_posix()
        md5 = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
        entry: dict[str, Any] = {"object_id": f"dg.SYN/{study.uid('object', name)}"}
        if study.index % 3:  # an entry needs nothing but its object
            entry |= {"md5sum": md5, "file_name": name, "file_size": file.stat().st_size}
        self._manifest.write(self._separator + json.dumps(entry))
        self._separator = ",\n"
        self._series["cr" if attributes["Modality"] == "CR" else "dx"].writerow(
            [
                attributes["SOPInstanceUID"], attributes["SeriesInstanceUID"], study.study_uid, repr([study.case_id]),
                entry["object_id"], name, file.stat().st_size, md5, attributes["Modality"],
                attributes.get("ViewPosition", ""), repr([0.139, 0.139]), attributes["Manufacturer"],
                attributes["ManufacturerModelName"], repr(list(attributes["ImageType"])),
            ]
        )  # fmt: skip
        return name if name.endswith(".dcm") else f"{name}!1-1.dcm"

    def finish(self) -> None:
        """Close manifest and tables."""
        self._manifest.write("\n]\n")
        for file in self._files:
            file.close()

    def _add_study(self, study: RevealStudy) -> None:
        """Rows of the study and, the first time, of its patient."""
        is_old = "Yes" if study.age is not None and study.age > 89 else "No"
        age = "" if study.age is None else str(min(study.age, 89))
        if study.patient != self._last_patient:
            self._last_patient = study.patient
            race = _RACES.get(study.race, study.race)
            self._case.writerow(
                [study.case_id, PROJECT, age, is_old, _CAPITAL[study.sex], race, "Not Reported", "No", "999"]
            )
        if study.index != self._last_study:
            self._last_study = study.index
            cases = repr([study.case_id])
            self._study.writerow([f"study-{study.index}", study.study_uid, cases, age, is_old, 3, "XR CHEST", "CHEST"])
            if study.index % 4 == 1:
                self._mrale.writerow([study.study_uid, int(study.rng(60).integers(0, 25))])

    def _tsv(self, name: str, columns: tuple[str, ...]) -> Any:
        file = (self.root / name).open("w", newline="", encoding="utf-8")
        self._files.append(file)
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(columns)
        return writer
