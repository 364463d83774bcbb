"""Localization kind of benchmark: where a finding is on an image (papers 000 and 002). A row is an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.kind import Kind
from reveal_bench.kinds.localization.image_kind import (
    ImageData,
    ImageDisplay,
    ImageExchange,
    ImagePredictions,
    ImageQuestions,
    ImageReaders,
    ImageTable,
)
from reveal_bench.kinds.parts import Release, Scoring, cases_of_average, override
from reveal_bench.predictions.limits import LintOptions

if TYPE_CHECKING:
    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.arrays import Marks
    from reveal_bench.kinds.cases import Annotations, CaseAnswer
    from reveal_bench.kinds.folder import AnyFolder
    from reveal_bench.kinds.localization.arrays import LocalizationCodec
    from reveal_bench.kinds.localization.cases import Drawn
    from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, LocalizationRecord
    from reveal_bench.kinds.localization.scoring import CaseRows
    from reveal_bench.kinds.options import ScoringOptions, Thresholds
    from reveal_bench.kinds.questions import Answer
    from reveal_bench.kinds.rows import Row
    from reveal_bench.kinds.scored import Disclosure
    from reveal_bench.kinds.tasks.records import Rating
    from reveal_bench.metrics.intervals import Resampling
    from reveal_bench.predictions.report import LintReport

__all__ = ["LOCALIZATION"]


class LocalizationData(ImageData):
    """Records of localization."""

    @override
    def read_records(self, folder: AnyFolder, split: str) -> list[LocalizationRecord]:
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split)

    @override
    def read_references(self, folder: AnyFolder, split: str) -> Iterator[LocalizationRecord]:
        """Return the images of `split` with their references, without contours, a few at a time."""
        from reveal_bench.kinds.localization.records import each_localization

        return each_localization(folder, split, contours=False)


class LocalizationQuestions(ImageQuestions["ImageManifest"]):
    """Questions about localization."""

    forms: ClassVar = ("cell", "point", "box")
    uses_grid: ClassVar = True

    @override
    def read_manifest(self, folder: AnyFolder, split: str) -> ImageManifest:
        from reveal_bench.kinds.localization.records import read_manifest

        return read_manifest(folder, split)

    @override
    def asked(self, record: LocalizationRecord, benchmark: Benchmark, asks: str) -> list[str]:
        """Return the findings that a model must locate on an image."""
        return record.asked(asks)

    @override
    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """Return all findings, or only those with a ground truth."""
        from reveal_bench.kinds.localization.rows import findings_drawn

        return list(findings) if asks == "all" else findings_drawn(row, findings)

    @override
    def manifest_disclosure(self, asks: str) -> str:
        """Return the sentence on the findings that the manifest asks for."""
        if asks == "present":
            return (
                "The manifest names the findings that are present in each image, because the protocol tells a model "
                "what to look for. So it is public which findings are present, but not where they are."
            )
        return "The manifest asks for every finding of every image, so it does not reveal which are present."


class LocalizationPredictions(ImagePredictions["ImageManifest", "CaseRows"]):
    """Prediction files of localization."""

    @override
    def lint(self, path: Path, manifest: ImageManifest, options: LintOptions = LintOptions()) -> LintReport:
        from reveal_bench.kinds.localization.lint import lint_predictions

        return lint_predictions(path, manifest, options)

    @override
    def codec(self) -> LocalizationCodec:
        from reveal_bench.kinds.localization.arrays import LocalizationCodec

        return LocalizationCodec()

    @override
    def example_upload(self) -> tuple[ImageManifest, str]:
        from reveal_bench.kinds.localization.arrays import example_upload

        return example_upload()

    @override
    def example_rows(self) -> list[CaseRows]:
        from reveal_bench.kinds.localization.arrays import example_rows

        return example_rows()

    @override
    def from_answer(self, answer: Answer) -> list[LocalizationPrediction]:
        """Return a prediction with the location in the answer."""
        from reveal_bench.kinds.localization.records import LocalizationPrediction

        points = (answer.point,) if answer.point else ()
        place = answer.cell, answer.box, answer.mask, answer.score
        return [LocalizationPrediction(answer.unit, answer.finding or "", points, *place)]

    @override
    def entries(self, key: str, answer: object) -> list[Row]:
        """Return a line for each finding of ``{finding: location}``.

        A location is a point (x, y), a list of points, a cell, a mask, or a mapping of a line's fields."""
        if not isinstance(answer, Mapping):
            rule = "must map images to findings and findings to locations, as {image: {finding: (x, y)}}"
            raise ArgumentError("predictions", rule, f"{type(answer).__name__} for {key!r}")
        from reveal_bench.kinds.localization.formats import place_fields

        return [self.entry({"image_id": key, "finding": finding, **place_fields(place)})
                for finding, place in answer.items() if place is not None]  # fmt: skip


class LocalizationScoring(Scoring["LocalizationRecord", "LocalizationPrediction", "ImageManifest", "CaseRows"]):
    """Scores of localization."""

    intervals: ClassVar = ("jackknife", "percentile", "bca", "chexlocalize")
    missing_as: ClassVar = ("miss", "empty")

    @override
    def protocol(self, options: ScoringOptions) -> dict[str, object]:
        """Return the number of grid cells per side, and which findings are asked."""
        return {"grid": options.grid, "asks": options.asks}

    @override
    def score(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Iterable[LocalizationRecord],
        manifest: ImageManifest,
        options: ScoringOptions,
        ratings: Sequence[Rating] = (),
    ) -> CaseRows:
        """Return a row per image and finding (:func:`~reveal_bench.kinds.localization.scoring.score_localization`)."""
        from reveal_bench.kinds.localization.scoring import score_localization

        return score_localization(
            predictions,
            records,
            findings=manifest.scored,
            grid=options.n_cells,
            asks=options.asks,
            missing=options.missing or "miss",
            form=options.form,
        )


class LocalizationReaders(ImageReaders):
    """Readers' drawings, used as references or as predictions of localization."""

    @override
    def answers_of(self, record: LocalizationRecord, reading: Drawn) -> list[LocalizationPrediction]:
        from reveal_bench.kinds.localization.cases import predictions_of_reader

        return predictions_of_reader(record, reading)


class LocalizationExchange(ImageExchange):
    """Exchange of localization."""

    @override
    def to_predictions(self, annotations: Annotations) -> tuple[list[LocalizationPrediction], list[str]]:
        from reveal_bench.kinds.localization.cases import predictions_of

        return predictions_of(annotations)


class LocalizationRelease(Release["LocalizationPrediction", "ImageManifest", "CaseRows"]):
    """Release policy for scores of localization."""

    primary: ClassVar = "point_hit"
    fallback_metrics: ClassVar = ("grid_hit",)
    metrics: ClassVar = ("point_hit", "point_chance", "grid_hit", "grid_chance", "mask_iou_all", "box_iou")
    chance_metrics: ClassVar = MappingProxyType({"point_hit": "point_chance", "grid_hit": "grid_chance"})
    positional_metrics: ClassVar = ("point_hit", "grid_hit", "mask_iou_all", "box_iou")

    @override
    def disclose(
        self,
        rows: CaseRows,
        resampling: Resampling,
        *,
        min_cell: int,
        ranked_by: str = "",
        left_out: Collection[str] = (),
    ) -> Disclosure:
        from reveal_bench.kinds.localization.disclosure import disclose_cases

        hit = ranked_by or self.primary
        released = sorted(self.metrics, key=lambda metric: metric not in (hit, self.chance_metrics[hit]))
        return disclose_cases(rows, released, resampling, min_cell=min_cell, left_out=left_out)

    @override
    def marks(
        self, predictions: Sequence[LocalizationPrediction], manifest: ImageManifest, thresholds: Thresholds
    ) -> Marks:
        from reveal_bench.kinds.localization.arrays import marks_of

        return marks_of(predictions, manifest, thresholds)

    @override
    def signs(self, predictions: Sequence[LocalizationPrediction], manifest: ImageManifest) -> list[str]:
        from reveal_bench.kinds.localization.arrays import signs_of

        return signs_of(predictions, manifest)

    @override
    def largest_cell(self, manifest: ImageManifest) -> tuple[int, str]:
        """Return the number of cases of the finding that has the most questions."""
        [(finding, n)] = Counter(finding for _, finding in manifest.asked_pairs()).most_common(1) or [("a finding", 0)]
        return n, f"cases of {finding}, the most of any finding"

    @override
    def cases_of_average(self, manifest: ImageManifest, min_cell: int) -> float:
        """Return ``K**2 / sum(1 / n_i)`` for the K shown findings with n_i cases each."""
        counts = Counter(finding for _, finding in manifest.asked_pairs()).values()
        return cases_of_average([n for n in counts if n >= min_cell])


class LocalizationDisplay(ImageDisplay["CaseRows"]):
    """Display of localization."""

    question: ClassVar = "Where is each finding of a chest radiograph? Answers are points, grid cells, boxes or masks."
    asked_in_words: ClassVar = "A model is asked, for an image and a finding that is present, where it is."
    outcomes: ClassVar = ("hit", "miss")
    run_report: ClassVar = "hits"

    @override
    def case_answers(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Sequence[LocalizationRecord],
        rows: CaseRows,
        options: ScoringOptions,
    ) -> dict[str, list[CaseAnswer]]:
        from reveal_bench.geometry import Grid
        from reveal_bench.kinds.localization.cases import answers_of_images

        return answers_of_images(predictions, records, rows, Grid(options.n_cells))


LOCALIZATION: Kind[LocalizationRecord, LocalizationPrediction, ImageManifest, CaseRows, Drawn] = Kind(
    name="localization",
    config="localization",
    key="image_id",
    counted="n_images",
    unit="image",
    data=LocalizationData(),
    table=ImageTable(),
    questions=LocalizationQuestions(),
    predictions=LocalizationPredictions(),
    scoring=LocalizationScoring(),
    release=LocalizationRelease(),
    display=LocalizationDisplay(),
    readers=LocalizationReaders(),
    exchange=LocalizationExchange(),
)
"""Points, cells, boxes and masks of findings on images."""
