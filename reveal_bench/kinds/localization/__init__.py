"""Localization: where a finding is on an image (papers 000 and 002). A row is an image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.entries.source import Limits
from reveal_bench.kinds.kind import Kind

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.entries.report import LintReport
    from reveal_bench.kinds.canonical import Codec
    from reveal_bench.kinds.cases import Case, CaseAnswer
    from reveal_bench.kinds.disclosure import Disclosure
    from reveal_bench.kinds.drawings import Annotations
    from reveal_bench.kinds.folder import FolderInfo
    from reveal_bench.kinds.images import Developed, PictureFile
    from reveal_bench.kinds.localization.readings import Drawn
    from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord, Manifest
    from reveal_bench.kinds.localization.scoring import CaseRows
    from reveal_bench.kinds.marks import Marks
    from reveal_bench.kinds.questions import Question
    from reveal_bench.kinds.readings import Readings
    from reveal_bench.kinds.rows import Fault, Row
    from reveal_bench.kinds.tally import Tally

__all__ = ["Localization"]


class Localization(Kind):
    """Points, cells, boxes and masks of findings on images."""

    name: ClassVar = "localization"
    config: ClassVar = "localization"
    key: ClassVar = "image_id"
    counted: ClassVar = "n_images"
    image_columns: ClassVar = ("image",)
    side_config: ClassVar = "masks"
    unit: ClassVar = "image"
    question: ClassVar = "Where is each finding of a chest radiograph? Answers are points, grid cells, boxes or masks."
    holds: ClassVar = "references and pictures, one row per image"
    picture_words: ClassVar = "`image` is"
    confidence_field: ClassVar = "score"
    intervals: ClassVar = ("jackknife", "percentile", "bca", "chexlocalize")
    missing_as: ClassVar = ("miss", "empty")
    primary: ClassVar = "point_hit"
    stand_ins: ClassVar = ("grid_hit",)
    released: ClassVar = ("point_hit", "grid_hit", "grid_chance", "mask_iou_all", "box_iou")
    most_answers: ClassVar = 1  # a file asks about places by points, cells, masks and boxes
    outcomes: ClassVar = ("hit", "miss")
    forms: ClassVar = ("cell", "point", "box")
    uses_grid: ClassVar = True
    reads_parquet: ClassVar = True
    run_report: ClassVar = "hits"

    def features(self, benchmark: Benchmark) -> Features:
        """Features of the config `localization`."""
        from reveal_bench.kinds.localization.rows import localization_features

        return localization_features(benchmark.findings)

    def side_features(self, benchmark: Benchmark) -> Features:
        """Features of the config `masks`."""
        from reveal_bench.kinds.localization.rows import mask_features

        return mask_features(benchmark.findings)

    def side_rows(self, record: LocalizationRecord, benchmark: Benchmark) -> list[Row]:
        """The ground-truth masks of an image as pictures."""
        from reveal_bench.kinds.localization.rows import mask_rows

        return mask_rows(record, benchmark.findings)

    def pictures(self, record: LocalizationRecord) -> tuple[PictureFile | None, ...]:
        """The one picture of an image."""
        return (record.picture,)

    def has_pixels(self, record: LocalizationRecord) -> bool:
        """Whether an image has a file, or its bytes are there."""
        return record.image is not None or super().has_pixels(record)

    def without_image_bytes(self, record: LocalizationRecord) -> LocalizationRecord:
        """An image without its bytes."""
        return replace(record, image=None)

    def row(self, record: LocalizationRecord, benchmark: Benchmark, developed: Sequence[Developed | None]) -> Row:
        """The row of an image.

        Raises
        ------
        ValueError
            If the picture has another size than the record says, or a value is outside its vocabulary.
        """
        from reveal_bench.kinds.localization.rows import localization_row

        picture = developed[0]
        if picture is not None:
            if picture.size != record.size:
                got = f"{picture.size[1]} x {picture.size[0]}"
                raise ValueError(f"the picture must have {record.width} x {record.height} pixels, got {got}")
            record = replace(
                record,
                image=picture.data,
                image_name=picture.name,
                source_sha256=picture.source_sha256,
                pixel_sha256=picture.pixel_sha256,
                pixel_pipeline=picture.pipeline,
            )
        return localization_row(record, benchmark.findings)

    def blank(self, row: Row) -> Row:
        """`row` without what it says of findings, and without hashes."""
        from reveal_bench.kinds.localization.rows import blank_row

        return blank_row(row)

    def asked(self, record: LocalizationRecord, benchmark: Benchmark, asks: str) -> list[str]:
        """Findings to be found on an image."""
        return record.asked(asks)

    def manifest_schema(self) -> pa.Schema:
        """Columns of :class:`~reveal_bench.kinds.localization.records.ManifestRow`."""
        from reveal_bench.kinds.rows import text_schema

        return text_schema(image_id="text", study_id="text", view="text", width="whole", height="whole", asked="texts")

    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        """An image, and the findings asked."""
        from reveal_bench.kinds.images import VIEWS

        entry = {name: row[name] for name in ("image_id", "study_id", "width", "height")}
        return {**entry, "view": VIEWS[row["view"]], "asked": list(asked)}

    def row_faults(self, row: Row, findings: Sequence[str]) -> Iterator[Fault]:
        """See :func:`reveal_bench.kinds.localization.rows.image_faults`."""
        from reveal_bench.kinds.localization.rows import image_faults

        return image_faults(row, findings)

    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """All findings, or those that have a ground truth."""
        from reveal_bench.kinds.localization.rows import findings_drawn

        return list(findings) if asks == "all" else findings_drawn(row, findings)

    def bare_record(self, entry: Row, findings: Sequence[str]) -> LocalizationRecord:
        """An image of which nothing is known but its size and view."""
        from reveal_bench.kinds.localization.records import LocalizationRecord

        names = ("image_id", "study_id", "view", "width", "height")
        told = {name: entry[name] for name in names}
        return LocalizationRecord(patient_id="", label_status=dict.fromkeys(findings), **told)

    def meanings(self) -> dict[str, str]:
        """See :mod:`reveal_bench.kinds.localization.rows`."""
        from reveal_bench.kinds.localization.rows import MEANINGS

        return MEANINGS

    def tally(self) -> Tally:
        """See :mod:`reveal_bench.kinds.localization.tally`."""
        from reveal_bench.kinds.localization.tally import LocalizationTally

        return LocalizationTally()

    def holdout_tells(self, asks: str) -> str:
        """That findings are asked for by name."""
        if asks == "present":
            return (
                "The manifest names the findings that are present in each of them, as the protocol tells a model what "
                "to look for: that is public, where they are is not."
            )
        return "The manifest asks for every finding of every image, so that it tells nothing of what is present."

    def read_records(self, folder: Path, split: str) -> list[LocalizationRecord]:
        """The images of `split` with their references."""
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split)

    def read_references(self, folder: Path, split: str) -> list[LocalizationRecord]:
        """The images of `split` with their references, without contours."""
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split, contours=False)

    def read_manifest(self, folder: Path, split: str) -> Manifest:
        """The images of `split` with the findings asked."""
        from reveal_bench.kinds.localization.records import read_manifest

        return read_manifest(folder, split)

    def lint(
        self,
        path: Path,
        manifest: Manifest,
        *,
        grid: int | None = None,
        allow_missing: bool = False,
        leave_out_unknown: bool = False,
        limits: Limits = Limits(),
        name: str | None = None,
    ) -> LintReport:
        """Read and check a file of points, cells, boxes or masks."""
        from reveal_bench.kinds.localization.lint import lint_predictions

        options: dict[str, Any] = {"allow_missing": allow_missing, "limits": limits, "name": name}
        return lint_predictions(path, manifest, grid=grid, leave_out_unknown=leave_out_unknown, **options)

    def questions(self, folder: Path, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        """One per image and finding asked."""
        from reveal_bench.kinds.questions import Question, ViewedImage

        for row in self.read_manifest(folder, split).rows.values():
            image = ViewedImage(row.image_id, row.view, row.size)
            for finding in row.asked:
                yield Question(f"{row.image_id}|{finding}", form, (image,), finding, info.asks == "present")

    def prediction(self, answer: Any) -> LocalizationPrediction:
        """The place that was named."""
        from reveal_bench.kinds.localization.records import LocalizationPrediction

        points = (answer.point,) if answer.point else ()
        place = answer.cell, answer.box, answer.mask, answer.score
        return LocalizationPrediction(answer.unit, answer.finding or "", points, *place)

    def entry(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Also ``mask``, an array (height, width) of the full image, bool or 0 and 1."""
        entry = dict(fields)
        if "mask" in entry:
            import numpy as np

            from reveal_bench.masks import encode_mask

            array = np.asarray(entry.pop("mask"))
            if array.dtype != bool and not np.isin(array, (0, 1)).all():
                values = sorted({str(value) for value in array.ravel()[:1000].tolist()} - {"0", "1", "0.0", "1.0"})
                raise ArgumentError("mask", "must be an array of bool, or of 0 and 1", ", ".join(values[:3]))
            mask = encode_mask(array)
            entry["rle"] = {"size": list(mask.size), "counts": mask.counts}
        return entry

    def entries(self, key: str, answer: Any) -> list[dict[str, Any]]:
        """Finding -> fields of a line, a point (x, y), a list of points, a cell, or a run-length mask."""
        if not isinstance(answer, Mapping):
            return super().entries(key, answer)
        from reveal_bench.kinds.localization.formats import place_fields

        return [self.entry({"image_id": key, "finding": finding, **place_fields(place)})
                for finding, place in answer.items() if place is not None]  # fmt: skip

    def to_jsonl(self, predictions: Iterable[LocalizationPrediction]) -> str:
        """One line per image and finding."""
        from reveal_bench.kinds.localization.formats import predictions_to_jsonl

        return predictions_to_jsonl(predictions)

    def protocol(
        self, info: FolderInfo, *, grid: int | None, thresholds: float | Mapping[str, float]
    ) -> dict[str, Any]:
        """Cells per side, and which findings are asked."""
        return {"grid": info.grid if grid is None else grid, "asks": info.asks}

    def score(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Sequence[LocalizationRecord],
        manifest: Manifest,
        protocol: Mapping[str, Any],
        ratings: Sequence[Any] = (),
    ) -> CaseRows:
        """One row per image and finding, see :func:`~reveal_bench.kinds.localization.scoring.score_localization`."""
        from reveal_bench.kinds.localization.scoring import score_localization

        how = {"grid": protocol["grid"], "asks": protocol["asks"], "missing": protocol.get("missing", "miss")}
        return score_localization(predictions, records, findings=manifest.findings, **how)

    def readings(self, folder: Path, split: str, records: Sequence[LocalizationRecord]) -> Readings:
        """See :mod:`reveal_bench.kinds.localization.readings`."""
        from reveal_bench.kinds.localization.readings import drawn_readings

        return drawn_readings(records)

    def agreed(self, record: LocalizationRecord, said: Sequence[Any], at_least: int) -> Drawn:
        """Pixels that at least so many drew."""
        from reveal_bench.kinds.localization.readings import agreed_regions

        return agreed_regions(record.size, said, at_least)

    def by_reading(self, record: LocalizationRecord, said: Drawn) -> LocalizationRecord:
        """The image with what was drawn."""
        from reveal_bench.kinds.localization.readings import image_by_reading

        return image_by_reading(record, said)

    def answers_of(self, record: LocalizationRecord, said: Drawn) -> list[LocalizationPrediction]:
        """Masks, and boxes around boxes."""
        from reveal_bench.kinds.localization.readings import predictions_of_reader

        return predictions_of_reader(record, said)

    def case(self, record: LocalizationRecord) -> Case:
        """See :mod:`reveal_bench.kinds.localization.cases`."""
        from reveal_bench.kinds.localization.cases import case_of_image

        return case_of_image(record)

    def case_answers(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Sequence[LocalizationRecord],
        rows: CaseRows,
        protocol: Mapping[str, Any],
    ) -> Mapping[str, Sequence[CaseAnswer]]:
        """See :mod:`reveal_bench.kinds.localization.cases`."""
        from reveal_bench.geometry import Grid
        from reveal_bench.kinds.localization.cases import answers_of_images

        sizes = {record.image_id: record.size for record in records}
        return answers_of_images(predictions, rows, sizes, Grid(protocol["grid"]))

    def drawn_references(self, records: Sequence[LocalizationRecord], manifest: Manifest) -> Annotations:
        """See :mod:`reveal_bench.kinds.localization.drawings`."""
        from reveal_bench.kinds.localization.drawings import drawn_references

        return drawn_references(records, manifest)

    def drawn_predictions(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Sequence[LocalizationRecord],
        manifest: Manifest,
    ) -> Annotations:
        """See :mod:`reveal_bench.kinds.localization.drawings`."""
        from reveal_bench.kinds.localization.drawings import drawn_predictions

        return drawn_predictions(predictions, manifest)

    def undrawn(self, annotations: Annotations) -> tuple[list[LocalizationPrediction], list[str]]:
        """See :func:`reveal_bench.kinds.localization.drawings.predictions_of`."""
        from reveal_bench.kinds.localization.drawings import predictions_of

        return predictions_of(annotations)

    def disclose(self, rows: CaseRows, *, min_cell: int, n_resamples: int, seed: int) -> Disclosure:
        """See :mod:`reveal_bench.kinds.localization.scoring`."""
        from reveal_bench.kinds.localization.scoring import disclose_cases

        return disclose_cases(rows, self.released, min_cell=min_cell, n_resamples=n_resamples, seed=seed)

    def codec(self) -> Codec:
        """See :mod:`reveal_bench.kinds.localization.canonical`."""
        from reveal_bench.kinds.localization.canonical import LocalizationCodec

        return LocalizationCodec()

    def marks(
        self, predictions: Sequence[LocalizationPrediction], manifest: Manifest, thresholds: float | Mapping[str, float]
    ) -> Marks:
        """See :mod:`reveal_bench.kinds.localization.marks`."""
        from reveal_bench.kinds.localization.marks import marks_of

        return marks_of(predictions, manifest)

    def signs(self, predictions: Sequence[LocalizationPrediction], manifest: Manifest) -> list[str]:
        """See :mod:`reveal_bench.kinds.localization.marks`."""
        from reveal_bench.kinds.localization.marks import signs_of

        return signs_of(predictions, manifest)

    def example_upload(self) -> tuple[Manifest, str]:
        """See :mod:`reveal_bench.kinds.localization.example`."""
        from reveal_bench.kinds.localization.example import example_upload

        return example_upload()

    def example_rows(self) -> list[CaseRows]:
        """See :mod:`reveal_bench.kinds.localization.example`."""
        from reveal_bench.kinds.localization.example import example_rows

        return example_rows()

    def scope(self, manifest: Manifest) -> tuple[tuple[str, ...], int]:
        """The findings; images."""
        return manifest.findings, len(manifest.rows)

    def manifest_entries(self, manifest: Manifest) -> list[dict[str, Any]]:
        """The images, and the findings asked."""
        return [asdict(row) for row in manifest.rows.values()]
