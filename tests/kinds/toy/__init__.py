"""A fourth kind of benchmark, complete in this folder: is a tube in the right place? A row is a radiograph.

The folder imports nothing from the tests, so that a copy of the package can include it as a kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from reveal_bench.benchmarks import Benchmark
from reveal_bench.kinds.arrays import Arrays, Codec, Fields, Item, Marks, names_from, require, text_of_names
from reveal_bench.kinds.cases import Case, CaseAnswer
from reveal_bench.kinds.folder import AnyFolder, FolderInfo, open_split, split_shards
from reveal_bench.kinds.images import PictureFile, PublishedPicture
from reveal_bench.kinds.kind import Kind
from reveal_bench.kinds.options import ScoringOptions, Thresholds
from reveal_bench.kinds.parts import (
    Data,
    Display,
    Predictions,
    Questions,
    Release,
    Scoring,
    Table,
    fields_of,
)
from reveal_bench.kinds.questions import Answer as ModelAnswer
from reveal_bench.kinds.questions import Question
from reveal_bench.kinds.rows import Fault, Row, text_schema
from reveal_bench.kinds.scored import Disclosure, disclosure_of_findings
from reveal_bench.kinds.split_counts import Tally
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.predictions.files import open_source
from reveal_bench.predictions.jsonl import RawPrediction, check_entries, read_jsonl
from reveal_bench.predictions.limits import Limits, LintOptions
from reveal_bench.predictions.report import LintReport

from .scoring import GROUPS, Answer, TubeManifest, TubeRecord, TubeRows, score_tubes

if TYPE_CHECKING:
    from datasets import Features

    from reveal_bench.kinds.tasks.records import Rating

__all__ = ["TUBES", "TUBES_KIND"]

PLACES = ("film_id", "study_id", "patient_id")

TUBES = Benchmark("tubes", "Tubes", "a test", "tubes", GROUPS, "all", ("percent_agreement",), 8, "open")  # type: ignore[arg-type]


class TubeData(Data[TubeRecord]):
    def key_of(self, record: TubeRecord) -> str:
        return record.film_id

    def pictures(self, record: TubeRecord) -> tuple[PictureFile | None, ...]:
        return ()

    def bare_record(self, entry: Row, findings: Sequence[str]) -> TubeRecord:
        return TubeRecord(entry["film_id"], "", "", False)

    def read_records(self, folder: AnyFolder, split: str) -> list[TubeRecord]:
        shards = split_shards(folder, "tubes", split)
        return [TubeRecord(**row) for shard in shards for row in pq.read_table(shard).to_pylist()]

    def read_references(self, folder: AnyFolder, split: str) -> list[TubeRecord]:
        return self.read_records(folder, split)


class TubeTable(Table[TubeRecord]):
    image_columns: ClassVar = ()

    def features(self, benchmark: Benchmark) -> Features:
        from datasets import Features, Value

        return Features({**{name: Value("string") for name in PLACES}, "is_right": Value("bool")})

    def row(self, record: TubeRecord, benchmark: Benchmark, developed: Sequence[PublishedPicture | None]) -> Row:
        return asdict(record)

    def blank(self, row: Row) -> Row:
        return {**row, "is_right": None}

    def row_faults(self, row: Row, findings: Sequence[str]) -> Iterator[Fault]:
        return iter(())

    def tally(self) -> TubeTally:
        return TubeTally()


class TubeQuestions(Questions[TubeRecord, TubeManifest]):
    forms: ClassVar = ("labels",)

    def asked(self, record: TubeRecord, benchmark: Benchmark, asks: str) -> list[str]:
        return list(GROUPS)

    def manifest_schema(self) -> pa.Schema:
        return text_schema(film_id="text")

    def manifest_row(self, row: Row, asked: Sequence[str]) -> Row:
        return {"film_id": row["film_id"]}

    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        return list(GROUPS)

    def manifest_disclosure(self, asks: str) -> str:
        return "The manifest names the films."

    def read_manifest(self, folder: AnyFolder, split: str) -> TubeManifest:
        info = open_split(folder, split).info
        films = pq.read_table(Path(folder) / "manifest" / f"{split}.parquet").column("film_id").to_pylist()
        return TubeManifest(info.benchmark, info.version, split, tuple(films))

    def read(self, folder: AnyFolder, split: str, info: FolderInfo, form: str) -> Iterator[Question]:
        return (Question(film, form, ()) for film in self.read_manifest(folder, split).films)

    def scope(self, manifest: TubeManifest) -> tuple[tuple[str, ...], int]:
        return GROUPS, len(manifest.films)

    def manifest_entries(self, manifest: TubeManifest) -> list[Row]:
        return [{"asked": [film]} for film in manifest.films]


class TubePredictions(Predictions[Answer, TubeManifest, TubeRows]):
    def lint(self, path: Path, manifest: TubeManifest, options: LintOptions = LintOptions()) -> LintReport:
        log, data = open_source(path, options.limits, options.name)
        if data is None:
            return LintReport.of_unread(log, options.allow_missing)
        known = set(manifest.films)

        def check(entry: RawPrediction) -> Answer | None:
            film, answer = entry.fields.get("film_id"), entry.fields.get("is_right")
            if film not in known or not isinstance(answer, bool):
                log.error("answer", "must be true or false of a film of the split", line=entry.line, field="is_right",
                          value=answer)  # fmt: skip
                return None
            return Answer(str(film), answer, entry.line)

        entries = read_jsonl(data, options.limits, log)
        answers = [answer for answer in check_entries(entries, check, log) if answer is not None]
        accepted = () if log.has_errors else tuple(answers)
        return LintReport(log.file, "jsonl", len(answers), tuple(log.problems), accepted, (), {}, options.allow_missing)

    def from_answer(self, answer: ModelAnswer) -> list[Answer]:
        return [Answer(answer.unit, bool(answer.labels))]

    def entries(self, key: str, answer: object) -> list[Row]:
        return [fields_of("film_id", key, answer)]

    def to_jsonl(self, predictions: Iterable[Answer]) -> str:
        lines = (f'{{"film_id": "{p.film_id}", "is_right": {str(p.is_right).lower()}}}\n' for p in predictions)
        return "".join(lines)

    def codec(self) -> TubeCodec:
        return TubeCodec()

    def example_upload(self) -> tuple[TubeManifest, str]:
        return TubeManifest("tubes", "1", "test", ("a",)), '{"film_id": "a", "is_right": true}'


class TubeScoring(Scoring[TubeRecord, Answer, TubeManifest, TubeRows]):
    intervals: ClassVar = ("percentile",)

    def protocol(self, options: ScoringOptions) -> dict[str, object]:
        return {}

    def score(
        self,
        predictions: Sequence[Answer],
        records: Iterable[TubeRecord],
        manifest: TubeManifest,
        options: ScoringOptions,
        ratings: Sequence[Rating] = (),
    ) -> TubeRows:
        return score_tubes(predictions, list(records))


class TubeRelease(Release[Answer, TubeManifest, TubeRows]):
    primary: ClassVar = "percent_agreement"
    metrics: ClassVar = ("percent_agreement",)

    def largest_cell(self, manifest: TubeManifest) -> tuple[int, str]:
        return len(manifest.films), "films"

    def disclose(
        self,
        rows: TubeRows,
        resampling: Resampling,
        *,
        min_cell: int,
        ranked_by: str = "",
        left_out: Collection[str] = (),
    ) -> Disclosure:
        visible = () if len(rows) < min_cell else tuple(group for group in GROUPS if group not in left_out)
        estimates = rows.estimates(resampling.by("percentile")) if visible else []
        return disclosure_of_findings(estimates, GROUPS, visible, counted="films", min_cell=min_cell)

    def marks(self, predictions: Sequence[Answer], manifest: TubeManifest, thresholds: Thresholds) -> Marks:
        answers: list[Item] = sorted((p.film_id, p.is_right) for p in predictions)
        return Marks(answers, set(answers))

    def signs(self, predictions: Sequence[Answer], manifest: TubeManifest) -> list[str]:
        return ["Every film has the same answer."] if len({p.is_right for p in predictions}) == 1 else []


class TubeDisplay(Display[TubeRecord, Answer, TubeRows]):
    question: ClassVar = "Is the tube of a radiograph in the right place? Answers are yes or no."
    holds: ClassVar = "whether the tube is in the right place, one row per radiograph"
    picture_words: ClassVar = "pictures are"
    meanings: ClassVar = {
        "film_id": "id of the radiograph; predictions name it",
        "is_right": "whether the tube is well placed",
    }
    outcomes: ClassVar = ("right", "wrong")

    def case(self, record: TubeRecord) -> Case:
        return Case(record.film_id, (), GROUPS, {})

    def case_answers(
        self, predictions: Sequence[Answer], records: Sequence[TubeRecord], rows: TubeRows, options: ScoringOptions
    ) -> dict[str, list[CaseAnswer]]:
        return {}


TUBES_KIND: Kind[TubeRecord, Answer, TubeManifest, TubeRows, object] = Kind(
    name="tubes",
    config="tubes",
    key="film_id",
    counted="n_films",
    unit="film",
    data=TubeData(),
    table=TubeTable(),
    questions=TubeQuestions(),
    predictions=TubePredictions(),
    scoring=TubeScoring(),
    release=TubeRelease(),
    display=TubeDisplay(),
)
"""Yes or no for each radiograph."""


@dataclass
class TubeTally(Tally):
    """Counts of films and of tubes in the right place."""

    items: ClassVar[str] = "films"

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Count a film; its tube is finding 0."""
        super().add(row, asked)
        self.positives[0] += row["is_right"]

    def findings_text(self, findings: Sequence[str]) -> str:
        """Return the number of tubes in the right place as text."""
        return f"{self.positives[0]} of {self.n_rows} tubes are in the right place."


class TubeCodec(Codec[Answer, TubeManifest, TubeRows]):
    """Indices of films and answers."""

    predictions: ClassVar[Fields] = {"film": ("<u4", 1), "is_right": ("|b1", 1)}
    rows: ClassVar[Fields] = {"text": ("|u1", 1), "is_correct": ("<f8", 1), "tubes": ("|b1", 1)}

    def manifest_from(self, raw: Row) -> TubeManifest:
        return TubeManifest(**{**raw, "films": tuple(raw["films"])})

    def arrays_of(self, predictions: Sequence[Answer], manifest: TubeManifest) -> Arrays:
        places = {film: i for i, film in enumerate(manifest.films)}
        films = pa.array([places[p.film_id] for p in predictions], pa.uint32()).to_numpy()
        return {"film": films, "is_right": TubeRows.flags(p.is_right for p in predictions)}

    def predictions_from(self, arrays: Arrays, manifest: TubeManifest, limits: Limits) -> tuple[Answer, ...]:
        require(bool((arrays["film"] < len(manifest.films)).all()), "`film` must be an index into the manifest")
        columns = (arrays[name].tolist() for name in ("film", "is_right", "line"))
        return tuple(Answer(manifest.films[film], right, line) for film, right, line in zip(*columns, strict=True))

    def arrays_of_rows(self, rows: TubeRows) -> Arrays:
        names = {"films": rows.films, "patients": rows.patient_ids}
        return {"text": text_of_names(names), "is_correct": rows.is_correct, "tubes": TubeRows.flags([True])}

    def rows_from(self, arrays: Arrays) -> TubeRows:
        names = names_from(arrays["text"])
        return TubeRows(tuple(names["films"]), tuple(names["patients"]), arrays["is_correct"])
