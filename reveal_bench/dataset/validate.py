"""Validation of a dataset folder: files, tables, references, pictures, descriptions, holdout and loading.

:func:`validate_folder` returns a list of :class:`reveal_bench.arguments.Problem`, and continues after a problem if
possible. An empty list means that the folder may be published. Only a few rows are in memory at a time.

If the private folder is given, the two folders must agree on the manifest and sizes of the private split and on the
pictures in ``holdout_inputs``. Otherwise a model would be scored against the wrong references.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.dataset.build_log import film_record_problems
from reveal_bench.dataset.layout import CHECKSUMS
from reveal_bench.dataset.leaks import find_leaks
from reveal_bench.dataset.preview import PREVIEW, preview_problems
from reveal_bench.dataset.tables import (
    INPUTS,
    MANIFEST,
    DatasetFolder,
    TableFile,
    expected_features,
    file_problems,
    input_rule,
    metadata_problems,
    open_folder,
    read_table,
    schema_problems,
    tables_of,
)
from reveal_bench.dataset.validate_card import (
    card_problems,
    citation_problems,
    croissant_problems,
    eval_problems,
    load_problems,
    mlcroissant_problems,
    read_promise,
    required_problems,
)
from reveal_bench.dataset.validate_rows import DrawnMasks, PictureChecks, id_faults, quantity_faults, value_faults
from reveal_bench.files import FOLDER_INFO, file_sha256
from reveal_bench.kinds.folder import FORMAT
from reveal_bench.kinds.rows import Fault, Row, image_facts_of
from reveal_bench.kinds.split_counts import Tally
from reveal_bench.kinds.tasks.rows import rating_faults
from reveal_bench.sources.source import Problem

RULE = "must equal the value in the holdout's private folder"


def holdout_problems(
    public: DatasetFolder, holdout: Path, input_pictures: Mapping[str, Sequence[tuple[str, str]]]
) -> Iterator[Problem]:
    """Yield a problem for each difference between the public and the private folder in their facts about the holdout.

    Parameters
    ----------
    input_pictures : dict from image id to (file, sha256 of the decoded pixels) of pictures in the public folder's
        inputs
    """
    private = open_folder(holdout)
    key = public.kind.key
    for split in sorted(public.private_splits):
        if split not in private.info.splits:
            yield Problem(FOLDER_INFO, split, "splits", "must be in the private folder", "no such split there")
            continue
        sizes, stated = private.info.splits[split], public.info.splits[split]
        for name in sorted((sizes.keys() | stated.keys()) - {"references"}):
            if sizes.get(name) != stated.get(name):
                yield Problem(FOLDER_INFO, split, name, f"must be {sizes.get(name)}, as in the private folder",
                              str(stated.get(name)))  # fmt: skip
        public_rows, private_rows = (_rows(folder, MANIFEST, split) for folder in (public, private))
        yield from _manifest_problems(public_rows, private_rows, f"{MANIFEST}/{split}.parquet", key)
        inputs = _rows(public, INPUTS, split, [key])
        if inputs or public.kind.questions.has_prompts:
            yield from _input_problems(Counter(row[key] for row in inputs), private_rows, f"{INPUTS}/{split}", key)
    yield from _picture_problems(private, input_pictures)


def _manifest_problems(public: list[Row], private: list[Row], file: str, key: str) -> Iterator[Problem]:
    rows = {row.get(key): row for row in public}
    known = {row.get(key): row for row in private}
    for name in sorted(rows.keys() ^ known.keys(), key=str):
        yield Problem(file, name, key, "must be in the manifests of both folders", "in one alone")
    for name, row in rows.items():
        for column in row if name in known else ():
            if row[column] != known[name].get(column):
                yield Problem(file, name, column, RULE, str(row[column]))


def _input_problems(inputs: Counter[str], private: list[Row], file: str, key: str) -> Iterator[Problem]:
    known = {row[key] for row in private}
    for name in sorted(inputs.keys() | known, key=str):
        n_expected = int(name in known)
        if inputs[name] != n_expected:
            yield Problem(
                file, name, key, f"must have {n_expected} rows, as in the private manifest", str(inputs[name])
            )


def _picture_problems(private: DatasetFolder, inputs: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[Problem]:
    for table in tables_of(private):
        if table.config != private.kind.config:
            continue
        columns = ["image_id", "pixel_sha256", "image_facts", "prior_image_facts"]
        for row in (row for batch in read_table(table, columns) for row in batch):
            for entry in image_facts_of(row):
                for file, pixels in inputs.get(entry["image_id"], ()):
                    if entry["pixel_sha256"] not in (None, pixels):
                        yield Problem(file, entry["image_id"], "image", RULE, f"a picture with the pixels {pixels}")


def _rows(folder: DatasetFolder, config: str, split: str, columns: list[str] | None = None) -> list[Row]:
    """Return the rows of a split; none if the file is damaged, which the check of the schema reports."""
    import pyarrow as pa

    rows: list[Row] = []
    for table in tables_of(folder):
        if (table.config, table.split) == (config, split):
            try:
                rows += [row for batch in read_table(table, columns) for row in batch]
            except (OSError, pa.ArrowException):
                continue
    return rows


class Reader:
    """Reader of the files of a dataset folder, used by validation.

    A subclass may obtain results in another way, for example from workers. Its rows may then contain a
    :class:`reveal_bench.dataset.validate_rows.PictureFacts` or ``MaskFacts`` instead of a picture, and its `masks` may
    already be checked.
    """

    def __init__(self) -> None:
        self.masks = DrawnMasks()

    def sha256(self, path: Path) -> str:
        """Return the hexadecimal sha256 of a file."""
        return file_sha256(path)

    def rows(self, table: TableFile) -> Iterator[list[Row]]:
        """Return an iterator of small batches of a table's rows."""
        return read_table(table)


CACHES = {".git", ".cache", "__pycache__"}
"""Folders that other tools create and that are not part of the dataset."""
Progress = Callable[[str, int, int | None], None]


def validate_folder(
    folder: Path,
    *,
    holdout: Path | None = None,
    load: bool = True,
    progress: Progress | None = None,
    warnings: list[Problem] | None = None,
    reader: Reader | None = None,
) -> list[Problem]:
    """Return all problems of a dataset folder.

    Parameters
    ----------
    folder : public or private dataset folder
    holdout : private folder of the holdout; if given, the two folders are compared, and the public folder must not
        contain private contents
    load : also load every config and split with `datasets`, offline, and ``croissant.json`` with mlcroissant if it is
        installed
    progress : called with (name of the check, rows done, rows in all)
    warnings : list to which warnings are added: pictures that show nothing, occur twice in a split or are withheld
        without a hash, and Croissant fields that only the makers of the dataset can fill
    reader : reader of tables and hasher of files, such as :class:`reveal_bench.scale.validate.TaskReader`; it does
        not change the result

    Returns
    -------
    list of Problem, each with file, row, field, rule and value; empty if the folder is valid

    Raises
    ------
    ValueError
        If `folder` or `holdout` is not a dataset folder.
    """
    opened = open_folder(Path(folder))
    reader = reader or Reader()
    problems, sums = _checksums(opened.path, reader)
    if opened.info.format != FORMAT:
        rule = (
            f"must be {FORMAT}, which every Parquet reader can read: build the folder again (with "
            "--previous if there is a holdout)"
        )
        problems.append(Problem(FOLDER_INFO, None, "schema", rule, str(opened.info.format)))
    promise, faults = read_promise(opened.path)
    problems += file_problems(opened, sums, promise.patterns)
    features = expected_features(opened, promise.features)
    check = _Check(opened, features, problems + faults, [] if warnings is None else warnings, progress, reader)
    n_rows: dict[TableFile, int] = {}
    unsound: set[tuple[str, str]] = set()
    for table in tables_of(opened):
        schema_faults = list(schema_problems(opened, table, promise.features))
        check.problems += schema_faults
        check.problems += metadata_problems(table)
        n_rows[table] = _n_rows(table)
        if schema_faults:
            unsound.add((table.config, table.split))
    check.tables(n_rows, unsound)
    image_ids = {name for column, name in check.home if column == "image_id"}
    check.problems += film_record_problems(opened.path, image_ids)
    if not opened.is_private:
        check.warnings += check.pictures.unverifiable(opened.kind.config)
    check.problems += card_problems(opened, promise, n_rows)
    if not opened.is_private:
        check.problems += eval_problems(opened, promise)
        check.problems += citation_problems(opened)
        check.problems += croissant_problems(opened, promise, sums)
        check.problems += required_problems(opened, check.warnings)
    if holdout is not None or not opened.is_private:
        private = None if holdout is None else Path(holdout)
        check.problems += find_leaks(opened.path, private, pictures=check.pictures)
        if private is not None:
            check.problems += holdout_problems(opened, private, check.pictures.inputs)
    if load:
        check.problems += load_problems(opened.path, promise)
        check.problems += mlcroissant_problems(opened.path)
    return check.problems


def _checksums(folder: Path, reader: Reader) -> tuple[list[Problem], dict[str, str]]:
    """Return (problems of CHECKSUMS.json, dict from file to actual sha256)."""
    present = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not CACHES & set(path.relative_to(folder).parts)
    }
    present.pop(CHECKSUMS, None)
    sums = {name: reader.sha256(path) for name, path in present.items()}
    try:
        listed = dict(json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [Problem(CHECKSUMS, None, "file", "must list the sha256 of every file", type(error).__name__)], sums
    problems = []
    for name in sorted(present.keys() | listed.keys()):
        if name not in present:
            problems.append(Problem(CHECKSUMS, name, "files", "must be in the folder", "no such file"))
        elif name not in listed:
            problems.append(Problem(CHECKSUMS, name, "files", "must list every file of the folder", "not listed"))
        elif sums[name] != listed[name]:
            problems.append(Problem(name, None, "sha256", f"must be {listed[name]}", sums[name]))
    return problems, sums


def _n_rows(table: TableFile) -> int:
    """Return the number of rows of a table; 0 if the file is damaged, which the check of the schema reports."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(table.path).num_rows)
    except (OSError, pa.ArrowException):
        return 0


@dataclass
class _Check:
    """Check of the tables of a folder, each of which is read once; ids are remembered across tables.

    Attributes
    ----------
    features : dict from config to features
    home : dict from (column, id) to the first split with the id
    repeated : (column, id, split) of ids that also occur in a second split
    keys : dict from split to keys of its rows with references
    """

    folder: DatasetFolder
    features: Mapping[str, Mapping[str, Any]]
    problems: list[Problem]
    warnings: list[Problem]
    progress: Progress | None
    reader: Reader
    pictures: PictureChecks = field(default_factory=PictureChecks)
    home: dict[tuple[str, str], str] = field(default_factory=dict)
    repeated: set[tuple[str, str, str]] = field(default_factory=set)
    keys: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set the rule for inputs of the kind of benchmark."""
        self.inputs = input_rule(self.folder)

    def tables(self, n_rows: dict[TableFile, int], unsound: set[tuple[str, str]]) -> None:
        """Check every table; `n_rows` has their numbers of rows, `unsound` the (config, split) with wrong columns."""
        kind, info = self.folder.kind, self.folder.info
        by_place: dict[tuple[str, str], list[TableFile]] = {}
        for table in n_rows:
            by_place.setdefault((table.config, table.split), []).append(table)
        for split, entry in info.splits.items():
            main = by_place.get((kind.config, split), [])
            if {(MANIFEST, split), (kind.config, split)} & unsound:
                continue
            manifest = self._manifest(split, by_place.get((MANIFEST, split), []))
            if main:
                self._split(split, main, manifest, sum(n_rows[table] for table in main))
            elif entry.get("references") == "public":
                self._in_info(split, "references", f"must have files in {kind.config}/", "none")
            else:
                self._size(split, entry, {kind.counted: len(manifest)})
            if entry.get("references") not in ("public", "private"):
                self._in_info(split, "references", "must be 'public' or 'private'", repr(entry.get("references")))
        for (config, split), tables in by_place.items():
            self._strays(config, split, tables)
            if config == PREVIEW:
                own = {table.name for table in (*by_place.get((kind.config, split), ()), *tables)}
                if split in self.keys and not any(problem.file in own for problem in self.problems):
                    rows = ((table.name, row) for table in tables for batch in read_table(table) for row in batch)
                    self.problems += preview_problems(self.folder.path, split, kind, rows)
            elif config not in (MANIFEST, kind.config) and (config, split) not in unsound:
                self._side(config, split, tables, sum(n_rows[table] for table in tables))
        splits = {split for config, split in by_place if config == kind.table.side_config}
        if any(config == kind.table.side_config for config, _ in by_place):
            splits |= {split for config, split in by_place if config == kind.config}
        self.problems += self.reader.masks.unseen(splits, self.folder.benchmark.findings)

    def _in_info(self, split: str, name: str, rule: str, value: str) -> None:
        self.problems.append(Problem(FOLDER_INFO, split, name, rule, value))

    def _size(self, split: str, entry: object, actual: dict[str, int]) -> None:
        stated = dict(entry)  # type: ignore[call-overload]
        for name, n in actual.items():
            if stated.get(name) != n:
                self._in_info(split, name, f"must be {n}, as in the files", repr(stated.get(name)))

    def _manifest(self, split: str, tables: list[TableFile]) -> dict[str, Row]:
        """Return a dict from key to row of a split's manifest."""
        key = self.folder.kind.key
        rows: dict[str, Row] = {}
        if not tables:
            name = f"manifest/{split}.parquet"
            self.problems.append(Problem(name, None, "file", "must be a manifest of the split", "no sound file"))
        for table in tables:
            for row in (row for batch in read_table(table) for row in batch):
                if row[key] in rows:
                    self.problems.append(Problem(table.name, row[key], key, "must be unique", "it again"))
                rows[row[key]] = row
                self._belongs(row, split, table, patients=False)
                self._tell(id_faults(row), row, table)
        return rows

    def _belongs(self, row: Row, split: str, table: TableFile, *, patients: bool) -> None:
        """Note each image and task, and with `patients` each patient, that is in more than one split."""
        names = ["image_id", "task_id"] + (["patient_id"] if patients else [])
        ids = [(name, row[name]) for name in names if row.get(name)]
        ids += [("image_id", name) for column in ("image_ids", "prior_image_ids") for name in row.get(column) or ()]
        for column, name in ids:
            before = self.home.setdefault((column, name), split)
            if before != split and (column, name, split) not in self.repeated:
                self.repeated.add((column, name, split))
                self.problems.append(Problem(table.name, name, column, "must be in one split", repr(before)))

    def _split(self, split: str, tables: list[TableFile], manifest: dict[str, Row], n_rows: int) -> None:
        """Check rows with references, and compare them with the manifest and with the sizes in `benchmark.json`."""
        kind, findings = self.folder.kind, self.folder.benchmark.findings
        tally, keys = kind.table.tally(), self.keys.setdefault(split, set())
        n_unread = 0
        for table in tables:
            for rows in self.reader.rows(table):
                batch = [row for row in rows if self._is_sound(row, table)]
                n_unread += len(rows) - len(batch)
                keys.update(row[kind.key] for row in rows if row not in batch)
                if kind.table.side_config is not None:  # the pictures of the side config show the rows' masks
                    self.problems += self.reader.masks.check(batch, table, findings)
                for row in batch:
                    self._row(row, table, manifest, tally, keys)
                if self.progress is not None:
                    self.progress(f"{kind.config}/{split}", tally.n_rows, n_rows)
        for key in manifest:
            if key not in keys:
                rule = "must have a row for every entry of the manifest"
                self.problems.append(Problem(f"{kind.config}/{split}", key, kind.key, rule, "none"))
        if not n_unread:
            self._size(split, self.folder.info.splits[split], tally.size)

    def _tell(self, faults: Iterable[Fault], row: Row, table: TableFile) -> bool:
        """Note the faults of a row; return True if there are none."""
        key = self.folder.kind.key
        problems = [Problem(table.name, row.get(key) or row.get("image_id"), *fault) for fault in faults]
        self.problems += problems
        return not problems

    def _is_sound(self, row: Row, table: TableFile) -> bool:
        """Return True if other rules apply to the row: all codes have names, and no required value is missing."""
        is_own = table.config in (self.folder.kind.config, self.folder.kind.table.side_config)
        is_sound = self._tell(value_faults(row, self.features[table.config], is_input=not is_own), row, table)
        if is_own or table.config in (INPUTS, "ratings"):
            self._tell(id_faults(row, is_input=table.config == INPUTS), row, table)
        if is_sound:
            self._tell(quantity_faults(row), row, table)
        return is_sound

    def _row(self, row: Row, table: TableFile, manifest: dict[str, Row], tally: Tally, keys: set[str]) -> None:
        kind, findings = self.folder.kind, self.folder.benchmark.findings
        key = row[kind.key]
        if key in keys:
            self.problems.append(Problem(table.name, key, kind.key, "must be unique", "it again"))
        keys.add(key)
        self._belongs(row, table.split, table, patients=True)
        self.problems += [Problem(table.name, key, *fault) for fault in kind.table.row_faults(row, findings)]
        if row.get("image_ids") == [] and self.folder.benchmark.has_pictures:
            self.problems.append(Problem(table.name, key, "image_ids", "must name at least one image", "none"))
        self.problems += self.pictures.check(row, kind.key, table, self.warnings)
        asked = kind.questions.asked_of(row, findings, self.folder.info.asks)
        tally.add(row, asked)
        if key not in manifest:
            self.problems.append(Problem(table.name, key, kind.key, "must be in the manifest", "not there"))
            return
        for name, value in kind.questions.manifest_row(row, asked).items():
            if manifest[key][name] != value:
                file, rule = f"manifest/{table.split}.parquet", f"must be {value}, as the references imply"
                self.problems.append(Problem(file, key, name, rule, str(manifest[key][name])))

    def _strays(self, config: str, split: str, tables: list[TableFile]) -> None:
        """Note tables of unknown splits, and references of private splits in a public folder."""
        splits, kind = self.folder.info.splits, self.folder.kind
        if config not in (kind.config, kind.table.side_config, MANIFEST, INPUTS, PREVIEW, "ratings"):
            return
        is_private_here = not self.folder.is_private and splits.get(split, {}).get("references") == "private"
        if split not in splits or (is_private_here and config not in (MANIFEST, INPUTS)):
            rule = "must belong to a split with public references"
            self.problems += [Problem(table.name, None, "split", rule, repr(split)) for table in tables]

    def _side(self, config: str, split: str, tables: list[TableFile], n_rows: int) -> None:
        """Check rows of the other configs."""
        n_done = 0
        seen: set[tuple[str, ...]] = set()
        for table in tables:
            for batch in self.reader.rows(table):
                for row in batch:
                    if self._is_sound(row, table):
                        self.problems += self._side_row(config, row, table, seen)
                n_done += len(batch)
                if self.progress is not None:
                    self.progress(f"{config}/{split}", n_done, n_rows)

    def _side_row(self, config: str, row: Row, table: TableFile, seen: set[tuple[str, ...]]) -> Iterator[Problem]:
        kind, findings = self.folder.kind, self.folder.benchmark.findings
        if config == INPUTS:
            self._belongs(row, table.split, table, patients=True)
            for name in sorted(set(self.inputs.faults(row))):
                yield Problem(table.name, row[kind.key], name, "must be empty in a holdout's inputs", "a value")
            yield from self.pictures.check(row, kind.key, table, self.warnings)
            return
        if config == kind.table.side_config:
            yield from self.reader.masks.check_picture(row, table, findings)
        if config == "ratings":
            for fault in rating_faults(row):
                yield Problem(table.name, row["task_id"], *fault)
            who = (row["task_id"], row["model"], row["reader"])
            if who in seen:
                rule = "must be unique for each task, model and reader"
                yield Problem(table.name, row["task_id"], "reader", rule, f"{row['model']}, {row['reader']} again")
            seen.add(who)
        if kind.key in row and table.split in self.keys and row[kind.key] not in self.keys[table.split]:
            yield Problem(
                table.name, row[kind.key], kind.key, "must be in the same split of the main config", "not there"
            )
