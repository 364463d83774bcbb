"""Markdown tables of a dataset card, made from the counts of the splits; each function fills one placeholder.

If the counts of a table do not apply to the kind of benchmark, a sentence replaces the table.

This module also describes the columns and configs of dataset folders for the card and Croissant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.images import SPACING_SOURCES, VIEWS
from reveal_bench.kinds.split_counts import ACQUISITION, Tally, markdown_table

if TYPE_CHECKING:
    from datasets import Features

COLUMNS = {
    # columns that several kinds of benchmark have
    "image": "file of the radiograph (null if pixels are withheld)",
    "images": "files of the study's radiographs, in the order of `image_ids` (null if pixels are withheld)",
    "image_id": "id of the radiograph, to be used in prediction files",
    "image_ids": "ids of the study's radiographs",
    "patient_id": "pseudonym of the patient; splits and resampling never separate the rows of a patient",
    "study_id": "id of the study",
    "view": "projection",
    "views": "projection of each radiograph",
    "view_raw": "projection as the source writes it",
    "width": "width in pixels of the annotated image",
    "height": "height in pixels of the annotated image",
    "source_sha256": "sha256 of the picture file in the source download",
    "pixel_sha256": "sha256 of the radiograph's decoded 8-bit grey pixels, row by row",
    "pixel_pipeline": "how the published pixels were made from the source's",
    "spacing_mm": "row and column spacing in mm, if known",
    "spacing_source": "header field that states the spacing",
    "labels": "findings that are present",
    "reference": "description of the reference drawn on a preview, with the numbers that the preview shows",
    "manufacturer": "manufacturer of the equipment, normalised, if all radiographs of the study share it",
    "model": "model of the equipment, normalised, if all radiographs of the study share it",
    "image_facts": "per radiograph: id, size, view, equipment, exposure, spacing, hashes, pixel pipeline",
    # side tables
    "label": "the finding, as a code",
    "mask": "picture of the ground-truth mask: 255 inside the finding, 0 outside",
    "reader": "reader who rated the answer or read the study",
    "process": "score 1 to 5",
    "execution": "score 1 to 5",
    "synthesis": "score 1 to 5",
    "language": "score 1 to 5",
    "image_content": "score 1 to 5",
    "image_style": "score 1 to 5",
    "criterion": "name of the criterion",
    "score": "1 to 5",
    "description": "what the score means",
    "name": "name of the label",
    "definition": "definition of the label",
    "radlex": "RadLex code",
    "snomed": "SNOMED CT code",
    "loinc": "LOINC part code",
    "phrase": "words of the report to which the box belongs",
    "bbox_xywh": "box, [x, y, width, height] in pixels of the radiograph",
    "boxes_xywh": "boxes, each [x, y, width, height] in pixels of the radiograph; empty if nothing was drawn",
    "extra_boxes_xywh": "boxes that a second reader drew for the sentence, each [x, y, width, height] in pixels",
    "reader_id": "pseudonym of the reader; null for the consensus",
    "class": "source's class of the whole image",
    "sentence_en": "sentence of the report in English",
    "sentence_es": "sentence of the report in Spanish",
    "abnormal": "whether the sentence reports a finding",
    "locations": "anatomical locations that the sentence names, in the source's spelling",
    "progression": "change since an earlier study, if the sentence reports one",
    "mrale_score": "modified RALE score of lung opacities, 0 to 24",
}
"""Descriptions of columns that :meth:`reveal_bench.kinds.parts.Display.meanings` does not describe.

In the config `ratings`, `model` is instead the model that answered.
"""

CONFIGS = {
    "masks": (
        "ground-truth masks as pictures for viewing, one row per image and finding; scores use the run-length masks"
    ),
    "preview": "small pictures of the first rows with the reference drawn on them, for viewing; never a model's input",
    "holdout_inputs": "inputs of the holdout, for models: the columns of the main config, with empty references",
    "labels": "definitions and codes of the labels",
    "ratings": "readers' ratings of models' answers, one row per task, model and reader",
    "rubric": "meaning of the rating scores",
    "phrases": "phrases of reports, each with its box",
    "image_labels": "labels of the whole image, per image and reader",
    "classes": "the source's class of each image",
    "sentences": "sentences of reports with all annotations of the source, boxes in pixels",
    "mrale": "modified RALE score per study",
    "readers": "labels of individual readers for each study, or the images that each reader read",
    "manifest": "questions of each split, also of private splits",
}
"""Descriptions of configs other than the main configs."""


def column_meanings() -> dict[str, str]:
    """Return a dict from column to description, for the columns of all configs."""
    return {**COLUMNS, **{name: meaning for kind in KINDS.values() for name, meaning in kind.display.meanings.items()}}


def config_meanings() -> dict[str, str]:
    """Return a dict from config to description."""
    return {**CONFIGS, **{kind.config: kind.display.holds for kind in KINDS.values()}}


Tallies = Mapping[str, Tally]
MOST_VALUES = 12
"""Largest number of values of an acquisition column that are listed; further values are counted together."""


def splits_table(tallies: Tallies, n_holdout: int | None) -> str:
    """Return a table with the numbers of rows, images, studies, patients and questions per split."""
    items = next((tally.items for tally in tallies.values()), "images")
    own = [] if items in ("images", "studies") else [items]
    heads = ["split", *own, "images", "studies", "patients", "questions", "references"]
    rows: list[list[object]] = []
    for split, tally in tallies.items():
        counts = [len(tally.images), len(tally.studies), len(tally.patients), tally.n_asked]
        rows.append([f"`{split}`", *([tally.n_rows] if own else []), *counts, "public"])
    if n_holdout is not None:
        cells = {"split": "`holdout`", items: n_holdout, "references": "private"}
        rows.append([cells.get(head, "") for head in heads])
    return markdown_table(heads, rows)


def configs_table(configs: Sequence[tuple[str, Mapping[str, tuple[int, int]]]]) -> str:
    """Return a table with the number of rows per config and split; `configs` are (name, split -> (rows, bytes))."""
    meanings = config_meanings()
    rows = [
        [f"`{name}`", f"`{split}`", n_rows, meanings.get(name, "")]
        for name, splits in configs
        for split, (n_rows, _) in splits.items()
    ]
    return markdown_table(["config", "split", "rows", "what it is"], rows)


def findings_table(tallies: Tallies, findings: Sequence[str]) -> str:
    """Return a table of counts per finding for each split."""
    texts = {split: tally.findings_text(findings) for split, tally in tallies.items()}
    parts = [f"Split `{split}`:\n\n{text}" for split, text in texts.items() if text]
    return "\n\n".join(parts) or "The tasks have no fixed set of findings."


def views_table(tallies: Tallies) -> str:
    """Return a table with the number of images per view and split."""
    used = sorted({view for tally in tallies.values() for view in tally.views})
    rows = [[f"`{split}`", *(tally.views[view] for view in used)] for split, tally in tallies.items()]
    return markdown_table(["split", *(VIEWS[view] for view in used)], rows)


def missing_list(tallies: Tallies, findings: Sequence[str]) -> str:
    """Return a list that counts, by split, missing masks of findings, agreement of studies, or answers to tasks."""
    return "\n".join(f"* split `{split}`: {tally.missing(findings)}" for split, tally in tallies.items())


def demographics_table(tallies: Tallies) -> str:
    """Return a table of the number of studies by demographic value and split."""
    known = {split: tally for split, tally in tallies.items() if tally.demographics}
    if not known:
        return "Demographic data are not published."
    vocabularies = next(iter(known.values())).vocabularies
    rows = [
        [name.replace("_", " "), value, *(tally.demographics[name][code] for tally in known.values())]
        for name, values in vocabularies.items()
        for code, value in enumerate(values)
        if any(tally.demographics[name][code] for tally in known.values())
    ]
    return markdown_table(["", "", *(f"`{split}`" for split in known)], rows)


def agreement_table(tallies: Tallies) -> str:
    """Return a table of studies by number of readers who agreed, or of images by number of readers who drew."""
    by_split = {split: tally.agreement_cells() for split, tally in tallies.items()}
    rows = [[f"`{split}`", *cells] for split, cells in by_split.items() if cells]
    if not rows:
        return "No agreement between readers is published with the references."
    return markdown_table(["split", *next(iter(tallies.values())).agreement_heads], rows)


def acquisition_table(tallies: Tallies) -> str:
    """Return a table of images by equipment, exposure and pixel spacing, and the range of picture sizes."""
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
    table = markdown_table(["", "", *(f"`{split}`" for split in tallies)], rows)
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
    """Return a table of the number of tasks by category, requirement and split."""
    counts = {split: tally.categories() for split, tally in tallies.items() if tally.categories()}
    if not counts:
        return "The benchmark has no categories of tasks."
    each = {name: [row[name] for row in counts.values()] for name in next(iter(counts.values()))}
    rows = [
        [name, *("not scored" if cell is None else cell for cell in cells)]
        for name, cells in each.items()
        if any(cell is not None for cell in cells)
    ]
    return markdown_table(["tasks", *(f"`{split}`" for split in counts)], rows)


def ratings_table(tallies: Tallies) -> str:
    """Return a table of readers' ratings: number per model, and mean per model and criterion."""
    parts = [f"Split `{split}`: {text}" for split, tally in tallies.items() if (text := tally.ratings_text())]
    return "\n\n".join(parts) or "No ratings are published in this folder."


def features_table(features: Features) -> str:
    """Return a table that describes every column of the main config.

    Raises
    ------
    ValueError
        If :func:`column_meanings` lacks a column.
    """
    meanings = column_meanings()
    unknown = sorted(set(features) - set(meanings))
    if unknown:
        raise ValueError(f"COLUMNS must describe every column, but lacks {', '.join(unknown)}")
    return markdown_table(["column", "meaning"], [[f"`{name}`", meanings[name]] for name in features])
