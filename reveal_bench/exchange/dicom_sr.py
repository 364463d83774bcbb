"""Write and read DICOM structured reports (TID 1500): points, boxes and contours as regions, labels as evaluations.

There is one report per image and reader, or per study and reader. Each region is a group of measurements whose type is
the finding; the confidence is one of the measurements. A box is a closed polyline of its corners. DICOM stores
coordinates as 32-bit numbers. Reports cannot store masks, for which there is :mod:`reveal_bench.exchange.dicom_seg`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.dicom_objects import (
    MANUFACTURER,
    SCHEME,
    Identifiers,
    code_of,
    finding_of_code,
    in_order,
    object_files,
    person,
    read_object,
    source_images,
    understood,
    write_object,
)
from reveal_bench.exchange.regions import RegionChecks
from reveal_bench.exchange.shapes import joined, pixels
from reveal_bench.kinds.cases import PREDICTION, AnnotatedImage, Annotations, Drawing, StudyLabels

if TYPE_CHECKING:
    from highdicom.sr import CodedConcept
    from pydicom import Dataset

FILE, IMAGES = "reports", "images"
POINT, BOX, CONTOUR = "point", "box", "contour"
Graphic = tuple[str, str, Sequence[tuple[float, float]]]
"""A region as (kind, DICOM's graphic type, vertices (x, y))."""


def write(annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
    """Write ``reports/``, and next to this folder the images as secondary captures."""
    by_film: dict[str, dict[str, list[tuple[int, Drawing]]]] = defaultdict(lambda: defaultdict(list))
    for group, drawing in enumerate(annotations.drawings, start=1):
        if any(_graphics(drawing)):
            by_film[drawing.image_id][drawing.reader].append((group, drawing))
    labels = {(annotations.first_films[one.study_id], one.reader): one for one in annotations.studies}
    for film, image in source_images(annotations, out, IMAGES, pictures):
        for reader, drawings in by_film[film.image_id].items():
            groups = [one for n, drawing in drawings for one in _regions(annotations, image, n, drawing)]
            _write_report(annotations, film, image, reader, groups, out)
        for (image_id, reader), study in labels.items():
            if image_id == film.image_id:
                _write_report(annotations, film, image, reader, _evaluations(annotations, image, study), out)
    lost = {
        "masks; export them with --to dicom-seg": sum(one.mask is not None for one in annotations.drawings),
        "cells, the only content of these drawings": sum(
            one.cell is not None and one.mask is None and not any(_graphics(one)) for one in annotations.drawings
        ),
        "coordinates, rounded to 32 bits": sum(_is_rounded(one) for one in annotations.drawings),
    }
    return [f"{n} drawings’ {what}" for what, n in lost.items() if n]


def _graphics(drawing: Drawing) -> Iterator[Graphic]:
    for point in drawing.points:
        yield POINT, "POINT", [point]
    for x, y, width, height in drawing.boxes:
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        yield BOX, "POLYLINE", corners
    if drawing.mask is None:
        for contour in drawing.polygons:
            yield CONTOUR, "POLYLINE", [*contour, contour[0]]


def _is_rounded(drawing: Drawing) -> bool:
    vertices = [side for _, _, of in _graphics(drawing) for vertex in of for side in vertex]
    return any(_exact(side) != side for side in vertices)


def _exact(side: float) -> float:
    """Return the shortest decimal number for the 32-bit number `side`.

    A number of up to about six digits is read back as it was written.
    """
    return float(str(np.float32(side)))


def _regions(annotations: Annotations, image: Dataset, group: int, drawing: Drawing) -> Iterator[Any]:
    from highdicom import sr
    from pydicom.sr.codedict import codes

    ids = Identifiers(annotations)
    for n, (what, graphic_type, vertices) in enumerate(_graphics(drawing)):
        name = f"{group} {what}" + (f" {drawing.cell}" if drawing.cell else "")
        measured = []
        if drawing.score is not None:
            measured.append(sr.Measurement(_code("SCORE", "Confidence"), drawing.score, codes.UCUM.NoUnits))
        yield sr.PlanarROIMeasurementsAndQualitativeEvaluations(
            sr.TrackingIdentifier(ids.uid("region", drawing.image_id, drawing.reader, str(group), str(n)), name),
            referenced_region=sr.ImageRegion(
                graphic_type, np.array(vertices, dtype=np.float64), sr.SourceImageForRegion.from_source_image(image)
            ),
            finding_type=code_of(drawing.finding, annotations.names),
            measurements=measured or None,
        )


def _evaluations(annotations: Annotations, image: Dataset, study: StudyLabels) -> list[Any]:
    from highdicom import sr
    from pydicom.sr.codedict import codes

    ids = Identifiers(annotations)
    source = [sr.SourceImageForMeasurementGroup.from_source_image(image)]
    groups = []
    for label, value in study.values.items():
        if study.are_probabilities:
            content: dict[str, Any] = {
                "measurements": [sr.Measurement(_code("PROBABILITY", "Probability"), value, codes.UCUM.NoUnits)]
            }
        else:
            present = codes.SCT.Present if value else codes.SCT.Absent
            content = {"qualitative_evaluations": [sr.QualitativeEvaluation(_code("PRESENCE", "Presence"), present)]}
        tracked = sr.TrackingIdentifier(ids.uid("label", study.study_id, study.reader, label), label)
        coded = code_of(label, annotations.names)
        groups.append(
            sr.MeasurementsAndQualitativeEvaluations(tracked, finding_type=coded, source_images=source, **content)
        )
    return groups


def _code(value: str, meaning: str) -> CodedConcept:
    from highdicom.sr import CodedConcept

    return CodedConcept(value=value, scheme_designator=SCHEME, meaning=meaning)


def _write_report(
    annotations: Annotations, film: AnnotatedImage, image: Dataset, reader: str, groups: Sequence[Any], out: Path
) -> None:
    from highdicom import sr
    from pydicom.sr.codedict import codes

    ids = Identifiers(annotations)
    is_model = reader == PREDICTION
    who: Any
    if is_model:
        who = sr.DeviceObserverIdentifyingAttributes(ids.uid("model"), name=PREDICTION)
    else:
        who = sr.PersonObserverIdentifyingAttributes(name=person(reader))
    observer = sr.ObserverContext(codes.DCM.Device if is_model else codes.DCM.Person, who)
    context = sr.ObservationContext(
        observer_person_context=None if is_model else observer, observer_device_context=observer if is_model else None
    )
    report = sr.MeasurementReport(
        observation_context=context,
        procedure_reported=_code("RADIOGRAPH", "Chest radiograph"),
        imaging_measurements=list(groups),
    )
    dataset = sr.ComprehensiveSR(
        evidence=[image],
        content=report[0],
        series_instance_uid=ids.uid("reports", film.study_id, reader),
        series_number=200,
        sop_instance_uid=ids.uid("report", film.image_id, reader),
        instance_number=1,
        manufacturer=MANUFACTURER,
        is_complete=True,
        series_description=reader[:64],
    )
    write_object(dataset, out / FILE / f"{annotations.stems[film.image_id]}.{quote(reader, safe='')[:90]}.dcm")


def read(path: Path, known: Annotations) -> Annotations:
    """Read measurement reports (TID 1500), by this package or another program, that refer to images of the split."""
    from highdicom.sr import ComprehensiveSR

    films = Identifiers(known).films(known)
    drawings: dict[object, Drawing] = {}
    studies: dict[tuple[str, str, bool], dict[str, float]] = {}
    n_reports, regions = 0, RegionChecks(known)
    for file in object_files(path, FILE):
        dataset = read_object(file, "SR")
        if dataset is None:
            continue
        n_reports += 1
        with understood(file):
            report: Any = ComprehensiveSR.from_dataset(dataset).content
            film = _film(dataset, file, films, known)
            reader = _reader(report)
            for n, group in enumerate(report.get_planar_roi_measurement_groups()):
                drawing, number = _region(group, film, reader, f"region {n + 1} of {file.name}", regions)
                key = (film.image_id, reader, number or f"{file} {n}")
                drawings[key] = joined(drawings.get(key), drawing)
            for group in report.get_image_measurement_groups():
                label, value, is_probability = _evaluation(group, known)
                studies.setdefault((film.study_id, reader, is_probability), {})[label] = value
    if not n_reports:
        raise ArgumentError("file", "must be DICOM structured reports", path)
    places = {study: n for n, study in enumerate(known.first_films)}
    content = tuple(
        StudyLabels(study, reader, of, is_p)
        for (study, reader, is_p), of in sorted(studies.items(), key=lambda one: places[one[0][0]])
    )
    return replace(known, drawings=in_order(drawings.values(), known), studies=content, notes=regions.notes)


def _film(dataset: Dataset, file: Path, films: Mapping[str, AnnotatedImage], known: Annotations) -> AnnotatedImage:
    evidence = dataset.get("CurrentRequestedProcedureEvidenceSequence") or []
    uids = [
        str(one.ReferencedSOPInstanceUID)
        for study in evidence
        for series in study.ReferencedSeriesSequence
        for one in series.ReferencedSOPSequence
    ]
    matches = [films[uid] for uid in uids if uid in films]
    return matches[0] if matches else known.film_of(file.stem)


def _reader(report: Any) -> str:
    contexts = report.get_observer_contexts()
    names = [one.observer_identifying_attributes.name for one in contexts]
    return str(next((name for name in names if name), "individual")).rstrip("^")


def _region(group: Any, film: AnnotatedImage, reader: str, where: str, regions: RegionChecks) -> tuple[Drawing, str]:
    """Return a group's drawing, and the number that this package gave the drawing ("" in other reports)."""
    words = str(group.tracking_identifier or "").split()
    is_ours = len(words) >= 2 and words[0].isdigit() and words[1] in (POINT, BOX, CONTOUR)
    region = group.roi
    vertices = [(_exact(x), _exact(y)) for x, y in region.value]
    if region.graphic_type.value not in ("POINT", "POLYLINE"):
        raise ArgumentError("file", "must have regions that are points or polylines", region.graphic_type.value)
    what = words[1] if is_ours else POINT if region.graphic_type.value == "POINT" else CONTOUR
    scores = [one.value for one in group.get_measurements(name=_code("SCORE", "Confidence"))]
    (x, y), (right, bottom) = vertices[0], vertices[2 if what == BOX else 0]
    drawing = Drawing(
        film.image_id,
        finding_of_code(group.finding_type, regions.known),
        reader,
        None,
        (regions.contour(film, where, tuple(vertices[:-1])),) if what == CONTOUR else (),
        (regions.box(film, where, (x, y, pixels(right - x), pixels(bottom - y))),) if what == BOX else (),
        regions.points(film, where, tuple(vertices)) if what == POINT else (),
        words[2] if is_ours and len(words) > 2 else None,
        float(scores[0]) if scores else None,
    )
    return drawing, words[0] if is_ours else ""


def _evaluation(group: Any, known: Annotations) -> tuple[str, float, bool]:
    label = finding_of_code(group.finding_type, known)
    measured = group.get_measurements(name=_code("PROBABILITY", "Probability"))
    if measured:
        return label, float(measured[0].value), True
    matches = group.get_qualitative_evaluations(name=_code("PRESENCE", "Presence"))
    return label, float(bool(matches) and str(matches[0].value.CodeMeaning) == "Present"), False
