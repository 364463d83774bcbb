"""Several lesions of one finding in a detection folder: annotation files hold each, and give each back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reveal_bench.exchange import FORMS, form_named
from reveal_bench.kinds.cases import AnnotatedImage, Annotations, Drawing
from reveal_bench.kinds.detection.cases import detections_of, drawn_instances
from reveal_bench.kinds.localization.records import Annotation, ImageManifest, LocalizationRecord, ManifestRow
from reveal_bench.masks import encode_mask, rasterize_polygons

BOXES = ((2.0, 3.0, 10.0, 5.0), (20.0, 10.0, 8.0, 8.0))
CONTOURS = (((4.0, 5.0), (10.0, 5.0), (7.0, 7.0)), ((22.0, 12.0), (26.0, 12.0), (24.0, 16.0)))  # smaller than the boxes
SIZE = (30, 40)
FILM = AnnotatedImage("a", "s", "p", 40, 30)
KNOWN = Annotations("demo", "1.0", "test", {"a": FILM}, ("Nodule",))
MANIFEST = ImageManifest("demo", "1.0", "test", 8, ("Nodule",), {"a": ManifestRow("a", "s", "", 40, 30, ("Nodule",))})


def drawn(boxes: Any = BOXES, contours: Any = CONTOURS, mask: Any = None) -> Annotations:
    """Return the drawings for annotation tools of one image of a detection folder."""
    rle = encode_mask(mask) if mask is not None else rasterize_polygons(contours, SIZE) if contours else None
    one = Annotation("Nodule", "ground_truth", rle, contours, boxes[0], len(boxes), 90, boxes)
    record = LocalizationRecord("a", "p", "s", "PA", 40, 30, {"Nodule": 1}, (one,))
    return drawn_instances([record], MANIFEST)


def sent(name: str, annotations: Annotations, folder: Path) -> tuple[list[Any], list[str]]:
    """Return the detections that a form gives back, and the losses."""
    form_named(name).write(annotations, folder, {"a": "a.png"})
    return detections_of(form_named(name).read(folder, KNOWN))


@pytest.mark.parametrize("name", FORMS)
def test_each_lesion_comes_back_from_every_form(name: str, tmp_path: Path) -> None:
    detections, losses = sent(name, drawn(), tmp_path)
    assert losses == ["2 drawings without a score: each got 1"]
    if name != "dicom-seg":  # which has masks alone
        assert [one.box for one in detections] == [pytest.approx(box) for box in BOXES]
    if name != "dicom-sr":  # which has boxes alone
        assert [one.mask for one in detections] == [rasterize_polygons([contour], SIZE) for contour in CONTOURS]


@pytest.mark.parametrize("name", ["coco", "cvat", "label-studio", "fiftyone"])
def test_boxes_of_lesions_with_one_mask_come_back(name: str, tmp_path: Path) -> None:
    mask = np.zeros(SIZE, bool)
    mask[3:8, 2:12] = mask[10:18, 20:28] = True
    annotations = drawn(contours=(), mask=mask)
    assert annotations.notes == ("1 mask of several lesions: only their boxes are exported",)
    detections, _ = sent(name, annotations, tmp_path)
    assert [(one.box, one.mask) for one in detections] == [(pytest.approx(box), None) for box in BOXES]


def test_boxes_and_one_lesion_stay_as_they_were() -> None:
    boxes = drawn(contours=()).drawings
    assert [(one.boxes, one.mask) for one in boxes] == [((box,), None) for box in BOXES]
    (single,) = drawn(BOXES[:1], CONTOURS[:1]).drawings
    assert (single.boxes, single.polygons, single.mask) == (
        BOXES[:1],
        CONTOURS[:1],
        rasterize_polygons(CONTOURS[:1], SIZE),
    )


def test_a_mask_of_several_boxes_is_a_detection_for_each_box() -> None:
    united = Drawing("a", "Nodule", "ground_truth", rasterize_polygons(CONTOURS, SIZE), boxes=BOXES, score=0.5)
    detections, losses = detections_of(replace(KNOWN, drawings=(united,)))  # as files of earlier versions have it
    assert [(one.box, one.mask, one.score) for one in detections] == [(box, None, 0.5) for box in BOXES]
    assert losses == ["1 mask of several boxes: each box is a detection"]


@pytest.mark.parametrize(
    ("bbox", "box"),
    [
        ([2, 3, 10, 5], None),  # the bounding box of the contour
        ([2.6, 3, 10, 5.4], None),  # rounded
        ([1, 1, 14, 9], (1, 1, 14, 9)),
        ([0, 0, 0, 0], None),
    ],
)
@pytest.mark.parametrize("is_mask", [False, True])
def test_a_coco_box_beside_a_segmentation_is_kept_if_it_is_another(
    bbox: list[float], box: Any, is_mask: bool, tmp_path: Path
) -> None:
    mask = np.zeros(SIZE, bool)
    mask[3:8, 2:12] = True
    rle = encode_mask(mask)
    segmentation = {"size": list(SIZE), "counts": rle.counts} if is_mask else [[2, 3, 12, 3, 12, 8, 2, 8]]
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 40, "height": 30}],
        "categories": [{"id": 1, "name": "Nodule"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": bbox, "segmentation": segmentation}],
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    (drawing,) = form_named("coco").read(tmp_path / "a.json", KNOWN).drawings
    assert drawing.boxes == (() if box is None else (box,))
    assert drawing.mask == rle if is_mask else len(drawing.polygons) == 1
