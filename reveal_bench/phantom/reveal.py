"""Write a synthetic REVEAL-CXR download: DICOM files with realistic headers, labels, votes and reports.

The source's own layout is not public. ``layout="dicom"`` is a plain tree of DICOM files with one table of labels, which
is usual for such datasets; ``layout="midrc"`` is that of the Medical Imaging and Data Resource Center. All data are
synthetic, as ``SYNTHETIC.txt`` states. The files are::

    labels.csv  mapping.yaml    input of the source: one row per study, and the meaning of its columns
    images/...                  DICOM files; folder names do not identify studies
    reports/<study uid>.txt     reports in prose; reports.csv has them with the true labels
    votes.csv                   three readers per study on the suggested labels
    truth.jsonl                 the truth: labels, sides, how every image is stored

With ``traps``, some images are stored in rare ways (:data:`RARE`), some studies have additional files that are not
images of their own (:data:`EXTRA_FILES`), one study in seven shares a folder with others, and some files are not DICOM.

The layout of MIDRC has files ``<case>/<study uid>/<series uid>.zip``, in older releases ``.../<series uid>/<sop
uid>.dcm``, a manifest in JSON, and mRALE scores in a CSV file. Each node of the data model has a tab-separated table,
in which required columns have a leading ``*``, arrays are Python literals, and ages above 89 are a flag. As in the real
download, these tables do not state which of the twelve labels a study has; ``labels.csv`` does. Tables are written
study by study. ``labels.csv`` spells labels as the paper does, in more than one way.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.phantom.anatomy import Anatomy
from reveal_bench.phantom.choices import choose
from reveal_bench.phantom.dicom_headers import draw_header
from reveal_bench.phantom.findings_drawn import Drawn
from reveal_bench.phantom.folders import check_sizes, open_csv, start_folder
from reveal_bench.phantom.radiograph import render
from reveal_bench.phantom.reports import write_report
from reveal_bench.phantom.reveal_findings import DEVICES, draw_reveal_film, sides
from reveal_bench.phantom.reveal_pixels import draw_storage, stored_values
from reveal_bench.phantom.reveal_studies import RevealImage, RevealStudy, Stage, studies
from reveal_bench.phantom.votes import SimulatedVotes, draw_votes

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
    """Writes images below `root` in MIDRC's layout; every fifth study has the older layout, without archives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = ExitStack()
        names = {"case": CASE, "imaging_study": STUDY, "cr_series_file": SERIES, "dx_series_file": SERIES}
        self._nodes = {
            name: open_csv(self._files, root / f"{name}.tsv", columns, delimiter="\t")
            for name, columns in names.items()
        }
        heads = ("StudyInstanceUID", "mRALE Score")
        self._mrale = open_csv(self._files, root / "mRALE_annotations.csv", heads)
        self._manifest = self._files.enter_context((root / "manifest.json").open("w", encoding="utf-8"))
        self._separator = "[\n"
        self._last_patient = self._last_study = -1

    def place(self, study: RevealStudy, image: RevealImage) -> Path:
        """Return the path for an image, in a folder that exists."""
        series = study.uid("series", image.number)
        path = self.root / study.case_id / study.study_uid / series / f"{study.uid('image', image.number)}.dcm"
        path.parent.mkdir(parents=True)
        return path

    def add(self, study: RevealStudy, attributes: Mapping[str, Any], file: Path) -> str:
        """Move an image into the archive of its series, and into manifest and tables; return its path."""
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
        if study.index % 3:  # a manifest entry needs only its object
            entry |= {"md5sum": md5, "file_name": name, "file_size": file.stat().st_size}
        self._manifest.write(self._separator + json.dumps(entry))
        self._separator = ",\n"
        self._nodes["cr_series_file" if attributes["Modality"] == "CR" else "dx_series_file"].writerow(
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
        self._files.close()

    def _add_study(self, study: RevealStudy) -> None:
        """Add the study's rows and, if it is the patient's first study, the patient's rows."""
        is_old = "Yes" if study.age is not None and study.age > 89 else "No"
        age = "" if study.age is None else str(min(study.age, 89))
        if study.patient != self._last_patient:
            self._last_patient = study.patient
            race = _RACES.get(study.race, study.race)
            self._nodes["case"].writerow(
                [study.case_id, PROJECT, age, is_old, _CAPITAL[study.sex], race, "Not Reported", "No", "999"]
            )
        if study.index != self._last_study:
            self._last_study = study.index
            cases = repr([study.case_id])
            row = [f"study-{study.index}", study.study_uid, cases, age, is_old, 3, "XR CHEST", "CHEST"]
            self._nodes["imaging_study"].writerow(row)
            if study.index % 4 == 1:
                self._mrale.writerow([study.study_uid, int(study.rng(60).integers(0, 25))])


AGREEMENT = {2: "Agree All: 2 of 3", 3: "Agree All: 3 of 3"}

SPELLINGS = {
    "Airspace opacity": "Airspace Opacity",
    "COPD": "copd",
    "Lung mass": "Lung Mass",
    "Lung nodule": "Lung Nodule",
    "Pleural effusion": "pleural effusion",
}
"""Label -> a second spelling; paper 004 has several spellings in its text, figures and prompts."""

_TEXTS = {"F": "Female", "M": "Male", "unknown": "Unknown", "Black or African American": "African American"}

LABEL_COLUMNS = ("StudyInstanceUID", "Findings", "Agreement")
DEMOGRAPHIC_COLUMNS = ("AgeGroup", "Sex", "Race", "PatientClass")

MAPPING = """# What the columns of labels.csv mean.
table: labels.csv
study_key: {column: StudyInstanceUID, matches: StudyInstanceUID}
labels:
  list: {column: Findings, separator: ";"}
agreement:
  column: Agreement
  values:
    "Agree All: 2 of 3": two_of_three
    "Agree All: 3 of 3": three_of_three
"""
MAPPED_DEMOGRAPHICS = """demographics:
  age_band: {column: AgeGroup}
  sex: {column: Sex, values: {Female: F, Male: M}}
  race: {column: Race, values: {African American: Black or African American}}
  patient_class: {column: PatientClass}
"""


class Tables:
    """All tables below `root`, written within this context manager."""

    def __init__(self, root: Path, *, has_demographics: bool) -> None:
        self.root, self.has_demographics = root, has_demographics
        self._stack = ExitStack()

    def __enter__(self) -> Tables:
        demographics = DEMOGRAPHIC_COLUMNS if self.has_demographics else ()
        (self.root / "reports").mkdir()
        mapping = MAPPING + (MAPPED_DEMOGRAPHICS if self.has_demographics else "")
        (self.root / "mapping.yaml").write_text(mapping, encoding="utf-8")
        vote = ("study_uid", "suggested", "reader", "answer", "comment", "labels")
        report = ("study_uid", "case_id", "file", "report", "labels")
        self._labels = open_csv(self._stack, self.root / "labels.csv", [*LABEL_COLUMNS, *demographics])
        self._votes = open_csv(self._stack, self.root / "votes.csv", vote)
        self._reports = open_csv(self._stack, self.root / "reports.csv", report)
        self._truth = self._stack.enter_context((self.root / "truth.jsonl").open("w", encoding="utf-8"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(
        self,
        study: RevealStudy,
        votes: SimulatedVotes,
        sides: Mapping[str, str],
        images: Sequence[Mapping[str, Any]],
        *,
        has_devices: bool,
    ) -> None:
        """Add the rows of a study to the tables."""
        self._labels.writerow(self._label_row(study, votes))
        for vote in votes.votes:
            labels = "" if vote.labels is None else _joined(vote.labels)
            row = [study.study_uid, _joined(votes.suggested), vote.reader, vote.answer, vote.comment, labels]
            self._votes.writerow(row)
        report = write_report(study, sides, has_devices=has_devices)
        file = f"reports/{study.study_uid}.txt"
        (self.root / file).write_text(report, encoding="utf-8")
        self._reports.writerow([study.study_uid, study.case_id, file, report, _joined(study.labels)])
        truth = {
            "study_uid": study.study_uid,
            "case_id": study.case_id,
            "labels": study.labels,
            "sides": dict(sides),
            "suggested": votes.suggested,
            "n_agree_all": votes.n_agree_all,
            "age": study.age,
            "sex": study.sex,
            "race": study.race,
            "patient_class": study.patient_class,
            "images": list(images),
        }
        self._truth.write(json.dumps(truth) + "\n")

    def _label_row(self, study: RevealStudy, votes: SimulatedVotes) -> list[str]:
        labels = [
            SPELLINGS.get(label, label) if (study.index + i) % 3 else label for i, label in enumerate(votes.suggested)
        ]
        row = [study.study_uid, _joined(labels), AGREEMENT.get(votes.n_agree_all, "")]
        if self.has_demographics:
            row += [_age_group(study.age), *(_text(value) for value in (study.sex, study.race, study.patient_class))]
        return row


def _joined(labels: Sequence[str]) -> str:
    assert all(label.casefold() in {known.casefold() for known in REVEAL_LABELS} for label in labels)
    return "; ".join(labels) or "None"


def _text(value: str) -> str:
    return _TEXTS.get(value, value.capitalize() if value.islower() else value)


def _age_group(age: int | None) -> str:
    """Return the age band of paper 004, Table 1."""
    if age is None:
        return "Unknown"
    return "80+" if age >= 80 else f"{age // 10 * 10}-{age // 10 * 10 + 9}"


RARE: dict[int, dict[str, str]] = {
    0: {"voi": "window", "windows": "3", "function": ""},
    1: {"voi": "both"},
    2: {"meta": "missing", "syntax": "explicit"},
    3: {"voi": "window", "function": "SIGMOID"},
    4: {
        "photometric": "MONOCHROME1", "shape": "INVERSE", "bits": "10", "voi": "window", "rescale": "LOG_E REL",
        "slope": "-1",
    },
    5: {"voi": "neither", "bits": "15", "photometric": "MONOCHROME1"},
    6: {"syntax": "jpeg2000-lossless", "voi": "lut"},
    7: {"meta": "missing", "syntax": "implicit", "voi": "lut"},
    12: {"voi": "window", "function": "LINEAR_EXACT", "bits": "14"},
    13: {"syntax": "rle"},
    14: {"syntax": "jpegls-lossless", "bits": "15"},
}  # fmt: skip
"""Index of a study -> rare storage of the study's images: values of `SHARES`, transfer syntax, meta header."""

EXTRA_FILES = {
    8: "a secondary capture",
    9: "the same exposure for processing",
    10: "the same file again",
    11: "a derived secondary picture",
}
"""Index of a study, modulo :data:`EVERY` -> an extra file that is not another image."""
EVERY = 25
EXTRA = 9
"""Number that the extra file has among the study's images."""

SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
DX_FOR_PROCESSING = "1.2.840.10008.5.1.4.1.1.1.1.1"


def write_extra_file(study: RevealStudy, first: Path, layout: Layout) -> int:
    """Write the extra file of a study, if it has one; return the number of files."""
    kind = EXTRA_FILES.get(study.index % EVERY)
    if kind is None or (kind == "the same file again" and not first.exists()):
        return 0  # an archive contains an image only once
    image = RevealImage(EXTRA, study.images[0].view, study.images[0].size)
    path = layout.place(study, image)
    if kind == "the same file again":
        shutil.copyfile(first, path)
    else:
        layout.add(study, _write_small_picture(study, image, path, kind), path)
    return 1


def _write_small_picture(study: RevealStudy, image: RevealImage, path: Path, kind: str) -> dict[Any, Any]:
    from reveal_bench.dicom import write_dicom

    rng = study.rng(32)
    attributes = draw_header(study, image, rng)
    if kind == "a secondary capture":
        attributes.update(SOPClassUID=SECONDARY_CAPTURE, Modality="OT", ImageType=["DERIVED", "SECONDARY"])
        attributes.pop("PresentationIntentType", None)
    elif kind == "a derived secondary picture":
        attributes.update(ImageType=["DERIVED", "SECONDARY", "SCREENSHOT"])
    else:
        attributes.update(
            SOPClassUID=DX_FOR_PROCESSING,
            Modality="DX",
            PresentationIntentType="FOR PROCESSING",
            IrradiationEventUID=study.uid("event", 1),
            ImageType=["ORIGINAL", "PRIMARY"],
        )
    storage = draw_storage(rng, force={"bits": "12", "voi": "neither", "photometric": "MONOCHROME1"})
    grey = np.tile(np.linspace(0, 255, 96).astype(np.uint8), (64, 1))
    write_dicom(
        path,
        stored_values(grey, storage, rng),
        {**attributes, **storage.attributes},
        bits_stored=storage.bits_stored,
        photometric=storage.photometric,
    )
    return attributes


def write_unrelated_files(root: Path) -> None:
    """Write other files that people and programs leave in a folder."""
    (root / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(60))
    (root / ".DS_Store").write_bytes(bytes(8))
    (root / "readme.txt").write_text("Films in any order; see labels.csv.\n", encoding="utf-8")
    (root / "archive_02.zip.part").write_bytes(b"PK\x03\x04 an interrupted download")


NOTICE = """SYNTHETIC DATA

Every picture, header, label, report and vote below this folder was made by the program reveal_bench.phantom. Nothing
comes from a patient, a reader or a hospital. Names, dates and places in the DICOM headers are invented, to test whether
a program removes them. Scores computed on these data say nothing about a model. Not for clinical use.
"""

TRANSFER_SYNTAXES = {
    "explicit": 0.70,
    "implicit": 0.14,
    "jpegls-lossless": 0.10,
    "jpeg2000-lossless": 0.04,
    "rle": 0.02,
}
"""Probability of each transfer syntax; the numbers are chosen, not measured."""

Progress = Callable[[int, int], None]
Body = tuple[Anatomy, Drawn]


class Layout(Protocol):
    """The layout of a download's files."""

    def place(self, study: RevealStudy, image: RevealImage) -> Path:
        """Return the path for an image, in a folder that exists."""

    def add(self, study: RevealStudy, attributes: Mapping[str, Any], file: Path) -> str:
        """Register an image that was written; return its path relative to the download."""

    def finish(self) -> None:
        """Complete the lists of files."""


def write_reveal(
    out: Path,
    n_studies: int = 100,
    *,
    seed: int = 0,
    long_side: int = 3056,
    layout: Literal["dicom", "midrc"] = "dicom",
    stage: Stage = "benchmark",
    traps: bool = True,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Write a synthetic REVEAL-CXR download; studies are streamed, so memory does not depend on their number.

    Parameters
    ----------
    out : new or empty folder
    n_studies : number of studies; the release has 100, selected from a pool of 13,735
    seed : equal seeds give equal bytes; study k does not depend on `n_studies`
    long_side : long side of the images in pixels; 3056 is the most common in real images
    layout : "dicom", or "midrc" for zip archives per series, a manifest and tables per node
    stage : "benchmark" for the released studies, "pool" for the studies to select from (:mod:`.reveal_studies`)
    traps : also write the difficulties of real downloads
    progress : called with (studies done, all studies)

    Returns
    -------
    dict with the numbers of studies, images, and extra files

    Raises
    ------
    ValueError
        If `out` is not empty or an argument is invalid.
    ImportError
        If the extra `dicom` is not installed.
    """
    _check(n_studies, long_side, layout, stage)
    out = start_folder(out, NOTICE)
    place: Layout = MidrcLayout(out) if layout == "midrc" else TreeLayout(out, traps=traps)
    counts = {"studies": n_studies, "films": 0, "extra files": 0}
    with Tables(out, has_demographics=layout == "dicom") as tables:
        for study, n_done in zip(studies(stage, seed=seed), range(1, n_studies + 1), strict=False):
            bodies = [draw_reveal_film(study, image) for image in study.images]
            facts = [
                _write_film(study, image, body, place, long_side, traps=traps)
                for image, body in zip(study.images, bodies, strict=True)
            ]
            if traps:
                counts["extra files"] += write_extra_file(study, facts[0]["path"], place)
            counts["films"] += len(facts)
            _add_to_tables(tables, study, *bodies[0], facts)
            if progress is not None:
                progress(n_done, n_studies)
    place.finish()
    if traps:
        write_unrelated_files(out)
    return counts


def write_midrc(out: Path, n_studies: int = 100, *, long_side: int = 3056, **options: Any) -> dict[str, int]:
    """Write the download of :func:`write_reveal` in the layout of MIDRC.

    This layout has a zip archive per series, a manifest, and a table per node.
    """
    return write_reveal(out, n_studies, layout="midrc", long_side=long_side, **options)


def reveal_film(
    study: RevealStudy, image: RevealImage, long_side: int, *, body: Body | None = None
) -> npt.NDArray[np.uint8]:
    """Return the grey levels that every viewer should show for an image.

    `body` is the drawing, if it already exists.
    """
    anatomy, drawn = body or draw_reveal_film(study, image)
    size = round(image.size[0] * long_side), round(image.size[1] * long_side)
    return render(anatomy, drawn.shapes, study.rng(20, image.number), size)


class TreeLayout:
    """A tree of DICOM files whose folders do not identify studies."""

    def __init__(self, root: Path, *, traps: bool) -> None:
        self.root, self.traps = root, traps

    def place(self, study: RevealStudy, image: RevealImage) -> Path:
        """Return the path for an image, in a folder that exists."""
        if self.traps and study.index % 7 == 3:  # many studies in one folder, and files without a suffix
            path = self.root / "images" / "loose" / f"IM{study.index:06d}{image.number}"
        else:
            batch, case = f"batch{study.index // 100 + 1:03d}", f"{study.index % 100:02d}"
            path = self.root / "images" / batch / case / f"film{image.number}.dcm"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add(self, study: RevealStudy, attributes: Mapping[str, Any], file: Path) -> str:
        """Return the image's path relative to the download."""
        return file.relative_to(self.root).as_posix()

    def finish(self) -> None:
        """Do nothing, because this layout has no list of files."""


def _check(n_studies: int, long_side: int, layout: str, stage: str) -> None:
    check_sizes(n_studies=n_studies, long_side=long_side)
    if layout not in ("dicom", "midrc"):
        raise ArgumentError("layout", "must be 'dicom' or 'midrc'", repr(layout))
    if stage not in ("benchmark", "pool"):
        raise ArgumentError("stage", "must be 'benchmark' or 'pool'", repr(stage))


def _write_film(
    study: RevealStudy, image: RevealImage, body: Body, layout: Layout, long_side: int, *, traps: bool
) -> dict[str, Any]:
    """Write one image; return facts about it for the tables."""
    from reveal_bench.dicom import write_dicom

    rng = study.rng(31, image.number)
    rare = RARE.get(study.index, {}) if traps else {}
    storage = draw_storage(rng, force={name: value for name, value in rare.items() if name not in ("syntax", "meta")})
    syntax = rare.get("syntax") or choose(rng, TRANSFER_SYNTAXES)
    grey = reveal_film(study, image, long_side, body=body)
    attributes = {**draw_header(study, image, rng), **storage.attributes}
    path = layout.place(study, image)
    write_dicom(
        path,
        stored_values(grey, storage, rng),
        attributes,
        bits_stored=storage.bits_stored,
        photometric=storage.photometric,
        transfer_syntax=syntax,
        meta_header=rare.get("meta") != "missing",
    )
    return {
        "path": path,
        "file": layout.add(study, attributes, path),
        "sop_uid": attributes["SOPInstanceUID"],
        "view": image.view,
        "view_position": attributes.get("ViewPosition"),
        "height": grey.shape[0],
        "width": grey.shape[1],
        "transfer_syntax": syntax,
        "stored": dict(storage.choices),
    }


def _add_to_tables(
    tables: Tables, study: RevealStudy, anatomy: Anatomy, drawn: Drawn, facts: list[dict[str, Any]]
) -> None:
    sides_of = {label: sides(anatomy, drawn.contours[label]) for label in study.labels}
    images = [{name: value for name, value in fact.items() if name != "path"} for fact in facts]
    tables.add(study, draw_votes(study), sides_of, images, has_devices=DEVICES in drawn.contours)
