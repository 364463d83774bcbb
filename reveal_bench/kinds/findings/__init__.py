"""Findings: which of a list of findings a study shows (paper 004). A row is a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reveal_bench.kinds.kind import Kind, deferred

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest, StudyRecord
    from reveal_bench.kinds.findings.scoring import StudyRows
    from reveal_bench.kinds.folder import FolderInfo
    from reveal_bench.kinds.images import Developed, PictureFile
    from reveal_bench.kinds.questions import Question
    from reveal_bench.kinds.rows import Row

__all__ = ["RELEASED_PER_LABEL", "Findings"]

RELEASED_PER_LABEL = ("f1", "recall", "cohen_kappa")
"""Metrics that a board shows per label: all three tell the same, how many of the studies called have it."""


class Findings(Kind):
    """Labels or probabilities of studies."""

    name: ClassVar = "findings"
    config: ClassVar = "multilabel"
    key: ClassVar = "study_id"
    counted: ClassVar = "n_studies"
    image_columns: ClassVar = ("images",)
    unit: ClassVar = "study"
    question: ClassVar = "Which findings does a chest radiography study show? Answers are labels or probabilities."
    holds: ClassVar = "labels and pictures, one row per study"
    picture_words: ClassVar = "the elements of `images` are"
    primary: ClassVar = "f1"
    released: ClassVar = (*RELEASED_PER_LABEL, "auroc")
    needs_absent: ClassVar = True
    most_answers: ClassVar = ((0, 1), (100, 2), (300, 3))  # on a small holdout each answer tells a larger share of it
    outcomes: ClassVar = ("right", "wrong")
    forms: ClassVar = ("labels",)
    has_strata: ClassVar = True
    confidence_field: ClassVar = "probabilities"

    blank = deferred("reveal_bench.kinds.findings.rows", "blank_study")
    row_faults = deferred("reveal_bench.kinds.findings.rows", "study_faults")
    tally = deferred("reveal_bench.kinds.findings.rows", "FindingsTally")
    meanings = deferred("reveal_bench.kinds.findings.rows", "MEANINGS")
    read_records = deferred("reveal_bench.kinds.findings.records", "read_studies")
    read_manifest = deferred("reveal_bench.kinds.findings.records", "read_study_manifest")
    linter = deferred("reveal_bench.kinds.findings.lint", "lint_findings")
    to_jsonl = deferred("reveal_bench.kinds.findings.lint", "findings_to_jsonl")
    readings = deferred("reveal_bench.kinds.findings.cases", "label_readings")
    by_reading = deferred("reveal_bench.kinds.findings.cases", "study_by_reading")
    agreed = deferred("reveal_bench.kinds.findings.cases", "agreed_labels")
    case_answers = deferred("reveal_bench.kinds.findings.cases", "answers_of_studies")
    undrawn = deferred("reveal_bench.kinds.findings.cases", "predictions_of")
    disclosing = deferred("reveal_bench.kinds.findings.released", "disclose_studies")
    answers_of = deferred("reveal_bench.kinds.findings.cases", "predictions_of_reader")
    case = deferred("reveal_bench.kinds.findings.cases", "case_of_study")
    drawn_references = deferred("reveal_bench.kinds.findings.cases", "labelled_references")
    drawn_predictions = deferred("reveal_bench.kinds.findings.cases", "labelled_predictions")
    codec = deferred("reveal_bench.kinds.findings.canonical", "FindingsCodec")
    marks = deferred("reveal_bench.kinds.findings.canonical", "marks_of")
    signs = deferred("reveal_bench.kinds.findings.canonical", "signs_of")

    def features(self, benchmark: Benchmark) -> Features:
        """Features of the config `multilabel`."""
        from reveal_bench.kinds.findings.rows import study_features

        return study_features(benchmark.findings)

    def columns(self, benchmark: Benchmark) -> tuple[str, ...]:
        """See :mod:`reveal_bench.kinds.findings.rows`."""
        from reveal_bench.kinds.findings.rows import COLUMNS

        return COLUMNS

    def pictures(self, record: StudyRecord) -> tuple[PictureFile | None, ...]:
        """The pictures of a study."""
        return tuple(image.picture for image in record.images)

    def row(self, record: StudyRecord, benchmark: Benchmark, developed: Sequence[Developed | None]) -> Row:
        """The row of a study; raises ValueError as :func:`~reveal_bench.kinds.findings.rows.study_row` does."""
        from reveal_bench.kinds.findings.rows import study_row
        from reveal_bench.kinds.images import developed_images

        record = replace(record, images=developed_images(record.images, developed))
        return study_row(record, benchmark.findings, developed)

    def asked(self, record: StudyRecord, benchmark: Benchmark, asks: str) -> list[str]:
        """All labels, of every study."""
        return list(benchmark.findings)

    def manifest_schema(self) -> pa.Schema:
        """study_id, image_ids and views."""
        from reveal_bench.kinds.rows import text_schema

        return text_schema(study_id="text", image_ids="texts", views="texts")

    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        """A study and its images."""
        from reveal_bench.kinds.images import VIEWS

        views = [VIEWS[view] for view in row["views"]]
        return {"study_id": row["study_id"], "image_ids": row["image_ids"], "views": views}

    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """All labels."""
        return list(findings)

    def bare_record(self, entry: Row, findings: Sequence[str]) -> StudyRecord:
        """A study of which nothing is known but its images and their views."""
        from reveal_bench.kinds.findings.records import StudyRecord
        from reveal_bench.kinds.images import bare_images

        return StudyRecord(entry["study_id"], "", (), images=bare_images(entry, "image_ids"))

    def holdout_tells(self, asks: str) -> str:
        """Nothing, for every label is asked of every study."""
        return "The manifest asks for every label of every study, so that it tells nothing of what is present."

    def questions(self, folder: Path, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        """One per study, with all labels to choose from.

        Raises
        ------
        ValueError
            If the folder lacks the inputs of a study.
        """
        from reveal_bench.kinds.questions import Question, read_inputs, viewed_images

        rows = read_inputs(folder, split, self.config, ("study_id", "image_facts"))
        facts = {row["study_id"]: row["image_facts"] for row in rows}
        for study_id in self.read_manifest(folder, split).studies:
            if study_id not in facts:
                raise ValueError(f"{folder} must hold the inputs of every study, those of {study_id!r} are missing")
            yield Question(study_id, form, viewed_images(facts[study_id]), present=False, choices=info.findings)

    def prediction(self, answer: Any) -> FindingsPrediction:
        """The labels or probabilities that were given."""
        from reveal_bench.kinds.findings.records import FindingsPrediction

        return FindingsPrediction(answer.unit, answer.labels, answer.probabilities)

    def entries(self, key: str, answer: Any) -> list[dict[str, Any]]:
        """A mapping of labels to probabilities, or a list of the labels present, besides the fields of a line."""
        if isinstance(answer, Mapping) and answer.get("abstain") is False:
            answer = {name: value for name, value in answer.items() if name != "abstain"}
        if isinstance(answer, Mapping) and not {"labels", "probabilities", "abstain"} & answer.keys():
            answer = {"probabilities": dict(answer)}
        elif isinstance(answer, Sequence | Set) and not isinstance(answer, str):
            answer = {"labels": list(answer)}
        return super().entries(key, answer)

    def protocol(
        self, info: FolderInfo, *, grid: int | None, thresholds: float | Mapping[str, float]
    ) -> dict[str, Any]:
        """Probability from which a label counts as predicted."""
        return {"thresholds": thresholds}

    def score(
        self,
        predictions: Sequence[FindingsPrediction],
        records: Sequence[StudyRecord],
        manifest: StudyManifest,
        protocol: Mapping[str, Any],
        ratings: Sequence[Any] = (),
    ) -> StudyRows:
        """Decisions on every label of every study, see :func:`~reveal_bench.kinds.findings.scoring.score_studies`."""
        from reveal_bench.kinds.findings.scoring import score_studies

        return score_studies(predictions, records, labels=manifest.labels, thresholds=protocol["thresholds"])

    def example_upload(self) -> tuple[StudyManifest, str]:
        """A manifest of one study, and a file that names its labels."""
        from reveal_bench.kinds.findings.records import StudyManifest

        return StudyManifest("warm-up", "1", "test", ("Normal",), ("a",)), '{"study_id": "a", "labels": ["Normal"]}'

    def scope(self, manifest: StudyManifest) -> tuple[tuple[str, ...], int]:
        """The labels; studies."""
        return manifest.labels, len(manifest.studies)

    def manifest_entries(self, manifest: StudyManifest) -> list[dict[str, Any]]:
        """Every label of every study."""
        return [{"study_id": study, "asked": list(manifest.labels)} for study in manifest.studies]
