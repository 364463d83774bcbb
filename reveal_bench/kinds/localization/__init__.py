"""Localization: where a finding is on an image (papers 000 and 002). A row is an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.kind import deferred
from reveal_bench.kinds.localization.image_kind import ImageKind

if TYPE_CHECKING:
    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.folder import FolderInfo
    from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord, Manifest
    from reveal_bench.kinds.localization.scoring import CaseRows
    from reveal_bench.kinds.rows import Row

__all__ = ["Localization"]


class Localization(ImageKind):
    """Points, cells, boxes and masks of findings on images."""

    name: ClassVar = "localization"
    config: ClassVar = "localization"
    question: ClassVar = "Where is each finding of a chest radiograph? Answers are points, grid cells, boxes or masks."
    asked_in_words: ClassVar = "A model is asked, for an image and a finding that is present, where it is."
    intervals: ClassVar = ("jackknife", "percentile", "bca", "chexlocalize")
    missing_as: ClassVar = ("miss", "empty")
    primary: ClassVar = "point_hit"
    stand_ins: ClassVar = ("grid_hit",)
    released: ClassVar = ("point_hit", "grid_hit", "grid_chance", "mask_iou_all", "box_iou")
    of_places: ClassVar = ("point_hit", "grid_hit", "mask_iou_all", "box_iou")
    most_answers: ClassVar = ((0, 1),)  # a file asks about places by points, cells, masks and boxes
    outcomes: ClassVar = ("hit", "miss")
    forms: ClassVar = ("cell", "point", "box")
    uses_grid: ClassVar = True
    run_report: ClassVar = "hits"

    read_records = deferred("reveal_bench.kinds.localization.records", "read_localization")
    read_manifest = deferred("reveal_bench.kinds.localization.records", "read_manifest")
    linter = deferred("reveal_bench.kinds.localization.lint", "lint_predictions")
    lint_options: ClassVar = ("grid", "allow_missing", "leave_out_unknown")
    answers_of = deferred("reveal_bench.kinds.localization.cases", "predictions_of_reader")
    undrawn = deferred("reveal_bench.kinds.localization.cases", "predictions_of")
    case_answers = deferred("reveal_bench.kinds.localization.cases", "answers_of_images")
    disclosing = deferred("reveal_bench.kinds.localization.released", "disclose_cases")
    codec = deferred("reveal_bench.kinds.localization.canonical", "LocalizationCodec")
    marks = deferred("reveal_bench.kinds.localization.canonical", "marks_of")
    signs = deferred("reveal_bench.kinds.localization.canonical", "signs_of")
    example_upload = deferred("reveal_bench.kinds.localization.canonical", "example_upload")
    example_rows = deferred("reveal_bench.kinds.localization.canonical", "example_rows")

    def largest_cell(self, manifest: Manifest) -> tuple[int, str]:
        """How often the finding is asked for that is asked for most."""
        [(finding, n)] = Counter(finding for _, finding in manifest.asked_pairs()).most_common(1) or [("a finding", 0)]
        return n, f"cases of {finding}, the most of any finding"

    def asked(self, record: LocalizationRecord, benchmark: Benchmark, asks: str) -> list[str]:
        """Findings to be found on an image."""
        return record.asked(asks)

    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """All findings, or those that have a ground truth."""
        from reveal_bench.kinds.localization.rows import findings_drawn

        return list(findings) if asks == "all" else findings_drawn(row, findings)

    def holdout_tells(self, asks: str) -> str:
        """That findings are asked for by name."""
        if asks == "present":
            return (
                "The manifest names the findings that are present in each of them, as the protocol tells a model what "
                "to look for: that is public, where they are is not."
            )
        return "The manifest asks for every finding of every image, so that it tells nothing of what is present."

    def read_references(self, folder: Path, split: str) -> list[LocalizationRecord]:
        """The images of `split` with their references, without contours."""
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split, contours=False)

    def each_reference(self, folder: Path, split: str) -> Iterator[LocalizationRecord]:
        """The same, a few at a time."""
        from reveal_bench.kinds.localization.records import each_localization

        return each_localization(folder, split, contours=False)

    def prediction(self, answer: Any) -> LocalizationPrediction:
        """The place that was named."""
        from reveal_bench.kinds.localization.records import LocalizationPrediction

        points = (answer.point,) if answer.point else ()
        place = answer.cell, answer.box, answer.mask, answer.score
        return LocalizationPrediction(answer.unit, answer.finding or "", points, *place)

    def entries(self, key: str, answer: Any) -> list[dict[str, Any]]:
        """Finding -> fields of a line, a point (x, y), a list of points, a cell, or a run-length mask."""
        if not isinstance(answer, Mapping):
            rule = "must map an image to its findings and these to places, as {image: {finding: (x, y)}}"
            raise ArgumentError("predictions", rule, f"{type(answer).__name__} for {key!r}")
        from reveal_bench.kinds.localization.formats import place_fields

        return [self.entry({"image_id": key, "finding": finding, **place_fields(place)})
                for finding, place in answer.items() if place is not None]  # fmt: skip

    def protocol(
        self, info: FolderInfo, *, grid: int | None, thresholds: float | Mapping[str, float]
    ) -> dict[str, Any]:
        """Cells per side, and which findings are asked."""
        return {"grid": info.grid if grid is None else grid, "asks": info.asks}

    def score(
        self,
        predictions: Sequence[LocalizationPrediction],
        records: Iterable[LocalizationRecord],
        manifest: Manifest,
        protocol: Mapping[str, Any],
        ratings: Sequence[Any] = (),
    ) -> CaseRows:
        """One row per image and finding, see :func:`~reveal_bench.kinds.localization.scoring.score_localization`."""
        from reveal_bench.kinds.localization.scoring import score_localization

        how = {"grid": protocol["grid"], "asks": protocol["asks"], "missing": protocol.get("missing", "miss")}
        return score_localization(predictions, records, findings=manifest.findings, **how)
