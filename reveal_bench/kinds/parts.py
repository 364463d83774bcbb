"""Parts of a kind of benchmark, as typed protocols; they contain everything that differs between kinds.

A kind implements a part by a class whose base is the protocol, with the kind's own types as parameters::

    class StudyData(Data[StudyRecord]): ...

Heavy modules (pyarrow, datasets, the scorers) are imported inside methods, so that importing a kind is fast and a type
checker can follow every call. Each method that overrides one of these is decorated with :func:`override`: ``mypy`` then
reports misspelt names, missing attributes and parameters, and other return types.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.predictions.limits import LintOptions
from reveal_bench.predictions.report import LintReport

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    # Importing it at run time would take a tenth of the start-up time
    from typing_extensions import override as override

    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.arrays import Codec, Marks
    from reveal_bench.kinds.cases import Annotations, Case, CaseAnswer
    from reveal_bench.kinds.folder import AnyFolder, FolderInfo
    from reveal_bench.kinds.images import PictureFile, PublishedPicture
    from reveal_bench.kinds.options import ScoringOptions, Thresholds
    from reveal_bench.kinds.questions import Answer, Question
    from reveal_bench.kinds.rows import Fault, Row
    from reveal_bench.kinds.scored import Curves, Disclosure, Rows
    from reveal_bench.kinds.split_counts import Tally
    from reveal_bench.kinds.tasks.records import Rating
    from reveal_bench.metrics.intervals import Interval, Resampling
else:

    def override(method):
        """Return `method`; type checkers see `typing.override` instead."""
        return method


class Manifest(Protocol):
    """Questions of a split, as a dataclass; linters use nothing else. `kind` is a key of KINDS."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def benchmark(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def split(self) -> str: ...  # noqa: D102


RecordT = TypeVar("RecordT")
"""A row of a dataset folder with its references."""
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)
PredictionT = TypeVar("PredictionT")
"""A checked prediction."""
PredictionT_contra = TypeVar("PredictionT_contra", contravariant=True)
ManifestT = TypeVar("ManifestT", bound=Manifest)
"""The manifest of a split."""
ManifestT_contra = TypeVar("ManifestT_contra", bound=Manifest, contravariant=True)
RowsT = TypeVar("RowsT", bound="Rows")
"""Scored rows."""
RowsT_contra = TypeVar("RowsT_contra", bound="Rows", contravariant=True)
ReadingT = TypeVar("ReadingT")
"""One reader's annotation of one record."""


def fields_of(key_name: str, key: str, answer: object) -> Row:
    """Return the fields of the prediction for one entry of a mapping ``{key: answer}``."""
    return {key_name: key, **(answer if isinstance(answer, Mapping) else {"answer": answer})}


class Data(Protocol[RecordT]):
    """The records of a dataset folder: rows with their references."""

    @abstractmethod
    def read_records(self, folder: AnyFolder, split: str) -> list[RecordT]:
        """Return the records of `split`, without pixels, in file order."""

    @abstractmethod
    def read_references(self, folder: AnyFolder, split: str) -> Iterable[RecordT]:
        """Return the records of `split` with the columns that scoring and :meth:`Display.case` need.

        A kind may read a few records at a time.
        """

    @abstractmethod
    def key_of(self, record: RecordT) -> str:
        """Return the key of a record."""

    @abstractmethod
    def pictures(self, record: RecordT) -> tuple[PictureFile | None, ...]:
        """Return the image files of `record`, with None for a missing file."""

    def without_pictures(self, record: RecordT, lost: Collection[int]) -> RecordT | None:
        """Return `record` without some of its pictures; None if the record is then of no use.

        Parameters
        ----------
        lost : positions of these pictures in :meth:`pictures`
        """
        return None

    def has_pixels(self, record: RecordT) -> bool:
        """Return True if images can be embedded for `record`."""
        pictures = self.pictures(record)
        return bool(pictures) and None not in pictures

    def without_image_bytes(self, record: RecordT) -> RecordT:
        """Return `record` without the image bytes that it contains, for a folder whose pixels are withheld."""
        return record

    @abstractmethod
    def bare_record(self, entry: Row, findings: Sequence[str]) -> RecordT:
        """Return a record with only the facts in a manifest entry."""

    def with_findings(self, record: RecordT, findings: Sequence[str]) -> RecordT:
        """Return `record` with the references of only some findings."""
        raise ArgumentError("findings", "must be left out: the benchmark has no findings", ", ".join(findings))

    def fused(self, records: Iterable[RecordT], how: str, iou: float) -> tuple[Iterator[RecordT], str]:
        """Return (records, sentence): records with references fused from readers' boxes, and a sentence for the card.

        If this kind does not fuse boxes.
        """
        raise ArgumentError("fuse", "must be left out: readers' boxes are fused only for detection", repr(how))


class Table(Protocol[RecordT_contra]):
    """The main config of a dataset folder: its columns and rows.

    Attributes
    ----------
    image_columns : columns that hold images
    side_config : config of a table that is made from each record, or None
    """

    image_columns: ClassVar[tuple[str, ...]]
    side_config: ClassVar[str | None] = None

    @abstractmethod
    def features(self, benchmark: Benchmark) -> Features:
        """Return the features of the main config."""

    def columns(self, benchmark: Benchmark) -> tuple[str, ...]:
        """Return the columns of the main config; a kind that knows them does not import `datasets`."""
        return tuple(self.features(benchmark))

    def side_features(self, benchmark: Benchmark) -> Features:
        """Return the features of the side config."""
        raise LookupError("there is no side config")

    def side_rows(self, record: RecordT_contra, benchmark: Benchmark) -> list[Row]:
        """Return the rows of the side config that are made from `record`."""
        return []

    def further_features(self) -> dict[str, Features]:
        """Return the features of further configs that a folder of this kind may have."""
        return {}

    @abstractmethod
    def row(self, record: RecordT_contra, benchmark: Benchmark, developed: Sequence[PublishedPicture | None]) -> Row:
        """Return the row of `record` with its developed images."""

    @abstractmethod
    def blank(self, row: Row) -> Row:
        """Return `row` as an input without references."""

    def without_pixels(self, row: Row) -> Row:
        """Return `row` as stored in the private folder of a holdout."""
        empty: Row = {name: None if row[name] is None or isinstance(row[name], dict) else [None] * len(row[name])
                      for name in self.image_columns}  # fmt: skip
        for name in ("image_facts", "prior_image_facts"):
            if name in row:
                empty[name] = [{**facts, "pixel_pipeline": "withheld"} for facts in row[name]]
        if "pixel_pipeline" in row:
            empty["pixel_pipeline"] = "withheld"
        return {**row, **empty}

    @abstractmethod
    def row_faults(self, row: Row, findings: Sequence[str]) -> Iterator[Fault]:
        """Yield the problems of a row, except in its images and masks: (field, rule, value)."""

    @abstractmethod
    def tally(self) -> Tally:
        """Return empty counts for the rows of a split."""


class Questions(Protocol[RecordT_contra, ManifestT]):
    """Questions of a split: its manifest, and what a model is asked.

    Attributes
    ----------
    forms : formats that a model's answer may have, the default first
    has_prompts : True if a model needs more of a row than its manifest entry and images
    uses_grid : True if answers may be cells of a grid
    has_several_places : True if an answer may give several places of a finding on an image
    asked_column : name for a question's finding, label or category in a table of questions
    """

    forms: ClassVar[tuple[str, ...]]
    has_prompts: ClassVar[bool] = False
    uses_grid: ClassVar[bool] = False
    has_several_places: ClassVar[bool] = False
    asked_column: ClassVar[str] = "finding"

    @abstractmethod
    def read_manifest(self, folder: AnyFolder, split: str) -> ManifestT:
        """Return the questions of `split`."""

    @abstractmethod
    def manifest_schema(self) -> pa.Schema:
        """Return the columns of the public manifest."""

    @abstractmethod
    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        """Return the manifest's entry of `row`."""

    @abstractmethod
    def manifest_entries(self, manifest: ManifestT) -> list[Row]:
        """Return every question of a split in the format of the board's API."""

    @abstractmethod
    def scope(self, manifest: ManifestT) -> tuple[tuple[str, ...], int]:
        """Return (names, n): the groups for which a board may show scores, in table order, and the number of rows."""

    @abstractmethod
    def asked(self, record: RecordT_contra, benchmark: Benchmark, asks: str) -> list[str]:
        """Return the findings, labels or category that a model is asked about `record`."""

    @abstractmethod
    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """Return the findings, labels or category that a manifest must list for `row`."""

    @abstractmethod
    def manifest_disclosure(self, asks: str) -> str:
        """Return the card's sentence on what the manifest reveals about a holdout."""

    @abstractmethod
    def read(self, folder: AnyFolder, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        """Yield the questions of a split in the order of the manifest, for answers in one of :attr:`forms`."""


class Predictions(Protocol[PredictionT, ManifestT, RowsT]):
    """Prediction files of a kind: checking, writing, conversion of answers to predictions, and of predictions to
    arrays.

    Attributes
    ----------
    names_places : True if answers are locations on images, so that baselines need not see the images
    reads_parquet : True if a prediction file may be Parquet
    confidence_field : field of a prediction with the system's confidence; None if answers have no confidence
    """

    names_places: ClassVar[bool] = False
    reads_parquet: ClassVar[bool] = False
    confidence_field: ClassVar[str | None] = None

    @abstractmethod
    def lint(self, path: Path, manifest: ManifestT, options: LintOptions = LintOptions()) -> LintReport:
        """Read and check a prediction file."""

    @abstractmethod
    def to_jsonl(self, predictions: Iterable[PredictionT]) -> str:
        """Return checked predictions as a prediction file."""

    @abstractmethod
    def from_answer(self, answer: Answer) -> list[PredictionT]:
        """Return a model's answer to one question as predictions."""

    def entry(self, fields: Row) -> Row:
        """Return the fields of a prediction from Python as a line of a prediction file, unchecked."""
        return dict(fields)

    @abstractmethod
    def entries(self, key: str, answer: object) -> list[Row]:
        """Return one entry of a mapping ``{key: answer}`` from Python as lines of a prediction file, unchecked."""

    def answers_at(
        self, places: Sequence[PredictionT], manifest: ManifestT, *, shares: Mapping[str, float] | None, seed: int
    ) -> list[PredictionT]:
        """Return the locations from a baseline as predictions of this kind.

        Parameters
        ----------
        places : locations as points, cells, boxes or masks, at most one per image and finding
        shares : finding -> proportion of images that have it, if the baseline knows it
        seed : seed of random numbers
        """
        return list(places)

    @abstractmethod
    def codec(self) -> Codec[PredictionT, ManifestT, RowsT]:
        """Return the codec that converts predictions, rows and manifest to arrays and back."""

    @abstractmethod
    def example_upload(self) -> tuple[ManifestT, str]:
        """Return (manifest, file): an example file without problems; reading it loads all modules for reading."""

    def example_rows(self) -> list[RowsT]:
        """Return example rows; scoring them compiles and loads everything that scoring needs."""
        return []


class Scoring(Protocol[RecordT_contra, PredictionT_contra, ManifestT_contra, RowsT]):
    """The scoring of predictions.

    Attributes
    ----------
    intervals : intervals that scores may have, the default first
    has_strata : True if strata are reported by default
    missing_as : what a missing answer may count as, the default first
    criteria : criteria for a hit, the default first; empty without a choice
    scored_by : "program", or "readers" if their ratings are the scores
    """

    intervals: ClassVar[tuple[Interval, ...]] = ("jackknife", "percentile", "bca")
    has_strata: ClassVar[bool] = False
    missing_as: ClassVar[tuple[str, ...]] = ("miss",)
    criteria: ClassVar[tuple[str, ...]] = ()
    scored_by: ClassVar[str] = "program"

    @property
    def can_be_probed(self) -> bool:
        """True if a score reveals held-out labels; readers' ratings do not, as they are made after the submission."""
        return self.scored_by == "program"

    @abstractmethod
    def protocol(self, options: ScoringOptions) -> Mapping[str, object]:
        """Return the options on which only scores of this kind depend, as in the scored document."""

    @abstractmethod
    def score(
        self,
        predictions: Sequence[PredictionT_contra],
        records: Iterable[RecordT_contra],
        manifest: ManifestT_contra,
        options: ScoringOptions,
        ratings: Sequence[Rating] = (),
    ) -> RowsT:
        """Return checked predictions scored against references, or by the `ratings` of readers."""

    def curves(self, rows: RowsT, resampling: Resampling) -> Curves | None:
        """Return curves of a system's detections over all thresholds; None for a kind without detections."""
        return None


class Readers(Protocol[RecordT, PredictionT, ReadingT]):
    """Conversion of single readers' annotations to references and predictions."""

    @abstractmethod
    def readings(
        self, folder: AnyFolder, split: str, records: Sequence[RecordT]
    ) -> Mapping[str, Mapping[str, ReadingT]]:
        """Return reader -> record key -> annotation by that reader; empty if the folder has none."""

    @abstractmethod
    def agreed(self, record: RecordT, readings: Sequence[ReadingT], at_least: int) -> ReadingT:
        """Return the part of the annotations of `record` on which at least `at_least` readers agree."""

    @abstractmethod
    def by_reading(self, record: RecordT, reading: ReadingT) -> RecordT:
        """Return `record` with a reader's annotation as its reference."""

    @abstractmethod
    def answers_of(self, record: RecordT, reading: ReadingT) -> list[PredictionT]:
        """Return a reader's annotation as predictions."""


class AnnotationExchange(Protocol[RecordT_contra, PredictionT, ManifestT_contra]):
    """Exchange of references and predictions with annotation tools."""

    @abstractmethod
    def drawn_references(self, records: Sequence[RecordT_contra], manifest: ManifestT_contra) -> Annotations:
        """Return the readers' drawings or labels."""

    @abstractmethod
    def drawn_predictions(
        self, predictions: Sequence[PredictionT], records: Sequence[RecordT_contra], manifest: ManifestT_contra
    ) -> Annotations:
        """Return a model's predictions as drawings or labels."""

    @abstractmethod
    def to_predictions(self, annotations: Annotations) -> tuple[list[PredictionT], list[str]]:
        """Return (predictions, losses): one reader's or model's drawings or labels, and sentences on the losses."""


def cases_of_average(n_cases: Sequence[int]) -> float:
    """Return the number of equally weighted cases whose average reveals as much as that of findings of these sizes.

    The average over K findings of n_i cases counts a hit as 1 / (K n_i). If each of the two possible locations in a
    case is equally likely, five answers then raise the average by about ``0.87 / sqrt(n)`` with ``n = K**2 / sum(1 /
    n_i)``, the value returned.

    Examples
    --------
    >>> cases_of_average([100, 100, 100]), cases_of_average([30, 120])
    (300.0, 96.0)
    """
    return len(n_cases) ** 2 / sum(1 / n for n in n_cases) if n_cases else 0.0


class Release(Protocol[PredictionT_contra, ManifestT_contra, RowsT_contra]):
    """The scores that a board may show and release.

    Attributes
    ----------
    primary : metric whose macro determines ranks
    fallback_metrics : metrics whose macro determines ranks if `primary` has no macro, or if the operator chooses one
    metrics : metrics that a board may show, in the order of its columns
    chance_metrics : metric -> metric with its chance level, which is shown wherever the metric is
    positional_metrics : members of `metrics` that score locations, which a sender can move one by one to learn more
    requires_negatives : True if a shown finding must also be absent from as many items as the cases that it needs
    most_answers : largest number of scored submissions of a team on a version; with more, five colluding teams learn
        too much, see "What colluding teams can learn" in the operator's guide
    """

    primary: ClassVar[str]
    fallback_metrics: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[str, ...]]
    chance_metrics: ClassVar[Mapping[str, str]] = MappingProxyType({})
    positional_metrics: ClassVar[tuple[str, ...]] = ()
    requires_negatives: ClassVar[bool] = False
    most_answers: ClassVar[int] = 1

    def least_items(self, min_cell: int) -> int:
        """Return the smallest number of held-out items with which a board can show a score, if a finding needs
        `min_cell` cases.
        """
        return 2 * min_cell if self.requires_negatives else min_cell

    @abstractmethod
    def largest_cell(self, manifest: ManifestT_contra) -> tuple[int, str]:
        """Return (n, name): the largest number of items in a score, according to the manifest alone, and the name of
        these items.
        """

    def cases_of_average(self, manifest: ManifestT_contra, min_cell: int) -> float | None:
        """Return the number of cases that would reveal as much if they had equal weights in the average; None if scores
        do not count locations that a sender can move.
        """
        return None

    @abstractmethod
    def disclose(
        self,
        rows: RowsT_contra,
        resampling: Resampling,
        *,
        min_cell: int,
        ranked_by: str = "",
        left_out: Collection[str] = (),
    ) -> Disclosure:
        """Return the scores of one submission on a holdout that may be shown, with intervals, before rounding.

        Parameters
        ----------
        min_cell : smallest number of cases of a shown finding
        ranked_by : metric of the ranks, whose scores come first: `primary` by default, or one of `fallback_metrics`
        left_out : findings to hide whatever their number of cases
        """

    @abstractmethod
    def marks(
        self, predictions: Sequence[PredictionT_contra], manifest: ManifestT_contra, thresholds: Thresholds
    ) -> Marks:
        """Return the marks that show if two prediction files are the same or nearly the same."""

    @abstractmethod
    def signs(self, predictions: Sequence[PredictionT_contra], manifest: ManifestT_contra) -> list[str]:
        """Return sentences for moderators on signs that a file was made to probe the scorer, not by a model.

        Signs only deter senders: they enforce no limit, and never refuse a submission.
        """


class Display(Protocol[RecordT_contra, PredictionT_contra, RowsT_contra]):
    """Display of a kind: the words of dataset cards and run reports, and cases with answers.

    Attributes
    ----------
    question : the question, for the card
    asked_in_words : the question in one or two sentences
    holds : content of the rows of the main config
    picture_words : subject and verb of sentences about the images, such as "pictures are"
    outcomes : names of a right and a wrong answer; None if readers judge
    run_report : the kind's report of runs, a key of :data:`reveal_bench.reports.run_page.REPORTS`
    scored_in_words, compared_in_words : sentences of that report on how answers count, and on intervals and p; `{n}` is
        the number of resamples
    """

    question: ClassVar[str]
    asked_in_words: ClassVar[str] = ""
    holds: ClassVar[str]
    picture_words: ClassVar[str]
    outcomes: ClassVar[tuple[str, str] | None]
    run_report: ClassVar[str] = "scores"
    scored_in_words: ClassVar[str] = (
        "A case without a prediction counts as negative for every finding, and as wrong in specificity and NPV. "
        "Probabilities become decisions at 0.5."
    )
    compared_in_words: ClassVar[str] = (
        ". Differences are paired by patient; their intervals and p come from swapping the runs' answers patient by "
        "patient, and for AUROC and average precision from closed forms."
    )

    @property
    def meanings(self) -> Mapping[str, str]:
        """Column -> its meaning, for the card; only the columns that no other kind has."""
        return {}

    @abstractmethod
    def case(self, record: RecordT_contra) -> Case:
        """Return a record with its references, as a case for display."""

    @abstractmethod
    def case_answers(
        self,
        predictions: Sequence[PredictionT_contra],
        records: Sequence[RecordT_contra],
        rows: RowsT_contra,
        options: ScoringOptions,
    ) -> Mapping[str, Sequence[CaseAnswer]]:
        """Return record key -> a system's answers, with the outcomes of `rows`, which are None if readers score."""
