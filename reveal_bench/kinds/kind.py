"""What a kind of benchmark is: everything that differs between kinds, and nothing else, is asked of a :class:`Kind`.

======================  ===============  ==========================  ==================  =================
kind (`Benchmark.kind`)  a row is         main config                 key                 also resampled by
======================  ===============  ==========================  ==================  =================
localization            an image         ``localization``            ``image_id``        image
findings                a study          ``multilabel``              ``study_id``        study
tasks                   a task           ``tasks``                   ``task_id``         task
detection               an image         ``detection``               ``image_id``        image
======================  ===============  ==========================  ==================  =================

A kind is a package beside this file; :data:`reveal_bench.kinds.KINDS` lists them. Importing one is light: what needs
pyarrow or datasets is imported when it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from reveal_bench.arguments import ArgumentError
from reveal_bench.entries.report import LintReport
from reveal_bench.entries.source import Limits

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

    from reveal_bench.benchmarks import Benchmark
    from reveal_bench.kinds.canonical import Codec, Marks
    from reveal_bench.kinds.cases import Annotations, Case, CaseAnswer
    from reveal_bench.kinds.folder import FolderInfo
    from reveal_bench.kinds.images import Developed, PictureFile
    from reveal_bench.kinds.questions import Question
    from reveal_bench.kinds.rows import Fault, Row
    from reveal_bench.kinds.scored import Curves, Disclosure, Rows
    from reveal_bench.kinds.tally import Tally
    from reveal_bench.metrics.intervals import Interval, Resampling

Readings = Mapping[str, Mapping[str, Any]]
"""Reader -> key of a record -> what that reader said of it, in a form that the kind alone looks into."""


if TYPE_CHECKING:
    from typing_extensions import override as override  # no dependency: type checkers bring it, and nothing else asks
else:

    def override(method: Any) -> Any:
        """Mark a method as one that the base class has, so that a type checker refuses a misspelt name."""
        return method


class Manifest(Protocol):
    """What a split asks, a dataclass; all that a linter may know. `kind` is a key of KINDS."""

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def benchmark(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def split(self) -> str: ...  # noqa: D102


class DatasetKind(ABC):
    """What a dataset folder of a kind holds, and what its card says.

    Attributes
    ----------
    name : key in KINDS, and `Benchmark.kind`
    config, key : main config of a dataset folder, and the column that names a row
    counted : what the manifest calls the number of rows
    image_columns : columns that hold pictures
    side_config : config of a table that is made from each record, or None
    has_prompts : whether a model needs more of a row than its manifest entry and pictures
    unit : what a row is, and what may be resampled instead of patients
    question, asked_in_words, holds, picture_words : what the card says: what is asked, the same in one sentence or two,
        what rows of the main config hold, and where pictures are, with a verb
    """

    name: ClassVar[str]
    config: ClassVar[str]
    key: ClassVar[str]
    counted: ClassVar[str]
    image_columns: ClassVar[tuple[str, ...]]
    side_config: ClassVar[str | None] = None
    has_prompts: ClassVar[bool] = False
    unit: ClassVar[str]
    question: ClassVar[str]
    asked_in_words: ClassVar[str] = ""
    holds: ClassVar[str]
    picture_words: ClassVar[str]

    @property
    def items(self) -> str:
        """What rows are called, such as "images"."""
        return self.counted.removeprefix("n_")

    @property
    def meanings(self) -> Mapping[str, str]:
        """What columns of this kind alone mean, for the card."""
        return {}

    @abstractmethod
    def features(self, benchmark: Benchmark) -> Features:
        """Features of the main config."""

    def columns(self, benchmark: Benchmark) -> tuple[str, ...]:
        """Columns of the main config; a kind that knows them without `datasets`, which is slow to import, says so."""
        return tuple(self.features(benchmark))

    def side_features(self, benchmark: Benchmark) -> Features:
        """Features of the side config, where there is one."""
        raise NotImplementedError(f"{self.name} has no side config")

    def side_rows(self, record: Any, benchmark: Benchmark) -> list[Row]:
        """Rows of the side config that are made from `record`."""
        return []

    @abstractmethod
    def pictures(self, record: Any) -> tuple[PictureFile | None, ...]:
        """The picture files of `record`, None where there is none."""

    @abstractmethod
    def row(self, record: Any, benchmark: Benchmark, developed: Sequence[Developed | None]) -> Row:
        """The row of `record` with its developed pictures."""

    @abstractmethod
    def blank(self, row: Row) -> Row:
        """`row` as an input without references."""

    @abstractmethod
    def asked(self, record: Any, benchmark: Benchmark, asks: str) -> list[str]:
        """What a model is asked of `record`."""

    @abstractmethod
    def manifest_schema(self) -> pa.Schema:
        """Columns of the public manifest."""

    @abstractmethod
    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        """The manifest's entry of `row`."""

    @abstractmethod
    def row_faults(self, row: Row, findings: Sequence[str]) -> Iterator[Fault]:
        """What is wrong in a row of the main config, but for its pictures and masks: (field, rule, value)."""

    @abstractmethod
    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """What is asked of a row, as the manifest must say."""

    @abstractmethod
    def bare_record(self, entry: Row, findings: Sequence[str]) -> Any:
        """A record of which no more is known than its entry of the manifest says."""

    def further_features(self) -> dict[str, Features]:
        """Features of further configs that any folder of this kind may have."""
        return {}

    @abstractmethod
    def tally(self) -> Tally:
        """Empty counts for the rows of a split."""

    @abstractmethod
    def holdout_tells(self, asks: str) -> str:
        """What the manifest tells of a holdout, and what it does not, as the card says it."""

    def fused(self, records: Iterable[Any], how: str, iou: float) -> tuple[Iterator[Any], str]:
        """Records with references made of what single readers drew, and what the card says of it.

        Raises
        ------
        ValueError
            If there is no such way for this kind.
        """
        raise ArgumentError("fuse", "must be left out: readers' boxes are fused only for detection", repr(how))

    def has_pixels(self, record: Any) -> bool:
        """Whether pictures can be embedded for `record`."""
        pictures = self.pictures(record)
        return bool(pictures) and None not in pictures

    def without_image_bytes(self, record: Any) -> Any:
        """`record` without pictures that it holds itself, for a folder whose pixels are withheld."""
        return record

    def key_of(self, record: Any) -> str:
        """The key of a record."""
        return str(getattr(record, self.key))

    def without_pixels(self, row: Row) -> Row:
        """`row` as the private folder of a holdout keeps it."""
        empty: Row = {name: None if row[name] is None or isinstance(row[name], dict) else [None] * len(row[name])
                      for name in self.image_columns}  # fmt: skip
        for name in ("image_facts", "prior_image_facts"):
            if name in row:
                empty[name] = [{**facts, "pixel_pipeline": "withheld"} for facts in row[name]]
        if "pixel_pipeline" in row:
            empty["pixel_pipeline"] = "withheld"
        return {**row, **empty}


class ScoredKind(ABC):
    """What is asked and answered, and how answers are scored.

    Attributes
    ----------
    forms : forms that a model's answer may have, the default first
    uses_grid : whether answers may be cells of a grid
    has_several_places : whether each of several places of a finding on an image is an answer
    names_places : whether answers are places on images, so that there are baselines that do not look
    asked_column : what a question's finding, label or category is called in a table of questions
    reads_parquet : whether a prediction file may be Parquet
    intervals : intervals that its scores may have, the default first
    has_strata : whether its strata are reported without being asked for
    missing_as : what an answer that is missing may count as, the default first
    criteria : by which an answer can be a hit, the default first; none where there is no choice
    confidence_field : field of a prediction that says how sure a system is; None where answers have none
    run_report : which report of runs it has, of :data:`reveal_bench.reports.run_page.REPORTS`
    scored_in_words, compared_in_words : what that report says of how answers count, and of intervals and p; `{n}` is
        the number of resamples
    """

    key: ClassVar[str]
    forms: ClassVar[tuple[str, ...]]
    uses_grid: ClassVar[bool] = False
    has_several_places: ClassVar[bool] = False
    names_places: ClassVar[bool] = False
    asked_column: ClassVar[str] = "finding"
    reads_parquet: ClassVar[bool] = False
    intervals: ClassVar[tuple[Interval, ...]] = ("jackknife", "percentile", "bca")
    has_strata: ClassVar[bool] = False
    missing_as: ClassVar[tuple[str, ...]] = ("miss",)
    criteria: ClassVar[tuple[str, ...]] = ()
    confidence_field: ClassVar[str | None] = None
    run_report: ClassVar[str] = "scores"
    scored_in_words: ClassVar[str] = (
        "What a run leaves without a prediction counts as negative for every finding. Probabilities become decisions "
        "at 0.5."
    )
    compared_in_words: ClassVar[str] = (
        "; those of AUROC and average precision hold percentiles over {n} resamples. Differences are paired by "
        "patient; p comes from flips of patients' signs."
    )

    @abstractmethod
    def read_records(self, folder: Path, split: str) -> list[Any]:
        """The references of `split`, without pixels, in file order."""

    def read_references(self, folder: Path, split: str) -> list[Any]:
        """The same with no more than :meth:`score` and :meth:`case` look at."""
        return self.read_records(folder, split)

    def each_reference(self, folder: Path, split: str) -> Iterable[Any]:
        """The same for :meth:`score`, which may read them as it goes."""
        return self.read_references(folder, split)

    @abstractmethod
    def read_manifest(self, folder: Path, split: str) -> Any:
        """What `split` asks."""

    @abstractmethod
    def lint(
        self,
        path: Path,
        manifest: Any,
        *,
        grid: int | None = None,
        allow_missing: bool = False,
        leave_out_unknown: bool = False,
        limits: Limits = Limits(),
        name: str | None = None,
    ) -> LintReport:
        """Read and check a prediction file.

        Parameters
        ----------
        grid : cells per side, for kinds whose answers may be grid cells
        allow_missing : whether what is asked may be left unanswered
        leave_out_unknown : whether what the split does not ask is left out instead of being an error
        limits : how large the file and its parts may be
        name : to show for the file; that of `path` unless given
        """

    @abstractmethod
    def questions(self, folder: Path, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        """What a model is asked, in the order of the manifest, for answers of a form; see :attr:`forms`."""

    @abstractmethod
    def prediction(self, answer: Any) -> Any:
        """The prediction that a model's answer makes (:class:`reveal_bench.models.run_folder.Exchange`)."""

    def predictions(self, answer: Any) -> list[Any]:
        """The predictions that a model's answer makes: the one of :meth:`prediction`, unless a kind takes several."""
        return [self.prediction(answer)]

    def entry(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A prediction given in Python, with the fields of a prediction file, as a line of one, unchecked."""
        return dict(fields)

    def entries(self, key: str, answer: Any) -> list[dict[str, Any]]:
        """An answer of a mapping ``{key: answer}`` given in Python as lines of a prediction file, unchecked."""
        return [self.entry({self.key: key, **(answer if isinstance(answer, Mapping) else {"answer": answer})})]

    def answers_at(
        self, places: Sequence[Any], manifest: Any, *, shares: Mapping[str, float] | None, seed: int
    ) -> list[Any]:
        """Places that a baseline names, as answers of this kind.

        Parameters
        ----------
        places : points, cells, boxes or masks, at most one per image and finding
        shares : finding -> share of images that have it, where the baseline knows it
        seed : of what is drawn
        """
        return list(places)

    @abstractmethod
    def to_jsonl(self, predictions: Iterable[Any]) -> str:
        """Checked predictions as a prediction file."""

    @abstractmethod
    def protocol(
        self, info: FolderInfo, *, grid: int | None, thresholds: float | Mapping[str, float]
    ) -> dict[str, Any]:
        """What scores depend on beside predictions and references, as the scored document says it."""

    @abstractmethod
    def score(
        self,
        predictions: Sequence[Any],
        records: Any,
        manifest: Any,
        protocol: Mapping[str, Any],
        ratings: Sequence[Any] = (),
    ) -> Rows:
        """Checked predictions against references; `ratings` where readers score."""

    def curves(self, rows: Any, resampling: Resampling) -> Curves | None:
        """What a system finds at every threshold; None for a kind without detections."""
        return None


class ReadKind:
    """How single readers' words are made references and answers; a kind whose datasets keep none leaves it."""

    def readings(self, folder: Path, split: str, records: Sequence[Any]) -> Readings:
        """What single readers said of `records`; empty where the folder keeps none."""
        return {}

    def agreed(self, record: Any, said: Sequence[Any], at_least: int) -> Any:
        """What at least so many of several readers said of `record`."""
        raise NotImplementedError

    def by_reading(self, record: Any, said: Any) -> Any:
        """`record` with what was said as its reference."""
        raise NotImplementedError

    def answers_of(self, record: Any, said: Any) -> list[Any]:
        """What was said as predictions."""
        raise NotImplementedError


class ShownKind(ABC):
    """How a row and the answers to it are shown to people.

    Attributes
    ----------
    outcomes : what a right and a wrong answer are called; none where readers judge
    """

    outcomes: ClassVar[tuple[str, str] | None]

    @abstractmethod
    def case(self, record: Any) -> Case:
        """A record with its references, as it is shown."""

    @abstractmethod
    def case_answers(
        self, predictions: Sequence[Any], records: Sequence[Any], rows: Any, protocol: Mapping[str, Any]
    ) -> Mapping[str, Sequence[CaseAnswer]]:
        """Key of a record -> what a system answered, with outcomes of `rows`, None where readers score."""


class ExchangedKind(ABC):
    """How references and predictions travel to annotation tools and back; a kind of which nothing travels leaves it."""

    name: ClassVar[str]

    def drawn_references(self, records: Sequence[Any], manifest: Any) -> Annotations:
        """What readers drew or said.

        Raises
        ------
        ArgumentError
            If nothing of this kind can be drawn on images or said as labels.
        """
        raise self._stays()

    def drawn_predictions(self, predictions: Sequence[Any], records: Sequence[Any], manifest: Any) -> Annotations:
        """What a model drew or said; raises as :meth:`drawn_references`."""
        raise self._stays()

    def undrawn(self, annotations: Annotations) -> tuple[list[Any], list[str]]:
        """Predictions of what one reader or model drew or said, and in words what they could not keep; raises as
        :meth:`drawn_references`.
        """
        raise self._stays()

    def _stays(self) -> ArgumentError:
        return ArgumentError("folder", "must be a benchmark of localization or findings", f"one of {self.name}")


class BoardKind(ABC):
    """What a board shows and releases, and what its confined children need.

    Attributes
    ----------
    primary : metric whose macro ranks
    stand_ins : metrics whose macro ranks where that of `primary` is not there
    released : metrics of which a board may have figures, in the order of its columns
    of_places : those of them that score places which a sender marks and can move, one by one
    needs_absent : whether a finding is shown only if it is absent from as many items as it needs cases
    scored_by : "program", or "readers" whose ratings make the scores
    most_answers : (so many items held out or more, so many scored submissions of a team on a version), ascending from
        0: with more, five teams who collude learn too much, see "What colluding teams can learn" in the operator's
        guide
    """

    primary: ClassVar[str]
    stand_ins: ClassVar[tuple[str, ...]] = ()
    released: ClassVar[tuple[str, ...]]
    of_places: ClassVar[tuple[str, ...]] = ()
    needs_absent: ClassVar[bool] = False
    scored_by: ClassVar[str] = "program"
    most_answers: ClassVar[tuple[tuple[int, int], ...]] = ((0, 3),)

    def answers_on(self, n_items: int) -> int:
        """Most scored submissions of a team on a version that holds out `n_items`, from `most_answers`.

        Examples
        --------
        >>> from reveal_bench.kinds import KINDS
        >>> KINDS["findings"].answers_on(299), KINDS["findings"].answers_on(300)
        (2, 3)
        """
        return [answers for least, answers in self.most_answers if n_items >= least][-1]

    def least_items(self, min_cell: int) -> int:
        """Fewest items held out of which a board can show a figure, if a finding needs `min_cell` cases."""
        return 2 * min_cell if self.needs_absent else min_cell

    @property
    def can_be_probed(self) -> bool:
        """Whether a score tells of labels that are held out: what readers judged was never held out."""
        return self.scored_by == "program"

    @abstractmethod
    def disclose(self, rows: Any, resampling: Resampling, *, min_cell: int) -> Disclosure:
        """What may be shown of the rows of one submission on a holdout, with its intervals, before it is rounded."""

    @abstractmethod
    def scope(self, manifest: Any) -> tuple[tuple[str, ...], int]:
        """What figures of a board may be of, in table order, and how many rows a split asks for."""

    @abstractmethod
    def manifest_entries(self, manifest: Any) -> list[dict[str, Any]]:
        """Every question of a split as the board's API tells it."""

    @abstractmethod
    def codec(self) -> Codec:
        """Predictions, rows and manifest as arrays and back."""

    @abstractmethod
    def marks(self, predictions: Sequence[Any], manifest: Any, thresholds: float | Mapping[str, float]) -> Marks:
        """By what two files of predictions are found to be the same, or nearly so."""

    @abstractmethod
    def signs(self, predictions: Sequence[Any], manifest: Any) -> list[str]:
        """Signs, for moderators, that a file asks the scorer rather than answers for a model.

        They deter, they do not bound anything, and they never refuse a submission.
        """

    @abstractmethod
    def example_upload(self) -> tuple[Any, str]:
        """A manifest and a clean file of one prediction or more: reading it loads all that reading takes."""

    def example_rows(self) -> list[Any]:
        """Rows of an example: scoring them compiled all that scoring takes."""
        return []


class Kind(DatasetKind, ScoredKind, ReadKind, ShownKind, ExchangedKind, BoardKind):
    """A kind of benchmark: its dataset, its answers and scores, its readers, its board."""

    def largest_cell(self, manifest: Any) -> tuple[int, str]:
        """Most items of a split that one figure can be of, and what they are, as far as the manifest tells."""
        return self.scope(manifest)[1], self.items
