"""Markdown tables of a dataset card, made from tallies; each function fills one place of the templates.

A table whose counts the kind of benchmark does not have is one sentence that says so.

What every column of a dataset folder means, and what every config is for, is one table for card and Croissant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reveal_bench.dataset.tally import ACQUISITION, DEMOGRAPHICS, FindingsTally, LocalizationTally, Tally, TasksTally
from reveal_bench.kinds.findings.records import AGE_BANDS, AGREEMENTS, PATIENT_CLASSES, RACES, SEXES
from reveal_bench.kinds.images import SPACING_SOURCES, VIEWS
from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.tasks.records import CATEGORIES, CRITERIA, QUESTION_SCORES

if TYPE_CHECKING:
    from datasets import Features

__all__ = [
    "COLUMNS",
    "CONFIGS",
    "acquisition_table",
    "agreement_table",
    "categories_table",
    "configs_table",
    "demographics_table",
    "features_table",
    "findings_table",
    "missing_list",
    "ratings_table",
    "splits_table",
    "views_table",
]

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
    "phrase": "words of the report that the box is of",
    "bbox_xywh": "box, [x, y, width, height] in pixels of the radiograph",
    "boxes_xywh": "boxes, each [x, y, width, height] in pixels of the radiograph; none where nothing was drawn",
    "extra_boxes_xywh": "boxes that a second reader drew for the sentence, in the same form",
    "reader_id": "pseudonym of the reader; null for the consensus",
    "class": "class of the whole image, as the source names it",
    "sentence_en": "sentence of the report in English",
    "sentence_es": "sentence of the report in Spanish",
    "abnormal": "whether the sentence tells of a finding",
    "locations": "anatomical places that the sentence names, as the source writes them",
    "progression": "change since an earlier study, where the sentence tells of one",
    "mrale_score": "modified RALE score of the lungs' opacities, 0 to 24",
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


Tallies = Mapping[str, Tally]
VOCABULARIES = {"age_band": AGE_BANDS, "sex": SEXES, "race": RACES, "patient_class": PATIENT_CLASSES}
LONG_VOCABULARY = 20
"""Findings up to which one that never occurs has a row of its own."""
MOST_VALUES = 12
"""Values of an acquisition fact that are listed one by one; the rest are counted together."""


def splits_table(tallies: Tallies, n_holdout: int | None) -> str:
    """Rows, images, studies, patients and questions per split."""
    plural = {"LocalizationTally": None, "FindingsTally": "studies", "TasksTally": "tasks"}
    unit = next((plural[type(tally).__name__] for tally in tallies.values()), None)
    heads = ["split", *([unit] if unit == "tasks" else []), "images", "studies", "patients", "questions", "references"]
    rows: list[list[object]] = []
    for split, tally in tallies.items():
        counts = [len(tally.images), len(tally.studies), len(tally.patients), tally.n_asked]
        rows.append([f"`{split}`", *([tally.n_rows] if unit == "tasks" else []), *counts, "public"])
    if n_holdout is not None:
        counted = {None: "images", "studies": "studies", "tasks": "tasks"}[unit]
        cells = {"split": "`holdout`", counted: n_holdout, "references": "private"}
        rows.append([cells.get(head, "") for head in heads])
    return _table(heads, rows)


def configs_table(configs: Sequence[tuple[str, Mapping[str, tuple[int, int]]]]) -> str:
    """Rows per config and split; `configs` are (name, split -> (rows, bytes))."""
    rows = [
        [f"`{name}`", f"`{split}`", n_rows, CONFIGS.get(name, "")]
        for name, splits in configs
        for split, (n_rows, _) in splits.items()
    ]
    return _table(["config", "split", "rows", "what it is"], rows)


def findings_table(tallies: Tallies, findings: Sequence[str]) -> str:
    """Counts per finding, one table per split."""
    parts = []
    for split, tally in tallies.items():
        if isinstance(tally, LocalizationTally):
            parts.append(f"Split `{split}`:\n\n{_drawn_table(tally, findings)}")
        elif isinstance(tally, FindingsTally):
            rows = [
                [name, tally.positives[i], _share(tally.positives[i], tally.n_rows)] for i, name in enumerate(findings)
            ]
            parts.append(
                f"Split `{split}`:\n\n{_table(['label', 'studies', 'of studies'], rows)}\n\n{_labels_per_study(tally)}"
            )
    return "\n\n".join(parts) or "The tasks have no fixed set of findings."


def _labels_per_study(tally: FindingsTally) -> str:
    labels = ", ".join(f"{n} in {count:,}" for n, count in sorted(tally.n_labels.items()))
    images = ", ".join(f"{n} in {count:,}" for n, count in sorted(tally.n_images_per_study.items()))
    return f"Labels per study: {labels}. Images per study: {images}."


def _drawn_table(tally: LocalizationTally, findings: Sequence[str]) -> str:
    def by(reader: str) -> list[int]:
        return [tally.drawn[i, reader] for i in range(len(findings))]

    n = len(findings)
    drawn = _what_is_drawn(tally)
    columns: dict[str, list[object]] = {
        "finding": list(findings),
        "present": [tally.positives[i] for i in range(n)],
        "of images": [_share(tally.positives[i], tally.n_rows) for i in range(n)],
        drawn: list(by("ground_truth")),
        "instances": [tally.instances[i] for i in range(n)],
        "not drawn": [tally.missing[i] for i in range(n)],
        "unlabelled": [tally.unlabelled[i] for i in range(n)],
        "benchmark readers": list(by("human_benchmark")),
        "benchmark points": [tally.points[i] for i in range(n)],
        "individual readers": list(by("individual")),
    }
    always = {"finding", "present", "of images", drawn, "not drawn"}
    kept = {name: cells for name, cells in columns.items() if name in always or any(cells)}
    rows = list(zip(*kept.values(), strict=True))
    if n <= LONG_VOCABULARY:
        return _table(list(kept), rows)
    used = [bool(tally.positives[i]) or any(tally.drawn[i, reader] for reader in READERS) for i in range(n)]
    never = ", ".join(name for name, is_used in zip(findings, used, strict=True) if not is_used)
    table = _table(list(kept), [row for row, is_used in zip(rows, used, strict=True) if is_used])
    return f"{table}\n\nNever present or drawn in this split: {never or 'none'}."


def _what_is_drawn(tally: LocalizationTally) -> str:
    """Masks or boxes: of the ground truth, and where there is none, of all readers."""
    truth = {place for place in tally.drawn if place[1] == "ground_truth"} or set(tally.drawn)
    n_drawn, n_masks = (sum(counts[place] for place in truth) for counts in (tally.drawn, tally.masks))
    if n_drawn == 0:
        return "drawn"
    return "masks" if n_drawn == n_masks else ("masks or boxes" if n_masks else "boxes")


def views_table(tallies: Tallies) -> str:
    """Images per view and split."""
    used = sorted({view for tally in tallies.values() for view in tally.views})
    rows = [[f"`{split}`", *(tally.views[view] for view in used)] for split, tally in tallies.items()]
    return _table(["split", *(VIEWS[view] for view in used)], rows)


def missing_list(tallies: Tallies, findings: Sequence[str]) -> str:
    """Findings without a mask, studies without a known agreement, tasks without an answer."""
    return "\n".join(f"* split `{split}`: {_missing(tally, findings)}" for split, tally in tallies.items())


def _missing(tally: Tally, findings: Sequence[str]) -> str:
    if isinstance(tally, LocalizationTally):
        total = sum(tally.missing.values())
        each = ", ".join(f"{findings[i]} {n:,}" for i, n in sorted(tally.missing.items()) if n)
        return f"{total:,} times a finding is present without a ground-truth drawing" + (f" ({each})" if each else "")
    if isinstance(tally, FindingsTally):
        never = [name for i, name in enumerate(findings) if tally.positives[i] == 0]
        unknown = {"agreement": tally.agreement[None], **{name: _unknown(tally, name) for name in DEMOGRAPHICS}}
        parts = [f"{name.replace('_', ' ')} unknown in {n:,} of {tally.n_rows:,}" for name, n in unknown.items() if n]
        parts += [f"no study with {', '.join(never)}"] if never else []
        return "; ".join(parts) or f"nothing is missing in {tally.n_rows:,} studies"
    if isinstance(tally, TasksTally):
        return f"{tally.n_rows - tally.with_answer:,} of {tally.n_rows:,} tasks have no reference answer"
    raise TypeError(f"`tally` must be of a known kind, got {type(tally).__name__}")


def _unknown(tally: FindingsTally, name: str) -> int:
    return tally.demographics[name][len(VOCABULARIES[name]) - 1]


def demographics_table(tallies: Tallies) -> str:
    """Patients' bands per split, per study."""
    known = {split: tally for split, tally in tallies.items() if isinstance(tally, FindingsTally)}
    if not known:
        return "No demographic column is published."
    rows = [
        [name.replace("_", " "), value, *(tally.demographics[name][code] for tally in known.values())]
        for name in DEMOGRAPHICS
        for code, value in enumerate(VOCABULARIES[name])
        if any(tally.demographics[name][code] for tally in known.values())
    ]
    return _table(["", "", *(f"`{split}`" for split in known)], rows)


def agreement_table(tallies: Tallies) -> str:
    """How many readers agreed (studies), or drew (images)."""
    rows: list[list[object]] = []
    for split, tally in tallies.items():
        if isinstance(tally, FindingsTally):
            counts = [tally.agreement[code] for code in range(len(AGREEMENTS))]
            rows.append([f"`{split}`", *counts, tally.agreement[None]])
    if rows:
        return _table(["split", *(name.replace("_", " ") for name in AGREEMENTS), "unknown"], rows)
    for split, tally in tallies.items():
        if isinstance(tally, LocalizationTally) and tally.reader_ids:
            spread = ", ".join(f"{n} on {count:,}" for n, count in sorted(tally.readers_per_image.items()))
            rows.append([f"`{split}`", len(tally.reader_ids), spread])
    if rows:
        return _table(["split", "individual readers", "readers who drew something on how many images"], rows)
    return "No agreement between readers is published with the references."


def acquisition_table(tallies: Tallies) -> str:
    """Equipment, exposure, pixel spacing and picture sizes, per image."""
    rows: list[list[object]] = []
    for name in ACQUISITION:
        counts = {split: tally.acquisition[name] for split, tally in tallies.items()}
        if any(set(counter) - {None} for counter in counts.values()):
            what = "tube voltage" if name == "kvp" else name.replace("_", " ")
            rows += [[what, *row] for row in _value_rows(counts, suffix=" kV" if name == "kvp" else "")]
    for code, source in enumerate(SPACING_SOURCES):
        if any(tally.spacings[code] for tally in tallies.values()):
            label = "unknown" if source == "none" else source.replace("_", " ")
            rows.append(["pixel spacing", label, *(tally.spacings[code] for tally in tallies.values())])
    table = _table(["", "", *(f"`{split}`" for split in tallies)], rows)
    return f"{table}\n\n" + " ".join(f"Split `{split}`: {_sizes(tally)}." for split, tally in tallies.items())


def _value_rows(counts: Mapping[str, Counter[object]], suffix: str) -> list[list[object]]:
    total: Counter[object] = sum(counts.values(), Counter())
    known = [
        value for value, _ in sorted(total.items(), key=lambda item: (-item[1], str(item[0]))) if value is not None
    ]
    rows: list[list[object]] = [
        [f"{_number(value)}{suffix}", *(counter[value] for counter in counts.values())] for value in known[:MOST_VALUES]
    ]
    if rest := known[MOST_VALUES:]:
        rows.append([f"{len(rest)} others", *(sum(counter[value] for value in rest) for counter in counts.values())])
    if total[None]:
        rows.append(["unknown", *(counter[None] for counter in counts.values())])
    return rows


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sizes(tally: Tally) -> str:
    if not tally.sizes:
        return "no images"
    widths, heights = zip(*tally.sizes, strict=True)
    return f"{_span(widths)} pixels wide, {_span(heights)} high"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def categories_table(tallies: Tallies) -> str:
    """Tasks per category and what they need, per split."""
    known = {split: tally for split, tally in tallies.items() if isinstance(tally, TasksTally)}
    if not known:
        return "The benchmark has no categories of tasks."
    rows: list[list[object]] = [
        [name.replace("_", " "), *(tally.categories[code] for tally in known.values())]
        for code, name in enumerate(CATEGORIES)
    ]
    rows.append(["needs the earlier study", *(tally.temporal for tally in known.values())])
    rows.append(["must localize", *(tally.with_boxes for tally in known.values())])
    rows.append(["has a reference answer", *(tally.with_answer for tally in known.values())])
    rows.append(["judged risky", *(tally.risky for tally in known.values())])
    rows += [
        [f"mean {name.replace('_', ' ')}", *(_mean(_scored(tally, name)) for tally in known.values())]
        for name in QUESTION_SCORES
        if any(_scored(tally, name) for tally in known.values())
    ]
    return _table(["tasks", *(f"`{split}`" for split in known)], rows)


def _scored(tally: TasksTally, name: str) -> Counter[int]:
    return Counter({score: n for (which, score), n in tally.question_scores.items() if which == name})


def ratings_table(tallies: Tallies) -> str:
    """Readers' ratings: how many, and the mean per model and criterion."""
    parts = []
    for split, tally in tallies.items():
        if not isinstance(tally, TasksTally) or not tally.ratings:
            continue
        models = sorted({model for model, _ in tally.ratings})
        rows = [[model, *(_mean(tally.ratings[model, name]) for name in CRITERIA)] for model in models]
        head = f"Split `{split}`: {tally.extras['ratings']:,} ratings by {len(tally.raters)} readers; means of 1 to 5:"
        parts.append(f"{head}\n\n" + _table(["model", *(name.replace("_", " ") for name in CRITERIA)], rows))
    return "\n\n".join(parts) or "No ratings are published in this folder."


def _mean(scores: Counter[int]) -> str:
    n = sum(scores.values())
    return f"{sum(score * count for score, count in scores.items()) / n:.2f} (n = {n:,})" if n else "not scored"


def features_table(features: Features) -> str:
    """Meaning of every column of the main config.

    Raises
    ------
    ValueError
        If a column has no meaning in COLUMNS.
    """
    unknown = sorted(set(features) - set(COLUMNS))
    if unknown:
        raise ValueError(f"COLUMNS must say what every column means, it lacks {', '.join(unknown)}")
    return _table(["column", "meaning"], [[f"`{name}`", COLUMNS[name]] for name in features])


def _share(n: int, of: int) -> str:
    return f"{100 * n / of:.1f} %" if of else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [list(heads), ["---"] * len(heads), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
