"""Detection kind of benchmark: findings are located on images with confidences, and false alarms count. A row is an
image.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
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
from reveal_bench.kinds.parts import Release, Scoring, fields_of, override
from reveal_bench.predictions.limits import LintOptions

if TYPE_CHECKING:
    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.arrays import Marks
    from reveal_bench.kinds.cases import Annotations, CaseAnswer
    from reveal_bench.kinds.detection.arrays import DetectionCodec
    from reveal_bench.kinds.detection.records import DetectionManifest
    from reveal_bench.kinds.detection.scoring import DetectionRows
    from reveal_bench.kinds.folder import AnyFolder
    from reveal_bench.kinds.localization.cases import Drawn
    from reveal_bench.kinds.localization.records import (
        Annotation,
        ImageManifest,
        LocalizationPrediction,
        LocalizationRecord,
    )
    from reveal_bench.kinds.options import ScoringOptions, Thresholds
    from reveal_bench.kinds.questions import Answer
    from reveal_bench.kinds.rows import Row
    from reveal_bench.kinds.scored import Curves, Disclosure
    from reveal_bench.kinds.tasks.records import Rating
    from reveal_bench.metrics.intervals import Resampling
    from reveal_bench.predictions.report import LintReport

__all__ = ["DETECTION"]


class DetectionData(ImageData):
    """Records of detection."""

    @override
    def fused(
        self, records: Iterable[LocalizationRecord], how: str, iou: float
    ) -> tuple[Iterator[LocalizationRecord], str]:
        from reveal_bench.kinds.detection.fusion import fuse_readers, fusion_in_words

        return fuse_readers(records, how, iou), fusion_in_words(how, iou)  # type: ignore[arg-type]

    @override
    def read_records(self, folder: AnyFolder, split: str) -> list[LocalizationRecord]:
        """Return the images of `split` with their references and contours, because instances may be separated only by
        contours.
        """
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split, config="detection")

    @override
    def read_references(self, folder: AnyFolder, split: str) -> list[LocalizationRecord]:
        return self.read_records(folder, split)


class DetectionQuestions(ImageQuestions["DetectionManifest"]):
    """Questions about detection."""

    forms: ClassVar = ("boxes", "box")
    has_several_places: ClassVar = True

    @override
    def read_manifest(self, folder: AnyFolder, split: str) -> DetectionManifest:
        from reveal_bench.kinds.detection.records import read_detection_manifest

        return read_detection_manifest(folder, split)

    @override
    def asked(self, record: LocalizationRecord, benchmark: Benchmark, asks: str) -> list[str]:
        """Return all findings."""
        return list(record.label_status)

    @override
    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """Return all findings."""
        return list(findings)

    @override
    def manifest_disclosure(self, asks: str) -> str:
        """Return the sentence that a model is asked for every finding of every image."""
        return "The manifest asks for every finding of every image, so it does not reveal which are present."


class DetectionPredictions(ImagePredictions["DetectionManifest", "DetectionRows"]):
    """Prediction files of detection."""

    @override
    def lint(self, path: Path, manifest: ImageManifest, options: LintOptions = LintOptions()) -> LintReport:
        from reveal_bench.kinds.detection.lint import lint_detections

        return lint_detections(path, manifest, options)

    @override
    def answers_at(
        self,
        places: Sequence[LocalizationPrediction],
        manifest: ImageManifest,
        *,
        shares: Mapping[str, float] | None,
        seed: int,
    ) -> list[LocalizationPrediction]:
        from reveal_bench.kinds.detection.cases import detections_of_places

        return detections_of_places(places, manifest, shares=shares, seed=seed)

    @override
    def codec(self) -> DetectionCodec:
        from reveal_bench.kinds.detection.arrays import DetectionCodec

        return DetectionCodec()

    @override
    def example_upload(self) -> tuple[DetectionManifest, str]:
        from reveal_bench.kinds.detection.arrays import example_upload

        return example_upload()

    @override
    def example_rows(self) -> list[DetectionRows]:
        from reveal_bench.kinds.detection.arrays import example_rows

        return example_rows()

    @override
    def from_answer(self, answer: Answer) -> list[LocalizationPrediction]:
        """Return one detection for each of several boxes, otherwise one for the box or mask of the answer.

        A box or mask without a score gets the score 1.
        """
        from reveal_bench.kinds.localization.records import LocalizationPrediction

        unit, finding = answer.unit, answer.finding or ""
        if answer.detections:
            return [LocalizationPrediction(unit, finding, box=one.box, score=one.score) for one in answer.detections]
        score = 1.0 if answer.score is None else answer.score
        return [LocalizationPrediction(unit, finding, box=answer.box, mask=answer.mask, score=score)]

    @override
    def entries(self, key: str, answer: object) -> list[Row]:
        """Return a line for each detection in ``{finding: [detection]}``: the fields of a line or ``(box, score)``."""
        if not isinstance(answer, Mapping) or "abstain" in answer:
            return [self.entry(fields_of("image_id", key, answer))]
        return [self.entry({"image_id": key, "finding": finding, **_fields(one)})
                for finding, several in answer.items() for one in _several(several)]  # fmt: skip


class DetectionScoring(Scoring["LocalizationRecord", "LocalizationPrediction", "DetectionManifest", "DetectionRows"]):
    """Scores of detection."""

    intervals: ClassVar = ("shifted", "percentile")
    criteria: ClassVar = ("centre", "mask", "iou_50", "iobb_50")

    @override
    def curves(self, rows: DetectionRows, resampling: Resampling) -> Curves:
        from reveal_bench.kinds.detection.cases import curves_of_detections

        return curves_of_detections(rows, resampling)

    @override
    def protocol(self, options: ScoringOptions) -> dict[str, object]:
        """Return the lowest score at which a detection counts, for metrics at a threshold fixed beforehand."""
        return {"thresholds": options.plain_thresholds}

    @override
    def score(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Iterable[LocalizationRecord],
        manifest: DetectionManifest,
        options: ScoringOptions,
        ratings: Sequence[Rating] = (),
    ) -> DetectionRows:
        from reveal_bench.kinds.detection.scoring import score_detections

        return score_detections(
            predictions,
            list(records),
            findings=manifest.scored,
            thresholds=options.thresholds_of(manifest.scored, manifest.findings),
            criterion=options.criterion or self.criteria[0],
        )


class DetectionReaders(ImageReaders):
    """Readers' drawings, used as references or as predictions of detection."""

    @override
    def readings(
        self, folder: AnyFolder, split: str, records: Sequence[LocalizationRecord]
    ) -> dict[str, dict[str, Drawn]]:
        from reveal_bench.kinds.detection.cases import detected_readings

        return detected_readings(folder, split, records)

    @override
    def agreed(
        self, record: LocalizationRecord, readings: Sequence[Mapping[str, Annotation]], at_least: int
    ) -> dict[str, Annotation]:
        from reveal_bench.kinds.detection.fusion import agreed_lesions

        return agreed_lesions(record, readings, at_least)

    @override
    def by_reading(self, record: LocalizationRecord, reading: Drawn) -> LocalizationRecord:
        from reveal_bench.kinds.detection.cases import detected_by_reading

        return detected_by_reading(record, reading)

    @override
    def answers_of(self, record: LocalizationRecord, reading: Drawn) -> list[LocalizationPrediction]:
        from reveal_bench.kinds.detection.cases import detections_of_reader

        return detections_of_reader(record, reading)


class DetectionExchange(ImageExchange):
    """Exchange of detection."""

    @override
    def drawn_references(self, records: Sequence[LocalizationRecord], manifest: ImageManifest) -> Annotations:
        from reveal_bench.kinds.detection.cases import drawn_instances

        return drawn_instances(records, manifest)

    @override
    def to_predictions(self, annotations: Annotations) -> tuple[list[LocalizationPrediction], list[str]]:
        from reveal_bench.kinds.detection.cases import detections_of

        return detections_of(annotations)


class DetectionRelease(Release["LocalizationPrediction", "DetectionManifest", "DetectionRows"]):
    """Release policy for scores of detection."""

    primary: ClassVar = "ap_50"
    metrics: ClassVar = ("ap_50", "cpm")
    requires_negatives: ClassVar = True

    @override
    def largest_cell(self, manifest: DetectionManifest) -> tuple[int, str]:
        return len(manifest.rows), "images"

    @override
    def disclose(
        self,
        rows: DetectionRows,
        resampling: Resampling,
        *,
        min_cell: int,
        ranked_by: str = "",
        left_out: Collection[str] = (),
    ) -> Disclosure:
        from reveal_bench.kinds.detection.scoring import disclose_detections

        return disclose_detections(rows, self.metrics, resampling, min_cell=min_cell, left_out=left_out)

    @override
    def marks(
        self, predictions: Sequence[LocalizationPrediction], manifest: ImageManifest, thresholds: Thresholds
    ) -> Marks:
        from reveal_bench.kinds.detection.arrays import marks_of_detections

        return marks_of_detections(predictions, manifest, thresholds)

    @override
    def signs(self, predictions: Sequence[LocalizationPrediction], manifest: ImageManifest) -> list[str]:
        from reveal_bench.kinds.detection.arrays import signs_of_detections

        return signs_of_detections(predictions, manifest)


class DetectionDisplay(ImageDisplay["DetectionRows"]):
    """Display of detection."""

    question: ClassVar = (
        "Which findings does a chest radiograph show, and where? Answers are boxes, masks or points with "
        "scores; marks where there is no finding count against a model."
    )
    asked_in_words: ClassVar = (
        "A model is asked which findings an image shows, and where: every finding is asked of every image, and a false "
        "alarm counts. An image on which the presence or place of a finding is unknown does not count in the "
        "scores of that finding."
    )
    scored_in_words: ClassVar = (
        "A finding that a run does not mark counts as absent. For scores at a threshold, detections with a "
        "score of at least 0.5 count."
    )
    compared_in_words: ClassVar = (
        ". Differences are paired by patient; their intervals and p come from the same {n} resamples."
    )
    outcomes: ClassVar = ("right", "wrong")

    @override
    def case_answers(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Sequence[LocalizationRecord],
        rows: DetectionRows,
        options: ScoringOptions,
    ) -> dict[str, list[CaseAnswer]]:
        from reveal_bench.kinds.detection.cases import answers_of_detections

        return answers_of_detections(predictions, records, rows)


DETECTION: Kind[LocalizationRecord, LocalizationPrediction, DetectionManifest, DetectionRows, Drawn] = Kind(
    name="detection",
    config="detection",
    key="image_id",
    counted="n_images",
    unit="image",
    data=DetectionData(),
    table=ImageTable(),
    questions=DetectionQuestions(),
    predictions=DetectionPredictions(),
    scoring=DetectionScoring(),
    release=DetectionRelease(),
    display=DetectionDisplay(),
    readers=DetectionReaders(),
    exchange=DetectionExchange(),
)
"""Boxes, masks and points with scores, of every finding on every image.

Datasets of this kind have the rows of localization, with one box for each instance that is drawn.
"""


_DETECTIONS = (
    "must have a list of (box, score), or of fields of a line, for each finding of an image; torchvision's boxes, "
    "labels and scores are converted by rb.convert(outputs, bench, categories=names): see docs/detection.md"
)


def _several(detections: object) -> Iterable[object]:
    if isinstance(detections, str) or not isinstance(detections, Iterable):
        raise ArgumentError("predictions", _DETECTIONS, repr(detections)[:80])
    return detections


def _fields(one: object) -> Row:
    if isinstance(one, Mapping):
        return dict(one)
    if not isinstance(one, Sequence) or isinstance(one, str) or len(one) != 2:
        raise ArgumentError("predictions", _DETECTIONS, repr(one)[:80])
    box, score = one
    return {"box": list(box), "score": score}
