"""PadChest-GR: sentences of reports with boxes, on frontal pictures of PadChest.

Source: BIMCV (Castro et al. 2024, arXiv 2411.05085). ``grounded_reports_20240819.json`` is a list with one entry per
study: ``{"StudyID", "ImageID", "findings": [{"sentence_en", "sentence_es", "abnormal", "boxes", "extra_boxes",
"labels", "locations", "progression"}]}``; ``master_table.csv`` (plain or zipped) has the patient and split of each
study.

Conventions
-----------
* Boxes are corners [left, top, right, bottom] as fractions from 0 to 1, which are converted to pixels. No table states
  the size of the pictures, so the pictures are needed even if pixels are withheld.
* Boxes belong to a sentence. The labels of sentences, about 150 different ones, are mapped to the findings of
  :data:`reveal_bench.findings.PADCHEST_GR_LABELS`. If a sentence has labels of two findings, both findings get the
  boxes of the sentence. The config ``sentences`` has all labels, including those that are not findings, and all boxes
  in pixels.
* ``boxes`` are the ground truth; ``extra_boxes``, which a second reader drew for some sentences, belong to the reader
  "individual".
* A finding is present if an abnormal sentence has a label of the finding. A present finding without a box is `missing`.
  Reports need not mention absent findings, so a finding that is not present is unlabelled, not absent.
* Pictures are 16-bit PNG files in a folder or a zip archive. BIMCV distributes the archive in parts (``.zip.001`` ...)
  that must be joined first. Pictures of earlier studies are not read.

Files are parsed strictly. Pitfalls of the files: StudyIDs are whole numbers of up to 39 digits, which must stay text
because a float would lose digits; sentences that are not abnormal often lack the keys for labels and boxes; the folder
of pictures also contains those of earlier studies.
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.dicom.files import open_archive
from reveal_bench.files import leads_out
from reveal_bench.findings import PADCHEST_GR_FINDINGS, PADCHEST_GR_LABELS, PADCHEST_OTHER_LABELS
from reveal_bench.kinds.images import PictureFile
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import Box
from reveal_bench.sources.box_source import BoxBuild, BoxSource
from reveal_bench.sources.boxes import (
    NO_PATIENTS,
    Faults,
    PictureFolder,
    annotate_readers,
    box_problem,
    find_files,
    known_finding,
    read_table,
    xyxy_to_xywh,
)
from reveal_bench.sources.pictures import open_picture, picture_size
from reveal_bench.sources.source import Extra, FindingColumn, MissingPicture, Problem, read_json, table_features

REPORTS, TABLE = "grounded_reports_*.json", ("master_table.csv", "master_table.csv.zip", "master_table.csv.gz")
EARLIER = "PadChest_GR_progression_prior_studies"
"""Name of the folder with the pictures of earlier studies, whose file names may repeat those of other pictures."""
NEEDED = ("StudyID", "ImageID", "PatientID", "split")
KNOWN = (
    "label", "boxes_count", "extra_boxes_count", "locations", "prior_study", "progression_status", "prior_imageID",
    "sentence_en", "sentence_es", "study_is_benchmark", "study_is_validation", "patient_is_benchmark", "PatientBirth",
    "PatientSex_DICOM", "StudyDate_DICOM", "StudyDate", "PatientAge", "label_group", "Year",
)  # fmt: skip
SPLITS = ("train", "validation", "test")
FINDINGS_OF = {
    label: [finding for finding, labels in PADCHEST_GR_LABELS.items() if label in labels]
    for label in sorted({label for labels in PADCHEST_GR_LABELS.values() for label in labels})
}
LABELS = (*FINDINGS_OF, *PADCHEST_OTHER_LABELS)
Corners = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a report; its boxes are corners as fractions from 0 to 1.

    Attributes
    ----------
    number : 1-based position of the sentence in its report
    labels : labels in PadChest's canonical spelling
    """

    number: int
    english: str
    spanish: str
    is_abnormal: bool
    boxes: tuple[Corners, ...]
    extra_boxes: tuple[Corners, ...]
    labels: tuple[str, ...]
    locations: tuple[str, ...]
    progression: str | None

    @property
    def findings(self) -> list[str]:
        """Findings to which the sentence's labels belong, in the order of the benchmark; may be empty."""
        findings = {finding for label in self.labels for finding in FINDINGS_OF.get(label, ())}
        return [finding for finding in PADCHEST_GR_LABELS if finding in findings]

    def in_pixels(self, size: tuple[int, int], study: PadchestStudy, faults: Faults) -> tuple[list[Box], list[Box]]:
        """Return (boxes, extra boxes) in pixels of a picture of `size` (height, width).

        Boxes outside the picture are noted as problems.
        """
        return (
            self._scaled("boxes", self.boxes, size, study, faults),
            self._scaled("extra_boxes", self.extra_boxes, size, study, faults),
        )

    def _scaled(
        self, name: str, boxes: tuple[Corners, ...], size: tuple[int, int], study: PadchestStudy, faults: Faults
    ) -> list[Box]:
        height, width = size
        scaled = []
        for left, top, right, bottom in boxes:
            box = xyxy_to_xywh((left * width, top * height, right * width, bottom * height))
            rule = box_problem(box, size)
            if rule is None:
                scaled.append(box)
            else:
                value = f"{[left, top, right, bottom]} of {width} x {height}"
                faults.add(study.problem(f"findings[{self.number}].{name}", rule, value), study.image_id)
        return scaled


@dataclass(frozen=True, slots=True)
class PadchestStudy:
    """An entry of the reports, with its patient and split; `number` is its 1-based position in `file`."""

    file: str
    number: int
    study_id: str
    image_id: str
    patient_id: str
    split: str
    sentences: tuple[Sentence, ...]

    def problem(self, field: str, rule: str, value: object) -> Problem:
        """Return a problem with this entry's file and number."""
        return Problem(self.file, self.number, field, rule, str(value))


@dataclass(frozen=True)
class PngSource:
    """The PNG files below a folder, or those in zip archives below the folder."""

    films: PictureFolder | None
    members: Mapping[str, tuple[Path, str]]
    root: Path

    @classmethod
    def below(cls, root: Path) -> PngSource:
        """Return the PNG files below a folder or, if it has none, those in its zip archives.

        Raises
        ------
        ValueError
            If there are no PNG files; the message says how to join the parts of an archive.
        """
        try:
            films = PictureFolder.below(root, [".png"], kind="png16", skip=[EARLIER], states_sizes=True)
            return cls(films, {}, root)
        except ValueError:
            members = _members(root)
            if members:
                return cls(None, members, root)
            if any(root.rglob("*.zip.001")):
                rule = "must contain PNG files or a complete zip archive"
                hint = "join the parts first: cat PadChest_GR.zip.* > PadChest_GR.zip"
                raise ArgumentError("pictures", rule, f"only parts of an archive below {root}; {hint}") from None
            raise

    def find(self, study: PadchestStudy, faults: Faults) -> tuple[PictureFile, tuple[int, int]] | None:
        """Return (picture, (height, width)) of a study, or None after noting a problem."""
        picture = self._picture(study, faults)
        if picture is None:
            return None
        try:
            return picture, _size(picture)
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            problem = Problem(picture.source_path, study.image_id, "picture", "must be a readable PNG", str(error))
            faults.add(problem, study.image_id)
            return None

    def _picture(self, study: PadchestStudy, faults: Faults) -> PictureFile | None:
        name = f"{study.image_id}.png"
        if self.films is None and study.image_id in self.members:
            path, member = self.members[study.image_id]
            return PictureFile(path, name, f"{path.relative_to(self.root).as_posix()}!{member}", "png16", member)
        if self.films is not None and study.image_id in self.films.paths:
            return self.films.picture(study.image_id, faults)
        place = study.file, study.number, "ImageID"
        missing = MissingPicture(*place, "must have a picture", f"no file {name}", study.image_id, states_size=True)
        faults.add(missing, study.image_id)
        return None


def _members(root: Path) -> dict[str, tuple[Path, str]]:
    members: dict[str, tuple[Path, str]] = {}
    for path in sorted(root.rglob("*.zip")):
        if EARLIER not in path.relative_to(root).parts and not leads_out(path) and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.endswith(".png") and "__MACOSX" not in name]
            members |= {Path(name).stem: (path, name) for name in names}
    return members


def _size(picture: PictureFile) -> tuple[int, int]:
    if picture.member is None:
        return picture_size(picture.path)
    from PIL import UnidentifiedImageError

    try:
        with open_archive(picture.path).open(picture.member) as file, open_picture(file) as image:
            return image.height, image.width
    except UnidentifiedImageError:
        raise ValueError("not a picture") from None


def find_tables(root: Path) -> dict[str, Path]:
    """Return the paths of the grounded reports ("reports") and the master table ("table"); {} without reports."""
    folder = root if root.is_dir() else root.parent
    reports = find_files(root, {"reports": [REPORTS]})
    return reports | find_files(folder, {"table": TABLE}) if reports else {}


def read_studies(files: Mapping[str, Path], faults: Faults, warnings: list[str]) -> list[PadchestStudy]:
    """Return the entries of the reports with patient and split; note a study or image that occurs twice."""
    path = files["reports"]
    n_before = len(faults.problems)
    entries = read_json(path, list, lambda problem: faults.add(problem, None))
    if len(faults.problems) > n_before:
        return []
    table = _read_master(files["table"], faults, warnings) if "table" in files else None
    if table is None:
        warnings.append(f"master_table.csv is missing, so all studies are in the split 'test', and {NO_PATIENTS}")
    studies: list[PadchestStudy] = []
    first_of: dict[str, int] = {}
    for number, entry in enumerate(entries, start=1):
        study = _study(entry, number, path.name, table, faults)
        if study is None:
            continue
        for name, value in (("StudyID", study.study_id), ("ImageID", study.image_id)):
            if first_of.setdefault(f"{name} {value}", number) != number:
                rule = f"must be unique, but entry {first_of[f'{name} {value}']} also has it"
                faults.add(study.problem(name, rule, repr(value)), study.image_id)
        studies.append(study)
    return studies


def _read_master(path: Path, faults: Faults, warnings: list[str]) -> dict[str, dict[str, str]]:
    """Return a dict from StudyID to PatientID, ImageID and split; the table has a row per sentence and label."""
    studies: dict[str, dict[str, str]] = {}
    for row in read_table(path, NEEDED, faults, warnings, optional=KNOWN):
        facts = {name: row[name] for name in NEEDED[1:]}
        image_id = facts["ImageID"].removesuffix(".png")
        if facts["split"] not in SPLITS:
            faults.add(row.problem("split", f"must be one of {', '.join(SPLITS)}", repr(facts["split"])), image_id)
        if studies.setdefault(row["StudyID"], facts) != facts:
            rule = "must be the same for all rows of a study (image, patient and split)"
            faults.add(row.problem("StudyID", rule, ", ".join(facts.values())), image_id)
    return studies


def _study(
    entry: Any, number: int, file: str, table: dict[str, dict[str, str]] | None, faults: Faults
) -> PadchestStudy | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("findings"), list):
        rule = "must be an object with StudyID, ImageID and a list of findings"
        faults.add(Problem(file, number, "entry", rule, str(entry)[:80]), None)
        return None
    study_id, name = str(entry.get("StudyID", "")), entry.get("ImageID")
    if not isinstance(name, str) or not name.endswith(".png") or "/" in name or not study_id.isdigit():
        rule = "must be a PNG file name, with a StudyID of digits"
        faults.add(Problem(file, number, "ImageID", rule, f"{name!r}, {study_id!r}"), None)
        return None
    image_id = name.removesuffix(".png")
    facts = {"PatientID": study_id, "split": "test", "ImageID": name} if table is None else table.get(study_id)
    if facts is None or facts["ImageID"] != name:
        value = "no row" if facts is None else repr(facts["ImageID"])
        rule = f"must have a row with {name!r} in the master table"
        faults.add(Problem(file, number, "StudyID", rule, value), image_id)
        return None
    sentences = []
    for place, raw in enumerate(entry["findings"], start=1):
        sentence = _sentence(raw, place, faults, PadchestStudy(file, number, study_id, image_id, "", "", ()))
        if sentence is not None:
            sentences.append(sentence)
    split = facts["split"] if facts["split"] in SPLITS else "test"
    return PadchestStudy(file, number, study_id, image_id, facts["PatientID"], split, tuple(sentences))


def _sentence(raw: Any, number: int, faults: Faults, study: PadchestStudy) -> Sentence | None:
    where = f"findings[{number}]"
    n_before = len(faults.problems)
    if not isinstance(raw, dict) or not isinstance(raw.get("abnormal"), bool):
        rule = "must be an object whose `abnormal` is true or false"
        faults.add(study.problem(where, rule, str(raw)[:80]), study.image_id)
        return None
    labels = []
    for name in _texts(raw, "labels", where, study, faults):
        label, value = known_finding(name, LABELS)
        if label is None:
            rule = f"must be one of PadChest's {len(LABELS)} labels"
            faults.add(study.problem(f"{where}.labels", rule, value), study.image_id)
        else:
            labels.append(label)
    boxes = {name: _corners(raw, name, where, study, faults) for name in ("boxes", "extra_boxes")}
    locations = _texts(raw, "locations", where, study, faults)
    if len(faults.problems) > n_before:
        return None
    return Sentence(
        number=number,
        english=str(raw.get("sentence_en") or ""),
        spanish=str(raw.get("sentence_es") or ""),
        is_abnormal=raw["abnormal"],
        boxes=boxes["boxes"],
        extra_boxes=boxes["extra_boxes"],
        labels=tuple(labels),
        locations=tuple(locations),
        progression=None if raw.get("progression") is None else str(raw["progression"]),
    )


def _texts(raw: dict[str, Any], key: str, where: str, study: PadchestStudy, faults: Faults) -> list[str]:
    values = raw.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        faults.add(study.problem(f"{where}.{key}", "must be a list of texts", str(values)[:80]), study.image_id)
        return []
    return values


def _corners(raw: dict[str, Any], key: str, where: str, study: PadchestStudy, faults: Faults) -> tuple[Corners, ...]:
    """Return the valid boxes as (left, top, right, bottom); note boxes that are not four numbers from 0 to 1."""
    values = raw.get(key) or []
    boxes: list[Corners] = []
    for value in values if isinstance(values, list) else [values]:
        numbers = [v for v in value if type(v) in (int, float) and math.isfinite(v)] if isinstance(value, list) else []
        if len(numbers) != 4 or len(value) != 4 or not all(-0.01 <= number <= 1.01 for number in numbers):
            rule = "must be corners [left, top, right, bottom] from 0 to 1"
            faults.add(study.problem(f"{where}.{key}", rule, str(value)[:80]), study.image_id)
        else:
            boxes.append((numbers[0], numbers[1], numbers[2], numbers[3]))
    return tuple(boxes)


PUBLISHED = {"images": 4555, "abnormal sentences": 7037, "other sentences": 3422}
"""Numbers of images and sentences in the paper."""
SECOND_READER = "2"
"""`reader_id` of the annotations made from ``extra_boxes``."""


SENTENCES = table_features(
    image_id="string",
    sentence_en="string",
    sentence_es="string",
    abnormal="bool",
    labels=["string"],
    locations=["string"],
    progression="string",
    boxes_xywh=[["float64"]],
    extra_boxes_xywh=[["float64"]],
)
"""Features of the config ``sentences``: a row per sentence, in the order of the report."""
_COLUMN = FindingColumn("labels", lambda label: FINDINGS_OF.get(label, ()))


def _picture_root(build: BoxBuild[list[PadchestStudy]]) -> Path:
    return build.pictures if build.pictures is not None else build.files["reports"].parent


def _pictured(build: BoxBuild[list[PadchestStudy]]) -> dict[str, bool]:
    try:
        pictures = PngSource.below(_picture_root(build))
    except ArgumentError:  # no PNG file
        return dict.fromkeys((study.image_id for study in build.parsed), False)
    names = pictures.members if pictures.films is None else pictures.films.paths
    return {study.image_id: study.image_id in names for study in build.parsed}


def _make(build: BoxBuild[list[PadchestStudy]]) -> tuple[dict[str, list[LocalizationRecord]], list[Extra]]:
    studies, faults = build.parsed, build.faults
    pictures = PngSource.below(_picture_root(build))
    splits: dict[str, list[LocalizationRecord]] = {split: [] for split in SPLITS}
    rows: list[dict[str, Any]] = []
    for study in studies:
        match = pictures.find(study, faults)
        if match is None:
            continue
        picture, size = match
        sentences = [(sentence, sentence.in_pixels(size, study, faults)) for sentence in study.sentences]
        if study.image_id not in faults.bad:
            splits[study.split].append(_record(study, sentences, picture, size))
            rows += [_sentence_row(study, sentence, *boxes) for sentence, boxes in sentences]
    build.warnings += _label_warnings(studies)
    build.settle()
    filled_splits = {split: records for split, records in splits.items() if records}
    return filled_splits, [Extra("sentences", SENTENCES, rows, key="image_id", findings=_COLUMN)]


def _sentence_row(study: PadchestStudy, sentence: Sentence, boxes: list[Box], extra_boxes: list[Box]) -> dict[str, Any]:
    return {
        "image_id": study.image_id,
        "sentence_en": sentence.english,
        "sentence_es": sentence.spanish,
        "abnormal": sentence.is_abnormal,
        "labels": list(sentence.labels),
        "locations": list(sentence.locations),
        "progression": sentence.progression,
        "boxes_xywh": [list(box) for box in boxes],
        "extra_boxes_xywh": [list(box) for box in extra_boxes],
    }


def _counts(studies: list[PadchestStudy]) -> dict[str, int]:
    n_abnormal = sum(sentence.is_abnormal for study in studies for sentence in study.sentences)
    n_all = sum(len(study.sentences) for study in studies)
    return {
        "images": len(studies),
        "abnormal sentences": n_abnormal,
        "other sentences": n_all - n_abnormal,
        "boxes": sum(len(sentence.boxes) for study in studies for sentence in study.sentences),
    }


def _label_warnings(studies: list[PadchestStudy]) -> list[str]:
    boxed = [s for study in studies for s in study.sentences if s.is_abnormal and s.boxes]
    none = Counter(label for sentence in boxed if not sentence.findings for label in sentence.labels)
    several = sum(len(sentence.findings) > 1 for sentence in boxed)
    changes = []
    if none:
        n = sum(not sentence.findings for sentence in boxed)
        names = ", ".join(f"{label} {count}" for label, count in none.most_common(5))
        changes.append(
            f"{n:,} sentences with boxes have no label that is a finding; only the config `sentences` has "
            f"them ({names})"
        )
    if several:
        changes.append(
            f"{several:,} sentences with boxes have labels of several findings; each of these findings "
            "gets all boxes of the sentence"
        )
    return changes


def _record(
    study: PadchestStudy,
    sentences: list[tuple[Sentence, tuple[list[Box], list[Box]]]],
    picture: PictureFile,
    size: tuple[int, int],
) -> LocalizationRecord:
    present: set[str] = set()
    truth: dict[str, list[Box]] = {}
    second: dict[str, list[Box]] = {}
    for sentence, (boxes, extra_boxes) in sentences:
        for finding in sentence.findings if sentence.is_abnormal else ():
            present.add(finding)
            truth.setdefault(finding, []).extend(boxes)
            second.setdefault(finding, []).extend(extra_boxes)
    return LocalizationRecord(
        image_id=study.image_id,
        patient_id=study.patient_id,
        study_id=study.study_id,
        view="FRONTAL",
        width=size[1],
        height=size[0],
        label_status={finding: 1 if finding in present else None for finding in PADCHEST_GR_FINDINGS},
        annotations=annotate_readers(PADCHEST_GR_FINDINGS, {"": truth, SECOND_READER: second}, size),
        missing=tuple(f for f in PADCHEST_GR_FINDINGS if f in present and not truth.get(f)),
        picture=picture,
    )


SOURCE = BoxSource(
    name="padchest-gr",
    needs="grounded_reports_20240819.json",
    published=PUBLISHED,
    find=find_tables,
    parse=read_studies,
    count=_counts,
    pictured=_pictured,
    make=_make,
    pictures_state_sizes=True,
)
detect, inspect, read = SOURCE.detect, SOURCE.inspect, SOURCE.read
