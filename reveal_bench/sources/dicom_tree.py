"""A tree of DICOM files -> studies: grouped by what the headers say, never by folders.

Of a header only :class:`reveal_bench.dicom.Header` is seen here. Files that are no original radiograph, and doubles,
are set aside with their reason; files that cannot be read, and images that may show a name, are problems of the study
they belong to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from reveal_bench.sources.source import Problem

if TYPE_CHECKING:
    from reveal_bench.dicom import DicomFile, Header

__all__ = ["StudyTree", "TreeImage", "TreeStudy", "read_tree"]

FRONTAL = ("AP", "PA")


@dataclass(frozen=True, slots=True)
class TreeImage:
    """One image: its file, its header, and its path for messages."""

    file: DicomFile
    header: Header
    shown: str

    @property
    def order(self) -> tuple[int, int, str]:
        """Frontal images first, then by the number that the study gives them."""
        number = self.header.instance_number
        rank = 0 if self.header.view in FRONTAL else 1
        return rank, number if number is not None else 1 << 31, self.header.sop_uid or ""


@dataclass(slots=True)
class TreeStudy:
    """One study: `uid` and `patients` are as in the headers and must not be published."""

    uid: str
    images: list[TreeImage] = field(default_factory=list)

    @property
    def patients(self) -> set[str]:
        """Values of PatientID."""
        return {image.header.patient_key for image in self.images if image.header.patient_key}

    def keys(self, fact: str) -> set[str]:
        """Its values of a study key's fact, of :data:`reveal_bench.sources.mapping.KEY_FACTS`."""
        if fact == "StudyInstanceUID":
            return {self.uid}
        if fact == "PatientID":
            return self.patients
        if fact == "folder":
            return {part for image in self.images for part in _path(image.shown).parts[:-1]}
        if fact == "file":
            return {_path(image.shown).stem for image in self.images}
        uids = {"SeriesInstanceUID": "series_uid", "SOPInstanceUID": "sop_uid"}[fact]
        return {uid for image in self.images if (uid := getattr(image.header, uids))}


@dataclass
class StudyTree:
    """Everything below a folder.

    Attributes
    ----------
    studies : StudyInstanceUID -> study, in the order of their first files
    set_aside : (path, reason) of readable files that are not part of the dataset
    problems : of files; those of an image have its study's UID in `problem_studies`
    problem_studies : UIDs of studies that have a problem
    n_others : suffix -> files that are not DICOM
    """

    studies: dict[str, TreeStudy] = field(default_factory=dict)
    set_aside: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    problem_studies: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    n_others: Counter[str] = field(default_factory=Counter)

    @property
    def n_images(self) -> int:
        """Images of all studies."""
        return sum(len(study.images) for study in self.studies.values())


def read_tree(
    root: Path, *, workers: int = 1, require_deidentified: bool = False, include_secondary: bool = False
) -> StudyTree:
    """Read the headers below `root` and group them.

    Parameters
    ----------
    workers : processes that read headers
    require_deidentified : a file without the markers of de-identification is a problem, not a warning
    include_secondary : secondary captures of modality CR or DX, or of none, are radiographs too
    """
    from reveal_bench.dicom import scan_tree, set_aside

    scan = scan_tree(Path(root), workers=workers, include_secondary=include_secondary)
    tree = StudyTree()
    tree.set_aside = [(file.shown(scan.root), reason) for file, reason in scan.set_aside]
    tree.n_others.update(PurePosixPath(file.member or file.path.name).suffix or "no suffix" for file in scan.others)
    for file, reason in scan.unreadable:
        tree.problems.append(Problem(file.shown(scan.root), None, "file", "must be readable DICOM", reason))
    n_secondary = sum(set_aside(header) is not None for _, header in scan.headers)
    if n_secondary:
        tree.warnings.append(
            f"{n_secondary:,} secondary captures are taken as radiographs: before publishing, check that none shows a "
            "patient's name"
        )
    for file, header in scan.headers:
        shown = file.shown(scan.root)
        missing = [
            name
            for name, value in (("StudyInstanceUID", header.study_uid), ("SOPInstanceUID", header.sop_uid))
            if value is None
        ]
        for name in missing:
            tree.problems.append(Problem(shown, None, name, "must be in the header", "none"))
        if not missing:
            uid = str(header.study_uid)
            tree.studies.setdefault(uid, TreeStudy(uid)).images.append(TreeImage(file, header, shown))
    for study in tree.studies.values():
        study.images.sort(key=lambda image: image.order)
    _check_patients(tree)
    _check_markers(tree, require_deidentified=require_deidentified)
    return tree


def _path(shown: str) -> PurePosixPath:
    """A file's path; an archive counts as a folder of its name without suffix."""
    archive, bang, member = shown.partition("!")
    return PurePosixPath(archive).with_suffix("") / member if bang else PurePosixPath(shown)


def _check_patients(tree: StudyTree) -> None:
    for study in tree.studies.values():
        if len(study.patients) > 1:
            files = ", ".join(image.shown for image in study.images)
            tree.problems.append(
                Problem(
                    files,
                    None,
                    "PatientID",
                    "must be the same in all images of a study",
                    f"{len(study.patients)} different",
                )
            )
            tree.problem_studies.add(study.uid)


def _check_markers(tree: StudyTree, *, require_deidentified: bool) -> None:
    """What speaks against publishing, and what only fails to speak for it."""
    from reveal_bench.dicom import deid_warnings

    counted: Counter[str] = Counter()
    for study, image in _images(tree.studies.values()):
        if image.header.burned_in:
            rule = "must not be YES: the pixels may show a name"
            tree.problems.append(Problem(image.shown, None, "BurnedInAnnotation", rule, "YES"))
            tree.problem_studies.add(study.uid)
        if require_deidentified and not image.header.deidentified:
            got = "NO" if image.header.deidentified is False else "none"
            rule = "must be YES, as the mapping requires"
            tree.problems.append(Problem(image.shown, None, "PatientIdentityRemoved", rule, got))
            tree.problem_studies.add(study.uid)
        counted.update(deid_warnings(image.header))
    tree.warnings += [f"{n:,} images: {text}" for text, n in counted.most_common()]


def _images(studies: Iterable[TreeStudy]) -> Iterable[tuple[TreeStudy, TreeImage]]:
    return ((study, image) for study in studies for image in study.images)
