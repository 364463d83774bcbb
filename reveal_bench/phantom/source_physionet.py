"""Synthetic downloads of MS-CXR, of VinDr-CXR (PhysioNet) and of its Kaggle edition (VinBigData)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.dicom import write_dicom
from reveal_bench.findings import VINBIGDATA_FINDINGS, VINDR_CXR_FINDINGS, VINDR_GLOBAL_LABELS
from reveal_bench.phantom.radiograph import jpeg_bytes
from reveal_bench.phantom.source_films import Corners, Picture, Progress, draw_pictures, start_download, write_csv

__all__ = ["write_ms_cxr", "write_vinbigdata", "write_vindr_cxr"]

PHRASES = {
    "Atelectasis": ("Atelectasis", "bibasilar atelectasis"),
    "Cardiomegaly": ("Cardiomegaly", "the heart is enlarged"),
    "Consolidation": ("Consolidation", "consolidation in the lower lung"),
    "Edema": ("Edema", "perihilar opacities of oedema"),
    "Airspace Opacity": ("Lung Opacity", "patchy opacity, new since the last film"),
    "Pleural Effusion": ("Pleural Effusion", "moderate pleural effusion"),
    "Pneumothorax": ("Pneumothorax", "apical pneumothorax"),
}
"""Finding drawn -> category and phrase."""

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
"""Chance that a reader sees a finding, and how much each side of a box differs, relative to the picture."""


def write_ms_cxr(
    out: Path, *, n_images: int, seed: int, long_side: int = 2544, traps: bool = True, progress: Progress | None = None
) -> None:
    """CSV and COCO JSON of version 1.1.0, and a tree of MIMIC-CXR-JPG in ``pictures`` with its metadata.

    With `traps`, coordinates of the JSON have decimals that the CSV cuts off, and a picture has two entries.
    """
    out = start_download(out, "ms-cxr", n_images=n_images, long_side=long_side)
    table: list[list[Any]] = []
    coco: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    coco["categories"] = [{"id": i, "name": name} for i, (name, _) in enumerate(PHRASES.values(), start=1)]
    ids = {entry["name"]: entry["id"] for entry in coco["categories"]}
    metadata: list[list[Any]] = []
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, progress=progress):
        dicom_id, path = _mimic_path(picture, seed)
        _write_bytes(out / "pictures" / path, jpeg_bytes(picture.grey, quality=95))
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
    heads = [
        "dicom_id",
        "category_name",
        "label_text",
        "path",
        "x",
        "y",
        "w",
        "h",
        "image_width",
        "image_height",
        "split",
    ]
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


def _write_bytes(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@dataclass
class _Tables:
    """Rows of boxes and of labels of one split."""

    boxes: list[list[Any]] = field(default_factory=list)
    labels: list[list[Any]] = field(default_factory=list)


def write_vindr_cxr(
    out: Path, *, n_images: int, seed: int, long_side: int = 2880, traps: bool = True, progress: Progress | None = None
) -> None:
    """The PhysioNet edition: a third of the images, at least one, is the test set.

    With `traps`, a file of train has no pixel data, another no meta header, and some are MONOCHROME1.
    """
    out = start_download(out, "vindr-cxr", n_images=n_images, long_side=long_side)
    n_test = max(1, n_images // 3)
    tables = {"train": _Tables(), "test": _Tables()}
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, progress=progress):
        split = "test" if picture.number < n_test else "train"
        image_id = _image_id(picture, seed)
        trap = {n_test: "no pixels", n_test + 1: "no meta header"}.get(picture.number, "") if traps else ""
        _save_dicom(out / split / f"{image_id}.dicom", picture, trap, inverted=traps and picture.number % 5 == 0)
        for reader, found in _readers(picture, split, seed):
            boxes = [(label, box) for label, own in found.items() for box in own]
            start = [image_id, *([reader] if reader else [])]
            tables[split].boxes += [[*start, label, *box] for label, box in boxes] or [
                [*start, "No finding", *[""] * 4]
            ]
            present = [int(label in found) for label in VINDR_CXR_FINDINGS]
            tables[split].labels.append([*start, *present, 0, 0, 0, 0, 0, int(not found)])
    for split, rows in tables.items():
        start = ["image_id", *(["rad_id"] if split == "train" else [])]
        write_csv(out / "annotations" / f"annotations_{split}.csv", [*start, "class_name", *BOX], rows.boxes)
        names = [*VINDR_CXR_FINDINGS, *VINDR_GLOBAL_LABELS]
        if split == "test":  # the two real tables spell it differently
            names[names.index("Other diseases")] = "Other disease"
        write_csv(out / "annotations" / f"image_labels_{split}.csv", [*start, *names], rows.labels)


def write_vinbigdata(
    out: Path, *, n_images: int, seed: int, long_side: int = 2880, traps: bool = True, progress: Progress | None = None
) -> None:
    """The Kaggle edition: ``train.csv`` and ``train/*.dicom``; with `traps`, a test image without labels."""
    out = start_download(out, "vinbigdata", n_images=n_images, long_side=long_side)
    rows: list[list[Any]] = []
    codes = {label: i for i, label in enumerate((*VINBIGDATA_FINDINGS, "No finding"))}
    for picture in draw_pictures(n_images, seed=seed, long_side=long_side, progress=progress):
        image_id = _image_id(picture, seed)
        _save_dicom(out / "train" / f"{image_id}.dicom", picture, "", inverted=traps and picture.number % 5 == 0)
        for reader, found in _readers(picture, "train", seed):
            boxes = [(label if label in codes else "Other lesion", box) for label, own in found.items() for box in own]
            rows += [[image_id, label, codes[label], reader, *box] for label, box in boxes] or [
                [image_id, "No finding", codes["No finding"], reader, *[""] * 4]
            ]
        if traps and picture.number == 0:
            _save_dicom(out / "test" / f"{image_id[::-1]}.dicom", picture, "", inverted=False)
    write_csv(out / "train.csv", ["image_id", "class_name", "class_id", "rad_id", *BOX], rows)


def _image_id(picture: Picture, seed: int) -> str:
    return hashlib.md5(f"vindr {seed} {picture.number}".encode(), usedforsecurity=False).hexdigest()


def _readers(picture: Picture, split: str, seed: int) -> list[tuple[str, dict[str, list[Corners]]]]:
    """What each reader drew, by label; the one reader of test, who has no name, drew what is there."""
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
    """A box whose sides were drawn a little elsewhere, inside the picture and at least 4 pixels wide."""
    height, width = picture.size
    moved = np.array(box) + rng.normal(0, JITTER * min(height, width), 4)
    low = np.clip(moved[:2], 0, (width - 5, height - 5))
    high = np.clip(moved[2:], low + 4, (width, height))
    return _rounded([*low, *high])


def _save_dicom(path: Path, picture: Picture, trap: str, *, inverted: bool) -> None:
    """12 bits; the headers have no patient, no study and no view, as in the source."""
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
