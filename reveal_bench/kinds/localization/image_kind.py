"""Parts that localization and detection share, because their rows are images with drawings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.parts import (
    AnnotationExchange,
    Data,
    Display,
    Predictions,
    Questions,
    Readers,
    RowsT,
    Table,
    override,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.cases import Annotations, Case
    from reveal_bench.kinds.folder import AnyFolder, FolderInfo
    from reveal_bench.kinds.images import PictureFile, PublishedPicture
    from reveal_bench.kinds.localization.cases import Drawn
    from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, LocalizationRecord
    from reveal_bench.kinds.localization.rows import LocalizationTally
    from reveal_bench.kinds.questions import Question
    from reveal_bench.kinds.rows import Fault, Row

ImagesT = TypeVar("ImagesT", bound="ImageManifest")
"""Manifest of a split of images."""


class ImageData(Data["LocalizationRecord"]):
    """Records of images."""

    @override
    def key_of(self, record: LocalizationRecord) -> str:
        return record.image_id

    @override
    def pictures(self, record: LocalizationRecord) -> tuple[PictureFile | None, ...]:
        """Return the picture of an image, as a tuple of one."""
        return (record.picture,)

    @override
    def has_pixels(self, record: LocalizationRecord) -> bool:
        """Return True if an image has a file, or its bytes are in the record."""
        return record.image is not None or super().has_pixels(record)

    @override
    def without_image_bytes(self, record: LocalizationRecord) -> LocalizationRecord:
        """Return an image without its bytes."""
        return replace(record, image=None)

    @override
    def with_findings(self, record: LocalizationRecord, findings: Sequence[str]) -> LocalizationRecord:
        from reveal_bench.kinds.localization.records import with_findings

        return with_findings(record, findings)

    @override
    def bare_record(self, entry: Row, findings: Sequence[str]) -> LocalizationRecord:
        """Return an image with only its size and view."""
        from reveal_bench.kinds.localization.records import LocalizationRecord

        names = ("image_id", "study_id", "view", "width", "height")
        fields = {name: entry[name] for name in names}
        return LocalizationRecord(patient_id="", label_status=dict.fromkeys(findings), **fields)


class ImageTable(Table["LocalizationRecord"]):
    """The table of images."""

    image_columns: ClassVar = ("image",)
    side_config: ClassVar = "masks"

    @override
    def blank(self, row: Row) -> Row:
        from reveal_bench.kinds.localization.rows import blank_row

        return blank_row(row)

    @override
    def row_faults(self, row: Row, findings: Sequence[str]) -> Iterator[Fault]:
        from reveal_bench.kinds.localization.rows import image_faults

        return image_faults(row, findings)

    @override
    def tally(self) -> LocalizationTally:
        from reveal_bench.kinds.localization.rows import LocalizationTally

        return LocalizationTally()

    @override
    def features(self, benchmark: Benchmark) -> Features:
        """Return the Features of the config `localization`."""
        from reveal_bench.kinds.localization.rows import localization_features

        return localization_features(benchmark.findings)

    @override
    def columns(self, benchmark: Benchmark) -> tuple[str, ...]:
        from reveal_bench.kinds.localization.rows import COLUMNS

        return COLUMNS

    @override
    def side_features(self, benchmark: Benchmark) -> Features:
        """Return the Features of the config `masks`."""
        from reveal_bench.kinds.localization.rows import mask_features

        return mask_features(benchmark.findings)

    @override
    def side_rows(self, record: LocalizationRecord, benchmark: Benchmark) -> list[Row]:
        """Return the ground-truth masks of an image as pictures."""
        from reveal_bench.kinds.localization.rows import mask_rows

        return mask_rows(record, benchmark.findings)

    @override
    def row(
        self, record: LocalizationRecord, benchmark: Benchmark, developed: Sequence[PublishedPicture | None]
    ) -> Row:
        """Return the row of an image.

        Raises
        ------
        ValueError
            If the picture's size differs from the record's, or a value is outside its vocabulary.
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


class ImageQuestions(Questions["LocalizationRecord", ImagesT]):
    """Questions about images."""

    @override
    def manifest_schema(self) -> pa.Schema:
        """Return the columns of :class:`~reveal_bench.kinds.localization.records.ManifestRow`."""
        from reveal_bench.kinds.rows import text_schema

        return text_schema(image_id="text", study_id="text", view="text", width="whole", height="whole", asked="texts")

    @override
    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        """Return the manifest entry of an image, with the findings asked."""
        from reveal_bench.kinds.images import VIEWS

        entry = {name: row[name] for name in ("image_id", "study_id", "width", "height")}
        return {**entry, "view": VIEWS[row["view"]], "asked": list(asked)}

    @override
    def read(self, folder: AnyFolder, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        """Yield one question per image and finding asked."""
        from reveal_bench.kinds.questions import Question, ViewedImage

        for row in self.read_manifest(folder, split).rows.values():
            image = ViewedImage(row.image_id, row.view, row.size)
            for finding in row.asked:
                yield Question(f"{row.image_id}|{finding}", form, (image,), finding, info.asks == "present")

    @override
    def scope(self, manifest: ImageManifest) -> tuple[tuple[str, ...], int]:
        """Return (findings, number of images)."""
        return manifest.findings, len(manifest.rows)

    @override
    def manifest_entries(self, manifest: ImageManifest) -> list[Row]:
        """Return a row per image, with the findings asked."""
        return [asdict(row) for row in manifest.rows.values()]


class ImagePredictions(Predictions["LocalizationPrediction", ImagesT, RowsT]):
    """Prediction files of images."""

    confidence_field: ClassVar = "score"
    names_places: ClassVar = True
    reads_parquet: ClassVar = True

    @override
    def to_jsonl(self, predictions: Iterable[LocalizationPrediction]) -> str:
        from reveal_bench.kinds.localization.formats import predictions_to_jsonl

        return predictions_to_jsonl(predictions)

    @override
    def entry(self, fields: Row) -> Row:
        """Return the fields of a line; ``mask`` may be an array (height, width) of the full image, bool or 0 and 1."""
        entry = dict(fields)
        if "mask" in entry:
            import numpy as np

            from reveal_bench.masks import MAX_PIXELS, encode_mask

            rule = "must be an array of bool, or of 0 and 1, such as mask > threshold"
            try:
                array = np.asarray(entry.pop("mask"))
            except ValueError:
                raise ArgumentError("mask", rule, "rows of different lengths, or too many dimensions") from None
            if array.dtype.kind not in "biuf":
                raise ArgumentError("mask", rule, f"an array of {array.dtype}")
            if array.size <= MAX_PIXELS and (others := array[(array != 0) & (array != 1)]).size:
                raise ArgumentError("mask", rule, ", ".join(map(str, np.unique(others)[:3].tolist())))
            mask = encode_mask(array)
            entry["rle"] = {"size": list(mask.size), "counts": mask.counts}
        return entry


class ImageReaders(Readers["LocalizationRecord", "LocalizationPrediction", "Drawn"]):
    """Readers' drawings, used as references or as predictions of images."""

    @override
    def by_reading(self, record: LocalizationRecord, reading: Drawn) -> LocalizationRecord:
        from reveal_bench.kinds.localization.cases import image_by_reading

        return image_by_reading(record, reading)

    @override
    def readings(
        self, folder: AnyFolder, split: str, records: Sequence[LocalizationRecord]
    ) -> dict[str, dict[str, Drawn]]:
        from reveal_bench.kinds.localization.cases import drawn_readings

        return drawn_readings(folder, split, records)

    @override
    def agreed(self, record: LocalizationRecord, readings: Sequence[Drawn], at_least: int) -> Drawn:
        from reveal_bench.kinds.localization.cases import agreed_regions

        return agreed_regions(record, readings, at_least)


class ImageExchange(AnnotationExchange["LocalizationRecord", "LocalizationPrediction", "ImageManifest"]):
    """Exchange of images."""

    @override
    def drawn_references(self, records: Sequence[LocalizationRecord], manifest: ImageManifest) -> Annotations:
        from reveal_bench.kinds.localization.cases import drawn_references

        return drawn_references(records, manifest)

    @override
    def drawn_predictions(
        self,
        predictions: Iterable[LocalizationPrediction],
        records: Sequence[LocalizationRecord],
        manifest: ImageManifest,
    ) -> Annotations:
        from reveal_bench.kinds.localization.cases import drawn_predictions

        return drawn_predictions(predictions, records, manifest)


class ImageDisplay(Display["LocalizationRecord", "LocalizationPrediction", RowsT]):
    """Display of images."""

    holds: ClassVar = "references and pictures, one row per image"
    picture_words: ClassVar = "`image` is"

    @property
    @override
    def meanings(self) -> Mapping[str, str]:
        from reveal_bench.kinds.localization.rows import MEANINGS

        return MEANINGS

    @override
    def case(self, record: LocalizationRecord) -> Case:
        from reveal_bench.kinds.localization.cases import case_of_image

        return case_of_image(record)
