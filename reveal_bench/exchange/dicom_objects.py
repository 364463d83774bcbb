"""Handle identifiers, referenced images and files for both DICOM segmentations and reports.

Conventions
-----------
Datasets publish no DICOM identifiers. Identifiers are therefore made from the ids of the dataset, so that equal input
gives equal bytes. Images become secondary captures; the patient's name is the dataset's pseudonym. DICOM requires
dates, which datasets lack, so all objects have the date :data:`DATE`. Findings are coded with the private scheme
:data:`SCHEME`; the meaning of a code is the finding.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import numpy as np
from PIL import Image

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import write_whole
from reveal_bench.kinds.cases import AnnotatedImage, Annotations, Drawing
from reveal_bench.predictions.limits import Limits

if TYPE_CHECKING:
    from highdicom.sr import CodedConcept
    from pydicom import Dataset

SCHEME = "99REVEAL"
DATE, TIME = "19700101", "000000"
MANUFACTURER = "reveal-bench"
_NAMESPACE = UUID("5b3c1a52-6f0e-4d1c-9a6c-3b1f0c1c2d55")
_DATES = (
    "ContentDate", "ContentTime", "InstanceCreationDate", "InstanceCreationTime", "SeriesDate", "SeriesTime",
    "AcquisitionDate", "AcquisitionTime",
)  # fmt: skip


class Identifiers:
    """Makes the unique identifiers of a split's objects from the objects' ids."""

    def __init__(self, annotations: Annotations) -> None:
        self._of = f"{annotations.benchmark} {annotations.version} {annotations.split}"

    def uid(self, *of: str) -> str:
        """Return an identifier under 2.25, the root for UUIDs."""
        return f"2.25.{uuid5(_NAMESPACE, chr(0).join((self._of, *of))).int}"

    def films(self, annotations: Annotations) -> dict[str, AnnotatedImage]:
        """SOP instance UID -> its image."""
        return {self.uid("image", film.image_id): film for film in annotations.films.values()}


def code_of(finding: str, names: tuple[str, ...]) -> CodedConcept:
    """Return the code of a finding of the benchmark."""
    from highdicom.sr import CodedConcept

    return CodedConcept(value=f"F{names.index(finding) + 1}", scheme_designator=SCHEME, meaning=finding)


def finding_of_code(code: Any, known: Annotations, label: str | None = None) -> str:
    """Return the finding that a code, or a segment's label, represents."""
    texts = [str(text) for text in (label, getattr(code, "CodeMeaning", None)) if text]
    for text in texts[:-1]:
        if text.replace("_", " ").casefold() in {name.casefold() for name in known.names}:
            return known.finding_of(text)
    return known.finding_of(texts[-1] if texts else "")


def person(reader: str) -> str:
    """Return a reader's name as a DICOM person name with one component."""
    return f"{reader[:60]}^"


def in_order(drawings: Iterable[Drawing], known: Annotations) -> tuple[Drawing, ...]:
    """Return drawings in the order of the dataset's images, whatever the order of the files."""
    places = {image_id: n for n, image_id in enumerate(known.films)}
    return tuple(sorted(drawings, key=lambda one: places[one.image_id]))


def source_images(
    annotations: Annotations, out: Path, folder: str, pictures: Mapping[str, str]
) -> Iterator[tuple[AnnotatedImage, Dataset]]:
    """Yield every image as a secondary capture, which replaces the image's picture in `folder` if there is one."""
    ids = Identifiers(annotations)
    for film in annotations.films.values():
        picture = out / folder / pictures[film.image_id]
        pixels = _grey(picture.read_bytes()) if picture.is_file() else None
        image = _secondary_capture(film, ids, pixels)
        if pixels is not None:
            write_object(image, picture.with_suffix(".dcm"))
            picture.unlink()
        yield film, image


def _grey(data: bytes) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(data)) as image:
        if image.mode.startswith("I"):  # 16 bits
            return np.asarray(image).astype(np.uint16)
        return np.asarray(image.convert("L"))


def _secondary_capture(film: AnnotatedImage, ids: Identifiers, pixels: np.ndarray[Any, Any] | None) -> Dataset:
    from highdicom.sc import SCImage

    if pixels is None:  # without a picture, the object is only referred to
        pixels = np.zeros((film.height, film.width), dtype=np.uint8)
    image = SCImage(
        pixel_array=pixels,
        photometric_interpretation="MONOCHROME2",
        bits_allocated=8 * pixels.itemsize,
        coordinate_system="PATIENT",
        study_instance_uid=ids.uid("study", film.study_id),
        series_instance_uid=ids.uid("images", film.study_id),
        series_number=1,
        sop_instance_uid=ids.uid("image", film.image_id),
        instance_number=1,
        manufacturer=MANUFACTURER,
        patient_id=film.patient_id or film.study_id,
        patient_orientation=("L", "F"),
        pixel_spacing=film.spacing_mm,
    )
    image.BodyPartExamined = "CHEST"
    return image


def write_object(dataset: Dataset, path: Path) -> None:
    """Write a DICOM file with the dates of :data:`DATE`, whole or not at all."""
    dataset.SpecificCharacterSet = "ISO_IR 192"  # UTF-8
    for name in _DATES:
        if name in dataset:
            setattr(dataset, name, DATE if name.endswith("Date") else TIME)
    for element in dataset.iterall():
        if element.VR == "DT" and element.value:
            element.value = DATE + TIME
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    write_whole(path, buffer.getvalue())


def object_files(path: Path, folder: str) -> list[Path]:
    """Return `path` if it is a file, otherwise the files below `path`/`folder` or, if there is none, below `path`.

    Raises
    ------
    ArgumentError
        If the folder has no file.
    """
    if path.is_file():
        return [path]
    place = path / folder if (path / folder).is_dir() else path
    files = sorted(one for one in place.rglob("*") if one.is_file() and one.suffix.lower() in (".dcm", ""))
    if not files:
        raise ArgumentError("file", "must be DICOM files, or a folder of them", path)
    return files


def read_object(path: Path, modality: str) -> Dataset | None:
    """Read a DICOM file; None if its modality is not `modality`.

    Raises
    ------
    ArgumentError
        If the file is not a DICOM file, or too large.
    """
    import pydicom
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    if path.stat().st_size > Limits().file_bytes:
        raise ArgumentError("file", f"must have at most {Limits().file_bytes} bytes", path)
    with understood(path):
        if read_file_meta_info(path).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
            raise ArgumentError("file", "must not be deflated as a whole, because it could expand without limit", path)
        dataset = pydicom.dcmread(path)
        return dataset if dataset.get("Modality") == modality else None


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn errors that pydicom and highdicom raise about a broken file into an ArgumentError that names the file."""
    try:
        yield
    except ArgumentError:
        raise
    except Exception as error:  # pydicom and highdicom raise almost any error
        raise ArgumentError("file", f"must be a DICOM file of this form ({error})", path) from None
