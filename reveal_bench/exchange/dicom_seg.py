"""Write and read DICOM segmentations: masks as binary segments, one file per image and reader.

A segment is one drawing, and the segment's label is the finding. The reader is the content creator. A model's segments
are marked as automatic, a reader's segments as manual. Confidence and cell are in the segment's description. A
segmentation cannot store points, boxes and contours, for which there is :mod:`reveal_bench.exchange.dicom_sr`, or empty
masks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.dicom_objects import (
    MANUFACTURER,
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
from reveal_bench.exchange.shapes import finite
from reveal_bench.kinds.cases import PREDICTION, AnnotatedImage, Annotations, Drawing
from reveal_bench.masks import Rle, decode_mask, encode_mask, pack_masks
from reveal_bench.version import __version__

if TYPE_CHECKING:
    from pydicom import Dataset

FILE, IMAGES = "segmentations", "images"


def write(annotations: Annotations, out: Path, pictures: Mapping[str, str]) -> list[str]:
    """Write ``segmentations/`` with a file per image and reader, and beside it the images as secondary captures."""
    if annotations.studies:
        raise ArgumentError(
            "to", "must be a form that can store labels of studies", "dicom-seg, which stores only masks"
        )
    by_film: dict[str, dict[str, list[tuple[Drawing, Rle]]]] = defaultdict(lambda: defaultdict(list))
    n_empty = 0
    for drawing in annotations.drawings:
        if drawing.mask is not None and pack_masks([drawing.mask]).areas[0]:
            by_film[drawing.image_id][drawing.reader].append((drawing, drawing.mask))
        n_empty += drawing.mask is not None and not pack_masks([drawing.mask]).areas[0]
    if annotations.drawings and not by_film:
        raise ArgumentError("to", "must be a form that can store these drawings", "dicom-seg, which stores only masks")
    for film, image in source_images(annotations, out, IMAGES, pictures):
        for reader, drawings in by_film[film.image_id].items():
            dataset = _segmentation(annotations, film, image, reader, drawings)
            write_object(dataset, out / FILE / f"{annotations.stems[film.image_id]}.{quote(reader, safe='')[:90]}.dcm")
    others = {
        f"{n_empty} empty masks, because a segment must have pixels": n_empty,
        "points; export them with --to dicom-sr": sum(bool(one.points) for one in annotations.drawings),
        "boxes; export them with --to dicom-sr": sum(bool(one.boxes) for one in annotations.drawings),
        "contours": sum(bool(one.polygons) for one in annotations.drawings),
        "cells of drawings without a mask": sum(one.cell is not None and not one.mask for one in annotations.drawings),
    }
    return [part if part.startswith(str(n)) else f"{n} drawings’ {part}" for part, n in others.items() if n]


def _segmentation(
    annotations: Annotations, film: AnnotatedImage, image: Dataset, reader: str, drawings: list[tuple[Drawing, Rle]]
) -> Dataset:
    import highdicom as hd
    from pydicom.sr.codedict import codes

    ids = Identifiers(annotations)
    is_model = reader == PREDICTION
    algorithm = hd.AlgorithmIdentificationSequence(PREDICTION, codes.DCM.ArtificialIntelligence, __version__)
    segments = [
        hd.seg.SegmentDescription(
            segment_number=n,
            segment_label=drawing.finding[:64],
            segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
            segmented_property_type=code_of(drawing.finding, annotations.names),
            algorithm_type="AUTOMATIC" if is_model else "MANUAL",
            algorithm_identification=algorithm if is_model else None,
            tracking_id=f"{film.image_id} {drawing.finding} {n}"[:64],
            tracking_uid=ids.uid("segment", film.image_id, reader, str(n)),
        )
        for n, (drawing, _) in enumerate(drawings, start=1)
    ]
    for segment, (drawing, _) in zip(segments, drawings, strict=True):
        facts = {key: value for key, value in (("score", drawing.score), ("cell", drawing.cell)) if value is not None}
        if facts:
            segment.SegmentDescription = json.dumps(facts)
    masks = np.stack([decode_mask(mask) for _, mask in drawings], axis=-1)[np.newaxis].astype(np.uint8)
    dataset = hd.seg.Segmentation(
        source_images=[image],
        pixel_array=masks,
        segmentation_type="BINARY",
        segment_descriptions=segments,
        series_instance_uid=ids.uid("segmentations", film.study_id, reader),
        series_number=100,
        sop_instance_uid=ids.uid("segmentation", film.image_id, reader),
        instance_number=1,
        content_label="SEGMENTATION",
        content_description=f"{annotations.benchmark} {annotations.version}"[:64],
        content_creator_name=person(reader),
        series_description=reader[:64],
        manufacturer=MANUFACTURER,
        manufacturer_model_name="reveal-bench convert",
        software_versions=__version__,
        device_serial_number="0",
    )
    dataset.PatientOrientation = image.PatientOrientation  # DICOM requires this for images without a position in space
    for element in dataset.iterall():
        if element.keyword == "DimensionOrganizationUID":  # highdicom would choose a random one
            element.value = ids.uid("dimensions", film.image_id, reader)
    return dataset


def read(path: Path, known: Annotations) -> Annotations:
    """Read binary segmentations, written by this package or another program, that refer to images of the split."""
    films = Identifiers(known).films(known)
    drawings: list[Drawing] = []
    for file in object_files(path, FILE):
        dataset = read_object(file, "SEG")
        if dataset is not None:
            with understood(file):
                drawings += _drawings(dataset, file, films, known)
    if not drawings:
        raise ArgumentError("file", "must be DICOM segmentations", path)
    return replace(known, drawings=in_order(drawings, known), studies=())


def _drawings(dataset: Dataset, file: Path, films: Mapping[str, AnnotatedImage], known: Annotations) -> list[Drawing]:
    """Return one drawing per segment that has a frame."""
    from pydicom.pixels.utils import iter_pixels

    if dataset.SegmentationType != "BINARY":
        raise ArgumentError("file", "must be a binary segmentation", f"{dataset.SegmentationType.lower()} in {file}")
    creator = str(dataset.get("ContentCreatorName") or "").rstrip("^")
    segments = {int(one.SegmentNumber): one for one in dataset.SegmentSequence}
    of_frames = [
        (groups, _film(dataset, groups, file, films, known)) for groups in dataset.PerFrameFunctionalGroupsSequence
    ]
    for _, film in of_frames:  # check before memory is allocated for pixels
        if (dataset.Rows, dataset.Columns) != (film.height, film.width):
            size = f"{film.width} x {film.height} pixels"
            rule = f"must have masks of the size of their image, {film.image_id} has {size}"
            raise ArgumentError("file", rule, f"{dataset.Columns} x {dataset.Rows} in {file}")
    masks: dict[tuple[str, int], np.ndarray[Any, Any]] = {}
    for frame, (groups, film) in zip(iter_pixels(dataset), of_frames, strict=True):
        number = int(_shared_or_own(dataset, groups, "SegmentIdentificationSequence").ReferencedSegmentNumber)
        before = masks.get((film.image_id, number))
        masks[film.image_id, number] = frame != 0 if before is None else before | (frame != 0)
    return [
        _drawing(segments[n], image_id, mask, creator, known)
        for (image_id, n), mask in sorted(masks.items(), key=lambda one: one[0][1])
    ]


def _drawing(segment: Any, image_id: str, mask: np.ndarray[Any, Any], creator: str, known: Annotations) -> Drawing:
    finding = finding_of_code(segment.SegmentedPropertyTypeCodeSequence[0], known, segment.SegmentLabel)
    is_model = segment.SegmentAlgorithmType == "AUTOMATIC"
    facts = _parse_description(str(segment.get("SegmentDescription") or ""))
    score = facts.get("score")
    return Drawing(
        image_id,
        finding,
        creator or (PREDICTION if is_model else "individual"),
        encode_mask(mask),
        cell=facts.get("cell"),
        score=None if score is None else finite(score, "score"),
    )


def _parse_description(description: str) -> dict[str, Any]:
    """Return the facts that this package wrote into a segment's description; text by other programs is ignored."""
    try:
        value = json.loads(description)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _shared_or_own(dataset: Dataset, groups: Dataset, name: str) -> Any:
    """Return the item of a functional group that is either shared by all frames or given per frame."""
    own = groups.get(name) or dataset.SharedFunctionalGroupsSequence[0].get(name)
    if not own:
        raise ArgumentError("file", f"must have {name} for every frame", str(dataset.SOPInstanceUID))
    return own[0]


def _film(
    dataset: Dataset, groups: Dataset, file: Path, films: Mapping[str, AnnotatedImage], known: Annotations
) -> AnnotatedImage:
    """Return the image from which a frame was derived, or the only image to which the file refers."""
    derived = groups.get("DerivationImageSequence") or []
    uids = [str(source.ReferencedSOPInstanceUID) for one in derived for source in one.get("SourceImageSequence", [])]
    if not uids:
        series = dataset.get("ReferencedSeriesSequence") or []
        uids = [str(one.ReferencedSOPInstanceUID) for part in series for one in part.ReferencedInstanceSequence]
    matches = [films[uid] for uid in uids if uid in films]
    return matches[0] if matches else known.film_of(file.stem)
