"""A synthetic download of PadChest-GR: grounded reports, master table, PNG files of 16 bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reveal_bench.phantom.source_films import Corners, Picture, Progress, draw_pictures, start_download, write_csv

__all__ = ["write_padchest_gr"]

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
"""Finding drawn -> label, and the sentence in English and Spanish."""

HEADS = (
    "StudyID", "ImageID", "label", "boxes_count", "extra_boxes_count", "locations", "prior_study", "progression_status",
    "prior_imageID", "sentence_en", "sentence_es", "study_is_benchmark", "study_is_validation", "split", "PatientID",
    "patient_is_benchmark", "PatientBirth", "PatientSex_DICOM", "StudyDate_DICOM", "StudyDate", "PatientAge",
    "label_group", "Year",
)  # fmt: skip


def write_padchest_gr(
    out: Path, *, n_images: int, seed: int, long_side: int = 2000, traps: bool = True, progress: Progress | None = None
) -> None:
    """``grounded_reports_20240819.json``, ``master_table.csv`` and ``Padchest_GR_files``.

    With `traps`, a picture of an earlier study has the name of another one, sentences that are not abnormal lack keys,
    and there are a label that is no finding and a finding without a box.
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
    found: list[dict[str, Any]] = []
    for finding, (label, english, spanish) in SENTENCES.items():
        boxes = [_relative(box, picture) for box in picture.boxes(finding)]
        if not boxes:
            continue
        second = [_relative(box, picture, rng) for box in picture.boxes(finding)] if rng.random() < 0.5 else []
        found.append(
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
    if traps and found:
        blank: dict[str, Any] = {"boxes": [], "extra_boxes": [], "locations": [], "progression": None, "abnormal": True}
        found.append({**blank, "sentence_en": "Chronic changes.", "sentence_es": "Cambios crónicos.",
                      "labels": ["chronic changes"]})  # fmt: skip
        found.append({**blank, "sentence_en": "Scoliosis.", "sentence_es": "Escoliosis.", "labels": ["scoliosis"]})
    plain = {"sentence_en": "No other findings.", "sentence_es": "Sin otros hallazgos.", "abnormal": False}
    found.append(plain if traps else {**plain, "boxes": [], "extra_boxes": [], "labels": [], "locations": []})
    return found


def _relative(box: Corners, picture: Picture, rng: np.random.Generator | None = None) -> list[float]:
    """Corners from 0 to 1; with `rng`, as a second reader draws them."""
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
