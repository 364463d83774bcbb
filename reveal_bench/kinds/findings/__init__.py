"""Findings: which of a list of findings a study shows (paper 004). A row is a study."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.kind import Kind
from reveal_bench.kinds.parts import (
    AnnotationExchange,
    Data,
    Display,
    Predictions,
    Questions,
    Readers,
    Release,
    Scoring,
    Table,
    fields_of,
    override,
)
from reveal_bench.predictions.limits import LintOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.arrays import Marks
    from reveal_bench.kinds.cases import Annotations, Case, CaseAnswer
    from reveal_bench.kinds.findings.arrays import FindingsCodec
    from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest, StudyRecord
    from reveal_bench.kinds.findings.rows import FindingsTally
    from reveal_bench.kinds.findings.scoring import StudyRows
    from reveal_bench.kinds.folder import AnyFolder, FolderInfo
    from reveal_bench.kinds.images import PictureFile, PublishedPicture
    from reveal_bench.kinds.options import ScoringOptions, Thresholds
    from reveal_bench.kinds.questions import Answer, Question
    from reveal_bench.kinds.rows import Fault, Row
    from reveal_bench.kinds.scored import Disclosure
    from reveal_bench.kinds.tasks.records import Rating
    from reveal_bench.metrics.intervals import Resampling
    from reveal_bench.predictions.report import LintReport

__all__ = ["FINDINGS", "RELEASED_PER_LABEL"]

RELEASED_PER_LABEL = ("f1", "recall", "cohen_kappa")
"""Metrics that a board shows per label: F1, recall and kappa all reveal the same number, the true positives."""


class FindingsData(Data["StudyRecord"]):
    """Records of studies."""

    @override
    def read_records(self, folder: AnyFolder, split: str) -> list[StudyRecord]:
        from reveal_bench.kinds.findings.records import read_studies

        return read_studies(folder, split)

    @override
    def read_references(self, folder: AnyFolder, split: str) -> list[StudyRecord]:
        from reveal_bench.kinds.findings.records import read_studies

        return read_studies(folder, split)

    @override
    def key_of(self, record: StudyRecord) -> str:
        return record.study_id

    @override
    def pictures(self, record: StudyRecord) -> tuple[PictureFile | None, ...]:
        """Return the pictures of a study."""
        return tuple(image.picture for image in record.images)

    @override
    def without_pictures(self, record: StudyRecord, lost: Collection[int]) -> StudyRecord | None:
        images = tuple(image for i, image in enumerate(record.images) if i not in lost)
        return replace(record, images=images) if images else None

    @override
    def with_findings(self, record: StudyRecord, findings: Sequence[str]) -> StudyRecord:
        labels, unknown = (
            tuple(label for label in own if label in findings) for own in (record.labels, record.unknown)
        )
        return replace(record, labels=labels, unknown=unknown)

    @override
    def bare_record(self, entry: Row, findings: Sequence[str]) -> StudyRecord:
        """Return a study with only its images and their views."""
        from reveal_bench.kinds.findings.records import StudyRecord
        from reveal_bench.kinds.images import bare_images

        return StudyRecord(entry["study_id"], "", (), images=bare_images(entry, "image_ids"))


class FindingsTable(Table["StudyRecord"]):
    """The table of studies."""

    image_columns: ClassVar = ("images",)

    @override
    def blank(self, row: Row) -> Row:
        from reveal_bench.kinds.findings.rows import blank_study

        return blank_study(row)

    @override
    def without_pixels(self, row: Row) -> Row:
        """Return a study of a holdout; raises ArgumentError if a label has no reference, which no board can release."""
        if None in (row["label_vector"] or ()):
            rule = "must have a reference for every label in a holdout (for blank cells: `--blank negative`)"
            raise ArgumentError("labels", rule, f"none for some of {row['study_id']!r}")
        return super().without_pixels(row)

    @override
    def row_faults(self, row: Row, findings: Sequence[str]) -> Iterator[Fault]:
        from reveal_bench.kinds.findings.rows import study_faults

        return study_faults(row, findings)

    @override
    def tally(self) -> FindingsTally:
        from reveal_bench.kinds.findings.rows import FindingsTally

        return FindingsTally()

    @override
    def features(self, benchmark: Benchmark) -> Features:
        """Return features of the config `multilabel`."""
        from reveal_bench.kinds.findings.rows import study_features

        return study_features(benchmark.findings)

    @override
    def columns(self, benchmark: Benchmark) -> tuple[str, ...]:
        from reveal_bench.kinds.findings.rows import COLUMNS

        return COLUMNS

    @override
    def row(self, record: StudyRecord, benchmark: Benchmark, developed: Sequence[PublishedPicture | None]) -> Row:
        """Return the row of a study; raises ValueError as :func:`~reveal_bench.kinds.findings.rows.study_row` does."""
        from reveal_bench.kinds.findings.rows import study_row
        from reveal_bench.kinds.images import developed_images

        record = replace(record, images=developed_images(record.images, developed))
        return study_row(record, benchmark.findings, developed)


class FindingsQuestions(Questions["StudyRecord", "StudyManifest"]):
    """Questions about studies."""

    forms: ClassVar = ("labels",)

    @override
    def read_manifest(self, folder: AnyFolder, split: str) -> StudyManifest:
        from reveal_bench.kinds.findings.records import read_study_manifest

        return read_study_manifest(folder, split)

    @override
    def asked(self, record: StudyRecord, benchmark: Benchmark, asks: str) -> list[str]:
        """Return all labels, for every study."""
        return list(benchmark.findings)

    @override
    def manifest_schema(self) -> pa.Schema:
        """Return the columns study_id, image_ids and views."""
        from reveal_bench.kinds.rows import text_schema

        return text_schema(study_id="text", image_ids="texts", views="texts")

    @override
    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        """Return a study and its images."""
        from reveal_bench.kinds.images import VIEWS

        views = [VIEWS[view] for view in row["views"]]
        return {"study_id": row["study_id"], "image_ids": row["image_ids"], "views": views}

    @override
    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """Return all labels."""
        return list(findings)

    @override
    def manifest_disclosure(self, asks: str) -> str:
        """Return the sentence that a model is asked for every label of every study."""
        return "The manifest asks for every label of every study, so it does not reveal which are present."

    @override
    def read(self, folder: AnyFolder, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        """Yield one question per study, with all labels to choose from.

        Raises
        ------
        ValueError
            If the folder lacks the inputs of a study.
        """
        from reveal_bench.kinds.questions import Question, read_inputs, viewed_images

        rows = read_inputs(folder, split, "multilabel", ("study_id", "image_facts"))
        facts = {row["study_id"]: row["image_facts"] for row in rows}
        for study_id in self.read_manifest(folder, split).studies:
            if study_id not in facts:
                raise ValueError(f"{folder} must hold the inputs of every study, got none of {study_id!r}")
            yield Question(study_id, form, viewed_images(facts[study_id]), present=False, choices=info.findings)

    @override
    def scope(self, manifest: StudyManifest) -> tuple[tuple[str, ...], int]:
        """Return (labels, number of studies)."""
        return manifest.labels, len(manifest.studies)

    @override
    def manifest_entries(self, manifest: StudyManifest) -> list[Row]:
        """Return every label of every study."""
        return [{"study_id": study, "asked": list(manifest.labels)} for study in manifest.studies]


class FindingsPredictions(Predictions["FindingsPrediction", "StudyManifest", "StudyRows"]):
    """Prediction files of studies."""

    confidence_field: ClassVar = "probabilities"

    @override
    def lint(self, path: Path, manifest: StudyManifest, options: LintOptions = LintOptions()) -> LintReport:
        from reveal_bench.kinds.findings.lint import lint_findings

        return lint_findings(path, manifest, options)

    @override
    def to_jsonl(self, predictions: Iterable[FindingsPrediction]) -> str:
        from reveal_bench.kinds.findings.lint import findings_to_jsonl

        return findings_to_jsonl(predictions)

    @override
    def codec(self) -> FindingsCodec:
        from reveal_bench.kinds.findings.arrays import FindingsCodec

        return FindingsCodec()

    @override
    def from_answer(self, answer: Answer) -> list[FindingsPrediction]:
        """Return one prediction with the answer's labels or probabilities."""
        from reveal_bench.kinds.findings.records import FindingsPrediction

        return [FindingsPrediction(answer.unit, answer.labels, answer.probabilities)]

    @override
    def entries(self, key: str, answer: object) -> list[Row]:
        """Return one line for `answer`, which is a mapping of labels to probabilities, a list of the labels present, or
        a line's fields.
        """
        if isinstance(answer, Mapping) and answer.get("abstain") is False:
            answer = {name: value for name, value in answer.items() if name != "abstain"}
        if isinstance(answer, Mapping) and not {"labels", "probabilities", "abstain"} & answer.keys():
            answer = {"probabilities": dict(answer)}
        elif isinstance(answer, list | tuple | Set) and all(isinstance(one, str) for one in answer):
            answer = {"labels": list(answer)}
        elif not isinstance(answer, Mapping):
            rule = "must map studies to labels; rb.convert(array, bench, labels=bench.findings, ids=ids) reads arrays"
            raise ArgumentError("predictions", rule, f"{type(answer).__name__} for {key!r}")
        return [self.entry(fields_of("study_id", key, answer))]

    @override
    def example_upload(self) -> tuple[StudyManifest, str]:
        """Return (manifest, file): one study, and a file that names its labels."""
        from reveal_bench.kinds.findings.records import StudyManifest

        return StudyManifest("warm-up", "1", "test", ("Normal",), ("a",)), '{"study_id": "a", "labels": ["Normal"]}'


class FindingsScoring(Scoring["StudyRecord", "FindingsPrediction", "StudyManifest", "StudyRows"]):
    """Scores of studies."""

    has_strata: ClassVar = True

    @override
    def protocol(self, options: ScoringOptions) -> dict[str, object]:
        """Return the lowest probability at which a label counts as predicted."""
        return {"thresholds": options.plain_thresholds}

    @override
    def score(
        self,
        predictions: Sequence[FindingsPrediction],
        records: Iterable[StudyRecord],
        manifest: StudyManifest,
        options: ScoringOptions,
        ratings: Sequence[Rating] = (),
    ) -> StudyRows:
        """Return decisions on every label of every study.

        See :func:`~reveal_bench.kinds.findings.scoring.score_studies`.
        """
        from reveal_bench.kinds.findings.scoring import score_studies

        thresholds = options.thresholds_of(manifest.labels, manifest.other_labels)
        return score_studies(predictions, list(records), labels=manifest.labels, thresholds=thresholds)


class FindingsReaders(Readers["StudyRecord", "FindingsPrediction", "Sequence[str]"]):
    """Readers' labels, used as references or as predictions of studies."""

    @override
    def readings(
        self, folder: AnyFolder, split: str, records: Sequence[StudyRecord]
    ) -> dict[str, dict[str, tuple[str, ...]]]:
        from reveal_bench.kinds.findings.cases import label_readings

        return label_readings(folder, split, records)

    @override
    def by_reading(self, record: StudyRecord, reading: Sequence[str]) -> StudyRecord:
        from reveal_bench.kinds.findings.cases import study_by_reading

        return study_by_reading(record, reading)

    @override
    def agreed(self, record: StudyRecord, readings: Sequence[Sequence[str]], at_least: int) -> tuple[str, ...]:
        from reveal_bench.kinds.findings.cases import agreed_labels

        return agreed_labels(record, readings, at_least)

    @override
    def answers_of(self, record: StudyRecord, reading: Sequence[str]) -> list[FindingsPrediction]:
        from reveal_bench.kinds.findings.cases import predictions_of_reader

        return predictions_of_reader(record, reading)


class FindingsExchange(AnnotationExchange["StudyRecord", "FindingsPrediction", "StudyManifest"]):
    """Exchange of studies."""

    @override
    def to_predictions(self, annotations: Annotations) -> tuple[list[FindingsPrediction], list[str]]:
        from reveal_bench.kinds.findings.cases import predictions_of

        return predictions_of(annotations)

    @override
    def drawn_references(self, records: Sequence[StudyRecord], manifest: StudyManifest) -> Annotations:
        from reveal_bench.kinds.findings.cases import labelled_references

        return labelled_references(records, manifest)

    @override
    def drawn_predictions(
        self, predictions: Iterable[FindingsPrediction], records: Sequence[StudyRecord], manifest: StudyManifest
    ) -> Annotations:
        from reveal_bench.kinds.findings.cases import labelled_predictions

        return labelled_predictions(predictions, records, manifest)


class FindingsRelease(Release["FindingsPrediction", "StudyManifest", "StudyRows"]):
    """Release policy for scores of studies."""

    primary: ClassVar = "f1"
    metrics: ClassVar = (*RELEASED_PER_LABEL, "auroc")
    requires_negatives: ClassVar = True

    @override
    def largest_cell(self, manifest: StudyManifest) -> tuple[int, str]:
        return len(manifest.studies), "studies"

    @override
    def disclose(
        self,
        rows: StudyRows,
        resampling: Resampling,
        *,
        min_cell: int,
        ranked_by: str = "",
        left_out: Collection[str] = (),
    ) -> Disclosure:
        from reveal_bench.kinds.findings.disclosure import disclose_studies

        return disclose_studies(rows, self.metrics, resampling, min_cell=min_cell, left_out=left_out)

    @override
    def marks(
        self,
        predictions: Sequence[FindingsPrediction],
        manifest: StudyManifest,
        thresholds: Thresholds,
    ) -> Marks:
        from reveal_bench.kinds.findings.arrays import marks_of

        return marks_of(predictions, manifest, thresholds)

    @override
    def signs(self, predictions: Sequence[FindingsPrediction], manifest: StudyManifest) -> list[str]:
        from reveal_bench.kinds.findings.arrays import signs_of

        return signs_of(predictions, manifest)


class FindingsDisplay(Display["StudyRecord", "FindingsPrediction", "StudyRows"]):
    """Display of studies."""

    question: ClassVar = "Which findings does a chest radiography study show? Answers are labels or probabilities."
    holds: ClassVar = "labels and pictures, one row per study"
    picture_words: ClassVar = "the elements of `images` are"
    outcomes: ClassVar = ("right", "wrong")

    @property
    @override
    def meanings(self) -> Mapping[str, str]:
        from reveal_bench.kinds.findings.rows import MEANINGS

        return MEANINGS

    @override
    def case_answers(
        self,
        predictions: Sequence[FindingsPrediction],
        records: Sequence[StudyRecord],
        rows: StudyRows,
        options: ScoringOptions,
    ) -> dict[str, list[CaseAnswer]]:
        from reveal_bench.kinds.findings.cases import answers_of_studies

        return answers_of_studies(predictions, records, rows)

    @override
    def case(self, record: StudyRecord) -> Case:
        from reveal_bench.kinds.findings.cases import case_of_study

        return case_of_study(record)


FINDINGS: Kind[StudyRecord, FindingsPrediction, StudyManifest, StudyRows, Sequence[str]] = Kind(
    name="findings",
    config="multilabel",
    key="study_id",
    counted="n_studies",
    unit="study",
    data=FindingsData(),
    table=FindingsTable(),
    questions=FindingsQuestions(),
    predictions=FindingsPredictions(),
    scoring=FindingsScoring(),
    release=FindingsRelease(),
    display=FindingsDisplay(),
    readers=FindingsReaders(),
    exchange=FindingsExchange(),
)
"""Labels or probabilities of studies."""
