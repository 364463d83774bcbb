"""Detection: where findings are on an image and how sure that is, where false alarms count. A row is an image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.kind import deferred
from reveal_bench.kinds.localization.image_kind import ImageKind

if TYPE_CHECKING:
    from reveal_bench.kinds.detection.records import DetectionManifest
    from reveal_bench.kinds.detection.scoring import DetectionRows
    from reveal_bench.kinds.folder import FolderInfo
    from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
    from reveal_bench.kinds.rows import Row

__all__ = ["Detection"]


class Detection(ImageKind):
    """Boxes, masks and points with scores, of every finding on every image.

    Its datasets have the rows of localization, with a box for each instance that is drawn.
    """

    name: ClassVar = "detection"
    config: ClassVar = "detection"
    question: ClassVar = (
        "Which findings does a chest radiograph show, and where? Answers are boxes, masks or points with scores; what "
        "is marked where nothing is counts against a model."
    )
    intervals: ClassVar = ("shifted", "percentile")
    asked_in_words: ClassVar = (
        "A model is asked which findings an image shows, and where: every finding is asked of every image, and a false "
        "alarm counts. Where it is not known whether or where a finding is on an image, that image has no part in the "
        "figures of that finding."
    )
    scored_in_words: ClassVar = (
        "What a run does not mark counts as absent. For figures at a threshold, detections count that score 0.5 or "
        "more."
    )
    compared_in_words: ClassVar = (
        ". Differences are paired by patient; their intervals and p come from the same {n} resamples."
    )
    criteria: ClassVar = ("centre", "mask", "iou_50", "iobb_50")
    primary: ClassVar = "ap_50"
    released: ClassVar = ("ap_50", "cpm")
    needs_absent: ClassVar = True
    outcomes: ClassVar = ("right", "wrong")
    forms: ClassVar = ("boxes", "box")
    has_several_places: ClassVar = True

    read_manifest = deferred("reveal_bench.kinds.detection.records", "read_detection_manifest")
    linter = deferred("reveal_bench.kinds.detection.lint", "lint_detections")
    lint_options: ClassVar = ("leave_out_unknown",)
    answers_at = deferred("reveal_bench.kinds.detection.cases", "detections_of_places")
    curves = deferred("reveal_bench.kinds.detection.cases", "curves_of_detections")
    readings = deferred("reveal_bench.kinds.detection.cases", "detected_readings")
    agreed = deferred("reveal_bench.kinds.detection.fusion", "agreed_lesions")
    by_reading = deferred("reveal_bench.kinds.detection.cases", "detected_by_reading")
    answers_of = deferred("reveal_bench.kinds.detection.cases", "detections_of_reader")
    drawn_references = deferred("reveal_bench.kinds.detection.cases", "drawn_instances")
    undrawn = deferred("reveal_bench.kinds.detection.cases", "detections_of")
    case_answers = deferred("reveal_bench.kinds.detection.cases", "answers_of_detections")
    disclosing = deferred("reveal_bench.kinds.detection.scoring", "disclose_detections")
    codec = deferred("reveal_bench.kinds.detection.canonical", "DetectionCodec")
    marks = deferred("reveal_bench.kinds.detection.canonical", "marks_of_detections")
    signs = deferred("reveal_bench.kinds.detection.canonical", "signs_of_detections")
    example_upload = deferred("reveal_bench.kinds.detection.canonical", "example_upload")
    example_rows = deferred("reveal_bench.kinds.detection.canonical", "example_rows")

    def asked(self, record: LocalizationRecord, benchmark: Any, asks: str) -> list[str]:
        """All findings."""
        return list(record.label_status)

    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """All findings."""
        return list(findings)

    def holdout_tells(self, asks: str) -> str:
        """That every finding is asked of every image."""
        return "The manifest asks for every finding of every image, so that it tells nothing of what is present."

    def fused(
        self, records: Iterable[LocalizationRecord], how: str, iou: float
    ) -> tuple[Iterator[LocalizationRecord], str]:
        """See :mod:`reveal_bench.kinds.detection.fusion`."""
        from reveal_bench.kinds.detection.fusion import fuse_readers, fusion_in_words

        return fuse_readers(records, how, iou), fusion_in_words(how, iou)  # type: ignore[arg-type]

    def read_records(self, folder: Path, split: str) -> list[LocalizationRecord]:
        """The images of `split` with their references."""
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split, config=self.config)

    def read_references(self, folder: Path, split: str) -> list[LocalizationRecord]:
        """The same: contours may be what tells instances apart."""
        return self.read_records(folder, split)

    def prediction(self, answer: Any) -> LocalizationPrediction:
        """The box that was named; of a model that does not say how sure it is, with the score 1."""
        from reveal_bench.kinds.localization.records import LocalizationPrediction

        score = 1.0 if answer.score is None else answer.score
        return LocalizationPrediction(answer.unit, answer.finding or "", box=answer.box, mask=answer.mask, score=score)

    def predictions(self, answer: Any) -> list[LocalizationPrediction]:
        """A detection for each of several boxes, else the one that was named."""
        from reveal_bench.kinds.localization.records import LocalizationPrediction

        several = [
            LocalizationPrediction(answer.unit, answer.finding or "", box=one.box, score=one.score)
            for one in answer.detections
        ]
        return several or [self.prediction(answer)]

    def entries(self, key: str, answer: Any) -> list[dict[str, Any]]:
        """Finding -> a list of detections, each fields of a line or ``(box, score)``."""
        if not isinstance(answer, Mapping) or "abstain" in answer:
            return super().entries(key, answer)
        return [self.entry({"image_id": key, "finding": finding, **_fields(one)})
                for finding, several in answer.items() for one in several]  # fmt: skip

    def protocol(
        self, info: FolderInfo, *, grid: int | None, thresholds: float | Mapping[str, float]
    ) -> dict[str, Any]:
        """Scores from which a detection counts, for figures at a threshold fixed beforehand."""
        return {"thresholds": thresholds}

    def score(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Sequence[LocalizationRecord],
        manifest: DetectionManifest,
        protocol: Mapping[str, Any],
        ratings: Sequence[Any] = (),
    ) -> DetectionRows:
        """See :func:`~reveal_bench.kinds.detection.scoring.score_detections`."""
        from reveal_bench.kinds.detection.scoring import score_detections

        how = {"thresholds": protocol.get("thresholds", 0.5), "criterion": protocol.get("criterion", "centre")}
        return score_detections(predictions, records, findings=manifest.findings, **how)


def _fields(one: Any) -> dict[str, Any]:
    if isinstance(one, Mapping):
        return dict(one)
    if not isinstance(one, Sequence) or isinstance(one, str) or len(one) != 2:
        rule = (
            "must have a list of (box, score), or of fields of a line, for each finding of an image; boxes, labels and "
        )
        rule += "scores as torchvision gives them are rows for rb.convert, with boxes='xyxy' and `categories`: see "
        rule += "docs/detection.md"
        raise ArgumentError("predictions", rule, repr(one)[:80])
    box, score = one
    return {"box": list(box), "score": score}
