"""Reader of dataset folders: files, columns of tables, and rows.

Only a few rows are in memory at a time, whatever the size of the folder.

Only known files and metadata are allowed, because no check could understand the contents of a file with another name or
of a note in Parquet metadata. In a split with private references, only columns that `Table.blank` leaves unchanged may
have values (:func:`input_rule`). A build and its check thus follow the same rule. A column that the kind of benchmark
does not know must also be empty, because it could reveal references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.benchmarks import BENCHMARKS, Benchmark
from reveal_bench.dataset.preview import PREVIEW, preview_features
from reveal_bench.files import FILMS, FOLDER_INFO
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import FolderInfo, read_batches, read_folder_info
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.rows import Row, of_any_length
from reveal_bench.sources.source import Problem

if TYPE_CHECKING:
    from datasets import Features

SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}\.parquet")
INPUTS = "holdout_inputs"
MANIFEST = "manifest"
BATCH_ROWS = 8
IDS = {
    "image_id": "image", "image_ids": "image", "prior_image_ids": "image", "study_id": "study", "task_id": "task",
    "patient_id": "patient",
}  # fmt: skip
"""Name of a column of ids -> kind of these ids."""


@dataclass(frozen=True)
class DatasetFolder:
    """A dataset folder with the contents of its `benchmark.json`.

    Attributes
    ----------
    kind_name, kind : kind of the benchmark, as key and value in KINDS
    benchmark : entry of BENCHMARKS, with the findings of this folder
    is_private : True for the private folder of a holdout, in which no split has public references
    """

    path: Path
    info: FolderInfo
    kind_name: str
    benchmark: Benchmark

    @property
    def kind(self) -> AnyKind:
        """The kind of the benchmark."""
        return KINDS[self.kind_name]

    @property
    def is_private(self) -> bool:
        """True for the private folder of a holdout."""
        return not any(entry.get("references") == "public" for entry in self.info.splits.values())

    @property
    def private_splits(self) -> set[str]:
        """Splits whose references are private."""
        return {split for split, entry in self.info.splits.items() if entry.get("references") == "private"}


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file, with the config (or "manifest") and split that its path states."""

    path: Path
    name: str
    config: str
    split: str


def open_folder(path: Path) -> DatasetFolder:
    """Return the description of a dataset folder.

    Raises
    ------
    ValueError
        If `path` is not a dataset folder, or if its benchmark is not in BENCHMARKS and no main config reveals its kind.
    """
    path = Path(path)
    info = read_folder_info(path)
    known = BENCHMARKS.get(info.benchmark)
    kinds = [name for name, kind in KINDS.items() if (path / kind.config).is_dir()]
    if known is None and len(kinds) != 1:
        rule = f"`benchmark` must be one of {', '.join(BENCHMARKS)}"
        raise ValueError(f"{path / FOLDER_INFO}: {rule}, got {info.benchmark!r}")
    kind_name = known.kind if known is not None else kinds[0]
    model = known or next(benchmark for benchmark in BENCHMARKS.values() if benchmark.kind == kind_name)
    groups = {name: tuple(members) for name, members in info.finding_groups.items()}
    benchmark = replace(
        model, name=info.benchmark, findings=info.findings, finding_groups=groups, not_asked=info.not_asked
    )
    return DatasetFolder(path, info, kind_name, benchmark)


def tables_of(folder: DatasetFolder) -> list[TableFile]:
    """Return all Parquet files of the folder, sorted by path."""
    tables = []
    for path in sorted(folder.path.rglob("*.parquet")):
        relative = path.relative_to(folder.path)
        match = SHARD.fullmatch(path.name)
        split = match["split"] if match else path.stem
        tables.append(TableFile(path, relative.as_posix(), relative.parent.as_posix(), split))
    return tables


def expected_features(folder: DatasetFolder, promised: Mapping[str, Features]) -> dict[str, Features]:
    """Return a dict from config to required features, which the kind of benchmark or else the card defines."""
    kind = folder.kind
    features = {
        kind.config: kind.table.features(folder.benchmark),
        INPUTS: kind.table.features(folder.benchmark),
        PREVIEW: preview_features(kind),
    }
    if kind.table.side_config is not None:
        features[kind.table.side_config] = kind.table.side_features(folder.benchmark)
    return {**promised, **features, **kind.table.further_features()}


def schema_problems(folder: DatasetFolder, table: TableFile, promised: Mapping[str, Features]) -> Iterator[Problem]:
    """Yield a problem for each column that is missing, unknown or has a wrong type, or if the file is not Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(table.path)
    except (OSError, pa.ArrowException) as error:
        yield Problem(table.name, None, "file", "must be a Parquet file", str(error))
        return
    if table.config == MANIFEST:
        expected = folder.kind.questions.manifest_schema()
    else:
        features = expected_features(folder, promised).get(table.config)
        if features is None:
            yield Problem(table.name, None, "config", "must be a config that the card lists", repr(table.config))
            return
        expected = features.arrow_schema
        if folder.info.format == 1:
            schema = _with_any_length(schema)
    for name in sorted(set(expected.names) ^ set(schema.names)):
        missing = name in expected.names
        rule = "must exist" if missing else "must not exist, because the schema has no such column"
        yield Problem(table.name, None, name, rule, "no such column" if missing else str(schema.field(name).type))
    for name in expected.names:
        if name in schema.names and expected.field(name).type != schema.field(name).type:
            rule = f"must be of type {_short(expected.field(name).type)}"
            yield Problem(table.name, None, name, rule, _short(schema.field(name).type))
    if table.config != MANIFEST and schema.remove_metadata().equals(expected.remove_metadata()):
        yield from _meaning_problems(schema, features, table)


def _with_any_length(schema: Any) -> Any:
    """Return the schema of a table in format 1, converted to format 2, in which lists have any length."""
    from datasets import Features

    written = Features.from_arrow_schema(schema)
    loose = Features({name: of_any_length(feature) for name, feature in written.items()}).arrow_schema
    return loose.with_metadata(loose.metadata if b"huggingface" in (schema.metadata or {}) else None)


def _meaning_problems(schema: Any, features: Features, table: TableFile) -> Iterator[Problem]:
    """Yield a problem for each column of codes with wrong names of the codes; the types must be correct."""
    from datasets import Features

    if b"huggingface" not in (schema.metadata or {}):
        yield Problem(table.name, None, "metadata", "must contain the names of the codes (key huggingface)", "none")
        return
    written = Features.from_arrow_schema(schema)
    for name in features:
        if name in written and written[name] != features[name]:
            rule = "must have the names of codes in the schema"
            yield Problem(table.name, None, name, rule, _short(written[name]))


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else text[:117] + "..."


def read_table(table: TableFile, columns: list[str] | None = None) -> Iterator[list[Row]]:
    """Yield the rows of a file in small batches; `columns` that the file lacks are left out.

    Raises
    ------
    OSError, pyarrow.ArrowException
        If the file is damaged.
    """
    import pyarrow.parquet as pq

    if columns is not None:
        present = pq.read_schema(table.path).names
        columns = [name for name in columns if name in present]
        if not columns:
            return
    yield from read_batches(table.path, columns, at_once=BATCH_ROWS)


DESCRIPTIONS = {
    "README.md",
    "CITATION.cff",
    ".zenodo.json",
    "croissant.json",
    "eval.yaml",
    "CHECKSUMS.json",
    FOLDER_INFO,
    FILMS,
}
METADATA = {"huggingface", "ARROW:schema", "pandas"}
FIELD_METADATA = {"PARQUET:field_id"}


def file_problems(
    folder: DatasetFolder, names: Iterable[str], promised: Mapping[str, Mapping[str, object]]
) -> Iterator[Problem]:
    """Yield a problem for each file that does not belong in a dataset folder.

    Parameters
    ----------
    names : relative paths of the folder's files
    promised : configs and their splits that the card lists; if it lists none, any table is allowed
    """
    for name in sorted(set(names) - DESCRIPTIONS):
        place, _, file = name.rpartition("/")
        match = SHARD.fullmatch(file)
        if place == MANIFEST:
            is_table = file.endswith(".parquet") and file.removesuffix(".parquet") in folder.info.splits
        elif not promised:
            is_table = match is not None
        else:
            is_table = match is not None and match["split"] in promised.get(place, ())
        if not is_table:
            yield Problem(name, None, "file", "must be a file that belongs in a dataset folder", "another file")


def metadata_problems(table: TableFile) -> Iterator[Problem]:
    """Yield a problem for Parquet metadata other than the columns' types; none if the file is damaged."""
    for place, key, value in _metadata(table.path):
        if key not in (FIELD_METADATA if place else METADATA):
            got = f"{place}: {key[:60]}" if place else key[:60]
            yield Problem(table.name, None, "metadata", "must only state the types of the columns", got)
        elif key == "huggingface" and not _tells_features_alone(value):
            yield Problem(
                table.name, None, "metadata", "must only state the types of the columns", "more in huggingface"
            )


def metadata_texts(path: Path) -> Iterator[str]:
    """Yield every string of a Parquet file's metadata; none if the file is damaged."""
    for _, key, value in _metadata(path):
        yield key
        if key != "ARROW:schema":  # repeats the schema as bytes
            yield value


def _metadata(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (column, key, value) of each entry of a Parquet file's metadata; column is "" for the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer, schema = pq.read_metadata(path).metadata or {}, pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return
    for key, value in {**footer, **(schema.metadata or {})}.items():
        yield "", _text(key), _text(value)
    for field in schema:
        yield from _field_metadata(field, field.name)


def _field_metadata(field: Any, place: str) -> Iterator[tuple[str, str, str]]:
    for key, value in (field.metadata or {}).items():
        yield place, _text(key), _text(value)
    for i in range(field.type.num_fields):
        inner = field.type.field(i)
        yield from _field_metadata(inner, f"{place}.{inner.name}")


def _tells_features_alone(value: str) -> bool:
    try:
        metadata = json.loads(value)
        return set(metadata) == {"info"} and set(metadata["info"]) == {"features"}
    except (ValueError, TypeError):
        return False


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


HASHES = ("source_sha256", "pixel_sha256")


@dataclass(frozen=True)
class InputRule:
    """Rule on the columns that may have values in a row without references.

    Attributes
    ----------
    blanked : dict from column that must be empty to the value that counts as empty (None, or a code that means
        "unknown")
    known : columns that may have values
    """

    blanked: Mapping[str, Any]
    known: frozenset[str]

    def faults(self, row: Row) -> Iterator[str]:
        """Yield the names of columns, or dotted names of fields, with a value that inputs must not have."""
        for name, value in row.items():
            if name in self.known:
                yield from _hashes_in(name, value)
            elif not is_empty(value) and value != self.blanked.get(name):
                yield name


def input_rule(folder: DatasetFolder) -> InputRule:
    """Return the rule for inputs of the folder's kind of benchmark."""
    kind = folder.kind
    blanked = kind.table.blank({"image_facts": [], "prior_image_facts": []})
    facts = {"image_facts", "prior_image_facts"}
    columns = {*kind.table.columns(folder.benchmark), *kind.questions.manifest_schema().names, *IDS}
    empty = {name: value for name, value in blanked.items() if name not in facts}
    return InputRule(empty, frozenset(columns - empty.keys()))


def _hashes_in(column: str, value: Any) -> Iterator[str]:
    """Yield the dotted names of hashes in a column with facts about pictures."""
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            yield from (f"{column}.{name}" for name in HASHES if entry.get(name) is not None)


def is_empty(value: object) -> bool:
    """Return True if a value contains only None, "" and empty lists or dicts, at any depth."""
    if isinstance(value, dict):
        return all(is_empty(inner) for inner in value.values())
    if isinstance(value, list):
        return all(is_empty(inner) for inner in value)
    return value is None or value == ""
