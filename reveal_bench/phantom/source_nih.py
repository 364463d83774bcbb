"""Synthetic downloads of NIH ChestX-ray14 boxes and of three sets made on its frames: ChestX-Det, RSNA, SIIM-ACR.

Every picture is 1024 x 1024 pixels, as the builders demand; a smaller `long_side` is drawn faster and brought to that.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from reveal_bench.dicom import write_dicom
from reveal_bench.phantom.source_films import FRAME, Picture, Progress, draw_pictures, start_download, write_csv

__all__ = ["write_chestx_det", "write_nih_boxes", "write_rsna_pneumonia", "write_siim_acr"]

NIH_LABELS = {
    "Atelectasis": "Atelectasis",
    "Cardiomegaly": "Cardiomegaly",
    "Pleural Effusion": "Effusion",
    "Airspace Opacity": "Infiltrate",
    "Lung Lesion": "Nodule",
    "Consolidation": "Pneumonia",
    "Pneumothorax": "Pneumothorax",
}
"""Finding drawn -> label in the list of boxes; a lesion of more than :data:`MASS` pixels is a "Mass"."""
MASS = 90
CHESTX_DET_LABELS = {**NIH_LABELS, "Airspace Opacity": "Fibrosis", "Consolidation": "Consolidation"}
ENTRY_HEADS = (
    "Image Index", "Finding Labels", "Follow-up #", "Patient ID", "Patient Age", "Patient Gender", "View Position",
    "OriginalImage[Width", "Height]", "OriginalImagePixelSpacing[x", "y]", "",
)  # fmt: skip
SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
UID_ROOT = "1.2.276.0.7230010.3.1"
"""The challenges' UIDs begin with it."""


def write_nih_boxes(
    out: Path, *, n_images: int, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """``BBox_List_2017.csv``, ``Data_Entry_2017.csv`` and the PNG files; with `traps`, pictures without a box too."""
    out = start_download(out, "nih-boxes", n_images=n_images, long_side=long_side)
    boxes: list[list[Any]] = []
    entries: list[list[Any]] = []
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, frame=FRAME, progress=progress):
        name = f"{picture.film.study.index + 1:08d}_{picture.film.number - 1:03d}.png"
        own = _nih_rows(picture, name)
        boxes += own
        if own or traps:
            _save_png(out / f"images_{picture.number % 2 + 1:03d}" / "images" / name, picture)
        entries.append(_nih_entry(picture, name, own))
    # three columns of the real header have no name and no values
    text = "Image Index,Finding Label,Bbox [x,y,w,h],,,\n" + "".join(
        ",".join(map(str, row)) + "\n" for row in sorted(boxes, key=lambda row: row[1])
    )
    (out / "BBox_List_2017.csv").write_text(text, encoding="utf-8")
    write_csv(out / "Data_Entry_2017.csv", ENTRY_HEADS, entries)


def _nih_rows(picture: Picture, name: str) -> list[list[Any]]:
    rows = []
    for finding, label in NIH_LABELS.items():
        for left, top, right, bottom in picture.boxes(finding)[:1]:
            is_mass = label == "Nodule" and max(right - left, bottom - top) > MASS
            rows.append([name, "Mass" if is_mass else label, left, top, right - left, bottom - top])
    return rows


def _nih_entry(picture: Picture, name: str, boxes: list[list[Any]]) -> list[Any]:
    study = picture.film.study
    labels = "|".join(dict.fromkeys(str(row[1]).replace("Infiltrate", "Infiltration") for row in boxes)) or "No Finding"
    facts = [study.index + 1, study.age, study.sex[0], picture.film.view, 2500, 2048, 0.168, 0.168, ""]
    return [name, labels, picture.film.number - 1, *facts]


def write_chestx_det(
    out: Path, *, n_images: int, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """``ChestX_Det_test.json``, and the PNG files in ``pictures``, which the real download does not hold."""
    out = start_download(out, "chestx-det", n_images=n_images, long_side=long_side)
    entries = []
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, frame=FRAME, progress=progress):
        name = f"{36200 + picture.number}.png"
        entry: dict[str, Any] = {"file_name": name, "syms": [], "boxes": [], "polygons": []}
        for finding, label in CHESTX_DET_LABELS.items():
            for contour, box in zip(picture.contours.get(finding, ()), picture.boxes(finding), strict=False):
                entry["syms"].append(label)
                entry["boxes"].append([int(value) for value in box])
                entry["polygons"].append(np.clip(np.rint(contour), 0, FRAME).astype(int).tolist())
        entries.append(entry)
        _save_png(out / "pictures" / name, picture)
    (out / "ChestX_Det_test.json").write_text(json.dumps(entries), encoding="utf-8")


def write_rsna_pneumonia(
    out: Path, *, n_images: int, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """The challenge's stage 2; with `traps`, a test image without labels, and images of one patient under two ids."""
    out = start_download(out, "rsna-pneumonia", n_images=n_images, long_side=long_side)
    labels: list[list[Any]] = []
    classes: list[list[Any]] = []
    mapping: list[dict[str, str]] = []
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, frame=FRAME, progress=progress):
        name = str(_uuid(seed, picture.number, "rsna"))
        _save_dicom(out / "stage_2_train_images" / f"{name}.dcm", picture, _uid(seed, picture.number, 4), name)
        boxes = [] if "Airspace Opacity" not in picture.contours else picture.boxes("Airspace Opacity")
        corners = [[round(v, 1) for v in (x0, y0, x1 - x0, y1 - y0)] for x0, y0, x1, y1 in boxes]
        labels += [[name, *box, 1] for box in corners] or [[name, "", "", "", "", 0]]
        kind = "Lung Opacity" if boxes else "No Lung Opacity / Not Normal" if picture.contours else "Normal"
        classes += [[name, kind]] * max(len(boxes), 1)
        nih = f"{picture.film.study.index + 1:08d}_{picture.film.number - 1:03d}.png"
        mapping.append({"img_id": nih, "subset_img_id": name, "SOPInstanceUID": _uid(seed, picture.number, 4)})
        if traps and picture.number == 0:
            _save_dicom(
                out / "stage_2_test_images" / f"{_uuid(seed, 0, 'test')}.dcm", picture, _uid(seed, 0, 9), "test"
            )
    write_csv(out / "stage_2_train_labels.csv", ["patientId", "x", "y", "width", "height", "Target"], labels)
    write_csv(out / "stage_2_detailed_class_info.csv", ["patientId", "class"], classes)
    (out / "pneumonia-challenge-dataset-mappings_2018.json").write_text(json.dumps(mapping), encoding="utf-8")


def write_siim_acr(
    out: Path, *, n_images: int, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """``train-rle.csv`` and the DICOM files nested by UIDs; with `traps`, a mask in two rows that overlap."""
    out = start_download(out, "siim-acr", n_images=n_images, long_side=long_side)
    rows: list[list[str]] = []
    options: dict[str, Any] = {"long_side": long_side, "frame": FRAME, "ensure": "Pneumothorax", "progress": progress}
    for picture in draw_pictures(n_images, seed=seed, **options):
        study, series, image = (_uid(seed, picture.number, kind) for kind in (2, 3, 4))
        path = out / "dicom-images-train" / study / series / f"{image}.dcm"
        _save_dicom(path, picture, image, str(_uuid(seed, picture.film.study.index, "patient")))
        masks = [_filled(contour) for contour in picture.contours.get("Pneumothorax", ())]
        if traps and picture.number == 0:
            masks.append(np.roll(masks[0], 20, axis=0))  # a second region, partly over the first
        blank = "-1" if picture.number % 2 else " -1"  # both occur
        rows += [[image, _relative(mask)] for mask in masks] or [[image, blank]]
    write_csv(out / "train-rle.csv", ["ImageId", " EncodedPixels"], rows)


def _filled(contour: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    image = Image.new("1", (FRAME, FRAME))
    ImageDraw.Draw(image).polygon([(x, y) for x, y in contour.tolist()], fill=1, outline=1)
    return np.asarray(image)


def _relative(mask: npt.NDArray[np.bool_]) -> str:
    """Pairs of a gap and a length, column by column: the challenge's own code."""
    flat = np.concatenate([[False], mask.ravel(order="F"), [False]])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return " ".join(map(str, np.diff(edges, prepend=0).tolist()))


def _save_png(path: Path, picture: Picture) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture.grey).save(path, "PNG", compress_level=1)


def _save_dicom(path: Path, picture: Picture, sop_uid: str, patient_id: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    attributes = {
        "SOPClassUID": SECONDARY_CAPTURE,
        "SOPInstanceUID": sop_uid,
        "Modality": "CR",
        "PatientID": patient_id,
        "ViewPosition": picture.film.view,
        "PixelSpacing": [0.168, 0.168],  # of the original, before it was made smaller
    }
    write_dicom(path, picture.grey, attributes, bits_stored=8)


def _uuid(seed: int, number: int, what: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"reveal-bench/phantom/{what}/{seed}/{number}")


def _uid(seed: int, number: int, kind: int) -> str:
    return f"{UID_ROOT}.{kind}.8323329.{1000 + number}.{1517875160 + seed}.{100000 + 17 * number}"
