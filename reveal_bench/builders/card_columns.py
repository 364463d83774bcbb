"""What every column of a dataset folder means, and what every config is for: one table for card and Croissant."""

from __future__ import annotations

__all__ = ["COLUMNS", "CONFIGS"]

COLUMNS = {
    # an image, a study, a task
    "image": "file bytes of the radiograph (null where pixels are withheld)",
    "images": "file bytes of the study's radiographs, in the order of `image_ids` (null where pixels are withheld)",
    "image_id": "id of the radiograph; predictions name it",
    "image_ids": "ids of the study's radiographs",
    "patient_id": "pseudonym of the patient; resampling and splits keep patients whole",
    "study_id": "id of the study",
    "view": "projection",
    "views": "projection of each radiograph",
    "view_raw": "projection as the source writes it",
    "width": "pixels, of the grid that was annotated",
    "height": "pixels, of the grid that was annotated",
    "source_sha256": "sha256 of the picture file in the source download",
    "pixel_sha256": "sha256 of its decoded 8-bit grey pixels, row by row",
    "pixel_pipeline": "how the published pixels were made from the source's",
    "spacing_mm": "row and column spacing in mm, where known",
    "spacing_source": "which header field the spacing is from",
    # references of an image
    "labels": "findings that are present",
    "label_status": "per finding 1 present, 0 absent, -1 uncertain, null unlabelled",
    "annotations": (
        "per finding and reader: mask (COCO run lengths), contours (x, y), tight box, instances drawn, area, boxes as "
        "the source draws them"
    ),
    "points": "most representative point (x, y) of a finding, per reader",
    "missing": "findings that are present but were not drawn: unknown masks, not empty ones",
    # references of a study
    "label_vector": "per label, in the order of the label codes, 1 present and 0 absent",
    "agreement": "how many of the three readers agreed to all labels (null where it is unknown)",
    "n_agree_all": "readers who agreed to all labels",
    "manufacturer": "of the equipment, normalised spelling, where all radiographs of the study share it",
    "model": "of the equipment, normalised spelling, where all radiographs of the study share it",
    "age_band": "ten-year band of the patient's age; no age in years is kept",
    "sex": "of the patient, as recorded",
    "race": "of the patient, as recorded",
    "patient_class": "inpatient, outpatient or emergency",
    "image_facts": "per radiograph: id, size, view, equipment, exposure, spacing, hashes, pixel pipeline",
    # tasks
    "task_id": "id of the task; predictions name it",
    "prior_image_ids": "ids of the radiographs of an earlier study",
    "prior_images": "file bytes of those radiographs (null where pixels are withheld)",
    "prior_image_facts": "the same as `image_facts`, of the earlier study",
    "prompt": "what the model is asked",
    "indication": "reason for the examination as the referring physician wrote it",
    "category": "kind of question",
    "temporal": "whether the answer needs the earlier study",
    "tags": "eight lists: region, pathology, imaging finding, laterality, intent, time, question type, subtype",
    "question_scores": "1 to 5 of the question itself: clinical relevance, answerability, complexity, clarity",
    "risk_flag": "whether the question was judged risky",
    "requires_boxes": "whether the answer must localize",
    "reference_answer": "the answer of a radiologist",
    "reference_boxes": "its boxes, [x, y, width, height] in pixels of `image_id`",
    # side tables
    "label": "the finding, as a code",
    "mask": "picture of the ground-truth mask: 255 where the finding is, 0 elsewhere",
    "reader": "who rated",
    "process": "score 1 to 5",
    "execution": "score 1 to 5",
    "synthesis": "score 1 to 5",
    "language": "score 1 to 5",
    "image_content": "score 1 to 5",
    "image_style": "score 1 to 5",
    "criterion": "name of the criterion",
    "score": "1 to 5",
    "description": "what the score means",
    "name": "the label as the benchmark prints it",
    "definition": "what it means",
    "radlex": "RadLex code",
    "snomed": "SNOMED CT code",
    "loinc": "LOINC part code",
}
"""Column -> meaning. `model` of the config `ratings` is the model that answered, which CONFIGS says."""

CONFIGS = {
    "localization": "references and pictures, one row per image",
    "multilabel": "labels and pictures, one row per study",
    "tasks": "prompts, pictures and reference answers, one row per task",
    "masks": "ground-truth masks as pictures, to look at: one row per image and finding; scores use the run lengths",
    "holdout_inputs": "the holdout as a model sees it: the columns of the main config, every reference empty",
    "labels": "the labels with definitions and codes",
    "ratings": "readers' scores of models' answers, one row per task, model and reader",
    "rubric": "what the scores mean",
    "phrases": "phrases of the reports that were marked, each with its box",
    "image_labels": "labels of the whole image, per image and reader",
    "classes": "the class of each image as the source gives it",
    "sentences": "sentences of the reports with everything the source says of them, boxes in pixels",
    "mrale": "modified RALE score per study",
    "manifest": "what is asked of each split; public for every split",
}
