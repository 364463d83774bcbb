"""Write synthetic downloads of further localization sources, each in the layout of the real download.

Names, columns, id styles and traps are as in the real downloads; images and boxes are drawn. If a real download lacks
images and its source accepts ``pictures`` (MS-CXR, ChestX-Det), the images are written to the folder ``pictures``.

Each function is ``write(out, n_images, *, seed, long_side, traps=True, progress=None)``; `progress` gets (done, all).
Images of NIH ChestX-ray14, and of the three datasets derived from it (ChestX-Det, RSNA, SIIM-ACR), have 1024 x 1024
pixels, as the sources require. With a smaller `long_side`, images are drawn faster and then enlarged.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from reveal_bench.dicom import write_dicom
from reveal_bench.findings import VINBIGDATA_FINDINGS, VINDR_CXR_FINDINGS, VINDR_GLOBAL_LABELS
from reveal_bench.phantom.folders import write_csv
from reveal_bench.phantom.radiograph import jpeg_bytes
from reveal_bench.phantom.source_films import (
    FRAME,
    Corners,
    Picture,
    Progress,
    draw_pictures,
    start_download,
)

NIH_LABELS = {
    "Atelectasis": "Atelectasis",
    "Cardiomegaly": "Cardiomegaly",
    "Pleural Effusion": "Effusion",
    "Airspace Opacity": "Infiltrate",
    "Lung Lesion": "Nodule",
    "Consolidation": "Pneumonia",
    "Pneumothorax": "Pneumothorax",
}
"""Drawn finding -> label in the list of boxes; a lesion of more than :data:`MASS` pixels is a "Mass"."""
MASS = 90
CHESTX_DET_LABELS = {**NIH_LABELS, "Airspace Opacity": "Fibrosis", "Consolidation": "Consolidation"}
ENTRY_HEADS = (
    "Image Index", "Finding Labels", "Follow-up #", "Patient ID", "Patient Age", "Patient Gender", "View Position",
    "OriginalImage[Width", "Height]", "OriginalImagePixelSpacing[x", "y]", "",
)  # fmt: skip
SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
UID_ROOT = "1.2.276.0.7230010.3.1"
"""Prefix of the UIDs in the RSNA and SIIM-ACR challenges."""


def write_nih_boxes(
    out: Path, n_images: int, *, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write ``BBox_List_2017.csv``, ``Data_Entry_2017.csv`` and the PNG files; with `traps`, some without a box."""
    out = start_download(out, "nih-boxes", n_images=n_images, long_side=long_side)
    boxes: list[list[Any]] = []
    entries: list[list[Any]] = []
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, frame=FRAME, progress=progress):
        name = f"{picture.film.study.index + 1:08d}_{picture.film.number - 1:03d}.png"
        own = _nih_rows(picture, name)
        boxes += own
        if own or traps:
            _save_png(out / f"images_{picture.number % 2 + 1:03d}" / "images" / name, picture.grey)
        entries.append(_nih_entry(picture, name, own))
    # three columns of the real table have neither names nor values
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
    out: Path, n_images: int, *, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write ``ChestX_Det_test.json``, and the PNG files in ``pictures``, which the real download lacks."""
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
        _save_png(out / "pictures" / name, picture.grey)
    (out / "ChestX_Det_test.json").write_text(json.dumps(entries), encoding="utf-8")


def write_rsna_pneumonia(
    out: Path, n_images: int, *, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write the challenge's stage 2; with `traps`, a test image without labels, and a patient under two ids."""
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
    out: Path, n_images: int, *, seed: int, long_side: int = FRAME, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write ``train-rle.csv`` and the DICOM files nested by UIDs; with `traps`, a mask in two rows that overlap."""
    out = start_download(out, "siim-acr", n_images=n_images, long_side=long_side)
    rows: list[list[str]] = []
    options: dict[str, Any] = {"long_side": long_side, "frame": FRAME, "ensure": "Pneumothorax", "progress": progress}
    for picture in draw_pictures(n_images, seed=seed, **options):
        study, series, image = (_uid(seed, picture.number, kind) for kind in (2, 3, 4))
        path = out / "dicom-images-train" / study / series / f"{image}.dcm"
        _save_dicom(path, picture, image, str(_uuid(seed, picture.film.study.index, "patient")))
        masks = [_filled(contour) for contour in picture.contours.get("Pneumothorax", ())]
        if traps and picture.number == 0:
            masks.append(np.roll(masks[0], 20, axis=0))  # a second region, which overlaps the first
        blank = "-1" if picture.number % 2 else " -1"  # both occur
        rows += [[image, _relative(mask)] for mask in masks] or [[image, blank]]
    write_csv(out / "train-rle.csv", ["ImageId", " EncodedPixels"], rows)


def _filled(contour: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    image = Image.new("1", (FRAME, FRAME))
    ImageDraw.Draw(image).polygon([(x, y) for x, y in contour.tolist()], fill=1, outline=1)
    return np.asarray(image)


def _relative(mask: npt.NDArray[np.bool_]) -> str:
    """Return a mask in the challenge's encoding: pairs of a gap and a length, column by column."""
    flat = np.concatenate([[False], mask.ravel(order="F"), [False]])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    return " ".join(map(str, np.diff(edges, prepend=0).tolist()))


def _save_dicom(path: Path, picture: Picture, sop_uid: str, patient_id: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    attributes = {
        "SOPClassUID": SECONDARY_CAPTURE,
        "SOPInstanceUID": sop_uid,
        "Modality": "CR",
        "PatientID": patient_id,
        "ViewPosition": picture.film.view,
        "PixelSpacing": [0.168, 0.168],  # spacing of the original, before the image was reduced
    }
    write_dicom(path, picture.grey, attributes, bits_stored=8)


def _uuid(seed: int, number: int, what: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"reveal-bench/phantom/{what}/{seed}/{number}")


def _uid(seed: int, number: int, kind: int) -> str:
    return f"{UID_ROOT}.{kind}.8323329.{1000 + number}.{1517875160 + seed}.{100000 + 17 * number}"


SENTENCES = {
    "Atelectasis": ("laminar atelectasis", "Laminar atelectasis.", "Atelectasia laminar."),
    "Cardiomegaly": ("cardiomegaly", "Enlarged heart.", "Corazón aumentado de tamaño."),
    "Consolidation": ("consolidation", "Consolidation.", "Consolidación."),
    "Edema": ("interstitial pattern", "Interstitial pattern.", "Patrón intersticial."),
    "Airspace Opacity": ("infiltrates", "Infiltrates.", "Infiltrados."),
    "Lung Lesion": ("nodule", "Pulmonary nodule.", "Nódulo pulmonar."),
    "Pleural Effusion": ("pleural effusion", "Pleural effusion.", "Derrame pleural."),
    "Pneumothorax": ("pneumothorax", "Pneumothorax.", "Neumotórax."),
    "Enlarged Cardiomediastinum": ("aortic elongation", "Elongated aorta.", "Aorta elongada."),
    "Support Devices": ("central venous catheter", "Central venous catheter.", "Vía central."),
}
"""Drawn finding -> label, and sentences in English and Spanish."""

HEADS = (
    "StudyID", "ImageID", "label", "boxes_count", "extra_boxes_count", "locations", "prior_study", "progression_status",
    "prior_imageID", "sentence_en", "sentence_es", "study_is_benchmark", "study_is_validation", "split", "PatientID",
    "patient_is_benchmark", "PatientBirth", "PatientSex_DICOM", "StudyDate_DICOM", "StudyDate", "PatientAge",
    "label_group", "Year",
)  # fmt: skip


def write_padchest_gr(
    out: Path, n_images: int, *, seed: int, long_side: int = 2000, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write ``grounded_reports_20240819.json``, ``master_table.csv`` and ``Padchest_GR_files``.

    With `traps`, an earlier study's image has the name of another image, sentences about normal findings lack keys, a
    label is not a finding, and a finding has no box.
    """
    out = start_download(out, "padchest-gr", n_images=n_images, long_side=long_side)
    studies = []
    table: list[list[Any]] = []
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, progress=progress):
        study_id = str(216840111366964013829543166512013338135 + 7919 * (picture.number + 1000 * seed))
        image_id = f"{study_id}{picture.number:04d}_02-{picture.number:03d}-102.png"
        rng = np.random.default_rng([seed, picture.number, 9])
        findings = _findings(picture, rng, traps=traps)
        earlier = {"PreviousStudyID": None, "PreviousImageID": None}
        studies.append({"StudyID": study_id, "ImageID": image_id, **earlier, "findings": findings})
        table += [_table_row(picture, study_id, image_id, finding) for finding in findings]
        pixels = picture.grey.astype(np.uint16) * 16 + rng.integers(0, 16, picture.grey.shape, dtype=np.uint16)
        _save_png(out / "Padchest_GR_files" / "PadChest_GR" / image_id, pixels)
        if traps and picture.number == 0:
            _save_png(out / "PadChest_GR_progression_prior_studies" / image_id, pixels[::2, ::2])
    (out / "grounded_reports_20240819.json").write_text(json.dumps(studies, ensure_ascii=False), encoding="utf-8")
    write_csv(out / "master_table.csv", HEADS, table)


def _findings(picture: Picture, rng: np.random.Generator, *, traps: bool) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for finding, (label, english, spanish) in SENTENCES.items():
        boxes = [_corners_as_fractions(box, picture) for box in picture.boxes(finding)]
        if not boxes:
            continue
        second = (
            [_corners_as_fractions(box, picture, rng) for box in picture.boxes(finding)] if rng.random() < 0.5 else []
        )
        entries.append(
            {
                "sentence_en": english,
                "sentence_es": spanish,
                "abnormal": True,
                "boxes": boxes,
                "extra_boxes": second,
                "labels": [label],
                "locations": ["right"] if boxes[0][0] < 0.5 else ["left"],
                "progression": None if rng.random() < 0.8 else "stable",
            }
        )
    if traps and entries:
        blank: dict[str, Any] = {"boxes": [], "extra_boxes": [], "locations": [], "progression": None, "abnormal": True}
        entries.append({**blank, "sentence_en": "Chronic changes.", "sentence_es": "Cambios crónicos.",
                      "labels": ["chronic changes"]})  # fmt: skip
        entries.append({**blank, "sentence_en": "Scoliosis.", "sentence_es": "Escoliosis.", "labels": ["scoliosis"]})
    plain = {"sentence_en": "No other findings.", "sentence_es": "Sin otros hallazgos.", "abnormal": False}
    entries.append(plain if traps else {**plain, "boxes": [], "extra_boxes": [], "labels": [], "locations": []})
    return entries


def _corners_as_fractions(box: Corners, picture: Picture, rng: np.random.Generator | None = None) -> list[float]:
    """Return corners as fractions from 0 to 1; with `rng`, they are moved as if drawn by a second reader."""
    height, width = picture.size
    corners = np.array(box) / (width, height, width, height)
    if rng is not None:
        corners = corners + rng.normal(0, 0.01, 4)
    low = np.clip(corners[:2], 0, 0.98)
    high = np.clip(corners[2:], low + 0.01, 1)
    return [round(float(value), 6) for value in (*low, *high)]


def _table_row(picture: Picture, study_id: str, image_id: str, finding: dict[str, Any]) -> list[Any]:
    study = picture.film.study
    labels, locations = finding.get("labels", []), finding.get("locations", [])
    facts = {
        "StudyID": study_id,
        "ImageID": image_id,
        "label": labels[0] if labels else "",
        "boxes_count": len(finding.get("boxes", [])),
        "extra_boxes_count": len(finding.get("extra_boxes", [])),
        "locations": str(locations),
        "prior_study": False,
        "sentence_en": finding["sentence_en"],
        "sentence_es": finding["sentence_es"],
        "study_is_benchmark": True,
        "study_is_validation": False,
        "split": ("train", "validation", "test")[study.index % 3],
        "PatientID": 839_860_488_694_292_331_637_988_235_681_460_987 + study.index,
        "patient_is_benchmark": True,
        "PatientSex_DICOM": study.sex[0],
        "PatientAge": study.age,
    }
    return [facts.get(head, "") for head in HEADS]


def _save_png(path: Path, pixels: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, "PNG", compress_level=1)


PHRASES = {
    "Atelectasis": ("Atelectasis", "bibasilar atelectasis"),
    "Cardiomegaly": ("Cardiomegaly", "the heart is enlarged"),
    "Consolidation": ("Consolidation", "consolidation in the lower lung"),
    "Edema": ("Edema", "perihilar opacities of oedema"),
    "Airspace Opacity": ("Lung Opacity", "patchy opacity, new since the last film"),
    "Pleural Effusion": ("Pleural Effusion", "moderate pleural effusion"),
    "Pneumothorax": ("Pneumothorax", "apical pneumothorax"),
}
"""Drawn finding -> category and phrase."""

VINDR_LABELS = {
    "Atelectasis": "Atelectasis",
    "Cardiomegaly": "Cardiomegaly",
    "Consolidation": "Consolidation",
    "Edema": "Edema",
    "Airspace Opacity": "Lung Opacity",
    "Lung Lesion": "Nodule/Mass",
    "Pleural Effusion": "Pleural effusion",
    "Pneumothorax": "Pneumothorax",
    "Enlarged Cardiomediastinum": "Aortic enlargement",
}
BOX = ["x_min", "y_min", "x_max", "y_max"]
SEES, JITTER = 0.85, 0.02
"""Probability that a reader sees a finding, and deviation of each side of the reader's box, relative to the image."""


def write_ms_cxr(
    out: Path, n_images: int, *, seed: int, long_side: int = 2544, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write CSV and COCO JSON of version 1.1.0, and a MIMIC-CXR-JPG tree with metadata in ``pictures``.

    With `traps`, coordinates of the JSON have decimals that the CSV truncates, and an image has two entries.
    """
    out = start_download(out, "ms-cxr", n_images=n_images, long_side=long_side)
    table: list[list[Any]] = []
    coco: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    coco["categories"] = [{"id": i, "name": name} for i, (name, _) in enumerate(PHRASES.values(), start=1)]
    ids = {entry["name"]: entry["id"] for entry in coco["categories"]}
    metadata: list[list[Any]] = []
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, progress=progress):
        dicom_id, path = _mimic_path(picture, seed)
        target = out / "pictures" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(jpeg_bytes(picture.grey, quality=95))
        height, width = picture.size
        metadata.append([dicom_id, path.split("/")[2][1:], path.split("/")[3][1:], picture.film.view, height, width])
        split = ("train", "val", "test")[picture.film.study.index % 3]
        entry = {"file_name": f"{dicom_id}.jpg", "path": path, "width": width, "height": height}
        for finding, (category, phrase) in PHRASES.items():
            for x0, y0, x1, y1 in picture.boxes(finding):
                if not coco["images"] or coco["images"][-1]["file_name"] != entry["file_name"] or traps:
                    coco["images"].append({"id": len(coco["images"]) + 1, **entry})
                box = [round(v, 2) if traps else int(v) for v in (x0, y0, x1 - x0, y1 - y0)]
                annotation = {"id": len(table) + 1, "image_id": len(coco["images"]), "category_id": ids[category]}
                coco["annotations"].append({**annotation, "bbox": box, "label_text": phrase, "split": split})
                whole = [int(v) for v in box]
                table.append([dicom_id, category, phrase, path, *whole, width, height, split])
    heads = ["dicom_id", "category_name", "label_text", "path", "x", "y", "w", "h"]
    heads += ["image_width", "image_height", "split"]
    write_csv(out / "MS_CXR_Local_Alignment_v1.1.0.csv", heads, table)
    (out / "MS_CXR_Local_Alignment_v1.1.0.json").write_text(json.dumps(coco), encoding="utf-8")
    names = ["dicom_id", "subject_id", "study_id", "ViewPosition", "Rows", "Columns"]
    write_csv(out / "pictures" / "mimic-cxr-2.0.0-metadata.csv", names, metadata)


def _mimic_path(picture: Picture, seed: int) -> tuple[str, str]:
    study = picture.film.study
    digits = hashlib.sha256(f"mimic {seed} {study.index} {picture.film.number}".encode()).hexdigest()
    dicom_id = "-".join(digits[i : i + 8] for i in range(0, 40, 8))
    subject = 10_000_000 + 17 * study.index
    return dicom_id, f"files/p{str(subject)[:2]}/p{subject}/s{50_000_000 + 13 * study.index}/{dicom_id}.jpg"


@dataclass
class _VindrTables:
    """Rows of one split in the tables of boxes and of labels."""

    boxes: list[list[Any]] = field(default_factory=list)
    labels: list[list[Any]] = field(default_factory=list)


def write_vindr_cxr(
    out: Path, n_images: int, *, seed: int, long_side: int = 2880, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write the PhysioNet edition; the test set is a third of the images, but at least one image.

    With `traps`, one training file has no pixel data, another has no meta header, and some files are MONOCHROME1.
    """
    out = start_download(out, "vindr-cxr", n_images=n_images, long_side=long_side)
    n_test = max(1, n_images // 3)
    tables = {"train": _VindrTables(), "test": _VindrTables()}
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, progress=progress):
        split = "test" if picture.number < n_test else "train"
        image_id = _image_id(picture, seed)
        trap = {n_test: "no pixels", n_test + 1: "no meta header"}.get(picture.number, "") if traps else ""
        _save_deep_dicom(out / split / f"{image_id}.dicom", picture, trap, inverted=traps and picture.number % 5 == 0)
        for reader, boxes_by_label in _readers(picture, split, seed):
            boxes = [(label, box) for label, own in boxes_by_label.items() for box in own]
            start = [image_id, *([reader] if reader else [])]
            tables[split].boxes += [[*start, label, *box] for label, box in boxes] or [
                [*start, "No finding", *[""] * 4]
            ]
            present = [int(label in boxes_by_label) for label in VINDR_CXR_FINDINGS]
            tables[split].labels.append([*start, *present, 0, 0, 0, 0, 0, int(not boxes_by_label)])
    for split, rows in tables.items():
        start = ["image_id", *(["rad_id"] if split == "train" else [])]
        write_csv(out / "annotations" / f"annotations_{split}.csv", [*start, "class_name", *BOX], rows.boxes)
        names = [*VINDR_CXR_FINDINGS, *VINDR_GLOBAL_LABELS]
        if split == "test":  # the two real tables spell labels differently
            names[names.index("Other diseases")] = "Other disease"
        write_csv(out / "annotations" / f"image_labels_{split}.csv", [*start, *names], rows.labels)


def write_vinbigdata(
    out: Path, n_images: int, *, seed: int, long_side: int = 2880, traps: bool = True, progress: Progress | None = None
) -> None:
    """Write the Kaggle edition: ``train.csv`` and ``train/*.dicom``; with `traps`, a test image without labels."""
    out = start_download(out, "vinbigdata", n_images=n_images, long_side=long_side)
    rows: list[list[Any]] = []
    codes = {label: i for i, label in enumerate((*VINBIGDATA_FINDINGS, "No finding"))}
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, progress=progress):
        image_id = _image_id(picture, seed)
        _save_deep_dicom(out / "train" / f"{image_id}.dicom", picture, "", inverted=traps and picture.number % 5 == 0)
        for reader, boxes_by_label in _readers(picture, "train", seed):
            boxes = [
                (label if label in codes else "Other lesion", box)
                for label, own in boxes_by_label.items()
                for box in own
            ]
            rows += [[image_id, label, codes[label], reader, *box] for label, box in boxes] or [
                [image_id, "No finding", codes["No finding"], reader, *[""] * 4]
            ]
        if traps and picture.number == 0:
            _save_deep_dicom(out / "test" / f"{image_id[::-1]}.dicom", picture, "", inverted=False)
    write_csv(out / "train.csv", ["image_id", "class_name", "class_id", "rad_id", *BOX], rows)


def _image_id(picture: Picture, seed: int) -> str:
    return hashlib.md5(f"vindr {seed} {picture.number}".encode(), usedforsecurity=False).hexdigest()


def _readers(picture: Picture, split: str, seed: int) -> list[tuple[str, dict[str, list[Corners]]]]:
    """Return reader -> label -> boxes; the test set has a single reader, without a name, who drew the true boxes."""
    truth = {label: picture.boxes(finding) for finding, label in VINDR_LABELS.items() if finding in picture.contours}
    if split == "test":
        return [("", {label: [_rounded(box) for box in boxes] for label, boxes in truth.items()})]
    rng = np.random.default_rng([seed, picture.number, 7])
    names = [f"R{number}" for number in sorted(rng.choice(np.arange(1, 18), 3, replace=False).tolist())]
    drawn = []
    for name in names:
        seen = {label: boxes for label, boxes in truth.items() if rng.random() < SEES}
        drawn.append((name, {label: [_moved(rng, box, picture) for box in boxes] for label, boxes in seen.items()}))
    return drawn


def _rounded(box: Sequence[float]) -> Corners:
    left, top, right, bottom = (round(float(value), 3) for value in box)
    return left, top, right, bottom


def _moved(rng: np.random.Generator, box: Corners, picture: Picture) -> Corners:
    """Return a box with slightly moved sides, inside the image and at least 4 pixels wide."""
    height, width = picture.size
    moved = np.array(box) + rng.normal(0, JITTER * min(height, width), 4)
    low = np.clip(moved[:2], 0, (width - 5, height - 5))
    high = np.clip(moved[2:], low + 4, (width, height))
    return _rounded([*low, *high])


def _save_deep_dicom(path: Path, picture: Picture, trap: str, *, inverted: bool) -> None:
    """Write an image with 12 bits; as in the source, the header has no patient, study or view."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = picture.grey.astype(np.uint16) * 16
    attributes: dict[str, Any] = {
        "SOPClassUID": "1.2.840.10008.5.1.4.1.1.1",
        "SOPInstanceUID": f"1.2.840.99999999.{picture.number + 1}",
        "Modality": "CR",
        "PatientID": "",
        "ViewPosition": "",
        "PixelSpacing": [0.139, 0.139],
    }
    if trap == "no pixels":
        attributes["PixelData"] = None
    photometric = "MONOCHROME1" if inverted else "MONOCHROME2"
    stored = 4095 - pixels if inverted else pixels
    write_dicom(path, stored, attributes, bits_stored=12, photometric=photometric, meta_header=trap != "no meta header")
